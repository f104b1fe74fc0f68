"""A machine at hand becomes a machine profile: ops, network, input and power are measured."""

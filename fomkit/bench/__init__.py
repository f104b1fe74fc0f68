"""Measure this machine (ops, network, input, power) and write the result as a machine profile."""

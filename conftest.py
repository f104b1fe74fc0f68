"""What is not collected where a framework is absent."""

from __future__ import annotations

from importlib.util import find_spec

# Doctests are collected by importing every room, and Keras's rooms import TensorFlow.
collect_ignore_glob = (
    [] if find_spec("tensorflow") else ["fomkit/frontends/keras/*.py", "fomkit/frontends/script/keras_*.py"]
)

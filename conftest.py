"""What is not collected where a framework is absent, what is kept, and how tables keep text while tests run."""

from __future__ import annotations

import os
import sys

# Two tests run at a time: with threads of its own, linear algebra would wait for cores that the other has.
for _threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_threads, "1")

import pandas as pd  # noqa: E402 - what it loads reads those as it is loaded

# Doctests are collected by importing every room, and Keras's import TensorFlow, which takes each process seconds:
# tests/trace/test_keras_layers.py runs theirs.
collect_ignore_glob = [
    "fomkit/frontends/keras/*.py",
    "fomkit/frontends/script/keras_*.py",
    "fomkit/bench/keras_*.py",
]

# A hundred processes that tests start import fomkit: each would compile it again where Python may keep nothing.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# A shell that exports its width would narrow what commands write to pipes.
os.environ.pop("COLUMNS", None)

# Where PyArrow is installed pandas keeps text in its arrays, in which tables of this size take a tenth longer. The
# command line does the same; tests/test_profiles.py estimates with PyArrow's arrays too.
pd.set_option("mode.string_storage", "python")

"""Settings of all test processes: files not to collect, threads, bytecode, terminal width, and storage of text."""

from __future__ import annotations

import gc
import os
import sys

# Two tests run at a time: with several threads, linear algebra would wait for the cores of the other test.
for _threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_threads, "1")

# Collecting tests and importing frameworks makes a million objects that stay. Searching them for garbage took a
# tenth of the time of collecting, and a hundredth of that of the tests.
gc.set_threshold(1_000_000, 20, 20)

import pandas as pd  # noqa: E402 - its libraries read these variables when they are loaded

# Doctests are collected by importing every room. Keras's import TensorFlow, which takes each process seconds:
# tests/trace/test_keras_layers.py runs their doctests. The programs that time TensorFlow's ops have none. There
# pytest would import it, too: it asks their `Later` for names.
collect_ignore_glob = [
    "fomkit/harness/tensorflow/*.py",
    "fomkit/frontends/keras/*.py",
    "fomkit/frontends/script/keras_*.py",
    "fomkit/bench/keras_*.py",
]

# Tests start a hundred processes that import fomkit; without bytecode files each would compile it again.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# A shell that exports its width would narrow what commands write to pipes.
os.environ.pop("COLUMNS", None)

# With PyArrow installed, pandas stores text in its arrays, which makes tables of this size a tenth slower. The
# command line sets the same option; tests/test_profiles.py also estimates with PyArrow's arrays.
pd.set_option("mode.string_storage", "python")

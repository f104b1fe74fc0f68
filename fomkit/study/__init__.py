"""Whole studies: one model on one machine, several compared, suites, and their explanation."""

from fomkit.study.compare import Comparison, compare
from fomkit.study.content import estimates_content, suite_content
from fomkit.study.estimate import Estimate, estimate
from fomkit.study.explain import explain
from fomkit.study.options import Options
from fomkit.study.prediction import Prediction, predict_ops
from fomkit.study.suites import SuiteResult, given_machines, run_suite

__all__ = [
    "Comparison",
    "Estimate",
    "Options",
    "Prediction",
    "SuiteResult",
    "compare",
    "estimate",
    "estimates_content",
    "explain",
    "given_machines",
    "predict_ops",
    "run_suite",
    "suite_content",
]

"""Whole studies: one model on one machine, several compared, suites, and their explanation."""

from fomkit.study.changes import change_machine
from fomkit.study.compare import Comparison, compare
from fomkit.study.content import estimates_content
from fomkit.study.estimate import Estimate, estimate
from fomkit.study.explain import explain
from fomkit.study.from_measurements import FromMeasurements, from_measurements
from fomkit.study.measured_content import measured_content
from fomkit.study.options import Options
from fomkit.study.prediction import Prediction, predict_ops
from fomkit.study.scenarios import scenario_blocks, scenarios
from fomkit.study.suite_content import suite_content
from fomkit.study.suites import SuiteResult, freeze_rates, given_machines, run_suite

__all__ = [
    "Comparison",
    "Estimate",
    "FromMeasurements",
    "Options",
    "Prediction",
    "SuiteResult",
    "change_machine",
    "compare",
    "estimate",
    "estimates_content",
    "explain",
    "freeze_rates",
    "from_measurements",
    "given_machines",
    "measured_content",
    "predict_ops",
    "run_suite",
    "scenario_blocks",
    "scenarios",
    "suite_content",
]

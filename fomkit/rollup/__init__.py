"""From op times to passes, step, epoch and run: every term by its name, what is unknown said to be left out."""

from fomkit.rollup.coverage import UNPRICED, check_covered, coverage
from fomkit.rollup.step import StepTime, device_time, roll_up_step
from fomkit.rollup.timed_exactly import steps_if_timed
from fomkit.rollup.training import RunTime, roll_up_run
from fomkit.rollup.use import USES, Spread, Use, Uses, groups_of, uses_of, widen_calls

__all__ = [
    "UNPRICED",
    "USES",
    "RunTime",
    "Spread",
    "StepTime",
    "Use",
    "Uses",
    "check_covered",
    "coverage",
    "device_time",
    "groups_of",
    "roll_up_run",
    "roll_up_step",
    "steps_if_timed",
    "uses_of",
    "widen_calls",
]

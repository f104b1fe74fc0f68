"""From op times to passes, step, epoch and run: every term by its name, what is unknown said to be left out."""

from fomkit.rollup.coverage import UNPRICED, check_covered, check_work, coverage
from fomkit.rollup.many import Ops, device_times
from fomkit.rollup.step import StepTime, device_time, roll_up_step, terms_beside
from fomkit.rollup.timed_exactly import steps_if_timed
from fomkit.rollup.training import RunTime, roll_up_run
from fomkit.rollup.use import USES, Spread, Use, Uses, groups_of, uses_of, widen_calls

__all__ = [
    "UNPRICED",
    "USES",
    "Ops",
    "RunTime",
    "Spread",
    "StepTime",
    "Use",
    "Uses",
    "check_covered",
    "check_work",
    "coverage",
    "device_time",
    "device_times",
    "groups_of",
    "roll_up_run",
    "roll_up_step",
    "steps_if_timed",
    "terms_beside",
    "uses_of",
    "widen_calls",
]

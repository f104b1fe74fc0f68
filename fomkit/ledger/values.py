"""What a ledger evaluates to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fomkit.fom import FigureOfMerit
from fomkit.rollup import RunTime, StepTime
from fomkit.spans import Span


@dataclass(frozen=True)
class CaseValues:
    """One workload on one machine.

    Attributes
    ----------
    ops : tuple of Span or None
        Time of one execution of each op [s].
    step, run : StepTime, RunTime
        The roll-up, term by term.
    unit_per_day : Span or None
        None where the workload does not say what a run is.
    coverage : mapping
        Share of the device's time by time source; sums to 1.
    """

    ops: tuple[Span | None, ...]
    step: StepTime
    run: RunTime
    runs_at_once: int
    unit_per_day: Span | None
    coverage: Mapping[str, float]


@dataclass(frozen=True)
class Values:
    """Everything a ledger says.

    Attributes
    ----------
    cases : mapping
        By workload and machine.
    unit_per_day : mapping
        Units of work per day by workload and machine, given ones among them.
    ratios : mapping
        Target over baseline by workload and target, of units per day, else of steps per second.
    merits : mapping
        By target; empty without a baseline or without runs.
    """

    cases: Mapping[tuple[str, str], CaseValues]
    unit_per_day: Mapping[tuple[str, str], Span]
    ratios: Mapping[tuple[str, str], Span]
    merits: Mapping[str, FigureOfMerit]

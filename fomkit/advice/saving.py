"""The time at stake: a step against the same step changed, with what both have in common left out of the error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from fomkit.advice.spread import one_at_a_time
from fomkit.rollup import device_time, terms_beside, uses_of
from fomkit.spans import Span, probability_above
from fomkit.study.estimate import Estimate, with_step

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from fomkit.hardware import Machine

SAME = 1e-9
"""Relative difference below which two times of an op are one."""

Errors = Literal["independent", "launch"]


class Amount(NamedTuple):
    """A difference with its interval; any of the three may be below 0."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Saving:
    """What a changed step saves.

    Attributes
    ----------
    ratio : Span
        Time of the changed step over that of the step, for the same samples.
    step_s : Amount
        Time saved [s] of each step; never more than the step takes.
    unit_per_day : Amount or None
        Units of work a day gained; None where the profile does not say what a run is.
    """

    ratio: Span
    step_s: Amount
    unit_per_day: Amount | None

    @property
    def share(self) -> Amount:
        """Share of the step that is saved."""
        return Amount(1 - self.ratio.value, 1 - self.ratio.high, 1 - self.ratio.low)

    @property
    def chance(self) -> float:
        """The probability that anything is saved at all."""
        if self.ratio.low == self.ratio.high:
            return float(self.ratio.value < 1)
        return 1.0 - probability_above(self.ratio, 1.0)


def changed_rows(before: pd.DataFrame, after: pd.DataFrame) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Tell which rows of two TIMED tables of one step differ in time or count; rows of only one of them do.

    Parameters
    ----------
    before, after : DataFrame
        The same rows in the same order, then those that only one of them has.
    """
    shared = min(len(before), len(after))
    found = np.ones(len(before), bool), np.ones(len(after), bool)
    differs = np.zeros(shared, bool)
    for name in ("time_s", "count"):
        old, new = (table[name].to_numpy(np.float64)[:shared] for table in (before, after))
        differs |= ~np.isclose(old, new, rtol=SAME, atol=0.0, equal_nan=True)
    for flags in found:
        flags[:shared] = differs
    return found


def _starts(ops: pd.DataFrame) -> float:
    return float(np.nansum(ops["launches"].to_numpy(np.float64) * ops["count"].to_numpy(np.float64)))


def _wall(device_s: float, starts: float, machine: Machine, launch: float, load: float) -> float:
    """Give the time of a step [s] with the launch cost and the input at multiples of their values."""
    exact = Span.exact(device_s)
    terms = terms_beside(starts, machine, exact)
    known = [device_s]
    if terms.host_s is not None:
        known.append(terms.host_s.value * launch)
    if terms.input_s is not None:
        known.append(terms.input_s.value * load)
    return max(known) + terms.extra_s.value


def _relative(span: Span | None, level: float) -> Span:
    if span is None or span.value == 0:
        return Span.exact(1.0, level)
    return Span(1.0, span.low / span.value, span.high / span.value, level)


def _gain(one: Estimate, ratio: float) -> float | None:
    changed = with_step(one, Span.exact(one.step.value * ratio, one.step.level)).unit_per_day
    return None if changed is None or one.unit_per_day is None else changed.value - one.unit_per_day.value


def saving_of(before: Estimate, ratio: Span) -> Saving:
    """Put the ratio of two steps as time of a step and units of work a day."""
    step_s = before.step.value
    ends = (ratio.value, ratio.high, ratio.low)
    gains = [gain for end in ends if (gain := _gain(before, end)) is not None]
    times = Amount(*(step_s * (1 - end) for end in ends))
    return Saving(ratio, times, Amount(*gains) if len(gains) == len(ends) else None)


def saving(
    before: Estimate,
    ops: pd.DataFrame,
    machine: Machine | None = None,
    errors: Errors = "independent",
    samples: float = 1.0,
) -> Saving:
    """Set a step against another one of the same training.

    Ops that take the same time in both keep their errors in common. For those that changed, the errors before and
    after are taken as independent, which is the wide side; where they differ by the launch cost only, by its.

    Parameters
    ----------
    before : Estimate
    ops : DataFrame
        TIMED table of the changed step.
    machine : Machine, optional
        Where the changed step runs; default: the same.
    errors : str
        independent, or launch where the ops differ by what launches cost.
    samples : float
        Samples of the changed step over those of the step.
    """
    level, uses = before.step.level, uses_of(before.machine)
    target = machine or before.machine
    old_changed, new_changed = changed_rows(before.ops, ops)
    parts = [
        device_time(before.ops[~old_changed], level, uses),
        device_time(before.ops[old_changed], level, uses),
        device_time(ops[new_changed], level, uses),
    ]
    by_launches = errors == "launch"
    if by_launches:
        parts[1:] = [Span.exact(part.value, level) for part in parts[1:]]
    step = before.step_time
    parts += [_relative(span, level) for span in (step.host_launch_s, step.input_s)]
    starts = _starts(before.ops), _starts(ops)

    def ratio(at: list[float]) -> float:
        kept_s, old_s, new_s, launch, load = at
        if by_launches:  # the longer a launch took, the longer were the ops before
            old_s += (old_s - new_s) * (launch - 1)
        after_s = _wall(kept_s + new_s, starts[1], target, launch, load)
        return after_s / samples / _wall(kept_s + old_s, starts[0], before.machine, launch, load)

    return saving_of(before, one_at_a_time(parts, ratio, level))

"""The case that all rules of advice look at, the saving of a change (`saving`), and a rule's `Finding`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fomkit.core.interval import Span, probability_above
from fomkit.core.machine import Machine
from fomkit.core.model import ModelProfile
from fomkit.ops.resize import resize_ops
from fomkit.plan.coverage import uses_of
from fomkit.plan.estimate import Estimate, estimate, with_step
from fomkit.plan.memory import Held, Use
from fomkit.plan.memory_of import can_follow, held_by_sizes, in_formats, step_memory
from fomkit.plan.options import Options
from fomkit.plan.step import Started, device_time, started_of, terms_beside
from fomkit.prediction.estimators import as_rows
from fomkit.prediction.exact import settled_ops
from fomkit.prediction.rates import bounds
from fomkit.profiles.evidence import with_fits

if TYPE_CHECKING:
    from fomkit.whatif.slow_ops import SlowOp

ROUNDING = 1e-6
"""Relative tolerance by which a time may be below its floor without counting as faster."""


def beats_its_floor(ops: pd.DataFrame) -> pd.Series[bool]:
    """Return a mask of the ops of a case that take less than their floor, max(flop / peak, byte / bandwidth)."""
    return ops["time_s"] < ops["floor_s"] * (1 - ROUNDING)


@dataclass(frozen=True)
class Case:
    """A study to advise on.

    `options`: as the user chose them, but work without a time is always left out and reported.
    """

    model: ModelProfile
    machine: Machine
    options: Options
    before: Estimate

    @property
    def device_s(self) -> float:
        """Device time of a step [s]."""
        return self.before.step_time.device_s.value

    @cached_property
    def fitted(self) -> Machine:
        """The machine with the fits of its tables."""
        return with_fits(self.machine)

    @cached_property
    def ops(self) -> pd.DataFrame:
        """The TIMED table with the engines on which rows really run, ``floor_s`` and ``seconds`` of a step [s]."""
        ops = settled_ops(self.before.ops, self.fitted)
        floor_s = bounds(as_rows(ops), self.fitted).floor_s
        return ops.assign(floor_s=floor_s, seconds=ops["time_s"] * ops["count"])

    @cached_property
    def followed(self) -> ModelProfile:
        """The model with its order in its number formats; in the trace's where narrower ones are not known."""
        return in_formats(self.model, self.before.sizes, self.before.formats) or self.model

    @property
    def of_formats(self) -> str:
        """Name of the formats of `memory`."""
        return "the trace's formats" if self.followed is self.model else self.before.formats.name

    @cached_property
    def memory(self) -> Use | None:
        """The memory use of a step of `followed`; None where its order is unknown or fixed."""
        sizes = self.before.sizes
        return step_memory(self.followed, sizes) if can_follow(self.model, sizes) else None

    @cached_property
    def peak_byte(self) -> float | None:
        """The most memory in use at once in a step of `followed` [byte]; None where it is unknown."""
        if self.memory is not None:
            return self.memory.peak_byte
        return None if self.held is None else sum(self.held.values())

    @cached_property
    def held(self) -> Held | None:
        """The memory by role of a transformer's step that is counted by its sizes; None of all others."""
        known = in_formats(self.model, self.before.sizes, self.before.formats) is not None
        return held_by_sizes(self.model, self.before.sizes) if known else None

    @property
    def fixed(self) -> ModelProfile:
        """The model with the sizes of this study as numbers in its ops."""
        ops = resize_ops(self.model.ops, self.before.sizes, self.model.name)
        return replace(self.model, ops=ops, sizes=dict(self.before.sizes))

    def again(
        self, model: ModelProfile | None = None, machine: Machine | None = None, **changed: object
    ) -> Estimate:
        """Estimate again with another model, machine or options."""
        options = replace(self.options, **changed)  # type: ignore[arg-type]
        return estimate(model or self.model, machine or self.machine, options)

    def lacks_times(self, after: Estimate) -> bool:
        """Check whether a changed step has new work without a time, which would look like a saving."""
        return bool(after.ops["time_s"].isna().sum() > self.before.ops["time_s"].isna().sum())

    def with_times(self, rows: pd.Series[bool], time_s: pd.Series[float]) -> pd.DataFrame:
        """Return the table with other times of some rows [s], which are known without error."""
        times = self.ops["time_s"].mask(rows, time_s)
        ends: Mapping[str, pd.Series[float]] = {
            name: self.ops[name].mask(rows, times) for name in ("low_s", "high_s")
        }
        # An exact time rests on no table, so use in a step adds no error to it.
        source = self.ops["time_source"].astype("object").mask(rows, "assumed")
        return self.ops.assign(time_s=times, **ends, time_source=source)


def one_at_a_time(parts: Sequence[Span], result: Callable[[list[float]], float], level: float) -> Span:
    """Return a result of independent quantities, above 0 at all of their ends, with its interval.

    Each quantity is set to low and to high while the others keep their values; the logarithms of the changes add
    in quadrature, on each side of the value.

    >>> share = one_at_a_time([Span(3.0, 2.0, 4.0), Span(1.0, 1.0, 1.0)], lambda at: at[0] / sum(at), 0.8)
    >>> share.value, round(share.low, 4), share.high
    (0.75, 0.6667, 0.8)
    """
    values = [part.value for part in parts]
    middle = result(values)
    below, above = [0.0], [0.0]
    for place, part in enumerate(parts):
        ends = (part.low, part.high) if part.low < part.high else ()
        moved = [math.log(result([*values[:place], end, *values[place + 1 :]]) / middle) for end in ends]
        below.append(min(0.0, *moved) if moved else 0.0)
        above.append(max(0.0, *moved) if moved else 0.0)
    return Span(middle, middle * math.exp(-math.hypot(*below)), middle * math.exp(math.hypot(*above)), level)


SAME = 1e-9
"""Relative difference below which two times of an op count as equal."""

Errors = Literal["independent", "launch"]


class Amount(NamedTuple):
    """A difference with its interval; value, low and high may be below 0."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Saving:
    """The saving of a changed step.

    `ratio`: time of the changed step over that of the step, for the same samples.
    `step_s`: time saved [s] of each step; never more than the step takes.
    `unit_per_day`: units of work a day gained; None where the profile defines no run.
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
    """Return masks of the rows of two TIMED tables of a step that differ in time or count, or have no partner.

    `before`, `after`: the same rows in the same order, then those that only one of them has.
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


def _wall(device_s: float, started: Started, machine: Machine, launch: float, load: float) -> float:
    """Return the time of a step [s] with the launch cost and the input time at multiples of their values."""
    exact = Span.exact(device_s)
    hosted = started._replace(ops=started.ops * launch, kernels=started.kernels * launch)
    terms = terms_beside(hosted, machine, exact)
    return terms._replace(input_s=terms.input_s and terms.input_s.scaled(load)).wall(exact).value


def _relative(span: Span | None, level: float) -> Span:
    if span is None or span.value == 0:
        return Span.exact(1.0, level)
    return Span(1.0, span.low / span.value, span.high / span.value, level)


def saving_of(before: Estimate, ratio: Span, after: Estimate | None = None) -> Saving:
    """Convert the ratio of two steps to time of a step and units of work a day, those of `after` if given."""
    step_s, now = before.step.value, before.unit_per_day
    ends = (ratio.value, ratio.high, ratio.low)
    rates = [with_step(before, Span.exact(step_s * end, before.step.level)).unit_per_day for end in ends]
    # Validation, which is part of a run, gains by another factor than steps.
    known, first = after and after.unit_per_day, rates[0]
    factor = known.value / first.value if known and first else 1.0
    gains = [rate.value * factor - now.value for rate in rates if rate is not None and now is not None]
    times = Amount(*(step_s * (1 - end) for end in ends))
    return Saving(ratio, times, Amount(*gains) if len(gains) == len(ends) else None)


def saving(
    before: Estimate,
    changed: pd.DataFrame | Estimate,
    machine: Machine | None = None,
    errors: Errors = "independent",
    samples: float = 1.0,
) -> Saving:
    """Compare a step with a changed one of the same training.

    Ops with the same time in both share their errors. For ops that changed, the errors before and after count as
    independent, which gives the wider interval. Where they differ by the launch cost only, its error counts.

    `changed`: TIMED table or estimate of the changed step; `machine`: its own; default: the same; `errors`:
    independent, or launch where the ops differ by launch cost; `samples`: of the changed step over the step's.
    """
    ops, after = (changed, None) if isinstance(changed, pd.DataFrame) else (changed.ops, changed)
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
    started = started_of(before.ops, before.model), started_of(ops, (after or before).model)

    def ratio(at: list[float]) -> float:
        unchanged_s, old_s, new_s, launch, load = at
        if by_launches:  # the longer a launch took, the longer the ops before the change took
            old_s += (old_s - new_s) * (launch - 1)
        after_s = _wall(unchanged_s + new_s, started[1], target, launch, load)
        return after_s / samples / _wall(unchanged_s + old_s, started[0], before.machine, launch, load)

    return saving_of(before, one_at_a_time(parts, ratio, level), after)


State = Literal["advice", "rejected", "not_applicable"]

WORTH = 0.01
"""Share of a step below which a saving is no advice: repeats of one step differ by about as much."""


@dataclass(frozen=True)
class Finding:
    """One result of a rule.

    `says`: what was found, or why the rule does not apply, as a sentence.
    `sure`: what the saving rests on, besides its interval.
    `saving`: the time at stake; None where it is unknown, or there is none.
    `at_most`: the saving is a bound, not the estimate of a changed step.
    `column`: column of the table of ops, or fact of the machine, that shows it.
    `rows`: the ops concerned, the longest first, with the evidence for their times.
    `rejected`: why it is no advice although a change was tried; "" where it is advice.
    `urgent`: true where it comes before any saving: the step may not run, or all times are too small.
    """

    says: str
    do: str = ""
    sure: str = ""
    saving: Saving | None = None
    at_most: bool = False
    column: str = ""
    rows: tuple[SlowOp, ...] = ()
    rejected: str = ""
    urgent: bool = False
    applies: bool = True

    @property
    def state(self) -> State:
        """Whether it is advice, a change that was tried and rejected, or a rule that does not apply."""
        if not self.applies:
            return "not_applicable"
        return "rejected" if self.why_rejected else "advice"

    @property
    def why_rejected(self) -> str:
        """Why it is no advice; "" where it is."""
        if self.rejected or self.saving is None:
            return self.rejected
        share = self.saving.share.value
        if share < -WORTH:
            return "the step would take longer"
        return "" if share >= WORTH else f"less than {WORTH:.0%} of the step would be saved"


def does_not_apply(why: str) -> Finding:
    """Return the only finding of a rule that does not apply."""
    return Finding(f"Does not apply because {why}.", applies=False)

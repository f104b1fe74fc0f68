"""Predict targets as measured baseline × predicted ratio, and check whether the absolute predictions agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle
from typing import Literal, TypedDict

from fomkit.core.errors import FomkitError, nearest_names
from fomkit.core.interval import ROUNDING, Span, divide, multiply_independent
from fomkit.core.measurement import MEASURED_LEVEL, Measurement
from fomkit.core.model import LastBatch
from fomkit.merit.fom import FigureOfMerit, figure_of_merit
from fomkit.merit.measured_steps import (
    Explained,
    MeasuredEstimate,
    MeasuredStep,
    Merit,
    Reading,
    measured_of,
    merit_content,
)
from fomkit.plan.content import Ends, as_content
from fomkit.plan.coverage import UNPRICED
from fomkit.plan.estimate import Estimate, check_one_device, with_step
from fomkit.verbs.compare import Comparison, rates, unfit_of

Verdict = Literal["agree", "disagree", "ambiguous"]


@dataclass(frozen=True)
class TwoWays:
    """One model on one target, predicted in two ways: alone, and as measured baseline times predicted ratio.

    `ratio`: predicted step of the target over that of the baseline.
    `scaled`: the target, rolled up from the measured step times ``ratio``.
    """

    predicted: Estimate
    baseline: Estimate
    measured: MeasuredStep
    ratio: Span
    scaled: Estimate

    @property
    def factor(self) -> float:
        """Step from measured baseline × ratio over the step predicted alone."""
        return self.scaled.step.value / self.predicted.step.value

    @property
    def overlap(self) -> bool:
        """Whether the intervals of the two ways overlap."""
        one, other = self.predicted.step, self.scaled.step
        return one.low <= other.high * (1 + ROUNDING) and other.low <= one.high * (1 + ROUNDING)

    @property
    def baseline_holds(self) -> bool:
        """Whether the measured step is in the interval predicted for the baseline."""
        return self.baseline.step.contains(self.measured.step.value)

    @property
    def verdict(self) -> Verdict:
        """Return disagree for disjoint intervals, agree where each value is in the other and `baseline_holds`."""
        if not self.overlap:
            return "disagree"
        one, other = self.predicted.step, self.scaled.step
        mutual = one.contains(other.value) and other.contains(one.value)
        return "agree" if mutual and self.baseline_holds else "ambiguous"

    @property
    def excludes(self) -> tuple[str, ...]:
        """Terms that are in neither the measured figure nor the roll-up."""
        return tuple(term for term in self.scaled.run_time.excludes if term not in self.measured.holds)

    @property
    def unpredicted(self) -> tuple[str, ...]:
        """Terms without a predicted ratio; where the measured figure includes them, they scale like the rest."""
        both = (self.predicted, self.baseline)
        of_step = {term for one in both for term in one.step_time.excludes}
        unpriced = {UNPRICED for one in both if UNPRICED in one.excludes}
        return tuple(sorted(of_step | unpriced | self.measured.holds))

    @property
    def counted_twice(self) -> tuple[str, ...]:
        """Terms that the measured figure includes and that are added again, because the target states them."""
        return tuple(sorted(self.measured.holds - {*self.scaled.run_time.excludes}))


@dataclass(frozen=True)
class FromMeasurements:
    """A comparison predicted in both ways.

    `ways`: ordered by target, for the models whose baseline was measured.
    `merits`: by target, from measured baselines; empty unless every model has a measured step and a run. Measured
      times are used as weights, without error: within the ratio of one line they cancel.
    `others`: number of rows about other models or machines.
    """

    baselines: tuple[MeasuredEstimate, ...]
    ways: tuple[TwoWays, ...]
    merits: tuple[FigureOfMerit, ...]
    others: int
    explained: Mapping[str, tuple[Explained, ...]] = field(default_factory=dict)


def _merit_of_ways(ways: Sequence[TwoWays], last_batch: LastBatch | None) -> FigureOfMerit:
    """Rate one target over the measured baseline; the measured time is on both sides and has no error here."""
    level = ways[0].predicted.step.level
    old, new = [], []
    for way in ways:
        measured = Span.exact(way.measured.step.value, level)
        old.append(with_step(way.baseline, measured, last_batch))
        new.append(with_step(way.predicted, way.ratio.scaled(measured.value), last_batch))
    return figure_of_merit(rates(old), rates(new))


def _nothing_measured(
    baselines: Sequence[MeasuredEstimate], rows: Sequence[Measurement], where: str
) -> FomkitError:
    machine = baselines[0].predicted.machine.name
    reasons = [
        f"{reading.row.where}: {reading.message}" for baseline in baselines for reading in baseline.readings
    ]
    if reasons:
        return FomkitError(
            where, f"no row is a measurement of this estimate on {machine}. Set aside: {'; '.join(reasons)}."
        )
    if machine not in (known := {row.machine for row in rows}):
        return FomkitError(where, f"no row is of the baseline {machine!r}. {nearest_names(machine, known)}")
    models = [baseline.predicted.model.name for baseline in baselines]
    known = {row.model for row in rows if row.machine == machine}
    return FomkitError(
        where, f"no row of {machine} is of {', '.join(models[:5])}. {nearest_names(models[0], known)}"
    )


def from_measurements(
    result: Comparison, rows: Sequence[Measurement], where: str, last_batch: LastBatch | None = None
) -> FromMeasurements:
    """Predict the targets of a comparison a second time, from measurements of its baseline."""
    if not result.baseline:
        raise FomkitError(
            where, "measurements need a baseline, and none is named. Add, for example, --baseline p100."
        )
    check_one_device((*result.estimates, *result.baseline), "the estimate from measured steps")
    baselines = [measured_of(one, rows) for one in result.baseline]
    if all(baseline.measured is None for baseline in baselines):
        raise _nothing_measured(baselines, rows, where)
    by_target: dict[str, list[TwoWays]] = {}
    for target, baseline in zip(result.estimates, cycle(baselines), strict=False):
        reference, measured = baseline.predicted, baseline.measured
        if measured is None:
            continue
        ratio = divide(target.step, reference.step)
        # In this order a measurement equal to the prediction gives a correction of exactly 1.
        value = target.step.value / (reference.step.value / measured.step.value)
        step = replace(multiply_independent(ratio, measured.step), value=value)
        way = TwoWays(target, reference, measured, ratio, with_step(target, step, last_batch))
        by_target.setdefault(target.machine.name, []).append(way)
    whole = all(baseline.measured and baseline.predicted.unit_per_day for baseline in baselines)
    merits = tuple(_merit_of_ways(ways, last_batch) for ways in by_target.values()) if whole else ()
    others = len(rows) - sum(len(baseline.readings) for baseline in baselines)
    ways = tuple(way for ways in by_target.values() for way in ways)
    return FromMeasurements(tuple(baselines), ways, merits, others, result.explained)


RULE = "measured step of the baseline × predicted step of the target / predicted step of the baseline"
ERRORS = (
    "of the measurement and of both predictions, assumed independent, except that a part of those of two boards "
    "of one chip cancels in the ratio"
)
VERDICTS = {
    "agree": "each value is inside the other's interval, and the measurement inside the baseline's predicted one",
    "ambiguous": "the intervals overlap, but a value is outside the interval of another",
    "disagree": "the intervals do not overlap",
}

Row = TypedDict("Row", {
    "row": str, "quantity": str, "value": float, "low": float | None, "high": float | None, "repeats": int | None,
    "basis": str, "party": str, "framework": str, "date": str, "source": str, "note": str, "step_s": Ends | None,
    "said": str,
})  # fmt: skip
OfBaseline = TypedDict("OfBaseline", {
    "model": str, "baseline": str, "measured_step_s": Ends | None, "spread_stated": bool | None,
    "predicted_step_s": Ends, "in_predicted_interval": bool | None, "used": list[Row], "set_aside": list[Row],
})  # fmt: skip
Way = TypedDict("Way", {"step_s": Ends, "epoch_s": Ends | None, "run_s": Ends | None, "unit_per_day": Ends | None,
                        "excludes": list[str]})  # fmt: skip


class ScaledWay(Way):
    """A way by measured × ratio, with the terms that were not predicted."""

    scaled_unpredicted: list[str]
    counted_twice: list[str]


OfWays = TypedDict("OfWays", {
    "model": str, "target": str, "baseline": str, "predicted_step_ratio": Ends, "predicted": Way,
    "measured_times_ratio": ScaledWay, "factor": float, "intervals_overlap": bool, "verdict": Verdict,
    "verdict_means": str,
})  # fmt: skip
MeasuredWays = TypedDict("MeasuredWays", {
    "file": str, "rule": str, "errors": str, "level_of_rows": float, "rows_of_others": int,
    "baselines": list[OfBaseline], "models": list[OfWays], "foms": list[Merit],
})  # fmt: skip


def _row_content(reading: Reading) -> Row:
    row = reading.row
    return as_content(
        Row, row, row=row.where, low=row.low if row.spread_stated else None,
        high=row.high if row.spread_stated else None, step_s=reading.step, said=reading.message,
        framework=" ".join(word for word in (row.framework, row.framework_version) if word),
    )  # fmt: skip


def _baseline(one: MeasuredEstimate) -> OfBaseline:
    measured, predicted = one.measured, one.predicted
    return as_content(
        OfBaseline, model=predicted.model.name, baseline=predicted.machine.name,
        measured_step_s=measured and measured.step, spread_stated=measured and measured.spread_stated,
        predicted_step_s=predicted.step,
        in_predicted_interval=None if measured is None else predicted.step.contains(measured.step.value),
        used=[_row_content(reading) for reading in one.readings if reading.step is not None],
        set_aside=[_row_content(reading) for reading in one.readings if reading.step is None],
    )  # fmt: skip


def _way(estimate: Estimate, excludes: tuple[str, ...]) -> Way:
    run = estimate.run_time
    return as_content(Way, estimate, step_s=estimate.step, epoch_s=run.epoch_s, run_s=run.run_s, excludes=excludes)


def _two_ways_content(ways: TwoWays) -> OfWays:
    scaled = as_content(ScaledWay, _way(ways.scaled, ways.excludes), ways, scaled_unpredicted=ways.unpredicted)
    return as_content(
        OfWays, ways, model=ways.predicted.model.name, target=ways.predicted.machine.name,
        baseline=ways.baseline.machine.name, predicted_step_ratio=ways.ratio,
        predicted=_way(ways.predicted, ways.predicted.excludes), measured_times_ratio=scaled,
        intervals_overlap=ways.overlap, verdict_means=VERDICTS[ways.verdict],
    )  # fmt: skip


def _caveats(
    found: FromMeasurements, target: str
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[Explained, ...]]:
    """Return the caveats of a figure of merit from measured baselines: exclusions, misfits, explained runs."""
    under = [way for way in found.ways if way.predicted.machine.name == target]
    excludes = tuple(dict.fromkeys(term for one in under for term in one.excludes))
    return excludes, unfit_of([one.predicted for one in under]), found.explained.get(target, ())


def measured_content(found: FromMeasurements, where: str) -> MeasuredWays:
    """Convert predictions from measurements to the block ``from_measurements``."""
    return {
        "file": where, "rule": RULE, "errors": ERRORS, "level_of_rows": MEASURED_LEVEL,
        "rows_of_others": found.others, "baselines": [_baseline(baseline) for baseline in found.baselines],
        "models": [_two_ways_content(way) for way in found.ways],
        "foms": [
            merit_content(merit, "modelled", *_caveats(found, merit.target.machine)) for merit in found.merits
        ],
    }  # fmt: skip

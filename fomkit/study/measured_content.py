"""What was made of measurements as plain content: the block ``from_measurements`` of ``fomkit/estimate/1``."""

from __future__ import annotations

from typing import Any

from fomkit.study.compare import unfit_of
from fomkit.study.content import merit_content, span_content
from fomkit.study.estimate import Estimate
from fomkit.study.explained import Explained
from fomkit.study.from_measurements import BaselineMeasured, FromMeasurements, TwoWays, inside
from fomkit.study.measured_steps import MEASURED_LEVEL, Reading

RULE = "measured step of the baseline × predicted step of the target / predicted step of the baseline"
ERRORS = (
    "of the measurement and of both predictions, taken as independent: what the two predictions get wrong alike "
    "would cancel in the ratio, but how much that is nobody knows"
)
VERDICTS = {
    "agree": "the values lie in each other's intervals, and the measurement in that predicted for the baseline",
    "ambiguous": "the intervals overlap, but a value lies outside of another's interval",
    "disagree": "the intervals do not overlap",
}


def _row(reading: Reading) -> dict[str, Any]:
    row = reading.row
    return {
        "row": row.where,
        "quantity": row.quantity,
        "value": row.value,
        "low": row.low if row.spread_stated else None,
        "high": row.high if row.spread_stated else None,
        "repeats": row.repeats,
        "basis": row.basis,
        "party": row.party,
        "framework": " ".join(word for word in (row.framework, row.framework_version) if word),
        "date": row.date,
        "source": row.source,
        "note": row.note,
        "step_s": span_content(reading.step),
        "said": reading.said,
    }


def _baseline(one: BaselineMeasured) -> dict[str, Any]:
    measured = one.measured
    return {
        "model": one.predicted.model.name,
        "baseline": one.predicted.machine.name,
        "measured_step_s": None if measured is None else span_content(measured.step),
        "spread_stated": None if measured is None else measured.spread_stated,
        "predicted_step_s": span_content(one.predicted.step),
        "in_predicted_interval": None if measured is None else inside(one.predicted.step, measured.step.value),
        "used": [_row(reading) for reading in one.readings if reading.step is not None],
        "set_aside": [_row(reading) for reading in one.readings if reading.step is None],
    }


def _way(one: Estimate, excludes: tuple[str, ...]) -> dict[str, Any]:
    return {
        "step_s": span_content(one.step),
        "epoch_s": span_content(one.run_time.epoch_s),
        "run_s": span_content(one.run_time.run_s),
        "unit_per_day": span_content(one.unit_per_day),
        "excludes": list(excludes),
    }


def _two_ways(one: TwoWays) -> dict[str, Any]:
    return {
        "model": one.predicted.model.name,
        "target": one.predicted.machine.name,
        "baseline": one.baseline.machine.name,
        "predicted_step_ratio": span_content(one.ratio),
        "predicted": _way(one.predicted, one.predicted.excludes),
        "measured_times_ratio": {
            **_way(one.scaled, one.excludes),
            "scaled_unpredicted": list(one.unpredicted),
            "counted_twice": list(one.counted_twice),
        },
        "factor": one.factor,
        "intervals_overlap": one.overlap,
        "verdict": one.verdict,
        "verdict_means": VERDICTS[one.verdict],
    }


def _caveats(
    found: FromMeasurements, target: str
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[Explained, ...]]:
    """Give what a figure of merit from measured baselines leaves out, what no device holds, and what runs say."""
    under = [one for one in found.ways if one.predicted.machine.name == target]
    excludes = tuple(sorted({term for one in under for term in one.excludes}))
    return excludes, unfit_of([one.predicted for one in under]), found.explained.get(target, ())


def measured_content(found: FromMeasurements, where: str) -> dict[str, Any]:
    """Put what was made of measurements in the form of the block ``from_measurements``."""
    return {
        "file": where,
        "rule": RULE,
        "errors": ERRORS,
        "level_of_rows": MEASURED_LEVEL,
        "rows_of_others": found.others,
        "baselines": [_baseline(one) for one in found.baselines],
        "models": [_two_ways(one) for one in found.ways],
        "foms": [
            merit_content(merit, "modelled", *_caveats(found, merit.target.machine)) for merit in found.merits
        ],
    }

"""Answers of the process that times as rows of timings, with what was seen besides the median."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fomkit.measure.ops import Cells
from fomkit.predict.fresh import fresh_seconds
from fomkit.schema import column_names
from fomkit.tables import empty_table
from fomkit.timings.measure_statistics import Summary, summarise

if TYPE_CHECKING:
    import pandas as pd

    from fomkit.hardware import Device

HARNESS = "fomkit measure"
NOISY = 0.1
"""Half the interval of a median, as a share of it, from which a timing counts as noisy."""
_NUMBERS = frozenset(column_names("TIMINGS", "number"))


def in_step(answer: Mapping[str, Any]) -> list[float]:
    """Give the repeats [s] that stand for the op in a step: with warm or with cold operands, by its ``state``."""
    return list(answer[answer["state"]])


def _note(answer: Mapping[str, Any], found: Summary, host_s: float) -> str:
    state = answer["state"]
    other = {"warm": "cold", "cold": "warm"}[state]
    parts = [f"operands {state}; {other} {summarise(answer[other]).median_s:.4g} s"]
    if host_s:
        parts.append(f"{host_s:.3g} s of the framework added")
    if found.low_s is not None and found.high_s is not None:
        parts.append(f"median within [{found.low_s:.4g}, {found.high_s:.4g}] s at 95 %")
    if found.outliers:
        parts.append(f"{found.outliers} of {found.repeats} outliers kept, longest {found.longest_s:.4g} s")
    return "; ".join((*parts, f"checked to {answer['error']:.1e}"))


def timing_row(
    cells: Cells, answer: Mapping[str, Any], library: Mapping[str, str], host_s: float = 0.0
) -> dict[str, object]:
    """Make a row of timings of an op and its repeats.

    ``host_s`` is what the framework takes for each op of a step where the host is the device: it cannot be done
    meanwhile. An update's is in its time already.
    """
    found, host_s = summarise(in_step(answer)), 0.0 if cells["kind"] == "optimizer" else host_s
    row: dict[str, object] = {
        name: float(text) if name in _NUMBERS else text for name, text in cells.items() if name != "lengths"
    }
    return {
        **row,
        "time_s": found.median_s + host_s,
        "p25_s": found.p25_s + host_s,
        "p75_s": found.p75_s + host_s,
        "repeats": float(found.repeats),
        "harness": HARNESS,
        **library,
        "note": _note(answer, found, host_s),
    }


def timings_table(
    answers: Iterable[tuple[Cells, Mapping[str, Any]]], library: Mapping[str, str], host_s: float = 0.0
) -> pd.DataFrame:
    """Make the table of timings of all answers that have times."""
    import pandas as pd

    rows = [timing_row(cells, answer, library, host_s) for cells, answer in answers if "reason" not in answer]
    if not rows:
        return empty_table("TIMINGS")
    table = pd.DataFrame(rows)
    names = [name for name in column_names("TIMINGS") if name in table.columns]
    texts = {name: table[name].fillna("") for name in names if name not in _NUMBERS}
    return table.assign(**texts)[names]


KEPT_SHARE = 0.2
"""Share of a timing that stays the op's own, however dear its pages are said to be."""


def without_fresh(timings: pd.DataFrame, device: Device) -> pd.DataFrame:
    """Say in ``harness_s`` how much of each timing is fresh pages, which are added again where they are due."""
    fresh_s = fresh_seconds(timings, device)
    if not fresh_s.any():
        return timings
    return timings.assign(harness_s=np.minimum(fresh_s, (1 - KEPT_SHARE) * timings["p25_s"]))


def noise_of(answers: Iterable[Mapping[str, Any]]) -> tuple[int, int, float]:
    """Count timings, those whose median is not known well, and give the median of all half-widths [share]."""
    from statistics import median

    widths = [summarise(in_step(one)).width for one in answers if "reason" not in one]
    return len(widths), sum(width > NOISY for width in widths), median(widths) if widths else float("nan")

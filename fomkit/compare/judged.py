"""Verdicts: what may be claimed of each cell, and whether the measurement agrees with the claim."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fomkit.compare.causes import Claim, cause_of
from fomkit.compare.cells import Cell, ratio_to
from fomkit.spans import Span, at_level

Agreement = Literal["inside", "ambiguous", "outside"]
WIDER = 0.95
"""Outside the interval but inside that of this level a cell is ambiguous: the model neither holds nor fails."""


@dataclass(frozen=True)
class Judged:
    """A cell and what may be said of it.

    Attributes
    ----------
    claim : str or None
        None where the figure is nobody's measurement, or nothing could be predicted.
    cause : str
        What the measured time waited for, in figures.
    agreement : str or None
        Of the time where the claim is absolute, of the ratio where it is the ratio; else None.
    ratio, projected_ratio : float, Span or None
        How many times faster than the baseline, measured and projected; None on the baseline and without one.
    ratio_agreement : str or None
    """

    cell: Cell
    claim: Claim | None
    cause: str
    agreement: Agreement | None = None
    ratio: float | None = None
    projected_ratio: Span | None = None
    ratio_agreement: Agreement | None = None


def agreement(value: float, low: float, high: float, span: Span) -> Agreement:
    """Tell whether a measured value, with the ends of its own spread, lies in a projected interval."""
    if span.low <= value <= span.high:
        return "inside"
    wide = at_level(span, max(WIDER, span.level))
    touches = low <= span.high and high >= span.low
    return "ambiguous" if touches or wide.low <= value <= wide.high else "outside"


def _ratio(cell: Cell, baseline: Cell | None) -> tuple[float | None, Span | None, Agreement | None]:
    if baseline is None or baseline.machine == cell.machine or not baseline.is_measured:
        return None, None, None
    measured, projected = ratio_to(cell, baseline)
    if projected is None:
        return measured, None, None
    spread = math.hypot(*(math.log(one.measured.high / one.measured.low) for one in (cell, baseline))) / 2
    ends = measured * math.exp(-spread), measured * math.exp(spread)
    return measured, projected, agreement(measured, *ends, projected)


def _judge(cell: Cell, same_model: Sequence[Cell], baseline: Cell | None) -> Judged:
    one = cell.estimate
    if not cell.is_measured:
        return Judged(cell, None, f"the figure is {cell.rows[0].basis}, not measured")
    if one is None:
        return Judged(cell, None, cell.missing)
    ratio, projected_ratio, ratio_agrees = _ratio(cell, baseline)
    claim, cause = cause_of(cell, one, same_model)
    agrees: Agreement | None = None
    if claim == "absolute" and cell.projected is not None:
        agrees = agreement(cell.measured.value, cell.measured.low, cell.measured.high, cell.projected)
    elif claim == "ratio":
        agrees = ratio_agrees
    return Judged(cell, claim, cause, agrees, ratio, projected_ratio, ratio_agrees)


def judge(cells: Sequence[Cell], baseline: str | None) -> tuple[Judged, ...]:
    """Judge every cell, with ratios to the cell of a baseline machine under the same conditions.

    Parameters
    ----------
    cells : sequence of Cell
    baseline : str or None
        Name of a machine.
    """
    found = []
    for cell in cells:
        key = (cell.model, cell.quantity, cell.batch)
        alike = [one for one in cells if (one.model, one.quantity, one.batch) == key]
        comparable = [one for one in alike if one.is_measured and one.estimate is not None]
        base = next((one for one in alike if one.machine == baseline), None)
        found.append(_judge(cell, comparable, base))
    return tuple(found)


@dataclass(frozen=True)
class Summary:
    """How far off the cells of one claim are; None where there are none.

    Attributes
    ----------
    mean_factor : float
        Geometric mean of measured over projected, times or ratios.
    mean_error : float
        Mean of |projected / measured - 1|.
    inside : int
        Cells whose measured figure lies in the projected interval.
    """

    count: int
    mean_factor: float
    mean_error: float
    inside: int


def summarise(pairs: Sequence[tuple[float, Span]]) -> Summary | None:
    """Summarise measured figures beside projected ones; None where there are none."""
    if not pairs:
        return None
    logs = [math.log(measured / projected.value) for measured, projected in pairs]
    errors = [abs(projected.value / measured - 1) for measured, projected in pairs]
    inside = sum(projected.low <= measured <= projected.high for measured, projected in pairs)
    count = len(pairs)
    return Summary(count, math.exp(math.fsum(logs) / count), math.fsum(errors) / count, inside)

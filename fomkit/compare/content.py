"""Comparisons as plain content, ``fomkit/compare/1`` and ``fomkit/grid/1``: what JSON, CSV and terminal show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from fomkit import __version__
from fomkit.compare.carried import Carried
from fomkit.compare.grid import GridCell
from fomkit.compare.judged import Judged, summarise
from fomkit.compare.repeats import said_of_several
from fomkit.spans import Span
from fomkit.study.content import INTERVAL_MEANING, span_content


def _carried(one: Carried) -> dict[str, Any]:
    return {
        **(span_content(one.projected) or {}),
        "told_by": f"{one.told_by.model} on {one.told_by.machine}",
        "error": one.error,
        "inside": one.inside,
    }


def _row(one: Judged, calibrated: Sequence[Carried], hosted: Sequence[Carried]) -> dict[str, Any]:
    cell = one.cell
    return {
        "model": cell.model,
        "machine": cell.machine,
        "batch": cell.batch,
        "quantity": cell.quantity,
        "basis": cell.rows[0].basis,
        "measured": span_content(cell.measured),
        "projected": span_content(cell.projected),
        "error": None if cell.projected is None else cell.projected.value / cell.measured.value - 1,
        "inside": cell.inside,
        "explained": cell.explained,
        "ratio": one.ratio,
        "projected_ratio": span_content(one.projected_ratio),
        "ratio_agrees": one.ratio_agreement,
        "claim": one.claim,
        "agrees": one.agreement,
        "cause": one.cause,
        "holds": cell.holds or None,
        "calibrated": next((_carried(other) for other in calibrated if other.cell is cell), None),
        "with_host_term": next((_carried(other) for other in hosted if other.cell is cell), None),
        "sources": list(dict.fromkeys(row.source for row in cell.rows if row.source)),
        "rows": [row.where for row in cell.rows],
    }


def _summary(pairs: list[tuple[float, Span]]) -> dict[str, Any] | None:
    found = summarise(pairs)
    return asdict(found) if found is not None else None


def _carried_summary(carried: Sequence[Carried], judged: Sequence[Judged]) -> dict[str, Any] | None:
    """Summarise what was carried to cells of which a device model, or a host term, may claim something."""
    unexplained = {id(one.cell) for one in judged if one.claim == "unexplained"}
    counted = [one for one in carried if id(one.cell) not in unexplained]
    return _summary([(one.cell.measured.value, one.projected) for one in counted])


def compare_content(
    judged: Sequence[Judged],
    baseline: str | None,
    level: float,
    calibrated: Sequence[Carried] = (),
    hosted: Sequence[Carried] = (),
    said: Sequence[str] = (),
) -> dict[str, Any]:
    """Put judged cells in the form of ``fomkit/compare/1``; ``said`` is what became of rows on the way."""
    absolute = [
        (one.cell.measured.value, one.cell.projected)
        for one in judged
        if one.claim == "absolute" and one.cell.projected is not None
    ]
    ratios = [
        (one.ratio, one.projected_ratio)
        for one in judged
        if one.claim in ("absolute", "ratio") and one.ratio is not None and one.projected_ratio is not None
    ]
    return {
        "schema": "fomkit/compare/1",
        "fomkit": __version__,
        "interval": level,
        "interval_covers": INTERVAL_MEANING,
        "baseline": baseline,
        "cells": [_row(one, calibrated, hosted) for one in judged],
        "notes": [*said, *said_of_several([one.cell for one in judged])],
        "summary": {
            "absolute": _summary(absolute),
            "ratio": _summary(ratios),
            "calibrated": _carried_summary(calibrated, judged),
            "with_host_term": _carried_summary(hosted, judged),
        },
    }


def grid_content(
    cells: Sequence[GridCell], level: float, limit_s: float, said: Sequence[str] = ()
) -> dict[str, Any]:
    """Put a grid in the form of ``fomkit/grid/1``."""
    return {
        "schema": "fomkit/grid/1",
        "fomkit": __version__,
        "interval": level,
        "latency_limit_s": limit_s,
        "inference_is": "the forward pass of the training step, at the largest power of two that keeps the limit",
        "notes": list(said),
        "cells": [
            {
                "model": one.model,
                "machine": one.machine,
                "framework": one.framework,
                "mode": one.mode,
                "batch": one.batch,
                "sample_per_s": span_content(one.sample_per_s),
                "latency_s": span_content(one.latency_s),
                "basis": one.basis or None,
                "why": one.why or None,
                "excludes": list(one.excludes),
                "fits": one.fits,
                "explained": one.explained,
            }
            for one in cells
        ],
    }

"""Accepted lines as plain content, ``fomkit/accept/1``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fomkit import __version__
from fomkit.study.acceptance import AcceptedLine
from fomkit.study.content import span_content
from fomkit.suite import Suite


def _difference(one: AcceptedLine) -> float | None:
    committed, measured = one.committed.unit_per_day, one.measured
    return None if committed is None or measured is None else measured.value / committed.value - 1


def acceptance_content(suite: Suite, machine: str, lines: Sequence[AcceptedLine], level: float) -> dict[str, Any]:
    """Put accepted lines in the form that JSON, terminal and page show."""
    return {
        "schema": "fomkit/accept/1",
        "fomkit": __version__,
        "suite": suite.name,
        "version": suite.version,
        "machine": machine,
        "interval": level,
        "lines": [
            {
                "name": one.committed.line.name,
                "required": one.committed.line.required,
                "committed": span_content(one.committed.unit_per_day),
                "committed_from": one.committed.missing or one.committed.source,
                "basis": one.committed.basis,
                "excludes": list(one.committed.excludes or ()),
                "fits": None if one.committed.estimate is None else one.committed.estimate.fit.fits,
                "party": one.committed.party,
                "measured": span_content(one.measured),
                "difference": _difference(one),
                "spread_stated": one.spread_stated,
                "probability": one.probability if one.spread_stated else None,
                "verdict": one.verdict,
                "contradictory": one.contradictory,
                "modelled_share": one.modelled_share,
                "deviations": list(one.committed.deviations),
                "rows": [
                    {"where": reading.row.where, "used": reading.step is not None, "said": reading.said}
                    for reading in one.readings
                ],
            }
            for one in lines
        ],
    }


def all_required_met(lines: Sequence[AcceptedLine]) -> bool:
    """Tell whether every required line is met."""
    return all(one.verdict == "met" for one in lines if one.committed.line.required)

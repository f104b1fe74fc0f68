"""A figure of merit as plain content: the block ``fom`` of ``fomkit/estimate/1`` and ``fomkit/fom/1``."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from typing import Any

from fomkit.merit.fom import FigureOfMerit
from fomkit.merit.measured_steps import Explained, little_explained
from fomkit.plan.content import span_content
from fomkit.plan.estimate import Estimate


def merit_content(
    merit: FigureOfMerit,
    worst_basis: str,
    excludes: Sequence[str] = (),
    unfit: Sequence[str] = (),
    explained: Sequence[Explained] = (),
) -> dict[str, Any]:
    """Put a figure of merit in the form of the ``fom`` block.

    `excludes`: what its rates leave out because nobody stated it; `unfit`: its work that no device holds, each
    with why; `explained`: of its lines that somebody measured a run of, how much of it the device's work explains.
    """
    held = [one for one in explained if one.line in merit.ratios]
    return {
        **(span_content(merit.value) or {}),
        "mean": merit.mean,
        "scope": merit.target.scope,
        "baseline": merit.baseline.machine,
        "target": merit.target.machine,
        "weights": dict(merit.weights),
        "worst_basis": worst_basis,
        "excludes": list(excludes),
        "does_not_fit": list(unfit),
        "little_explained": [one.line for one in little_explained(held, merit.ratios)],
        "explained_shares": {one.line: one.share for one in held},
        "measured_runs": {one.line: one.message for one in held},
        "other_means": dict(merit.other_means),
        "ratios": {line: span_content(ratio) for line, ratio in merit.ratios.items()},
        "rates": dict(merit.mean_rates),
        "unit_per_day": {
            "baseline": {line: span_content(rate) for line, rate in merit.baseline.unit_per_day.items()},
            "target": {line: span_content(rate) for line, rate in merit.target.unit_per_day.items()},
        },
        "value_with_rates_cut_to_whole_units": None if isnan(merit.with_whole_rates) else merit.with_whole_rates,
    }


def worst_basis(estimates: Sequence[Estimate]) -> str:
    """Name the weakest basis of some estimates: measured only where every op is a measured one."""
    return "measured" if all(estimate.basis == "measured" for estimate in estimates) else "modelled"

"""A proof on the machine at hand as plain content, with its aims."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fomkit import __version__
from fomkit.validate.aims import Aim, Range, judge
from fomkit.validate.here import Proof
from fomkit.validate.here_scores import Compared, cases_of
from fomkit.validate.scores import Score, score

SCHEMA = "fomkit/here/1"
EXACT, UNSEEN, RATIOS = "exact shapes", "unseen shapes", "ratio of threads"
TARGETS = {EXACT: (0.06, 0.15), UNSEEN: (0.15, 0.40)}
"""Median error that a quiet core should show, and the one past which the command fails: a busy one shows more."""


def scores_of(proof: Proof) -> list[Score]:
    """Score all models together, with exact shapes and with unseen ones."""
    groups = ((EXACT, proof.exact), (UNSEEN, proof.unseen))
    return [score(cases_of(steps), name, "model", "here", "step", interval=proof.level) for name, steps in groups]


def _step(one: Compared) -> dict[str, Any]:
    span = one.span
    return {"value_s": span.value, "low_s": span.low, "high_s": span.high, "error": one.error, "hit": one.hit,
            "interval_score": one.score}  # fmt: skip


def _known(value: float) -> float | None:
    return value if value == value else None


def content_of(proof: Proof) -> dict[str, Any]:
    """Give everything as plain content (``fomkit/here/1``)."""
    lines = scores_of(proof)
    aims = [
        Aim(name, "model", "here", "step", "median", Range(0.0, target), Range(0.0, tolerance))
        for name, (target, tolerance) in TARGETS.items()
    ]
    verdicts = judge(lines, aims)
    return {
        "schema": SCHEMA,
        "fomkit": __version__,
        "interval": proof.level,
        "regressed": not all(one.kept for one in verdicts),
        "models": [
            {"model": exact.name, "timed_s": exact.timed_s, "half_width": _known(proof.widths[exact.name]),
             "drift": proof.drift[exact.name], "exact": _step(exact), "unseen": _step(unseen),
             "energy": asdict(proof.energy[exact.name]) if exact.name in proof.energy else None}
            for exact, unseen in zip(proof.exact, proof.unseen, strict=True)
        ],
        "lines": [one.content() for one in lines],
        "ratios": [
            {"model": one.name, "threads": one.threads, "precision": one.precision or None, "timed": one.timed,
             "projected": one.projected, "error": one.projected / one.timed - 1}
            for one in proof.ratios
        ],
        "aims": [{**one.aim._asdict(), "value": one.value, "met": one.met, "kept": one.kept} for one in verdicts],
        "seconds": {name: round(time_s, 1) for name, time_s in proof.seconds.items()},
        "skipped": [{"what": what, "reason": why} for what, why in proof.skipped],
        "notes": list(proof.notes),
    }  # fmt: skip

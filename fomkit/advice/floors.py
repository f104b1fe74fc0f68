"""Ops against their floors: the longest ops, and those far above what the machine's rates allow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fomkit.advice.case import Case
from fomkit.advice.evidence import evidence
from fomkit.advice.finding import Finding, does_not_apply
from fomkit.advice.kinds import kinds_in_words, remedies
from fomkit.advice.saving import saving
from fomkit.views import identities

if TYPE_CHECKING:
    import pandas as pd

EXPENSIVE = 0.10
"""Share of the device's time from which one op is expensive: a shorter one cannot save a tenth of a step."""

LOW_USE = 0.5
"""An op that takes twice its floor or more: removing what is above the floor would at least halve it."""

LONG_ENOUGH = 0.01
"""Share of the device's time from which an op of low use is looked at; shorter ones are no advice alone."""

_NO_FLOOR = "the machine states no rates from which a least time follows"


def _shares(case: Case) -> pd.Series[float]:
    """Give each row the share of the device's time that all rows equal to it take."""
    return case.ops["seconds"].groupby(identities(case.ops)).transform("sum") / case.device_s


def _kinds(ops: pd.DataFrame) -> list[str]:
    return [str(kind) for kind in ops.groupby("kind")["seconds"].sum().sort_values(ascending=False).index]


def _to_the_floor(case: Case, rows: pd.Series[bool], says: str) -> Finding:
    above = rows & (case.ops["floor_s"] < case.ops["time_s"])
    after = case.with_times(above, case.ops["floor_s"])
    kinds = _kinds(case.ops[above]) or _kinds(case.ops[rows])
    return Finding(
        says=says,
        do=(remedies(kinds) or "measure them alone on the machine first") + ".",
        sure="An upper bound for the same algorithm: no library reaches the stated rates, and some of these ops "
        "may be as fast as they can be.",
        saving=saving(case.before, after),
        at_most=True,
        column="time_s against floor_s, the longer of flop / peak and byte / bandwidth",
        rows=evidence(case, rows),
    )


def expensive_ops(case: Case) -> list[Finding]:
    """Find single ops that take much of the step."""
    if case.ops["floor_s"].isna().all():
        return [does_not_apply(_NO_FLOOR)]
    shares = _shares(case)
    rows = shares >= EXPENSIVE
    if not rows.any():
        return [
            does_not_apply(
                f"no op takes {EXPENSIVE:.0%} of the device's time, all its executions together; the longest "
                f"takes {shares.max():.1%}"
            )
        ]
    count = identities(case.ops)[rows].nunique()
    taken = case.ops.loc[rows, "seconds"].sum() / case.device_s
    what = "One op takes" if count == 1 else f"{count} ops take"
    return [_to_the_floor(case, rows, f"{what} {taken:.0%} of the device's time, all executions together.")]


def low_use(case: Case) -> list[Finding]:
    """Find ops that take at least twice what the machine's rates allow."""
    ops = case.ops
    if ops["floor_s"].isna().all():
        return [does_not_apply(_NO_FLOOR)]
    rows = (ops["floor_s"] <= LOW_USE * ops["time_s"]) & (_shares(case) >= LONG_ENOUGH)
    if not rows.any():
        return [
            does_not_apply(
                f"no op of {LONG_ENOUGH:.0%} of the device's time takes {1 / LOW_USE:.0f} times its least time"
            )
        ]
    taken = ops.loc[rows, "seconds"].sum()
    use = (ops["floor_s"] * ops["count"])[rows].sum() / taken
    share = f"{use:.0%}" if use >= 0.1 else f"{use:.1%}"
    count = identities(ops)[rows].nunique()
    what = "One op runs" if count == 1 else f"{count} ops run"
    return [
        _to_the_floor(
            case,
            rows,
            f"{what} at {share} of what the machine's rates allow and take {taken / case.device_s:.0%} of the "
            f"device's time, mostly {kinds_in_words(_kinds(ops[rows]))}.",
        )
    ]

"""The ops that a finding is about, those far above their floors, and what helps ops of a kind."""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan, nan
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from fomkit.ops.groups import identities, shape_label
from fomkit.ops.kinds import KINDS
from fomkit.plan.evidence import Near, distinct_ops, neighbour_content
from fomkit.prediction.cascade import nearest_timings
from fomkit.prediction.estimates import Record, records
from fomkit.whatif.advice.case import Case, Finding, does_not_apply, saving

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray


REMEDIES: Mapping[str, str] = {
    "conv": "let the library search its algorithms (torch.backends.cudnn.benchmark = True), store images "
    "channels last",
    "gemm": "make small products larger (a larger batch, several products as one), keep sizes multiples of 64",
    "rnn": "use the library's whole layer (torch.nn.LSTM) and a larger batch",
    "attention": "see that a fused kernel runs (torch.nn.functional.scaled_dot_product_attention; flash attention "
    "needs a 16-bit format)",
    "norm": "let a compiler join it with its neighbours (torch.compile, XLA)",
    "pointwise": "let a compiler join ops into one (torch.compile, XLA)",
    "copy": "avoid copies (contiguous, transposes, casts); let a compiler join the rest",
    "reduction": "let a compiler join it with its neighbours (torch.compile, XLA)",
    "softmax": "compute loss and softmax in one (cross_entropy in the products' format) or in pieces",
    "pool": "store images channels last, or replace pooling by strides",
    "embedding": "use sparse gradients, or a fused embedding bag",
}


def kinds_in_words(kinds: list[str], most: int = 3) -> str:
    """Write kinds as a list, the first ones only.

    >>> kinds_in_words(["conv", "norm"])
    'convolutions and normalisation'
    """
    names = [KINDS[kind].title if kind in KINDS else kind for kind in kinds[:most]]
    more = ["more"] if len(kinds) > most else []
    *first, last = [*names, *more]
    return f"{', '.join(first)} and {last}" if first else last


def remedies(kinds: list[str], most: int = 2) -> str:
    """Say what helps the first of some kinds."""
    found = [f"{KINDS[kind].title}: {REMEDIES[kind]}" for kind in kinds if kind in REMEDIES]
    return "; ".join(found[:most])


TOP = 3
"""Ops of a finding that are listed."""


def seconds_of(ops: pd.DataFrame) -> NDArray[np.float64]:
    """Give what each row takes in a step [s]."""
    return (ops["time_s"] * ops["count"]).to_numpy(np.float64)


def _label(row: Record) -> str:
    """Write kind and sizes; of ops on elements only how many, for their bytes follow."""
    if row["kind"] == "optimizer" or isnan(float(row.get("numel", nan))):
        return shape_label(row)
    count = row["numel"]
    return f"{row['kind']} of {count:,.0f} element{'s' if count != 1 else ''}"


def _sum(seconds: pd.Series[float]) -> float | None:
    """Add up; None where a term is unknown."""
    total = float(seconds.sum(skipna=False))
    return None if isnan(total) else total


SlowOp = TypedDict("SlowOp", {
    "rows": list[int], "op": str, "sizes": str, "pass_name": str, "dtype": str, "engine": str, "executions": float,
    "step_time_s": float, "floor_s": float | None, "after_s": float | None, "time_source": str, "bound": str,
    "evidence": str, "nearest": list[Near],
})  # fmt: skip


def is_slower(one: SlowOp) -> bool:
    """Tell whether an op takes longer in the changed step than now."""
    return one["after_s"] is not None and bool(one["after_s"] > one["step_time_s"])


def evidence(case: Case, rows: pd.Series[bool], after_s: NDArray[np.float64] | None = None) -> tuple[SlowOp, ...]:
    """Describe some rows, equal ones as one: those that change most, else the longest.

    `rows`: rows of the case's ops that the finding is about; `after_s`: what each row of the case's ops takes in
    the changed step [s]. Gives a tuple: ops that take longer in the changed step stand last. ``rows`` are
    positions in the table of ops, from 0; times are of one step.
    """
    ops = case.ops if after_s is None else case.ops.assign(after_s=after_s)
    ops = ops[rows & ops["seconds"].notna()]
    if not len(ops):
        return ()
    groups = identities(ops)
    size = ops["seconds"] if after_s is None else (ops["seconds"] - ops["after_s"]).abs()
    # Launches that all save the same stand in the table's order: a picosecond between them is a rounding.
    sums = size.groupby(groups).sum().round(12).sort_values(ascending=False, kind="stable")
    found = list[SlowOp]()
    for name in sums.index[:TOP]:
        own = ops[groups == name]
        _, row = next(iter(records(distinct_ops(own))))
        near = nearest_timings(own.iloc[:1].reset_index(drop=True), case.fitted).get(0, [])
        found.append(
            {
                "rows": own.index.tolist(), "op": str(row["op"]), "sizes": _label(row),
                "pass_name": str(row["pass_name"]), "dtype": str(row["dtype"]), "engine": str(row["engine"]),
                "executions": float(own["count"].sum()), "step_time_s": float(own["seconds"].sum()),
                "floor_s": _sum(own["floor_s"] * own["count"]),
                "after_s": None if after_s is None else _sum(own["after_s"]),
                "time_source": str(row["time_source"]), "bound": str(row["bound"]),
                "evidence": str(row["evidence"]), "nearest": [neighbour_content(one) for one in near[:1]],
            }
        )  # fmt: skip
    return tuple(sorted(found, key=is_slower))


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
        return does_not_apply(_NO_FLOOR)
    shares = _shares(case)
    rows = shares >= EXPENSIVE
    if not rows.any():
        return does_not_apply(
            f"no op takes {EXPENSIVE:.0%} of the device's time, all its executions together; the longest "
            f"takes {shares.max():.1%}"
        )
    count = identities(case.ops)[rows].nunique()
    taken = case.ops.loc[rows, "seconds"].sum() / case.device_s
    what = "One op takes" if count == 1 else f"{count} ops take"
    return [_to_the_floor(case, rows, f"{what} {taken:.0%} of the device's time, all executions together.")]


def low_use(case: Case) -> list[Finding]:
    """Find ops that take at least twice what the machine's rates allow."""
    ops = case.ops
    if ops["floor_s"].isna().all():
        return does_not_apply(_NO_FLOOR)
    rows = (ops["floor_s"] <= LOW_USE * ops["time_s"]) & (_shares(case) >= LONG_ENOUGH)
    if not rows.any():
        return does_not_apply(
            f"no op of {LONG_ENOUGH:.0%} of the device's time takes {1 / LOW_USE:.0f} times its least time"
        )
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

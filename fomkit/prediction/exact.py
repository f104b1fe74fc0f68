"""Estimator: the very same op was timed on this machine.

Thin products: those of a matrix and a vector, or of a matrix and a few vectors.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pandas as pd

from fomkit.core.interval import half_width
from fomkit.core.machine import Machine
from fomkit.core.units import format_quantity
from fomkit.ops.kinds import KINDS, PASS_FREE_KINDS
from fomkit.ops.tables import DIMENSIONS
from fomkit.prediction import estimates
from fomkit.prediction.estimates import Answers, Record, Rows, Table, are, numbers
from fomkit.prediction.gp import Flags, Matrix
from fomkit.prediction.rates import own_times

_OF_A_HIT = (
    "_time_s", "_step_s", "_p25_s", "_p75_s", "harness_s", "source_file", "source_sheet", "source_row",
    "basis", "party",
)  # fmt: skip
"""What an answer reads of the timings that it rests on."""

MEASURED = ("", "measured")
"""The words of ``basis`` in a row that somebody measured; one that names none is such."""

_NUMBERS = frozenset(column.name for column in DIMENSIONS if column.dtype == "number")


def _prepare(timings: pd.DataFrame) -> pd.DataFrame:
    """Add what a hit needs: the op's own time and quartiles, and the clock's step."""
    harness_s = numbers(timings, "harness_s", 0.0)
    quartiles = {f"_{name}": numbers(timings, name) - harness_s for name in ("p25_s", "p75_s")}
    return own_times(timings).assign(**quartiles)


def _agree(rows: pd.DataFrame, column: str, is_text: bool) -> Flags:
    """Tell where both sides of a joined table are known and equal, or one of them is unknown."""
    ours, theirs = (rows[name] if name in rows.columns else None for name in (column, f"{column}_timed"))
    if ours is None or theirs is None:
        return np.ones(len(rows), bool)
    if is_text:
        ours, theirs = ours.astype("str").fillna(""), theirs.astype("str").fillna("")
        return np.asarray((ours == theirs) | (ours == "") | (theirs == ""))
    return np.asarray((ours == theirs) | ours.isna() | theirs.isna())


def _known_values(timings: pd.DataFrame, kind: str) -> dict[str, Matrix]:
    same = timings[timings["kind"] == kind]
    return {name: np.unique(numbers(same, name)) for name in KINDS[kind].dimensions if name in _NUMBERS}


def _candidates(rows: Rows, timings: pd.DataFrame, kind: str) -> Rows:
    """Keep the rows of a kind each of whose sizes some timing has; cheaper than to join them all."""
    at = np.flatnonzero(are(rows, "kind", kind))
    known = estimates.cached(timings, None, f"sizes of {kind}", partial(_known_values, timings, kind))
    for name, values in known.items():
        if not len(at):
            break
        sizes = rows.number(name)[at]
        at = at[values[np.minimum(np.searchsorted(values, sizes), len(values) - 1)] == sizes]
    return rows.take(at)


def hits(rows: Table, timings: pd.DataFrame, kind: str) -> pd.DataFrame:
    """Join the rows of one kind with the timings of the same op, one line per pair; ``_at`` is the row's index."""
    rows, keys = estimates.as_rows(rows), ["dtype", "engine", *KINDS[kind].dimensions]
    optional = [name for name in KINDS[kind].optional if rows.has(name)]
    free = [*optional, "op"] if kind in PASS_FREE_KINDS else [*optional, "pass_name", "op"]
    ours = rows.take(are(rows, "kind", kind)).frame([*keys, *free]).rename_axis("_at").reset_index()

    def of_kind() -> pd.DataFrame:
        names = [name for name in (*keys, *free, *_OF_A_HIT) if name in timings.columns]
        return timings.loc[timings["kind"] == kind, names].rename(columns={name: f"{name}_timed" for name in free})

    theirs = estimates.cached(timings, None, f"timings of {kind} {free}", of_kind)
    pairs = ours.merge(theirs, on=keys, how="inner", suffixes=("", "_timed"))
    agree = np.ones(len(pairs), bool)
    for name in free:
        agree &= _agree(pairs, name, name not in _NUMBERS)
    pairs = pairs[agree]
    # A timing that names the op says more than one for any op of the kind.
    named = pd.Series(~are(pairs, "op_timed", ""), pairs.index)
    best = named.groupby(pairs["_at"]).transform("any")
    return pairs[named | ~best]


def _repeatability(timings: pd.DataFrame, kind: str) -> float:
    """Spread of ln(time) between timings of one and the same op, as the typical deviation from their median."""
    same = timings[timings["kind"] == kind]
    keys = [
        name
        for name in ("dtype", "engine", "pass_name", "op", "library_version", *KINDS[kind].columns)
        if name in same.columns
    ]  # fmt: skip
    grouped = np.log(same["_time_s"]).groupby([same[name] for name in keys], dropna=False)
    deviation = (np.log(same["_time_s"]) - grouped.transform("median")).abs()
    repeated = deviation[grouped.transform("size") > 1]
    return 1.4826 * float(repeated.median()) if len(repeated) else 0.0


def _source(first: Record, count: int) -> str:
    """Tell where an answer is from: its first row's place in the table, and of how many rows it is the median."""
    place = [str(first[name]) for name in ("source_file", "source_sheet") if pd.notna(first.get(name))]
    if pd.notna(first.get("source_row")):
        place.append(f"row {first['source_row']:g}")
    text = " ".join(place) or "in the table"
    if count > 1:
        text += f", median of {count}"
    harness_s = first.get("harness_s", 0.0)
    return f"{text}, less {format_quantity(harness_s, 'time_s')} of the harness" if harness_s > 0 else text


def is_measured(timings: pd.DataFrame) -> Flags:
    """Tell which timings somebody measured; a row that names no basis is one."""
    return are(timings, "basis", *MEASURED) if "basis" in timings.columns else np.ones(len(timings), bool)


def _stated_basis(first: Record) -> str:
    """Name basis and party of a figure that nobody measured; "" of a measured one."""
    basis, party = ("" if pd.isna(first.get(name)) else str(first[name]) for name in ("basis", "party"))
    return "" if basis in MEASURED else ", ".join(filter(None, (basis, party)))


def _answers(pairs: pd.DataFrame, spread: float, interval: float) -> Answers:
    """Give the median over each row's hits, one answer for each row that has any."""
    z = half_width(interval)
    own = is_measured(pairs)
    pairs = pairs[own | ~pd.Series(own, pairs.index).groupby(pairs["_at"]).transform("any")]
    hits_of = pairs.groupby("_at")
    counts, numbers_of = hits_of.size().to_numpy(), hits_of[["_time_s", "_p25_s", "_p75_s"]]
    time_s, p25_s, p75_s = numbers_of.median().to_numpy(np.float64).T
    repeated = (numbers_of.count().to_numpy()[:, 1:] == counts[:, None]).all(1)
    quartiles, typical = z / half_width(0.5), math.exp(z * spread)
    with np.errstate(invalid="ignore"):
        below = np.where(repeated, np.maximum(time_s / p25_s, 1.0) ** quartiles, typical)
        above = np.where(repeated, np.maximum(p75_s / time_s, 1.0) ** quartiles, typical)
    # Hits may differ in what the row leaves open, as a transposition; the interval holds them all.
    low_s = np.minimum(time_s / below, hits_of["_time_s"].min().to_numpy())
    high_s = np.maximum(time_s * above, hits_of["_time_s"].max().to_numpy()) + hits_of["_step_s"].max().to_numpy()
    first = [row for _, row in estimates.records(pairs.drop_duplicates("_at").sort_values("_at"))]
    stated_bases = [_stated_basis(row) for row in first]

    def evidence(place: int) -> str:
        text = _source(first[place], int(counts[place]))
        return f"stated, not measured ({stated_bases[place]}): {text}" if stated_bases[place] else text

    return Answers(
        hits_of.size().index.to_numpy(np.int64),
        np.stack([time_s, low_s, high_s]),
        np.array(["assumed" if one else "measured" for one in stated_bases], object),
        "measured",
        evidence,
    )


@estimates.opened_by(lambda rows, machine: are(rows, "kind", *estimates.timed_kinds(machine.timings)))
def estimate(rows: Rows, machine: Machine, interval: float) -> Answers:
    """Look each row up among the machine's timings (an `Estimator`).

    A hit has the same kind, number format, engine and required dimensions. Optional dimensions (transposition,
    layout), the pass and the op count against a hit only where both sides state them and differ; matrix products
    have no pass. Among several hits the median is taken, verbatim. A figure that somebody only stated (``basis``)
    gives way to measured ones; alone it is taken, and called assumed.

    The interval comes from the quartiles of the repeats where the table has them, else from how far duplicate
    timings of the kind lie apart; the step of the clock is added above, because clocks cut.
    """
    found: list[Answers] = []
    for kind in sorted({kind for (kind,) in estimates.same_texts(rows, "kind")[0]}):
        timings = estimates.cached(machine.timings, None, "own times of hits", partial(_prepare, machine.timings))
        candidates = _candidates(rows, timings, kind)
        if not len(candidates):
            continue
        pairs = hits(candidates, timings, kind)
        if len(pairs):
            spread = estimates.cached(
                timings, None, f"repeatability of {kind}", partial(_repeatability, timings, kind)
            )
            found.append(_answers(pairs, spread, interval))
    return estimates.join_answers(found)


THIN = 8.0
"""Rows or columns from which a product is none of a matrix and a vector: the fewest of DeepBench's training list.
Its inference list has 1, 2 and 4 as well, on two boards of one chip: they read their matrix at 0.60 to 0.74 of the
bandwidth, and with 16 columns at 0.19 to 0.34."""


def thinness(rows: Table) -> Matrix:
    """Give how thin products are: 1 with one row or column, 0 from `THIN`, by powers of two in between (n).

    Libraries run a product with one row or column by a kernel of its own, which reads the matrix once and waits
    for memory. A few rows more lie between it and the tiles of large products; where depends on library and chip.

    >>> import pandas as pd
    >>> thinness(pd.DataFrame({"m": [1.0, 4.0, 16.0], "n": [512.0, 512.0, 512.0]})).round(3).tolist()
    [1.0, 0.333, 0.0]
    """
    least = np.minimum(numbers(rows, "m", THIN), numbers(rows, "n", THIN))
    return np.asarray(np.clip(1 - np.log2(np.maximum(least, 1.0)) / np.log2(THIN), 0.0, 1.0), np.float64)


def mix(first: Matrix, second: Matrix, share: Matrix, interval: float) -> Matrix:
    """Mix what two estimators say of some ops, by their logarithms; where they disagree the interval is wider.

    `first`, `second` (3, q): logarithms of value, low and high; `share` (q,): of the second; `interval`: share of
    intervals that should contain the truth. Gives array (3, q).

    >>> same = np.array([[1.0], [0.5], [2.0]])
    >>> mix(same, same, np.array([0.5]), 0.8).ravel().tolist()
    [1.0, 0.5, 2.0]
    """
    apart = half_width(interval) * (second[0] - first[0])
    between = share * (1 - share) * apart**2
    value = (1 - share) * first[0] + share * second[0]
    below, above = (
        np.sqrt((1 - share) * (first[at] - first[0]) ** 2 + share * (second[at] - second[0]) ** 2 + between)
        for at in (1, 2)
    )
    return np.stack([value, value - below, value + above])

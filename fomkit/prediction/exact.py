"""Estimator: the very same op was timed on this machine.

What is the same is settled first: products are turned row-major, so that m and n of a timing mean what m and n of
an op mean, and where a row asks, by its framework's habit, for an arithmetic unit that the machine does not have,
it takes the one that it has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, overload

import numpy as np
import pandas as pd

from fomkit.core.interval import half_width
from fomkit.core.machine import Machine
from fomkit.core.units import format_quantity
from fomkit.ops.kinds import KINDS, PASS_FREE_KINDS, PRODUCT_KINDS
from fomkit.ops.tables import DIMENSIONS, PRODUCT_LAYOUTS
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


COLUMN_MAJOR = PRODUCT_LAYOUTS[1]
_PAIRS = (("m", "n"), ("trans_a", "trans_b"))


@overload
def row_major(table: pd.DataFrame) -> pd.DataFrame: ...


@overload
def row_major(table: Rows) -> Rows: ...


def row_major(table: Table) -> Table:
    """Turn products in column-major order around: timings and the ops that are asked alike.

    A column-major (m×k)·(k×n) is the row-major (n×k)·(k×m) of the same memory, and it is the second that
    frameworks ask for: their product of a batch of 16 with 1760×1760 weights is the BLAS product m=1760, n=16.
    Sparse products stay as they are, because which factor is the sparse one is part of the op.

    `table`: a table of timings or of ops. Gives a DataFrame: the same rows; m and n, trans_a and trans_b have
    changed places where ``layout`` was column_major. The layout of products is empty then.

    >>> import pandas as pd
    >>> blas = {"kind": "gemm", "layout": "column_major", "trans_a": 1.0, "trans_b": 0.0}
    >>> turned = row_major(pd.DataFrame([{**blas, "m": 1760.0, "n": 16.0}]))
    >>> turned[["m", "n", "trans_a", "trans_b"]].values.tolist()
    [[16.0, 1760.0, 0.0, 1.0]]
    """
    stated = are(table, "kind", "gemm") & are(table, "layout", *PRODUCT_LAYOUTS)
    if not stated.any():
        return table
    turned = stated & are(table, "layout", COLUMN_MAJOR)
    if isinstance(table, Rows):
        layout = table.text("layout")
        cleared = estimates.words_of(np.where(stated, len(layout.words), layout.codes), (*layout.words, ""))
        return table.assign(**_turned(table.number, _present(table.has), turned), layout=cleared)
    # The cells of a table that no one has sized yet are expressions.
    columns = _turned(lambda name: table.get(name, np.nan), _present(table.columns.__contains__), turned)
    return table.assign(**columns, layout=table["layout"].mask(stated, ""))


def _present(has: Callable[[str], bool]) -> list[tuple[str, str]]:
    return [pair for pair in _PAIRS if any(map(has, pair))]


def _turned(column: Callable[[str], Any], pairs: list[tuple[str, str]], turned: Flags) -> dict[str, Any]:
    both = [*pairs, *((other, one) for one, other in pairs)]
    return {one: np.where(turned, column(other), column(one)) for one, other in both}


def _alternatives(dtype: str, engine: str) -> Iterator[tuple[str, str]]:
    yield dtype, "vector" if engine == "matrix" else "matrix"
    if dtype == "tf32":
        yield "fp32", "vector"


def settle(rows: Rows, machine: Machine) -> tuple[Rows, dict[int, str]]:
    """Do what `settle_engines` does, on plain columns."""
    rows = row_major(rows)
    known: set[tuple[str, ...]] = {(peak.dtype, peak.engine) for peak in machine.device.peaks}
    known |= estimates.cached(
        machine.timings, None, "engines", lambda: {*estimates.same_texts(machine.timings, "dtype", "engine")[0]}
    )
    triples, numbers_of = estimates.same_texts(rows, "kind", "dtype", "engine")
    settled, notes = [], dict[int, str]()
    for number, (kind, *wanted) in enumerate(triples):
        pair = (wanted[0], wanted[1])
        found = pair
        if kind in PRODUCT_KINDS and pair not in known:
            found = next((other for other in _alternatives(*pair) if other in known), pair)
        settled.append(found)
        if found != pair:
            note = f"{pair[0]} on the {pair[1]} engine is unknown here, taken as {found[0]} on {found[1]}"
            notes |= dict.fromkeys(rows.index[numbers_of == number].tolist(), note)
    if not notes:
        return rows, notes
    dtypes, engines = (estimates.words_of(numbers_of, words) for words in zip(*settled, strict=True))
    return rows.assign(dtype=dtypes, engine=engines), notes


def settle_engines(rows: pd.DataFrame, machine: Machine) -> tuple[pd.DataFrame, dict[int, str]]:
    """Let each arithmetic row run on an engine that the machine is known to have for its number format.

    A machine is known to have an engine by a stated peak or by a timing. Products are turned row-major, as its
    timings are before anything is compared with them (`row_major`). Gives the rows, with dtype and engine replaced
    where the machine knows only an alternative, and what was replaced, by index.
    """
    rows = row_major(rows)
    settled, notes = settle(estimates.as_rows(rows), machine)
    if not notes:
        return rows, notes
    return rows.assign(**{name: settled.text(name).cells().tolist() for name in ("dtype", "engine")}), notes


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

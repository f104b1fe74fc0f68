"""Estimator: the same op was timed on this machine.

Ops and timings are first made comparable: products are turned row-major, so that m and n of a timing mean m and n
of an op (`row_major`); and a row that names an arithmetic unit which the machine does not have gets one that it
has (`settle_engines`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, overload

import numpy as np
import pandas as pd

from fomkit.core.interval import half_width
from fomkit.core.machine import Machine
from fomkit.core.units import format_quantity
from fomkit.ops.columns import Words, alike, cached, words_of
from fomkit.ops.kinds import KINDS, PASS_FREE_KINDS, PRODUCT_KINDS
from fomkit.ops.tables import DIMENSIONS, PRODUCT_LAYOUTS
from fomkit.prediction import estimators
from fomkit.prediction.estimators import Answers, Rows, Table, is_in, numbers
from fomkit.prediction.families import VIEWS, flag
from fomkit.prediction.gp import Flags, Matrix, Places
from fomkit.prediction.rates import own_times

MEASURED = ("", "measured")
"""Values of ``basis`` of measured rows; an empty one counts as measured."""

_NUMBERS = frozenset(column.name for column in DIMENSIONS if column.dtype == "number")


COLUMN_MAJOR = PRODUCT_LAYOUTS[1]
_PAIRS = (("m", "n"), ("trans_a", "trans_b"))


@overload
def row_major(table: pd.DataFrame) -> pd.DataFrame: ...


@overload
def row_major(table: Rows) -> Rows: ...


def row_major(table: Table) -> Table:
    """Turn column-major products row-major, in timings as well as in ops.

    A column-major (m×k)·(k×n) is the row-major (n×k)·(k×m) of the same memory, and frameworks call the second:
    their product of a batch of 16 with 1760×1760 weights is the BLAS product m=1760, n=16. Sparse products stay as
    they are, because which factor is sparse is part of the op.

    `table`: a table of timings or of ops. Returns the same rows; m and n, trans_a and trans_b are exchanged where
    ``layout`` was column_major. The layout of products is then empty.

    >>> import pandas as pd
    >>> blas = {"kind": "gemm", "layout": "column_major", "trans_a": 1.0, "trans_b": 0.0}
    >>> turned = row_major(pd.DataFrame([{**blas, "m": 1760.0, "n": 16.0}]))
    >>> turned[["m", "n", "trans_a", "trans_b"]].values.tolist()
    [[16.0, 1760.0, 0.0, 1.0]]
    """
    stated = is_in(table, "kind", "gemm") & is_in(table, "layout", *PRODUCT_LAYOUTS)
    if not stated.any():
        return table
    turned = stated & is_in(table, "layout", COLUMN_MAJOR)
    if isinstance(table, Rows):
        layout = table.text("layout")
        cleared = words_of(np.where(stated, len(layout.words), layout.codes), (*layout.words, ""))
        return table.assign(**_turned(table.number, _present(table.has), turned), layout=cleared)
    # Cells of a symbolic table, whose sizes are not yet set, are expressions.
    columns = _turned(lambda name: table.get(name, np.nan), _present(table.columns.__contains__), turned)
    return table.assign(**columns, layout=table["layout"].mask(stated, ""))


def _present(has: Callable[[str], bool]) -> list[tuple[str, str]]:
    return [pair for pair in _PAIRS if any(map(has, pair))]


def _turned(column: Callable[[str], Any], pairs: list[tuple[str, str]], turned: Flags) -> dict[str, Any]:
    both = [*pairs, *((other, one) for one, other in pairs)]
    return {one: np.where(turned, column(other), column(one)) for one, other in both}


def settle(rows: Rows, machine: Machine) -> tuple[Rows, dict[int, str]]:
    """Do the same as `settle_engines`, on plain columns."""
    rows = row_major(rows)
    timed: set[tuple[str, ...]] = cached(
        machine.timings, None, "engines", lambda: {*estimators.same_texts(machine.timings, "dtype", "engine")[0]}
    )
    known = timed | {(peak.dtype, peak.engine) for peak in machine.device.peaks}
    triples, numbers_of = estimators.same_texts(rows, "kind", "dtype", "engine")
    settled, notes = [], dict[int, str]()
    for number, (kind, *wanted) in enumerate(triples):
        pair = (wanted[0], wanted[1])
        found, lacks = pair, f"no peak or timing for {pair[0]} on the {pair[1]} engine"
        untimed = kind == "gemm" and pair == ("fp32", "vector") and pair not in timed
        if kind in PRODUCT_KINDS and (untimed or pair not in known):
            others = [(pair[0], "vector" if pair[1] == "matrix" else "matrix"), ("fp32", "vector")]
            found = next((one for one in others[: 1 + (pair[0] == "tf32")] if one in known), pair)
        settled.append(found)
        if found != pair:
            why = "libraries multiply fp32 on a matrix engine that can" if pair in known else lacks
            note = f"{why}; using {found[0]} on {found[1]}"
            notes |= dict.fromkeys(rows.index[numbers_of == number].tolist(), note)
    if not notes:
        return rows, notes
    dtypes, engines = (words_of(numbers_of, words) for words in zip(*settled, strict=True))
    return rows.assign(dtype=dtypes, engine=engines), notes


def settled_ops(ops: pd.DataFrame, machine: Machine) -> pd.DataFrame:
    """Return ops numbered from 0, each on the engine that `settle_engines` assigns to it."""
    return settle_engines(ops.reset_index(drop=True), machine)[0]


def settle_engines(rows: pd.DataFrame, machine: Machine) -> tuple[pd.DataFrame, dict[int, str]]:
    """Assign each arithmetic row to an engine that the machine has for its number format.

    A machine has an engine if a peak or a timing states it. Matrix products in fp32 that nobody timed on the
    vector unit run on a matrix engine with a peak in fp32: AMD's libraries use theirs, NVIDIA has none. Products
    are turned row-major, like the machine's timings (`row_major`). Returns the rows, with dtype and engine of
    those that another engine runs replaced, and a note on each replacement, by index.
    """
    rows = row_major(rows)
    settled, notes = settle(estimators.as_rows(rows), machine)
    if not notes:
        return rows, notes
    return rows.assign(**{name: settled.text(name).cells().tolist() for name in ("dtype", "engine")}), notes


def _prepare(timings: pd.DataFrame) -> pd.DataFrame:
    """Add the op's own time and quartiles, and the clock step."""
    own = own_times(timings)
    harness_s = (own["time_s"] - own["_time_s"]).to_numpy(np.float64)
    return own.assign(**{f"_{name}": numbers(own, name) - harness_s for name in ("p25_s", "p75_s")})


def _known_values(timings: pd.DataFrame, kind: str) -> dict[str, Matrix]:
    same = timings[timings["kind"] == kind]
    return {name: np.unique(numbers(same, name)) for name in KINDS[kind].dimensions if name in _NUMBERS}


def _candidates(rows: Rows, timings: pd.DataFrame, kind: str) -> Rows:
    """Select the rows of a kind whose sizes each occur in some timing; cheaper than joining all rows."""
    at = np.flatnonzero(is_in(rows, "kind", kind))
    known = cached(timings, None, f"sizes of {kind}", partial(_known_values, timings, kind))
    for name, values in known.items():
        if not len(at):
            break
        sizes = rows.number(name)[at]
        at = at[values[np.minimum(np.searchsorted(values, sizes), len(values) - 1)] == sizes]
    return rows.take(at)


def _cells(rows: Rows, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Iterate over some columns row by row; empty cells are NaN or ""."""
    columns = [(rows.number(name) if name in _NUMBERS else rows.text(name).cells()).tolist() for name in names]
    return zip(*columns, strict=True)


Timing = tuple[int, tuple[Any, ...]]
"""The position of a timing in its table, and the cells that an op may leave empty."""


def _by_op(timings: pd.DataFrame, kind: str, keys: Sequence[str], free: Sequence[str]) -> dict[Any, list[Timing]]:
    known, found = estimators.as_rows(timings), dict[Any, list[Timing]]()
    places = np.flatnonzero(is_in(known, "kind", kind))
    rows = known.take(places)
    for place, key, cells in zip(places.tolist(), _cells(rows, keys), _cells(rows, free), strict=True):
        found.setdefault(key, []).append((place, cells))
    return found


def _agree(ours: tuple[Any, ...], theirs: tuple[Any, ...]) -> bool:
    """Return whether cells are equal wherever both sides state them."""
    pairs = zip(ours, theirs, strict=True)
    return all(one == other or "" in (one, other) or one != one or other != other for one, other in pairs)


def _own_names(timings: pd.DataFrame, kind: str) -> frozenset[str]:
    """Return the ops with timings of their own in a kind bound by traffic; these exclude unnamed timings."""
    if kind not in VIEWS or not VIEWS[kind].any_op:
        return frozenset()
    return frozenset(estimators.as_rows(timings).take(is_in(timings, "kind", kind)).text("op").cells()) - {""}


def hits(rows: Table, timings: pd.DataFrame, kind: str) -> tuple[list[tuple[int, ...]], Places]:
    """Find the timings of the same op as rows of a kind: positions for each distinct op, and each row's number."""
    rows, keys = estimators.as_rows(rows), ("dtype", "engine", *KINDS[kind].dimensions)
    free = (*KINDS[kind].optional, *(() if kind in PASS_FREE_KINDS else ("pass_name",)), "op")
    known = cached(timings, None, f"timings of {kind}", partial(_by_op, timings, kind, keys, free))
    own_names = cached(timings, None, f"names of {kind}", partial(_own_names, timings, kind))
    first, number = alike(
        [rows.number(name) if name in _NUMBERS else rows.text(name).codes for name in (*keys, *free)]
    )
    distinct, found = rows.take(first), []
    for key, cells in zip(_cells(distinct, keys), _cells(distinct, free), strict=True):
        same = [(place, theirs[-1]) for place, theirs in known.get(key, ()) if _agree(cells, theirs)]
        # A timing that names the op has priority over one for any op of the kind.
        named = [place for place, op in same if op]
        found.append(tuple(named or [place for place, _ in same if cells[-1] not in own_names]))
    return found, number


def named_ops(rows: Rows) -> tuple[list[tuple[str, float]], Places]:
    """Return the distinct names of ops with the number of their inputs, and each row's number of them."""
    names, inputs = rows.text("op"), rows.filled("inputs", 1.0)
    first, number = alike([names.codes, inputs])
    return [(names.at(at), float(inputs[at])) for at in first.tolist()], number


def often_named(rows: Rows, fewest: int) -> tuple[tuple[str, float], ...]:
    """Return the `named_ops` of a fit with features of their own: those of many rows; none if there is one op.

    A kernel that loads number by number takes twice as long for its bytes as one that loads 16 at once. Timings
    without a name may be of any op.
    """
    found, number = named_ops(rows)
    many = np.bincount(number).tolist()
    often = sorted(one for one, count in zip(found, many, strict=True) if one[0] and count >= fewest)
    return tuple(often) if len(found) > 1 else ()


def op_flags(rows: Rows, ops: Sequence[tuple[str, float]]) -> list[Matrix]:
    """Return a feature for each of ``ops`` (`named_ops`); all other ops have the features of an unnamed one."""
    if not ops:
        return []
    found, number = named_ops(rows)
    return [flag(np.array([one == op for one in found], bool)[number]) for op in ops]


REPEATED: Mapping[str, float] = {"aiconfigurator": 0.015}
"""Standard deviation of ln(time) between two timings of one op, by harnesses without quartiles: 0.008 to 0.018
in pairs of equal rows of four public tables (docs/adr/0103)."""


def _repeatability(timings: pd.DataFrame, kind: str) -> float:
    """Return the spread of ln(time) between timings of one op: their scaled median deviation, or `REPEATED`."""
    same = timings[timings["kind"] == kind]
    least = max(REPEATED.get(word, 0.0) for word in estimators.as_rows(same).text("harness").cells().tolist())
    keys = [
        name
        for name in ("dtype", "engine", "pass_name", "op", "library_version", *KINDS[kind].columns)
        if name in same.columns
    ]  # fmt: skip
    grouped = np.log(same["_time_s"]).groupby([same[name] for name in keys], dropna=False)
    deviation = (np.log(same["_time_s"]) - grouped.transform("median")).abs()
    repeated = deviation[grouped.transform("size") > 1]
    return max(1.4826 * float(repeated.median()) if len(repeated) else 0.0, least)


def _source(first: Rows, count: int) -> str:
    """Describe the source of an answer: the place of its first row in the table, and the number of rows."""
    place = [word for name in ("source_file", "source_sheet") if (word := first.text(name).at(0))]
    row, harness_s = (float(first.number(name)[0]) for name in ("source_row", "harness_s"))
    if not math.isnan(row):
        place.append(f"row {row:g}")
    text = " ".join(place) or "in the table"
    if count > 1:
        text += f", median of {count}"
    return f"{text}, less {format_quantity(harness_s, 'time_s')} of harness overhead" if harness_s > 0 else text


def is_measured(timings: Table) -> Flags:
    """Return which timings are measured; a row without basis is."""
    return is_in(timings, "basis", *MEASURED)


class _Hit(NamedTuple):
    """The result for one op: value and bounds [s], first timing, number of timings, and basis if not measured."""

    times: tuple[float, float, float]
    first: int
    rows: int
    stated: str


def _numbers_of_hits(known: Rows) -> Matrix:
    """Return figures of each timing (5, n): time, quartiles and clock step [s], and 1 where measured."""
    names = ("_time_s", "_p25_s", "_p75_s", "_step_s")
    return np.stack([*(known.number(name) for name in names), is_measured(known)])


def _hit(places: Places, known: Rows, figures: Matrix, spread: float, interval: float) -> _Hit:
    cells = figures[:, places]
    if len(places) > 1 and (own := cells[4] > 0).any():
        places, cells = places[own], cells[:, own]
    time_s, p25_s, p75_s = cells[:3, 0] if len(places) == 1 else np.median(cells[:3], 1)
    z, seconds, step_s = half_width(interval), cells[0], cells[3]
    below = above = math.exp(z * spread)
    if not np.isnan(p25_s + p75_s):
        with np.errstate(divide="ignore"):
            below, above = (max(one, 1.0) ** (z / half_width(0.5)) for one in (time_s / p25_s, p75_s / time_s))
    # Hits may differ in what the row does not state, as a transposition; the interval covers all of them.
    times = (time_s, min(time_s / below, seconds.min()), max(time_s * above, seconds.max()) + step_s.max())
    first = int(places[0])
    basis_and_party = filter(None, (known.text(name).at(first) for name in ("basis", "party")))
    return _Hit(times, first, len(places), "" if cells[4, 0] else ", ".join(basis_and_party))


def _answers(
    rows: Rows, found: list[tuple[int, ...]], number: Places, timings: pd.DataFrame, spread: float, interval: float
) -> Answers:
    """Return the median over each row's hits, for each row that has any."""
    met = cached(timings, None, f"hits at {interval}", dict[tuple[int, ...], _Hit])
    known = cached(timings, None, "rows by place", lambda: estimators.as_rows(timings.reset_index(drop=True)))
    figures = cached(timings, None, "figures of hits", partial(_numbers_of_hits, known))
    for places in found:
        if places and places not in met:
            met[places] = _hit(np.array(places), known, figures, spread, interval)
    at = np.flatnonzero(np.array([bool(places) for places in found])[number])
    distinct = [met.get(places) for places in found]
    of = [distinct[one] for one in number[at].tolist()]

    def evidence(place: int) -> str:
        one = of[place]
        text = _source(known.take(np.array([one.first])), one.rows)
        return f"stated, not measured ({one.stated}): {text}" if one.stated else text

    times = np.array([one.times for one in of]).reshape(-1, 3).T
    stated = np.array([bool(one.stated) for one in of], np.intp)
    return Answers(rows.index[at], times, Words(stated, ("measured", "assumed")), "measured", evidence)


@estimators.opened_by(lambda rows, machine: is_in(rows, "kind", *estimators.timed_kinds(machine)))
def estimate(rows: Rows, machine: Machine, interval: float) -> Answers:
    """Look each row up in the machine's timings (an `Estimator`).

    A hit has the same kind, number format, engine and required dimensions. Optional dimensions (transposition,
    layout), the pass and the op exclude a hit only where both sides state them and differ; matrix products have no
    pass. The result is the median of the hits, unchanged. A figure that is only stated (``basis``) is used if
    there is no measured one, and is then called assumed.

    The interval comes from the quartiles of the repeats where the table has them, else from the spread between
    duplicate timings of the kind (`REPEATED`, or more). The clock step is added to the high bound, because clocks
    truncate.
    """
    found: list[Answers] = []
    for kind in sorted({kind for (kind,) in estimators.same_texts(rows, "kind")[0]}):
        timings = cached(machine.timings, None, "own times of hits", partial(_prepare, machine.timings))
        candidates = _candidates(rows, timings, kind)
        if not len(candidates):
            continue
        places, number = hits(candidates, timings, kind)
        if any(places):
            spread = cached(timings, None, f"repeatability of {kind}", partial(_repeatability, timings, kind))
            found.append(_answers(candidates, places, number, timings, spread, interval))
    return estimators.join_answers(found)


STRAIGHT, SERIES = 4.0, 10
"""Largest ratio of neighbouring timed sizes between which time is linear (`View.along`), and the fewest timed
sizes: with fewer, the process also uses timings with other numbers of ranks."""


def between_timings(known: Rows, training: pd.DataFrame, rows: Rows, kind: str, log_s: Matrix) -> Matrix:
    """Return ln(time) (n), linear in size between neighbouring timed sizes; ``log_s`` elsewhere.

    While a library keeps its algorithm, time is a start plus size over a rate. Below the smallest size its time
    applies, above the largest the line through the last two.
    """
    view = VIEWS[kind]
    if not view.along:
        return log_s
    names = list(view.exact)
    series = pd.concat([rows.frame(names)[names], training[names]]).groupby(names, dropna=False).ngroup()
    own, timed = np.split(series.to_numpy(), [len(rows)])
    wanted, sizes = rows.number(view.along), known.number(view.along)
    seconds, found = training["_time_s"].to_numpy(np.float64), log_s.copy()
    for one in np.unique(own[np.isin(own, timed)]).tolist():
        at = np.flatnonzero(timed == one)
        if len(at) < SERIES:
            continue
        at, asked = at[np.argsort(sizes[at])], np.flatnonzero(own == one)
        size = np.maximum(wanted[asked], sizes[at[0]])
        above = np.clip(np.searchsorted(sizes[at], size), 1, len(at) - 1)
        low, high = at[above - 1], at[above]
        share = (size - sizes[low]) / np.maximum(sizes[high] - sizes[low], 1.0)
        line_s = seconds[low] + share * np.maximum(seconds[high] - seconds[low], np.where(share > 1, 0.0, -np.inf))
        reach = np.maximum(sizes[high], size) / np.minimum(sizes[low], wanted[asked])
        near = asked[(reach <= STRAIGHT) & (low != high)]
        found[near] = np.log(line_s)[np.isin(asked, near)]
    return found

"""What a profiler saw of a step, put into the op table of the same step, which stays as it is but for times.

A table traced by shapes and a run under a profiler name some ops differently, and a device may run others. Times
are joined in rounds, the strictest first; a row that has its time takes no more in a later round.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from fomkit.core.measurement import Unjoined
from fomkit.core.units import round_quantity
from fomkit.frontends.lowering.calls import UPDATE
from fomkit.frontends.step_spread import Spent
from fomkit.ops.kinds import KINDS, PRODUCT_KINDS
from fomkit.ops.pricing import add_costs

NO_WORK = "no work"
NO_ROW = "no row"
_SMALL = 0.02
"""Share of the time without a row below which ops without work are listed together."""
_SAME_OPS: Mapping[str, str] = {
    "linear": "mm", "addmm": "mm", "matmul": "mm", "convolution_overrideable": "convolution",
    "mkldnn_convolution": "convolution", "cudnn_convolution": "convolution", "miopen_convolution": "convolution",
    "thnn_conv2d": "convolution", "slow_conv3d": "convolution", "mkldnn_rnn_layer": "lstm", "_cudnn_rnn": "rnn",
    "cudnn_batch_norm": "native_batch_norm", "miopen_batch_norm": "native_batch_norm",
    "_native_batch_norm_legit": "native_batch_norm", "zeros_like": "zeros", "new_zeros": "zeros",
    "zero": "zeros", "ones_like": "ones", "new_ones": "ones", "full_like": "full", "_to_copy": "clone",
    "copy": "clone", "contiguous": "clone", "square": "pow",
}  # fmt: skip
"""Names of one op in backends and spellings, without library and the mark of in-place ones."""


@dataclass(frozen=True)
class Joined:
    """The outcome.

    `time_s`: time of one execution of each row [s]; NaN where the profiler has none.
    `joined_s`: time of a step that stands in the rows [s].
    `unjoined`: the rest, the longest first.
    `miscounted`: rows that ran more or less often than the table says; their time is that of the step over their
      count.
    `impls`: how the update ran: per_tensor, foreach or fused.
    `parted`: rows of both gradients whose times the profiler told as one.
    """

    time_s: pd.Series[float]
    joined_s: float
    unjoined: tuple[Unjoined, ...]
    miscounted: int
    impls: frozenset[str] = frozenset()
    parted: int = 0


def canonical(op: str) -> str:
    """Name an op as every backend and spelling of it is named.

    Examples
    --------
    >>> canonical("aten::mkldnn_convolution"), canonical("aten.add_"), canonical("cudnn_convolution_backward")
    ('convolution', 'add', 'convolution_backward')
    """
    name = op.rpartition("::")[2].removeprefix("aten.").rstrip("_") or op
    stem = name.removesuffix("_backward")
    return _SAME_OPS.get(stem, stem) + name[len(stem) :]


def _needed_sizes(kind: str, cells: Mapping[str, Any]) -> tuple[float | str, ...]:
    """Give what a kind must have, without what an implementation may choose."""
    names = [name for name in KINDS[kind].dimensions if name != "impl"] if kind in KINDS else []
    values = [cells.get(name) for name in names]
    return tuple(one if isinstance(one, str) else float("nan" if one is None else one) for one in values)


Key = Callable[[Mapping[str, Any]], object]


def _broad_pass(cells: Mapping[str, Any]) -> str:
    return str(cells["pass_name"]).partition("_")[0]


def _same_op(cells: Mapping[str, Any]) -> object:
    kind = cells["kind"]
    return canonical(cells["op"]), kind, cells["dtype"], cells["pass_name"], _needed_sizes(kind, cells)


def _either_gradient(key: Key) -> Key:
    """Hold both gradients of a backward pass to be the same."""
    return lambda cells: key({**cells, "pass_name": _broad_pass(cells)})


def _by_sizes(cells: Mapping[str, Any]) -> object:
    kind = cells["kind"]
    if kind not in PRODUCT_KINDS:
        return None
    # A recurrent layer whose input needs no gradient has an input_size of 0 there, which no profiler tells.
    loose = {**cells, "input_size": 0.0} if kind == "rnn" else cells
    return (kind, cells["pass_name"], _needed_sizes(kind, loose))


def _by_numel(cells: Mapping[str, Any]) -> object:
    if cells["kind"] in PRODUCT_KINDS:
        return None
    return (canonical(cells["op"]), _broad_pass(cells), cells.get("numel"))


_IN_PIECES: Mapping[tuple[str, str], str] = {
    ("bernoulli", "forward"): "native_dropout", ("div", "forward"): "native_dropout",
    ("mul", "forward"): "native_dropout", ("mul", "backward"): "native_dropout_backward",
}  # fmt: skip
"""Ops that a CPU runs in the place of one, by name and pass."""


def _in_pieces(cells: Mapping[str, Any]) -> object:
    name = canonical(cells["op"])
    whole = _IN_PIECES.get((name, _broad_pass(cells)), name)
    return (whole, cells.get("numel")) if whole.startswith("native_dropout") else None


def _whatever_pass(cells: Mapping[str, Any]) -> object:
    """Join what runs between the passes, such as the gradient of the loss itself."""
    return (canonical(cells["op"]), cells.get("numel")) if cells["kind"] == "copy" else None


ROUNDS: Sequence[Key] = (
    _same_op, _either_gradient(_same_op), _by_sizes, _either_gradient(_by_sizes), _by_numel, _in_pieces,
    _whatever_pass, lambda cells: UPDATE if cells["pass_name"] == UPDATE else None,
)  # fmt: skip
"""By what rows and times are held to be the same, round by round."""


def _elements_or_flop(cells: Mapping[str, Any]) -> float:
    """Give by what rows share a time: elements, else the arithmetic."""
    for amount in (cells.get("numel"), cells.get("flop")):
        if isinstance(amount, int | float) and 0 < amount < np.inf:
            return float(amount)
    return 1.0


def join_times(ops: pd.DataFrame, times: Iterable[Spent]) -> Joined:
    """Put the times of a step's ops into its table.

    `ops`: an OPS table whose dimensions are numbers; `times`: all that a profiler saw of one step.
    """
    rows: list[dict[str, Any]] = [
        {str(name): cell for name, cell in row.items()} for row in add_costs(ops).to_dict("records")
    ]
    left = seen = list(times)
    found = _Found()
    for key in ROUNDS:
        places: dict[object, list[int]] = defaultdict(list)
        for place, row in enumerate(rows):
            if place not in found.spent and (same := key(row)) is not None:
                places[same].append(place)
        left = _join_round(key, rows, places, left, found)
    _part_by_work(rows, found)
    time = [found.spent.get(place, np.nan) / row["count"] for place, row in enumerate(rows)]
    miscounted = sum(abs(times_run - rows[place]["count"]) > 0.01 for place, times_run in found.ran.items())
    series = pd.Series(time, ops.index, dtype="float64")
    impls = frozenset(str(one.dimensions["impl"]) for one in seen if one.kind == "optimizer")
    return Joined(series, sum(found.spent.values()), _listed(left), miscounted, impls, len(found.parted))


@dataclass
class _Found:
    """Time, and executions, of rows by their place; and places whose time was told as one with another's."""

    spent: dict[int, float] = field(default_factory=dict)
    ran: dict[int, float] = field(default_factory=dict)
    parted: set[int] = field(default_factory=set)


def _part_by_work(rows: Sequence[Mapping[str, Any]], found: _Found) -> None:
    """Part what was told as one time of two gradients by their work: of data that need none, one has less."""
    pairs: dict[object, list[int]] = defaultdict(list)
    for place in sorted(found.parted):
        pairs[_either_gradient(_by_sizes)(rows[place])].append(place)
    for pair in pairs.values():
        if len({rows[place]["pass_name"] for place in pair}) == len(pair) == 2:
            whole = sum(found.spent[place] for place in pair)
            weights = [rows[place]["count"] * _elements_or_flop(rows[place]) for place in pair]
            found.spent.update(
                {place: whole * one / sum(weights) for place, one in zip(pair, weights, strict=True)}
            )


def _join_round(
    key: Key,
    rows: Sequence[Mapping[str, Any]],
    places: Mapping[object, list[int]],
    left: Iterable[Spent],
    found: _Found,
) -> list[Spent]:
    """Join what one round finds the same, and give what stays."""
    rest = []
    for one in left:
        cells = {**one.dimensions, **{name: getattr(one, name) for name in ("op", "kind", "dtype", "pass_name")}}
        same = key(cells) if one.kind else None
        members = places.get(same, []) if same is not None else []
        if not members:
            rest.append(one)
            continue
        weights = [rows[place]["count"] * _elements_or_flop(rows[place]) for place in members]
        executions = sum(rows[place]["count"] for place in members)
        for place, weight in zip(members, weights, strict=True):
            found.spent[place] = found.spent.get(place, 0.0) + one.time_s * weight / sum(weights)
            if key is not _in_pieces:
                found.ran[place] = found.ran.get(place, 0.0) + one.count * rows[place]["count"] / executions
        if one.halved:
            found.parted.update(members)
    return rest


def _listed(left: Iterable[Spent]) -> tuple[Unjoined, ...]:
    """List by name what stays; of what has no work the smallest share together."""
    found: dict[tuple[str, str, str], list[float]] = {}
    for one in left:
        sums = found.setdefault((one.op, one.pass_name, NO_ROW if one.kind else NO_WORK), [0.0, 0.0])
        sums[0] += one.count
        sums[1] += one.time_s
    whole = sum(time for _, time in found.values())
    small = [key for key, (_, time) in found.items() if key[2] == NO_WORK and time < _SMALL * whole]
    if len(small) > 1:
        sums = [sum(found[key][place] for key in small) for place in (0, 1)]
        found = {key: value for key, value in found.items() if key not in small}
        found[f"{len(small)} others", "", NO_WORK] = sums
    listed = (Unjoined(op, pass_name, int(count), round_quantity(time, "time_s"), why)
              for (op, pass_name, why), (count, time) in found.items())  # fmt: skip
    return tuple(sorted(listed, key=lambda one: -one.time_s))

"""One traced step, its tables, and the draft of a profile made of it: plain values that a child can send.

`count_rows` makes the rows of the op table, `order_rows` those of the order, and `Draft.profile` the profile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from fomkit.core.errors import FomkitError, ManyFomkitError
from fomkit.core.model import Data, LastBatch, ModelProfile, Run
from fomkit.core.units import count_text
from fomkit.frontends.lowering.calls import Dimensions, TracedOp, add_counts, add_lines
from fomkit.frontends.sizes import NoExpression, Sizes, execution_keys, name_sizes
from fomkit.ops.tables import DIMENSIONS, join_lines, table_of_rows


@dataclass(frozen=True)
class Update:
    """The update of one step.

    `unsupported`: the update without a price; "" if there is none.
    `optimizer`: rule and implementation, for the profile's head.
    """

    rows: list[TracedOp] = field(default_factory=list)
    unsupported: str = ""
    notes: list[str] = field(default_factory=list)
    optimizer: dict[str, str] = field(default_factory=dict)


def _listed(counts: Counter[str]) -> list[str]:
    """Return the names of counted ops, with those counts that are above 1."""
    return [f"{name} ×{count}" if count > 1 else name for name, count in sorted(counts.items())]


@dataclass(frozen=True)
class Step:
    """The content of one traced step.

    `ops`: the ops, and after them the layers of the forward pass, whose kind is ``layer``.
    `states`: counts of the framework's ops that are priced, zero_work and unsupported.
    `bounded`: ops whose price is a lower bound, by name: that of their bytes or, in sequence, of their flop.
    `order`: the lines of the order, whose kind is ``order``; ``row`` is a position in ``ops``. Empty if memory was
      not traced.
    """

    ops: list[TracedOp]
    states: Counter[str]
    unsupported: Counter[str]
    optimizer: dict[str, str]
    notes: list[str]
    order: list[TracedOp] = field(default_factory=list)
    bounded: Counter[str] = field(default_factory=Counter)

    def add_update(self, update: Update) -> None:
        """Append the rows of an update, its notes and its optimizer."""
        self.ops.extend(update.rows)
        self.notes.extend(update.notes)
        self.optimizer.update(update.optimizer)
        self.states["priced"] += len(update.rows)
        if update.unsupported:
            self.unsupported[update.unsupported] += 1
            self.states["unsupported"] += 1

    @property
    def shares(self) -> str:
        """A note of how many of the framework's ops have a price."""
        states = self.states
        return (
            f"{count_text(sum(states.values()), 'op')} in the step: {states['priced']:,} priced, "
            f"{states['zero_work']:,} without work, {states['unsupported']:,} unsupported"
        )

    @property
    def listed_unsupported(self) -> list[str]:
        """The ops without a rule, with their counts."""
        return _listed(self.unsupported)

    @property
    def of_bounds(self) -> list[str]:
        """A note on the ops whose prices are lower bounds."""
        how = "by their bytes if they have no rule, by their flop if much of them runs in sequence"
        return [f"priced by a lower bound, {how}: {', '.join(_listed(self.bounded))}"] * bool(self.bounded)


Row = dict[str, Any]


def count_rows(ops: Iterable[TracedOp]) -> tuple[list[Row], list[Row]]:
    """Count equal executions; return the rows of the OPS table and the parts of one execution of each.

    There is one row per distinct (op, dimensions, dtype, engine, pass, module), in order of first execution. In
    the parts, ``of`` is the position of their row.
    """
    counted: dict[Any, int] = {}
    rows: list[Row] = []
    parts: list[Row] = []
    lines: list[Mapping[str, int]] = []
    for op in ops:
        key = op.key
        if (place := counted.get(key)) is not None:
            rows[place]["count"] = add_counts(rows[place]["count"], op.count)
            lines[place] = add_lines(lines[place], op.lines)
            continue
        counted[key] = len(rows)
        named = {"op": op.op, "kind": op.kind, "dtype": op.dtype, "engine": op.engine}
        rows.append({**named, "pass_name": op.pass_name, "module": op.module, "count": op.count, **op.dimensions})
        lines.append(op.lines)
        inside, _ = count_rows(op.parts)
        parts += [{**part, "of": counted[key], "code_line": ""} for part in inside]  # parts have their row's line
    for row, found in zip(rows, lines, strict=True):
        row["code_line"] = join_lines(found, row["count"])
    return rows, parts


def row_places(ops: Iterable[TracedOp]) -> list[int]:
    """Return the position of each execution among the rows of `count_rows`."""
    first: dict[object, int] = {}
    return [first.setdefault(op.key, len(first)) for op in ops]


_FROM_ONE = [column.name for column in DIMENSIONS if column.least == 1]


def _check_sizes(rows: Iterable[Row], name: str) -> None:
    """Raise for the first op of each module that has a size of 0: such an op has no price and no use."""
    empty: dict[str, FomkitError] = {}
    for row in rows:
        if sizes := [size for size in _FROM_ONE if row.get(size) == 0]:
            place = f"the module {row['module']!r}" if row["module"] else "the model"
            line = f" ({row['code_line']})" if row.get("code_line") else ""
            what = f"{place}{line} runs {row['op']} with {sizes[0]} = 0, so nothing comes out of it"
            do = "Give this layer sizes of 1 or more, or leave it out."
            empty.setdefault(row["module"], FomkitError(name, f"{what}. {do}"))
    if empty:
        raise ManyFomkitError(empty.values())


@dataclass(frozen=True)
class Draft:
    """The whole result of a trace, as numbers, text, lists and dicts only."""

    name: str
    title: str
    rows: list[Row]
    parts: list[Row]
    layers: list[Row]
    sizes: dict[str, int]
    traced_with: dict[str, str]
    parameters_total: int
    parameters_trainable: int
    train_samples: int | None
    validation_samples: int | None
    last_batch: LastBatch
    epochs: int | None
    optimizer: dict[str, str]
    unsupported: list[str]
    notes: list[str]
    order: list[Row] | None = None
    missing: list[str] = field(default_factory=list)
    derived: list[str] = field(default_factory=list)
    bounded: list[str] = field(default_factory=list)

    def profile(self, *notes: str) -> ModelProfile:
        """Make the profile, with further notes; raise if a layer has a size of 0."""
        _check_sizes(self.rows, self.name)
        return ModelProfile(
            self.name, self.title, ops=table_of_rows(self.rows, "OPS"),
            parts=table_of_rows(self.parts, "OPS", ("of",)),
            layers=table_of_rows(self.layers, "LAYERS") if self.layers else None,
            order=None if self.order is None else table_of_rows(self.order, "ORDER"),
            sizes=self.sizes, traced_with=self.traced_with, parameters_total=self.parameters_total,
            parameters_trainable=self.parameters_trainable,
            data=Data(self.train_samples, self.validation_samples, self.last_batch), run=Run(epochs=self.epochs),
            optimizer=self.optimizer, unsupported=tuple(self.unsupported), missing=tuple(self.missing),
            derived=tuple(self.derived), bounded=tuple(self.bounded), notes=(*self.notes, *notes),
        )  # fmt: skip


ORDER_LINE = "order"
"""Kind of the rows that are lines of the order, until their sizes have names."""

_PLACES = ("id", "row", "freed_by")


def order_line(
    number: int, role: str, byte: int, row: int | None = None, freed_by: int | None = None, pass_name: str = "",
    module: str = "",
) -> TracedOp:  # fmt: skip
    """Make a line of the order as a row that is named like an op; None for no ``row`` or ``freed_by``."""
    known = {"id": number, "row": row, "role": role, "output_byte": byte, "freed_by": freed_by}
    sizes: Dimensions = {name: value for name, value in known.items() if value is not None}
    return TracedOp("", ORDER_LINE, sizes, "", pass_name, module)


Piece = tuple[int, int | None, str]
"""Memory that an op makes: its bytes, the id after which it is free, and its role; "" if the id decides it."""


def lines_of_op(
    first: int, rows: Sequence[int], pieces: Iterable[Piece], end_of_forward: int, pass_name: str
) -> Iterator[TracedOp]:
    """Return the lines of an executed op: one for each piece of memory, at least one for each of its rows.

    `first`: id of its first row; `rows`: their positions; `pieces`: memory that it makes; pieces without bytes are
    dropped. Memory made in the forward pass and freed after `end_of_forward` is kept for the backward pass.
    `pass_name`: of an op without rows.
    """
    place, texts = (rows[0], ()) if rows else (None, (pass_name, ""))
    made = [piece for piece in pieces if piece[0] > 0]
    for byte, end, role in made:
        is_kept = end is not None and first <= end_of_forward < end
        yield order_line(first, role or ("activation" if is_kept else "temporary"), byte, place, end, *texts)
    if not made:
        yield order_line(first, "", 0, place, None, *texts)
    for number, row in enumerate(rows[1:], first + 1):
        yield order_line(number, "", 0, row, None)


def name_order(orders: Sequence[list[TracedOp]], sizes: Sequence[Sizes], names: Sequence[str]) -> list[TracedOp]:
    """Join the orders of one step at several sizes into one whose bytes are expressions."""
    if len({len(order) for order in orders}) > 1:
        lines = ", ".join(str(len(order)) for order in orders)
        raise NoExpression(f"the number of executed ops changes with {', '.join(names)}: {lines}")
    named = name_sizes(orders, sizes, names)
    for line in named:
        if any(isinstance(line.dimensions.get(name), str) for name in _PLACES):
            raise NoExpression(f"the order of the ops changes with {', '.join(names)}")
    return named


def places_of(traced: Sequence[TracedOp], named: Sequence[TracedOp]) -> list[int]:
    """Return the place of each traced op among the named ops, where equal ones may have been joined."""
    if len(traced) == len(named):
        return list(range(len(traced)))
    first: dict[object, int] = {}
    often = [Counter(op.identity for op in ops) for ops in (traced, named)]
    return [first.setdefault(key, len(first)) for key in execution_keys(traced, often)]


def order_rows(
    order: Sequence[TracedOp], traced: Sequence[TracedOp], named: Sequence[TracedOp], rows: Sequence[int]
) -> list[Row]:
    """Make the rows of the ORDER table.

    `order`: lines whose ``row`` is a position in ``traced``; `traced`, `named`: the ops of the step, and the same
    with named sizes; `rows`: for each named op its row of the op table.
    """
    places = places_of(traced, named)
    found = []
    for line in order:
        row = {"module": line.module, "pass_name": line.pass_name, **line.dimensions}
        if "row" in row:
            row["row"] = rows[places[int(row["row"])]]
        found.append(row)
    return found


Route = Literal["meta", "constants", "fake", "data"]
ROUTES: Mapping[Route, str] = {
    "meta": "", "constants": "small constants kept their values", "fake": "fake tensors were used",
    "data": "the step ran on this CPU with its data, which may decide the number and sizes of its ops",
}  # fmt: skip
"""Each route and the note that it adds to a profile.

``meta`` does not imitate any device. ``constants`` is the same, except that small constants keep their values,
because models turn them into plain numbers on construction. ``fake`` imitates a CPU, as some code requires.
``data`` runs the step, for code that reads values of tensors.
"""


def profile_by_routes(trace: Callable[[Route], Draft | FomkitError], where: str) -> ModelProfile:
    """Trace by the first route on which the user's code runs; if ``trace`` returns an error, try the next."""
    failed: dict[Route, FomkitError] = {}
    for route, note in ROUTES.items():
        outcome = trace(route)
        if isinstance(outcome, Draft):
            notes = [f"{note}: on the meta device the code {error.what}" for error in list(failed.values())[:1]]
            return outcome.profile(*notes)
        failed[route] = outcome
    routes_of: dict[str, list[str]] = {}
    for route, error in failed.items():
        routes_of.setdefault(str(error), []).append(route)
    if len(routes_of) == 1:
        raise failed["meta"]
    reasons = "\n".join(f"  {', '.join(routes)}: {reason}" for reason, routes in routes_of.items())
    raise FomkitError(
        where,
        "runs neither without data nor with them. Check that the model runs on these inputs. A program that "
        f"trains by itself is profiled with --script.\n{reasons}",
    )

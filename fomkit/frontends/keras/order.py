"""The order of a graph's step: every op that runs, the memory that it makes, and the op after which that is free.

The graph shows which op reads which result. The rest follows TensorFlow's runtime, as observed in its allocator: a
result is freed with its last reader, a pointwise op writes over an input that is not read later, and a variable is
updated as soon as its gradient exists. The runtime may order independent ops freely; here the graph's order is
used.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from math import prod
from typing import Any

from fomkit.core.model import STATE_TENSORS
from fomkit.core.units import item_byte
from fomkit.frontends.keras.calls import (
    CONTROL,
    Graph,
    Operation,
    Place,
    Ran,
    ShapeUnknown,
    Tensor,
    as_array,
    constants,
    dtype_name,
    is_scratch,
    origin_of,
)  # fmt: skip
from fomkit.frontends.keras.layers import placed_layers
from fomkit.frontends.keras.ops import Placed, product_group, rule_of, tensors_of
from fomkit.frontends.lowering import calls
from fomkit.frontends.lowering.calls import BACKWARD, FORWARD, UPDATE, TracedOp, split_gradients
from fomkit.frontends.lowering.tf import PRODUCTS, RULES
from fomkit.frontends.step import Piece, lines_of_op, order_line

COPIES: Mapping[str, int] = {
    "sgd": 1, **dict.fromkeys(("momentum", "adam", "adagrad"), 2),
    **dict.fromkeys(("nesterov", "adam_amsgrad", "adamw", "adamw_amsgrad", "adamax", "nadam", "rmsprop"), 3),
    **dict.fromkeys(("rmsprop_momentum", "rmsprop_centered", "adadelta"), 4), "rmsprop_centered_momentum": 5,
}  # fmt: skip
"""Tensors of a variable's size, with its gradient, that its update needs at once, as Keras 3.15 runs each rule."""

_LISTED = ("TensorListPushBack", "TensorListSetItem")
"""Ops by which a loop keeps a tensor of each trip."""

Made = tuple[Operation, int]
"""A result of an op, identified by the op that first wrote its memory."""


def _made(tensor: Tensor) -> Made:
    tensor = origin_of(tensor)
    return tensor.op, tensor.value_index


@dataclass
class _Executed:
    """One op of the whole step's graph, with all ops that a loop or a call runs inside.

    `rows`: positions of its rows among the ops of the step.
    `kept_byte`: bytes that a loop keeps of its trips for the readers of its lists.
    """

    op: Operation
    pass_name: str
    rows: list[int]
    first: int
    last: int
    kept_byte: int = 0


@dataclass
class _Memory:
    """Results of a graph: their bytes, their memory, and the last op that reads them."""

    place: Place
    read_by: dict[Made, int] = field(default_factory=dict)
    home: dict[Made, Made] = field(default_factory=dict)

    def byte(self, op: Operation, at: int) -> int:
        """Return the bytes of a result; 0 if it holds no numbers or its size depends on the device."""
        tensor = op.outputs[at]
        array = None if is_scratch(tensor) else as_array(tensor, self.place)
        return 0 if array is None else array.byte

    def over(self, op: Operation, at: int, number: int) -> Made | None:
        """Return the input that a pointwise op may overwrite with its result."""
        if RULES.get(op.type) is not calls.pointwise:
            return None
        for tensor in op.inputs:
            made = _made(tensor)
            same = tensor.dtype == op.outputs[at].dtype and self.byte(*made) == self.byte(op, at)
            if same and made in self.home and self.read_by[self.home[made]] == number:
                return self.home[made]
        return None


def _byte_of_a_trip(ran: Ran) -> int:
    """Return the bytes that a loop keeps of each trip in a list; 0 for values equal in all trips."""
    tensor, place = origin_of(ran.op.inputs[-1]), ran.place
    array = as_array(tensor, place)
    at = place.arguments.get(tensor.op.name)
    is_same = at is not None and origin_of(place.graph.outputs[at]).op.name == tensor.op.name
    is_weight = tensor.op.type == "ReadVariableOp"
    return 0 if array is None or is_same or is_weight else array.byte


def _executed(placed: Sequence[Placed], rows_of: Mapping[Any, int]) -> Iterator[_Executed]:
    """Group the ops inside each loop or call, and number the rows in the order in which they run."""
    folded = constants([one.ran for one in placed])
    seen: set[tuple[int, str]] = set()
    number = 0
    for op, group in groupby(placed, key=lambda one: (one.ran.op, *one.ran.place.callers)[-1]):
        inside = list(group)
        if op in folded or (op.type not in CONTROL and rule_of(op) is None):
            continue
        found, kept = list[int](), dict[Made, int]()
        for one in inside:
            rows = one.rows
            if one.owner is not None and (id(one.owner), one.pass_name) not in seen:
                seen.add((id(one.owner), one.pass_name))
                row = one.owner.row if one.pass_name == FORWARD else one.owner.backward
                rows = [] if row is None else split_gradients(row)
            found += [rows_of[id(row) if id(row) in rows_of else row.key] for row in rows]
            if one.ran.op.type in _LISTED:
                kept[_made(one.ran.op.inputs[-1])] = _byte_of_a_trip(one.ran) * one.ran.times
        first, number = number + 1, number + max(len(found), 1)
        yield _Executed(op, inside[0].pass_name, found, first, number, sum(kept.values()))


def _assign_memory(executed: Sequence[_Executed], memory: _Memory, results: Container[Made]) -> None:
    """Follow the graph in running order; record the memory of each result and the op that reads it last."""
    last: dict[Made, int] = {}
    for one in executed:
        for tensor in one.op.inputs:
            last[_made(tensor)] = one.last
    for one in executed:
        for at in range(len(one.op.outputs)):
            made = one.op, at
            end = executed[-1].last if made in results else last.get(made, one.last)
            memory.home[made] = made if made in results else memory.over(one.op, at, one.last) or made
            memory.read_by[memory.home[made]] = end


def _pieces(one: _Executed, memory: _Memory, copies: Mapping[Made, int]) -> Iterator[Piece]:
    """Yield bytes, last id and role (if a gradient) of each piece of memory that an executed op makes."""
    lists = [at for at, tensor in enumerate(one.op.outputs) if tensor.dtype.name == "variant"]
    yield one.kept_byte, max((memory.read_by[memory.home[one.op, at]] for at in lists), default=one.last), ""
    for at in range(len(one.op.outputs)):
        made, byte = (one.op, at), memory.byte(one.op, at)
        if made not in copies:
            yield (byte if memory.home[made] == made else 0), memory.read_by[memory.home[made]], ""
            continue
        yield byte, one.last if copies[made] else memory.read_by[made], "gradient"
        yield (copies[made] - 1) * byte, one.last, "temporary"


def _initial_memory(model: Any, graph: Graph, rule: str, updated: Sequence[Any]) -> Iterator[TracedOp]:
    """Yield the memory that exists before the step: weights, other variables, optimizer state, and data."""
    trained, owned = {id(variable) for variable in updated}, set[int]()
    for layer, path in placed_layers(model):
        for role, variables in (
            ("parameter", layer._trainable_variables),
            ("buffer", layer._non_trainable_variables),
        ):
            for one in variables:
                byte = int(prod(one.shape) * item_byte(dtype_name(one.dtype)))
                owned.add(id(one.value))
                yield order_line(0, role, byte, module=path)
                if rule and id(one) in trained and STATE_TENSORS[rule]:
                    yield order_line(0, "state", STATE_TENSORS[rule] * byte, module=path)
    # An update by its ops names no rule: its state is what the graph uses besides the layers' variables.
    for variable in [] if rule else graph.variables:
        if id(variable) not in owned and variable.shape.rank:
            byte = int(prod(variable.shape) * item_byte(dtype_name(variable.dtype)))
            yield order_line(0, "state", byte)
    for tensor in graph.inputs:
        if tensor.dtype.name != "resource" and (array := as_array(tensor, Place(graph))) is not None:
            yield order_line(0, "input", array.byte)


def order_of_graph(
    placed: Sequence[Placed], graph: Graph, ops: Sequence[TracedOp], model: Any, gradients: Sequence[Any],
    rule: str, updated: Sequence[Any],
) -> list[TracedOp]:  # fmt: skip
    """Return the lines of the order of a step; none if a shape, and so the memory, depends on data.

    `ops`: of the step, those of an update by rule last; `gradients`, `updated`: arguments of the optimizer, the
    gradients and their variables; `rule`: of the optimizer; "" if its ops are in the graph, or if there is none.
    """
    # The halves of a recurrent row are made anew; other ops may be equal by chance at one of the sizes.
    rows_of: dict[Any, int] = {op.key: at for at, op in reversed(list(enumerate(ops)))}
    rows_of |= {id(op): at for at, op in enumerate(ops)}
    memory = _Memory(Place(graph))
    groups = [product_group(one.ran.op) for one in placed if one.ran.op.type in PRODUCTS]
    copies = {}
    for made in map(_made, tensors_of(gradients)):
        # A weight that its layer's input gradient still reads is not updated in place.
        shared = groups.count(product_group(made[0])) > 1
        copies[made] = max(COPIES[rule], 1 + shared) if rule else 0
    try:
        executed = list(_executed(placed, rows_of))
        _assign_memory(executed, memory, {*map(_made, graph.outputs), *copies})
        lines = list(_initial_memory(model, graph, rule, updated))
        first_after = next((one.first for one in executed if one.pass_name == BACKWARD), 1)
        for one in executed:
            pieces = _pieces(one, memory, copies)
            lines += lines_of_op(one.first, one.rows, pieces, first_after - 1, one.pass_name)
    except ShapeUnknown:
        return []
    updates = [at for at, op in enumerate(ops) if rule and op.pass_name == UPDATE]
    number = executed[-1].last if executed else 0
    return lines + [order_line(number + 1 + place, "", 0, row) for place, row in enumerate(updates)]

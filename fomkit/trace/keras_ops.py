"""From the ops that a graph runs to traced ops: their passes, their layers, and the rows they are parts of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from fomkit.trace.calls import BACKWARD, FORWARD, INPUT_GRADIENT, UPDATE, WEIGHT_GRADIENT, Call, TracedOp
from fomkit.trace.keras_calls import ShapeUnknown, describe_call
from fomkit.trace.keras_gradients import forward_type, product_group, weight_products
from fomkit.trace.keras_graph import LOOPS, Graph, Operation, Ran, constants
from fomkit.trace.keras_layer_log import GraphLayers
from fomkit.trace.keras_lines import GraphLines
from fomkit.trace.keras_rows import settle_input_gradient
from fomkit.trace.keras_scopes import BACKWARD_SCOPE, RowOwner, Scope, Scopes
from fomkit.trace.rnn_passes import split_gradients
from fomkit.trace.tf_table import PRODUCTS, RULES

_TRANSPOSED = "BackpropInput"
_CONTROL = {
    **dict.fromkeys(LOOPS, "a loop whose trips depend on data"),
    **dict.fromkeys(("If", "StatelessIf", "Case"), "a branch that depends on data"),
}
"""What stands in the list of unsupported ops for control flow, with all that it runs."""


class Placed(NamedTuple):
    """One op of the graph, its pass, the rows that it is, and else the row found at the call that it lies in."""

    ran: Ran
    pass_name: str
    rows: list[TracedOp]
    owner: RowOwner | None


@dataclass
class Walked:
    """What the ops of a graph came to; see `fomkit.trace.step.Step`."""

    ops: list[TracedOp] = field(default_factory=list)
    states: Counter[str] = field(default_factory=Counter)
    unsupported: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    placed: list[Placed] = field(default_factory=list)


def _names(ran: Ran) -> list[str]:
    """Give the names that place an op: its own, then those of the loops and calls around it."""
    return [ran.op.name, *(caller.name for caller in ran.place.callers)]


def _scope(ran: Ran, scopes: Scopes) -> Scope:
    found = (scopes.find(name) for name in _names(ran))
    return next((scope for scope in found if scope is not None), scopes.running[0])


def _passes(ran: Sequence[Ran], scopes: Scopes) -> list[str]:
    """Give the pass of each op: by its name, else backward once a gradient goes into it."""
    backward: set[Operation] = set()
    found = []
    for one in ran:
        names = _names(one)
        if any((scope := scopes.find(name)) is not None and scope.is_update for name in names):
            found.append(UPDATE)
            continue
        after = any(name.startswith(BACKWARD_SCOPE) for name in names)
        if after or any(one.place.source(tensor)[0].op in backward for tensor in one.op.inputs):
            backward.add(one.op)
            backward.update(one.place.callers)
            found.append(BACKWARD)
        else:
            found.append(FORWARD)
    return found


def _of(work_pass: str, pass_name: str) -> str:
    return work_pass if work_pass and pass_name != UPDATE else pass_name


def _row(owner: RowOwner, pass_name: str, ops: list[TracedOp]) -> TracedOp:
    """Give the row that an op inside ``owner`` belongs to; it joins the list with its first op."""
    if pass_name == FORWARD:
        row = owner.row
    else:
        owner.backward = owner.backward or replace(owner.row, pass_name=BACKWARD, parts=[], lines={})
        row = owner.backward
    if not row.parts:
        ops.append(row)
    return row


def trace_ops(
    ran: Sequence[Ran], graph: Graph, scopes: Scopes, gradients: Sequence[Any], layers: GraphLayers
) -> Walked:
    """Describe the ops of a step.

    Parameters
    ----------
    ran : sequence of Ran
    graph : FuncGraph
        Of the whole step.
    scopes : Scopes
    gradients : sequence of Tensor or IndexedSlices
        What the optimizer was handed.
    layers : GraphLayers
        Told each op of the forward pass.
    """
    found, folded = Walked(), constants(ran)
    weights = weight_products(gradients, graph)
    groups = {product_group(op) for op in weights}
    owners, lines = list[RowOwner](), GraphLines(scopes.paths)
    for one, pass_name in zip(ran, _passes(ran, scopes), strict=True):
        call = _counted(one, pass_name, folded, graph, found)
        scope = _scope(one, scopes)
        placed = Placed(one, pass_name, [], None if pass_name == UPDATE else scope.owner)
        found.placed.append(placed)
        if call is None:
            continue
        if pass_name == FORWARD:
            layers.note(one, call, scope)
        for work in RULES[one.op.type](call):  # type: ignore[misc]
            name = _of(work.pass_name, pass_name)
            if name == BACKWARD and one.op.type in PRODUCTS:
                name = WEIGHT_GRADIENT if one.op in weights else (
                    INPUT_GRADIENT if product_group(one.op) in groups else BACKWARD)  # fmt: skip
            op = TracedOp(one.op.type, work.kind, work.dimensions, work.dtype, name, scope.path, count=one.count)
            op.lines = lines.find(one, scope, pass_name) if pass_name != UPDATE else {}
            if placed.owner is None:
                placed.rows.append(op)
                found.ops.append(op)
            else:
                row = _row(placed.owner, pass_name, found.ops)
                row.lines = row.lines or dict.fromkeys(op.lines, 1)
                row.parts.append(op)
                if placed.owner not in owners:
                    owners.append(placed.owner)
    for owner in owners:
        if owner.backward is not None:
            settle_input_gradient(owner.row, owner.backward)
    found.ops = [row for op in found.ops for row in split_gradients(op)]
    return found


def _counted(one: Ran, pass_name: str, folded: set[Operation], graph: Graph, found: Walked) -> Call | None:
    """Give the call of an op with work, and count all others by their state."""
    kind, state, call = one.op.type, "priced", None
    if one.op in folded or (kind in RULES and RULES[kind] is None):
        state = "zero_work"
    elif kind not in RULES:
        state = "unsupported"
        found.unsupported[_CONTROL.get(kind, kind)] += one.count
    else:
        transposed = _TRANSPOSED in forward_type(one.op, graph)
        try:
            call = describe_call(one, folded, in_backward=pass_name == BACKWARD, of_transposed=transposed)
        except ShapeUnknown:
            state = "unsupported"
            found.unsupported[f"{kind} of a shape that depends on data"] += one.count
        else:
            if not any(array.numel for array in (*call.read, *call.written)):
                state, call = "zero_work", None
    found.states[state] += 1
    return call

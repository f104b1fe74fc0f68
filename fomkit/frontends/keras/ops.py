"""Turn the ops that a graph runs into traced ops: their passes, their layers, and the rows they are parts of.

`trace_ops` describes a whole step; `row_of_layer` and `attention_row` describe calls that are one row each.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain
from math import prod
from typing import Any, NamedTuple

import keras
from keras.src.backend import nn as functions
from keras.src.layers.attention.grouped_query_attention import GroupedQueryAttention

from fomkit.frontends.drafting import watched
from fomkit.frontends.keras import calls as graphs
from fomkit.frontends.keras.calls import BRANCHES, CALLS, LOOPS, Graph, Operation, Place, Ran, Tensor, dtype_name
from fomkit.frontends.keras.layers import BACKWARD_SCOPE, GraphLayers, GraphLines, OpWatch, Scopes, scopes_around
from fomkit.frontends.layers import RowOwner
from fomkit.frontends.lowering import calls
from fomkit.frontends.lowering.calls import BACKWARD, FORWARD, UPDATE, WEIGHT_GRADIENT, Call, Rule, TracedOp
from fomkit.frontends.lowering.products import is_sequential
from fomkit.frontends.lowering.tf import PRODUCTS, RULES

_SAME_VALUES = (
    "Identity", "Reshape", "Transpose", "Cast", "Squeeze", "ExpandDims", "AddN", "AddV2", "Add", "ConcatV2",
    "Pack", "Pad", "Slice", "Split", "SplitV", "StridedSlice", "StridedSliceGrad",
)  # fmt: skip
"""Ops that pass a gradient on unchanged, in part, joined with others, or added to them."""


def forward_type(op: Operation, graph: Graph) -> str:
    """Return the type of the op that a gradient belongs to, by its name; "" if the name does not show it."""
    if not op.name.startswith(BACKWARD_SCOPE):
        return ""
    for name in scopes_around(op.name.removeprefix(BACKWARD_SCOPE).rpartition("/")[0]):
        with suppress(KeyError, ValueError):
            return str(graph.get_operation_by_name(name).type)
    return ""


def product_group(op: Operation) -> str:
    """Return the common name of the gradients of one product: all before the last part of their names."""
    return str(op.name).rpartition("/")[0]


def tensors_of(gradients: Iterable[Any]) -> list[Tensor]:
    """Return the tensors of gradients; for a sparse gradient its values and the indices of their rows."""
    import tensorflow as tf

    parts = ([one.values, one.indices] if isinstance(one, tf.IndexedSlices) else [one] for one in gradients)
    return list(chain.from_iterable(parts))


def _dense_parts(gradient: Any) -> list[Tensor]:
    """Return a gradient; of a sparse one those of the whole table, which TensorFlow joins to those of rows."""
    if not hasattr(gradient, "indices"):
        return [gradient]
    values, rows = gradient.values.op, gradient.indices.op
    pairs = zip(values.inputs, rows.inputs, strict=False) if values.type == rows.type == "ConcatV2" else ()
    return [part for part, places in pairs if places.op.type == "Range"]


def weight_products(gradients: Iterable[Any], graph: Graph) -> set[Operation]:
    """Return the matrix products that make gradients of variables, through sums of them, loops and calls."""
    waiting: list[tuple[Tensor, Place]] = [(part, Place(graph)) for one in gradients for part in _dense_parts(one)]
    found: set[Operation] = set()
    seen: set[tuple[int, int]] = set()
    while waiting:
        tensor, place = waiting.pop()
        op, at = tensor.op, tensor.value_index
        if (id(op), at) in seen:
            continue
        seen.add((id(op), at))
        if op.type in PRODUCTS:
            found.add(op)
        elif op.type in _SAME_VALUES:
            waiting += [(one, place) for one in op.inputs]
        elif op.type == "IdentityN":
            waiting.append((op.inputs[at], place))
        elif op.type in LOOPS or op.type in CALLS:
            inner = place.enter(op, "body" if op.type in LOOPS else "f")
            waiting.append((inner.graph.outputs[at], inner))
        elif op.type in BRANCHES:
            inner = graphs.longest_side(op, [at], place)
            waiting.append((inner.graph.outputs[at], inner))
        elif op.type == "Sum" and op.inputs[0].op.type in PRODUCTS:
            # A sum over the batch, which a weight does not have; the sum of another product is the gradient of a
            # bias.
            found |= {op.inputs[0].op} if product_group(op) == product_group(op.inputs[0].op) else set()
    return found


MakeRow = Callable[[str], TracedOp]
"""Makes the row of a call, for the path of its layer."""

_CELLS: Mapping[type, str] = {
    keras.layers.LSTM: "lstm", keras.layers.GRU: "gru", keras.layers.SimpleRNN: "vanilla",
}  # fmt: skip


def row_of_layer(layer: Any, args: Any, kwargs: Any, path: str) -> TracedOp | None:
    """Describe the forward call of a layer that is a row of its own; None for any other."""
    cell = _CELLS.get(type(layer))
    values = args[0] if args else kwargs.get("sequences", kwargs.get("inputs"))
    if cell is not None and hasattr(values, "shape"):
        batch, steps, features = values.shape
        sizes = calls.rnn_sizes(cell, batch, steps, (features, layer.units))
        return TracedOp(type(layer).__name__, "rnn", sizes, dtype_name(layer.compute_dtype), FORWARD, path)
    if type(layer) is keras.layers.Attention and layer.score_mode == "dot" and isinstance(values, list | tuple):
        query, value, *key = [value[:, :, None, :] for value in values]
        causal = bool(kwargs.get("use_causal_mask", False))
        return attention_row(path, query, key[0] if key else value, value, causal)
    return None


def attention_row(path: str, query: Any, key: Any, value: Any, causal: bool) -> TracedOp:
    """Describe one scaled-dot-product attention of tensors (batch, length, heads, width)."""
    heads, lengths = ((query.shape[axis], key.shape[axis]) for axis in (2, 1))
    widths = query.shape[3], value.shape[3]
    sizes = calls.attention_sizes(query.shape[0], heads, lengths, widths, causal=causal)
    dtype = dtype_name(keras.backend.standardize_dtype(query.dtype))
    return TracedOp("dot_product_attention", "attention", sizes, dtype, FORWARD, path)


@contextmanager
def watch_attention(around: Callable[[MakeRow, Any], OpWatch]) -> Iterator[None]:
    """Run attention in the contexts that ``around`` makes: in Keras's layers and as a function of the model."""

    def attend(given: Any, *args: Any, **kwargs: Any) -> Any:
        factors = args[1:] if args and isinstance(args[0], keras.Layer) else args
        named = dict(zip(("query", "key", "value"), factors, strict=False)) | kwargs
        query, key, value = (named[name] for name in ("query", "key", "value"))
        if len(query.shape) != 4:
            return given(*args, **kwargs)
        causal = bool(kwargs.get("is_causal") or kwargs.get("use_causal_mask"))
        with around(lambda path: attention_row(path, query, key, value, causal), (query, key, value)) as report:
            output = given(*args, **kwargs)
            report(output)
            return output

    with (
        watched(functions, dot_product_attention=attend),
        watched(keras.layers.MultiHeadAttention, _compute_attention=attend),
        watched(GroupedQueryAttention, _compute_attention=attend),
    ):
        yield


def products_flop(parts: list[TracedOp]) -> float:
    """Sum the flop of the matrix products of a forward pass, or of its input gradient."""
    products = (part for part in parts if part.kind == "gemm" and part.pass_name != WEIGHT_GRADIENT)
    return sum(2.0 * prod(float(one.dimensions[name]) for name in "mnk") * int(one.count) for one in products)


_TRANSPOSED = "BackpropInput"
_UNCOUNTED = dict.fromkeys(LOOPS, "a loop whose number of iterations depends on data")
"""Names in the list of unsupported ops for loops, with all ops inside."""

_MAY_BE_HEAVY = re.compile(
    r"matmul|xla|dilation|dot|conv|attention|linalg|rnn|lstm|gru|einsum|cholesky|svd|solve|\bqr\b|eig(?!h)|\blu\b|"
    r"tridiagonal|matrix|ctc|sparse|quantized|nonmax|proposals|mfcc|editdistance|isotonic|kmeans|kmc2|sdca|"
    r"boostedtrees|pyfunc|collective|nccl|crossreplica|alltoall|recv|dequeue|infeed|outfeed",
    re.IGNORECASE,
)
"""Words in TensorFlow's names of ops that may do more arithmetic than their bytes suggest, or wait."""


def has_bound(name: str) -> bool:
    """Return whether an op of TensorFlow without a rule takes little more than its traffic.

    >>> has_bound("Polygamma"), has_bound("HSVToRGB"), has_bound("CudnnRNNV3"), has_bound("XlaDotV2")
    (True, True, False, False)
    """
    return not _MAY_BE_HEAVY.search(name)


def rule_of(op: Operation) -> Rule | None:
    """Return the rule of an op; TensorFlow's own without one are priced by its traffic if that bounds it."""
    import tensorflow as tf

    if op.type in RULES:
        return RULES[op.type]
    runs_functions = any("func" in attribute.type for attribute in op.op_def.attr)
    is_own = hasattr(tf.raw_ops, op.type) and not runs_functions
    return calls.other if is_own and has_bound(op.type) else None


class Placed(NamedTuple):
    """One op of the graph, its pass, its rows, and, if it is inside a row found at the call, that row."""

    ran: Ran
    pass_name: str
    rows: list[TracedOp]
    owner: RowOwner | None


@dataclass
class Walked:
    """Result of a walk over the ops of a graph; see `fomkit.frontends.step.Step`."""

    ops: list[TracedOp] = field(default_factory=list)
    states: Counter[str] = field(default_factory=Counter)
    unsupported: Counter[str] = field(default_factory=Counter)
    bounded: Counter[str] = field(default_factory=Counter)
    placed: list[Placed] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def _names_around(ran: Ran) -> list[str]:
    """Return the names that locate an op: its own, then those of the loops and calls around it."""
    return [ran.op.name, *(caller.name for caller in ran.place.callers)]


def _passes(ran: Sequence[Ran], scopes: Scopes) -> list[str]:
    """Return the pass of each op: by its name, or backward if it reads a backward result."""
    backward: set[Operation] = set()
    found = []
    for one in ran:
        names = _names_around(one)
        if any((scope := scopes.find(name)) is not None and scope.is_update for name in names):
            found.append(UPDATE)
            continue
        after = any(name.startswith(BACKWARD_SCOPE) for name in names)
        # A variable that was assigned a backward result, such as a momentum, is read after that.
        after |= one.op.type == "ReadVariableOp" and any(op in backward for op in one.op.control_inputs)
        if after or any(one.place.source(tensor)[0].op in backward for tensor in one.op.inputs):
            backward.add(one.op)
            backward.update(one.place.callers)
            found.append(BACKWARD)
        else:
            found.append(FORWARD)
    return _with_own_updates(ran, found)


def _with_own_updates(ran: Sequence[Ran], passes: list[str]) -> list[str]:
    """Return the passes with the update that a step writes itself: assignments and what only they read."""
    updates: set[Operation] = set()
    for place, one in reversed(list(enumerate(ran))):
        op, writes = one.op, one.op.type.startswith("Assign") and one.op.type.endswith("VariableOp")
        readers = [reader for tensor in op.outputs for reader in tensor.consumers()]
        leads = not op.name.startswith(BACKWARD_SCOPE) and readers and all(reader in updates for reader in readers)
        if leads or (passes[place] == BACKWARD and writes):
            updates.add(op)
            passes[place] = UPDATE
    return passes


def trace_ops(
    ran: Sequence[Ran], graph: Graph, scopes: Scopes, gradients: Sequence[Any], layers: GraphLayers
) -> Walked:
    """Describe the ops of a whole step; add each op of the forward pass to ``layers``."""
    found, folded = Walked(), graphs.constants(ran)
    weights = weight_products(gradients, graph)
    groups = {product_group(op) for op in weights}
    owners, lines, hosts = list[RowOwner](), GraphLines(scopes.paths), dict[str, None]()
    for one, pass_name in zip(ran, _passes(ran, scopes), strict=True):
        around = filter(None, map(scopes.find, _names_around(one)))
        scope = next(around, scopes.running[0])
        call = None if scope.on_host else _call_with_work(one, pass_name, folded, graph, found)
        placed = Placed(one, pass_name, [], None if pass_name == UPDATE else scope.owner)
        found.placed.append(placed)
        if scope.on_host:
            found.states["zero_work"] += 1
            hosts[scope.path] = None
        if call is None:
            continue
        if pass_name == FORWARD:
            layers.note(one, call, scope)
        for work in rule_of(one.op)(call):  # type: ignore[misc]
            name = pass_name if pass_name == UPDATE else work.pass_name or pass_name
            if name == BACKWARD and one.op.type in PRODUCTS:
                name = WEIGHT_GRADIENT if one.op in weights else (
                    calls.INPUT_GRADIENT if product_group(one.op) in groups else BACKWARD)  # fmt: skip
            op = TracedOp(one.op.type, work.kind, work.dimensions, work.dtype, name, scope.path, count=one.count)
            op.lines = lines.find(one, scope, pass_name) if pass_name != UPDATE else {}
            if placed.owner is None:
                placed.rows.append(op)
                found.ops.append(op)
            else:
                row = placed.owner.in_pass(pass_name)
                found.ops += [] if row.parts else [row]
                row.lines = row.lines or dict.fromkeys(op.lines, 1)
                row.parts.append(op)
                if placed.owner not in owners:
                    owners.append(placed.owner)
    for owner in owners:
        if owner.backward is not None and owner.row.kind == "rnn":
            # If the recurrent layer makes no gradient of its input, the product for it is missing.
            whole = products_flop(owner.row.parts)
            owner.backward.input_gradient = products_flop(owner.backward.parts) >= whole
    found.ops = [row for op in found.ops for row in calls.split_gradients(op)]
    callers = {caller: place for one in ran for caller, place in one.place.calls}
    branches = [op for op, place in callers.items() if op.type in BRANCHES and not graphs.steps_between(op, place)]
    found.notes += [f"left out, since text is read on the host: {', '.join(hosts)}"] * bool(hosts)
    if branches:
        found.notes.append(calls.branch_note(len(branches)))
    return found


def _call_with_work(ran: Ran, pass_name: str, folded: set[Operation], graph: Graph, found: Walked) -> Call | None:
    """Return the call of an op if it has work, and count the op by its state."""
    kind, state, call = ran.op.type, "priced", None
    if ran.op in folded or (kind in RULES and RULES[kind] is None):
        state = "zero_work"
    elif rule_of(ran.op) is None:
        state = "unsupported"
        found.unsupported[_UNCOUNTED.get(kind, kind)] += ran.times
    else:
        transposed = _TRANSPOSED in forward_type(ran.op, graph)
        try:
            call = graphs.describe_call(ran, folded, in_backward=pass_name == BACKWARD, of_transposed=transposed)
        except graphs.ShapeUnknown:
            state = "unsupported"
            found.unsupported[f"{kind} of a shape that depends on data"] += ran.times
        else:
            if not any(array.numel for array in (*call.read, *call.written)):
                state, call = "zero_work", None
    found.states[state] += 1
    if call is not None and (kind not in RULES or is_sequential(kind)):
        found.bounded[kind] += ran.times
    return call

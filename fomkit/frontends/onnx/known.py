"""Work out what is known of a graph before it runs: attributes, small values, the ops of loops and branches.

`work_out` computes an op's result, `ops_inside` names the ops of a body for one trip, `lift_stored` gives the
graph the tensors that a body stores, `standard_nodes` the ops that one of onnxruntime stands for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from math import prod
from typing import Any

import numpy as np
import onnx
import onnx.defs

from fomkit.core.errors import printable
from fomkit.frontends.lowering.calls import Array
from fomkit.frontends.lowering.onnx import names, standard_ops
from fomkit.frontends.lowering.onnx_calls import dtype_of, new_array

Value = np.ndarray[Any, Any]


class NotAtTheseSizes(ValueError):  # noqa: N818 - a verdict, not a fault
    """An op of the graph cannot run at the given sizes."""


MAX_ELEMENTS = 4096
"""Larger values are not computed; their shapes are still known."""

Attributes = Mapping[str, Any]
NumpyRule = Callable[[Sequence[Any], Attributes], Any]


def _axes(values: Sequence[Any], attributes: Attributes) -> tuple[int, ...] | None:
    """Return the axes, an attribute in older ops and an input in newer ones."""
    if len(values) > 1 and values[1] is not None:
        return tuple(int(one) for one in values[1].ravel())
    stated = attributes.get("axes")
    return None if stated is None else tuple(stated)


def _reduced(name: str) -> NumpyRule:
    def rule(values: Sequence[Any], attributes: Attributes) -> Any:
        keep = bool(attributes.get("keepdims", 1))
        return getattr(np, name)(values[0], axis=_axes(values, attributes), keepdims=keep)

    return rule


def _numpy(name: str, count: int) -> NumpyRule:
    """Make the rule that applies a numpy function to the first values."""
    return lambda values, _: getattr(np, name)(*values[:count])


def _divide(values: Sequence[Any], _attributes: Attributes) -> Any:
    if values[0].dtype.kind in "iu":
        return np.trunc(values[0] / values[1]).astype(values[0].dtype)
    return values[0] / values[1]


def _slice(values: Sequence[Any], attributes: Attributes) -> Any:
    data = values[0]
    stated = [attributes.get("starts"), attributes.get("ends"), attributes.get("axes"), None]
    for at, value in enumerate(values[1:]):
        stated[at] = stated[at] if value is None else value.tolist()
    starts, ends = stated[0] or [], stated[1] or []
    axes = list(range(len(starts))) if stated[2] is None else stated[2]
    steps = [1] * len(starts) if stated[3] is None else stated[3]
    where = [slice(None)] * data.ndim
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        first, last = int(start), int(end)
        # Going backwards, an end far below zero means the beginning, which Python writes as None.
        where[int(axis)] = slice(first, None if step < 0 and last < -data.shape[int(axis)] else last, int(step))
    return data[tuple(where)]


def _reshape(values: Sequence[Any], _attributes: Attributes) -> Any:
    shape = [int(one) for one in values[1]]
    shape = [values[0].shape[at] if one == 0 else one for at, one in enumerate(shape)]
    return values[0].reshape(shape)


def _filled(values: Sequence[Any], attributes: Attributes) -> Any:
    shape = tuple(int(one) for one in values[0])
    fill = attributes.get("value")
    if prod(shape) > MAX_ELEMENTS:
        return None
    return np.zeros(shape, np.float32) if fill is None else np.full(shape, fill.ravel()[0], fill.dtype)


def _counted_values(values: Sequence[Any], _attributes: Attributes) -> Any:
    start, end, step = (value.item() for value in values)
    if not step or abs((end - start) / step) > MAX_ELEMENTS:
        return None
    return np.arange(start, end, step, dtype=values[0].dtype)


def _expanded(values: Sequence[Any], _attributes: Attributes) -> Any:
    shape = np.broadcast_shapes(values[0].shape, tuple(int(one) for one in values[1]))
    return None if prod(shape) > MAX_ELEMENTS else np.broadcast_to(values[0], shape)


NUMPY: Mapping[str, NumpyRule] = {
    "Identity": lambda values, _: values[0],
    "Gather": lambda values, stated: values[0].take(values[1], axis=stated.get("axis", 0)),
    "Concat": lambda values, stated: np.concatenate(values, axis=stated["axis"]),
    "Slice": _slice, "Reshape": _reshape,
    "Cast": lambda values, stated: values[0].astype(onnx.helper.tensor_dtype_to_np_dtype(stated["to"])),
    "Unsqueeze": lambda values, stated: np.expand_dims(values[0], _axes(values, stated) or ()),
    "Squeeze": lambda values, stated: values[0].squeeze(_axes(values, stated)),
    "Transpose": lambda values, stated: values[0].transpose(stated.get("perm")),
    "ConstantOfShape": _filled, "Range": _counted_values, "Expand": _expanded, "Where": _numpy("where", 3),
    "Div": _divide,
    **{name: _numpy(theirs, 2) for name, theirs in (
        ("Add", "add"), ("Sub", "subtract"), ("Mul", "multiply"), ("Mod", "mod"), ("Pow", "power"),
        ("Min", "minimum"), ("Max", "maximum"), ("Equal", "equal"), ("Less", "less"), ("Greater", "greater"),
        ("LessOrEqual", "less_equal"), ("GreaterOrEqual", "greater_equal"), ("And", "logical_and"),
        ("Or", "logical_or"),
    )},
    **{name: _numpy(theirs, 1) for name, theirs in (
        ("Neg", "negative"), ("Not", "logical_not"), ("Floor", "floor"), ("Ceil", "ceil"), ("Abs", "abs"),
        ("Sqrt", "sqrt"),
    )},
    **{name: _reduced(theirs) for name, theirs in (
        ("ReduceProd", "prod"), ("ReduceSum", "sum"), ("ReduceMax", "max"), ("ReduceMin", "min"),
    )},
}  # fmt: skip
"""Ops whose results are computed if all their inputs are known and small."""


def work_out(op: str, values: Sequence[Value | None], attributes: Attributes) -> Value | None:
    """Return an op's result on known values; ``None`` if it is not in `NUMPY`, too large, or cannot be computed.

    >>> import numpy as np
    >>> work_out("Concat", [np.array([2]), np.array([3, 4])], {"axis": 0}).tolist()
    [2, 3, 4]
    """
    rule = NUMPY.get(op)
    if rule is None or not values or values[0] is None:
        return None
    try:
        with np.errstate(all="ignore"):
            found = rule(values, attributes)
    except (ValueError, TypeError, IndexError, KeyError, OverflowError, AttributeError, MemoryError):
        return None
    return None if found is None or np.size(found) > MAX_ELEMENTS else np.asarray(found)


def attributes_of(node: Any) -> dict[str, Any]:
    """Return an op's attributes as plain values; a subgraph is left as it is."""
    found = {}
    for one in node.attribute:
        try:
            value = onnx.helper.get_attribute_value(one)
        except ValueError:  # an attribute without a type
            continue
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        elif isinstance(value, onnx.TensorProto):
            value = small_value(value)
        found[one.name] = value
    return found


def small_value(tensor: Any) -> Any:
    """Read a small stored tensor from the file itself; None for others."""
    if tensor.data_location == tensor.EXTERNAL or not 0 <= np.prod(tensor.dims, dtype=float) <= MAX_ELEMENTS:
        return None
    try:
        return onnx.numpy_helper.to_array(tensor)
    except Exception:  # damaged; the library may raise anything
        return None


def array_of(stated: Any) -> Array | None:
    """Return the array of a stated type; None if a length of its shape is open."""
    dtype = dtype_of(stated.elem_type)
    known = stated.HasField("shape") and all(dim.HasField("dim_value") for dim in stated.shape.dim)
    if dtype is None or not known:
        return None
    return new_array(tuple(dim.dim_value for dim in stated.shape.dim), dtype)


def _bodies(node: Any) -> Iterator[Any]:
    return (one.g for one in node.attribute if one.HasField("g"))


def every_op(nodes: Sequence[Any]) -> Iterator[Any]:
    """Yield ops, and those inside their loops and branches."""
    for node in nodes:
        yield node
        for body in _bodies(node):
            yield from every_op(body.node)


def _rename_reads(nodes: Sequence[Any], new: Mapping[str, str]) -> None:
    """Rename the tensors that ops read, also those inside their loops and branches."""
    for node in nodes:
        for at, name in enumerate(node.input):
            node.input[at] = new.get(name, name)
        for body in _bodies(node):
            own = {*(one.name for one in body.input), *(name for one in body.node for name in one.output)}
            inside = {name: other for name, other in new.items() if name not in own}
            _rename_reads(body.node, inside)
            for one in body.output:
                one.name = inside.get(one.name, one.name)


def lift_stored(graph: Any) -> None:
    """Move the tensors that loops and branches store into the graph, so that each has one name in all trips."""
    bodies = (body for node in every_op(list(graph.node)) for body in _bodies(node))
    for number, body in enumerate(bodies):
        new = {one.name: f"{one.name}:{number}" for one in body.initializer}
        for one in body.initializer:
            graph.initializer.add().CopyFrom(one)
            graph.initializer[-1].name = new[one.name]
        del body.initializer[:]
        _rename_reads(body.node, new)
        for one in body.output:
            one.name = new.get(one.name, one.name)


def ops_inside(body: Any, prefix: str, given: Mapping[str, str]) -> tuple[list[Any], list[str]]:
    """Return the ops of a body, with names of their own, and the names of its outputs.

    `given`: by name of a body's input the tensor outside.
    """
    new = {**given, **{name: f"{prefix}{name}" for one in body.node for name in one.output if name}}
    found = []
    for one in body.node:
        node = onnx.NodeProto()
        node.CopyFrom(one)
        _rename_reads([node], new)
        node.output[:] = [new.get(name, name) for name in one.output]
        found.append(node)
    return found, [new.get(one.name, one.name) for one in body.output]


@cache
def schema_of(op: str, domain: str, version: int) -> Any:
    """Return the definition of an op in a version of its domain; None if there is none."""
    try:
        return onnx.defs.get_schema(op, version, domain)
    except onnx.defs.SchemaError:
        return None


def standard_nodes(node: Any, attributes: Attributes, arrays: Mapping[str, Array]) -> list[Any]:
    """Return the standard ops that an op of onnxruntime stands for; none for any other op."""
    is_own = node.domain == "com.microsoft" or node.op_type == "SimplifiedLayerNormalization"
    if not is_own or any(name not in arrays for name in node.input if name):
        return []
    shapes = [arrays[name].shape if name else () for name in node.input]
    try:
        found = standard_ops(node.op_type, attributes, node.input, node.output, shapes)
    except (KeyError, IndexError, ValueError, TypeError, ZeroDivisionError) as error:
        raise NotAtTheseSizes(
            f"{node.op_type} that makes {' '.join(node.output)!r:.80} cannot run: {error}"
        ) from error
    newest, nodes = onnx.defs.onnx_opset_version(), []
    for op, given, made, told in found:
        schema = schema_of(op, "", newest)
        known = {name: value for name, value in told.items() if schema is None or name in schema.attributes}
        nodes.append(onnx.helper.make_node(op, given, made, node.name, **known))
    return nodes


_PARAMETERS = names(
    """shape axes starts ends steps pads repeats split sizes scales roi k K ratio training_mode min max axis
    constant_value"""
)
"""Inputs that set up an op and are not computed with."""


def arguments_of(
    node: Any,
    attributes: Attributes,
    schema: Any,
    arrays: Mapping[str, Array],
    values: Mapping[str, Any],
    weights: frozenset[str],
) -> tuple[list[Array | None], dict[str, Any]]:
    """Return an op's inputs, None for one that only sets it up, and its arguments by the names of its definition.

    `values`: of small tensors; `weights`: names of those that count as tensors though their values are known.
    """
    arguments = {**attributes, **({"since_version": schema.since_version} if schema else {})}
    inputs: list[Array | None] = []
    formal = [one.name for one in schema.inputs] if schema is not None else []
    listed: list[Array] = []
    for at, name in enumerate(node.input):
        key = formal[at] if at < len(formal) else ""
        value = values.get(name) if name else None
        counts = value is None or name in weights or (arrays[name].numel > 1 and key not in _PARAMETERS)
        array = arrays[name] if name and counts else None
        inputs.append(array)
        if at >= len(formal) - 1 and formal and len(node.input) > len(formal):
            listed += [array] if array is not None else []
        elif key:
            arguments[key] = array if array is not None else None if value is None else value.tolist()
    if listed:
        arguments[formal[-1]] = tuple(listed)
    return inputs, arguments


def module_of(node: Any) -> str:
    """Return the module of an op from its name, which exporters derive from the path of the module that runs it.

    >>> module_of(onnx.NodeProto(name="/layer1/layer1.0/conv1/Conv"))
    'layer1.0.conv1'
    """
    found: list[str] = []
    for part in filter(None, node.name.split("/")[:-1]):
        if found and part.startswith(found[-1] + "."):
            found.pop()
        found.append(part)
    return printable(".".join(found))[:200]

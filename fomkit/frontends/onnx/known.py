"""Work out what is known of a graph before it runs: attributes, small values, the ops of loops and branches.

`work_out` computes an op's result, `ops_inside` names the ops of a body for one trip, `lift_stored` gives the
graph the tensors that a body stores, `standard_nodes` the ops that one of onnxruntime stands for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import onnx
import onnx.defs
from onnx.reference import ReferenceEvaluator

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
COMPUTED = names(
    """Identity Gather Concat Slice Reshape Cast Unsqueeze Squeeze Transpose ConstantOfShape Range Expand Where Div
    Add Sub Mul Mod Pow Min Max Equal Less Greater LessOrEqual GreaterOrEqual And Or Neg Not Floor Ceil Abs Sqrt
    ReduceProd ReduceSum ReduceMax ReduceMin"""
)
"""Ops whose results are computed if all their inputs are known and small."""


def _stated_elements(op: str, values: Sequence[Value]) -> float:
    """Return how many elements an op makes whose result may be larger than all its inputs; 0 for any other op."""
    if op == "ConstantOfShape":
        return float(np.prod(values[0], dtype=float))
    if op == "Expand":
        return float(np.prod(np.broadcast_shapes(values[0].shape, tuple(map(int, values[1]))), dtype=float))
    if op == "Range":
        start, end, step = (value.item() for value in values)
        return abs(float((end - start) / step))
    return 0.0


def work_out(node: Any, values: Mapping[str, Value], opsets: Mapping[str, int]) -> Value | None:
    """Return an op's result on known values, by onnx's own rules; None if `COMPUTED` lacks it, or it cannot run.

    >>> import numpy as np
    >>> node = onnx.helper.make_node("Concat", ["a", "b"], ["both"], axis=0)
    >>> work_out(node, {"a": np.array([2]), "b": np.array([3, 4])}, {"": 13}).tolist()
    [2, 3, 4]
    """
    if node.op_type not in COMPUTED or not node.input:
        return None
    versions = [onnx.helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    try:
        if _stated_elements(node.op_type, [values[name] for name in node.input if name]) > MAX_ELEMENTS:
            return None
        alone = onnx.helper.make_function("alone", node.op_type, list(values), node.output[:1], [node], versions)
        with np.errstate(all="ignore"):
            (found,) = ReferenceEvaluator(alone).run(None, dict(values), attributes={})
    except Exception:  # the library may raise anything
        return None
    return None if np.size(found) > MAX_ELEMENTS else np.asarray(found)


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

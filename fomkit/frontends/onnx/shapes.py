"""Walk a graph at given sizes: find the shape of every tensor, op by op, and the ops that have work.

The library's shape inference of a whole graph trusts the shapes stored in the file, which may be those of another
batch. Inference op by op, with the small values that Reshape, Slice and Expand read, needs no stored shape.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from math import prod
from typing import Any

import numpy as np
import onnx
import onnx.defs
import onnx.shape_inference

from fomkit.core.errors import printable
from fomkit.frontends.lowering import onnx_calls
from fomkit.frontends.lowering.calls import Array, Call
from fomkit.frontends.lowering.onnx import RULES, SAME_SHAPE, names
from fomkit.frontends.lowering.onnx_calls import Executed, Walked, dtype_of, is_float, new_array, reshaped
from fomkit.frontends.onnx.file import Inputs
from fomkit.frontends.sizes import Sizes

Value = np.ndarray[Any, Any]

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


CONTROL: Mapping[str, str] = {
    "If": "a branch that depends on data", "Loop": "a loop whose iterations are unknown",
    "Scan": "a loop whose iterations are unknown", "SequenceMap": "a loop whose iterations are unknown",
}  # fmt: skip
"""Entries of the list of unsupported ops for control flow, with all ops inside; it may read any tensor."""
VIEWS = frozenset(["Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten"])
_LAYOUTS = VIEWS | {"Concat", "Slice", "Split", "Transpose"}
"""Ops by which exporters bring weights into ONNX's order; a library stores weights in the order it needs."""
_RANDOM = ("RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli", "Multinomial")
_MOST_BYTE = 1e15


class NotAtTheseSizes(ValueError):  # noqa: N818 - a verdict, not a fault
    """An op of the graph cannot run at the given sizes."""


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
            value = _small_value(value)
        found[one.name] = value
    return found


def _small_value(tensor: Any) -> Any:
    """Read a small stored tensor from the file itself; None for others."""
    if tensor.data_location == tensor.EXTERNAL or not 0 <= np.prod(tensor.dims, dtype=float) <= MAX_ELEMENTS:
        return None
    try:
        return onnx.numpy_helper.to_array(tensor)
    except Exception:  # damaged; the library may raise anything
        return None


@cache
def _schema(op: str, domain: str, version: int) -> Any:
    try:
        return onnx.defs.get_schema(op, version, domain)
    except onnx.defs.SchemaError:
        return None


class Walker:
    """Walks one graph at any sizes.

    `model`, `nodes`: the model, and the ops of its graph in running order.
    `weights`: names of the stored tensors that are weights.
    `training`: whether weights change from step to step and dropout is active.
    """

    def __init__(
        self, model: Any, nodes: Sequence[Any], inputs: Inputs, weights: frozenset[str], *, training: bool
    ) -> None:
        self._model, self._graph, self._nodes = model, model.graph, nodes
        self._inputs, self._weights, self._training = inputs, weights, training
        self._opsets = {one.domain or "": one.version for one in model.opset_import}
        self._attributes = [attributes_of(node) for node in nodes]
        self._stored = {one.name: _small_value(one) for one in self._graph.initializer}
        self._stated = {
            value.name: value.type.tensor_type for value in (*self._graph.value_info, *self._graph.output)
        }

    def walk(self, sizes: Sizes) -> Walked:
        """Return the ops that run."""
        self._sizes = sizes
        self._walked = walked = Walked()
        self._values: dict[str, Any] = {}
        self._static: set[str] = set()
        for one in self._graph.initializer:
            dtype = dtype_of(one.data_type)
            if dtype is not None:
                self._add(one.name, new_array(tuple(one.dims), dtype))
            if dtype is not None and self._training and one.name in self._weights:
                storage = walked.arrays[one.name].storage
                walked.layouts[storage] = frozenset([storage])
            else:
                self._static.add(one.name)
                self._values[one.name] = self._stored[one.name]
        for given in self._inputs.inputs:
            dtype = dtype_of(given.elem_type)
            if dtype is not None:
                self._add(given.name, new_array(given.shape(sizes), dtype))
                walked.inputs.append(walked.arrays[given.name])
        for node, attributes in zip(self._nodes, self._attributes, strict=True):
            self._run(node, attributes)
        return walked

    def _add(self, name: str, array: Array) -> None:
        if any(length < 0 for length in array.shape) or array.numel * array.item_byte > _MOST_BYTE:
            raise NotAtTheseSizes(f"the tensor {name!r:.80} would have the shape {array.shape}")
        self._walked.arrays[name] = array

    def _run(self, node: Any, attributes: Mapping[str, Any]) -> None:
        """Run one op: compute its value, infer its outputs' shapes, and add it to the walk."""
        op = node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}::{node.op_type}"
        names = [name for name in node.input if name]
        if self._constant(node, attributes):
            self._walked.without_work += 1
            return
        is_static = op not in (*_RANDOM, *CONTROL) and all(name in self._static for name in names) and bool(names)
        if is_static or op == "Shape" or op == "Size":
            self._static.update(node.output)
        self._infer(node, op)
        if op in VIEWS and not is_static and self._is_lost(node):
            self._walked.unsupported.append(f"{op} of unknown shape")
            return
        nothing = self._view(node, op, attributes) or is_static or self._layout(node, op)
        if nothing or (op in RULES and RULES[op] is None):
            self._walked.without_work += 1
            return
        if op in CONTROL or op not in RULES:
            self._walked.unsupported.append(f"{op}: {CONTROL[op]}" if op in CONTROL else op)
        else:
            self._note(node, op, attributes)

    def _constant(self, node: Any, attributes: Mapping[str, Any]) -> bool:
        """Compute a value that depends on shapes only; return whether there is one."""
        found = None
        arrays = self._walked.arrays
        if node.op_type == "Constant":
            stated = next((value for name, value in attributes.items() if not name.endswith("strings")), None)
            found = None if stated is None or isinstance(stated, str) else np.asarray(stated)
        elif node.op_type in ("Shape", "Size") and node.input and node.input[0] in arrays:
            shape = arrays[node.input[0]].shape[attributes.get("start", 0) : attributes.get("end")]
            found = np.array(np.prod(shape) if node.op_type == "Size" else shape, np.int64)
        elif all(self._values.get(name) is not None for name in node.input if name):
            values = [self._values[name] if name else None for name in node.input]
            found = work_out(node.op_type, values, attributes)
        if found is None or len(node.output) != 1:
            return False
        name = node.output[0]
        dtype = dtype_of(onnx.helper.np_dtype_to_tensor_dtype(found.dtype)) if found.dtype.kind in "fiub" else None
        self._values[name] = found
        self._static.add(name)
        if dtype is not None:
            self._add(name, new_array(found.shape, dtype))
        return dtype is not None

    def _infer(self, node: Any, op: str) -> None:
        """Infer the shapes of an op's outputs."""
        arrays, make = self._walked.arrays, onnx.helper.make_tensor_type_proto
        known = {name: arrays[name] for name in node.input if name and name in arrays}
        types = {name: make(_NUMBERS[array.dtype], array.shape) for name, array in known.items()}
        schema = _schema(node.op_type, node.domain, self._opsets.get(node.domain, self._opsets.get("", 1)))
        found: Mapping[str, Any] = {}
        if schema is not None and op not in CONTROL and len(types) == len({name for name in node.input if name}):
            data = {name: onnx.numpy_helper.from_array(np.ascontiguousarray(value))
                    for name in node.input if (value := self._values.get(name)) is not None}  # fmt: skip
            try:
                found = onnx.shape_inference.infer_node_outputs(
                    schema, node, types, data, opset_imports=list(self._model.opset_import)
                )
            except Exception as error:  # the library may raise anything
                message = _TAG.sub("", str(error).strip().split("\n")[0]).rstrip(". ")
                made = repr(node.output[0]) if node.output else "nothing"
                raise NotAtTheseSizes(f"{op} that makes {made:.80} cannot run: {message:.160}") from error
        for name in filter(None, node.output):
            array = _array(found[name].tensor_type) if name in found else None
            if array is None and op in SAME_SHAPE and node.input and node.input[0] in arrays:
                source = arrays[node.input[0]]
                array = new_array(source.shape, source.dtype) if name == node.output[0] else None
            array = array or self._as_stated(name)
            if array is not None:
                self._add(name, array)

    def _as_stated(self, name: str) -> Array | None:
        """Return a shape stated in the file if all its names are known and so it cannot be of another batch."""
        stated, open_names = self._stated.get(name), self._inputs.open_names
        if stated is None or not stated.HasField("shape") or not open_names:
            return None
        sizes = {name: self._sizes.get(size, -1) for name, size in open_names.items()}
        dims = stated.shape.dim
        shape = [dim.dim_value if dim.HasField("dim_value") else sizes.get(dim.dim_param, -1) for dim in dims]
        dtype = dtype_of(stated.elem_type)
        return None if dtype is None or any(one < 0 for one in shape) else new_array(tuple(shape), dtype)

    def _view(self, node: Any, op: str, attributes: Mapping[str, Any]) -> bool:
        """If an op only changes the description of its input, let its output share the input's memory."""
        arrays = self._walked.arrays
        source = node.input[0] if node.input else ""
        if source not in arrays or not node.output or node.output[0] not in arrays:
            return False
        name, array = node.output[0], arrays[source]
        order = tuple(attributes.get("perm") or range(len(array.shape))[::-1])
        of_weight = self._source(source) in self._weights
        same = op == "Cast" and arrays[name].dtype == array.dtype
        if op in VIEWS and arrays[name].numel != array.numel:
            # An exporter may have written one size as a number, which the library's inference does not detect.
            message = f"{array.numel} elements do not make {arrays[name].shape}"
            raise NotAtTheseSizes(f"{op} that makes {name!r:.80} cannot run: {message}")
        if op in VIEWS or same or (op == "Dropout" and not self._training):
            arrays[name] = reshaped(array, arrays[name].shape)
        elif op == "Transpose" and of_weight:
            arrays[name] = onnx_calls.permuted(array, order)
        else:
            return False
        self._walked.views[name] = source
        return True

    def _is_lost(self, node: Any) -> bool:
        """Return whether an op is a view of unknown shape of a known tensor, so that its gradient is lost."""
        source = self._walked.arrays.get(node.input[0]) if node.input else None
        return source is not None and is_float(source) and not self._walked.arrays.keys() >= {*node.output[:1]}

    def _layout(self, node: Any, op: str) -> bool:
        """Return whether an op only reorders weights; record which weights its outputs hold."""
        walked = self._walked
        arrays = [walked.arrays[name] for name in node.input if name in walked.arrays and name not in self._static]
        if op not in _LAYOUTS or not arrays or any(array.storage not in walked.layouts for array in arrays):
            return False
        held = frozenset[int]().union(*(walked.layouts[array.storage] for array in arrays))
        walked.layouts.update((walked.arrays[name].storage, held) for name in node.output if name in walked.arrays)
        return True

    def _source(self, name: str) -> str:
        while name in self._walked.views:
            name = self._walked.views[name]
        return name

    def _note(self, node: Any, op: str, attributes: Mapping[str, Any]) -> None:
        arrays, schema = self._walked.arrays, _schema(node.op_type, node.domain, self._opsets.get(node.domain, 1))
        unknown = [name for name in (*node.input, *node.output[:1]) if name and name not in arrays]
        if unknown or not node.output:
            self._walked.unsupported.append(f"{op} of unknown shape")
            return
        arguments: dict[str, Any] = {**attributes, **({"since_version": schema.since_version} if schema else {})}
        inputs: list[Array | None] = []
        formal = [one.name for one in schema.inputs] if schema is not None else []
        listed: list[Array] = []
        for at, name in enumerate(node.input):
            key = formal[at] if at < len(formal) else ""
            value = self._values.get(name) if name else None
            counts = value is None or name in self._weights or (arrays[name].numel > 1 and key not in _PARAMETERS)
            array = arrays[name] if name and counts else None
            inputs.append(array)
            if at >= len(formal) - 1 and formal and len(node.input) > len(formal):
                listed += [array] if array is not None else []
            elif key:
                arguments[key] = array if array is not None else None if value is None else value.tolist()
        if listed:
            arguments[formal[-1]] = tuple(listed)
        outputs = tuple(arrays.get(name) if name else None for name in node.output)
        call = Call(op, arguments, tuple(output for output in outputs if output is not None))
        module = module_of(node)
        self._walked.ran.append(
            Executed(op, module, tuple(inputs), tuple(node.input), outputs, tuple(node.output), call)
        )


_TAG = re.compile(r"^\[\w+\] ?")
"""Prefix of the library's messages."""
_PARAMETERS = names(
    """shape axes starts ends steps pads repeats split sizes scales roi k K ratio training_mode min max axis
    constant_value"""
)
"""Inputs that set up an op and are not computed with."""
_NUMBERS = {dtype_of(number): number for number in range(20, 0, -1) if dtype_of(number)}


def _array(stated: Any) -> Array | None:
    dtype = dtype_of(stated.elem_type)
    known = stated.HasField("shape") and all(dim.HasField("dim_value") for dim in stated.shape.dim)
    if dtype is None or not known:
        return None
    return new_array(tuple(dim.dim_value for dim in stated.shape.dim), dtype)


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

"""Walk a graph at given sizes: find the shape of every tensor, op by op, and the ops that have work.

The library's shape inference of a whole graph trusts the shapes stored in the file, which may be those of another
batch. Inference op by op, with the small values that Reshape, Slice and Expand read, needs no stored shape.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.defs
import onnx.shape_inference

from fomkit.frontends.lowering import onnx_calls
from fomkit.frontends.lowering.calls import Array, Call
from fomkit.frontends.lowering.onnx import RULES, SAME_SHAPE
from fomkit.frontends.lowering.onnx_calls import Executed, Walked, dtype_of, is_float, new_array, reshaped
from fomkit.frontends.onnx import known
from fomkit.frontends.onnx.file import Inputs
from fomkit.frontends.onnx.known import NotAtTheseSizes
from fomkit.frontends.sizes import Sizes

CONTROL = ("If", "Loop", "Scan", "SequenceMap")
"""Ops that run other ops, which may read any tensor."""
_UNKNOWN_TRIPS = "a loop whose iterations are unknown"
MAX_INSIDE = 20_000
"""Most ops that the trips of a loop may run, a trip itself taken for one; each is priced on its own."""
_TOO_MANY = f"a loop that runs more than {MAX_INSIDE:,} ops"
VIEWS = frozenset(["Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten"])
_LAYOUTS = VIEWS | {"Concat", "Slice", "Split", "Transpose"}
"""Ops by which exporters bring weights into ONNX's order; a library stores weights in the order it needs."""
_RANDOM = ("RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli", "Multinomial")
_MOST_BYTE = 1e15
_SCAN_WITHOUT_BATCH = 9
"""First opset in which Scan has no axis of samples of its own."""


class _TooManyOps(Exception):  # noqa: N818 - a verdict, not a fault
    """The trips of a loop run more ops than are counted."""


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
        self._newest = False
        self._unread: set[str] = set()
        self._opsets: dict[str, int] = {
            "" if one.domain == "ai.onnx" else one.domain: one.version for one in model.opset_import
        }
        self._attributes = [known.attributes_of(node) for node in nodes]
        self._stored = {one.name: known.small_value(one) for one in self._graph.initializer}
        self._stated = {
            value.name: value.type.tensor_type for value in (*self._graph.value_info, *self._graph.output)
        }

    def walk(self, sizes: Sizes) -> Walked:
        """Return the ops that run."""
        self._sizes = sizes
        self._walked = walked = Walked()
        self._values: dict[str, Any] = {}
        self._static: set[str] = set()
        self._ran_inside, self._in_loop = 0, False
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
        if op in CONTROL:
            self._control(node, op, attributes)
            return
        if pieces := known.standard_nodes(node, attributes, self._walked.arrays):
            self._run_pieces(node, op, pieces)
            return
        is_static = op not in _RANDOM and all(name in self._static for name in names) and bool(names)
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
        if op not in RULES:
            self._walked.unsupported.append(op)
        else:
            self._note(node, op, attributes)

    def _run_pieces(self, node: Any, op: str, pieces: Sequence[Any]) -> None:
        """Run the standard ops that an op stands for.

        An op whose pieces cannot run at the sizes asked for is not what they say, and is listed at all sizes.
        """
        before, is_newest, self._newest = self._mark(), self._newest, True
        try:
            for one in () if node.output[0] in self._unread else pieces:
                self._run(one, known.attributes_of(one))
        except NotAtTheseSizes:
            if self._sizes != self._inputs.sizes:
                raise
            self._unread.add(node.output[0])
        finally:
            self._newest = is_newest
        if node.output[0] in self._unread:
            self._list_instead(before, node, op)

    def _mark(self) -> tuple[int, int, int, int]:
        """Return how far the walk has come."""
        walked = self._walked
        return len(walked.ran), len(walked.unsupported), walked.without_work, walked.branches

    def _list_instead(self, mark: tuple[int, int, int, int], node: Any, text: str) -> None:
        """List an op without what was found of it since a mark; its outputs are as stated in the file."""
        walked = self._walked
        del walked.ran[mark[0] :], walked.unsupported[mark[1] :]
        walked.without_work, walked.branches = mark[2:]
        walked.unsupported.append(text)
        for name in filter(None, node.output):
            walked.arrays.pop(name, None)
            if array := self._as_stated(name):
                self._add(name, array)

    def _opset_of(self, domain: str) -> int:
        """Return the file's version of a domain, or the newest for what stands for another op."""
        if self._newest:
            return int(onnx.defs.onnx_opset_version())
        return self._opsets.get(domain, self._opsets.get("", 1))

    def _schema_of(self, node: Any) -> Any:
        """Return the definition of an op in its version."""
        domain = "" if node.domain == "ai.onnx" else node.domain
        return known.schema_of(node.op_type, domain, self._opset_of(domain))

    def _control(self, node: Any, op: str, attributes: Mapping[str, Any]) -> None:
        """Run the ops of a branch, one side of it, or of a loop, or list the loop."""
        try:
            if op != "If":
                self._repeat(node, op, attributes)
                return
            sides, taken = [attributes["then_branch"], attributes["else_branch"]], self._values.get(node.input[0])
            # The side that is known to be taken, else the one with more ops.
            body = max(sides, key=lambda side: len(side.node)) if taken is None else sides[not taken.item()]
            self._walked.branches += taken is None
            self._bind(node.output, self._unroll(body, f"{node.output[0]}/", {}))
        except (KeyError, IndexError, ValueError, TypeError, AttributeError) as error:
            raise NotAtTheseSizes(f"{op} that makes {' '.join(node.output)!r:.80} cannot run: {error}") from error

    def _repeat(self, node: Any, op: str, attributes: Mapping[str, Any]) -> None:
        """Run the ops of a loop; if its trips are unknown or run too many ops, list it without any of them."""
        mark, is_inner, reason = self._mark(), self._in_loop, _UNKNOWN_TRIPS
        self._in_loop, self._ran_inside = True, self._ran_inside if is_inner else 0
        try:
            if op != "SequenceMap" and (self._loop if op == "Loop" else self._scan)(node, attributes):
                return
        except _TooManyOps:
            if is_inner:
                raise
            reason = _TOO_MANY
        finally:
            self._in_loop = is_inner
        self._list_instead(mark, node, f"{op}: {reason}")

    def _unroll(self, body: Any, prefix: str, given: Mapping[str, str]) -> list[str]:
        """Run the ops of a body once; return the names of its outputs."""
        nodes, outputs = known.ops_inside(body, prefix, given)
        self._ran_inside += 1 + len(nodes)
        if self._in_loop and self._ran_inside > MAX_INSIDE:
            raise _TooManyOps
        for one in nodes:
            self._run(one, known.attributes_of(one))
        return outputs

    def _bind(self, outputs: Sequence[str], sources: Sequence[str]) -> None:
        """Give tensors inside a body the names that they have outside."""
        for name, source in zip(outputs, sources, strict=False):
            if source in self._walked.arrays:
                self._walked.arrays[name] = self._walked.arrays[source]
                self._walked.views[name] = source
                self._values[name] = self._values.get(source)
                self._static.update([name] if source in self._static else [])

    def _join_trips(self, name: str, parts: Sequence[str], axis: int = 0) -> None:
        """Combine what the trips of a loop made along a new axis."""
        arrays, views = self._walked.arrays, []
        for part in parts:
            if part not in arrays:
                return
            shape = arrays[part].shape
            at = axis % (len(shape) + 1)
            views.append(f"{part}/stacked")
            arrays[views[-1]] = reshaped(arrays[part], (*shape[:at], 1, *shape[at:]))
            self._walked.views[views[-1]] = part
        if views:
            self._run(onnx.helper.make_node("Concat", views, [name], axis=axis), {"axis": axis})

    def _store_value(self, name: str, value: Any) -> str:
        """Add a number whose value is known; return its name."""
        self._values[name] = np.asarray(value)
        self._static.add(name)
        self._add(name, new_array((), "bool" if isinstance(value, bool) else "int64"))
        return name

    def _loop(self, node: Any, attributes: Mapping[str, Any]) -> bool:
        """Run the ops of a loop, trip by trip; return whether the number of trips is known.

        A loop may state far more trips than its condition lets run, so the ops are counted as they run.
        """
        body, given = attributes["body"], list[str]([*node.input, "", ""])
        limit, going, carried = *given[:2], given[2 : len(node.input)]
        most = self._values.get(limit) if limit else np.asarray(np.iinfo(np.int64).max)
        goes_on = self._values.get(going) if going else np.asarray(True)
        if most is None or goes_on is None:
            return False
        stacked: list[list[str]] = [[] for _ in body.output[1 + len(carried) :]]
        for trip in range(int(most)):
            if goes_on is None:
                return False
            if not goes_on.item():
                break
            prefix = f"{node.output[0]}/{trip}/"
            first = [self._store_value(f"{prefix}trip", trip), self._store_value(f"{prefix}going", True)]
            inputs = dict(zip((one.name for one in body.input), [*first, *carried], strict=False))
            again, *made = self._unroll(body, prefix, inputs)
            goes_on, carried = self._values.get(again), made[: len(carried)]
            for places, name in zip(stacked, made[len(carried) :], strict=True):
                places.append(name)
        self._bind(node.output, carried)
        for name, parts in zip(node.output[len(carried) :], stacked, strict=False):
            self._join_trips(name, parts)
        return True

    def _scan(self, node: Any, attributes: Mapping[str, Any]) -> bool:
        """Run the ops of a scan for each slice of its inputs; return whether the number of slices is known."""
        body, count = attributes["body"], int(attributes["num_scan_inputs"])
        carried, scanned = list(node.input[: len(node.input) - count]), node.input[len(node.input) - count :]
        arrays, axes = self._walked.arrays, attributes.get("scan_input_axes") or [0] * count
        if self._opsets.get("", 1) < _SCAN_WITHOUT_BATCH or any(name not in arrays for name in scanned):
            return False
        trips = max(arrays[name].shape[axis] for name, axis in zip(scanned, axes, strict=True))
        if self._ran_inside + trips * (1 + len(body.node)) > MAX_INSIDE:
            raise _TooManyOps
        slices = [self._slices(name, axis, node.output[0]) for name, axis in zip(scanned, axes, strict=True)]
        stacked: list[list[str]] = [[] for _ in body.output[len(carried) :]]
        for trip in range(trips):
            given = dict(
                zip((one.name for one in body.input), [*carried, *(one[trip] for one in slices)], strict=True)
            )
            made = self._unroll(body, f"{node.output[0]}/{trip}/", given)
            carried = made[: len(carried)]
            for places, name in zip(stacked, made[len(carried) :], strict=True):
                places.append(name)
        self._bind(node.output, carried)
        out_axes = attributes.get("scan_output_axes") or [0] * len(stacked)
        for name, parts, axis in zip(node.output[len(carried) :], stacked, out_axes, strict=False):
            self._join_trips(name, parts, axis)
        return True

    def _slices(self, name: str, axis: int, of: str) -> list[str]:
        """Cut a tensor along an axis, in one op; return the names of its slices, without the axis."""
        arrays, source = self._walked.arrays, self._walked.arrays[name]
        at = axis % len(source.shape)
        rest = source.shape[:at] + source.shape[at + 1 :]
        parts = [f"{of}/{name}/{trip}" for trip in range(source.shape[at])]
        for part in parts:
            self._add(f"{part}/cut", new_array((*source.shape[:at], 1, *source.shape[at + 1 :]), source.dtype))
            self._add(part, reshaped(arrays[f"{part}/cut"], rest))
            self._walked.views[part] = f"{part}/cut"
        if name in self._static:
            self._static.update(parts)
        else:
            self._note(
                onnx.helper.make_node("Split", [name], [f"{part}/cut" for part in parts]), "Split", {"axis": at}
            )
        return parts

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
            values = {name: self._values[name] for name in node.input if name}
            found = known.work_out(node, values, {**self._opsets, "": self._opset_of("")})
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
        given = {name: arrays[name] for name in node.input if name and name in arrays}
        types = {name: make(_NUMBERS[array.dtype], array.shape) for name, array in given.items()}
        schema = self._schema_of(node)
        found: Mapping[str, Any] = {}
        if schema is not None and len(types) == len({name for name in node.input if name}):
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
            array = known.array_of(found[name].tensor_type) if name in found else None
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
        arrays, schema = self._walked.arrays, self._schema_of(node)
        unknown = [name for name in (*node.input, *node.output[:1]) if name and name not in arrays]
        if unknown or not node.output:
            self._walked.unsupported.append(f"{op} of unknown shape")
            return
        inputs, arguments = known.arguments_of(node, {**attributes}, schema, arrays, self._values, self._weights)
        outputs = tuple(arrays.get(name) if name else None for name in node.output)
        call = Call(op, arguments, tuple(output for output in outputs if output is not None))
        ran = Executed(op, known.module_of(node), tuple(inputs), outputs, node.output[0], call)
        self._walked.ran.append(ran)


_TAG = re.compile(r"^\[\w+\] ?")
"""Prefix of the library's messages."""
_NUMBERS = {dtype_of(number): number for number in range(20, 0, -1) if dtype_of(number)}

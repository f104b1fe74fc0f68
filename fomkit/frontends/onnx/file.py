"""Read an ONNX file without trusting it: its graph in running order, its named sizes, and its weights.

The file does not state which stored tensors are weights; `find_weights` decides it by a rule.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from math import prod
from pathlib import Path
from typing import IO, Any

from fomkit.core.errors import FomkitError, nearest_names
from fomkit.core.model import BATCH
from fomkit.files.csv import check_file, open_file
from fomkit.frontends.lowering.onnx import names
from fomkit.frontends.lowering.onnx_calls import dtype_of
from fomkit.frontends.sizes import Sizes

Graph = Any
Node = Any
"""ONNX's own messages; the library has types for its version only."""

MAX_BYTE = 2**31
"""Largest size of a single message of this format [byte]."""
MAX_NODES = 200_000
_GRAPH = 7
_FIELDS = frozenset([1, 2, 3, 4, 5, 6, _GRAPH, 8, 14, 20, 25, 26])
"""Numbers of the fields of a model, from ONNX's published message format."""
_VERSION, _VARINT, _LENGTH = 0x08, 0, 2
_HIGHEST_VERSION = 99
_HIGHEST_OPSET = 999
"""Far above the versions that ONNX or vendors use; the library does not accept arbitrarily large numbers."""
_NEWEST = "Export the model again, for example with torch.onnx.export."


def _varint(stream: IO[bytes]) -> int | None:
    value = 0
    for shift in range(0, 64, 7):
        byte = stream.read(1)
        if not byte:
            return None
        value |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return value
    return None


def _numbers(stream: IO[bytes]) -> Iterator[int]:
    """Yield the numbers of a file's outermost fields, as long as they could be those of a model."""
    while (tag := _varint(stream)) is not None and tag >> 3 in _FIELDS and tag & 7 in (_VARINT, _LENGTH):
        yield tag >> 3
        value = _varint(stream)
        if value is None:
            return
        if tag & 7 == _LENGTH:
            stream.seek(value, 1)


def recognise_onnx(path: Path) -> bool:
    """Return whether the outermost fields of a file are those of an ONNX model: a version, and later a graph."""
    try:
        with open_file(path) as stream:
            head = stream.read(2)
            if len(head) < 2 or head[0] != _VERSION or not 0 < head[1] <= _HIGHEST_VERSION:
                return False
            return any(number == _GRAPH for number, _ in zip(_numbers(stream), range(1000), strict=False))
    except OSError:
        return False


def read_graph(path: Path, where: str) -> tuple[Any, Graph]:
    """Read a model and its graph, with local functions inlined; external files that it names are not opened."""
    import onnx
    import onnx.inliner

    check_file(path)
    size = path.stat().st_size
    if not size:
        raise FomkitError(where, f"is empty. {_NEWEST}")
    if size >= MAX_BYTE:
        raise FomkitError(
            where,
            "has 2 GiB or more, which no ONNX model has. Export it with its weights in files beside it, which are "
            "not needed here.",
        )
    try:
        model = onnx.load(str(path), load_external_data=False, format="protobuf")
    except Exception as error:  # the library may raise anything
        raise FomkitError(where, f"is a damaged or truncated ONNX file. {_NEWEST}") from error
    if not model.HasField("graph") or not model.graph.node:
        raise FomkitError(where, f"has no graph with ops. {_NEWEST}")
    if model.functions:
        try:
            model = onnx.inliner.inline_local_functions(model)
        except Exception as error:  # the library may raise anything
            message = str(error).strip().split("\n")[0]
            what = f"has functions that cannot be inlined: {message.rstrip('.'):.200}. {_NEWEST}"
            raise FomkitError(where, what) from error
    for one in model.opset_import:
        if not 0 < one.version <= _HIGHEST_OPSET:
            message = f"is of opset {one.version}, and ONNX has those from 1 to {onnx.defs.onnx_opset_version()}"
            raise FomkitError(where, f"{message} in the package here. {_NEWEST}")
    if not all(isinstance(text, str) for text in _names_in(model.graph)):
        raise FomkitError(where, f"is a damaged ONNX file: a name in it is not text. {_NEWEST}")
    if len(model.graph.node) > MAX_NODES:
        raise FomkitError(where, f"has {len(model.graph.node):,} ops. At most {MAX_NODES:,} are read.")
    return model, model.graph


def _names_in(graph: Graph) -> Iterator[str]:
    """Yield the names in a graph; the library returns damaged names as bytes."""
    for node in graph.node:
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
        yield from (attribute.name for attribute in node.attribute)
    for one in (*graph.initializer, *graph.input, *graph.output, *graph.value_info):
        yield one.name
    for value in (*graph.input, *graph.output, *graph.value_info):
        yield from (dim.dim_param for dim in value.type.tensor_type.shape.dim)


def in_running_order(graph: Graph, given: set[str], where: str) -> list[Node]:
    """Sort the ops so that each follows those it reads; raise if this is impossible."""
    makers: dict[str, int] = {}
    for at, node in enumerate(graph.node):
        for name in filter(None, node.output):
            if name in makers or name in given:
                raise FomkitError(where, f"makes the tensor {name!r:.80} twice. {_NEWEST}")
            makers[name] = at
    sorter = TopologicalSorter[int](dict.fromkeys(range(len(graph.node)), ()))
    for at, node in enumerate(graph.node):
        names = {name for name in node.input if name and name not in given}
        if missing := sorted(names - makers.keys()):
            message = f"has a {node.op_type:.40} that reads {missing[0]!r:.80}, which no op computes"
            raise FomkitError(where, f"{message}. {_NEWEST}")
        sorter.add(at, *{makers[name] for name in names})
    with suppress(CycleError):  # ops in a cycle are reported below
        sorter.prepare()
    order: list[int] = []
    while ready := sorter.get_ready():
        order += ready
        sorter.done(*ready)
    if len(order) < len(graph.node):
        cyclic = graph.node[min(set(range(len(graph.node))) - set(order))]
        raise FomkitError(where, f"has a cycle: a {cyclic.op_type:.40} needs its own result. {_NEWEST}")
    # If the file's own order is valid, it is kept.
    reads = ((at, name) for at, node in enumerate(graph.node) for name in node.input if name in makers)
    holds = all(makers[name] < at for at, name in reads)
    return list(graph.node) if holds else [graph.node[at] for at in order]


MAX_LENGTH = 10**12
_RECURRENT = ("LSTM", "GRU", "RNN")
_SAMPLES = re.compile(r"(?:n|b|bs|.*batch.*)", re.IGNORECASE)
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_EXAMPLE = 128


@dataclass(frozen=True)
class Input:
    """One input of a graph: its number format and, per axis, a length or the name of a size."""

    name: str
    elem_type: int
    lengths: tuple[int | str, ...]

    def shape(self, sizes: Sizes) -> tuple[int, ...]:
        """Return its shape at the given sizes."""
        return tuple(sizes[length] if isinstance(length, str) else length for length in self.lengths)


@dataclass(frozen=True)
class Inputs:
    """The inputs of a graph.

    `sizes`: values of the named sizes; the batch comes first.
    `open_names`: the size of each dimension name that the file uses.
    """

    inputs: tuple[Input, ...]
    sizes: Sizes
    open_names: Mapping[str, str]
    notes: tuple[str, ...]


def _word(text: str, taken: set[str]) -> str:
    """Return a valid size name for a dimension's name, which may be any text."""
    plain = re.sub(r"[^A-Za-z0-9_]+", "_", text).strip("_")[:40]
    name = plain if _WORD.fullmatch(plain) else f"size_{plain}".rstrip("_")
    while name in taken:
        name += "_"
    return name


def _graph_inputs(graph: Any, where: str) -> list[tuple[str, int, list[Any]]]:
    stored = {one.name for one in graph.initializer}
    found = []
    for value in graph.input:
        if value.name in stored:
            continue
        tensor = value.type.tensor_type if value.type.HasField("tensor_type") else None
        if tensor is None or not tensor.HasField("shape"):
            raise FomkitError(
                where, f"has the input {value.name!r:.80}, which is not a tensor with a shape. Export the model "
                       "with inputs that are tensors.")  # fmt: skip
        for dim in tensor.shape.dim:
            if dim.HasField("dim_value") and not 0 < dim.dim_value <= MAX_LENGTH:
                message = f"has the input {value.name!r:.80} with a dimension of {dim.dim_value}"
                raise FomkitError(where, f"{message}. A length of 1 or more, or a name, was expected.")
        found.append((value.name, tensor.elem_type, list(tensor.shape.dim)))
    if not found:
        raise FomkitError(where, "has no input, so its work depends on nothing. Export the model with an input.")
    return found


def _batch_axis(graph: Any, name: str) -> int:
    """Return the axis of samples of an input: a recurrent op has steps first unless its layout differs."""
    for node in graph.node:
        if node.op_type in _RECURRENT and node.input and node.input[0] == name:
            return int(not any(one.name == "layout" and one.i for one in node.attribute))
    return 0


def read_inputs(graph: Any, wanted: Sizes, where: str) -> Inputs:
    """Return the inputs of a graph and its named sizes, at the values that are wanted.

    The batch is the dimension with such a name, else the first of the first input (the second where a recurrent
    layer reads it, steps first). It may be a number in the file.
    """
    given = _graph_inputs(graph, where)
    axis = _batch_axis(graph, given[0][0])
    first = given[0][2]
    named = [dim.dim_param for _, _, dims in given for dim in dims if dim.dim_param]
    batch_name = next((one for one in named if _SAMPLES.fullmatch(one)), "")
    batch_name = batch_name or (first[axis].dim_param if len(first) > axis else "")
    # A dimension may have neither number nor name.
    is_open = len(first) > axis and not first[axis].HasField("dim_value") and not batch_name
    fixed = first[axis].dim_value if len(first) > axis and not (batch_name or is_open) else 0
    words = {batch_name: BATCH} if batch_name else {}
    found = []
    for name, elem_type, dims in given:
        lengths: list[int | str] = []
        own_axis = axis if len(dims) > axis else 0
        for at, dim in enumerate(dims):
            is_stated = dim.HasField("dim_value") or dim.dim_param
            if at == own_axis and ((fixed and dim.dim_value == fixed) or (is_open and not is_stated)):
                lengths.append(BATCH)
            elif dim.HasField("dim_value"):
                lengths.append(int(dim.dim_value))
            else:
                text = dim.dim_param or f"{name}_{at}"
                words.setdefault(text, _word(text, set(words.values())))
                lengths.append(words[text])
        found.append(Input(name, elem_type, tuple(lengths)))
    used = dict.fromkeys(length for value in found for length in value.lengths if isinstance(length, str))
    if foreign := [name for name in wanted if name not in used]:
        raise FomkitError(where, f"{foreign[0]!r} is not one of its open sizes. {nearest_names(foreign[0], used)}")
    known = {**({BATCH: fixed or 1} if BATCH in used else {}), **wanted}
    if lacking := [name for name in used if name not in known]:
        example = " ".join(f"--set {name}={_EXAMPLE}" for name in lacking)
        raise FomkitError(where, f"leaves {', '.join(lacking)} open. Give values, for example {example}.")
    notes = []
    if BATCH in used and not fixed and BATCH not in wanted:
        notes.append("the file leaves the batch open; 1 is assumed. Give another here or to an estimate")
    sizes = {name: known[name] for name in sorted(used, key=lambda one: one != BATCH)}
    return Inputs(tuple(found), sizes, dict(words), tuple(notes))


RULE = (
    "parameters: the stored floating-point tensors that an op computes with, except running statistics, scales "
    "of quantisation, bounds and single numbers outside layers"
)

_NO_WEIGHT: Mapping[str, tuple[int, ...]] = {
    "BatchNormalization": (3, 4), "Resize": (1, 2, 3), "Upsample": (1,), "Pad": (1, 2, 3), "Clip": (1, 2),
    "Dropout": (1, 2), "QuantizeLinear": (1, 2), "DequantizeLinear": (1, 2), "QLinearConv": (1, 4, 6),
    "QLinearMatMul": (1, 4, 6), "Range": (0, 1, 2), "OneHot": (1, 2), "RoiAlign": (1, 2), "TopK": (1,),
    "NonMaxSuppression": (3, 4), "LSTM": (4, 5, 6), "GRU": (4, 5), "RNN": (4, 5), "Attention": (3, 4, 5),
    "MatMulNBits": (2, 3, 4), "DynamicQuantizeMatMul": (2, 3), "MatMulIntegerToFloat": (2, 3, 4, 5),
    "QGemm": (1, 2, 4, 5, 7, 8),
}  # fmt: skip
"""By op, the inputs that are settings or running state, and never trained."""

_LAYERS = names(
    """Conv ConvTranspose DeformConv Gemm MatMul Einsum LSTM GRU RNN BatchNormalization InstanceNormalization
    GroupNormalization LayerNormalization RMSNormalization PRelu"""
)
"""Ops whose weights may be a single number."""

_QUANTISED: Mapping[str, tuple[int, ...]] = {
    "QLinearConv": (3, 8), "QLinearMatMul": (3,), "MatMulInteger": (0, 1), "ConvInteger": (1,),
    "DequantizeLinear": (0,), "MatMulNBits": (1,), "DynamicQuantizeMatMul": (1,), "MatMulIntegerToFloat": (1,),
    "QGemm": (3,),
}  # fmt: skip
_VIEWS = frozenset(["Identity", "Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Cast"])


@dataclass(frozen=True)
class Weights:
    """The stored tensors of a graph.

    `trainable`, `quantised`, `others`: names of floating-point weights, integer weights, and all other tensors.
    `external`: how many have their values in other files. `packed`: weights in a tensor that stores several in one
    byte, by its name.
    """

    trainable: tuple[str, ...]
    quantised: tuple[str, ...]
    others: tuple[str, ...]
    external: int
    packed: Mapping[str, int]


def _final_uses(name: str, uses: Mapping[str, list[tuple[str, int, str]]]) -> list[tuple[str, int]]:
    """Follow a stored tensor through views to the ops that compute with it."""
    waiting, seen, found = [name], {name}, []
    while waiting:
        for op, at, result in uses.get(waiting.pop(), ()):
            if op in _VIEWS and at == 0:
                if result not in seen:
                    seen.add(result)
                    waiting.append(result)
            else:
                found.append((op, at))
    return found


def find_weights(graph: Any, nodes: Iterable[Any]) -> Weights:
    """Classify a graph's stored tensors."""
    # For each tensor the ops that read it, each with the input position and its first result.
    uses: dict[str, list[tuple[str, int, str]]] = {}
    packed = dict[str, int]()
    for node in nodes:
        if node.op_type == "MatMulNBits" and len(node.input) > 1:
            sizes = {one.name: one.i for one in node.attribute}
            packed[node.input[1]] = max(sizes.get("K", 0) * sizes.get("N", 0), 0)
        for at, name in enumerate(node.input):
            if name:
                uses.setdefault(name, []).append((node.op_type, at, node.output[0] if node.output else ""))
    kinds: dict[str, list[str]] = {"trainable": [], "quantised": [], "others": []}
    external = 0
    for one in graph.initializer:
        external += one.data_location == one.EXTERNAL
        kinds[_weight_kind(one, _final_uses(one.name, uses))].append(one.name)
    return Weights(tuple(kinds["trainable"]), tuple(kinds["quantised"]), tuple(kinds["others"]), external, packed)


def _weight_kind(tensor: Any, ends: list[tuple[str, int]]) -> str:
    dtype = dtype_of(tensor.data_type) or ""
    if any(at in _QUANTISED.get(op, ()) for op, at in ends) and not dtype.startswith(("fp", "bf")):
        return "quantised"
    if not dtype.startswith(("fp", "bf")) or prod(tensor.dims) < 1:
        return "others"
    computing = [(op, at) for op, at in ends if at not in _NO_WEIGHT.get(op, ())]
    single = prod(tensor.dims) == 1
    return "trainable" if any(not single or op in _LAYERS for op, _ in computing) else "others"

"""An ONNX file, read without trusting it: recognised by its bytes, its graph in running order, clear refusals."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from fomkit.errors import FomkitError
from fomkit.tables.opening import check_file, open_file

Graph = Any
Node = Any
"""ONNX's own messages; the library has types for its version only."""

MOST_BYTE = 2**31
"""A single message of this format cannot be longer [byte]."""
MOST_NODES = 200_000
_GRAPH = 7
_FIELDS = frozenset([1, 2, 3, 4, 5, 6, _GRAPH, 8, 14, 20, 25, 26])
"""Numbers of the fields of a model, by ONNX's published message format."""
_VERSION, _VARINT, _LENGTH = 0x08, 0, 2
_HIGHEST_VERSION = 99
_HIGHEST_OPSET = 999
"""Far above those that ONNX or a vendor has; the library takes no number of any size."""
_NEWEST = "Export the model anew, for example with torch.onnx.export."


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
    """Give the numbers of a file's outermost fields, as long as they could be those of a model."""
    while (tag := _varint(stream)) is not None and tag >> 3 in _FIELDS and tag & 7 in (_VARINT, _LENGTH):
        yield tag >> 3
        value = _varint(stream)
        if value is None:
            return
        if tag & 7 == _LENGTH:
            stream.seek(value, 1)


def recognise_onnx(path: Path) -> bool:
    """Tell by its outermost fields whether a file is an ONNX model: a version, and later a graph."""
    try:
        with open_file(path) as stream:
            head = stream.read(2)
            if len(head) < 2 or head[0] != _VERSION or not 0 < head[1] <= _HIGHEST_VERSION:
                return False
            return any(number == _GRAPH for number, _ in zip(_numbers(stream), range(1000), strict=False))
    except OSError:
        return False


def read_graph(path: Path, where: str) -> tuple[Any, Graph]:
    """Read a model; files that it names beside itself are never opened.

    Parameters
    ----------
    path : Path
    where : str
        The file as the user wrote it.

    Returns
    -------
    model, graph
        The model, its own functions put in place of their calls, and its graph.

    Raises
    ------
    FomkitError
        When it is damaged, or its graph is none.
    """
    import onnx
    import onnx.inliner

    check_file(path)
    size = path.stat().st_size
    if not size:
        raise FomkitError(where, f"is empty. {_NEWEST}")
    if size >= MOST_BYTE:
        raise FomkitError(
            where,
            "has 2 GiB or more, which no ONNX model has. Export it with its weights in files beside it, which are "
            "not needed here.",
        )
    try:
        model = onnx.load(str(path), load_external_data=False, format="protobuf")
    except Exception as error:  # the library raises what it likes
        raise FomkitError(where, f"is a damaged or truncated ONNX file. {_NEWEST}") from error
    if not model.HasField("graph") or not model.graph.node:
        raise FomkitError(where, f"has no graph with ops. {_NEWEST}")
    if model.functions:
        try:
            model = onnx.inliner.inline_local_functions(model)
        except Exception as error:  # the library raises what it likes
            told = str(error).strip().split("\n")[0]
            raise FomkitError(
                where, f"has functions that cannot be put in place: {told:.200}. {_NEWEST}"
            ) from error
    for one in model.opset_import:
        if not 0 < one.version <= _HIGHEST_OPSET:
            told = f"is of opset {one.version}, and ONNX has those from 1 to {onnx.defs.onnx_opset_version()}"
            raise FomkitError(where, f"{told} in the package here. {_NEWEST}")
    if not all(isinstance(text, str) for text in _texts(model.graph)):
        raise FomkitError(where, f"is a damaged ONNX file: a name in it is no text. {_NEWEST}")
    if len(model.graph.node) > MOST_NODES:
        raise FomkitError(where, f"has {len(model.graph.node):,} ops. {MOST_NODES:,} are the most that are read.")
    return model, model.graph


def _texts(graph: Graph) -> Iterator[str]:
    """Give the names in a graph; the library hands damaged ones over as bytes."""
    for node in graph.node:
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
        yield from (attribute.name for attribute in node.attribute)
    for one in (*graph.initializer, *graph.input, *graph.output, *graph.value_info):
        yield one.name
    for value in (*graph.input, *graph.output, *graph.value_info):
        yield from (dim.dim_param for dim in value.type.tensor_type.shape.dim)


def in_running_order(graph: Graph, given: set[str], where: str) -> list[Node]:
    """Sort the ops so that each comes after those it reads, and check that this can be done.

    Parameters
    ----------
    graph
    given : set of str
        Names of the graph's inputs and of its stored tensors.
    where : str

    Raises
    ------
    FomkitError
        When a tensor is made twice, or never, or from itself.
    """
    makers: dict[str, int] = {}
    for at, node in enumerate(graph.node):
        for name in filter(None, node.output):
            if name in makers or name in given:
                raise FomkitError(where, f"makes the tensor {name!r:.80} twice. {_NEWEST}")
            makers[name] = at
    waits: list[int] = []
    readers: dict[int, list[int]] = {}
    for at, node in enumerate(graph.node):
        names = {name for name in node.input if name and name not in given}
        if missing := sorted(names - makers.keys()):
            told = f"has a {node.op_type:.40} that reads {missing[0]!r:.80}, which nothing makes"
            raise FomkitError(where, f"{told}. {_NEWEST}")
        sources = {makers[name] for name in names}
        waits.append(len(sources))
        for source in sources:
            readers.setdefault(source, []).append(at)
    ready = [at for at, count in enumerate(waits) if not count]
    order: list[int] = []
    for at in ready:
        order.append(at)
        for reader in readers.get(at, ()):
            waits[reader] -= 1
            if not waits[reader]:
                ready.append(reader)
    if len(order) < len(graph.node):
        stuck = next(node for at, node in enumerate(graph.node) if waits[at])
        raise FomkitError(where, f"has a cycle: a {stuck.op_type:.40} needs its own result. {_NEWEST}")
    # Where the file's own order holds, it is kept.
    place = {at: turn for turn, at in enumerate(order)}
    holds = all(place_of < at for at, sources in _sources(graph, makers) for place_of in sources)
    return list(graph.node) if holds else [graph.node[at] for at in sorted(place, key=place.__getitem__)]


def _sources(graph: Graph, makers: dict[str, int]) -> Iterator[tuple[int, list[int]]]:
    for at, node in enumerate(graph.node):
        yield at, [makers[name] for name in node.input if name in makers]

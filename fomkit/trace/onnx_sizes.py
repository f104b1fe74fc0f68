"""The named sizes of an ONNX graph: the batch, and each dimension of an input that the file leaves open."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fomkit.errors import FomkitError, nearest_names
from fomkit.trace.explore_sizes import BATCH
from fomkit.trace.symbolic import Sizes

MOST_LENGTH = 10**12
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
        """Give its shape at the given sizes."""
        return tuple(sizes[one] if isinstance(one, str) else one for one in self.lengths)


@dataclass(frozen=True)
class Inputs:
    """What a graph is given.

    Attributes
    ----------
    inputs : tuple of Input
    sizes : mapping
        Values of the named sizes; the batch comes first.
    open_names : mapping
        The size of each dimension name that the file uses.
    notes : tuple of str
    """

    inputs: tuple[Input, ...]
    sizes: Sizes
    open_names: Mapping[str, str]
    notes: tuple[str, ...]


def _word(text: str, taken: set[str]) -> str:
    """Make a size's name of a dimension's, which may be any text."""
    plain = re.sub(r"[^A-Za-z0-9_]+", "_", text).strip("_")[:40]
    name = plain if _WORD.fullmatch(plain) else f"size_{plain}".rstrip("_")
    while name in taken:
        name += "_"
    return name


def _given(graph: Any, where: str) -> list[tuple[str, int, list[Any]]]:
    stored = {one.name for one in graph.initializer}
    found = []
    for value in graph.input:
        if value.name in stored:
            continue
        tensor = value.type.tensor_type if value.type.HasField("tensor_type") else None
        if tensor is None or not tensor.HasField("shape"):
            raise FomkitError(
                where, f"has the input {value.name!r:.80}, which is no tensor with a shape. Export the model with "
                       "inputs that are tensors.")  # fmt: skip
        for dim in tensor.shape.dim:
            if dim.HasField("dim_value") and not 0 < dim.dim_value <= MOST_LENGTH:
                told = f"has the input {value.name!r:.80} with a dimension of {dim.dim_value}"
                raise FomkitError(where, f"{told}. A length of 1 or more, or a name, was expected.")
        found.append((value.name, tensor.elem_type, list(tensor.shape.dim)))
    if not found:
        raise FomkitError(where, "has no input, so its work depends on nothing. Export the model with an input.")
    return found


def _batch_axis(graph: Any, name: str) -> int:
    """Tell the axis of samples of an input: a recurrent op takes steps first unless it says otherwise."""
    for node in graph.node:
        if node.op_type in _RECURRENT and node.input and node.input[0] == name:
            return int(not any(one.name == "layout" and one.i for one in node.attribute))
    return 0


def _batch_name(given: Sequence[tuple[str, int, list[Any]]], first_axis: int) -> str:
    """Find the name that the file has for the batch; "" where that is a number."""
    named = [dim.dim_param for _, _, dims in given for dim in dims if dim.dim_param]
    alike = next((one for one in named if _SAMPLES.fullmatch(one)), "")
    dims = given[0][2]
    return alike or (dims[first_axis].dim_param if len(dims) > first_axis else "")


def read_inputs(graph: Any, wanted: Sizes, where: str) -> Inputs:
    """Give the inputs of a graph and its named sizes.

    The batch is the dimension that is called so, else the first of the first input (the second where a recurrent
    layer reads it, steps first), and may be a number in the file.

    Parameters
    ----------
    graph
    wanted : mapping
        Values that were asked for.
    where : str

    Raises
    ------
    FomkitError
        When an input is no tensor, has a dimension below 1, or a size has no value.
    """
    given = _given(graph, where)
    axis = _batch_axis(graph, given[0][0])
    batch_name = _batch_name(given, axis)
    first = given[0][2]
    # A dimension may have neither number nor name.
    is_open = len(first) > axis and not first[axis].HasField("dim_value") and not batch_name
    fixed = first[axis].dim_value if len(first) > axis and not (batch_name or is_open) else 0
    words = {batch_name: BATCH} if batch_name else {}
    found = []
    for name, elem_type, dims in given:
        lengths: list[int | str] = []
        own_axis = axis if len(dims) > axis else 0
        for at, dim in enumerate(dims):
            if at == own_axis and ((fixed and dim.dim_value == fixed) or (is_open and not _told(dim))):
                lengths.append(BATCH)
            elif dim.HasField("dim_value"):
                lengths.append(int(dim.dim_value))
            else:
                text = dim.dim_param or f"{name}_{at}"
                words.setdefault(text, _word(text, set(words.values())))
                lengths.append(words[text])
        found.append(Input(name, elem_type, tuple(lengths)))
    used = dict.fromkeys(one for value in found for one in value.lengths if isinstance(one, str))
    return _with_values(found, used, words, fixed, wanted, where)


def _told(dim: Any) -> bool:
    return bool(dim.HasField("dim_value") or dim.dim_param)


def _with_values(
    found: list[Input], used: Mapping[str, None], words: Mapping[str, str], fixed: int, wanted: Sizes, where: str
) -> Inputs:
    if foreign := [name for name in wanted if name not in used]:
        raise FomkitError(where, f"{foreign[0]!r} is none of its open sizes. {nearest_names(foreign[0], used)}")
    known = {**({BATCH: fixed or 1} if BATCH in used else {}), **wanted}
    if lacking := [name for name in used if name not in known]:
        example = " ".join(f"--set {name}={_EXAMPLE}" for name in lacking)
        raise FomkitError(where, f"leaves {', '.join(lacking)} open. Say how large, for example {example}.")
    notes = []
    if BATCH in used and not fixed and BATCH not in wanted:
        notes.append("the batch is open in the file and 1 was taken; another may be given, now or to an estimate")
    sizes = {name: known[name] for name in sorted(used, key=lambda one: one != BATCH)}
    return Inputs(tuple(found), sizes, dict(words), tuple(notes))

"""Which library runs the ops: PyTorch, or TensorFlow in compiled graphs; and the design in its words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Literal, get_args

from fomkit.errors import FomkitError, nearest_names
from fomkit.measure.ops import Cells, Wanted, cell, distinct
from fomkit.timings import measure_makers, measure_tf_makers
from fomkit.timings.measure_tf_traffic import STREAM

Name = Literal["torch", "tensorflow"]
STREAM_NUMEL = 2**25
"""Elements of the tensors that show the bandwidth."""
_STREAM = {"kind": "pointwise", "dtype": "fp32", "engine": "vector", "pass_name": "forward",
           "numel": str(STREAM_NUMEL), "write_byte": cell(4 * STREAM_NUMEL)}  # fmt: skip


@dataclass(frozen=True)
class Library:
    """What runs ops.

    Attributes
    ----------
    name : str
        As in the column ``library`` of timings.
    title : str
    worker : str
        The module whose ``main`` times.
    knows_op : function of cells
        Whether the op that a row names is made, so that its timing may carry the name.
    stream : mapping
        Cells of the op that shows the bandwidth.
    words : mapping or None
        What the design's ops are called there; "" for any op of the kind. None where they are its own.
    left_out : mapping
        Kinds that are not timed, and why.
    said : tuple of str
        What a reader of its profile should know.
    """

    name: Name
    title: str
    worker: str
    knows_op: Callable[[Cells], bool]
    stream: Cells
    words: Mapping[str, str] | None = None
    left_out: Mapping[str, str] = field(default_factory=dict)
    said: tuple[str, ...] = ()


LIBRARIES: Mapping[str, Library] = {
    "torch": Library(
        "torch", "PyTorch", "fomkit.timings.measure_worker", measure_makers.knows_op,
        {**_STREAM, "op": "aten::relu_", "read_byte": cell(4 * STREAM_NUMEL)},
    ),
    "tensorflow": Library(
        "tensorflow", "TensorFlow", "fomkit.timings.measure_tf_worker", measure_tf_makers.knows_op,
        {**_STREAM, "op": STREAM, "inputs": "2", "read_byte": cell(8 * STREAM_NUMEL)},
        words={
            "aten::relu": "Relu", "aten::add": "AddV2", "aten::tanh": "Tanh", "aten::sigmoid": "Sigmoid",
            "aten::threshold_backward": "ReluGrad", "aten::mul": "Mul", "aten::tanh_backward": "TanhGrad",
            "aten::clone": "", "aten::new_zeros": "Fill", "aten::cat": "ConcatV2", "aten::sum": "Sum",
            "aten::native_batch_norm": "FusedBatchNormV3",
            "aten::native_batch_norm_backward": "FusedBatchNormGradV3", "aten::_softmax": "Softmax",
            "aten::_log_softmax": "LogSoftmax", "aten::embedding": "ResourceGather",
            "aten::embedding_dense_backward": "UnsortedSegmentSum",
        },
        left_out=measure_tf_makers.LEFT_OUT,
        said=(
            "library: ops run in compiled graphs (tf.function); the call of the function is taken off, and no ops "
            "are fused, as a step fuses some",
            "fresh pages: not measured with TensorFlow; timings of large results have them in themselves",
        ),
    ),
}  # fmt: skip


def choose_library(name: str, device: str) -> tuple[Library, str]:
    """Choose the library by name; "" takes PyTorch, or TensorFlow where PyTorch is not installed.

    Returns
    -------
    library : Library
    said : str
        Why it is another than usual; "" where it is not.

    Raises
    ------
    FomkitError
        When there is none of that name, or it is not timed on the device.
    """
    if name and name not in LIBRARIES:
        raise FomkitError("--library", f"{name!r} is not one. {nearest_names(name, get_args(Name))}")
    said = ""
    if not name:
        name = "torch"
        if find_spec("torch") is None and device == "cpu" and find_spec("tensorflow") is not None:
            name, said = "tensorflow", "library: TensorFlow, because PyTorch is not here"
    found = LIBRARIES[name]
    if device != "cpu" and found.name == "tensorflow":
        raise FomkitError(
            f"--device {device}", "is timed by events, which TensorFlow does not give. Take --library torch."
        )
    return found, said


def _said(cells: Cells, library: Library) -> str:
    """Say why an op of the design is not one of the library's; "" where it is."""
    if cells["kind"] in library.left_out:
        return library.left_out[cells["kind"]]
    if cells.get("op") and library.words is not None and cells["op"] not in library.words:
        return f"{library.title} has no op that does what {cells['op']} does"
    return ""


def _translated(one: Wanted, words: Mapping[str, str]) -> Wanted:
    cells = dict(one.cells)
    if name := cells.pop("op", ""):
        cells |= {"op": words[name]} if words[name] else {}
    if cells["kind"] == "conv":
        cells["layout"] = "nhwc"
    if (cells.get("op"), cells.get("pass_name")) == ("Sum", "backward"):
        cells["op"] = "BiasAddGrad"
    return one._replace(cells=cells)


def in_words_of(library: Library, ops: Iterable[Wanted]) -> tuple[list[Wanted], list[str]]:
    """Give the ops of the design as a library runs them, and say which of them it does not.

    Returns
    -------
    ops : list of Wanted
    said : list of str
        One line for each reason and kind.
    """
    words = library.words
    if words is None:
        return list(ops), []
    kept: list[Wanted] = []
    missing: Counter[tuple[str, str]] = Counter()
    for one in ops:
        if why := _said(one.cells, library):
            missing[one.cells["kind"], why] += 1
        else:
            kept.append(_translated(one, words))
    said = [f"not timed: {count} {kind} of the design, {why}" for (kind, why), count in missing.items()]
    return distinct(kept), said

"""Which library runs the ops, the ops as cells and tables in its words, and the process that times them."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, Literal, NamedTuple, get_args

import pandas as pd

from fomkit.core.errors import FomkitError, nearest_names
from fomkit.harness.tensorflow import worker as tensorflow
from fomkit.harness.tensorflow.traffic import STREAM
from fomkit.harness.torch import makers
from fomkit.harness.torch.worker import Answer
from fomkit.ops.kinds import KINDS
from fomkit.ops.tables import DIMENSIONS, column_names

Cells = Mapping[str, str]
IDENTITY = ("kind", "op", "dtype", "engine", "pass_name", *(column.name for column in DIMENSIONS))
"""Cells that make an op another op."""
_NUMBERS = frozenset(column_names("OPS", "number"))
_TEXTS = ("op", "kind", "dtype", "engine", "pass_name")


class Wanted(NamedTuple):
    """An op to time.

    `cells`: cells of a row of timings by column, as text; ``lengths`` besides them tells an update's tensors.
    `weight`: what a second of its error is worth, against that of others.
    `models`: whose it is; "" for one of the design.
    """

    cells: Cells
    weight: float
    models: str = ""


def cell(value: float | str) -> str:
    """Write a cell as the process that times reads it.

    >>> cell(64.0), cell(0.25), cell("relu")
    ('64', '0.25', 'relu')
    """
    return value if isinstance(value, str) else f"{value:.12g}"


def key_of(cells: Cells) -> tuple[str, ...]:
    """Give what makes an op itself."""
    return tuple(cells.get(name, "") for name in IDENTITY)


def shape_of(cells: Cells) -> tuple[str, ...]:
    """Give the kind and its sizes alone, which ops may share that differ in pass, name or storage."""
    return (cells["kind"], *(cells.get(name, "") for name in KINDS[cells["kind"]].dimensions))


def cells_of(row: Mapping[str, object]) -> dict[str, str]:
    """Give the cells of a row of a table; empty ones are left out."""
    found = {}
    for name in IDENTITY:
        value = row.get(name)
        if value is not None and value == value and value != "":
            found[name] = cell(value if isinstance(value, str) else float(str(value)))
    return found


def distinct(ops: Iterable[Wanted]) -> list[Wanted]:
    """Give each op once, with the weights and the models of all."""
    found: dict[tuple[str, ...], Wanted] = {}
    for one in ops:
        key = key_of(one.cells)
        other = found.get(key)
        if other is None:
            found[key] = one
            continue
        models = ", ".join(dict.fromkeys(filter(None, (other.models, one.models))))
        found[key] = other._replace(weight=other.weight + one.weight, models=models)
    return list(found.values())


def as_table(ops: Sequence[Cells]) -> pd.DataFrame:
    """Make a table of ops, each run once, of their cells."""
    columns: dict[str, list[object]] = {}
    for name in (*_TEXTS, *(name for name in IDENTITY if name not in _TEXTS)):
        texts = [one.get(name, "") for one in ops]
        if name not in _NUMBERS:
            columns[name] = list(texts)
        elif any(texts):
            columns[name] = [float(text) if text else float("nan") for text in texts]
    table = pd.DataFrame(columns)
    passes = table["pass_name"].where(table["pass_name"] != "", "forward")
    return table.assign(count=1.0, pass_name=passes)


Name = Literal["torch", "tensorflow"]
STREAM_NUMEL = 2**25
"""Elements of the tensors that show the bandwidth."""
_STREAM = {"kind": "pointwise", "dtype": "fp32", "engine": "vector", "pass_name": "forward",
           "numel": str(STREAM_NUMEL), "write_byte": cell(4 * STREAM_NUMEL)}  # fmt: skip


@dataclass(frozen=True)
class Library:
    """What runs ops.

    `name`: as in the column ``library`` of timings.
    `worker`: the module whose ``main`` times.
    `knows_op`: whether the op that a row names is made, so that its timing may carry the name.
    `stream`: cells of the op that shows the bandwidth.
    `words`: what the design's ops are called there; "" for any op of the kind. None where they are its own.
    `unsupported`: kinds that are not timed, and why.
    `notes`: what a reader of its profile should know.
    """

    name: Name
    title: str
    worker: str
    knows_op: Callable[[Cells], bool]
    stream: Cells
    words: Mapping[str, str] | None = None
    unsupported: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


LIBRARIES: Mapping[str, Library] = {
    "torch": Library(
        "torch", "PyTorch", "fomkit.harness.torch.worker", makers.knows_op,
        {**_STREAM, "op": "aten::relu_", "read_byte": cell(4 * STREAM_NUMEL)},
    ),
    "tensorflow": Library(
        "tensorflow", "TensorFlow", "fomkit.harness.tensorflow.worker", tensorflow.knows_op,
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
        unsupported=tensorflow.UNSUPPORTED,
        notes=(
            "library: ops run in compiled graphs (tf.function); the call of the function is taken off, and no ops "
            "are fused, as a step fuses some",
            "fresh pages: not measured with TensorFlow; timings of large results have them in themselves",
        ),
    ),
}  # fmt: skip


def choose_library(name: str, device: str) -> tuple[Library, str]:
    """Choose the library by name; "" takes PyTorch, or TensorFlow where PyTorch is not installed.

    Gives with it why it is another than usual; "" where it is not.
    """
    if name and name not in LIBRARIES:
        raise FomkitError("--library", f"{name!r} is not one. {nearest_names(name, get_args(Name))}")
    notes = ""
    if not name:
        name = "torch"
        if find_spec("torch") is None and device == "cpu" and find_spec("tensorflow") is not None:
            name, notes = "tensorflow", "library: TensorFlow, because PyTorch is not here"
    found = LIBRARIES[name]
    if device != "cpu" and found.name == "tensorflow":
        raise FomkitError(
            f"--device {device}", "is timed by events, which TensorFlow does not give. Take --library torch."
        )
    return found, notes


def _why_missing(cells: Cells, library: Library) -> str:
    """Say why an op of the design is not one of the library's; "" where it is."""
    if cells["kind"] in library.unsupported:
        return library.unsupported[cells["kind"]]
    if cells.get("op") and library.words is not None and cells["op"] not in library.words:
        return f"{library.title} has no op that does what {cells['op']} does"
    return ""


def _translated(wanted: Wanted, words: Mapping[str, str]) -> Wanted:
    cells = dict(wanted.cells)
    if name := cells.pop("op", ""):
        cells |= {"op": words[name]} if words[name] else {}
    if cells["kind"] == "conv":
        cells["layout"] = "nhwc"
    if (cells.get("op"), cells.get("pass_name")) == ("Sum", "backward"):
        cells["op"] = "BiasAddGrad"
    return wanted._replace(cells=cells)


def in_words_of(library: Library, ops: Iterable[Wanted]) -> tuple[list[Wanted], list[str]]:
    """Give the ops of the design as a library runs them, and a note of each reason and kind that it does not."""
    words = library.words
    if words is None:
        return list(ops), []
    kept: list[Wanted] = []
    missing: Counter[tuple[str, str]] = Counter()
    for one in ops:
        if why := _why_missing(one.cells, library):
            missing[one.cells["kind"], why] += 1
        else:
            kept.append(_translated(one, words))
    notes = [f"not timed: {count} {kind} of the design, {why}" for (kind, why), count in missing.items()]
    return distinct(kept), notes


START_S = 120.0
"""Time [s] that a process may take to load its library."""
_THREADS = ("OMP", "MKL", "OPENBLAS")


class GoneError(Exception):
    """Why the process that times gave no answer."""


class Child:
    """A process that times ops, and the next one when it dies.

    `command`: what starts it.
    `setup`: ``device``, ``threads`` and ``cache_byte``, which each new process is told first, and the ``library``
      that runs the ops.
    """

    def __init__(self, command: Sequence[str], setup: Mapping[str, Any]) -> None:
        self._command, self._setup = list(command), dict(setup)
        self._library = str(self._setup.get("library", "torch"))
        self._process: subprocess.Popen[str] | None = None
        self._answers: queue.Queue[str] = queue.Queue()
        self._spent_s = self._ended_s = 0.0
        self.facts: Answer = {}

    def __enter__(self) -> Child:
        try:
            self._start()
        except GoneError as reason:
            self.close()
            raise FomkitError(
                "measure",
                f"the process that times ops cannot start: it {reason}. Try its Python: 'import {self._library}'.",
            ) from reason
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            before = _of_children_s()
            self._process.kill()
            self._process.wait()
            self._ended_s += max(self._spent_s, _of_children_s() - before)
            self._spent_s = 0.0
            for stream in (self._process.stdin, self._process.stdout):
                with suppress(OSError):
                    if stream is not None:
                        stream.close()
            self._process = None

    def spent_s(self) -> float:
        """Give the processor time [s] of the process that times and of those before it, as of its last answer."""
        return self._ended_s + self._spent_s

    def _start(self) -> None:
        threads = {f"{name}_NUM_THREADS": str(self._setup["threads"]) for name in _THREADS}
        self._process = subprocess.Popen(  # noqa: S603 - the program is this interpreter
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
            env={**os.environ, **threads},
            # An interrupt from the keyboard is for the one who asks; what is being timed is simply ended.
            start_new_session=True,
        )
        self._answers = queue.Queue()
        threading.Thread(target=self._listen, args=(self._process, self._answers), daemon=True).start()
        self.facts = self._exchange(self._setup, START_S)
        if "reason" in self.facts:
            raise GoneError(self.facts["reason"])

    @staticmethod
    def _listen(process: subprocess.Popen[str], answers: queue.Queue[str]) -> None:
        with suppress(ValueError, OSError):
            for line in process.stdout or ():
                answers.put(line)
        answers.put("")

    def _exchange(self, request: Mapping[str, Any], limit_s: float) -> Answer:
        process = self._process
        if process is None or process.stdin is None:
            raise GoneError("has ended")
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            line = self._answers.get(timeout=limit_s)
        except queue.Empty:
            raise GoneError(f"took longer than {limit_s:.0f} s") from None
        except OSError:
            line = ""
        if not line:
            code = process.wait()
            if code >= 0:
                raise GoneError(f"ended with exit code {code}")
            name = signal.Signals(-code).name
            raise GoneError(f"was ended by {name}{', perhaps for its memory' if name == 'SIGKILL' else ''}")
        answer: Answer = json.loads(line)
        self._spent_s = answer.pop("spent_s", self._spent_s)
        return answer

    def time_op(self, request: Mapping[str, Any], limit_s: float) -> Answer:
        """Have one op timed; a request without ``cells`` asks for the host's cost of an op.

        Gives a dict: ``warm``, ``cold`` (repeats [s]), ``error`` and ``empty_s``; or ``reason``, why there is no
        time: also where the process died or took too long. The next op gets a new process.
        """
        if self._process is None:
            self.__enter__()
        try:
            return self._exchange(request, limit_s)
        except GoneError as reason:
            self.close()
            return {"reason": f"the process that timed it {reason}"}


def _of_children_s() -> float:
    """Give the processor time [s] of all processes that this one started and saw end."""
    found = os.times()
    return found.children_user + found.children_system

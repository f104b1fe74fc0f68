"""Choose the library that runs the ops, write ops as cells and tables in its names, and run the timing process.

`LIBRARIES` describes the libraries, `in_words_of` translates ops of the design, `Child` is the timing process.
"""

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
from fomkit.harness.torch.times import knows_op
from fomkit.harness.torch.worker import Answer
from fomkit.ops.groups import is_known
from fomkit.ops.kinds import KINDS
from fomkit.ops.tables import DIMENSIONS, column_names

Cells = Mapping[str, str]
IDENTITY = ("kind", "op", "dtype", "engine", "pass_name", *(column.name for column in DIMENSIONS))
"""Cells that identify an op."""
_NUMBERS = frozenset(column_names("OPS", "number"))
_TEXTS = ("op", "kind", "dtype", "engine", "pass_name")


class Wanted(NamedTuple):
    """An op to time.

    `cells`: cells of a row of timings by column, as text, and ``lengths``, the sizes of an update's tensors.
    `weight`: relative importance of its error: for models, executions per second of the step.
    `models`: names of its models; "" for an op of the design.
    """

    cells: Cells
    weight: float
    models: str = ""


def cell(value: float | str) -> str:
    """Write a cell as the timing process reads it.

    >>> cell(64.0), cell(0.25), cell("relu")
    ('64', '0.25', 'relu')
    """
    return value if isinstance(value, str) else f"{value:.12g}"


def key_of(cells: Cells) -> tuple[str, ...]:
    """Return the cells that identify an op."""
    return tuple(cells.get(name, "") for name in IDENTITY)


def shape_of(cells: Cells) -> tuple[str, ...]:
    """Return kind and sizes of an op, which ops of different pass or name may share."""
    return (cells["kind"], *(cells.get(name, "") for name in KINDS[cells["kind"]].dimensions))


def cells_of(row: Mapping[str, object]) -> dict[str, str]:
    """Return the non-empty cells of a row of a table."""
    stated = {name: row[name] for name in IDENTITY if is_known(row.get(name))}
    return {name: cell(one if isinstance(one, str) else float(str(one))) for name, one in stated.items()}


def distinct(ops: Iterable[Wanted]) -> list[Wanted]:
    """Return each op once, with the sum of its weights and all its models."""
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
    """Make an op table with count 1 from the cells of ops."""
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


LibraryName = Literal["torch", "tensorflow"]
STREAM_NUMEL = 2**25
"""Elements of the tensors that measure the bandwidth."""
_STREAM = {"kind": "pointwise", "dtype": "fp32", "engine": "vector", "pass_name": "forward",
           "numel": str(STREAM_NUMEL), "write_byte": cell(4 * STREAM_NUMEL)}  # fmt: skip


@dataclass(frozen=True)
class Library:
    """A library that runs ops.

    `name`: as in the column ``library`` of timings.
    `worker`: the module whose ``main`` times ops.
    `knows_op`: whether the harness runs the op that a row names, so that the timing may have that name.
    `stream`: cells of the op that measures the bandwidth.
    `words`: names of the design's ops in this library; "" for any op of the kind. None if the names are the same.
    `unsupported`: kinds that are not timed, and why.
    """

    name: LibraryName
    title: str
    worker: str
    knows_op: Callable[[Cells], bool]
    stream: Cells
    words: Mapping[str, str] | None = None
    unsupported: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


LIBRARIES: Mapping[str, Library] = {
    "torch": Library(
        "torch", "PyTorch", "fomkit.harness.torch.worker", knows_op,
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
            "library: ops run in compiled graphs (tf.function); the call of the function is subtracted, and no "
            "ops are fused, though a step fuses some",
            "fresh pages: not measured with TensorFlow; timings of large results include them",
        ),
    ),
}  # fmt: skip


def choose_library(name: str, device: str) -> tuple[Library, str]:
    """Choose the library by name; "" means PyTorch, or TensorFlow on a CPU without PyTorch.

    Returns the library, and a note if TensorFlow is chosen for that reason, else "".
    """
    if name and name not in LIBRARIES:
        raise FomkitError("--library", f"{name!r} is not one. {nearest_names(name, get_args(LibraryName))}")
    notes = ""
    if not name:
        name = "torch"
        if find_spec("torch") is None and device == "cpu" and find_spec("tensorflow") is not None:
            name, notes = "tensorflow", "library: TensorFlow, because PyTorch is not installed"
    found = LIBRARIES[name]
    if device != "cpu" and found.name == "tensorflow":
        raise FomkitError(
            f"--device {device}", "is timed by events, which TensorFlow does not have. Use --library torch."
        )
    return found, notes


def _why_missing(cells: Cells, library: Library) -> str:
    """Return why the library does not run an op of the design; "" if it does."""
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
    """Return the ops of the design in a library's names, and notes of the kinds it does not run, with reasons."""
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
"""Time limit [s] for a process to load its library."""


class EndedError(Exception):
    """The timing process gave no answer; the message is the reason."""


class Child:
    """The timing process, restarted for the next op after it dies.

    `command`: starts it; `setup`: first message to each new process: ``device``, ``threads``, ``cache_byte``, and
    the ``library`` that runs the ops.
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
        except EndedError as reason:
            self.close()
            refused = self.facts.get("reason")
            raise FomkitError(
                "--device cuda" if refused else "measure",
                refused
                or f"the process that times ops cannot start: it {reason}. "
                f"Try its Python: 'import {self._library}'.",
            ) from reason
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            before = _children_s()
            self._process.kill()
            self._process.wait()
            self._ended_s += max(self._spent_s, _children_s() - before)
            self._spent_s = 0.0
            for stream in (self._process.stdin, self._process.stdout):
                with suppress(OSError):
                    if stream is not None:
                        stream.close()
            self._process = None

    def spent_s(self) -> float:
        """Return the processor time [s] of this process and earlier ones, as of its last answer."""
        return self._ended_s + self._spent_s

    def _start(self) -> None:
        threads = {f"{name}_NUM_THREADS": str(self._setup["threads"]) for name in ("OMP", "MKL", "OPENBLAS")}
        self._process = subprocess.Popen(  # noqa: S603 - the program is this interpreter
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
            env={**os.environ, **threads},
            # A keyboard interrupt must reach only the parent, which then ends this process.
            start_new_session=True,
        )
        self._answers = queue.Queue()
        threading.Thread(target=self._listen, args=(self._process, self._answers), daemon=True).start()
        self.facts = self._exchange(self._setup, START_S)
        if "reason" in self.facts:
            raise EndedError(self.facts["reason"])

    @staticmethod
    def _listen(process: subprocess.Popen[str], answers: queue.Queue[str]) -> None:
        with suppress(ValueError, OSError):
            for line in process.stdout or ():
                answers.put(line)
        answers.put("")

    def _exchange(self, request: Mapping[str, Any], limit_s: float) -> Answer:
        process = self._process
        if process is None or process.stdin is None:
            raise EndedError("has ended")
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            line = self._answers.get(timeout=limit_s)
        except queue.Empty:
            raise EndedError(f"took longer than {limit_s:.0f} s") from None
        except OSError:
            line = ""
        if not line:
            code = process.wait()
            if code >= 0:
                raise EndedError(f"ended with exit code {code}")
            name = signal.Signals(-code).name
            raise EndedError(f"was ended by {name}{', perhaps for lack of memory' if name == 'SIGKILL' else ''}")
        answer: Answer = json.loads(line)
        self._spent_s = answer.pop("spent_s", self._spent_s)
        return answer

    def time_op(self, request: Mapping[str, Any], limit_s: float) -> Answer:
        """Time one op; a request without ``cells`` requests the host's cost of an op.

        Returns ``warm``, ``cold`` (repeats [s]), ``error`` and ``empty_s``; or ``reason``, why there is no time.
        If the process died or took too long, the next op gets a new process.
        """
        if self._process is None:
            self.__enter__()
        try:
            return self._exchange(request, limit_s)
        except EndedError as reason:
            self.close()
            return {"reason": f"the process that timed it {reason}"}


def _children_s() -> float:
    """Return the processor time [s] of all ended child processes of this process."""
    found = os.times()
    return found.children_user + found.children_system

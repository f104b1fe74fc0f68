"""Nesting of a trace's calls: which call ran inside which, which are rows, and their arguments for the rules.

`Nesting` finds the rows, `describe` makes a framework-free `Call`, `step_windows` finds the steps.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import prod
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fomkit.core.units import ITEM_BYTE
from fomkit.frontends.lowering.aten import RULES
from fomkit.frontends.lowering.calls import Array, Call, packed_strides
from fomkit.readers.profilers.kineto_stream import Events, Signature

DTYPES: Mapping[str, str] = {
    "float": "fp32", "double": "fp64", "c10::Half": "fp16", "c10::BFloat16": "bf16", "long int": "int64",
    "long": "int64", "__int64": "int64", "long long": "int64", "int": "int32", "short int": "int16",
    "short": "int16", "signed char": "int8", "unsigned char": "uint8", "bool": "bool",
    "c10::complex<float>": "complex64", "c10::complex<double>": "complex128", "c10::Float8_e4m3fn": "fp8",
    "c10::Float8_e5m2": "fp8", "c10::Float8_e4m3fnuz": "fp8", "c10::Float8_e5m2fnuz": "fp8",
}  # fmt: skip
"""Names of number formats as C++ compilers write them."""
MAX_LENGTH = 1e15


class CallError(ValueError):
    """Why a call cannot be reconstructed from the trace."""


class Schema(NamedTuple):
    """One overload of an op: its arguments with their kind (tensor, list or "") and those written in place."""

    arguments: tuple[tuple[str, str], ...]
    written: tuple[str, ...]


@cache
def schemas() -> tuple[Mapping[str, str], Mapping[str, list[Schema]]]:
    """Read the table of schemas: the state of each op's name, and the overloads of priced ops."""
    states: dict[str, str] = {}
    spellings: dict[str, list[Schema]] = {}
    path = Path(__file__).parents[2] / "frontends" / "lowering" / "aten_schemas.csv"
    for line in path.read_text(encoding="utf-8").splitlines()[1:]:
        name, state, arguments, written = line.split(",")
        states[name] = "priced" if "priced" in (state, states.get(name)) else state
        if state == "priced":
            parts = [argument.partition(":") for argument in arguments.split()]
            named = tuple((argument, kind) for argument, _, kind in parts)
            spellings.setdefault(name, []).append(Schema(named, tuple(written.split())))
    return states, spellings


def _shape_of(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(one) is int and 0 <= one <= MAX_LENGTH for one in value):
        raise CallError("its dims are not whole numbers")
    if len(value) > 64 or prod(value) > MAX_LENGTH:
        raise CallError("its dims are too large")
    return tuple(value)


def make_array(shape: Sequence[int], dtype: str, storage: int, stride: Any = None) -> Array:
    """Describe a tensor; without usable strides it counts as stored row by row."""
    whole = isinstance(stride, list) and len(stride) == len(shape)
    steps = tuple(stride) if whole and all(type(one) is int for one in stride) else packed_strides(shape)
    return Array(tuple(shape), steps, dtype, int(ITEM_BYTE[dtype]), storage)


def parse_value(text: Any) -> Any:
    """Read an argument that is no tensor, as the profiler writes it.

    >>> parse_value("[1, -2]"), parse_value("True"), parse_value("0.5"), parse_value("")
    ([1, -2], True, 0.5, None)
    """
    if not isinstance(text, str) or not text.strip():
        return None
    text = text.strip()
    if text[0] == "[":
        return [parse_value(part) for part in text.strip("[]").split(",") if part.strip()]
    if text in ("True", "False"):
        return text == "True"
    try:
        return float(text) if any(letter in text for letter in ".enf") else int(text)
    except ValueError:
        return text


class _Arguments:
    """The arguments of a signature by position."""

    def __init__(self, signature: Signature, default_dtype: str) -> None:
        dims, types, strides, values = signature
        if not isinstance(dims, list) or not isinstance(types, list) or len(dims) != len(types):
            raise CallError("its dims or types are not in the trace")
        self.dims, self.types, self._default_dtype = dims, types, default_dtype
        self._strides = strides if isinstance(strides, list) and len(strides) == len(dims) else [None] * len(dims)
        self._values = values if isinstance(values, list) and len(values) == len(dims) else [None] * len(dims)

    def kind(self, place: int) -> str:
        """Return the kind of an argument: tensor, list or ""."""
        word = self.types[place]
        if isinstance(word, list):
            return "list"
        if not isinstance(word, str):
            return ""
        return "list" if word in ("TensorList", "GenericList") else "tensor" if word in DTYPES else ""

    def argument(self, place: int, kind: str) -> Any:
        """Return an argument in the form that rules use."""
        word, dims, stride = self.types[place], self.dims[place], self._strides[place]
        if kind == "tensor":
            if isinstance(word, str) and word in DTYPES:
                return make_array(_shape_of(dims), DTYPES[word], place, stride)
            if word and word not in ("Scalar", "ScalarList"):
                raise CallError(f"its number format {str(word)[:40]!r} is not known")
            return None
        if kind == "list" and isinstance(dims, list) and self.kind(place) == "list":
            steps = stride if isinstance(stride, list) and len(stride) == len(dims) else [None] * len(dims)
            words = word if isinstance(word, list) and len(word) == len(dims) else [""] * len(dims)
            return tuple(
                make_array(
                    _shape_of(one), DTYPES.get(str(each), self._default_dtype), 1000 * (place + 1) + number, step
                )
                for number, (one, step, each) in enumerate(zip(dims, steps, words, strict=True))
            )
        return parse_value(self._values[place])


def _fits(schema: Schema, given: _Arguments) -> bool:
    """Return whether arguments fit an overload, or the overload with a tensor for the result appended."""
    more = len(given.dims) - len(schema.arguments)
    if more not in (0, 1) or (more == 1 and given.kind(-1) != "tensor"):
        return False
    for place, (_, kind) in enumerate(schema.arguments):
        found = given.kind(place)
        if found != kind and given.types[place]:
            return False
    return True


def describe(name: str, signature: Signature, default_dtype: str) -> tuple[Call, Schema]:
    """Return a call in the form that rules use, with its overload; its results are those written in place.

    `name`: the op's without its library; `default_dtype`: number format of lists of tensors, not in the trace.
    """
    given = _Arguments(signature, default_dtype)
    fitting = [schema for schema in schemas()[1].get(name, ()) if _fits(schema, given)]
    if not fitting:
        raise CallError("its arguments are unknown")
    schema = min(fitting, key=lambda one: len(given.dims) - len(one.arguments))
    arguments = {argument: given.argument(place, kind) for place, (argument, kind) in enumerate(schema.arguments)}
    results = tuple(value for one in schema.written if isinstance(value := arguments.get(one), Array))
    if len(given.dims) > len(schema.arguments):
        results = (given.argument(len(given.dims) - 1, "tensor"),)
    return Call(f"aten::{name}", arguments, results), schema


def positional_arguments(signature: Signature, default_dtype: str) -> list[Any]:
    """Return the arguments of a call whose overload is unknown, by position."""
    given = _Arguments(signature, default_dtype)
    return [given.argument(place, given.kind(place)) for place in range(len(given.dims))]


OWNERS = ("lstm", "gru", "rnn_tanh", "rnn_relu", "scaled_dot_product_attention")
"""Ops that are one row each, with all ops inside."""
LATE = ("linear",)
"""Priced ops that stay undivided under ``inference_mode`` only; otherwise the ops inside count."""
FORWARD_PASS, BACKWARD_PASS, UPDATE_PASS, INPUT_PASS = range(4)
(
    _OWNER, _PRICED, _LATE, _NOTHING, _COMPOSITE, _UNSUPPORTED, _UNKNOWN, _FRAME, _EVALUATE, _UPDATE, _LOADER,
    _ZERO_GRAD,
) = range(12)  # fmt: skip
_MARKS = (
    ("autograd::engine::evaluate_function", _EVALUATE), ("Optimizer.step#", _UPDATE),
    ("Optimizer.zero_grad#", _ZERO_GRAD), ("enumerate(DataLoader)#", _LOADER),
)  # fmt: skip


def _role(name: str) -> int:
    for mark, role in _MARKS:
        if name.startswith(mark):
            return role
    library, separator, short = name.partition("::")
    if not separator or library == "torch" or " " in name:
        return _FRAME
    if library != "aten":
        return _UNKNOWN
    if short in OWNERS:
        return _OWNER
    if short in LATE:
        return _LATE
    for spelling in (short, short.removesuffix("_")):
        if spelling in RULES:
            return _NOTHING if RULES[spelling] is None else _PRICED
    states = {
        "priced": _PRICED, "zero_work": _NOTHING, "composite": _COMPOSITE, "unsupported": _UNSUPPORTED,
    }  # fmt: skip
    return states.get(schemas()[0].get(short, ""), _UNKNOWN)


@dataclass
class Rows:
    """The calls that are rows, in columns.

    `node`: sequence number of the autograd node that ran the call; -1 if none did.
    `update`: host event of the optimizer's step that the call is part of; -1 if none.
    `known`: 1 if the op has a rule.
    """

    event: array[int] = field(default_factory=lambda: array("i"))
    pass_code: array[int] = field(default_factory=lambda: array("b"))
    node: array[int] = field(default_factory=lambda: array("q"))
    update: array[int] = field(default_factory=lambda: array("i"))
    known: array[int] = field(default_factory=lambda: array("b"))


@dataclass(slots=True)
class _Frame:
    event: int
    role: int
    pass_code: int
    node: int
    update: int
    owner: int
    shielded: bool
    has_row: bool = False


_GROUND = _Frame(-1, _FRAME, FORWARD_PASS, -1, -1, -1, shielded=False)


class Nesting:
    """The nesting of all host events.

    `parent`: the innermost event around each; -1 for none.
    `row_of`: the row that an event is; -1 for others.
    `owners`: sequence number to the row, one of `OWNERS`, in which the forward op of this number ran; -1 for none.
    `updates`: event of each optimizer's step to its implementation: per_tensor, foreach or fused.
    """

    def __init__(self, events: Events) -> None:
        self._events = events
        self._roles = [_role(name) for name in events.names.values]
        count = len(events.start)
        self.parent = array("i", [-1]) * count
        self.row_of = array("i", [-1]) * count
        self.rows = Rows()
        self.owners: dict[int, int] = {}
        self.updates: dict[int, str] = {}
        thread, start, end = (np.frombuffer(column, column.typecode) if count else np.zeros(0)
                              for column in (events.thread, events.start, events.end))  # fmt: skip
        self.order = np.lexsort((-end, start, thread))
        self._sweep()

    def _sweep(self) -> None:
        start, end, thread = self._events.start, self._events.end, self._events.thread
        stack: list[_Frame] = []
        current = -1
        for event in self._in_order():
            if thread[event] != current:
                while stack:
                    self._leave(stack.pop(), stack)
                current = thread[event]
            while stack and start[event] >= end[stack[-1].event]:
                self._leave(stack.pop(), stack)
            around = stack[-1] if stack else _GROUND
            self.parent[event] = around.event
            stack.append(self._enter(event, around))
        while stack:
            self._leave(stack.pop(), stack)

    def _in_order(self) -> Iterator[int]:
        """Yield the events thread by thread in order of their start; a list of all would double the memory."""
        for first in range(0, len(self.order), 100_000):
            yield from self.order[first : first + 100_000].tolist()

    def _enter(self, event: int, around: _Frame) -> _Frame:
        events = self._events
        role = self._roles[events.name[event]]
        frame = _Frame(event, role, around.pass_code, around.node, around.update, around.owner, around.shielded)
        sequence = events.sequence[event]
        if role == _EVALUATE or events.forward_thread[event] > 0:
            frame.pass_code, frame.node = BACKWARD_PASS, sequence if sequence >= 0 else frame.node
        elif role in (_UPDATE, _ZERO_GRAD):
            frame.pass_code, frame.update = UPDATE_PASS, event if role == _UPDATE else -1
            if role == _UPDATE:
                self.updates[event] = "per_tensor"
        elif role == _LOADER:
            frame.pass_code = INPUT_PASS
        elif frame.update >= 0 and role in (_PRICED, _UNSUPPORTED):
            name = events.names.values[events.name[event]]
            for mark in ("foreach", "fused"):
                if name.startswith(f"aten::_{mark}_"):
                    self.updates[frame.update] = mark
        if not frame.shielded and role in (_OWNER, _PRICED, _UNSUPPORTED):
            self._add(frame, known=role != _UNSUPPORTED)
            if role == _OWNER and frame.pass_code == FORWARD_PASS:
                frame.owner = self.row_of[event]
        if sequence >= 0 and frame.pass_code == FORWARD_PASS and (frame.owner >= 0 or sequence in self.owners):
            # The last call with a number made its node; earlier calls that make no node only show it.
            self.owners[sequence] = frame.owner
        frame.shielded |= role in (_OWNER, _PRICED, _UNSUPPORTED, _NOTHING)
        return frame

    def _add(self, frame: _Frame, *, known: bool) -> None:
        self.row_of[frame.event] = len(self.rows.event)
        self.rows.event.append(frame.event)
        self.rows.pass_code.append(frame.pass_code)
        self.rows.node.append(frame.node)
        self.rows.update.append(frame.update)
        self.rows.known.append(known)
        frame.has_row = True

    def _leave(self, frame: _Frame, stack: list[_Frame]) -> None:
        if not frame.has_row and not frame.shielded and frame.role in (_LATE, _UNKNOWN):
            self._add(frame, known=frame.role == _LATE)
        if stack and frame.has_row:
            stack[-1].has_row = True

    def around(self, event: int) -> Iterator[int]:
        """Yield an event and those around it, from the inside out."""
        while event >= 0:
            yield event
            event = self.parent[event]

    def row_around(self, event: int) -> int:
        """Return the row that contains an event; -1 for none."""
        return next((self.row_of[one] for one in self.around(event) if self.row_of[one] >= 0), -1)


def step_windows(events: Events) -> tuple[list[tuple[float, float]], str]:
    """Return start and end [µs] of the steps, in order, and the kind of mark that defines them.

    The mark is ``ProfilerStep``, ``Optimizer.step`` (a step ends with the optimizer's) or "": then the file has no
    marks and counts as one step.
    """
    places = _marked(events, "ProfilerStep#")
    if places:
        return sorted({(events.start[place], events.end[place]) for place in places}), "ProfilerStep"
    places = _marked(events, "Optimizer.step#")
    first = min(places, key=lambda place: events.start[place], default=-1)
    ends = sorted(events.end[place] for place in places if events.name[place] == events.name[first])
    if len(ends) < 2:
        return [], ""
    return list(zip([float("-inf"), *ends[:-1]], ends, strict=True)), "Optimizer.step"


def step_at(windows: Sequence[tuple[float, float]], at: float) -> int:
    """Return the step that contains a moment [µs]; -1 for none."""
    place = bisect_right(windows, at, key=itemgetter(0)) - 1
    return place if place >= 0 and at < windows[place][1] else -1


def _marked(events: Events, mark: str) -> list[int]:
    marked = [number for number, name in enumerate(events.names.values) if name.startswith(mark)]
    names = np.frombuffer(events.name, events.name.typecode) if len(events.name) else np.zeros(0)
    return [int(place) for place in np.flatnonzero(np.isin(names, marked))] if marked else []

"""Who ran inside whom: of the nested calls of a trace, those that are rows, with their pass."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from fomkit.trace.aten_table import RULES
from fomkit.trace.kineto_call import schemas
from fomkit.trace.kineto_events import Events

OWNERS = ("lstm", "gru", "rnn_tanh", "rnn_relu", "scaled_dot_product_attention")
"""Ops that are one row each, whatever runs inside."""
LATE = ("linear",)
"""Priced ops that stay in one piece under ``inference_mode`` only; else what is inside counts."""
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

    Attributes
    ----------
    event : array of int
        Place among the host events.
    pass_code : array of int
    node : array of int
        Sequence number of the autograd node that ran the call; -1 where none did.
    update : array of int
        Host event of the optimizer's step that the call is part of; -1 where none.
    known : array of int
        1 where the op has a rule.
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

    Attributes
    ----------
    parent : array of int
        The innermost event around each; -1 for none.
    rows : Rows
    row_of : array of int
        The row that an event is; -1 for others.
    owners : dict
        Sequence number to the row, one of `OWNERS`, that the forward op of this number ran in; -1 for none.
    updates : dict
        Event of each optimizer's step to how it is implemented: per_tensor, foreach or fused.
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
        """Give the events thread by thread in order of their start; a list of all would double the memory."""
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
            self._note_implementation(event, frame.update)
        if not frame.shielded and role in (_OWNER, _PRICED, _UNSUPPORTED):
            self._add(frame, known=role != _UNSUPPORTED)
            if role == _OWNER and frame.pass_code == FORWARD_PASS:
                frame.owner = self.row_of[event]
        if sequence >= 0 and frame.pass_code == FORWARD_PASS and (frame.owner >= 0 or sequence in self.owners):
            # The last call with a number made its node; calls before, that make none, only show it.
            self.owners[sequence] = frame.owner
        frame.shielded |= role in (_OWNER, _PRICED, _UNSUPPORTED, _NOTHING)
        return frame

    def _note_implementation(self, event: int, update: int) -> None:
        name = self._events.names.values[self._events.name[event]]
        for mark in ("foreach", "fused"):
            if name.startswith(f"aten::_{mark}_"):
                self.updates[update] = mark

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
        """Give an event and those around it, from the inside out."""
        while event >= 0:
            yield event
            event = self.parent[event]

    def row_around(self, event: int) -> int:
        """Give the row that an event is or lies in; -1 for none."""
        return next((self.row_of[one] for one in self.around(event) if self.row_of[one] >= 0), -1)


def step_windows(events: Events) -> tuple[list[tuple[float, float]], str]:
    """Give start and end [µs] of the steps, in order, and what tells them.

    Returns
    -------
    windows : list of tuple of float
        Empty where nothing tells steps; the file is then taken as one.
    told : str
        ``ProfilerStep``, ``Optimizer.step`` (a step ends with the optimizer's) or "".
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


def _marked(events: Events, mark: str) -> list[int]:
    marked = [number for number, name in enumerate(events.names.values) if name.startswith(mark)]
    names = np.frombuffer(events.name, events.name.typecode) if len(events.name) else np.zeros(0)
    return [int(place) for place in np.flatnonzero(np.isin(names, marked))] if marked else []

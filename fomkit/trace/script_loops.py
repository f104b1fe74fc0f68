"""The loops that a training step runs in, read from the user's source: how many epochs, where a loop says so."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

_ARITHMETIC: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
}  # fmt: skip
_WRAPPERS = frozenset({"enumerate", "tqdm", "islice", "iter", "zip", "reversed", "progress_bar", "track"})
"""Calls that hand on, one by one, what their first argument gives."""
_RANGES = frozenset({"range", "trange"})


class Unknown(Exception):  # noqa: N818 - a verdict, not a fault
    """The source does not say."""


@dataclass(frozen=True)
class Epochs:
    """How many epochs a run has: None where no loop says it, and where that was read or why it is not known."""

    count: int | None
    told: str


@dataclass(frozen=True)
class _Loop:
    node: ast.For | ast.While
    frame: FrameType

    @property
    def place(self) -> str:
        return f"{Path(self.frame.f_code.co_filename).name}:{self.node.lineno}"


@cache
def _loops_of_file(path: str) -> tuple[ast.For | ast.While, ...]:
    try:
        tree = ast.parse(Path(path).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return ()
    return tuple(node for node in ast.walk(tree) if isinstance(node, ast.For | ast.While))


def _loops_around(frame: FrameType) -> list[_Loop]:
    """Give the loops of a frame's own function whose body runs now, the outermost first."""
    line, code = frame.f_lineno, frame.f_code
    if line is None:
        return []
    first = code.co_firstlineno
    found = [
        _Loop(node, frame)
        for node in _loops_of_file(code.co_filename)
        if first <= node.lineno and node.body[0].lineno <= line <= (node.body[-1].end_lineno or 0)
    ]
    return sorted(found, key=lambda loop: loop.node.lineno)


def _value(node: ast.expr, frame: FrameType) -> Any:
    """Look a plain expression up in a frame: names, attributes, items and arithmetic; nothing is called."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        for names in (frame.f_locals, frame.f_globals):
            if node.id in names:
                return names[node.id]
    if isinstance(node, ast.Attribute):
        return getattr(_value(node.value, frame), node.attr)
    if isinstance(node, ast.Subscript):
        return _value(node.value, frame)[_value(node.slice, frame)]
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        return _ARITHMETIC[type(node.op)](_value(node.left, frame), _value(node.right, frame))
    if isinstance(node, ast.Call) and _called(node) == "int" and len(node.args) == 1:
        return int(_value(node.args[0], frame))
    raise Unknown


def _known(node: ast.expr, frame: FrameType) -> Any:
    try:
        return _value(node, frame)
    except Exception:  # whatever the user's objects raise when they are looked at
        return None


def _is_over(node: ast.expr, frame: FrameType, loader: Any) -> bool:
    """Tell whether an expression is a loader, or a progress bar around it."""
    value = _known(node, frame)
    return value is loader or getattr(value, "__dict__", {}).get("iterable") is loader


def _called(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


def _unwrapped(node: ast.expr) -> Iterator[ast.expr]:
    """Give what a loop goes over: the expression, and where it is only wrapped, what is inside."""
    yield node
    if isinstance(node, ast.Call) and _called(node) in _WRAPPERS:
        for argument in node.args:
            yield from _unwrapped(argument)


def _rounds(loop: _Loop) -> int | None:
    """Give how often a ``for … in range(…)`` runs."""
    if not isinstance(loop.node, ast.For):
        return None
    for node in _unwrapped(loop.node.iter):
        if isinstance(node, ast.Call) and _called(node) in _RANGES and 1 <= len(node.args) <= 3:
            bounds = [_known(argument, loop.frame) for argument in node.args]
            return len(range(*bounds)) if all(type(bound) is int for bound in bounds) else None
    return None


def epochs_around(frame: FrameType | None, is_user_file: Callable[[str], bool], loader: Any) -> Epochs:
    """Find the epochs: the rounds of the ``range`` loop right outside of the loop over the training data.

    Parameters
    ----------
    frame : frame
        The innermost of the program's frames.
    is_user_file : function of a path
        Tells the user's own source from libraries'.
    loader : object
        What the training data comes from; None where there is none.
    """
    if loader is None:
        return Epochs(None, "no loop over a DataLoader was found")
    loops: list[_Loop] = []
    while frame is not None:
        if is_user_file(frame.f_code.co_filename):
            loops = _loops_around(frame) + loops
        frame = frame.f_back
    for place, loop in enumerate(loops):
        if isinstance(loop.node, ast.For) and any(
            _is_over(node, loop.frame, loader) for node in _unwrapped(loop.node.iter)
        ):
            return _outside(loops[:place], loop)
    return Epochs(None, "the loop over the DataLoader is not one that can be read")


def _outside(loops: list[_Loop], data: _Loop) -> Epochs:
    if not loops:
        return Epochs(None, f"no loop stands around the one over the data at {data.place}")
    rounds = _rounds(loops[-1])
    if rounds is None:
        return Epochs(None, f"the loop at {loops[-1].place} is no range of a known length")
    return Epochs(rounds or None, f"from the loop at {loops[-1].place}")

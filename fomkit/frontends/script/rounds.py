"""The rounds of a program's own loops: when they end, and how to run one again for other values."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

from fomkit.frontends.script.loops import evaluated, loops_of_program


class RoundWatch:
    """Calls a function whenever a loop around a line of the program begins a round, or ends.

    Python's tracing of lines shows it, whatever a round does.
    """

    def __init__(
        self, is_user_file: Callable[[str], bool], on_round: Callable[[tuple[CodeType, int]], None]
    ) -> None:
        self._is_user_file, self._on_round = is_user_file, on_round
        self._heads: set[tuple[CodeType, int]] = set()

    def around(self, frame: FrameType) -> str:
        """Watch the loops around a frame; return the place of the innermost, "" if there is none."""
        loops, _ = loops_of_program(frame, self._is_user_file)
        for loop in loops:
            self._heads.add(loop.head)
            loop.frame.f_trace = self._seen
        if loops:
            # The interpreter calls a frame's own function only if there is one for all.
            sys.settrace(lambda *_: None)
        return loops[-1].place if loops else ""

    def _seen(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "line" and (head := (frame.f_code, frame.f_lineno)) in self._heads:
            self._on_round(head)
        return self._seen


@dataclass(frozen=True)
class Round:
    """A round of a loop that runs now, as a function that repeats it.

    `head`: function and line of the loop.
    `item`: what the loop's target holds; None for a loop without one.
    `names`: what the round has read so far as a whole, not only in parts, by name.
    """

    head: tuple[CodeType, int]
    item: Any
    names: Mapping[str, Any]
    _code: CodeType
    _known: Mapping[str, Any]

    def again(self, item: Any, names: Mapping[str, Any]) -> None:
        """Run the round for another item and other values of names; the program's own variables stay."""
        exec(self._code, {**self._known, **names, "__item": item})  # noqa: S102 - this is how the program runs


def _held(target: ast.expr, frame: FrameType) -> Any:
    """Return what the target of a loop holds."""
    return tuple(_held(one, frame) for one in target.elts) if hasattr(target, "elts") else evaluated(target, frame)


class _Leaving(ast.NodeTransformer):
    """Replaces a return from the round's function, which is no function here, by leaving the round."""

    def visit_Return(self, node: ast.Return) -> ast.AST:
        return ast.copy_location(ast.Break(), node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return node


def round_around(
    frame: FrameType, is_user_file: Callable[[str], bool], head: tuple[CodeType, int]
) -> Round | None:
    """Return the round around a frame of the loop with this head; None if it cannot be repeated."""
    loops = [loop for loop in loops_of_program(frame, is_user_file)[0] if loop.head == head]
    if not loops:
        return None
    node, own = loops[-1].node, loops[-1].frame
    known = {**own.f_globals, **own.f_locals}
    target = f"{ast.unparse(node.target)} = __item" if isinstance(node, ast.For) else ""
    once = ast.parse(f"{target}\nfor __once in (0,): pass")  # a loop, in which break may stand
    once.body[-1].body = [_Leaving().visit(deepcopy(part)) for part in node.body]  # type: ignore[attr-defined]
    parts = [one for part in node.body for one in ast.walk(part)]
    cut = {ast.unparse(one.value) for one in parts if isinstance(one, ast.Subscript)}
    # What it reads only later, such as gradients, is still that of the round before.
    names = (one for one in parts if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load))
    read = {one.id for one in names if one.lineno <= own.f_lineno} - cut
    try:
        code = compile(once, own.f_code.co_filename, "exec")
    except SyntaxError:  # a generator
        return None
    item = _held(node.target, own) if isinstance(node, ast.For) else None
    return Round(loops[-1].head, item, {name: known[name] for name in read & known.keys()}, code, known)

"""Find how long a running program trains from the loops around its steps: their source, and the values of now."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice, takewhile
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from fomkit.frontends.model_file import library_file, source_tree

_ARITHMETIC: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
}  # fmt: skip
_CALLS: Mapping[str, Callable[..., Any]] = {
    "int": int, "len": len, "ceil": math.ceil, "floor": math.floor, "min": min, "max": max, "round": round,
    "size": lambda tensor, *axis: tensor.shape[axis[0]] if axis else tensor.shape,
}  # fmt: skip
"""Functions that are called to evaluate an expression, by name; ``size`` is a method."""
_WRAPPERS = frozenset({"enumerate", "tqdm", "islice", "iter", "zip", "reversed", "progress_bar", "track"})
"""Calls that yield the items of their first argument one by one."""
_RANGES = frozenset({"range", "trange"})
_INSIDE = ("iterable", "base_dataloader", "_dataloader")
"""Attributes by which progress bars, and loaders of accelerate and Lightning Fabric, hold their source."""


class Unknown(Exception):  # noqa: N818 - a verdict, not a fault
    """The source does not determine the value."""


@dataclass(frozen=True)
class RunLength:
    """How long a program trains; None where it is unknown.

    `epochs`, `origin`: their number, and how it is known or why it is not.
    `train_samples`, `validation_samples`: of one epoch, if a trainer states them; otherwise the loader's are used.
    `steps`: of the optimizer in the whole run, if the run is limited by steps, not by epochs.
    `accumulates`: backward passes per step of the optimizer, as set in the trainer.
    `remarks`: further notes from the trainer.
    """

    epochs: int | None
    origin: str
    train_samples: int | None = None
    validation_samples: int | None = None
    steps: int | None = None
    accumulates: int | None = None
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Loop:
    node: ast.For | ast.While
    frame: FrameType

    @property
    def place(self) -> str:
        return f"{Path(self.frame.f_code.co_filename).name}:{self.node.lineno}"

    @property
    def head(self) -> tuple[CodeType, int]:
        return self.frame.f_code, self.node.lineno


@cache
def _loops_of_file(path: str) -> tuple[ast.For | ast.While, ...]:
    tree = source_tree(Path(path))
    return tuple(node for node in (ast.walk(tree) if tree else ()) if isinstance(node, ast.For | ast.While))


def _loops_around(frame: FrameType) -> list[_Loop]:
    """Return the loops of a frame's own function whose body runs now, the outermost first."""
    line, code = frame.f_lineno, frame.f_code
    if line is None:
        return []
    own = (node for node in _loops_of_file(code.co_filename) if code.co_firstlineno <= node.lineno)
    found = [node for node in own if node.body[0].lineno <= line <= (node.body[-1].end_lineno or 0)]
    return [_Loop(node, frame) for node in sorted(found, key=lambda node: node.lineno) if _is_in_body(node, frame)]


def _column_of(frame: FrameType) -> int | None:
    return next(islice(frame.f_code.co_positions(), frame.f_lasti // 2, None))[2]


def _is_in_body(node: ast.For | ast.While, frame: FrameType) -> bool:
    """Return whether a frame runs a loop's body, which may be on the line of its head."""
    first, column = node.body[0], _column_of(frame)
    return first.lineno > node.lineno or column is None or column >= first.col_offset


def evaluated(node: ast.expr, frame: FrameType) -> Any:
    """Evaluate a plain expression in a frame: names, attributes, items, arithmetic, `_CALLS`."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        for names in (frame.f_locals, frame.f_globals):
            if node.id in names:
                return names[node.id]
    if isinstance(node, ast.Attribute):
        return getattr(evaluated(node.value, frame), node.attr)
    if isinstance(node, ast.Subscript):
        return evaluated(node.value, frame)[evaluated(node.slice, frame)]
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        return _ARITHMETIC[type(node.op)](evaluated(node.left, frame), evaluated(node.right, frame))
    if isinstance(node, ast.Call) and _called_name(node) in _CALLS and not node.keywords:
        owner = [node.func.value] * (node.func.attr == "size") if isinstance(node.func, ast.Attribute) else []
        return _CALLS[_called_name(node)](*(evaluated(one, frame) for one in (*owner, *node.args)))
    raise Unknown


def _evaluated_or_none(node: ast.expr, frame: FrameType) -> Any:
    try:
        return evaluated(node, frame)
    except Exception:  # the user's objects may raise anything
        return None


def _is_loader(node: ast.expr, frame: FrameType, loader: Any) -> bool:
    """Return whether an expression is the loader, or an object that wraps it, or makes a loader of its class."""
    if isinstance(node, ast.Call) and _evaluated_or_none(node.func, frame) is type(loader):
        return True
    value = _evaluated_or_none(node, frame)
    return value is loader or any(getattr(value, "__dict__", {}).get(name) is loader for name in _INSIDE)


def _called_name(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


def _unwrapped(node: ast.expr) -> Iterator[ast.expr]:
    """Yield the expression that a loop iterates over, then, if it is a known wrapper, what is inside."""
    yield node
    if isinstance(node, ast.Call) and _called_name(node) in _WRAPPERS:
        for argument in node.args:
            yield from _unwrapped(argument)


def _assigned(loop: _Loop) -> list[ast.expr]:
    """Return what a loop iterates over; for a name also all that its file assigns to it, as a wrapped iterator."""
    if isinstance(loop.node, ast.While):
        return []
    name, tree = getattr(loop.node.iter, "id", ""), source_tree(Path(loop.frame.f_code.co_filename))
    made = (one for one in ast.walk(tree) if isinstance(one, ast.Assign)) if name and tree else ()
    return [loop.node.iter, *(one.value for one in made if getattr(one.targets[0], "id", "") == name)]


def _rounds(loop: _Loop) -> int | None:
    """Return the rounds of a loop over a range, or of one that counts to a limit; None for any other."""
    if isinstance(loop.node, ast.While):
        return _rounds_to_limit(loop, loop.node)
    for node in _unwrapped(loop.node.iter):
        if isinstance(node, ast.Call) and _called_name(node) in _RANGES and 1 <= len(node.args) <= 3:
            bounds = [_evaluated_or_none(argument, loop.frame) for argument in node.args]
            return len(range(*bounds)) if all(type(bound) is int for bound in bounds) else None
        found = _evaluated_or_none(node, loop.frame)
        found = getattr(found, _INSIDE[0], found)
        if hasattr(found, "shape") and hasattr(found, "__len__"):
            return len(found)
        if isinstance(found, range | list | tuple) and not any(isinstance(one, str) for one in found):
            return len(found)
    return None


_LIMITS: Mapping[type, int] = {ast.Lt: 0, ast.LtE: 1, ast.GtE: 0, ast.Gt: 1, ast.Eq: 0}
"""Comparisons of a counter with the last value, and whether this value has a round too."""


def _limits_of_break(test: ast.expr) -> list[ast.expr]:
    """Return the parts of a test each of which ends a loop by itself; with `and`, the others check the limit."""
    parts = test.values if isinstance(test, ast.BoolOp) else [test]
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        limits = {ast.unparse(part.comparators[0]) for part in parts if isinstance(part, ast.Compare)}
        parts = [part for part in parts if ast.unparse(getattr(part, "left", part)) not in limits]
    return parts if len(parts) == 1 or not isinstance(getattr(test, "op", None), ast.And) else []


def _rounds_to_limit(loop: _Loop, node: ast.While) -> int | None:
    """Return the rounds of ``while n < last``, or of ``while True`` with ``if n >= last: break``."""
    tests: list[ast.expr] = [node.test]
    if isinstance(node.test, ast.BoolOp):  # of `or` no part is a limit
        tests = node.test.values[: isinstance(node.test.op, ast.And)]
    kinds: tuple[type, ...] = (ast.Lt, ast.LtE)
    if isinstance(node.test, ast.Constant):
        kinds = (ast.GtE, ast.Gt)
        breaks = (one for one in node.body if isinstance(one, ast.If) and isinstance(one.body[-1], ast.Break))
        tests = [part for one in breaks for part in _limits_of_break(one.test)]
    for test in tests:
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and type(test.ops[0]) in kinds:
            first = _first_value(test.left, loop.frame)
            last = _evaluated_or_none(test.comparators[0], loop.frame)
            if first is not None and type(last) is int:
                # The last round of a loop that counts, then breaks, does not come to what runs now.
                ends = (
                    test is not node.test and loop.frame.f_lineno > test.lineno and _is_raised_before(test, node)
                )
                return max(last - first + _LIMITS[type(test.ops[0])] - ends, 0)
    return None


def _is_raised_before(test: ast.Compare, loop: ast.While) -> bool:
    """Return whether a loop raises the counter that it tests before it does so."""
    raised = f"{ast.unparse(test.left)} += 1"
    return any(ast.unparse(one) == raised and one.lineno < test.lineno for one in loop.body)


def _first_value(counter: ast.expr, frame: FrameType) -> int | None:
    """Return the only constant that a file assigns to a counter that it raises by 1; None for none or several."""
    name, found, raised = ast.unparse(counter), set(), False
    tree = source_tree(Path(frame.f_code.co_filename))
    for node in ast.walk(tree) if tree else ():
        raised |= isinstance(node, ast.AugAssign) and ast.unparse(node) == f"{name} += 1"
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            continue
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            parts: list[tuple[ast.expr, Any]] = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                parts = [*zip(target.elts, node.value.elts, strict=False)]
            found |= {getattr(value, "value", None) for one, value in parts if ast.unparse(one) == name}
    constants, now = [one for one in found if type(one) is int], _evaluated_or_none(counter, frame)
    if not raised or len(constants) != 1:
        return None
    # A counter near its constant began there, and not where another branch begins, as from a checkpoint.
    return constants[0] if len(found) == 1 or (type(now) is int and 0 <= now - constants[0] <= 100) else None


def loops_of_program(
    frame: FrameType | None, is_user_file: Callable[[str], bool]
) -> tuple[list[_Loop], list[FrameType]]:
    """Return the loops around a frame and the frames of the program and its libraries, the outermost first."""
    frames: list[FrameType] = []
    inner: list[FrameType] = []
    while frame is not None:
        is_own = is_user_file(frame.f_code.co_filename)
        if is_own or library_file(frame.f_code.co_filename):
            inner = [frame, *inner]
        frames = inner if is_own else frames  # without what runs the program
        frame = frame.f_back
    loops = [loop for frame in frames for loop in _loops_around(frame)]
    return loops, frames


@dataclass(frozen=True)
class DataLoop:
    """A loop over some data, and the number of epochs by the loop around it."""

    data: Any
    length: RunLength


def data_loop(
    frame: FrameType | None, is_user_file: Callable[[str], bool], is_data: Callable[[Any], bool]
) -> DataLoop | None:
    """Find the outermost loop around a frame over data of the wanted kind."""
    loops, _ = loops_of_program(frame, is_user_file)
    for place, loop in enumerate(loops):
        for node in _unwrapped(loop.node.iter) if isinstance(loop.node, ast.For) else ():
            if is_data(value := _evaluated_or_none(node, loop.frame)):
                return DataLoop(value, _epochs_outside(loops[:place], loop))
    return None


def heads_around(frame: FrameType, is_user_file: Callable[[str], bool]) -> set[tuple[CodeType, int]]:
    """Return the function and line of each loop around a frame."""
    return {loop.head for loop in loops_of_program(frame, is_user_file)[0]}


def _without_repeats(
    loops: list[_Loop], anew: Container[tuple[CodeType, int]]
) -> tuple[list[_Loop], tuple[str, ...]]:
    """Leave out the outer loops each of whose rounds trains from the beginning, unless they are all; note them."""
    repeats = list(takewhile(lambda loop: loop.head in anew, loops))
    if len(repeats) == len(loops):
        return loops, ()
    where = "the loop at {} makes an optimizer in each round, as for each fold: one such round is the run"
    return loops[len(repeats) :], tuple(where.format(loop.place) for loop in repeats)


def run_by_loops(
    frame: FrameType | None,
    is_user_file: Callable[[str], bool],
    loader: Any,
    anew: Container[tuple[CodeType, int]] = (),
    around: Container[tuple[CodeType, int]] = (),
) -> RunLength:
    """Find the epochs: the rounds of the ``range`` loop outside the loop over the training data.

    Loops of libraries count as those of the program do, except those of PyTorch. Where no loop iterates over a
    loader, the rounds of all loops are the steps, if all are known.

    `frame`: the innermost of the program's frames; `is_user_file`: whether a source file is the user's own;
    `loader`: source of the training data; None if there is none; `anew`: loops in which an optimizer was made;
    `around`: loops around a backward pass, since one around the step alone may be over optimizers.
    """
    loops, frames = loops_of_program(frame, is_user_file)
    loops = [loop for loop in loops if loop.head in around] or loops
    for place, loop in enumerate(loops):
        iterated = (part for one in _assigned(loop) for part in _unwrapped(one))
        if loader is not None and any(_is_loader(node, loop.frame, loader) for node in iterated):
            outside, repeats = _without_repeats(loops[:place], anew)
            found = _epochs_outside(outside, loop)
            return replace(found, remarks=(*found.remarks, *repeats))
    loops, repeats = _without_repeats(loops, anew)
    rounds = [_rounds(loop) for loop in loops]
    own = all(is_user_file(loop.frame.f_code.co_filename) for loop in loops)
    where = " and ".join(loop.place for loop in loops)
    if loops and own and all(rounds) and _is_conditional(loops, frames):
        return RunLength(None, f"a condition decides in which rounds of the loop at {where} a step is made")
    if loops and own and all(rounds):
        steps = math.prod(one or 0 for one in rounds)
        return RunLength(
            None,
            f"the rounds of the loop{'s' * (len(loops) > 1)} at {where}",
            steps=steps,
            remarks=(*_breaks(loops), *repeats),
        )
    why = "the loop over the DataLoader cannot be analysed"
    return RunLength(None, "no loop over a DataLoader was found" if loader is None else why)


_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def _is_conditional(loops: list[_Loop], frames: list[FrameType]) -> bool:
    """Return whether a condition or a comprehension inside the outermost loop decides how often a frame runs."""
    for frame in frames[frames.index(loops[0].frame) :]:
        begin = loops[0].node.lineno if frame is loops[0].frame else frame.f_code.co_firstlineno
        tree, at = source_tree(Path(frame.f_code.co_filename)), (frame.f_lineno, _column_of(frame) or 0)
        for node in ast.walk(tree) if tree else ():
            if isinstance(node, ast.If) and begin <= node.lineno <= frame.f_lineno <= (node.end_lineno or 0):
                return True
            if isinstance(node, _COMPREHENSIONS) and begin <= node.lineno:
                end = node.end_lineno or 0, node.end_col_offset or 0
                if (node.lineno, node.col_offset) <= at < end:
                    return True
    return False


def _breaks(loops: list[_Loop]) -> tuple[str, ...]:
    """Return a note for loops that a ``break`` of their own or a second condition may end early."""
    places = " and ".join(dict.fromkeys(loop.place for loop in loops if _ends_early(loop.node)))
    return (f"a break or a condition may end the loop at {places} before its last round",) * bool(places)


def _ends_early(node: ast.For | ast.While) -> bool:
    test, inside = getattr(node, "test", None), {one for part in node.body for one in ast.walk(part)}
    bodies = (part for one in inside if isinstance(one, ast.For | ast.While) for part in one.body)
    own = inside.difference(*map(ast.walk, bodies))  # a break of an inner loop ends that one
    breaks = any(isinstance(one, ast.Break) for one in own) and not isinstance(test, ast.Constant)
    return breaks or isinstance(test, ast.BoolOp)


def _counts_steps(data: _Loop, counter: ast.expr) -> bool:
    """Return whether the loop over the data raises a counter by 1, under the conditions of what runs now."""
    name, nodes = f"{ast.unparse(counter)} += 1", [one for part in data.node.body for one in ast.walk(part)]
    branches = [(one.lineno, one.end_lineno or 0) for one in nodes if isinstance(one, ast.If)]

    def around(line: int) -> list[tuple[int, int]]:
        return [branch for branch in branches if branch[0] <= line <= branch[1]]

    raised = (one.lineno for one in nodes if isinstance(one, ast.AugAssign) and ast.unparse(one) == name)
    return any(around(line) == around(data.frame.f_lineno) for line in raised)


def _counts_epochs(loop: _Loop, data: _Loop, counter: ast.expr) -> bool:
    """Return whether a counter is raised around the loop over the data, and neither in it nor in what it calls."""
    name, lines = f"{ast.unparse(counter)} += 1", {line for *_, line in data.frame.f_code.co_lines()}
    tree = source_tree(Path(data.frame.f_code.co_filename))
    beside = (one for one in (ast.walk(tree) if tree else ()) if getattr(one, "lineno", None) in lines)

    def raised(nodes: Iterable[ast.AST]) -> bool:
        return any(isinstance(one, ast.AugAssign) and ast.unparse(one) == name for one in nodes)

    return raised((*ast.walk(loop.node), *beside)) and not raised(ast.walk(data.node))


def _step_limit(loops: list[_Loop], data: _Loop) -> RunLength | None:
    """Return the steps at which a counter inside the loop over the data ends the run; None if none does."""
    for loop in (*loops, data):
        inside = (one for part in loop.node.body for one in ast.walk(part) if isinstance(one, ast.If))
        ends = [one.test for one in inside if isinstance(one.body[-1], ast.Break | ast.Return)]
        own = [loop.node.test] if isinstance(loop.node, ast.While) else []
        if own and isinstance(own[0], ast.BoolOp):  # of `or` no part is a limit
            own = own[0].values if isinstance(own[0].op, ast.And) else []
        for part in (*own, *(part for test in ends for part in _limits_of_break(test))):
            if not isinstance(part, ast.Compare) or not _counts_steps(data, part.left):
                continue
            first, beyond = _first_value(part.left, data.frame), _LIMITS.get(type(part.ops[0]))
            last = _evaluated_or_none(part.comparators[0], loop.frame)
            if first is not None and beyond is not None and type(last) is int and last > first:
                return RunLength(None, f"counted to the limit at {loop.place}", steps=last - first + beyond)
    return None


def _epochs_outside(loops: list[_Loop], data: _Loop) -> RunLength:
    """Return the epochs of the loop around that over the data; loops over phases (train, val) are left out."""
    loops = [loop for loop in loops if not _is_over_phases(loop.node)]
    if not loops:
        return RunLength(None, f"no loop encloses the loop over the data at {data.place}")
    rounds, limited = _rounds(loops[-1]), _step_limit(loops, data)
    if limited is not None:
        return replace(limited, epochs=rounds if isinstance(loops[-1].node, ast.For) else None)
    inner = ast.walk(loops[-1].node.test) if isinstance(loops[-1].node, ast.While) else ()
    tests = [one for one in inner if isinstance(one, ast.Compare)]
    if rounds and tests and not any(_counts_epochs(loops[-1], data, one.left) for one in tests):
        return RunLength(None, f"the loop at {loops[-1].place} does not count the loops over the data")
    if rounds is None:
        return RunLength(None, f"the loop at {loops[-1].place} is not over a range of known length")
    more = " and ".join(loop.place for loop in loops[:-1])
    remarks = (f"the loop at {more} is around these epochs; its rounds are not counted",) * bool(more)
    origin = f"from the loop at {loops[-1].place}"
    return RunLength(rounds or None, origin, remarks=(*_breaks([loops[-1], data]), *remarks))


def _is_over_phases(node: ast.For | ast.While) -> bool:
    if not isinstance(node, ast.For):
        return False
    if isinstance(node.iter, ast.Call):
        return _called_name(node.iter) in ("items", "keys")
    return all(
        isinstance(one, ast.Constant) and isinstance(one.value, str) for one in getattr(node.iter, "elts", [0])
    )

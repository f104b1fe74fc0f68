"""Count the rounds of a loop in a running program: its source, and the values of now."""

from __future__ import annotations

import ast
import gc
import inspect
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from types import CodeType, FrameType, GeneratorType, ModuleType
from typing import Any

from fomkit.frontends.model_file import nodes_of

Head = tuple[CodeType, int]
"""A loop by its function and line."""

_ARITHMETIC: Mapping[type, Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.USub: operator.neg,
}  # fmt: skip
_CALLS: Mapping[str, Callable[..., Any]] = {
    "int": int, "len": len, "ceil": math.ceil, "floor": math.floor, "min": min, "max": max, "round": round,
    "size": lambda tensor, *axis: tensor.shape[axis[0]] if axis else tensor.shape,
    "get": lambda values, *key: values.get(*key), "take": lambda values, count: values.take(count),
}  # fmt: skip
"""Functions that are called to evaluate an expression, by name; those of `_METHODS` are methods."""
_METHODS = ("size", "get", "take")
_WRAPPERS = frozenset({"enumerate", "tqdm", "islice", "iter", "zip", "reversed", "progress_bar", "track", "list",
                       "sorted", "tuple"})  # fmt: skip
"""Calls that yield the items of their first argument one by one."""
_RANGES = frozenset({"range", "trange", "arange", "randperm", "permutation"})
_ENDLESS = frozenset({"count", "cycle", "repeat"})
INSIDE = ("iterable", "base_dataloader", "_dataloader")
"""Attributes by which progress bars, and loaders of accelerate and Lightning Fabric, hold their source."""


class Unknown(Exception):  # noqa: N818 - a verdict, not a fault
    """The source does not determine the value."""


@dataclass(frozen=True)
class Loop:
    """A loop that runs now, in the frame of its function."""

    node: ast.For | ast.While
    frame: FrameType

    @property
    def place(self) -> str:
        """File and line, for messages."""
        return f"{Path(self.frame.f_code.co_filename).name}:{self.node.lineno}"

    @property
    def head(self) -> Head:
        """Function and line."""
        return self.frame.f_code, self.node.lineno


@cache
def _loops_of_file(path: str) -> tuple[ast.For | ast.While, ...]:
    return tuple(node for node in nodes_of(path) if isinstance(node, ast.For | ast.While))


def loops_around(frame: FrameType) -> list[Loop]:
    """Return the loops of a frame's own function whose body runs now, the outermost first."""
    line, code = frame.f_lineno, frame.f_code
    if line is None:
        return []
    own = (node for node in _loops_of_file(code.co_filename) if code.co_firstlineno <= node.lineno)
    found = [node for node in own if node.body[0].lineno <= line <= (node.body[-1].end_lineno or 0)]
    # The body may be on the line of the loop's head.
    column = _column_of(frame)
    runs = (node for node in found if node.body[0].lineno > node.lineno or column is None
            or column >= node.body[0].col_offset)  # fmt: skip
    return [Loop(node, frame) for node in sorted(runs, key=lambda node: node.lineno)]


def _column_of(frame: FrameType) -> int | None:
    return next(islice(frame.f_code.co_positions(), frame.f_lasti // 2, None))[2]


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
    if isinstance(node, ast.UnaryOp) and type(node.op) in _ARITHMETIC:
        return _ARITHMETIC[type(node.op)](evaluated(node.operand, frame))
    if isinstance(node, ast.Call) and called_name(node) in _CALLS and not node.keywords:
        owner = [node.func.value] * (node.func.attr in _METHODS) if isinstance(node.func, ast.Attribute) else []
        return _CALLS[called_name(node)](*(evaluated(one, frame) for one in (*owner, *node.args)))
    raise Unknown


def evaluated_or_none(node: ast.expr, frame: FrameType) -> Any:
    """Evaluate a plain expression in a frame; return None where that fails."""
    try:
        return evaluated(node, frame)
    except Exception:  # the user's objects may raise anything
        return None


def called_name(node: ast.Call) -> str:
    """Return the last name of what is called."""
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


def unwrapped(node: ast.expr) -> Iterator[ast.expr]:
    """Yield the expression that a loop iterates over, then, if it is a known wrapper, what is inside."""
    yield node
    if isinstance(node, ast.Call) and called_name(node) in _WRAPPERS:
        for argument in node.args:
            yield from unwrapped(argument)


_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def _is_setting(test: ast.expr) -> bool:
    """Return whether a test is the same in each round: of a type, of None, a comparison with names of ways.

    So is a test whether a loss is finite, as it is in a program that trains.
    """
    if isinstance(test, ast.BoolOp | ast.UnaryOp):
        return all(map(_is_setting, test.values if isinstance(test, ast.BoolOp) else [test.operand]))
    if isinstance(test, ast.BinOp):  # masks of tensors joined by | and &
        return _is_setting(test.left) and _is_setting(test.right)
    if isinstance(test, ast.Call):
        if isinstance(owner := getattr(test.func, "value", None), ast.Call):
            return _is_setting(owner)
        return called_name(test) in ("isinstance", "hasattr", "callable", "isnan", "isinf", "isfinite")
    values = test.comparators if isinstance(test, ast.Compare) else []
    named = [part for one in values for part in getattr(one, "elts", [one])]
    return bool(named) and all(isinstance(getattr(one, "value", 0), str | None) for one in named)


def _syncs(test: ast.expr, frame: FrameType) -> bool:
    """Return whether a test is that of accelerate for the last pass of a step, where each step has one pass."""
    state = evaluated_or_none(getattr(test, "value", test), frame) if isinstance(test, ast.Attribute) else None
    return getattr(test, "attr", "") == "sync_gradients" and getattr(state, "num_steps", None) == 1


def is_conditional(loops: list[Loop], frames: list[FrameType]) -> bool:
    """Return whether a condition or a comprehension inside the outermost loop decides how often a frame runs."""
    for frame in frames[frames.index(loops[0].frame) :]:
        begin = loops[0].node.lineno if frame is loops[0].frame else frame.f_code.co_firstlineno
        at = frame.f_lineno, _column_of(frame) or 0
        for node in nodes_of(frame.f_code.co_filename):
            runs = begin <= getattr(node, "lineno", 0) <= frame.f_lineno <= (getattr(node, "end_lineno", 0) or 0)
            if isinstance(node, ast.If) and runs and not (_is_setting(node.test) or _syncs(node.test, frame)):
                return True
            if isinstance(node, _COMPREHENSIONS) and begin <= node.lineno:
                end = node.end_lineno or 0, node.end_col_offset or 0
                if (node.lineno, node.col_offset) <= at < end:
                    return True
    return False


def ends_early(node: ast.For | ast.While, limit: ast.stmt | None = None) -> bool:
    """Return whether a ``break`` of its own, other than that of a limit, or a second condition may end a loop."""
    test, inside = getattr(node, "test", None), {one for part in node.body for one in ast.walk(part)} - {limit}
    bodies = (part for one in inside if isinstance(one, ast.For | ast.While) for part in one.body)
    own = inside.difference(*map(ast.walk, bodies))  # a break of an inner loop ends that one
    breaks = any(isinstance(one, ast.Break) for one in own) and not isinstance(test, ast.Constant)
    return breaks or isinstance(test, ast.BoolOp)


def rounds_of(loop: Loop) -> int | None:
    """Return the rounds of a loop over a range or other data, or of one that counts to a limit; else None."""
    if isinstance(loop.node, ast.While):
        return _rounds_to_limit(loop, loop.node)
    ends = (_length(loop.node.iter, loop.frame), rounds_to_break(loop)[0])
    return min((one for one in ends if one is not None), default=None)


def rounds_to_break(loop: Loop) -> tuple[int | None, ast.stmt | None]:
    """Return the rounds of a loop that numbers them, up to ``if number >= last: break``, and this ``break``."""
    node, line = loop.node, loop.frame.f_lineno
    calls = [] if isinstance(node, ast.While) else [*unwrapped(node.iter)]
    numbers = [one for one in calls if isinstance(one, ast.Call) and called_name(one) in ("enumerate", "count")]
    if not numbers or isinstance(node, ast.While):
        return None, None
    starts = [one.value for one in numbers[0].keywords] or numbers[0].args[
        called_name(numbers[0]) == "enumerate" :
    ]
    first = evaluated_or_none(starts[0], loop.frame) if starts else 0
    counter = ast.unparse(getattr(node.target, "elts", [node.target])[0])
    for test, end in _breaks_of(node):
        if isinstance(test, ast.Compare) and type(test.ops[0]) in (ast.GtE, ast.Gt, ast.Eq):
            more = {counter: 0, f"{counter} + 1": 1}.get(ast.unparse(test.left))
            last = evaluated_or_none(test.comparators[0], loop.frame)
            if more is not None and type(last) is int and type(first) is int:
                # The last round comes to what runs now if this is before the test.
                rounds = last - first - more + LIMITS[type(test.ops[0])] + (line < test.lineno)
                return max(rounds, 0), end
    return None, None


def _breaks_of(node: ast.For | ast.While) -> Iterator[tuple[ast.expr, ast.stmt]]:
    """Yield each test of a loop's own body that ends the loop by itself, and its ``break``."""
    for one in node.body:
        if isinstance(one, ast.If) and isinstance(one.body[-1], ast.Break):
            yield from ((part, one.body[-1]) for part in limits_of_break(one.test))


def _length(node: ast.expr, frame: FrameType) -> int | None:
    """Return how many items an expression yields; None if unknown."""
    name = called_name(node) if isinstance(node, ast.Call) else ""
    if isinstance(node, ast.Call) and name in _WRAPPERS:
        return _length_of_wrapper(name, node.args, frame)
    if isinstance(node, ast.Call) and name in _RANGES and 1 <= len(node.args) <= 3:
        bounds = [evaluated_or_none(argument, frame) for argument in node.args]
        if all(type(bound) is int for bound in bounds):
            return len(range(*bounds))
        return _length(node.args[0], frame) if name == "permutation" else None
    if isinstance(node, ast.Call) and name in _PARTS and isinstance(node.func, ast.Attribute):
        owner, args = evaluated_or_none(node.func.value, frame), node.args
        is_function = isinstance(owner, ModuleType)
        whole, how = (args if is_function and len(args) == 2 else [node.func.value, *args])[:2]
        total, size = _length(whole, frame), evaluated_or_none(how, frame)
        is_numpy = getattr(owner, "__name__", "") == "numpy"
        return _PARTS["array_split" if is_numpy else name](total, size) if total and type(size) is int else None
    if isinstance(node, ast.Call):
        return _yielded_by(evaluated_or_none(node.func, frame))
    found = evaluated_or_none(node, frame)
    found = getattr(found, INSIDE[0], found)
    if isinstance(found, GeneratorType):
        return _yielded(found)
    # Texts are names, as of phases.
    parts = found if isinstance(found, list | tuple | dict) else ()
    if not (isinstance(found, str) or any(isinstance(one, str) for one in parts)) and hasattr(found, "__len__"):
        with suppress(Exception):  # the user's objects may raise anything
            return len(found)
    return _yielded_by(getattr(type(found), "__iter__", None))


_PARTS: Mapping[str, Callable[[int, int], int]] = {
    "split": lambda total, size: -(-total // size),
    "chunk": lambda total, count: -(-total // -(-total // count)),
    "array_split": lambda _, count: count,
}
"""How many parts a tensor is split into, by the name of the function; numpy's ``split`` counts parts, too."""


def _length_of_wrapper(name: str, arguments: list[ast.expr], frame: FrameType) -> int | None:
    ends = (one for one in arguments if not (isinstance(one, ast.Call) and called_name(one) in _ENDLESS))
    lengths = [_length(one, frame) for one in ends] if arguments else []
    if name == "zip":
        return min((one for one in lengths if one), default=None) if all(lengths) else None
    if name == "islice" and len(arguments) == 2:
        most = evaluated_or_none(arguments[1], frame)
        return min(most, lengths[0] or most) if type(most) is int and len(lengths) == 2 else None
    return next((one for one in lengths if one is not None), None)


def _yielded_by(function: Any) -> int | None:
    """Return how many items a generator of this function yields that has begun; None for any other function."""
    if not inspect.isgeneratorfunction(function):
        return None
    live = (one for one in gc.get_objects() if type(one) is GeneratorType and one.gi_code is function.__code__)
    found = {_yielded(one) for one in live if not one.gi_running}
    return found.pop() if len(found) == 1 else None


def _yielded(generator: GeneratorType[Any, Any, Any]) -> int | None:
    """Return how many items a generator yields by the loops around its ``yield``, without breaks or conditions."""
    if (frame := generator.gi_frame) is None:
        return None
    loops = loops_around(frame)
    rounds = [None if ends_early(loop.node) else rounds_of(loop) for loop in loops]
    known = [one for one in rounds if one is not None]
    is_known = loops and len(known) == len(rounds) and not is_conditional(loops, [frame])
    return math.prod(known) if is_known else None


LIMITS: Mapping[type, int] = {ast.Lt: 0, ast.LtE: 1, ast.GtE: 0, ast.Gt: 1, ast.Eq: 0}
"""Comparisons of a counter with the last value, and whether this value has a round too."""


def limits_of_break(test: ast.expr) -> list[ast.expr]:
    """Return the parts of a test each of which ends a loop by itself; with `and`, the others check the limit."""
    parts = test.values if isinstance(test, ast.BoolOp) else [test]
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        limits = {ast.unparse(part.comparators[0]) for part in parts if isinstance(part, ast.Compare)}
        parts = [part for part in parts if ast.unparse(getattr(part, "left", part)) not in limits]
    return parts if len(parts) == 1 or not isinstance(getattr(test, "op", None), ast.And) else []


def _rounds_to_limit(loop: Loop, node: ast.While) -> int | None:
    """Return the rounds of ``while n < last``, or of ``while True`` with ``if n >= last: break``."""
    tests: list[ast.expr] = [node.test]
    if isinstance(node.test, ast.BoolOp):  # of `or` no part is a limit
        tests = node.test.values[: isinstance(node.test.op, ast.And)]
    kinds: tuple[type, ...] = (ast.Lt, ast.LtE)
    if isinstance(node.test, ast.Constant):
        kinds = (ast.GtE, ast.Gt)
        tests = [test for test, _ in _breaks_of(node)]
    for test in tests:
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and type(test.ops[0]) in kinds:
            first = first_value(test.left, loop.frame)
            last = evaluated_or_none(test.comparators[0], loop.frame)
            if first is not None and type(last) is int:
                # The last round of a loop that counts, then breaks, does not come to what runs now.
                raised = f"{ast.unparse(test.left)} += 1"
                counts = any(ast.unparse(one) == raised and one.lineno < test.lineno for one in node.body)
                ends = test is not node.test and loop.frame.f_lineno > test.lineno and counts
                return max(last - first + LIMITS[type(test.ops[0])] - ends, 0)
    return None


def first_value(counter: ast.expr, frame: FrameType) -> int | None:
    """Return the only constant that a file assigns to a counter that it raises by 1; None for none or several."""
    name, found, raised = ast.unparse(counter), set(), False
    for node in nodes_of(frame.f_code.co_filename):
        raised |= isinstance(node, ast.AugAssign) and ast.unparse(node) == f"{name} += 1"
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            continue
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            parts: list[tuple[ast.expr, Any]] = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                parts = [*zip(target.elts, node.value.elts, strict=False)]
            found |= {getattr(value, "value", None) for one, value in parts if ast.unparse(one) == name}
    constants, now = [one for one in found if type(one) is int], evaluated_or_none(counter, frame)
    if not raised or len(constants) != 1:
        return None
    # A counter near its constant began there, and not where another branch begins, as from a checkpoint.
    return constants[0] if len(found) == 1 or (type(now) is int and 0 <= now - constants[0] <= 100) else None

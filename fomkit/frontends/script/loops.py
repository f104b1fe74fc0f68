"""Find how long a running program trains from the loops around its steps: their source, and the values of now."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise, takewhile
from pathlib import Path
from types import FrameType
from typing import Any

from fomkit.core.model import DOUBTFUL
from fomkit.frontends.model_file import is_user_file, library_file, nodes_of
from fomkit.frontends.script.rounds import (
    INSIDE,
    LIMITS,
    Head,
    Loop,
    called_name,
    ends_early,
    evaluated_or_none,
    first_value,
    is_conditional,
    limits_of_break,
    loops_around,
    rounds_of,
    rounds_to_break,
    unwrapped,
)


@dataclass(frozen=True)
class RunLength:
    """How long a program trains; None where it is unknown.

    `epochs`, `origin`: their number, and how it is known or why it is not.
    `train_samples`, `validation_samples`: of one epoch, if a trainer states them; otherwise the loader's are used.
    `steps`: of the optimizer in the whole run, if the run is limited by steps, not by epochs.
    `accumulates`: backward passes per step of the optimizer, as set in the trainer.
    """

    epochs: int | None
    origin: str
    train_samples: int | None = None
    validation_samples: int | None = None
    steps: int | None = None
    accumulates: int | None = None
    remarks: tuple[str, ...] = ()


def _is_loader(node: ast.expr, frame: FrameType, loader: Any) -> bool:
    """Return whether an expression is the loader, or an object that wraps it, or makes a loader of its class."""
    if isinstance(node, ast.Call) and evaluated_or_none(node.func, frame) is type(loader):
        return True
    value = evaluated_or_none(node, frame)
    return value is loader or any(getattr(value, "__dict__", {}).get(name) is loader for name in INSIDE)


def _assigned(loop: Loop) -> list[ast.expr]:
    """Return what a loop iterates over; for a name also all that its file assigns to it, as a wrapped iterator."""
    if isinstance(loop.node, ast.While):  # by next() until this raises StopIteration
        tries = [one for one in loop.node.body if isinstance(one, ast.Try) and _ends_at_last(one)]
        calls = [call for one in tries for call in ast.walk(one) if isinstance(call, ast.Call) and call.args]
        iterated = [call.args[0] for call in calls if called_name(call) == "next"]
    else:
        iterated = [loop.node.iter]
    names = {getattr(one, "id", "") for one in iterated} - {""}
    made = (
        one for one in (nodes_of(loop.frame.f_code.co_filename) if names else ()) if isinstance(one, ast.Assign)
    )
    return [*iterated, *(one.value for one in made if getattr(one.targets[0], "id", None) in names)]


def _ends_at_last(node: ast.Try) -> bool:
    """Return whether a loop ends by a ``break`` where an iterator has no more items."""
    return any(
        ast.unparse(one.type or node) == "StopIteration" and isinstance(one.body[-1], ast.Break)
        for one in node.handlers
    )


def own_frame(frame: FrameType | None) -> FrameType | None:
    """Return the innermost frame of the program, from a frame outwards; None if there is none."""
    while frame is not None and not is_user_file(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def _frames_of_program(frame: FrameType | None) -> list[FrameType]:
    """Return the frames of the program and its libraries from a frame outwards, the outermost first."""
    frames: list[FrameType] = []
    inner: list[FrameType] = []
    while frame is not None:
        is_own = is_user_file(frame.f_code.co_filename)
        if is_own or library_file(frame.f_code.co_filename):
            inner = [frame, *inner]
        frames = inner if is_own else frames  # without what runs the program
        frame = frame.f_back
    return frames


def loops_of_program(frame: FrameType | None) -> list[Loop]:
    """Return the loops around a frame, the outermost first."""
    return [loop for one in _frames_of_program(frame) for loop in loops_around(one)]


@cache
def lines_of_calls(file: str, name: str) -> frozenset[int]:
    """Return the lines of a file that call a method of this name."""
    calls = (node for node in nodes_of(file) if isinstance(node, ast.Call))
    return frozenset(call.lineno for call in calls if getattr(call.func, "attr", "") == name)


def _trained_later(loops: list[Loop], frames: list[FrameType]) -> tuple[str, ...]:
    """Return a note on loops and calls of functions that follow the outermost loop and compute gradients too."""
    found: list[str] = []
    for frame in frames[: frames.index(loops[0].frame) + 1] if loops else ():
        nodes, lines = nodes_of(frame.f_code.co_filename), {line for *_, line in frame.f_code.co_lines()}
        ends = (loops[0].node.end_lineno or 0) if frame is loops[0].frame else frame.f_lineno
        functions = {one.name for one in nodes if isinstance(one, ast.FunctionDef) and has_call(one, {"backward"})}
        for node in nodes:
            names = {*functions, "backward"} if isinstance(node, ast.For | ast.While) else functions
            if not isinstance(node, ast.For | ast.While | ast.Call) or not ends < node.lineno in lines:
                continue
            if has_call(node, names):
                found.append(f"{Path(frame.f_code.co_filename).name}:{node.lineno}")
                ends = node.end_lineno or 0
    where = " and ".join(found)
    return (f"{DOUBTFUL}: {where} computes gradients later; its steps are not counted",) * bool(found)


def has_call(node: ast.AST, names: Container[str]) -> bool:
    """Return whether a function that has one of these names is called inside, or a method ``backward``.

    So is ``replay``, of a CUDA graph that was recorded from a step, where ``backward`` is among the names.
    """
    calls = (one.func for one in ast.walk(node) if isinstance(one, ast.Call))
    methods = {"backward", "replay"} if "backward" in names else set()
    return any(getattr(one, "id", "") in names or getattr(one, "attr", "") in methods for one in calls)


def trains(function: Any) -> bool:
    """Return whether a function of the program, or one of its file that it calls, has a backward pass."""
    code = getattr(function, "__code__", None)
    own = nodes_of(code.co_filename) if code and is_user_file(code.co_filename) else []
    functions = [one for one in own if isinstance(one, ast.FunctionDef)]
    names = {"backward", *(one.name for one in functions if has_call(one, {"backward"}))}
    return any(one.name == function.__name__ and has_call(one, names) for one in functions)


_UPDATES = frozenset({"gradient", "apply_gradients", "minimize"})
_MOST_INNER = 20
"""Most rounds of an inner loop that may be a part of a step."""


def loops_to_step(frame: FrameType) -> list[Loop]:
    """Return the loops around a gradient up to the one whose round is a step.

    A short loop is a part of the step if the loop around it updates beside it, too, as for a second network.
    """
    loops = loops_of_program(frame)
    for place, (outer, inner) in enumerate(pairwise(loops)):
        if (rounds_of(inner) or math.inf) <= _MOST_INNER and _updates_beside(outer):
            return loops[: place + 1]
    return loops


def _updates_beside(loop: Loop) -> bool:
    """Return whether a loop's body updates outside of the statement that runs, itself or in what it calls."""
    now = loop.frame.f_lineno
    beside = (one for one in loop.node.body if not one.lineno <= now <= (one.end_lineno or 0))
    calls = (node for one in beside for node in ast.walk(one) if isinstance(node, ast.Call))
    called = {called_name(call): evaluated_or_none(call.func, loop.frame) for call in calls}
    inside = (getattr(getattr(one, "__code__", None), "co_names", ()) for one in called.values())
    return bool(_UPDATES & called.keys() or any(_UPDATES.intersection(names) for names in inside))


@dataclass(frozen=True)
class DataLoop:
    """A loop over some data, and the number of epochs by the loop around it."""

    data: Any
    length: RunLength


def data_loop(frame: FrameType | None, is_data: Callable[[Any], bool]) -> DataLoop | None:
    """Find the outermost loop around a frame over data of the wanted kind."""
    loops = loops_of_program(frame)
    for place, loop in enumerate(loops):
        for node in unwrapped(loop.node.iter) if isinstance(loop.node, ast.For) else ():
            if is_data(value := evaluated_or_none(node, loop.frame)):
                return DataLoop(value, _epochs_outside(loops[:place], loop))
    return None


def heads_around(frame: FrameType) -> set[Head]:
    """Return the function and line of each loop around a frame."""
    return {loop.head for loop in loops_of_program(frame)}


def _without_repeats(loops: list[Loop], anew: Container[Head]) -> tuple[list[Loop], tuple[str, ...]]:
    """Leave out the outer loops each of whose rounds trains from the beginning, unless they are all; note them."""
    repeats = list(takewhile(lambda loop: loop.head in anew, loops))
    if len(repeats) == len(loops):
        return loops, ()
    where = "the loop at {} makes an optimizer in each round, as for each fold: one such round is the run"
    return loops[len(repeats) :], tuple(where.format(loop.place) for loop in repeats)


def run_by_loops(
    frame: FrameType | None, loader: Any, anew: Container[Head] = (), around: Container[Head] = ()
) -> RunLength:
    """Find the epochs: the rounds of the ``range`` loop outside the loop over the training data.

    Loops of libraries count as those of the program do, except those of PyTorch. Where no loop iterates over a
    loader, the rounds of all loops are the steps, if all are known.

    `frame`: the innermost of the program's frames; `loader`: source of the training data; None if there is none;
    `anew`: loops in which an optimizer was made; `around`: loops around a backward pass, since one around the step
    alone may be over optimizers.
    """
    frames, loops = _frames_of_program(frame), loops_of_program(frame)
    loops = [loop for loop in loops if loop.head in around] or loops
    later = _trained_later(loops, frames)
    for place, loop in enumerate(loops):
        iterated = (part for one in _assigned(loop) for part in unwrapped(one))
        if loader is not None and any(_is_loader(node, loop.frame, loader) for node in iterated):
            outside, repeats = _without_repeats(loops[:place], anew)
            most = None if is_conditional([loop], frames) else rounds_to_break(loop)[0]
            found = _epochs_outside(outside, loop, most)
            return replace(found, remarks=(*found.remarks, *repeats, *later))
    loops, repeats = _without_repeats(loops, anew)
    rounds = [rounds_of(loop) for loop in loops]
    where = " and ".join(loop.place for loop in loops)
    if loops and all(rounds) and is_conditional(loops, frames):
        return RunLength(None, f"a condition decides in which rounds of the loop at {where} a step is made")
    if loops and all(rounds):
        origin = f"the rounds of the loop{'s' * (len(loops) > 1)} at {where}"
        remarks = (*_breaks(loops), *repeats, *later)
        return RunLength(None, origin, steps=math.prod(one or 0 for one in rounds), remarks=remarks)
    why = "the loop over the DataLoader cannot be analysed"
    return RunLength(None, "no loop over a DataLoader was found" if loader is None else why)


def length_by_evaluations(length: RunLength, optimizer: Any, repeats: bool) -> RunLength:
    """Return the length of a run whose steps are calls of a closure, by the most that the optimizer makes."""
    facts = optimizer.param_groups[0]
    name = "max_eval" if facts.get("line_search_fn") else "max_iter"
    times, most = length.steps or (None if repeats else 1), facts.get(name)
    if times is None or most is None:
        return RunLength(None, "calls of a closure, whose number is unknown")
    origin = f"the {name} of {type(optimizer).__name__}, which tolerances may end earlier"
    return RunLength(None, origin + f", times {length.origin}" * repeats, steps=times * most)


def _breaks(loops: list[Loop], *, are_counted: bool = True) -> tuple[str, ...]:
    """Return a note for loops that a ``break`` of their own or a second condition may end early.

    `are_counted`: whether the rounds up to the limit of a loop that numbers them are known.
    """
    limits = [rounds_to_break(loop)[1] if are_counted else None for loop in loops]
    early = (loop.place for loop, limit in zip(loops, limits, strict=True) if ends_early(loop.node, limit))
    places = " and ".join(dict.fromkeys(early))
    return (f"a break or a condition may end the loop at {places} before its last round",) * bool(places)


def _counts_steps(data: Loop, counter: ast.expr) -> bool:
    """Return whether the loop over the data raises a counter by 1, under the conditions of what runs now."""
    name, nodes = f"{ast.unparse(counter)} += 1", [one for part in data.node.body for one in ast.walk(part)]
    branches = [(one.lineno, one.end_lineno or 0) for one in nodes if isinstance(one, ast.If)]

    def around(line: int) -> list[tuple[int, int]]:
        return [branch for branch in branches if branch[0] <= line <= branch[1]]

    raised = (one.lineno for one in nodes if isinstance(one, ast.AugAssign) and ast.unparse(one) == name)
    return any(around(line) == around(data.frame.f_lineno) for line in raised)


def _counts_epochs(loop: Loop, data: Loop, counter: ast.expr) -> bool:
    """Return whether a counter is raised around the loop over the data, and neither in it nor in what it calls."""
    name, lines = f"{ast.unparse(counter)} += 1", {line for *_, line in data.frame.f_code.co_lines()}
    beside = (one for one in nodes_of(data.frame.f_code.co_filename) if getattr(one, "lineno", None) in lines)

    def raised(nodes: Iterable[ast.AST]) -> bool:
        return any(isinstance(one, ast.AugAssign) and ast.unparse(one) == name for one in nodes)

    return raised((*ast.walk(loop.node), *beside)) and not raised(ast.walk(data.node))


def _step_limit(loops: list[Loop], data: Loop) -> RunLength | None:
    """Return the steps at which a counter inside the loop over the data ends the run; None if none does."""
    for loop in (*loops, data):
        inside = (one for part in loop.node.body for one in ast.walk(part) if isinstance(one, ast.If))
        ends = [one.test for one in inside if isinstance(one.body[-1], ast.Break | ast.Return)]
        own = [loop.node.test] if isinstance(loop.node, ast.While) else []
        if own and isinstance(own[0], ast.BoolOp):  # of `or` no part is a limit
            own = own[0].values if isinstance(own[0].op, ast.And) else []
        for part in (*own, *(part for test in ends for part in limits_of_break(test))):
            if not isinstance(part, ast.Compare) or not _counts_steps(data, part.left):
                continue
            first, beyond = first_value(part.left, data.frame), LIMITS.get(type(part.ops[0]))
            last = evaluated_or_none(part.comparators[0], loop.frame)
            if first is not None and beyond is not None and type(last) is int and last > first:
                return RunLength(None, f"counted to the limit at {loop.place}", steps=last - first + beyond)
    return None


def _epochs_outside(loops: list[Loop], data: Loop, most: int | None = None) -> RunLength:
    """Return the epochs of the loop around that over the data; loops over phases (train, val) are left out.

    `most`: steps after which a ``break`` ends the loop over the data; None if unknown.
    """
    loops = [loop for loop in loops if not _is_over_phases(loop.node)]
    if not loops and most:
        return RunLength(None, f"counted to the limit at {data.place}", steps=most)
    if not loops:
        return RunLength(None, f"no loop encloses the loop over the data at {data.place}")
    rounds, limited = rounds_of(loops[-1]), _step_limit(loops, data)
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
    origin = f"from the loop at {loops[-1].place}" + f", each to the limit at {data.place}" * bool(most)
    breaks = dict.fromkeys((*_breaks(loops[-1:]), *_breaks([data], are_counted=bool(most))))
    return RunLength(rounds or None, origin, steps=rounds * most if most else None, remarks=(*breaks, *remarks))


def _is_over_phases(node: ast.For | ast.While) -> bool:
    if not isinstance(node, ast.For):
        return False
    if isinstance(node.iter, ast.Call):
        return called_name(node.iter) in ("items", "keys")
    return all(
        isinstance(one, ast.Constant) and isinstance(one.value, str) for one in getattr(node.iter, "elts", [0])
    )

"""The child process that runs a user's training program until one of its steps is recorded."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
import sysconfig
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fomkit.errors import FomkitError
from fomkit.trace.child_answer import Answer, take_request
from fomkit.trace.model_file import explain_exception
from fomkit.trace.torch_script_draft import draft_script
from fomkit.trace.torch_script_steps import WANTED_ROUND, StepWatch, Taken

_INSTALLED = frozenset({"site-packages", "dist-packages"})
_TIDY_S = 10.0
"""Time [s] that a program has for its ``finally`` blocks once it is stopped."""


class Stop(BaseException):
    """Ends the user's program; no ``except Exception`` of its own catches it."""


def run_program(path: Path, arguments: Sequence[str]) -> None:
    """Run a file as ``python path arguments`` does.

    Raises
    ------
    BaseException
        Whatever the program raises.
    """
    spec = importlib.util.spec_from_file_location("__main__", path)
    if spec is None or spec.loader is None:
        raise FomkitError(str(path), "is not a Python file. Its name must end in .py.")
    program = importlib.util.module_from_spec(spec)
    # As for any program; with a spec, processes that it spawns would not find it.
    program.__spec__ = None
    sys.argv = [str(path), *arguments]
    sys.path.insert(0, str(path.parent))
    sys.modules["__main__"] = program
    spec.loader.exec_module(program)


def is_user_file(name: str) -> bool:
    """Tell the user's own source, wherever it lies, from the standard library, installed packages and fomkit."""
    path = Path(name)
    foreign = (Path(sysconfig.get_path("stdlib")), Path(__file__).parents[1])
    return not any(map(path.is_relative_to, foreign)) and not _INSTALLED & {*path.parts}


def _stop_with(answer: Answer, name: str) -> Callable[[Taken], None]:
    def on_taken(taken: Taken) -> None:
        try:
            answer.leave({"draft": asdict(draft_script(taken, name))})
        except Exception as error:  # else the user's code might swallow it and train on
            told = explain_exception(error, name)
            answer.leave({"error": [told.where, told.what], "quotes": False})
            os._exit(0)
        late = threading.Timer(_TIDY_S, os._exit, (0,))
        late.daemon = True
        late.start()
        raise Stop

    return on_taken


def _ended(error: BaseException | None, watch: StepWatch, where: str, path: Path) -> FomkitError:
    """Say how a program ended that no step could be taken from."""
    when = f"before its {'second' if watch.rounds else 'first'} training step"
    if error is not None and not isinstance(error, SystemExit):
        told = explain_exception(error, where, path)
        wants = any(word in str(error).lower() for word in ("cuda", "nvidia", "hip"))
        hint = " It is run on the CPU: let it take that where torch.cuda.is_available() is False." if wants else ""
        return FomkitError(told.where, f"{told.what}, {when}.{hint}")
    if watch.rounds:
        return FomkitError(
            where,
            "took one training step and ended. A later one was expected, as the first sets things up. Let it "
            "train three steps: more samples or epochs, or a smaller batch.",
        )
    expected = (
        "A program that trains by a torch.optim optimizer was expected; its own arguments go after '--', for "
        f"example: fomkit profile --script {where} -- --epochs 1"
    )
    if error is not None:
        at = explain_exception(error, where, path).where
        return FomkitError(at, f"ends by sys.exit({error.code!r}) {when}. {expected}")
    seen = f", with {watch.backwards} backward passes" if watch.backwards else ""
    return FomkitError(where, f"ended without a step of an optimizer in this process{seen}. {expected}")


def _partial(error: BaseException | None, watch: StepWatch, where: str, path: Path) -> str:
    """Say why fewer steps ran than were wanted; "" where that is not so."""
    if watch.rounds >= WANTED_ROUND and error is None:
        return ""
    ended = "ended" if error is None else explain_exception(error, where, path).what
    if isinstance(error, SystemExit):
        ended = f"ended by sys.exit({error.code!r})"
    return f"the program {ended} after {watch.rounds} steps, of which {WANTED_ROUND} or more were wanted"


def _result(path: Path, request: dict[str, Any], watch: StepWatch) -> dict[str, Any]:
    """Run the program, and tell of one that was not stopped."""
    where, error = request["where"], None
    try:
        with watch.watch():
            run_program(path, request["arguments"])
    except BaseException as raised:  # the program may raise anything, SystemExit too; the parent tells it
        error = raised
    if watch.taken is None:
        told = _ended(error, watch, where, path)
        return {"error": [told.where, told.what], "quotes": isinstance(error, SystemExit)}
    return {"draft": asdict(draft_script(watch.taken, request["name"], _partial(error, watch, where, path)))}


def main() -> None:
    """Run one request from standard input, then end the process at once."""
    request, answer = take_request()
    path = Path(request["path"])
    sys.dont_write_bytecode = True
    watch = StepWatch(is_user_file, _stop_with(answer, request["name"]))
    result = _result(path, request, watch)
    if not watch.is_over:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # the program may have closed or replaced it
                stream.flush()
        answer.leave(result)
    os._exit(0)

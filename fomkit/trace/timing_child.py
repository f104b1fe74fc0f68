"""The child process that times a user's model, whatever framework it is of."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from fomkit.errors import ManyFomkitError
from fomkit.trace.child_answer import take_request
from fomkit.trace.drafting import Request
from fomkit.trace.model_file import explain_exception


class TimedStep(Protocol):
    """Times the step of a file's model, and its ops where these are asked for; ``folder`` is for its traces."""

    def __call__(
        self, path: Path, request: Request, *, ops: bool, threads: int | None, folder: str, precision: str = ""
    ) -> dict[str, Any]:
        """See above."""


@dataclass(frozen=True)
class Door:
    """How models of one framework are timed.

    Attributes
    ----------
    timed : TimedStep
    lacks_memory : function of an error
        Tells whether the step did not fit into memory.
    """

    timed: TimedStep
    lacks_memory: Callable[[BaseException], bool]


def _explained(door: Door, error: BaseException, request: Request, path: Path) -> list[str]:
    told = explain_exception(error, request.where, path)
    if not door.lacks_memory(error):
        return [told.where, told.what]
    what = f"does not fit into the memory here ({told.what}). Measure a smaller step with --batch."
    return [told.where, what]


def timing_result(door: Door, path: Path, request: Request, **asked: Any) -> dict[str, Any]:
    """Time a file's model; what keeps it from being timed is told in the result."""
    try:
        with tempfile.TemporaryDirectory(prefix="fomkit-") as folder:
            return {"timed": door.timed(path, request, folder=folder, **asked)}
    except ManyFomkitError as errors:
        return {"errors": [[error.where, error.what] for error in errors.errors]}
    except BaseException as error:  # the file may raise anything, SystemExit too; the parent tells it
        return {"errors": [_explained(door, error, request, path)]}


def run_timing(door: Door) -> None:
    """Run one request, then end the process at once, whatever threads and exit handlers the file left behind."""
    message, answer = take_request()
    path = Path(message.pop("path"))
    asked = {name: message.pop(name) for name in ("ops", "threads", "precision")}
    sys.dont_write_bytecode = True
    sys.argv = [str(path)]
    answer.leave(timing_result(door, path, Request(**message), **asked))
    os._exit(0)

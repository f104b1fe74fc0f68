"""The child process that runs a user's file: reads a request, leaves a result file, and is gone."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fomkit.errors import FomkitError, ManyFomkitError
from fomkit.trace.child_answer import take_request
from fomkit.trace.torch_file import explain_exception, run_file, take_workload
from fomkit.trace.torch_profile import Request, draft_profile
from fomkit.trace.torch_shape_only import shape_only

_NEVER_MENDED = (FomkitError, SystemExit, SyntaxError, NameError, ImportError, OSError, ArithmeticError)
"""What no other way of making tensors would mend."""


def _result(path: Path, request: Request) -> dict[str, Any]:
    try:
        with shape_only(request.route):
            workload = take_workload(run_file(path), request.where)
            return {"draft": asdict(draft_profile(workload, request, own=True))}
    except ManyFomkitError as errors:
        return {"errors": [[error.where, error.what] for error in errors.errors], "final": True}
    except BaseException as error:  # the file may raise anything, SystemExit too; the parent tells it
        told = explain_exception(error, request.where, path)
        return {"errors": [[told.where, told.what]], "final": isinstance(error, _NEVER_MENDED)}


def main() -> None:
    """Run one request, then end the process at once, whatever threads and exit handlers the file left behind."""
    message, answer = take_request()
    path = Path(message.pop("path"))
    sys.dont_write_bytecode = True
    sys.argv = [str(path)]
    answer.leave(_result(path, Request(**message)))
    os._exit(0)

"""The child's side of profiling a user's file with a model, whatever framework it uses."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fomkit.errors import ManyFomkitError
from fomkit.trace.child_answer import take_request
from fomkit.trace.drafting import Request
from fomkit.trace.model_file import explain_exception


def _result(
    path: Path,
    request: Request,
    profile: Callable[[Path, Request], dict[str, Any]],
    is_final: Callable[[BaseException], bool],
) -> dict[str, Any]:
    try:
        return profile(path, request)
    except ManyFomkitError as errors:
        return {"errors": [[error.where, error.what] for error in errors.errors], "final": True}
    except BaseException as error:  # the file may raise anything, SystemExit too; the parent tells it
        told = explain_exception(error, request.where, path)
        return {"errors": [[told.where, told.what]], "final": is_final(error)}


def run_file_request(
    profile: Callable[[Path, Request], dict[str, Any]], is_final: Callable[[BaseException], bool] = lambda _: True
) -> None:
    """Run one request, then end the process at once, whatever threads and exit handlers the file left behind.

    Parameters
    ----------
    profile : function of the user's file and the request
        Gives the answer: the draft, and what else was asked for.
    is_final : function of an exception
        Tells whether no other way of making tensors would mend it.
    """
    message, answer = take_request()
    path = Path(message.pop("path"))
    sys.dont_write_bytecode = True
    sys.argv = [str(path)]
    answer.leave(_result(path, Request(**message), profile, is_final))
    os._exit(0)

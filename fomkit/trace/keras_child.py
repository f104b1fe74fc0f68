"""The child process that runs a user's file with a Keras model: reads a request, leaves a result, and is gone."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fomkit.errors import ManyFomkitError
from fomkit.trace.child_answer import take_request
from fomkit.trace.drafting import Request
from fomkit.trace.keras_profile import draft_profile
from fomkit.trace.keras_weights import weights_without_data
from fomkit.trace.keras_workload import check_workload
from fomkit.trace.model_file import explain_exception, run_file, take_workload


def _result(path: Path, request: Request) -> dict[str, Any]:
    try:
        with weights_without_data():
            workload = take_workload(run_file(path), request.where, check_workload)
            return {"draft": asdict(draft_profile(workload, request))}
    except ManyFomkitError as errors:
        return {"errors": [[error.where, error.what] for error in errors.errors], "final": True}
    except BaseException as error:  # the file may raise anything, SystemExit too; the parent tells it
        told = explain_exception(error, request.where, path)
        return {"errors": [[told.where, told.what]], "final": True}


def main() -> None:
    """Run one request, then end the process at once, whatever threads and exit handlers the file left behind."""
    message, answer = take_request()
    path = Path(message.pop("path"))
    sys.dont_write_bytecode = True
    sys.argv = [str(path)]
    answer.leave(_result(path, Request(**message)))
    os._exit(0)

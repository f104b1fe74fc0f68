"""The child process that reads an ONNX file, which may crash the library or take all memory."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fomkit.errors import FomkitError
from fomkit.trace.child_answer import take_request
from fomkit.trace.drafting import Request
from fomkit.trace.model_file import explain_exception
from fomkit.trace.onnx_profile import draft_profile


def _result(path: Path, message: dict[str, Any]) -> dict[str, Any]:
    optimizer, run = message.pop("optimizer"), message.pop("run")
    request = Request(**message)
    try:
        return {"draft": asdict(draft_profile(path, request, optimizer, run))}
    except FomkitError as error:
        return {"errors": [[error.where, error.what]], "final": True}
    except Exception as error:  # a file of a stranger may show a fault of the library, or of this program
        told = explain_exception(error, request.where, path)
        return {"errors": [[told.where, told.what]], "final": True}


def main() -> None:
    """Run one request."""
    message, answer = take_request()
    path = Path(message.pop("path"))
    answer.leave(_result(path, message))
    os._exit(0)

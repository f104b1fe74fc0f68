"""The child process that runs a user's file with a PyTorch model."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from fomkit.trace.drafting import Request
from fomkit.trace.file_child import run_file_request
from fomkit.trace.model_file import NEVER_MENDED, run_file, take_workload
from fomkit.trace.torch_modules import watch_made_modules
from fomkit.trace.torch_profile import draft_profile
from fomkit.trace.torch_shape_only import shape_only
from fomkit.trace.torch_workload import check_workload


def _profile(path: Path, request: Request) -> dict[str, Any]:
    with shape_only(request.route), watch_made_modules():
        workload = take_workload(run_file(path), request.where, check_workload)
        return {"draft": asdict(draft_profile(workload, request, own=True))}


def main() -> None:
    """Run one request."""
    run_file_request(_profile, lambda error: isinstance(error, NEVER_MENDED))

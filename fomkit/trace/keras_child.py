"""The child process that runs a user's file with a Keras model."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import keras

from fomkit.trace.draft import Draft
from fomkit.trace.drafting import Request
from fomkit.trace.file_child import run_file_request
from fomkit.trace.keras_lines import watch_made_layers
from fomkit.trace.keras_profile import draft_profile
from fomkit.trace.keras_workload import check_workload
from fomkit.trace.model_file import run_file, take_workload


def _weights() -> Any:
    if keras.backend.backend() != "tensorflow":
        return nullcontext()
    from fomkit.trace.keras_weights import weights_without_data

    return weights_without_data()


def _profile(path: Path, request: Request) -> Draft:
    with _weights(), watch_made_layers():
        return draft_profile(take_workload(run_file(path), request.where, check_workload), request)


def main() -> None:
    """Run one request."""
    run_file_request(_profile)

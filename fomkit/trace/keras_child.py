"""The child process that runs a user's file with a Keras model."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import keras

from fomkit.trace.drafting import Request
from fomkit.trace.file_child import run_file_request
from fomkit.trace.keras_lines import watch_made_layers
from fomkit.trace.keras_profile import TracedWorkload, trace_workload
from fomkit.trace.keras_workload import check_workload
from fomkit.trace.model_file import run_file, take_workload


def _weights() -> Any:
    if keras.backend.backend() != "tensorflow":
        return nullcontext()
    from fomkit.trace.keras_weights import weights_without_data

    return weights_without_data()


def _nodes(traced: TracedWorkload) -> dict[str, dict[str, Any]]:
    from fomkit.trace.keras_nodes import nodes_of_step
    from fomkit.trace.keras_step import whole_step_of

    step = whole_step_of(traced.prepared, traced.sized.sizes)
    return {name: asdict(node) for name, node in nodes_of_step(traced.prepared, step, traced.sized).items()}


def _profile(path: Path, request: Request) -> dict[str, Any]:
    with _weights(), watch_made_layers():
        traced = trace_workload(take_workload(run_file(path), request.where, check_workload), request)
        return {"draft": asdict(traced.draft), **({"nodes": _nodes(traced)} if request.nodes else {})}


def main() -> None:
    """Run one request."""
    run_file_request(_profile)

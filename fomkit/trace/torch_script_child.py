"""The child process that runs a user's PyTorch program until one of its steps is recorded."""

from __future__ import annotations

from typing import Any

from fomkit.trace.draft import Draft
from fomkit.trace.script_child import Door, run_script
from fomkit.trace.torch_script_draft import draft_script
from fomkit.trace.torch_script_steps import StepWatch, Taken


def _draft(taken: Taken, request: dict[str, Any], partial: str) -> Draft:
    return draft_script(taken, request["name"], partial)


def main() -> None:
    """Run one request."""
    run_script(Door(StepWatch, _draft, "a torch.optim optimizer"))

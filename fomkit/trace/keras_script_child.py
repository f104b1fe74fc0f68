"""The child process that runs a user's Keras program until one of its steps is taken."""

from __future__ import annotations

from fomkit.trace.keras_lines import watch_made_layers
from fomkit.trace.keras_script_draft import draft_script
from fomkit.trace.keras_script_steps import FitWatch
from fomkit.trace.script_child import Door, run_script


def main() -> None:
    """Run one request."""
    with watch_made_layers():
        run_script(Door(FitWatch, draft_script, "Model.fit or train_on_batch"))

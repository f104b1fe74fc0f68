"""What a workload for PyTorch must have, and what it lacks."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from fomkit.errors import FomkitError, ManyFomkitError
from fomkit.trace.model_file import count_errors
from fomkit.workload import Workload

EXAMPLES: Mapping[str, str] = {
    "model": "model = torch.nn.Linear(784, 10)",
    "inputs": "inputs = lambda batch: torch.randn(batch, 784)",
    "batch_size": "batch_size = 100",
}
"""What to write for each name that a workload cannot do without."""


def check_workload(workload: Workload, where: str) -> None:
    """Raise unless a workload has a model, inputs and sensible counts.

    Raises
    ------
    ManyFomkitError
        With every mistake.
    """
    errors = count_errors(workload, where)
    if workload.model is None:
        errors.append(FomkitError(where, f"'model' is missing. Give one, for example: {EXAMPLES['model']}"))
    elif not isinstance(workload.model, torch.nn.Module):
        made = "a class: call it" if isinstance(workload.model, type) else f"a {type(workload.model).__name__}"
        errors.append(FomkitError(where, f"'model' is {made}. A torch.nn.Module was expected."))
    if workload.inputs is None:
        errors.append(
            FomkitError(where, f"'inputs' is missing: a tensor, tuple or dict, or a function of the batch size "
                               f"giving one. For example: {EXAMPLES['inputs']}")
        )  # fmt: skip
    if workload.loss is not None and not callable(workload.loss):
        errors.append(
            FomkitError(where, "the loss is not a function. Give one of (output, inputs), for example: "
                               "loss_fn = lambda output, inputs: output.mean()")
        )  # fmt: skip
    if errors:
        raise ManyFomkitError(errors)

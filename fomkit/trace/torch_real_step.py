"""One training step or inference, run for real: with weights, data and gradients."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from fomkit.errors import FomkitError
from fomkit.trace.drafting import Request
from fomkit.trace.torch_inputs import inputs_and_sizes
from fomkit.trace.torch_optimizers import make_optimizer
from fomkit.trace.torch_step import Prepared, arguments_for, loss_of
from fomkit.workload import Workload


@dataclass
class RealStep:
    """A step that can be run again and again.

    Attributes
    ----------
    run : function
        Runs it and gives the loss; of an inference the output.
    sizes : dict
        Its named sizes.
    notes : list of str
    """

    run: Callable[[], Any]
    sizes: dict[str, int]
    notes: list[str] = field(default_factory=list)


def _on(values: Any, device: str) -> Any:
    return tree_map(lambda leaf: leaf.to(device) if isinstance(leaf, torch.Tensor) else leaf, values)


Casting = Callable[[], AbstractContextManager[Any]]


def _casting(precision: str, device: str) -> Casting:
    """Give what the forward pass and the loss run in: autocast to bf16, or nothing."""
    if not precision:
        return nullcontext
    return lambda: torch.autocast(device, dtype=torch.bfloat16)


def _training(prepared: Prepared, inputs: Any, casting: Casting, notes: list[str]) -> Callable[[], Any]:
    model, optimizer = prepared.model, prepared.optimizer
    values, named = arguments_for(model, inputs, notes)
    parameters = list(model.parameters())

    def run() -> Any:
        if optimizer is None:
            for parameter in parameters:
                parameter.grad = None
        else:
            optimizer.zero_grad(set_to_none=True)
        with casting():
            loss = loss_of(prepared, model(*values, **named), inputs, notes)
        loss.backward()  # type: ignore[no-untyped-call]
        if optimizer is not None:
            optimizer.step()
        return loss.detach()

    return run


def _inference(prepared: Prepared, inputs: Any, casting: Casting, notes: list[str]) -> Callable[[], Any]:
    values, named = arguments_for(prepared.model, inputs, notes)

    def run() -> Any:
        with torch.no_grad(), casting():
            return prepared.model(*values, **named)

    return run


def real_step(workload: Workload, request: Request, device: str, precision: str = "") -> RealStep:
    """Make a workload's step ready to run.

    Parameters
    ----------
    workload : Workload
        Its model is used itself.
    request : Request
    device : str
        ``cpu`` or ``cuda``.
    precision : str
        ``bf16`` for autocast of forward pass and loss; "" for the step as it is.

    Raises
    ------
    FomkitError
        When the workload lacks something.
    """
    notes: list[str] = []
    model = workload.model.to(device)
    infer = request.mode == "infer"
    model.train(not infer)
    optimizer = None if infer else make_optimizer(workload.optimizer, model, request.where)
    if optimizer is None and not infer:
        notes.append("no optimizer is given: the step has no update")
    make, sizes = inputs_and_sizes(workload, request.sizes, request.where, real=True)
    prepared = Prepared(
        model, make, workload.loss, optimizer, stand_ins={}, mode=request.mode, on_meta=False, where=request.where
    )
    if getattr(model, "_orig_mod", model) is not model:
        notes.append("the model is compiled and was timed so; what it compiles has no rows")
    values, casting = _on(make(sizes), device), _casting(precision, device)
    ready = (_inference if infer else _training)(prepared, values, casting, notes)
    return RealStep(ready, sizes, notes)


def check_finite(result: Any, where: str) -> None:
    """Raise where a loss, or an output, is not made of finite numbers.

    Raises
    ------
    FomkitError
    """
    for leaf in tree_leaves(result):
        if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() and not bool(leaf.isfinite().all()):
            what = f"loss is {leaf.item()}" if leaf.numel() == 1 else "output has numbers that are not finite"
            raise FomkitError(
                where,
                f"the {what} in the first step, and times of such numbers are no times of training. Let inputs "
                "give values as in training, for example torch.randn, and not torch.empty.",
            )


def is_finite(result: Any) -> bool:
    """Tell whether a loss, or an output, is made of finite numbers."""
    try:
        check_finite(result, "")
    except FomkitError:
        return False
    return True

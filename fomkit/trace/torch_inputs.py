"""Inputs at any batch size: from the user's function, or from given tensors by a new first dimension."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from fomkit.errors import FomkitError
from fomkit.trace.torch_shape_only import tree_without_data
from fomkit.workload import Workload

MakeInputs = Callable[[int], Any]


def _tensors(values: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]


def _from_function(make: MakeInputs, where: str) -> MakeInputs:
    def inputs(batch: int) -> Any:
        values = tree_without_data(make(batch))
        if not _tensors(values):
            raise FomkitError(where, f"inputs({batch}) gave no tensor. Let it return a tensor, a tuple or a dict.")
        return values

    return inputs


def _from_tensors(values: Any, given: int, where: str) -> MakeInputs:
    def at(batch: int, leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor) and leaf.dim() and leaf.shape[0] == given:
            return leaf.new_empty((batch, *leaf.shape[1:]))
        return leaf

    def inputs(batch: int) -> Any:
        if batch == given:
            return values
        if not any(tensor.dim() and tensor.shape[0] == given for tensor in _tensors(values)):
            raise FomkitError(
                where,
                f"no input tensor has the batch size {given} as its first dimension, so batch {batch} cannot be "
                "made. Give inputs as a function of the batch size.",
            )
        return tree_map(lambda leaf: at(batch, leaf), values)

    return inputs


def inputs_and_batch(workload: Workload, batch: int | None, where: str) -> tuple[MakeInputs, int]:
    """Give the inputs as a function of the batch size, and the batch size to trace at.

    Parameters
    ----------
    workload : Workload
    batch : int or None
        What was asked for; None takes the workload's own, else the first dimension of the first input.
    where : str
        The user's file, for error messages.

    Raises
    ------
    FomkitError
        When there is no tensor, or the batch size is not known.
    """
    given = workload.batch_size
    if callable(workload.inputs) and not isinstance(workload.inputs, torch.Tensor):
        if batch is None and given is None:
            raise FomkitError(
                where,
                "'batch_size' is missing, which inputs as a function needs. Give it, for example: "
                "batch_size = 100, or pass --batch 100.",
            )
        return _from_function(workload.inputs, where), batch or given or 1
    values = tree_without_data(workload.inputs)
    tensors = _tensors(values)
    if not tensors:
        raise FomkitError(where, f"inputs is {values!r:.80}, without a tensor. Give a tensor, a tuple or a dict.")
    own = given or (tensors[0].shape[0] if tensors[0].dim() else 1)
    return _from_tensors(values, own, where), batch or own

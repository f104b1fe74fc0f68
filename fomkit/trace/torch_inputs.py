"""Inputs at any named sizes: from the user's function, or from given tensors by a new first dimension."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from fomkit.errors import FomkitError, nearest_names
from fomkit.trace.input_sizes import MakeInputs, named_sizes
from fomkit.trace.symbolic import Sizes
from fomkit.trace.torch_shape_only import tree_without_data
from fomkit.workload import Workload


def _tensors(values: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]


def _from_function(make: Callable[..., Any], where: str, *, real: bool) -> MakeInputs:
    def inputs(sizes: Sizes) -> Any:
        others = {name: size for name, size in sizes.items() if name != "batch"}
        values = make(sizes["batch"], **others)
        values = values if real else tree_without_data(values)
        if not _tensors(values):
            raise FomkitError(
                where, f"inputs({sizes['batch']}) gave no tensor. Let it return a tensor, a tuple or a dict."
            )
        return values

    return inputs


def _from_tensors(values: Any, given: int, where: str, *, real: bool) -> MakeInputs:
    def at(batch: int, leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor) and leaf.dim() and leaf.shape[0] == given:
            if real:
                return leaf[torch.arange(batch) % given]
            return leaf.new_empty((batch, *leaf.shape[1:]))
        return leaf

    def inputs(sizes: Sizes) -> Any:
        batch = sizes["batch"]
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


def _chosen(known: dict[str, int], wanted: Sizes, where: str) -> dict[str, int]:
    for name in wanted:
        if name not in known:
            raise FomkitError(where, f"inputs has no size {name!r}. {nearest_names(name, known)}")
    return {**known, **wanted}


def inputs_and_sizes(
    workload: Workload, wanted: Sizes, where: str, *, real: bool = False
) -> tuple[MakeInputs, dict[str, int]]:
    """Give the inputs as a function of the named sizes, and the sizes to trace at, the batch first.

    Parameters
    ----------
    workload : Workload
    wanted : mapping
        What was asked for. Else the batch is the workload's own or the first dimension of the first input, and
        other sizes are the defaults of the inputs function.
    where : str
        The user's file, for error messages.
    real : bool
        Whether the inputs keep their data; given tensors are then repeated for a larger batch.

    Raises
    ------
    FomkitError
        When there is no tensor, the batch size is not known, or a size is asked for that nobody named.
    """
    given = workload.batch_size
    if callable(workload.inputs) and not isinstance(workload.inputs, torch.Tensor):
        batch = wanted.get("batch") or given
        if batch is None:
            raise FomkitError(
                where,
                "'batch_size' is missing, which inputs as a function needs. Give it, for example: "
                "batch_size = 100, or pass --batch 100.",
            )
        known = {"batch": batch, **named_sizes(workload.inputs, where)}
        return _from_function(workload.inputs, where, real=real), _chosen(known, wanted, where)
    values = workload.inputs if real else tree_without_data(workload.inputs)
    tensors = _tensors(values)
    if not tensors:
        raise FomkitError(where, f"inputs is {values!r:.80}, without a tensor. Give a tensor, a tuple or a dict.")
    own = given or (tensors[0].shape[0] if tensors[0].dim() else 1)
    return _from_tensors(values, own, where, real=real), _chosen({"batch": own}, wanted, where)

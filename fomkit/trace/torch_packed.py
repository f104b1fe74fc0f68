"""Packed sequences without data: how long each one is, is a value; where it is not known all count as full."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence
from torch.utils._python_dispatch import _disable_current_modes

from fomkit.trace.torch_recorder import Recorder


def pack_without_data(
    recorder: Recorder, values: torch.Tensor, lengths: torch.Tensor, batch_first: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Stand for ``aten::_pack_padded_sequence``, which reads the lengths.

    Parameters
    ----------
    values : Tensor
        Padded sequences, shape (steps, batch, …), or (batch, steps, …) with ``batch_first``.
    lengths : Tensor
        Shape (batch,); descending where they have data.

    Returns
    -------
    tuple of Tensor
        The packed values, copied, and the samples in each step, which have data.
    """
    by_step = values.transpose(0, 1) if batch_first else values
    steps, batch = by_step.shape[:2]
    known = _known(lengths)
    if known is None:
        recorder.note("packed sequences: lengths are not known without data; every sequence is taken as full")
        known = [steps] * batch
    with torch._C.DisableTorchFunction(), _disable_current_modes():
        samples = torch.tensor([sum(length > step for length in known) for step in range(max(known))])
    packed = by_step.flatten(0, 1)[: sum(known)]
    return packed if batch_first else packed.clone(), samples


def _known(lengths: torch.Tensor) -> list[int] | None:
    """Give the values of lengths that have any."""
    if type(lengths) is not torch.Tensor or lengths.is_meta:
        return None
    with torch._C.DisableTorchFunction(), _disable_current_modes():
        return [int(length) for length in lengths]


def packed_steps(values: PackedSequence) -> tuple[int, int] | None:
    """Give steps and samples of a packed sequence; None where its sequences differ in length."""
    with torch._C.DisableTorchFunction(), _disable_current_modes():
        samples = [int(one) for one in values.batch_sizes]
    return (len(samples), samples[0]) if samples[0] == samples[-1] else None


def is_packing(func: Any) -> bool:
    """Tell whether a function of PyTorch is the one that packs."""
    return getattr(func, "__name__", "") == "_pack_padded_sequence"

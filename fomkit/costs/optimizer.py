"""Optimizer updates, per rule and implementation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from fomkit.costs.formula import Cost, Variant, sizes


class Traffic(NamedTuple):
    """Elements read and written, and flop, per parameter element, of one kernel or one update."""

    reads: int
    writes: int
    flop: int


KERNELS: Mapping[str, Traffic] = {
    "mul": Traffic(1, 1, 1),
    "add": Traffic(1, 1, 1),
    "sqrt": Traffic(1, 1, 1),
    "div": Traffic(1, 1, 1),
    "add_scaled": Traffic(2, 1, 2),
    "lerp": Traffic(2, 1, 3),
    "addcmul": Traffic(2, 1, 3),
    "addcdiv": Traffic(3, 1, 3),
}
"""The kernels that unfused updates are made of; each operand counts once, so a squared gradient is one read."""

_ADAM = "lerp mul addcmul sqrt div add addcdiv"
_ADAGRAD = "addcmul sqrt add"
UNFUSED: Mapping[tuple[str, str], str] = {
    ("sgd", "per_tensor"): "add_scaled",
    ("sgd", "foreach"): "add_scaled",
    ("momentum", "per_tensor"): "mul add_scaled add_scaled",
    ("momentum", "foreach"): "mul add_scaled add_scaled",
    ("nesterov", "per_tensor"): "mul add_scaled add_scaled add_scaled",
    ("nesterov", "foreach"): "mul add_scaled add_scaled add_scaled",
    ("adam", "per_tensor"): _ADAM,
    ("adam", "foreach"): _ADAM,
    ("adamw", "per_tensor"): f"mul {_ADAM}",
    ("adamw", "foreach"): f"mul {_ADAM}",
    ("rmsprop", "per_tensor"): "mul addcmul sqrt add addcdiv",
    ("rmsprop", "foreach"): "mul addcmul sqrt add addcdiv",
    ("adagrad", "per_tensor"): f"{_ADAGRAD} addcdiv",
    ("adagrad", "foreach"): f"{_ADAGRAD} mul addcdiv",
}
"""Kernels of one update, in the order of torch 2.13 (torch.optim); weight decay is a row of its own, no amsgrad.

Adam moves 11 reads and 7 writes: 18 × 4 B × 30,088,701 = 2.166 GB on P1B3. A trace that counts the squared
gradient twice and falls on the first step, which creates two states (4 more), sees 23, which is 2.77 GB.
"""

FUSED: Mapping[str, Traffic] = {
    "sgd": Traffic(2, 1, 2),
    "momentum": Traffic(3, 2, 5),
    "nesterov": Traffic(3, 2, 7),
    "adam": Traffic(4, 3, 13),
    "adamw": Traffic(4, 3, 14),
    "adagrad": Traffic(3, 2, 8),
}
"""One kernel that reads parameter, gradient and state and writes parameter and state: Adam 7 × 4 B an element."""

CHUNK = 65_536
BLOCKS = 320
TENSORS = 48
"""Elements a block, blocks and tensors a launch of a list kernel over three lists (ATen MultiTensorApply.cuh)."""


def _list_launches(numel: Any, tensors: Any) -> Any:
    import sympy

    return sympy.ceiling(numel / (CHUNK * BLOCKS) + tensors / TENSORS)


def formulas() -> dict[Variant, Cost]:
    """Price one update of ``numel`` parameters in ``tensors`` tensors.

    Unfused updates start each kernel per tensor (``per_tensor``) or per list (``foreach``); a list is cut into
    launches when `BLOCKS` blocks or `TENSORS` tensors are full; their sum counts at most a few launches too many.

    Examples
    --------
    >>> str(formulas()["adam", "fused"].byte)
    '7*item_byte*numel'
    """
    numel, tensors, item_byte = sizes("numel tensors item_byte")
    per_list = _list_launches(numel, tensors)
    table: dict[Variant, Cost] = {}
    for (rule, impl), names in UNFUSED.items():
        kernels = [KERNELS[name] for name in names.split()]
        moved = sum(kernel.reads + kernel.writes for kernel in kernels)
        flop = sum(kernel.flop for kernel in kernels)
        each = tensors if impl == "per_tensor" else per_list
        table[(rule, impl)] = Cost(flop * numel, moved * item_byte * numel, len(kernels) * each)
    for rule, update in FUSED.items():
        moved = update.reads + update.writes
        table[(rule, "fused")] = Cost(update.flop * numel, moved * item_byte * numel, per_list)
    return table

"""Costs of kinds whose time is determined by traffic, and of optimizer updates, per rule and implementation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from fomkit.core.model import STATE_TENSORS
from fomkit.ops.families.formula import Cost, Size, Variant, ceil

NORM_FLOP: Mapping[str, int] = {"forward": 8, "backward": 13}
"""Flop per element of layer normalisation (Ba et al., arXiv:1607.06450), without all work per row.

Forward: mean 1; squared deviation summed 3; centred and scaled 2; gain and bias 2. Backward: gradient times
gain 1; normalised value again 2; two row sums 1 + 2; combination 4; gradients of gain 2 and bias 1.
"""

SOFTMAX_FLOP: Mapping[str, int] = {"forward": 5, "backward": 4}
"""Flop per element of a stable softmax: maximum, difference, exponential, sum, quotient; back y·(g − Σ y·g)."""


def per_element(numel: Size, read_byte: Size, write_byte: Size) -> Cost:
    """Price one operation per element, of any kind: an exponential counts 1, like an addition.

    >>> per_element(numel=10, read_byte=80, write_byte=40)
    Cost(flop=10, byte=120, launches=1)
    """
    return Cost(numel, read_byte + write_byte)


def moved(read_byte: Size, write_byte: Size) -> Cost:
    """Price ops that only move data: no flop."""
    return Cost(0, read_byte + write_byte)


def norm(pass_name: str, numel: Size, read_byte: Size, write_byte: Size) -> Cost:
    """Price a normalisation by `NORM_FLOP`, batch and group norms alike."""
    return Cost(NORM_FLOP[pass_name] * numel, read_byte + write_byte)


def softmax(pass_name: str, numel: Size, read_byte: Size, write_byte: Size) -> Cost:
    """Price a softmax or log-softmax by `SOFTMAX_FLOP`."""
    return Cost(SOFTMAX_FLOP[pass_name] * numel, read_byte + write_byte)


class Traffic(NamedTuple):
    """Elements read and written, and flop, per parameter element, of one kernel or one update."""

    reads: int
    writes: int
    flop: int


KERNELS: Mapping[str, Traffic] = {
    **dict.fromkeys(("mul", "add", "sqrt", "div", "abs", "reciprocal"), Traffic(1, 1, 1)),
    **dict.fromkeys(("mul_two", "div_two", "maximum"), Traffic(2, 1, 1)),
    "add_scaled": Traffic(2, 1, 2),
    "lerp": Traffic(2, 1, 3),
    "addcmul": Traffic(2, 1, 3),
    "addcmul_three": Traffic(3, 1, 3),
    "addcdiv": Traffic(3, 1, 3),
}
"""The kernels of unfused updates; each operand counts once, so a squared gradient is one read."""

_MOMENTS = "lerp mul addcmul"
_MEAN_SQUARE = "mul addcmul"
_CENTERED = f"{_MEAN_SQUARE} lerp addcmul"
_STEP = "sqrt add addcdiv"
_MOMENTUM_STEP = "sqrt add mul addcdiv add_scaled"
UNFUSED: Mapping[str, str] = {
    "sgd": "add_scaled",
    "momentum": "mul add_scaled add_scaled",
    "nesterov": "mul add_scaled add_scaled add_scaled",
    "adam": f"{_MOMENTS} sqrt div add addcdiv",
    "adam_amsgrad": f"{_MOMENTS} maximum sqrt div add addcdiv",
    "adamw": f"mul {_MOMENTS} sqrt div add addcdiv",
    "adamw_amsgrad": f"mul {_MOMENTS} maximum sqrt div add addcdiv",
    "adamax": "lerp mul abs add maximum addcdiv",
    "nadam": f"{_MOMENTS} div sqrt add addcdiv addcdiv",
    "radam": f"{_MOMENTS} div mul sqrt add reciprocal mul mul_two mul add_scaled",
    "rmsprop": f"{_MEAN_SQUARE} {_STEP}",
    "rmsprop_momentum": f"{_MEAN_SQUARE} {_MOMENTUM_STEP}",
    "rmsprop_centered": f"{_CENTERED} {_STEP}",
    "rmsprop_centered_momentum": f"{_CENTERED} {_MOMENTUM_STEP}",
    "adagrad": f"addcmul {_STEP}",
    "adadelta": f"{_MEAN_SQUARE} add sqrt add sqrt div_two mul_two {_MEAN_SQUARE} add_scaled",
}
"""Kernels of one update as torch 2.13 (torch.optim) runs them tensor by tensor; also for lists, except `FOREACH`.

They are those of a step that finds its state; the first step creates the state too. Weight decay is a row of its
own, except for AdamW. Adam has 11 reads and 7 writes: 18 × 4 B × 30,088,701 = 2.166 GB on P1B3. A trace that
counts the squared gradient twice and is of the first step, which creates two states (4 more), has 23: 2.77 GB.
"""

FOREACH: Mapping[str, str] = {
    "adagrad": "addcmul sqrt add mul addcdiv",
    "radam": f"{_MOMENTS} sqrt add div reciprocal add addcmul_three",
}
"""Rules for which an update of whole lists runs other kernels."""

_FUSED_FLOP = {"sgd": 2, "momentum": 5, "nesterov": 7, "adam": 13, "adam_amsgrad": 14, "adamw": 14,
               "adamw_amsgrad": 15, "adagrad": 8}  # fmt: skip
FUSED: Mapping[str, Traffic] = {
    rule: Traffic(2 + STATE_TENSORS[rule], 1 + STATE_TENSORS[rule], flop) for rule, flop in _FUSED_FLOP.items()
}
"""One kernel that reads parameter, gradient and state and writes parameter and state: Adam 7 × 4 B per element."""

CHUNK = 65_536
BLOCKS = 320
TENSORS = 48
"""Elements per block, blocks and tensors per launch, of a kernel over three lists (ATen MultiTensorApply.cuh)."""

VARIANTS: tuple[Variant, ...] = (
    *((rule, impl) for rule in UNFUSED for impl in ("per_tensor", "foreach")),
    *((rule, "fused") for rule in FUSED),
)


def _kernels(rule: str, impl: str) -> list[Traffic]:
    if impl == "fused":
        return [FUSED[rule]]
    names = FOREACH.get(rule, UNFUSED[rule]) if impl == "foreach" else UNFUSED[rule]
    return [KERNELS[name] for name in names.split()]


def optimizer(rule: str, impl: str, numel: Size, tensors: Size, item_byte: Size) -> Cost:
    """Price one update of ``numel`` parameters in ``tensors`` tensors.

    Unfused updates launch each kernel per tensor (``per_tensor``) or per list (``foreach``). A list is split into
    launches when `BLOCKS` blocks or `TENSORS` tensors are full; the sum of both is a few launches too high at
    most.

    >>> optimizer("adam", "per_tensor", numel=1000, tensors=3, item_byte=4)
    Cost(flop=13000, byte=72000, launches=21)
    """
    kernels = _kernels(rule, impl)
    moved = sum(kernel.reads + kernel.writes for kernel in kernels)
    flop = sum(kernel.flop for kernel in kernels)
    each = tensors if impl == "per_tensor" else ceil(numel / (CHUNK * BLOCKS) + tensors / TENSORS)
    return Cost(flop * numel, moved * item_byte * numel, len(kernels) * each)

"""Single ops as something to run and something to check: what a case is, and the cells it is made of.

With the other files of `fomkit.timings.measure_pack.PARTS` this is the script of a pack: it runs where there is
nothing but Python and PyTorch, so it imports nothing of fomkit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

Cells = Mapping[str, str]
CHECKED_ROWS = 64
"""Rows of a product that are computed again; all would take longer than the timing."""
TOLERANCES = {
    "fp64": 1e-9, "fp32": 1e-4, "tf32": 1e-2, "fp16": 1e-2, "bf16": 5e-2, "int64": 0.0, "int32": 0.0, "bool": 0.0,
}  # fmt: skip
"""Largest error beside the largest true value, by number format; grows with the length of sums only slowly."""

FORMATS: Mapping[str, tuple[str, int]] = {
    "fp64": ("float64", 8), "fp32": ("float32", 4), "tf32": ("float32", 4), "fp16": ("float16", 2),
    "bf16": ("bfloat16", 2), "int64": ("int64", 8), "int32": ("int32", 4), "bool": ("bool", 1),
}  # fmt: skip
"""Number formats that are made, with PyTorch's name and the bytes of one number."""


class Case(NamedTuple):
    """One op: ``run`` does it once and gives its result, ``check`` gives the error of a result.

    ``besides`` is what ``run`` does besides the op, where the framework cannot do it alone: its time is taken off.
    Only ``share`` of the time is the op's, where the framework does two ops as one.
    """

    run: Callable[[], Any]
    check: Callable[[Any], float]
    besides: Callable[[], Any] | None = None
    share: float = 1.0


class CannotTimeError(Exception):
    """Why an op is not timed here."""


def size_of(cells: Cells, name: str, default: int | None = None) -> int:
    """Read a whole number; an empty cell is the default, where there is one."""
    text = cells.get(name, "")
    if not text and default is not None:
        return default
    return int(float(text))


def item_byte(cells: Cells) -> int:
    """Give the bytes of one number of a row's format."""
    if cells["dtype"] not in FORMATS:
        raise CannotTimeError(f"numbers of format {cells['dtype']} are not made here")
    return FORMATS[cells["dtype"]][1]


def torch_dtype(cells: Cells) -> Any:
    """Give the framework's number format of a row."""
    import torch

    item_byte(cells)
    return getattr(torch, FORMATS[cells["dtype"]][0])


def error_of(found: Any, truth: Any) -> float:
    """Give the largest error of a result, as a share of the largest true value."""
    scale = truth.abs().max().item()
    return float((found.double() - truth).abs().max().item() / (scale or 1.0))


def made(shape: Sequence[int], cells: Cells, device: str) -> Any:
    """Make a tensor of random values in the row's number format."""
    import torch

    dtype = torch_dtype(cells)
    if dtype.is_floating_point:
        return torch.randn(tuple(shape), device=device, dtype=dtype)
    return torch.randint(0, 2, tuple(shape), device=device).to(dtype)


def exact(value: Any) -> Any:
    """Give a tensor of floating-point numbers in double precision, anything else as it is."""
    return value.double() if getattr(value, "is_floating_point", bool)() else value


def first_of(result: Any) -> Any:
    """Give the first tensor of a result that may be several."""
    return result[0] if isinstance(result, tuple | list) else result


def same_in_double(run: Callable[..., Any], operands: Sequence[Any], *, in_place: bool = False) -> Case:
    """Make a case of a function and its operands, checked by the same function in double precision.

    What runs in place is held against what its operands were before.
    """
    before = [operand.clone() if in_place and hasattr(operand, "clone") else operand for operand in operands]

    def check(result: Any) -> float:
        return error_of(first_of(result), first_of(run(*(exact(operand) for operand in before))).double())

    return Case(lambda: run(*operands), check)

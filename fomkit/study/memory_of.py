"""The memory of a model's step at any batch, and whether a machine's device holds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fomkit.costs import im2col_byte
from fomkit.errors import FomkitError
from fomkit.hardware import Machine
from fomkit.memory import Use, largest_that_fits, memory_use, standing_memory
from fomkit.precision import Formats
from fomkit.quantities import format_quantity
from fomkit.resize import resize_ops, sizes_used
from fomkit.schema import check_table
from fomkit.workload import ModelProfile

if TYPE_CHECKING:
    from numpy.typing import NDArray

BATCH = "batch"


def _check_resizable(model: ModelProfile, sizes: Mapping[str, int]) -> None:
    used = set() if model.order is None else sizes_used(model.order)
    for name, value in sizes.items():
        if value != model.sizes.get(name) and name not in used:
            raise FomkitError(
                model.name,
                f"the order of its ops is fixed at {name} {model.sizes.get(name, 'unknown')}, so the memory at "
                f"{value} needs a new trace. Run 'fomkit profile' on its file with that size.",
            )


def _workspace(model: ModelProfile, sizes: Mapping[str, int]) -> NDArray[np.float64]:
    """Give what each op of the table takes while it runs: of a convolution one sample's im2col [byte]."""
    ops = resize_ops(model.ops, sizes, model.name)
    return np.asarray(im2col_byte(ops, whole_batch=False), np.float64)


def can_follow(model: ModelProfile, sizes: Mapping[str, int]) -> bool:
    """Tell whether the memory of a step is known at these sizes."""
    changed = {name for name, value in sizes.items() if value != model.sizes.get(name)}
    return model.order is not None and changed <= sizes_used(model.order)


def step_memory(
    model: ModelProfile, sizes: Mapping[str, int], workspace: NDArray[np.float64] | None = None
) -> Use | None:
    """Follow the memory of a model's step; None where nobody recorded the order of its ops.

    Parameters
    ----------
    model : ModelProfile
    sizes : mapping
        The value of each named size.
    workspace : array, optional
        Workspace of each op [byte]; default: one sample's im2col for convolutions.

    Raises
    ------
    FomkitError
        When the order is fixed at other sizes, or is not one.
    """
    if model.order is None:
        return None
    _check_resizable(model, sizes)
    where = f"{model.name}, order"
    order = resize_ops(model.order, sizes, where)
    check_table(order, "ORDER", where)
    return memory_use(order, model.ops, _workspace(model, sizes) if workspace is None else workspace, where)


def largest_batch(model: ModelProfile, sizes: Mapping[str, int], capacity_byte: float) -> int | None:
    """Give the largest batch whose step fits; None where the order is unknown or fixed at its batch."""
    if model.order is None or BATCH not in sizes_used(model.order):
        return None
    workspace = _workspace(model, sizes)

    def fits(batch: int) -> bool:
        use = step_memory(model, {**sizes, BATCH: batch}, workspace)
        return use is not None and use.peak_byte <= capacity_byte

    return largest_that_fits(fits)


@dataclass(frozen=True)
class Fit:
    """Whether a device's memory holds a step.

    Attributes
    ----------
    fits : bool or None
        None where nobody knows: no capacity is stated, or only a part of what the step needs is known.
    said : str
        What does not fit, in words; "" otherwise.
    """

    fits: bool | None = None
    said: str = ""


UNKNOWN_FIT = Fit()


def fit_of(model: ModelProfile, machine: Machine, sizes: Mapping[str, int], formats: Formats) -> Fit:
    """Tell whether a step fits the device's memory.

    Activations in a narrower format than was traced are not judged; parameters, gradients and the optimizer's
    state are, because the update stays in fp32: they can only show that a step does not fit.
    """
    capacity = machine.device.capacity_byte
    if capacity is None:
        return UNKNOWN_FIT
    narrowed = formats.stream not in ("", "fp32")
    use = step_memory(model, sizes) if can_follow(model, sizes) and not narrowed else None
    if use is not None:
        needed = use.peak_byte
    else:
        standing = standing_memory(resize_ops(model.ops, sizes, model.name), model.parameters_total)
        needed = 0.0 if standing is None else standing.byte
    if needed <= capacity.value:
        return UNKNOWN_FIT if use is None else Fit(True)
    has, wants = (format_quantity(byte, "byte") for byte in (capacity.value, needed))
    of = "a step" if use is not None else "parameters, gradients and the optimizer's state alone"
    said = f"does not fit: {machine.name} has {has} of memory a device, {of} would fill {wants} (fomkit memory)"
    return Fit(False, said)

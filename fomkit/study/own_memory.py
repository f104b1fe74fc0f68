"""What a step on a processor does otherwise: its update by default, and pages that its own memory gets anew.

PyTorch updates tensor by tensor on a processor where nobody asked for anything else. And what a step makes and
frees lies on the heap of the process: the C library gives pages back to the system when enough of them are free
at its end, and asks for them again, at the machine's rate of fresh pages. Whether it does depends on where
long-lived pieces happened to land. Counted page by page, steps of ten models got between nothing and all of their
own memory anew (docs/adr/0027): half of it is taken, and the interval spans all but a tenth at each end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from fomkit.hardware import Fact, Machine, Overhead
from fomkit.spans import DEFAULT_LEVEL
from fomkit.study.device_kind import device_kind
from fomkit.study.memory_of import can_follow, step_memory
from fomkit.workload import IMPL_BY_DEFAULT, ModelProfile

NAME = "fresh pages"
UPDATED_ALONE = "the update runs tensor by tensor: the framework's default on a processor"
NOT_COUNTED = "pages that smaller tensors get anew are not counted: the memory of the step is not known"
KEPT = ("parameter", "input", "state")
"""Roles of what stays from step to step."""


def updated_as_there(model: ModelProfile, machine: Machine) -> ModelProfile:
    """Give a model whose update runs tensor by tensor, where that is the default of the machine's device.

    Parameters
    ----------
    model : ModelProfile
        Unchanged where its implementation was asked for, or nobody noted whether it was.
    machine : Machine
        Unchanged where it is no processor, as far as its words tell.
    """
    if model.optimizer.get("impl_from") != IMPL_BY_DEFAULT or device_kind(machine) != "cpu":
        return model
    impl = model.ops["impl"].where(model.ops["impl"] != "foreach", "per_tensor")
    return replace(model, ops=model.ops.assign(impl=impl), optimizer={**model.optimizer, "impl": "per_tensor"})


def own_byte(model: ModelProfile, sizes: Mapping[str, int], largest: float) -> float | None:
    """Give the most memory [byte] that stands at once of what a step makes and frees; None where nobody knows.

    Pieces of ``largest`` bytes or more are left out: their pages are fresh each time, and counted with their ops.
    """
    use = step_memory(model, sizes) if can_follow(model, sizes) else None
    if use is None:
        return None
    own = use.pieces[~use.pieces["role"].isin(KEPT) & (use.pieces["byte"] < largest)]
    first, last = own["first"].to_numpy(int), own["last"].to_numpy(int)
    byte, moments = own["byte"].to_numpy(np.float64), len(use.live_byte) + 1
    live = np.cumsum(np.bincount(first, byte, moments) - np.bincount(last + 1, byte, moments))
    return float(live.max())


def with_fresh_pages(machine: Machine, model: ModelProfile, sizes: Mapping[str, int]) -> Machine:
    """Give a machine with an overhead per step: the pages that a model's own memory gets anew.

    Unchanged where the machine does not say what fresh pages take, or nobody recorded the order of the ops.
    """
    rate, largest = machine.device.fresh_byte_per_s, machine.device.fresh_above_byte
    byte = None if rate is None or largest is None else own_byte(model, sizes, largest)
    if rate is None or not byte:
        return machine
    tail = (1 - DEFAULT_LEVEL) / 2
    half, low, high = (share * byte / rate.value for share in (0.5, tail, 1 - tail))
    source = f"half of the {byte:.4g} byte that a step makes and frees, at the machine's rate of fresh pages"
    mine = Overhead(NAME, "step", Fact(half, low, high, "modelled", source), None)
    return replace(machine, overheads=(*(one for one in machine.overheads if one.name != NAME), mine))


def said_of_processor(traced: ModelProfile, model: ModelProfile, machine: Machine) -> Iterator[str]:
    """Say what was done otherwise on a processor, of a machine that has its overheads."""
    if model is not traced:
        yield UPDATED_ALONE
    if machine.device.fresh_byte_per_s is not None and all(one.name != NAME for one in machine.overheads):
        yield NOT_COUNTED

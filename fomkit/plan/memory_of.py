"""The memory of a model's step at any batch, whether it fits a device, and the differences on a processor (CPU).

On a processor PyTorch updates tensor by tensor by default. Memory that a step allocates and frees is on the heap
of the process. The C library returns pages to the system when enough of them are free at the heap's end, and
requests them again at the machine's rate of fresh pages. Whether it does depends on where long-lived pieces happen
to be. Counted page by page, steps of ten models got between none and all of their own memory anew (docs/adr/0027).
The prediction is therefore half of it, and the interval all but a tenth at each end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fomkit.core.errors import FomkitError
from fomkit.core.interval import DEFAULT_LEVEL
from fomkit.core.machine import Fact, Machine, Overhead
from fomkit.core.measurement import device_kind
from fomkit.core.model import BATCH, IMPL_BY_DEFAULT, STATE_TENSORS, TO_SHORT, ModelProfile
from fomkit.core.units import BINARY, ITEM_BYTE, memory_text
from fomkit.ops import precision
from fomkit.ops.autocast import narrow_order
from fomkit.ops.check import check_table
from fomkit.ops.columns import cached
from fomkit.ops.conv_methods import im2col_byte
from fomkit.ops.resize import resize_ops, sizes_used
from fomkit.plan import memory
from fomkit.plan.options import Options, choose_sizes

STEPS = 8
"""Number of sizes at which the memory of a model's step is cached."""


def _used(order: pd.DataFrame | None) -> set[str]:
    """Return the named sizes that the order of a step depends on."""
    return set() if order is None else cached(order, None, "sizes", lambda: sizes_used(order))


def _workspace(model: ModelProfile, sizes: Mapping[str, int]) -> NDArray[np.float64]:
    """Return the workspace of each op of the table while it runs: for a convolution one sample's im2col [byte]."""
    ops = resize_ops(model.ops, sizes, model.name)
    return np.asarray(im2col_byte(ops, whole_batch=False), np.float64)


def can_follow(model: ModelProfile, sizes: Mapping[str, int]) -> bool:
    """Check whether the memory of a step is known at these sizes."""
    if model.order is None:
        return _counted_by_sizes(model)
    return _used(model.order).issuperset(model.resized(sizes))


LEFT_OUT = 0.01
"""Share of the parameters that an update may leave out, such as small biases that layouts do not split."""


def _counted_by_sizes(model: ModelProfile) -> bool:
    """Return whether the memory of a step is that of a layout: by the sizes of a transformer.

    So it is of a training whose update is still that of the sizes: Adam, of all parameters.
    """
    shape, batch = model.transformer, model.batch
    if shape is None or batch is None or model.order is not None or not model.trains_by_sizes:
        return False

    def counted() -> bool:
        ops = resize_ops(model.ops, model.sizes, model.name)
        standing, rules = memory.standing_memory(ops), {*ops["rule"].dropna()} - {""}
        every = ITEM_BYTE["fp32"] * (model.parameters_total or 0)
        if standing is None or {*map(STATE_TENSORS.get, rules)} != {STATE_TENSORS["adam"]}:
            return False
        return abs(standing.gradient - every) < LEFT_OUT * every

    return cached(model.ops, None, f"by sizes {shape} {model.parameters_total}", counted)


def held_by_sizes(model: ModelProfile, sizes: Mapping[str, int]) -> memory.Held | None:
    """Return the memory by role of a transformer's training step on one device, as a layout of data=1 counts it.

    None where the order of the ops counts, or the ops are not those of the sizes.
    """
    if model.transformer is None or not _counted_by_sizes(model):
        return None
    from fomkit.core.job import Layout

    shape = replace(model.transformer, seq=sizes.get("seq", model.transformer.seq))
    return memory.part_held(shape, Layout(), sizes[BATCH], 1, 1)


def peak_byte(
    model: ModelProfile, sizes: Mapping[str, int], workspace: NDArray[np.float64] | None = None
) -> float | None:
    """Return the most memory that a step in its formats has in use at once [byte]; None where it is unknown."""
    if (held := held_by_sizes(model, sizes)) is not None:
        return sum(held.values())
    use = step_memory(model, sizes, workspace)
    return None if use is None else use.peak_byte


def step_memory(
    model: ModelProfile, sizes: Mapping[str, int], workspace: NDArray[np.float64] | None = None
) -> memory.Use | None:
    """Trace the memory of a step, by default with one sample's im2col as workspace; None without an op order."""
    if model.order is None:
        return None
    used = _used(model.order)
    for name in model.resized(sizes):
        if name not in used:
            raise FomkitError(
                model.name,
                f"the order of its ops is fixed at {name} {model.sizes.get(name, 'unknown')}, so the memory at "
                f"{sizes[name]} needs a new trace. Run 'fomkit profile' on its file with that size.",
            )
    if workspace is not None:
        return _followed_step(model, model.order, sizes, workspace)
    # Cached: each what-if and each machine queries the same step.
    known: dict[tuple[tuple[str, int], ...], memory.Use] = cached(model.order, model.ops, "memory of steps", dict)
    key = tuple(sorted(sizes.items()))
    if key not in known:
        while len(known) >= STEPS:
            known.pop(next(iter(known)))
        known[key] = _followed_step(model, model.order, sizes, _workspace(model, sizes))
    return known[key]


def _followed_step(
    model: ModelProfile, order: pd.DataFrame, sizes: Mapping[str, int], workspace: NDArray[np.float64]
) -> memory.Use:
    where = f"{model.name}, order"
    resized = resize_ops(order, sizes, where)
    check_table(resized, "ORDER", where)
    return memory.memory_use(resized, model.ops, workspace, where)


def largest_batch(model: ModelProfile, sizes: Mapping[str, int], capacity_byte: float) -> int | None:
    """Return the largest batch whose step fits; None where the order is unknown or fixed at its batch."""
    if BATCH not in _used(model.order) and not _counted_by_sizes(model):
        return None
    workspace = None if model.order is None else _workspace(model, sizes)

    def fits(batch: int) -> bool:
        needed = peak_byte(model, {**sizes, BATCH: batch}, workspace)
        return needed is not None and needed <= capacity_byte

    return memory.largest_that_fits(fits)


RESERVE = (1 / 80, 0.5 * BINARY["Gi"])
"""Share of a device's capacity that its driver keeps, and bytes of a process besides its tensors."""
RESERVE_ENDS = ((0.0, 0.25 * BINARY["Gi"]), (1 / 40, 1.5 * BINARY["Gi"]))
RESERVE_SOURCE = (
    "PyTorch's out-of-memory messages (docs/adr/0082): a driver keeps 1/80 of the capacity (0 to 1/40), the "
    "context and libraries of a process 0.5 GiB (0.25 to 1.5)"
)


def reserve_of(machine: Machine) -> Fact | None:
    """Return the memory of a device that a program holds besides the tensors that are counted [byte].

    The machine's own, else a default for any device; None where its capacity is unknown.

    >>> import fomkit
    >>> round(reserve_of(fomkit.machine("h100-sxm")).value / 2**20)
    1536
    """
    capacity = machine.device.capacity_byte
    if capacity is None or machine.reserve_byte is not None:
        return None if capacity is None else machine.reserve_byte
    value, low, high = (share * capacity.value + byte for share, byte in (RESERVE, *RESERVE_ENDS))
    return Fact(value, low, high, "assumed", RESERVE_SOURCE)


def room_byte(machine: Machine) -> float | None:
    """Return the memory of a device without the reserve [byte]; None where its capacity is unknown."""
    capacity, reserve = machine.device.capacity_byte, reserve_of(machine)
    return None if capacity is None or reserve is None else max(capacity.value - reserve.value, 0.0)


@dataclass(frozen=True)
class Fit:
    """Whether a step fits in a device's memory.

    `fits`: false only where it cannot fit, even without the reserve; None where unknown: no capacity is stated, or
      only a part of the step's memory is known.
    `message`: what does not fit, in words; "" otherwise.
    `warning`: that it fits only without the reserve; "" otherwise.
    """

    fits: bool | None = None
    message: str = ""
    warning: str = ""

    @property
    def notes(self) -> tuple[str, ...]:
        """Message and warning, where there is one."""
        return tuple(text for text in (self.message, self.warning) if text)


UNKNOWN_FIT = Fit()
NO_FIT = "does not fit"
"""Prefix of the message that a step fits in no device."""
TIGHT = "fits only without the reserve"
"""Prefix of the warning that a step leaves too little memory for the framework and its libraries."""
IN_MEMORY = " (fomkit memory)"
"""Suffix of a message that refers to the verb for details."""


def fit_in(
    machine: Machine, needed_byte: float | None, of: str = "a step", *, whole: bool = True, see: str = ""
) -> Fit:
    """Check whether a step, or a device's part of it, fits in a device's memory, and beside the reserve.

    `needed_byte`: None where it is unknown; `whole`: false for a part of the memory, which can only show that the
    step does not fit; `see`: suffix of the notes.
    """
    capacity, reserve, room = machine.device.capacity_byte, reserve_of(machine), room_byte(machine)
    if capacity is None or reserve is None or room is None or needed_byte is None:
        return UNKNOWN_FIT
    has, needs = memory_text(capacity.value), memory_text(needed_byte)
    if needed_byte > capacity.value:
        what = f"{machine.name} has {has} of memory per device, {of} would need {needs}"
        return Fit(False, f"{NO_FIT}: {what}{see}")
    fits = True if whole else None
    if needed_byte <= room:
        return Fit(fits)
    takes = f"of which the framework and its libraries take about {reserve_text(reserve)}"
    return Fit(fits, "", f"{TIGHT}: {of} needs {needs} of the {has} per device of {machine.name}, {takes}{see}")


def reserve_text(reserve: Fact) -> str:
    """Write a reserve with its interval, if it has one."""
    value, low, high = map(memory_text, (reserve.value, reserve.low, reserve.high))
    return f"{value} ({low} to {high})" if reserve.low < reserve.high else value


def in_formats(model: ModelProfile, sizes: Mapping[str, int], formats: precision.Formats) -> ModelProfile | None:
    """Return a model whose order is that of a step in these formats: as autocast keeps tensors, packed weights.

    Without an order: the model itself, if its memory is counted by the sizes of a transformer in these formats.
    None where no rule says what a step in these formats keeps: low copies of activations, what was traced in 16
    bits in 32, and trainings in Keras, whose norms keep wide copies by other rules.
    """
    if model.order is None:
        as_traced = formats.name in precision.DEFAULTS and precision.computes_in_16(model.ops)
        return model if (as_traced or formats.name in memory.BY_SIZES) and _counted_by_sizes(model) else None
    ops = resize_ops(model.ops, sizes, model.name)
    in_16, framework = precision.computes_in_16(ops), model.traced_with.get("framework")
    if formats.stream == "fp32" and in_16:
        return None
    if precision.narrows(ops, formats):
        if formats.low or (
            not in_16 and framework in ("tensorflow", "keras") and precision.keeps_weights(ops, formats)
        ):
            return None
        return model if in_16 else _as_autocast(model, model.order, formats)
    stored = precision.stored_byte(ops, formats)
    if not stored:
        return model
    weights = model.order["role"].eq("parameter")
    byte = model.order["output_byte"]
    whole = byte[weights].astype(float).sum()
    left = byte[weights].astype(float) * (1 - stored / whole)
    return replace(model, order=model.order.assign(output_byte=byte.astype(object).where(~weights, left)))


def _as_autocast(model: ModelProfile, order: pd.DataFrame, formats: precision.Formats) -> ModelProfile:
    """Return a model traced in fp32 with the order of a step in 16 bits, derived once for all sizes.

    Its convolutions are narrow, too: they decide the workspace.
    """

    def derived() -> tuple[pd.DataFrame, pd.DataFrame]:
        numbers, sized = (resize_ops(table, model.sizes, model.name) for table in (model.ops, order))
        trains, ops = precision.keeps_weights(numbers, formats), model.ops
        narrow = ops["dtype"].astype(object).mask(ops["kind"].eq("conv") & ops["dtype"].eq("fp32"), formats.stream)
        found = narrow_order(ops, numbers, order, sized, formats.stream, trains=trains)
        return found, ops.assign(dtype=narrow)

    sizes = sorted(model.sizes.items())
    kept, ops = cached(order, model.ops, f"order in {formats.name}, {sizes}", derived)
    return replace(model, order=kept, ops=ops)


def held_of_step(
    model: ModelProfile, machine: Machine, options: Options, of_role: Mapping[str, float],
    *, accumulates: bool = False,
) -> memory.Held | None:  # fmt: skip
    """Return the memory by role at the peak of a step (`Use.held`); None where it is unknown."""
    sizes, framework = choose_sizes(model, options.wanted_sizes), model.traced_with.get("framework", "")
    stored = in_formats(model, sizes, precision.choose_formats(options.precision, framework, machine, model.ops))
    use = step_memory(stored, sizes) if stored is not None and can_follow(stored, sizes) else None
    return None if use is None else use.held(of_role, accumulates=accumulates)


_NOTHING = memory.Standing(0.0, 0.0, 0.0)  # known to be held: what is unknown cannot show that a step does not fit


def standing_in(
    model: ModelProfile, sizes: Mapping[str, int], formats: precision.Formats
) -> memory.Standing | None:
    """Return the memory that every step in some formats holds; None where it is unknown."""
    ops = resize_ops(model.ops, sizes, model.name)
    kept = ops[ops["op"] != TO_SHORT] if formats.stream == "fp32" else ops  # fp32 needs no copies in 16 bits
    standing = memory.standing_memory(kept, model.parameters_total)
    if standing is None:
        return None
    return standing._replace(parameter=standing.parameter - precision.stored_byte(ops, formats))


def fit_of(model: ModelProfile, machine: Machine, sizes: Mapping[str, int], formats: precision.Formats) -> Fit:
    """Check whether a step fits in the device's memory; without its activations, only whether it cannot fit."""
    if machine.device.capacity_byte is None:
        return UNKNOWN_FIT
    followed = in_formats(model, sizes, formats) if can_follow(model, sizes) else None
    needed, of = None if followed is None else peak_byte(followed, sizes), "a step"
    whole = needed is not None
    if needed is None:
        of = "parameters, gradients and the optimizer's state alone"
        needed = (standing_in(model, sizes, formats) or _NOTHING).byte
    return fit_in(machine, needed, of, whole=whole, see=IN_MEMORY)


NO_BATCH = "no batch fits"


def batch_that_fits(
    model: ModelProfile, machine: Machine, sizes: Mapping[str, int], formats: precision.Formats
) -> str:
    """Name the batch that fits where a step in some formats does not fit a device's memory; "" where unknown."""
    capacity, room = machine.device.capacity_byte, room_byte(machine)
    if capacity is None or room is None:
        return ""
    held = in_formats(model, sizes, formats)
    largest = None if held is None else largest_batch(held, sizes, room)
    if held is not None and largest is not None:
        most = largest or largest_batch(held, sizes, capacity.value)
        return NO_BATCH if not most else f"a batch of {most:,} {'fits' if largest else TIGHT}"
    return NO_BATCH if (standing_in(model, sizes, formats) or _NOTHING).byte > capacity.value else ""


NAME = "fresh pages"
UPDATED_ALONE = "the update runs tensor by tensor: the framework's default on a processor"
NOT_COUNTED = "fresh pages of smaller tensors are not counted: the memory of the step is unknown"
PERSISTENT_ROLES = ("parameter", "input", "state")
"""Roles of the memory that persists from step to step."""


def with_device_update(model: ModelProfile, machine: Machine) -> ModelProfile:
    """Return a model whose update runs tensor by tensor, if that is the default on the machine's device.

    `model`: returned unchanged if its implementation was chosen explicitly, or its profile does not state whether
    it was; `machine`: the model is returned unchanged if the machine's description does not identify a processor.
    """
    if model.optimizer.get("impl_from") != IMPL_BY_DEFAULT or device_kind(machine) != "cpu":
        return model

    def alone() -> pd.DataFrame:
        impl = model.ops["impl"].where(model.ops["impl"] != "foreach", "per_tensor")
        return model.ops.assign(impl=impl)

    ops = cached(model.ops, None, "updated tensor by tensor", alone)
    return replace(model, ops=ops, optimizer={**model.optimizer, "impl": "per_tensor"})


def own_byte(model: ModelProfile, sizes: Mapping[str, int], largest: float) -> float | None:
    """Return the peak of the memory [byte] that a step itself allocates and frees; None where it is unknown.

    Pieces of ``largest`` bytes or more are left out: their pages are fresh each time, and counted with their ops.
    """
    use = step_memory(model, sizes) if can_follow(model, sizes) else None
    if use is None:
        return None
    own = use.pieces[~use.pieces["role"].isin(PERSISTENT_ROLES) & (use.pieces["byte"] < largest)]
    first, last = own["first"].to_numpy(int), own["last"].to_numpy(int)
    byte, moments = own["byte"].to_numpy(np.float64), len(use.live_byte) + 1
    live = np.cumsum(np.bincount(first, byte, moments) - np.bincount(last + 1, byte, moments))
    return float(live.max())


def with_fresh_pages(machine: Machine, model: ModelProfile, sizes: Mapping[str, int]) -> Machine:
    """Return a machine with an overhead per step: the pages that the model's own memory gets anew.

    The machine is unchanged where it states no time of fresh pages, or the profile has no order of the ops.
    """
    rate, largest = machine.device.fresh_byte_per_s, machine.device.fresh_above_byte
    byte = None if rate is None or largest is None else own_byte(model, sizes, largest)
    if rate is None or not byte:
        return machine
    tail = (1 - DEFAULT_LEVEL) / 2
    half, low, high = (share * byte / rate.value for share in (0.5, tail, 1 - tail))
    source = f"half of the {byte:.4g} byte that a step allocates and frees, at the machine's rate of fresh pages"
    mine = Overhead(NAME, "step", Fact(half, low, high, "modelled", source), None)
    return replace(
        machine, overheads=(*(overhead for overhead in machine.overheads if overhead.name != NAME), mine)
    )


def processor_notes(traced: ModelProfile, model: ModelProfile, machine: Machine) -> Iterator[str]:
    """Return notes on the differences on a processor; `machine`: with its overheads."""
    if model is not traced:
        yield UPDATED_ALONE
    if machine.device.fresh_byte_per_s is not None and all(
        overhead.name != NAME for overhead in machine.overheads
    ):
        yield NOT_COUNTED

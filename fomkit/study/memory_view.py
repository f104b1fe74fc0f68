"""The memory of a model's step as plain content (``fomkit/memory/1``)."""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan
from typing import Any

from fomkit import __version__
from fomkit.errors import FomkitError
from fomkit.hardware import Machine
from fomkit.memory import BLOCK_BYTE, Use, standing_memory
from fomkit.resize import resize_ops, sizes_used
from fomkit.schema import ROLES
from fomkit.study.census_view import census_content
from fomkit.study.memory_of import BATCH, largest_batch, step_memory
from fomkit.study.options import Options, choose_sizes
from fomkit.workload import ModelProfile

SCHEMA = "fomkit/memory/1"
PASS_NAMES = ("forward", "backward", "update")

ASSUMED = (
    f"every piece of memory takes whole blocks of {BLOCK_BYTE} byte, as PyTorch's allocator for GPUs gives them",
    "a convolution takes one sample's im2col as workspace; what cuDNN chooses is unknown",
    "an attention runs as one kernel that keeps its factors and its result only",
    "the model's output stays until the backward pass is over; gradients are freed after the update",
    "number formats are those of the trace",
)
EXCLUDED = ("the framework's context and libraries on the device", "gaps between pieces (fragmentation)")


def _moment(use: Use, moment: int) -> dict[str, Any]:
    place = use.moments.iloc[moment]
    return {
        "id": moment,
        "op": place["op"] or None,
        "module": place["module"] or None,
        "pass_name": place["pass_name"] or None,
        "byte": float(use.live_byte[moment]),
        "roles": use.by_role(moment),
    }


def _modules(use: Use) -> list[dict[str, Any]]:
    """Add up by module what stands at the peak, the largest first."""
    sums = use.standing(use.peak_id).pivot_table(
        index="module", columns="role", values="byte", aggfunc="sum", fill_value=0.0, observed=True
    )
    sums = sums.assign(byte=sums.sum(axis="columns")).sort_values("byte", ascending=False, kind="stable")
    return [
        {
            "module": str(module),
            "byte": float(row["byte"]),
            "roles": {str(role): float(byte) for role, byte in row.items() if role != "byte" and byte},
        }
        for module, row in sums.iterrows()
    ]


def _live(use: Use) -> list[dict[str, Any]]:
    places = use.moments.itertuples(index=False, name=None)
    return [
        {"id": place, "op": op, "module": module, "pass_name": pass_name, "byte": float(byte)}
        for place, ((op, module, pass_name), byte) in enumerate(zip(places, use.live_byte, strict=True))
    ]


def _followed(use: Use) -> dict[str, Any]:
    peaks = {name: use.peak_of(name) for name in PASS_NAMES}
    return {
        "totals": {role: use.total(role) for role in ROLES if role != "temporary"},
        "peak": _moment(use, use.peak_id),
        "passes": {name: _moment(use, moment) for name, moment in peaks.items() if moment is not None},
        "modules": _modules(use),
        "live": _live(use),
    }


def _standing(model: ModelProfile, sizes: Mapping[str, int]) -> dict[str, Any]:
    standing = standing_memory(resize_ops(model.ops, sizes, model.name), model.parameters_total)
    if standing is None:
        raise FomkitError(
            model.name,
            "says nothing of memory: it has no order of its ops, no update and no parameters in one format. "
            "Profile the model anew with 'fomkit profile FILE.py'.",
        )
    totals = {role: None if isnan(byte) else byte for role, byte in standing._asdict().items()}
    return {"totals": totals, "peak": None, "passes": {}, "modules": [], "live": []}


def _layers(model: ModelProfile, sizes: Mapping[str, int]) -> dict[str, Any] | None:
    """Say what the layers of one sample make, freed or not, as tables of the classic networks count it."""
    census = census_content(model, sizes)
    if census is None:
        return None
    return {
        "samples": census["samples"],
        "parameter_byte": census["total"]["parameter_byte"],
        **census["activations"],
        "im2col_byte": census["total"]["im2col_byte"],
        "largest_im2col_byte": census["largest_im2col_byte"],
    }


def _room(
    model: ModelProfile, machine: Machine, sizes: Mapping[str, int], needed: float, *, whole: bool
) -> dict[str, Any]:
    fact = machine.device.capacity_byte
    if fact is None:
        raise FomkitError(machine.name, "states no capacity. Add device.memory.capacity to its profile.")
    # A lower bound can only show that a step does not fit.
    fits = False if needed > fact.value else True if whole else None
    largest = largest_batch(model, sizes, fact.value)
    return {"name": machine.name, "capacity_byte": fact.value, "source": fact.source or None, "fits": fits,
            "share": needed / fact.value if whole else None, "largest_batch": largest}  # fmt: skip


def memory_content(model: ModelProfile, options: Options, machine: Machine | None = None) -> dict[str, Any]:
    """Say what memory one step takes, when, for what and where, and whether a device holds it.

    Parameters
    ----------
    model : ModelProfile
        Without an order of its ops only the memory that stands whatever the batch is known.
    options : Options
        Batch and other sizes.
    machine : Machine, optional
        Whose device is to hold it.

    Returns
    -------
    dict
        ``fomkit/memory/1``.

    Raises
    ------
    FomkitError
        When a size cannot be had, nothing is known of the memory, or the machine states no capacity.
    """
    sizes = choose_sizes(model, options.wanted_sizes)
    use = step_memory(model, sizes)
    found = _standing(model, sizes) if use is None else _followed(use)
    needed = sum(byte or 0.0 for byte in found["totals"].values()) if use is None else use.peak_byte
    fixed = model.order is not None and BATCH in sizes and BATCH not in sizes_used(model.order)
    return {
        "schema": SCHEMA,
        "fomkit": __version__,
        "name": model.name,
        "title": model.title,
        "mode": model.traced_with.get("mode"),
        "sizes": sizes,
        **found,
        "layers": _layers(model, sizes),
        "target": None if machine is None else _room(model, machine, sizes, needed, whole=use is not None),
        "batch_is_fixed": fixed,
        "assumed": list(ASSUMED) if use is not None else [],
        "excludes": list(EXCLUDED) if use is not None else ["activations and all else that the order would tell"],
        "deviations": list(model.caveats),
    }

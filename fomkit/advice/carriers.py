"""The second question: which layers and structures carry the memory."""

from __future__ import annotations

import re
from typing import Any

from fomkit.advice.case import Case
from fomkit.advice.finding import WORTH
from fomkit.memory import standing_memory
from fomkit.resize import resize_ops

STRUCTURES = 3
"""Structures that are named."""

_NUMBERED = re.compile(r"\d+[a-z]?(?=\.|$)")


def structure(module: str) -> str:
    """Name what a module is, whatever its number among its like.

    Examples
    --------
    >>> structure("blocks.11.feed_forward.expand"), structure("stage2a.conv"), structure("head")
    ('blocks.*.feed_forward.expand', 'stage*.conv', 'head')
    """
    return _NUMBERED.sub("*", module)


def _structures(pieces: Any) -> list[dict[str, Any]]:
    named = pieces.assign(structure=pieces["module"].map(structure))
    found: list[dict[str, Any]] = []
    for name, own in named.groupby("structure"):
        by_role = own.groupby("role")["byte"].sum().sort_values(ascending=False)
        one = {"structure": str(name), "byte": float(own["byte"].sum()), "modules": int(own["module"].nunique())}
        found.append({**one, "mostly": str(by_role.index[0])})
    largest = sorted(found, key=lambda one: one["byte"], reverse=True)[:STRUCTURES]
    return [one for one in largest if one["byte"] >= WORTH * pieces["byte"].sum()]


def memory_carriers(case: Case) -> dict[str, Any]:
    """Say what stands in memory at the peak of the step, by role and by structure.

    Returns
    -------
    dict
        ``known`` is whole, standing (what needs no order of the ops) or nothing.
    """
    capacity = case.machine.device.capacity_byte
    room = None if capacity is None else capacity.value
    narrowed = case.before.formats.stream not in ("", "fp32")
    shared = {"capacity_byte": room, "formats": "of the trace, which are wider" if narrowed else "of the trace"}
    if case.memory is not None:
        peak = case.memory.peak_id
        roles = {role: byte for role, byte in case.memory.by_role(peak).items() if byte}
        return {
            "known": "whole",
            "peak_byte": case.memory.peak_byte,
            "roles": dict(sorted(roles.items(), key=lambda item: -item[1])),
            "structures": _structures(case.memory.standing(peak)),
            **shared,
        }
    sizes = case.before.sizes
    standing = standing_memory(resize_ops(case.model.ops, sizes, case.model.name), case.model.parameters_total)
    nothing: dict[str, Any] = {"peak_byte": None, "structures": [], **shared}
    if standing is None:
        return {"known": "nothing", "roles": {}, **nothing}
    roles = {role: byte for role, byte in standing._asdict().items() if byte > 0}
    return {"known": "standing", "roles": roles, **nothing}

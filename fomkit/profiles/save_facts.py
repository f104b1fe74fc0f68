"""Facts back to the words of a machine file."""

from __future__ import annotations

from typing import Any

from fomkit.hardware import AveragePower, Energy, Fact
from fomkit.quantities import exact_quantity


def spread(fact: Fact, dimension: str) -> dict[str, str]:
    """Write the ends of a fact's interval; nothing where no spread is stated."""
    if fact.low == fact.high:
        return {}
    return {"low": exact_quantity(fact.low, dimension), "high": exact_quantity(fact.high, dimension)}


def stated(name: str, fact: Fact, dimension: str) -> dict[str, str]:
    """Write a fact under its name, with its interval, basis and source."""
    value = {name: exact_quantity(fact.value, dimension), **spread(fact, dimension)}
    return {**value, "basis": fact.basis, "source": fact.source}


def _average(one: AveragePower) -> dict[str, Any]:
    known = {
        "batch": one.batch,
        "precision": one.precision,
        "devices": one.devices if one.scope != "chip" else None,
    }
    return {
        "workload": one.workload,
        **{name: value for name, value in known.items() if value},
        "scope": one.scope,
        **stated("power", one.power_w, "power_w"),
    }


def energy_content(energy: Energy) -> dict[str, Any]:
    """Put what is known of energy in the form of the YAML file; what is unknown stays absent."""
    content: dict[str, Any] = {"scope": energy.scope}
    if energy.scope != "chip" and energy.devices is not None:
        content["devices"] = energy.devices
    if energy.process_m is not None:
        content["process"] = exact_quantity(energy.process_m, "length_m")
    if energy.idle_w is not None:
        content["idle"] = stated("power", energy.idle_w, "power_w")
    if energy.per_flop:
        content["per_flop"] = [
            {"dtype": one.dtype, **({"engine": one.engine} if one.engine else {}),
             **stated("energy", one.joule, "joule_per_flop")}
            for one in energy.per_flop
        ]  # fmt: skip
    if energy.byte_j is not None:
        content["per_byte"] = stated("energy", energy.byte_j, "joule_per_byte")
    if energy.average:
        content["average"] = [_average(one) for one in energy.average]
    if energy.limit_w is not None:
        content["limit"] = stated("power", energy.limit_w, "power_w")
    return content

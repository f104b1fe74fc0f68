"""A machine back to its files, so that loading them again gives the same machine.

Facts back to the words of a machine file.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fomkit.core.machine import AveragePower, Device, Energy, Fact, Link, Machine, Overhead, Peak
from fomkit.core.units import exact_quantity
from fomkit.files.op_csv import format_table
from fomkit.files.write import write_set
from fomkit.files.yaml import format_document
from fomkit.profiles.facts import price_content
from fomkit.profiles.machines import SCHEMA


def spread(fact: Fact, dimension: str) -> dict[str, str]:
    """Write the ends of a fact's interval; nothing where no spread is stated."""
    if fact.low == fact.high:
        return {}
    return {"low": exact_quantity(fact.low, dimension), "high": exact_quantity(fact.high, dimension)}


def stated(name: str, fact: Fact, dimension: str) -> dict[str, str]:
    """Write a fact under its name, with its interval, basis and source."""
    value = {name: exact_quantity(fact.value, dimension), **spread(fact, dimension)}
    return {**value, "basis": fact.basis, "source": fact.source}


def _average(power: AveragePower) -> dict[str, Any]:
    known = {
        "batch": power.batch,
        "precision": power.precision,
        "devices": power.devices if power.scope != "chip" else None,
    }
    return {
        "workload": power.workload,
        **{name: value for name, value in known.items() if value},
        "scope": power.scope,
        **stated("power", power.power_w, "power_w"),
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


def _peak(peak: Peak) -> dict[str, str]:
    accumulate = {"accumulate_dtype": peak.accumulate_dtype} if peak.accumulate_dtype else {}
    return {
        "dtype": peak.dtype,
        "engine": peak.engine,
        **accumulate,
        **stated("rate", peak.rate, "flop_per_s"),
    }


def _device(device: Device) -> dict[str, Any]:
    content = dict[str, Any]()
    if device.architecture:
        content["architecture"] = device.architecture
    if device.peaks:
        content["peak"] = [_peak(peak) for peak in device.peaks]
    memory: dict[str, str] = {}
    if device.capacity_byte:
        memory["capacity"] = exact_quantity(device.capacity_byte.value, "byte")
    if device.byte_per_s:
        memory["bandwidth"] = exact_quantity(device.byte_per_s.value, "byte_per_s")
        memory |= spread(device.byte_per_s, "byte_per_s")
    if fact := device.byte_per_s or device.capacity_byte:
        content["memory"] = {**memory, "basis": fact.basis, "source": fact.source}
    if launch := device.launch_s:
        content["launch"] = stated("per_op", launch, "time_s")
    if device.fresh_byte_per_s and device.fresh_above_byte:
        above = exact_quantity(device.fresh_above_byte, "byte")
        content["allocator"] = {"above": above, **stated("fresh", device.fresh_byte_per_s, "byte_per_s")}
    if device.host_byte_per_s:
        content["from_host"] = stated("bandwidth", device.host_byte_per_s, "byte_per_s")
    return content


def _overhead(overhead: Overhead) -> dict[str, str]:
    content = {"name": overhead.name, "per": overhead.per}
    if overhead.share is not None:
        percent = f"{100 * overhead.share.value:.12g} %"
        return {**content, "share": percent, "basis": overhead.share.basis, "source": overhead.share.source}
    if overhead.time_s is None:
        return content
    return {**content, **stated("time", overhead.time_s, "time_s")}


def _link(link: Link) -> dict[str, str]:
    low, high = link.alpha_range_s or (None, None)
    slow, fast = link.range_byte_per_s or (None, None)
    figures: dict[str, tuple[float | None, str]] = {
        "messages_from": (link.least_byte, "byte"),
        "messages_to": (link.most_byte, "byte"),
        "alpha": (link.alpha_s, "time_s"),
        "alpha_low": (low, "time_s"),
        "alpha_high": (high, "time_s"),
        "bandwidth": (link.byte_per_s, "byte_per_s"),
        "low": (slow, "byte_per_s"),
        "high": (fast, "byte_per_s"),
        "serialise": (link.serialise_byte_per_s, "byte_per_s"),
    }
    stated = {name: exact_quantity(one, unit) for name, (one, unit) in figures.items() if one is not None}
    channel = {"channel": link.channel} if link.channel else {}
    basis = {"basis": link.basis} if link.basis != "published" else {}
    return {"tier": link.tier, **channel, **stated, "direction": link.direction, **basis, "source": link.source}


def machine_content(machine: Machine, timings: list[str]) -> Mapping[str, Any]:
    """Put a machine's facts in the form of its YAML file; what is unknown stays absent."""
    content: dict[str, Any] = {
        "schema": SCHEMA,
        "name": machine.name,
        "title": machine.title,
        "party": machine.party,
        "device": _device(machine.device),
        **({"origin": _device(machine.origin)} if machine.origin is not None else {}),
    }
    if machine.node_devices is not None:
        content["node"] = {"devices": machine.node_devices}
    if machine.system_nodes is not None:
        content["system"] = {"nodes": machine.system_nodes, "availability": float(machine.availability)}
    if machine.host_op_s is not None:
        content["host"] = stated("per_op", machine.host_op_s, "time_s")
    if machine.links:
        content["links"] = [_link(link) for link in machine.links]
    if machine.overheads:
        content["overheads"] = [_overhead(overhead) for overhead in machine.overheads]
    if machine.energy is not None:
        content["energy"] = energy_content(machine.energy)
    if machine.price is not None:
        content["price"] = price_content(machine.price)
    return content | {"timings": timings, **({"notes": list(machine.notes)} if machine.notes else {})}


def save_machine(machine: Machine, path: Path) -> list[Path]:
    """Write NAME.yaml and, where there are timings, NAME.timings.csv: both or none.

    Gives a list: the files written.
    """
    timings = path.with_name(f"{path.stem}.timings.csv")
    tables = {timings: format_table(machine.timings, "TIMINGS")} if len(machine.timings) else {}
    return write_set({path: format_document(machine_content(machine, [table.name for table in tables])), **tables})

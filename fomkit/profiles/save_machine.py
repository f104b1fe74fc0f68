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
from fomkit.profiles.machine_record import SCHEMA
from fomkit.profiles.records import known


def spread(fact: Fact, dimension: str) -> dict[str, str]:
    """Write the ends of a fact's interval; nothing where no spread is stated."""
    if fact.low == fact.high:
        return {}
    return {"low": exact_quantity(fact.low, dimension), "high": exact_quantity(fact.high, dimension)}


def stated(name: str, fact: Fact | None, dimension: str) -> dict[str, str]:
    """Write a fact under its name, with its interval, basis and source; nothing where nobody stated it."""
    if fact is None:
        return {}
    value = {name: exact_quantity(fact.value, dimension), **spread(fact, dimension)}
    return {**value, "basis": fact.basis, "source": fact.source}


def _average(power: AveragePower) -> dict[str, Any]:
    devices = power.devices if power.scope != "chip" else None
    conditions = known({"batch": power.batch, "precision": power.precision, "devices": devices})
    start = {"workload": power.workload, **conditions, "scope": power.scope}
    return {**start, **stated("power", power.power_w, "power_w")}


def energy_content(energy: Energy) -> dict[str, Any]:
    """Put what is known of energy in the form of the YAML file; what is unknown stays absent."""
    per_flop = [
        {"dtype": one.dtype, **known({"engine": one.engine}), **stated("energy", one.joule, "joule_per_flop")}
        for one in energy.per_flop
    ]
    content = {
        "scope": energy.scope,
        "devices": energy.devices if energy.scope != "chip" else None,
        "process": None if energy.process_m is None else exact_quantity(energy.process_m, "length_m"),
        "idle": stated("power", energy.idle_w, "power_w"),
        "per_flop": per_flop,
        "per_byte": stated("energy", energy.byte_j, "joule_per_byte"),
        "average": [_average(one) for one in energy.average],
        "limit": stated("power", energy.limit_w, "power_w"),
    }
    return known(content)


def _peak(peak: Peak) -> dict[str, str]:
    start = {"dtype": peak.dtype, "engine": peak.engine, **known({"accumulate_dtype": peak.accumulate_dtype})}
    return {**start, **stated("rate", peak.rate, "flop_per_s")}


def _device(device: Device) -> dict[str, Any]:
    memory: dict[str, str] = {}
    if device.capacity_byte:
        memory["capacity"] = exact_quantity(device.capacity_byte.value, "byte")
    if device.byte_per_s:
        memory |= stated("bandwidth", device.byte_per_s, "byte_per_s")
    elif device.capacity_byte:
        memory |= {"basis": device.capacity_byte.basis, "source": device.capacity_byte.source}
    fresh: dict[str, str] = {}
    if device.fresh_byte_per_s and device.fresh_above_byte:
        above = exact_quantity(device.fresh_above_byte, "byte")
        fresh = {"above": above, **stated("fresh", device.fresh_byte_per_s, "byte_per_s")}
    units: dict[str, Any] = {}
    if device.units and device.cache_byte:
        units = {"count": int(device.units.value), **stated("cache", device.cache_byte, "byte")}
    content = {
        "architecture": device.architecture,
        "peak": [_peak(peak) for peak in device.peaks],
        "memory": memory,
        "launch": stated("per_op", device.launch_s, "time_s"),
        "allocator": fresh,
        "from_host": stated("bandwidth", device.host_byte_per_s, "byte_per_s"),
        "units": units,
    }
    return known(content)


def _overhead(overhead: Overhead) -> dict[str, str]:
    content = {"name": overhead.name, "per": overhead.per}
    if overhead.share is not None:
        percent = f"{100 * overhead.share.value:.12g} %"
        return {**content, "share": percent, "basis": overhead.share.basis, "source": overhead.share.source}
    return {**content, **stated("time", overhead.time_s, "time_s")}


def _link(link: Link) -> dict[str, object]:
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
    written = {name: exact_quantity(one, unit) for name, (one, unit) in figures.items() if one is not None}
    basis = {"basis": link.basis} if link.basis != "published" else {}
    start = {"tier": link.tier, **known({"channel": link.channel, "joins": link.joins}), **written}
    return {**start, "direction": link.direction, **basis, "source": link.source}


def machine_content(machine: Machine, timings: list[str]) -> Mapping[str, Any]:
    """Put a machine's facts in the form of its YAML file; what is unknown stays absent."""
    content: dict[str, Any] = {
        "schema": SCHEMA,
        "name": "-".join(machine.name.split()),  # of a file or workbook, whose names may have spaces
        "title": machine.title,
        **known({"year": machine.year}),
        "party": machine.party,
        "device": _device(machine.device),
        **({"origin": _device(machine.origin)} if machine.origin is not None else {}),
    }
    nodes, system = (
        machine.system_nodes,
        {"nodes": machine.system_nodes, "availability": float(machine.availability)},
    )
    facts = {
        "node": known({"devices": machine.node_devices}),
        "system": None if nodes is None else system,
        "host": None if machine.host_op_s is None else stated("per_op", machine.host_op_s, "time_s"),
        "links": [_link(link) for link in machine.links],
        "overheads": [_overhead(overhead) for overhead in machine.overheads],
        "energy": None if machine.energy is None else energy_content(machine.energy),
        "price": None if machine.price is None else price_content(machine.price),
    }
    return {**content, **known(facts), "timings": timings, **known({"notes": list(machine.notes)})}


def save_machine(machine: Machine, path: Path) -> list[Path]:
    """Write NAME.yaml and, where there are timings, NAME.timings.csv: both or none.

    Gives a list: the files written.
    """
    timings = path.with_name(f"{path.stem}.timings.csv")
    tables = {timings: format_table(machine.timings, "TIMINGS")} if len(machine.timings) else {}
    return write_set({path: format_document(machine_content(machine, [table.name for table in tables])), **tables})

"""Machine profiles on disk: facts in YAML, timings in CSV, fits of those timings beside them in JSON."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

from fomkit.errors import FomkitError
from fomkit.machine import Basis, Device, Fact, Link, Machine, Overhead, Peak
from fomkit.profiles.locate import locate
from fomkit.profiles.machine_record import DeviceRecord, MachineRecord
from fomkit.profiles.records import check_record, check_schema
from fomkit.profiles.strict_yaml import Document, load_document, read_text
from fomkit.profiles.tables import empty_table, read_table
from fomkit.schema import check_table

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = "fomkit/machine/1"
FITS_SCHEMA = "fomkit/fits/1"


def _fact(value: float | None, low: float | None, high: float | None, basis: Basis, source: str) -> Fact | None:
    if value is None:
        return None
    return Fact(value, value if low is None else low, value if high is None else high, basis, source)


def _device(record: DeviceRecord) -> Device:
    peaks = tuple(
        Peak(one.dtype, one.engine, rate, one.accumulate_dtype)
        for one in record.peak
        if (rate := _fact(one.rate, one.low, one.high, one.basis, one.source)) is not None
    )
    facts: dict[str, Fact | None] = {}
    if memory := record.memory:
        facts["capacity_byte"] = _fact(memory.capacity, None, None, memory.basis, memory.source)
        facts["byte_per_s"] = _fact(memory.bandwidth, memory.low, memory.high, memory.basis, memory.source)
    if launch := record.launch:
        facts["launch_s"] = _fact(launch.per_op, launch.low, launch.high, launch.basis, launch.source)
    return Device(peaks=peaks, **facts)


def _check_order(document: Document, machine: Machine) -> None:
    device = machine.device
    facts = {("device", "peak", index, "low"): peak.rate for index, peak in enumerate(device.peaks)}
    pairs = [
        *facts.items(),
        (("device", "memory", "low"), device.byte_per_s),
        (("device", "launch"), device.launch_s),
    ]
    for keys, fact in pairs:
        if fact is not None and not 0 < fact.low <= fact.value <= fact.high:
            raise FomkitError(
                document.where(keys), f"the {keys[1]} must be above 0 with low ≤ value ≤ high. Correct these."
            )


def _read_timings(document: Document, names: list[str]) -> tuple[pd.DataFrame, str]:
    import pandas as pd

    tables, digest = [], hashlib.sha256()
    for index, name in enumerate(names):
        if Path(name).is_absolute() or ".." in Path(name).parts:
            where = document.where(("timings", index))
            raise FomkitError(where, f"timings {name!r} must lie in the folder of this file. Give its name only.")
        path = document.path.parent / name
        table = read_table(path, "TIMINGS")
        check_table(table, "TIMINGS", str(path))
        digest.update(path.read_bytes())
        tables.append(table)
    if not tables:
        return empty_table("TIMINGS"), ""
    return pd.concat(tables, ignore_index=True), digest.hexdigest()


def _read_fits(path: Path, timings_key: str) -> dict[str, object]:
    """Read the fits shipped beside the timings; fits of other timings than these are no fits."""
    if not timings_key or not path.is_file():
        return {}
    try:
        content = json.loads(read_text(path))
    except ValueError as error:
        raise FomkitError(str(path), f"is not JSON ({error}). Delete it; it can be made again.") from error
    if content.get("schema") != FITS_SCHEMA or content.get("timings_key") != timings_key:
        return {}
    return dict(content["fits"])


def load_machine(name: str | Path) -> Machine:
    """Load a machine profile by path or name.

    Raises
    ------
    FomkitError
        With file and line for every mistake in the YAML, the first one in a table.
    """
    path = locate(str(name), "machine_profiles")
    document = load_document(path)
    check_schema(document, SCHEMA)
    record = check_record(document, MachineRecord)
    if record.system is not None and record.node is None:
        raise FomkitError(
            document.where(("system",)), "states nodes, but node.devices is absent. Add 'node: {devices: …}'."
        )
    timings, key = _read_timings(document, record.timings)
    overheads = tuple(
        Overhead(one.name, one.per, _fact(one.time, one.low, one.high, one.basis, one.source), one.share)
        for one in record.overheads
    )
    machine = Machine(
        name=record.name,
        title=record.title or record.name,
        party=record.party,
        device=_device(record.device),
        timings=timings,
        node_devices=record.node.devices if record.node else None,
        system_nodes=record.system.nodes if record.system else None,
        availability=record.system.availability if record.system else 1.0,
        links=tuple(Link(one.tier, one.alpha, one.bandwidth, one.direction, one.source) for one in record.links),
        overheads=overheads,
        fits=_read_fits(path.with_name(f"{path.stem}.fits.json"), key),
        timings_key=key,
        notes=tuple(record.notes),
    )
    _check_order(document, machine)
    return machine

"""The fields of a machine file, the machine that it describes, and the files of a machine.

See docs/profiles.md. Loading a saved machine returns the same machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, WrapValidator, model_validator

from fomkit.core.errors import FomkitError
from fomkit.core.machine import Basis, Device, Link, Machine, Overhead, Party, Peak, Tier
from fomkit.core.units import exact_quantity
from fomkit.files.csv import check_beside
from fomkit.files.documents import Document, format_document, load_document
from fomkit.files.op_csv import format_table, read_numbered_table
from fomkit.files.write import write_set
from fomkit.ops.check import check_quartiles, check_table
from fomkit.ops.tables import empty_table
from fomkit.profiles.facts import (
    EnergyRecord,
    NumberFormat,
    OneWord,
    PriceRecord,
    ReserveRecord,
    SomeByte,
    Sourced,
    Versioned,
    check_once,
    energy_content,
    energy_of,
    fact_of,
    peak_content,
    price_content,
    price_of,
    stated,
    with_blocks,
)
from fomkit.profiles.records import (
    AlsoText,
    Byte,
    ByteRate,
    FlopRate,
    Part,
    Record,
    Share,
    Time,
    check_record,
    fields_of,
    known,
    parsed,
)

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = "fomkit/machine/1"


class PeakRecord(Sourced[FlopRate]):
    """``device.peak[…]``: a dense rate; without dtype and engine it means nothing, so both are needed."""

    value_at = "rate"
    dtype: NumberFormat
    engine: Literal["vector", "matrix"]
    rate: FlopRate
    accumulate_dtype: str = ""
    sustained: FlopRate | None = None


class MemoryRecord(Sourced[ByteRate]):
    """``device.memory``: capacity and bandwidth; low and high belong to the bandwidth."""

    value_at = "bandwidth"
    capacity: SomeByte | None = None
    bandwidth: ByteRate | None = None


class LaunchRecord(Sourced[Time]):
    """``device.launch``, ``host``: the host's time to launch one kernel, or one op including its framework."""

    value_at = "per_op"
    per_op: Time
    basis: Basis = "assumed"
    source: str = ""


class AllocatorRecord(Sourced[ByteRate]):
    """``device.allocator``: the rate at which new memory is provided, and the size of results that need it."""

    value_at = "fresh"
    fresh: ByteRate
    above: Byte
    basis: Basis = "estimated"


class FromHostRecord(Sourced[ByteRate]):
    """``device.from_host``: the rate from the host's memory to an accelerator's."""

    value_at = "bandwidth"
    bandwidth: ByteRate


class UnitsRecord(Record):
    """``device.units``: processors that each compute a tile of a product, and the last cache, which they share."""

    count: int = Field(ge=1)
    cache: SomeByte
    source: str
    basis: Basis = "published"


class DeviceRecord(Record):
    """``device``: one accelerator or processor."""

    architecture: str = ""
    peak: list[PeakRecord] = []
    memory: MemoryRecord | None = None
    launch: LaunchRecord | None = None
    allocator: AllocatorRecord | None = None
    from_host: FromHostRecord | None = None
    units: UnitsRecord | None = None


class NamedDeviceRecord(DeviceRecord):
    """``device: v100``: the device of another machine file, with all its facts and timings."""

    of: str


class NodeRecord(Record):
    """``node``: devices in one node."""

    devices: int = Field(ge=1)


class SystemRecord(Record):
    """``system``: nodes of the whole machine and the share of the time that it is up."""

    nodes: int = Field(ge=1)
    availability: Part = Field(default=1.0, gt=0, le=1)


class LinkRecord(Record):
    """``links[…]``: one tier of the interconnect; low and high belong to the bandwidth."""

    tier: Tier
    alpha: Time
    bandwidth: ByteRate
    direction: Literal["each", "both"]
    source: str
    channel: str = ""
    messages_from: Byte | None = None
    messages_to: Byte | None = None
    alpha_low: Time | None = None
    alpha_high: Time | None = None
    low: ByteRate | None = None
    high: ByteRate | None = None
    basis: Basis = "published"
    serialise: ByteRate | None = None
    joins: int | None = Field(None, ge=2)
    lanes: int | None = Field(None, ge=1)

    @model_validator(mode="after")
    def _possible(self) -> Self:
        parsed(self, link_of)
        return self


class OverheadRecord(Record):
    """``overheads[…]``: time outside the op table, as a time or as a share; low and high belong to the time."""

    name: str
    per: Literal["run", "epoch", "step"]
    source: str
    time: Time | None = None
    share: Share | None = None
    basis: Basis = "estimated"
    low: Time | None = None
    high: Time | None = None

    @model_validator(mode="after")
    def _possible(self) -> Self:
        parsed(self, _overhead)
        return self


class MachineRecord(Record):
    """A machine file."""

    schema_: str = Field(alias="schema")
    name: OneWord
    title: str = ""
    year: int | None = Field(None, ge=1950, le=2100)
    party: Party = "published"
    # Text is the name or path of a machine, anything else facts.
    device: Annotated[
        DeviceRecord,
        WrapValidator(lambda one, check: NamedDeviceRecord(of=one) if isinstance(one, str) else check(one)),
        AlsoText("The machine whose device it has."),
    ] = DeviceRecord()
    origin: DeviceRecord | None = None
    node: NodeRecord | None = None
    system: SystemRecord | None = None
    host: LaunchRecord | None = None
    reserve: ReserveRecord | None = None
    software: Versioned | None = None
    links: list[LinkRecord] = []
    overheads: list[OverheadRecord] = []
    energy: EnergyRecord | None = None
    price: PriceRecord | None = None
    timings: list[str] = []
    notes: list[str] = []


def _device(record: DeviceRecord) -> Device:
    peaks = tuple(
        Peak(one.dtype, one.engine, rate, one.accumulate_dtype, (one.sustained or one.rate) / one.rate)
        for one in record.peak
        if (rate := fact_of(one, "rate")) is not None
    )
    return Device(
        peaks=with_blocks(peaks),
        capacity_byte=fact_of(record.memory, "capacity", has_ends=False),
        byte_per_s=fact_of(record.memory, "bandwidth"),
        launch_s=fact_of(record.launch, "per_op"),
        fresh_byte_per_s=fact_of(record.allocator, "fresh"),
        fresh_above_byte=record.allocator.above if record.allocator else None,
        host_byte_per_s=fact_of(record.from_host, "bandwidth"),
        units=fact_of(record.units, "count"),
        cache_byte=fact_of(record.units, "cache"),
        architecture=record.architecture,
    )


def _overhead(record: OverheadRecord) -> Overhead:
    if (record.time is None) == (record.share is None):
        raise FomkitError("", f"the overhead {record.name!r} needs either 'time' or 'share'. Give one of them.")
    time, share = fact_of(record, "time"), fact_of(record, "share", has_ends=False)
    if time is not None and not time.low <= time.value <= time.high:
        raise FomkitError("", f"the overhead {record.name!r} must have low ≤ time ≤ high. Correct these.")
    return Overhead(record.name, record.per, time, share)


def _range(low: float | None, value: float, high: float | None) -> tuple[float, float] | None:
    if low is None and high is None:
        return None
    return value if low is None else low, value if high is None else high


def check_rates(link: Link, where: str) -> Link:
    """Return a link; raise FomkitError if a rate is 0, because no message would arrive."""
    rates = {
        "bandwidth": link.byte_per_s,
        "serialise": link.serialise_byte_per_s,
        "low": (link.range_byte_per_s or (1,))[0],
    }
    for name, rate in rates.items():
        if rate == 0:
            raise FomkitError(where, f"{name} is 0 B/s. Give a rate above 0.")
    return link


def link_of(record: LinkRecord) -> Link:
    """Return the link of one entry of ``links``."""
    alpha = _range(record.alpha_low, record.alpha, record.alpha_high)
    rate = _range(record.low, record.bandwidth, record.high)
    for name, value, span in (("alpha", record.alpha, alpha), ("bandwidth", record.bandwidth, rate)):
        if span is not None and not span[0] <= value <= span[1]:
            raise FomkitError("", f"the {name} must have low ≤ value ≤ high. Correct these.")
    link = Link(
        alpha_s=record.alpha,
        byte_per_s=record.bandwidth,
        least_byte=record.messages_from,
        most_byte=record.messages_to,
        alpha_range_s=alpha,
        range_byte_per_s=rate,
        serialise_byte_per_s=record.serialise,
        **fields_of(record, Link),
    )
    return check_rates(link, "")


def check_inside(document: Document, keys: tuple[str | int, ...], name: str, what: str) -> None:
    """Raise FomkitError unless a file that a document names is in the document's folder."""
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise document.error(keys, f"{what} {name!r} must be in the folder of this file. Give its name only.")


def _read_timings(document: Document, names: list[str]) -> pd.DataFrame:
    import pandas as pd

    tables = []
    for index, name in enumerate(names):
        check_inside(document, ("timings", index), name, "timings")
        path = document.path.parent / name
        check_beside(path, document.path)
        table = read_numbered_table(path, "TIMINGS")
        check_table(table, "TIMINGS", str(path))
        check_quartiles(table, str(path))
        tables.append(table)
    return pd.concat(tables, ignore_index=True) if tables else empty_table("TIMINGS")


def read_machine(path: Path) -> tuple[Machine, list[str], str | None, Document]:
    """Read a machine file; return the machine, its tables, the name of its device's machine, and the document."""
    document = load_document(path)
    record = check_record(document, MachineRecord, SCHEMA)
    node, system, peaks = record.node, record.system, record.device.peak
    check_once(document, ("device", "peak"), [(one.dtype, one.engine, one.accumulate_dtype) for one in peaks])
    if above := [at for at, one in enumerate(peaks) if one.sustained and one.sustained > one.rate]:
        what = f"device.peak[{above[0]}].sustained is above the rate. Give at most the rate."
        raise document.error(("device", "peak", above[0], "sustained"), what)
    ways = [(one.tier, one.channel, one.messages_from, one.messages_to) for one in record.links]
    check_once(document, ("links",), ways)
    check_once(document, ("overheads",), [(one.name, one.per) for one in record.overheads])
    if system is not None and node is None:
        raise document.error(("system",), "states nodes, but node.devices is absent. Add 'node: {devices: …}'.")
    machine = Machine(
        name=record.name,
        title=record.title or record.name,
        year=record.year,
        party=record.party,
        device=_device(record.device),
        timings=_read_timings(document, record.timings),
        node_devices=node.devices if node else None,
        system_nodes=system.nodes if system else None,
        availability=system.availability if system else 1.0,
        host_op_s=fact_of(record.host, "per_op"),
        reserve_byte=fact_of(record.reserve, "memory"),
        software=record.software or "",
        overheads=tuple(map(_overhead, record.overheads)),
        links=tuple(map(link_of, record.links)),
        notes=tuple(record.notes),
        origin=_device(record.origin) if record.origin is not None else None,
        energy=energy_of(document, record.energy, node.devices if node else None),
        price=price_of(record.price),
    )
    of = record.device.of if isinstance(record.device, NamedDeviceRecord) else None
    if of is not None and record.origin is not None:
        what = "is stated, but the device is that of another machine. Remove one of them."
        raise document.error(("origin",), what)
    return machine, record.timings, of, document


def _device_content(device: Device) -> dict[str, Any]:
    memory: dict[str, str] = {}
    if device.capacity_byte:
        memory["capacity"] = exact_quantity(device.capacity_byte.value, "byte")
    if device.byte_per_s:
        memory |= stated("bandwidth", device.byte_per_s, "byte_per_s")
    elif device.capacity_byte:
        memory |= {"basis": device.capacity_byte.basis, "source": device.capacity_byte.source}
    above, fresh = device.fresh_above_byte, stated("fresh", device.fresh_byte_per_s, "byte_per_s")
    fresh = {"above": exact_quantity(above, "byte"), **fresh} if fresh and above else {}
    cache = stated("cache", device.cache_byte, "byte")
    units = {"count": int(device.units.value), **cache} if device.units and cache else {}
    content = {
        "architecture": device.architecture,
        "peak": list(map(peak_content, device.peaks)),
        "memory": memory,
        "launch": stated("per_op", device.launch_s, "time_s"),
        "allocator": fresh,
        "from_host": stated("bandwidth", device.host_byte_per_s, "byte_per_s"),
        "units": units,
    }
    return known(content)


def _overhead_content(overhead: Overhead) -> dict[str, str]:
    content = {"name": overhead.name, "per": overhead.per}
    if overhead.share is not None:
        percent = f"{100 * overhead.share.value:.12g} %"
        return {**content, "share": percent, "basis": overhead.share.basis, "source": overhead.share.source}
    return {**content, **stated("time", overhead.time_s, "time_s")}


def _link_content(link: Link) -> dict[str, object]:
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
    start = {
        "tier": link.tier,
        **known({"channel": link.channel, "joins": link.joins, "lanes": link.lanes}),
        **written,
    }
    return {**start, "direction": link.direction, **basis, "source": link.source}


def machine_content(machine: Machine, timings: list[str]) -> Mapping[str, Any]:
    """Return a machine's facts as content of its YAML file, without unknown ones."""
    content: dict[str, Any] = {
        "schema": SCHEMA,
        "name": "-".join(machine.name.split()),  # names of files and workbooks may contain spaces
        "title": machine.title,
        **known({"year": machine.year}),
        "party": machine.party,
        "device": _device_content(machine.device),
        **({"origin": _device_content(machine.origin)} if machine.origin is not None else {}),
    }
    system = {"nodes": machine.system_nodes, "availability": float(machine.availability)}
    facts = {
        "node": known({"devices": machine.node_devices}),
        "system": None if machine.system_nodes is None else system,
        "host": stated("per_op", machine.host_op_s, "time_s"),
        "reserve": stated("memory", machine.reserve_byte, "byte"),
        "software": machine.software,
        "links": [_link_content(link) for link in machine.links],
        "overheads": [_overhead_content(overhead) for overhead in machine.overheads],
        "energy": None if machine.energy is None else energy_content(machine.energy),
        "price": None if machine.price is None else price_content(machine.price),
    }
    return {**content, **known(facts), "timings": timings, **known({"notes": list(machine.notes)})}


def save_machine(machine: Machine, path: Path) -> list[Path]:
    """Write NAME.yaml and, if there are timings, NAME.timings.csv, both or none; return the files written."""
    timings = path.with_name(f"{path.stem}.timings.csv")
    tables = {timings: format_table(machine.timings, "TIMINGS")} if len(machine.timings) else {}
    return write_set({path: format_document(machine_content(machine, [table.name for table in tables])), **tables})

"""What a machine file may say, field by field, and the machine that it makes; see docs/profiles.md."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, ValidatorFunctionWrapHandler, WrapValidator, model_validator

from fomkit.core.errors import FomkitError
from fomkit.core.machine import Basis, Device, Link, Machine, Overhead, Party, Peak, Tier
from fomkit.files.csv import check_beside
from fomkit.files.op_csv import empty_table, read_numbered_table
from fomkit.files.yaml import Document, load_document
from fomkit.ops.check import check_table
from fomkit.profiles.facts import (
    Ended,
    EnergyRecord,
    NumberFormat,
    OneWord,
    PriceRecord,
    SomeByte,
    energy_of,
    fact_of,
    price_of,
)
from fomkit.profiles.locate import is_file, locate
from fomkit.profiles.records import (
    AlsoText,
    Byte,
    ByteRate,
    FlopRate,
    Record,
    Share,
    Time,
    check_record,
    check_schema,
    fields_of,
    parsed,
)

if TYPE_CHECKING:
    import pandas as pd


class PeakRecord(Ended):
    """``device.peak[…]``: a dense rate; without dtype and engine it means nothing, so both are needed."""

    value_at = "rate"
    dtype: NumberFormat
    engine: Literal["vector", "matrix"]
    rate: FlopRate
    source: str
    accumulate_dtype: str = ""
    basis: Basis = "published"
    low: FlopRate | None = None
    high: FlopRate | None = None


class MemoryRecord(Ended):
    """``device.memory``: capacity and bandwidth; low and high belong to the bandwidth."""

    value_at = "bandwidth"
    source: str
    capacity: SomeByte | None = None
    bandwidth: ByteRate | None = None
    basis: Basis = "published"
    low: ByteRate | None = None
    high: ByteRate | None = None


class LaunchRecord(Ended):
    """``device.launch``, ``host``: what it costs the host to start one kernel, or one op with its framework."""

    value_at = "per_op"
    per_op: Time
    low: Time | None = None
    high: Time | None = None
    basis: Basis = "assumed"
    source: str = ""


class AllocatorRecord(Ended):
    """``device.allocator``: how fast new memory is handed out, and from which size results are made of it."""

    value_at = "fresh"
    fresh: ByteRate
    above: Byte
    source: str
    low: ByteRate | None = None
    high: ByteRate | None = None
    basis: Basis = "measured"


class FromHostRecord(Ended):
    """``device.from_host``: the rate from the host's memory to an accelerator's."""

    value_at = "bandwidth"
    bandwidth: ByteRate
    source: str
    low: ByteRate | None = None
    high: ByteRate | None = None
    basis: Basis = "published"


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
    """``device: v100``: the device of another machine file, with all that is known of it."""

    of: str


def _device_or_name(value: object, handler: ValidatorFunctionWrapHandler) -> DeviceRecord:
    """Take text for the name or path of a machine, anything else for facts."""
    record: DeviceRecord = NamedDeviceRecord(of=value) if isinstance(value, str) else handler(value)
    return record


class NodeRecord(Record):
    """``node``: devices in one node."""

    devices: int = Field(ge=1)


class SystemRecord(Record):
    """``system``: nodes of the whole machine and the share of the time that it is up."""

    nodes: int = Field(ge=1)
    availability: float = Field(default=1.0, gt=0, le=1)


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
    device: Annotated[
        DeviceRecord, WrapValidator(_device_or_name), AlsoText("The machine whose device it has.")
    ] = DeviceRecord()
    origin: DeviceRecord | None = None
    node: NodeRecord | None = None
    system: SystemRecord | None = None
    host: LaunchRecord | None = None
    links: list[LinkRecord] = []
    overheads: list[OverheadRecord] = []
    energy: EnergyRecord | None = None
    price: PriceRecord | None = None
    timings: list[str] = []
    notes: list[str] = []


SCHEMA = "fomkit/machine/1"


def _device(record: DeviceRecord) -> Device:
    peaks = tuple(
        Peak(one.dtype, one.engine, rate, one.accumulate_dtype)
        for one in record.peak
        if (rate := fact_of(one, "rate")) is not None
    )
    return Device(
        peaks=peaks,
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
    """Give a link back, or raise where a rate is 0, over which nothing ever arrives."""
    rates = {
        "bandwidth": link.byte_per_s,
        "serialise": link.serialise_byte_per_s,
        "low": (link.range_byte_per_s or (1,))[0],
    }
    for name, rate in rates.items():
        if rate == 0:
            raise FomkitError(where, f"{name} is 0 B/s, over which nothing arrives. Give a rate above 0.")
    return link


def link_of(record: LinkRecord) -> Link:
    """Make the noun of one entry of ``links``."""
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


def _check_inside(document: Document, keys: tuple[str | int, ...], name: str, what: str) -> None:
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise document.error(keys, f"{what} {name!r} must lie in the folder of this file. Give its name only.")


def _read_timings(document: Document, names: list[str]) -> pd.DataFrame:
    import pandas as pd

    tables = []
    for index, name in enumerate(names):
        _check_inside(document, ("timings", index), name, "timings")
        path = document.path.parent / name
        check_beside(path, document.path)
        table = read_numbered_table(path, "TIMINGS")
        check_table(table, "TIMINGS", str(path))
        tables.append(table)
    return pd.concat(tables, ignore_index=True) if tables else empty_table("TIMINGS")


def device_file(document: Document, name: str, named_by: tuple[Path, ...]) -> Path:
    """Find the machine file that ``device: NAME`` means: beside this file, else by its name."""
    where = document.where(("device",))
    _check_inside(document, ("device",), name, "the device")
    endings = ("", ".yaml", ".yml")
    beside = [path for ending in endings if is_file(path := document.path.parent / f"{name}{ending}")]
    found = next((path for path in beside if not path.samefile(document.path)), None)
    try:
        path = found or locate(name, "machine_profiles")
    except FomkitError as error:
        if not beside:
            raise FomkitError(where, f"the device {name!r}: {error.what}") from error
        path = document.path
    if any(path.samefile(one) for one in named_by):
        chain = " → ".join(one.name for one in (*named_by, path))
        raise FomkitError(
            where, f"the device is the machine itself: {chain}. Name a machine that states its device."
        )
    return path


def read_machine(path: Path) -> tuple[Machine, list[str], str | None, Document]:
    """Read a machine file: the machine by itself, its tables, and the machine whose device it has, if any."""
    document = load_document(path)
    check_schema(document, SCHEMA)
    record = check_record(document, MachineRecord)
    node, system = record.node, record.system
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
        overheads=tuple(map(_overhead, record.overheads)),
        links=tuple(map(link_of, record.links)),
        notes=tuple(record.notes),
        origin=_device(record.origin) if record.origin is not None else None,
        energy=energy_of(document, record.energy, node.devices if node else None),
        price=price_of(record.price),
    )
    of = record.device.of if isinstance(record.device, NamedDeviceRecord) else None
    if of is not None and record.origin is not None:
        what = "states an origin, but the device is another machine's. Leave out one of them."
        raise document.error(("origin",), what)
    return machine, record.timings, of, document

"""What a machine file may say, field by field; see docs/profiles.md for the meaning of each."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, ValidatorFunctionWrapHandler, WrapValidator

from fomkit.core.machine import Basis, Party, Tier
from fomkit.profiles.facts import EnergyRecord, PriceRecord
from fomkit.profiles.records import Byte, ByteRate, FlopRate, Record, Share, Time


class PeakRecord(Record):
    """``device.peak[…]``: a dense rate; without dtype and engine it means nothing, so both are needed."""

    dtype: str
    engine: Literal["vector", "matrix"]
    rate: FlopRate
    source: str
    accumulate_dtype: str = ""
    basis: Basis = "published"
    low: FlopRate | None = None
    high: FlopRate | None = None


class MemoryRecord(Record):
    """``device.memory``: capacity and bandwidth; low and high belong to the bandwidth."""

    source: str
    capacity: Byte | None = None
    bandwidth: ByteRate | None = None
    basis: Basis = "published"
    low: ByteRate | None = None
    high: ByteRate | None = None


class LaunchRecord(Record):
    """``device.launch``, ``host``: what it costs the host to start one kernel, or one op with its framework."""

    per_op: Time
    low: Time | None = None
    high: Time | None = None
    basis: Basis = "assumed"
    source: str = ""


class AllocatorRecord(Record):
    """``device.allocator``: how fast new memory is handed out, and from which size results are made of it."""

    fresh: ByteRate
    above: Byte
    source: str
    low: ByteRate | None = None
    high: ByteRate | None = None
    basis: Basis = "measured"


class FromHostRecord(Record):
    """``device.from_host``: the rate from the host's memory to an accelerator's."""

    bandwidth: ByteRate
    source: str
    low: ByteRate | None = None
    high: ByteRate | None = None
    basis: Basis = "published"


class DeviceRecord(Record):
    """``device``: one accelerator or processor."""

    architecture: str = ""
    peak: list[PeakRecord] = []
    memory: MemoryRecord | None = None
    launch: LaunchRecord | None = None
    allocator: AllocatorRecord | None = None
    from_host: FromHostRecord | None = None


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


class MachineRecord(Record):
    """A machine file."""

    schema_: str = Field(alias="schema")
    name: str
    title: str = ""
    party: Party = "published"
    device: Annotated[DeviceRecord, WrapValidator(_device_or_name)] = DeviceRecord()
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

"""What a machine file may say of energy; see docs/profiles.md and docs/energy.md."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from fomkit.dtypes import ITEM_BYTE
from fomkit.errors import FomkitError, nearest_names
from fomkit.hardware import AveragePower, Basis, Energy, EnergyScope, Fact, FlopEnergy
from fomkit.profiles.facts import fact_of
from fomkit.profiles.records import Length, PerByte, PerFlop, Power, Record
from fomkit.profiles.strict_yaml import Document

Keys = tuple[str | int, ...]


class IdleRecord(Record):
    """``energy.idle``: power while nothing is computed."""

    power: Power
    source: str
    basis: Basis = "measured"
    low: Power | None = None
    high: Power | None = None


class PerFlopRecord(Record):
    """``energy.per_flop[…]``: what one flop takes besides idle power; without engine it holds for both."""

    dtype: str
    energy: PerFlop
    source: str
    engine: Literal["vector", "matrix"] | None = None
    basis: Basis = "modelled"
    low: PerFlop | None = None
    high: PerFlop | None = None


class PerByteRecord(Record):
    """``energy.per_byte``: what one byte of device-memory traffic takes besides idle power."""

    energy: PerByte
    source: str
    basis: Basis = "modelled"
    low: PerByte | None = None
    high: PerByte | None = None


class AverageRecord(Record):
    """``energy.average[…]``: mean power while a workload ran."""

    workload: str
    power: Power
    source: str
    scope: EnergyScope | None = None
    devices: int | None = Field(default=None, ge=1)
    batch: int | None = Field(default=None, ge=1)
    precision: str = ""
    basis: Basis = "measured"
    low: Power | None = None
    high: Power | None = None


class LimitRecord(Record):
    """``energy.limit``: the most that one chip may take, its design power; an upper bound, never an average."""

    power: Power
    source: str
    basis: Basis = "published"


class EnergyRecord(Record):
    """``energy``: what is known of the energy a machine takes, and what the figures count."""

    scope: EnergyScope
    devices: int | None = Field(default=None, ge=1)
    process: Length | None = None
    idle: IdleRecord | None = None
    per_flop: list[PerFlopRecord] = []
    per_byte: PerByteRecord | None = None
    average: list[AverageRecord] = []
    limit: LimitRecord | None = None


def _devices(document: Document, keys: Keys, scope: EnergyScope, stated: int | None, node: int | None) -> int:
    if scope == "chip":
        if stated not in (None, 1):
            raise FomkitError(
                document.where((*keys, "devices")), f"a chip is one device, not {stated}. Say node or wall."
            )
        return 1
    devices = stated if stated is not None else node
    if devices is None:
        raise FomkitError(
            document.where((*keys, "scope")),
            f"the scope is {scope!r}, and nobody says how many devices its power covers. "
            "Add 'devices: …' beside it, or node.devices.",
        )
    return devices


def _facts(energy: Energy) -> Iterator[tuple[Keys, Fact]]:
    """Give each figure with where it stands."""
    single = (("idle", energy.idle_w), ("per_byte", energy.byte_j), ("limit", energy.limit_w))
    yield from (((name,), fact) for name, fact in single if fact is not None)
    yield from ((("per_flop", index), one.joule) for index, one in enumerate(energy.per_flop))
    yield from ((("average", index), one.power_w) for index, one in enumerate(energy.average))


def _check(document: Document, energy: Energy) -> None:
    facts = list(_facts(energy))
    if not facts:
        raise FomkitError(document.where(("energy",)), "energy states no figure. Add one, for example idle.")
    for keys, fact in facts:
        if not 0 < fact.low <= fact.value <= fact.high:
            where = document.where(("energy", *keys))
            raise FomkitError(where, f"energy.{keys[0]} must be above 0 with low ≤ value ≤ high. Correct these.")
        if keys[0] in ("per_flop", "per_byte") and energy.process_m is None:
            raise FomkitError(
                document.where(("energy", *keys)),
                f"energy.{keys[0]} means nothing without the process node of the chip. "
                "Add, for example, 'process: 12 nm' to energy.",
            )
    idle, limit = energy.idle_w, energy.limit_w
    if energy.scope == "chip" and idle is not None and limit is not None and idle.value > limit.value:
        said = (
            f"the idle power, {idle.value:g} W, is above the chip's limit, {limit.value:g} W. Correct one of them."
        )
        raise FomkitError(document.where(("energy", "idle")), said)


def _per_flop(document: Document, records: list[PerFlopRecord]) -> tuple[FlopEnergy, ...]:
    made: dict[tuple[str, str], FlopEnergy] = {}
    for index, one in enumerate(records):
        where, pair = document.where(("energy", "per_flop", index)), (one.dtype, one.engine or "")
        if one.dtype not in ITEM_BYTE:
            hint = nearest_names(one.dtype, ITEM_BYTE)
            raise FomkitError(where, f"energy.per_flop: {one.dtype!r} is not a number format. {hint}")
        if pair in made:
            raise FomkitError(where, f"energy.per_flop states {' on '.join(filter(None, pair))} twice. Keep one.")
        fact = fact_of(one.energy, one.low, one.high, one.basis, one.source)
        if fact is not None:
            made[pair] = FlopEnergy(*pair, fact)
    return tuple(made.values())


def energy_of(document: Document, record: EnergyRecord | None, node_devices: int | None) -> Energy | None:
    """Make the energy noun of its part of a machine file; None where the file has none.

    Raises
    ------
    FomkitError
        With file and line, when a figure in joules has no process node, ends are not in order, or the devices of a
        node are not known.
    """
    if record is None:
        return None
    average = []
    for index, one in enumerate(record.average):
        fact, scope = fact_of(one.power, one.low, one.high, one.basis, one.source), one.scope or record.scope
        stated = one.devices if one.scope else one.devices or record.devices
        devices = _devices(document, ("energy", "average", index), scope, stated, node_devices)
        if fact is not None:
            average.append(AveragePower(one.workload, fact, scope, one.batch, one.precision, devices))
    idle, byte, limit = record.idle, record.per_byte, record.limit
    energy = Energy(
        scope=record.scope,
        devices=_devices(document, ("energy",), record.scope, record.devices, node_devices),
        process_m=record.process,
        idle_w=fact_of(idle.power, idle.low, idle.high, idle.basis, idle.source) if idle else None,
        per_flop=_per_flop(document, record.per_flop),
        byte_j=fact_of(byte.energy, byte.low, byte.high, byte.basis, byte.source) if byte else None,
        average=tuple(average),
        limit_w=fact_of(limit.power, None, None, limit.basis, limit.source) if limit else None,
    )
    _check(document, energy)
    return energy

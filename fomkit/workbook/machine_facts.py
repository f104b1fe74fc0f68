"""A machine's facts as rows of a sheet: figures in the units that data sheets use, and back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fomkit.hardware import Fact, Machine
from fomkit.quantities import UNITS

UNIT_OF = {
    "peak": "TFLOP/s", "memory bandwidth": "GB/s", "memory capacity": "GiB", "launch cost": "us",
    "devices per node": "1", "nodes": "1", "availability": "share", "overhead": "s", "overhead share": "share",
}  # fmt: skip
"""The unit in which each fact stands in its sheet."""
_DIMENSION = {"TFLOP/s": "flop_per_s", "GB/s": "byte_per_s", "GiB": "byte", "us": "time_s", "s": "time_s"}


@dataclass(frozen=True)
class FactRow:
    """One row of the table of facts, in SI units; ``fact`` is None where nobody stated it."""

    machine: str
    name: str
    what: str
    where: str
    fact: Fact | None

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Identify the row."""
        return self.machine, self.name, self.what, self.where


def scale_of(name: str) -> float:
    """Give the size of a fact's unit in SI.

    Examples
    --------
    >>> scale_of("peak"), scale_of("launch cost"), scale_of("nodes")
    (1000000000000.0, 1e-06, 1.0)
    """
    unit = UNIT_OF[name]
    return UNITS[_DIMENSION[unit]][unit] if unit in _DIMENSION else 1.0


def to_unit(name: str, value: float) -> float:
    """Give an SI value in the fact's unit, without the last digit's noise."""
    scale = scale_of(name)
    return float(f"{value / scale if scale >= 1 else value * round(1 / scale):.15g}")


def from_unit(name: str, value: float) -> float:
    """Give a value in the fact's unit in SI units, as the formula beside it does."""
    scale = scale_of(name)
    return value * scale if scale >= 1 else value / round(1 / scale)


def si_formula(name: str, cell: str) -> str:
    """Write `from_unit` as a formula of a cell that may hold a word."""
    scale = scale_of(name)
    factor = f"*{scale:.0f}" if scale >= 1 else f"/{round(1 / scale)}"
    return f'IF(ISNUMBER({cell}),{cell}{"" if scale == 1 else factor},"unknown")'


def _count(value: float | None, machine: Machine) -> Fact | None:
    if value is None:
        return None
    return Fact(float(value), float(value), float(value), "published", f"profile of {machine.name}")


def fact_rows(machine: Machine) -> Iterator[FactRow]:
    """Walk over everything that is, or could be, stated of a machine."""
    device, name = machine.device, machine.name
    for peak in device.peaks:
        yield FactRow(name, "peak", peak.dtype, peak.engine, peak.rate)
    yield FactRow(name, "memory bandwidth", "", "", device.byte_per_s)
    yield FactRow(name, "memory capacity", "", "", device.capacity_byte)
    yield FactRow(name, "launch cost", "", "", device.launch_s)
    yield FactRow(name, "devices per node", "", "", _count(machine.node_devices, machine))
    yield FactRow(name, "nodes", "", "", _count(machine.system_nodes, machine))
    yield FactRow(name, "availability", "", "", _count(machine.availability, machine))
    for one in machine.overheads:
        if one.time_s is not None:
            yield FactRow(name, "overhead", one.name, one.per, one.time_s)
        else:
            yield FactRow(name, "overhead share", one.name, one.per, one.share)

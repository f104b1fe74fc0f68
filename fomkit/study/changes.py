"""Machines that nobody built: one of the profiles with other rates or another launch cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fomkit.errors import FomkitError, nearest_names
from fomkit.hardware import Device, Fact, Machine, Peak

PEAK = "flop_per_s"
RATES = ("byte_per_s", "launch_s")
"""Parameters of a device besides its peaks, each the name of a fact."""


def peak_name(dtype: str, engine: str) -> str:
    """Name the parameter that is a peak.

    Examples
    --------
    >>> peak_name("fp32", "vector")
    'flop_per_s/fp32/vector'
    """
    return f"{PEAK}/{dtype}/{engine}"


def parameters(machine: Machine) -> tuple[str, ...]:
    """Name what of a machine can be changed."""
    return (*RATES, *(peak_name(peak.dtype, peak.engine) for peak in machine.device.peaks))


def check_parameter(machine: Machine, name: str, least: float) -> None:
    """Raise when a machine has no parameter of this name, or its least value is not a rate or a cost.

    Raises
    ------
    FomkitError
    """
    known = parameters(machine)
    if name not in known:
        raise FomkitError(machine.name, f"{name!r} is not a parameter of it. {nearest_names(name, known)}")
    if not (least >= 0 if name == "launch_s" else least > 0):
        raise FomkitError(machine.name, f"{name} is {least:g}. Give a finite number above 0.")


def restated(old: Fact | None, value: float) -> Fact:
    """Give a fact at another value, with the relative spread that it has."""
    ends = (1.0, 1.0) if old is None or old.value == 0 else (old.low / old.value, old.high / old.value)
    return Fact(value, value * ends[0], value * ends[1], "assumed", "changed by the user")


def _changed(device: Device, name: str, value: float) -> Device:
    if name == "byte_per_s":
        return replace(device, byte_per_s=restated(device.byte_per_s, value))
    if name == "launch_s":
        return replace(device, launch_s=restated(device.launch_s, value))
    peaks: list[Peak] = []
    for peak in device.peaks:
        own = peak_name(peak.dtype, peak.engine) == name
        peaks.append(replace(peak, rate=restated(peak.rate, value)) if own else peak)
    return replace(device, peaks=tuple(peaks))


def change_machine(machine: Machine, values: Mapping[str, float]) -> Machine:
    """Give a machine with other rates or another launch cost.

    Every op keeps the utilisation that it has on the machine as built: the time of its launches changes with the
    launch cost, the rest with its roofline (`fomkit.predict.carried.factor`). What was measured there is then
    transferred.

    Parameters
    ----------
    machine : Machine
    values : mapping
        Parameter (`parameters`) to its new value: byte_per_s [byte/s], launch_s [s], flop_per_s/DTYPE/ENGINE
        [flop/s]. Each keeps its relative spread.

    Raises
    ------
    FomkitError
        When the machine has no such parameter, or the value cannot be one.
    """
    device = machine.device
    for name, value in values.items():
        check_parameter(machine, name, value)
        device = _changed(device, name, value)
    return machine.changed(device)

"""What a machine's figures allow: its measured power, or a model of its work; an ordered list, nothing guessed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fomkit.energy.work import Work
from fomkit.hardware import TIMED_OPS, AveragePower, Energy, EnergyScope
from fomkit.spans import Span, add_independent

MethodName = Literal["average_power", "power_of_ops", "per_work"]
Basis = Literal["measured", "modelled"]
FULL = 1 - 1e-9


@dataclass(frozen=True)
class Workload:
    """What runs: the conditions that a measured power must have been taken under.

    Attributes
    ----------
    busy_share : float
        Share of the step's time that the device computes; it waits for the rest.
    time_measured : bool
        Whether all of its time is a measured one.
    """

    model: str
    batch: int | None
    precision: str
    busy_share: float = 1.0
    time_measured: bool = False


@dataclass(frozen=True)
class Method:
    """How energy becomes known: a power that lasts as long as the work does, and what the work takes besides.

    Attributes
    ----------
    power_w : Span
        For one device [W]: the mean power of the work, or idle power where the work is priced besides.
    counts_work : bool
        Whether flop and bytes are priced besides ``power_w``.
    basis : str
        measured only where power and time both are.
    said : str
        Where the figures come from.
    """

    name: MethodName
    power_w: Span
    scope: EnergyScope
    basis: Basis
    said: str
    process_m: float | None = None
    counts_work: bool = False


def _fits(one: AveragePower, workload: Workload) -> bool:
    same_batch = one.batch in (None, workload.batch)
    same_precision = one.precision in ("", workload.precision)
    return one.workload == workload.model and same_batch and same_precision


def _known(one: AveragePower) -> int:
    """Tell how much of the conditions a power states."""
    return (one.batch is not None) + bool(one.precision)


def _average(energy: Energy, workload: Workload, level: float) -> Method | None:
    """Take the power that was measured of this very workload, the one that states most."""
    fitting = sorted((one for one in energy.average if _fits(one, workload)), key=_known)
    if not fitting:
        return None
    one = fitting[-1]
    measured = one.power_w.basis == "measured" and workload.time_measured
    power = one.power_w.span(level).scaled(1 / (one.devices or 1))
    said = f"power of {one.workload}, {one.power_w.basis}: {one.power_w.source}"
    return Method("average_power", power, one.scope, "measured" if measured else "modelled", said)


def _of_ops(energy: Energy, workload: Workload, level: float) -> Method | None:
    """Take the power of ops that were timed alone while the device computes, idle power while it waits."""
    one = next((one for one in energy.average if one.workload == TIMED_OPS), None)
    busy = workload.busy_share
    if one is None or (energy.idle_w is None and busy < FULL) or (energy.idle_w and energy.scope != one.scope):
        return None
    parts = [one.power_w.span(level).scaled(busy / (one.devices or 1))]
    if energy.idle_w is not None and busy < FULL:
        parts.append(energy.idle_w.span(level).scaled((1 - busy) / (energy.devices or 1)))
    said = f"power of timed ops over {busy:.0%} of the step, idle power over the rest: {one.power_w.source}"
    return Method("power_of_ops", add_independent(parts), one.scope, "modelled", said)


def choose_method(
    energy: Energy, workload: Workload, work: Work, level: float
) -> tuple[Method | None, tuple[str, ...]]:
    """Choose how the energy of a workload is known: its own measured power, that of timed ops, or its work.

    Returns
    -------
    method : Method or None
    missing : tuple of str
        What would have to be stated; empty where a method was found.
    """
    for method in (_average(energy, workload, level), _of_ops(energy, workload, level)):
        if method is not None:
            return method, ()
    missing = list(work.missing)
    if energy.idle_w is None:
        return None, ("nobody states the idle power", *missing)
    if missing:
        return None, tuple(missing)
    idle = energy.idle_w.span(level).scaled(1 / (energy.devices or 1))
    said = f"idle power: {energy.idle_w.source}"
    return Method("per_work", idle, energy.scope, "modelled", said, energy.process_m, counts_work=True), ()

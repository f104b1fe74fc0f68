"""How many runs a machine has in progress at a time, and how many units of work it ends a day."""

from __future__ import annotations

from fomkit.errors import FomkitError
from fomkit.fom import unit_per_day
from fomkit.hardware import Machine, Scope
from fomkit.spans import Span
from fomkit.workload import ModelProfile


def runs_at_once(model: ModelProfile, machine: Machine, scope: Scope) -> int:
    """Count the runs that the devices of a scope have in progress at the same time.

    Raises
    ------
    FomkitError
        When one run needs more devices than there are.
    """
    devices, needed = machine.devices(scope), model.run.devices_per_run
    if needed > devices:
        raise FomkitError(
            f"{model.name} on {machine.name}",
            f"one run needs {needed} devices and the scope {scope!r} has {devices}. Choose a wider --scope.",
        )
    return devices // needed


def runs_per_day(model: ModelProfile, machine: Machine, run_s: Span, scope: Scope, at_once: int) -> Span:
    """Give the units of work per day of a machine that has ``at_once`` runs of ``run_s`` [s] in progress."""
    up_share = machine.availability if scope == "system" else 1.0
    return unit_per_day(run_s.scaled(model.unit.runs), at_once * up_share)

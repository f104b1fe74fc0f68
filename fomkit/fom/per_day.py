"""How many runs a machine has in progress at a time, and how many units of work it ends a day."""

from __future__ import annotations

from fomkit.errors import FomkitError
from fomkit.fom import unit_per_day
from fomkit.hardware import Machine, Scope
from fomkit.spans import Span
from fomkit.workload import ModelProfile


def runs_at_once(model: ModelProfile, machine: Machine, scope: Scope) -> int:
    """Count the runs that the devices of a scope have in progress at the same time, one on each.

    Raises
    ------
    FomkitError
        When a run takes several devices: nothing here says how its step is shared out, nor what that sends.
    """
    needed = model.run.devices_per_run
    if needed > 1:
        raise FomkitError(
            f"{model.name} on {machine.name}",
            f"its run takes {needed} devices (run.devices_per_run), and a step is priced on one, without what the "
            f"devices send each other. Ask 'fomkit scaling' with a --layout, or set run.devices_per_run to 1.",
        )
    return machine.devices(scope)


def runs_per_day(model: ModelProfile, machine: Machine, run_s: Span, scope: Scope, at_once: int) -> Span:
    """Give the units of work per day of a machine that has ``at_once`` runs of ``run_s`` [s] in progress."""
    up_share = machine.availability if scope == "system" else 1.0
    return unit_per_day(run_s.scaled(model.unit.runs), at_once * up_share)

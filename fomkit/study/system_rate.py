"""Units of work a day of a system that trains in jobs of so many nodes: queue, failures and checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fomkit.errors import FomkitError
from fomkit.hardware import Machine
from fomkit.parallel.reliability import daly_s, system_mtbf_s, useful_share
from fomkit.parallel.step import ParallelStep
from fomkit.quantities import DAY_S, parse_quantity
from fomkit.rollup.overheads import overheads
from fomkit.rollup.to_target import time_to_target
from fomkit.rollup.training import steps_per_epoch
from fomkit.spans import Span, add_common
from fomkit.study.content import span_content
from fomkit.workload import EpochsToTarget, ModelProfile


@dataclass(frozen=True)
class Service:
    """How jobs are served; what is None is left out.

    Attributes
    ----------
    slots : int or None
        Jobs that the queue lets run side by side.
    checkpoint_s, restart_s : float
        To write a checkpoint, and to start again from one.
    device_mtbf_s : float or None
        Mean time between failures of one device with its share of the node; any failure ends a job.
    interval_s : float or None
        Between checkpoints; None takes Daly's best.
    """

    slots: int | None = None
    checkpoint_s: float = 0.0
    restart_s: float = 0.0
    device_mtbf_s: float | None = None
    interval_s: float | None = None


def parse_service(slots: int | None = None, **times: str | None) -> Service:
    """Read a service from times with units: ``checkpoint``, ``restart``, ``device_mtbf`` and ``checkpoint_every``.

    Raises
    ------
    FomkitError
        When a time has no unit, or the slots are no whole number.

    Examples
    --------
    >>> parse_service(3, checkpoint="60 s", device_mtbf="50000 h").device_mtbf_s
    180000000.0
    """
    if slots is not None and (isinstance(slots, bool) or not isinstance(slots, int)):
        raise FomkitError("slots", f"is {slots!r}. Give a whole number of 1 or more.")
    read = {
        name: parse_quantity(text, "time_s", f"--{name.replace('_', '-')}", "time")
        for name, text in times.items()
        if text is not None
    }
    return Service(slots, read.get("checkpoint", 0.0), read.get("restart", 0.0), read.get("device_mtbf"),
                   read.get("checkpoint_every"))  # fmt: skip


def _check(service: Service) -> None:
    for name in ("slots", "device_mtbf_s", "interval_s"):
        value = getattr(service, name)
        if value is not None and not value > 0:
            raise FomkitError(name, f"is {value}. Give a value above 0.")
    if service.interval_s is not None and service.device_mtbf_s is None:
        raise FomkitError("checkpoint interval", "says nothing without failures. Add --device-mtbf.")
    if service.device_mtbf_s is None and (service.checkpoint_s or service.restart_s):
        raise FomkitError("checkpoint", "says nothing without failures. Add --device-mtbf, for example '5 years'.")
    if service.device_mtbf_s is not None and not service.checkpoint_s > 0:
        raise FomkitError("device mtbf", "needs what a checkpoint takes. Add --checkpoint, for example '60 s'.")


def _useful(service: Service, devices: int) -> dict[str, float]:
    if service.device_mtbf_s is None:
        return {"useful_share": 1.0}
    mtbf = system_mtbf_s(service.device_mtbf_s, devices)
    every = service.interval_s or daly_s(service.checkpoint_s, mtbf)
    share = useful_share(service.checkpoint_s, service.restart_s, mtbf, every)
    return {"useful_share": share, "mtbf_s": mtbf, "checkpoint_interval_s": every}


def _with_overheads(machine: Machine, per: str, of: Span) -> Span:
    return add_common([of, *overheads(machine, per, of).values()])


def _left_out(model: ModelProfile, machine: Machine) -> list[str]:
    """Name what a run here is without, though it may take time."""
    stated = {(one.name, one.per) for one in machine.overheads}
    found = [] if model.data.validation_samples == 0 else ["validation"]
    found += [] if ("input", "step") in stated else ["input"]
    return found + ([] if any(per == "run" for _, per in stated) else ["start_up"])


def no_run(model: ModelProfile) -> str:
    """Say what a profile lacks for a run; "" where it has all."""
    facts = {"train_samples": model.data.train_samples, "epochs": model.run.epochs}
    lacking = [name for name, value in facts.items() if value is None]
    return f"{model.name} does not say {' and '.join(lacking)}" if lacking else ""


def _epoch(model: ModelProfile, machine: Machine, step: ParallelStep) -> tuple[int, Span] | None:
    """Give the steps of an epoch and its time [s]; None where it has no full step, or nobody knows its samples."""
    samples = model.data.train_samples
    steps = 0 if samples is None else steps_per_epoch(samples, step.samples, model.data.last_batch)[0]
    return (steps, _with_overheads(machine, "epoch", step.wall_s.scaled(steps))) if steps else None


def target_content(
    model: ModelProfile, machine: Machine, step: ParallelStep, curve: EpochsToTarget
) -> dict[str, Any]:
    """Give the epochs to a target at a step's batch, and their time; null with the reason where nobody knows."""
    epoch = _epoch(model, machine, step)
    if epoch is None:
        return {"epochs": None, "to_target_s": None, "why": "an epoch has no full step, or unknown samples"}
    try:
        epochs, time_s = time_to_target(curve, step.samples, epoch[1], machine)
    except FomkitError as error:
        return {"epochs": None, "to_target_s": None, "why": error.what}
    return {"epochs": span_content(epochs), "to_target_s": span_content(time_s), "why": ""}


def system_content(
    model: ModelProfile, machine: Machine, step: ParallelStep, nodes: int, service: Service
) -> dict[str, Any] | None:
    """Give runs and units a day of the system; None where the profile does not say what a run is.

    Without ``system.nodes`` in the machine's profile the system is the nodes of one job.

    Raises
    ------
    FomkitError
        When the options of the service cannot be.
    """
    _check(service)
    epoch, epochs = _epoch(model, machine, step), model.run.epochs
    if epoch is None or epochs is None:
        return None
    steps, epoch_s = epoch
    useful = _useful(service, step.devices)
    run_s = _with_overheads(machine, "run", epoch_s.scaled(epochs))
    at_once = (machine.system_nodes or nodes) // nodes
    at_once = at_once if service.slots is None else min(at_once, service.slots)
    rate = at_once * useful["useful_share"] * machine.availability * DAY_S / model.unit.runs
    return {
        "steps_per_epoch": steps,
        "run_s": span_content(run_s),
        "excludes": _left_out(model, machine),
        "runs_at_once": at_once,
        **useful,
        "unit_per_day": span_content(run_s.per(rate)) if at_once else None,
    }

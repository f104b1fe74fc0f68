"""A job on a machine: its step on many devices, its run, and the units of work a day that the machine ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from fomkit.core.errors import FomkitError
from fomkit.core.interval import Span, add_common
from fomkit.core.job import Job, Layout
from fomkit.core.machine import Machine, Scope
from fomkit.core.model import EpochsToTarget, ModelProfile
from fomkit.core.units import DAY_S, parse_quantity
from fomkit.parallel.job import daly_s, system_mtbf_s, useful_share
from fomkit.parallel.step import ParallelStep
from fomkit.plan.content import span_content
from fomkit.plan.memory_of import UNKNOWN_FIT, Fit
from fomkit.plan.options import Options, choose_scope
from fomkit.plan.run import steps_per_epoch, time_to_target
from fomkit.plan.scaling import Stepper, step_fit, stepper_of
from fomkit.plan.step import overheads
from fomkit.prediction.exchange import Network


@dataclass(frozen=True)
class Service:
    """How jobs are served; what is None is left out.

    `slots`: jobs that the queue lets run side by side.
    `checkpoint_s`, `restart_s`: to write a checkpoint, and to start again from one.
    `device_mtbf_s`: mean time between failures of one device with its share of the node; any failure ends a job.
    `interval_s`: between checkpoints; None takes Daly's best.
    """

    slots: int | None = None
    checkpoint_s: float = 0.0
    restart_s: float = 0.0
    device_mtbf_s: float | None = None
    interval_s: float | None = None


def parse_service(slots: int | None = None, **times: str | None) -> Service:
    """Read a service from times with units: ``checkpoint``, ``restart``, ``device_mtbf`` and ``checkpoint_every``.

    Raises FomkitError when a time has no unit, or the slots are no whole number.

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


def _excluded_terms(model: ModelProfile, machine: Machine) -> list[str]:
    """Name what a run here is without, though it may take time."""
    stated = {(overhead.name, overhead.per) for overhead in machine.overheads}
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


@dataclass(frozen=True)
class SystemRun:
    """A run of a job, and the units of work a day of so many side by side.

    `steps_per_epoch`, `run_s`: of one run; `at_once`: runs in progress at a time.
    `useful`: the share of the time that is work and stays done, and what it is made of.
    `unit_per_day`: None where not one run fits.
    `excludes`: terms that are not in it, though they may take time.
    """

    steps_per_epoch: int
    run_s: Span
    at_once: int
    useful: Mapping[str, float]
    unit_per_day: Span | None
    excludes: tuple[str, ...]

    @property
    def content(self) -> dict[str, Any]:
        """Runs and units a day in the form of the JSON output."""
        return {
            "steps_per_epoch": self.steps_per_epoch,
            "run_s": span_content(self.run_s),
            "excludes": list(self.excludes),
            "runs_at_once": self.at_once,
            **self.useful,
            "unit_per_day": span_content(self.unit_per_day),
        }


def system_run(
    model: ModelProfile, machine: Machine, step: ParallelStep, at_once: int, service: Service
) -> SystemRun | None:
    """Roll a step of many devices up to a run; None where the profile does not say what a run is.

    Raises FomkitError when the options of the service cannot be.
    """
    _check(service)
    epoch, epochs = _epoch(model, machine, step), model.run.epochs
    if epoch is None or epochs is None:
        return None
    steps, epoch_s = epoch
    useful = _useful(service, step.devices)
    run_s = _with_overheads(machine, "run", epoch_s.scaled(epochs))
    at_once = at_once if service.slots is None else min(at_once, service.slots)
    rate = at_once * useful["useful_share"] * machine.availability * DAY_S / model.unit.runs
    per_day = run_s.per(rate) if at_once else None
    return SystemRun(steps, run_s, at_once, useful, per_day, tuple(_excluded_terms(model, machine)))


def run_on_nodes(
    model: ModelProfile, machine: Machine, step: ParallelStep, nodes: int, service: Service
) -> SystemRun | None:
    """Roll a step up to the runs of a system, which is the nodes of one job where nobody says how many it has."""
    return system_run(model, machine, step, (machine.system_nodes or nodes) // nodes, service)


@dataclass(frozen=True)
class NodesJob:
    """A training that is spread over nodes, with a batch of the options, else of the profile, for each copy."""

    model: ModelProfile
    machine: Machine
    layout: Layout
    options: Options
    like: NodesJob | None = field(default=None, repr=False, compare=False)
    """The same job on a machine that differs in links only."""

    @cached_property
    def stepper(self) -> Stepper:
        """What gives its step; each asks with its own batch."""
        if self.like is not None:
            return self.like.stepper.on(self.machine)
        sizes = {name: size for name, size in self.options.wanted_sizes.items() if name != "batch"}
        return stepper_of(self.model, self.machine, self.layout, replace(self.options, batch=None, sizes=sizes))

    def at(self, nodes: int) -> tuple[ParallelStep, SystemRun | None]:
        """Give its step on so many nodes, and its run where the profile says what that is.

        Raises FomkitError when nobody says the batch, or there is no such step.
        """
        batch = self.options.wanted_sizes.get("batch") or self.model.batch
        if batch is None:
            raise FomkitError(self.model.name, "does not say its batch. Give --batch.")
        devices = nodes * Network(self.machine, self.layout.channel).node_devices
        step = self.stepper.at(devices, batch * self.layout.replicas(devices))
        return step, run_on_nodes(self.model, self.machine, step, nodes, Service())


@dataclass(frozen=True)
class JobTime:
    """A job on a machine at a scope: its step, its run, and whether the devices hold it."""

    step: ParallelStep
    run: SystemRun
    nodes: int
    fit: Fit = UNKNOWN_FIT

    @property
    def excludes(self) -> tuple[str, ...]:
        """Terms that nobody stated, of the step and of the run."""
        return tuple(dict.fromkeys((*self.step.excludes, *self.run.excludes)))

    @property
    def unit_per_day(self) -> Span | None:
        """Units of work a day."""
        return self.run.unit_per_day

    @property
    def precision(self) -> str:
        """Number formats of most of the arithmetic."""
        return self.step.precision


def _devices_of(model: ModelProfile, machine: Machine, job: Job, where: str) -> tuple[int, int]:
    """Give the devices of one run, and the whole nodes that it takes; 0 where several runs share a node."""
    if job.nodes is not None and machine.node_devices is None:
        raise FomkitError(machine.name, "does not say how many devices a node has. Add 'node: {devices: …}'.")
    if job.nodes == "fill" and machine.system_nodes is None:
        raise FomkitError(machine.name, "does not say how many nodes it has. Add 'system: {nodes: …}'.")
    each = machine.devices("node")
    if job.nodes is None:
        devices = model.run.devices_per_run
        return devices, -(-devices // each) if devices > each // 2 else 0
    if job.nodes == "fill":
        return machine.devices("system"), machine.devices("system") // each
    if machine.system_nodes is not None and job.nodes > machine.system_nodes:
        raise FomkitError(
            where, f"a run takes {job.nodes:,} nodes, and {machine.name} has {machine.system_nodes:,}. Take fewer."
        )
    return job.nodes * each, job.nodes


def _runs_at_once(machine: Machine, devices: int, nodes: int, scope: Scope, where: str) -> int:
    """Count the runs that a scope has in progress at a time."""
    each, there = machine.devices("node"), machine.devices(scope)
    side_by_side = there // each * (each // devices) if there >= each else there // devices
    at_once = there // each // nodes if nodes else side_by_side
    if at_once < 1:
        raise FomkitError(
            where, f"a run takes {devices:,} devices, and the scope {scope!r} of {machine.name} has {there:,}. "
            "Rate it at a wider scope, or take fewer."
        )  # fmt: skip
    return at_once


def time_job(model: ModelProfile, machine: Machine, job: Job, options: Options) -> JobTime:
    """Price a run on several devices, and how many of them the scope of the options ends a day.

    `options`: its batch is that of a whole step, which the replicas share. Raises FomkitError when the layout or
    the scope cannot have it, a link is not stated, or the profile does not say what a run is.
    """
    scope = choose_scope([machine], options.scope)
    where = f"{model.name} on {machine.name}"
    batch = options.batch or model.batch
    if batch is None:
        raise FomkitError(where, "does not say its batch. Give it.")
    devices, nodes = _devices_of(model, machine, job, where)
    at_once = _runs_at_once(machine, devices, nodes, scope, where)
    step = stepper_of(model, machine, job.layout, replace(options, batch=None)).at(devices, batch)
    machine = machine if scope == "system" else replace(machine, availability=1.0)
    run = system_run(model, machine, step, at_once, Service())
    if run is None:
        samples = model.data.train_samples
        short = samples is not None and samples < batch
        raise FomkitError(where, f"a step of {batch:,} is more than the {samples:,} samples of an epoch."
                          if short else f"{no_run(model)}, so nobody knows a run.")  # fmt: skip
    return JobTime(step, run, nodes, step_fit(machine, step))

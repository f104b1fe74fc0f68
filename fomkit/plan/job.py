"""A job on a machine: its step on many devices, its run, and the units of work a day of the machine."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import exp, expm1, sqrt
from typing import NamedTuple, NotRequired, TypedDict

from fomkit.core.errors import FomkitError
from fomkit.core.interval import Span
from fomkit.core.job import Job, Layout
from fomkit.core.machine import Machine, Scope
from fomkit.core.model import ModelProfile
from fomkit.core.units import parse_quantity
from fomkit.parallel.step import ParallelStep, describe_layout, microbatches_of
from fomkit.plan.content import Condition, Ends, Part, as_content, conditions_content
from fomkit.plan.coverage import coverage
from fomkit.plan.estimate import Detail, Estimate
from fomkit.plan.memory import largest_that_fits
from fomkit.plan.memory_of import UNKNOWN_FIT, fit_in, room_byte
from fomkit.plan.options import Options, choose_scope, choose_sizes
from fomkit.plan.replica_step import on_one_device
from fomkit.plan.run import RunTime, rate_per_day, roll_up_run, run_notes, runs_per_day, steps_per_epoch
from fomkit.plan.scaling import Stepper, stepper_of
from fomkit.plan.step import StepTime, roll_up_step, step_rows
from fomkit.plan.transformer_step import TransformerStep
from fomkit.prediction.exchange import Network


def young_s(checkpoint_s: float, mtbf_s: float) -> float:
    """Return the first-order best interval between checkpoints (Young, CACM 17(9), 1974) [s].

    >>> young_s(60.0, 12_000.0)
    1200.0
    """
    return sqrt(2 * checkpoint_s * mtbf_s)


def daly_s(checkpoint_s: float, mtbf_s: float) -> float:
    """Return the higher-order best interval between checkpoints (Daly, FGCS 22(3), 2006, equation 37) [s].

    >>> round(daly_s(60.0, 12_000.0), 1)
    1160.3
    """
    if checkpoint_s >= 2 * mtbf_s:
        return mtbf_s
    ratio = sqrt(checkpoint_s / (2 * mtbf_s))
    return young_s(checkpoint_s, mtbf_s) * (1 + ratio / 3 + ratio * ratio / 9) - checkpoint_s


def useful_share(checkpoint_s: float, restart_s: float, mtbf_s: float, interval_s: float) -> float:
    """Return the share of the time that is useful work, neither lost nor overhead (Daly 2006, equation 20).

    Failures occur at random, at a constant rate; after each, the work since the last checkpoint is repeated.

    >>> round(useful_share(60.0, 60.0, 12_000.0, 1160.3), 4)
    0.8988
    """
    wall = mtbf_s * exp(restart_s / mtbf_s) * expm1((interval_s + checkpoint_s) / mtbf_s)
    return interval_s / wall


@dataclass(frozen=True)
class Service:
    """How a system runs jobs; what is None is left out.

    `slots`: jobs that the queue runs at the same time.
    `checkpoint_s`, `restart_s`: time to write a checkpoint, and to restart from one.
    `device_mtbf_s`: mean time between failures of one device with its share of the node; any failure ends a job.
    `interval_s`: time between checkpoints; None is Daly's best interval.
    """

    slots: int | None = None
    checkpoint_s: float = 0.0
    restart_s: float = 0.0
    device_mtbf_s: float | None = None
    interval_s: float | None = None


def parse_service(slots: int | None = None, **times: str | None) -> Service:
    """Parse a service from times with units: ``checkpoint``, ``restart``, ``device_mtbf``, ``checkpoint_every``.

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
    found = Service(slots, read.get("checkpoint", 0.0), read.get("restart", 0.0), read.get("device_mtbf"),
                    read.get("checkpoint_every"))  # fmt: skip
    _check(found)
    return found


def _check(service: Service) -> None:
    given = {"slots": service.slots, "device_mtbf": service.device_mtbf_s, "checkpoint_every": service.interval_s}
    for name, value in given.items():
        if value is not None and not value > 0:
            raise FomkitError(name, f"is {value}. Give a value above 0.")
    of_failures = {
        "checkpoint": service.checkpoint_s, "restart": service.restart_s, "checkpoint_every": service.interval_s
    }  # fmt: skip
    if service.device_mtbf_s is None and (idle := [name for name, value in of_failures.items() if value]):
        raise FomkitError(idle[0], "has no effect without failures. Add `device_mtbf`, for example '50000 h'.")
    if service.device_mtbf_s is not None and not service.checkpoint_s > 0:
        raise FomkitError("device_mtbf", "needs the time of a checkpoint. Add `checkpoint`, for example '60 s'.")


def _useful(service: Service, devices: int) -> Useful:
    """Return the useful share with failures, at the stated or the best checkpoint interval."""
    if service.device_mtbf_s is None:
        return {"useful_share": 1.0}
    mtbf = service.device_mtbf_s / devices  # a failure of any device ends the job
    every = service.interval_s or daly_s(service.checkpoint_s, mtbf)
    share = useful_share(service.checkpoint_s, service.restart_s, mtbf, every)
    return {"useful_share": share, "mtbf_s": mtbf, "checkpoint_interval_s": every}


def _step_time(step: ParallelStep, bound: str) -> StepTime:
    """Convert a step of many devices to the terms of a step of one device."""
    zero = Span.exact(0.0, step.wall_s.level)
    return StepTime(step.passes, step.compute_s, None, None, None, zero, step.wall_s, bound, step.excludes)


def run_of_step(model: ModelProfile, machine: Machine, step: ParallelStep) -> RunTime | None:
    """Roll a step of many devices up to a run; None where an epoch has fewer samples than the step."""
    samples, last_batch = model.data.train_samples, model.data.last_batch
    if samples is not None and not steps_per_epoch(samples, step.samples, last_batch)[0]:
        return None
    return roll_up_run(model, machine, _step_time(step, step.longest), step.samples, last_batch)


Useful = TypedDict("Useful", {"useful_share": float, "mtbf_s": NotRequired[float],
                              "checkpoint_interval_s": NotRequired[float]})  # fmt: skip
System = TypedDict("System", {
    "steps_per_epoch": int | None, "run_s": Ends | None, "excludes": list[str], "runs_at_once": int,
    "useful_share": float, "mtbf_s": NotRequired[float], "checkpoint_interval_s": NotRequired[float],
    "unit_per_day": Ends | None,
})  # fmt: skip


@dataclass(frozen=True)
class SystemRun:
    """A run of a job, and the units of work a day with several runs at the same time.

    `useful`: the share of the time that is useful work, and the terms that it is computed from.
    `unit_per_day`: None where not one run fits.
    """

    time: RunTime
    at_once: int
    useful: Useful
    unit_per_day: Span | None

    @property
    def content(self) -> System:
        """Runs and units a day in the form of the JSON output."""
        return as_content(System, self.useful, self, self.time, runs_at_once=self.at_once)


def run_on_nodes(
    model: ModelProfile, machine: Machine, run: RunTime | None, nodes: int, service: Service
) -> SystemRun | None:
    """Compute the units a day of a system, by default of one job's nodes; None where a profile defines no run."""
    _check(service)
    if run is None or run.run_s is None:
        return None
    useful = _useful(service, nodes * machine.devices("node"))
    at_once = (machine.system_nodes or nodes) // nodes
    at_once = at_once if service.slots is None else min(at_once, service.slots)
    rate = at_once * useful["useful_share"]
    return SystemRun(
        run, at_once, useful, runs_per_day(model, machine, run.run_s, "system", rate) if at_once else None
    )


def _stepper(model: ModelProfile, machine: Machine, layout: Layout, options: Options) -> Stepper:
    """Return the stepper for any batch; it ignores the batch of the options."""
    sizes = {name: size for name, size in options.wanted_sizes.items() if name != "batch"}
    return stepper_of(model, machine, layout, replace(options, batch=None, sizes=sizes))


@dataclass(frozen=True)
class NodesJob:
    """A training that is spread over nodes; each copy has the batch of the options, else of the profile."""

    model: ModelProfile
    machine: Machine
    layout: Layout
    options: Options
    like: NodesJob | None = field(default=None, repr=False, compare=False)
    """The same job on a machine that differs in links only."""

    @cached_property
    def stepper(self) -> Stepper:
        """The stepper of the job; each call passes its own batch."""
        if self.like is not None:
            return self.like.stepper.on(self.machine)
        return _stepper(self.model, self.machine, self.layout, self.options)

    def at(self, nodes: int) -> tuple[ParallelStep, SystemRun | None]:
        """Return its step on `nodes` nodes, and its run where the profile defines one."""
        batch = self.options.wanted_sizes.get("batch") or self.model.batch
        if batch is None:
            raise FomkitError(self.model.name, "its batch is not stated. Give --batch.")
        devices = nodes * Network(self.machine, self.layout.channel).node_devices
        step = self.stepper.at(devices, batch * self.layout.replicas(devices))
        run = run_of_step(self.model, self.machine, step)
        return step, run_on_nodes(self.model, self.machine, run, nodes, Service())

    def conditions(self, nodes: int) -> dict[str, Condition]:
        """State what its step on `nodes` nodes varies with; more nodes than the machine has are allowed."""
        sizes = {**self.options.wanted_sizes, "batch": self.at(nodes)[0].samples}
        options = replace(self.options, batch=None, sizes=sizes, scope=None)
        machine = replace(self.machine, system_nodes=None)
        return conditions_content(time_job(self.model, machine, Job(nodes, self.layout), options))


def _devices_of(model: ModelProfile, machine: Machine, job: Job, where: str) -> int:
    if (job.nodes is not None or job.layout.fewest_devices > 1) and machine.node_devices is None:
        raise FomkitError(
            machine.name,
            "the number of devices in a node is not stated. Add 'node: {devices: …}', or give --node-devices.",
        )
    if job.nodes == "fill" and machine.system_nodes is None:
        raise FomkitError(machine.name, "the number of nodes is not stated. Add 'system: {nodes: …}'.")
    if job.nodes is None:
        stated = (job.layout.data or 0) * job.layout.model_devices
        return stated or max(model.run.devices_per_run, job.layout.fewest_devices)
    if job.nodes == "fill":
        return machine.devices("system")
    if machine.system_nodes is not None and job.nodes > machine.system_nodes:
        raise FomkitError(
            where, f"a run uses {job.nodes:,} nodes, but {machine.name} has {machine.system_nodes:,}. Give fewer."
        )
    return job.nodes * machine.devices("node")


def _runs_at_once(machine: Machine, devices: int, scope: Scope, where: str) -> int:
    """Count the runs that a scope has in progress at a time: several share a node where they fit."""
    each, there = machine.devices("node"), machine.devices(scope)
    nodes = machine.nodes_of(devices)
    at_once = there // each // nodes if nodes else there // each * (each // devices) if there >= each else 1
    if at_once < 1 or there < devices:
        raise FomkitError(
            where, f"a run uses {devices:,} devices, but the scope {scope!r} of {machine.name} has {there:,}. "
                   f"Choose a wider scope,{f' a multiple of {each},' * (scope == 'node' and devices % each > 0)} "
                   f"or fewer devices{'; or give --nodes' * (scope == 'node')}."
        )  # fmt: skip
    return at_once


OF_ONE_RUN = "the number of nodes of {} is not stated: units/day are those of the nodes of one run"


class Placed(NamedTuple):
    """A job on the devices of a machine.

    `machine`: with the nodes of one run, where the profile states no number of nodes; `wanted`: sizes that were
    asked for, without the batch; `batch`: samples of a whole step, which the replicas share.
    """

    model: ModelProfile
    machine: Machine
    layout: Layout
    stepper: Stepper
    devices: int
    batch: int
    wanted: Mapping[str, int]
    scope: Scope
    runs_at_once: int
    notes: tuple[str, ...]

    @property
    def sizes(self) -> dict[str, int]:
        """The named sizes of a whole step."""
        return {**choose_sizes(self.model, self.wanted), "batch": self.batch}

    @property
    def schedule(self) -> tuple[int, int]:
        """Samples of a microbatch, and microbatches of a step."""
        return microbatches_of(self.batch, self.layout.replicas(self.devices), self.layout.microbatch)

    @property
    def content(self) -> Part:
        """The job in the form of the JSON output."""
        micro, count = self.schedule
        return as_content(
            Part, self, nodes=self.machine.nodes_of(self.devices) or None, layout=describe_layout(self.layout),
            replicas=self.layout.replicas(self.devices), microbatch=micro, microbatches=count,
        )  # fmt: skip

    def largest_microbatch(self) -> int | None:
        """Return the most samples of a microbatch that fit beside a device's reserve; None where unknown."""
        (_, count), room = self.schedule, room_byte(self.machine)
        if room is None or self.stepper.held(self.devices, self.batch) is None:
            return None

        def fits(micro: int) -> bool:
            stepper = copy(self.stepper)
            if count > 1 or self.layout.microbatch:
                stepper.layout = replace(self.layout, microbatch=micro)
            held = stepper.held(self.devices, micro * count * self.layout.replicas(self.devices))
            return held is not None and sum(held.values()) <= room

        return largest_that_fits(fits)


def place_job(model: ModelProfile, machine: Machine, job: Job | None, options: Options) -> Placed:
    """Place a job on the devices of a machine: as many as it, else the model's profile, states.

    `options`: its batch is that of a whole step; without a scope, a job on whole nodes is rated at the scope
    system, any other at the narrowest scope that holds the run.
    """
    where, wanted, notes = f"{model.name} on {machine.name}", dict(options.wanted_sizes), list[str]()
    job = job or Job()
    nodes, rest = divmod((job.layout.data or 0) * job.layout.model_devices, machine.node_devices or 1)
    if job.nodes is None and nodes and machine.node_devices and not rest:
        job = replace(job, nodes=nodes)
    batch = wanted.pop("batch", model.batch)
    if batch is None:
        raise FomkitError(where, "its batch is not stated. Give --batch.")
    choose_sizes(model, wanted)  # raises for a size that the model does not have
    devices, scope = _devices_of(model, machine, job, where), options.scope
    if scope is None and job.nodes is not None:
        scope = "system"
        if machine.system_nodes is None:
            notes.append(OF_ONE_RUN.format(machine.name))
            machine = replace(machine, system_nodes=devices // machine.devices("node"))
    scope = choose_scope([machine], scope, devices)
    at_once = _runs_at_once(machine, devices, scope, where)
    stepper = _stepper(model, machine, job.layout, options)
    return Placed(model, machine, job.layout, stepper, devices, batch, wanted, scope, at_once, tuple(notes))


def time_job(model: ModelProfile, machine: Machine, job: Job | None, options: Options) -> Estimate:
    """Price a run on several devices, and count how many runs the scope of the options completes a day."""
    placed = place_job(model, machine, job, options)
    machine, batch, stepper = placed.machine, placed.batch, placed.stepper
    step, alone = stepper.at(placed.devices, batch), stepper.one_device(placed.devices, batch)
    time = _step_time(step, step_rows(alone.ops).bound if step.longest == "calculation" else step.longest)
    run = roll_up_run(model, machine, time, batch, options.last_batch or model.data.last_batch)
    fit = fit_in(machine, step.memory_byte)
    slow = filter(None, [stepper.network.slow_note(placed.devices)])
    messages = [*step.notes, *slow, *run_notes(model, run, placed.wanted), *placed.notes]
    fit = alone.fit if fit.fits is None else fit  # the memory that every step needs may already be too much
    deviations = tuple(dict.fromkeys([*fit.notes, *messages]))
    return Estimate(
        model, machine, placed.sizes, placed.scope, placed.runs_at_once, time, run,
        rate_per_day(model, machine, run, placed.scope, placed.runs_at_once), alone.formats,
        Detail(alone.machine, lambda: alone.ops, lambda: step.coverage, lambda: fit, lambda: deviations), step,
    )  # fmt: skip


def time_microbatch(placed: Placed, options: Options) -> Estimate:
    """Estimate what one device of a job executes for a microbatch, without waits that are not among its ops."""
    stepper, (micro, _) = placed.stepper, placed.schedule
    if isinstance(stepper, TransformerStep):
        alone, model = stepper.one_device(placed.devices, placed.batch), on_one_device(placed.model)
        time = roll_up_step(alone.ops, alone.machine, options.interval)
        run = roll_up_run(model, placed.machine, time, micro, model.data.last_batch)
        covered = coverage(alone.ops)
        detail = Detail(
            alone.machine, lambda: alone.ops, lambda: covered, lambda: UNKNOWN_FIT, lambda: stepper.notes
        )
        sizes = {**placed.sizes, "batch": micro}
        one = Estimate(model, placed.machine, sizes, "device", 1, time, run, None, alone.formats, detail)
    else:
        one = stepper.estimate(micro)
    held = stepper.held(placed.devices, placed.batch)
    if held is None:
        return one
    # A microbatch alone has no gradients of former ones, and all that `zero` keeps on other devices.
    fit = fit_in(placed.machine, sum(held.values()))
    others = [text for text in one.deviations if text not in one.fit.notes]
    return replace(one, detail=replace(one.detail, fit=lambda: fit, deviations=lambda: (*fit.notes, *others)))

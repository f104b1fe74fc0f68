"""Scaling: a training on increasing numbers of nodes, and the bandwidth that a speed-up requires."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypedDict

import pandas as pd

from fomkit import __version__
from fomkit.core.errors import FomkitError, Shown
from fomkit.core.interval import DEFAULT_LEVEL
from fomkit.core.machine import Link, Machine
from fomkit.core.model import EpochsToTarget, ModelProfile
from fomkit.core.units import Precision, exact_quantity, memory_text
from fomkit.merit.one_off_costs import Once, Stack, parse_once, stack_content, times_of, with_once
from fomkit.parallel.step import ParallelStep, describe_layout
from fomkit.plan.content import Condition, Ends, MaybeEnds, Targeted, as_content
from fomkit.plan.job import NodesJob, Service, System, parse_service, run_of_step, run_on_nodes
from fomkit.plan.memory_of import IN_MEMORY, fit_in
from fomkit.plan.options import check_counts, options_of
from fomkit.plan.run import RunTime, no_run, run_notes, time_to_target
from fomkit.plan.scaling import (
    MODES,
    NOT_OF_EXPERTS,
    Curve,
    LeastBandwidth,
    Mode,
    Point,
    Scaling,
    ScalingSpec,
    bandwidth_content,
    scale,
    with_user_links,
)
from fomkit.prediction.exchange import MEASURED
from fomkit.prediction.links import BRIDGED, FORMULA, STATED, link_notes
from fomkit.profiles.campaigns import load_epochs
from fomkit.profiles.declared import spread_of
from fomkit.verbs.answer import command
from fomkit.verbs.profiles import as_machine, as_model

SCHEMA = "fomkit/scaling/1"
ASSUMED = (
    "links carry one collective at a time, at the stated rate for each device, and no other traffic",
    f"a collective by a formula takes {FORMULA[0]} to {FORMULA[1]} times the formula's time (80%), on a link "
    f"inside a node with a stated rate {STATED[0]} to {STATED[1]}, as measured from 1 MiB on over NVLink; between "
    "nodes there is no measurement; devices without links, which send through the host's memory, took up to "
    f"{BRIDGED} times as long, and should be measured (fomkit measure --network)",
    "a measured collective has the interval of its repeats, or "
    f"{MEASURED[0]} to {MEASURED[1]} times its time without repeats (80%)",
    "all devices are equally fast; a step waits only for what is listed",
    "intervals of speed-up and efficiency cover communication only; errors of calculation cancel in the ratio",
)
ABOVE_ALL = (
    "an efficiency above 100%: a device does less work for a sample than the single device, because the layout "
    "divides the update among devices, or its batch runs faster"
)
OF_MEASURED_LINKS = (
    "the interval of a measured link is that of its messages, without the error of a collective's formula: with "
    "gloo on one CPU all-reduces took 2.7 to 3.2 times the formula's time"
)
OF_RUNS = "a run has the same epochs at any batch; whether it still reaches the same accuracy is unknown"
OF_TRANSFORMERS = (
    "replicas sum fp32 gradients, a block at a time, during the last microbatch's backward pass",
    "sends between stages do not overlap with calculation",
)

Reach = TypedDict("Reach", {"epochs": Ends | None, "to_target_s": Ends | None, "why": str})
PointContent = TypedDict("PointContent", {
    "mode": str, "nodes": int, "devices": int, "replicas": int, "batch": int, "microbatches": int, "step_s": Ends,
    "compute_s": Ends, "busy_s": Ends, "exposed_s": Ends, "bubble_s": Ends, "sample_per_s": Ends, "speedup": Ends,
    "gain": float, "efficiency": Ends, "limit": str, "losses": Mapping[str, float], "peak_byte": float | None,
    "fits": bool | None, "sent_byte": dict[str, float], "coverage": dict[str, float], "system": System | None,
    "to_target": Reach | None,
})  # fmt: skip
Reference = TypedDict("Reference", {"mode": str, "devices": int, "batch": int, "step_s": Ends,
                                    "fits": bool | None})  # fmt: skip
LinkContent = TypedDict("LinkContent", {
    "tier": str, "channel": str, "direction": str, "alpha_s": MaybeEnds, "byte_per_s": MaybeEnds, "messages": str,
    "serialise_byte_per_s": float | None, "joins": int | None, "basis": str, "source": str,
})  # fmt: skip
Refused = TypedDict("Refused", {"mode": str, "nodes": int, "why": str})
ScalingContent = TypedDict("ScalingContent", {
    "schema": str, "fomkit": str, "model": str, "target": str, "interval": float, "node_devices": int,
    "layout": Mapping[str, object], "layout_said": str, "links": list[LinkContent], "capacity_byte": float | None,
    "unit": str, "references": list[Reference], "points": list[PointContent], "not_estimated": list[Refused],
    "does_not_fit": list[str], "least_bandwidth": LeastBandwidth | None, "to_target": Targeted | None,
    "stack": Stack | None, "excludes": list[str], "no_run": str, "notes": list[str], "assumed": list[str],
    "conditions": dict[str, Condition],
})  # fmt: skip


def _target(machine: Machine, batch: int, run: RunTime | None, curve: EpochsToTarget) -> Reach:
    """Return the epochs to a target at a step's batch, and their time; None with the reason where unknown."""
    why = "an epoch has no full step, or its samples are unknown"
    if run is not None and run.epoch_s is not None:
        try:
            epochs, time_s = time_to_target(curve, batch, run.epoch_s, machine)
        except FomkitError as error:
            why = error.what
        else:
            return as_content(Reach, epochs=epochs, to_target_s=time_s, why="")
    return {"epochs": None, "to_target_s": None, "why": why}


def _point(
    point: Point, curve: Curve, scaling: Scaling, service: Service, epochs: EpochsToTarget | None
) -> PointContent:
    step, model, machine = point.step, scaling.model, scaling.machine
    time = run_of_step(model, machine, step)
    run = run_on_nodes(model, machine, time, point.nodes, service)
    at_target = None if epochs is None else _target(machine, step.samples, time, epochs)
    return as_content(
        PointContent, step, point, mode=curve.mode, batch=step.samples, step_s=step.wall_s,
        gain=point.speedup.value - 1, peak_byte=step.memory_byte, system=None if run is None else run.content,
        to_target=at_target,
    )  # fmt: skip


def _link_content(link: Link) -> LinkContent:
    """Convert a link to plain values; bounds that the profile does not state are None."""
    alpha, rate = link.alpha_range_s or (None, None), link.range_byte_per_s or (None, None)
    ends = {"from": link.least_byte, "to": link.most_byte}
    sizes = (f"{word} {exact_quantity(byte, 'byte')}" for word, byte in ends.items() if byte is not None)
    return as_content(
        LinkContent, link, messages=" ".join(sizes),
        alpha_s={"value": link.alpha_s, "low": alpha[0], "high": alpha[1]},
        byte_per_s={"value": link.byte_per_s, "low": rate[0], "high": rate[1]},
    )  # fmt: skip


def _scaling_notes(scaling: Scaling, steps: Sequence[ParallelStep]) -> list[str]:
    """List the choices and deviations from the default, each once."""
    found = list(link_notes(scaling.machine, scaling.spec.layout.channel))
    found += [one for step in steps for one in step.notes]
    found += filter(None, [scaling.network.slow_note(max((step.devices for step in steps), default=1))])
    runs = (run_of_step(scaling.model, scaling.machine, step) for step in steps)
    found += [one for run in runs if run for one in run_notes(scaling.model, run, scaling.spec.options.sizes)]
    there, most = scaling.machine.system_nodes, max(one.nodes for curve in scaling.curves for one in curve.points)
    if (there or most) < most:
        found.append(f"{scaling.machine.name} has {there:,} nodes: more have no units/day")
    found += _tight(scaling)
    found += [ABOVE_ALL] * any(one.efficiency.value > 1 for curve in scaling.curves for one in curve.points)
    return [*dict.fromkeys([*found, NOT_OF_EXPERTS] if scaling.spec.layout.expert > 1 else found)]


def _tight(scaling: Scaling) -> list[str]:
    """List for each curve the numbers of nodes at which a step leaves no room for the reserve."""
    found = []
    for curve in scaling.curves:
        fits = [(one.nodes, fit_in(scaling.machine, one.step.memory_byte)) for one in curve.points]
        if over := [(nodes, fit.warning) for nodes, fit in fits if fit.warning]:
            nodes = ", ".join(f"{one:,}" for one, _ in over)
            found.append(f"{curve.mode} scaling, nodes {nodes}: {over[0][1]}{IN_MEMORY}")
    return found


def _does_not_fit(scaling: Scaling) -> list[str]:
    """List for each curve the numbers of nodes at which a step does not fit the device's memory."""
    capacity, found = scaling.machine.device.capacity_byte, []
    for curve in scaling.curves:
        over = [point for point in curve.points if point.fits is False]
        most = max((one.step.memory_byte or 0.0 for one in over), default=0.0)
        if capacity is None or not over:
            continue
        nodes, name = ", ".join(f"{one.nodes:,}" for one in over), scaling.machine.name
        found.append(
            f"{scaling.model.name} on {name}, {curve.mode} scaling, nodes {nodes}: does not fit: {name} has "
            f"{memory_text(capacity.value)} of memory a device, a step would fill "
            f"{'at most ' if len(over) > 1 else ''}{memory_text(most)} (fomkit memory)"
        )
    return found


def scaling_content(
    scaling: Scaling,
    service: Service | None = None,
    once: Sequence[Once] = (),
    epochs: EpochsToTarget | None = None,
) -> ScalingContent:
    """Convert a scaling result to ``fomkit/scaling/1``; ``once``: what the machine's runs already include."""
    serves = service or Service()
    capacity = scaling.machine.device.capacity_byte
    points = [_point(point, curve, scaling, serves, epochs) for curve in scaling.curves for point in curve.points]
    steps = [point.step for curve in scaling.curves for point in curve.points]
    trains = scaling.model.traced_with.get("mode") != "infer" and any(point["system"] for point in points)
    references = [
        as_content(Reference, one, mode=curve.mode, batch=one.samples, step_s=one.wall_s,
                   fits=fit_in(scaling.machine, one.memory_byte).fits)
        for curve in scaling.curves if (one := curve.reference)
    ]  # fmt: skip
    refused: list[Refused] = [{"mode": curve.mode, "nodes": nodes, "why": why} for curve in scaling.curves
                              for nodes, why in curve.refused]  # fmt: skip
    fewest = min((point.nodes for curve in scaling.curves for point in curve.points), default=0)
    job = NodesJob(scaling.model, scaling.machine, scaling.spec.layout, scaling.spec.options)
    assumed = [*ASSUMED]
    if any(link.range_byte_per_s for link in scaling.machine.links):
        assumed.append(OF_MEASURED_LINKS)
    if scaling.model.trains_by_sizes and scaling.model.transformer is not None:
        assumed += OF_TRANSFORMERS
    assumed += [OF_RUNS] * trains
    return as_content(
        ScalingContent, scaling.network, schema=SCHEMA, fomkit=__version__, model=scaling.model.name,
        target=scaling.machine.name, interval=scaling.network.level, layout=vars(scaling.spec.layout),
        layout_said=describe_layout(scaling.spec.layout), capacity_byte=capacity and capacity.value,
        links=[_link_content(link) for link in scaling.machine.links], unit=scaling.model.unit.name,
        references=references, points=points,
        not_estimated=refused, does_not_fit=_does_not_fit(scaling), least_bandwidth=bandwidth_content(scaling),
        to_target=epochs, stack=stack_content(once), no_run=no_run(scaling.model),
        excludes=dict.fromkeys(name for step in steps for name in step.excludes),
        notes=_scaling_notes(scaling, steps), conditions=job.conditions(fewest) if fewest else {},
        assumed=assumed,
    )  # fmt: skip


@dataclass(frozen=True, repr=False)
class ScalingResult(Shown):
    """The scaling curves of one model on one machine; `content` has everything, as ``fomkit/scaling/1``."""

    model: str
    target: str
    content: ScalingContent = field(repr=False)

    def bandwidth(self) -> pd.DataFrame:
        """Return the bandwidth that a speed-up requires [byte/s], with its bounds, by number of replicas.

        Empty where it is not computed: without a weak curve, with one replica, with shared experts. A missing
        bound means that no bandwidth suffices there.
        """
        found = self.content["least_bandwidth"]
        return pd.json_normalize([dict(one) for one in found["whole"]] if found else [], sep="_")


_RANGE = re.compile(r"(\d{1,9})(?:\.\.(\d{1,9}))?")


def parse_nodes(text: str) -> list[int]:
    """Parse numbers of nodes such as ``1..4096`` or ``1,3,12``; a range doubles from its first to its last.

    Raises FomkitError when a number is no whole number of 1 or more.

    Examples
    --------
    >>> parse_nodes("1..6"), parse_nodes("3,12")
    ([1, 2, 4, 6], [3, 12])
    """
    found: set[int] = set()
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise FomkitError(
                "nodes", f"{part.strip()!r} is not a whole number below 1e+9. Give 1..4096, or 1,2,4."
            )
        first, last = int(match[1]), int(match[2] or match[1])
        if first < 1 or last < first:
            raise FomkitError("nodes", f"{part.strip()!r} is not a range from 1 up. Give, for example, 1..64.")
        while first < last:
            found.add(first)
            first *= 2
        found.add(last)
    return sorted(found)


def _plain_integers(numbers: str | Sequence[int]) -> list[int]:
    """Return a list of numbers from text, Python's or numpy's integers; other values stay, to be refused later."""
    if isinstance(numbers, str):
        return list(parse_nodes(numbers))
    return [
        number.__index__() if hasattr(number, "__index__") and not isinstance(number, bool) else number
        for number in numbers
    ]


def _modes(mode: str, whole_batch: int | None) -> list[Mode]:
    if whole_batch is not None and mode == "weak":
        raise FomkitError("whole_batch", "is for strong scaling. Leave it out, or leave `mode` weak out.")
    modes = [one for one in MODES if mode in (one, "both")]
    if not modes:
        raise FomkitError("mode", f"is {mode!r}. Give strong, weak or both.")
    return modes


def _curved(
    model: str | Path | ModelProfile, machine: Machine, spec: ScalingSpec, service: Service, once: Sequence[str],
    to_accuracy: str | Path | None,
) -> ScalingResult:  # fmt: skip
    paid, curve = parse_once(once), None if to_accuracy is None else load_epochs(Path(to_accuracy))
    known = as_model(model, batch=spec.options.batch)  # last: it may be code that runs for minutes
    found = scale(known, with_once(machine, times_of(paid)), spec)
    return ScalingResult(known.name, machine.name, scaling_content(found, service, paid, curve))


_TIMES = dict.fromkeys(("checkpoint", "restart", "device_mtbf", "checkpoint_every"), "TIME")


@command("scaling", judges_fit=True, metavar={"nodes": "N,N|N..N", "once": "NAME=SHARE|TIME", **_TIMES})
def scaling(
    model: str | Path | ModelProfile, machine: str | Path | Machine, *, nodes: str | Sequence[int] = "1..4096",
    mode: Literal["strong", "weak", "both"] = "both", batch: int | None = None, whole_batch: int | None = None,
    layout: str | Path | Sequence[str] = "", links: Sequence[str | Link] = (), node_devices: int | None = None,
    sizes: Mapping[str, int] | None = None, precision: Precision | None = None, interval: float = DEFAULT_LEVEL,
    allow_uncovered: bool = False, slots: int | None = None, checkpoint: str | None = None,
    restart: str | None = None, device_mtbf: str | None = None, checkpoint_every: str | None = None,
    once: Sequence[str] = (), to_accuracy: str | Path | None = None,
) -> ScalingResult:  # fmt: skip
    """Predict how a training scales over nodes: step times, efficiency, limits, and the bandwidth for a speed-up.

    A replica is a whole copy of the model. Devices are nodes times devices of a node. Layouts: docs/parallel.md.

    Parameters
    ----------
    nodes : str or sequence of int
        Numbers of nodes to predict; a range doubles from its first to its last number.
    mode : str
        Share one batch out over all replicas (strong), give each replica a batch of its own (weak), or both.
    batch : int, optional
        Samples in one step of one replica, not of all together; default: the profile's.
    whole_batch : int, optional
        Samples in one step of all replicas, in strong scaling; default: batch times replicas of the fewest nodes.
    slots : int, optional
        Number of jobs that the queue runs side by side.
    checkpoint : str, optional
        Time to write a checkpoint, such as '60 s'.
    restart : str, optional
        Time to restart after a failure, such as '120 s'.
    device_mtbf : str, optional
        Mean time between failures of one device, such as '50000 h'; default: no failures.
    checkpoint_every : str, optional
        Time between checkpoints, such as '1 h'; default: the optimum by Daly's formula.
    once : sequence of str
        Cost that is paid once a job: a time (compile=40s) or a share of the job's present time (scheduler=15.5%).
    model, machine, layout, links, node_devices, sizes, precision, interval, allow_uncovered, to_accuracy
        As of `fomkit.estimate` and `fomkit.cost`.

    Returns
    -------
    ScalingResult
        ``table`` has a row for each number of nodes, ``bandwidth()`` what is required, ``summary()`` the text.

    Raises
    ------
    FomkitError
        When a profile is unknown, a layout does not divide, or a link that is needed is not stated.

    Examples
    --------
    >>> scaling("p1b3", "v100", nodes=[1], node_devices=1).table["speedup.value"].tolist()
    [1.0, 1.0]
    """
    check_counts(node_devices=node_devices, whole_batch=whole_batch)
    options = options_of(batch, interval, None, allow_uncovered, sizes, precision)
    (spread, given), on = spread_of(layout, links), as_machine(machine)
    service = parse_service(slots, checkpoint=checkpoint, restart=restart, device_mtbf=device_mtbf,
                            checkpoint_every=checkpoint_every)  # fmt: skip
    spec = ScalingSpec(_plain_integers(nodes), spread, _modes(mode, whole_batch), whole_batch, options)
    return _curved(model, with_user_links(on, given, node_devices), spec, service, once, to_accuracy)

"""Strong and weak scaling of a training over nodes, what limits it, and the bandwidth that it needs.

`scale` computes the curves; `bandwidth_content` finds the least link rate at which replicas gain anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf, isnan, nan, sqrt
from typing import Literal, TypedDict

from fomkit.core.errors import FomkitError
from fomkit.core.interval import Span
from fomkit.core.job import LAYOUT, Layout
from fomkit.core.machine import Link, Machine, Tier
from fomkit.core.model import ModelProfile
from fomkit.core.units import BLOCKS_OF_FP8, count_text, memory_text
from fomkit.ops.precision import SHORT, blocks_note, choose_formats, formats_of_products
from fomkit.parallel.step import ParallelStep, check_layout, describe_layout
from fomkit.parallel.traffic import Bucket, waited
from fomkit.plan.content import Ends, span_content
from fomkit.plan.inference import InferenceStep
from fomkit.plan.memory import BY_SIZES, LOW_BY_SIZES
from fomkit.plan.memory_of import fit_in, room_byte
from fomkit.plan.options import Options, check_nodes, choose_sizes
from fomkit.plan.replica_step import ReplicaStep
from fomkit.plan.transformer_step import TransformerStep
from fomkit.prediction.exchange import Network
from fomkit.prediction.links import without_timed

Mode = Literal["strong", "weak"]
MODES: tuple[Mode, ...] = ("strong", "weak")
IN_BF16 = "its profile computes in fp32; with a layout a transformer by its sizes is priced in bf16"
SMALL_LOSS = 0.05
"""Loss, as a share of the step, up to which it does not count as a limit."""

Stepper = ReplicaStep | TransformerStep | InferenceStep
"""A model of parallel steps."""


@dataclass(frozen=True)
class ScalingSpec:
    """What is to be scaled.

    `modes`: strong: one batch divided among the replicas; weak: one batch a replica.
    `whole_batch`: samples of a strong step; None: the batch of a replica for each of the fewest nodes.
    `options`: its batch is that of one replica in weak scaling; None: its share of `whole_batch`, else the
    profile's batch.
    """

    nodes: Sequence[int]
    layout: Layout = field(default_factory=Layout)
    modes: Sequence[Mode] = MODES
    whole_batch: int | None = None
    options: Options = field(default_factory=Options)


def _wall_s(step: ParallelStep, end: str) -> float:
    """Return the time of a step with its communication at one end of the interval [s]."""
    exposed_s: float = getattr(step.exposed_s, end)
    return step.wall_s.value - step.exposed_s.value + exposed_s


@dataclass(frozen=True)
class Point:
    """The step on one number of nodes, and the reference step."""

    nodes: int
    step: ParallelStep
    reference: ParallelStep
    machine: Machine

    @property
    def speedup(self) -> Span:
        """Samples a second relative to the reference; errors of devices and of links are common to both."""
        samples = self.step.samples / self.reference.samples
        ends = [
            samples * _wall_s(self.reference, end) / _wall_s(self.step, end) for end in ("value", "low", "high")
        ]
        return Span(ends[0], min(ends), max(ends), self.step.wall_s.level)

    @property
    def efficiency(self) -> Span:
        """Speed-up divided by the ratio of the numbers of devices."""
        return self.speedup.scaled(self.reference.devices / self.step.devices)

    @property
    def fits(self) -> bool | None:
        """Whether it fits in a device's memory; None where unknown."""
        return fit_in(self.machine, self.step.memory_byte).fits

    @property
    def losses(self) -> dict[str, float]:
        """Shares of the step that an ideal step would not have: communication, pipeline, and small batches."""
        step, reference = self.step, self.reference
        ideal = reference.compute_s.value * step.samples / reference.samples * reference.devices / step.devices
        lost = {
            "communication": step.exposed_s.value, "pipeline": step.bubble_s.value,
            "batch": step.compute_s.value - ideal,
        }  # fmt: skip
        return {name: seconds / step.wall_s.value for name, seconds in lost.items()}

    @property
    def limit(self) -> str:
        """What limits the rate: memory, communication, pipeline or batch; device if none of them does."""
        if self.fits is False:
            return "memory"
        losses = self.losses
        worst = max(losses, key=losses.__getitem__)
        return worst if losses[worst] > SMALL_LOSS else "device"


@dataclass(frozen=True)
class Curve:
    """A scaling curve, and the numbers of nodes that have no step, with the reason."""

    mode: Mode
    reference: ParallelStep
    points: tuple[Point, ...]
    refused: tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class Scaling:
    """The curves of one model on one machine."""

    model: ModelProfile
    machine: Machine
    spec: ScalingSpec
    network: Network
    stepper: Stepper
    curves: tuple[Curve, ...]
    batch: int


def stepper_of(model: ModelProfile, machine: Machine, layout: Layout, options: Options) -> Stepper:
    """Select the stepper: from a transformer's sizes where the profile has them, else from copies of the step."""
    network = Network(machine, check_layout(layout).channel, options.interval)
    if model.traced_with.get("mode") == "infer":
        return InferenceStep(model, machine, layout, network, options)
    if model.transformer is None:
        return ReplicaStep(model, machine, layout, network, options)
    if layout.sync_norm:
        raise FomkitError(model.name, "has no batch norm. Leave sync_norm out.")
    if options.precision not in BY_SIZES:
        raise FomkitError(
            model.name, f"precision {options.precision} is not modelled for it. Use bf16, "
            f"{', '.join(LOW_BY_SIZES)}, or mixed for fp16.",
        )  # fmt: skip
    low = options.precision if options.precision in LOW_BY_SIZES else ""
    if low:
        choose_formats(low, "", machine)  # raises where the machine has no such arithmetic
    sizes = choose_sizes(model, options.sizes)
    if (seq := sizes.get("seq", model.transformer.seq)) != model.transformer.seq:
        model = replace(model, transformer=replace(model.transformer, seq=seq))
    traced = formats_of_products(model.ops) if options.precision is None else ()
    dtype = BY_SIZES["mixed" if "fp16" in traced else options.precision]
    found = TransformerStep(model, machine, layout, network, dtype, low)
    if options.precision is None and not set(SHORT).intersection(traced):
        found.notes = (*found.notes, IN_BF16)
    if low == BLOCKS_OF_FP8 and (note := blocks_note(machine)):
        found.notes = (*found.notes, note)
    return found


MOST_DEVICES = 4096
"""Largest number of devices for which `smallest_layout` searches."""
_NODE = 8
"""Largest number of devices in a node where a machine does not state it."""


def _layouts(devices: int, inside: int, *, trains: bool, experts: bool) -> Iterator[Layout]:
    """Yield the layouts of `devices` devices, the simplest first: copies, tensor groups inside a node, stages.

    `trains`: whether the step has gradients; without them there are neither stages nor shards, but all devices may
    share the experts if there are some (``experts``).
    """
    powers = [1 << power for power in range(devices.bit_length())]
    if not trains:
        yield from (Layout(tensor=tensor) for tensor in powers if tensor <= inside)
        yield from [Layout(expert=devices)] * experts
        return
    for stages, tensor in ((one, other) for one in powers for other in powers if other <= inside):
        replicas = devices // (stages * tensor)
        for zero in range(0 if not replicas else 1 if replicas == 1 else 4 if stages == 1 else 2):
            for samples in (None, 1):
                yield Layout(tensor=tensor, pipeline=stages, sequence=tensor > 1, zero=zero, microbatch=samples)


def _held_byte(model: ModelProfile, machine: Machine, layout: Layout, devices: int, options: Options) -> float:
    """Return the memory of a device [byte]; infinite where it does not divide, NaN where no layout can be."""
    try:
        stepper, batch = stepper_of(model, machine, layout, options), options.batch or model.batch
        held = stepper.held(devices, batch) if batch else None
        return inf if held is None else sum(held.values())
    except FomkitError as error:
        return inf if error.where in (LAYOUT, "batch") else nan


def smallest_layout(model: ModelProfile, machine: Machine, options: Options) -> str:
    """Describe the layout on the fewest devices that hold a transformer's step, with the options to select it.

    It leaves the reserve of each device. `options`: with the batch of the whole step. Returns "" where it is
    unknown: the model is not priced by its sizes, or the machine states no capacity.
    """
    room, node = room_byte(machine), machine.node_devices or _NODE
    if model.transformer is None or room is None:
        return ""
    for devices in (1 << power for power in range(1, MOST_DEVICES.bit_length())):
        if devices > node and devices % node:
            continue
        of_experts = model.transformer.experts > 0
        for layout in _layouts(devices, node, trains=model.trains_by_sizes, experts=of_experts):
            held = _held_byte(model, replace(machine, node_devices=node), layout, devices, options)
            if isnan(held):
                return ""
            if held <= room:
                nodes, each = max(devices // node, 1), min(devices, node)
                spread = f"--nodes {nodes}" + (f" --node-devices {each}" if each != machine.node_devices else "")
                if nodes > 1 and not any(link.tier == "system" for link in machine.links):
                    spread += " --link system,…"  # nothing is known of the links between its nodes
                words = {name: value for name, value in vars(layout).items() if value != getattr(Layout(), name)}
                asked = ",".join(name if value is True else f"{name}={value}" for name, value in words.items())
                return (
                    f"the smallest layout that fits: {devices:,} devices, {describe_layout(layout)}, "
                    f"{memory_text(held)} on each ({spread}{f' --layout {asked}' if asked else ''})"
                )
    groups = "" if model.trains_by_sizes else " with tensor groups inside a node"
    return f"no layout of up to {MOST_DEVICES:,} devices{groups} does beside the reserve"


def _replicas(spec: ScalingSpec, network: Network) -> int:
    """Return the replicas of the fewest nodes that hold whole copies."""
    copies, per_node = spec.layout.fewest_devices, network.node_devices
    fewest = next((nodes * per_node for nodes in sorted(spec.nodes) if nodes * per_node % copies == 0), copies)
    return max(1, fewest // spec.layout.model_devices)


def share_of_batch(whole: int, replicas: int) -> int:
    """Return the samples of each replica; raise where a whole batch does not divide into the replicas."""
    if whole % replicas:
        raise FomkitError(
            "batch", f"{whole:,} samples of a whole step do not divide into {count_text(replicas, 'replica')}. "
            "Give a multiple, or `replica_batch`, the samples of one replica.",
        )  # fmt: skip
    return whole // replicas


def _curve(spec: ScalingSpec, mode: Mode, stepper: Stepper, network: Network, batch: int) -> Curve:
    """Compute one curve; numbers of nodes on which the layout is not possible are refused."""
    copies, per_node = spec.layout.fewest_devices, network.node_devices
    whole = spec.whole_batch or batch * _replicas(spec, network)
    reference = stepper.at(copies, whole if mode == "strong" else batch * spec.layout.expert_replicas)
    points, refused = [], []
    for nodes in spec.nodes:
        devices = nodes * per_node
        try:
            samples = whole if mode == "strong" else batch * spec.layout.replicas(devices)
            step = stepper.at(devices, samples)
        except FomkitError as error:
            if error.where not in ("layout", "batch"):
                raise
            refused.append((nodes, error.what))
            continue
        points.append(Point(nodes, step, reference, network.machine))
    return Curve(mode, reference, tuple(points), tuple(refused))


def scale(model: ModelProfile, machine: Machine, spec: ScalingSpec) -> Scaling:
    """Compute the curves on a machine that has the network's links and the devices of its nodes."""
    given: Sequence[object] = spec.nodes  # a notebook may pass any objects
    if not given:
        raise FomkitError("nodes", "are missing. Give at least one number of nodes.")
    for nodes in given:
        check_nodes(nodes)
    if spec.layout.data is not None:
        raise FomkitError("layout", "data states the replicas, whose number changes with the nodes. Leave it out.")
    choose_sizes(model, spec.options.wanted_sizes)
    batch, whole = spec.options.batch or model.batch or spec.whole_batch, spec.whole_batch
    if batch is None:
        raise FomkitError(model.name, "its batch is not stated. Give --batch.")
    if machine.device.capacity_byte is None and not machine.device.peaks and not len(machine.timings):
        raise FomkitError(machine.name, "its profile describes no device. Name the profile of its device.")
    stepper = stepper_of(model, machine, spec.layout, spec.options)
    network = Network(machine, spec.layout.channel, spec.options.interval)
    if whole is not None and spec.options.batch is None and "weak" in spec.modes:
        batch = share_of_batch(whole, _replicas(spec, network))
    curves = tuple(_curve(spec, mode, stepper, network, batch) for mode in spec.modes)
    if not any(curve.points for curve in curves):
        raise FomkitError("layout", curves[0].refused[0][1])
    return Scaling(model, machine, spec, network, stepper, curves, batch)


def with_user_links(machine: Machine, links: Sequence[Link], node_devices: int | None = None) -> Machine:
    """Return a machine with the user's links, before those of its profile, and the user's devices per node.

    Collectives that were timed over a link inside a node do not apply to the user's link of the same channel.
    """
    machine = replace(machine, node_devices=node_devices or machine.node_devices)
    for channel in {link.channel for link in links if link.tier == "node"}:
        machine = without_timed(machine, channel)
    return replace(machine, links=(*links, *machine.links))


SLOWEST, QUICKEST = 1.0, 1e18
"""Lowest and highest rate of the search [byte/s]."""
_CLOSE = 1e-12
_TRIES = 200

Needed = TypedDict("Needed", {"value": float | None, "low": float | None, "high": float | None})
"""A required rate with its interval [byte/s]; None where no rate is enough."""


def least_rate(taken_s: Callable[[float], float], room_s: float) -> float | None:
    """Return the least rate at which an exchange takes at most `room_s`.

    `taken_s`: time of the exchange [s] at a rate [byte/s]; it never grows with the rate; `room_s`: the time that
    it may take [s]. Returns the rate [byte/s]; None if no rate is enough, because starting alone takes longer; 0
    if any rate is enough.

    A ring of two that may take 0.3 s for the gradients of ResNet-50 needs ``2S/(n·t)``.

    >>> round(least_rate(lambda rate: 102_228_128 / rate, 0.3) / 1e6, 2)
    340.76
    """
    # Times are nearly linear in seconds per byte: a secant step finds the rate at once, bisection always
    # converges.
    quick, slow = 1 / QUICKEST, 1 / SLOWEST
    under, over = taken_s(QUICKEST) - room_s, taken_s(SLOWEST) - room_s
    if under >= 0:
        return None
    if over <= 0:
        return 0.0
    for turn in range(_TRIES):
        chord = quick - under * (slow - quick) / (over - under)
        place = chord if turn % 2 == 0 else sqrt(quick * slow)
        off = taken_s(1 / place) - room_s
        if abs(off) <= _CLOSE * room_s or slow <= quick * (1 + _CLOSE):
            return 1 / place
        if off < 0:
            quick, under = place, off
        else:
            slow, over = place, off
    return 1 / quick


LAYERS = 10
"""Number of layers listed: those that need most bandwidth."""
NOT_OF_EXPERTS = "least bandwidth: not given where replicas share experts, because their gradients differ"


def _needed_rate(taken_s: Callable[[str, float], float], room: Span) -> Needed:
    """Solve for the rate at low and high too: more room and a quicker exchange need a lower rate."""

    def rate(end: str, room_s: float) -> float | None:
        return least_rate(partial(taken_s, end), room_s)

    return {"value": rate("value", room.value), "low": rate("low", room.high), "high": rate("high", room.low)}


Whole = TypedDict("Whole", {"replicas": int, "tier": str, "needed_byte_per_s": Needed})
OfLayer = TypedDict("OfLayer", {"module": str, "gradient_byte": float, "time_s": Ends,
                                "needed_byte_per_s": Needed})  # fmt: skip
LayersAt = TypedDict("LayersAt", {"replicas": int, "layers": list[OfLayer]})
LeastBandwidth = TypedDict("LeastBandwidth", {"gradient_byte": float, "algorithm": str, "whole": list[Whole],
                                              "layers_at": LayersAt})  # fmt: skip


def _model_bandwidths(scaling: Scaling, curve: Curve, stepper: ReplicaStep | TransformerStep) -> list[Whole]:
    found = list[Whole]()
    for point in curve.points:
        step = point.step
        if step.replicas < 2:
            continue
        sharing = step.replicas * step.layout.context  # a context group shares gradients, too
        tier = scaling.network.group(sharing, step.layout.tensor).tier

        def taken_s(end: str, rate: float, step: ParallelStep = step, tier: Tier = tier) -> float:
            return stepper.replicas_wait(step.devices, step.samples, scaling.network.at_rate(tier, rate), end)

        # How long it may wait for its replicas until it takes as long per sample as the reference.
        whole_s, alone_s = point.reference.wall_s, step.wall_s.value - step.replicas_s.value
        allowed_s = step.samples / point.reference.samples * whole_s.value - alone_s
        needed = _needed_rate(taken_s, whole_s.scaled(allowed_s / whole_s.value))
        found.append({"replicas": step.replicas, "tier": tier, "needed_byte_per_s": needed})
    return found


def _layer_bandwidths(scaling: Scaling, ranks: int) -> list[OfLayer]:
    """Treat each layer as a whole model: its own gradients and time, without start-up times."""
    stepper = scaling.stepper
    if not isinstance(stepper, ReplicaStep):
        return []
    network, found = scaling.network, list[OfLayer]()
    group, layout = network.group(ranks), replace(scaling.spec.layout, overlap=False, staleness=0)
    for row in stepper.pieces(scaling.spec.layout.microbatch or scaling.batch).to_dict("records"):
        time = Span(row["time_s"], row["low_s"], row["high_s"], network.level)

        def taken_s(end: str, rate: float, byte: float = row["byte"]) -> float:
            quick = network.at_rate(group.tier, rate, starts=False)
            return waited(layout, quick, group, [Bucket(byte, 0.0)], (0.0, 0.0), 1.0, end).exposed_s

        if time.value > 0:
            needed = _needed_rate(taken_s, time.scaled(ranks - 1))
            found.append({"module": str(row["module"]), "gradient_byte": row["byte"],
                          "time_s": span_content(time), "needed_byte_per_s": needed})  # fmt: skip
    return sorted(found, key=lambda one: one["needed_byte_per_s"]["value"] or 0.0, reverse=True)[:LAYERS]


def bandwidth_content(scaling: Scaling) -> LeastBandwidth | None:
    """Return the bandwidth that replicas, each with a batch of its own, need to gain anything without overlap.

    The rate is that of the links between the replicas, as a link states it. At this rate the step, with its layout
    but without overlap, processes as many samples a second as the reference. The interval comes from the
    reference's step and the exchange; a bound is None where no rate is enough. The result is None where there is
    no weak curve, only one replica, or shared experts.
    """
    curve = next((curve for curve in scaling.curves if curve.mode == "weak"), None)
    if curve is None or scaling.spec.layout.expert > 1:
        return None
    stepper = scaling.stepper
    if isinstance(stepper, InferenceStep) or not (whole := _model_bandwidths(scaling, curve, stepper)):
        return None
    ranks = whole[0]["replicas"]
    return {"gradient_byte": stepper.gradient_byte(), "algorithm": scaling.spec.layout.algorithm, "whole": whole,
            "layers_at": {"replicas": ranks, "layers": _layer_bandwidths(scaling, ranks)}}  # fmt: skip

"""Which bandwidth replicas need to gain anything, of the whole model and layer by layer, as plain content."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from fomkit.hardware import Tier
from fomkit.parallel import ParallelStep
from fomkit.parallel.bandwidth import Needed, least_rate
from fomkit.parallel.overlap import Bucket
from fomkit.parallel.replicas import waited
from fomkit.spans import Span
from fomkit.study.content import span_content
from fomkit.study.replica_step import ReplicaStep
from fomkit.study.scaling import Curve, Point, Scaling

LAYERS = 10
"""Layers listed: those that need most bandwidth."""
NOT_OF_EXPERTS = (
    "least bandwidth: not given where replicas share experts, since they do not hold the same gradients"
)


def _needed(taken_s: Callable[[str, float], float], room: Span) -> Needed:
    """Solve for the rate at both ends too: more room and a quicker exchange need less."""
    ends = (("value", room.value), ("low", room.high), ("high", room.low))
    return Needed(*(least_rate(partial(taken_s, end), room_s) for end, room_s in ends))


def _room(point: Point) -> Span:
    """Give what a step may wait for its replicas before as many samples take the reference no longer [s]."""
    step, reference = point.step, point.reference
    alone = step.wall_s.value - step.replicas_s.value
    room = step.samples / reference.samples * reference.wall_s.value - alone
    return reference.wall_s.scaled(room / reference.wall_s.value)


def _whole(scaling: Scaling, curve: Curve) -> list[dict[str, Any]]:
    stepper, found = scaling.stepper, []
    for point in curve.points:
        step = point.step
        if step.replicas < 2:
            continue
        tier = scaling.network.group(step.replicas, scaling.asked.layout.tensor).tier

        def taken_s(end: str, rate: float, step: ParallelStep = step, tier: Tier = tier) -> float:
            return stepper.replicas_wait(step.devices, step.samples, scaling.network.at_rate(tier, rate), end)

        needed = _needed(taken_s, _room(point))
        found.append({"replicas": step.replicas, "tier": tier, "needed_byte_per_s": needed._asdict()})
    return found


def _layers(scaling: Scaling, ranks: int) -> list[dict[str, Any]]:
    """Take each layer for the whole model: its gradients, its time, and nothing for starting."""
    stepper = scaling.stepper
    if not isinstance(stepper, ReplicaStep):
        return []
    network, found = scaling.network, list[dict[str, Any]]()
    group, layout = network.group(ranks), replace(scaling.asked.layout, overlap=False, staleness=0)
    for row in stepper.pieces(scaling.asked.layout.microbatch or scaling.batch).to_dict("records"):
        time = Span(row["time_s"], row["low_s"], row["high_s"], network.level)

        def taken_s(end: str, rate: float, byte: float = row["byte"]) -> float:
            quick = network.at_rate(group.tier, rate, starts=False)
            return waited(layout, quick, group, [Bucket(byte, 0.0)], (0.0, 0.0), 1.0, end).exposed_s

        if time.value > 0:
            found.append(
                {
                    "module": str(row["module"]),
                    "gradient_byte": row["byte"],
                    "time_s": span_content(time),
                    "needed_byte_per_s": _needed(taken_s, time.scaled(ranks - 1))._asdict(),
                }
            )
    return sorted(found, key=lambda one: one["needed_byte_per_s"]["value"] or 0.0, reverse=True)[:LAYERS]


def bandwidth_content(scaling: Scaling) -> dict[str, Any] | None:
    """Answer which bandwidth replicas need to gain anything, each with a batch of its own, without overlap.

    The rate is that of the links that join the replicas, as a link states it; at it the step as priced, its layout
    without overlap, gives as many samples a second as the reference. The interval is that of the reference's step
    and of the exchange; None of an end says that no rate is enough there. None of all where there is no weak
    curve, one replica, or shared experts.
    """
    curve = next((one for one in scaling.curves if one.mode == "weak"), None)
    if curve is None or scaling.asked.layout.expert > 1:
        return None
    gradient_byte = scaling.stepper.gradient_byte()
    whole = _whole(scaling, curve)
    if not whole:
        return None
    ranks = whole[0]["replicas"]
    return {"gradient_byte": gradient_byte, "algorithm": scaling.asked.layout.algorithm, "whole": whole,
            "layers_at": {"replicas": ranks, "layers": _layers(scaling, ranks)}}  # fmt: skip

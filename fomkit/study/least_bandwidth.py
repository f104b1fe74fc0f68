"""Which bandwidth replicas need to gain anything, of the whole model and layer by layer, as plain content."""

from __future__ import annotations

from typing import Any

from fomkit.parallel.bandwidth import Needed, needed_between
from fomkit.parallel.network import Network
from fomkit.spans import Span
from fomkit.study.content import span_content
from fomkit.study.replica_step import ReplicaStep
from fomkit.study.scaling import Curve, Scaling

LAYERS = 10
"""Layers listed: those that need most bandwidth."""
NOT_OF_EXPERTS = (
    "least bandwidth: not given where replicas share experts, since they do not hold the same gradients"
)


def _needed(gradient_byte: float, network: Network, replicas: int, tensor: int, curve: Curve) -> Needed:
    group = network.group(replicas, tensor)
    alpha = network.alpha(group.tier, gradient_byte / replicas)
    return needed_between(gradient_byte, replicas, curve.reference.wall_s, alpha)


def _whole(scaling: Scaling, curve: Curve, gradient_byte: float) -> list[dict[str, Any]]:
    layout = scaling.asked.layout
    byte = gradient_byte * layout.compression
    numbers = [one.step.replicas for one in curve.points if one.step.replicas > 1]
    return [
        {
            "replicas": replicas,
            "needed_byte_per_s": _needed(byte, scaling.network, replicas, layout.tensor, curve)._asdict(),
        }
        for replicas in numbers
    ]


def _layers(scaling: Scaling, ranks: int) -> list[dict[str, Any]]:
    stepper = scaling.stepper
    if not isinstance(stepper, ReplicaStep):
        return []
    network, found = scaling.network, list[dict[str, Any]]()
    for row in stepper.pieces(scaling.asked.layout.microbatch or scaling.batch).to_dict("records"):
        time = Span(row["time_s"], row["low_s"], row["high_s"], network.level)
        if time.value > 0:
            needed = needed_between(row["byte"], ranks, time, Span.exact(0.0, network.level))
            found.append(
                {
                    "module": str(row["module"]),
                    "gradient_byte": row["byte"],
                    "time_s": span_content(time),
                    "needed_byte_per_s": needed._asdict(),
                }
            )
    return sorted(found, key=lambda one: one["needed_byte_per_s"]["value"] or 0.0, reverse=True)[:LAYERS]


def bandwidth_content(scaling: Scaling) -> dict[str, Any] | None:
    """Answer which bandwidth replicas need to gain anything, each with a batch of its own, without overlap.

    The interval is that of the reference's step and of the link's start-up; None of an end says that no rate is
    enough there. None of all where there is no weak curve, one replica, or shared experts.
    """
    curve = next((one for one in scaling.curves if one.mode == "weak"), None)
    if curve is None or scaling.asked.layout.expert > 1:
        return None
    gradient_byte = scaling.stepper.gradient_byte()
    whole = _whole(scaling, curve, gradient_byte)
    if not whole:
        return None
    ranks = whole[0]["replicas"]
    return {"gradient_byte": gradient_byte, "whole": whole,
            "layers_at": {"replicas": ranks, "layers": _layers(scaling, ranks)}}  # fmt: skip

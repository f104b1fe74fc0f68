"""Scaling as plain content (``fomkit/scaling/1``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fomkit import __version__
from fomkit.parallel import Layout
from fomkit.parallel.bandwidth import least_bandwidth
from fomkit.study.content import curve_content, span_content
from fomkit.study.replica_step import ReplicaStep
from fomkit.study.scaling import Curve, Point, Scaling, holds
from fomkit.study.stack import Once, stack_content
from fomkit.study.system_rate import Service, system_content, target_content
from fomkit.study.transformer_step import TransformerStep
from fomkit.workload import EpochsToTarget

SCHEMA = "fomkit/scaling/1"
LAYERS = 10
"""Layers listed: those that need most bandwidth."""
ASSUMED = (
    "links carry one collective at a time, at the stated rate for each device, and nothing else",
    "a formula's time is taken as right within 0.7 to 2.3 times, as on NVLink from 1 MiB; between nodes nothing "
    "was measured; through a host's bridge 23 times was seen; a measured collective's within 0.91 to 1.06 (80%)",
    "every device is as fast as the others; a step waits for nothing but what is listed",
    "the intervals of speed-up and efficiency are those of communication; calculation has its errors in common",
)
OF_RUNS = "a run has the same epochs at any batch; whether it still learns as much nobody says"
OF_TRANSFORMERS = (
    "sums over replicas are of fp32 gradients, a block at a time, beside the last microbatch's backward pass",
    "sends between stages hide behind nothing",
)


def _point(
    one: Point, curve: Curve, scaling: Scaling, service: Service, epochs: EpochsToTarget | None
) -> dict[str, Any]:
    step = one.step
    at_target = None if epochs is None else target_content(scaling.model, scaling.machine, step, epochs)
    return {
        "mode": curve.mode,
        "nodes": one.nodes,
        "devices": step.devices,
        "replicas": step.replicas,
        "batch": step.samples,
        "microbatches": step.microbatches,
        "step_s": span_content(step.wall_s),
        "compute_s": span_content(step.compute_s),
        "busy_s": span_content(step.busy_s),
        "exposed_s": span_content(step.exposed_s),
        "bubble_s": span_content(step.bubble_s),
        "sample_per_s": span_content(step.sample_per_s),
        "speedup": span_content(one.speedup),
        "gain": one.speedup.value - 1,
        "efficiency": span_content(one.efficiency),
        "limit": one.limit,
        "losses": one.losses,
        "peak_byte": step.memory_byte,
        "fits": one.fits,
        "sent_byte": dict(step.sent_byte),
        "system": system_content(scaling.model, scaling.machine, step, one.nodes, service),
        "to_target": at_target,
    }


def _said(layout: Layout) -> str:
    """Name what differs from plain copies."""
    plain = vars(Layout())
    changed = {name: value for name, value in vars(layout).items() if value != plain[name]}
    told = [name if value is True else f"no {name}" if value is False else f"{name} {value}"
            for name, value in changed.items()]  # fmt: skip
    return ", ".join(told) or "copies of the model"


def _reference(curve: Curve, capacity_byte: float | None) -> dict[str, Any]:
    one = curve.reference
    return {
        "mode": curve.mode,
        "devices": one.devices,
        "batch": one.samples,
        "step_s": span_content(one.wall_s),
        "fits": holds(capacity_byte, one),
    }


def _gradient_byte(scaling: Scaling) -> float:
    stepper = scaling.stepper
    if isinstance(stepper, TransformerStep):
        return stepper.gradient_byte()
    return stepper.gradient_byte() if isinstance(stepper, ReplicaStep) else 0.0


def _whole(scaling: Scaling, curve: Curve) -> list[dict[str, Any]]:
    byte = _gradient_byte(scaling) * scaling.asked.layout.compression
    found = []
    for one in curve.points:
        if one.step.replicas < 2:
            continue
        group = scaling.network.group(one.step.replicas, scaling.asked.layout.tensor)
        alpha = scaling.network.line("node" if group.outer == 1 else "system").alpha_s
        needed = least_bandwidth(byte, one.step.replicas, curve.reference.wall_s.value, alpha)
        found.append({"replicas": one.step.replicas, "needed_byte_per_s": needed})
    return found


def _layers(scaling: Scaling, ranks: int) -> list[dict[str, Any]]:
    stepper = scaling.stepper
    if not isinstance(stepper, ReplicaStep):
        return []
    found: list[dict[str, Any]] = [
        {
            "module": str(row["module"]),
            "gradient_byte": float(row["byte"]),
            "time_s": float(row["time_s"]),
            "needed_byte_per_s": least_bandwidth(float(row["byte"]), ranks, float(row["time_s"])),
        }
        for row in stepper.pieces(scaling.asked.layout.microbatch or scaling.batch).to_dict("records")
        if row["time_s"] > 0
    ]
    return sorted(found, key=lambda one: one["needed_byte_per_s"] or 0.0, reverse=True)[:LAYERS]


def _bandwidth(scaling: Scaling) -> dict[str, Any] | None:
    """Answer which bandwidth replicas need to gain anything, each with a batch of its own, without overlap."""
    curve = next((one for one in scaling.curves if one.mode == "weak"), None)
    if curve is None:
        return None
    whole = _whole(scaling, curve)
    if not whole:
        return None
    ranks = whole[0]["replicas"]
    return {"gradient_byte": _gradient_byte(scaling), "whole": whole,
            "layers_at": {"replicas": ranks, "layers": _layers(scaling, ranks)}}  # fmt: skip


def scaling_content(
    scaling: Scaling,
    service: Service | None = None,
    once: Sequence[Once] = (),
    epochs: EpochsToTarget | None = None,
) -> dict[str, Any]:
    """Put scaling in the form of ``fomkit/scaling/1``.

    Parameters
    ----------
    scaling : Scaling
    service : Service, optional
        How jobs are served, for units a day.
    once : sequence of Once
        What is paid once a job; the machine's runs hold the times already (`with_once`).
    epochs : EpochsToTarget, optional
        How many epochs a target needs, by batch.
    """
    serves = service or Service()
    capacity = scaling.machine.device.capacity_byte
    points = [_point(one, curve, scaling, serves, epochs) for curve in scaling.curves for one in curve.points]
    refused = [{"mode": curve.mode, "nodes": nodes, "why": why} for curve in scaling.curves
               for nodes, why in curve.refused]  # fmt: skip
    return {
        "schema": SCHEMA,
        "fomkit": __version__,
        "model": scaling.model.name,
        "target": scaling.machine.name,
        "interval": scaling.network.level,
        "node_devices": scaling.network.node_devices,
        "layout": vars(scaling.asked.layout),
        "layout_said": _said(scaling.asked.layout),
        "links": [vars(link) for link in scaling.machine.links],
        "capacity_byte": None if capacity is None else capacity.value,
        "unit": scaling.model.unit.name,
        "references": [
            _reference(curve, None if capacity is None else capacity.value) for curve in scaling.curves
        ],
        "points": points,
        "not_estimated": refused,
        "least_bandwidth": _bandwidth(scaling),
        "to_target": None if epochs is None else curve_content(epochs),
        "stack": stack_content(once),
        "assumed": [
            *ASSUMED,
            *(OF_TRANSFORMERS if scaling.model.transformer is not None else ()),
            *((OF_RUNS,) if any(one["system"] for one in points) else ()),
        ],
    }

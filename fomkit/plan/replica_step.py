"""A step of any profile copied to many devices (data parallel), from its ops and the order in which they run."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd

from fomkit.core.errors import FomkitError
from fomkit.core.interval import Span, add_common, add_independent
from fomkit.core.job import Algorithm, Layout
from fomkit.core.machine import Machine
from fomkit.core.model import OF_SIZES, Data, ModelProfile
from fomkit.core.transformer import UPDATE
from fomkit.ops.columns import cached
from fomkit.ops.precision import Formats
from fomkit.ops.resize import resize_ops
from fomkit.parallel.step import (
    Notes,
    ParallelStep,
    microbatches_of,
    step_coverage,
    unhidden,
)
from fomkit.parallel.traffic import Bucket, Waits, add_waits, buckets_of, replica_traffic, waited
from fomkit.plan.coverage import shares_with_wait
from fomkit.plan.estimate import Estimate, estimate
from fomkit.plan.memory import Held, standing_memory
from fomkit.plan.memory_of import UNKNOWN_FIT, Fit, held_of_step
from fomkit.plan.options import Options
from fomkit.plan.step import Terms, with_waits
from fomkit.prediction.exchange import Exchange, Network
from fomkit.prediction.links import Group

NORM_BYTE = 4
NORMS = ("batch_norm",)

_OF_CONFIG = (
    "its config.json has blocks that are not split here: an encoder's, attention beside the feed-forward layer, "
    "windows of several lengths, norms without parameters, or more learnt positions than its seq"
)
_OF_TRACE = "its profile is a trace, which does not state what can be split"


def _check_replicable(model: ModelProfile, layout: Layout) -> None:
    by_sizes = model.traced_with.get("device") == OF_SIZES
    model_splits = {
        "tensor": layout.tensor > 1, "pipeline": layout.pipeline > 1, "sequence": layout.sequence,
        "context": layout.context > 1, "expert": layout.expert > 1,
        "recompute selective": layout.recompute == "selective",
    }  # fmt: skip
    for name, is_wanted in model_splits.items():
        if is_wanted:
            raise FomkitError(
                model.name,
                f"cannot be split by {name}: {_OF_CONFIG if by_sizes else _OF_TRACE}. Give a transformer by its "
                "sizes (docs/parallel.md), or replicas only.",
            )
    plain = Layout()
    for name in ("prefetch", "scatter", "gradient_byte", "attention_peak_fraction", "launch"):
        if getattr(layout, name) != getattr(plain, name):
            what = "of a config.json" if by_sizes else "a trace"
            raise FomkitError(
                model.name, f"is {what}, for which {name} is not modelled. Give a transformer by its sizes "
                "(docs/parallel.md), or leave it out.",
            )  # fmt: skip


class OneDevice(NamedTuple):
    """The ops that a device runs for one microbatch, their formats, and whether they are known not to fit."""

    ops: pd.DataFrame
    formats: Formats
    machine: Machine
    fit: Fit = UNKNOWN_FIT


def on_one_device(model: ModelProfile) -> ModelProfile:
    """Return the model without facts of its run (devices and data), which do not concern one device."""
    return replace(model, run=replace(model.run, devices_per_run=1), data=Data())


class _Work(NamedTuple):
    """The results for a device's work in a step, which do not depend on links; ``coverage``: by time source."""

    coverage: dict[str, float]
    precision: str
    excludes: tuple[str, ...]
    notes: Sequence[str]


def _with_update(one: Estimate, share: float) -> tuple[Span, float]:
    """Return a microbatch's time with a share of the update's device time [s], and its wait for the host.

    Without an update, a step whose blocks wait by themselves has no host's time for it either.
    """
    step = one.step_time
    left_out = step.passes["update"].value * (1 - share) if "update" in step.passes else 0.0
    device_s = step.device_s.scaled(1 - left_out / step.device_s.value)
    _, paced_s = with_waits(one.timed.rows.started.without(UPDATE, share), one.machine, device_s)
    late_s = 0.0 if paced_s is None else max(0.0, paced_s.value - device_s.value)
    return Terms(None, paced_s, step.input_s, step.extra_s).wall(device_s), late_s


class ReplicaStep:
    """A profile on one device, at any batch, and the traffic between its copies."""

    def __init__(self, model: ModelProfile, machine: Machine, layout: Layout, network: Network,
                 options: Options) -> None:  # fmt: skip
        _check_replicable(model, layout)
        model = on_one_device(model)
        self.model, self.machine, self.options = model, machine, options
        self.layout, self.network, self.level = layout, network, network.level
        self._estimates: dict[int, Estimate] = {}
        self._plans: dict[int, tuple[list[Bucket], tuple[float, float]]] = {}
        self._works: dict[tuple[int, int, float], _Work] = {}

    def on(self, machine: Machine) -> ReplicaStep:
        """Return the step on a machine that differs in links only; the work of one device is shared."""
        if "ranks" in self.model.ops and self.model.ops["ranks"].notna().any():  # its ops include collectives
            return ReplicaStep(
                self.model, machine, self.layout, replace(self.network, machine=machine), self.options
            )
        found = copy(self)
        found.network = replace(self.network, machine=machine)
        return found

    def estimate(self, samples: int) -> Estimate:
        """Return the estimate of one microbatch on one device, without the communication of an update."""
        if samples not in self._estimates:
            self._estimates[samples] = estimate(self.model, self.machine, replace(self.options, batch=samples))
        return self._estimates[samples]

    def gradient_byte(self) -> float:
        """Return the bytes of all gradients of a step."""
        model = self.model
        name = f"gradients {model.sizes} {model.parameters_trainable} {model.parameters_total}"
        return cached(model.ops, model.order, name, self._gradient_byte)

    def _gradient_byte(self) -> float:
        order = self.model.order
        if order is not None and (order["role"] == "gradient").any():
            made = resize_ops(order[order["role"] == "gradient"], self.model.sizes, self.model.name)
            return float(made["output_byte"].sum())
        standing = standing_memory(resize_ops(self.model.ops, self.model.sizes, self.model.name))
        if standing is not None:
            return standing.gradient
        known = (self.model.parameters_trainable, self.model.parameters_total)
        if (shared := next((count for count in known if count is not None), None)) is None:
            raise FomkitError(
                self.model.name,
                "its number of parameters is not stated, so the traffic of replicas is unknown. Add 'parameters'.",
            )
        return 4.0 * shared

    def _buckets(self, estimated: Estimate, backward_s: float) -> list[Bucket]:
        """Return the gradient buckets in backward order; a single one where the order is unknown."""
        order, timed = self.model.order, estimated.timed
        if order is None or not (order["role"] == "gradient").any():
            return [Bucket(self.gradient_byte(), backward_s)]
        sized = resize_ops(order, estimated.sizes, self.model.name)
        seconds, backward = timed.time_s[0][timed.step.first], (timed.step.passes == "backward")[timed.step.first]
        found = buckets_of(sized, seconds, backward, self.layout.bucket_byte)
        ordered = sized[sized["row"].notna()].drop_duplicates("id")["row"].to_numpy(int)
        total = float(np.nansum(seconds[ordered[backward[ordered]]]))
        stretch = backward_s / total if total > 0 else 1.0
        return [bucket._replace(ready_s=bucket.ready_s * stretch) for bucket in found]

    def _plan(self, samples: int) -> tuple[list[Bucket], tuple[float, float]]:
        """Return the gradient buckets of a microbatch, and the two passes that hide them [s]; computed once."""
        if samples not in self._plans:
            one, zero = self.estimate(samples), Span.exact(0.0, self.level)
            passes = one.step_time.passes
            forward, backward = (passes.get(name, zero).value for name in ("forward", "backward"))
            again = forward if self.layout.recompute == "full" else 0.0
            stretch = one.step.value / one.step_time.device_s.value
            back_s = (backward + again) * stretch
            self._plans[samples] = self._buckets(one, back_s), (forward * stretch, back_s)
        return self._plans[samples]

    def replicas_wait(self, devices: int, samples: int, network: Network, end: str) -> float:
        """Return how long a step waits for its replicas, without overlap, at one end of the intervals [s]."""
        micro, count = microbatches_of(samples, devices, self.layout.microbatch)
        group = network.group(devices)
        bare_layout = replace(self.layout, overlap=False)
        traffic = waited(bare_layout, network, group, *self._plan(micro), 1.0, end)
        norms = self._norms(group, network).exposed.scaled(count)
        return traffic.exposed_s + float(getattr(norms, end))

    def _norms(self, group: Group, network: Network) -> Waits:
        """Return the waits of norms over all replicas: a gather forward and a sum backward for each norm."""
        layers = self.model.layers
        if not self.layout.sync_norm:
            return unhidden(Exchange(Span.exact(0.0, self.level), "measured"))
        found = None if layers is None else layers[layers["layer"].isin(NORMS)]
        if found is None or found.empty:
            raise FomkitError(self.model.name, "has no batch norm in its list of layers. Leave sync_norm out.")
        algorithm: Algorithm = self.layout.algorithm
        algorithm, times = "auto" if algorithm == "parameter_server" else algorithm, []
        for row in found.to_dict("records"):
            channels, count = float(row["parameters"]) / 2, float(row["count"])
            byte = NORM_BYTE * (2 * channels + 1) * group.ranks
            gather = network.exchange("all_gather", byte, group, algorithm)
            total = network.exchange("all_reduce", NORM_BYTE * 2 * channels, group, algorithm)
            times.append(add_waits([unhidden(gather), unhidden(total)]).scaled(count))
        return add_waits(times)

    def _clip(self, gradient_byte: float, replicas: int) -> Span:
        """Return the time of the gradients' norm and scaling: a read, then read and write, at memory bandwidth."""
        rate = self.machine.device.byte_per_s
        if not self.layout.clip:
            return Span.exact(0.0, self.level)
        if rate is None:
            raise FomkitError(self.machine.name, "states no memory bandwidth, which clipping needs. Add it.")
        byte = 3 * gradient_byte / (replicas if self.layout.zero else 1)
        return Span(byte / rate.value, byte / rate.high, byte / rate.low, self.level)

    def at(self, devices: int, samples: int) -> ParallelStep:
        """Return a step of `samples` samples on `devices` devices."""
        layout, level = self.layout, self.level
        micro, count = microbatches_of(samples, devices, layout.microbatch)
        group = self.network.group(devices) if devices > 1 else Group(1, 1)
        self.network.check_joined(devices)
        one = self.estimate(micro)
        zero = Span.exact(0.0, level)
        passes = one.step_time.passes
        forward = passes.get("forward", zero)
        again = forward if layout.recompute == "full" else zero
        stretch = one.step.value / one.step_time.device_s.value
        update_share = 1 / devices if layout.zero else 0.0 if layout.optimizer == "server" else 1.0
        # The update runs once, with the first microbatch.
        (first, first_late), (micros, late) = _with_update(one, update_share), _with_update(one, 0.0)
        work = add_common(
            [first, again.scaled(stretch), add_common([micros, again.scaled(stretch)]).scaled(count - 1)]
        )
        late_s = first_late + late * (count - 1)
        late_s += again.value * one.step_time.late_s / one.step_time.device_s.value * count
        traffic = replica_traffic(layout, self.network, group, *self._plan(micro))
        if layout.zero > 1:  # sharded gradients are scattered in each microbatch
            traffic = traffic.scaled(count)
        norms, clip = self._norms(group, self.network).scaled(count), self._clip(self.gradient_byte(), devices)
        compute, done = add_common([work, clip]), self._work(micro, count, update_share, late_s)
        held = self.held(devices, samples)
        links = add_waits([traffic, norms])
        return ParallelStep(
            layout=layout, devices=devices, replicas=layout.replicas(devices), samples=samples, microbatches=count,
            compute_s=compute, busy_s=links.busy, exposed_s=links.exposed, bubble_s=zero,
            replicas_s=add_common([traffic.exposed, norms.exposed]),
            wall_s=add_independent([compute, traffic.exposed, norms.exposed]),
            passes={} if layout.zero == 3 or "forward" not in passes else {"forward": forward.scaled(count)},
            sent_byte={"replicas": traffic.sent_byte},
            memory_byte=None if held is None else sum(held.values()),
            coverage=step_coverage(done.coverage, compute.value, links.sources),
            excludes=done.excludes, notes=done.notes, precision=done.precision,
        )  # fmt: skip

    def _work(self, samples: int, microbatches: int, update_share: float, late_s: float) -> _Work:
        """Return a device's work in a step; ``late_s``: its waits for the host [s]."""
        key = (samples, microbatches, update_share)
        if key not in self._works:
            one, timed = self.estimate(samples), self.estimate(samples).timed
            # Each pass counts as often as it runs, the update's share once.
            forward, update = (timed.step.passes == name for name in ("forward", "update"))
            runs = microbatches * (1.0 + forward * (self.layout.recompute == "full"))
            runs = np.where(update, update_share, runs)
            device_s = float(timed.rows.ops.seconds[0, :, 0] @ runs)
            covered = shares_with_wait(timed.coverage(runs), device_s, late_s, one.machine)
            self._works[key] = _Work(covered, one.precision, one.excludes, Notes(partial(self._notes, one)))
        return self._works[key]

    def _notes(self, one: Estimate) -> tuple[str, ...]:
        """Return the notes on one device, without that on memory where a device holds less than alone."""
        return tuple(note for note in one.deviations if not (self._holds_less and note in one.fit.notes))

    @property
    def _holds_less(self) -> bool:
        """Whether a device holds less of a microbatch than a device that trains alone."""
        return bool(self.layout.zero) or self.layout.recompute != "none"

    def one_device(self, devices: int, samples: int) -> OneDevice:
        """Return what a device executes for one microbatch, with the update."""
        one = self.estimate(microbatches_of(samples, devices, self.layout.microbatch)[0])
        too_much = one.fit.fits is False and not self._holds_less
        return OneDevice(one.ops, one.formats, one.fitted, one.fit if too_much else UNKNOWN_FIT)

    def held(self, devices: int, samples: int) -> Held | None:
        """Return a device's memory by role, without what zero keeps on other devices; None where it is unknown."""
        micro, count = microbatches_of(samples, devices, self.layout.microbatch)
        if self.layout.recompute != "none":
            return None
        away = ("state", "gradient", "parameter")[: self.layout.zero]
        shares = dict.fromkeys(away, 1 / devices)
        options = replace(self.options, batch=micro)
        return held_of_step(self.model, self.machine, options, shares, accumulates=count > 1)

    def pieces(self, samples: int) -> pd.DataFrame:
        """Return each layer's gradients [byte], and time of both passes with low, high [s], in backward order."""
        order, one = self.model.order, self.estimate(samples)
        times = ["time_s", "low_s", "high_s"]
        if order is None:
            return pd.DataFrame(columns=["module", "byte", *times])
        made = resize_ops(order[order["role"] == "gradient"], one.sizes, self.model.name)
        rows = made["row"].to_numpy(np.float64)
        known = ~np.isnan(rows)
        modules = one.ops["module"].astype("str").to_numpy(object)[rows[known].astype(int)]
        byte = pd.Series(made["output_byte"].to_numpy(np.float64)[known]).groupby(modules, sort=False).sum()
        spent = one.ops[times].mul(one.ops["count"], axis=0)[one.ops["pass_name"].ne("update")]
        by_module = spent.groupby(one.ops["module"].astype("str")).sum().reindex(byte.index)
        return by_module.assign(module=byte.index, byte=byte.to_numpy())

"""A step of a split transformer, priced by its sizes."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from operator import mul

import numpy as np

from fomkit.core.errors import FomkitError
from fomkit.core.interval import Span, add_common, add_independent, longest_of
from fomkit.core.job import LAYOUT, Layout
from fomkit.core.machine import Machine
from fomkit.core.model import ModelProfile
from fomkit.core.transformer import Transformer
from fomkit.ops.columns import cached
from fomkit.ops.precision import FORMATS, Formats
from fomkit.ops.tables import TIME_SOURCES
from fomkit.parallel import step, traffic
from fomkit.parallel.kernels import tensors_of
from fomkit.parallel.step import check_experts, check_schedule, check_split, microbatches_of, stages_of
from fomkit.parallel.transformer import TENSORS_OUTSIDE
from fomkit.plan.coverage import UNPRICED, library_notes
from fomkit.plan.memory import SHORT_BYTE, Held, part_held
from fomkit.plan.options import host_notes
from fomkit.plan.replica_step import OneDevice
from fomkit.plan.step import terms_of
from fomkit.plan.transformer_plan import HEAD, WORDS, Blocks, Pass, Stage, TransformerPlan, Work
from fomkit.prediction.exchange import Exchange, Network
from fomkit.prediction.links import Group, bus_factor

PLANS = 8
"""Number of plans of transformers that are cached for the machines of a timing table."""
EXCLUDES = ("input",)
"""Terms that a step by sizes excludes where the machine states no time for its input."""
NARROW = "activations and products in {}, sums of gradients and Adam in fp32"
UNSPLIT = "layouts leave out {:.2%} of its parameters: small biases and the sinks of attention"
EVEN = (
    "tokens spread over experts by the capacity factor {:g}, which is declared and not predicted: every slot is "
    "sent and computed, and tokens without a slot are dropped; a token is sent once for each expert that it chose"
)


class TransformerStep:
    """A layout of a transformer on a machine, at any number of devices and samples."""

    def __init__(
        self, model: ModelProfile, machine: Machine, layout: Layout, network: Network, dtype: str, low: str = ""
    ) -> None:
        if model.transformer is None:
            raise FomkitError(model.name, "is not described by transformer sizes. Add a 'transformer' block.")
        self.shape: Transformer = model.transformer
        self.machine, self.layout, self.level, self.notes = machine, layout, network.level, model.caveats
        if self.shape.gated and (left := (model.parameters_total or 0) - self.shape.parameters) > 0:
            self.notes = (*self.notes, UNSPLIT.format(left / (left + self.shape.parameters)))
        if self.shape.experts:
            self.notes = (*self.notes, EVEN.format(self.shape.capacity_factor))
        where, one = f"{model.name} on {machine.name}", replace(self.shape, blocks=1)
        # Different machines may share a table of timings: a changed device, other links.
        links = machine.links, machine.timed_links
        of_machine = (machine.device, links, machine.node_devices, machine.host_op_s, machine.excluded)
        name = f"transformer {one} {dtype} {low} {network.level} {network.channel} {of_machine} {where}"
        known: dict[str, TransformerPlan] = cached(machine.timings, machine.fits, "plans of transformers", dict)
        if name not in known:
            while len(known) >= PLANS:
                known.pop(next(iter(known)))
            known[name] = TransformerPlan(one, network, dtype, where, low)
        self.plan = known[name]
        self.network = self.plan.network
        check_split(self.shape, layout.tensor, layout.context, sequence=layout.sequence)
        check_experts(model.name, self.shape, layout.expert)
        if layout.attention_peak_fraction is not None and self.shape.attention != "fused":
            raise FomkitError(
                model.name, "has unfused attention, which attention_peak_fraction does not affect. Leave it "
                            "out, or make the model with 'attention: fused'.",
            )  # fmt: skip

    def on(self, machine: Machine) -> TransformerStep:
        """Return the step on a machine that differs in links or host only; the work of one device is shared."""
        found = copy(self)
        found.network = replace(self.network, machine=machine)
        found.plan = replace(self.plan, network=found.network, _stages={}, _steps={})
        return found

    def _stages(self, samples: float) -> list[tuple[Stage, int]]:
        """Return the stages that differ, in order, and how many there are of each."""
        found = []
        for one in stages_of(self.shape, self.layout):
            names = (WORDS,) * one.first + (HEAD,) * one.last
            found.append((self.plan.stage(self.layout, samples, one.blocks, names), one.many))
        return found

    def _passes(self, samples: float) -> list[Pass]:
        """Return the passes of a block of each kind [s]."""
        host_s = 0.0 if self.layout.launch == "graphs" else self.plan.host_op_s.value
        blocks = self.plan.pieces(self.layout, samples).blocks
        return [one.passes(self.layout.recompute, host_s) for one in blocks]

    def _stage_waits(self, samples: float, sharing: int) -> traffic.Waits:
        """Return the waits of a stage for its neighbours in one microbatch.

        Devices are ordered by tensor group, then by context group and replica, which together are ``sharing``
        gradients, then by stage (Megatron-LM's order).
        """
        layout = self.layout
        if layout.pipeline == 1:
            return step.unhidden(Exchange(Span.exact(0.0, self.level), "measured"))
        byte = self.plan.stream_byte(samples)
        far = self.network.node_devices <= layout.tensor * sharing
        sent = self.network.send(byte / layout.tensor, "system" if far else "node")
        one = [Exchange(sent, "alpha_beta")]
        if not layout.sequence and layout.tensor > 1:
            one.append(self.network.exchange("all_gather", byte, self.network.group(layout.tensor)))
        times = 2 * layout.interleave
        return replace(
            traffic.add_waits(map(step.unhidden, one)).scaled(times), sent_byte=times * byte / layout.tensor
        )

    @cached_property
    def _block_pieces(self) -> list[tuple[float, float]]:
        """Per kind of block: its parameters on a device outside shared experts, and those in shared experts."""
        return step.block_parameters(self.shape, self.layout)

    @cached_property
    def _fullest(self) -> tuple[Blocks, step.StageParameters]:
        """The blocks of the device with most parameters, and its parameters; of equal ones the first stage's."""
        blocks = [one.blocks for one in stages_of(self.shape, self.layout)]
        held = step.stage_parameters(self.shape, self.layout)
        return max(zip(blocks, held, strict=True), key=lambda one: one[1].rest + one[1].experts)

    def gradient_byte(self) -> float:
        """Return the bytes of gradients that a device exchanges with its replicas."""
        held = self._fullest[1]
        return self.layout.gradient_byte * (held.rest + held.experts)

    def _update(self, replicas: int) -> Work:
        layout = self.layout
        blocks, held = self._fullest
        of_rest, of_experts = (replicas, replicas // layout.expert_replicas) if layout.zero else (1, 1)
        of_blocks = held.blocks / of_rest + held.experts / of_experts
        numel = of_blocks + (held.words + held.table) / of_rest
        each = [tensors_of(of.block, of.architecture.norm_tensors, layout.expert) for _, of in self.shape.kinds]
        tensors = float(sum(map(mul, each, blocks))) + TENSORS_OUTSIDE
        return self.plan.update(numel, tensors, of_blocks=of_blocks, clip=layout.clip)

    def _replica_groups(self, replicas: int) -> tuple[Group, Group]:
        """Return the group of devices with the same parameters outside experts, and that with the same experts."""
        tensor, expert = self.layout.tensor, self.layout.expert_replicas
        return self.network.group(replicas, tensor), self.network.group(replicas // expert, tensor * expert)

    def _sums(
        self, replicas: int, passes: Sequence[Pass]
    ) -> tuple[Group, list[traffic.Bucket], tuple[float, float], float]:
        """Return the group of replicas, buckets, passes that hide them, and bytes gathered over bytes added."""
        each = self.layout.gradient_byte
        blocks, held = self._fullest
        group, apart = self._replica_groups(replicas)
        # The gradients of an output layer are the first, those of the words the last.
        pieces, ahead, ready = [traffic.Bucket(each * held.table, 0.0)] if held.table else [], 0.0, 0.0
        for many, (forward, backward), (rest, of_experts) in reversed(
            list(zip(blocks, passes, self._block_pieces, strict=True))
        ):
            for at in range(many):
                done = ready + backward * (at + 1)
                pieces.append(traffic.Bucket(each * rest, done))
                pieces += [traffic.Bucket(each * of_experts, done, apart)] if of_experts else []
            ahead, ready = ahead + forward * many, ready + backward * many
        pieces += [traffic.Bucket(each * held.words, ready)] if held.words else []
        return group, pieces, (ahead, ready), SHORT_BYTE / each

    def _shards(self, replicas: int, passes: Sequence[Pass]) -> list[traffic.Sharding]:
        """Return the units that replicas shard, and the passes of a block that hide their communication.

        One of each kind of block, as if the model had blocks of this kind only.
        """
        group, apart = self._replica_groups(replicas)
        ends = self.shape.architecture.outside_parameters / self.layout.tensor
        root, found = traffic.Unit((traffic.Piece(ends, group),)), []
        for (rest, of_experts), hiding in zip(self._block_pieces, passes, strict=True):
            experts = [traffic.Piece(of_experts, apart)] if of_experts else []
            unit, byte = traffic.Unit((traffic.Piece(rest, group), *experts)), self.layout.gradient_byte
            found.append(traffic.Sharding(unit, root, self.shape.blocks, SHORT_BYTE, byte, *hiding))
        return found

    def _shares_of_kinds(self) -> list[float]:
        """Return the share of each kind among the blocks."""
        return [many / self.shape.blocks for many, _ in self.shape.kinds]

    def _traffic(self, replicas: int, samples: float, count: int) -> traffic.Waits:
        """Return the waits for the traffic between replicas in a step of `count` microbatches."""
        passes = self._passes(samples)
        if self.layout.zero > 1 and replicas > 1:
            sharded = [traffic.sharded_traffic(self.layout, self.network, one, count)
                       for one in self._shards(replicas, passes)]  # fmt: skip
            if len(sharded) == 1:
                return sharded[0]
            shares = self._shares_of_kinds()
            return traffic.add_waits(one.scaled(share) for one, share in zip(sharded, shares, strict=True))
        return traffic.replica_traffic(self.layout, self.network, *self._sums(replicas, passes))

    def replicas_wait(self, devices: int, samples: int, network: Network, end: str) -> float:
        """Return how long a step waits for its replicas, without overlap, at one end of the intervals [s]."""
        replicas = self.layout.replicas(devices)
        micro, count = self._schedule(samples, replicas)
        replicas *= self.layout.context
        passes, bare_layout = self._passes(micro), replace(self.layout, overlap=False)
        if self.layout.zero > 1:
            waits = [traffic.sharded_wait(bare_layout, network, one, count, end).exposed_s
                     for one in self._shards(replicas, passes)]  # fmt: skip
            return float(np.dot(waits, self._shares_of_kinds()))
        return traffic.waited(bare_layout, network, *self._sums(replicas, passes), end).exposed_s

    def _tied_words(self, replicas: int) -> Exchange:
        """Return the sum of the gradients of the words, which the first and the last stage share if tied [s]."""
        layout = self.layout
        if layout.pipeline == 1 or not self.shape.tied:
            return Exchange(Span.exact(0.0, self.level), "measured")
        byte = layout.gradient_byte * self.shape.vocabulary * self.shape.hidden / layout.tensor
        far = self.network.node_devices < layout.model_devices * replicas
        return self.network.exchange("all_reduce", byte, Group(1, 2) if far else Group(2, 1))

    def _schedule(self, samples: int, replicas: int) -> tuple[float, int]:
        """Return a device's share of a microbatch in samples, and the microbatches of a step.

        Devices of a context group have parts of equal work: as much as so many whole samples.
        """
        micro, count = microbatches_of(samples, replicas, self.layout.microbatch)
        check_schedule(self.layout.pipeline, count, self.layout.interleave, self.shape.blocks)
        if self.layout.expert_overlap and count == 1:
            raise FomkitError(
                LAYOUT,
                "expert_overlap needs another microbatch, but a step has one. Give a larger batch, or "
                "a smaller microbatch.",
            )
        return (micro / self.layout.context if self.layout.context > 1 else micro), count

    def at(self, devices: int, samples: int) -> step.ParallelStep:
        """Return a step of `samples` samples on `devices` devices."""
        layout = self.layout
        replicas = layout.replicas(devices)
        self.network.check_joined(devices)
        self.network.check_inside(layout.tensor)
        micro, count = self._schedule(samples, replicas)
        sharing = replicas * layout.context
        stages = self._stages(micro)
        between = self._stage_waits(micro, sharing)
        waits = [traffic.add_waits([stage.waits, between]) for stage, _ in stages]
        totals = [one.work_s.value + wait.exposed.value for (one, _), wait in zip(stages, waits, strict=True)]
        all_stages = [total for total, (_, many) in zip(totals, stages, strict=True) for _ in range(many)]
        slowest = max(range(len(stages)), key=totals.__getitem__)
        busiest = stages[slowest][0]
        stretch = step.pipeline_s(all_stages, count, layout.interleave) / (count * totals[slowest])
        update, sent = self._update(sharing), self._traffic(sharing, micro, count)
        # Boards of a chip have errors of the same work in common; of several devices, links add their own.
        alone = f"{self.shape}, {layout}, {micro}" if devices == 1 else ""
        busy = self.plan.step(busiest, count, update, layout.launch, alone)
        compute, inner = busy.work_s, waits[slowest].scaled(count)
        tied = step.unhidden(self._tied_words(replicas))
        links = traffic.add_waits([inner, sent, tied])
        idle = busiest.work_s.scaled(count * (stretch - 1))
        bubble = add_independent([idle, inner.exposed.scaled(stretch - 1)])
        input_s, extra_s = terms_of(self.machine, compute)
        exposed = [inner.exposed.scaled(stretch), sent.exposed, tied.exposed]
        wall = add_independent([add_common([compute, idle]), *exposed])
        wall = add_common([wall if input_s is None else longest_of([wall, input_s]), extra_s])
        spent = {name: busy.by_source.get(name, 0.0) for name in TIME_SOURCES}
        whole_s = sum(spent.values())
        covered = {**{name: seconds / whole_s for name, seconds in spent.items()}, UNPRICED: 0.0}
        told = (
            *library_notes(self.plan.machine),
            *host_notes(self.plan.host_op_s, busy.late_s, busy.work_s.value),
        )
        return step.ParallelStep(
            layout=layout, devices=devices, replicas=replicas, samples=samples, microbatches=count,
            compute_s=compute, busy_s=links.busy, exposed_s=links.exposed, bubble_s=bubble,
            replicas_s=sent.exposed, wall_s=wall,
            sent_byte={
                **self._sent(micro, count), "pipeline": between.sent_byte * count, "replicas": sent.sent_byte,
            },
            memory_byte=sum(part_held(self.shape, layout, micro, count, sharing).values()),
            coverage=step.step_coverage(covered, compute.value + bubble.value, links.sources),
            excludes=EXCLUDES if input_s is None else (),
            precision=self.plan.low or self.plan.dtype, notes=(*self.notes, *told),
        )  # fmt: skip

    def one_device(self, devices: int, samples: int) -> OneDevice:
        """Return what a device of the first stage executes for one microbatch, without the update."""
        micro, _ = self._schedule(samples, self.layout.replicas(devices))
        first = stages_of(self.shape, self.layout)[0]
        ops = self.plan.stage_ops(self.layout, micro, first.blocks, (WORDS,) + (HEAD,) * first.last)
        low, message = self.plan.low, NARROW.format(self.plan.dtype)
        formats = Formats(low or self.plan.dtype, message=f"{FORMATS[low].message}; {message}" if low else message)
        return OneDevice(ops, formats, self.plan.machine)

    def _sent(self, samples: float, count: int) -> dict[str, float]:
        """Return the bytes that a device sends to its tensor and context groups, and to experts.

        Of each, those of the stage that sends most. A sum is twice a gather.
        """
        layout, kinds = self.layout, self.shape.kinds
        names = [[one.collective for one in self.plan.block_sent(layout, of)] for _, of in kinds]
        away = [one.count("all_to_all") for one in names]
        each = [len(one) - far + one.count("all_reduce") for one, far in zip(names, away, strict=True)]
        stages = [one.blocks for one in stages_of(self.shape, layout)]
        runs, to_experts, others = (
            count * max(sum(map(mul, of, many)) for of in stages) for many in ([1] * len(kinds), away, each)
        )
        sent = {"tensor": others * bus_factor("all_gather", layout.tensor) * self.plan.stream_byte(samples)}
        if layout.context > 1:
            rounds = len(traffic.context_sent(again=layout.recompute != "none"))
            share = bus_factor("all_gather", layout.context)
            sent["context"] = rounds * share * self.plan.keys_byte(layout, samples) * runs
        if self.shape.experts:
            share = bus_factor("all_to_all", layout.expert)
            sent["experts"] = to_experts * share * self.plan.places_byte(layout, samples)
        return sent

    def held(self, devices: int, samples: int) -> Held:
        """Return a device's memory by role in a step of `samples` samples on `devices` devices; no op is timed."""
        replicas = self.layout.replicas(devices)
        return part_held(
            self.shape, self.layout, *self._schedule(samples, replicas), replicas * self.layout.context
        )

"""A step of a transformer that is split by tensor, pipeline, sequence and replicas, from its sizes.

A transformer's model profile from its sizes alone (``fomkit/transformer/1``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field

from fomkit.core.errors import FomkitError
from fomkit.core.interval import Span, add_common, add_independent
from fomkit.core.machine import Fact, Machine
from fomkit.core.model import Data, ModelProfile, Run, Transformer
from fomkit.core.units import format_quantity
from fomkit.files.op_csv import empty_table
from fomkit.files.yaml import load_document
from fomkit.ops.pricing import add_costs
from fomkit.parallel import job, traffic
from fomkit.parallel.layout import Layout, microbatches_of
from fomkit.parallel.sharded import Piece, Sharding, Unit, sharded_traffic, sharded_wait
from fomkit.parallel.step import (
    ParallelStep,
    Waits,
    add_waits,
    bare,
    check_schedule,
    of_traffic,
    pipeline_s,
    step_coverage,
    waits_for,
)
from fomkit.parallel.traffic import Bucket, Sent, Traffic, replica_traffic, waited
from fomkit.parallel.transformer import (
    CORE,
    Split,
    as_table,
    block_rows,
    check_experts,
    check_split,
    embedding_rows,
    head_rows,
    profile_table,
    tensors_of,
    update_rows,
)
from fomkit.plan.coverage import check_covered, coverage, uses_of
from fomkit.plan.step import device_time
from fomkit.prediction.cascade import add_times
from fomkit.prediction.exchange import Exchange, Group, Network
from fomkit.prediction.links import Collective, bus_factor
from fomkit.prediction.rates import rates, value_of
from fomkit.profiles.evidence import with_fits
from fomkit.profiles.models import TransformerRecord
from fomkit.profiles.records import Record, check_record, check_schema

if TYPE_CHECKING:
    import pandas as pd


EXCLUDES = ("input",)
"""What a step by sizes is without: its data, whatever the machine says of that."""
HOST_OP_S = Fact(
    51e-6,
    44e-6,
    67e-6,
    "assumed",
    "layers that wait for their host, of Megatron-DeepSpeed on a host of A100 (vTrain)",
)
"""What a host needs to start one op of a training step, eagerly, where a machine does not say (docs/parallel.md).

It is more than one kernel's launch: Python, autograd and the framework's own checks of the op [s].
"""
HOST_WAITED = "the device waits for its host, which needs {host} for an op ({source})"
SHORT_BYTE = 2
"""Bytes of activations and parameters in mixed precision."""


@dataclass(frozen=True)
class Stage:
    """The ops of one stage with their counts for one microbatch, and what it sends."""

    ops: pd.DataFrame
    waits: Waits
    late: Span
    """What the device waits for its host beyond its own work, at each end of the intervals [s]."""


ATTENTION_SPREAD = (0.92, 1.10)
"""Ends of the interval of a stated peak fraction's time over its value: deciles of published steps over those
projected, model sizes left out one at a time (docs/parallel.md)."""


def _stated_attention(timed: pd.DataFrame, machine: Machine, fraction: float) -> pd.DataFrame:
    """Time the fused attention of a program by the share of the peak that it is said to reach.

    A causal kernel does half of the square forward, and backward five products of that half where an op table
    counts four of the whole (Dao, arXiv:2307.08691, section 4.1).
    """
    rows = timed["kind"].eq("attention")
    for (dtype, engine), own in timed[rows].groupby(["dtype", "engine"], observed=True):
        peak = rates(machine, str(dtype), str(engine)).flop_per_s
        if peak is None:
            raise FomkitError(machine.name, f"states no peak of {dtype} on its {engine} engine. Add it.")
        share = own["pass_name"].eq("forward").map({True: 0.5, False: 0.625})
        time_s = own["flop"] * share / (fraction * value_of(peak))
        low, high = (time_s * end for end in ATTENTION_SPREAD)
        said = {"time_source": "assumed", "bound": "compute", "evidence": f"{fraction:.0%} of the peak, as stated"}
        timed.loc[own.index, ["time_s", "low_s", "high_s"]] = np.stack([time_s, low, high], 1)
        timed.loc[own.index, list(said)] = list(said.values())
    return timed


def _timed(
    rows: list[dict[str, object]], machine: Machine, level: float, where: str, attention: float | None = None
) -> pd.DataFrame:
    timed = add_times(add_costs(as_table(rows)), machine, interval=level)
    check_covered(timed, (), where)
    return timed if attention is None else _stated_attention(timed, machine, attention)


def _repeats(block: pd.DataFrame, layout: Layout) -> pd.DataFrame:
    """Count what runs in one block, with what is made again for the backward pass."""
    again = block["pass_name"].eq("forward")
    if layout.recompute == "selective":
        again &= block["module"].eq(CORE)
    extra = again.astype("float64") if layout.recompute != "none" else 0.0
    return block.assign(count=block["count"] + extra)


def _waits(sent: Iterable[Sent], ops: pd.DataFrame, times: Mapping[str, Exchange], level: float) -> Waits:
    one_s = dict(zip(ops["op"].tolist(), ops["time_s"].tolist(), strict=True))
    return waits_for(sent, times, one_s, level)


def _coverage(ops: pd.DataFrame, microbatches: int, update: pd.DataFrame) -> dict[str, float]:
    """Give the shares of a device's work by time source."""
    import pandas as pd

    return coverage(pd.concat([ops.assign(count=ops["count"] * microbatches), update]))


class TransformerStep:
    """What does not change with the number of replicas: the timed rows of blocks and both ends."""

    def __init__(
        self, model: ModelProfile, machine: Machine, layout: Layout, network: Network, dtype: str
    ) -> None:
        if model.transformer is None:
            raise FomkitError(model.name, "is no transformer by its sizes. Give it a 'transformer' block.")
        self.shape: Transformer = model.transformer
        self.name, self.machine, self.layout, self.network = model.name, with_fits(machine), layout, network
        self.level, self.dtype = network.level, dtype
        self.where = f"{model.name} on {machine.name}"
        self.uses = uses_of(machine)
        self.notes, self.host_s = model.caveats, machine.host_op_s or HOST_OP_S
        self._known: dict[int, tuple[Stage, Stage, Stage, pd.DataFrame]] = {}
        check_split(self.shape, layout.tensor, sequence=layout.sequence)
        check_experts(model.name, self.shape, layout.expert)

    def _stages(self, samples: int) -> tuple[Stage, Stage, Stage, pd.DataFrame]:
        """Give the first, an inner and the last stage, and one block, each number of samples once."""
        if samples not in self._known:
            self._known[samples] = self._staged(samples)
        return self._known[samples]

    def _staged(self, samples: int) -> tuple[Stage, Stage, Stage, pd.DataFrame]:
        import pandas as pd

        layout, shape = self.layout, self.shape
        split = Split(samples, layout.tensor, layout.sequence, self.dtype, layout.expert)
        fraction = layout.attention_peak_fraction
        block = _timed(block_rows(shape, split), self.machine, self.level, self.where, fraction)
        words = _timed(embedding_rows(shape, split), self.machine, self.level, self.where)
        head = _timed(head_rows(shape, split), self.machine, self.level, self.where)
        blocks = shape.blocks // layout.pipeline
        inner = _repeats(block, layout)
        inner = inner.assign(count=inner["count"] * blocks)
        late = self._late(inner)
        times = self._collectives(samples)
        waits = _waits(self._block_sent(), block, times, self.level).scaled(blocks)
        ends = [(words, traffic.embedding_sent(sequence=layout.sequence)),
                (head, traffic.head_sent(sequence=layout.sequence))]  # fmt: skip
        if layout.pipeline == 1:
            both = _waits([*ends[0][1], *ends[1][1]], pd.concat([words, head]), times, self.level)
            late = add_common([late, self._late(words), self._late(head)])
            whole = Stage(pd.concat([inner, words, head]), add_waits([waits, both]), late)
            return whole, whole, whole, block
        first, last = (
            Stage(
                pd.concat([inner, table]),
                add_waits([waits, _waits(also, table, times, self.level)]),
                add_common([late, self._late(table)]),
            )
            for table, also in ends
        )
        return first, Stage(inner, waits, late), last, block

    def _late(self, ops: pd.DataFrame) -> Span:
        """Give what some ops wait for their host beyond the device's own work, at each end of the intervals [s].

        Where the device is late, the collective after an op is late with it, so that none of this hides what is
        sent.
        """
        if self.layout.launch == "graphs":
            return Span.exact(0.0, self.level)
        started, device = float(ops["count"].sum()), device_time(ops, self.level, self.uses)
        ends = zip(self.host_s.span(self.level).scaled(started).ends, device.ends, strict=True)
        value, low, high = (max(0.0, host - own) for host, own in ends)
        return Span(value, low, high, self.level)

    def _block_sent(self) -> list[Sent]:
        """List what a device sends in one block of a microbatch."""
        layout, sequence = self.layout, self.layout.sequence
        experts = traffic.experts_sent() if self.shape.experts else []
        going = [*traffic.forward_sent(sequence=sequence), *experts]
        going *= 2 if layout.recompute == "full" else 1
        back = traffic.backward_sent(sequence=sequence, experts=bool(experts))
        return [*going, *back, *experts]

    def _places_byte(self, samples: int) -> float:
        """Give the bytes of all places for tokens that a device sends to experts at once."""
        split = Split(samples, self.layout.tensor, self.layout.sequence, self.dtype, self.layout.expert)
        return SHORT_BYTE * split.slots(self.shape) * self.shape.hidden

    def _collectives(self, samples: int) -> dict[str, Exchange]:
        byte = SHORT_BYTE * self.shape.seq * samples * self.shape.hidden
        group = self.network.group(self.layout.tensor)
        names: tuple[Collective, ...] = ("all_reduce", "all_gather", "reduce_scatter")
        found: dict[str, Exchange] = {name: self.network.exchange(name, byte, group) for name in names}
        if self.shape.experts:
            sharing = self.network.group(self.layout.expert, self.layout.tensor)
            found["all_to_all"] = self.network.exchange("all_to_all", self._places_byte(samples), sharing)
        return found

    def _between(self, samples: int, replicas: int) -> tuple[Waits, float]:
        """Give what a stage waits for its neighbours in one microbatch [s], and the bytes it sends.

        Devices of a tensor group stand side by side, then replicas, then stages (Megatron-LM's order).
        """
        layout = self.layout
        if layout.pipeline == 1:
            return bare(Exchange(Span.exact(0.0, self.level), "measured")), 0.0
        byte = SHORT_BYTE * self.shape.seq * samples * self.shape.hidden
        far = self.network.node_devices <= layout.tensor * replicas
        sent = self.network.send(byte / layout.tensor, "system" if far else "node")
        one = [Exchange(sent, "alpha_beta")]
        if not layout.sequence and layout.tensor > 1:
            one.append(self.network.exchange("all_gather", byte, self.network.group(layout.tensor)))
        times = 2 * layout.interleave
        return add_waits(map(bare, one)).scaled(times), times * byte / layout.tensor

    def _device_parameters(self) -> tuple[float, float]:
        """Count the parameters of the device that has most, and those of them in experts where these are shared.

        It holds those of its blocks, and of the words.
        """
        layout, shape = self.layout, self.shape
        blocks = shape.blocks // layout.pipeline
        held = blocks * shape.block_parameters_of(layout.expert) + shape.embedding_parameters
        shared = shape.experts // layout.expert * shape.feed_forward_parameters if layout.expert > 1 else 0
        return held / layout.tensor, blocks * shared / layout.tensor

    def gradient_byte(self) -> float:
        """Give the bytes of gradients that a device shares with its replicas."""
        return self.layout.gradient_byte * self._device_parameters()[0]

    def _update(self, replicas: int) -> pd.DataFrame:
        layout = self.layout
        held, shared = self._device_parameters()
        zero = layout.zero > 0
        numel = (held - shared) / (replicas if zero else 1) + shared / (replicas // layout.expert if zero else 1)
        tensors = float(tensors_of(self.shape, layout.expert)) * self.shape.blocks / layout.pipeline + 4
        rows = update_rows(numel, tensors, clip=layout.clip)
        return _timed(rows, self.machine, self.level, self.name)

    def _passes(self, block: pd.DataFrame) -> tuple[float, float]:
        """Give the passes of one block [s]: forward, and backward with what is made again for it."""
        spent = _repeats(block, self.layout)
        forward = float(block.loc[block["pass_name"].eq("forward"), "time_s"].sum())
        return forward, float((spent["time_s"] * spent["count"]).sum()) - forward

    def _replica_groups(self, replicas: int) -> tuple[Group, Group]:
        """Give the devices that hold the same of all but experts, and those that hold the same experts."""
        tensor, expert = self.layout.tensor, self.layout.expert
        return self.network.group(replicas, tensor), self.network.group(replicas // expert, tensor * expert)

    def _block_pieces(self) -> tuple[float, float]:
        """Count the parameters of a block that a device holds: all but experts, and experts shared with others."""
        layout, shared = self.layout, self._device_parameters()[1]
        of_experts = shared / (self.shape.blocks // layout.pipeline)
        return self.shape.block_parameters_of(layout.expert) / layout.tensor - of_experts, of_experts

    def _sums(self, replicas: int, block: pd.DataFrame) -> tuple[Group, list[Bucket], tuple[float, float], float]:
        """Give who adds up, the buckets, the passes that hide them, and bytes gathered over bytes added."""
        layout, each = self.layout, self.layout.gradient_byte
        blocks = self.shape.blocks // layout.pipeline
        forward, backward = self._passes(block)
        rest, of_experts = self._block_pieces()
        words = each * self.shape.embedding_parameters / layout.tensor
        group, apart = self._replica_groups(replicas)
        pieces = []
        for at in range(blocks):
            pieces.append(Bucket(each * rest, backward * (at + 1)))
            pieces += [Bucket(each * of_experts, backward * (at + 1), apart)] if of_experts else []
        pieces.append(Bucket(words, backward * blocks))
        passes = (forward * blocks, backward * blocks)
        return group, pieces, passes, SHORT_BYTE / each

    def _shared(self, replicas: int, passes: tuple[float, float] = (0.0, 0.0)) -> Sharding:
        """Give what replicas share out, and the passes of a block that hide what is sent of it."""
        group, apart = self._replica_groups(replicas)
        rest, of_experts = self._block_pieces()
        unit = Unit((Piece(rest, group), *([Piece(of_experts, apart)] if of_experts else [])))
        ends = self.shape.embedding_parameters + 2 * self.shape.hidden
        root = Unit((Piece(ends / self.layout.tensor, group),))
        return Sharding(unit, root, self.shape.blocks, SHORT_BYTE, self.layout.gradient_byte, *passes)

    def _traffic(self, replicas: int, block: pd.DataFrame, count: int) -> Traffic:
        """Give what replicas send each other in a step of so many microbatches."""
        if self.layout.zero > 1 and replicas > 1:
            return sharded_traffic(self.layout, self.network, self._shared(replicas, self._passes(block)), count)
        return replica_traffic(self.layout, self.network, *self._sums(replicas, block))

    def replicas_wait(self, devices: int, samples: int, network: Network, end: str) -> float:
        """Give what a step waits for its replicas on a network at one end of its intervals, nothing hidden [s]."""
        replicas = self.layout.replicas(devices)
        micro, count = self._schedule(samples, replicas)
        block = self._stages(micro)[-1]
        bare_layout = replace(self.layout, overlap=False)
        if self.layout.zero > 1:
            return sharded_wait(
                bare_layout, network, self._shared(replicas, self._passes(block)), count, end
            ).exposed_s
        return waited(bare_layout, network, *self._sums(replicas, block), end).exposed_s

    def _shared_words(self, replicas: int) -> Exchange:
        """Give the sum of the words' gradients between first and last stage, which share them [s]."""
        layout = self.layout
        if layout.pipeline == 1:
            return Exchange(Span.exact(0.0, self.level), "measured")
        byte = layout.gradient_byte * self.shape.vocabulary * self.shape.hidden / layout.tensor
        far = self.network.node_devices < layout.model_devices * replicas
        return self.network.exchange("all_reduce", byte, Group(1, 2) if far else Group(2, 1))

    def _schedule(self, samples: int, replicas: int) -> tuple[int, int]:
        """Give samples of a microbatch and microbatches of a step."""
        micro, count = microbatches_of(samples, replicas, self.layout.microbatch)
        check_schedule(self.layout.pipeline, count, self.layout.interleave, self.shape.blocks)
        return micro, count

    def at(self, devices: int, samples: int) -> ParallelStep:
        """Give a step of so many samples on so many devices.

        Raises FomkitError when the layout does not divide.
        """
        layout, level = self.layout, self.level
        replicas = layout.replicas(devices)
        micro, count = self._schedule(samples, replicas)
        *stages, block = self._stages(micro)
        between, between_byte = self._between(micro, replicas)
        spans = [add_common([device_time(stage.ops, level, self.uses), stage.late]) for stage in stages]
        waits = [add_waits([stage.waits, between]) for stage in stages]
        totals = [work.value + wait.exposed.value for work, wait in zip(spans, waits, strict=True)]
        all_stages = [totals[0], *[totals[1]] * (layout.pipeline - 2), totals[2]]
        piped = pipeline_s(all_stages[: layout.pipeline], count, layout.interleave)
        slowest = max(range(3), key=totals.__getitem__)
        stretch = piped / (count * totals[slowest])
        updated, traffic = self._update(replicas), self._traffic(replicas, block, count)
        update = device_time(updated, level, self.uses)
        work, inner = spans[slowest].scaled(count), waits[slowest].scaled(count)
        tied = bare(self._shared_words(replicas))
        links = add_waits([inner, of_traffic(traffic), tied])
        inside = add_independent([work, inner.exposed])
        bubble = inside.scaled(stretch - 1)
        compute = add_common([work, update])
        return ParallelStep(
            layout=layout, devices=devices, replicas=replicas, samples=samples, microbatches=count,
            compute_s=compute, busy_s=links.busy, exposed_s=links.exposed, bubble_s=bubble,
            replicas_s=traffic.exposed_s,
            wall_s=add_independent([inside.scaled(stretch), update, traffic.exposed_s, tied.exposed]),
            sent_byte={**self._sent(micro, count), "pipeline": between_byte * count,
                       "replicas": traffic.sent_byte},
            memory_byte=self.memory_byte(micro, count, replicas),
            coverage=step_coverage(_coverage(stages[slowest].ops, count, updated),
                                   compute.value + bubble.value, links.sources),
            excludes=EXCLUDES, notes=(*self.notes, *self._host_notes(stages[slowest])),
        )  # fmt: skip

    def _host_notes(self, stage: Stage) -> list[str]:
        if not stage.late.value:
            return []
        return [HOST_WAITED.format(host=format_quantity(self.host_s.value, "time_s"), source=self.host_s.source)]

    def _sent(self, samples: int, count: int) -> dict[str, float]:
        """Give the bytes that a device sends to its tensor group, a sum twice a gather's, and to experts."""
        layout, runs = self.layout, count * self.shape.blocks / self.layout.pipeline
        byte = SHORT_BYTE * self.shape.seq * samples * self.shape.hidden
        names = [one.collective for one in self._block_sent()]
        away = names.count("all_to_all")
        each = len(names) - away + names.count("all_reduce")
        sent = {"tensor": each * bus_factor("all_gather", layout.tensor) * byte * runs}
        if self.shape.experts:
            share = bus_factor("all_to_all", layout.expert)
            sent["experts"] = away * share * self._places_byte(samples) * runs
        return sent

    def memory_byte(self, samples: int, count: int, replicas: int) -> float:
        """Give what the first stage holds per device: parameters, gradients, state and activations [byte]."""
        layout, (held, shared) = self.layout, self._device_parameters()
        copies = layout.model_devices
        standing = job.state_byte((held - shared) * copies, layout, replicas)
        standing += job.state_byte(shared * copies, layout, replicas // layout.expert)
        if layout.zero > 1 and replicas > 1:
            standing += self._shared(replicas).held_byte(layout.zero)
        return standing + job.activation_byte(self.shape, samples, layout, count)


SCHEMA = "fomkit/transformer/1"
NOTES = (
    "made by rule from the sizes, not traced: the kernels of Megatron-LM (docs/parallel.md)",
    "activations and products in bf16, sums of gradients and Adam in fp32",
)
OF_EXPERTS = "how tokens spread over the experts is declared by the capacity factor, not predicted"


class RecipeRecord(Record):
    """A recipe file."""

    schema_: str = Field(alias="schema")
    name: str
    transformer: TransformerRecord
    title: str = ""
    batch: int = Field(default=1, ge=1)
    train_samples: int | None = Field(default=None, ge=1)
    epochs: int | None = Field(default=None, ge=1)


def transformer_profile(
    shape: Transformer, name: str, *, title: str = "", batch: int = 1, data: Data | None = None,
    run: Run | None = None,
) -> ModelProfile:  # fmt: skip
    """Make a model profile of a transformer.

    Raises FomkitError when the heads do not divide the hidden size.

    Examples
    --------
    >>> gpt = Transformer(hidden=6144, heads=64, blocks=48, seq=2048, vocabulary=51200)
    >>> round(transformer_profile(gpt, "gpt-22b").parameters_total / 1e9, 2)
    22.07
    """
    check_split(shape, 1, sequence=False)
    traced: Mapping[str, str] = {"framework": "rule", "device": "sizes", "mode": "train"}
    made = (
        f"transformer: {shape.blocks} blocks, {shape.hidden:,} wide, {shape.heads} heads, {shape.seq:,} positions"
        + (f", {shape.experts} experts, {shape.top_k} for each token" if shape.experts else "")
    )
    notes = (*NOTES, OF_EXPERTS) if shape.experts else NOTES
    return ModelProfile(
        name=name, title=title or made, ops=profile_table(shape, "bf16"), parts=empty_table("OPS"),
        sizes={"batch": batch}, traced_with=traced, parameters_total=shape.parameters,
        parameters_trainable=shape.parameters, data=data or Data(), run=run or Run(),
        optimizer={"rule": "adam", "impl": "fused"}, notes=notes, transformer=shape,
    )  # fmt: skip


def load_recipe(path: Path) -> ModelProfile:
    """Read a recipe.

    Raises FomkitError with file and line for every mistake.
    """
    document = load_document(path)
    check_schema(document, SCHEMA)
    record = check_record(document, RecipeRecord)
    shape = Transformer(**record.transformer.model_dump())
    if shape.hidden % shape.heads:
        where = document.where(("transformer", "heads"))
        raise FomkitError(where, f"heads {shape.heads} do not divide hidden {shape.hidden}. Choose a divisor.")
    return transformer_profile(
        shape, record.name, title=record.title, batch=record.batch, data=Data(train_samples=record.train_samples),
        run=Run(epochs=record.epochs),
    )  # fmt: skip

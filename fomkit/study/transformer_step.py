"""A step of a transformer that is split by tensor, pipeline, sequence and replicas, from its sizes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fomkit.costs import add_costs
from fomkit.errors import FomkitError
from fomkit.hardware import Machine
from fomkit.parallel import activations, tensor_traffic
from fomkit.parallel.block_rows import CORE, Split, block_rows
from fomkit.parallel.collectives import Collective
from fomkit.parallel.layout import Layout, check_microbatches, microbatches_of
from fomkit.parallel.network import Group, Network
from fomkit.parallel.overlap import Bucket
from fomkit.parallel.pipeline import check_schedule, pipeline_s
from fomkit.parallel.replicas import Traffic, replica_traffic
from fomkit.parallel.step import ParallelStep
from fomkit.parallel.tensor_traffic import Sent
from fomkit.parallel.transformer_rows import as_table, check_split, embedding_rows, head_rows, update_rows
from fomkit.predict import add_times
from fomkit.rollup import check_covered, device_time, uses_of
from fomkit.spans import Span, add_common, add_independent
from fomkit.study.fits import with_fits
from fomkit.workload import ModelProfile, Transformer

if TYPE_CHECKING:
    import pandas as pd

SHORT_BYTE, SUM_BYTE = 2, 4
"""Bytes of activations and parameters, and of the sums of gradients, in mixed precision."""


@dataclass(frozen=True)
class Stage:
    """The ops of one stage with their counts for one microbatch; what its tensor group is busy and waits [s]."""

    ops: pd.DataFrame
    waits: Span
    busy: Span


def _timed(rows: list[dict[str, object]], machine: Machine, level: float, where: str) -> pd.DataFrame:
    timed = add_times(add_costs(as_table(rows)), machine, interval=level)
    check_covered(timed, (), where)
    return timed


def _repeats(block: pd.DataFrame, layout: Layout) -> pd.DataFrame:
    """Count what runs in one block, with what is made again for the backward pass."""
    again = block["pass_name"].eq("forward")
    if layout.recompute == "selective":
        again &= block["module"].eq(CORE)
    extra = again.astype("float64") if layout.recompute != "none" else 0.0
    return block.assign(count=block["count"] + extra)


def _waits(sent: Iterable[Sent], ops: pd.DataFrame, times: dict[str, Span], level: float) -> tuple[Span, Span]:
    """Add up what is sent: busy, and what no op beside it hides [s]."""
    one_s = ops.drop_duplicates("op").set_index("op")["time_s"]
    busy, exposed = [Span.exact(0.0, level)], [Span.exact(0.0, level)]
    for one in sent:
        time = times[one.collective]
        hidden = float(one_s[one.hidden_by]) if one.hidden_by else 0.0
        busy.append(time)
        value, low, high = (max(0.0, end - hidden) for end in (time.value, time.low, time.high))
        exposed.append(Span(value, low, high, level))
    return add_common(busy), add_common(exposed)


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
        check_split(self.shape, layout.tensor, sequence=layout.sequence)

    def _stages(self, samples: int) -> tuple[Stage, Stage, Stage, pd.DataFrame]:
        """Give the first, an inner and the last stage, and one block."""
        import pandas as pd

        layout, shape = self.layout, self.shape
        split = Split(samples, layout.tensor, layout.sequence, self.dtype)
        block = _timed(block_rows(shape, split), self.machine, self.level, self.where)
        words = _timed(embedding_rows(shape, split), self.machine, self.level, self.where)
        head = _timed(head_rows(shape, split), self.machine, self.level, self.where)
        blocks = shape.blocks // layout.pipeline
        inner = _repeats(block, layout)
        inner = inner.assign(count=inner["count"] * blocks)
        times = self._collectives(samples)
        sequence = layout.sequence
        going = tensor_traffic.forward_sent(sequence=sequence) * (2 if layout.recompute == "full" else 1)
        sent = [*going, *tensor_traffic.backward_sent(sequence=sequence)]
        busy, exposed = (one.scaled(blocks) for one in _waits(sent, block, times, self.level))
        ends = [(words, tensor_traffic.embedding_sent(sequence=sequence)),
                (head, tensor_traffic.head_sent(sequence=sequence))]  # fmt: skip
        made = []
        for table, also in ends:
            more = _waits(also, table, times, self.level)
            made.append(
                Stage(pd.concat([inner, table]), add_common([exposed, more[1]]), add_common([busy, more[0]]))
            )
        if layout.pipeline == 1:
            both = _waits([*ends[0][1], *ends[1][1]], pd.concat([words, head]), times, self.level)
            whole = Stage(
                pd.concat([inner, words, head]), add_common([exposed, both[1]]), add_common([busy, both[0]])
            )
            return whole, whole, whole, block
        return made[0], Stage(inner, exposed, busy), made[1], block

    def _collectives(self, samples: int) -> dict[str, Span]:
        byte = SHORT_BYTE * self.shape.seq * samples * self.shape.hidden
        group = self.network.group(self.layout.tensor)
        names: tuple[Collective, ...] = ("all_reduce", "all_gather", "reduce_scatter")
        return {one: self.network.collective(one, byte, group) for one in names}

    def _between(self, samples: int, replicas: int) -> tuple[Span, float]:
        """Give what a stage waits for its neighbours in one microbatch [s], and the bytes it sends.

        Devices of a tensor group stand side by side, then replicas, then stages (Megatron-LM's order).
        """
        layout = self.layout
        if layout.pipeline == 1:
            return Span.exact(0.0, self.level), 0.0
        byte = SHORT_BYTE * self.shape.seq * samples * self.shape.hidden
        far = self.network.node_devices <= layout.tensor * replicas
        one = [self.network.send(byte / layout.tensor, "system" if far else "node")]
        if not layout.sequence and layout.tensor > 1:
            one.append(self.network.collective("all_gather", byte, self.network.group(layout.tensor)))
        times = 2 * layout.interleave
        return add_common(one).scaled(times), times * byte / layout.tensor

    def _device_parameters(self) -> float:
        """Count the parameters of the device that has most: those of its blocks, and of the words."""
        layout = self.layout
        blocks = self.shape.blocks // layout.pipeline * self.shape.block_parameters
        return (blocks + self.shape.embedding_parameters) / layout.tensor

    def gradient_byte(self) -> float:
        """Give the bytes of gradients that a device shares with its replicas."""
        return SUM_BYTE * self._device_parameters()

    def _update(self, replicas: int) -> Span:
        layout = self.layout
        numel = self._device_parameters() / (replicas if layout.zero else 1)
        tensors = 16.0 * self.shape.blocks / layout.pipeline + 4
        rows = update_rows(numel, tensors, clip=layout.clip)
        timed = _timed(rows, self.machine, self.level, self.name)
        return device_time(timed, self.level, self.uses)

    def _replicas(self, replicas: int, block: pd.DataFrame) -> Traffic:
        layout = self.layout
        blocks = self.shape.blocks // layout.pipeline
        spent = _repeats(block, layout)
        forward = float(block.loc[block["pass_name"].eq("forward"), "time_s"].sum())
        backward = float((spent["time_s"] * spent["count"]).sum()) - forward
        byte = SUM_BYTE * self.shape.block_parameters / layout.tensor
        words = SUM_BYTE * self.shape.embedding_parameters / layout.tensor
        pieces = [Bucket(byte, backward * (at + 1)) for at in range(blocks)] + [Bucket(words, backward * blocks)]
        group = self.network.group(replicas, layout.tensor)
        passes = (forward * blocks, backward * blocks)
        return replica_traffic(layout, self.network, group, pieces, passes, SHORT_BYTE / SUM_BYTE)

    def _shared_words(self, replicas: int) -> Span:
        """Give the sum of the words' gradients between first and last stage, which share them [s]."""
        layout = self.layout
        if layout.pipeline == 1:
            return Span.exact(0.0, self.level)
        byte = SUM_BYTE * self.shape.vocabulary * self.shape.hidden / layout.tensor
        far = self.network.node_devices < layout.model_devices * replicas
        return self.network.collective("all_reduce", byte, Group(1, 2) if far else Group(2, 1))

    def _schedule(self, samples: int, replicas: int) -> tuple[int, int]:
        """Give samples of a microbatch and microbatches of a step."""
        micro, count = microbatches_of(samples, replicas, self.layout.microbatch)
        check_microbatches(self.layout, count)
        check_schedule(self.layout.pipeline, count, self.layout.interleave, self.shape.blocks)
        return micro, count

    def at(self, devices: int, samples: int) -> ParallelStep:
        """Give a step of so many samples on so many devices.

        Raises
        ------
        FomkitError
            When the layout does not divide.
        """
        layout, level = self.layout, self.level
        replicas = layout.replicas(devices)
        micro, count = self._schedule(samples, replicas)
        *stages, block = self._stages(micro)
        between, between_byte = self._between(micro, replicas)
        spans = [device_time(one.ops, level, self.uses) for one in stages]
        waits = [add_common([one.waits, between]) for one in stages]
        totals = [work.value + wait.value for work, wait in zip(spans, waits, strict=True)]
        all_stages = [totals[0], *[totals[1]] * (layout.pipeline - 2), totals[2]]
        piped = pipeline_s(all_stages[: layout.pipeline], count, layout.interleave)
        slowest = max(range(3), key=totals.__getitem__)
        stretch = piped / (count * totals[slowest])
        update, traffic = self._update(replicas), self._replicas(replicas, block)
        work = spans[slowest].scaled(count)
        tied = self._shared_words(replicas)
        exposed = add_common([waits[slowest].scaled(count), traffic.exposed_s, tied])
        inside = add_independent([work, waits[slowest].scaled(count)])
        sent = self._sent(micro, count)
        return ParallelStep(
            layout=layout, devices=devices, replicas=replicas, samples=samples, microbatches=count,
            compute_s=add_common([work, update]),
            busy_s=add_common([stages[slowest].busy.scaled(count), between.scaled(count), traffic.busy_s, tied]),
            exposed_s=exposed, bubble_s=inside.scaled(stretch - 1),
            wall_s=add_independent([inside.scaled(stretch), update, traffic.exposed_s, tied]),
            sent_byte={"tensor": sent, "pipeline": between_byte * count, "replicas": traffic.sent_byte},
            memory_byte=self.memory_byte(micro, count, replicas),
        )  # fmt: skip

    def _sent(self, samples: int, count: int) -> float:
        """Give the bytes that a device sends to its tensor group: each sum is a scatter and a gather."""
        layout = self.layout
        byte = SHORT_BYTE * self.shape.seq * samples * self.shape.hidden
        passes: Sequence[Sent] = [
            *tensor_traffic.forward_sent(sequence=layout.sequence) * (2 if layout.recompute == "full" else 1),
            *tensor_traffic.backward_sent(sequence=layout.sequence),
        ]
        share = (layout.tensor - 1) / layout.tensor
        each = sum(2 if one.collective == "all_reduce" else 1 for one in passes) * share * byte
        return each * count * self.shape.blocks / layout.pipeline

    def memory_byte(self, samples: int, count: int, replicas: int) -> float:
        """Give what the first stage holds per device: parameters, gradients, state and activations [byte]."""
        held = self._device_parameters() * self.layout.model_devices
        standing = activations.state_byte(held, self.layout, replicas)
        return standing + activations.activation_byte(self.shape, samples, self.layout, count)

"""One step of a parallel training: its layout, work, waits, traffic and memory, and the schedule of a pipeline.

Memory is the largest of a stage, per device: Korthikanti et al., arXiv 2205.05198, equations 1 to 6
(activations), section 4.2.3 (pipeline). Activations are those kept for the backward pass, with 2 bytes each; masks
of dropouts have 1 byte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from operator import mul
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from fomkit.core.errors import FomkitError, nearest_names
from fomkit.core.interval import Span
from fomkit.core.job import LAYOUT, Layout
from fomkit.core.transformer import Experts, Transformer
from fomkit.core.units import agree, count_text, sums_by_key
from fomkit.parallel.traffic import Sent, Waits, add_waits
from fomkit.prediction.exchange import Exchange

_WORDS = {name: get_args(kind) for name, kind in get_type_hints(Layout).items() if get_origin(kind) is Literal}
"""Allowed words for each choice of a layout."""


def _check_values(layout: Layout) -> None:
    counts = ("data", "tensor", "pipeline", "interleave", "context", "expert", "servers", "microbatch")
    for name, least in (*((name, 1) for name in counts), ("zero", 0), ("staleness", 0)):
        value = getattr(layout, name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
            raise FomkitError(LAYOUT, f"{name} is {value!r}. Expected a whole number, {least} or more.")
    for name, words in _WORDS.items():
        if (word := getattr(layout, name)) not in words:
            raise FomkitError(LAYOUT, f"{word!r} is not a value of {name}. {nearest_names(str(word), words)}")
    if layout.zero > 3:
        raise FomkitError(LAYOUT, f"zero is {layout.zero}. Expected 0, 1, 2 or 3.")
    if not 0 < layout.compression <= 1:
        raise FomkitError(
            LAYOUT, f"compression is {layout.compression:g}. Give the share of bytes sent, such as 0.25."
        )
    for name in ("bucket_byte", "gradient_byte"):
        if not getattr(layout, name) > 0:
            raise FomkitError(LAYOUT, f"{name} is {getattr(layout, name):g}. Give a size above 0.")
    if layout.attention_peak_fraction is not None and not 0 < layout.attention_peak_fraction <= 1:
        raise FomkitError(
            LAYOUT,
            f"attention_peak_fraction is {layout.attention_peak_fraction:g}. Give a share, such as 0.3.",
        )


def _refused(layout: Layout) -> dict[str, bool]:
    """Return every combination that is not allowed, in words, and whether the layout has it."""
    server, experts = layout.algorithm == "parameter_server", layout.expert > 1
    uneven = layout.expert % layout.tensor != 0
    return {
        "a parameter server with expert parallelism is not modelled: workers differ in parameters. Choose another "
        "algorithm": server and experts,
        "context with expert parallelism is not modelled, though Megatron-LM runs it, with experts on the devices "
        "of context groups. Choose one": experts and layout.context > 1,
        "whole_experts needs sequence, and an expert that is a multiple of tensor. Change these":
        layout.whole_experts and (uneven or not layout.sequence),
        "expert_overlap hides exchanges with experts that devices share. Give expert 2 or more":
        layout.expert_overlap and not experts,
        "interleave splits pipeline stages, but there is one stage. Give pipeline 2 or more":
        layout.interleave > 1 and layout.pipeline == 1,
        "sequence parallelism shares the tensor group, which is 1. Give tensor 2 or more":
        layout.sequence and layout.tensor == 1,
        "tensor_overlap hides gathers and scatters along the sequence. Add sequence":
        layout.tensor_overlap and not layout.sequence,
        "a parameter server and zero both distribute the update. Choose one": server and layout.zero > 0,
        "a parameter server with tensor, context or pipeline parallelism is not modelled. Choose another "
        "algorithm": server and layout.model_devices > 1,
        "an update on the server needs the algorithm parameter_server":
        layout.optimizer == "server" and not server,
        "zero 2 and 3 with a pipeline are not modelled: they communicate for every microbatch. DeepSpeed refuses "
        "them, Megatron-LM's distributed optimizer is zero 1. Choose zero 0 or 1, or tensor groups instead of "
        "stages": layout.zero > 1 and layout.pipeline > 1,
        "scatter requires zero 2 or 3. Leave it out": layout.zero < 2 and layout.scatter == "last",
        "prefetch requires zero 3. Leave it out": layout.zero < 3 and layout.prefetch == "pre",
        "stale gradients with zero are not modelled. Choose one": layout.zero > 0 and layout.staleness > 0,
        "clipping needs the norm of all gradients, which stale gradients lack. Choose one":
        layout.clip and layout.staleness > 0,
        "servers require the algorithm parameter_server. Add it": layout.servers > 1 and not server,
    }  # fmt: skip


def check_layout(layout: Layout) -> Layout:
    """Return the layout, or raise for a combination that is not allowed.

    >>> check_layout(Layout(tensor=8, sequence=True)).model_devices
    8
    """
    _check_values(layout)
    for why, refused in _refused(layout).items():
        if refused:
            raise FomkitError(LAYOUT, f"{why}.")
    return layout


def describe_layout(layout: Layout) -> str:
    """Describe how a layout differs from plain copies.

    >>> describe_layout(Layout(tensor=8, sequence=True))
    'tensor 8, sequence'
    """
    plain = vars(Layout())
    changed = {name: value for name, value in vars(layout).items() if value != plain[name]}
    parts = [name if value is True else f"no {name}" if value is False else f"{name} {value}"
             for name, value in changed.items()]  # fmt: skip
    return ", ".join(parts) or "copies of the model"


def microbatches_of(samples: int, replicas: int, microbatch: int | None) -> tuple[int, int]:
    """Return the samples of a microbatch and the microbatches of a step.

    >>> microbatches_of(64, 2, 4)
    (4, 8)
    """
    share, rest = divmod(samples, replicas)
    if not share:
        raise FomkitError(
            "batch",
            f"a batch of {samples:,} has fewer samples than the {replicas:,} replicas. "
            f"Give a batch of at least {replicas:,}, or fewer nodes.",
        )
    micro = microbatch or share
    if rest or share % micro:
        raise FomkitError(
            LAYOUT if microbatch else "batch",
            f"a batch of {samples} does not divide into {count_text(replicas, 'replica')}"
            + (f" of microbatches of {micro}" if microbatch else "")
            + ". Change the batch, the microbatch or the number of devices.",
        )
    return micro, share // micro


def check_schedule(stages: int, microbatches: int, chunks: int, blocks: int) -> None:
    """Raise where the schedule of a pipeline is not possible."""
    if blocks < stages * chunks:
        raise FomkitError(
            LAYOUT,
            f"{count_text(blocks, 'block')} {agree(blocks, 'is/are')} fewer than pipeline {stages} × interleave "
            f"{chunks} = {stages * chunks} chunks. Choose fewer stages or chunks.",
        )
    if chunks > 1 and microbatches % stages:
        raise FomkitError(
            LAYOUT,
            f"an interleaved pipeline needs microbatches in multiples of its {stages} stages, but there are "
            f"{microbatches}. Change batch, microbatch or interleave.",
        )


def check_split(shape: Transformer, tensor: int, context: int = 1, *, sequence: bool) -> None:
    """Raise where a transformer does not divide among the devices of a tensor group, or a context group."""
    if context > 1 and shape.attention != "fused":
        raise FomkitError(
            LAYOUT, "context needs fused attention. Leave it out, or make the model with 'attention: fused'."
        )
    if context > 1 and shape.seq % (2 * context):  # each device has one part near the beginning, one near the end
        raise FomkitError(
            LAYOUT, f"seq {shape.seq:,} is not divisible by 2 × context {context}. Choose another context."
        )
    names = ("heads", *("kv_heads",) * (shape.kv_heads != shape.heads), "hidden", "feed_forward", "shared",
             "dense_feed_forward", *("seq",) * sequence)  # fmt: skip
    check_shared({name: getattr(shape, name) for name in names}, tensor)


def check_shared(sizes: Mapping[str, int], tensor: int) -> None:
    """Raise for the first size that does not divide among the devices of a tensor group."""
    for name, size in sizes.items():
        if size % tensor:
            raise FomkitError(
                LAYOUT, f"{name} {size:,} is not divisible by tensor {tensor}. Choose a divisor of {size:,}."
            )


def check_experts(name: str, shape: Transformer, expert: int) -> None:
    """Raise where replicas cannot share the experts of a transformer."""
    if expert > 1 and not shape.experts:
        raise FomkitError(name, f"has no experts, which expert {expert} would share. Leave 'expert' at 1.")
    if shape.experts % expert:
        raise FomkitError(LAYOUT, f"experts {shape.experts} do not divide by expert {expert}. Choose a divisor.")


class StageBlocks(NamedTuple):
    """Stages with equal work: the blocks of each kind in one (`Transformer.kinds`), and their number.

    `first`, `last`: whether it has the words, and the head.
    """

    blocks: tuple[int, ...]
    many: int
    first: bool
    last: bool


@lru_cache(256)
def _alike(stages: tuple[int, ...], kinds: tuple[int, ...]) -> tuple[StageBlocks, ...]:
    """Join equal neighbours among stages; ``stages``: blocks of each, ``kinds``: blocks of each kind, in order."""
    found, start = list[StageBlocks](), 0
    for at, many in enumerate(stages):
        begin, blocks = 0, list[int]()
        for number in kinds:
            blocks.append(max(0, min(start + many, begin + number) - max(start, begin)))
            begin += number
        stage = StageBlocks(tuple(blocks), 1, at == 0, at == len(stages) - 1)
        if found and found[-1]._replace(many=1) == stage:
            found[-1] = stage._replace(many=found[-1].many + 1)
        else:
            found.append(stage)
        start += many
    return tuple(found)


def stages_of(shape: Transformer, layout: Layout) -> tuple[StageBlocks, ...]:
    """Return the stages that differ, in order.

    >>> gpt = Transformer(hidden=512, heads=8, blocks=10, seq=256, vocabulary=1000)
    >>> [(one.blocks, one.many) for one in stages_of(gpt, Layout(pipeline=4))]
    [((2,), 1), ((3,), 2), ((2,), 1)]
    """
    return _alike(tuple(layout.stage_blocks(shape.blocks)), tuple(many for many, _ in shape.kinds))


class StageParameters(NamedTuple):
    """The parameters of one device of a stage.

    `blocks`: of its blocks, outside shared experts; `experts`: in those.
    `words`: of words and positions, on the first stage; with one stage also of the output layer's own table.
    `table`: of several stages on the last: the output layer's own table, or a copy of the words.
    """

    blocks: float
    experts: float
    words: float
    table: float

    @property
    def rest(self) -> float:
        """All outside shared experts."""
        return self.blocks + self.words + self.table


def block_parameters(shape: Transformer, layout: Layout) -> list[tuple[float, float]]:
    """Return for each kind of block its parameters on a device: outside shared experts, and in them."""
    found = list[tuple[float, float]]()
    for _, of in shape.kinds:
        feed, held = of.block.feed, of.experts // layout.expert if layout.expert > 1 else 0
        shared = held * feed.each.parameters(of.hidden) if isinstance(feed, Experts) else 0
        whole = of.latent.whole_parameters(of.hidden) if of.latent is not None else 0
        rest = of.block_parameters(layout.expert) - shared - whole
        found.append((rest / layout.tensor + whole, shared / layout.expert_tensor))
    return found


def stage_parameters(shape: Transformer, layout: Layout) -> list[StageParameters]:
    """Return the parameters of a device of each stage that differs, in order: for its memory and for its update.

    >>> llama = Transformer(hidden=512, heads=8, blocks=4, seq=256, vocabulary=1000, style="llama", tied=False)
    >>> [(one.words, one.table) for one in stage_parameters(llama, Layout(pipeline=2))]
    [(512000.0, 0.0), (0.0, 512000.0)]
    """
    each, table = block_parameters(shape, layout), shape.vocabulary * shape.hidden if layout.pipeline > 1 else 0
    words, found = shape.architecture.embedding_parameters - table * (not shape.tied), list[StageParameters]()
    for one in stages_of(shape, layout):
        blocks, experts = (sum(map(mul, one.blocks, piece)) for piece in zip(*each, strict=True))
        ends = words * one.first / layout.tensor, table * one.last / layout.tensor
        found.append(StageParameters(blocks, experts, *ends))
    return found


def words_of_one(shape: Transformer, tensor: int) -> int:
    """Count a device's words, padded to a multiple of 128 (Megatron-LM's default)."""
    return 128 * -(-shape.vocabulary // (128 * tensor))


class Notes(Sequence[str]):
    """Notes that are made at their first access: a sweep of a thousand points reads none of them."""

    def __init__(self, make: Callable[[], tuple[str, ...]]) -> None:
        self._made = cache(make)

    def __getitem__(self, at: Any) -> Any:
        return self._made()[at]

    def __len__(self) -> int:
        return len(self._made())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._made() == tuple(other)


@dataclass(frozen=True)
class ParallelStep:
    """A step of all devices.

    `samples`: of all replicas together.
    `compute_s`: time in which the busiest device calculates, or waits for its host or its data.
    `busy_s`, `exposed_s`: time in which its links are busy, and the part of it that no work hides.
    `bubble_s`: its wait for other stages of the pipeline.
    `replicas_s`: the part of the exposed time that is the wait for other replicas.
    `wall_s`: from the beginning to the end.
    `passes`: device time [s] of the passes that are known and do not wait for other devices.
    `sent_byte`: bytes that a device sends, by purpose.
    `memory_byte`: the largest memory of a device; None where it is unknown.
    `coverage`: shares of its time by time source; they sum to 1. A bubble counts as the work that it waits for.
    `excludes`: terms that are left out, though they may take time.
    `notes`: what was done differently from the request or from the usual.
    `precision`: number formats of its products, in a word.
    """

    layout: Layout
    devices: int
    replicas: int
    samples: int
    microbatches: int
    compute_s: Span
    busy_s: Span
    exposed_s: Span
    bubble_s: Span
    replicas_s: Span
    wall_s: Span
    passes: Mapping[str, Span] = field(default_factory=dict)
    sent_byte: Mapping[str, float] = field(default_factory=dict)
    memory_byte: float | None = None
    coverage: Mapping[str, float] = field(default_factory=dict)
    excludes: tuple[str, ...] = ()
    notes: Sequence[str] = ()
    precision: str = ""

    @property
    def sample_per_s(self) -> Span:
        """Samples of all replicas a second."""
        return self.wall_s.per(self.samples)

    @property
    def longest(self) -> str:
        """The longest part: calculation, communication or pipeline."""
        parts = {"calculation": self.compute_s, "communication": self.exposed_s, "pipeline": self.bubble_s}
        return max(parts, key=lambda name: parts[name].value)


def step_coverage(work: Mapping[str, float], work_s: float, waits: Mapping[str, float]) -> dict[str, float]:
    """Return the shares of a step by time source, from those of its work and its exposed waits for links [s].

    >>> step_coverage({"measured": 0.5, "roofline": 0.5}, 3.0, {"measured": 0.5, "alpha_beta": 0.5})
    {'measured': 0.5, 'roofline': 0.375, 'alpha_beta': 0.125}
    """
    whole = work_s + sum(waits.values())
    seconds = sums_by_key([*((name, share * work_s) for name, share in work.items()), *waits.items()])
    return {name: spent / whole for name, spent in seconds.items()}


def unhidden(exchange: Exchange) -> Waits:
    """Return the waits of an exchange that no work hides."""
    return Waits(exchange.time, exchange.time, {exchange.source: exchange.time.value})


def waits_for(
    sent: Iterable[Sent], times: Mapping[str, Exchange], one_s: Mapping[str, float], level: float
) -> Waits:
    """Add up collectives, each less the time of one execution of the op that hides it [s].

    >>> sum_ = Exchange(Span(3.0, 2.0, 5.0), "measured")
    >>> waits_for([Sent("all_reduce", "product")] * 2, {"all_reduce": sum_}, {"product": 2.5}, 0.8).exposed
    Span(value=1.0, low=0.0, high=5.0, level=0.8)
    """
    zero = Span.exact(0.0, level)
    found = [Waits(zero, zero)]
    for one in sent:
        exchange = times[one.collective]
        time = exchange.time
        hidden = float(one_s[one.hidden_by]) if one.hidden_by else 0.0
        value, low, high = (max(0.0, end - hidden) for end in (time.value, time.low, time.high))
        found.append(Waits(time, Span(value, low, high, level), {exchange.source: value}))
    return add_waits(found)


def pipeline_s(stage_s: Sequence[float], microbatches: int, chunks: int = 1) -> float:
    """Return the time of forward and backward of all microbatches under 1F1B [s]; ``stage_s``: of one microbatch.

    The slowest stage works except in filling and draining, which take one microbatch of each other stage, or one
    chunk of it where stages are interleaved. For equal stages this is exact: ``(m + (p - 1)/v) · t``.

    >>> pipeline_s([1.0] * 4, 8), pipeline_s([1.0] * 4, 8, 3)
    (11.0, 9.0)
    """
    slowest = max(stage_s)
    return microbatches * slowest + (sum(stage_s) - slowest) / chunks

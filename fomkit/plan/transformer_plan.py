"""A transformer priced by its sizes on a machine: each split of its ops is timed once, for all layouts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain, pairwise
from typing import NamedTuple, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fomkit.core.errors import FomkitError
from fomkit.core.interval import DEFAULT_LEVEL, Span, at_level, longest_of
from fomkit.core.job import Layout, Recompute
from fomkit.core.machine import Fact, Machine
from fomkit.core.transformer import ATTENTION, UPDATE, Transformer
from fomkit.core.units import sums_by_key
from fomkit.ops.pricing import add_costs
from fomkit.parallel import kernels, traffic, transformer
from fomkit.parallel.step import waits_for
from fomkit.parallel.traffic import Sent, Waits, add_waits
from fomkit.plan.coverage import Uses, check_covered, host_source, uses_of
from fomkit.plan.memory import SHORT_BYTE
from fomkit.plan.options import HOST_OP_S
from fomkit.plan.step import Ops, device_spans, ops_in, ops_of, started_by, with_waits
from fomkit.prediction.cascade import add_times
from fomkit.prediction.exchange import Exchange, Network
from fomkit.prediction.links import Collective
from fomkit.prediction.rates import rates, value_of
from fomkit.profiles.evidence import with_fits

Array = NDArray[np.float64]

ATTENTION_SPREAD = (0.92, 1.10)
"""Low and high of the time of attention at a stated peak fraction, relative to its value: deciles of published
over projected step times, with one model size left out at a time (docs/parallel.md)."""
WORDS, HEAD = "words", "head"
"""The work outside all blocks: the first stage has the words, the last one the head."""


class Pass(NamedTuple):
    """Time of one block [s]: forward, and backward with its recomputation."""

    forward_s: float
    backward_s: float


@dataclass(frozen=True, eq=False)
class Stage:
    """One stage's work on one microbatch.

    `parts`: its ops, and how often each runs; `work_s`: their time, including waits for the host [s].
    `waits`: for its tensor group and for experts.
    """

    parts: Parts
    work_s: Span
    waits: Waits


class Busy(NamedTuple):
    """What a device executes in a step.

    `work_s`: its time, including waits for its host [s]; `late_s`: the waits alone, of the value.
    """

    work_s: Span
    late_s: float
    by_source: Mapping[str, float]


def _stated_attention(timed: pd.DataFrame, machine: Machine, fraction: float, level: float) -> pd.DataFrame:
    """Time the fused attention of a program from a stated fraction of the peak.

    A causal kernel does half of the square forward; backward it does five products of that half, where an op table
    counts four of the whole (Dao, arXiv:2307.08691, section 4.1).
    """
    timed = timed.copy()
    for (dtype, engine), own in timed[timed["kind"].eq("attention")].groupby(["dtype", "engine"], observed=True):
        peak = rates(machine, str(dtype), str(engine)).flop_per_s
        if peak is None:
            raise FomkitError(machine.name, f"states no peak of {dtype} on its {engine} engine. Add it.")
        share = own["pass_name"].eq("forward").map({True: 0.5, False: 0.625})
        time_s = own["flop"] * share / (fraction * value_of(peak))
        spread = at_level(Span(1.0, *ATTENTION_SPREAD, DEFAULT_LEVEL), level)
        low, high = time_s * spread.low, time_s * spread.high
        stated = {
            "time_source": "assumed",
            "bound": "compute",
            "evidence": f"{fraction:.0%} of the peak, as stated",
        }
        timed.loc[own.index, ["time_s", "low_s", "high_s"]] = np.stack([time_s, low, high], 1)
        timed.loc[own.index, list(stated)] = list(stated.values())
    return timed


@dataclass(frozen=True, eq=False)
class Work:
    """Timed ops of one device, each run as often as its ``count``, which is 1 or a share of the blocks."""

    table: pd.DataFrame

    @cached_property
    def ops(self) -> Ops:
        """Times of one execution as one variant."""
        return ops_of(self.table.assign(count=1.0))  # `runs` counts them

    @cached_property
    def stated(self) -> NDArray[np.bool_]:
        """Mask of attention ops that are timed by a stated fraction of the peak."""
        return (self.table["kind"].eq("attention") & self.table["time_source"].eq("assumed")).to_numpy()

    @cached_property
    def pass_names(self) -> tuple[str, ...]:
        """The pass of each op."""
        return tuple(self.table["pass_name"])

    @cached_property
    def one_s(self) -> Mapping[str, float]:
        """Time of one execution of each op [s]."""
        return dict(zip(self.table["op"].tolist(), self.table["time_s"].tolist(), strict=True))

    @cached_property
    def launches(self) -> Array:
        """Kernels that the host starts for one execution of each op."""
        return self.table["launches"].to_numpy(np.float64)

    @cached_property
    def forward(self) -> NDArray[np.bool_]:
        """Mask of the ops in the forward pass."""
        return self.table["pass_name"].eq("forward").to_numpy(bool)

    @cached_property
    def _runs(self) -> Mapping[Recompute, Array]:
        """How often each op runs, by what is recomputed for the backward pass."""
        count, core = self.table["count"].to_numpy(np.float64), self.table["module"].str.endswith(ATTENTION)
        again = count * self.forward
        return {"none": count, "selective": count + again * core.to_numpy(bool), "full": count + again}

    @cached_property
    def _sources(self) -> list[str]:
        return [str(source) for source in self.table["time_source"]]

    def runs(self, recompute: Recompute) -> Array:
        """Return how often each op runs, including recomputation for the backward pass."""
        return self._runs[recompute]

    def passes(self, recompute: Recompute, host_op_s: float) -> Pass:
        """Return the times of both passes [s], each at least the time of the host to start its ops."""
        seconds, runs, once = self.ops.seconds[0, :, 0], self.runs(recompute), self.runs("none")
        forward, ahead = float((seconds * once)[self.forward].sum()), float(once[self.forward].sum())
        backward, back = float((seconds * runs).sum()) - forward, float(runs.sum()) - ahead
        return Pass(max(forward, ahead * host_op_s), max(backward, back * host_op_s))

    def by_source(self, runs: Array) -> dict[str, float]:
        """Add up time by time source [s]."""
        return sums_by_key(zip(self._sources, (self.ops.seconds[0, :, 0] * runs).tolist(), strict=True))


class Pieces(NamedTuple):
    """One microbatch as one device of a tensor group runs it: a block of each kind, the words, the head."""

    blocks: tuple[Work, ...]
    words: Work
    head: Work

    def end(self, name: str) -> Work:
        """Return the words or the head."""
        return self.words if name == WORDS else self.head


def _joined(parts: Sequence[tuple[Work, Array]]) -> Ops:
    """Join ops, each with its number of runs, as one variant.

    Equal ops of several parts have one error. So have attention ops timed by a stated fraction of the peak.
    """
    kinds, passes = (tuple(chain.from_iterable(words)) for words in zip(
        *((work.ops.kinds, work.pass_names) for work, _ in parts), strict=True))  # fmt: skip
    once = np.concatenate([work.ops.seconds for work, _ in parts], 1)
    sources = np.concatenate([work.ops.sources for work, _ in parts])
    found = ops_in(kinds, passes, sources, once, once * np.concatenate([runs for _, runs in parts])[:, None])
    stated = np.concatenate([work.stated for work, _ in parts])
    return found._replace(same=np.where(stated[:, None], found.same[stated].min(initial=len(kinds)), found.same))


Parts = Mapping[str, tuple[Work, Array]]
"""The work of each part of a step, and how often each of its ops runs."""
Blocks = tuple[int, ...]
"""The number of blocks of each kind (`Transformer.kinds`) in a stage."""
Key = TypeVar("Key")
Found = TypeVar("Found")


def _cached(known: dict[Key, Found], key: Key, make: Callable[[], Found]) -> Found:
    if key not in known:
        known[key] = make()
    return known[key]


@dataclass(frozen=True)
class TransformerPlan:
    """The timed parts that layouts of a transformer on one machine share, for any number of blocks.

    `dtype`: of products and activations; `low`: of blocks' linear layers, "" = the same; `where`: for messages.
    """

    shape: Transformer
    network: Network
    dtype: str
    where: str
    low: str = ""
    _pieces: dict[tuple[kernels.Split, float | None], Pieces] = field(default_factory=dict, repr=False)
    _stages: dict[tuple[object, ...], Stage] = field(default_factory=dict, repr=False)
    _updates: dict[tuple[float, float, float, bool], Work] = field(default_factory=dict, repr=False)
    _steps: dict[tuple[Stage, int, Work, str, str], Busy] = field(default_factory=dict, repr=False)

    @cached_property
    def machine(self) -> Machine:
        """The machine, with fits."""
        return with_fits(self.network.machine)

    @cached_property
    def host_op_s(self) -> Fact:
        """Host time to start an op, by default where the machine states none."""
        return self.machine.host_op_s or HOST_OP_S

    @cached_property
    def _uses(self) -> Uses:
        return uses_of(self.machine)

    def _timed(self, rows: list[kernels.Row]) -> pd.DataFrame:
        costed = add_costs(kernels.as_table(rows))
        timed = add_times(costed, self.machine, interval=self.network.level, checked=True, in_sums=True)
        check_covered(timed, (), self.where)
        return timed

    def _split(self, layout: Layout, samples: float) -> kernels.Split:
        return kernels.Split(
            samples, layout.tensor, layout.sequence, self.dtype, layout.expert, self.low, layout.context,
            layout.whole_experts,
        )  # fmt: skip

    def pieces(self, layout: Layout, samples: float) -> Pieces:
        """Time a block, the words and the head for a microbatch of `samples` samples."""
        split, fraction = self._split(layout, samples), layout.attention_peak_fraction

        def timed() -> Pieces:
            rows = transformer.training_rows(self.shape, split)
            timed, ends = self._timed([row for own in rows for row in own]), np.cumsum([0, *map(len, rows)])
            *blocks, words, head = (Work(timed.iloc[first:last]) for first, last in pairwise(ends.tolist()))
            return Pieces(tuple(blocks), words, head)

        def stated(plain: Pieces, fraction: float) -> Pieces:
            blocks = (_stated_attention(one.table, self.machine, fraction, self.network.level)
                      for one in plain.blocks)  # fmt: skip
            return plain._replace(blocks=tuple(map(Work, blocks)))

        plain = _cached(self._pieces, (split, None), timed)
        if fraction is None:
            return plain
        return _cached(self._pieces, (split, fraction), lambda: stated(plain, fraction))

    def busy(self, parts: Parts, launch: str, work: str = "") -> Busy:
        """Return what a device executes: some ops with the waits for their host.

        Each part waits by itself (`Started`). A collective after an op is as late as the op, so that no wait hides
        communication. `work`: its name, of which boards of one chip have errors in common.
        """
        ops = _joined([*parts.values()])
        formats = sorted({dtype for one, _ in parts.values() for dtype in one.table["dtype"]} if work else ())
        work, every = work and f"{work}, {' '.join(formats)}", np.ones((1, len(ops.kinds)), bool)
        (own_s,) = device_spans(ops, every, self.machine, self.network.level, self._uses, work)
        spent = sums_by_key(one for work, runs in parts.values() for one in work.by_source(runs).items())
        if launch == "graphs":
            return Busy(own_s, 0.0, spent)
        units = [name for name, (work, _) in parts.items() for _ in work.launches]
        launches = np.concatenate([work.launches for work, _ in parts.values()])
        runs = np.concatenate([many for _, many in parts.values()])
        started = started_by(units, launches, runs, ops.seconds[0, :, 0])
        hosted = replace(self.machine, host_op_s=self.host_op_s)
        _, paced_s = with_waits(started, hosted, own_s)
        work_s = own_s if paced_s is None else longest_of([own_s, paced_s])
        late_s = work_s.value - own_s.value
        if late_s > 0:
            source = host_source(hosted)
            spent[source] = spent.get(source, 0.0) + late_s
        return Busy(work_s, late_s, spent)

    def step(self, stage: Stage, count: int, update: Work, launch: str, work: str) -> Busy:
        """Return what a device executes in a step of `count` microbatches of a stage, and its update."""
        parts = {name: (own, runs * count) for name, (own, runs) in stage.parts.items()}
        parts[UPDATE] = update, update.runs("none")
        return _cached(self._steps, (stage, count, update, launch, work), lambda: self.busy(parts, launch, work))

    def stage(self, layout: Layout, samples: float, blocks: Blocks, ends: tuple[str, ...]) -> Stage:
        """Time the blocks of a stage, with the words, the head or both."""
        key = (self._split(layout, samples), layout.attention_peak_fraction, layout.recompute, layout.launch,
               layout.tensor_overlap, layout.expert_overlap, blocks, ends)  # fmt: skip
        return _cached(self._stages, key, lambda: self._time_stage(layout, samples, blocks, ends))

    def _time_stage(self, layout: Layout, samples: float, blocks: Blocks, ends: tuple[str, ...]) -> Stage:
        pieces, level = self.pieces(layout, samples), self.network.level
        times = self.collectives(layout, samples)
        parts: dict[str, tuple[Work, Array]] = {}
        waits: list[Waits] = []
        for place, (many, (_, of), block) in enumerate(zip(blocks, self.shape.kinds, pieces.blocks, strict=True)):
            if not many:
                continue
            runs, sent = block.runs(layout.recompute), self.block_sent(layout, of)
            # Another microbatch's block of this kind runs meanwhile: each exchange has an equal part of it.
            away = [one.collective for one in sent].count("all_to_all")
            beside = {traffic.BESIDE: float(block.ops.seconds[0, :, 0] @ runs) / max(away, 1)}
            parts[f"block {place}"] = block, runs * many
            waits.append(waits_for(sent, times, {**block.one_s, **beside}, level).scaled(many))
            if layout.context > 1:
                waits.append(self._context_waits(layout, samples, block).scaled(many))
        for name in ends:
            work, region = pieces.end(name), [traffic.WORDS if name == WORDS else traffic.HEAD]
            parts[name] = work, work.runs("none")
            sent = [one for going in (traffic.forward_sent, traffic.backward_sent)
                    for one in going(region, sequence=layout.sequence)]  # fmt: skip
            waits.append(waits_for(sent, times, work.one_s, level))
        return Stage(parts, self.busy(parts, layout.launch).work_s, add_waits(waits))

    def _context_waits(self, layout: Layout, samples: float, block: Work) -> Waits:
        """Return a block's waits for keys and values of its context group, and backward for their gradients.

        They go round from device to device while attention computes (Liu et al., "Ring Attention", arXiv
        2310.01889): only what takes longer than attention is exposed.
        """
        byte, group = self.keys_byte(layout, samples), self.network.group(layout.context, layout.tensor)
        times: dict[str, Exchange] = {one: self.network.exchange(one, byte, group) for one in traffic.COLLECTIVES}
        own = block.table[block.table["kind"].eq("attention")]
        one_s = (own["time_s"] * own["count"]).groupby(own["pass_name"].astype(str)).sum()
        hiding = {"forward": one_s["forward"], "half of backward": one_s["backward"] / 2}
        return waits_for(traffic.context_sent(again=layout.recompute != "none"), times, hiding, self.network.level)

    def stage_ops(self, layout: Layout, samples: float, blocks: Blocks, ends: tuple[str, ...]) -> pd.DataFrame:
        """Return the timed ops of a stage, and how often each runs in one microbatch."""
        pieces = self.pieces(layout, samples)
        own = [one.table.assign(count=one.runs(layout.recompute) * many)
               for many, one in zip(blocks, pieces.blocks, strict=True) if many]  # fmt: skip
        return pd.concat([*own, *(pieces.end(name).table for name in ends)], ignore_index=True)

    def update(self, parameters: float, tensors: float, *, of_blocks: float, clip: bool) -> Work:
        """Time the update of `parameters` parameters.

        `of_blocks`: parameters of blocks, whose linear layers alone are in a low format.
        """
        make = partial(kernels.update_rows, parameters, tensors, clip=clip, low=self.low, of_low=of_blocks)
        return _cached(self._updates, (parameters, tensors, of_blocks, clip), lambda: Work(self._timed(make())))

    def block_sent(self, layout: Layout, shape: Transformer) -> list[Sent]:
        """List the collectives of a device in one block of a microbatch, a block of the kind of ``shape``."""
        how = {"sequence": layout.sequence, "overlap": layout.tensor_overlap}
        regions = [traffic.FEED] * (not (layout.whole_experts and shape.experts))
        regions.append(traffic.ATTENTION if shape.latent is None else traffic.LATENT)
        experts = traffic.experts_sent(beside=layout.expert_overlap) if shape.experts else []
        going = [*traffic.forward_sent(regions, **how), *experts]
        going *= 2 if layout.recompute == "full" else 1
        back = traffic.backward_sent(regions, **how, experts=bool(experts))
        return [*going, *back, *experts]

    def stream_byte(self, samples: float) -> float:
        """Return the bytes of the stream between blocks."""
        return SHORT_BYTE * self.shape.seq * samples * self.shape.hidden

    def keys_byte(self, layout: Layout, samples: float) -> float:
        """Return the bytes of keys and values of whole sequences that a context group sends round at once."""
        shape, whole = self.shape, samples * layout.context / layout.tensor
        return 2 * SHORT_BYTE * shape.seq * whole * shape.kv_heads * shape.head_dim

    def places_byte(self, layout: Layout, samples: float) -> float:
        """Return the bytes of all expert slots for tokens that a device sends at once."""
        return SHORT_BYTE * self._split(layout, samples).slots(self.shape) * self.shape.hidden

    def collectives(self, layout: Layout, samples: float) -> dict[str, Exchange]:
        """Return the time of each collective of the stream."""
        byte, group = self.stream_byte(samples), self.network.group(layout.tensor)
        names: tuple[Collective, ...] = ("all_reduce", "all_gather", "reduce_scatter")
        found: dict[str, Exchange] = {name: self.network.exchange(name, byte, group) for name in names}
        if self.shape.experts:
            sharing = self.network.group(layout.expert, layout.expert_tensor)
            found["all_to_all"] = self.network.exchange("all_to_all", self.places_byte(layout, samples), sharing)
        return found

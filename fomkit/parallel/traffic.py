"""The traffic between devices in a parallel step, and how much of it overlaps with work.

In a block: Shoeybi et al., arXiv 1909.08053, section 3; Korthikanti et al., arXiv 2205.05198, section 4.2: a sum
after each half of a block, or with sequence parallelism a gather before and a scatter after it. In the backward
pass, the sum of an input's gradient overlaps with the product for the weight's gradient (ibid., as remembered),
and the gather of inputs that were not kept with the product for the input's gradient.

Between replicas: Rajbhandari et al., SC 2020, section 7: stages 1 and 2 of zero send as much as an all_reduce,
stage 3 half as much again. Sharded gradients (and parameters) are sent for every microbatch, block by block, as in
FSDP (Zhao et al., "PyTorch FSDP", VLDB 2023, section 3): a unit is a block, the root unit is the words and all
else outside blocks, and each unit is gathered while the unit before it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fomkit.core.interval import Span, add_common
from fomkit.core.job import Layout
from fomkit.core.units import sums_by_key
from fomkit.prediction.exchange import Exchange, Network
from fomkit.prediction.links import Collective, Group, bus_factor, weakest


class Sent(NamedTuple):
    """A collective of the stream of a block, and the op that hides it; "" where none does."""

    collective: Collective
    hidden_by: str


ENDS = ("value", "low", "high")
"""The ends of a time's interval; a step is simulated once at each."""
BESIDE = "another microbatch"
"""What hides an exchange with experts while it runs: a part of another microbatch's block."""


class Region(NamedTuple):
    """Work that a tensor group shares: the products at its beginning and its end, "" where nothing is sent."""

    first: str
    last: str


ATTENTION = Region("queries, keys, values", "projection")
LATENT = Region("keys and values down", "projection")
"""Attention with compressed keys and values; what is sent counts as the whole stream, as without compression."""
FEED = Region("feed-forward in", "feed-forward out")
WORDS, HEAD = Region("", "words"), Region("output", "")
"""The words are split; so is the output, whose sums of the loss (a number a token) are left out."""


def forward_sent(regions: Sequence[Region], *, sequence: bool, overlap: bool = False) -> list[Sent]:
    """List the collectives of some regions going forward; with ``overlap`` the adjacent products hide them."""
    lasts = [one.last for one in regions if one.last]
    if not sequence:
        return [Sent("all_reduce", "") for _ in lasts]
    gathers = [Sent("all_gather", one.first if overlap else "") for one in regions if one.first]
    return [*gathers, *(Sent("reduce_scatter", last if overlap else "") for last in lasts)]


def backward_sent(
    regions: Sequence[Region], *, sequence: bool, overlap: bool = False, experts: bool = False
) -> list[Sent]:
    """List the collectives of some regions going backward.

    `experts`: of which a tensor group has parts; they return the input's gradient, and its sum is not hidden.
    """
    firsts = [one for one in regions if one.first]
    beside = ["" if experts and one is FEED else f"{one.first}, by weight" for one in firsts]
    if not sequence:
        return [Sent("all_reduce", work) for work in beside]
    gathered = [Sent("all_gather", f"{one.last}, by input" if overlap else "") for one in regions if one.last]
    again = [Sent("all_gather", f"{one.first}, by input") for one in firsts]
    return [*gathered, *again, *(Sent("reduce_scatter", work) for work in beside)]


def experts_sent(*, beside: bool) -> list[Sent]:
    """List the collectives of a block and its experts in one pass: to the replicas that share them, and back.

    `beside`: they overlap with another microbatch's block (DeepSeek-V3, arXiv 2412.19437, section 3.2.1).
    """
    return [Sent("all_to_all", BESIDE if beside else "")] * 2


def context_sent(*, again: bool) -> list[Sent]:
    """List the rounds of keys and values of a block in both passes; ``again``: attention is recomputed.

    Backward they go round once more, and so do their gradients, each during one half of attention.
    """
    back = [Sent(name, "half of backward") for name in COLLECTIVES]
    return [*[Sent("all_gather", "forward")] * (1 + again), *back]


class Bucket(NamedTuple):
    """Gradients sent together: their bytes, and when the last is ready, from the start of the backward pass.

    ``group``: the devices that add them up; None is all replicas.
    """

    byte: float
    ready_s: float
    group: Group | None = None


class Waited(NamedTuple):
    """How long the link is busy, and how much of it no work hides [s]."""

    busy_s: float
    exposed_s: float


def buckets_of(
    order: pd.DataFrame, row_s: NDArray[np.float64], backward: NDArray[np.bool_], bucket_byte: float
) -> list[Bucket]:
    """Fill buckets with the gradients of a step in the order in which its backward pass makes them.

    `order`: an ORDER table whose sizes are numbers; `row_s` (rows of the op table,): time of one execution of an
    op [s], NaN is 0; `backward`: mask of the backward pass; `bucket_byte`: size at which a bucket is sent.
    """
    ids, rows = order["id"].to_numpy(int), order["row"].to_numpy(np.float64)
    first = np.unique(ids, return_index=True)[1]
    has_row = ~np.isnan(rows[first])
    at = np.where(has_row, rows[first], 0).astype(int)
    spent = np.where(has_row & backward[at], np.nan_to_num(row_s)[at], 0.0)
    done = np.zeros(int(ids.max()) + 1)
    done[ids[first]] = spent
    done = done.cumsum()
    made = order[order["role"] == "gradient"].sort_values("id", kind="stable")
    found: list[Bucket] = []
    held = 0.0
    ready = 0.0
    for one, byte in zip(made["id"].to_numpy(int), made["output_byte"].to_numpy(np.float64), strict=True):
        held, ready = held + float(byte), float(done[one])
        if held >= bucket_byte:
            found.append(Bucket(held, ready))
            held = 0.0
    return [*found, Bucket(held, ready)] if held else found


def overlapped(buckets: Sequence[Bucket], taken: Callable[[Bucket], float], backward_s: float) -> Waited:
    """Send buckets one after the other, each once it is full, while the backward pass goes on.

    >>> overlapped([Bucket(1.0, 1.0), Bucket(1.0, 4.0)], lambda one: 2.0 * one.byte, 4.0)
    Waited(busy_s=4.0, exposed_s=2.0)
    """
    free_s = busy_s = 0.0
    for bucket in buckets:
        seconds = taken(bucket)
        free_s = max(free_s, bucket.ready_s) + seconds
        busy_s += seconds
    return Waited(busy_s, min(busy_s, max(0.0, free_s - backward_s)))


@dataclass(frozen=True)
class Waits:
    """Busy and exposed time of a device's links [s]; ``sources``: the exposed time by time source.

    `sent_byte`: bytes that the device sends to other stages or to its replicas.
    """

    busy: Span
    exposed: Span
    sources: Mapping[str, float] = field(default_factory=dict)
    sent_byte: float = 0.0

    def scaled(self, times: float) -> Waits:
        """Return the waits repeated `times` times."""
        sources = {name: seconds * times for name, seconds in self.sources.items()}
        return Waits(self.busy.scaled(times), self.exposed.scaled(times), sources, self.sent_byte * times)


def add_waits(parts: Iterable[Waits]) -> Waits:
    """Add up waits one after the other; the errors of links are common."""
    found = list(parts)
    sources = sums_by_key(one for part in found for one in part.sources.items())
    busy, exposed = (add_common([getattr(one, name) for one in found]) for name in ("busy", "exposed"))
    return Waits(busy, exposed, sources, sum(one.sent_byte for one in found))


def _simulated(
    at: Callable[[str], Waited], exchanges: Iterable[Exchange], level: float, sent_byte: float
) -> Waits:
    """Return waits that are simulated at each of the `ENDS`; their source is the weakest of the ``exchanges``."""
    ends = zip(*map(at, ENDS), strict=True)
    busy, exposed = (Span(value, low, high, level) for value, low, high in ends)
    return Waits(busy, exposed, {weakest(one.source for one in exchanges): exposed.value}, sent_byte)


def _sum_kind(layout: Layout) -> Collective:
    return "reduce_scatter" if layout.zero else "all_reduce"


def waited(
    layout: Layout, network: Network, group: Group, buckets: Sequence[Bucket], passes: tuple[float, float],
    parameter_share: float, end: str,
) -> Waited:  # fmt: skip
    """Simulate a step with all collectives at one end of their intervals; see `replica_traffic`."""
    forward_s, backward_s = passes

    @cache  # most blocks are equal
    def sum_of(byte: float, among: Group) -> float:
        found = network.collective(_sum_kind(layout), byte, among, layout.algorithm, layout.servers)
        return float(getattr(found, end))

    @cache
    def gather_of(byte: float, among: Group) -> float:
        return float(getattr(network.collective("all_gather", byte, among, layout.algorithm), end))

    def sum_s(bucket: Bucket, share: float) -> float:
        return sum_of(bucket.byte * share, bucket.group or group)

    def gather_s(bucket: Bucket) -> float:
        return gather_of(bucket.byte * parameter_share, bucket.group or group)

    def taken(bucket: Bucket) -> float:
        seconds = sum_s(bucket, layout.compression)
        if layout.algorithm == "parameter_server":  # half of it returns parameters, uncompressed
            return (seconds + sum_s(bucket, 1.0)) / 2
        return seconds + gather_s(bucket) if layout.zero == 3 else seconds

    placed = buckets if layout.overlap else [bucket._replace(ready_s=backward_s) for bucket in buckets]
    waited = overlapped(placed, taken, backward_s)
    if layout.staleness:
        hidden = forward_s + backward_s
        return Waited(waited.busy_s, max(0.0, waited.busy_s - hidden))
    if not layout.zero:
        return waited
    gathers = [gather_s(bucket) for bucket in buckets]
    busy_s = sum(gathers)
    if layout.zero < 3 or not layout.overlap:
        return Waited(waited.busy_s + busy_s, waited.exposed_s + busy_s)
    # Parameters of the next layer are gathered while a layer runs; the first gather is not hidden.
    shown = max(gathers[-1] if gathers else 0.0, busy_s - forward_s)
    return Waited(waited.busy_s + busy_s, waited.exposed_s + min(shown, busy_s))


def _sent_byte(layout: Layout, bucket: Bucket, group: Group, parameter_share: float) -> float:
    factor = bus_factor("reduce_scatter", group.ranks)
    sums = (1 if layout.zero else 2) * layout.compression
    gathers = layout.gathers * parameter_share
    return factor * bucket.byte * (sums + gathers)


def replica_traffic(
    layout: Layout, network: Network, group: Group, buckets: Sequence[Bucket], passes: tuple[float, float],
    parameter_share: float = 1.0,
) -> Waits:  # fmt: skip
    """Return the waits for the traffic of one step between replicas.

    `group`: the replicas; `buckets`: gradients in the order of the backward pass; those with a group of their own
    are added up there; `passes`: forward and backward time of the last microbatch, which hide communication [s];
    `parameter_share`: bytes of a gathered parameter over bytes of its gradient.
    """
    if group.ranks == 1:
        nothing = Span.exact(0.0, network.level)
        return Waits(nothing, nothing, {"measured": 0.0})
    if layout.algorithm == "parameter_server":
        sent = sum(bucket.byte for bucket in buckets) * layout.compression
    else:
        sent = sum(_sent_byte(layout, bucket, bucket.group or group, parameter_share) for bucket in buckets)
    names: tuple[Collective, ...] = (_sum_kind(layout), "all_gather") if layout.zero else (_sum_kind(layout),)
    each = {(bucket.byte * layout.compression, bucket.group or group) for bucket in buckets}
    exchanges = (network.exchange(name, *one, layout.algorithm, layout.servers) for name in names for one in each)
    simulate = partial(waited, layout, network, group, buckets, passes, parameter_share)
    return _simulated(simulate, exchanges, network.level, sent)


COLLECTIVES: tuple[Collective, ...] = ("all_gather", "reduce_scatter")


class Piece(NamedTuple):
    """Parameters that are gathered and scattered together, and the devices that share them."""

    parameters: float
    group: Group


class Unit(NamedTuple):
    """A block, or the parameters outside all blocks; experts have a group of their own."""

    pieces: tuple[Piece, ...]

    def sent_byte(self, gathers: float, gather_byte: float, scatter_byte: float) -> float:
        """Return the bytes that a device sends in `gathers` gathers and one scatter."""
        return sum(
            bus_factor("all_gather", piece.group.ranks) * piece.parameters * (gathers * gather_byte + scatter_byte)
            for piece in self.pieces
        )


class Sharding(NamedTuple):
    """The sharded units, and the passes of one block [s] of a microbatch, which hide their communication.

    `gather_byte`, `scatter_byte`: of a gathered parameter, and of a scattered gradient.
    `backward_s`: with recomputation.
    """

    block: Unit
    root: Unit
    blocks: int
    gather_byte: float
    scatter_byte: float
    forward_s: float
    backward_s: float


def _exchanges(unit: Unit, layout: Layout, network: Network, byte: tuple[float, float]) -> list[list[Exchange]]:
    """Return the gathers and the scatters of a unit's pieces."""
    gather, scatter = byte
    return [
        [network.exchange(name, size * piece.parameters, piece.group, layout.algorithm) for piece in unit.pieces]
        for name, size in zip(COLLECTIVES, (gather, scatter), strict=True)
    ]


def _microbatch(
    layout: Layout, of: Sharding, block: Sequence[float], root: Sequence[float], *, scatters: bool
) -> Waited:
    """Simulate one microbatch by times to gather and to scatter [s]; else gradients stay whole until the last."""
    (gather, scatter), (first, last), inner = block, root, of.blocks - 1
    if not scatters:
        scatter = last = 0.0
    busy = first + of.blocks * layout.gathers * gather + of.blocks * scatter + last
    if not layout.overlap:
        return Waited(busy, busy)
    exposed = first + gather + inner * max(0.0, gather - of.forward_s) + scatter + last
    if layout.zero < 3:
        return Waited(busy, exposed + inner * max(0.0, scatter - of.backward_s))
    if layout.prefetch == "pre":
        each = max(0.0, gather + scatter - of.backward_s)
    else:
        each = max(0.0, scatter - of.backward_s) + gather
    return Waited(busy, exposed + gather + inner * each)


def sharded_wait(layout: Layout, network: Network, of: Sharding, microbatches: int, end: str) -> Waited:
    """Return busy and exposed time of links in a step [s], with collectives at one end of their intervals."""
    byte = (of.gather_byte, of.scatter_byte * layout.compression)
    block, root = (
        [sum(float(getattr(one.time, end)) for one in found) for found in _exchanges(unit, layout, network, byte)]
        for unit in (of.block, of.root)
    )
    each = layout.scatter == "each"
    before = _microbatch(layout, of, block, root, scatters=each)
    last = _microbatch(layout, of, block, root, scatters=True)
    return Waited(*((microbatches - 1) * one + other for one, other in zip(before, last, strict=True)))


def sharded_traffic(layout: Layout, network: Network, of: Sharding, microbatches: int) -> Waits:
    """Return the waits for replicas that shard gradients, and with zero 3 parameters, in one step."""
    byte = (of.gather_byte, of.scatter_byte * layout.compression)
    found = [_exchanges(unit, layout, network, byte) for unit in (of.block, of.root)]
    scatters = microbatches if layout.scatter == "each" else 1
    gathers = microbatches * layout.gathers
    sent = of.blocks * of.block.sent_byte(gathers, of.gather_byte, scatters * byte[1])
    sent += of.root.sent_byte(microbatches, of.gather_byte, scatters * byte[1])
    exchanges = (one for unit in found for some in unit for one in some)
    return _simulated(partial(sharded_wait, layout, network, of, microbatches), exchanges, network.level, sent)

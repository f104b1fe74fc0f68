"""What replicas of a model send each other in a step: sums of gradients, and what zero scatters and gathers.

Rajbhandari et al., SC 2020, section 7: stages 1 and 2 send as much as an all_reduce, stage 3 half as much again.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from fomkit.network import Group, Network
from fomkit.network.collectives import Collective, bus_factor
from fomkit.parallel.layout import Layout
from fomkit.parallel.overlap import Bucket, Waited, overlapped
from fomkit.spans import Span


class Traffic(NamedTuple):
    """What replicas keep a device's link busy with and what nothing hides [s], the bytes it sends, the source."""

    busy_s: Span
    exposed_s: Span
    sent_byte: float
    source: str = "measured"


def _ends(network: Network, waited: Sequence[Waited]) -> tuple[Span, Span]:
    value, low, high = waited
    level = network.level
    return (
        Span(value.busy_s, low.busy_s, high.busy_s, level),
        Span(value.exposed_s, low.exposed_s, high.exposed_s, level),
    )


def _parameters_s(layout: Layout, network: Network, group: Group, byte: float) -> Span:
    return network.collective("all_gather", byte, group, layout.algorithm)


def _first(layout: Layout) -> Collective:
    return "reduce_scatter" if layout.zero else "all_reduce"


def waited(
    layout: Layout, network: Network, group: Group, buckets: Sequence[Bucket], passes: tuple[float, float],
    parameter_share: float, end: str,
) -> Waited:  # fmt: skip
    """Play a step with all collectives at one end of their intervals; see `replica_traffic`."""
    forward_s, backward_s = passes

    @cache  # blocks are alike
    def sum_of(byte: float, among: Group) -> float:
        found = network.collective(_first(layout), byte, among, layout.algorithm, layout.servers)
        return float(getattr(found, end))

    @cache
    def gather_of(byte: float, among: Group) -> float:
        return float(getattr(_parameters_s(layout, network, among, byte), end))

    def sum_s(one: Bucket, share: float) -> float:
        return sum_of(one.byte * share, one.group or group)

    def gather_s(one: Bucket) -> float:
        return gather_of(one.byte * parameter_share, one.group or group)

    def taken(one: Bucket) -> float:
        seconds = sum_s(one, layout.compression)
        if layout.algorithm == "parameter_server":  # half of it brings parameters back, which nothing compresses
            return (seconds + sum_s(one, 1.0)) / 2
        return seconds + gather_s(one) if layout.zero == 3 else seconds

    placed = buckets if layout.overlap else [one._replace(ready_s=backward_s) for one in buckets]
    waited = overlapped(placed, taken, backward_s)
    if layout.staleness:
        hidden = forward_s + backward_s
        return Waited(waited.busy_s, max(0.0, waited.busy_s - hidden))
    if not layout.zero:
        return waited
    gathers = [gather_s(one) for one in buckets]
    busy_s = sum(gathers)
    if layout.zero < 3 or not layout.overlap:
        return Waited(waited.busy_s + busy_s, waited.exposed_s + busy_s)
    # The next parameters are gathered while a layer runs; the first ones nothing hides.
    shown = max(gathers[-1] if gathers else 0.0, busy_s - forward_s)
    return Waited(waited.busy_s + busy_s, waited.exposed_s + min(shown, busy_s))


def _sent_byte(layout: Layout, one: Bucket, group: Group, parameter_share: float) -> float:
    """Give the bytes that a device sends for a bucket in a step."""
    factor = bus_factor("reduce_scatter", group.ranks)
    sums = (1 if layout.zero else 2) * layout.compression
    gathers = {0: 0, 1: 1, 2: 1, 3: 2}[layout.zero] * parameter_share
    return factor * one.byte * (sums + gathers)


def _source(layout: Layout, network: Network, group: Group, buckets: Sequence[Bucket]) -> str:
    """Give the time source of sums and gathers: measured where all of them are."""
    asked = {(one.byte * layout.compression, one.group or group) for one in buckets}
    names: tuple[Collective, ...] = (_first(layout), "all_gather") if layout.zero else (_first(layout),)
    sources = {network.exchange(name, *one, layout.algorithm, layout.servers).source for name in names
               for one in asked}  # fmt: skip
    return "measured" if sources <= {"measured"} else "alpha_beta"


def replica_traffic(
    layout: Layout, network: Network, group: Group, buckets: Sequence[Bucket], passes: tuple[float, float],
    parameter_share: float = 1.0,
) -> Traffic:  # fmt: skip
    """Give the traffic of one step between replicas.

    Parameters
    ----------
    layout : Layout
    network : Network
    group : Group
        The replicas.
    buckets : sequence of Bucket
        Gradients in the order of the backward pass; those with a group of their own are added up there.
    passes : tuple
        Forward and backward time of the last microbatch [s]: what hides communication.
    parameter_share : float
        Bytes of a parameter as it is gathered over bytes of its gradient.
    """
    if group.ranks == 1:
        nothing = Span.exact(0.0, network.level)
        return Traffic(nothing, nothing, 0.0)
    ends = ("value", "low", "high")
    busy, exposed = _ends(
        network,
        [waited(layout, network, group, buckets, passes, parameter_share, end) for end in ends],
    )
    source = _source(layout, network, group, buckets)
    if layout.algorithm == "parameter_server":
        return Traffic(busy, exposed, sum(one.byte for one in buckets) * layout.compression, source)
    sent = sum(_sent_byte(layout, one, one.group or group, parameter_share) for one in buckets)
    return Traffic(busy, exposed, sent, source)

"""What replicas of a model send each other in a step: sums of gradients, and what zero scatters and gathers.

Rajbhandari et al., SC 2020, section 7: stages 1 and 2 send as much as an all_reduce, stage 3 half as much again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fomkit.parallel.collectives import bus_factor
from fomkit.parallel.layout import Layout
from fomkit.parallel.network import Group, Network
from fomkit.parallel.overlap import Bucket, Waited, overlapped
from fomkit.spans import Span


class Traffic(NamedTuple):
    """What replicas keep a device's link busy with, what nothing hides of it [s], and the bytes it sends."""

    busy_s: Span
    exposed_s: Span
    sent_byte: float


def _ends(network: Network, waited: Sequence[Waited]) -> tuple[Span, Span]:
    value, low, high = waited
    level = network.level
    return (
        Span(value.busy_s, low.busy_s, high.busy_s, level),
        Span(value.exposed_s, low.exposed_s, high.exposed_s, level),
    )


def _parameters_s(layout: Layout, network: Network, group: Group, byte: float) -> Span:
    return network.collective("all_gather", byte, group, layout.algorithm)


def _waited(
    layout: Layout, network: Network, group: Group, buckets: Sequence[Bucket], passes: tuple[float, float],
    parameter_share: float, end: str,
) -> Waited:  # fmt: skip
    """Play a step with all collectives at one end of their intervals."""
    forward_s, backward_s = passes
    first = "reduce_scatter" if layout.zero else "all_reduce"

    def collective(byte: float) -> Span:
        return network.collective(first, byte, group, layout.algorithm, layout.servers)  # type: ignore[arg-type]

    def sums(byte: float) -> float:
        sent = byte * layout.compression
        seconds = float(getattr(collective(sent), end))
        if layout.algorithm == "parameter_server":  # half of it brings parameters back, which nothing compresses
            return (seconds + float(getattr(collective(byte), end))) / 2
        if layout.zero == 3:
            seconds += float(getattr(_parameters_s(layout, network, group, byte * parameter_share), end))
        return seconds

    placed = buckets if layout.overlap else [Bucket(one.byte, backward_s) for one in buckets]
    waited = overlapped(placed, sums, backward_s)
    if layout.staleness:
        hidden = forward_s + backward_s
        return Waited(waited.busy_s, max(0.0, waited.busy_s - hidden))
    if not layout.zero:
        return waited
    gathers = [float(getattr(_parameters_s(layout, network, group, one.byte * parameter_share), end))
               for one in buckets]  # fmt: skip
    busy_s = sum(gathers)
    if layout.zero < 3 or not layout.overlap:
        return Waited(waited.busy_s + busy_s, waited.exposed_s + busy_s)
    # The next parameters are gathered while a layer runs; the first ones nothing hides.
    shown = max(gathers[-1] if gathers else 0.0, busy_s - forward_s)
    return Waited(waited.busy_s + busy_s, waited.exposed_s + min(shown, busy_s))


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
        Gradients in the order of the backward pass.
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
        [_waited(layout, network, group, buckets, passes, parameter_share, end) for end in ends],
    )
    gradients = sum(one.byte for one in buckets)
    if layout.algorithm == "parameter_server":
        return Traffic(busy, exposed, gradients * layout.compression)
    factor = bus_factor("reduce_scatter", group.ranks)
    sums = (1 if layout.zero else 2) * factor * gradients * layout.compression
    gathers = {0: 0, 1: 1, 2: 1, 3: 2}[layout.zero] * factor * gradients * parameter_share
    return Traffic(busy, exposed, sums + gathers)

"""The link that an exchange uses, and the textbook formulas for the time of a collective on it, with intervals.

`link_of` selects the link of a tier and transport for a message size, `ends_of` its interval. Sources of formulas:
Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", 2005; Sanders,
Speck and Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", 2009; Li et al., "Scaling
distributed machine learning with the parameter server", 2014.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import ceil, exp, hypot, inf, log, log2, sqrt
from typing import Literal, NamedTuple

from fomkit.core.errors import FomkitError
from fomkit.core.machine import Link, Machine, Tier

Collective = Literal["all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast"]


class Line(NamedTuple):
    """A link as one device sees it: start-up [s] and rate of one direction [byte/s]."""

    alpha_s: float
    byte_per_s: float


def bus_factor(collective: Collective, ranks: int) -> float:
    """Return the bytes that each rank sends, per byte of the message (nccl-tests, PERFORMANCE.md).

    >>> bus_factor("all_reduce", 8), bus_factor("all_gather", 8), bus_factor("broadcast", 8)
    (1.75, 0.875, 1.0)
    """
    if ranks == 1:
        return 0.0
    share = (ranks - 1) / ranks
    return {"all_reduce": 2 * share, "broadcast": 1.0}.get(collective, share)


def ring_s(collective: Collective, message_byte: float, ranks: int, line: Line) -> float:
    """Return the time of a ring algorithm [s].

    `message_byte`: bytes of the whole message: of each rank before an all_reduce and after an all_gather.

    >>> round(1e3 * ring_s("all_reduce", 102_228_128, 8, Line(0.0, 10e9)), 4)
    17.8899
    """
    starts = 2 * (ranks - 1) if collective == "all_reduce" else ranks - 1
    return starts * line.alpha_s + bus_factor(collective, ranks) * message_byte / line.byte_per_s


def tree_s(message_byte: float, ranks: int, line: Line) -> float:
    """Return the time of an all_reduce over two trees that share the link [s].

    >>> tree_s(1e9, 1, Line(1e-6, 1e9)), tree_s(1e9, 8, Line(0.0, 1e9))
    (0.0, 2.0)
    """
    if ranks == 1:
        return 0.0
    return 2 * ceil(log2(ranks)) * line.alpha_s + 2 * message_byte / line.byte_per_s


SHARE = 0.85
"""Share of a datasheet's rate, for one direction of the links inside a node, that NCCL reaches."""
HOP = 0.14
"""Start-up of each further step of a collective over that of a single message, which includes the launch."""
OWN = 0.6
"""Traffic of a rank's own share of the message, per byte of that share, in addition to what it sends."""


def pipelined_s(
    collective: Collective, message_byte: float, ranks: int, line: Line, *, hop: float = HOP, own: float = OWN
) -> float:
    """Return the time of a ring whose steps are pipelined in one kernel, as NCCL's inside a node [s].

    The rate is the reached one (`SHARE`). Between start-up and full rate a message is sent in pieces; the middle
    term models this. The constants are fitted to four generations of links; three are predicted by the others to 4
    to 14 %, the oldest to 26 (``benchmarks/stated_links.py``).

    >>> round(1e6 * pipelined_s("all_gather", 0.0, 2, Line(8e-6, 3e11)), 3)
    8.0
    >>> round(1e3 * pipelined_s("all_gather", 1e9, 8, Line(0.0, 0.85 * 300e9)), 4)
    3.7255
    """
    if ranks == 1:
        return 0.0
    steps = (2 if collective == "all_reduce" else 1) * (ranks - 1)
    starts = line.alpha_s * (1 + hop * (steps - 1))
    # No table times broadcasts; they have no own share.
    kept = 0.0 if collective == "broadcast" else own / ranks
    moved = (bus_factor(collective, ranks) + kept) * message_byte / line.byte_per_s
    return starts + sqrt(starts * moved) + moved


def ingress_byte(message_byte: float, workers: int, servers: int = 1) -> float:
    """Return the bytes that one parameter server receives in each step [byte].

    >>> ingress_byte(240_771_232, 11) / 1e9
    2.648483552
    """
    return workers * message_byte / servers


def parameter_server_s(message_byte: float, workers: int, servers: int, line: Line) -> float:
    """Return the time of gradients in and parameters out over the servers' links, one after the other [s].

    A single worker keeps its parameters and sends nothing.
    """
    if workers == 1:
        return 0.0
    # A worker's own link carries one message; a server's link carries its part of all workers' messages.
    each_way = max(ingress_byte(message_byte, workers, servers), message_byte) / line.byte_per_s
    return 2 * (line.alpha_s + each_way)


DECILES = 0.8
"""Level of the intervals of links and of the two intervals from tables below."""
FORMULA = (0.7, 2.3)
"""Bounds of a textbook formula over its value: deciles of measured time over ring at a datasheet's rate, from 1
MiB, in the tables of a100-sxm and h200-sxm."""
STATED = (0.8, 1.3)
"""Bounds of `pipelined_s` over its value: deciles of measured time over it, with equal weight for four generations
of links, rounded outwards."""
BRIDGED = 21
"""Factor by which more than two ranks on a host's bridge were slower (l40s, at most): such links need timings."""
BUS = 128e9
"""Rate of 16 lanes of PCIe 6.0, one way [byte/s]: no adapter between nodes is faster."""
TIERS: tuple[Tier, ...] = ("node", "system")
"""Tiers that collectives use."""


class Group(NamedTuple):
    """Devices that communicate: ``inner`` in each of ``outer`` nodes."""

    inner: int
    outer: int

    @property
    def ranks(self) -> int:
        """The number of devices."""
        return self.inner * self.outer

    @property
    def tier(self) -> Tier:
        """The tier of links that joins all devices."""
        return "node" if self.outer == 1 else "system"


class Duration(NamedTuple):
    """The time of an exchange and the bounds of its interval [s], its time source, algorithm and links."""

    value: float
    low: float
    high: float
    source: str = "alpha_beta"
    way: str = ""
    links: tuple[Link, ...] = ()


class LinkInterval(NamedTuple):
    """A link at its value and at both bounds of its interval; ``low`` is the fastest."""

    value: Line
    low: Line
    high: Line

    def duration(self, formula: Callable[[Line], float]) -> Duration:
        """Evaluate a formula at the value and the bounds."""
        value, low, high = map(formula, self)
        return Duration(value, low, high)


SOURCES = ("measured", "transferred", "alpha_beta")
"""Time sources of an exchange, the best first: a table, a table of links that were changed since, a formula."""


def weakest(sources: Iterable[str]) -> str:
    """Return the source of a time that is made of others: the weakest of theirs."""
    return max(sources, key=SOURCES.index, default=SOURCES[0])


def total(*parts: Duration) -> Duration:
    """Add exchanges that follow each other."""
    return Duration(
        sum(part.value for part in parts), sum(part.low for part in parts), sum(part.high for part in parts),
        weakest(part.source for part in parts),
        links=tuple(dict.fromkeys(link for part in parts for link in part.links)),
    )  # fmt: skip


def _channels(machine: Machine, tier: Tier) -> list[str]:
    """Return the transports of a tier, "" for links that name none."""
    return sorted({link.channel for link in machine.links if link.tier == tier})


def without_timed(machine: Machine, channel: str) -> Machine:
    """Return a machine whose timed collectives do not apply inside a node over this transport."""
    timed = machine.links if machine.timed_links is None else machine.timed_links
    others = (link for link in timed if (link.tier, link.channel) != ("node", channel))
    return replace(machine, timed_links=tuple(others))


def clear_channel(machine: Machine, tier: Tier, wanted: str) -> str | None:
    """Select as `channel_of` does; None where there is none, or several."""
    known = _channels(machine, tier)
    if wanted in known:
        return wanted
    return known[0] if not wanted and len(known) == 1 else None


def channel_of(machine: Machine, tier: Tier, wanted: str) -> str:
    """Return the transport of a tier: the wanted one, else that of links without a name, else the only one."""
    clear = clear_channel(machine, tier, wanted)
    if clear is not None:
        return clear
    known = _channels(machine, tier)
    of = f" of channel {wanted!r}" if wanted else ""
    named = " or ".join(filter(None, known))
    if not wanted and named:
        raise FomkitError(
            machine.name,
            f"has links of tier '{tier}' for {len(known)} channels, and no channel is given. Choose one: "
            f"--layout channel={named}.",
        )
    of += f", only --layout channel={named}" if named else ""
    raise FomkitError(
        machine.name,
        f"states no link of tier '{tier}'{of}. Add it under 'links', or give "
        f"--link '{tier}, 5 us, 25 GB/s, each{', ' * bool(wanted)}{wanted}'.",
    )


def _log_distance(link: Link, message_byte: float) -> float:
    """Return the distance of a message from a link's range of sizes, in logarithms; 0 within it."""
    least, most = link.least_byte or 0.0, link.most_byte or inf
    if least <= message_byte <= most:
        return 0.0
    return log(least / message_byte) if message_byte < least else log(message_byte / most)


def link_for(links: Sequence[Link], message_byte: float) -> Link:
    """Return the link for the size class of a message, the first of several; else that of the nearest class.

    >>> short, long = (Link("node", 1e-5, 1e9, "each", "", "gloo", *ends) for ends in ((16, 4096), (4096, 2**20)))
    >>> [link_for([long, short], byte) is long for byte in (100, 4096, 1e9)]
    [False, True, True]
    """
    return min(links, key=lambda link: _log_distance(link, max(message_byte, 1.0)))


def is_stated(link: Link) -> bool:
    """Return whether the rate of a link inside a node, or of a rack's switches, comes from a datasheet alone.

    Measured or simulated rates include their losses, and NCCL's tables do not predict other transports.
    """
    of_sheet = link.basis not in ("measured", "simulated", "modelled") and link.range_byte_per_s is None
    way = link.byte_per_s / (2 if link.direction == "both" else 1)
    inside = link.tier == "node" or (link.joins is not None and way > BUS)
    return inside and of_sheet and link.channel in ("", "nccl")


def _line(link: Link, alpha_s: float, byte_per_s: float) -> Line:
    """Return a link as one device sees it, with the cost of packing a message."""
    rate = byte_per_s * (SHARE if is_stated(link) else 1.0) / (2 if link.direction == "both" else 1)
    packed = 0.0 if link.serialise_byte_per_s is None else 1 / link.serialise_byte_per_s
    return Line(alpha_s, 1 / (1 / rate + packed))


def _combined_ends(ratios: tuple[float, float], formula: tuple[float, float] = FORMULA) -> tuple[float, float]:
    """Return the bounds of a formula over its value, combined with those of its input as independent errors.

    >>> [round(end, 3) for end in _combined_ends((0.5, 1.0))]
    [0.459, 2.3]
    """
    low, high = ratios
    above = exp(hypot(log(high), log(formula[1])))
    return (exp(-hypot(log(low), log(formula[0]))) if low > 0 else 0.0), above


def ends_of(link: Link) -> LinkInterval:
    """Return a link with its interval: the formula's, combined with the link's own where it has one.

    A packing rate has no interval.

    >>> slowest = ends_of(Link("node", 1e-5, 1e9, "each", "", range_byte_per_s=(5e8, 2e9))).high
    >>> round(slowest.alpha_s * 1e6, 3), round(slowest.byte_per_s / 1e6, 3)
    (23.0, 338.375)
    """
    formula = STATED if is_stated(link) else FORMULA
    value = _line(link, link.alpha_s, link.byte_per_s)
    low, high = link.alpha_range_s or (link.alpha_s, link.alpha_s)
    starts = _combined_ends((low / link.alpha_s, high / link.alpha_s), formula) if link.alpha_s else formula
    alphas = tuple(link.alpha_s * end for end in starts)
    slow, quick = link.range_byte_per_s or (link.byte_per_s, link.byte_per_s)
    below, above = _combined_ends((link.byte_per_s / quick, link.byte_per_s / slow), formula)
    if link.range_byte_per_s is None:
        rates = value.byte_per_s / below, value.byte_per_s / above
        return LinkInterval(value, Line(alphas[0], rates[0]), Line(alphas[1], rates[1]))
    return LinkInterval(
        value, _line(link, alphas[0], link.byte_per_s / below), _line(link, alphas[1], link.byte_per_s / above)
    )


def link_at(link: Link, byte_per_s: float, *, starts: bool = True) -> Link:
    """Return a link at another rate, with its interval scaled; without start-up if ``starts`` is false.

    >>> link_at(Link("node", 1e-5, 1e9, "each", "", range_byte_per_s=(5e8, 2e9)), 1e10).range_byte_per_s
    (5000000000.0, 20000000000.0)
    """
    ends = link.range_byte_per_s
    factor = byte_per_s / link.byte_per_s
    around = None if ends is None else (ends[0] * factor, ends[1] * factor)
    found = replace(link, byte_per_s=byte_per_s, range_byte_per_s=around)
    return found if starts else replace(found, alpha_s=0.0, alpha_range_s=None)


def between(link: Link, ranks: int) -> Link:
    """Return a link between some of the devices that it joins: a group uses the lanes to its own members alone.

    >>> mesh = Link("node", 1e-5, 7e9, "each", "", lanes=7)
    >>> [between(mesh, ranks).byte_per_s / 1e9 for ranks in (2, 4, 8)]
    [1.0, 3.0, 7.0]
    """
    if link.lanes is None or ranks > link.lanes:
        return link
    return link_at(link, link.byte_per_s * (ranks - 1) / link.lanes)


def link_of(machine: Machine, tier: Tier, wanted: str, message_byte: float) -> Link:
    """Return the link for a message of a size."""
    channel = channel_of(machine, tier, wanted)
    links = [link for link in machine.links if (link.tier, link.channel) == (tier, channel)]
    return link_for(links, message_byte)


def duration_by(link: Link, way: str, formula: Callable[[Line], float]) -> Duration:
    """Evaluate a formula for an algorithm on a link."""
    return ends_of(link).duration(formula)._replace(way=way, links=(link,))


def around(link: Link, collective: Collective, message_byte: float, ranks: int) -> Duration:
    """Predict a collective on a ring of links: stated ones by `pipelined_s`, others by `ring_s`."""
    formula = pipelined_s if is_stated(link) else ring_s
    return duration_by(link, "around a ring", lambda line: formula(collective, message_byte, ranks, line))


def link_notes(machine: Machine, wanted: str) -> list[str]:
    """Write which transport is used if none is wanted, and how far links of size classes apply."""
    found = []
    for tier in TIERS:
        known = _channels(machine, tier)
        if not wanted and len(known) == 1 and known[0]:
            found.append(f"links of tier {tier}: using {known[0]}, the only channel stated")
        of = wanted if wanted in known else known[0] if len(known) == 1 else ""
        links = [link for link in machine.links if (link.tier, link.channel) == (tier, of)]
        if sizes := [link.most_byte for link in links if link.most_byte]:
            found.append(
                f"links of tier {tier} are stated for messages up to {max(sizes):,.0f} byte; larger ones use "
                "the nearest class"
            )
    return found


REPLAYED_FROM = 1e11
"""Rate of a link inside a node from which serving's own all-reduce is priced by its share of NCCL's time [byte/s]:
of NVLink, where it was timed, and of other links between all devices of a node; not of a bus."""
REPLAYED_BITS = (12, 16, 18, 20, 22, 24, 26)
"""Sizes of messages, as powers of two [byte], at which `REPLAYED_SHARES` are given."""
REPLAYED_SHARES: Mapping[int, tuple[float, ...]] = {
    2: (0.39, 0.40, 0.40, 0.41, 0.55, 0.68, 0.95), 4: (0.29, 0.32, 0.41, 0.52, 0.63, 0.78, 0.94),
    8: (0.22, 0.28, 0.42, 0.46, 0.58, 0.84, 0.88),
}  # fmt: skip
"""Time of serving's own all-reduce in a replayed graph over a ring's, by ranks: medians of the boards with NVLink
whose tables have it. With each of them left out the others' shares are off by 11 % on average; the ring alone by a
factor of two."""
_OFF = (0.83, 1.19)
"""Deciles of measured over predicted times with each board left out."""


def replayed(found: Duration, message_byte: float, ranks: int) -> Duration:
    """Return the time of serving's own all-reduce from NCCL's, or a ring's, over as many ranks.

    >>> round(replayed(Duration(20.0, 15.0, 40.0), 2**18, 8).value, 6)
    8.4
    """
    import numpy as np  # the help of verbs loads this module, and must not wait for it

    known = [np.interp(log2(message_byte), REPLAYED_BITS, shares) for shares in REPLAYED_SHARES.values()]
    share = float(np.interp(log2(ranks), [log2(many) for many in REPLAYED_SHARES], known))
    value, low, high = found.value * share, found.low * share * _OFF[0], found.high * share * _OFF[1]
    way = f"{found.way}, by the share that serving's own sum takes"
    return Duration(value, low, high, "alpha_beta", way, found.links)

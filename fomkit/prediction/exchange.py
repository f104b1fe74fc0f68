"""What a collective takes on a machine.

Inside a node the machine's own table of collectives comes first (`table_time`); else its links and the formulas of
`fomkit.prediction.links` (`Network`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from math import exp, hypot, isnan, log
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from fomkit.core.errors import FomkitError
from fomkit.core.interval import DEFAULT_LEVEL, Span, at_level, half_width
from fomkit.core.machine import Link, Machine, Tier
from fomkit.prediction import links
from fomkit.prediction.estimates import cached
from fomkit.prediction.gp import Matrix
from fomkit.prediction.links import Collective, Ends, Taken

if TYPE_CHECKING:
    from fomkit.core.job import Algorithm

MEASURED = (0.94, 1.09)
"""Ends of the interval of a measured collective over its value: deciles of sizes left out one at a time of the
six NCCL tables that ship with fomkit."""
_FROM_QUARTILES = half_width(links.DECILES) / half_width(0.5)


def _rows(timings: pd.DataFrame, collective: str, ranks: int, channel: str) -> pd.DataFrame | None:
    """Give the timings of a collective over so many ranks of a node, of one library.

    DeepBench has the better of two programs of one library in a row: NCCL 2.0 MPI, NCCL 2.0 Single.
    """
    if "collective" not in timings.columns:
        return None
    rows = timings[(timings["kind"] == "collective") & (timings["collective"] == collective)]
    rows = rows[(rows["ranks"] == ranks) & (rows["link"] == "node")]
    libraries = rows["library"].fillna("").astype("str").str.extract(r"^\s*(\S*)", expand=False).str.lower()
    if channel:
        rows = rows[libraries == channel.lower()]
    several = sorted(set(libraries) - {""})
    if not channel and len(several) > 1:
        raise FomkitError(
            "collectives",
            f"the machine's table has times of {' and '.join(several)} for {ranks} ranks. Choose one: --layout "
            f"channel={' or '.join(several)}.",
        )
    return None if rows.empty else rows


def _apart(ends: tuple[float, float], between: bool) -> tuple[float, float]:
    """Give how far low and high are from the value in logarithms: by repeats, and by sizes that nobody timed."""
    off = -log(MEASURED[0]), log(MEASURED[1])
    if any(map(isnan, ends)):
        return off
    repeats = [max(0.0, end) * _FROM_QUARTILES for end in ends]
    return (hypot(repeats[0], off[0]), hypot(repeats[1], off[1])) if between else (repeats[0], repeats[1])


class _Curve(NamedTuple):
    """A collective's timings over so many ranks, by rising size; seconds as logarithms.

    `below`, `above`: how far the quartiles lie from the middle; NaN where a size has none.
    """

    size: Matrix
    middle: Matrix
    below: Matrix
    above: Matrix


def _collective_curve(timings: pd.DataFrame, collective: str, ranks: int, channel: str) -> _Curve | None:
    rows = _rows(timings, collective, ranks, channel)
    if rows is None:
        return None
    quartiles = {name: rows[name] if name in rows.columns else np.nan for name in ("p25_s", "p75_s")}
    spans = rows.assign(**quartiles)[["message_byte", "time_s", "p25_s", "p75_s"]]
    # A mean of floats hangs on their order, which is the file's.
    means = spans.sort_values(list(spans.columns)).groupby("message_byte").mean()
    middle, low, high = (np.log(means[name].to_numpy(np.float64)) for name in means.columns)
    return _Curve(means.index.to_numpy(np.float64), middle, middle - low, high - middle)


def table_time(
    timings: pd.DataFrame, collective: str, message_byte: float, ranks: int, channel: str = ""
) -> Taken | None:
    """Give a collective's time from a table of such inside a node; None where it has none of so many ranks.

    Between two sizes time goes straight; above the largest its rate holds, below the least its time. The
    interval is that of the repeats where the table has their quartiles, with that of sizes left out where the
    size itself was not timed.

    `timings`: a TIMINGS table; `channel`: the library; "" takes the only one. Raises FomkitError when no channel
    was asked for and the times are of several libraries, whose mean would be of none.
    """
    name = f"collective {collective} {ranks} {channel}"
    curve = cached(timings, None, name, partial(_collective_curve, timings, collective, ranks, channel))
    if curve is None:
        return None
    at, known = log(message_byte), np.log(curve.size)
    below, above = (float(np.interp(at, known, ends)) for ends in (curve.below, curve.above))
    value = float(np.interp(message_byte, curve.size, np.exp(curve.middle)))
    value *= max(1.0, message_byte / float(curve.size[-1]))
    ends = _apart((below, above), between=not bool((curve.size == message_byte).any()))
    return Taken(value, value * exp(-ends[0]), value * exp(ends[1]), "measured")


NOTHING = Taken(0.0, 0.0, 0.0, "measured")
"""Of one rank; it hides no source of what it is added to."""


class Group(NamedTuple):
    """Devices that work together: so many inside each of so many nodes."""

    inner: int
    outer: int

    @property
    def ranks(self) -> int:
        """All of them."""
        return self.inner * self.outer

    @property
    def tier(self) -> Tier:
        """The links that join all of them."""
        return "node" if self.outer == 1 else "system"


class Exchange(NamedTuple):
    """Time of an exchange [s], and where it is from: measured, or alpha_beta where a formula has a part in it.

    ``way`` is how it goes, in words, and ``links`` what a formula has of it goes by.
    """

    time: Span
    source: str
    way: str = ""
    links: tuple[Link, ...] = ()


@dataclass(frozen=True)
class Network:
    """A machine's links and its table of collectives, seen through one transport.

    `channel`: transport; "" takes the links that name none, else those of the only one.
    `level`: of the intervals.
    """

    machine: Machine
    channel: str = ""
    level: float = DEFAULT_LEVEL
    _known: dict[tuple[object, ...], Exchange] = field(default_factory=dict, init=False, repr=False, compare=False)

    def ends(self, tier: Tier, message_byte: float) -> Ends:
        """Give the link of a tier that a message of a size takes, with the ends of its interval."""
        return links.ends_of(self._link(tier, message_byte))

    def states(self, tier: Tier) -> bool:
        """Tell whether the profile states a link of a tier, and it is clear which."""
        return links.clear_channel(self.machine, tier, self.channel) is not None

    def _link(self, tier: Tier, message_byte: float) -> Link:
        return links.link_of(self.machine, tier, self.channel, message_byte)

    def at_rate(self, tier: Tier, byte_per_s: float, *, starts: bool = True) -> Network:
        """Give the network with links of a tier at another rate, by formulas alone where a table is of that tier.

        `byte_per_s`: as a link states it: each direction's, or that of both together [byte/s]; `starts`: false
        takes the start-up of its messages away.
        """
        machine = self.machine
        channel = links.channel_of(machine, tier, self.channel)
        changed = [(link.tier, link.channel) == (tier, channel) for link in machine.links]
        others = tuple(
            links.link_at(one, byte_per_s, starts=starts) if mine else one
            for one, mine in zip(machine.links, changed, strict=True)
        )
        timings = machine.timings
        if tier == "node" and "kind" in timings.columns:
            # One table for all rates that are tried: what is read of it is then read once.
            table = machine.timings
            timings = cached(table, None, "no collectives", lambda: table[table["kind"] != "collective"])
        return replace(self, machine=replace(machine, links=others, timings=timings))

    @property
    def node_devices(self) -> int:
        """Devices in a node."""
        if self.machine.node_devices is None:
            raise FomkitError(
                self.machine.name,
                "does not say how many devices a node has. Add 'node: {devices: …}', or give --node-devices.",
            )
        return self.machine.node_devices

    def check_joined(self, devices: int) -> None:
        """Refuse so many devices where the links between nodes say that they join fewer.

        Raises FomkitError at ``layout``: no link that the profile states takes their messages.
        """
        if devices == 1 or devices <= self.node_devices or not self.states("system"):
            return
        joins = self._link("system", 1.0).joins
        if joins is not None and devices > joins:
            raise FomkitError(
                "layout",
                f"{devices:,} devices are more than the {joins:,} that the links of tier 'system' of "
                f"{self.machine.name} join. State what joins such groups: --node-devices {joins} "
                "--link 'system, 5 us, 50 GB/s, each'.",
            )

    def group(self, ranks: int, apart: int = 1) -> Group:
        """Place a group whose members are so many devices apart; nodes are filled one after the other."""
        inside = max(1, self.node_devices // apart)
        inner = min(ranks, inside)
        while ranks % inner:
            inner -= 1
        return Group(inner, ranks // inner)

    def _ring(self, tier: Tier, collective: Collective, message_byte: float, ranks: int) -> Taken:
        # Around a ring goes a rank's share at a time.
        return links.around(self._link(tier, message_byte / ranks), collective, message_byte, ranks)

    def _tree(self, message_byte: float, group: Group) -> Taken:
        link = self._link(group.tier, message_byte)
        return links.taken_by(link, "in two trees", lambda line: links.tree_s(message_byte, group.ranks, line))

    def _inside(self, collective: Collective, message_byte: float, ranks: int) -> Taken:
        """Give a collective inside a node: as the machine's own table has it, else around a ring."""
        if ranks == 1:
            return NOTHING
        found = table_time(self.machine.timings, collective, message_byte, ranks, self.channel)
        if found is not None:
            return found._replace(way="by the machine's table")
        return self._ring("node", collective, message_byte, ranks)

    def _staged(
        self, collective: Collective, message_byte: float, group: Group, *, by_table: bool = True
    ) -> Taken:
        """Give a collective between nodes, and its part inside them by the table there or by formulas alone."""
        inside = self._inside if by_table else partial(self._ring, "node")
        outside = self._ring("system", collective, message_byte / group.inner, group.outer)
        stages: tuple[Collective, ...] = (
            ("reduce_scatter", "all_gather") if collective == "all_reduce" else (collective,)
        )
        found = [inside(stage, message_byte, group.inner) for stage in stages if group.inner > 1]
        way = f"in stages, {group.inner} inside each of {group.outer} nodes"
        return links.total(outside, *found)._replace(way=way)

    def _both_tiers(self, message_byte: float, group: Group) -> Taken:
        """Give an exchange of all with all whose parts inside a node and between nodes go at the same time."""
        outside = self._ring("system", "all_to_all", message_byte, group.outer)
        inside = self._inside("all_to_all", message_byte / group.outer, group.inner)
        way = f"between nodes and inside them at once, {group.inner} in each of {group.outer}"
        return max(outside, inside)._replace(way=way)

    def _best(self, collective: Collective, message_byte: float, group: Group) -> Taken:
        if group.outer == 1:
            return self._inside(collective, message_byte, group.ranks)
        ways = [self._ring("system", collective, message_byte, group.ranks)]
        if collective == "all_reduce" and not links.is_stated(self._link("system", message_byte)):
            ways.append(self._tree(message_byte, group))
        if collective in ("all_reduce", "all_gather", "reduce_scatter") and group.inner > 1:
            ways.append(self._staged(collective, message_byte, group))
        if collective == "all_to_all" and group.inner > 1:
            ways.append(self._both_tiers(message_byte, group))
        return min(ways)

    def _by_name(self, algorithm: Algorithm, collective: Collective, message_byte: float, group: Group) -> Taken:
        if algorithm == "tree" and collective == "all_reduce":
            return self._tree(message_byte, group)
        if algorithm == "hierarchical" and group.outer > 1:
            return self._staged(collective, message_byte, group, by_table=False)
        return self._ring(group.tier, collective, message_byte, group.ranks)

    def _span(self, time: Taken) -> Span:
        return at_level(Span(time.value, time.low, time.high, links.DECILES), self.level)

    def exchange(
        self, collective: Collective, message_byte: float, group: Group, algorithm: Algorithm = "auto",
        servers: int = 1,
    ) -> Exchange:  # fmt: skip
        """Give the time of a collective and its source; nothing for a group of one.

        `message_byte`: bytes of the whole on each rank; `algorithm`: see `Layout`; `servers`: for
        ``parameter_server``.
        """
        if group.ranks == 1 or not message_byte:
            return Exchange(Span.exact(0.0, self.level), "measured")
        key = (collective, message_byte, group, algorithm, servers)
        if key not in self._known:
            self._known[key] = self._exchange(*key)
        return self._known[key]

    def _exchange(
        self, collective: Collective, message_byte: float, group: Group, algorithm: Algorithm, servers: int
    ) -> Exchange:
        if algorithm == "parameter_server":
            ends = self.ends(group.tier, message_byte)
            taken = ends.taken(lambda line: links.parameter_server_s(message_byte, group.ranks, servers, line))
        elif algorithm == "auto":
            taken = self._best(collective, message_byte, group)
        else:
            taken = self._by_name(algorithm, collective, message_byte, group)
        return Exchange(self._span(taken), taken.source, taken.way, taken.links)

    def collective(
        self, collective: Collective, message_byte: float, group: Group, algorithm: Algorithm = "auto",
        servers: int = 1,
    ) -> Span:  # fmt: skip
        """Give the time of a collective alone [s]."""
        return self.exchange(collective, message_byte, group, algorithm, servers).time

    def send(self, message_byte: float, tier: Tier) -> Span:
        """Give the time of one message from a device to another [s]."""
        ends = self.ends(tier, message_byte)
        return self._span(ends.taken(lambda line: line.alpha_s + message_byte / line.byte_per_s))

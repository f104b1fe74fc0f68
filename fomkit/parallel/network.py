"""What a collective takes on a machine: its measured table inside a node, else links and formulas."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fomkit.errors import FomkitError
from fomkit.hardware import Link, Machine, Tier
from fomkit.parallel.collectives import Collective, Line, hierarchical_s, parameter_server_s, ring_s, tree_s
from fomkit.parallel.layout import Algorithm
from fomkit.spans import DEFAULT_LEVEL, Span, at_level

if TYPE_CHECKING:
    import pandas as pd

DECILES = 0.8
"""Level of the two intervals below."""
MEASURED = (0.91, 1.06)
"""Ends of the interval of a measured collective over its value: deciles of sizes left out one at a time of the
three NCCL tables that ship (a100-sxm, h200-sxm, l40s)."""
FORMULA = (0.7, 2.3)
"""The same of a formula at a datasheet's rate: deciles of measured over ring, from 1 MiB, in the tables of
a100-sxm and h200-sxm. Links through a host's bridge (l40s) took up to 23 times as long: measure them."""


class Group(NamedTuple):
    """Devices that work together: so many inside each of so many nodes."""

    inner: int
    outer: int

    @property
    def ranks(self) -> int:
        """All of them."""
        return self.inner * self.outer


class _Time(NamedTuple):
    value: float
    low: float
    high: float


def _measured(s: float) -> _Time:
    return _Time(s, s * MEASURED[0], s * MEASURED[1])


def _formula(s: float) -> _Time:
    return _Time(s, s * FORMULA[0], s * FORMULA[1])


def _sum(*parts: _Time) -> _Time:
    return _Time(*(sum(ends) for ends in zip(*parts, strict=True)))


def table_s(timings: pd.DataFrame, collective: str, message_byte: float, ranks: int) -> float | None:
    """Give a collective's time from a table of such inside a node [s]; None where it has none of so many ranks.

    Between two sizes the logarithm goes straight; above the largest its rate holds, below the least its time.

    Raises
    ------
    FomkitError
        When the times are of several libraries, whose mean would be of none.
    """
    if "collective" not in timings.columns:
        return None
    rows = timings[(timings["kind"] == "collective") & (timings["collective"] == collective)]
    rows = rows[(rows["ranks"] == ranks) & (rows["link"] == "node")]
    if rows.empty:
        return None
    # DeepBench has the better of two programs of one library in a row: NCCL 2.0 MPI, NCCL 2.0 Single.
    libraries = sorted({one.split()[0] for one in rows["library"] if isinstance(one, str) and one})
    if len(libraries) > 1:
        raise FomkitError(
            "collectives",
            f"the machine's table has times of {' and '.join(libraries)} for {ranks} ranks. Keep those of one "
            "library in a profile, or name a link's own figures with --channel.",
        )
    times = rows.groupby("message_byte")["time_s"].mean()
    sizes = times.index.to_numpy(np.float64)
    found = float(np.exp(np.interp(np.log(message_byte), np.log(sizes), np.log(times.to_numpy(np.float64)))))
    return found * max(1.0, message_byte / float(sizes[-1]))


@dataclass(frozen=True)
class Network:
    """A machine's links and its table of collectives, seen through one transport.

    Attributes
    ----------
    machine : Machine
    channel : str
        Transport; "" takes the links that name none.
    level : float
        Of the intervals.
    """

    machine: Machine
    channel: str = ""
    level: float = DEFAULT_LEVEL

    def _links(self, tier: Tier) -> Iterator[Link]:
        return (link for link in self.machine.links if (link.tier, link.channel) == (tier, self.channel))

    def line(self, tier: Tier) -> Line:
        """Give the link of a tier as one device sees it, with what packing a message costs.

        Raises
        ------
        FomkitError
            When the profile states none.
        """
        link = next(self._links(tier), None)
        if link is None:
            of = f" of channel {self.channel!r}" if self.channel else ""
            others = sorted({one.channel for one in self.machine.links if one.tier == tier and one.channel})
            of += f", only of --channel {' or '.join(others)}" if others else ""
            raise FomkitError(
                self.machine.name,
                f"states no link of tier '{tier}'{of}. Add it under 'links', or give "
                f"--link '{tier}, 5 us, 25 GB/s, each{', ' * bool(self.channel)}{self.channel}'.",
            )
        rate = link.byte_per_s / (2 if link.direction == "both" else 1)
        packed = 0.0 if link.serialise_byte_per_s is None else 1 / link.serialise_byte_per_s
        return Line(link.alpha_s, 1 / (1 / rate + packed))

    @property
    def node_devices(self) -> int:
        """Devices in a node.

        Raises
        ------
        FomkitError
            When the profile does not say.
        """
        if self.machine.node_devices is None:
            raise FomkitError(
                self.machine.name,
                "does not say how many devices a node has. Add 'node: {devices: …}', or give --node-devices.",
            )
        return self.machine.node_devices

    def group(self, ranks: int, apart: int = 1) -> Group:
        """Place a group whose members are so many devices apart; nodes are filled one after the other."""
        inside = max(1, self.node_devices // apart)
        inner = min(ranks, inside)
        while ranks % inner:
            inner -= 1
        return Group(inner, ranks // inner)

    def _inside(self, collective: Collective, message_byte: float, ranks: int, measured: bool) -> _Time:
        if ranks == 1:
            return _Time(0.0, 0.0, 0.0)
        # A table is of the machine's own transport.
        found = table_s(self.machine.timings, collective, message_byte, ranks) if measured else None
        if found is not None:
            return _measured(found)
        return _formula(ring_s(collective, message_byte, ranks, self.line("node")))

    def _staged(self, collective: Collective, message_byte: float, group: Group, measured: bool) -> _Time:
        outside = _formula(ring_s(collective, message_byte / group.inner, group.outer, self.line("system")))
        stages: tuple[Collective, ...] = (
            ("reduce_scatter", "all_gather") if collective == "all_reduce" else (collective,)
        )
        return _sum(outside, *(self._inside(one, message_byte, group.inner, measured) for one in stages))

    def _best(self, collective: Collective, message_byte: float, group: Group) -> _Time:
        measured = not self.channel
        if group.outer == 1:
            return self._inside(collective, message_byte, group.ranks, measured)
        ways = [_formula(ring_s(collective, message_byte, group.ranks, self.line("system")))]
        if collective == "all_reduce":
            ways.append(_formula(tree_s(message_byte, group.ranks, self.line("system"))))
        if collective in ("all_reduce", "all_gather", "reduce_scatter") and group.inner > 1:
            ways.append(self._staged(collective, message_byte, group, measured))
        return min(ways)

    def _by_name(self, algorithm: Algorithm, collective: Collective, message_byte: float, group: Group) -> _Time:
        line = self.line("node" if group.outer == 1 else "system")
        if algorithm == "tree" and collective == "all_reduce":
            return _formula(tree_s(message_byte, group.ranks, line))
        if algorithm == "hierarchical" and group.outer > 1:
            if collective == "all_reduce":
                inside, outside = self.line("node") if group.inner > 1 else line, self.line("system")
                return _formula(hierarchical_s(message_byte, group.inner, group.outer, inside, outside))
            return self._staged(collective, message_byte, group, measured=False)
        return _formula(ring_s(collective, message_byte, group.ranks, line))

    def _span(self, time: _Time) -> Span:
        return at_level(Span(time.value, time.low, time.high, DECILES), self.level)

    def collective(
        self, collective: Collective, message_byte: float, group: Group, algorithm: Algorithm = "auto",
        servers: int = 1,
    ) -> Span:  # fmt: skip
        """Give the time of a collective [s]; nothing for a group of one.

        Parameters
        ----------
        collective : str
        message_byte : float
            Bytes of the whole on each rank.
        group : Group
        algorithm : str
            See `Layout`.
        servers : int
            For ``parameter_server``.
        """
        if group.ranks == 1 or not message_byte:
            return Span.exact(0.0, self.level)
        if algorithm == "parameter_server":
            line = self.line("node" if group.outer == 1 else "system")
            return self._span(_formula(parameter_server_s(message_byte, group.ranks, servers, line)))
        if algorithm == "auto":
            return self._span(self._best(collective, message_byte, group))
        return self._span(self._by_name(algorithm, collective, message_byte, group))

    def send(self, message_byte: float, tier: Tier) -> Span:
        """Give the time of one message from a device to another [s]."""
        line = self.line(tier)
        return self._span(_formula(line.alpha_s + message_byte / line.byte_per_s))

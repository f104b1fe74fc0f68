"""Predict the time of a collective on a machine: of a step (`Network.exchange`), and of a row (an `Estimator`).

Inside a node the machine's own table of collectives has priority (`table_time`); otherwise its links and the
formulas of `fomkit.prediction.links` are used. Between nodes an exchange may run in stages, over two tiers.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from math import exp, hypot, isnan, log
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
import pandas as pd

from fomkit.core.errors import FomkitError
from fomkit.core.interval import DEFAULT_LEVEL, Span, at_level, half_width
from fomkit.core.machine import Link, Machine, Tier
from fomkit.core.units import format_quantity
from fomkit.ops.columns import Words, cached
from fomkit.prediction import links
from fomkit.prediction.estimators import Answers, Rows, is_in, opened_by
from fomkit.prediction.families import ONE_WAY
from fomkit.prediction.gp import Matrix
from fomkit.prediction.links import Collective, Duration, Group, LinkInterval

if TYPE_CHECKING:
    from fomkit.core.job import Algorithm

MEASURED = (0.94, 1.09)
"""Bounds of the interval of a measured collective over its value: deciles of the errors of sizes left out one at a
time, in the six NCCL tables that ship with fomkit; of serving's own all-reduces there 83 % are inside."""
_FROM_QUARTILES = half_width(links.DECILES) / half_width(0.5)


REPLAYED = "all_reduce_replayed"
"""Op of a serving library's own all-reduce in a replayed graph; only steps without gradients have it. Over
NVLink it takes a quarter of NCCL's time for short messages."""


def _rows(timings: pd.DataFrame, collective: str, ranks: int, channel: str, op: str) -> pd.DataFrame | None:
    """Return the timings of a collective over ``ranks`` ranks of a node, of one library, or of the op ``op``.

    A row of DeepBench has the faster of two programs of one library: NCCL 2.0 MPI, NCCL 2.0 Single.
    """
    rows = timings[timings["kind"] == "collective"]
    if rows.empty:  # then the columns of a collective may be missing, too
        return None
    rows = rows[rows["collective"] == collective]
    rows = rows[rows["op"] == op] if "op" in rows.columns else rows if not op else rows.iloc[:0]
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


def _log_half_widths(ends: tuple[float, float], between: bool) -> tuple[float, float]:
    """Return the distances of low and high from the value in logarithms, by repeats and by interpolated sizes."""
    off = -log(MEASURED[0]), log(MEASURED[1])
    if any(map(isnan, ends)):
        return off
    repeats = [max(0.0, end) * _FROM_QUARTILES for end in ends]
    return (hypot(repeats[0], off[0]), hypot(repeats[1], off[1])) if between else (repeats[0], repeats[1])


class _Curve(NamedTuple):
    """A collective's timings over one number of ranks, by rising size; times as logarithms.

    `below`, `above`: distance of the quartiles from the mean time, in logarithms; NaN where a size has none.
    """

    size: Matrix
    log_mean: Matrix
    below: Matrix
    above: Matrix


def _collective_curve(timings: pd.DataFrame, collective: str, ranks: int, channel: str, op: str) -> _Curve | None:
    rows = _rows(timings, collective, ranks, channel, op)
    if rows is None:
        return None
    quartiles = {name: rows[name] if name in rows.columns else np.nan for name in ("p25_s", "p75_s")}
    spans = rows.assign(**quartiles)[["message_byte", "time_s", "p25_s", "p75_s"]]
    # The mean of floats depends on their order, so sort.
    means = spans.sort_values(list(spans.columns)).groupby("message_byte").mean()
    log_mean, low, high = (np.log(means[name].to_numpy(np.float64)) for name in means.columns)
    return _Curve(means.index.to_numpy(np.float64), log_mean, log_mean - low, high - log_mean)


def table_time(
    timings: pd.DataFrame, collective: str, message_byte: float, ranks: int, channel: str = "", op: str = ""
) -> Duration | None:
    """Return a collective's time from a table of timings inside a node; None without timings of this many ranks.

    Time is linear between two sizes, and above the largest along the last two; below the smallest its time holds.
    The interval is that of the repeats where the table has their quartiles, combined with that of left-out sizes
    where the size itself was not timed. Above the largest it reaches to the time at the rate of that size, which
    includes a share of its start, and as far below (docs/adr/0103).

    `timings`: a TIMINGS table; `channel`: the library; "" means the only one; `op`: of timings that serve an op of
    this name only. Raises FomkitError if no channel is given and the times are of several libraries, whose mean
    would be meaningless.
    """
    name = f"collective {collective} {ranks} {channel} {op}"
    curve = cached(timings, None, name, partial(_collective_curve, timings, collective, ranks, channel, op))
    if curve is None:
        return None
    at, known = log(message_byte), np.log(curve.size)
    below, above = (float(np.interp(at, known, ends)) for ends in (curve.below, curve.above))
    seconds, beyond = np.exp(curve.log_mean), message_byte / float(curve.size[-1])
    value, apart = float(np.interp(message_byte, curve.size, seconds)), 0.0
    if beyond > 1:
        # With a single size, half of its time may be its start.
        other = (curve.size[-2], seconds[-2]) if len(seconds) > 1 else (0.0, value / 2)
        each_s = max(float((value - other[1]) / (curve.size[-1] - other[0])), 0.0)
        at_rate_s = value * beyond
        value = min(value + each_s * (message_byte - float(curve.size[-1])), at_rate_s)
        apart = log(at_rate_s / value)
    ends = _log_half_widths((below, above), between=not bool((curve.size == message_byte).any()))
    return Duration(value, value * exp(-ends[0] - apart), value * exp(ends[1] + apart), "measured")


SLOW = 3
"""Factor by which a timed collective is slower than its link's formula, from which the link is not its limit."""
LARGE = 2.0**28
"""Bytes of a message at which the two are compared."""
OF_TABLE = "from the machine's table"
NOTHING = Duration(0.0, 0.0, 0.0, "measured")
"""For one rank; the source is measured, so that it does not change the source of a sum."""


class Exchange(NamedTuple):
    """Time of an exchange [s], and its source (`links.SOURCES`).

    ``way`` describes the algorithm; ``links`` are those that a formula uses.
    """

    time: Span
    source: str
    way: str = ""
    links: tuple[Link, ...] = ()


@dataclass(frozen=True)
class Network:
    """A machine's links and its table of collectives, for one transport.

    `channel`: transport; "" means links without a name, else those of the only transport.
    `level`: of the intervals. `op`: timings of collectives that serve only this op have priority.
    """

    machine: Machine
    channel: str = ""
    level: float = DEFAULT_LEVEL
    op: str = ""
    _known: dict[tuple[object, ...], Exchange] = field(default_factory=dict, init=False, repr=False, compare=False)

    def ends(self, tier: Tier, message_byte: float, ranks: int = 2) -> LinkInterval:
        """Return the link of a tier between some devices for a message size, with its interval."""
        return links.ends_of(links.between(self._link(tier, message_byte), ranks))

    def states(self, tier: Tier) -> bool:
        """Return whether the profile states a link of a tier unambiguously."""
        return links.clear_channel(self.machine, tier, self.channel) is not None

    def _link(self, tier: Tier, message_byte: float) -> Link:
        return links.link_of(self.machine, tier, self.channel, message_byte)

    def at_rate(self, tier: Tier, byte_per_s: float, *, starts: bool = True) -> Network:
        """Return the network with links of a tier at another rate; a table of that tier is not used then.

        `byte_per_s`: as stated by a link: of each direction, or of both together [byte/s]; `starts`: false removes
        the start-up of its messages.
        """
        channel = links.channel_of(self.machine, tier, self.channel)
        machine = links.without_timed(self.machine, channel) if tier == "node" else self.machine
        changed = tuple(
            links.link_at(one, byte_per_s, starts=starts) if (one.tier, one.channel) == (tier, channel) else one
            for one in machine.links
        )
        return replace(self, machine=replace(machine, links=changed))

    @property
    def node_devices(self) -> int:
        """Number of devices in a node."""
        if self.machine.node_devices is None:
            raise FomkitError(
                self.machine.name,
                "the number of devices in a node is not stated. Add 'node: {devices: …}', or give --node-devices.",
            )
        return self.machine.node_devices

    def check_joined(self, devices: int) -> None:
        """Raise FomkitError at ``layout`` where no stated link between nodes joins ``devices`` devices."""
        if devices == 1 or devices <= self.node_devices or not self.states("system"):
            return
        joins = self._link("system", 1.0).joins
        if joins is not None and devices > joins:
            raise FomkitError(
                "layout",
                f"{devices:,} devices exceed the {joins:,} that the links of tier 'system' of "
                f"{self.machine.name} connect. State the link between such groups: --node-devices {joins} "
                "--link 'system, 5 us, 50 GB/s, each'.",
            )

    def check_inside(self, ranks: int) -> None:
        """Raise FomkitError at ``layout`` where groups of neighbouring ranks would cross nodes."""
        each = self.machine.node_devices or ranks
        if each % ranks and ranks % each:
            raise FomkitError(
                "layout",
                f"tensor {ranks} does not divide the {each} devices of a node: groups would cross nodes. "
                f"Choose a divisor of {each}, or a multiple.",
            )

    def group(self, ranks: int, apart: int = 1) -> Group:
        """Place a group whose members are ``apart`` devices apart; nodes are filled in turn."""
        inside = max(1, self.node_devices // apart)
        inner = min(ranks, inside)
        while ranks % inner:
            inner -= 1
        return Group(inner, ranks // inner)

    def _ring(self, tier: Tier, collective: Collective, message_byte: float, ranks: int) -> Duration:
        # The messages on a ring are a rank's share.
        link = links.between(self._link(tier, message_byte / ranks), ranks)
        return links.around(link, collective, message_byte, ranks)

    def _tree(self, message_byte: float, group: Group) -> Duration:
        link = links.between(self._link(group.tier, message_byte), group.ranks)
        return links.duration_by(link, "in two trees", lambda line: links.tree_s(message_byte, group.ranks, line))

    def _as_linked(
        self, found: Duration | None, collective: Collective, message_byte: float, ranks: int
    ) -> Duration | None:
        """Return a timed collective on the links of now; None where its own link is unknown (`timed_links`).

        Where it was timed far above the formula of its link (`SLOW`), the link is not what limits it.
        """
        then, channel = self.machine.timed_links, links.clear_channel(self.machine, "node", self.channel)
        if found is None or then is None or channel is None:
            return found and found._replace(way=OF_TABLE)
        if ("node", channel) not in ((link.tier, link.channel) for link in then):
            return None
        as_timed = Network(replace(self.machine, links=then), channel)
        now, timed = (one._ring("node", collective, message_byte, ranks) for one in (self, as_timed))
        factor = now.value / timed.value
        if factor == 1 or found.value >= SLOW * timed.value:
            return found._replace(way=OF_TABLE)
        return Duration(
            found.value * factor, found.low * factor, found.high * factor, "transferred",
            way=f"{OF_TABLE}, at the changed rate of the link", links=now.links,
        )  # fmt: skip

    def _inside(self, collective: Collective, message_byte: float, ranks: int) -> Duration:
        """Predict a collective inside a node: from the machine's own table, else on a ring."""
        if ranks == 1:
            return NOTHING
        timings, known = self.machine.timings, (collective, message_byte, ranks)
        found = self._as_linked(table_time(timings, *known, op=self.op), *known) if self.op else None
        if found is not None:
            return found
        found = self._as_linked(table_time(timings, *known, self.channel), *known)
        if found is None:
            found = self._ring("node", collective, message_byte, ranks)
        if self.op != REPLAYED or collective != "all_reduce" or not self.states("node"):
            return found
        quick = self._link("node", message_byte).byte_per_s >= links.REPLAYED_FROM
        return links.replayed(found, message_byte, ranks) if quick else found

    def slow_note(self, devices: int) -> str:
        """Return a note where devices of a node were timed far above the formula of their link; "" elsewhere."""
        ranks = min(devices, self.machine.node_devices or devices)
        if ranks < 2 or not self.states("node"):
            return ""
        sample: tuple[Collective, float, int] = ("all_reduce", LARGE, ranks)
        taken, ring = self._inside(*sample), self._ring("node", *sample)
        if taken.source != "measured" or taken.value < SLOW * ring.value:
            return ""
        return (
            f"collectives of {ranks} devices of {self.machine.name} were timed in one server, and take "
            f"{taken.value / ring.value:.0f} times as long as by the formula of their {_words(ring.links[0])}. "
            "Intervals are of that server. If the devices of yours reach each other directly, give its link with "
            "--link, or in a machine file"
        )

    def _staged(
        self, collective: Collective, message_byte: float, group: Group, *, by_table: bool = True
    ) -> Duration:
        """Predict a collective in stages: between nodes, and inside them by the table or by formulas alone."""
        inside = self._inside if by_table else partial(self._ring, "node")
        outside = self._ring("system", collective, message_byte / group.inner, group.outer)
        stages: tuple[Collective, ...] = (
            ("reduce_scatter", "all_gather") if collective == "all_reduce" else (collective,)
        )
        found = [inside(stage, message_byte, group.inner) for stage in stages if group.inner > 1]
        way = f"in stages, {group.inner} inside each of {group.outer} nodes"
        return links.total(outside, *found)._replace(way=way)

    def _best(self, collective: Collective, message_byte: float, group: Group) -> Duration:
        if group.outer == 1:
            return self._inside(collective, message_byte, group.ranks)
        # The switches of a rack join the devices inside its nodes, too.
        one_fabric = links.is_stated(self._link("system", message_byte))
        ways = [self._ring("system", collective, message_byte, group.ranks)]
        if collective == "all_reduce" and not one_fabric:
            ways.append(self._tree(message_byte, group))
        if collective in ("all_reduce", "all_gather", "reduce_scatter") and group.inner > 1:
            ways.append(self._staged(collective, message_byte, group))
        if collective == "all_to_all" and group.inner > 1:
            outside = self._ring("system", "all_to_all", message_byte, group.outer)
            inside = self._inside("all_to_all", message_byte / group.outer, group.inner)
            way = f"between and inside nodes at the same time, {group.inner} in each of {group.outer}"
            ways.append(max(outside, inside)._replace(way=way))
        best = min(ways)
        if one_fabric and group.inner > 1:
            part = self._inside(collective, message_byte, group.inner)
            best = best._replace(
                **{end: max(getattr(best, end), getattr(part, end)) for end in ("value", "low", "high")}
            )
        return best

    def _span(self, time: Duration) -> Span:
        return at_level(Span(time.value, time.low, time.high, links.DECILES), self.level)

    def exchange(
        self, collective: Collective, message_byte: float, group: Group, algorithm: Algorithm = "auto",
        servers: int = 1,
    ) -> Exchange:  # fmt: skip
        """Return the time and source of a collective, whose whole message each rank has; 0 for a group of one."""
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
            ends = self.ends(group.tier, message_byte, group.ranks)
            time = ends.duration(lambda line: links.parameter_server_s(message_byte, group.ranks, servers, line))
        elif algorithm == "auto":
            time = self._best(collective, message_byte, group)
        elif algorithm == "tree" and collective == "all_reduce":
            time = self._tree(message_byte, group)
        elif algorithm == "hierarchical" and group.outer > 1:
            time = self._staged(collective, message_byte, group, by_table=False)
        else:
            time = self._ring(group.tier, collective, message_byte, group.ranks)
        return Exchange(self._span(time), time.source, time.way, time.links)

    def collective(
        self, collective: Collective, message_byte: float, group: Group, algorithm: Algorithm = "auto",
        servers: int = 1,
    ) -> Span:  # fmt: skip
        """Return the time of a collective [s]."""
        return self.exchange(collective, message_byte, group, algorithm, servers).time

    def send(self, message_byte: float, tier: Tier) -> Span:
        """Return the time of one message from a device to another [s]."""
        ends = self.ends(tier, message_byte)
        return self._span(ends.duration(lambda line: line.alpha_s + message_byte / line.byte_per_s))


AROUND = ("all_reduce", "broadcast", *ONE_WAY)
"""Collectives for which there are formulas."""


def _group(network: Network, ranks: int, link: str) -> Group | None:
    """Place the ranks of a row: in a node, else in filled nodes if the link inside is stated, else one per node.

    None where the machine states no link of the row's tier, or several.
    """
    devices = network.machine.node_devices
    if link == "node" or (not link and devices is not None and ranks <= devices):
        return Group(ranks, 1) if network.states("node") else None
    if not network.states("system"):
        return None
    filled = devices is not None and ranks > devices and network.states("node")
    return network.group(ranks) if filled else Group(1, ranks)


def _words(link: Link) -> str:
    rate, start = format_quantity(link.byte_per_s, "byte_per_s"), format_quantity(link.alpha_s, "time_s", 3)
    return f"link of tier {link.tier}: {start} latency, {rate} {link.direction}"


def _evidence(collective: str, ranks: int, found: Exchange) -> str:
    known = [_words(link) for link in found.links]
    tiers = {link.tier for link in found.links}
    known += ["inside a node from its table"] if tiers == {"system"} and found.way.startswith("in stages") else []
    return "; ".join([*known, f"{collective} over {ranks} ranks {found.way}"])


def _exchange(network: Network, collective: str, message_byte: float, ranks: int, link: str) -> Exchange | None:
    """Return the fastest way of a collective; None where the machine's link for it is not defined."""
    group = _group(network, ranks, link)
    if group is None:
        return None
    try:
        return network.exchange(cast("Collective", collective), message_byte, group)
    except FomkitError:
        # Its table has times of several libraries, and the row does not name one.
        return None


@opened_by(
    lambda rows, machine: (
        is_in(rows, "kind", "collective") & is_in(rows, "collective", *(AROUND if machine.links else ()))
    )
)
def estimate_collective(rows: Rows, machine: Machine, interval: float) -> Answers:
    """Predict collectives of two or more ranks whose link the machine states (an `Estimator`)."""
    words = {name: rows.text(name).cells() for name in ("collective", "link", "op")}
    message, ranks = rows.number("message_byte"), rows.number("ranks")
    networks = {op: Network(machine, level=interval, op=op) for op in {*words["op"]}}
    found: dict[int, tuple[Exchange, str]] = {}
    for at in np.flatnonzero((ranks >= 2) & (message > 0)).tolist():
        collective, devices = words["collective"][at], int(ranks[at])
        network = networks[words["op"][at]]
        one = _exchange(network, collective, float(message[at]), devices, words["link"][at])
        if one is not None:
            found[at] = one, _evidence(collective, devices, one)
    chosen = np.fromiter(found, np.intp, len(found))
    times = np.array([(one.time.value, one.time.low, one.time.high) for one, _ in found.values()]).reshape(-1, 3).T
    # A table's times are interpolated along the size of the message.
    rests_on = np.array([links.SOURCES.index(one.source) for one, _ in found.values()], np.intp)
    source = Words(rests_on, ("interpolated", *links.SOURCES[1:]))
    bound = Words((rests_on > 0).astype(np.intp), ("measured", "network"))
    texts = [note for _, note in found.values()]
    return Answers(np.asarray(rows.index)[chosen], times, source, bound, texts.__getitem__)

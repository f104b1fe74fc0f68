"""Estimator: a collective on links that the machine states, priced as in a step of many devices."""

from __future__ import annotations

from typing import cast

import numpy as np

from fomkit.errors import FomkitError
from fomkit.hardware import Link, Machine
from fomkit.network import Exchange, Group, Network
from fomkit.network.collectives import Collective
from fomkit.predict.estimates import Answers, opened_by
from fomkit.predict.families import ONE_WAY
from fomkit.predict.rows import Rows, are, numbers
from fomkit.quantities import format_quantity

AROUND = ("all_reduce", "broadcast", *ONE_WAY)
"""Collectives that the formulas know."""


def _group(network: Network, ranks: int, link: str) -> Group | None:
    """Place the ranks of a row: inside a node, else in filled nodes if the link inside is stated, else one a node.

    None where the machine does not state the row's link, or it is open which.
    """
    devices = network.machine.node_devices
    if link == "node" or (not link and devices is not None and ranks <= devices):
        return Group(ranks, 1) if network.states("node") else None
    if not network.states("system"):
        return None
    filled = devices is not None and ranks > devices and network.states("node")
    return network.group(ranks) if filled else Group(1, ranks)


def _words(link: Link) -> str:
    rate = format_quantity(link.byte_per_s, "byte_per_s")
    return (
        f"link of tier {link.tier}: {format_quantity(link.alpha_s, 'time_s', 3)} a start, {rate} {link.direction}"
    )


def _evidence(collective: str, ranks: int, found: Exchange) -> str:
    known = [_words(link) for link in found.links]
    tiers = {link.tier for link in found.links}
    known += ["inside a node by its table"] if tiers == {"system"} and found.way.startswith("in stages") else []
    return "; ".join([*known, f"{collective} over {ranks} ranks {found.way}"])


def _exchange(network: Network, collective: str, message_byte: float, ranks: int, link: str) -> Exchange | None:
    """Give the quickest way of a collective; None where the machine leaves open what it takes."""
    group = _group(network, ranks, link)
    if group is None:
        return None
    try:
        return network.exchange(cast("Collective", collective), message_byte, group)
    except FomkitError:
        # Its table has times of several libraries, and a row does not say whose is asked for.
        return None


@opened_by(
    lambda rows, machine: (
        are(rows, "kind", "collective") & are(rows, "collective", *(AROUND if machine.links else ()))
    )
)
def estimate(rows: Rows, machine: Machine, interval: float) -> Answers:
    """Price collectives of two or more ranks whose link the machine states (an `Estimator`)."""
    words = {name: rows.text(name).cells() for name in ("collective", "link")}
    message, ranks = numbers(rows, "message_byte"), numbers(rows, "ranks")
    network = Network(machine, level=interval)
    found: dict[int, tuple[Exchange, str]] = {}
    for at in np.flatnonzero((ranks >= 2) & (message > 0)).tolist():
        collective, devices = words["collective"][at], int(ranks[at])
        one = _exchange(network, collective, float(message[at]), devices, words["link"][at])
        if one is not None:
            found[at] = one, _evidence(collective, devices, one)
    chosen = np.fromiter(found, np.intp, len(found))
    times = np.array([(one.time.value, one.time.low, one.time.high) for one, _ in found.values()]).reshape(-1, 3).T
    # What a scaling takes from a table of too few timings for a fit is near none of them for sure.
    of_table = np.array([one.source == "measured" for one, _ in found.values()], bool)
    source = np.where(of_table, "extrapolated", "alpha_beta").astype(object)
    bound = np.where(of_table, "measured", "network").astype(object)
    texts = [said for _, said in found.values()]
    return Answers(np.asarray(rows.index)[chosen], times, source, bound, texts.__getitem__)

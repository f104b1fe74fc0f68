"""Which exchanges between processes are timed, and how well."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import ceil
from typing import Any, NamedTuple

from fomkit.measure.ops import Cells, cell
from fomkit.timings.collectives import SEND, SERVER, STREAM, op_of
from fomkit.timings.measure_payloads import FORMS, SCHEMES, buffer_sizes

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast")
ITEM_BYTE = 4
"""Of the numbers that are sent: fp32."""
LEAST_REPEATS = 12
"""In all visits together."""


class NetworkPlan(NamedTuple):
    """How much is measured between processes.

    Attributes
    ----------
    sizes : tuple of int
        Messages [byte].
    target : float
        Half the 95 % interval of a median, as a share of it, that is narrow enough.
    most : int
        Repeats at most, in all visits together.
    limit_s : float
        Wall time [s] that these may take.
    schemes : tuple of str
        Payloads of several buffers that are sent too.
    collectives : tuple of str
    visits : int
        Times that each exchange comes round. What disturbs a machine lasts for longer than a few repeats in a row,
        which then agree with each other and are all wrong.
    """

    sizes: tuple[int, ...]
    target: float
    most: int
    limit_s: float
    schemes: tuple[str, ...] = SCHEMES
    collectives: tuple[str, ...] = COLLECTIVES
    visits: int = 3

    def effort(self) -> dict[str, float | int]:
        """Give what each rank is told at one visit; see `fomkit.timings.measure_times.Effort`."""
        least, most = ceil(LEAST_REPEATS / self.visits), ceil(self.most / self.visits)
        return {"target": self.target, "least": least, "most": most, "limit_s": self.limit_s / self.visits}


PLANS: Mapping[str, NetworkPlan] = {
    "quick": NetworkPlan(tuple(4**power for power in range(2, 13)), 0.03, 30, 0.3),
    "default": NetworkPlan(tuple(2**power for power in range(4, 27)), 0.02, 60, 1.0),
    "full": NetworkPlan(tuple(2**power for power in range(2, 29)), 0.01, 100, 2.0),
}
"""The plans by name: messages up to 16, 64 and 256 MiB."""


class Case(NamedTuple):
    """An exchange to time: its cells of a row of timings, and what the ranks are asked."""

    cells: Cells
    request: Mapping[str, Any]


def _cells(collective: str, byte: float, ranks: int, link: str, op: str) -> Cells:
    return {
        "kind": "collective", "op": op, "dtype": "fp32", "engine": "vector", "collective": collective,
        "message_byte": cell(byte), "ranks": cell(ranks), "link": link,
    }  # fmt: skip


def _peers(hosts: list[str]) -> Iterator[tuple[str, int]]:
    """Give whom rank 0 exchanges messages with: one on its own node, one on another, as far as there are."""
    for tier, same in (("node", True), ("system", False)):
        found = [rank for rank in range(1, len(hosts)) if (hosts[rank] == hosts[0]) is same]
        if found:
            yield tier, found[0]


def cases(plan: NetworkPlan, hosts: list[str]) -> list[Case]:
    """List the exchanges of a plan between ranks on these hosts, short messages first.

    An interruption then leaves all kinds of exchange, and the start-up times of all.
    """
    ranks, effort = len(hosts), plan.effort()
    tier = "node" if len(set(hosts)) == 1 else "system"
    found = []
    for size in plan.sizes:
        for link, peer in _peers(hosts):
            for collective in (SEND, STREAM):
                request = {"collective": collective, "message_byte": size, "peer": peer, "effort": effort}
                found.append(Case(_cells(collective, size, 2, link, op_of(collective)), request))
        for collective in plan.collectives:
            part = max(ITEM_BYTE, round(size / ranks / ITEM_BYTE) * ITEM_BYTE)
            byte = part * ranks if collective in ("all_gather", "reduce_scatter") else size
            request = {"collective": collective, "message_byte": byte, "effort": effort}
            found.append(Case(_cells(collective, byte, ranks, tier, op_of(collective)), request))
    return found + list(_payloads(plan, hosts, tier))


def _payloads(plan: NetworkPlan, hosts: list[str], tier: str) -> Iterator[Case]:
    for scheme in plan.schemes:
        byte = sum(buffer_sizes(scheme))
        for form in FORMS:
            shared = {"scheme": scheme, "form": form, "effort": plan.effort()}
            for link, peer in _peers(hosts):
                cells = _cells(SEND, byte, 2, link, f"{SEND}/{scheme}/{form}")
                yield Case(cells, {**shared, "collective": SEND, "peer": peer})
            cells = _cells(SERVER, byte, len(hosts), tier, f"{SERVER}/{scheme}/{form}")
            yield Case(cells, {**shared, "collective": SERVER})

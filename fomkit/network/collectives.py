"""What a collective takes on a link of start-up time alpha and rate: the textbook formulas.

Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", 2005; Sanders,
Speck and Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", 2009; Li et al., "Scaling
distributed machine learning with the parameter server", 2014. One rank adds nothing.
"""

from __future__ import annotations

from math import ceil, log2
from typing import Literal, NamedTuple

Collective = Literal["all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast"]


class Line(NamedTuple):
    """A link as one device sees it: start-up [s] and rate of one direction [byte/s]."""

    alpha_s: float
    byte_per_s: float


def bus_factor(collective: Collective, ranks: int) -> float:
    """Give the bytes that each rank sends, per byte of the message (nccl-tests, PERFORMANCE.md).

    Examples
    --------
    >>> bus_factor("all_reduce", 8), bus_factor("all_gather", 8), bus_factor("broadcast", 8)
    (1.75, 0.875, 1.0)
    """
    if ranks == 1:
        return 0.0
    share = (ranks - 1) / ranks
    return {"all_reduce": 2 * share, "broadcast": 1.0}.get(collective, share)


def ring_s(collective: Collective, message_byte: float, ranks: int, line: Line) -> float:
    """Give the time around a ring [s].

    Parameters
    ----------
    collective : str
    message_byte : float
        Bytes of the whole: what each rank has before an all_reduce and after an all_gather.
    ranks : int
    line : Line

    Examples
    --------
    >>> round(1e3 * ring_s("all_reduce", 102_228_128, 8, Line(0.0, 10e9)), 4)
    17.8899
    """
    starts = 2 * (ranks - 1) if collective == "all_reduce" else ranks - 1
    return starts * line.alpha_s + bus_factor(collective, ranks) * message_byte / line.byte_per_s


def tree_s(message_byte: float, ranks: int, line: Line) -> float:
    """Give the time of an all_reduce up and down two trees that share the link [s].

    Examples
    --------
    >>> tree_s(1e9, 1, Line(1e-6, 1e9)), tree_s(1e9, 8, Line(0.0, 1e9))
    (0.0, 2.0)
    """
    if ranks == 1:
        return 0.0
    return 2 * ceil(log2(ranks)) * line.alpha_s + 2 * message_byte / line.byte_per_s


def hierarchical_s(message_byte: float, inner: int, outer: int, inside: Line, outside: Line) -> float:
    """Give the time of an all_reduce in three stages: scatter inside, reduce outside, gather inside [s].

    Examples
    --------
    >>> round(1e3 * hierarchical_s(102_228_128, 8, 4, Line(0.0, 100e9), Line(0.0, 10e9)), 4)
    3.7058
    """
    return (
        ring_s("reduce_scatter", message_byte, inner, inside)
        + ring_s("all_reduce", message_byte / inner, outer, outside)
        + ring_s("all_gather", message_byte, inner, inside)
    )


def ingress_byte(message_byte: float, workers: int, servers: int = 1) -> float:
    """Give the bytes that one parameter server takes in for each step [byte].

    Examples
    --------
    >>> ingress_byte(240_771_232, 11) / 1e9
    2.648483552
    """
    return workers * message_byte / servers


def parameter_server_s(message_byte: float, workers: int, servers: int, line: Line) -> float:
    """Give the time of gradients in and parameters out over the servers' links, one after the other [s].

    A single worker keeps its parameters: nothing is sent.
    """
    if workers == 1:
        return 0.0
    # A worker's own link carries one message; the servers' carry those of all workers.
    each_way = max(ingress_byte(message_byte, workers, servers), message_byte) / line.byte_per_s
    return 2 * (line.alpha_s + each_way)

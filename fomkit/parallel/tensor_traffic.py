"""What a tensor group, or replicas that share experts, send in one block, forward and backward, and what hides it.

Shoeybi et al., arXiv 1909.08053, section 3; Korthikanti et al., arXiv 2205.05198, section 4.2: sums after each
half of a block, or with sequence parallelism a gather before and a scatter after it. Backward, the sum of an
input's gradient runs beside the product that gives the weight's (ibid., as remembered), and the gather of inputs
that were not kept beside the product that gives the input's.
"""

from __future__ import annotations

from typing import NamedTuple

from fomkit.network.collectives import Collective


class Sent(NamedTuple):
    """Collectives of the stream of a block: which, how many, and the op that hides each; "" where none does."""

    collective: Collective
    hidden_by: str


HALVES = ("feed-forward in", "queries, keys, values")


def forward_sent(*, sequence: bool) -> list[Sent]:
    """List what a block sends going forward."""
    if not sequence:
        return [Sent("all_reduce", "")] * 2
    return [Sent("all_gather", "")] * 2 + [Sent("reduce_scatter", "")] * 2


def backward_sent(*, sequence: bool, experts: bool = False) -> list[Sent]:
    """List what a block sends going backward; nothing hides the sum of an input that comes back from experts."""
    beside = ["" if experts else f"{HALVES[0]}, by weight", f"{HALVES[1]}, by weight"]
    if not sequence:
        return [Sent("all_reduce", one) for one in beside]
    gathered = [Sent("all_gather", "")] * 2
    again = [Sent("all_gather", f"{half}, by input") for half in HALVES]
    return [*gathered, *again, *(Sent("reduce_scatter", one) for one in beside)]


def experts_sent() -> list[Sent]:
    """List what a block sends either way to the replicas that share its experts: there and back."""
    return [Sent("all_to_all", "")] * 2


def head_sent(*, sequence: bool) -> list[Sent]:
    """List what the output layer sends, both ways; the sums of the loss are a number a token and are left out."""
    if not sequence:
        return [Sent("all_reduce", "output, by weight")]
    return [
        Sent("all_gather", ""),
        Sent("all_gather", "output, by input"),
        Sent("reduce_scatter", "output, by weight"),
    ]


def embedding_sent(*, sequence: bool) -> list[Sent]:
    """List what the embedding sends, both ways: its words are split."""
    return [Sent("reduce_scatter", ""), Sent("all_gather", "")] if sequence else [Sent("all_reduce", "")]

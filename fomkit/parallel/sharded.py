"""A step whose replicas share gradients, or parameters too: sent for every microbatch, block by block.

FSDP of PyTorch (Zhao et al., "PyTorch FSDP", VLDB 2023, section 3) and ZeRO 2 and 3 (Rajbhandari et al., SC 2020).
A unit is a block; the root holds the words and what else is outside blocks. One unit is gathered while the one
before it runs.
"""

from __future__ import annotations

from typing import NamedTuple

from fomkit.core.interval import Span
from fomkit.core.job import Layout
from fomkit.parallel.traffic import Traffic, Waited
from fomkit.prediction.exchange import Exchange, Group, Network
from fomkit.prediction.links import Collective, bus_factor

COLLECTIVES: tuple[Collective, ...] = ("all_gather", "reduce_scatter")


class Piece(NamedTuple):
    """Parameters that are gathered and scattered together, and the devices that share them."""

    parameters: float
    group: Group


class Unit(NamedTuple):
    """A block, or what is outside all blocks; experts have a group of their own."""

    pieces: tuple[Piece, ...]

    def sent_byte(self, gathers: float, gather_byte: float, scatter_byte: float) -> float:
        """Count the bytes that a device sends in so many gathers and one scatter."""
        return sum(
            bus_factor("all_gather", piece.group.ranks) * piece.parameters * (gathers * gather_byte + scatter_byte)
            for piece in self.pieces
        )


class Sharding(NamedTuple):
    """What is shared out, and the passes of one block [s] of a microbatch that hide what is sent.

    `gather_byte`, `scatter_byte`: of a parameter as it is gathered, of its gradient as it is scattered.
    `backward_s`: with what is made again for it.
    """

    block: Unit
    root: Unit
    blocks: int
    gather_byte: float
    scatter_byte: float
    forward_s: float
    backward_s: float

    def held_byte(self, zero: int) -> float:
        """Count the bytes that a device holds whole beside its share: of zero 3 two blocks and the root, gathered.

        The gradients of one block and of the root wait there to be scattered.
        """
        block, root = (sum(piece.parameters for piece in unit.pieces) for unit in (self.block, self.root))
        whole = 2 * block + root if zero == 3 else 0.0
        return self.gather_byte * whole + self.scatter_byte * (block + root)


class _Times(NamedTuple):
    """What a unit takes to be gathered and scattered [s]."""

    gather_s: float
    scatter_s: float


def _exchanges(unit: Unit, layout: Layout, network: Network, byte: tuple[float, float]) -> list[list[Exchange]]:
    """Give the gathers and the scatters of a unit's pieces."""
    gather, scatter = byte
    return [
        [network.exchange(name, size * piece.parameters, piece.group, layout.algorithm) for piece in unit.pieces]
        for name, size in zip(COLLECTIVES, (gather, scatter), strict=True)
    ]


def _at(exchanges: list[list[Exchange]], end: str) -> _Times:
    return _Times(*(sum(float(getattr(one.time, end)) for one in found) for found in exchanges))


def _microbatch(layout: Layout, of: Sharding, block: _Times, root: _Times, *, scatters: bool) -> Waited:
    """Play one microbatch; without ``scatters`` its gradients stay whole on each device until the last."""
    gather, inner = block.gather_s, of.blocks - 1
    scatter, last = (block.scatter_s, root.scatter_s) if scatters else (0.0, 0.0)
    gathers = of.blocks * (2 if layout.zero == 3 else 1)
    busy = root.gather_s + gathers * gather + of.blocks * scatter + last
    if not layout.overlap:
        return Waited(busy, busy)
    exposed = root.gather_s + gather + inner * max(0.0, gather - of.forward_s) + scatter + last
    if layout.zero < 3:
        return Waited(busy, exposed + inner * max(0.0, scatter - of.backward_s))
    if layout.prefetch == "pre":
        each = max(0.0, gather + scatter - of.backward_s)
    else:
        each = max(0.0, scatter - of.backward_s) + gather
    return Waited(busy, exposed + gather + inner * each)


def sharded_wait(layout: Layout, network: Network, of: Sharding, microbatches: int, end: str) -> Waited:
    """Give what links are busy in a step and what nothing hides [s]; collectives at one end of their intervals."""
    byte = (of.gather_byte, of.scatter_byte * layout.compression)
    block, root = (_at(_exchanges(unit, layout, network, byte), end) for unit in (of.block, of.root))
    each = layout.scatter == "each"
    before = _microbatch(layout, of, block, root, scatters=each)
    last = _microbatch(layout, of, block, root, scatters=True)
    return Waited(*((microbatches - 1) * one + other for one, other in zip(before, last, strict=True)))


def sharded_traffic(layout: Layout, network: Network, of: Sharding, microbatches: int) -> Traffic:
    """Give the traffic of one step between replicas that share gradients, or parameters too."""
    ends = [sharded_wait(layout, network, of, microbatches, end) for end in ("value", "low", "high")]
    busy, exposed = (Span(value, low, high, network.level) for value, low, high in zip(*ends, strict=True))
    byte = (of.gather_byte, of.scatter_byte * layout.compression)
    found = [_exchanges(unit, layout, network, byte) for unit in (of.block, of.root)]
    sources = {one.source for unit in found for exchanges in unit for one in exchanges}
    scatters = microbatches if layout.scatter == "each" else 1
    gathers = microbatches * (2 if layout.zero == 3 else 1)
    sent = of.blocks * of.block.sent_byte(gathers, of.gather_byte, scatters * byte[1])
    sent += of.root.sent_byte(microbatches, of.gather_byte, scatters * byte[1])
    return Traffic(busy, exposed, sent, "measured" if sources <= {"measured"} else "alpha_beta")

"""Small random networks, with the work of their products counted by brute force."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from hypothesis import strategies as st

OPS = ("product", "turned", "relu", "add", "square", "concat")


class Op(NamedTuple):
    """An op on matrices of ``batch`` rows: its operands, and the number of columns of its result."""

    op: str
    name: str
    reads: tuple[str, ...]
    width: int


class Product(NamedTuple):
    """A product: its result, its operands, its counted flop, and whether it has a weight."""

    name: str
    reads: tuple[str, ...]
    flop: int
    has_weight: bool


class Network(NamedTuple):
    """A network that ends in its last op.

    ``trained`` tells the tensors that depend on a weight, ``useful`` those that the result depends on.
    """

    batch: int
    width: int
    ops: tuple[Op, ...]
    products: tuple[Product, ...]
    trained: dict[str, bool]
    useful: frozenset[str]

    @property
    def is_trained(self) -> bool:
        return self.trained[self.ops[-1].name]

    def flop(self, *, runs_all: bool = True) -> int:
        """Return the work of a step; with ``runs_all`` ops that no result depends on are run, too."""
        total = 0
        for one in self.products:
            if runs_all or one.name in self.useful:
                total += one.flop
            if one.name in self.useful:
                total += one.flop * (one.has_weight + sum(self.trained[name] for name in one.reads))
        return total


def _counted(*lengths: int) -> int:
    """Count the multiplications and additions of a product one by one."""
    count = 0
    for _ in range(lengths[0]):
        for _ in range(lengths[1]):
            for _ in range(lengths[2]):
                count += 2
    return count


@st.composite
def networks(draw: Any, ops: Sequence[str] = OPS) -> Network:
    """Draw a network of up to seven of some ops."""
    batch, widths = draw(st.integers(2, 5)), {"x": draw(st.integers(1, 4))}
    trained, sources = {"x": False}, dict[str, tuple[str, ...]]({"x": ()})
    made: list[Op] = []
    products: list[Product] = []
    for at in range(draw(st.integers(1, 7))):
        op, one, name = draw(st.sampled_from(ops)), draw(st.sampled_from(sorted(widths))), f"t{at}"
        reads, width = (one,), widths[one]
        if op in ("product", "turned"):
            width = draw(st.integers(1, 4))
            products.append(Product(name, (one,), _counted(batch, widths[one], width), True))
        elif op == "square":  # products of two tensors that are not weights: (B×w)·((w×B)·(B×w))
            products += [Product(f"v{at}", (one, one), _counted(width, batch, width), False),
                         Product(name, (one, f"v{at}"), _counted(batch, width, width), False)]  # fmt: skip
            trained[f"v{at}"], sources[f"v{at}"] = trained[one], (one,)
            reads = (one, f"v{at}")
        elif op in ("add", "concat"):
            others = [key for key in sorted(widths) if op == "concat" or widths[key] == width]
            reads = (one, draw(st.sampled_from(others)))
            width += widths[reads[1]] if op == "concat" else 0
        widths[name], sources[name] = width, reads
        trained[name] = op in ("product", "turned") or any(trained[key] for key in reads)
        made.append(Op(op, name, reads, width))
    useful, waiting = set[str](), [made[-1].name]
    while waiting:
        name = waiting.pop()
        if name not in useful:
            useful.add(name)
            waiting += sources[name]
    return Network(batch, widths["x"], tuple(made), tuple(products), trained, frozenset(useful))

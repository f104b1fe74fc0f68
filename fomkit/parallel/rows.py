"""Rows of an op table under construction: products, streams over elements, and the gradients of a product."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fomkit.workload import Transformer

Row = dict[str, Any]


class Split(NamedTuple):
    """One microbatch as one device of a tensor group sees it.

    ``sequence``: norms, dropouts and residuals are split too; ``dtype``: of activations and products, 2 bytes;
    ``expert``: replicas that share the experts.
    """

    samples: float
    tensor: int
    sequence: bool
    dtype: str
    expert: int = 1

    def whole(self, shape: Transformer) -> float:
        """Count the elements of the stream between the halves of a block."""
        return shape.seq * self.samples * shape.hidden / (self.tensor if self.sequence else 1)

    def slots(self, shape: Transformer) -> float:
        """Count the places for tokens that a device sends to the experts, and gets from others for its own."""
        return self.samples * shape.experts * shape.expert_slots


CORE = "block.attention"
"""Module of what selective recomputation makes again: scores, softmax, its dropout, context."""
BLOCK = "block"


@dataclass
class Rows:
    """Ops under construction, in one number format."""

    dtype: str
    rows: list[Row] = field(default_factory=list)

    def product(
        self, op: str, pass_name: str, size: tuple[float, float, float], module: str = BLOCK, *,
        batches: float = 1.0, stored: tuple[int, int] = (0, 1),
    ) -> None:  # fmt: skip
        """Add (m × k)·(k × n), given as (m, n, k); ``stored`` tells which factors lie transposed."""
        m, n, k = size
        self.rows.append(
            {"op": op, "kind": "gemm", "dtype": self.dtype, "engine": "matrix", "pass_name": pass_name,
             "b": batches, "m": m, "n": n, "k": k, "trans_a": stored[0], "trans_b": stored[1], "module": module}
        )  # fmt: skip

    def stream(
        self, op: str, pass_name: str, kind: str, numel: float, read: float, write: float, row: float,
        module: str = BLOCK, dtype: str = "",
    ) -> None:  # fmt: skip
        """Add an op that reads and writes so many bytes of each element."""
        self.rows.append(
            {"op": op, "kind": kind, "dtype": dtype or self.dtype, "engine": "vector", "pass_name": pass_name,
             "numel": numel, "row": row, "read_byte": read * numel, "write_byte": write * numel, "module": module}
        )  # fmt: skip


def linear_backward(
    rows: Rows, op: str, tokens: float, width: float, reduced: float, module: str = BLOCK, *, batches: float = 1.0,
) -> None:  # fmt: skip
    """Add both gradients of (tokens × reduced)·(reduced × width), and what the sum in fp32 adds to the second.

    The sum is read and written in 4 bytes where the timed product writes 2. ``batches``: as many such products,
    each with weights of its own.
    """
    way, numel = "backward", batches * width * reduced
    rows.product(f"{op}, by input", way, (tokens, reduced, width), module, batches=batches, stored=(0, 0))
    rows.product(f"{op}, by weight", way, (width, reduced, tokens), module, batches=batches, stored=(1, 0))
    rows.stream(f"{op}, to the fp32 sum", way, "pointwise", numel, 4, 2, reduced, module, "fp32")

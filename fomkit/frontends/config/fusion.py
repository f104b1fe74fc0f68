"""How many kernels norms, activations, positions, attention and the update are: the choice of a profile.

Each rule says what an op reads and writes, in numbers for each element, so that its share of traffic is counted
(`moved_byte`); flop of products are the same in all. ``vendor`` is what training and serving libraries run: one
kernel each. ``eager`` is what a framework runs op by op, without a compiler, where the model's code states the
formula: a root-mean-square norm in fp32, a gate beside its activation, positions by halves, scores that are
written out, an update of lists of tensors. ``compiled`` has one kernel each too, joins adding to the stream with
the norm after it, as a compiler does with element-wise ops and the sums that follow them, and leaves the update to
the framework. A norm with a mean is one kernel of the framework itself, so that eager keeps it.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Fusion = Literal["eager", "compiled", "vendor"]


class Part(NamedTuple):
    """One kernel of a formula that is run op by op.

    `reads`, `writes`: numbers for each element, in the stream's format, and in fp32. `share`: of the elements.
    """

    op: str
    kind: str
    reads: tuple[int, int]
    writes: tuple[int, int]
    share: int = 1


_NORM = (
    Part("to fp32", "copy", (1, 0), (0, 1)),
    Part("squares", "pointwise", (0, 1), (0, 1)),
    Part("mean", "reduction", (0, 1), (0, 0)),
    Part("scaled", "pointwise", (0, 1), (0, 1)),
    Part("from fp32", "copy", (0, 1), (1, 0)),
    Part("weighted", "pointwise", (1, 0), (1, 0)),
)
_NORM_GRADIENT = (
    Part("weighted, gradient", "pointwise", (1, 0), (1, 0)),
    Part("weights, gradient", "pointwise", (2, 0), (1, 0)),
    Part("weights, summed", "reduction", (1, 0), (0, 0)),
    Part("from fp32, gradient", "copy", (1, 0), (0, 1)),
    Part("scaled, gradient", "pointwise", (0, 1), (0, 1)),
    Part("scale, gradient", "pointwise", (0, 2), (0, 1)),
    Part("scale, summed", "reduction", (0, 1), (0, 0)),
    Part("squares, gradient", "pointwise", (0, 1), (0, 1)),
    Part("gradients added", "pointwise", (0, 2), (0, 1)),
    Part("to fp32, gradient", "copy", (0, 1), (1, 0)),
)
_TURNED = (
    Part("times cosines", "pointwise", (1, 0), (1, 0)),
    Part("half negated", "pointwise", (1, 0), (1, 0), 2),
    Part("halves exchanged", "copy", (1, 0), (1, 0)),
    Part("times sines", "pointwise", (1, 0), (1, 0)),
    Part("turned", "pointwise", (2, 0), (1, 0)),
)
_GATED = (Part("activation", "pointwise", (1, 0), (1, 0)), Part("gated", "pointwise", (2, 0), (1, 0)))
_GATED_GRADIENT = (
    Part("gate, gradient", "pointwise", (2, 0), (1, 0)),
    Part("gated, gradient", "pointwise", (2, 0), (1, 0)),
    Part("activation, gradient", "pointwise", (2, 0), (1, 0)),
)

EAGER: dict[str, tuple[tuple[Part, ...], tuple[Part, ...]]] = {
    "norm": (_NORM, _NORM_GRADIENT),
    "positions": (_TURNED, tuple(part._replace(op=f"{part.op}, gradient") for part in _TURNED)),
    "gated": (_GATED, _GATED_GRADIENT),
}
"""Kernels of the forward pass and of the gradients, op by op."""
ONE_KERNEL: dict[str, tuple[tuple[int, int], tuple[int, int]]] = {
    "norm": ((1, 1), (2, 1)),
    "norm with a mean": ((1, 1), (2, 1)),
    "positions": ((1, 1), (1, 1)),
    "gated": ((2, 1), (3, 2)),
    "added": ((2, 1), (2, 1)),
    "added and normalised": ((2, 2), (3, 1)),
}
"""Numbers that one kernel reads and writes for each element, forward and for the gradient."""


def moved_byte(parts: tuple[Part, ...], item_byte: int) -> float:
    """Give the bytes that kernels read and write for each element of a stream.

    A root-mean-square norm in bf16 moves 36 byte an element op by op, and 4 in one kernel.

    >>> moved_byte(EAGER["norm"][0], 2), sum(ONE_KERNEL["norm"][0]) * 2
    (36.0, 4)
    """
    return sum(
        (sum(one[0] for one in (part.reads, part.writes)) * item_byte
         + sum(one[1] for one in (part.reads, part.writes)) * 4) / part.share
        for part in parts
    )  # fmt: skip


IMPL: dict[Fusion, str] = {"eager": "foreach", "compiled": "foreach", "vendor": "fused"}
"""How AdamW runs."""
NOTES: dict[Fusion, str] = {
    "eager": "fusion eager: norms without a mean, gates, positions, attention and AdamW run op by op, as code "
    "states them; products are joined as in libraries",
    "compiled": "fusion compiled: adding to the stream and the norm after it are one kernel, AdamW runs on lists "
    "of tensors; products are joined as in libraries",
    "vendor": "",
}

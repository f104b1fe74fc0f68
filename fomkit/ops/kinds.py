"""The kinds of work, with one entry each: title, dimensions, formula, and role in a step.

Lists of kinds with a property are derived from these entries, not written elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Literal, NamedTuple

from fomkit.ops.families import costs
from fomkit.ops.families.formula import PASSES, Formula
from fomkit.ops.tables import TRAFFIC

Role = Literal["product", "rows", "elements", "moves", "update", "exchange", "beside", "other"]
"""The role of a kind in a step: ``product`` multiplies and adds up, 2 flop per pair; ``rows`` adds up along rows
or windows; ``elements`` works element by element; ``moves`` only moves data; ``update`` is the optimizer's;
``exchange`` is a message between devices; ``beside`` runs while the device computes."""


class Kind(NamedTuple):
    """One kind of work.

    `title`: its ops, in the plural.
    `dimensions`, `optional`: required and optional columns of its rows.
    `formula`: its cost; None if it is unpriced (NaN, never 0). A collective waits for links, so device memory and
      arithmetic do not bound its time.
    `named`: whether the framework's name of an op matters besides the sizes.
    `by_pass`: whether the time for the same sizes may depend on the pass.
    """

    title: str
    role: Role
    dimensions: tuple[str, ...]
    optional: tuple[str, ...] = ()
    formula: Formula | None = None
    named: bool = True
    by_pass: bool = True

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns that are specific to its rows."""
        return self.dimensions + self.optional


_IMAGE = ("batch", "in_channels", "out_channels", "depth", "height", "width")
_WINDOW = tuple(f"{name}_{axis}" for name in ("kernel", "stride", "pad", "dilation") for axis in "dhw")
_STORED = ("trans_a", "trans_b", "layout")
_BOTH_PASSES = (("forward",), ("backward",))
_BY_PASS = tuple((name,) for name in PASSES)
_CELLS = tuple(product(costs.GATES, PASSES))
_PER_ELEMENT = Formula(costs.per_element)

KINDS: Mapping[str, Kind] = {
    "gemm": Kind(
        "matrix products", "product", ("b", "m", "n", "k"), (*_STORED, "weight_share"), Formula(costs.gemm),
        named=False, by_pass=False,
    ),
    "sparse_gemm": Kind(
        "sparse products", "product", ("b", "m", "n", "k", "density"), _STORED, Formula(costs.sparse_gemm),
        named=False, by_pass=False,
    ),
    "conv": Kind(
        "convolutions", "product", (*_IMAGE, *_WINDOW, "groups"),
        ("layout", "transposed", "output_pad_d", "output_pad_h", "output_pad_w"),
        Formula(costs.conv, ("pass_name",), _BY_PASS, costs.PARTS), named=False,
    ),
    "rnn": Kind(
        "recurrent layers", "product",
        ("cell", "batch", "steps", "input_size", "hidden_size", "layers", "directions"), (),
        Formula(costs.rnn, ("cell", "pass_name"), _CELLS), named=False,
    ),
    "attention": Kind(
        "attention", "product", ("batch", "heads", "kv_heads", "q_len", "kv_len", "head_dim", "causal"),
        ("shared_dim",), Formula(costs.attention, ("pass_name",), _BOTH_PASSES), named=False,
    ),
    "experts": Kind(
        "mixtures of experts", "product", ("b", "m", "n", "k", "experts", "top_k"), ("weight_share",),
        Formula(costs.mixture), named=False,
    ),
    "pointwise": Kind(
        "element-by-element ops", "elements", ("numel", *TRAFFIC), ("row", "inputs"), _PER_ELEMENT
    ),
    "reduction": Kind("sums over rows", "rows", ("numel", *TRAFFIC), ("row", "inputs"), _PER_ELEMENT),
    "norm": Kind(
        "normalisation", "rows", ("numel", "row", *TRAFFIC), ("inputs",),
        Formula(costs.norm, ("pass_name",), _BOTH_PASSES),
    ),
    "softmax": Kind(
        "softmax", "rows", ("numel", "row", *TRAFFIC), ("inputs",),
        Formula(costs.softmax, ("pass_name",), _BOTH_PASSES),
    ),
    "pool": Kind("pooling", "rows", ("numel", *TRAFFIC), ("row", "inputs"), _PER_ELEMENT),
    "embedding": Kind(
        "embedding look-ups", "moves", ("numel", *TRAFFIC), ("row", "inputs"), Formula(costs.moved)
    ),
    "copy": Kind("copies", "moves", ("numel", *TRAFFIC), ("row", "inputs"), Formula(costs.moved)),
    "optimizer": Kind(
        "the update", "update", ("rule", "impl", "numel", "tensors"), (),
        Formula(costs.optimizer, ("rule", "impl"), costs.VARIANTS), named=False,
    ),
    "collective": Kind(
        "collectives", "exchange", ("collective", "message_byte", "ranks", "link"), named=False, by_pass=False
    ),
    "input": Kind("input", "beside", TRAFFIC),
    "other": Kind("others", "other", (), ("numel", "row", "inputs", *TRAFFIC), _PER_ELEMENT),
}  # fmt: skip
"""Every kind, in the order of tables."""


def of_role(*roles: Role) -> tuple[str, ...]:
    """Return the kinds with some roles.

    >>> of_role("moves")
    ('embedding', 'copy')
    """
    return tuple(name for name, kind in KINDS.items() if kind.role in roles)


PRODUCT_KINDS = of_role("product")
"""Kinds that multiply and add up; with a complex number format each product is four real ones."""
UNNAMED_KINDS = tuple(name for name, kind in KINDS.items() if not kind.named)
"""Kinds whose timings apply to every name of the op."""
PASS_FREE_KINDS = tuple(name for name, kind in KINDS.items() if not kind.by_pass)
"""Kinds whose time depends on the sizes alone, not on the pass."""

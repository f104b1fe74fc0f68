"""Kinds of ops in words, and what helps an op of a kind that is slower than its machine allows."""

from __future__ import annotations

from collections.abc import Mapping

NAMES: Mapping[str, str] = {
    "gemm": "matrix products", "conv": "convolutions", "rnn": "recurrent layers", "attention": "attention",
    "sparse_gemm": "sparse products", "pointwise": "element-by-element ops", "norm": "normalisation",
    "reduction": "sums over rows", "softmax": "softmax", "pool": "pooling", "embedding": "embedding look-ups",
    "copy": "copies", "optimizer": "the update", "collective": "collectives", "input": "input", "other": "others",
}  # fmt: skip

REMEDIES: Mapping[str, str] = {
    "conv": "let the library search its algorithms (torch.backends.cudnn.benchmark = True), store images "
    "channels last",
    "gemm": "make small products larger (a larger batch, several products as one), keep sizes multiples of 64",
    "rnn": "use the library's whole layer (torch.nn.LSTM) and a larger batch",
    "attention": "see that a fused kernel runs (torch.nn.functional.scaled_dot_product_attention; flash attention "
    "needs a 16-bit format)",
    "norm": "let a compiler join it with its neighbours (torch.compile, XLA)",
    "pointwise": "let a compiler join ops into one (torch.compile, XLA)",
    "copy": "avoid copies (contiguous, transposes, casts); let a compiler join the rest",
    "reduction": "let a compiler join it with its neighbours (torch.compile, XLA)",
    "softmax": "compute loss and softmax in one (cross_entropy in the products' format) or in pieces",
    "pool": "store images channels last, or replace pooling by strides",
    "embedding": "use sparse gradients, or a fused embedding bag",
}


def kinds_in_words(kinds: list[str], most: int = 3) -> str:
    """Write kinds as a list, the first ones only.

    Examples
    --------
    >>> kinds_in_words(["conv", "norm"])
    'convolutions and normalisation'
    """
    names = [NAMES.get(kind, kind) for kind in kinds[:most]]
    more = ["more"] if len(kinds) > most else []
    *first, last = [*names, *more]
    return f"{', '.join(first)} and {last}" if first else last


def remedies(kinds: list[str], most: int = 2) -> str:
    """Say what helps the first of some kinds."""
    found = [f"{NAMES[kind]}: {REMEDIES[kind]}" for kind in kinds if kind in REMEDIES]
    return "; ".join(found[:most])

"""Which file makes an op of which kind with TensorFlow, and why some kinds are not made."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fomkit.timings.measure_cases import TOLERANCES, CannotTimeError, Cells
from fomkit.timings.measure_tf_graph import GraphCase
from fomkit.timings.measure_tf_products import convolution, product
from fomkit.timings.measure_tf_rows import OVER, over_rows
from fomkit.timings.measure_tf_traffic import NAMED, elementwise

MAKERS: Mapping[str, Callable[[Cells], GraphCase]] = {
    "gemm": product,
    "conv": convolution,
    "pointwise": elementwise,
    "copy": elementwise,
    "softmax": over_rows,
    "norm": over_rows,
    "reduction": over_rows,
    "embedding": over_rows,
}
LEFT_OUT: Mapping[str, str] = {
    "sparse_gemm": "sparse products are timed with PyTorch only",
    "rnn": "on a CPU Keras runs recurrent layers as loops of other ops",
    "attention": "Keras runs attention as products and a softmax",
    "pool": "pooling is timed with PyTorch only",
    "optimizer": "updates are timed with PyTorch only",
}
"""Kinds that are not timed with TensorFlow, and why."""


def knows_op(cells: Cells) -> bool:
    """Tell whether the op that a row names is made here, so that its timing may carry the name."""
    return cells.get("op", "") in (OVER if MAKERS.get(cells["kind"]) is over_rows else NAMED)


def make_case(cells: Cells) -> GraphCase:
    """Make the op of a row.

    Raises
    ------
    CannotTimeError
        When the op has no way to be made here.
    """
    maker = MAKERS.get(cells["kind"])
    if maker is None:
        raise CannotTimeError(LEFT_OUT.get(cells["kind"], f"the kind {cells['kind']} is not timed here"))
    try:
        return maker(cells)
    except (KeyError, ValueError) as error:
        raise CannotTimeError(f"a size is missing or no number ({error})") from error


def checked_case(cells: Cells) -> tuple[GraphCase, float]:
    """Make the op of a row, run it once, and give it with the error of its result.

    Raises
    ------
    CannotTimeError
        When it cannot be made, or its result is not that of double precision: a fast wrong kernel is no timing.
    """
    import tensorflow as tf

    tf.random.set_seed(0)
    case = make_case(cells)
    error = case.check(case.op(*case.operands))
    if not error <= TOLERANCES.get(cells["dtype"], 0.0):
        raise CannotTimeError(f"its result is wrong by {error:.1e} of the largest value")
    return case, error

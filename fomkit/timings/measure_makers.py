"""Which file makes an op of which kind: the last of those of a pack's script that make ops."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fomkit.timings.measure_cases import CannotTimeError, Case, Cells, item_byte
from fomkit.timings.measure_products import (
    attention,
    check_convolution,
    check_product,
    check_sparse_product,
    convolution,
    product,
    recurrent,
    sparse_product,
)
from fomkit.timings.measure_traffic import NAMED, check_elementwise, elementwise, short_name
from fomkit.timings.measure_updates import check_update, update
from fomkit.timings.measure_windows import OVER, check_rows, over_rows

MAKERS: Mapping[str, Callable[[Cells, str], Case]] = {
    "gemm": product,
    "sparse_gemm": sparse_product,
    "conv": convolution,
    "rnn": recurrent,
    "attention": attention,
    "pointwise": elementwise,
    "copy": elementwise,
    "softmax": over_rows,
    "norm": over_rows,
    "reduction": over_rows,
    "pool": over_rows,
    "embedding": over_rows,
    "optimizer": update,
}
CHECKS: Mapping[str, Callable[[Cells], None]] = {
    "gemm": check_product,
    "sparse_gemm": check_sparse_product,
    "conv": check_convolution,
    **dict.fromkeys(("pointwise", "copy"), check_elementwise),
    **dict.fromkeys(("softmax", "norm", "reduction", "pool", "embedding"), check_rows),
    "optimizer": check_update,
}
"""What raises `CannotTimeError` for a row that its maker does not make, by kind; the other kinds are all made."""


def knows_op(cells: Cells) -> bool:
    """Tell whether the op that a row names is made here, so that its timing may carry the name."""
    name = short_name(cells)
    return name in (OVER if MAKERS.get(cells["kind"]) is over_rows else NAMED)


def check_case(cells: Cells) -> None:
    """Find out, without PyTorch, whether the op of a row whose sizes are complete is made here.

    Raises
    ------
    CannotTimeError
        When the op has no way to be made here.
    """
    if cells["kind"] not in MAKERS:
        raise CannotTimeError(f"the kind {cells['kind']} is not timed here")
    try:
        item_byte(cells)
        if cells["kind"] in CHECKS:
            CHECKS[cells["kind"]](cells)
    except (KeyError, ValueError) as error:
        raise CannotTimeError(f"a size is missing or no number ({error})") from error


def make_case(cells: Cells, device: str) -> Case:
    """Make the op of a row.

    Parameters
    ----------
    cells : mapping
        Cells of a row of timings by column, as text.
    device : str
        ``cpu`` or ``cuda``.

    Raises
    ------
    CannotTimeError
        When the op has no way to be made here.
    """
    check_case(cells)
    try:
        return MAKERS[cells["kind"]](cells, device)
    except (KeyError, ValueError) as error:
        raise CannotTimeError(f"a size is missing or no number ({error})") from error

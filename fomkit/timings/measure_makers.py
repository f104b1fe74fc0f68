"""Which file makes an op of which kind: the last of those of a pack's script that make ops."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fomkit.timings.measure_cases import CannotTimeError, Case, Cells
from fomkit.timings.measure_products import attention, convolution, product, recurrent, sparse_product
from fomkit.timings.measure_traffic import NAMED, elementwise, short_name
from fomkit.timings.measure_updates import update
from fomkit.timings.measure_windows import OVER, over_rows

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


def knows_op(cells: Cells) -> bool:
    """Tell whether the op that a row names is made here, so that its timing may carry the name."""
    name = short_name(cells)
    return name in (OVER if MAKERS.get(cells["kind"]) is over_rows else NAMED)


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
    maker = MAKERS.get(cells["kind"])
    if maker is None:
        raise CannotTimeError(f"the kind {cells['kind']} is not timed here")
    try:
        return maker(cells, device)
    except (KeyError, ValueError) as error:
        raise CannotTimeError(f"a size is missing or no number ({error})") from error

"""An op table at another size: traced once, estimated at any batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fomkit.errors import FomkitError
from fomkit.resize.expressions import evaluate, names_in
from fomkit.schema import HUGE, SIZED, row_place

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray


def sizes_used(ops: pd.DataFrame) -> set[str]:
    """Give the named sizes that the dimensions of an op table depend on."""
    names: set[str] = set()
    for column in SIZED:
        if column in ops.columns and ops[column].dtype.kind != "f":
            for text in {cell for cell in ops[column] if isinstance(cell, str)}:
                names |= names_in(text)
    return names


def _size(text: str, sizes: Mapping[str, int], place: str) -> float:
    value = evaluate(text, sizes, place)
    if not 0 <= value <= HUGE:
        # Compared as an integer: one of hundreds of digits is no float.
        shown = str(value) if abs(value) <= HUGE else f"a number of {len(str(abs(value)))} digits"
        raise FomkitError(place, f"{text!r} gives {shown}. Expected 0 to {HUGE:g}.")
    return float(value)


def evaluate_many(text: str, sizes: Mapping[str, NDArray[np.float64]], where: str) -> NDArray[np.float64]:
    """Work out an expression for many values of the named sizes (s,) at once.

    Raises
    ------
    FomkitError
        As `resize_ops`; for the first of the values that gives a size below 0 or too large.
    """
    import numpy as np

    value = np.asarray(evaluate(text, sizes, where), np.float64)
    value = np.broadcast_to(value, next(iter(sizes.values())).shape)
    wrong = np.flatnonzero(~((value >= 0) & (value <= HUGE)))
    if len(wrong):
        raise FomkitError(where, f"{text!r} gives {value[wrong[0]]:g}. Expected 0 to {HUGE:g}.")
    return value


def resize_ops(ops: pd.DataFrame, sizes: Mapping[str, int], where: str) -> pd.DataFrame:
    """Put numbers for the named sizes.

    Parameters
    ----------
    ops : DataFrame
        An OPS table whose dimension cells are numbers or expressions.
    sizes : mapping
        The value of each named size.
    where : str
        Name of the profile, for error messages.

    Returns
    -------
    DataFrame
        The same rows with float64 dimensions.

    Raises
    ------
    FomkitError
        When an expression cannot be worked out or gives a size below 0 or too large.
    """
    import numpy as np

    columns: dict[str, NDArray[np.float64]] = {}
    for column in SIZED:
        if column not in ops.columns or ops[column].dtype.kind == "f":
            continue
        values, cells = {}, ops[column].tolist()
        for position, text in enumerate(cells):
            if isinstance(text, str) and text not in values:
                place = f"{row_place(where, ops.index, position)}, {column}"
                values[text] = _size(text, sizes, place)
        columns[column] = np.array([values[cell] if isinstance(cell, str) else cell for cell in cells], np.float64)
    return ops.assign(**columns)

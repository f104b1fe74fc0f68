"""An op table at another size: traced once, estimated at any batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fomkit.errors import FomkitError
from fomkit.resize.expressions import evaluate, names_in
from fomkit.schema import DIMENSIONS

if TYPE_CHECKING:
    import pandas as pd

_SIZED = tuple(column.name for column in DIMENSIONS if column.dtype == "number")


def sizes_used(ops: pd.DataFrame) -> set[str]:
    """Give the named sizes that the dimensions of an op table depend on."""
    names: set[str] = set()
    for column in _SIZED:
        if column in ops.columns and ops[column].dtype.kind != "f":
            for text in {cell for cell in ops[column] if isinstance(cell, str)}:
                names |= names_in(text)
    return names


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
        When an expression cannot be worked out or gives a negative size.
    """
    import pandas as pd

    columns: dict[str, pd.Series] = {}
    for column in _SIZED:
        if column not in ops.columns or ops[column].dtype.kind == "f":
            continue
        values = {}
        for row, text in ops[column][ops[column].map(lambda cell: isinstance(cell, str))].items():
            if text not in values:
                values[text] = float(evaluate(text, sizes, f"{where}: row {row}, {column}"))
                if values[text] < 0:
                    raise FomkitError(f"{where}: row {row}, {column}", f"{text!r} gives {values[text]:g}.")
        columns[column] = pd.to_numeric(ops[column].map(lambda cell, known=values: known.get(cell, cell))).astype(
            float
        )
    return ops.assign(**columns)

"""The columns of some rows by name, as the compiled formulas ask for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from fomkit.dtypes import ITEM_BYTE

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

DEFAULTS: Mapping[str, float] = dict.fromkeys(("transposed", "output_pad_d", "output_pad_h", "output_pad_w"), 0.0)


class Columns:
    """The columns of one group of rows, read when a formula asks for them.

    Attributes
    ----------
    ops : DataFrame
    rows : array (n,)
        Positions of the group.
    read : dict
        Columns of the whole table that were read before, shared among its groups.
    """

    def __init__(self, ops: pd.DataFrame, rows: NDArray[np.intp], read: dict[str, NDArray[np.float64]]) -> None:
        self._ops, self._rows, self._read = ops, rows, read

    def __getattr__(self, column: str) -> NDArray[np.float64]:
        # Python asks this once for each column, and finds it as an attribute from then on.
        values = self.__dict__[column] = self._column(column)
        return values

    def _column(self, column: str) -> NDArray[np.float64]:
        if column == "item_byte":
            return np.array([ITEM_BYTE[name] for name in self._ops["dtype"].to_numpy()[self._rows]])
        default = DEFAULTS.get(column, np.nan)
        if column not in self._ops.columns:
            return np.asarray(default, np.float64)
        if column not in self._read:
            values: NDArray[np.float64] = self._ops[column].to_numpy(np.float64)
            self._read[column] = np.where(np.isnan(values), np.float64(default), values)
        return self._read[column][self._rows]

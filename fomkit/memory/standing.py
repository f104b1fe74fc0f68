"""What stands in memory whatever the batch, from the update alone: a lower bound of any step."""

from __future__ import annotations

from math import isnan, nan
from typing import TYPE_CHECKING, NamedTuple

from fomkit.dtypes import ITEM_BYTE
from fomkit.workload import STATE_TENSORS

if TYPE_CHECKING:
    import pandas as pd


class Standing(NamedTuple):
    """Bytes of the parameters that are trained, of their gradients and of the optimizer's state (NaN: unknown)."""

    parameter: float
    gradient: float
    state: float

    @property
    def byte(self) -> float:
        """All of them that are known [byte]."""
        return sum(byte for byte in self if not isnan(byte))


def standing_memory(ops: pd.DataFrame, parameters: int | None = None) -> Standing | None:
    """Add up what every step needs, from the rows of the update; None where nobody knows.

    Parameters
    ----------
    ops : DataFrame
        An OPS table whose sizes are numbers.
    parameters : int, optional
        How many the model has. Without an update they are taken in the format of the ops, where all have one.

    Examples
    --------
    >>> import pandas as pd
    >>> standing_memory(pd.DataFrame({"kind": ["optimizer"], "rule": ["adam"], "dtype": ["fp32"],
    ...                               "numel": [100.0], "count": [1.0]}))
    Standing(parameter=400.0, gradient=400.0, state=800.0)
    """
    updates = ops[ops["kind"] == "optimizer"]
    if updates.empty:
        formats = ops["dtype"].unique()
        if parameters is None or len(formats) != 1:
            return None
        return Standing(parameters * ITEM_BYTE[str(formats[0])], nan, nan)
    byte = updates["numel"] * updates["count"] * updates["dtype"].map(ITEM_BYTE).astype(float)
    # An unknown rule makes the sum unknown.
    state = (byte * updates["rule"].map(STATE_TENSORS).astype(float)).sum(skipna=False)
    return Standing(float(byte.sum()), float(byte.sum()), float(state))

"""Times of anybody's ops."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fomkit.api.profiles import as_machine
from fomkit.hardware import Machine
from fomkit.spans import DEFAULT_LEVEL
from fomkit.study import Prediction
from fomkit.study import predict_ops as _predict_ops
from fomkit.study.asked import check_frame, check_options

if TYPE_CHECKING:
    import pandas as pd


def predict_ops(
    table: str | Path | pd.DataFrame,
    machine: str | Path | Machine,
    *,
    sizes: Mapping[str, int] | None = None,
    interval: float = DEFAULT_LEVEL,
) -> Prediction:
    """Predict each op of a table of anybody's ops.

    Parameters
    ----------
    table : path or DataFrame
        With the columns ``kind``, ``dtype`` and the dimensions of the kinds (docs/profiles.md).
    machine : name, path or profile
    sizes : mapping, optional
        The named sizes that dimensions use, for example ``{"batch": 64}``.
    interval : float
        Level of all intervals.

    Returns
    -------
    Prediction
        Its ``ops`` are the table with flop, byte, launches, least_flop, time_s, low_s, high_s [s], time_source,
        bound and evidence; ``unpriced`` are the rows without a time, ``said`` what was filled in.

    Raises
    ------
    FomkitError
        When the machine is unknown, or a column, a dimension or a value is missing or cannot be.

    Examples
    --------
    >>> import pandas as pd
    >>> ops = pd.DataFrame({"kind": ["gemm"], "dtype": ["fp32"], "m": [1760], "n": [128], "k": [1760]})
    >>> found = predict_ops(ops, "v100")
    >>> found.ops["flop"].tolist(), len(found.unpriced)
    ([792985600.0], 0)
    """
    from fomkit.tables import read_numbered_table

    check_options(sizes=sizes, interval=interval)
    target = as_machine(machine)
    if isinstance(table, str | Path):
        path, ops = str(table), read_numbered_table(Path(table), "TIMED", keep=())
    else:
        path, ops = "table", check_frame(table)
    return _predict_ops(ops, target, sizes=sizes, interval=interval, where=path)

"""Work of one step by pass, before any machine is named."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


def work_per_pass(costed: pd.DataFrame) -> dict[str, float]:
    """Add up the flop of each pass of one step.

    Parameters
    ----------
    costed : DataFrame
        A COSTED table.

    Returns
    -------
    dict
        Flop [flop] of forward, backward and update, in this order, as far as the table has them; the two gradients
        are backward. NaN where a row has no formula.

    Examples
    --------
    >>> import pandas as pd
    >>> passes = ["forward", "backward_input", "backward_weight"]
    >>> work_per_pass(pd.DataFrame({"pass_name": passes, "flop": [2.0, 3.0, 4.0], "count": [1.0, 2.0, 1.0]}))
    {'forward': 2.0, 'backward': 10.0}
    """
    work = (costed["flop"] * costed["count"]).groupby(costed["pass_name"].str.split("_").str[0]).sum(skipna=False)
    return {name: float(work[name]) for name in ("forward", "backward", "update") if name in work.index}

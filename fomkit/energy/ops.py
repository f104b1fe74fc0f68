"""The energy of each op, as columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fomkit.energy.methods import Method
from fomkit.energy.work import Figures
from fomkit.hardware import Energy

if TYPE_CHECKING:
    import pandas as pd


def add_energy(timed: pd.DataFrame, energy: Energy, method: Method, figures: Figures) -> pd.DataFrame:
    """Add what one execution of each op takes: ``work_j`` besides idle power and ``energy_j`` in all.

    Parameters
    ----------
    timed : DataFrame
        A TIMED table.
    energy : Energy
    method : Method
        As chosen for the step (`choose_method`).
    figures : mapping
        Energy of a flop [J] (`figures_for`).

    Returns
    -------
    DataFrame
        The same rows with two more columns [J]; NaN where a count, a time or a figure is unknown. The step adds
        the power of the time in which the device waits.
    """
    flop = timed["flop"].to_numpy(np.float64)
    work = np.zeros(len(timed))
    if method.counts_work:
        facts = [figures.get(pair) for pair in zip(timed["dtype"], timed["engine"], strict=True)]
        each = np.array([np.nan if fact is None else fact.value for fact in facts], np.float64)
        byte = timed["byte"].to_numpy(np.float64)
        per_byte = np.nan if energy.byte_j is None else energy.byte_j.value
        # No flop takes no energy, whatever its figure would have been.
        work = np.where(flop == 0, 0.0, flop * each) + np.where(byte == 0, 0.0, byte * per_byte)
    return timed.assign(work_j=work, energy_j=work + method.power_w.value * timed["time_s"].to_numpy(np.float64))

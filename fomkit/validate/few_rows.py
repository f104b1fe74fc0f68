"""A device of which 20 rows of a kind are known, drawn by fixed seeds: how the others are predicted.

Convolutions also ask the tables of DeepBench's other devices, as `fomkit.predict.borrow` does; no other row of the
device itself is known, in whatever number format.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fomkit.hardware import Machine
from fomkit.predict import borrow
from fomkit.validate.deepbench import Part
from fomkit.validate.left_out import ask
from fomkit.validate.scores import Cases, make_cases

if TYPE_CHECKING:
    import pandas as pd

KNOWN = 20
SEEDS = range(5)
KINDS = ("gemm", "conv")


def _ask(known: pd.DataFrame, asked: pd.DataFrame, machine: Machine, level: float) -> Cases:
    """Ask the other machines' tables where the product would, else the known rows alone."""
    knowing = replace(machine, timings=known.reset_index(drop=True), fits={})
    rows = asked.reset_index(drop=True)
    times = borrow.estimate(rows, knowing, level)
    if len(times) < len(rows):
        return ask(known, asked, machine, level)
    found = np.array([times[index][:3] for index in range(len(rows))], np.float64).T
    return make_cases(rows["_time_s"].to_numpy(np.float64), *found)


def few_rows_cases(
    part: Part, machine: Machine, level: float, lenders: tuple[Machine, ...] = ()
) -> Iterator[Cases]:
    """Predict the rows of a part from 20 of them, once a seed; the known ones are not scored.

    Parameters
    ----------
    part : Part
    machine : Machine
    level : float
    lenders : tuple of Machine
        Machines with fits whose tables may be asked; the machine itself is left out.
    """
    if part.kind not in KINDS or len(part.rows) < 2 * KNOWN:
        return
    machine = replace(machine, lenders=tuple(one for one in lenders if one.name != machine.name))
    for seed in SEEDS:
        chosen = np.zeros(len(part.rows), bool)
        chosen[np.random.default_rng(seed).choice(len(part.rows), KNOWN, replace=False)] = True
        yield _ask(part.rows[chosen], part.rows[~chosen], machine, level)

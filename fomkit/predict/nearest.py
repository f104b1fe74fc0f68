"""The timings that lie nearest to an op: where they stand, how far off they are, what they took."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fomkit.hardware import Machine
from fomkit.predict.engines import settle_engines
from fomkit.predict.estimates import records
from fomkit.predict.families import families, learnt, look_at, servable, training_rows
from fomkit.predict.gaussian import distances
from fomkit.predict.interpolate import as_fit
from fomkit.predict.ladder import prepared
from fomkit.predict.measured import hits
from fomkit.predict.stand_in import in_another_format
from fomkit.predict.transfer import BASELINE

if TYPE_CHECKING:
    import pandas as pd

MOST = 3


class Neighbour(NamedTuple):
    """One timing beside an op.

    Attributes
    ----------
    timing : dict
        Its row of the table; products in row-major order.
    time_s : float
        What the op itself took [s]: less the harness's fixed cost, the median over duplicates.
    distance : float
        In the fit's lengths: 0 is the same op, and from about 1 on little is learnt from it.
    """

    timing: dict[str, Any]
    time_s: float
    distance: float


def _exact(rows: pd.DataFrame, machine: Machine) -> Iterator[tuple[int, list[Neighbour]]]:
    for kind in sorted(set(rows["kind"])):
        pairs = hits(rows, machine.timings, kind).assign(kind=kind)
        for index, same in pairs.groupby("_at"):
            yield int(str(index)), [Neighbour(dict(row), row["_time_s"], 0.0) for _, row in records(same)]


def _fitted(rows: pd.DataFrame, machine: Machine, most: int) -> Iterator[tuple[int, list[Neighbour]]]:
    for name, at in families(rows):
        stored, chosen = machine.fits.get(str(name)), rows.iloc[at]
        chosen = chosen[servable(chosen, name.kind)]
        if not isinstance(stored, dict) or not len(chosen):
            continue
        training = training_rows(machine.timings, name)
        chosen = chosen[learnt(chosen, training, name.kind)]
        known, asked = (look_at(table, name.kind, len(training)) for table in (training, chosen))
        apart = distances(asked, known, as_fit(stored).hyper.length)
        nearest = np.argsort(apart, axis=1, kind="stable")[:, :most]
        timings = list(records(training))
        for index, far, places in zip(chosen.index.tolist(), apart, nearest, strict=True):
            near = [(timings[place][1], float(far[place])) for place in places.tolist()]
            yield index, [Neighbour(dict(row), row["_time_s"], distance) for row, distance in near]


def nearest_timings(timed: pd.DataFrame, machine: Machine, most: int = MOST) -> dict[int, list[Neighbour]]:
    """Find the timings that the times of some ops rest on.

    Parameters
    ----------
    timed : DataFrame
        TIMED rows, each with an index of its own.
    machine : Machine
        With timings and their fits.
    most : int
        Timings for each op.

    Returns
    -------
    dict
        By index, nearest first. A measured op has its own timings, an interpolated or extrapolated one those that
        its fit learnt from, a transferred one those of its forward pass or of the format timed. Ops whose time
        comes from rates or from the sum of their parts have none.
    """
    machine = prepared(machine)
    # The sum of an op's parts rests on what they rest on, which its evidence says.
    rows, _ = settle_engines(timed[~timed["evidence"].str.contains("sum of ")], machine)
    source = rows["time_source"]
    rows.loc[source == "transferred", "pass_name"] = BASELINE
    found = dict(_exact(rows[source == "measured"], machine))
    found |= dict(_fitted(rows[source.isin(("interpolated", "extrapolated", "transferred"))], machine, most))
    rest = timed[(timed["time_source"] == "transferred") & ~timed.index.isin(list(found))]
    other = in_another_format(rest, machine)
    like = rest.loc[other.index].assign(dtype=other.text("dtype").cells())
    found |= {**dict(_fitted(like, machine, most)), **dict(_exact(like, machine))}
    return {index: near[:most] for index, near in found.items()}

"""Measure prediction errors for shapes that a machine's table does not have, by cross-validation.

``python benchmarks/left_out_errors.py v100 p100`` prints, for each family of a machine's timings (of every shipped
machine, if none is named): the median and mean absolute error, the error of the sum, and the share of 80 %
intervals that contain the truth, and the errors of the baseline "nearest, scaled" on the same rows. Whole shape
groups are left out: products by their reduction length k, sparse ones by their matrix, convolutions by everything
but the batch, recurrent layers by hidden size and steps, collectives by the message. Everything is refitted
without them, intervals too, by the package's own functions. A family is skipped if too few ops would remain.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from fomkit.core.machine import Machine
from fomkit.ops.kinds import KINDS
from fomkit.ops.pricing import add_costs
from fomkit.prediction import interpolate
from fomkit.prediction.calibration import FEWEST, fit_timings
from fomkit.prediction.donors import shape_groups
from fomkit.prediction.exact import row_major
from fomkit.prediction.families import VIEWS, FamilyName, families, training_rows
from fomkit.prediction.rates import rates
from fomkit.prediction.tiles import chips_of
from fomkit.profiles.evidence import shipped_typical_tables
from fomkit.profiles.machines import load_machine

FOLDS = 10
SHIPPED = Path(__file__).parent.parent / "machine_profiles"


def tables(machine: Machine) -> Iterator[tuple[FamilyName, pd.DataFrame]]:
    """Yield each family's distinct timed ops with their costs, if enough ops for a fit remain without any fold."""
    costed = add_costs(row_major(machine.timings))
    for name, _ in families(costed):
        rows = training_rows(costed, name)
        if len(rows):
            fold = shape_groups(rows, name.kind) % FOLDS
            if len(rows) - np.bincount(fold).max() >= FEWEST:
                yield name, rows


def nearest_scaled(known: pd.DataFrame, query: pd.DataFrame, kind: str, floor_s: pd.Series) -> np.ndarray:
    """Return the time of the nearest known op in log sizes, scaled by the ratio of their floors."""
    columns = [name for name in KINDS[kind].dimensions if pd.api.types.is_float_dtype(known[name])]
    log = [np.log(table[columns].clip(lower=1)).to_numpy() for table in (query, known)]
    if kind == "gemm":
        stored = ["trans_a", "trans_b"]
        log = [np.hstack([sizes, table[stored]]) for sizes, table in zip(log, (query, known), strict=True)]
    apart = ((log[0][:, None] - log[1][None]) ** 2).sum(2)
    for name in ("cell",) if kind == "rnn" else VIEWS[kind].exact:
        apart[query[name].to_numpy()[:, None] != known[name].to_numpy()[None]] = np.inf
    near = known.iloc[apart.argmin(1)]
    return near["_time_s"].to_numpy() * floor_s[query.index].to_numpy() / floor_s[near.index].to_numpy()


def floors(machine: Machine, name: FamilyName, rows: pd.DataFrame) -> pd.Series:
    """Return what the baseline scales with: the roofline's floor [s]; for collectives the message [byte]."""
    if name.kind == "collective":
        return rows["message_byte"]
    known = rates(machine, name.dtype, name.engine)
    return np.maximum(rows["flop"] / known.flop_per_s.value, rows["byte"] / known.byte_per_s.value)


def predicted(machine: Machine, name: FamilyName, rows: pd.DataFrame, folds: int = FOLDS) -> pd.DataFrame:
    """Return truth, prediction, interval and baseline of every row, each from rows of other shape groups."""
    floor_s = floors(machine, name, rows)
    fold = shape_groups(rows, name.kind) % folds
    found = []
    for number in np.unique(fold):
        known, query = rows[fold != number], rows[fold == number]
        typical = machine.typical or shipped_typical_tables()
        part = replace(
            machine, timings=known, fits=fit_timings(known, chips=chips_of(machine.device)), typical=typical
        )
        times = interpolate.estimate(query, part, 0.8)
        found.append(
            pd.DataFrame(
                {
                    "truth_s": query["_time_s"],
                    "time_s": [times[index].time_s for index in query.index],
                    "low_s": [times[index].low_s for index in query.index],
                    "high_s": [times[index].high_s for index in query.index],
                    "nearest_s": nearest_scaled(known, query, name.kind, floor_s),
                },
                index=query.index,
            )
        )
    return pd.concat(found).sort_index()


def errors(table: pd.DataFrame) -> dict[str, float]:
    """Return the errors in percent and the hit rate of one family."""
    values: dict[str, float] = {"rows": len(table)}
    for label, column in (("", "time_s"), ("nearest_", "nearest_s")):
        error = 100 * (table[column] / table["truth_s"] - 1)
        values[f"{label}median"] = error.abs().median()
        values[f"{label}mean"] = error.abs().mean()
        values[f"{label}sum"] = 100 * (table[column].sum() / table["truth_s"].sum() - 1)
    values["hit_rate"] = ((table["low_s"] <= table["truth_s"]) & (table["truth_s"] <= table["high_s"])).mean()
    return values


def table(machines: Iterable[Machine]) -> pd.DataFrame:
    """Return the errors by machine and family."""
    lines = {
        (machine.name, str(name)): errors(predicted(machine, name, rows))
        for machine in machines
        for name, rows in tables(machine)
    }
    return pd.DataFrame(lines).T.rename_axis(["machine", "family"])


def shipped() -> list[Machine]:
    """Return the shipped machines that have fits."""
    return [machine for path in sorted(SHIPPED.glob("*.yaml")) if (machine := load_machine(path)).fits]


if __name__ == "__main__":
    print(table(map(load_machine, sys.argv[1:]) if sys.argv[1:] else shipped()).round(2).to_string())

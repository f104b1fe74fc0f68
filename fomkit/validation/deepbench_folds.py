"""Cross-validate DeepBench's training sheets by groups of shapes, or predict them from only 20 known rows.

Each row is predicted from rows of other groups only, with everything refitted without its fold, in two ways.
`cross_validate` fits once per fold and derives each row's interval from the errors of the other folds, as
`calibration` does for its own scores. `nested_validate` runs fomkit's whole fit on the other folds and predicts
the row as for a user, which takes eleven times as long. Both return the same values. Only the errors behind an
interval differ: in `cross_validate` they come from fits that included the row. With 20 known rows of a kind,
drawn by fixed seeds, convolutions and recurrent layers also use the tables of other devices
(`prediction.donors`); no other row of the device itself is used, in any number format.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from fomkit.core.interval import DEFAULT_LEVEL
from fomkit.core.machine import Machine
from fomkit.ops.columns import Words
from fomkit.ops.pricing import add_costs
from fomkit.prediction import interpolate
from fomkit.prediction.calibration import FEWEST, fit_timings, predict_folds, written
from fomkit.prediction.cascade import as_added
from fomkit.prediction.donors import Others
from fomkit.prediction.estimators import as_rows, places_of
from fomkit.prediction.exact import row_major
from fomkit.prediction.families import VIEWS, families, training_rows
from fomkit.profiles.evidence import others_of, shipped_typical_tables
from fomkit.readers.tables.foreign import read_columns
from fomkit.validation.scores import Cases, constant_band, make_cases

_SOURCES = ("extrapolated", "interpolated")


def _fold_masks(fold: NDArray[np.int64]) -> Iterator[NDArray[np.bool_]]:
    for number in np.unique(fold):
        yield fold == number


def _machine_with_rows(machine: Machine, known: pd.DataFrame, fits: Mapping[str, object]) -> Machine:
    """Return the machine with the given rows as its table, and typical tables without its own architecture."""
    typical, own = machine.typical or shipped_typical_tables(), machine.device.architecture
    known = known.reset_index(drop=True)
    return replace(machine, timings=known, fits=fits, typical=typical, excluded=(own,) if own else ())


def _predict_rows(query: pd.DataFrame, machine: Machine, level: float) -> tuple[NDArray[np.float64], Words]:
    """Return time, low and high (3, n) of the rows by the machine's fits, and their time sources."""
    rows = query.reset_index(drop=True)
    found = interpolate.estimate(rows, machine, level)
    order = places_of(np.arange(len(rows)), found.index)
    return found.times[:, order], found.source.taken(order)


def sheet_cases(rows: pd.DataFrame, times: NDArray[np.float64], sources: Words, level: float) -> Cases:
    """Return rows with their predictions (3, n) as cases; the terms of sums are computed as in a step."""
    kinds = as_rows(rows).text("kind")
    return make_cases(rows["_time_s"].to_numpy(np.float64), *times, term=as_added(kinds, sources, times, level)[0])


def cross_validate(
    rows: pd.DataFrame, kind: str, fold: NDArray[np.int64], machine: Machine, level: float = DEFAULT_LEVEL
) -> Cases:
    """Predict each row of one family from the other folds (n,), with an interval from their errors."""
    truth = rows["_time_s"].to_numpy(np.float64)
    with threadpool_limits(limits=1):
        found = predict_folds(rows, kind, fold, np.arange(len(rows)))
    log_s, spread, source = found.log_error + np.log(truth), found.spread, np.zeros(len(rows), np.intp)
    # Products are not priced by the fit alone: their times are also kept from falling with size.
    ((family, _),) = families(rows)
    for number, fit in found.fits.items():
        out = fold == number
        # `training_rows` has an order of its own, so arrays of the fit are reordered by `_place`.
        known = training_rows(rows[~out].assign(_place=np.arange((~out).sum())), family)
        place = known["_place"].to_numpy()
        kept = {name: value[place] for name in ("residual", "row_noise") if len(value := getattr(fit, name))}
        fits = {str(family): written(fit._replace(**kept), known, kind)}
        times, sources = _predict_rows(rows[out], _machine_with_rows(machine, known, fits), level)
        log_s[out], source[out] = np.log(times[0]), sources.is_in(_SOURCES[1])
    errors = (np.log(truth) - log_s) / spread
    ends = np.empty((2, len(rows)))
    for out in _fold_masks(fold):
        # Quantiles of n errors are narrower than the true ones: n + 1 instead of n, as in `calibration`.
        outward = 0.5 + np.array([-level, level]) / 2 * (1 + 1 / (~out).sum())
        ends[:, out] = np.quantile(errors[~out], np.clip(outward, 0, 1))[:, None]
    low, high = np.minimum(ends[0], 0.0) * spread, np.maximum(ends[1], 0.0) * spread
    return replace(
        sheet_cases(rows, np.exp([log_s, log_s + low, log_s + high]), Words(source, _SOURCES), level), fold=fold
    )


def fit_and_predict(
    known: pd.DataFrame,
    query: pd.DataFrame,
    machine: Machine,
    level: float = DEFAULT_LEVEL,
    others: Mapping[str, Others] | None = None,
) -> Cases:
    """Fit the known rows of one family as fomkit does for a user, and predict the queried rows."""
    knowing = _machine_with_rows(machine, known, fit_timings(known, others))
    return sheet_cases(query, *_predict_rows(query, knowing, level), level)


def nested_validate(
    rows: pd.DataFrame, fold: NDArray[np.int64], machine: Machine, level: float = DEFAULT_LEVEL
) -> Cases:
    """Predict each row as fomkit would for a user who has only the other folds."""
    truth = rows["_time_s"].to_numpy(np.float64)
    filled = make_cases(truth, *np.full((3, len(rows)), np.nan), fold=fold, term=np.full(len(rows), np.nan))
    for out in _fold_masks(fold):
        found = fit_and_predict(rows[~out], rows[out], machine, level)
        for name in ("value", "low", "high", "term"):
            getattr(filled, name)[out] = getattr(found, name)
    return filled


FOLDS = 10
GROUPS: Mapping[str, tuple[str, ...]] = {
    # The workbooks print column-major products: their m is our n.
    "gemm": ("n", "k"),
    "conv": VIEWS["conv"].groups,
    "rnn": ("hidden_size",),
}
"""Columns that the rows of one group share; group g is left out in fold g mod 10, groups in rising order."""
ONE_STEP = "one step"


class Sheet(NamedTuple):
    """One sheet of a training workbook: a machine in one number format."""

    machine: str
    sheet: str
    dtype: str
    engine: str

    @property
    def title(self) -> str:
        """Machine and number format."""
        return f"{self.machine} {self.dtype}/{self.engine}"


class Part(NamedTuple):
    """The rows of one kind and pass of a sheet, and the fold in which each is left out."""

    what: str
    kind: str
    rows: pd.DataFrame
    fold: NDArray[np.int64]


def read_sheets(path: Path) -> list[Sheet]:
    """Read the list of sheets."""
    rows = read_columns(path, Sheet._fields, ())
    return [Sheet(*(str(row[name]) for name in Sheet._fields)) for row in rows.to_dict("records")]


def group_folds(rows: pd.DataFrame, kind: str) -> NDArray[np.int64]:
    """Return the number of the fold (n,) in which each row's group is left out."""
    columns = [name for name in GROUPS[kind] if name in rows.columns]
    groups = rows.groupby(columns, dropna=False, sort=True).ngroup().to_numpy(np.int64)
    return np.asarray(groups % FOLDS, np.int64)


def parts(sheet: Sheet, machine: Machine) -> Iterator[Part]:
    """Split a sheet into the kinds and passes that have enough rows for ten folds."""
    timings = machine.timings[
        (machine.timings["source_sheet"] == sheet.sheet) & (machine.timings["dtype"] == sheet.dtype)
    ]
    costed = add_costs(row_major(timings.reset_index(drop=True)))
    for name, _ in families(costed):
        rows = training_rows(costed, name)
        if name.kind not in GROUPS or not len(rows):
            continue
        fold = group_folds(rows, name.kind)
        if len(rows) - np.bincount(fold).max() >= FEWEST:
            yield Part(" ".join(filter(None, (name.kind, name.pass_name))), name.kind, rows, fold)


def cross_validated_cases(
    part: Part, machine: Machine, level: float, *, full: bool
) -> Iterator[tuple[str, Cases]]:
    """Predict every row of a part without its group; recurrent layers of one step are yielded separately."""
    if full:
        found = nested_validate(part.rows, part.fold, machine, level)
    else:
        found = cross_validate(part.rows, part.kind, part.fold, machine, level)
    found = constant_band(found, level)
    if part.kind != "rnn":
        yield part.what, found
        return
    one = part.rows["steps"].to_numpy() == 1
    for what, kept in ((part.what, ~one), (f"{part.what}, {ONE_STEP}", one)):
        if kept.any():
            yield what, Cases(*(column[kept] for column in vars(found).values()))


KNOWN_ROWS = 20
SEEDS = range(5)
KINDS = ("gemm", "conv", "rnn")


def few_rows_cases(part: Part, machine: Machine, level: float) -> Iterator[Cases]:
    """Predict the rows of a part from 20 of them, once per seed; the 20 known rows are not scored."""
    if part.kind not in KINDS or len(part.rows) < 2 * KNOWN_ROWS:
        return
    others = others_of(machine)
    for seed in SEEDS:
        chosen = np.zeros(len(part.rows), bool)
        chosen[np.random.default_rng(seed).choice(len(part.rows), KNOWN_ROWS, replace=False)] = True
        yield fit_and_predict(part.rows[chosen], part.rows[~chosen], machine, level, others)

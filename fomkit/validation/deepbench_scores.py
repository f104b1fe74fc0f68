"""Score predictions of single ops: DeepBench, EIE's and Vidur's layers, machines by facts, shipped tables.

DeepBench's sheets are scored one by one, with medians over sheets and the errors of simple predictors with whole
shape groups left out (from the notes on the data). EIE's layers are dense products timed by others on a machine
that fomkit has. Machines with a stated architecture are predicted from their facts and other machines' tables, as
if their chip had no timings. Vidur timed pieces of decoder layers as a serving engine runs them
(`fomkit.readers.tables.simulators`): they are predicted from the board's shipped profile, which has none of them,
and from its facts with the pieces of other models imported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fomkit.core.errors import FomkitError, nearest_names
from fomkit.core.interval import DEFAULT_LEVEL
from fomkit.core.machine import Machine
from fomkit.core.units import by_key
from fomkit.files.csv import read_header
from fomkit.ops.groups import IDENTITY
from fomkit.ops.tables import DIMENSIONS, TIMINGS
from fomkit.plan.op_tables import predict_ops
from fomkit.prediction.exact import row_major
from fomkit.prediction.rates import op_seconds
from fomkit.profiles.evidence import with_fits
from fomkit.profiles.locate import shipped_folder
from fomkit.profiles.machines import load_machine
from fomkit.readers.tables.foreign import read_columns
from fomkit.validation import scores
from fomkit.validation.deepbench_folds import Sheet, cross_validated_cases, few_rows_cases, parts
from fomkit.validation.graphs import without_timings
from fomkit.validation.scores import Cases, Errors, Score, cases_of_table, constant_band, join_cases, score
from fomkit.validation.shape_coverage import cross_validation_errors

_NAMES = (
    "datasheet roofline", "one efficiency", "calibrated roofline", "nearest, scaled", "and 3 neighbours",
    "and Gaussian process",
)  # fmt: skip


def _peers(*errors: tuple[float, float]) -> dict[str, Errors]:
    return {name: Errors(median / 100, mean / 100) for name, (median, mean) in zip(_NAMES, errors, strict=True)}


SIMPLE: Mapping[str, Mapping[str, Errors]] = {
    "gemm": _peers((37, 42), (23, 32), (11, 19), (7, 18), (6.8, 13), (6.4, 12)),
    "conv forward": _peers((51, 47), (35, 49), (28, 33), (27, 45), (13, 21), (11, 16)),
    "conv backward_input": _peers((55, 53), (42, 65), (39, 43), (32, 57), (20, 29), (13, 21)),
    "conv backward_weight": _peers((62, 59), (38, 57), (25, 32), (29, 49), (14, 21), (14, 19)),
}
"""Errors of simple predictors by kind and pass: medians over eleven sheets of median and mean absolute error."""

GROUPED, FEW = "shape groups left out", "20 rows known"
SHEETS = "median of sheets"


class SheetScores(NamedTuple):
    """Scores and cases of DeepBench's sheets.

    `lines`: medians first, if all sheets were scored.
    `cases`: left-out rows by kind, with the scores of one constant band per kind.
    `full`, `thin`: sheet by sheet, rows left out of whole sheets and rows predicted from few known rows.
    """

    lines: list[Score]
    cases: list[Cases]
    full: list[Cases]
    thin: list[Cases]


def median_line(
    lines: list[Score], comparison: str, what: str, peers: Mapping[str, Errors], machine: str = SHEETS
) -> Score:
    """Return the medians over sheets or machines, of absolute values for totals and biases."""
    columns = [column.name for column in fields(Score) if column.type == "float"]
    values: dict[str, Any] = {
        name: float(np.median([abs(getattr(line, name)) for line in lines])) for name in columns
    }
    cases = sum(line.cases for line in lines)
    medians = {line.machine: line.median for line in lines}
    return Score(comparison, "op", machine, what, cases, **values, peers=peers, medians=medians)


def _medians(lines: Iterable[Score], comparison: str) -> list[Score]:
    kinds = by_key((line.what, line) for line in lines)
    peers = SIMPLE if comparison == GROUPED else {}
    return [median_line(found, comparison, what, peers.get(what, {})) for what, found in kinds.items()]


def choose_sheets(known: list[Sheet], titles: Iterable[str] | None) -> list[Sheet]:
    """Return the sheets of these titles, or all."""
    by_title = {sheet.title: sheet for sheet in known}
    wanted = list(by_title if titles is None else titles)
    for title in wanted:
        if title not in by_title:
            raise FomkitError(title, f"is not a sheet. {nearest_names(title, by_title)}")
    return [by_title[title] for title in wanted]


def score_sheets(sheets: Iterable[Sheet], level: float, *, full: bool, whole: bool) -> SheetScores:
    """Score DeepBench's sheets, refitted inside each fold if ``full``; medians need all sheets (``whole``)."""
    grouped: list[Score] = []
    few: list[Score] = []
    found: dict[str, list[Cases]] = {}
    thin: list[Cases] = []
    for sheet in sheets:
        machine = load_machine(sheet.machine)
        for part in parts(sheet, machine):
            for what, cases in cross_validated_cases(part, machine, level, full=full):
                grouped.append(score(cases, GROUPED, "op", sheet.title, what, interval=level))
                found.setdefault(part.kind, []).append(cases)
            seeds = list(few_rows_cases(part, machine, level))
            if seeds:
                thin.append(join_cases(seeds))
                few.append(score(thin[-1], FEW, "op", sheet.title, part.what, interval=level))
    medians = [*_medians(grouped, GROUPED), *_medians(few, FEW)] if whole else []
    # The baseline for all sheets together is one constant band per kind, across sheets and passes.
    pooled = [constant_band(join_cases(cases), level) for cases in found.values()]
    whole_sheets = [cases for kind in found.values() for cases in kind]
    return SheetScores([*medians, *grouped, *few], pooled, whole_sheets, thin)


EIE = "EIE's dense layers"
_WORDS = ("machine", "kind", "dtype", "layout")
_NUMBERS = ("batch", "b", "m", "n", "k", "trans_a", "trans_b", "time_s")


def dense_layer_scores(level: float = DEFAULT_LEVEL) -> list[Score]:
    """Score EIE's layers, each batch separately and all together; nothing is fitted to them."""
    table = read_columns(shipped_folder("validation") / "eie" / "layers.csv", _WORDS, _NUMBERS)
    sizes, lines = ["kind", "dtype", "b", "m", "n", "k", "trans_a", "trans_b"], []
    for machine, rows in table.groupby("machine", sort=False):
        known, parts = with_fits(load_machine(str(machine))), dict[str, Cases]()
        for batch, some in rows.groupby("batch", sort=True):
            timed = predict_ops(row_major(some)[sizes].reset_index(drop=True), known, interval=level).ops
            parts[f"batch {batch:g}"] = cases_of_table(timed, some["time_s"].to_numpy(np.float64))
        named = {**parts, "all": join_cases(parts.values())}
        lines += [score(cases, EIE, "op", str(machine), what, interval=level) for what, cases in named.items()]
    return lines


HELD_OUT = "device left out"
MACHINES = "median of machines"
MAX_ROWS = 100
"""Largest number of scored timings of one kind, format and pass of a machine, spread evenly over its table."""
MIN_TIMINGS = 20
ROOFLINE = "datasheet roofline"
_KEYS = ["dtype", "engine", "kind", "pass_name"]


def _machine_parts(machine: Machine) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Yield sheet, kind and some rows of each part of a machine's table that has a stated peak rate."""
    timings = row_major(machine.timings)
    # The time of a collective depends on the links, and no other machine has the same links.
    timings = timings[timings["kind"] != "collective"]
    passes = timings["pass_name"].where(timings["kind"].isin(["conv", "rnn"]), "").fillna("")
    for key, rows in timings.groupby([timings[name] for name in _KEYS[:3]] + [passes], sort=True):
        dtype, engine, kind, word = map(str, key)
        if len(rows) >= MIN_TIMINGS and machine.device.peak(dtype, engine) is not None:
            places = np.unique(np.linspace(0, len(rows) - 1, min(MAX_ROWS, len(rows))).round().astype(int))
            yield f"{machine.name} {dtype}/{engine}", f"{kind} {word}".strip(), rows.iloc[places]


def _floors(timed: pd.DataFrame, machine: Machine) -> NDArray[np.float64]:
    first = timed.iloc[0]
    peak, byte_per_s = machine.device.peak(str(first["dtype"]), str(first["engine"])), machine.device.byte_per_s
    if peak is None or byte_per_s is None:
        return np.full(len(timed), np.nan)
    compute, memory = timed["flop"].to_numpy() / peak.rate.value, timed["byte"].to_numpy() / byte_per_s.value
    return np.asarray(np.maximum(compute, memory), np.float64)


def _held_out_cases(rows: pd.DataFrame, machine: Machine, level: float) -> tuple[Cases, Errors]:
    """Return ops with their predictions as cases, and the errors of the datasheet roofline."""
    truth = op_seconds(rows)
    wanted = [name for name in ("op", *_KEYS, *(column.name for column in DIMENSIONS)) if name in rows.columns]
    ops = rows[wanted].dropna(axis=1, how="all").reset_index(drop=True)
    timed = predict_ops(ops, with_fits(without_timings(machine)), interval=level).ops
    return cases_of_table(timed, truth), scores.errors_of(truth, _floors(timed, machine))


def _median_over_machines(lines: list[Score]) -> Score:
    peers = [line.peers[ROOFLINE] for line in lines]
    median_errors = Errors(*(float(np.median([getattr(peer, name) for peer in peers])) for name in Errors._fields))
    return median_line(lines, HELD_OUT, lines[0].what, {ROOFLINE: median_errors}, MACHINES)


LATER = "fp8_block"
"""Format whose tables came after the mix of all evidence was fixed: it is scored in lines of its own."""


def held_out_scores(level: float) -> tuple[list[Score], list[Cases]]:
    """Score the timings of every shipped machine with a stated architecture, predicted without its chip.

    Returns the lines (medians over machines, then one for each machine and format, last all ops together) and the
    cases of the mix, machine by machine.
    """
    lines: dict[str, list[Score]] = {}
    everything, of_mix = list[Cases](), list[Cases]()
    for path in sorted(shipped_folder("machine_profiles").glob("*.yaml")):
        machine = load_machine(path)
        if not machine.device.architecture or machine.device_of:
            continue
        for sheet, what, rows in _machine_parts(machine):
            cases, roofline = _held_out_cases(rows, machine, level)
            everything.append(cases)
            of_mix += [cases] * (LATER not in sheet)
            line = score(cases, HELD_OUT, "op", sheet, what, {ROOFLINE: roofline}, level)
            lines.setdefault(what, []).append(line)
    together = [score(join_cases(everything), HELD_OUT, "op", "all", "all", interval=level)] if everything else []
    each = (line for found in lines.values() for line in found)
    return [*map(_median_over_machines, lines.values()), *each, *together], of_mix


BEFORE, AFTER = "Vidur's pieces before import", "Vidur's pieces, other models imported"
TABLES, OF_TABLES = "left out of its own table", "median of tables"
PIECES: Mapping[str, str] = {
    "input_layernorm": "norm", "post_attention_layernorm": "norm", "attn_rope": "positions",
    "mlp_act": "activation", "add": "addition", "emb": "embedding", "attn_pre_proj": "projections",
    "attn_post_proj": "projections", "mlp_up_proj": "projections", "mlp_down_proj": "projections",
}  # fmt: skip
"""Vidur's pieces to fomkit's groups of pieces."""
MOST_TIMED_PIECES = ("norm", "positions", "activation", "addition")
"""Groups with more timings than in any other table; all four together have a line."""


def read_pieces() -> pd.DataFrame:
    """Read the pieces that ship with fomkit; ``what`` is each piece's group in `PIECES`."""
    path = shipped_folder("validation") / "vidur" / "pieces.csv.gz"
    texts = ("machine", "model", "piece", "kind", "op", "dtype", "engine", "pass_name", "source_file")
    rows = read_columns(path, texts, [name for name in read_header(path) if name not in texts])
    return rows.assign(what=rows["piece"].map(PIECES)).reset_index(drop=True)


def _piece_cases(rows: pd.DataFrame, machine: Machine, level: float) -> dict[str, Cases]:
    """Predict the rows of one board; return the cases by group of pieces."""
    ops = rows[[name for name in IDENTITY if name in rows.columns]].dropna(axis=1, how="all")
    timed = predict_ops(ops.reset_index(drop=True), with_fits(machine), interval=level).ops
    truth = rows["time_s"].to_numpy(np.float64)
    found = dict[str, Cases]()
    for what in dict.fromkeys(rows["what"]):
        here = (rows["what"] == what).to_numpy()
        found[what] = cases_of_table(timed[here], truth[here])
    return found


def _piece_lines(
    parts: Sequence[Mapping[str, Cases]], comparison: str, machine: str, level: float
) -> Iterator[Score]:
    """Score each group of pieces of a board, and the groups of `MOST_TIMED_PIECES` together."""
    whats = list(dict.fromkeys(what for part in parts for what in part))
    joined = {what: join_cases([part[what] for part in parts if what in part]) for what in whats}
    four = join_cases([joined[what] for what in MOST_TIMED_PIECES if what in joined])
    for what, cases in ((", ".join(MOST_TIMED_PIECES), four), *joined.items()):
        yield score(cases, comparison, "op", machine, what, interval=level)


def _with_imported(machine: Machine, rows: pd.DataFrame) -> Machine:
    """Return a board whose only timings are these rows, as an import would make them."""
    columns = {column.name: rows[column.name] if column.name in rows.columns else
               float("nan") if column.dtype == "number" else "" for column in TIMINGS}  # fmt: skip
    timings = pd.DataFrame(columns, rows.index).assign(harness="Vidur", library="Sarathi-Serve", harness_s=0.0)
    return machine.with_timings(timings.reset_index(drop=True))


def piece_scores(level: float) -> list[Score]:
    """Score the pieces of each board without imported pieces, and with those of other models imported.

    Two folds leave out every second model by name. A size that another model also has is then a row of the table.
    """
    lines = list[Score]()
    for name, rows in read_pieces().groupby("machine", sort=True):
        machine = load_machine(str(name))
        lines += _piece_lines([_piece_cases(rows, machine, level)], BEFORE, str(name), level)
        # Without projections: fits of products take longest, and other tables have products.
        traffic = rows[rows["what"] != "projections"]
        models = sorted(set(traffic["model"]))
        folds: list[Mapping[str, Cases]] = []
        for fold in (0, 1):
            out = traffic["model"].isin(models[fold::2])
            folds.append(_piece_cases(traffic[out], _with_imported(machine, traffic[~out]), level))
        lines += _piece_lines(folds, AFTER, str(name), level)
    return lines


def table_scores() -> list[Score]:
    """Return the cross-validation errors stored in the fits of shipped tables, by shape groups left out.

    A line is the median over the tables of one family; ``medians`` has each table. The intervals were set by these
    same errors, so hit rates and widths are NaN.
    """
    lines, nan = dict[str, list[Score]](), float("nan")
    names = {path.name.split(".")[0] for path in shipped_folder("machine_profiles").glob("*.timings.csv*")}
    for name in sorted(names):
        for family, fit in with_fits(load_machine(name)).fits.items():
            errors = cross_validation_errors([fit]) if isinstance(fit, Mapping) else None
            if errors is not None:
                figures = (errors["ops"], errors["median"], errors["mean"], nan, nan, nan, nan, nan, nan)
                lines.setdefault(family, []).append(Score(TABLES, "op", name, family, *figures))
    return [median_line(lines[family], TABLES, family, {}, OF_TABLES) for family in sorted(lines)]

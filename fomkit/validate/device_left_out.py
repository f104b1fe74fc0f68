"""Single ops of machines as if nobody had timed their chip: what facts and other machines' tables know of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from fomkit.predict.clock import op_seconds
from fomkit.predict.storage import row_major
from fomkit.profiles import load_machine
from fomkit.profiles.locate import shipped_folder
from fomkit.schema import DIMENSIONS
from fomkit.study import predict_ops
from fomkit.validate.machines import without_timings
from fomkit.validate.scores import Cases, Errors, Score, errors_of, join_cases, make_cases, score
from fomkit.validate.sheet_scores import median_line

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from fomkit.hardware import Machine

LEFT_OUT = "device left out"
MACHINES = "median of machines"
MOST = 100
"""Timings of one kind, format and pass of a machine that are scored, spread evenly over its table."""
FEWEST = 20
ROOFLINE = "datasheet roofline"
_KEYS = ["dtype", "engine", "kind", "pass_name"]


def _parts(machine: Machine) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Give sheet, kind and some rows of each part of a machine's table whose rates are stated."""
    timings = row_major(machine.timings)
    # Links make a collective's time, and no other machine has these.
    timings = timings[timings["kind"] != "collective"]
    passes = timings["pass_name"].where(timings["kind"].isin(["conv", "rnn"]), "").fillna("")
    for key, rows in timings.groupby([timings[name] for name in _KEYS[:3]] + [passes], sort=True):
        dtype, engine, kind, word = map(str, key)
        if len(rows) >= FEWEST and machine.device.peak(dtype, engine) is not None:
            places = np.unique(np.linspace(0, len(rows) - 1, min(MOST, len(rows))).round().astype(int))
            yield f"{machine.name} {dtype}/{engine}", f"{kind} {word}".strip(), rows.iloc[places]


def _floors(timed: pd.DataFrame, machine: Machine) -> NDArray[np.float64]:
    first = timed.iloc[0]
    peak, byte_per_s = machine.device.peak(str(first["dtype"]), str(first["engine"])), machine.device.byte_per_s
    if peak is None or byte_per_s is None:
        return np.full(len(timed), np.nan)
    compute, memory = timed["flop"].to_numpy() / peak.rate.value, timed["byte"].to_numpy() / byte_per_s.value
    return np.asarray(np.maximum(compute, memory), np.float64)


def _cases(rows: pd.DataFrame, machine: Machine, level: float) -> tuple[Cases, Errors]:
    """Give ops with their predictions, and the errors of the datasheet's floors."""
    truth = op_seconds(rows)
    asked = [name for name in ("op", *_KEYS, *(column.name for column in DIMENSIONS)) if name in rows.columns]
    ops = rows[asked].dropna(axis=1, how="all").reset_index(drop=True)
    timed = predict_ops(ops, without_timings(machine), interval=level).ops
    ends = (timed[name].to_numpy(np.float64) for name in ("time_s", "low_s", "high_s"))
    return make_cases(truth, *ends), errors_of(truth, _floors(timed, machine))


def _middle(lines: list[Score]) -> Score:
    peers = [line.peers[ROOFLINE] for line in lines]
    middle = Errors(*(float(np.median([getattr(one, name) for one in peers])) for name in Errors._fields))
    return median_line(lines, LEFT_OUT, lines[0].what, {ROOFLINE: middle}, MACHINES)


def left_out_scores(level: float) -> list[Score]:
    """Score timings of every shipped machine whose architecture is stated, its chip unheard.

    Returns
    -------
    list of Score
        Medians over machines first, then a line for each machine and format, last all ops together.

    Raises
    ------
    FomkitError
        When a profile cannot be read.
    """
    lines: dict[str, list[Score]] = {}
    everything: list[Cases] = []
    for path in sorted(shipped_folder("machine_profiles").glob("*.yaml")):
        machine = load_machine(path)
        if not machine.device.architecture or machine.device_of:
            continue
        for sheet, what, rows in _parts(machine):
            cases, roofline = _cases(rows, machine, level)
            everything.append(cases)
            line = score(cases, LEFT_OUT, "op", sheet, what, {ROOFLINE: roofline}, level)
            lines.setdefault(what, []).append(line)
    together = [score(join_cases(everything), LEFT_OUT, "op", "all", "all", interval=level)] if everything else []
    return [*map(_middle, lines.values()), *(line for found in lines.values() for line in found), *together]

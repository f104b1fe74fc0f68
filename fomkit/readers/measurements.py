"""Read measurements of whole models from records, CSV tables and logs of wall meters; return checked rows."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd

from fomkit.core.errors import FomkitError
from fomkit.core.measurement import Measurement
from fomkit.core.units import exact_quantity, format_quantity, parse_quantity
from fomkit.files.csv import is_number, read_header, read_rows, shown
from fomkit.files.op_csv import format_table, read_numbered_table
from fomkit.merit.footprint import Integral, Sample, integrate
from fomkit.merit.measured_steps import MeasuredRuns
from fomkit.ops.check import check_table
from fomkit.ops.tables import column_names, table_of_rows
from fomkit.profiles.locate import locate, profile_names
from fomkit.profiles.machines import load_machine
from fomkit.readers.records import IMPORTERS

_COUNTS = ("repeats", "batch", "devices")


def _interval_bounds(row: Mapping[str, Any], where: str) -> tuple[float, float, bool]:
    """Return low and high of a row's interval, and whether the row states them."""
    value, low, high = (float(row.get(name, math.nan)) for name in ("value", "low", "high"))
    if math.isnan(low) and math.isnan(high):
        return value, value, False
    if math.isnan(low) or math.isnan(high):
        raise FomkitError(where, "states one bound of its interval. Give low and high, or neither.")
    if not low <= value <= high:
        raise FomkitError(where, f"value {value:g} is not between low {low:g} and high {high:g}. Correct them.")
    return low, high, True


def _measurement(row: Mapping[str, Any], where: str) -> Measurement:
    low, high, stated = _interval_bounds(row, where)
    cells = {name: row.get(name, math.nan) for name in _COUNTS}
    known: dict[str, Any] = {name: None if math.isnan(one) else int(one) for name, one in cells.items()}
    known |= {name: str(row.get(name, "")).strip() for name in column_names("MEASUREMENTS", "text")}
    return Measurement(where=where, value=row["value"], low=low, high=high, spread_stated=stated, **known)


def read_measurements(path: Path) -> tuple[Measurement, ...]:
    """Read a table of measurements (docs/profiles.md), in the order of its rows."""
    table = read_numbered_table(path, "MEASUREMENTS")
    check_table(table, "MEASUREMENTS", str(path))
    rows: dict[int, dict[str, Any]] = table.to_dict("index")  # type: ignore[assignment]
    return tuple(_measurement(row, f"{path}:{line}") for line, row in rows.items())


def format_measurements(rows: Sequence[Measurement]) -> str:
    """Write rows as a table that `read_measurements` can read."""
    cells = [{**vars(row), **({} if row.spread_stated else {"low": None, "high": None})} for row in rows]
    return format_table(table_of_rows(cells, "MEASUREMENTS"), "MEASUREMENTS")


@dataclass(frozen=True)
class ImportedMeasurements:
    """A table of measurements, and the reader's messages."""

    table: pd.DataFrame
    messages: tuple[str, ...]


def rows_as_table(rows: Sequence[Mapping[str, Any]], where: str) -> pd.DataFrame:
    """Make a table of measurements from rows by column; missing cells are empty."""
    table = table_of_rows(rows, "MEASUREMENTS")
    check_table(table, "MEASUREMENTS", where)
    return table


def import_measurements(
    path: Path, file_format: str, *, model: str | None = None, machine: str | None = None
) -> ImportedMeasurements:
    """Read a foreign record of measurements by a key of `IMPORTERS`; the file's own names stay in the note."""
    rows, messages = IMPORTERS[file_format].read(path)
    named = [_with_profile_name(_with_profile_name(row, "model", model), "machine", machine) for row in rows]
    words = [
        f"{what} is {named[0][what]!r} in the file; --{what} names its profile"
        for what, given in (("model", model), ("machine", machine))
        if given is None and named
    ]
    return ImportedMeasurements(rows_as_table(named, str(path)), (*messages, *words))


def _with_profile_name(row: Mapping[str, Any], what: str, name: str | None) -> Mapping[str, Any]:
    if name is None or row[what] == name:
        return row
    note = "; ".join(part for part in (row.get("note", ""), f"{what} {row[what]!r} in the file") if part)
    return {**row, what: name, "note": note}


def every_table() -> tuple[tuple[Measurement, ...], list[str], list[FomkitError]]:
    """Read all tables of measurements, shipped or the user's: rows, names of tables read, errors of the others."""
    rows, names, errors = list[Measurement](), list[str](), list[FomkitError]()
    for name in profile_names("measurements"):
        try:
            rows += read_measurements(locate(name, "measurements"))
            names.append(name)
        except FomkitError as error:
            errors.append(error)
    return tuple(rows), names, errors


def all_measured() -> tuple[MeasuredRuns, tuple[str, ...]]:
    """Return the measured runs of all tables, and a message for each file that cannot be read."""
    rows, _, errors = every_table()
    unread = (f"not read, so nothing is compared with it: {error}" for error in errors)
    return MeasuredRuns(rows, load_machine), tuple(unread)


_TIMES = frozenset(
    {"time", "times", "timestamp", "timestamps", "datetime", "date", "unix", "seconds", "elapsed", "s"}
)
_POWERS = frozenset({"power", "activepower", "realpower", "load"})
_WATTS = {"w": "W", "watt": "W", "watts": "W", "kw": "kW", "kilowatt": "kW", "kilowatts": "kW"}
"""Units in a heading; mW and MW cannot be distinguished in headings, so neither is accepted."""
MAX_TIME_S = 1e11
"""Seconds since 1970 of the year 5138: larger numbers are milliseconds."""


@dataclass(frozen=True)
class MeterLog:
    """Readings of one meter.

    `moments_s`, `powers_w`: in order of time: seconds (since 1970 if the log has dates) and watts.
    `dated`: whether its moments are dates, not plain seconds.
    `zoned`: whether the dates have a time zone.
    """

    path: Path
    moments_s: tuple[float, ...]
    powers_w: tuple[float, ...]
    dated: bool
    zoned: bool

    def moment(self, text: str, option: str) -> float:
        """Read a moment given by the user, which must have the form of the log's moments."""
        seconds, dated, zoned = _moment(text, option)
        if (dated, zoned) != (self.dated, self.zoned):
            form = _form(self.dated, self.zoned)
            raise FomkitError(f"{option} {text}", f"the times in {self.path.name} are {form}. Use that form.")
        return seconds


def _form(dated: bool, zoned: bool) -> str:
    if not dated:
        return "plain seconds, for example 12.5"
    return f"dates {'with' if zoned else 'without'} a time zone, for example 2024-05-01T12:00:00{'+00:00' * zoned}"


def _name_and_unit(heading: str) -> tuple[str, str]:
    """Split a heading into its name, letters only, and its unit."""
    found = re.fullmatch(r"\s*(.*?)\s*(?:[\[(]\s*(.*?)\s*[\])]|[_ ]([A-Za-z]{1,9}))?\s*", heading)
    if found is None:
        return "", ""
    name = re.sub(r"[^a-z]", "", found[1].lower())
    unit = (found[2] or found[3] or "").strip()
    if unit.lower() in ("stamp", "time", "power"):
        return re.sub(r"[^a-z]", "", heading.lower()), ""
    return name, unit


def _is_time(heading: str) -> bool:
    name, unit = _name_and_unit(heading)
    return name in _TIMES and unit.lower() in ("", "s", "sec", "seconds", "utc", "iso", "unix", "local")


def _is_power(heading: str) -> bool:
    name, unit = _name_and_unit(heading)
    return name in _WATTS or (name in _POWERS and (not unit or unit.lower() in (*_WATTS, "mw")))


def recognise_meter(path: Path) -> bool:
    """Return whether a file is CSV text whose header names moments and power, and no kind of op."""
    header = read_header(path)
    return "kind" not in header and sum(map(_is_time, header)) == 1 and sum(map(_is_power, header)) == 1


def _moment(text: str, where: str) -> tuple[float, bool, bool]:
    """Read a moment: seconds, whether it is a date, and whether it has a time zone."""
    text = text.strip()
    if is_number(text):
        seconds = float(text)
        if not abs(seconds) < MAX_TIME_S:
            what = f"the time {shown(text)} is not in seconds. Divide milliseconds by 1000."
            raise FomkitError(where, what)
        return seconds, False, False
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        expected = "Expected seconds, or a date such as 2024-05-01T12:00:00."
        raise FomkitError(where, f"the time is {shown(text)}. {expected}") from error
    if moment.tzinfo is not None:
        return moment.timestamp(), True, True
    # The time zone does not matter here: only differences on the meter's own clock count.
    return (moment - datetime(1970, 1, 1)).total_seconds(), True, False


def _meter_columns(path: Path, header: Sequence[str]) -> tuple[int, int, str]:
    """Return the columns of moment and power, and the unit of plain numbers ("" if cells have units)."""
    places = []
    for what, test in (
        ("the time, for example 'time'", _is_time),
        ("the power, for example 'power_w'", _is_power),
    ):
        found = [place for place, heading in enumerate(header) if test(heading)]
        if len(found) != 1:
            raise FomkitError(f"{path}:1", f"{len(found)} columns name {what}. Expected one.")
        places += found
    power = header[places[1]]
    name, unit = _name_and_unit(power)
    if unit.lower() == "mw":
        raise FomkitError(f"{path}:1", f"{shown(power)} may be milliwatts or megawatts. Restate it in W.")
    return places[0], places[1], _WATTS.get(name, _WATTS.get(unit.lower(), ""))


def read_meter(path: Path) -> MeterLog:
    """Read the log of a wall meter.

    `path`: a CSV file with one column of moments (seconds, or ISO 8601 dates) and one of power, in W or kW by its
    heading (``power_w``, ``Power (kW)``) or in each cell (``231.5 W``). Other columns are ignored.
    """
    rows = read_rows(path)
    _, header = next(rows, (1, []))
    if not header:
        raise FomkitError(str(path), "is empty. Expected a header such as 'time,power_w'.")
    moment_at, power_at, unit = _meter_columns(path, [*header])
    moments, powers = list[float](), list[float]()
    first: tuple[bool, bool] | None = None
    for line, cells in rows:
        where, moment = f"{path}:{line}", shown(cells[moment_at])
        seconds, *form = _moment(cells[moment_at], where)
        first = first or (form[0], form[1])
        if (form[0], form[1]) != first:
            raise FomkitError(where, f"the time is {moment}, and those above are {_form(*first)}. Use one form.")
        if moments and seconds <= moments[-1]:
            advice = "Sort the log; where a clock was set back, split it there."
            raise FomkitError(where, f"the time {moment} is not after the time in the line before. {advice}")
        moments.append(seconds)
        power = cells[power_at].strip()
        power = f"{power} {unit}" if unit and is_number(power) else power
        powers.append(parse_quantity(power, "power_w", where, "power"))
    if len(moments) < 2 or first is None:
        raise FomkitError(str(path), f"has {len(moments)} readings. Energy needs at least two.")
    return MeterLog(path, tuple(moments), tuple(powers), *first)


TITLE = "log of a wall meter (.csv: time, power_w)"


def _integral_notes(found: Integral, first_s: float, workload: str, path: Path) -> tuple[str, ...]:
    power = found.power_w
    gaps = [
        f"no reading for {gap.length_s:.4g} s, {gap.moment_s - first_s:.6g} s after the start: power is assumed "
        "to be between the smaller and the larger reading around it"
        for gap in found.gaps
    ]
    ends = ", ".join(f"{name}: {exact_quantity(value, 'power_w')}" for name, value in
                     (("power", power.value), ("low", power.low), ("high", power.high)))  # fmt: skip
    shape = f"{{workload: {workload}, scope: wall, {ends}, source: '{path.name}'}}"
    return (
        f"{format_quantity(found.energy_j.value, 'energy_j')} in {format_quantity(found.wall_s, 'time_s')}, "
        f"mean power {format_quantity(power.value, 'power_w')}, a reading every "
        f"{format_quantity(found.period_s, 'time_s', 3)}; the meter's own error is not in the interval",
        *gaps,
        f"for the machine's file, under energy.average: {shape}",
    )


def import_meter(
    path: Path, *, model: str | None, machine: str | None, start: str | None = None, end: str | None = None
) -> ImportedMeasurements:
    """Integrate a wall meter's log between two moments; return one row, ``energy_j``, with messages.

    `model`, `machine`: what ran, and where: a meter does not know it; `start`, `end`: moments in the form of the
    log's; default: its first and its last.
    """
    if not model or not machine:
        raise FomkitError(str(path), "does not state which model ran on which machine. Add --model and --machine.")
    log = read_meter(path)
    first_s = log.moment(start, "--start") if start else log.moments_s[0]
    last_s = log.moment(end, "--end") if end else log.moments_s[-1]
    samples = [Sample(*each) for each in zip(log.moments_s, log.powers_w, strict=True)]
    try:
        found = integrate(samples, first_s, last_s)
    except FomkitError as error:
        raise FomkitError(str(path), f"{error.where}: {error.what}") from error
    energy = found.energy_j
    row = {
        "model": model, "machine": machine, "quantity": "energy_j", "value": energy.value,
        "low": energy.low or None, "high": energy.high if energy.low else None,
        "scope": "wall", "basis": "measured", "source": f"wall meter, {path.name}",
        "note": f"{found.wall_s:.6g} s, {len(found.gaps)} gaps",
    }  # fmt: skip
    if not energy.value > 0:
        raise FomkitError(str(path), "has no power above 0 in this time. Check what the meter was plugged into.")
    return ImportedMeasurements(rows_as_table([row], str(path)), _integral_notes(found, first_s, model, path))

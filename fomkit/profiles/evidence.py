"""Prepare a machine for predictions: check its timings, fit them, and load other machines' tables.

`with_fits` is the main function. *Plausibility*: timings are checked once by `without_implausible`; impossible
rows are left out, each reported with the reason. *Fits* of its timings: the shipped ones, else those in the user's
cache, else computed once and cached. The fits that ship beside a table are written by
``python -m fomkit.profiles.evidence machine_profiles/v100.yaml``. Fits beside any other profile are not read:
their origin is unknown. *Others*: the small tables of other machines are used in a machine's fits.

*Typical tables*: the utilisation of timed machines, four CSV files beside the machine profiles. ``surfaces.csv``
has a row for each kind of work, machine and number format: the number of timings used, their mean, and as numbers
separated by spaces the length of each feature, the errors of similar chips and, for products in tiles, the
constants of their form. ``ops.csv`` has a row for each op: the number of its surface, its weight in thousandths,
its features in hundredths. ``generations.csv`` has the year in which each generation of chips was introduced,
``engines.csv`` how fast the whole matrix engine of a chip is; some boards have only a part of it.
``benchmarks/usual_utilisation.py`` computes the first two from the timings in ``machine_profiles``.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fomkit.core.errors import FomkitError
from fomkit.core.machine import Machine
from fomkit.core.measurement import Plausibility, Surface, TimedWork, TypicalTables, device_kind
from fomkit.core.units import ITEM_BYTE
from fomkit.files.csv import read_bytes, read_rows
from fomkit.ops.check import check_table
from fomkit.ops.columns import cached
from fomkit.ops.pricing import add_costs
from fomkit.ops.tables import COSTS
from fomkit.prediction.donors import Others, as_others
from fomkit.prediction.families import FamilyName
from fomkit.prediction.tiles import Form, chips_of
from fomkit.profiles.locate import file_key, is_shipped, shipped_folder, user_cached
from fomkit.profiles.machines import as_loaded, fit_key, load_machine, save_fits, table_key
from fomkit.profiles.plausibility import check_facts, check_timings

PROCESSES = "shared_processes.json"
"""Small tables of all machines and the processes over them; ``benchmarks/shared_processes.py`` writes it."""


@cache
def _shared_processes() -> Mapping[str, Mapping[str, Any]]:
    """Read the file of this installation, once."""
    path = shipped_folder("machine_profiles") / PROCESSES
    found: Mapping[str, Mapping[str, Any]] = json.loads(read_bytes(path))
    return found


def others_of(machine: Machine) -> dict[str, Others]:
    """Return the small tables of other machines for a machine, by family."""
    built = machine.as_built()
    known = (FamilyName(*name.split("/")) for name in _shared_processes())
    found = {str(name): as_others(_shared_processes()[str(name)], built, name) for name in known}
    return {name: one for name, one in found.items() if one is not None}


FOLDER, SURFACES, OPS = "usual_utilisation", "surfaces.csv", "ops.csv"
GENERATIONS, ENGINES = "generations.csv", "engines.csv"
SURFACE_COLUMNS = (
    "surface", "work", "machine", "architecture", "dtype", "timings", "ops", "balance", "mean",
    "lengths", "errors", "form",
)  # fmt: skip
OP_COLUMNS = ("surface", "weight", *(f"feature_{number}" for number in range(1, 11)))
"""Features that a kind of work does not have are empty."""


def _read_ops(path: Path) -> list[NDArray[np.int32]]:
    """Read ``ops.csv``: for each surface in turn its weights and features."""
    try:  # the file is long, so cells are not checked one by one
        table = pd.read_csv(io.BytesIO(read_bytes(path)), index_col=False, dtype=np.float64)
    except ValueError as error:
        raise FomkitError(str(path), f"is not a table of numbers ({error}).") from error
    if tuple(table.columns) != OP_COLUMNS or table.empty:
        raise FomkitError(f"{path}:1", f"expected rows with the columns {', '.join(OP_COLUMNS)}.")
    values = np.ascontiguousarray(table.to_numpy())
    filled = ~np.isnan(values)
    width, starts = filled.sum(1), np.flatnonzero(np.diff(values[:, 0], prepend=np.nan))
    good = (filled == (np.arange(len(OP_COLUMNS)) < width[:, None])).all(1) & (width > 2)
    good &= (~filled | ((np.abs(values) < 2**31) & (values == np.rint(values)))).all(1)
    good[starts] &= values[starts, 0] == np.arange(len(starts)) + 1
    good &= width == np.repeat(width[starts], np.diff(starts, append=len(values)))
    if not good.all():
        what = "expected whole numbers: surface (ascending), the op's weight, its features."
        raise FomkitError(f"{path}:{good.argmin() + 2}", what)
    return [part[:, 1 : np.isfinite(part[0]).sum()].astype(np.int32) for part in np.split(values, starts[1:])]


def _surface(cells: Sequence[str], rows: NDArray[np.int32]) -> tuple[tuple[float, ...], Surface]:
    """Return the features' lengths, and the surface of a row (from the column ``machine`` on) and its ops."""
    machine, architecture, dtype, _, count, balance, mean, *lists = cells
    length, missed, form = (tuple(map(float, cell.split())) for cell in lists)
    numbers = (float(balance or "nan"), float(mean))
    if not (machine and architecture and dtype in ITEM_BYTE):
        raise ValueError("expected the name of a machine, an architecture and a number format")
    if not (all(map(math.isfinite, (numbers[1], *length, *missed, *form))) and min(length, default=0.0) > 0):
        raise ValueError("expected finite numbers: mean, lengths above 0, errors, constants of a form")
    if len(form) not in (0, len(Form._fields)) or min(form, default=1.0) <= 0:
        raise ValueError(f"expected either no constants of a form or {len(Form._fields)} above 0")
    if rows.shape != (int(count), 1 + len(length)):
        raise ValueError(f"expected {count} ops in {OPS}, with a feature for each length")
    return length, Surface(machine, architecture, dtype, *numbers, missed, rows, form)


def _read_facts(path: Path, name: str, words: str) -> dict[str, float]:
    """Read the columns architecture, ``name`` (a number) and source; ``words``: those of an architecture."""
    (_, header), *rows = [*read_rows(path)] or [(1, [])]
    if tuple(header) != ("architecture", name, "source"):
        raise FomkitError(f"{path}:1", f"expected the columns architecture, {name}, source.")
    found = dict[str, float]()
    for line, (architecture, number, source) in rows:
        whole = len(architecture.split()) == len(words.split(", ")) and architecture not in found
        if not whole or not re.fullmatch(r"[1-9]\d*(\.\d+)?", number) or not source:
            raise FomkitError(
                f"{path}:{line}", f"expected {words}, a {name} (a number from 1), and a source, once for each."
            )
        found[architecture] = float(number)
    return found


def read_generations(path: Path) -> dict[str, float]:
    """Read the year in which each generation of chips was introduced, by vendor and generation."""
    return _read_facts(path, "year", "vendor, generation")


def load_typical_tables(folder: Path) -> TypicalTables:
    """Read the utilisation of timed machines, and facts of generations and chips, from a folder's four files."""
    path = folder / SURFACES
    lines = list(read_rows(path))
    if not lines or tuple(lines.pop(0)[1]) != SURFACE_COLUMNS:
        raise FomkitError(f"{path}:1", f"expected the columns {', '.join(SURFACE_COLUMNS)}.")
    ops, found = _read_ops(folder / OPS), dict[str, TimedWork]()
    if not lines or len(lines) != len(ops):
        raise FomkitError(str(path), f"has {len(lines)} surfaces, but {OPS} has the ops of {len(ops)}.")
    for number, ((line, (number_text, work, *cells)), rows) in enumerate(zip(lines, ops, strict=True), start=1):
        try:
            length, one = _surface(cells, rows)
        except ValueError as error:
            raise FomkitError(f"{path}:{line}", f"{error}.") from error
        so_far = found.get(work, TimedWork(np.array(length), ()))
        if number_text != str(number) or not work or tuple(so_far.length) != length:
            raise FomkitError(f"{path}:{line}", f"expected surface {number} of a work, its lengths as above.")
        found[work] = so_far._replace(known=(*so_far.known, one))
    years = read_generations(folder / GENERATIONS)
    engines = _read_facts(folder / ENGINES, "ratio", "vendor, generation, chip")
    key = hashlib.sha256(f"{lines} {years} {engines}".encode() + b"".join(rows.tobytes() for rows in ops))
    return TypicalTables(key.hexdigest(), found, years, engines)


@cache
def shipped_typical_tables() -> TypicalTables:
    """Read the files of this installation, once."""
    folder = shipped_folder("machine_profiles") / FOLDER
    try:
        key = partial(file_key, [folder / name for name in (SURFACES, OPS, GENERATIONS, ENGINES)])
        return user_cached("typical", key(), partial(load_typical_tables, folder), key)
    except FomkitError as error:
        do = "The file is part of fomkit: reinstall it. In a checkout, restore it."
        raise FomkitError(error.where, f"{error.what} {do}") from error


def _costed(given: pd.DataFrame, name: str) -> pd.DataFrame:
    """Check a machine's table, and add costs."""
    made = [column.name for column in COSTS] + [name for name in given.columns if str(name).startswith("_")]
    plain = given.drop(columns=made, errors="ignore").reset_index(drop=True)
    check_table(plain, "TIMINGS", f"{name}: timings")
    return add_costs(plain, checked=True)


def _check_plausibility(given: pd.DataFrame, machine: Machine) -> Plausibility:
    """Check a machine's table, add costs, and find the impossible rows."""
    key, loaded = "", as_loaded(given)  # no key for a machine that was changed after loading
    # No rule asks how many nodes there are: a job on some of them is checked as the whole.
    usual = replace(machine, typical=None, asked_as="", system_nodes=getattr(loaded.machine, "system_nodes", None))
    if machine.typical is not None and loaded.key and usual == loaded.machine:
        whole = f"{loaded.key} {table_key(given)} {machine.typical.key}"
        key = hashlib.sha256(whole.encode()).hexdigest()
    places, why, suspicions = user_cached("plausibility", key, partial(_implausible, given, machine))
    left = given.drop(index=given.index[list(places)]).reset_index(drop=True) if places else given
    return Plausibility(why, suspicions, given, left, machine.device, machine.links)


def _implausible(
    given: pd.DataFrame, machine: Machine
) -> tuple[tuple[int, ...], tuple[str, ...], tuple[str, ...]]:
    """Return the positions of impossible rows, the reason of each, and suspicions about facts."""
    costed = cached(given, None, f"costed of {machine.name}", partial(_costed, given, machine.name))
    kind, named, stated = device_kind(machine), dict[int, str](), machine.stated_rows().to_numpy(bool)
    suspicions = list(_facts_suspected(machine))
    # Rows stated for a changed machine are compared with the change, all others with the origin.
    for own, device in ((~stated, machine.origin or machine.device), (stated, machine.device)):
        if own.any():
            places = np.flatnonzero(own)
            which = f"{'' if own.all() else own.tobytes().hex()} of {machine.name} {kind}"
            check = partial(check_timings, costed[own], replace(machine, device=device), kind)
            found = cached(given, device, f"impossible rows {which}", check)
            suspicions += found.suspicions
            named |= {int(places[at]): text for at, text in found.impossible.items()}
    return tuple(named), tuple(named.values()), tuple(suspicions)


def _facts_suspected(machine: Machine) -> tuple[str, ...]:
    return check_facts(machine.device, machine.name, machine.links, refuse=machine.origin is None)


def without_implausible(machine: Machine) -> Machine:
    """Return the machine without its impossible timings, and with the result of the check (`Plausibility`).

    Every answer uses this, for machines from files and for those built in Python. A table is checked once; with
    other timings or facts all rows are checked again. The function also sets other machines' utilisation
    (`Machine.typical`), with which timings are compared and from which ops without a timing are predicted.
    """
    if machine.typical is None:
        machine = replace(machine, typical=shipped_typical_tables())
    known = machine.plausibility
    if known is not None and known.is_of(machine):
        return machine
    given = known.given if known is not None and machine.timings is known.left else machine.timings
    if not len(given):
        judged = Plausibility((), _facts_suspected(machine), given, given, machine.device, machine.links)
        return replace(machine, plausibility=judged)
    whole = machine if given is machine.timings else replace(machine, timings=given)
    check = partial(_check_plausibility, given, whole)
    found = cached(given, machine.device, f"plausibility of {machine.name} with {machine.links}", check)
    if found.left is machine.timings:
        return replace(machine, plausibility=found)
    left = replace(machine, timings=found.left, plausibility=found)
    # Fits that ship with a table were computed without the impossible rows (`make_fits`).
    fits = machine.fits if machine.timings_key == fit_key(whole.as_built().timings) else {}
    return replace(left, fits=fits, timings_key=fit_key(left.as_built().timings))


def fit(machine: Machine, known: Mapping[str, object] = MappingProxyType({})) -> dict[str, object]:
    """Fit a machine's timings, except families for which fits of the same rows are known."""
    from fomkit.prediction.calibration import fit_timings

    built = machine.as_built()
    return fit_timings(add_costs(built.timings), others_of(built), chips_of(built.device), known)


def _shipped_fits(machine: Machine) -> Mapping[str, object]:
    """Return the fits that ship for a machine, or the one that it names as its device, if its facts are the same.

    If timings are added to a shipped table or left out, only the families that change are fitted again.
    """
    name = machine.device_of or machine.name
    path = shipped_folder("machine_profiles") / f"{name}.yaml"
    if not path.is_file():
        return {}
    shipped = load_machine(path)
    return shipped.fits if (shipped.name, shipped.device) == (name, machine.device) else {}


def make_fits(machine: Machine, path: Path) -> dict[str, object]:
    """Fit a machine's timings, without the impossible ones, and write the fits with the whole table's key."""
    fits = fit(without_implausible(machine))
    save_fits(fits, path, fit_key(machine.as_built().timings))
    return fits


def write_fits(machine: Machine, path: Path) -> list[Path]:
    """Fit the timings of a profile just written at ``path``, so that later commands need not wait.

    Returns the file written beside a profile that ships with fomkit. Empty for all others: fits beside these are
    not read; theirs are in the user's cache.
    """
    if not len(machine.timings):
        return []
    beside = path.with_name(f"{path.stem}.fits.json")
    if not is_shipped(beside, "machine_profiles"):
        with_fits(machine)
        return []
    make_fits(machine, beside)
    return [beside]


def _cached_fits(machine: Machine, key: str) -> dict[str, object]:
    """Fit a table, or read its fits from the cache, by the table, the machine's facts and the fitting code."""
    built = machine.as_built()
    facts = f"{key} {built.name} {built.device_of} {built.device}"
    digest = hashlib.sha256(facts.encode()).hexdigest()
    return user_cached("fits", digest, lambda: fit(machine, _shipped_fits(built)))


def with_fits(machine: Machine) -> Machine:
    """Return the machine with fits of its timings, computed now if necessary.

    Impossible timings are left out first (`without_implausible`). A machine without timings has no fits. Its own
    fits are valid only for the timings that they were computed from (``timings_key``); for a table that replaced
    these, fits are recomputed and cached for the user under the hash of its content.
    """
    machine = without_implausible(machine)
    timings = machine.timings
    if not len(timings):
        return replace(machine, fits={}, timings_key="") if machine.fits else machine
    key = cached(timings, machine.origin, "fit key", lambda: fit_key(machine.as_built().timings))
    if machine.fits and machine.timings_key == key:
        return machine
    fits = cached(timings, machine.origin, "fits", lambda: _cached_fits(machine, key))
    return replace(machine, timings_key=key, fits=fits)


def main(profiles: Sequence[str]) -> None:
    """Fit the tables of profiles and write the fits beside them."""
    for name in profiles:
        beside = Path(name).with_suffix(".fits.json")
        make_fits(load_machine(name), beside)
        if not is_shipped(beside, "machine_profiles"):
            sys.stderr.write(f"{beside}: written, but fomkit reads it only from its own machine_profiles.\n")


if __name__ == "__main__":
    main(sys.argv[1:])

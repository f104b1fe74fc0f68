"""Load machine profiles: facts in YAML, timings in CSV, and fits of these timings in JSON.

Fits state the timings that they were computed from and are ignored for others. This is no proof, because a changed
fit can state the same timings. So fits are read from two places only: those that ship with fomkit and the user's
own cache (`fomkit.profiles.evidence`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from os.path import isfile
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import pandas as pd

from fomkit.core.errors import FomkitError, letters
from fomkit.core.machine import Machine, with_room
from fomkit.files.write import write_whole
from fomkit.ops.columns import cached
from fomkit.ops.tables import TABLES, in_order
from fomkit.profiles.locate import is_shipped, locate, user_cached_profile

if TYPE_CHECKING:
    from fomkit.files.documents import Document

FITS_SCHEMA = "fomkit/fits/5"
"""The number is raised when features of fits change, so that older fits are recomputed."""


def _content(cells: pd.Series, number: bool) -> bytes:
    """Return the content of a column as bytes; empty if every cell is."""
    if not number:
        words = cells.tolist()
        text_of = {word: "" if pd.isna(word) else str(word) for word in dict.fromkeys(words)}
        return "\x1f".join(map(text_of.__getitem__, words)).encode() if any(text_of.values()) else b""
    values = cells.to_numpy("<f8")
    empty = np.isnan(values)
    return b"" if empty.all() else np.where(empty, np.nan, values).tobytes()


def fit_key(timings: pd.DataFrame) -> str:
    """Hash the timings that a fit depends on, in any order; "" without any.

    Empty columns do not count, so the key of a table does not change with new columns of the schema.
    """
    return table_key(in_order(timings)) if len(timings) else ""


def table_key(timings: pd.DataFrame) -> str:
    """Hash the current content of a table of timings, row by row."""
    digest = hashlib.sha256(f"{len(timings)}".encode())
    for column in TABLES["TIMINGS"]:
        if column.name in timings.columns:
            content = _content(timings[column.name], column.dtype == "number")
            digest.update(f"\x1e{column.name}\x1f".encode() + content if content else b"")
    return digest.hexdigest()


def _seal(fits: Mapping[str, object]) -> str:
    """Hash fits themselves, so that an edited or truncated file is detected."""
    return hashlib.sha256(json.dumps(fits, sort_keys=True).encode()).hexdigest()


def load_fits(path: Path, key: str) -> dict[str, object]:
    """Read fits; none if the file is absent or was computed from other timings."""
    from fomkit.files.documents import read_text

    if not key or not path.is_file():
        return {}
    try:
        content = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise FomkitError(str(path), f"is not JSON ({error}). Delete the file; fomkit makes it again.") from error
    if not isinstance(content, dict) or content.get("schema") != FITS_SCHEMA or content.get("timings_key") != key:
        return {}
    fits = content.get("fits")
    if not isinstance(fits, dict):
        raise FomkitError(str(path), "has no fits. Delete the file; fomkit makes it again.")
    if content.get("fits_sha256") != _seal(fits):
        raise FomkitError(
            str(path),
            "its fits do not match its fits_sha256: the file was changed after it was written. Delete the file; "
            "fomkit makes it again.",
        )
    return fits


def save_fits(fits: Mapping[str, object], path: Path, key: str) -> None:
    """Write fits, completely or not at all."""
    content = {"schema": FITS_SCHEMA, "timings_key": key, "fits_sha256": _seal(fits), "fits": fits}
    write_whole(path, json.dumps(content, indent=0, sort_keys=True, allow_nan=False) + "\n")


FOLDER: Literal["machine_profiles"] = "machine_profiles"


def _with_device(machine: Machine, of: Machine) -> Machine:
    """Return a machine with the device of another: facts, timings and fits; its own timings are appended.

    Links, messages timed over them, and power and price of a node belong to the node: they are taken over unless
    the machine states a node of another size. Its own facts have priority, also over messages timed on a link of
    the same tier.
    """
    same = machine.node_devices is None or machine.node_devices == of.node_devices
    timings, fits = of.timings, of.fits
    stated = {link.tier for link in machine.links}
    messages = timings["kind"] == "collective"
    if same and messages.any():
        messages &= timings["link"].isin(stated)
    if messages.any():
        timings = timings[~messages].reset_index(drop=True)
        fits = {name: one for name, one in fits.items() if not name.startswith("collective/")}
    if len(machine.timings):
        timings, fits = pd.concat([timings, machine.timings], ignore_index=True), {}
    energy = of.energy if of.energy is not None and (same or of.energy.scope == "chip") else None
    price = of.price if of.price is not None and (same or of.price.per == "device") else None
    message = f"Device, timings and fits come from the profile {of.name}: {of.title}."
    return replace(
        machine,
        device=of.device,
        origin=of.origin,
        timings=timings,
        fits=fits,
        node_devices=machine.node_devices or of.node_devices,
        links=(*machine.links, *(link for link in of.links if same and link.tier not in stated)),
        host_op_s=machine.host_op_s or of.host_op_s,
        reserve_byte=machine.reserve_byte or of.reserve_byte,
        software=machine.software or of.software,
        overheads=machine.overheads or of.overheads,
        energy=machine.energy or energy,
        price=machine.price or price,
        device_of=of.device_of or of.name,
        notes=(message, *machine.notes, *(f"{of.name}: {note}" for note in of.notes)),
    )


def load_machine(name: str | Path) -> Machine:
    """Load a machine profile by path or name.

    Fits are read only for profiles that ship with fomkit, because a changed fit cannot be detected.
    """
    machine = _load(path := locate(str(name), FOLDER), ())
    # A file name whose first part is the given name was found by a short name.
    is_short = "-" in path.name and letters(path.name.partition("-")[0]) == letters(str(name))
    return replace(machine, asked_as=str(name)) if is_short else machine


def _device_file(document: Document, name: str, named_by: tuple[Path, ...]) -> Path:
    """Find the machine file that ``device: NAME`` means: beside this file, else by its name."""
    from fomkit.profiles.machine_record import check_inside

    where = document.where(("device",))
    check_inside(document, ("device",), name, "the device")
    endings = ("", ".yaml", ".yml")
    beside = [path for ending in endings if isfile(path := document.path.parent / f"{name}{ending}")]
    found = next((path for path in beside if not path.samefile(document.path)), None)
    try:
        path = found or locate(name, FOLDER)
    except FomkitError as error:
        if not beside:
            raise FomkitError(where, f"the device {name!r}: {error.what}") from error
        path = document.path
    if any(path.samefile(one) for one in named_by):
        chain = " → ".join(one.name for one in (*named_by, path))
        raise FomkitError(
            where, f"the device is the machine itself: {chain}. Name a machine that states its device."
        )
    return path


def _load(path: Path, named_by: tuple[Path, ...]) -> Machine:
    """Load a machine file; ``named_by`` are the files, outermost first, that refer to it as their device."""
    beside = path.with_name(f"{path.stem}.fits.json")
    shipped = is_shipped(beside, FOLDER)

    def read() -> tuple[Machine, list[str]]:
        from fomkit.profiles.machine_record import read_machine

        machine, tables, of, document = read_machine(path)
        if of is not None:
            others = (*named_by, path)
            machine = _with_device(machine, _load(_device_file(document, of, others), others))
            tables = [""]  # the folder is no file, so results that depend on other profiles stay uncached
        machine = with_room(machine, document.where(("reserve",)))
        key = fit_key(machine.as_built().timings)
        fits = load_fits(beside, key) if shipped else {}
        return replace(machine, timings_key=key, fits=fits or machine.fits), tables

    machine, key = user_cached_profile("machine", (path, beside) if shipped else (path,), read)
    cached(machine.timings, None, "as loaded", lambda: AsLoaded(key, machine))
    return machine


class AsLoaded(NamedTuple):
    """The key of all bytes that a table was read from, "" if unknown, and the machine that it belongs to."""

    key: str = ""
    machine: Machine | None = None


def as_loaded(timings: pd.DataFrame) -> AsLoaded:
    """Return where a table, identified as an object, was loaded from."""
    return cached(timings, None, "as loaded", AsLoaded)

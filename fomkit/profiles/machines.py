"""Machine profiles on disk: facts in YAML, timings in CSV, and fits of these timings in JSON.

Fits name the timings that they were made from and are ignored for others. A name is no proof, for whoever changes
a fit can name the same timings: so fits are read from two places only, those that came with fomkit and the user's
own cache (`fomkit.profiles.evidence`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import pandas as pd

from fomkit.core.errors import FomkitError
from fomkit.core.machine import Machine
from fomkit.files.write import write_whole
from fomkit.ops.tables import TABLES, in_order
from fomkit.prediction.estimates import cached
from fomkit.profiles.locate import is_file, is_shipped, kept_profile, locate

if TYPE_CHECKING:
    from fomkit.files.yaml import Document


FITS_SCHEMA = "fomkit/fits/5"
"""Counts up when fits look at ops in another way, so that older ones are made anew."""


def _content(cells: pd.Series, number: bool) -> bytes:
    """Give what a column holds as bytes; empty where every cell is."""
    if not number:
        texts = cells.fillna("").astype("str").tolist()
        return "\x1f".join(texts).encode() if any(texts) else b""
    values = cells.to_numpy("<f8")
    empty = np.isnan(values)
    return b"" if empty.all() else np.where(empty, np.nan, values).tobytes()


def fit_key(timings: pd.DataFrame) -> str:
    """Hash what a fit rests on, the timings in whatever order they stand; "" without any.

    Empty columns do not count, so the key of a table outlives new columns of the schema.
    """
    return table_key(in_order(timings)) if len(timings) else ""


def table_key(timings: pd.DataFrame) -> str:
    """Hash what a table of timings holds now, row by row."""
    digest = hashlib.sha256(f"{len(timings)}".encode())
    for column in TABLES["TIMINGS"]:
        if column.name in timings.columns:
            content = _content(timings[column.name], column.dtype == "number")
            digest.update(f"\x1e{column.name}\x1f".encode() + content if content else b"")
    return digest.hexdigest()


def _seal(fits: Mapping[str, object]) -> str:
    """Hash fits themselves, so that an edited or cut file is found out."""
    return hashlib.sha256(json.dumps(fits, sort_keys=True).encode()).hexdigest()


def load_fits(path: Path, key: str) -> dict[str, object]:
    """Read fits; none when the file is absent or was made from other timings."""
    from fomkit.files.yaml import read_text

    if not key or not path.is_file():
        return {}
    try:
        content = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise FomkitError(str(path), f"is not JSON ({error}). Delete it; it is made again.") from error
    if not isinstance(content, dict) or content.get("schema") != FITS_SCHEMA or content.get("timings_key") != key:
        return {}
    fits = content.get("fits")
    if not isinstance(fits, dict):
        raise FomkitError(str(path), "has no fits. Delete it; it is made again.")
    if content.get("fits_sha256") != _seal(fits):
        raise FomkitError(
            str(path),
            "its fits are not those that its fits_sha256 names, so somebody changed them after they were "
            "made. Delete it; it is made again.",
        )
    return fits


def save_fits(fits: Mapping[str, object], path: Path, key: str) -> None:
    """Write fits, whole or not at all."""
    content = {"schema": FITS_SCHEMA, "timings_key": key, "fits_sha256": _seal(fits), "fits": fits}
    write_whole(path, json.dumps(content, indent=1, sort_keys=True, allow_nan=False) + "\n")


FOLDER: Literal["machine_profiles"] = "machine_profiles"


def _with_device(machine: Machine, of: Machine) -> Machine:
    """Give a machine the device of another: its facts, timings and fits; timings of its own come beside them.

    Links, messages timed over them, and power and price of a node belong to the node: they come along where the
    machine states no node of another size. What it states itself stays.
    """
    same = machine.node_devices is None or machine.node_devices == of.node_devices
    timings, fits = of.timings, of.fits
    messages = timings["kind"] == "collective"
    if messages.any() and (machine.links or not same):
        timings = timings[~messages].reset_index(drop=True)
        fits = {name: one for name, one in fits.items() if not name.startswith("collective/")}
    if len(machine.timings):
        timings, fits = pd.concat([timings, machine.timings], ignore_index=True), {}
    energy = of.energy if of.energy is not None and (same or of.energy.scope == "chip") else None
    price = of.price if of.price is not None and (same or of.price.per == "device") else None
    message = f"The device, its timings and fits are those of the profile {of.name}: {of.title}."
    return replace(
        machine,
        device=of.device,
        origin=of.origin,
        timings=timings,
        fits=fits,
        node_devices=machine.node_devices or of.node_devices,
        links=machine.links or (of.links if same else ()),
        host_op_s=machine.host_op_s or of.host_op_s,
        overheads=machine.overheads or of.overheads,
        energy=machine.energy or energy,
        price=machine.price or price,
        device_of=of.device_of or of.name,
        notes=(message, *machine.notes, *(f"{of.name}: {note}" for note in of.notes)),
    )


def load_machine(name: str | Path) -> Machine:
    """Load a machine profile by path or name.

    Fits are read of those profiles only that came with fomkit: nobody can see from a fit that it was changed.
    """
    machine = _load(path := locate(str(name), FOLDER), ())
    # Only a short name finds a file that begins with it and goes on.
    return replace(machine, asked_as=str(name)) if path.name.startswith(f"{name}-") else machine


def _device_file(document: Document, name: str, named_by: tuple[Path, ...]) -> Path:
    """Find the machine file that ``device: NAME`` means: beside this file, else by its name."""
    from fomkit.profiles.machine_record import check_inside

    where = document.where(("device",))
    check_inside(document, ("device",), name, "the device")
    endings = ("", ".yaml", ".yml")
    beside = [path for ending in endings if is_file(path := document.path.parent / f"{name}{ending}")]
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
    """Load a machine file that these files, the outermost first, name as their device."""
    beside = path.with_name(f"{path.stem}.fits.json")
    shipped = is_shipped(beside, FOLDER)

    def read() -> tuple[Machine, list[str]]:
        from fomkit.profiles.machine_record import read_machine

        machine, tables, of, document = read_machine(path)
        if of is not None:
            others = (*named_by, path)
            machine = _with_device(machine, _load(_device_file(document, of, others), others))
            tables = [""]  # the folder, which is no file: what hangs on other profiles is not kept
        key = fit_key(machine.as_built().timings)
        fits = load_fits(beside, key) if shipped else {}
        return replace(machine, timings_key=key, fits=fits or machine.fits), tables

    machine, key = kept_profile("machine", (path, beside) if shipped else (path,), read)
    cached(machine.timings, None, "as loaded", lambda: AsLoaded(key, machine))
    return machine


class AsLoaded(NamedTuple):
    """The key of all bytes that a table was read from, "" where none is known, and the machine that has it."""

    key: str = ""
    machine: Machine | None = None


def as_loaded(timings: pd.DataFrame) -> AsLoaded:
    """Say where a table, known by its identity, was loaded from."""
    return cached(timings, None, "as loaded", AsLoaded)

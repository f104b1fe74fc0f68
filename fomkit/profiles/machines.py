"""Machine profiles on disk: facts in YAML, timings in CSV; of shipped ones the fits beside them in JSON.

Fits of timings on disk: JSON that names the timings it was made from, and is ignored for others.

A name is no proof: whoever changes a fit can name the same timings. So fits are read from two places only, those
that came with fomkit and the user's own cache (`fomkit.profiles.machines`, `fomkit.profiles.evidence`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from fomkit.core.errors import FomkitError
from fomkit.core.machine import Device, Link, Machine, Overhead, Peak
from fomkit.files.csv import check_beside
from fomkit.files.op_csv import empty_table, read_numbered_table
from fomkit.files.write import write_whole
from fomkit.files.yaml import Document, load_document, read_text
from fomkit.ops.check import check_table
from fomkit.ops.tables import TABLES, in_order
from fomkit.profiles import machine_record
from fomkit.profiles.facts import energy_of, fact_of, price_of
from fomkit.profiles.locate import is_file, is_shipped, locate
from fomkit.profiles.machine_record import DeviceRecord, LinkRecord, MachineRecord, NamedDeviceRecord
from fomkit.profiles.records import check_record, check_schema, fields_of

if TYPE_CHECKING:
    import pandas as pd


FITS_SCHEMA = "fomkit/fits/5"
"""Counts up when fits look at ops in another way, so that older ones are made anew."""


def _content(cells: pd.Series, number: bool) -> bytes:
    """Give what a column holds as bytes; empty where every cell is."""
    import numpy as np

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
    if not len(timings):
        return ""
    timings = in_order(timings)
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


SCHEMA = "fomkit/machine/1"
FOLDER: Literal["machine_profiles"] = "machine_profiles"


def _device(record: DeviceRecord) -> Device:
    peaks = tuple(
        Peak(one.dtype, one.engine, rate, one.accumulate_dtype)
        for one in record.peak
        if (rate := fact_of(one, "rate")) is not None
    )
    return Device(
        peaks=peaks,
        capacity_byte=fact_of(record.memory, "capacity", has_ends=False),
        byte_per_s=fact_of(record.memory, "bandwidth"),
        launch_s=fact_of(record.launch, "per_op"),
        fresh_byte_per_s=fact_of(record.allocator, "fresh"),
        fresh_above_byte=record.allocator.above if record.allocator else None,
        host_byte_per_s=fact_of(record.from_host, "bandwidth"),
        architecture=record.architecture,
    )


def _overhead(document: Document, index: int, record: machine_record.OverheadRecord) -> Overhead:
    if (record.time is None) == (record.share is None):
        what = f"the overhead {record.name!r} needs either 'time' or 'share'. Give one of them."
        raise document.error(("overheads", index), what)
    share = fact_of(record, "share", has_ends=False)
    return Overhead(record.name, record.per, fact_of(record, "time"), share)


def _range(low: float | None, value: float, high: float | None) -> tuple[float, float] | None:
    if low is None and high is None:
        return None
    return value if low is None else low, value if high is None else high


def check_rates(link: Link, where: str) -> Link:
    """Give a link back, or raise where a rate is 0, over which nothing ever arrives."""
    rates = {
        "bandwidth": link.byte_per_s,
        "serialise": link.serialise_byte_per_s,
        "low": (link.range_byte_per_s or (1,))[0],
    }
    for name, rate in rates.items():
        if rate == 0:
            raise FomkitError(where, f"{name} is 0 B/s, over which nothing arrives. Give a rate above 0.")
    return link


def link_of(document: Document, index: int, record: LinkRecord) -> Link:
    """Make the noun of one entry of ``links``."""
    alpha = _range(record.alpha_low, record.alpha, record.alpha_high)
    rate = _range(record.low, record.bandwidth, record.high)
    for name, value, span in (("alpha", record.alpha, alpha), ("bandwidth", record.bandwidth, rate)):
        if span is not None and not span[0] <= value <= span[1]:
            raise document.error(("links", index), f"the {name} must have low ≤ value ≤ high. Correct these.")
    link = Link(
        alpha_s=record.alpha,
        byte_per_s=record.bandwidth,
        least_byte=record.messages_from,
        most_byte=record.messages_to,
        alpha_range_s=alpha,
        range_byte_per_s=rate,
        serialise_byte_per_s=record.serialise,
        **fields_of(record, Link),
    )
    return check_rates(link, document.where(("links", index)))


def _check_order(document: Document, machine: Machine) -> None:
    device = machine.device
    facts = {("device", "peak", index, "low"): peak.rate for index, peak in enumerate(device.peaks)}
    pairs = [
        *facts.items(),
        (("device", "memory", "low"), device.byte_per_s),
        (("device", "launch"), device.launch_s),
        (("host", "per_op"), machine.host_op_s),
        (("device", "allocator"), device.fresh_byte_per_s),
        (("device", "from_host"), device.host_byte_per_s),
    ]
    for keys, fact in pairs:
        if fact is not None and not 0 < fact.low <= fact.value <= fact.high:
            raise document.error(keys, f"the {keys[1]} must be above 0 with low ≤ value ≤ high. Correct these.")


def _check_inside(document: Document, keys: tuple[str | int, ...], name: str, what: str) -> None:
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise document.error(keys, f"{what} {name!r} must lie in the folder of this file. Give its name only.")


def _read_timings(document: Document, names: list[str]) -> pd.DataFrame:
    import pandas as pd

    tables = []
    for index, name in enumerate(names):
        _check_inside(document, ("timings", index), name, "timings")
        path = document.path.parent / name
        check_beside(path, document.path)
        table = read_numbered_table(path, "TIMINGS")
        check_table(table, "TIMINGS", str(path))
        tables.append(table)
    return pd.concat(tables, ignore_index=True) if tables else empty_table("TIMINGS")


def _device_file(document: Document, name: str, named_by: tuple[Path, ...]) -> Path:
    """Find the machine file that ``device: NAME`` means: beside this file, else by its name."""
    where = document.where(("device",))
    _check_inside(document, ("device",), name, "the device")
    beside = (document.path.parent / f"{name}{ending}" for ending in ("", ".yaml", ".yml"))
    found = next((path for path in beside if is_file(path) and not path.samefile(document.path)), None)
    try:
        path = found or locate(name, "machine_profiles")
    except FomkitError as error:
        raise FomkitError(where, f"the device {name!r}: {error.what}") from error
    if any(path.samefile(one) for one in named_by):
        chain = " → ".join(one.name for one in (*named_by, path))
        raise FomkitError(
            where, f"the device is the machine itself: {chain}. Name a machine that states its device."
        )
    return path


def _with_device(machine: Machine, of: Machine) -> Machine:
    """Give a machine the device of another: its facts, timings and fits; timings of its own come beside them.

    Links, messages timed over them, and power and price of a node belong to the node: they come along where the
    machine states no node of another size. What it states itself stays.
    """
    import pandas as pd

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


def _load(path: Path, named_by: tuple[Path, ...]) -> Machine:
    """Load a machine file that these files, the outermost first, name as their device."""
    document = load_document(path)
    check_schema(document, SCHEMA)
    record = check_record(document, MachineRecord)
    node, system = record.node, record.system
    if system is not None and node is None:
        raise document.error(("system",), "states nodes, but node.devices is absent. Add 'node: {devices: …}'.")
    machine = Machine(
        name=record.name,
        title=record.title or record.name,
        party=record.party,
        device=_device(record.device),
        timings=_read_timings(document, record.timings),
        node_devices=node.devices if node else None,
        system_nodes=system.nodes if system else None,
        availability=system.availability if system else 1.0,
        host_op_s=fact_of(record.host, "per_op"),
        overheads=tuple(_overhead(document, index, one) for index, one in enumerate(record.overheads)),
        links=tuple(link_of(document, index, one) for index, one in enumerate(record.links)),
        notes=tuple(record.notes),
        origin=_device(record.origin) if record.origin is not None else None,
        energy=energy_of(document, record.energy, node.devices if node else None),
        price=price_of(document, record.price),
    )
    _check_order(document, machine)
    if isinstance(record.device, NamedDeviceRecord):
        if record.origin is not None:
            what = "states an origin, but the device is another machine's. Leave out one of them."
            raise document.error(("origin",), what)
        named_by = (*named_by, path)
        machine = _with_device(machine, _load(_device_file(document, record.device.of, named_by), named_by))
    key = fit_key(machine.as_built().timings)
    beside = path.with_name(f"{path.stem}.fits.json")
    fits = load_fits(beside, key) if is_shipped(beside, FOLDER) else {}
    return replace(machine, timings_key=key, fits=fits or machine.fits)

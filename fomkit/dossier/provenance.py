"""Where every number comes from: profiles with the hashes of their tables, timings, facts, libraries."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from fomkit.dossier.words import number
from fomkit.hardware import Fact, Machine
from fomkit.quantities import exact_quantity, format_quantity
from fomkit.report.book import Cell, Head, Section, Table
from fomkit.study.estimate import Estimate
from fomkit.tables import format_table

if TYPE_CHECKING:
    import pandas as pd


def content_hash(table: pd.DataFrame, columns: str) -> str:
    """Hash a table as fomkit writes it: SHA-256 of the CSV file of that content."""
    return hashlib.sha256(format_table(table, columns).encode("utf-8")).hexdigest()


def _profiles(one: Estimate) -> Table:
    model, machine = one.model, one.machine
    traced = ", ".join(f"{name} {value}" for name, value in model.traced_with.items()) or "not said"
    parameters = "unknown" if model.parameters_total is None else f"{model.parameters_total:,}"
    rows = [
        ("model", f"{model.title or model.name}; {parameters} parameters; traced with: {traced}"),
        ("its ops", f"{len(model.ops):,} rows, SHA-256 {content_hash(model.ops, 'OPS')}"),
        ("machine", f"{machine.title}; figures by: {machine.party}"),
        *([("its device", f"that of the profile {machine.device_of}")] if machine.device_of else []),
        ("its timings", f"{len(machine.timings):,} rows, SHA-256 {content_hash(machine.timings, 'TIMINGS')}"
                        if len(machine.timings) else "none: known by its datasheet only"),
    ]  # fmt: skip
    if model.measured is not None:
        run = model.measured
        rows.append(("its step was timed", f"on {run.processor}, {run.date or 'date unknown'}; not used here"))
    cells = tuple((Cell(name), Cell(text)) for name, text in rows)
    caption = "Profiles; a hash is that of the table's CSV file, unpacked, as sha256sum gives it"
    return Table(caption, (Head("what"), Head("from")), cells)


def _facts(machine: Machine) -> Iterator[tuple[str, Fact, str]]:
    device = machine.device
    for peak in device.peaks:
        yield f"peak, {peak.dtype} {peak.engine}", peak.rate, "flop_per_s"
    for name, fact, dimension in (
        ("memory bandwidth", device.byte_per_s, "byte_per_s"), ("memory", device.capacity_byte, "byte"),
        ("host cost of a launch", device.launch_s, "time_s"), ("new pages", device.fresh_byte_per_s, "byte_per_s"),
        ("from the host", device.host_byte_per_s, "byte_per_s"),
    ):  # fmt: skip
        if fact is not None:
            yield name, fact, dimension
    for one in machine.overheads:
        if one.time_s is not None:
            yield f"{one.name}, per {one.per}", one.time_s, "time_s"
        elif one.share is not None:
            yield f"{one.name}, share per {one.per}", one.share, "share"


def _say(value: float, dimension: str) -> str:
    if dimension == "share":
        return f"{value:.1%}"
    return exact_quantity(value, dimension) if dimension == "byte" else format_quantity(value, dimension, 3)


def _fact_table(machine: Machine) -> Table:
    head = (Head("fact"), Head("value", True), Head("interval", True), Head("basis"), Head("source"))
    rows = []
    for name, fact, dimension in _facts(machine):
        texts = [_say(value, dimension) for value in (fact.value, fact.low, fact.high)]
        spread = "none stated" if fact.low == fact.high else f"{texts[1]} to {texts[2]}"
        source = fact.source or "not said"
        rows.append((Cell(name), Cell(texts[0], fact.value), Cell(spread), Cell(fact.basis), Cell(source)))
    return Table(f"Facts of {machine.name}", head, tuple(rows))


def _timings(timings: pd.DataFrame) -> Table:
    columns = ["source_file", "source_sheet", "library", "library_version", "harness"]
    words = timings.reindex(columns=columns).astype("object").fillna("").astype("str")
    counts = words.groupby(columns, sort=False).size()
    head = (Head("file"), Head("sheet"), Head("library"), Head("version"), Head("timed by"), Head("rows", True))
    rows = tuple(
        (*(Cell(str(word) or "not said") for word in key), number(float(count)))
        for key, count in zip(counts.index.tolist(), counts.tolist(), strict=True)
    )
    return Table("Timings by source and library", head, rows)


def provenance(one: Estimate, key: str) -> Section:
    """Tell where every number of an estimate comes from."""
    machine = one.machine
    tables = [_profiles(one), _fact_table(machine)]
    if len(machine.timings):
        tables.append(_timings(machine.timings))
    return Section(f"{key}-provenance", "Where the numbers come from", tables=tuple(tables))

"""The report of an estimate: all results gathered and written as one HTML file.

This module makes the sections about sensitivity, what to measure next, and provenance; `step` and `words` make the
others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import get_args

import pandas as pd

from fomkit import __version__
from fomkit.core.errors import FomkitError
from fomkit.core.interval import level_text
from fomkit.core.job import Job, Layout
from fomkit.core.machine import Fact, Machine
from fomkit.core.measurement import Measurement
from fomkit.core.units import Precision, format_quantity
from fomkit.files.op_csv import format_table
from fomkit.files.write import check_absent, write_whole
from fomkit.ops.precision import DEFAULTS
from fomkit.output import charts
from fomkit.output.decisions import format_setting
from fomkit.output.machines import capacity_text
from fomkit.output.pages import Book, Cell, Chapter, Head, Listing, Section, Table, check_libraries, render_book
from fomkit.output.suites import format_merit, merit_caveats
from fomkit.plan.content import estimate_content
from fomkit.plan.coverage import UNPRICED
from fomkit.plan.estimate import Estimate
from fomkit.plan.job import OF_ONE_RUN, place_job, time_microbatch
from fomkit.plan.options import Options
from fomkit.readers.measurements import every_table
from fomkit.verbs.answer import checked
from fomkit.verbs.compare import Comparison, merit_blocks
from fomkit.verbs.report.step import all_ops, composition, devices, measured, memory, roofline, scaling
from fomkit.verbs.report.words import (
    amount,
    claim_of,
    ends,
    evidence_of_time,
    figure,
    limits,
    number,
    parameter,
    share,
    tiles_of,
)
from fomkit.whatif.sensitivity import Sensitivity
from fomkit.whatif.sensitivity import sensitivity as work_out
from fomkit.whatif.subjects import subject_of_model

SENSITIVITY_TITLE = "What the result depends on"
FIGURES = {"unit_per_day": "units a day", "sample_per_s": "samples a second", "step_s": "time of a step"}
MEASURED = 6
"""Number of proposed measurements that are listed."""


def _word(name: str, sizes: Collection[str]) -> str:
    return f"size {name}" if name in sizes and name != "batch" else parameter(name)


def _effects_table(effects: pd.DataFrame) -> Table:
    head = (Head("parameter"), Head("is", True), Head("varied from", True), Head("to", True),
            Head("elasticity", True, "by how many percent the result changes for one percent of the parameter"),
            Head("swing", True, "between these bounds, as a share of the result"))  # fmt: skip
    rows = tuple(
        (
            Cell(row["parameter"]), *(Cell(format_setting(row[name], row["unit"]), row[name])
                                           for name in ("value", "low", "high")),
            Cell("kink") if row["kink"] else number(row["elasticity"]), share(row["swing"]),
        )
        for row in effects.to_dict("records")
    )  # fmt: skip
    return Table("Parameters of the machine, then of the work, each the largest swing first", head, rows)


def _most(found: Sensitivity, sizes: Collection[str], name: str) -> str:
    """Name the parameter of the machine, and that of the work, which change the answer most."""
    groups = {"Of the machine": "machine", "Of the work": "model"}
    sentences = []
    for title, owner in groups.items():
        first = next((effect for effect in found.effects if effect.parameter.of == owner), None)
        if first is not None:
            word = _word(first.parameter.name, sizes)
            sentences.append(f"{title}, most on {word}: a swing of {first.swing:.0%} of the {name}.")
    return " ".join(sentences)


def sensitivity(estimate: Estimate, key: str, options: Options) -> Section:
    """Make the section about the parameters that change the answer most."""
    job, machine, model = estimate.job, estimate.machine, estimate.model
    whole = None if job is None else machine.nodes_of(job.devices)
    if whole == 0:
        return Section(f"{key}-sensitivity", SENSITIVITY_TITLE, absent="Not computed for a part of a node.")
    if job is not None:
        options = replace(options, scope=None, batch=job.samples // job.replicas)
    if OF_ONE_RUN.format(machine.name) in estimate.deviations:  # the system grows with the run
        machine = replace(machine, system_nodes=None)
    layout = Layout() if job is None else replace(job.layout, data=None)
    try:
        found = work_out(subject_of_model(model, machine, options, whole, layout))
    except FomkitError as error:
        return Section(f"{key}-sensitivity", SENSITIVITY_TITLE, absent=f"Not computed: {error}")
    middle, name = found.figures[found.figure].value, FIGURES.get(found.figure, found.figure)
    effects = found.bars()
    effects = effects.assign(parameter=[_word(one, estimate.sizes) for one in effects["parameter"]])
    says = (
        f"{_most(found, estimate.sizes, name)} Each parameter is changed alone, between the bounds of its own "
        "interval where one is stated, else by ±10%.",
    )
    shown = figure(
        f"{key}-tornado", f"{name.capitalize()} as one parameter changes",
        charts.tornado(effects, middle, "", name), says[0],
        ("Bars start at the present result. Blue is the parameter's lower value, orange its higher one.",),
        _effects_table(effects),
    )  # fmt: skip
    head = (Head("measure"), Head("which is"), Head("the interval would be narrower by", True), Head("with"))
    rows = tuple(
        (Cell(str(entry["what"])), Cell(str(entry["kind"])), share(entry["shrinks"]), Cell(str(entry["command"])))
        for entry in found.to_measure["measurements"][:MEASURED]
    )
    tables = (Table("What to measure to know the step better", head, rows),) if rows else ()
    left = tuple(f"{parameter(name)}: {why}" for name, why in found.not_varied)
    said = found.to_measure["measurements_say"].removeprefix("assumed: ")
    assumed = Listing("Assumed", (*found.content["assumed"], said))
    lists = (assumed, Listing("Not varied", left)) if left else (assumed,)
    return Section(f"{key}-sensitivity", SENSITIVITY_TITLE, says, (shown,), tables, lists)


def content_hash(table: pd.DataFrame, columns: str) -> str:
    """Return the SHA-256 of a table in fomkit's CSV format."""
    return hashlib.sha256(format_table(table, columns).encode("utf-8")).hexdigest()


def _profiles(estimate: Estimate) -> Table:
    model, machine = estimate.model, estimate.machine
    traced = ", ".join(f"{name} {value}" for name, value in model.traced_with.items()) or "not stated"
    parameters = "unknown" if model.parameters_total is None else f"{model.parameters_total:,}"
    rows = [
        ("model", f"{model.title or model.name}; {parameters} parameters; traced with: {traced}"),
        ("its ops", f"{len(model.ops):,} rows, SHA-256 {content_hash(model.ops, 'OPS')}"),
        ("machine", f"{machine.title}; figures: {machine.party}"),
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


def _machine_facts(machine: Machine) -> Iterator[tuple[str, Fact, str]]:
    device = machine.device
    for peak in device.peaks:
        yield f"peak, {peak.dtype} {peak.engine}", peak.rate, "flop_per_s"
    for name, fact, dimension in (
        ("memory bandwidth", device.byte_per_s, "byte_per_s"), ("memory", device.capacity_byte, "byte"),
        ("host cost of a launch", device.launch_s, "time_s"), ("new pages", device.fresh_byte_per_s, "byte_per_s"),
        ("from the host", device.host_byte_per_s, "byte_per_s"),
        ("host's start of an op", machine.host_op_s, "time_s"),
    ):  # fmt: skip
        if fact is not None:
            yield name, fact, dimension
    for overhead in machine.overheads:
        if overhead.time_s is not None:
            yield f"{overhead.name}, per {overhead.per}", overhead.time_s, "time_s"
        elif overhead.share is not None:
            yield f"{overhead.name}, share per {overhead.per}", overhead.share, "share"


def _format_value(value: float, dimension: str) -> str:
    if dimension == "share":
        return f"{value:.1%}"
    return capacity_text(value) if dimension == "byte" else format_quantity(value, dimension, 3)


def _timings(timings: pd.DataFrame) -> Table:
    columns = ["source_file", "source_sheet", "library", "library_version", "harness"]
    words = timings.reindex(columns=columns).astype("object").fillna("").astype("str")
    counts = words.groupby(columns, sort=False).size()
    head = (Head("file"), Head("sheet"), Head("library"), Head("version"), Head("timed by"), Head("rows", True))
    rows = tuple(
        (*(Cell(str(word) or "not stated") for word in key), number(float(count)))
        for key, count in zip(counts.index.tolist(), counts.tolist(), strict=True)
    )
    return Table("Timings by source and library", head, rows)


def provenance(estimate: Estimate, key: str) -> Section:
    """Make the section about the source of every number of an estimate."""
    machine = estimate.machine
    head = (Head("fact"), Head("value", True), Head("interval", True), Head("basis"), Head("source"))
    rows = []
    for name, fact, dimension in _machine_facts(machine):
        texts = [_format_value(value, dimension) for value in (fact.value, fact.low, fact.high)]
        spread = "none stated" if fact.low == fact.high else f"{texts[1]} to {texts[2]}"
        source = fact.source or "not stated"
        rows.append((Cell(name), Cell(texts[0], fact.value), Cell(spread), Cell(fact.basis), Cell(source)))
    tables = [_profiles(estimate), Table(f"Facts of {machine.name}", head, tuple(rows))]
    if len(machine.timings):
        tables.append(_timings(machine.timings))
    return Section(f"{key}-provenance", "Where the numbers come from", tables=tuple(tables))


MOST = 12
"""Largest number of estimates on one page; more would make it slow to open."""

PRECISION_OF: dict[str, Precision] = {name: name for name in get_args(Precision)}


def options_used(estimate: Estimate) -> Options:
    """Return the options that an estimate was made with, as far as they change its figures."""
    formats = estimate.formats.name
    if formats not in PRECISION_OF and formats not in DEFAULTS:
        raise FomkitError(estimate.model.name, f"is priced in {formats!r}, which no option selects.")
    sizes = {name: size for name, size in estimate.sizes.items() if name != "batch"}
    partial = bool(estimate.coverage[UNPRICED] or estimate.model.unsupported)
    return Options(
        batch=estimate.sizes.get("batch"), interval=estimate.step.level, scope=estimate.scope,
        last_batch="keep" if estimate.run_time.partial_step else "drop", allow_uncovered=partial, sizes=sizes,
        precision=PRECISION_OF.get(formats),
    )  # fmt: skip


def _chapter(
    estimate: Estimate, reference: Estimate | None, key: str, known: Known, nodes: Sequence[int] | None
) -> Chapter:
    rows, names, messages = known
    options, one = options_used(estimate), estimate
    of_job: tuple[Section, ...] = ()
    if estimate.job is not None:
        machine = estimate.machine
        whole = machine.nodes_of(estimate.job.devices) or None
        placed = place_job(estimate.model, machine, Job(whole, estimate.job.layout), options)
        one, of_job = time_microbatch(placed, options), (devices(estimate, placed, key, options),)
    sections = (
        *of_job,
        roofline(one, key),
        composition(one, key),
        all_ops(one, key),
        *(() if of_job else (measured(estimate, key, rows, names, messages),)),
        scaling(estimate, key, options, nodes),
        *(() if of_job else (memory(estimate, key),)),
        sensitivity(estimate, key, options),
        provenance(estimate, key),
        limits(estimate, key),
    )
    content = estimate_content(estimate, reference)
    return Chapter(key, estimate.model.name, estimate.machine.name, claim_of(estimate),
                   tiles_of(estimate, content), evidence_of_time(estimate), sections)  # fmt: skip


Known = tuple[tuple[Measurement, ...], tuple[str, ...], tuple[str, ...]]


def _index(estimates: Sequence[Estimate]) -> Table:
    head = (Head("model on machine"), Head("units a day", True), Head("interval", True), Head("step", True),
            Head("interval", True), Head("waits for"))  # fmt: skip
    rows = tuple(
        (
            Cell(f"{estimate.model.name} on {estimate.machine.name}"),
            Cell("unknown") if estimate.unit_per_day is None else number(estimate.unit_per_day.value),
            Cell(ends(estimate.unit_per_day, None)), Cell(amount(estimate.step), estimate.step.value),
            Cell(ends(estimate.step)), Cell(estimate.step_time.bound),
        )
        for estimate in estimates
    )  # fmt: skip
    levels = " and ".join(dict.fromkeys(level_text(estimate.step.level) for estimate in estimates))
    return Table(f"Estimates of this page, with {levels} intervals", head, rows)


def check_few(count: int) -> None:
    """Raise when there are more estimates than a page holds; called before the work."""
    if count > MOST:
        raise FomkitError(
            "report",
            f"{count} estimates are too many for a page, which holds {MOST}. Name fewer models or machines; "
            "-o study.json or study.csv can hold any number.",
        )


def gather(result: Comparison, *, nodes: Sequence[int] | None = None) -> Book:
    """Gather the report of some estimates, scaled to nodes: by default those that each machine states."""
    from fomkit.output.explained import format_from_measurements

    estimates = (*result.estimates, *result.baseline)
    check_few(len(estimates))
    shipped, files, errors = every_table()
    left_out = tuple(f"a table of measurements was skipped: {error}" for error in errors)
    known = ((*shipped, *result.rows), (*files, *(["yours"] if result.rows else [])), left_out)
    references = {one.model.name: one for one in result.baseline}
    chapters = []
    for place, one in enumerate(estimates):
        reference = references.get(one.model.name) if place < len(result.estimates) else None
        chapters.append(_chapter(one, reference, f"e{place}", known, nodes))
    aside = "" if result.from_measurements is None else format_from_measurements(result.from_measurements)
    names = list(dict.fromkeys(estimate.model.name for estimate in estimates))
    title = f"{chapters[0].claim.of}" if len(chapters) == 1 else f"{', '.join(names)}: estimates"
    made = f"Written by fomkit {__version__} on {datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    notes = tuple(f"Not estimated: {error}" for error in result.failures)
    index = _index(estimates) if len(chapters) > 1 else None
    merits = tuple("; ".join([format_merit(one)[0], *merit_caveats(one)]) for one in merit_blocks(result))
    return Book(title, tuple(chapters), made, index, merits, notes, aside)


def comparison_page(result: Comparison, nodes: Sequence[int] | None = None) -> str:
    """Return the report of some estimates as one HTML page; ``nodes``: see `gather`."""
    check_libraries()
    return render_book(gather(result, nodes=nodes))


@checked
def write_report(
    estimates: Estimate | Sequence[Estimate], path: str | Path, *, nodes: Sequence[int] | None = None
) -> None:
    """Write the report of some estimates as one HTML file that needs no network.

    Parameters
    ----------
    estimates : Estimate or sequence of Estimate
        At most 12; for single figures of one estimate use ``estimate.plot.roofline()`` and the like.
    path : path
        Must end in ``.html``; an existing file is replaced, whole or not at all.
    nodes : sequence of int, optional
        Numbers of nodes to scale to; default: those that the machine's profile states.

    Raises
    ------
    FomkitError
        When the path cannot be written, or a library that pages need is not installed.
    """
    found = (estimates,) if isinstance(estimates, Estimate) else tuple(estimates)
    if not found or not all(isinstance(one, Estimate) for one in found):
        raise FomkitError("write_report", "needs estimates. Give one, or a list, from fomkit.estimate().")
    if Path(path).suffix != ".html":
        raise FomkitError(str(path), "has the wrong ending for a report. Use .html.")
    check_absent([Path(path)], force=True)
    write_whole(Path(path), comparison_page(Comparison(found, (), ()), nodes))

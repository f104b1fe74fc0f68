"""The report of an estimate: all results gathered and written as one HTML file.

This module makes the sections about sensitivity, what to measure next, and provenance; `step` and `words` make the
others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, cast, get_args

from fomkit import __version__
from fomkit.core.errors import FomkitError
from fomkit.core.job import Job, Layout
from fomkit.core.measurement import Measurement
from fomkit.core.units import Precision
from fomkit.files.op_csv import format_table
from fomkit.files.write import check_absent, write_whole
from fomkit.ops.precision import DEFAULTS
from fomkit.output import charts
from fomkit.output.decisions import format_sensitivity, title_line
from fomkit.output.machines import add_facts, add_tables
from fomkit.output.pages import Book, Chapter, Section, check_libraries, render_book
from fomkit.output.screen import PAGE, Page
from fomkit.plan.content import estimate_content
from fomkit.plan.coverage import UNPRICED
from fomkit.plan.estimate import Estimate
from fomkit.plan.job import OF_ONE_RUN, place_job, time_microbatch
from fomkit.plan.options import Options
from fomkit.readers.measurements import every_table
from fomkit.verbs.answer import checked
from fomkit.verbs.compare import Comparison, estimates_content
from fomkit.verbs.machine_view import facts_content, tables_content
from fomkit.verbs.report.step import all_ops, composition, devices, measured, memory, roofline, scaling
from fomkit.verbs.report.words import claim_of, evidence_of_time, figure, limits, parameter, tiles_of
from fomkit.verbs.views import answer_of
from fomkit.whatif.sensitivity import sensitivity as work_out
from fomkit.whatif.subjects import subject_of_model

if TYPE_CHECKING:
    import pandas as pd

    from fomkit.whatif.sensitivity import SensitivityContent

SENSITIVITY_TITLE = "What the result depends on"
FIGURES = {"unit_per_day": "units a day", "sample_per_s": "samples a second", "step_s": "time of a step"}


def _word(name: str, sizes: Collection[str]) -> str:
    return f"size {name}" if name in sizes and name != "batch" else parameter(name)


def sensitivity(estimate: Estimate, key: str, options: Options) -> Section:
    """Make the section about the parameters that change the answer most."""
    job, machine, model = estimate.job, estimate.machine, estimate.model
    whole = None if job is None else machine.nodes_of(job.devices)
    if whole == 0:
        return Section(f"{key}-sensitivity", SENSITIVITY_TITLE, absent="Not computed for a part of a node.")
    if job is not None:
        options = replace(options, scope=None, batch=job.samples)
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
    content = found.content
    worded = {key: [{**one, "parameter": _word(one["parameter"], estimate.sizes)} for one in content[key]]
              for key in ("parameters", "not_varied")}  # fmt: skip
    shown = figure(
        f"{key}-tornado", f"{name.capitalize()} as one parameter changes",
        charts.tornado(effects, middle, "", name), title_line(content),
        ("Bars start at the present result. Blue is the parameter's lower value, orange its higher one.",),
    )  # fmt: skip
    text = format_sensitivity(cast("SensitivityContent", {**content, **worded}), PAGE)
    return Section(f"{key}-sensitivity", SENSITIVITY_TITLE, figures=(shown,), text=text)


def content_hash(table: pd.DataFrame, columns: str) -> str:
    """Return the SHA-256 of a table in fomkit's CSV format."""
    return hashlib.sha256(format_table(table, columns).encode("utf-8")).hexdigest()


def _profile_rows(estimate: Estimate) -> list[tuple[str, str]]:
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
    return rows


def provenance(estimate: Estimate, key: str) -> Section:
    """Make the section about the source of every number of an estimate."""
    machine, page = estimate.machine, Page(PAGE)
    page.line("Profiles; a hash is that of the table's CSV file, unpacked, as sha256sum gives it")
    page.rows(["what", "from"], _profile_rows(estimate))
    page.line(f"Facts of {machine.name}")
    add_facts(page, facts_content(machine), machine.scopes)
    if len(machine.timings):
        add_tables(page, tables_content(machine.timings))
    return Section(f"{key}-provenance", "Where the numbers come from", text=page.text())


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
        *(() if of_job else (memory(estimate, key, options),)),
        sensitivity(estimate, key, options),
        provenance(estimate, key),
        limits(estimate, key),
    )
    content = estimate_content(estimate, reference)
    return Chapter(key, estimate.model.name, estimate.machine.name, claim_of(estimate),
                   tiles_of(estimate, content), evidence_of_time(estimate), sections)  # fmt: skip


Known = tuple[tuple[Measurement, ...], tuple[str, ...], tuple[str, ...]]


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
    names = list(dict.fromkeys(estimate.model.name for estimate in estimates))
    title = f"{chapters[0].claim.of}" if len(chapters) == 1 else f"{', '.join(names)}: estimates"
    made = f"Written by fomkit {__version__} on {datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    alone = len(chapters) == 1 and not result.failures and result.from_measurements is None
    overview = "" if alone else answer_of(result).write(estimates_content(result), PAGE)
    return Book(title, tuple(chapters), made, overview)


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

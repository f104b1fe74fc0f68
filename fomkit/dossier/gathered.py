"""Everything of some estimates as one report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import get_args

from fomkit import __version__
from fomkit.dossier.claim import claim_of, evidence_of_time, tiles_of
from fomkit.dossier.limits import limits
from fomkit.dossier.measured import known_measurements, measured
from fomkit.dossier.memory import memory
from fomkit.dossier.provenance import provenance
from fomkit.dossier.scaling import scaling
from fomkit.dossier.sensitivity import sensitivity
from fomkit.dossier.step import all_ops, composition, roofline
from fomkit.dossier.words import amount, ends, number
from fomkit.dtypes import Precision
from fomkit.errors import FomkitError
from fomkit.measurement import Measurement
from fomkit.precision import DEFAULTS
from fomkit.report.book import Book, Cell, Chapter, Head, Section, Table
from fomkit.rollup import UNPRICED
from fomkit.study.compare import Comparison
from fomkit.study.content import estimate_content
from fomkit.study.estimate import Estimate
from fomkit.study.options import Options

MOST = 12
"""Estimates of one page; more would make it slow to open."""

PRECISION_OF: dict[str, Precision] = {name: name for name in get_args(Precision)}


def _no_watch() -> None:
    """Let nobody watch."""


def options_of(one: Estimate) -> Options:
    """Give the options that an estimate was made with, as far as they change its figures.

    Raises
    ------
    FomkitError
        When its number formats are none that can be asked for.
    """
    formats = one.formats.name
    if formats not in PRECISION_OF and formats not in DEFAULTS:
        raise FomkitError(one.model.name, f"is priced in {formats!r}, which no option asks for.")
    sizes = {name: size for name, size in one.sizes.items() if name != "batch"}
    partial = bool(one.coverage[UNPRICED] or one.model.unsupported)
    return Options(
        batch=one.sizes.get("batch"), interval=one.step.level, scope=one.scope,
        last_batch="keep" if one.run_time.partial_step else "drop", allow_uncovered=partial, sizes=sizes,
        precision=PRECISION_OF.get(formats),
    )  # fmt: skip


def _chapter(
    one: Estimate,
    reference: Estimate | None,
    key: str,
    known: Known,
    nodes: Sequence[int] | None,
) -> Chapter:
    rows, names, said = known
    options = options_of(one)
    sections: tuple[Section, ...] = (
        roofline(one, key),
        composition(one, key),
        all_ops(one, key),
        measured(one, key, rows, names, said),
        scaling(one, key, options, nodes),
        memory(one, key),
        sensitivity(one, key, options),
        provenance(one, key),
        limits(one, key),
    )
    content = estimate_content(one, reference)
    return Chapter(key, one.model.name, one.machine.name, claim_of(one), tiles_of(one, content),
                   evidence_of_time(one), sections)  # fmt: skip


Known = tuple[tuple[Measurement, ...], tuple[str, ...], tuple[str, ...]]


def _index(estimates: Sequence[Estimate]) -> Table:
    head = (Head("model on machine"), Head("units a day", True), Head("interval", True), Head("step", True),
            Head("interval", True), Head("waits for"))  # fmt: skip
    rows = tuple(
        (
            Cell(f"{one.model.name} on {one.machine.name}"),
            Cell("unknown") if one.unit_per_day is None else number(one.unit_per_day.value),
            Cell(ends(one.unit_per_day, None)), Cell(amount(one.step), one.step.value),
            Cell(ends(one.step)), Cell(one.step_time.bound),
        )
        for one in estimates
    )  # fmt: skip
    levels = " and ".join(dict.fromkeys(f"{one.step.level:.0%}" for one in estimates))
    return Table(f"Estimates of this page, with {levels} intervals", head, rows)


def check_few(count: int) -> None:
    """Raise when estimates are more than a page holds; better before the work than after it.

    Raises
    ------
    FomkitError
        With what holds any number.
    """
    if count > MOST:
        raise FomkitError(
            "report",
            f"{count} estimates were asked for, and a page holds {MOST}. Name fewer models or machines; "
            "-o study.json or study.csv hold any number.",
        )


def gather(
    result: Comparison,
    *,
    rows: Sequence[Measurement] = (),
    aside: str = "",
    nodes: Sequence[int] | None = None,
    after_each: Callable[[], None] = _no_watch,
) -> Book:
    """Put everything that is known of some estimates together.

    Parameters
    ----------
    result : Comparison
    rows : sequence of Measurement
        The user's own, beside the tables that can be named.
    aside : str
        What measurements of the baseline tell, as lines in columns.
    nodes : sequence of int, optional
        Numbers of nodes to scale to; default: what the machine's profile names.
    after_each : function, optional
        Called after each estimate, so that somebody can watch.

    Raises
    ------
    FomkitError
        When they are more than a page holds.
    """
    check_few(len(result.estimates) + len(result.baseline))
    shipped, names, said = known_measurements()
    known = ((*shipped, *rows), (*names, *(["yours"] if rows else [])), said)
    references = {one.model.name: one for one in result.baseline}
    chapters = []
    for place, one in enumerate((*result.estimates, *result.baseline)):
        reference = references.get(one.model.name) if place < len(result.estimates) else None
        chapters.append(_chapter(one, reference, f"e{place}", known, nodes))
        after_each()
    return _book(result, tuple(chapters), aside)


def _merits(result: Comparison) -> tuple[str, ...]:
    from fomkit.report.terminal import format_merit, merit_caveats
    from fomkit.study.content import merit_content, worst_basis

    worst = worst_basis([*result.estimates, *result.baseline])
    blocks = [merit_content(merit, worst, *result.caveats(merit.target.machine)) for merit in result.merits]
    return tuple("; ".join([format_merit(one)[0], *merit_caveats(one)]) for one in blocks)


def _book(result: Comparison, chapters: tuple[Chapter, ...], aside: str) -> Book:
    estimates = (*result.estimates, *result.baseline)
    names = list(dict.fromkeys(one.model.name for one in estimates))
    title = f"{chapters[0].claim.of}" if len(chapters) == 1 else f"{', '.join(names)}: estimates"
    made = f"Written by fomkit {__version__} on {datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    notes = tuple(f"Not estimated: {error}" for error in result.failures)
    index = _index(estimates) if len(chapters) > 1 else None
    return Book(title, chapters, made, index, _merits(result), notes, aside)

"""Projected against measured: what somebody measured of this model, beside what fomkit says of the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fomkit.compare import Cell as Measured
from fomkit.compare import Judged, judge, make_cells
from fomkit.dossier.drawing import figure
from fomkit.dossier.words import number
from fomkit.errors import FomkitError
from fomkit.hardware import Machine
from fomkit.measurement import Measurement
from fomkit.measurements import read_measurements
from fomkit.profiles import load_machine
from fomkit.profiles.locate import locate, profile_names
from fomkit.report import plots
from fomkit.report.book import Cell, Head, Section, Table
from fomkit.spans import Span
from fomkit.study.estimate import Estimate
from fomkit.study.options import Options

TITLE = "Projected against measured"
_QUANTITIES = {
    "step_s": "step",
    "epoch_s": "epoch",
    "run_s": "run",
    "latency_s": "latency",
    "sample_per_s": "rate",
}
_CLAIMS = {
    "absolute": "its time", "ratio": "only its ratio to another machine",
    "start-up bound": "neither: fixed costs beside the device", "host bound": "neither: it waits for the host",
    "unexplained": "neither, and nothing here says why",
}  # fmt: skip


def known_measurements() -> tuple[tuple[Measurement, ...], tuple[str, ...], tuple[str, ...]]:
    """Read every table of measurements that can be named.

    Returns
    -------
    rows : tuple of Measurement
    names : tuple of str
        Tables that were read.
    said : tuple of str
        Why a table was not.
    """
    rows, names, said = list[Measurement](), list[str](), list[str]()
    for name in profile_names("measurements"):
        try:
            rows += read_measurements(locate(name, "measurements"))
            names.append(name)
        except FomkitError as error:
            said.append(f"a table of measurements was left out: {error}")
    return tuple(rows), tuple(names), tuple(said)


def _cells(one: Estimate, rows: Sequence[Measurement]) -> tuple[Judged, ...]:
    """Project and judge each measured figure of the model, those of this machine first."""

    def machine_of(name: str) -> Machine:
        return one.machine if name == one.machine.name else load_machine(name)

    ordered = sorted(rows, key=lambda row: row.machine != one.machine.name)
    options = Options(interval=one.step.level)
    return judge(make_cells(ordered, options, lambda _name: one.model, machine_of), None)


def _name(cell: Measured, here: str) -> str:
    batch = "" if cell.batch is None else f", batch {cell.batch}"
    return f"{cell.machine}{' (this page)' if cell.machine == here else ''}, {_QUANTITIES[cell.quantity]}{batch}"


def _drawn(judged: Sequence[Judged], here: str) -> Any:
    import pandas as pd

    rows = []
    for one in judged:
        cell = one.cell
        if cell.projected is None or cell.quantity == "sample_per_s":
            continue
        for what, span in (("projected", cell.projected), ("measured", cell.measured)):
            rows.append({"name": _name(cell, here), "what": what, "time_s": span.value, "low_s": span.low,
                         "high_s": span.high, "said": _CLAIMS.get(one.claim or "", one.cause)})  # fmt: skip
    return pd.DataFrame(rows)


def _text(span: Span | None, quantity: str) -> Cell:
    if span is None:
        return Cell("unknown")
    dimension = None if quantity == "sample_per_s" else "time_s"
    value = number(span.value, dimension)
    if span.low == span.high:
        return value
    ends = [number(end, dimension).text for end in (span.low, span.high)]
    return value._replace(text=f"{value.text} ({ends[0]} to {ends[1]})")


def _table(judged: Sequence[Judged], here: str, level: float) -> Table:
    head = (Head("measured where, what"), Head("projected", True), Head("measured", True),
            Head("projected / measured", True), Head("inside the interval"), Head("what may be claimed"),
            Head("why"), Head("source"))  # fmt: skip
    rows = []
    for one in judged:
        cell = one.cell
        ratio = None if cell.projected is None else cell.projected.value / cell.measured.value
        inside = {None: "", True: "yes", False: "no"}[cell.inside]
        sources = "; ".join(dict.fromkeys(row.source for row in cell.rows if row.source))
        rows.append((
            Cell(_name(cell, here)), _text(cell.projected, cell.quantity), _text(cell.measured, cell.quantity),
            number(ratio), Cell(inside), Cell(_CLAIMS.get(one.claim or "", "nothing")), Cell(one.cause),
            Cell(sources),
        ))  # fmt: skip
    return Table(f"Projected and measured, with {level:.0%} intervals where one is stated", head, tuple(rows))


def measured(
    one: Estimate, key: str, rows: Sequence[Measurement], names: Sequence[str], more: Sequence[str] = ()
) -> Section:
    """Put what was measured of the model beside what is projected, on this machine and on others.

    Parameters
    ----------
    one : Estimate
    key : str
    rows : sequence of Measurement
        Of any model.
    names : sequence of str
        Tables that they are from.
    more : sequence of str
        Sentences to add.
    """
    ours = [row for row in rows if row.model == one.model.name and row.quantity != "energy_j"]
    here = [row for row in ours if row.machine == one.machine.name]
    tables = ", ".join(names) or "none"
    absent = "" if here else (
        f"Nobody's measurement of {one.model.name} on {one.machine.name} is in the tables known here ({tables}). "
        "Add your own with 'fomkit import' into the folder measurements/."
    )  # fmt: skip
    if not ours:
        return Section(f"{key}-measured", TITLE, tuple(more), absent=absent)
    judged = _cells(one, ours)
    drawn = _drawn(judged, one.machine.name)
    inside = [each.cell.inside for each in judged if each.cell.inside is not None]
    says = (
        f"{len(here)} measured figure{'s' * (len(here) != 1)} of {one.model.name} on {one.machine.name}, "
        f"{len(ours) - len(here)} on other machines; each is projected at its own batch. "
        f"{sum(inside)} of {len(inside)} lie inside the projected interval.",
        "A device model tells what the device takes. Where a framework's fixed costs or the host decide, it must "
        "not claim the time; the table says which.",
        *more,
    )
    if drawn.empty:
        return Section(f"{key}-measured", TITLE, says, tables=(_table(judged, one.machine.name, one.step.level),),
                       absent=absent)  # fmt: skip
    caption = ("Circles are projected, diamonds measured; lines are the intervals, where one is stated.",)
    shown = figure(f"{key}-compared", "Projected and measured times", plots.compared(drawn), says[0], caption)
    return Section(f"{key}-measured", TITLE, says, (shown,), (_table(judged, one.machine.name, one.step.level),),
                   absent=absent)  # fmt: skip

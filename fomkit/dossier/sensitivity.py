"""What the answer hangs on, and what to measure to know it better."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from fomkit.dossier.drawing import figure
from fomkit.dossier.words import number, parameter, share
from fomkit.errors import FomkitError
from fomkit.report import plots
from fomkit.report.book import Cell, Head, Listing, Section, Table
from fomkit.report.sensitivity import format_setting
from fomkit.study.estimate import Estimate
from fomkit.study.options import Options
from fomkit.whatif.one_model import OneModel
from fomkit.whatif.sensitivity import Sensitivity
from fomkit.whatif.sensitivity import sensitivity as work_out

if TYPE_CHECKING:
    import pandas as pd

TITLE = "What the answer hangs on"
FIGURES = {"unit_per_day": "units a day", "sample_per_s": "samples a second", "step_s": "time of a step"}
MEASURED = 6
"""Measurements that are listed."""


def _named(found: Sensitivity, sizes: Collection[str]) -> pd.DataFrame:
    """Give the effects, with the names of parameters in words."""
    table = found.table()
    return table.assign(parameter=[_word(name, sizes) for name in table["parameter"]])


def _word(name: str, sizes: Collection[str]) -> str:
    return f"size {name}" if name in sizes and name != "batch" else parameter(name)


def _effects(effects: pd.DataFrame) -> Table:
    head = (Head("parameter"), Head("is", True), Head("varied from", True), Head("to", True),
            Head("elasticity", True, "by how many percent the answer changes for one percent of the parameter"),
            Head("swing", True, "between these ends, as a share of the answer"))  # fmt: skip
    rows = tuple(
        (
            Cell(row["parameter"]), *(Cell(format_setting(row[name], row["unit"]), row[name])
                                           for name in ("value", "low", "high")),
            Cell("kink") if row["kink"] else number(row["elasticity"]), share(row["swing"]),
        )
        for row in effects.to_dict("records")
    )  # fmt: skip
    return Table("Parameters of the machine, then of the work, each the largest swing first", head, rows)


def _to_measure(entries: list[dict[str, Any]]) -> Table:
    head = (Head("measure"), Head("which is"), Head("the interval would be narrower by", True), Head("with"))
    rows = tuple(
        (Cell(str(one["what"])), Cell(str(one["kind"])), share(one["shrinks"]), Cell(str(one["command"])))
        for one in entries[:MEASURED]
    )
    return Table("What to measure to know the step better", head, rows)


def _most(found: Sensitivity, sizes: Collection[str], name: str) -> str:
    """Name the parameter of the machine that moves the answer most, and that of the work."""
    groups = {"Of the machine": "machine", "Of the work": "model"}
    told = []
    for title, of in groups.items():
        first = next((effect for effect in found.effects if effect.parameter.of == of), None)
        if first is not None:
            word = _word(first.parameter.name, sizes)
            told.append(f"{title}, most on {word}: a swing of {first.swing:.0%} of the {name}.")
    return " ".join(told)


def sensitivity(one: Estimate, key: str, options: Options) -> Section:
    """Tell which parameter moves the answer most."""
    subject = OneModel(one.model, one.machine, options)
    try:
        found = work_out(subject)
    except FomkitError as error:
        return Section(f"{key}-sensitivity", TITLE, absent=f"Not worked out: {error}")
    middle, name = found.figures[found.figure].value, FIGURES.get(found.figure, found.figure)
    says = (
        f"{_most(found, one.sizes, name)} Each parameter is changed alone, between the ends of its own interval "
        "where one is stated, else by 10 % either way.",
    )
    shown = figure(
        f"{key}-tornado", f"{name.capitalize()} as one parameter changes",
        plots.tornado(_named(found, one.sizes), middle, "", name), says[0],
        ("Bars start at the answer as it is. Blue is the parameter's lower value, orange its higher one.",),
        _effects(_named(found, one.sizes)),
    )  # fmt: skip
    table = _to_measure(list(found.to_measure["measurements"]))
    left = tuple(f"{parameter(name)}: {why}" for name, why in found.left_out)
    lists = (
        Listing(
            "Assumed", (*found.content["assumed"], f"of measurements: {found.to_measure['measurements_say']}")
        ),
        *((Listing("Not varied", left),) if left else ()),
    )
    return Section(f"{key}-sensitivity", TITLE, says, (shown,), (table,), lists)

"""A yellow cell changes a headline; an input cell that changes none is grey and has the reason."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import openpyxl
import pytest
from libreoffice import all_resaved, without_values
from made_ledgers import machine, sheet_model
from openpyxl.cell.cell import Cell
from sheets import find
from typer.testing import CliRunner

from fomkit.cli.main import app
from fomkit.core.errors import FomkitError
from fomkit.workbook.layout import FACTS, GIVEN, OPS, SHEETS, Table
from fomkit.workbook.read import Book, read_book
from fomkit.workbook.read_sheet_model import sheet_model_from
from fomkit.workbook.records import SheetModel, Values, evaluate
from fomkit.workbook.write import write_workbook

pytestmark = pytest.mark.slow

ROLES = ("input", "idle")
STATES = ("as issued", "changed", "error", "unknown")
TABLES = (FACTS, GIVEN, OPS)


@pytest.fixture(scope="module")
def lecture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lecture") / "vendor.xlsx"
    assert CliRunner().invoke(app, ["fom", "lecture", "--for", "a", "-o", str(path)]).exit_code == 0
    return path


def role(cell: Cell) -> str:
    return str(cell.style).partition(" ")[0]


def figures(path: Path) -> dict[tuple[str, str], str]:
    """Return the role of every cell for a figure, by sheet and place."""
    found = {}
    for sheet in openpyxl.load_workbook(path):
        for row in sheet.iter_rows():
            for cell in row:
                if role(cell) in ROLES and cell.number_format != "General":
                    found[sheet.title, cell.coordinate] = role(cell)
    return found


def headlines(path: Path) -> list[object]:
    cells = (cell.value for row in openpyxl.load_workbook(path, data_only=True)["Summary"] for cell in row)
    return [round(one, 12) if isinstance(one, float) else one for one in cells if one not in STATES]


def edited(path: Path, folder: Path, edits: list[list[tuple[str, str]]]) -> list[Path]:
    """Write a copy of a workbook for each list of cells, in which those have other values."""
    book, values = openpyxl.load_workbook(path), openpyxl.load_workbook(path, data_only=True)
    found = []
    for number, places in enumerate(edits):
        before = [book[sheet][place].value for sheet, place in places]
        for sheet, place in places:
            now: Any = values[sheet][place].value
            book[sheet][place].value = now * 2 if isinstance(now, int | float) else 3.0
        there = folder / f"edit-{number}.xlsx"
        book.save(there)
        for (sheet, place), value in zip(places, before, strict=True):
            book[sheet][place].value = value
        found.append(without_values(there, folder / f"bare-{number}.xlsx"))
    return found


def computed(paths: list[Path], folder: Path) -> list[list[object]]:
    """Let LibreOffice compute several workbooks in one go."""
    return [headlines(path) for path in all_resaved(paths, folder)]


def test_in_the_lectures_workbook_each_yellow_cell_moves_a_headline_and_no_grey_one(
    lecture: Path, tmp_path: Path
) -> None:
    roles = figures(lecture)
    assert set(roles.values()) == set(ROLES)
    yellow, grey = ([place for place, one in roles.items() if one == role] for role in ROLES)
    # The grey ones are changed together: where all of them move nothing, none does.
    edits = edited(lecture, tmp_path, [[], grey, *([place] for place in yellow)])
    before, of_grey, *after = computed(edits, tmp_path)
    assert of_grey == before
    assert [place for place, found in zip(yellow, after, strict=True) if found == before] == []


def test_doubling_the_lectures_peak_moves_nothing_and_the_cell_says_so(lecture: Path) -> None:
    book = openpyxl.load_workbook(lecture)
    peak = find(book, FACTS, "value", machine="a", fact="peak")
    assert role(peak) == "idle"
    assert peak.comment is not None
    said = "No effect here: the times of all lines are given (sheet Workloads) and do not depend on it."
    assert peak.comment.text == said
    assert role(find(book, FACTS, "source", machine="a", fact="peak")) == "idle"
    nodes = find(book, FACTS, "value", machine="a", fact="nodes")
    assert (role(nodes), nodes.comment) == ("input", None)
    assert role(find(book, FACTS, "basis", machine="a", fact="nodes")) == "input"
    assert role(find(book, GIVEN, "hours", machine="a")) == "input"


def cells(book: Book, table: Table) -> Iterator[tuple[int, str]]:
    for index, row in enumerate(book.rows(table)):
        if row["machine"] != "acme-1" or (table is OPS and row["workload"] != "net-a"):
            continue
        for column in table.columns:
            if column.role == "input" and column.form != "General" and column.key in row:
                yield index, column.key


def said(values: Values) -> list[float]:
    spans = [merit.value for merit in values.merits.values()]
    spans += [*values.unit_per_day.values(), *(one.step.wall_s for one in values.cases.values())]
    return [end for span in spans for end in span.ends]


def moved(book: Book, table: Table, index: int, key: str, before: list[float]) -> bool:
    now = book.rows(table)[index].get(key)
    if now is None and table is FACTS:  # a fact that nobody stated: it is stated whole, then changed
        for other in ("value", "low", "high"):
            book = book.with_entry(table.title, index, other, 3e3)
        now, before = 3e3, said(evaluate(sheet_model_from(book)))
    for value in [now * factor for factor in (1.01, 2.0, 1e-3, 1e3)] if isinstance(now, float) else [3.0]:
        try:
            after = said(evaluate(sheet_model_from(book.with_entry(table.title, index, key, value))))
        except FomkitError:  # fewer devices than a run needs
            return True
        if after != before:
            return True
    return False


def on_one_device(made: SheetModel) -> SheetModel:
    """Return a ledger whose runs need one device each."""
    return replace(
        made, workloads=tuple(replace(one, run=replace(one.run, devices_per_run=1)) for one in made.workloads)
    )


@pytest.mark.parametrize("scope", ["device", "system"])
def test_the_evaluator_says_the_same_of_every_cell(tmp_path: Path, scope: str) -> None:
    path = tmp_path / "sent.xlsx"
    made = on_one_device(sheet_model(scope))
    write_workbook(made, path)
    roles, book = figures(path), read_book(path)
    before = said(evaluate(sheet_model_from(book)))
    compared = 0
    for table in TABLES:
        for index, key in cells(book, table):
            place = (table.sheet, book.tables[table.title].cell(index, key))
            if place in roles:
                assert moved(book, table, index, key, before) is (roles[place] == "input"), place
                compared += 1
    assert compared > 40
    assert [place for place, one in roles.items() if one == "idle" and place[0] != FACTS.sheet] == []


@pytest.fixture(scope="module")
def changed_anew(issued: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[list[object]]]:
    """Compute in one go: the issued workbook, with all idle cells changed, and with a time for an op without."""
    folder, found = tmp_path_factory.mktemp("anew"), figures(issued)
    time = find(openpyxl.load_workbook(issued), OPS, "time", machine="acme-1", workload="net-a", kind="embedding")
    assert (time.value, role(time)) == ("unknown", "input")
    idle = [place for place, one in found.items() if one == "idle"]
    assert len(idle) > 20
    return folder, computed(edited(issued, folder, [[], idle, [("Ops", time.coordinate)]]), folder)


def test_all_idle_cells_together_move_nothing_in_a_spreadsheet_program(
    changed_anew: tuple[Path, list[list[object]]],
) -> None:
    before, of_idle, _ = changed_anew[1]
    assert of_idle == before


def test_a_time_written_for_an_op_that_had_none_counts(
    changed_anew: tuple[Path, list[list[object]]],
) -> None:
    """This holds in the workbook as in Python; before, it changed the op's own row only."""
    folder, (before, _, after) = changed_anew
    assert after != before
    changed = read_book(folder / "edit-2.xlsx")
    rate = evaluate(sheet_model_from(changed)).unit_per_day["net-a", "acme-1"].value
    assert any(isinstance(one, float) and one == pytest.approx(rate, rel=1e-9) for one in after)
    checks = openpyxl.load_workbook(folder / "resaved" / "bare-2.xlsx", data_only=True)["Checks"]
    assert "error" not in {cell.value for row in checks for cell in row}


REASONS = {
    "memory capacity": "no time depends on the size of the memory.",
    "nodes": "rates are for one device.",
    "availability": "rates are for one device.",
}


def test_reasons(tmp_path: Path) -> None:
    path = tmp_path / "sent.xlsx"
    write_workbook(on_one_device(sheet_model("device")), path)
    book = openpyxl.load_workbook(path)
    for fact, why in REASONS.items():
        cell = find(book, FACTS, "value", machine="acme-1", fact=fact)
        assert cell.comment is not None
        assert cell.comment.text == f"No effect here: {why}"
    low = find(book, FACTS, "low", machine="acme-1", fact="memory bandwidth")
    assert low.comment is not None
    assert low.comment.text.endswith(
        "each op has its own bounds (sheet Ops); these keep their ratio to the value."
    )
    assert find(book, FACTS, "low", machine="acme-1", fact="launch cost").comment is None


def unused(made: SheetModel) -> SheetModel:
    fast = machine("acme-1", 2.0)
    more = replace(fast.device.peaks[0], dtype="fp64")
    device = replace(fast.device, peaks=(*fast.device.peaks, more))
    return replace(made, machines=(replace(fast, device=device), *made.machines[1:]))


def test_a_peak_that_no_op_uses(tmp_path: Path) -> None:
    path = tmp_path / "sent.xlsx"
    write_workbook(unused(sheet_model()), path)
    book = openpyxl.load_workbook(path)
    cell = find(book, FACTS, "value", machine="acme-1", fact="peak", what="fp64")
    assert cell.comment is not None
    assert cell.comment.text == "No effect here: no op's time depends on fp64 on the vector engine."
    assert role(find(book, FACTS, "value", machine="acme-1", fact="peak", what="fp32")) == "input"


def test_read_me_is_the_first_sheet_and_the_one_that_opens(lecture: Path) -> None:
    book = openpyxl.load_workbook(lecture)
    assert book.sheetnames[0] == SHEETS[0] == "Read me"
    assert book.active is not None
    assert book.active.title == "Read me"
    texts = [str(cell.value) for row in book["Read me"] for cell in row]
    assert any(text.startswith("idle: grey on white: no effect in this workbook") for text in texts)

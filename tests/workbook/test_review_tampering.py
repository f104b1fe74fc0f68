"""Changes that a review must report: cells not meant for input, and changes that hide or alter figures."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import openpyxl
import pytest
from made_ledgers import sheet_model
from openpyxl import Workbook
from openpyxl.comments import Comment
from openpyxl.workbook.defined_name import DefinedName
from returns import ACME, Edit, content, returned
from sheets import find

from fomkit.workbook.layout import CHECKS, FACTS, MERITS, OPS, TERMS
from fomkit.workbook.read import same_formula
from fomkit.workbook.write import write_workbook


def put(sheet: str, place: str, value: object) -> Edit:
    return lambda book: setattr(book[sheet][place], "value", value)


def worded(sheet: str, text: str, value: str) -> Edit:
    """Change the first cell of a sheet that begins with a text."""

    def edit(book: Workbook) -> None:
        cells = (cell for row in book[sheet].iter_rows() for cell in row)
        next(cell for cell in cells if str(cell.value).startswith(text)).value = value

    return edit


def form(place: str, said: str) -> Edit:
    return lambda book: setattr(book["Machines"][place], "number_format", said)


def name(said: str, cell: str) -> Edit:
    return lambda book: book.defined_names.__setitem__(said, DefinedName(said, attr_text=cell))


def extra(state: str) -> Edit:
    def edit(book: Workbook) -> None:
        book.create_sheet(f"Terms, {state}")["A1"] = "binding"
        book[f"Terms, {state}"].sheet_state = state

    return edit


def manual(book: Workbook) -> None:
    book.calculation.calcMode = "manual"


def hide(book: Workbook) -> None:
    book["Ops"].sheet_state = "hidden"
    book["Ops"].row_dimensions[6].hidden = True
    book["Machines"].column_dimensions["I"].hidden = True


def strict(book: Workbook) -> None:
    cell = find(book, MERITS, "state", machine="acme-1")
    assert "<=" in str(cell.value)
    cell.value = str(cell.value).replace("<=", "<", 1)


def word(book: Workbook) -> None:
    cell = find(book, MERITS, "value", machine="acme-1", what="verdict on the threshold")
    cell.value = str(cell.value).replace('"missed"', '"MISSED"')


SILENT: dict[str, tuple[Edit, str, str]] = {
    "as issued": (
        lambda book: setattr(find(book, FACTS, "was", **ACME, fact="memory bandwidth"), "value", 900),
        "label",
        "Machines!O7: was 1600.0, is 900.0",
    ),
    "as issued, summary": (
        lambda book: setattr(find(book, MERITS, "was", machine="acme-1"), "value", 99),
        "label",
        "Summary!G7: was",
    ),
    "number format": (form("E7", '0.0"e3"'), "format", "Machines!E7: the number format [=0]0;[<0.1]0.000E+00"),
    "defined name": (name("fom", "Summary!$D$8"), "label", "pointed to Summary!$D$7, and points to Summary!$D$8"),
    "new name": (name("price", "Summary!$D$8"), "label", "price: the defined name was not issued"),
    "summary": (
        put("Summary", "A2", "Machines to rate: others"),
        "label",
        "Summary!A2: was 'Machines to",
    ),
    "label of a merit": (
        put("Summary", "A7", "figure of merit (arithmetic)"),
        "label",
        "Summary!A7: was 'fig",
    ),
    "heading": (put("Timings", "A1", "Agreed by all"), "label", "Timings!A1: was 'Everything here"),
    "read me": (worded("Read me", "Figures are", "A binding offer"), "label", "is 'A binding offer'"),
    "provenance": (worded("Provenance", "made by", "agreed by"), "label", "was 'made by', is 'agreed by'"),
    "history": (worded("History", "written by fomkit", "agreed by all"), "label", "is 'agreed by all'"),
    "very hidden sheet": (extra("veryHidden"), "label", "Terms, veryHidden: this sheet was not issued"),
    "extra sheet": (extra("visible"), "label", "Terms, visible: this sheet was not issued"),
    "hidden sheet": (
        lambda book: setattr(book["Ops"], "sheet_state", "hidden"),
        "hidden",
        "Ops: the sheet is hidden",
    ),
    "beside the tables": (put("Machines", "Z5", "17 TFLOP/s"), "label", "Machines!Z5: nothing was issued here"),
    "formula beside": (put("Machines", "Z6", "=1+1"), "formula", "Machines!Z6: a formula, =1+1, is in"),
    "below the tables": (put("Machines", "A60", "Note: 20"), "label", "Machines!A60: nothing was issued here"),
    "hidden row": (hide, "hidden", "Ops: 6: the row is hidden"),
    "hidden column": (hide, "hidden", "Machines: I: the column is hidden"),
    "comment": (
        lambda book: setattr(book["Machines"]["E5"], "comment", Comment("we mean 20", "v")),
        "label",
        "we mean 20",
    ),
    "manual": (manual, "calculation", "calculation is set to manual"),
    "comparison": (strict, "formula", "was issued"),
    "text in a formula": (word, "formula", "MISSED"),
    "check": (lambda book: setattr(find(book, CHECKS, "state"), "value", "ok"), "formula", "'ok' is found"),
    "formula for words": (
        lambda book: setattr(find(book, FACTS, "source", **ACME, fact="peak"), "value", '="annex"&2'),
        "formula",
        "is in a cell for text",
    ),
}


def told(found: dict[str, Any]) -> list[tuple[str, str]]:
    return [(one["kind"], f"{one['where']}: {one['said']}") for one in found["findings"]]


@pytest.fixture(scope="module")
def every_edit(issued: Path, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str]]:
    """Return the review of one workbook with all edits; no edit may hide another."""
    edits = (edit for edit, _, _ in SILENT.values())
    return told(content(issued, returned(issued, tmp_path_factory.mktemp("edited"), *edits)))


@pytest.mark.parametrize("case", SILENT)
def test_nothing_passes_in_silence(every_edit: list[tuple[str, str]], case: str) -> None:
    _, kind, said = SILENT[case]
    assert any(one == kind and said in text for one, text in every_edit), every_edit


def test_a_note_on_the_first_page(tmp_path: Path) -> None:
    from dataclasses import replace

    path = tmp_path / "sent.xlsx"
    write_workbook(replace(sheet_model(), deviations=(("acme-1", "net-a: batch 64, not 32"),)), path)
    found = told(content(path, returned(path, tmp_path, worded("Summary", "deviation on", "no deviations"))))
    assert any(kind == "label" and "is 'no deviations'" in text for kind, text in found), found


def test_values_that_no_input_makes_so(issued: Path, tmp_path: Path) -> None:
    """Previews show the value that is stored with an unchanged formula."""
    place = find(openpyxl.load_workbook(issued), TERMS, "value", **ACME, workload="net-a", term="step").coordinate
    path = tmp_path / "dressed.xlsx"
    with zipfile.ZipFile(issued) as archive, zipfile.ZipFile(path, "w") as copy:
        for part in archive.namelist():
            data = archive.read(part).decode()
            if part == "xl/worksheets/sheet6.xml":
                head, mark, rest = data.partition(f'<c r="{place}"')
                cell, end, tail = rest.partition("</c>")
                data = head + mark + cell[: cell.index("<v>")] + "<v>0.001</v>" + end + tail
            copy.writestr(part, data)
    found = told(content(issued, path))
    assert len(found) == 1
    assert found[0][0] == "calculation"
    assert f"Timings!{place}: shows 0.001" in found[0][1]


def test_a_column_formatted_anew_is_one_finding(issued: Path, tmp_path: Path) -> None:
    def edit(book: Workbook) -> None:
        for row in range(5, 20):
            book["Ops"].cell(row, OPS.position("time")).number_format = "0.0"

    found = told(content(issued, returned(issued, tmp_path, edit)))
    assert len(found) == 1
    assert "(and 12 more cells)" in found[0][1]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("=Machines!$E$5*2", "=$'Machines'.e5 * 2", True),
        ("=IF(A1<=B1,1,0)", "=IF(A1<B1,1,0)", False),
        ('=IF(A1="ok",1,0)', '=IF(A1="OK",1,0)', False),
        ('=IF(A1="not met",1,0)', '=IF(A1="notmet",1,0)', False),
        ("=A1=B1", "=A1B1", False),
    ],
)
def test_formulas_that_mean_the_same(one: str, other: str, same: bool) -> None:
    assert same_formula(one, other) is same

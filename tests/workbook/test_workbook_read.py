"""A returned workbook is a foreign file: each error is one message with sheet and cell."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable
from pathlib import Path

import openpyxl
import pytest
from libreoffice import resaved
from made_ledgers import sheet_model
from openpyxl import Workbook
from sheets import find

from fomkit.core.errors import FomkitError
from fomkit.workbook.layout import FACTS, OPS
from fomkit.workbook.read import read_book
from fomkit.workbook.read_sheet_model import sheet_model_from
from fomkit.workbook.records import SheetModel, evaluate

Edit = Callable[[Workbook], None]


def edited(issued: Path, folder: Path, edit: Edit) -> Path:
    book = openpyxl.load_workbook(issued)
    edit(book)
    path = folder / "edited.xlsx"
    book.save(path)
    return path


def put(key: str, value: object) -> Edit:
    def edit(book: Workbook) -> None:
        find(book, FACTS, key, machine="acme-1", fact="memory bandwidth").value = value  # type: ignore[assignment]

    return edit


def assert_equal(found: SheetModel, made: SheetModel) -> None:
    ours, theirs = evaluate(found), evaluate(made)
    for key, one in theirs.cases.items():
        assert ours.cases[key].step.wall_s.value == pytest.approx(one.step.wall_s.value, rel=1e-12)
        assert ours.cases[key].step.wall_s.high == pytest.approx(one.step.wall_s.high, rel=1e-12)
    for key, span in theirs.unit_per_day.items():
        assert ours.unit_per_day[key].low == pytest.approx(span.low, rel=1e-12)
    for target, merit in theirs.merits.items():
        assert ours.merits[target].value.low == pytest.approx(merit.value.low, rel=1e-12)
    first, again = made.cases[0].ops, found.cases[0].ops
    assert [line.dimensions for line in again] == [line.dimensions for line in first]
    assert [line.time_source for line in again] == [line.time_source for line in first]
    assert math.isnan(again[-1].flop)
    assert found.machine("rival-9").device.launch_s is None
    assert (found.threshold, found.targets, found.baseline) == (made.threshold, made.targets, made.baseline)


def test_the_ledger_comes_back(issued: Path) -> None:
    assert_equal(sheet_model_from(read_book(issued)), sheet_model())


def test_the_ledger_comes_back_after_libreoffice_saved_it(issued: Path, tmp_path: Path) -> None:
    assert_equal(sheet_model_from(read_book(resaved(issued, tmp_path))), sheet_model())


BROKEN: dict[str, tuple[Edit, str]] = {
    "missing sheet": (lambda book: book.remove(book["Ops"]), r"the sheet 'Ops' is missing"),
    "shifted column": (
        lambda book: book["Machines"].insert_cols(3),
        r"sheet Machines, cell C4: the header 'number format or name' was expected, None is found",
    ),
    "missing table": (
        lambda book: book["Machines"].delete_rows(3),
        r"sheet Machines: the table 'Facts' is missing",
    ),
    "text": (put("value", "fast"), r"sheet Machines, cell E7: 'fast' is no number"),
    "decimal comma": (put("value", "1600,5"), r"cell E7: '1600,5' has a decimal comma and is text"),
    "unit": (put("value", "1.6 TB/s"), r"cell E7: '1.6 TB/s' has the unit 'TB/s'"),
    "truth": (put("value", True), r"cell E7: True is no number"),
    "error": (put("value", "#DIV/0!"), r"cell E7: '#DIV/0!' is no number"),
    "far cell": (
        lambda book: book["Machines"].__setitem__("XFD1048576", 1),
        r"sheet 'Machines' has cells beyond row 20,000 or column 256",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_workbooks(issued: Path, tmp_path: Path, case: str) -> None:
    edit, said = BROKEN[case]
    path = edited(issued, tmp_path, edit)
    with pytest.raises(FomkitError, match=said):
        sheet_model_from(read_book(path))


def test_all_texts_in_number_cells_are_told_together(issued: Path, tmp_path: Path) -> None:
    def edit(book: Workbook) -> None:
        put("value", "a")(book)
        find(book, OPS, "utilisation", kind="conv").value = "b"

    with pytest.raises(FomkitError) as caught:
        read_book(edited(issued, tmp_path, edit)).check()
    assert len(str(caught.value).splitlines()) == 2
    assert "sheet Ops, cell" in str(caught.value)


@pytest.mark.parametrize("part", ["xl/vbaProject.bin", "xl/externalLinks/externalLink1.xml", "xl/connections.xml"])
def test_macros_and_links_are_refused(issued: Path, tmp_path: Path, part: str) -> None:
    path = tmp_path / "live.xlsx"
    with zipfile.ZipFile(issued) as archive, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as copy:
        for name in archive.namelist():
            copy.writestr(name, archive.read(name))
        copy.writestr(part, b"<x/>")
    with pytest.raises(FomkitError, match="contains macros, links or external data"):
        read_book(path)


def test_a_zip_bomb_is_refused(issued: Path, tmp_path: Path) -> None:
    path = tmp_path / "bomb.xlsx"
    with zipfile.ZipFile(issued) as archive, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as copy:
        for name in archive.namelist():
            copy.writestr(name, archive.read(name))
        copy.writestr("xl/media/image.xml", b" " * 60_000_000)
    with pytest.raises(FomkitError, match="unpacks to"):
        read_book(path)


def test_another_workbook_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.xlsx"
    Workbook().save(path)
    with pytest.raises(FomkitError, match="the sheet 'Read me' is missing"):
        read_book(path)

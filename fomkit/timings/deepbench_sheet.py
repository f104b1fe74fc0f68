"""The form of a DeepBench sheet: a stack of sections keyed in column A, each with a header found by its words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fomkit.errors import FomkitError, nearest_names
from fomkit.tables.xlsx import Sheet, cell_name
from fomkit.timings.deepbench_sections import SECTIONS
from fomkit.timings.deepbench_words import near, plain, words

PREAMBLE = "precision"
_HEADER_WORDS = 3
"""Texts in a row from which it is taken for a header."""


@dataclass(frozen=True)
class Block:
    """One section of a sheet: its title as printed, and its rows from the title on (1-based, last excluded)."""

    title: str
    start: int
    stop: int

    @property
    def key(self) -> str:
        """The title as the tables spell it."""
        return words(self.title)


def has_sections(sheet: Sheet) -> bool:
    """Tell whether a sheet has a DeepBench section, by column A."""
    return any(words(row[0]) in SECTIONS for row in sheet.rows if row)


def _is_header(sheet: Sheet, number: int) -> bool:
    return sum(bool(plain(value)) for value in sheet.rows[number - 1][1:]) >= _HEADER_WORDS


def _titles(sheet: Sheet, where: str) -> Iterator[tuple[int, str]]:
    """Find the rows that begin a section, known or not; other text in column A, as a footnote, begins none."""
    for number, row in enumerate(sheet.rows, start=1):
        key = words(row[0]) if row else ""
        if key in SECTIONS or key == PREAMBLE:
            yield number, str(row[0])
        elif key and near(key, SECTIONS):
            raise FomkitError(
                where, f"cell A{number} is {row[0]!r}, which is no known section. {nearest_names(key, SECTIONS)}"
            )
        elif key and any(_is_header(sheet, at) for at in (number, number + 1) if at <= len(sheet.rows)):
            yield number, str(row[0])


def split_blocks(sheet: Sheet, where: str) -> tuple[Block, ...]:
    """Cut a sheet into its sections; blank rows and numbers in column A do not end one.

    A sheet without any section, such as one of remarks, gives none. A section is known by its title, one that
    fomkit does not know by the header on its row or the next.

    Raises
    ------
    FomkitError
        When column A has a title that is nearly that of a known section.
    """
    if not has_sections(sheet):
        return ()
    titles = list(_titles(sheet, where))
    stops = [number for number, _ in titles[1:]] + [len(sheet.rows) + 1]
    return tuple(
        Block(" ".join(title.split()), start, stop)
        for (start, title), stop in zip(titles, stops, strict=True)
        if words(title) != PREAMBLE
    )


def needed_cell(sheet: Sheet, row: int, column: int, where: str) -> object:
    """Give the value of a cell that the import needs.

    Raises
    ------
    FomkitError
        When it is a formula that was saved without its value.
    """
    if (row, column) in sheet.uncached:
        raise FomkitError(
            f"{where} cell {cell_name(row, column)}",
            "is a formula without a cached value. Open the workbook in a spreadsheet program and save it.",
        )
    return sheet.cell(row, column)

"""The form of a DeepBench sheet: a stack of sections keyed in column A, each with a header found by its words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fomkit.errors import FomkitError, nearest_names
from fomkit.timings.deepbench_tables import (
    PADDED_HEADER,
    PRECISION_SCOPES,
    PRECISIONS,
    SECTIONS,
    SKIPPED,
    Precision,
    Section,
)
from fomkit.timings.xlsx import Sheet, cell_name

PREAMBLE = "precision"


def plain(value: object) -> str:
    """Give a cell's text in lower case with single spaces; "" for anything but text.

    Examples
    --------
    >>> plain("Time Forward  (msec) "), plain(1760.0)
    ('time forward (msec)', '')
    """
    return " ".join(value.split()).casefold() if isinstance(value, str) else ""


@dataclass(frozen=True)
class Block:
    """One section of a sheet: its title as printed, and its rows from the title on (1-based, last excluded)."""

    title: str
    start: int
    stop: int

    @property
    def key(self) -> str:
        """The title as the tables spell it."""
        return plain(self.title)


def has_sections(sheet: Sheet) -> bool:
    """Tell whether a sheet has a DeepBench section, by column A."""
    return any(plain(row[0]) in SECTIONS or plain(row[0]) in SKIPPED for row in sheet.rows if row)


def split_blocks(sheet: Sheet, where: str) -> tuple[Block, ...]:
    """Cut a sheet into its sections; blank rows and numbers in column A do not end one.

    A sheet without any section, such as one of remarks, gives none.

    Raises
    ------
    FomkitError
        When column A has text that is no known section.
    """
    if not has_sections(sheet):
        return ()
    titles = [(number, row[0]) for number, row in enumerate(sheet.rows, start=1) if row and plain(row[0])]
    known = (*SECTIONS, *SKIPPED)
    for number, title in titles:
        if plain(title) not in (*known, PREAMBLE):
            raise FomkitError(
                where,
                f"cell A{number} is {title!r}, which is no known section. {nearest_names(plain(title), known)}",
            )
    stops = [number for number, _ in titles[1:]] + [len(sheet.rows) + 1]
    return tuple(
        Block(" ".join(str(title).split()), start, stop)
        for (start, title), stop in zip(titles, stops, strict=True)
        if plain(title) != PREAMBLE
    )


def find_precision(sheet: Sheet, first: int, kind: str, where: str) -> Precision:
    """Find the precision of a kind among the lines above the first section (column B of rows before ``first``).

    Raises
    ------
    FomkitError
        When there is none for the kind, or its text is not known.
    """
    texts: dict[str, str] = {}
    for number in range(1, first):
        scope, colon, rest = plain(sheet.cell(number, 2)).partition(":")
        kinds = [PRECISION_SCOPES.get(word.strip(), "") for word in scope.split(",")]
        if colon and all(kinds):
            texts |= dict.fromkeys(kinds, rest.strip())
        elif scope:
            texts.setdefault("", scope + colon + rest)
    text = texts.get(kind, texts.get("", ""))
    if text not in PRECISIONS:
        said = f"states the precision {text!r}, which is not known" if text else f"states no precision for {kind}"
        listed = "; ".join(PRECISIONS)
        raise FomkitError(where, f"{said}. One of these was expected in column B of the first rows: {listed}.")
    return PRECISIONS[text]


@dataclass(frozen=True)
class Layout:
    """Where a section keeps its figures: column numbers by TIMINGS column and by pass, and the first row below."""

    dimensions: dict[str, int]
    times: dict[str, int]
    padded: int | None
    first: int


def _column(header: dict[str, list[int]], words: Iterable[str], where: str) -> int | None:
    found = [column for word in words for column in header.get(word, ())]
    if len(found) > 1:
        raise FomkitError(where, f"columns {found} have the same header. Rename or delete all but one.")
    return found[0] if found else None


def _header(sheet: Sheet, number: int) -> dict[str, list[int]]:
    words: dict[str, list[int]] = {}
    # Column A holds the section's key on the same row and never a figure.
    for column, value in enumerate(sheet.rows[number - 1][1:], start=2):
        if plain(value):
            words.setdefault(plain(value), []).append(column)
    return words


def find_layout(sheet: Sheet, block: Block, section: Section, where: str) -> Layout:
    """Match the header of a section by its words: on the section's own row, else on the next row with text.

    Raises
    ------
    FomkitError
        When a dimension or every time is missing, or a header stands twice.
    """
    rows = range(block.start, block.stop)
    number, header = next(
        ((number, words) for number in rows if (words := _header(sheet, number))), (block.start, {})
    )
    dimensions: dict[str, int] = {}
    for dimension in section.dimensions:
        column = _column(header, dimension.headers, where)
        if column is None:
            raise FomkitError(
                f"{where} row {number}",
                f"has no column {' or '.join(map(repr, dimension.headers))}, which is {dimension.column}. "
                f"The header reads: {', '.join(header) or 'nothing'}.",
            )
        dimensions[dimension.column] = column
    found = {name: _column(header, words, where) for name, words in section.times.items()}
    times = {name: column for name, column in found.items() if column is not None}
    if not times:
        expected = ", ".join(repr(word) for words in section.times.values() for word in words)
        raise FomkitError(f"{where} row {number}", f"has no time in milliseconds. Expected one of {expected}.")
    return Layout(dimensions, times, _column(header, (PADDED_HEADER,), where), number + 1)


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

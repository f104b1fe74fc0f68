"""Where a section of a DeepBench sheet keeps its figures: columns found by the words of their headers."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from fomkit.errors import FomkitError
from fomkit.tables.xlsx import Sheet
from fomkit.timings.deepbench_sections import Dimension, Section
from fomkit.timings.deepbench_sheet import Block
from fomkit.timings.deepbench_tables import PADDED_HEADER, PASSED_OVER
from fomkit.timings.deepbench_words import MILLISECONDS, heading, near, plain


@dataclass(frozen=True)
class Layout:
    """Where a section keeps its figures.

    Attributes
    ----------
    dimensions, times : dict
        Column numbers (1-based) by dimension and by pass.
    padded : int or None
        The column that tells whether sizes were padded.
    first : int
        The first row below the header.
    header : dict
        Every header as printed, by its column.
    remarks : tuple of str
        What had to be guessed.
    unitless : frozenset of str
        Passes whose header states no unit.
    """

    dimensions: dict[str, int]
    times: dict[str, int]
    padded: int | None
    first: int
    header: dict[int, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    unitless: frozenset[str] = frozenset()

    @property
    def used(self) -> set[int]:
        """The columns that are read."""
        return {*self.dimensions.values(), *self.times.values(), *([self.padded] if self.padded else [])}


class _Header:
    """The header row of a section, asked for one column after the other."""

    def __init__(self, sheet: Sheet, number: int, where: str) -> None:
        # Column A holds the section's title on the same row and never a figure.
        cells = enumerate(sheet.rows[number - 1][1:], start=2)
        self.printed = {column: " ".join(str(value).split()) for column, value in cells if plain(value)}
        self.where = where
        self.remarks: list[str] = []
        # A time in another unit is not taken for one in milliseconds: its column has no name here.
        self.names: dict[str, list[int]] = {}
        for column, printed in self.printed.items():
            found = heading(printed)
            if found.unit in ("", *MILLISECONDS):
                self.names.setdefault(found.name, []).append(column)

    def find(self, wanted: tuple[str, ...], known: Collection[str]) -> int | None:
        """Find the column of the first of some headers, else of one that misspells it and is not itself known."""
        for name in wanted:
            columns = self.names.get(name, [])
            if len(columns) > 1:
                raise FomkitError(
                    self.where, f"columns {columns} have the same header. Rename or delete all but one."
                )
            if columns:
                return columns[0]
        for name, columns in self.names.items():
            meant = near(name, wanted) if name not in known else None
            if meant is not None and len(columns) == 1:
                self.remarks.append(f"{self.printed[columns[0]]!r} is read as {meant!r}")
                return columns[0]
        return None


def _known_headers(section: Section) -> set[str]:
    sizes = {name for one in section.dimensions for name in one.headers}
    return sizes | {name for headers in section.times.values() for name in headers}


def _header_row(sheet: Sheet, block: Block, section: Section) -> int:
    """Find the row that has the most of the section's headers, the first of several; its own row when none has."""
    known = _known_headers(section)
    found = {
        number: sum(heading(value).name in known for value in sheet.rows[number - 1][1:])
        for number in range(block.start, block.stop)
    }
    return max(found, key=lambda number: (found[number], -number))


def _right_of(dimension: Dimension, found: dict[str, int], header: _Header) -> int | None:
    column = found.get(dimension.right_of, 0) + 1
    return column if column > 1 and column not in header.printed else None


def find_layout(sheet: Sheet, block: Block, section: Section, where: str) -> Layout:
    """Match the header of a section by its words, on its own row or one below.

    Raises
    ------
    FomkitError
        When a dimension or every time is missing, or a header stands twice.
    """
    number = _header_row(sheet, block, section)
    header = _Header(sheet, number, where)
    known = _known_headers(section)
    dimensions: dict[str, int] = {}
    for dimension in section.dimensions:
        column = header.find(dimension.headers, known)
        column = column or _right_of(dimension, dimensions, header)
        if column is not None:
            dimensions[dimension.column] = column
        elif not dimension.optional:
            raise FomkitError(
                f"{where} row {number}",
                f"has no column {' or '.join(map(repr, dimension.headers))}, which is {dimension.column}. "
                f"The header reads: {', '.join(map(plain, header.printed.values())) or 'nothing'}.",
            )
    found = {name: header.find(headers, known) for name, headers in section.times.items()}
    times = {name: column for name, column in found.items() if column is not None}
    if not times:
        expected = ", ".join(repr(f"{one} (msec)") for headers in section.times.values() for one in headers)
        raise FomkitError(f"{where} row {number}", f"has no time in milliseconds. Expected one of {expected}.")
    return Layout(
        dimensions, times, header.find((PADDED_HEADER,), known), number + 1, header.printed,
        tuple(header.remarks),
        frozenset(name for name, column in times.items() if not heading(header.printed[column]).unit),
    )  # fmt: skip


def not_read(layouts: Iterable[Layout]) -> list[str]:
    """Name the columns of a section that none of its layouts reads and that are not known to be of no use."""
    layouts = list(layouts)
    used = set().union(*(layout.used for layout in layouts))
    return [
        printed
        for column, printed in (layouts[0].header.items() if layouts else ())
        if column not in used and heading(printed).name not in PASSED_OVER and "flops" not in heading(printed).name
    ]

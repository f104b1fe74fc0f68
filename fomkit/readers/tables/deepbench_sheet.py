"""Read a DeepBench sheet: a stack of sections titled in column A, with columns found by their headers' words."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from fomkit.core.errors import FomkitError, nearest_names
from fomkit.files.xlsx import Sheet, cell_name
from fomkit.readers.tables.deepbench_sections import MILLISECONDS, SECTIONS, Section, heading, near, plain, words

PREAMBLE = "precision"
_HEADER_WORDS = 3
"""Texts in a row from which it counts as a header."""


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
    """Return whether a sheet has a DeepBench section, by column A."""
    return any(words(row[0]) in SECTIONS for row in sheet.rows if row)


def _titles(sheet: Sheet, where: str) -> Iterator[tuple[int, str]]:
    """Yield the rows that begin a section, known or not; other text in column A, as a footnote, begins none."""
    for number, row in enumerate(sheet.rows, start=1):
        key = words(row[0]) if row else ""
        if key in SECTIONS or key == PREAMBLE:
            yield number, str(row[0])
        elif key and near(key, SECTIONS):
            raise FomkitError(
                where, f"cell A{number} is {row[0]!r}, not a known section. {nearest_names(key, SECTIONS)}"
            )
        elif key and any(
            sum(map(bool, map(plain, one[1:]))) >= _HEADER_WORDS for one in sheet.rows[number - 1 : number + 1]
        ):
            yield number, str(row[0])


def split_blocks(sheet: Sheet, where: str) -> tuple[Block, ...]:
    """Cut a sheet into its sections; blank rows and numbers in column A do not end one.

    A sheet without known sections, such as one of remarks, returns none. Known sections are recognised by their
    title, unknown ones by a header on the same row or the next.
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
    """Return the value of a cell that the import needs."""
    if (row, column) in sheet.uncached:
        raise FomkitError(
            f"{where} cell {cell_name(row, column)}",
            "is a formula without a cached value. Open the workbook in a spreadsheet program and save it.",
        )
    return sheet.cell(row, column)


PADDED_HEADER = "padded kernels"
PASSED_OVER = (
    "p", "q", "total time", "forward algorithm", "gigabytes sec", "speedup wrt dense", "source", "platform",
)  # fmt: skip
"""Headers of known columns that are not read: they follow from other columns, are partly wrong, or are remarks.
Rates, which have "flops" in the header, are not read either. Any other unread column is reported.
"""


@dataclass(frozen=True)
class Layout:
    """The columns of a section.

    `dimensions`, `times`: column numbers (1-based) by dimension and by pass.
    `padded`: the column that states whether sizes were padded.
    `header`: every header as printed, by its column.
    `unitless`: passes whose header states no unit.
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
    """The header row of a section, in which columns are looked up."""

    def __init__(self, sheet: Sheet, number: int, where: str) -> None:
        # Column A holds the section's title on the same row and never a figure.
        cells = enumerate(sheet.rows[number - 1][1:], start=2)
        self.printed = {column: " ".join(str(value).split()) for column, value in cells if plain(value)}
        self.where = where
        self.remarks: list[str] = []
        # Only times in milliseconds count: a column in another unit of time gets no name.
        self.names: dict[str, list[int]] = {}
        for column, printed in self.printed.items():
            found = heading(printed)
            if found.unit in ("", *MILLISECONDS):
                self.names.setdefault(found.name, []).append(column)

    def find(self, wanted: tuple[str, ...], known: Collection[str]) -> int | None:
        """Return the column of the first matching header, else of a misspelt one that is not itself known."""
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


def find_layout(sheet: Sheet, block: Block, section: Section, where: str) -> Layout:
    """Match the header of a section by its words, on its own row or below."""
    known = {name for one in section.dimensions for name in one.headers}
    known |= {name for headers in section.times.values() for name in headers}
    # The row that has the most of the section's headers, the first of several; its own row if none has any.
    number = max(
        range(block.start, block.stop),
        key=lambda row: sum(heading(value).name in known for value in sheet.rows[row - 1][1:]),
    )
    header = _Header(sheet, number, where)
    dimensions: dict[str, int] = {}
    for dimension in section.dimensions:
        column = header.find(dimension.headers, known)
        if column is None and dimension.right_of in dimensions:
            right = dimensions[dimension.right_of] + 1
            column = right if right not in header.printed else None
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
        expected = ", ".join(repr(f"{header} (msec)") for headers in section.times.values() for header in headers)
        raise FomkitError(f"{where} row {number}", f"has no time in milliseconds. Expected one of {expected}.")
    return Layout(
        dimensions, times, header.find((PADDED_HEADER,), known), number + 1, header.printed,
        tuple(header.remarks),
        frozenset(name for name, column in times.items() if not heading(header.printed[column]).unit),
    )  # fmt: skip


def not_read(layouts: Iterable[Layout]) -> list[str]:
    """Return the headers of a section that no layout reads and that are not known to be useless."""
    layouts = list(layouts)
    used = set().union(*(layout.used for layout in layouts))
    return [
        printed
        for column, printed in (layouts[0].header.items() if layouts else ())
        if column not in used and heading(printed).name not in PASSED_OVER and "flops" not in heading(printed).name
    ]

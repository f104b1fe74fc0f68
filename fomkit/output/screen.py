"""Format text for a terminal's width, or wide for files and pipes: lines, and tables that break no number."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import compress
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from fomkit.profiles.metrics import title_of

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Column as TableColumn
    from rich.table import Table

Entry = Mapping[str, Any]
"""A block of the content that ``--json`` prints."""
MAX_COLUMN = 70
Header = str | tuple[str, str]
"""A column's text, and "right" for a column of numbers."""


@dataclass(frozen=True)
class Screen:
    """Where text is shown: the width in characters, and whether colours are possible."""

    width: int = 240
    colour: bool = False

    @property
    def narrow(self) -> bool:
        """Whether a table of a dozen columns does not fit."""
        return self.width < 150

    @property
    def breaks(self) -> bool:
        """Whether lines must be wrapped: true for a terminal, false for a file or a pipe."""
        return self.width < PLAIN.width


PLAIN = Screen()
_NOT_SHOWN = dict.fromkeys(map(ord, "\a\b\v\f\r"))
"""Characters that move a terminal's cursor, which the text has without them."""


class Page:
    """Text under construction: lines, tables and notes on a screen."""

    def __init__(self, screen: Screen) -> None:
        self.screen = screen
        self._stream = io.StringIO()

    @cached_property
    def _console(self) -> Console:
        """Formats tables and colours; in a notebook it would otherwise show its text by itself."""
        from rich.console import Console

        colours: Literal["standard"] | None = "standard" if self.screen.colour else None
        return Console(
            file=self._stream, width=self.screen.width, force_terminal=self.screen.colour, color_system=colours,
            force_jupyter=False, highlight=False, markup=False, emoji=False,
        )  # fmt: skip

    def line(self, text: str, style: str = "") -> None:
        """Add a line; on a terminal it is wrapped between words, with the continuation indented."""
        shown = "\n".join(map(self._broken, text.split("\n"))) if self.screen.breaks else text
        if self.screen.colour:
            self._console.print(shown, style=style or None, soft_wrap=True)
        else:
            self._stream.write(f"{shown.translate(_NOT_SHOWN).expandtabs()}\n")

    def _broken(self, text: str) -> str:
        if len(text) <= self.screen.width:
            return text
        indent = " " * (len(text) - len(text.lstrip()) + 2)
        return "\n".join(
            wrap(text, self.screen.width, subsequent_indent=indent, drop_whitespace=True, break_long_words=False,
                 break_on_hyphens=False)
        )  # fmt: skip

    def lines(self, texts: Iterable[str], style: str = "") -> None:
        """Add lines."""
        for text in texts:
            self.line(text, style)

    def notes(self, messages: Iterable[str], style: str = "") -> None:
        """Add messages as lines that begin with "note:"."""
        self.lines((f"note: {message}" for message in messages), style)

    def heading(self, text: str, style: str = "bold") -> None:
        """Add an empty line and a title."""
        self.line("")
        self.line(text, style)

    def table(self, table: Table, first_out: Sequence[str] = ()) -> None:
        """Add a table; where a terminal is too narrow, columns are dropped, `first_out` first, as a line says."""
        hidden = _drop_columns(table, self.screen.width, first_out) if self.screen.breaks else []
        self._console.print(table)
        if hidden:
            names = ", ".join(" ".join(header.split()) for header in hidden)
            where = f"not shown at {self.screen.width} columns: {names}"
            self.line(f"{where}; use a wider terminal, --json or -o")

    def rows(
        self, headers: Sequence[Header], rows: Iterable[Iterable[str]], table: Table | None = None,
        first_out: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """Add a table of rows; `first_out`: see `table`."""
        table = new_table(headers) if table is None else table
        for row in rows:
            table.add_row(*row)
        self.table(table, first_out)

    def filled_rows(
        self, headers: Sequence[Header], rows: Sequence[Sequence[str]], first_out: Sequence[str] = ()
    ) -> None:
        """Add a table of rows without the columns that no row fills; `first_out`: see `table`."""
        filled = [any(column) for column in zip(*rows, strict=True)]
        self.rows([*compress(headers, filled)], (compress(row, filled) for row in rows), first_out=first_out)

    def rows_of_numbers(self, headers: Sequence[Header], rows: Iterable[Iterable[str]]) -> None:
        """Add a table of rows whose first cell is a label and whose other cells are not wrapped."""
        self.rows(headers, rows, table_of_numbers(headers))

    def text(self) -> str:
        """Return everything added so far, without spaces at the ends of lines."""
        return "\n".join(line.rstrip() for line in self._stream.getvalue().splitlines()) + "\n"


_NUMBER = re.compile(r"[-+≥≤<>~(]?\d.{0,30}")
"""Matches a cell with a number, its interval and its unit, which is not wrapped; longer cells are sentences."""


def _least_width(column: TableColumn) -> int:
    """Return the width that a column needs so that no number and no word is broken."""
    texts = [str(cell) for cell in (column.header, *column.cells)]
    filled = [text for text in texts[1:] if text]
    if column.no_wrap or column.justify == "right" or (filled and all(map(_NUMBER.fullmatch, filled))):
        column.no_wrap = True
        return max((len(line) for text in texts for line in text.splitlines()), default=0)
    return max((len(word) for text in texts for word in text.split()), default=0)


def _set_widths(table: Table, needed: Mapping[int, int], width: int) -> None:
    """Set column widths that keep the needed width of each; rich would shrink the widest until all are equal."""
    least = [needed[id(column)] for column in table.columns]
    most = [min(max(len(str(text)) for text in (one.header, *one.cells)), one.max_width or width)
            for one in table.columns]  # fmt: skip
    for level in range(max(most), 0, -1):
        shares = [max(low, min(high, level)) for low, high in zip(least, most, strict=True)]
        if sum(shares) <= width:
            for column, share in zip(table.columns, shares, strict=True) if max(least) > level else ():
                column.max_width = share
            return


def _drop_columns(table: Table, width: int, first_out: Sequence[str]) -> list[str]:
    """Drop columns of a table until the rest fits; return their headers, in the order of the table.

    A header that several columns share is returned with the header of the column before it.
    """
    if not table.show_header:
        return []
    needed = {id(column): _least_width(column) for column in table.columns}
    headers = [str(column.header) for column in table.columns]
    order = {
        id(column): f"{header} of {headers[place - 1]}" if headers.count(header) > 1 else header
        for place, (column, header) in enumerate(zip(table.columns, headers, strict=True))
    }
    between = 1 + sum(table.padding[place] for place in (1, 3))
    hidden: list[str] = []
    waiting = iter(first_out)
    while len(table.columns) > 2 and sum(needed[id(one)] + between for one in table.columns) - between > width:
        names = [str(column.header) for column in table.columns]
        wanted = next(waiting, None)
        if wanted is None or wanted in names:
            hidden.append(order[id(table.columns.pop(-1 if wanted is None else names.index(wanted)))])
    _set_widths(table, needed, width - between * (len(table.columns) - 1))
    for place, column in enumerate(table.columns):
        column.min_width = min(needed[id(column)], width)
        column._index = place  # rich numbers columns when they are added, and uses the number for padding
    return sorted(hidden, key=list(order.values()).index)


def figure(name: str, words: str = "") -> tuple[str, str]:
    """Return the header of a figure: ``words``, or the figure's title."""
    return words or title_of(name), "right"


def new_table(headers: Sequence[Header]) -> Table:
    """Make an empty table with these headers."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for header in headers:
        text, justify = (header, "") if isinstance(header, str) else header
        table.add_column(text, justify="right" if justify == "right" else "left", max_width=MAX_COLUMN)
    return table


def table_of_numbers(headers: Sequence[Header]) -> Table:
    """Make an empty table whose first column is a label and whose other cells are not wrapped."""
    table = new_table(headers)
    table.padding = (0, 1, 0, 0)
    table.columns[0].overflow = "fold"
    for column in table.columns[1:]:
        column.no_wrap = True
    return table


class Column(NamedTuple):
    """A column: header, alignment, cell format, and rank: in a narrow table the highest rank is dropped first."""

    header: str
    justify: str
    write: Callable[[Entry], str]
    rank: int = 0


def fitting(columns: list[Column], rows: Sequence[Entry], label: int, width: int) -> list[Column]:
    """Drop columns by rank until the rest fits beside labels of a given width."""
    widths = {id(column): max(len(column.header), *(len(column.write(row)) for row in rows)) for column in columns}
    shown = list(columns)
    while label + sum(widths[id(one)] + 2 for one in shown) > width and any(one.rank for one in shown):
        shown.remove(max(shown, key=lambda one: one.rank))
    return shown


def named_sizes(content: Entry, without: str = "sizes fixed") -> str:
    """Format the sizes at which a model is evaluated."""
    return ", ".join(f"{name} {size}" for name, size in content["sizes"].items()) or without


def format_profiles(rows: Sequence[Mapping[str, Any]], screen: Screen = PLAIN) -> str:
    """Format the names that can be used: models, suites, campaigns, then machines, each with its title."""
    page = Page(screen)
    page.rows(["what", "name", "title"], ((row["what"], row["name"], row["title"]) for row in rows))
    page.line("fomkit show NAME: contents; fomkit estimate MODEL --target MACHINE: times and units a day;")
    page.line("fomkit fom SUITE: figure of merit; fomkit campaign CAMPAIGN --target MACHINE: duration and cost")
    return page.text()

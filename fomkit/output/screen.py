"""Text for a terminal's measure, or plain and wide for files and pipes: lines, and tables that break no number."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from fomkit.core.figure_table import title_of

if TYPE_CHECKING:
    from rich.table import Table


Entry = Mapping[str, Any]
"""A block of the content that ``--json`` prints."""
MAX_COLUMN = 70
Header = str | tuple[str, str]
"""Its words, and "right" where numbers stand below."""


@dataclass(frozen=True)
class Screen:
    """Where text is shown: its width in characters, and whether it may be coloured."""

    width: int = 240
    colour: bool = False

    @property
    def narrow(self) -> bool:
        """True where a table of a dozen columns does not fit."""
        return self.width < 150


PLAIN = Screen()


class Page:
    """Text under construction: lines, tables and notes on a screen."""

    def __init__(self, screen: Screen) -> None:
        from rich.console import Console

        self.screen = screen
        self._stream = io.StringIO()
        colours: Literal["standard"] | None = "standard" if screen.colour else None
        self._console = Console(
            file=self._stream, width=screen.width, force_terminal=screen.colour, color_system=colours,
            highlight=False, markup=False, emoji=False,
        )  # fmt: skip

    def line(self, text: str, style: str = "") -> None:
        """Add a line; a terminal breaks it where it must."""
        self._console.print(text, style=style or None, soft_wrap=True)

    def lines(self, texts: Iterable[str], style: str = "") -> None:
        """Add lines."""
        for text in texts:
            self.line(text, style)

    def notes(self, messages: Iterable[str], style: str = "") -> None:
        """Add lines that say that they are notes."""
        self.lines((f"note: {message}" for message in messages), style)

    def heading(self, text: str, style: str = "bold") -> None:
        """Add an empty line and a title."""
        self.line("")
        self.line(text, style)

    def table(self, table: Table) -> None:
        """Add a table."""
        self._console.print(table)

    def rows(self, headers: Sequence[Header], rows: Iterable[Iterable[str]], table: Table | None = None) -> None:
        """Add a table of rows."""
        table = new_table(headers) if table is None else table
        for row in rows:
            table.add_row(*row)
        self.table(table)

    def rows_of_numbers(self, headers: Sequence[Header], rows: Iterable[Iterable[str]]) -> None:
        """Add a table of rows whose first cell is a label and whose others stay on one line."""
        self.rows(headers, rows, table_of_numbers(headers))

    def text(self) -> str:
        """Give everything added so far, without spaces at the ends of lines."""
        return "\n".join(line.rstrip() for line in self._stream.getvalue().splitlines()) + "\n"


def figure(name: str, words: str = "") -> tuple[str, str]:
    """Give the header of a figure, in its own words or in those that a table needs."""
    return words or title_of(name), "right"


def new_table(headers: Sequence[Header]) -> Table:
    """Begin a table."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for header in headers:
        text, justify = (header, "") if isinstance(header, str) else header
        table.add_column(text, justify="right" if justify == "right" else "left", max_width=MAX_COLUMN)
    return table


def table_of_numbers(headers: Sequence[Header]) -> Table:
    """Begin a table whose first column is a label and whose other cells stay on one line."""
    table = new_table(headers)
    table.padding = (0, 1, 0, 0)
    table.columns[0].overflow = "fold"
    for column in table.columns[1:]:
        column.no_wrap = True
    return table


class Column(NamedTuple):
    """A column: header, alignment, how to write a cell, and its rank: a narrow table loses the highest first."""

    header: str
    justify: str
    write: Callable[[Entry], str]
    rank: int = 0


def fitting(columns: list[Column], rows: Sequence[Entry], label: int, width: int) -> list[Column]:
    """Leave out columns until the rest fit beside labels of a width."""
    widths = {id(column): max(len(column.header), *(len(column.write(row)) for row in rows)) for column in columns}
    shown = list(columns)
    while label + sum(widths[id(one)] + 2 for one in shown) > width and any(one.rank for one in shown):
        shown.remove(max(shown, key=lambda one: one.rank))
    return shown


def named_sizes(content: Entry, without: str = "sizes fixed") -> str:
    """Write the sizes that a model is looked at with."""
    return ", ".join(f"{name} {size}" for name, size in content["sizes"].items()) or without


def format_profiles(rows: Sequence[Mapping[str, str]], screen: Screen = PLAIN) -> str:
    """Write what can be named: models, suites, campaigns, then machines, each with its title."""
    page = Page(screen)
    page.rows(["", "name", "title"], ((row["what"], row["name"], row["title"]) for row in rows))
    page.line("fomkit show NAME says what is in one; fomkit estimate MODEL --target MACHINE joins two;")
    campaigns = "fomkit campaign CAMPAIGN --target MACHINE, how long it takes"
    page.line(f"fomkit fom SUITE rates machines on a suite; {campaigns}")
    return page.text()

"""How wide and how colourful text may be: a terminal's measure, or plain and wide for files and pipes.

Tables that break their labels where a terminal is narrow, and never a number.

Columns of a table of entries, of which a narrow screen shows the most important ones.

The names of models, suites, campaigns and machines, as text.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from fomkit.core.figure_table import title_of

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


MAX_COLUMN = 70
Header = tuple[str, str]
"""Its words, and "right" or ""."""


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
        self._console: Console = Console(
            file=self._stream,
            width=screen.width,
            force_terminal=screen.colour,
            color_system="standard" if screen.colour else None,
            highlight=False,
            markup=False,
            emoji=False,
        )

    def line(self, text: str, style: str = "") -> None:
        """Add a line; a terminal breaks it where it must."""
        self._console.print(text, style=style or None, soft_wrap=True)

    def table(self, table: Table) -> None:
        """Add a table."""
        self._console.print(table)

    def text(self) -> str:
        """Give everything added so far, without spaces at the ends of lines."""
        return "\n".join(line.rstrip() for line in self._stream.getvalue().splitlines()) + "\n"


def figure(name: str, words: str = "") -> Header:
    """Give the header of a figure, in its own words or in those that a table needs."""
    title = title_of(name)
    return words or title, "right"


def new_table(headers: Sequence[Header]) -> Table:
    """Begin a table."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for header, justify in headers:
        table.add_column(header, justify="right" if justify == "right" else "left", max_width=MAX_COLUMN)
    return table


def table_of_numbers(headers: Sequence[tuple[str, str]]) -> Table:
    """Begin a table whose first column is a label and whose other cells stay on one line."""
    table = new_table(headers)
    table.padding = (0, 1, 0, 0)
    table.columns[0].overflow = "fold"
    for column in table.columns[1:]:
        column.no_wrap = True
    return table


Entry = Mapping[str, Any]


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


def format_profiles(rows: Sequence[Mapping[str, str]], screen: Screen = PLAIN) -> str:
    """Write what can be named: models, suites, campaigns, then machines, each with its title."""
    page = Page(screen)
    table = new_table([("", ""), ("name", ""), ("title", "")])
    for row in rows:
        table.add_row(row["what"], row["name"], row["title"])
    page.table(table)
    page.line("fomkit show NAME says what is in one; fomkit estimate MODEL --target MACHINE joins two;")
    page.line(
        "fomkit fom SUITE rates machines on a suite; fomkit campaign CAMPAIGN --target MACHINE, how long it takes"
    )
    return page.text()

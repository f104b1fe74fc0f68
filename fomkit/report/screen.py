"""How wide and how colourful text may be: a terminal's measure, or plain and wide for files and pipes."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fomkit.metrics import title_of

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
    """Give the header of a figure of `fomkit.metrics`, in its own words or in those that a table needs."""
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

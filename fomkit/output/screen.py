"""Lines and tables for a terminal's width, for files and pipes, or marked up for a page; no number is broken."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape, unescape
from itertools import chain, compress, repeat, zip_longest
from textwrap import wrap
from typing import Any, NamedTuple

from fomkit.profiles.metrics import title_of

Entry = Mapping[str, Any]
"""A block of the content that ``--json`` prints."""
MAX_COLUMN, GAP = 70, 2
"""Largest width of a column of words, and blanks between columns."""
Header = str | tuple[str, str]
"""A column's text, and "right" for a column of numbers."""


@dataclass(frozen=True)
class Screen:
    """Where text is shown: the width in characters, whether colours are possible, and whether it is a page."""

    width: int = 240
    colour: bool = False
    html: bool = False

    @property
    def narrow(self) -> bool:
        """Whether a table of a dozen columns does not fit."""
        return self.width < 150

    @property
    def breaks(self) -> bool:
        """Whether lines must be wrapped: true for a terminal, false for a file or a pipe."""
        return self.width < PLAIN.width


PLAIN, PAGE = Screen(), Screen(html=True)
_NOT_SHOWN = dict.fromkeys(map(ord, "\a\b\v\f\r\x1b"))
"""Characters that move a terminal's cursor, which the text has without them."""
_COLOURS = {"bold": "1", "dim": "2", "red": "31", "yellow": "33"}
_NUMBER = re.compile(r"[-+≥≤<>~(]?\d.{0,30}|unknown|under 1 % wide|no spread stated")
"""Matches a cell with a number, its interval and its unit, which is not wrapped; longer cells are sentences."""
_INTERVAL = re.compile(r"\(\d[^()]{0,30}\)|\d (?:[mµn]?s|min|h|d|[kMGTP]i?B|[MGTP]FLOP|W|[kMG]?J)\b")
"""Matches an interval behind its value, and a number before its unit, which are not broken inside."""
_HELD = "\N{NO-BREAK SPACE}"
_OPTION = re.compile(r"(?<!\S)--?[A-Za-z][\w-]*")


def marked_up(text: str) -> str:
    """Escape text for a page, and keep a browser from breaking a command's option after its hyphens.

    >>> marked_up("a < b: give --set")
    'a &lt; b: give <span class="option">--set</span>'
    """
    return _OPTION.sub(r'<span class="option">\g<0></span>', escape(text))


class Column(NamedTuple):
    """A column of a table: its header, "right" for numbers, the format of its cells, and its rank.

    In a table that is too wide, the column with the highest rank is dropped first, of equal ones the last.
    """

    header: str
    side: str
    write: Callable[[Any], str]
    rank: int = 0


@dataclass
class Table:
    """Rows of cells under headers.

    `rows` (cells, style): of each row; cells that are missing at its end are empty, none are an empty line.
    `ranks`: of the columns, as in `Column`.
    `widest`: characters from which a cell with words is wrapped.
    """

    headers: Sequence[Header]
    rows: Sequence[tuple[Sequence[str], str]]
    ranks: Sequence[int] = ()
    widest: int = MAX_COLUMN

    def _columns(self) -> list[_Cells]:
        heads = [(head, "left") if isinstance(head, str) else head for head in self.headers]
        ranks = self.ranks or [0] * len(heads)
        cells = [
            [row[place] if place < len(row) else "" for row, _ in self.rows if row] for place in range(len(heads))
        ]
        return [
            _Cells(text, side == "right", rank, column, place)
            for place, ((text, side), rank, column) in enumerate(zip(heads, ranks, cells, strict=True))
        ]

    def lines(self, screen: Screen) -> tuple[list[tuple[str, str]], list[str]]:
        """Return the lines with their styles, and the headers of the columns that are left out."""
        columns = self._columns()
        kept = _fitting(columns, screen.width) if screen.breaks else columns
        widths = _widths(kept, screen.width - GAP * (len(kept) - 1), self.widest)

        def laid(cells: Sequence[str], style: str) -> Iterator[tuple[str, str]]:
            parts = [_broken_cell(cells[one.place], width) for one, width in zip(kept, widths, strict=True)]
            for line in zip_longest(*parts, fillvalue=""):
                placed = zip(kept, line, widths, strict=True)
                texts = (part.rjust(width) if one.right else part.ljust(width) for one, part, width in placed)
                yield (" " * GAP).join(texts), style

        found = list[tuple[str, str]]()
        if any(one.header for one in columns):
            high = max(one.header.count("\n") for one in columns)
            found += laid(["\n" * (high - one.header.count("\n")) + one.header for one in columns], "bold")
            found.append(("─" * (sum(widths) + GAP * (len(widths) - 1)), ""))
        for cells, style in self.rows:
            found += laid([*cells, *[""] * (len(columns) - len(cells))], style) if cells else [("", "")]
        headers = [one.header for one in columns]
        hidden = [one for one in columns if one not in kept]
        return found, [
            f"{one.header} of {headers[one.place - 1]}" if headers.count(one.header) > 1 else one.header
            for one in hidden
        ]

    def html(self, caption: str) -> str:
        """Return the table marked up for a page."""
        sides = [
            ' class="number"' if one.right else ' class="whole"' if one.whole else "" for one in self._columns()
        ]
        texts = [head if isinstance(head, str) else head[0] for head in self.headers]
        heads = (f'<th scope="col"{side}>{marked_up(text)}</th>' for text, side in zip(texts, sides, strict=True))
        rows = "".join(
            f"<tr{_of_class(style)}>"
            + "".join(f"<td{side}>{marked_up(cell)}</td>" for cell, side in zip(cells, sides, strict=False))
            + "</tr>"
            for cells, style in self.rows
            if cells
        )
        label = escape(caption or texts[0])
        return (
            f'<div class="wide" role="region" tabindex="0" aria-label="{label}"><table><caption>{label}</caption>'
            f"<thead><tr>{''.join(heads)}</tr></thead><tbody>{rows}</tbody></table></div>"
        )


LABEL = 36
"""Width up to which labels are kept whole; longer ones are broken before columns of a narrow table are dropped."""


class _Cells:
    """A column with its cells: the width that it needs so that no number and no word is broken, and its widest."""

    def __init__(self, header: str, right: bool, rank: int, cells: Sequence[str], place: int) -> None:
        self.header, self.right, self.rank, self.place = header, right, rank, place
        filled = list(filter(None, cells))
        texts = [*header.split("\n"), *(line for cell in filled for line in cell.split("\n"))]
        whole = right or bool(filled and all(map(_NUMBER.fullmatch, filled)))
        self.whole = whole and any(map(_NUMBER.fullmatch, filled))
        words = texts if whole else [word for text in texts for word in _held(text).split(" ") if word]
        self.least, self.widest = max(map(len, words), default=0), max(map(len, texts))
        if place == 0:
            self.least = min(self.widest, LABEL)


def _fitting(columns: Sequence[_Cells], width: int) -> list[_Cells]:
    """Drop columns until the others fit; the first and one more stay."""
    kept = list(columns)
    while len(kept) > 2 and sum(one.least + GAP for one in kept) - GAP > width:
        kept.remove(max(reversed(kept[1:]), key=lambda one: one.rank))
    return kept


def _widths(columns: Sequence[_Cells], room: int, widest: int) -> list[int]:
    """Return widths that fit; the widest columns give way, down to their longest word, then less."""
    most = [max(one.least, min(one.widest, widest)) for one in columns]
    for least in ([one.least for one in columns], [1] * len(columns)):
        for level in range(max(most, default=0), 0, -1):
            shares = [max(low, min(high, level)) for low, high in zip(least, most, strict=True)]
            if sum(shares) <= room:
                return shares
    return most


def _held(text: str) -> str:
    """Join the words of each interval, and numbers with their units."""
    return _INTERVAL.sub(lambda found: found[0].replace(" ", _HELD), text)


def _broken_cell(text: str, width: int) -> list[str]:
    lines = (
        wrap(_held(line), width, break_on_hyphens=False) if len(line) > width else [line]
        for line in text.split("\n")
    )
    return [part.replace(_HELD, " ") for line in lines for part in line]


def _of_class(style: str) -> str:
    return f' class="{style}"' if style else ""


class Page:
    """Text under construction: lines, tables and notes on a screen."""

    def __init__(self, screen: Screen) -> None:
        self.screen = screen
        self._parts: list[str] = []

    def line(self, text: str, style: str = "") -> None:
        """Add a line; on a terminal it is wrapped between words, with the continuation indented."""
        for part in text.split("\n"):
            if self.screen.html:
                self._parts += [f"<p{_of_class(style)}>{marked_up(part.strip())}</p>"] * bool(part.strip())
            else:
                self._put(self._broken(part) if self.screen.breaks else part, style)

    def _put(self, text: str, style: str) -> None:
        shown = text.translate(_NOT_SHOWN).expandtabs()
        if style and shown and self.screen.colour:
            codes = ";".join(_COLOURS[word] for word in style.split())
            shown = "\n".join(f"\x1b[{codes}m{line}\x1b[0m" for line in shown.split("\n"))
        self._parts.append(shown)

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

    def table(self, table: Table) -> None:
        """Add a table; where a terminal is too narrow, columns are dropped, and a line says so.

        On a page, the line above it is its caption.
        """
        if self.screen.html:
            caption = self._parts.pop() if self._parts and self._parts[-1].startswith("<p") else ""
            self._parts.append(table.html(unescape(re.sub(r"<[^>]*>", "", caption))))
            return
        lines, hidden = table.lines(self.screen)
        for text, style in lines:
            self._put(text, style)
        if hidden:
            names = ", ".join(" ".join(header.split()) for header in hidden)
            where = f"not shown at {self.screen.width} columns: {names}"
            self.line(f"{where}; use a wider terminal, --json or -o")

    def rows(
        self, headers: Sequence[Header], rows: Iterable[Iterable[str]], first_out: Sequence[str] = (),
        styles: Iterable[str] = (),
    ) -> None:  # fmt: skip
        """Add a table of rows.

        `first_out`: headers of columns that are dropped before those on the right; `styles`: of the rows.
        """
        self.table(Table(headers, _styled(rows, styles), _ranks(headers, first_out)))

    def filled_rows(
        self, headers: Sequence[Header], rows: Sequence[Sequence[str]], first_out: Sequence[str] = ()
    ) -> None:
        """Add a table of rows without the columns that no row fills; `first_out`: see `rows`."""
        filled = [any(column) for column in zip(*rows, strict=True)]
        self.rows([*compress(headers, filled)], (compress(row, filled) for row in rows), first_out)

    def columns(
        self,
        columns: Sequence[Column],
        entries: Iterable[Any],
        styles: Iterable[str] = (),
        *,
        filled: bool = False,
    ) -> None:
        """Add a table with a row for each entry; None is an empty line.

        `filled`: leave out the columns that no row fills.
        """
        rows = [[] if entry is None else [one.write(entry) for one in columns] for entry in entries]
        kept = [not filled or any(row[place] for row in rows) for place in range(len(columns))]
        heads, ranks = [(one.header, one.side) for one in columns], [one.rank for one in columns]
        shown = _styled((compress(row, kept) for row in rows), styles)
        self.table(Table([*compress(heads, kept)], shown, [*compress(ranks, kept)]))

    def text(self) -> str:
        """Return everything added so far, without spaces at the ends of lines."""
        lines = "\n".join(self._parts).split("\n")
        return "".join(f"{line.rstrip()}\n" for line in lines)


def _styled(rows: Iterable[Iterable[str]], styles: Iterable[str]) -> list[tuple[list[str], str]]:
    return [(list(row), style) for row, style in zip(rows, chain(styles, repeat("")), strict=False)]


def _ranks(headers: Sequence[Header], first_out: Sequence[str]) -> list[int]:
    """Return the ranks of columns that are dropped in this order; a header twice is of two columns."""
    ranks, names = [0] * len(headers), [head if isinstance(head, str) else head[0] for head in headers]
    for rank, wanted in zip(range(len(first_out), 0, -1), first_out, strict=True):
        place = next((at for at, name in enumerate(names) if name == wanted and not ranks[at]), None)
        if place is not None:
            ranks[place] = rank
    return ranks


def figure(name: str, words: str = "") -> tuple[str, str]:
    """Return the header of a figure: ``words``, or the figure's title."""
    return words or title_of(name), "right"


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

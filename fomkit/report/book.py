"""A report as plain records: what stands on the page, before it is a page. All text; nothing here is markup."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple


class Head(NamedTuple):
    """The head of a column: its words, whether numbers stand below, what a reader may want to know of it."""

    text: str
    number: bool = False
    hint: str = ""
    filtered: bool = False
    """Whether a reader may choose among the column's few values."""


class Cell(NamedTuple):
    """A cell: its text, what it is sorted by where that is not the text, a longer text that is searched too."""

    text: str
    order: float | None = None
    hint: str = ""


@dataclass(frozen=True)
class Table:
    """Rows under a caption; one with a ``key`` can be sorted and filtered."""

    caption: str
    head: tuple[Head, ...]
    rows: tuple[tuple[Cell, ...], ...]
    key: str = ""

    @property
    def choices(self) -> list[tuple[int, str, list[str]]]:
        """Give place, name and values of each column that a reader may filter by."""
        return [
            (place, head.text, sorted({row[place].text for row in self.rows}))
            for place, head in enumerate(self.head)
            if head.filtered
        ]


@dataclass(frozen=True)
class Figure:
    """A figure with what it shows in words, and its numbers as a table.

    Attributes
    ----------
    key : str
        Names it on the page.
    says : str
        What a reader who does not see it should know.
    chart : mapping
        Vega-Lite.
    caption : tuple of str
        What a reader who sees it should know.
    table : Table or None
        Its numbers; None where another table of the page has them.
    finds : str
        Key of the table in which an op that is clicked is looked up; "" for none.
    """

    key: str
    title: str
    says: str
    chart: Mapping[str, Any]
    caption: tuple[str, ...] = ()
    table: Table | None = None
    finds: str = ""


@dataclass(frozen=True)
class Listing:
    """Lines under a heading."""

    title: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Section:
    """One question and its answer; ``absent`` says why there is none."""

    key: str
    title: str
    says: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()
    lists: tuple[Listing, ...] = ()
    absent: str = ""


@dataclass(frozen=True)
class Claim:
    """The answer: a figure, its unit, and the interval as a share of the way from its low to its high end."""

    of: str
    value: str
    unit: str
    between: str
    low: str
    high: str
    place: float | None
    bound: str


class Tile(NamedTuple):
    """One figure beside the claim."""

    name: str
    value: str
    more: str = ""


class Share(NamedTuple):
    """A part of the time by what it rests on."""

    name: str
    share: float
    meaning: str


@dataclass(frozen=True)
class Chapter:
    """One model on one machine."""

    key: str
    model: str
    machine: str
    claim: Claim
    tiles: tuple[Tile, ...]
    evidence: tuple[Share, ...]
    sections: tuple[Section, ...]


@dataclass(frozen=True)
class Book:
    """A whole report.

    Attributes
    ----------
    index : Table or None
        One row per chapter, where there are several.
    merits, notes : tuple of str
        Figures of merit; what is to be said of all.
    aside : str
        Lines in columns: what measurements of the baseline tell; "" where there are none.
    made_by : str
        Program, version and time.
    """

    title: str
    chapters: tuple[Chapter, ...]
    made_by: str
    index: Table | None = None
    merits: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    aside: str = ""

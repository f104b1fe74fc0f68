"""A report as plain records, as one HTML file that needs nothing else, a chart as a file; names stay text."""

from __future__ import annotations

import base64
import hashlib
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fomkit.core.errors import FomkitError, install_hint
from fomkit.profiles.locate import kept

if TYPE_CHECKING:
    import altair as alt


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

    `key`: names it on the page.
    `says`: what a reader who does not see it should know.
    `chart`: Vega-Lite.
    `caption`: what a reader who sees it should know.
    `table`: its numbers; None where another table of the page has them.
    `finds`: key of the table in which an op that is clicked is looked up; "" for none.
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

    `index`: one row per chapter, where there are several.
    `merits`, `notes`: figures of merit; what is to be said of all.
    `aside`: lines in columns: what measurements of the baseline tell; "" where there are none.
    `made_by`: program, version and time.
    """

    title: str
    chapters: tuple[Chapter, ...]
    made_by: str
    index: Table | None = None
    merits: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    aside: str = ""


def check_plotting(where: str, *more: str) -> None:
    """Raise unless the plotting library is installed, and ``more``; better before the work than after it."""
    from importlib.util import find_spec

    absent = [name for name in ("altair", *more) if find_spec(name) is None]
    if absent:
        raise FomkitError(where, f"needs {', '.join(absent)}, not installed here. Run: {install_hint('report')}")


SCALE = 2.0
"""Points of a PNG for each of the drawing."""


class _Harmless(json.JSONEncoder):
    """Names of strangers stand inside a script element, which ``</script>`` would end."""

    def encode(self, o: object) -> str:
        return super().encode(o).replace("<", "\\u003c")


def chart_file(chart: alt.TopLevelMixin, ending: str) -> str | bytes:
    """Give the content of a chart's file: HTML that needs no network, PNG or SVG."""
    text, picture = io.StringIO(), io.BytesIO()
    if ending == ".png":
        chart.save(picture, format="png", scale_factor=SCALE)
        return picture.getvalue()
    if ending == ".svg":
        chart.save(text, format="svg")
    else:
        chart.save(text, format="html", inline=True, json_kwds={"cls": _Harmless})
    return text.getvalue()


LIBRARIES = ("itables", "jinja2", "vl_convert")
"""What a page needs beside what figures do."""


def check_libraries() -> None:
    """Raise unless all that writes a page is installed; better before the work than after it."""
    check_plotting("report", *LIBRARIES)


def safe_json(content: Any) -> str:
    r"""Write content as JSON that may stand inside a script element: no character of it ends one.

    >>> safe_json({"name": "</script><!-- x"})
    '{"name":"\\u003c/script>\\u003c!-- x"}'
    """
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


@cache
def _libraries() -> dict[str, str]:
    """Give the programs that draw figures and sort tables, as their packages carry them; it takes seconds once."""
    import altair
    import itables.options
    import vl_convert

    version = ".".join(altair.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
    bundled = partial(vl_convert.javascript_bundle, "globalThis.vegaEmbed = vegaEmbed;", vl_version=version)
    tables = Path(itables.options.dt_bundle)
    return {
        "figures": kept("figures", f"{metadata.version('vl-convert-python')}-{version}", bundled),
        "tables": tables.read_text(encoding="utf-8"),
        "table_style": tables.with_suffix(".css").read_text(encoding="utf-8"),
    }


def render_book(book: Book) -> str:
    """Write a report as one HTML file.

    The page fetches nothing: its policy forbids any request, and any script but its own, whose hash it states.
    """
    check_libraries()
    import jinja2
    from markupsafe import Markup

    loader = jinja2.PackageLoader("fomkit.output", "templates")
    environment = jinja2.Environment(
        loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    script, style = (loader.get_source(environment, name)[0] for name in ("page.js", "page.css"))
    libraries = _libraries()
    charts = {figure.key: dict(figure.chart) for chapter in book.chapters for section in chapter.sections
              for figure in section.figures}  # fmt: skip
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.get_template("page.html").render(
        book=book,
        style=Markup(style),  # noqa: S704 - ours
        table_style=Markup(libraries["table_style"].replace("</", "<\\/")),  # noqa: S704 - of the library
        script=Markup(script),  # noqa: S704 - ours
        script_hash=f"sha256-{digest}",
        data=Markup(safe_json({"charts": charts})),  # noqa: S704 - no character of it ends the element
        libraries={name: Markup(safe_json(libraries[name])) for name in ("figures", "tables")},  # noqa: S704
    )

"""A report as plain records, rendered as one self-contained HTML file; charts as files; names always stay text."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fomkit.core.errors import FomkitError, install_hint
from fomkit.profiles.locate import user_cached

if TYPE_CHECKING:
    import altair as alt


class Head(NamedTuple):
    """The head of a column: its text, whether the cells are numbers, and a longer explanation."""

    text: str
    number: bool = False
    hint: str = ""
    filtered: bool = False
    """Whether the reader can filter by the column's values, which are few."""


class Cell(NamedTuple):
    """A cell: its text, the number to sort by if it is not the text, and a longer text that is searched too."""

    text: str
    order: float | None = None
    hint: str = ""


@dataclass(frozen=True)
class Table:
    """Rows under a caption; a table with a ``key`` can be sorted and filtered."""

    caption: str
    head: tuple[Head, ...]
    rows: tuple[tuple[Cell, ...], ...]
    key: str = ""

    @property
    def choices(self) -> list[tuple[int, str, list[str]]]:
        """Return place, name and values of each column that the reader can filter by."""
        return [
            (place, head.text, sorted({row[place].text for row in self.rows}))
            for place, head in enumerate(self.head)
            if head.filtered
        ]


@dataclass(frozen=True)
class Figure:
    """A figure with a description in words, and its numbers as a table.

    `says`: description for readers who do not see the figure.
    `chart`: Vega-Lite specification.
    `caption`: explanation for readers who see the figure.
    `table`: its numbers; None where another table of the page has them.
    `finds`: key of the table in which a clicked op is looked up; "" for none.
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
    """One question and its answer; ``absent``: the reason where there is no answer."""

    key: str
    title: str
    says: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()
    lists: tuple[Listing, ...] = ()
    absent: str = ""


@dataclass(frozen=True)
class Claim:
    """The main result: a figure, its unit and interval; ``place``: the value's place from low (0) to high (1)."""

    of: str
    value: str
    unit: str
    between: str
    low: str
    high: str
    place: float | None
    bound: str


class Tile(NamedTuple):
    """One figure beside the main result."""

    name: str
    value: str
    more: str = ""


class Share(NamedTuple):
    """A share of the time by its evidence."""

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

    `index`: one row for each chapter, where there are several.
    `merits`, `notes`: figures of merit; notes about all estimates.
    `aside`: preformatted text about predictions from measurements of the baseline; "" where there are none.
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
    """Raise before the work unless the plotting library, and ``more``, are installed."""
    from importlib.util import find_spec

    absent = [name for name in ("altair", *more) if find_spec(name) is None]
    if absent:
        raise FomkitError(where, f"needs {', '.join(absent)}, not installed here. Run: {install_hint('report')}")


SCALE = 2.0
"""Pixels of a PNG for each point of the drawing."""


class _Harmless(json.JSONEncoder):
    """Escapes ``<``, because foreign names are inside a script element, which ``</script>`` would end."""

    def encode(self, o: object) -> str:
        return super().encode(o).replace("<", "\\u003c")


def chart_file(chart: alt.TopLevelMixin, ending: str) -> str | bytes:
    """Return the content of a chart's file: HTML that needs no network, PNG or SVG."""
    text, picture = io.StringIO(), io.BytesIO()
    if ending == ".png":
        chart.save(picture, format="png", scale_factor=SCALE)
        return picture.getvalue()
    if ending == ".svg":
        chart.save(text, format="svg")
    else:
        chart.save(text, format="html", inline=True, json_kwds={"cls": _Harmless})
    return text.getvalue()


def check_libraries() -> None:
    """Raise before the work unless all libraries that a page needs are installed."""
    check_plotting("report", "itables", "jinja2", "vl_convert")


def safe_json(content: Any) -> str:
    r"""Format content as JSON that is safe inside a script element: no character of it ends the element.

    >>> safe_json({"name": "</script><!-- x"})
    '{"name":"\\u003c/script>\\u003c!-- x"}'
    """
    return json.dumps(content, cls=_Harmless, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


@cache
def _libraries() -> dict[str, str]:
    """Return the JavaScript for figures and tables from the installed packages; the first call takes seconds."""
    import altair
    import itables.options
    import vl_convert

    version = ".".join(altair.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
    bundled = partial(vl_convert.javascript_bundle, "globalThis.vegaEmbed = vegaEmbed;", vl_version=version)
    tables = Path(itables.options.dt_bundle)
    return {
        "figures": user_cached("figures", f"{metadata.version('vl-convert-python')}-{version}", bundled),
        "tables": tables.read_text(encoding="utf-8"),
        "table_style": tables.with_suffix(".css").read_text(encoding="utf-8"),
    }


_OPTION = re.compile(r"(?<!\S)--?[A-Za-z][\w-]*")


def render_book(book: Book) -> str:
    """Render a report as one HTML file.

    The page fetches nothing: its policy forbids all requests, and all scripts but its own, whose hash it states.
    """
    check_libraries()
    import jinja2
    from markupsafe import Markup, escape

    def whole_options(text: str) -> Markup:
        """Keep a browser from breaking a command's option after its hyphens."""
        spans = _OPTION.sub(r'<span class="option">\g<0></span>', str(escape(text)))
        return Markup(spans)  # noqa: S704 - escaped above

    loader = jinja2.PackageLoader("fomkit.output", "templates")
    environment = jinja2.Environment(
        loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters["whole_options"] = whole_options
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

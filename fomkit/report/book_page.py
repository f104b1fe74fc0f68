"""A report as one HTML file that needs nothing else: records in, text out; every name stays text."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import TYPE_CHECKING, Any

from fomkit.report.book import Book
from fomkit.report.plots.ink import check_plotting

if TYPE_CHECKING:
    import jinja2

LIBRARIES = ("itables", "jinja2", "vl_convert")
"""What a page needs beside what figures do."""


def check_libraries() -> None:
    """Raise unless all that writes a page is installed; better before the work than after it.

    Raises
    ------
    FomkitError
        With the command that installs it.
    """
    check_plotting("report", *LIBRARIES)


def safe_json(content: Any) -> str:
    r"""Write content as JSON that may stand inside a script element: no character of it ends one.

    Examples
    --------
    >>> safe_json({"name": "</script><!-- x"})
    '{"name":"\\u003c/script>\\u003c!-- x"}'
    """
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


def _libraries() -> dict[str, str]:
    """Give the programs that draw figures and sort tables, as their packages carry them."""
    from pathlib import Path

    import altair
    import itables.options
    import vl_convert

    version = ".".join(altair.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
    tables = Path(itables.options.dt_bundle)
    return {
        "figures": vl_convert.javascript_bundle("globalThis.vegaEmbed = vegaEmbed;", vl_version=version),
        "tables": tables.read_text(encoding="utf-8"),
        "table_style": tables.with_suffix(".css").read_text(encoding="utf-8"),
    }


def _environment() -> jinja2.Environment:
    import jinja2

    return jinja2.Environment(
        loader=jinja2.PackageLoader("fomkit.report", "pages"), autoescape=True, trim_blocks=True,
        lstrip_blocks=True, undefined=jinja2.StrictUndefined,
    )  # fmt: skip


def _source(environment: jinja2.Environment, name: str) -> str:
    if environment.loader is None:
        return ""
    return environment.loader.get_source(environment, name)[0]


def render_book(book: Book) -> str:
    """Write a report as one HTML file.

    The page fetches nothing: its policy forbids any request, and any script but its own, whose hash it states.

    Raises
    ------
    FomkitError
        When a library that writes pages is not installed.
    """
    check_libraries()
    from markupsafe import Markup

    environment = _environment()
    script, style = _source(environment, "page.js"), _source(environment, "page.css")
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

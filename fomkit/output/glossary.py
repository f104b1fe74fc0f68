"""Pages of docs/, glossary.md and metrics.md among them, and the table of metrics as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict, cast

from fomkit.ops.kinds import KINDS
from fomkit.ops.tables import TABLES
from fomkit.ops.vocabulary import CHOICES, VOCABULARY
from fomkit.output.screen import PLAIN, Page, Screen
from fomkit.profiles.metrics import DEEP500, METRICS


def _markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]], bar: str = "\\|") -> Iterator[str]:
    """Write a table; ``bar`` is how a bar inside a cell stands in it."""
    yield f"| {' | '.join(header)} |"
    yield f"|{'---|' * len(header)}"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', bar) for cell in row)} |"


def fill_page(name: str, **parts: Iterable[str]) -> str:
    """Make a page of docs/ of its template and the lines of its parts."""
    template = Path(__file__).with_name("templates") / f"{name}.md"
    return template.read_text(encoding="utf-8").format(**{of: "\n".join(lines) for of, lines in parts.items()})


def _code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _terms() -> Iterator[str]:
    for about, words in VOCABULARY.items():
        yield f"\n### {about}\n"
        yield from _markdown_table(("word", "meaning", "not"), ((f"**{word.word}**", *word[1:]) for word in words))


def _options() -> Iterator[str]:
    for column, meanings in CHOICES.items():
        yield f"\n### `{column}`\n"
        yield from _markdown_table(
            ("word", "meaning"), ((f"`{word}`", meaning) for word, meaning in meanings.items())
        )


def columns_by_name() -> Mapping[str, Mapping[tuple[str, str], list[str]]]:
    """Give each column's name with its units and meanings, and for each of them the tables that have it so."""
    found: dict[str, dict[tuple[str, str], list[str]]] = {}
    for table, columns in TABLES.items():
        for column in columns:
            found.setdefault(column.name, {}).setdefault((column.unit, column.doc), []).append(table)
    return dict(sorted(found.items()))


def glossary_page() -> str:
    """Give docs/glossary.md."""
    columns = (
        (f"`{name}`", unit or "–", doc, ", ".join(tables))
        for name, meanings in columns_by_name().items()
        for (unit, doc), tables in meanings.items()
    )
    kinds = ((f"`{name}`", _code(kind.dimensions), _code(kind.optional)) for name, kind in KINDS.items())
    headings = (
        (metric.title, f"`{metric.name}`", metric.unit, metric.doc)
        for metric in sorted(METRICS, key=lambda metric: (metric.title.lower(), metric.name))
    )
    return fill_page(
        "glossary", words=_terms(), choices=_options(),
        columns=_markdown_table(("column", "unit", "meaning", "tables"), columns),
        kinds=_markdown_table(("kind", "needs", "may have"), kinds),
        headings=_markdown_table(("heading", "figure", "unit", "meaning"), headings),
    )  # fmt: skip


_HEADERS = ("figure", "unit", "level", "better", "mean", "by", "what")


ListedMetric = TypedDict("ListedMetric", {
    "name": str, "title": str, "unit": str, "level": str, "better": str, "mean": str, "by": list[str], "doc": str,
    "keyed": str,
})  # fmt: skip
OfDeep500 = TypedDict("OfDeep500", {"column": str, "what": str, "ours": tuple[str, ...], "absent": str})
MetricsContent = TypedDict("MetricsContent", {"schema": str, "metrics": list[ListedMetric],
                                              "deep500": list[OfDeep500]})  # fmt: skip


def metrics_content() -> MetricsContent:
    """Give the table as plain content (``fomkit/show/1``)."""
    return {
        "schema": "fomkit/show/1",
        "metrics": [cast("ListedMetric", {**one._asdict(), "by": one.by.split()}) for one in METRICS],
        "deep500": [cast("OfDeep500", one._asdict()) for one in DEEP500],
    }


def format_metrics(content: dict[str, Any], screen: Screen = PLAIN) -> str:
    """Write the table as aligned text, then what Deep500 has and fomkit has not."""
    page = Page(screen)
    rows = (
        [*(metric[key] for key in ("name", "unit", "level", "better", "mean")), ", ".join(metric["by"]),
         "; by ".join(filter(None, (metric["doc"], metric["keyed"])))]
        for metric in content["metrics"]
    )  # fmt: skip
    page.rows(_HEADERS, rows)
    for one in content["deep500"]:
        if one["absent"]:
            page.line(f"absent, of Deep500's metrics: {one['what']}: {one['absent']}")
    return page.text()


def metrics_page() -> str:
    """Give docs/metrics.md."""
    header = ("figure", "unit", "level", "better", "mean", "by", "keys", "what")
    metrics = (
        (f"`{one.name}`", one.unit, one.level, one.better, one.mean, _code(one.by.split()), one.keyed, one.doc)
        for one in METRICS
    )
    given = ((one.column, one.what, _code(one.ours) or f"absent: {one.absent}") for one in DEEP500)
    tables = _markdown_table(header, metrics, bar="|"), _markdown_table(("column", "what", "here"), given)
    return fill_page("metrics", metrics=tables[0], compared=tables[1])

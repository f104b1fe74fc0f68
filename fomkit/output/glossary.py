"""The pages docs/glossary.md and docs/metrics.md, and the table of metrics as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from fomkit.ops.kinds import KINDS
from fomkit.ops.tables import TABLES
from fomkit.ops.vocabulary import CHOICES, VOCABULARY
from fomkit.output.screen import PLAIN, Page, Screen
from fomkit.profiles.metrics import DEEP500, METRICS

_GLOSSARY_PAGE = """# Glossary

Written by `python -m fomkit.cli.pages glossary` from `fomkit/ops/` (words, tables, kinds) and
`fomkit/profiles/metrics.csv` (headings); a test compares. One word has one meaning: in the code, in files, in
tables and on pages.
"""
_WORDS = """Each word, and what it is not to be taken for."""
_CHOICES = """What stands in columns that hold one of a few words."""
_COLUMNS = """The columns of all tables: in CSV files, in the DataFrames of the Python interface and in formulas. A
unit of – is a plain count or text. Which of them a file needs: [profiles.md](profiles.md)."""
_KINDS = """The dimensions of each kind of op; those of the third column may be empty."""
_HEADINGS = """What the printed tables call the figures; their full names, means and commands are in
[metrics.md](metrics.md)."""


def _table(header: Sequence[str], rows: Iterable[Sequence[str]], bar: str = "\\|") -> Iterator[str]:
    """Write a table; ``bar`` is how a bar inside a cell stands in it."""
    yield f"| {' | '.join(header)} |"
    yield f"|{'---|' * len(header)}"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', bar) for cell in row)} |"


def _code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _words() -> Iterator[str]:
    for about, words in VOCABULARY.items():
        yield f"\n### {about}\n"
        yield from _table(("word", "meaning", "not"), ((f"**{word.word}**", *word[1:]) for word in words))


def _choices() -> Iterator[str]:
    for column, meanings in CHOICES.items():
        yield f"\n### `{column}`\n"
        yield from _table(("word", "meaning"), ((f"`{word}`", meaning) for word, meaning in meanings.items()))


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
    parts = [
        _GLOSSARY_PAGE, "## Words\n", _WORDS, *_words(), "\n## Choices\n", _CHOICES, *_choices(),
        "\n## Columns\n", _COLUMNS, "", *_table(("column", "unit", "meaning", "tables"), columns),
        "\n## Kinds\n", _KINDS, "", *_table(("kind", "needs", "may have"), kinds),
        "\n## Headings\n", _HEADINGS, "", *_table(("heading", "figure", "unit", "meaning"), headings),
    ]  # fmt: skip
    return "\n".join(parts) + "\n"


_HEADERS = ("figure", "unit", "level", "better", "mean", "by", "what")
_METRICS_PAGE = """# Metrics

Written by `python -m fomkit.cli.pages metrics` from `fomkit/profiles/metrics.csv`; a test compares, and another
walks the JSON of the commands: every figure in it has a row here. `fomkit show --metrics` prints the
same.

A figure is named by the end of its place in the JSON output (`--json`, and the columns of CSV files), lists
left out; `*` stands for a name in between, *keys* are what its values are told apart by. A value with its ends
`low` and `high` is one figure. `count`, `ratio` and `share` are plain numbers; `mixed` is the unit of whatever
the figure speaks of.

The mean is the one that may be taken over several values of a figure: of times the arithmetic, of rates the
harmonic, of ratios the geometric, or none (Smith, CACM 31(10), 1988; Fleming and Wallace, CACM 29(3), 1986). A
suite's figure of merit is the ratio of harmonic mean rates; the other means of its ratios are told beside it
and not to be averaged.

The levels are those of Deep500 (Ben-Nun et al., "A Modular Benchmarking Infrastructure for High-Performance and
Reproducible Deep Learning", IPDPS 2019): operators (0), networks (1), training (2), distributed training (3).
What a whole machine does is `system`. No figure is of the level `distributed` yet.
"""
_DEEP500 = """
## Deep500's metrics

The metrics by which Table II of that paper compares benchmarks, and what gives them here. Its other columns
(closed, open, infrastructure, operators, and the fields of application) say what a benchmark contains, which is
no figure. The columns were written down after the paper; they could not be compared with its print here.
"""


def metrics_content() -> dict[str, Any]:
    """Give the table as plain content (``fomkit/show/1``)."""
    return {
        "schema": "fomkit/show/1",
        "metrics": [{**metric._asdict(), "by": metric.by.split()} for metric in METRICS],
        "deep500": [one._asdict() for one in DEEP500],
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
    compared = _table(("column", "what", "here"), given)
    parts = [_METRICS_PAGE, *_table(header, metrics, bar="|"), _DEEP500, *compared]
    return "\n".join(parts) + "\n"

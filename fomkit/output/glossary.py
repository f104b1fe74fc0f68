"""The page docs/glossary.md: the words, columns, kinds and printed headings, from the schema and the metrics.

The table of metrics for people: as a printed table, and as the page docs/metrics.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fomkit.core.figure import DEEP500
from fomkit.core.figure_table import METRICS
from fomkit.ops.kinds import KINDS
from fomkit.ops.tables import TABLES
from fomkit.ops.vocabulary import CHOICES, VOCABULARY
from fomkit.output.screen import PLAIN, Page, Screen, new_table

_GLOSSARY_PAGE = """# Glossary

Written by `python -m fomkit.cli.pages glossary` from `fomkit/ops/` (words, tables, kinds) and `fomkit/core/`
(headings); a test compares. One word has one meaning: in the code, in files, in tables and on pages.
"""
_WORDS = """Each word, and what it is not to be taken for."""
_CHOICES = """What stands in columns that hold one of a few words."""
_COLUMNS = """The columns of all tables: in CSV files, in the DataFrames of the Python interface and in formulas. A
unit of – is a plain count or text. Which of them a file needs: [profiles.md](profiles.md)."""
_KINDS = """The dimensions of each kind of op; those of the third column may be empty."""
_HEADINGS = """What the printed tables call the figures; their full names, means and commands are in
[metrics.md](metrics.md)."""


def _table(header: Sequence[str], rows: Iterator[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(header)} |"
    yield f"|{'---|' * len(header)}"
    for row in rows:
        cells = [cell.replace("|", "\\|") for cell in row]
        yield f"| {' | '.join(cells)} |"


def _code(names: Sequence[str]) -> str:
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


def _columns() -> Iterator[tuple[str, ...]]:
    for name, meanings in columns_by_name().items():
        for (unit, doc), tables in meanings.items():
            yield f"`{name}`", unit or "–", doc, ", ".join(tables)


def _kinds() -> Iterator[tuple[str, ...]]:
    for name, kind in KINDS.items():
        yield f"`{name}`", _code(kind.dimensions), _code(kind.optional)


def _headings() -> Iterator[tuple[str, ...]]:
    for metric in sorted(METRICS, key=lambda metric: (metric.title.lower(), metric.name)):
        yield metric.title, f"`{metric.name}`", metric.unit, metric.doc


def glossary_page() -> str:
    """Give docs/glossary.md."""
    parts = [
        _GLOSSARY_PAGE,
        "## Words\n",
        _WORDS,
        *_words(),
        "\n## Choices\n",
        _CHOICES,
        *_choices(),
        "\n## Columns\n",
        _COLUMNS,
        "",
        *_table(("column", "unit", "meaning", "tables"), _columns()),
        "\n## Kinds\n",
        _KINDS,
        "",
        *_table(("kind", "needs", "may have"), _kinds()),
        "\n## Headings\n",
        _HEADINGS,
        "",
        *_table(("heading", "figure", "unit", "meaning"), _headings()),
    ]
    return "\n".join(parts) + "\n"


_HEADERS = ("figure", "unit", "level", "better", "mean", "by", "what")
_METRICS_PAGE = """# Metrics

Written by `python -m fomkit.cli.pages metrics` from `fomkit/core/figure_table.py`; a test compares, and another
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
    table = new_table([(header, "") for header in _HEADERS])
    for metric in content["metrics"]:
        keyed = f"; by {metric['keyed']}" if metric["keyed"] else ""
        commands = ", ".join(metric["by"])
        table.add_row(
            metric["name"],
            metric["unit"],
            metric["level"],
            metric["better"],
            metric["mean"],
            commands,
            f"{metric['doc']}{keyed}",
        )
    page.table(table)
    for one in content["deep500"]:
        if one["absent"]:
            page.line(f"absent, of Deep500's metrics: {one['what']}: {one['absent']}")
    return page.text()


def _lines() -> Iterator[str]:
    yield "| figure | unit | level | better | mean | by | keys | what |"
    yield "|---|---|---|---|---|---|---|---|"
    for metric in METRICS:
        commands = ", ".join(f"`{verb}`" for verb in metric.by.split())
        yield (
            f"| `{metric.name}` | {metric.unit} | {metric.level} | {metric.better} | {metric.mean} | {commands} | "
            f"{metric.keyed} | {metric.doc} |"
        )


def metrics_page() -> str:
    """Give docs/metrics.md."""
    given = [
        f"| {one.column} | {one.what} | {', '.join(f'`{name}`' for name in one.ours) or f'absent: {one.absent}'} |"
        for one in DEEP500
    ]
    columns = ["| column | what | here |", "|---|---|---|", *given]
    return "\n".join([_METRICS_PAGE, *_lines(), _DEEP500, *columns]) + "\n"

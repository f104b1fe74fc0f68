"""The page docs/glossary.md: the words, columns, kinds and printed headings, from the schema and the metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from fomkit.metrics import METRICS
from fomkit.schema import CHOICES, KIND_DIMENSIONS, OPTIONAL_DIMENSIONS, TABLES, VOCABULARY

_PAGE = """# Glossary

Written by `python -m fomkit.cli.glossary_page` from `fomkit/schema/` (words, tables, kinds) and `fomkit/metrics/`
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
        yield from _table(("word", "meaning", "not"), ((f"**{one.word}**", *one[1:]) for one in words))


def _choices() -> Iterator[str]:
    for column, meanings in CHOICES.items():
        yield f"\n### `{column}`\n"
        yield from _table(("word", "meaning"), ((f"`{word}`", said) for word, said in meanings.items()))


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
    for kind, names in KIND_DIMENSIONS.items():
        yield f"`{kind}`", _code(names), _code(OPTIONAL_DIMENSIONS.get(kind, ()))


def _headings() -> Iterator[tuple[str, ...]]:
    for one in sorted(METRICS, key=lambda one: (one.title.lower(), one.name)):
        yield one.title, f"`{one.name}`", one.unit, one.doc


def glossary_page() -> str:
    """Give docs/glossary.md."""
    parts = [
        _PAGE,
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

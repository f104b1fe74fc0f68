"""Find the figures of a command's JSON that the table of metrics lacks, and violations of its schema."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from docs.generate import find_metric


def figures(content: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of each number, without list indices; a value and its interval are one figure."""
    if isinstance(content, dict):
        has_value = "value" in content
        for key, value in content.items():
            yield from figures(value, path if has_value and key in ("value", "low", "high") else (*path, key))
    elif isinstance(content, list):
        for one in content:
            yield from figures(one, path)
    elif isinstance(content, int | float) and not isinstance(content, bool):
        yield path


def sorted_out(content: Any, verb: str) -> tuple[set[str], set[str]]:
    """Return the names of the metrics in a command's output, and the figures that are no metrics."""
    found = {path: find_metric(path, verb) for path in dict.fromkeys(figures(content))}
    known = {metric.name for metric in found.values() if metric is not None}
    return known, {f"{verb}: {'.'.join(path)}" for path, metric in found.items() if metric is None}


def schema_of(name: str) -> dict[str, Any]:
    """Return a schema of docs/schema/."""
    path = Path(__file__).resolve().parent.parent / "docs" / "schema" / f"{name}.json"
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def wrong_by_schema(content: dict[str, Any]) -> list[str]:
    """Return the violations of some content against its own schema."""
    found = Draft202012Validator(schema_of(content["schema"].split("/")[1])).iter_errors(content)
    return [f"{list(one.absolute_path)}: {one.message[:200]}" for one in found]

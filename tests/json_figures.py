"""The figures of a command's JSON, and those of them that the table of metrics does not know."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fomkit.core.find_figure import find_metric


def figures(content: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Give the place of each number, lists left out; a value and its ends are one figure."""
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
    """Give the names of the metrics in a command's output, and the figures that are none."""
    found = {path: find_metric(path, verb) for path in dict.fromkeys(figures(content))}
    known = {metric.name for metric in found.values() if metric is not None}
    return known, {f"{verb}: {'.'.join(path)}" for path, metric in found.items() if metric is None}

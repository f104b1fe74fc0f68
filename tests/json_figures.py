"""The figures of a command's JSON, and those of them that the table of metrics does not know."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fomkit.core.figure import Metric
from fomkit.core.figure_table import METRICS


def find_metric(path: Sequence[str], command: str) -> Metric | None:
    """Find what a figure of a command's output is.

    `path`: its place in the JSON output, lists and the ends of a span left out; `command`: the verb. Gives a
    Metric or None: the one with the longest name that fits; None where the figure is not in the table.

    Examples
    --------
    >>> find_metric(["models", "terms", "passes_s", "forward"], "estimate").unit
    's'
    >>> find_metric(["models", "lucky_number"], "estimate")
    """
    fitting = [metric for metric in METRICS if command in metric.by.split() and _fits(metric, path)]
    return max(fitting, key=lambda one: one.name.count("."), default=None)


def _fits(metric: Metric, path: Sequence[str]) -> bool:
    names = metric.name.split(".")
    keys = len(metric.keyed.split(", ")) if metric.keyed else 0
    for depth in range(keys + 1):
        end = list(path[: len(path) - depth])[-len(names) :]
        if len(end) == len(names) and all(a in ("*", b) for a, b in zip(names, end, strict=True)):
            return True
    return False


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

"""The figures that fomkit gives: name, unit, level, which way is better, which mean, which command."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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


def title_of(name: str) -> str:
    """Give what a printed table calls a figure.

    Examples
    --------
    >>> title_of("unit_per_day")
    'units/day'
    """
    return next(metric.title for metric in METRICS if metric.name == name)


def upper_bounds(excludes: Iterable[str], of: str = "units/day") -> str:
    """Say what figures are because of terms that nobody stated; "" without such terms.

    Examples
    --------
    >>> upper_bounds(["input", "start_up"])
    'units/day are upper bounds, nobody stated: input, start_up'
    """
    terms = ", ".join(excludes)
    return f"{of} are upper bounds, nobody stated: {terms}" if terms else ""

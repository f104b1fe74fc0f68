"""What the public comparisons gave, as text: aims first, then every line beside its peers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fomkit.quantities import BINARY, format_number, format_quantity
from fomkit.report.screen import PLAIN, Page, Screen, figure
from fomkit.report.whole_numbers import table_of_numbers

Entry = Mapping[str, Any]
_LINE = (
    ("machine", ""), ("what", ""), figure("cases"), figure("median"), figure("mean"), figure("bias"),
    figure("lines.total"), figure("hit_rate"), figure("interval_score"), figure("constant_score"),
    figure("half_width"), ("peers: median (mean)", ""),
)  # fmt: skip
_AIM = (
    ("comparison", ""), ("machine", ""), ("what", ""), ("figure", ""), figure("aims"), figure("aims.target"),
    figure("aims.tolerance"), ("", ""),
)  # fmt: skip
_FACTORS = ("half_width",)
_PUBLISHED = (
    ("model", ""), ("technique", ""), figure("published"), figure("published.projected"), figure("interval"),
    figure("error"),
)  # fmt: skip
_WHAT = {"s": "step", "byte": "activations", "share": "activations"}
_LEVELS = {"op": "single ops", "model": "whole models", "ratio": "ratios of two machines"}


def _percent(value: float | None, digits: int = 1) -> str:
    return "" if value is None else f"{100 * value:.{digits}f} %"


def _signed(value: float | None) -> str:
    return "" if value is None else f"{100 * value:+.1f} %"


def _peers(peers: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {100 * median:.0f} ({100 * mean:.1f})" for name, (median, mean) in peers.items())


def _line(line: Entry) -> list[str]:
    constant = line["constant_score"]
    return [
        line["machine"],
        line["what"],
        f"{line['cases']:,}",
        _percent(line["median"]),
        _percent(line["mean"]),
        _signed(line["bias"]),
        _signed(line["total"]),
        _percent(line["hit_rate"], 0),
        f"{line['interval_score']:.2f}",
        "" if constant is None else f"{constant:.2f}",
        f"×{line['half_width']:.2f}",
        _peers(line["peers"]),
    ]


def _figure(value: float | None, figure: str) -> str:
    if value is None:
        return "unknown"
    return f"×{value:.3g}" if figure in _FACTORS else _percent(value)


def _range(ends: tuple[float, float], figure: str) -> str:
    least, most = ends
    if most >= 1.0 and figure not in _FACTORS:
        return f"≥ {_figure(least, figure)}"
    if least <= (1.0 if figure in _FACTORS else 0.0):
        return f"≤ {_figure(most, figure)}"
    return f"{_figure(least, figure)} to {_figure(most, figure)}"


def _verdict(aim: Entry) -> str:
    if not aim["kept"]:
        return "REGRESSED"
    return "met" if aim["met"] else "missed"


def _add_aims(page: Page, aims: list[Entry]) -> None:
    met, kept = (sum(bool(aim[name]) for aim in aims) for name in ("met", "kept"))
    page.line(f"Aims: {met} of {len(aims)} targets met; {len(aims) - kept} past their tolerance.", "bold")
    table = table_of_numbers(_AIM)
    for aim in aims:
        figure = aim["figure"]
        values = _figure(aim["value"], figure), _range(aim["target"], figure), _range(aim["tolerance"], figure)
        words = [aim["comparison"], aim["machine"], aim["what"], figure.replace("_", " ")]
        table.add_row(*words, *values, _verdict(aim), style="" if aim["met"] else "bold")
    page.table(table)


def _sections(lines: Iterable[Entry]) -> dict[tuple[str, str], list[Entry]]:
    found: dict[tuple[str, str], list[Entry]] = {}
    for line in lines:
        found.setdefault((line["comparison"], line["level"]), []).append(line)
    return found


def _value(value: float, unit: str) -> str:
    if unit == "s":
        return format_quantity(value, "time_s")
    return f"{100 * value:.2f} %" if unit == "share" else f"{format_number(value / BINARY['Gi'])} GiB"


def _interval(span: Mapping[str, float], unit: str) -> str:
    if span["low"] == span["high"]:
        return ""
    return f"{_value(span['low'], unit)} to {_value(span['high'], unit)}"


def add_published(page: Page, entries: Iterable[Entry]) -> None:
    """Add the table of all, and where the published figures are from."""
    known = list(entries)
    page.line("Megatron-LM as published: steps and activations of many devices", "bold")
    table = table_of_numbers(_PUBLISHED)
    for one in known:
        unit, span = one["unit"], one["projected"]
        table.add_row(
            f"{one['model']}, {_WHAT[unit]}", one["technique"], _value(one["published"], unit),
            _value(span["value"], unit), _interval(span, unit), f"{one['error']:+.1%}",
        )  # fmt: skip
    page.table(table)
    page.line(f"published: {'; '.join(dict.fromkeys(one['source'] for one in known))}")


def format_validation(content: Entry, screen: Screen = PLAIN) -> str:
    """Write ``fomkit/validate/1`` as text.

    Errors are absolute ones as shares of the measured value; bias is the mean signed error and total that of the
    sum (of ratios: of their geometric mean), above 0 where the prediction is too long; hits is the share of
    intervals that hold the truth; score is the mean interval score of log values, constant that of one band.
    """
    page = Page(screen)
    _add_aims(page, content["aims"])
    for (comparison, level), lines in _sections(content["lines"]).items():
        page.line("")
        page.line(f"{comparison}: {_LEVELS[level]}", "bold")
        table = table_of_numbers(_LINE)
        peers = table.columns[-1]
        peers.no_wrap, peers.overflow = False, "fold"
        for line in lines:
            table.add_row(*_line(line))
        page.table(table)
    page.line("")
    add_published(page, content["published"])
    page.line("")
    for said in content["said"]:
        page.line(said)
    page.line(f"Intervals of {content['interval']:.0%}. Not scored:")
    for one in content["not_scored"]:
        page.line(f"  {one['what']}: {one['count']:,}, {one['reason']}")
    return page.text()

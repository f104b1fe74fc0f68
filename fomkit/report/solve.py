"""The smallest changes that reach a goal, for people (``fomkit/solve/1``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fomkit.metrics import title_of
from fomkit.report.screen import PLAIN, Page, Screen, figure, new_table
from fomkit.report.sensitivity import DIMENSIONS, bound_line, format_figure, format_setting, title_line
from fomkit.report.terminal import format_interval

Entry = Mapping[str, Any]
POINTS = 12
"""Combinations that are printed."""


def _factor(value: float) -> str:
    """Write a factor with as many digits as tell it from 1.

    Examples
    --------
    >>> _factor(1.00012), _factor(2.0), _factor(0.25)
    ('1.00012 ×', '2.000 ×', '0.250 ×')
    """
    return f"{value:.3f} ×" if abs(value - 1) >= 0.001 else f"{value:.6g} ×"


def _probability(value: float) -> str:
    return ">99.9%" if 0.999 < value < 1 else "<0.1%" if 0 < value < 0.001 else f"{value:.1%}"


def _asked(content: Entry) -> str:
    goal, name = content["goal"], content["figure"]
    bound = "at most" if goal["at_most"] else "at least"
    return f"{title_of(name)} {bound} {format_figure(goal['asked'], name)}, probability {goal['probability']:g}"


def _changes(content: Entry, page: Page) -> None:
    name = content["figure"]
    table = new_table(
        [("change alone", ""), figure("setting"), figure("needed"), figure("changes.factor"), figure("then"),
         ("interval", ""), figure("changes.probability"), ("", "")]
    )  # fmt: skip
    for one in content["changes"]:
        unit = one["unit"]
        missed = "cannot" if one["proved"] else "not found"
        needed = format_setting(one["needed"], unit, 4) if one["reached"] else missed
        unfit = "does not fit" if one["reached"] and one["does_not_fit"] else ""
        table.add_row(
            one["parameter"], format_setting(one["setting"], unit), needed,
            _factor(one["factor"]) if one["reached"] else "", format_figure(one["then"]["value"], name),
            format_interval(one["then"], DIMENSIONS.get(name)), _probability(one["probability"]),
            one["why"] or unfit, style="" if one["reached"] else "dim",
        )  # fmt: skip
    page.table(table)
    for one in content["changes"]:
        if one["reached"] and one["does_not_fit"]:
            page.line(f"{one['parameter']} {format_setting(one['needed'], one['unit'])}: {one['does_not_fit']}")


def _frontier(content: Entry, page: Page) -> None:
    found = content["frontier"]
    names = found["parameters"]
    page.line("")
    page.line(f"together: {', '.join(names)}; the least sum of |ln(factor)| first", "bold")
    if not found["reached"]:
        page.line(f"cannot reach it: {found['why']}")
        return
    name = content["figure"]
    heads = [(one, "") for one in names]
    table = new_table([*heads, figure("total"), figure("then"), ("interval", ""), figure("changes.probability")])
    for one in found["points"][:POINTS]:
        table.add_row(
            *(f"{_factor(one['factors'][parameter])}" for parameter in names), f"{one['total']:.3f}",
            format_figure(one["then"]["value"], name), format_interval(one["then"], DIMENSIONS.get(name)),
            _probability(one["probability"]),
        )  # fmt: skip
    page.table(table)
    if len(found["points"]) > POINTS:
        page.line(f"and {len(found['points']) - POINTS} more; --json has all")


def _with_notes(content: Entry, page: Page) -> str:
    for said in content["notes"]:
        page.line(f"note: {said}", "yellow")
    return page.text()


def format_solution(content: Entry, screen: Screen = PLAIN) -> str:
    """Write ``fomkit/solve/1``."""
    page = Page(screen)
    page.line(title_line(content), "bold")
    now = f"now {_probability(content['probability'])}"
    if content["already_reached"]:
        page.line(f"asked: {_asked(content)}; {now}: already reached, nothing must change")
        page.line(bound_line(content))
        return _with_notes(content, page)
    verdict = "" if content["reached"] else "; nothing that was tried reaches it"
    page.line(f"asked: {_asked(content)}; {now}{verdict}")
    if content["changes"]:
        _changes(content, page)
    refused: dict[str, list[str]] = {}
    for one in content["refused"]:
        refused.setdefault(one["why"], []).append(one["parameter"])
    for why, names in refused.items():
        page.line(f"not tried: {', '.join(names)}: {why}")
    if content["frontier"] is not None:
        _frontier(content, page)
    page.line(bound_line(content))
    page.line(
        f"no parameter is changed by more than {content['most_factor']:g} times; {'; '.join(content['assumed'])}"
    )
    return _with_notes(content, page)

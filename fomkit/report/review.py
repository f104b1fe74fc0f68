"""A review of a returned workbook as text: each change with its effect, all together, what to talk about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fomkit.quantities import format_number
from fomkit.report.screen import PLAIN, Page, Screen

_SHOWN = 6
"""Effects of one change that are shown; --json has them all."""


def _figure(entry: object) -> str:
    return f"{entry:.6g}" if isinstance(entry, float) else str(entry)


def _effects(effects: Sequence[Mapping[str, Any]] | None, why_not: str) -> str:
    if effects is None:
        return f"cannot be computed: {why_not}"
    if not effects:
        return "moves nothing"
    largest = sorted(effects, key=lambda one: (not one["figure"].startswith("FOM"), -abs(one["change"])))
    said = [
        f"{one['figure']} {format_number(one['old'])} → {format_number(one['new'])} ({one['change']:+.2%})"
        for one in largest[:_SHOWN]
    ]
    more = [f"and {len(largest) - _SHOWN} more"] if len(largest) > _SHOWN else []
    return "; ".join([*said, *more])


def format_review(content: Mapping[str, Any], screen: Screen = PLAIN) -> str:
    """Write a review."""
    page, changed, findings = Page(screen), content["changes"], content["findings"]
    counts = f"{len(changed)} changed inputs, {len(findings)} findings"
    page.line(f"{content['workbook']} against {content['issued']}: {counts}", "bold")
    for one in changed:
        page.line(
            f"{one['where']}: {one['what']}: {_figure(one['old'])} → {_figure(one['new'])} {one['unit']}".rstrip()
        )
        ground = f"basis {one['basis'] or 'not said'}, party {one['party'] or 'not said'}"
        page.line(f"  {ground}; {one['source']}" if one["source"] else f"  {ground}")
        if one["alone"] is not None or one["not_computed"]:
            page.line(f"  alone: {_effects(one['alone'], one['not_computed'])}")
    if changed:
        page.line(f"all together: {_effects(content['together'], content['not_computed'])}", "bold")
    for finding in findings:
        page.line(f"to talk about: {finding['where']} ({finding['kind']}): {finding['said']}", "yellow")
    return page.text()

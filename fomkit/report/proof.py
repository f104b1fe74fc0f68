"""A proof on the machine at hand as text: ten models, ratios, aims, and what it took."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fomkit.report.measured import energy_text
from fomkit.report.screen import PLAIN, Page, Screen
from fomkit.report.whole_numbers import table_of_numbers

Entry = Mapping[str, Any]
_RIGHT = "right"
_MODELS = (
    ("model", ""), ("timed [ms]", _RIGHT), ("±", _RIGHT), ("drift", _RIGHT), ("exact [ms]", _RIGHT),
    ("error", _RIGHT), ("hit", ""), ("score", _RIGHT), ("unseen [ms]", _RIGHT), ("error", _RIGHT), ("hit", ""),
    ("score", _RIGHT),
)  # fmt: skip
_RATIOS = (("model", ""), ("over", _RIGHT), ("timed", _RIGHT), ("projected", _RIGHT), ("error", _RIGHT))


def _signed(value: float) -> str:
    return f"{100 * value:+.1f} %"


def _share(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f} %"


def _estimate(one: Entry) -> list[str]:
    value, low, high = (1e3 * one[name] for name in ("value_s", "low_s", "high_s"))
    return [f"{value:.3g} [{low:.3g}, {high:.3g}]", _signed(one["error"]), "yes" if one["hit"] else "no",
            f"{one['interval_score']:.2f}"]  # fmt: skip


def _models(content: Entry, page: Page) -> None:
    table = table_of_numbers(_MODELS)
    for one in content["models"]:
        told = [one["model"], f"{1e3 * one['timed_s']:.3g}", _share(one["half_width"]), _signed(one["drift"])]
        table.add_row(*told, *_estimate(one["exact"]), *_estimate(one["unseen"]))
    page.table(table)


def _ratios(content: Entry, page: Page) -> None:
    page.line("")
    page.line("The step on one thread, as it is, over another way, as two machines:", "bold")
    table = table_of_numbers(_RATIOS)
    for one in content["ratios"]:
        other = one["precision"] or f"{one['threads']} threads"
        table.add_row(one["model"], other, f"{one['timed']:.2f}", f"{one['projected']:.2f}",
                      _signed(one["error"]))  # fmt: skip
    page.table(table)


def _verdict(aim: Entry) -> str:
    if not aim["kept"]:
        return "PAST ITS TOLERANCE"
    return "met" if aim["met"] else "missed"


def format_proof(content: Entry, screen: Screen = PLAIN) -> str:
    """Write ``fomkit/here/1`` as text.

    ± is half the 95 % interval of the median of the timed steps, drift how much longer they took after everything
    else was measured. Exact: the profile has these very ops; unseen: it has none of their shapes. Errors are those
    of the estimate over the timed step; score is the interval score of log values.
    """
    page = Page(screen)
    page.line("Steps of models, timed here and estimated on the profile measured here:", "bold")
    _models(content, page)
    for line in content["lines"]:
        page.line(
            f"{line['comparison']}: median error {_share(line['median'])}, bias {_signed(line['bias'])}, "
            f"{line['hit_rate']:.0%} of {line['cases']} intervals of {content['interval']:.0%} hold the step, "
            f"interval score {line['interval_score']:.2f}"
        )
    if content["ratios"]:
        _ratios(content, page)
    for one in content["models"]:
        if one["energy"] is not None:
            page.line(f"energy of {one['model']}: {energy_text(one['energy'])}")
    page.line("")
    for aim in content["aims"]:
        page.line(
            f"{aim['comparison']}: median error {_share(aim['value'])}, target {_share(aim['target'][1])}, "
            f"tolerance {_share(aim['tolerance'][1])}: {_verdict(aim)}"
        )
    page.line("")
    page.line("Wall time: " + ", ".join(f"{name} {time_s:.0f} s" for name, time_s in content["seconds"].items()))
    for one in content["skipped"]:
        page.line(f"left out: {one['what']}, {one['reason']}")
    for note in content["notes"]:
        page.line(note)
    return page.text()

"""Projected beside measured as aligned text, and the grid of rates.

A proof on the machine at hand as text: ten models, ratios, aims, and what it took.

What the public comparisons gave, as text: aims first, then every line beside its peers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fomkit.core.figure_table import upper_bounds
from fomkit.core.units import BINARY, format_number, format_quantity
from fomkit.output.estimates import energy_text
from fomkit.output.screen import PLAIN, Page, Screen, figure, new_table, table_of_numbers
from fomkit.output.terminal import UNFIT, format_interval, mark_of

_LEGEND = (
    "claim: absolute = the device explains a third or more, so its time may be compared; ratio = only its ratio "
    "to the baseline; start-up bound, host bound = the time is not the device's; unexplained = nothing says why",
    "agrees: inside the interval; ambiguous = outside it, but in that of 95 % or by the measurement's own spread; "
    "outside. Summaries leave unexplained cells out",
)
_SUMMARIES = {
    "absolute": "cells whose time is claimed, projected over measured",
    "ratio": "cells whose ratio to the baseline is claimed",
    "calibrated": "other models after calibration on one, each on its machine",
    "with_host_term": "other machines with the host's part carried from one",
}


def _compared_figure(span: Mapping[str, float] | None, quantity: str) -> str:
    if span is None:
        return "unknown"
    if quantity == "sample_per_s":
        return f"{format_number(span['value'])}/s"
    return format_quantity(span["value"], "time_s")


def _dimension(quantity: str) -> str | None:
    return None if quantity == "sample_per_s" else "time_s"


def _ratio(cell: Mapping[str, Any]) -> tuple[str, str]:
    if cell["ratio"] is None:
        return "", ""
    projected = cell["projected_ratio"]
    measured = f"{format_number(cell['ratio'], 3)}×"
    if projected is None:
        return measured, "unknown"
    return measured, f"{format_number(projected['value'], 3)}× ({format_interval(projected, None)})"


def _cells(cell: Mapping[str, Any]) -> list[str]:
    quantity, error = cell["quantity"], cell["error"]
    measured, projected = _ratio(cell)
    return [
        cell["model"],
        cell["machine"],
        _compared_figure(cell["measured"], quantity) if cell["basis"] == "measured" else
        f"[{_compared_figure(cell['measured'], quantity)}]",
        _compared_figure(cell["projected"], quantity),
        format_interval(cell["projected"], _dimension(quantity)),
        "" if error is None else f"{error:+.0%}",
        measured,
        projected,
        cell["claim"] or "none",
        cell["agrees"] or "",
        cell["cause"],
    ]  # fmt: skip


def _extended_line(cell: Mapping[str, Any], key: str) -> str:
    one, quantity = cell[key], cell["quantity"]
    inside = "inside" if one["inside"] else "outside"
    return (
        f"  {cell['model']} on {cell['machine']}: {_compared_figure(one, quantity)} "
        f"({format_interval(one, _dimension(quantity))}) by {one['told_by']}, "
        f"measured {_compared_figure(cell['measured'], quantity)}: {one['error']:+.0%}, {inside}"
    )


def format_compare(content: Mapping[str, Any], screen: Screen = PLAIN) -> str:
    """Write each cell with its claim and cause, then what was carried, then the means by name."""
    page = Page(screen)
    base = content["baseline"] or "none"
    quantities = dict.fromkeys(cell["quantity"] for cell in content["cells"])
    page.line(f"projected beside measured: {', '.join(quantities)}; ratios to {base}; [ ] = not measured")
    table = new_table(
        [("model", ""), ("machine", ""), figure("cells.measured"), figure("cells.projected"), ("interval", ""),
         figure("error"), figure("ratio"), ("projected ratio", ""), ("claim", ""), ("agrees", ""),
         ("what the time waits for", "")]
    )  # fmt: skip
    for cell in content["cells"]:
        table.add_row(*_cells(cell))
    page.table(table)
    for key, title in (
        ("calibrated", "calibrated on another model:"),
        ("with_host_term", "with a host term carried:"),
    ):
        extended = [cell for cell in content["cells"] if cell[key] is not None]
        if extended:
            page.line(title, "bold")
            for cell in extended:
                page.line(_extended_line(cell, key))
    for key, found in content["summary"].items():
        if found is not None:
            page.line(
                f"{_SUMMARIES[key]}: {found['count']}; geometric mean of measured over projected "
                f"{format_number(found['mean_factor'], 3)}, arithmetic mean of |error| {found['mean_error']:.0%}, "
                f"{found['inside']} inside"
            )
    for message in content["notes"]:
        page.line(f"note: {message}", "yellow")
    for line in _LEGEND:
        page.line(line)
    page.line(f"intervals: {content['interval']:.0%}, of {content['interval_covers']}")
    return page.text()


def _doubt(cell: Mapping[str, Any]) -> str:
    """Say beside a modelled rate how much of a measured run it explains, where that is the smaller part."""
    share = cell["explained"]
    little = "" if share is None or share >= 1 / 2 else f", the device explains {share:.1%} of a measured run"
    return mark_of(cell) + little


def format_grid(content: Mapping[str, Any], screen: Screen = PLAIN) -> str:
    """Write one row for each model and machine, one column for each framework and mode; empty cells say why."""
    page = Page(screen)
    limit = format_quantity(content["latency_limit_s"], "time_s", 3)
    page.line(f"samples per second; infer: {content['inference_is']}, {limit}")
    ways = list(dict.fromkeys((cell["framework"], cell["mode"]) for cell in content["cells"]))
    table = new_table([("model", ""), ("machine", ""), *((f"{name}, {mode}", "") for name, mode in ways)])
    rows: dict[tuple[str, str], dict[tuple[str, str], str]] = {}
    for cell in content["cells"]:
        rate = cell["sample_per_s"]
        if rate is None:
            text = f"empty: {cell['why']}"
        else:
            spread = "" if rate["low"] == rate["high"] else f" ({format_interval(rate, None)})"
            text = f"{format_number(rate['value'])}{spread}, batch {cell['batch']}, {cell['basis']}{_doubt(cell)}"
        rows.setdefault((cell["model"], cell["machine"]), {})[cell["framework"], cell["mode"]] = text
    for (model, machine), found in rows.items():
        table.add_row(
            model, machine, *(found.get(way, "empty: the profile has another framework") for way in ways)
        )
    page.table(table)
    excluded = dict.fromkeys(term for cell in content["cells"] for term in cell["excludes"])
    if excluded:
        page.line(upper_bounds(excluded, "modelled rates"))
    if any(cell["fits"] is False for cell in content["cells"]):
        page.line(f"{UNFIT} the device's memory does not hold the step: nobody can have this rate", "yellow")
    for message in content["notes"]:
        page.line(f"note: {message}", "yellow")
    page.line(f"intervals: {content['interval']:.0%}")
    return page.text()


Entry = Mapping[str, Any]
_RIGHT = "right"
_MODELS = (
    ("model", ""), ("timed [ms]", _RIGHT), ("±", _RIGHT), ("drift", _RIGHT), ("exact [ms]", _RIGHT),
    ("error", _RIGHT), ("hit", ""), ("score", _RIGHT), ("unseen [ms]", _RIGHT), ("error", _RIGHT), ("hit", ""),
    ("score", _RIGHT),
)  # fmt: skip
_RATIOS = (("model", ""), ("over", _RIGHT), ("timed", _RIGHT), ("projected", _RIGHT), ("error", _RIGHT))


def _proof_signed(value: float) -> str:
    return f"{100 * value:+.1f} %"


def _share(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f} %"


def _estimate(entry: Entry) -> list[str]:
    value, low, high = (1e3 * entry[name] for name in ("value_s", "low_s", "high_s"))
    return [f"{value:.3g} [{low:.3g}, {high:.3g}]", _proof_signed(entry["error"]), "yes" if entry["hit"] else "no",
            f"{entry['interval_score']:.2f}"]  # fmt: skip


def _models(content: Entry, page: Page) -> None:
    table = table_of_numbers(_MODELS)
    for model in content["models"]:
        cells = [
            model["model"],
            f"{1e3 * model['timed_s']:.3g}",
            _share(model["half_width"]),
            _proof_signed(model["drift"]),
        ]
        table.add_row(*cells, *_estimate(model["exact"]), *_estimate(model["unseen"]))
    page.table(table)


def _ratios(content: Entry, page: Page) -> None:
    page.line("")
    page.line("The step on one thread, as it is, over another way, as two machines:", "bold")
    table = table_of_numbers(_RATIOS)
    for ratio in content["ratios"]:
        other = ratio["precision"] or f"{ratio['threads']} threads"
        table.add_row(ratio["model"], other, f"{ratio['timed']:.2f}", f"{ratio['projected']:.2f}",
                      _proof_signed(ratio["error"]))  # fmt: skip
    page.table(table)


def _proof_verdict(aim: Entry) -> str:
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
            f"{line['comparison']}: median error {_share(line['median'])}, bias {_proof_signed(line['bias'])}, "
            f"{line['hit_rate']:.0%} of {line['cases']} intervals of {content['interval']:.0%} hold the step, "
            f"interval score {line['interval_score']:.2f}"
        )
    if content["ratios"]:
        _ratios(content, page)
    for model in content["models"]:
        if model["energy"] is not None:
            page.line(f"energy of {model['model']}: {energy_text(model['energy'])}")
    page.line("")
    for aim in content["aims"]:
        page.line(
            f"{aim['comparison']}: median error {_share(aim['value'])}, target {_share(aim['target'][1])}, "
            f"tolerance {_share(aim['tolerance'][1])}: {_proof_verdict(aim)}"
        )
    page.line("")
    page.line("Wall time: " + ", ".join(f"{name} {time_s:.0f} s" for name, time_s in content["seconds"].items()))
    for one in content["skipped"]:
        page.line(f"left out: {one['what']}, {one['reason']}")
    for note in content["notes"]:
        page.line(note)
    return page.text()


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


def _validated_signed(value: float | None) -> str:
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
        _validated_signed(line["bias"]),
        _validated_signed(line["total"]),
        _percent(line["hit_rate"], 0),
        f"{line['interval_score']:.2f}",
        "" if constant is None else f"{constant:.2f}",
        f"×{line['half_width']:.2f}",
        _peers(line["peers"]),
    ]


def _validated_figure(value: float | None, figure: str) -> str:
    if value is None:
        return "unknown"
    return f"×{value:.3g}" if figure in _FACTORS else _percent(value)


def _range(ends: tuple[float, float], figure: str) -> str:
    least, most = ends
    if most >= 1.0 and figure not in _FACTORS:
        return f"≥ {_validated_figure(least, figure)}"
    if least <= (1.0 if figure in _FACTORS else 0.0):
        return f"≤ {_validated_figure(most, figure)}"
    return f"{_validated_figure(least, figure)} to {_validated_figure(most, figure)}"


def _validated_verdict(aim: Entry) -> str:
    if not aim["kept"]:
        return "REGRESSED"
    return "met" if aim["met"] else "missed"


def _add_aims(page: Page, aims: list[Entry]) -> None:
    met, kept = (sum(bool(aim[name]) for aim in aims) for name in ("met", "kept"))
    page.line(f"Aims: {met} of {len(aims)} targets met; {len(aims) - kept} past their tolerance.", "bold")
    table = table_of_numbers(_AIM)
    for aim in aims:
        figure = aim["figure"]
        values = (
            _validated_figure(aim["value"], figure),
            _range(aim["target"], figure),
            _range(aim["tolerance"], figure),
        )
        words = [aim["comparison"], aim["machine"], aim["what"], figure.replace("_", " ")]
        table.add_row(*words, *values, _validated_verdict(aim), style="" if aim["met"] else "bold")
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
    for message in content["said"]:
        page.line(message)
    page.line(f"Intervals of {content['interval']:.0%}. Not scored:")
    for one in content["not_scored"]:
        page.line(f"  {one['what']}: {one['count']:,}, {one['reason']}")
    return page.text()

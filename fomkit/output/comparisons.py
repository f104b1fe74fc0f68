"""Format predictions beside measurements: studies, rates, proofs, public comparisons, an accepted machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import starmap
from typing import TYPE_CHECKING

from fomkit.core.interval import chance_text, level_text
from fomkit.core.units import BINARY, by_key, count_text, format_number, format_quantity
from fomkit.output.explained import energy_text
from fomkit.output.screen import PLAIN, Entry, Page, Screen, figure
from fomkit.output.values import UNFIT, format_interval, mark_of, numbered
from fomkit.profiles.metrics import title_of, upper_bounds

if TYPE_CHECKING:
    from fomkit.plan.content import Ends
    from fomkit.validation import grid, here
    from fomkit.verbs import suite_content as view

MOST_NOTES = 5
"""Largest number of notes in the short text of a comparison."""
_LEGEND = (
    "claim: absolute = the device explains a third or more of the time, so times are compared; ratio = only the "
    "ratio to the baseline; start-up bound, host bound = the time is not the device's; unexplained = unknown why",
    "agrees: inside the interval; ambiguous = outside, but inside the 95 % interval or the measurement's own "
    "spread; outside. Summaries exclude unexplained cells",
)
_SUMMARIES = {
    "absolute": "cells whose time is claimed",
    "ratio": "cells whose ratio to the baseline is claimed",
    "calibrated": "other models after calibration on one model, on the same machine",
    "with_host_term": "other machines with the host's time of one machine",
}


def _compared_text(span: Ends | None, quantity: str) -> str:
    if span is None:
        return "unknown"
    if quantity == "sample_per_s":
        return f"{format_number(span['value'])}/s"
    return format_quantity(span["value"], "time_s")


def _compared_interval(span: Ends | None, quantity: str) -> str:
    return format_interval(span, None if quantity == "sample_per_s" else "time_s")


def _claim_cells(cell: grid.ComparedCell, sources: Mapping[str, int]) -> list[str]:
    quantity, error, ratio, modelled = cell["quantity"], cell["error"], cell["ratio"], cell["projected_ratio"]
    measured, projected = _compared_text(cell["measured"], quantity), "" if ratio is None else "unknown"
    if ratio is not None and modelled is not None:
        projected = f"{format_number(modelled['value'], 3)}× ({format_interval(modelled, None)})"
    return [
        cell["model"], cell["machine"], "" if cell["batch"] is None else f"{cell['batch']:,}",
        measured if cell["basis"] == "measured" else f"[{measured}]",
        _compared_text(cell["projected"], quantity), _compared_interval(cell["projected"], quantity),
        "" if error is None else f"{error:+.0%}", "" if ratio is None else f"{format_number(ratio, 3)}×",
        projected, cell["claim"] or "none", cell["agrees"] or "", cell["cause"],
        " ".join(f"[{sources[source]}]" for source in cell["sources"]),
    ]  # fmt: skip


def _extended_line(cell: grid.ComparedCell, one: grid.ExtendedContent) -> str:
    quantity = cell["quantity"]
    inside = "inside" if one["inside"] else "outside"
    return (
        f"  {cell['model']} on {cell['machine']}: {_compared_text(one, quantity)} "
        f"({_compared_interval(one, quantity)}) by {one['told_by']}, "
        f"measured {_compared_text(cell['measured'], quantity)}: {one['error']:+.0%}, {inside}"
    )


def _ratio_cell(cell: grid.ComparedCell | None) -> str:
    """Format a measured and a projected ratio, with a mark where the ratio is claimed and wrong."""
    if cell is None or cell["ratio"] is None:
        return ""
    projected, measured = cell["projected_ratio"], f"{format_number(cell['ratio'], 3)}×"
    if projected is None:
        return f"{measured} | unknown"
    missed = cell["claim"] in ("absolute", "ratio") and cell["ratio_agrees"] != "inside"
    return f"{measured} | {format_number(projected['value'], 3)}×{'*' if missed else ''}"


def _device_share(cells: Iterable[grid.ComparedCell]) -> str:
    """Format the range of shares of the measured times that the device's work explains."""
    shares = sorted(cell["explained"] for cell in cells if cell["claim"] and cell["explained"] is not None)
    ends = dict.fromkeys(f"{100 * share:.0f}" for share in (*shares[:1], *shares[-1:]))
    return f"{'–'.join(ends)}%" if ends else "unknown"


def _add_overview(page: Page, content: grid.ComparedContent) -> None:
    """Add a table of ratios by model and machine, the models by claim, and the mean ratio of each machine."""
    cells = content["cells"]
    machines = list(dict.fromkeys(cell["machine"] for cell in cells if cell["ratio"] is not None))
    models: dict[str, dict[str, grid.ComparedCell]] = {}
    for cell in cells:
        models.setdefault(cell["model"], {}).setdefault(cell["machine"], cell)
    page.rows(
        ["model", ("device's share", _RIGHT), *((name, _RIGHT) for name in machines)],
        (
            (model, _device_share(by.values()), *(_ratio_cell(by.get(name)) for name in machines))
            for model, by in models.items()
        ),
    )
    claims: dict[str, dict[str, list[str]]] = {}
    for cell in cells:
        if cell["claim"]:
            claims.setdefault(cell["claim"], {}).setdefault(cell["model"], []).append(cell["machine"])
    several = {model for model in models if sum(model in by for by in claims.values()) > 1}
    named_claims = (
        (claim, [
            f"{model} on {' and '.join(', '.join(on).rsplit(', ', 1))}" if model in several else model
            for model, on in by.items()
        ])
        for claim, by in claims.items()
    )  # fmt: skip
    page.line("; ".join(f"{claim}: {', '.join(named)}" for claim, named in named_claims))
    page.line(_LEGEND[0])
    for one in content["foms"]:
        projected = f"{format_number(one['projected']['value'], 3)}× ({format_interval(one['projected'], None)})"
        page.line(
            f"{one['target']} over {content['baseline']}, {count_text(one['count'], 'cell')} "
            f"whose ratio is claimed: measured {format_number(one['measured'], 3)}×, projected {projected}; "
            "geometric means"
        )


def format_compare(content: grid.ComparedContent, screen: Screen = PLAIN, *, cells: bool = False) -> str:
    """Format ratios by model and machine, and their means; with ``cells`` each cell with its claim and cause."""
    page = Page(screen)
    base = content["baseline"] or "none"
    quantities = dict.fromkeys(cell["quantity"] for cell in content["cells"])
    if cells:
        sources = numbered(source for cell in content["cells"] for source in cell["sources"])
        ratios = f"; ratios to {content['baseline']}" if content["baseline"] else ""
        page.line(f"projected and measured: {', '.join(quantities)}{ratios}; [ ] = not measured")
        page.filled_rows(
            ["model", "machine", figure("batch"), figure("cells.measured"), figure("cells.projected"), "interval",
             figure("error"), figure("ratio"), "projected ratio", "claim", "agrees", "what limits the time",
             "source"],
            [_claim_cells(cell, sources) for cell in content["cells"]], first_out=("source", title_of("batch")),
        )  # fmt: skip
        page.lines(f"[{place}] {source}" for source, place in sources.items())
    else:
        unit_text = f"times as fast as {base}, measured | projected"
        has_ratios = any(cell["ratio"] is not None for cell in content["cells"])
        page.line(f"{', '.join(quantities)}: {unit_text if has_ratios else f'no ratios to {base} were measured'}")
        _add_overview(page, content)
    if extended := [(one, one["calibrated"]) for one in content["cells"] if one["calibrated"] is not None]:
        page.line("calibrated on another model:", "bold")
        page.lines(starmap(_extended_line, extended))
    if extended := [(one, one["with_host_term"]) for one in content["cells"] if one["with_host_term"] is not None]:
        page.line("with the host's time of another machine:", "bold")
        page.lines(starmap(_extended_line, extended))
    for key in ("absolute", "ratio", "calibrated", "with_host_term"):
        if (found := content["summary"][key]) is not None:
            page.line(
                f"{_SUMMARIES[key]}: {found['count']}; geometric mean of measured over projected "
                f"{format_number(found['mean_factor'], 3)}, arithmetic mean of |error| {found['mean_error']:.0%}, "
                f"{found['inside']} inside their interval"
            )
    if cells:
        page.notes(content["notes"], "yellow")
        page.lines(_LEGEND)
        page.line(f"intervals: {level_text(content['interval'])}, for {content['interval_covers']}")
    else:
        if any("*" in _ratio_cell(cell) for cell in content["cells"]):
            page.line(
                f"*: claimed, but outside the {level_text(content['interval'])} interval of the projected ratio"
            )
        page.notes(content["notes"][:MOST_NOTES], "yellow")
        more = (
            f" and {len(content['notes']) - MOST_NOTES} more notes" if len(content["notes"]) > MOST_NOTES else ""
        )
        page.line(f"--all shows all {len(content['cells'])} cells{more}: times, intervals, what limits each time")
    return page.text()


def format_grid(content: grid.GridContent, screen: Screen = PLAIN) -> str:
    """Format one row for each model and machine, one column for each framework and mode; empty cells say why."""
    page = Page(screen)
    limit = format_quantity(content["latency_limit_s"], "time_s", 3)
    page.line(f"samples per second; infer: {content['inference_is']}, {limit}")
    ways = list(dict.fromkeys((cell["framework"], cell["mode"]) for cell in content["cells"]))
    rows: dict[tuple[str, str], dict[tuple[str, str], str]] = {}
    for cell in content["cells"]:
        rate = cell["sample_per_s"]
        if rate is None:
            text = f"empty: {cell['why']}"
        else:
            spread = "" if rate["low"] == rate["high"] else f" ({format_interval(rate, None)})"
            text = f"{format_number(rate['value'])}{spread}, batch {cell['batch']}, {cell['basis']}{mark_of(cell)}"
            if (share := cell["explained"]) is not None and share < 1 / 2:
                text += f", the device explains {share:.1%} of a measured run"
        rows.setdefault((cell["model"], cell["machine"]), {})[cell["framework"], cell["mode"]] = text
    absent = "empty: the profile is of another framework"
    page.rows(
        ["model", "machine", *(f"{name}, {mode}" for name, mode in ways)],
        ((*key, *(found.get(way, absent) for way in ways)) for key, found in rows.items()),
    )
    if excluded := dict.fromkeys(term for cell in content["cells"] for term in cell["excludes"]):
        page.line(upper_bounds(excluded, "modelled rates"))
    if any(cell["fits"] is False for cell in content["cells"]):
        page.line(f"{UNFIT} the step does not fit the device's memory, so this rate is not possible", "yellow")
    page.notes(content["notes"], "yellow")
    page.line(f"intervals: {level_text(content['interval'])}")
    return page.text()


_RIGHT = "right"
_WAY = (("error", _RIGHT), "hit", ("score", _RIGHT))
_MODELS = (
    "model", ("timed [ms]", _RIGHT), ("±", _RIGHT), ("drift", _RIGHT), ("exact [ms]", _RIGHT), *_WAY,
    ("unseen [ms]", _RIGHT), *_WAY,
)  # fmt: skip
_RATIOS = ("model", ("over", _RIGHT), ("timed", _RIGHT), ("projected", _RIGHT), ("error", _RIGHT))


def _signed(value: float | None) -> str:
    return "" if value is None else f"{100 * value:+.1f} %"


def _percent(value: float | None, digits: int = 1) -> str:
    return "" if value is None else f"{100 * value:.{digits}f} %"


def _aim_verdict(aim: Entry, past: str) -> str:
    return past if not aim["kept"] else "met" if aim["met"] else "missed"


def _model_cells(model: here.ModelContent) -> Iterator[str]:
    yield from (model["model"], f"{1e3 * model['timed_s']:.3g}")
    yield from (_percent(model["half_width"]), _signed(model["drift"]))
    for one in (model["exact"], model["unseen"]):
        value, low, high = (1e3 * one[name] for name in ("value_s", "low_s", "high_s"))
        yield from (f"{value:.3g} [{low:.3g}, {high:.3g}]", _signed(one["error"]))
        yield from ("yes" if one["hit"] else "no", f"{one['interval_score']:.2f}")


def format_proof(content: here.HereContent, screen: Screen = PLAIN) -> str:
    """Format ``fomkit/here/1`` as text.

    ± is half the 95 % interval of the median of the timed steps. Drift is how much longer the steps took after all
    other measurements. Exact: the profile has these very ops; unseen: it has none of their shapes. Errors are the
    estimate over the timed step, minus 1; score is the interval score of log values.
    """
    page = Page(screen)
    page.line("Steps of models, timed here and estimated on the profile measured here:", "bold")
    page.rows(_MODELS, map(_model_cells, content["models"]))
    for line in content["lines"]:
        page.line(
            f"{line['comparison']}: median error {_percent(line['median'])}, bias {_signed(line['bias'])}, "
            f"{line['hit_rate']:.0%} of {line['cases']} intervals of {level_text(content['interval'])} contain "
            f"the step, interval score {line['interval_score']:.2f}"
        )
    if content["ratios"]:
        page.heading("The step on one thread, relative to another way of running it, as if on two machines:")
        page.rows(
            _RATIOS,
            ((one["model"], one["precision"] or f"{one['threads']} threads", f"{one['timed']:.2f}",
              f"{one['projected']:.2f}", _signed(one["error"])) for one in content["ratios"]),
        )  # fmt: skip
    for model in content["models"]:
        if model["energy"] is not None:
            page.line(f"energy of {model['model']}: {energy_text(model['energy'])}")
    page.line("")
    for aim in content["aims"]:
        page.line(
            f"{aim['comparison']}: median error {_percent(aim['value'])}, target {_percent(aim['target'][1])}, "
            f"tolerance {_percent(aim['tolerance'][1])}: {_aim_verdict(aim, 'PAST ITS TOLERANCE')}"
        )
    times = ", ".join(f"{name} {time_s:.0f} s" for name, time_s in content["seconds"].items())
    page.heading(f"Wall time: {times}", "")
    page.lines(f"excluded: {one['what']}, {one['reason']}" for one in content["skipped"])
    page.lines(content["notes"])
    return page.text()


_LINE = (
    "machine", "what", figure("cases"), figure("median"), figure("mean"), figure("bias"),
    figure("lines.total"), figure("hit_rate"), figure("interval_score"), figure("constant_score"),
    figure("half_width"), "peers: median (mean)",
)  # fmt: skip
_AIM = (
    "comparison", "machine", "what", "figure", figure("aims"), figure("aims.target"),
    figure("aims.tolerance"), "verdict",
)  # fmt: skip
_FACTORS, _SCORES = ("half_width",), ("brier", "interval_score")
_PUBLISHED = (
    "model", "technique", figure("published"), figure("published.projected"), figure("interval"),
    figure("error"),
)  # fmt: skip
_WHAT = {"s": "step", "byte": "activations", "share": "activations"}
_LEVELS = {"op": "single ops", "model": "whole models", "ratio": "ratios of two machines"}


def _accepted_row(line: view.Accepted) -> list[str]:
    committed, measured, probability = line["committed"], line["measured"], line["probability"]
    return [
        line["name"], line["verdict"],
        "missing" if committed is None else format_number(committed["value"], 5) + mark_of(line),
        "none" if measured is None else format_number(measured["value"], 5),
        "" if line["difference"] is None else f"{line['difference']:+.1%}",
        "" if probability is None else chance_text(probability),
        format_interval(measured, None) if line["spread_stated"] else "no spread stated" if measured else "",
        "yes" if line["required"] else "no", line["basis"], line["party"],
    ]  # fmt: skip


def format_acceptance(content: view.AcceptContent, screen: Screen = PLAIN) -> str:
    """Format for each line the committed and the measured rate, and the verdict."""
    page = Page(screen)
    title = f"{content['suite']}, version {content['version']}, on {content['machine']}"
    page.line(f"{title}: committed against measured")
    page.rows(
        ["line", "verdict", figure("lines.committed"), figure("lines.measured"), figure("difference"),
         figure("probability"), "interval", "required", "basis", "party"],
        map(_accepted_row, content["lines"]),
    )  # fmt: skip
    for line in content["lines"]:
        if line["committed"] is None:
            page.line(f"note: {line['name']} has no committed rate: {line['committed_from']}", "yellow")
        for message in line["deviations"]:
            page.line(f"deviation: {line['name']} was committed under other conditions: {message}", "yellow")
        if not line["rows"]:
            page.line(f"note: {line['name']} is not measured: no row names the line or its model", "yellow")
        if line["contradictory"]:
            message = "exclude each other, so nothing is met or missed"
            page.line(f"note: the rows of {line['name']} {message}", "yellow")
        if line["modelled_share"] > 0.001:
            share = f"validation and overheads, {line['modelled_share']:.1%} of the run"
            page.line(f"note: {line['name']}: the step is measured; {share}, are predicted")
        for row in line["rows"]:
            if not row["used"]:
                page.line(f"set aside: {row['where']}: {row['said']}", "yellow")
    if excluded := dict.fromkeys(term for line in content["lines"] for term in line["excludes"]):
        page.line(upper_bounds(excluded, "modelled commitments"))
    for line in content["lines"]:
        if line["fits"] is False:
            page.line(f"{UNFIT} {line['name']}: the committed step does not fit the device's memory", "yellow")
    page.line(
        f"met: the committed rate is reached with a probability of 90 % or more; missed: 10 % or less, by the "
        f"{level_text(content['interval'])} interval of the repeats; without one the measured value decides"
    )
    return page.text()


def _score_cells(line: Entry) -> list[str]:
    constant, score, width = line["constant_score"], line["interval_score"], line["half_width"]
    peers = (f"{name} {100 * median:.0f} ({100 * mean:.1f})" for name, (median, mean) in line["peers"].items())
    return [
        line["machine"], line["what"], f"{line['cases']:,}", _percent(line["median"]), _percent(line["mean"]),
        _signed(line["bias"]), _signed(line["total"]), _percent(line["hit_rate"], 0),
        "" if score is None else f"{score:.2f}", "" if constant is None else f"{constant:.2f}",
        "" if width is None else f"×{width:.2f}", ", ".join(peers),
    ]  # fmt: skip


def _aim_cells(aim: Entry) -> list[str]:
    figure = aim["figure"]
    ranges = (aim_range(aim[name], figure) for name in ("target", "tolerance"))
    words = [aim["comparison"], aim["machine"], aim["what"], figure.replace("_", " ")]
    return [*words, validated_figure(aim["value"], figure), *ranges, _aim_verdict(aim, "REGRESSED")]


def validated_figure(value: float | None, figure: str) -> str:
    """Format a scored figure: a share in percent, a factor or a score unchanged."""
    if value is None:
        return "unknown"
    if figure in _SCORES:
        return f"{value:.3f}"
    return f"×{value:.3g}" if figure in _FACTORS else _percent(value)


def aim_range(ends: tuple[float, float], figure: str) -> str:
    """Format the range of a target or of a tolerance."""
    least, most = ends
    if most >= 1.0 and figure not in (*_FACTORS, *_SCORES):
        return f"≥ {validated_figure(least, figure)}"
    if least <= (1.0 if figure in _FACTORS else 0.0):
        return f"≤ {validated_figure(most, figure)}"
    return f"{validated_figure(least, figure)} to {validated_figure(most, figure)}"


def _published_value(value: float, unit: str) -> str:
    if unit == "s":
        return format_quantity(value, "time_s")
    return f"{100 * value:.2f} %" if unit == "share" else f"{format_number(value / BINARY['Gi'])} GiB"


def add_published(page: Page, entries: Sequence[Entry]) -> None:
    """Add published steps and activations beside the projected ones, and their sources."""
    page.heading("Megatron-LM as published: steps and activations of many devices")
    page.rows(_PUBLISHED, map(published_cells, entries))
    page.line(f"published: {'; '.join(dict.fromkeys(one['source'] for one in entries))}")


def published_cells(one: Entry) -> list[str]:
    """Format a published figure and the projected one as cells."""
    unit, span = one["unit"], one["projected"]
    low, value, high = (_published_value(span[end], unit) for end in ("low", "value", "high"))
    return [
        f"{one['model']}, {_WHAT[unit]}", one["technique"], _published_value(one["published"], unit), value,
        "" if span["low"] == span["high"] else f"{low} to {high}", f"{one['error']:+.1%}",
    ]  # fmt: skip


def format_validation(content: Entry, screen: Screen = PLAIN) -> str:
    """Format ``fomkit/validate/1`` as text.

    Errors are absolute, as shares of the measured value. Bias is the mean signed error, and total the error of the
    sum (for ratios: of the geometric mean); both are above 0 where the prediction is too long. Hits is the share
    of intervals that contain the truth. Score is the mean interval score of log values, constant that of one band.
    """
    page = Page(screen)
    aims = content["aims"]
    met, kept = (sum(bool(aim[name]) for aim in aims) for name in ("met", "kept"))
    page.line(f"Aims: {met} of {len(aims)} targets met; {len(aims) - kept} past their tolerance.", "bold")
    page.rows(_AIM, map(_aim_cells, aims), styles=("" if aim["met"] else "bold" for aim in aims))
    sections = by_key((f"{line['comparison']}: {_LEVELS[line['level']]}", line) for line in content["lines"])
    for title, lines in sections.items():
        page.heading(title)
        page.rows(_LINE, map(_score_cells, lines))
    add_published(page, content["published"])
    page.line("")
    page.lines(content["said"])
    page.line(f"Intervals of {level_text(content['interval'])}. Not scored:")
    page.lines(f"  {one['what']}: {one['count']:,}, {one['reason']}" for one in content["not_scored"])
    return page.text()

"""Format suites as text: figures of merit of one machine and of several."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from fomkit.core.interval import alone_text, chance_text
from fomkit.core.units import agree, by_key, count_text, format_number
from fomkit.merit.fom import ACCEPTANCE, MISSED, OF_RATES, PROPOSAL, REACHED
from fomkit.output.screen import PLAIN, Header, Page, Screen, figure
from fomkit.output.values import UNFIT, cancel_notes, format_interval, mark_of, run_notes, seconds
from fomkit.profiles.metrics import upper_bounds

if TYPE_CHECKING:
    from fomkit.merit.measured_steps import Merit
    from fomkit.plan.content import AnyEnds
    from fomkit.verbs import suite_content as view

DOMINANT_WEIGHT = 0.8


def merit_caveats(merit: Merit) -> list[str]:
    """Return the caveats of a figure of merit: little explained runs, exclusions, and steps that fit no device."""
    little = {name: merit["explained_shares"][name] for name in merit["little_explained"]}
    lines = run_notes(little, "the value is")
    if merit["excludes"]:
        lines.append(upper_bounds(merit["excludes"]))
    if alone := alone_text(merit["excludes_alone"]):
        lines.append(alone)
    lines += cancel_notes(merit.get("errors_cancel", {}))
    return [*lines, *(f"{UNFIT} {message}" for message in merit["does_not_fit"])]


def merit_interval(merit: Merit) -> str:
    """Format the interval of a figure of merit; "" where the given times have no spread."""
    return "" if merit["low"] is None else format_interval(merit, None)


def _mean_rates(merit: Merit, units: Sequence[str], digits: int) -> str:
    """Format the harmonic mean rates of both machines, or why there are none: lines have different units."""
    rates = ", ".join(
        f"{merit[side]} {format_number(merit['rates'][side], digits)}" for side in ("baseline", "target")
    )
    if not units:
        weighted = "weighted " * (merit["mean"] == "weighted_harmonic")
        return f"{f'{weighted}harmonic mean rates' if len(merit['weights']) > 1 else 'rates'}: {rates}"
    listed = f"units differ from line to line ({', '.join(units)})"
    if merit["mean"] in OF_RATES:
        return f"{listed}: units count the same in this mean of rates; a mean of ratios needs no common unit"
    return (
        f"{listed}, so no mean of rates is shown; the value is a mean of each line's ratio to {merit['baseline']}"
    )


def format_merit(merit: Merit, units: Sequence[str] = ()) -> list[str]:
    """Format a figure of merit: the value, its means, weights and both machines' rates, in their units."""
    exact = merit["low"] is None
    digits = 8 if exact else 4
    spread = merit_interval(merit) or "no interval: given times carry no spread"
    others = {name: value for name, value in merit["other_means"].items() if not (units and name in OF_RATES)}
    other = ", ".join(f"{name} {format_number(value, digits)}" for name, value in others.items())
    weights = ", ".join(f"{line} {share:.1%}" for line, share in merit["weights"].items())
    message = f"{format_number(merit['value'], digits)} ({spread}){f' {UNFIT}' if merit['does_not_fit'] else ''}"
    alone = len(merit["weights"]) == 1
    mean = f"{merit['mean']} (all means of one line are equal)" if alone else merit["mean"]
    lines = [
        f"FOM {merit['target']} over {merit['baseline']} = {message}",
        f"  mean: {mean}; scope: {merit['scope']}; worst basis: {merit['worst_basis']}",
        f"  {_mean_rates(merit, units, digits + 2)}",
        *([] if alone else [f"  implied weights: {weights}", f"  other means of the ratios: {other}"]),
    ]
    lines += [
        f"  note: {line} alone has {share:.0%} of the weight; the value depends little on the other lines"
        for line, share in merit["weights"].items()
        if share > DOMINANT_WEIGHT and len(merit["weights"]) > 1
    ]
    # If a machine completes less than one unit a day, its whole units are 0 and there is no ratio.
    if exact and merit["value_with_rates_cut_to_whole_units"] is not None:
        cut = format_number(merit["value_with_rates_cut_to_whole_units"], digits)
        lines.append(f"  with all rates rounded down to whole units: {cut}")
    return lines


def show_merit(page: Page, merit: Merit, units: Sequence[str] = ()) -> None:
    """Add a figure of merit with its caveats; `units`: the units of its lines."""
    first, *others = format_merit(merit, units if len(units) > 1 else ())
    page.line(first, "bold")
    page.lines((f"  {message}" for message in merit_caveats(merit)), "yellow")
    page.lines(others)


def _rate_text(value: float | None, digits: int = 8) -> str:
    return "missing" if value is None else f"{value:,.{digits}g}"


def _cells_of(ends: AnyEnds | None) -> tuple[str, str]:
    """Return a number and its interval; one that was given without a spread has all its digits."""
    if ends is None or ends["low"] is None:
        return _rate_text(ends and ends["value"]), ""
    return format_number(ends["value"]), format_interval(ends, None)


def _units(content: view.SuiteContent) -> list[str]:
    """Return the units of the lines in a figure of merit."""
    return list(dict.fromkeys(line["unit"] for line in content["lines"] if line["ratio"] is not None))


def _rated_cells(line: view.LineContent, sides: tuple[str, str], *, with_unit: bool) -> Iterator[str]:
    on, required = line["machines"], "yes" if line["required"] else "no"
    yield from (line["name"], required, line["class"], line["basis"], line["party"])
    yield from (on[name]["from"] for name in sides)
    for name in sides:
        rate, interval = _cells_of(on[name]["unit_per_day"])
        yield from (rate + mark_of(on[name]), interval)
    yield from [line["unit"]] * with_unit
    yield from ("", "") if line["ratio_interval"] is None else _cells_of(line["ratio_interval"])
    yield "" if line["weight"] is None else f"{line['weight']:.1%}"


def _verdict_word(threshold: view.Verdict) -> str:
    return dict(zip(PROPOSAL, ACCEPTANCE, strict=True)).get(threshold["verdict"], threshold["verdict"])


def _verdict_line(threshold: view.Verdict) -> str:
    reached, probability = format_number(threshold["threshold"]), threshold["probability"]
    met = _verdict_word(threshold)
    if "why" in threshold:
        # The lines are named above, with their shares; in the JSON ``why`` names them.
        why = "it depends on lines above, where the device explains less than half of a measured run"
        return f"  threshold {reached}: {met}, {why} (--allow-excluded prints it)"
    if probability is None:
        return f"  threshold {reached}: {met} (the times have no spread, so there is no probability)"
    chance = f"= {chance_text(probability)}".replace("= >", "> ").replace("= <", "< ")
    bounds = f" (met from {100 * REACHED:.0f}%, missed up to {100 * MISSED:.0f}%)" if met == ACCEPTANCE[2] else ""
    return f"  threshold {reached}: {met}, P(FOM ≥ {reached}) {chance}{bounds}"


def _coverages(results: Sequence[view.SuiteContent]) -> Iterator[str]:
    """Yield how many lines of each machine are given, estimated and so on; machines with the same numbers once."""
    found = list[tuple[str, str]]()
    for content in results:
        for name in (content["baseline"], content["target"]):
            kinds = [line["machines"][name]["kind"] for line in content["lines"]]
            message = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
            found.append((f"{message}, of {count_text(len(kinds), 'line')}", name))
    for message, names in by_key(found).items():
        yield f"coverage of {', '.join(dict.fromkeys(names))}: {message}"


def _line_notes(results: Sequence[view.SuiteContent]) -> Iterator[str]:
    """Yield the notes of the estimates behind the lines; equal notes of several lines and machines once."""
    said = by_key(
        ((name, message), line["name"])
        for content in results for line in content["lines"] for name, rated in line["machines"].items()
        for message in rated["notes"]
    )  # fmt: skip
    alike = by_key(((tuple(dict.fromkeys(lines)), message), name) for (name, message), lines in said.items())
    every = {line["name"] for content in results for line in content["lines"]}
    for (lines, message), names in alike.items():
        of = "all lines" if len(lines) == len(every) > 2 else ", ".join(lines)
        yield f"{of} on {', '.join(names)}: {message}"


def _first_lines(content: view.SuiteContent) -> Iterator[tuple[str, str]]:
    """Yield what is said of a suite's lines before the figure of merit, each with its style."""
    old, new = content["baseline"], content["target"]
    if relative := [line["name"] for line in content["lines"] if line["relative"]]:
        yield f"relative: {', '.join(relative)}: rates are multiples of a reference's, not units a day", ""
    for line in content["lines"]:
        if line["precisions_differ"] and not line["fixed"].get("precision"):
            formats = [line["machines"][name]["precision"] for name in (old, new)]
            runs = f"runs in {formats[0]} on {old} and in {formats[1]} on {new}"
            yield f"number formats: {line['name']} {runs}; the line does not fix them", "yellow"
    for name in (old, new):
        if any(line["machines"][name]["excludes"] is None for line in content["lines"]):
            message = "do not state what they exclude; freeze the next version"
            yield f"frozen rates of {name} {message}", "yellow"
    for one in content["missing"]:
        left = "required" if one["required"] else "optional, excluded from the mean"
        yield f"missing: {one['line']} on {one['machine']} ({left}): {one['why']}", "yellow"
    for other in content["deviations"]:
        where = f"{other['line']} on {other['machine']}"
        yield f"deviation: {where}: {other['deviation']}; class optimized", "yellow"


def _why_no_merit(content: view.SuiteContent) -> str:
    lacking = ", ".join(content["incomplete"])
    reason = f"incomplete: {lacking}" if lacking else "no line has a rate"
    return f"no FOM of {content['target']} over {content['baseline']}; {reason}"


def _calibrated(page: Page, found: view.Calibrated, sides: tuple[str, str]) -> None:
    """Add the suite calibrated on its measured baseline, beside the projected and the measured suite."""
    page.heading(f"from measurements on {sides[0]}")
    ways = {"projected, the device's work only": found["projected_fom"], "calibrated": found["fom"],
            "measured on both": found["measured_fom"]}  # fmt: skip
    for name, fom in ways.items():
        if fom is not None:
            page.line(f"FOM {name}: {format_number(fom['value'])} ({format_interval(fom, None)})")
    if found["measured_lines"]:
        page.line(
            f"{found['inside']} of {count_text(found['measured_lines'], 'line')} measured on {sides[1]} "
            f"{agree(found['inside'], 'is in its/are in their')} interval"
        )
    page.rows(
        ["line", f"{sides[0]} measured", "of it outside the device", f"{sides[1]} then", "interval",
         f"{sides[1]} measured"],
        (
            [one["name"], *(seconds(one[key]["value"]) for key in ("baseline_step_s", "rest_s", "step_s")),
             format_interval(one["step_s"], "time_s"),
             "" if one["measured_step_s"] is None
             else seconds(one["measured_step_s"]["value"]) + ("" if one["inside"] else ", outside")]
            for one in found["lines"]
        ),
    )  # fmt: skip
    page.lines(f"not calibrated: {one['line']}: {one['why']}" for one in found["left_out"])
    page.line(f"assumed: {found['carried']}")


def _campaign_line(campaign: view.CampaignDays) -> str:
    days = ", ".join(f"{name} {_rate_text(value, 5)}" for name, value in campaign["days"].items())
    return f"campaign {campaign['name']}: {campaign['units']:,.8g} units of {campaign['line']}; days: {days}"


def format_suite(content: view.SuiteContent, screen: Screen = PLAIN) -> str:
    """Format a suite's figure of merit, its lines and its notes."""
    page = Page(screen)
    page.line(f"{content['suite']}, version {content['version']}: {content['title']}")
    page.lines(_coverages([content]))
    for text, style in _first_lines(content):
        page.line(text, style)
    if content["fom"] is None:
        page.line(_why_no_merit(content), "bold")
    else:
        show_merit(page, content["fom"], _units(content))
        if content["threshold"] is not None:
            page.line(_verdict_line(content["threshold"]))
    sides = (content["baseline"], content["target"])
    unit = "rate" if all(line["relative"] for line in content["lines"]) else "units/day"
    words = ("required", "class", "basis", "party", *(f"{name} from" for name in sides))
    rates = [(f"{name}\n{what}", "right") for name in sides for what in (unit, "interval")]
    with_unit = len(_units(content)) > 1
    heads: list[Header] = ["line", *words, *rates, *(["unit"] * with_unit), figure("ratio"), figure("interval"),
             figure("weight")]  # fmt: skip
    rows = [[*_rated_cells(line, sides, with_unit=with_unit)] for line in content["lines"]]
    page.filled_rows(heads, rows, first_out=[*words[::-1], *(head for head, _ in rates[1::2])])
    if calibrated := content.get("calibrated"):
        _calibrated(page, calibrated, (content["baseline"], content["target"]))
    page.lines(map(_campaign_line, content["campaigns"]))
    page.notes(_line_notes([content]))
    page.notes(content["notes"])
    return page.text()


def _ratio_cells(line: view.LineContent, target: str) -> tuple[str, str]:
    ratio, interval = ("", "") if line["ratio_interval"] is None else _cells_of(line["ratio_interval"])
    return (ratio or "missing") + mark_of(line["machines"][target]), interval


def _merit_cells(one: view.SuiteContent) -> Iterator[str]:
    merit, judged, calibrated = one["fom"], one["threshold"], one.get("calibrated")
    chance = judged and judged["probability"]
    value, interval = ("", "") if merit is None else _cells_of(merit)
    yield from (one["target"], value + (f" {UNFIT}" if merit and merit["does_not_fit"] else ""), interval)
    yield from ("" if chance is None else chance_text(chance), _verdict_word(judged) if judged else "")
    yield from _cells_of(calibrated["fom"]) if calibrated and calibrated["fom"] else ("", "")
    yield "" if merit is None else merit["worst_basis"]


def _merit_remarks(page: Page, results: Sequence[view.SuiteContent]) -> None:
    """Add what is said of the figures of merit, equal remarks on several machines once."""
    said = by_key((text, one["target"]) for one in results if one["fom"] for text in merit_caveats(one["fom"]))
    for text, names in said.items():
        page.line(text if len(names) == len(results) else f"{', '.join(names)}: {text}", "yellow")
    withheld = (one["threshold"] for one in results if one["threshold"] and "why" in one["threshold"])
    page.lines(dict.fromkeys(_verdict_line(one).strip() for one in withheld))
    means = (f"mean: {one['fom']['mean']}; scope: {one['fom']['scope']}" for one in results if one["fom"])
    page.lines(dict.fromkeys(means))


def format_suites(content: view.SuitesContent, screen: Screen = PLAIN) -> str:
    """Format the figures of merit of several targets side by side, and each line's ratio to the baseline."""
    page, results, old = Page(screen), content["results"], content["baseline"]
    page.line(f"{content['suite']}, version {content['version']}: {content['title']}")
    page.lines(_coverages(results))
    for text, style in dict.fromkeys(said for one in results for said in _first_lines(one)):
        page.line(text, style)
    page.lines((_why_no_merit(one) for one in results if one["fom"] is None), "bold")
    page.lines((f"{name} is not rated: {why}" for name, why in content["refused"].items()), "bold")
    reached = next((one["threshold"]["threshold"] for one in results if one["threshold"]), None)
    above = f"P(FOM ≥ {format_number(reached)})" if reached else "P"
    heads: list[Header] = ["machine", (f"FOM over {old}", "right"), figure("interval"), (above, "right"),
                           "threshold", (f"with {old}'s measured steps", "right"), figure("interval"),
                           "worst basis"]  # fmt: skip
    page.filled_rows(heads, [[*_merit_cells(one)] for one in results])
    _merit_remarks(page, results)
    page.heading(f"units a day over those of {old}, line by line")
    targets = content["targets"]
    intervals = [f"{name}\ninterval" for name in targets]
    columns: list[Header] = [(head, "right") for pair in zip(targets, intervals, strict=True) for head in pair]
    page.filled_rows(
        ["line", *columns],
        [
            [row[0]["name"], *(cell for pair in map(_ratio_cells, row, targets) for cell in pair)]
            for row in zip(*(one["lines"] for one in results), strict=True)
        ],
        first_out=intervals[::-1],
    )
    for same in zip(*(one["campaigns"] for one in results), strict=True):
        whole = same[0].copy()
        whole["days"] = {name: value for one in same for name, value in one["days"].items()}
        page.line(_campaign_line(whole))
    page.line("Units a day and weights: with one target alone")
    page.notes(_line_notes(results))
    notes = by_key((note, one["target"]) for one in results for note in one["notes"])
    page.notes(
        note if len(names) == len(results) else f"{', '.join(names)}: {note}" for note, names in notes.items()
    )
    return page.text()

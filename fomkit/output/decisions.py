"""Format sensitivities, and the smallest changes that reach a target, as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from fomkit.core.interval import alone_text, chance_text
from fomkit.core.units import by_key, count_text, format_quantity
from fomkit.merit.fom import REACHED
from fomkit.output.screen import PLAIN, Page, Screen, figure, named_sizes, new_table
from fomkit.output.values import UNFIT, format_interval, format_plain, interval_words
from fomkit.profiles.metrics import title_of, upper_bounds

if TYPE_CHECKING:
    from fomkit.plan.content import Ends
    from fomkit.whatif.parameters import Measurable, NotVaried
    from fomkit.whatif.sensitivity import EffectContent, SensitivityContent
    from fomkit.whatif.solve import FrontierContent, SolveContent

MEASUREMENTS = 8
"""Largest number of measurements that are printed."""
GROUPS: Mapping[str, str] = {"machine": "of the machine", "model": "of the work", "line": "of given times"}
"""Tables of parameters by what they belong to: less work must not look like a faster machine."""
DIMENSIONS: Mapping[str, str] = {"step_s": "time_s"}


def format_setting(value: float, unit: str, digits: int = 3) -> str:
    """Format the value of a parameter.

    >>> format_setting(9e11, "byte_per_s"), format_setting(0.95, "share"), format_setting(32.0, "count")
    ('900 GB/s', '95.0%', '32')
    """
    if unit == "count":
        return f"{value:,.0f}"
    if unit == "factor":
        return f"{value:.{digits}g} ×"
    return f"{value:.1%}" if unit == "share" else format_quantity(value, unit, digits)


def format_figure(value: float, name: str) -> str:
    """Format a figure: a time with its unit, others as plain numbers."""
    return format_plain(value, DIMENSIONS.get(name))


def title_line(content: SensitivityContent | SolveContent) -> str:
    """Format the title: the subject and its main figure without a change."""
    if "suite" in content:
        subject = f"{content['suite']}: {content['target']} over {content['baseline']}"
    else:
        nodes = f", {count_text(content['nodes'], 'node')}" if "nodes" in content else ""
        precision = f", {content['precision']}" if "precision" in content else ""
        samples = content.get("samples_per_step")
        shared = "" if samples is None else f" of a replica, {samples:,} samples a step"
        subject = f"{content['model']} on {content['target']}{nodes}, {named_sizes(content)}{shared}{precision}"
    name = content["figure"]
    span = content["figures"][name]
    interval = interval_words(content["interval"], span, DIMENSIONS.get(name))
    return f"{subject}: {title_of(name)} {format_figure(span['value'], name)} ({interval})"


def bound_line(content: SensitivityContent | SolveContent) -> str:
    """Format what the main figure excludes, and whether it is therefore a bound."""
    message = upper_bounds(content["excludes"])
    if message and content["figure"] not in ("unit_per_day", "fom"):
        message = f"the figure excludes what is not stated: {', '.join(content['excludes'])}"
    alone = alone_text(content.get("excludes_alone", {}))
    lines = [message or "nothing excluded", *([alone] if alone else [])]
    if content.get("little_explained"):
        lines.append(
            f"the device explains less than half of a measured run of {', '.join(content['little_explained'])}: "
            "the figure covers only the device's work"
        )
    if content.get("does_not_fit"):
        lines.append(f"{UNFIT} without changes: {content['does_not_fit']}")
    return "\n".join(lines)


def _parameter_cells(one: EffectContent, name: str) -> list[str]:
    unit, varied, mark = one["unit"], one["varied"], "" if one["smooth"] else " *"
    setting, start, end = (format_setting(value, unit) for value in (one["setting"], varied["from"], varied["to"]))
    return [
        one["parameter"], setting, f"kink{mark}" if one["kink"] else f"{one['elasticity'][name]:+.3f}{mark}",
        f"{start} … {end}", varied["said"],
        *(format_figure(at["value"], name) if at else "cannot be" for at in (one["at_low"], one["at_high"])),
        f"{one['swing']:.1%}",
    ]  # fmt: skip


def _by_why(entries: Iterable[NotVaried]) -> Iterator[tuple[str, str]]:
    """Return each reason with the parameters that it applies to."""
    found = by_key((one["why"], one["parameter"]) for one in entries)
    return ((why, ", ".join(names)) for why, names in found.items())


def _elasticity_lines(content: SensitivityContent) -> Iterator[str]:
    name = content["figure"]
    yield bound_line(content)
    yield f"elasticity: % of {title_of(name)} for 1 % of the parameter; swing: between the bounds, relative to now"
    for parameter in content["parameters"]:
        if not parameter["smooth"]:
            sides = {"below": parameter["below"], "above": parameter["above"],
                     "over half the step": parameter["at_half_step"]}  # fmt: skip
            slopes = (f"{slope:+.3f} {side}" for side, slope in sides.items() if slope is not None)
            yield f"* not smooth in {parameter['parameter']}: {', '.join(slopes)}"
        if parameter["why"]:
            yield f"{parameter['parameter']}: {parameter['why']}"
    for why, names in _by_why(content["not_varied"]):
        yield f"not listed, {why}: {names}"
    if stay := content.get("lines_that_stay"):
        yield f"lines without an estimate on {content['target']}, which rates do not affect: {', '.join(stay)}"


def _commands(found: Sequence[Measurable]) -> Iterator[str]:
    """Yield the command for each measurement; the most frequent command comes last and covers the others."""
    by = by_key((one["command"] or "a measurement on its machine", one["what"]) for one in found)
    *few, (usual, _) = sorted(by.items(), key=lambda item: len(item[1]))
    yield from (f"{', '.join(names)}: {command}" for command, names in few)
    yield f"{'the others' if few else 'each'}: {usual}"


def format_sensitivity(content: SensitivityContent, screen: Screen = PLAIN) -> str:
    """Format ``fomkit/sensitivity/1`` as text."""
    page = Page(screen)
    page.line(title_line(content), "bold")
    for owner, title in GROUPS.items():
        if found := [parameter for parameter in content["parameters"] if parameter["of"] == owner]:
            page.rows(
                [title, figure("setting"), figure("elasticity"), figure("varied.from"), "by",
                 figure("at_low"), figure("at_high"), figure("swing")],
                (_parameter_cells(one, content["figure"]) for one in found),
                first_out=("by", *map(title_of, ("varied.from", "at_low", "at_high"))),
            )  # fmt: skip
    page.lines(_elasticity_lines(content))
    what, dimension = ("FOM", None) if "suite" in content else ("step", "time_s")
    if best := [one for one in content.get("measurements", ()) if one["shrinks"] > 0][:MEASUREMENTS]:
        page.heading(f"what to measure, best first: remaining width of the {what}'s interval")
        rows = []
        for case in best:
            span = case["fom"] if "suite" in content else case["step_s"]
            then = format_interval(span, dimension) if span["low"] < span["high"] else "nothing left"
            rows.append([case["what"], case["kind"], then, f"{case['shrinks']:.1%}"])
        page.rows(["measurement", "covers", f"{what} then", figure("shrinks")], rows)
        page.lines(_commands(best))
    if content.get("no_spread_stated"):
        names = ", ".join(content["no_spread_stated"])
        page.line(f"stated without a spread, so a measurement changes the figure but not its interval: {names}")
    if content.get("measurements_say"):
        page.line(content["measurements_say"])
    page.line(f"assumed: {'; '.join(content['assumed'])}")
    page.notes(content["notes"], "yellow")
    return page.text()


POINTS = 12
"""Largest number of combinations that are printed."""


def _factor_text(value: float) -> str:
    """Format a factor with enough digits to distinguish it from 1.

    >>> _factor_text(1.00012), _factor_text(2.0), _factor_text(0.25)
    ('1.00012 ×', '2.000 ×', '0.250 ×')
    """
    return f"{value:.3f} ×" if abs(value - 1) >= 0.001 else f"{value:.6g} ×"


def _goal_cells(then: Ends, probability: float, name: str) -> list[str]:
    """Format a figure after a change, its interval and the probability of the target."""
    interval = format_interval(then, DIMENSIONS.get(name))
    return [format_figure(then["value"], name), interval, chance_text(probability, 1)]


def _changes(content: SolveContent, page: Page) -> None:
    table = new_table(
        ["change alone", figure("setting"), figure("needed"), figure("changes.factor"), figure("then"), "interval",
         figure("changes.probability"), "why not"]
    )  # fmt: skip
    for change in content["changes"]:
        unit, reached = change["unit"], change["reached"]
        needed, factor = "cannot" if change["proved"] else "not found", ""
        if change["needed"] is not None and change["factor"] is not None:
            needed, factor = format_setting(change["needed"], unit, 4), _factor_text(change["factor"])
        table.add_row(
            change["parameter"], format_setting(change["setting"], unit), needed, factor,
            *_goal_cells(change["then"], change["probability"], content["figure"]),
            change["why"] or ("does not fit" if reached and change["does_not_fit"] else ""),
            style="" if reached else "dim",
        )  # fmt: skip
    page.table(table, ("interval", *map(title_of, ("changes.factor", "setting", "then"))))
    page.lines(
        f"{change['parameter']} {format_setting(change['needed'], change['unit'])}: {change['does_not_fit']}"
        for change in content["changes"]
        if change["needed"] is not None and change["does_not_fit"]
    )


def _frontier(content: SolveContent, found: FrontierContent, page: Page) -> None:
    names, points = found["parameters"], found["points"]
    page.heading(f"together: {', '.join(names)}; the smallest sum of |ln(factor)| first")
    if not found["reached"]:
        page.line(f"cannot reach it: {found['why']}")
        return
    page.rows(
        [*names, figure("total"), figure("then"), "interval", figure("changes.probability")],
        (
            [*(_factor_text(point["factors"][name]) for name in names), f"{point['total']:.3f}",
             *_goal_cells(point["then"], point["probability"], content["figure"])]
            for point in points[:POINTS]
        ),
        first_out=(title_of("total"), "interval"),
    )  # fmt: skip
    if len(points) > POINTS:
        page.line(f"and {len(points) - POINTS} more; --json has all")


def format_solution(content: SolveContent, screen: Screen = PLAIN) -> str:
    """Format ``fomkit/solve/1`` as text."""
    page = Page(screen)
    page.line(title_line(content), "bold")
    goal, name = content["goal"], content["figure"]
    target = f"target: {title_of(name)} {'at most' if goal['at_most'] else 'at least'} "
    target += f"{format_figure(goal['asked'], name)}, probability {goal['probability']:.12g}"
    if name == "fom" and goal["probability"] < REACHED:
        target += f" ('fomkit fom' says met from {REACHED:g}: --probability {REACHED:g})"
    target += f"; now {chance_text(content['probability'], 1)}"
    if content["already_reached"]:
        page.line(f"{target}: already reached without a change")
        page.line(bound_line(content))
    else:
        verdict = "" if content["reached"] else "; no change that was tried reaches it"
        page.line(f"{target}{verdict}")
        if content["changes"]:
            _changes(content, page)
        page.lines(f"not tried: {names}: {why}" for why, names in _by_why(content["refused"]))
        if content["frontier"] is not None:
            _frontier(content, content["frontier"], page)
        page.line(bound_line(content))
        most = f"no parameter is changed by more than {content['most_factor']:g} times"
        page.line(f"{most}; {'; '.join(content['assumed'])}")
    page.notes(content["notes"], "yellow")
    return page.text()

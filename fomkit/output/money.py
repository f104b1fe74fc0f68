"""Format costs as text: energy of a step, and money, inference and carbon of a run and of a campaign's phases."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from fomkit.core.interval import alone_text
from fomkit.core.model import CACHE
from fomkit.core.units import KWH_J, UNITS, by_key, exact_quantity, format_number, format_quantity
from fomkit.output.screen import PLAIN, Column, Entry, Page, Screen, figure
from fomkit.output.values import (
    NO_SPREAD,
    column_of,
    deviation_lines,
    job_lines,
    mark_of,
    run_notes,
    seconds,
    with_ends,
    word_of,
)
from fomkit.plan.energy import NO_FIGURES

if TYPE_CHECKING:
    from fomkit.merit.footprint import Carbon
    from fomkit.merit.one_off_costs import PaidOnce
    from fomkit.plan.content import AnyEnds, EnergyUsed, Estimated, Priced, Stated
    from fomkit.verbs.cost import CostContent, Spending
    from fomkit.verbs.machine_view import EnergyStated
    from fomkit.verbs.suite_content import CampaignCarbon, CampaignsContent, MachinePhases, Sum


def _joule(value: float) -> str:
    """Format an energy; from 0.1 kWh on also in kWh or MWh, the units of bills."""
    text, kwh = format_quantity(value, "energy_j", 3), value / KWH_J
    if kwh < 0.1:
        return text
    return (
        f"{text} ({format_number(kwh, 3)} kWh)" if kwh < 10_000 else f"{text} ({format_number(kwh / 1e3, 3)} MWh)"
    )


def format_energy(span: AnyEnds) -> str:
    """Format an energy with the bounds of its interval.

    >>> format_energy({"value": 12.0, "low": 9.5, "high": 15.0})
    '12.0 J (9.50 J … 15.0 J)'
    """
    if span["low"] is None or span["high"] is None or span["low"] == span["high"]:
        return f"{_joule(span['value'])} ({NO_SPREAD})"
    low, high = (format_quantity(end, "energy_j", 3) for end in (span["low"], span["high"]))
    return f"{_joule(span['value'])} ({low} … {high})"


def _most_text(limit_w: float, **at_most: float | None) -> str:
    """Format the bounds of an energy that follow from the power limit of a chip."""
    most = [f"{_joule(value)} per {what}" for what, value in at_most.items() if value is not None]
    power = f"{limit_w:g} W a chip, its power limit and no average"
    return f"at most {' and '.join(most)}: the upper end of the time at {power}"


def _mean_unknown(missing: Sequence[str], limit_w: float | None, **at_most: float | None) -> str:
    """Format an energy that is bounded by the power limit at most, and why its mean is unknown."""
    why = "; ".join(missing)
    if limit_w is None or not any(at_most.values()):
        return f"missing, {why}"
    return _most_text(limit_w, **at_most) + ("" if why == NO_FIGURES else f"; its mean is unknown: {why}")


def _process(energy: EnergyStated | EnergyUsed) -> str:
    """Format the process node that figures in joules apply to."""
    return f", {exact_quantity(energy['process_m'], 'length_m')} process" if energy["process_m"] else ""


def energy_facts(energy: EnergyStated | None) -> Iterator[tuple[str, Stated, str]]:
    """Yield each energy figure that a machine states: name with scope or process node, fact and dimension."""
    if energy is None:
        return
    scope = energy["scope"]
    node = _process(energy)
    if energy["idle_w"]:
        yield f"idle power, {scope}", energy["idle_w"], "power_w"
    for one in energy["per_flop"]:
        name = f"flop {one['dtype']} {one['engine'] or 'on any engine'}{node}"
        yield name, one["joule_per_flop"], "joule_per_flop"
    if energy["joule_per_byte"]:
        yield f"byte of memory{node}", energy["joule_per_byte"], "joule_per_byte"
    for mean in energy["average"]:
        batch = f", batch {mean['batch']}" if mean["batch"] else ""
        precision = f", {mean['precision']}" if mean["precision"] else ""
        yield f"mean power, {mean['workload']}{batch}{precision}, {mean['scope']}", mean["power_w"], "power_w"
    if energy["limit_w"]:
        yield "power limit of a chip, not an average", energy["limit_w"], "power_w"


def format_terms(one: Estimated) -> str:
    """Format the terms of a step's energy, one a line, with their shares and origin; "" without any."""
    energy = one["energy_j"]
    step = energy and energy["step"]
    if energy is None or step is None:
        return ""
    devices = f", {energy['devices']} devices" if energy["devices"] > 1 else ""
    lines = [f"energy of a step{devices}, by {str(energy['method']).replace('_', ' ')} ({energy['from']}):"]
    lines += [
        f"  {name}: {format_energy(term)}, {term['value'] / step['value']:.1%}"
        for name, term in energy["terms_step"].items()
    ]
    if energy["limit_w"] and energy["step_at_most"]:
        lines.append(f"  {_most_text(energy['limit_w'], run=energy['run_at_most'], step=energy['step_at_most'])}")
    return "\n".join([*lines, f"  {energy_line(one, energy)}", ""])


def energy_lines(models: Sequence[Estimated]) -> list[str]:
    """Format one line for each model with energy, and one for all that lack the same facts on a machine."""
    known = [(model, energy) for model in models if (energy := model["energy_j"]) is not None]
    lines = [energy_line(*one) for one in known if one[1]["step"] is not None]
    without = (one for one in known if one[1]["step"] is None)
    for (target, *reasons), similar in by_key(
        ((one[0]["target"], *one[1]["missing"]), one) for one in without
    ).items():
        if len(similar) == 1:
            lines.append(energy_line(*similar[0]))
            continue
        limit_w = similar[0][1]["limit_w"]
        limit = f"; the power limit is {limit_w:g} W a chip, no average" if limit_w else ""
        lines.append(f"energy: {len(similar)} models on {target}: missing, {'; '.join(reasons)}{limit}")
    return lines


def energy_line(one: Estimated, energy: EnergyUsed) -> str:
    """Format the energy of a model's step, run and unit on a machine, or why it is unknown."""
    head, run, unit = f"energy: {one['model']} on {one['target']}: ", energy["run"], energy["unit"]
    if energy["step"] is None:
        bounds = {"run": energy["run_at_most"], "step": energy["step_at_most"]}
        return f"{head}{_mean_unknown(energy['missing'], energy['limit_w'], **bounds)}"
    parts = [f"{format_energy(energy['step'])} per step"]
    if run is not None:
        parts.append(f"{_joule(run['value'])} per run")
        if unit is not None and unit != run:
            parts.append(f"{_joule(unit['value'])} per {one['unit']}")
    idle = f", {energy['idle_share']:.0%} of it idle power" if energy["idle_share"] is not None else ""
    notes = "".join(f"; {note}" for note in energy["notes"])
    return f"{head}{', '.join(parts)}; {energy['basis']}, scope {energy['scope']}{_process(energy)}{idle}{notes}"


MANY_MONEY = 10_000.0
"""Amount from which cents are not printed."""
NO_PRICE = "money: no price; add --price, or 'price' in the machine's profile"


def format_time(span: AnyEnds | None) -> str:
    """Format a time with the bounds of its interval."""
    return with_ends(span, seconds)


def format_money(span: AnyEnds | None, currency: str) -> str:
    """Format money with the bounds of its interval; with four digits if the upper bound is 10,000 or more.

    >>> format_money({"value": 1112.63772, "low": 1112.63772, "high": 1112.63772}, "USD")
    '1,112.64 USD'
    >>> format_money({"value": 4_123_456.0, "low": 4_000_000.0, "high": 4_500_000.0}, "USD")
    '4,123,000 (4,000,000 … 4,500,000) USD'
    >>> format_money({"value": 10_349.7, "low": 9504.05, "high": 12_230.1}, "USD")
    '10,350 (9,504 … 12,230) USD'
    """
    many = span is not None and (span["high"] or span["value"]) >= MANY_MONEY

    def write(value: float) -> str:
        if many and value >= 1:
            return f"{float(f'{value:.4g}'):,.0f}"
        return f"{value:,.2f}" if value >= 1 else format_number(value, 3)

    return with_ends(span, write, currency)


def price_rate(price: Priced) -> str:
    """Format the rate of a price with its bounds.

    >>> price_rate({"value": 4.56, "low": 4.0, "high": 5.0, "currency": "USD"})
    '4.56 (4 … 5) USD/h'
    """
    return with_ends(price, lambda value: f"{value:.4g}", f"{price['currency']}/h")


def price_text(price: Priced) -> str:
    """Format a price: rate, what it is for, date and source."""
    return f"{price_rate(price)} per {price['per']}, {price['date']} ({price['source']})"


def _length_text(span: AnyEnds | None) -> str:
    """Format a number of runs, epochs or steps, rounded up: below it the share is above 1 %."""
    if span is None:
        return ""
    value = span["value"]
    return f"{math.ceil(value):,}" if value >= 10 else format_number(value, 3)


def _length_of(name: str, words: str = "") -> Column:
    return Column(*figure(name, words), lambda row: "no length" if row["grows"] else _length_text(row[name]))


def _once(page: Page, once: PaidOnce) -> None:
    if once["terms"]:
        together = (
            [{**once["together"], "name": "together", "source": "", "grows": False}] if once["together"] else []
        )
        page.heading("paid once a run, and how long a training must be until that is 1 % of the work")
        page.columns(
            [word_of("name", "paid once"), Column(*figure("once_s"), lambda row: format_time(row["once_s"])),
             column_of("once_share", "of the run"), _length_of("steps_for_one_percent"),
             _length_of("epochs_for_one_percent"), _length_of("times_for_one_percent", "runs, 1 %"),
             word_of("source")],
            [*once["terms"], *together],
        )  # fmt: skip


def _cost_money(page: Page, content: CostContent) -> None:
    money = content["money"]
    if money is None:
        page.line(NO_PRICE)
        return
    units = "" if money["paid_units"] == 1 else f", {money['paid_units']:,} of them"
    runs_text = f"; {content['runs_at_once']:,} runs side by side" if content["runs_at_once"] > 1 else ""
    page.line(f"price: {price_text(money['price'])}{units}{runs_text}")
    currency = money["currency"]
    if money["run"] is None:
        page.line(f"money: unknown; {content['model']} does not define a run")
    else:
        unit = f"; a {content['unit']} {format_money(money['unit'], currency)}"
        more = "" if money["unit"] == money["run"] else unit
        page.line(f"a run costs {format_money(money['run'], currency)}{more}")
    page.lines(f"  {note}" for note in money["notes"])


def _add_inference(page: Page, content: CostContent, currency: str) -> None:
    one = content["inference"]
    if one is None:
        why = "it is priced on one device" if "job" in content else "the profile has no forward pass"
        page.line(f"inference: unknown; {why}")
        return
    # Each decode step makes one token for each sample of its batch.
    made = "tokens" if CACHE in content["sizes"] else "samples"
    rate = with_ends(one["sample_per_s"], lambda value: format_number(value, 4), f"{made}/s")
    page.line(f"inference: a batch of {one['batch']} in {format_time(one['latency_s'])}; {rate}")
    if one["money_per_million"] is not None:
        page.line(f"  a million {made} cost {format_money(one['money_per_million'], currency)}")
    if one["excludes"]:
        page.line(f"  excluded: {', '.join(one['excludes'])}")
    page.lines(f"  {message}" for message in one["deviations"])


def _carbon_lines(
    page: Page, carbon: Carbon | CampaignCarbon, kg: AnyEnds | None, what: str, most_kg: float | None = None
) -> None:
    """Add a carbon figure, or its upper bound, with the factors used; or the reasons why it is unknown."""
    grid = carbon["kg_per_kwh"]
    if grid is None or (kg is None and most_kg is None):
        page.line(f"carbon: unknown; {'; '.join(carbon['missing'])}")
        return
    if kg is None and most_kg is not None:
        message = f"at most {format_number(most_kg, 3)} kg CO2e, by its energy and the upper ends of the factors"
    else:
        message = with_ends(kg, lambda value: format_number(value, 3), "kg CO2e")
    parts = [f"{format_number(grid['value'], 3)} kg/kWh ({grid['source']})"]
    if carbon["to_wall"]:
        factor = carbon["to_wall"]
        parts.append(f"factor {factor['value']:g} from the figures' scope to the wall ({factor['source']})")
    if carbon["pue"]:
        parts.append(f"PUE {carbon['pue']['value']:g} ({carbon['pue']['source']})")
    page.line(f"carbon {what}: {message}; {', '.join(parts)}")
    page.lines(f"  {note}" for note in carbon["notes"])


def _run_energy(energy: Spending) -> str:
    if energy["run"] is None:
        return _mean_unknown(energy["missing"], energy["limit_w"], run=energy["run_at_most"])
    notes = "".join(f"; {note}" for note in energy["notes"])
    return f"{format_energy(energy['run'])} per run; {energy['basis']}, scope {energy['scope']}{notes}"


def format_cost(content: CostContent, screen: Screen = PLAIN) -> str:
    """Format ``fomkit/cost/1`` as text."""
    page = Page(screen)
    batch = "batch unknown" if content["batch"] is None else f"batch {content['batch']:,}"
    title = f"{content['model']} on {content['target']}, {batch}, {content['precision']}, scope {content['scope']}"
    times = f"step {format_time(content['step_s'])}, run {format_time(content['run_s'])}"
    page.line(f"{title}: {times}{mark_of(content)}", "bold")
    page.lines(job_lines(content))
    _cost_money(page, content)
    currency = content["money"]["currency"] if content["money"] else ""
    if (goal := content["to_target"]) is not None:
        cost = "" if goal["money"] is None else f", {format_money(goal['money'], currency)}"
        epochs = with_ends(goal["epochs"], lambda value: format_number(value, 3), "epochs")
        what = f"to {goal['metric']} {goal['target']:g} at batch {content['batch']:,}"
        page.line(f"{what}: {epochs}, {format_time(goal['to_target_s'])}{cost} ({goal['source']})")
        page.lines(f"  {note}" for note in goal["notes"])
    _add_inference(page, content, currency)
    energy, carbon = content["energy_j"], content["carbon"]
    if energy is not None:
        page.line(f"energy: {_run_energy(energy)}")
    if carbon is not None:
        kg = None if carbon["missing"] else carbon["kg"]["run"]
        _carbon_lines(page, carbon, kg, "of a run", carbon["run_at_most_kg"])
    if (gain := content["speedup"]) is not None:
        modelled = with_ends(gain["modelled"], lambda value: format_number(value, 3))
        alone = alone_text(gain["excludes_alone"])
        also = f"; {alone}" if alone else ""
        page.line(f"modelled speed-up over {gain['baseline']}, {gain['of']}: {modelled}{also}")
        if gain["naive_product"] is not None:
            factors = " × ".join(f"{factor:g}" for factor in gain["claimed"].values())
            page.line(f"  naive: {factors} = {gain['naive_product']:,.7g}, a {gain['naive']}")
    _once(page, content["once"])
    if content["excludes"]:
        terms = ", ".join(content["excludes"])
        page.line(f"excluded, because not stated: {terms}; figures are lower bounds")
    page.lines(deviation_lines(content))
    return page.text()


LACKING = "unknown, because the duration of some phases is unknown"

FEW_DAYS = 0.01
"""Days below which a time is printed in a smaller unit, because leading zeros are hard to read."""


def _days_of(span: AnyEnds | None) -> str:
    """Format days; less than a hundredth of a day as a time with its unit.

    >>> _days_of({"value": 1.787e-05, "low": None, "high": None})
    '1.544 s'
    >>> _days_of({"value": 2.5, "low": 2.0, "high": 3.0})
    '2.500 (2.000 … 3.000) days'
    """
    if span is not None and span["value"] < FEW_DAYS:
        return with_ends(span, lambda value: seconds(value * UNITS["time_s"]["d"]))
    return with_ends(span, lambda value: format_number(value, 4), "days")


def _phase_columns(currency: str | None) -> list[Column]:
    """Return the columns of phases; the main result is the duration, so columns about runs are dropped first."""

    def money(row: Entry) -> str:
        return "" if currency is None or row["money"] is None else format_money(row["money"], currency)

    return [
        Column("phase", "", lambda row: row["name"] + mark_of(row)), word_of("work", rank=2),
        word_of("mode", rank=3),
        Column(*figure("phases.runs"),
               lambda row: f"{row['runs']:,.{'0f' if float(row['runs']).is_integer() else '8g'}}"),
        word_of("runs_basis", "count is", 6),
        Column(*figure("run_s"), lambda row: "" if row["run_s"] is None else seconds(row["run_s"]["value"]), 1),
        column_of("unit_per_day", rank=-1),
        Column(*figure("days", "duration"), lambda row: _days_of(row["days"]), -2),
        Column(*figure("order_of_magnitude"), lambda row: str(row["order_of_magnitude"] or ""), 4),
        Column("duration is", "", lambda row: (row["basis"] if row["days"] else "") or "", 5),
        Column(*figure("money"), money),
        Column(*figure("energy_j"), lambda row: _joule(row["energy_j"]["value"]) if row["energy_j"] else ""),
    ]  # fmt: skip


def _total_text(entry: MachinePhases, name: Sum, write: Callable[[AnyEnds], str]) -> str:
    """Format a sum: without interval where a phase has no spread, and as a lower bound where a phase is one."""
    span, exact = entry[name], entry["no_spread"][name]
    if span is None:
        return LACKING
    if exact is None or not exact["phases"]:
        message = write(span)
    else:
        names, share = exact["phases"], f"{exact['share']:.2%}"
        who = "no phase states a spread"
        if len(names) < len(entry["phases"]):
            who = f"no spread is stated for {', '.join(names)}, {share} of it"
        message = f"{write(span)} (no interval: {who})"
    return f"{message}, a lower bound" if entry["lower_bound"] else message


def _machine(page: Page, entry: MachinePhases) -> None:
    page.heading(f"on {entry['target']}, scope {entry['scope']}")
    page.columns(_phase_columns(entry["currency"]), entry["phases"], filled=True)
    lacking = [
        f"no duration for {phase['name']}: {phase['missing']}" for phase in entry["phases"] if phase["missing"]
    ]
    page.lines(lacking)
    page.line(f"duration in all: {LACKING if lacking else _total_text(entry, 'days', _days_of)}")
    shares = {phase["name"]: phase["explained"] or 0.0 for phase in entry["phases"]}
    for message in run_notes({name: shares[name] for name in entry["little_explained"]}, "its duration is"):
        page.line(message, "yellow")
    if entry["price"] is None:
        page.line(NO_PRICE)
    elif entry["money"] is None:
        page.line(f"money in all: {LACKING}")
    else:
        paid, currency = entry["paid_units"] or 1, entry["currency"] or ""
        units = f"{paid:,} of them" if paid > 1 else "all of it"
        total = _total_text(entry, "money", lambda span: format_money(span, currency))
        page.line(f"money in all: {total}; {price_text(entry['price'])}, {units}")
    if entry["energy_j"] is None:
        page.line(f"energy in all: {_most_energy(entry)}{_why_no_energy(entry)}")
    else:
        page.line(f"energy in all: {_total_text(entry, 'energy_j', format_energy)}, scope {entry['energy_scope']}")
    if entry["carbon"] is not None:
        _carbon_lines(page, entry["carbon"], entry["carbon"]["kg"], "in all", entry["carbon"]["at_most_kg"])
    for phase in entry["phases"]:
        if phase["excludes"]:
            page.line(f"{phase['name']}: excluded: {', '.join(phase['excludes'])}; a lower bound")
        page.lines(f"{phase['name']}: {message}" for message in phase["deviations"])


def _most_energy(entry: MachinePhases) -> str:
    """Return the bound of the energy by the power limit of the chips, else those of the phases that have one."""
    most, limit = entry["energy_at_most_j"], "by the power limit of the chips; its mean is "
    if most is not None:
        return f"at most {_joule(most)}, {limit}"
    each = [
        f"{_joule(one['energy_at_most_j'])} ({one['name']})" for one in entry["phases"] if one["energy_at_most_j"]
    ]
    return f"at most {', '.join(each)}, {limit}" if each else ""


def _why_no_energy(entry: MachinePhases) -> str:
    """Return each reason once, with the phases that it applies to."""
    phases = by_key((why, phase["name"]) for phase in entry["phases"] for why in phase["energy_missing"])
    if phases:
        return "unknown; " + "; ".join(f"{why} ({', '.join(names)})" for why, names in phases.items())
    if any(phase["missing"] for phase in entry["phases"]):
        return LACKING
    scopes = dict.fromkeys(phase["energy_scope"] for phase in entry["phases"])
    return f"unknown; the phases have different scopes ({' and '.join(map(str, scopes))}) and cannot be added"


def format_campaign(content: CampaignsContent, screen: Screen = PLAIN) -> str:
    """Format ``fomkit/campaign-cost/1`` as text."""
    page = Page(screen)
    page.line(f"{content['campaign']}: {content['title']}", "bold")
    for machine in content["machines"]:
        _machine(page, machine)
    page.heading("number of runs, source:", "")
    page.lines(f"  {phase['name']}: {phase['source']}" for phase in content["machines"][0]["phases"])
    page.notes(content["notes"])
    return page.text()

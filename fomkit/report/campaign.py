"""Campaigns as text: each phase's rate, days, money and energy on each machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fomkit.quantities import format_number, format_quantity
from fomkit.report.cost import NO_PRICE, between, carbon_said, format_money, price_said
from fomkit.report.energy import format_energy
from fomkit.report.screen import PLAIN, Page, Screen, figure, new_table
from fomkit.report.terminal import mark_of, said_of_runs

Entry = Mapping[str, Any]


LACKING = "unknown, because not all phases have days"


def _days_of(span: Entry | None) -> str:
    return between(span, lambda value: format_number(value, 4))


def _order(one: Entry) -> str:
    return "" if one["order_of_magnitude"] is None else str(one["order_of_magnitude"])


def _row(one: Entry, currency: str | None) -> list[str]:
    rate = "unknown" if one["unit_per_day"] is None else format_number(one["unit_per_day"]["value"], 4)
    run = "" if one["run_s"] is None else format_quantity(one["run_s"]["value"], "time_s")
    money = "" if currency is None or one["money"] is None else format_money(one["money"], currency)
    energy = "" if one["energy_j"] is None else format_quantity(one["energy_j"]["value"], "energy_j", 3)
    return [
        one["name"] + mark_of(one), one["work"], one["mode"], f"{one['runs']:,.8g}", one["runs_basis"], run, rate,
        _days_of(one["days"]), _order(one), one["basis"] if one["days"] else "", money, energy,
    ]  # fmt: skip


def _table(page: Page, one: Entry) -> None:
    """Draw the phases; columns that no phase fills are left out."""
    rows = [_row(phase, one["currency"]) for phase in one["phases"]]
    head = [("phase", ""), ("work", ""), ("mode", ""), figure("phases.runs"), ("count is", ""), figure("run_s"),
            figure("unit_per_day"), figure("days"), figure("order_of_magnitude"), ("days are", ""),
            figure("money"), figure("energy_j")]  # fmt: skip
    kept = [place for place in range(len(head)) if any(row[place] for row in rows)]
    table = new_table([head[place] for place in kept])
    for row in rows:
        table.add_row(*(row[place] for place in kept))
    page.table(table)


def _in_all(one: Entry, name: str, write: Callable[[Entry], str]) -> str:
    """Write a sum: with no interval where a phase in it states no spread, and as a bound where a phase is one."""
    span, exact = one[name], one["no_spread"][name]
    if exact is None or not exact["phases"]:
        said = write(span)
    else:
        names, share = exact["phases"], f"{exact['share']:.2%}"
        who = "no phase states a spread"
        if len(names) < len(one["phases"]):
            who = f"no spread is stated of {', '.join(names)}, {share} of it"
        said = f"{write({**span, 'low': span['value'], 'high': span['value']})} (no interval: {who})"
    return f"{said}, a lower bound" if one["lower_bound"] else said


def _machine(page: Page, one: Entry) -> None:
    page.line("")
    page.line(f"on {one['target']}, scope {one['scope']}", "bold")
    _table(page, one)
    lacking = [f"{phase['name']}: {phase['missing']}" for phase in one["phases"] if phase["missing"]]
    for why in lacking:
        page.line(f"no days of {why}")
    page.line(f"days in all: {LACKING if lacking else _in_all(one, 'days', _days_of)}")
    shares = {phase["name"]: phase["explained"] for phase in one["phases"]}
    for said in said_of_runs({name: shares[name] for name in one["little_explained"]}, "its days are"):
        page.line(said, "yellow")
    _money(page, one)
    _energy(page, one)
    for phase in one["phases"]:
        if phase["excludes"]:
            page.line(f"{phase['name']}: not counted: {', '.join(phase['excludes'])}; a lower bound")
        for said in phase["deviations"]:
            page.line(f"{phase['name']}: {said}")


def _money(page: Page, one: Entry) -> None:
    if one["price"] is None:
        page.line(NO_PRICE)
    elif one["money"] is None:
        page.line(f"money in all: {LACKING}")
    else:
        units = f"{one['paid_units']:,} of them" if one["paid_units"] > 1 else "all of it"
        total = _in_all(one, "money", lambda span: format_money(span, one["currency"]))
        page.line(f"money in all: {total}; {price_said(one['price'])}, {units}")


def _why_no_energy(one: Entry) -> str:
    """Give each reason once, with the phases that it holds for."""
    phases: dict[str, list[str]] = {}
    for phase in one["phases"]:
        for why in phase["energy_missing"]:
            phases.setdefault(why, []).append(phase["name"])
    if phases:
        return "unknown; " + "; ".join(f"{why} ({', '.join(names)})" for why, names in phases.items())
    if any(phase["missing"] for phase in one["phases"]):
        return LACKING
    scopes = dict.fromkeys(phase["energy_scope"] for phase in one["phases"])
    return f"unknown; the phases' figures are of the scopes {' and '.join(map(str, scopes))}, which do not add up"


def _energy(page: Page, one: Entry) -> None:
    if one["energy_j"] is None:
        page.line(f"energy in all: {_why_no_energy(one)}")
    else:
        page.line(f"energy in all: {_in_all(one, 'energy_j', format_energy)}, scope {one['energy_scope']}")
    carbon = one["carbon"]
    if carbon is None:
        return
    if carbon["kg"] is None:
        page.line(f"carbon: unknown; {'; '.join(carbon['missing'])}")
        return
    page.line(f"carbon in all: {carbon_said(carbon, carbon['kg'])}")
    for note in carbon["notes"]:
        page.line(f"  {note}")


def format_campaign(content: Entry, screen: Screen = PLAIN) -> str:
    """Write ``fomkit/campaign-cost/1`` as text."""
    page = Page(screen)
    page.line(f"{content['campaign']}: {content['title']}", "bold")
    for one in content["machines"]:
        _machine(page, one)
    page.line("")
    for phase in content["machines"][0]["phases"]:
        page.line(f"{phase['name']}: {phase['source']}")
    for note in content["notes"]:
        page.line(f"note: {note}")
    return page.text()

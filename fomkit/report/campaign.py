"""Campaigns as text: each phase's rate, days, money and energy on each machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fomkit.quantities import format_number, format_quantity
from fomkit.report.cost import between, carbon_said, format_money, price_said
from fomkit.report.energy import format_energy
from fomkit.report.screen import PLAIN, Page, Screen, figure, new_table

Entry = Mapping[str, Any]


def _days(one: Entry) -> str:
    if one["days"] is None:
        return "unknown"
    return between(one["days"], lambda value: format_number(value, 4))


def _order(one: Entry) -> str:
    return "" if one["order_of_magnitude"] is None else str(one["order_of_magnitude"])


def _row(one: Entry, currency: str | None) -> list[str]:
    rate = "unknown" if one["unit_per_day"] is None else format_number(one["unit_per_day"]["value"], 4)
    run = "" if one["run_s"] is None else format_quantity(one["run_s"]["value"], "time_s")
    money = "" if currency is None or one["money"] is None else format_money(one["money"], currency)
    energy = "" if one["energy_j"] is None else format_quantity(one["energy_j"]["value"], "energy_j", 3)
    return [
        one["name"], one["work"], one["mode"], f"{one['runs']:,.8g}", one["runs_basis"], run, rate, _days(one),
        _order(one), money, energy,
    ]  # fmt: skip


def _machine(page: Page, one: Entry) -> None:
    page.line("")
    page.line(f"on {one['target']}, scope {one['scope']}", "bold")
    table = new_table(
        [("phase", ""), ("work", ""), ("mode", ""), figure("phases.runs"), ("count is", ""), figure("run_s"),
         figure("unit_per_day"), figure("days"), figure("order_of_magnitude"), figure("money"), figure("energy_j")]
    )  # fmt: skip
    for phase in one["phases"]:
        table.add_row(*_row(phase, one["currency"]))
    page.table(table)
    lacking = [f"{phase['name']}: {phase['missing']}" for phase in one["phases"] if phase["missing"]]
    for why in lacking:
        page.line(f"no days of {why}")
    total = "unknown, because not all phases have days" if lacking else _days(one)
    page.line(f"days in all: {total}")
    if one["price"] is not None and one["money"] is not None:
        units = f"{one['paid_units']:,} of them" if one["paid_units"] > 1 else "all of it"
        page.line(
            f"money in all: {format_money(one['money'], one['currency'])}; {price_said(one['price'])}, {units}"
        )
    _energy(page, one)
    for phase in one["phases"]:
        if phase["excludes"]:
            page.line(f"{phase['name']}: not counted: {', '.join(phase['excludes'])}; a lower bound")
        for said in phase["deviations"]:
            page.line(f"{phase['name']}: {said}")


def _energy(page: Page, one: Entry) -> None:
    if one["energy_j"] is not None:
        page.line(f"energy in all: {format_energy(one['energy_j'])}, scope {one['energy_scope']}")
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

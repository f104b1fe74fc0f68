"""Figures that a user declares in a line of text: each with its unit, perhaps its ends, and who says so.

``4.56 USD/h per node, 2018-04-01`` · ``0.38 kg/kWh, 0.3 kg/kWh to 0.5 kg/kWh, grid operator 2024`` · ``1.2, the
operator``
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from math import isfinite
from typing import cast, get_args

from fomkit.errors import FomkitError, nearest_names
from fomkit.hardware import Fact, Price, Scope
from fomkit.profiles.price_record import check_day, check_price
from fomkit.quantities import parse_money_rate, parse_quantity
from fomkit.study.footprint import Grid
from fomkit.study.stack import STATED
from fomkit.tables.cells import is_number

_ENDS = re.compile(r"([\d.].*?)\s+to\s+([\d.].*)")
_PER = re.compile(r"(.*?)\s+per\s+(.*)")
MOST_FACTOR = 100.0
PRICE_EXAMPLE = "4.56 USD/h per node, 2018-04-01"


def _parts(text: str) -> tuple[str, tuple[str, str] | None, list[str]]:
    """Take a line apart: the figure, its ends where it has any, and what else is said."""
    figure, *rest = (part.strip() for part in text.split(","))
    for place, part in enumerate(rest):
        if match := _ENDS.fullmatch(part):
            return figure, (match[1], match[2]), rest[:place] + rest[place + 1 :]
    return figure, None, rest


def parse_price(text: str) -> Price:
    """Read a price: ``4.56 USD/h per node, 2018-04-01``; ends, ``4 USD/h to 5 USD/h``, and a source may follow.

    Raises
    ------
    FomkitError
        When it lacks its currency, its time, what it is per, or its date.

    Examples
    --------
    >>> price = parse_price("3600 USD/h per node, 2018-04-01, list price")
    >>> price.per_s.value, price.currency, price.per, price.date, price.per_s.source
    (1.0, 'USD', 'node', '2018-04-01', 'list price')
    """
    where, write = f"--price {text!r}", f"Write, for example, --price '{PRICE_EXAMPLE}'."
    figure, ends, rest = _parts(text)
    match = _PER.fullmatch(figure)
    rate = parse_money_rate(match[1] if match else figure, where, "the price")
    if match is None:
        raise FomkitError(where, f"does not say what is paid for: a device, a node or the system. {write}")
    if match[2] not in get_args(Scope):
        raise FomkitError(where, f"{match[2]!r} is nothing to pay for. {nearest_names(match[2], get_args(Scope))}")
    if not rest:
        raise FomkitError(where, f"has no date; prices change. {write}")
    low, high = (parse_money_rate(end, where, "its end") for end in ends) if ends else (rate, rate)
    check_price(where, (low, rate, high))
    day, source = check_day(rest[0], where), ", ".join(rest[1:]) or STATED
    return Price(Fact(rate[0], low[0], high[0], "assumed", source), rate[1], cast("Scope", match[2]), day)


def _fact(text: str, option: str, example: str, parse: Callable[[str, str], float], least: float) -> Fact:
    where = f"{option} {text!r}"
    figure, ends, rest = _parts(text)
    value = parse(figure, where)
    low, high = (parse(end, where) for end in ends) if ends else (value, value)
    if not rest or not "".join(rest):
        raise FomkitError(where, f"does not say where it is from. Write, for example, {option} '{example}'.")
    if not low <= value <= high:
        raise FomkitError(where, "must have low ≤ value ≤ high. Correct these.")
    if low < least or not low > 0:
        raise FomkitError(
            where, f"is {low:g}. {'A value above 0' if not least else f'{least:g} or more'} was expected."
        )
    return Fact(value, low, high, "assumed", ", ".join(rest))


def parse_intensity(text: str) -> Fact:
    """Read the carbon intensity of a grid [kg CO2e/J], such as ``0.38 kg/kWh, grid operator 2024``.

    Examples
    --------
    >>> round(parse_intensity("0.36 kg/kWh, operator").value * 1e6, 12)
    0.1
    """
    return _fact(
        text.replace(" CO2e/", "/").replace("CO2e/", "/"),
        "--carbon",
        "0.38 kg/kWh, grid operator 2024",
        lambda part, where: parse_quantity(part, "kg_per_j", where, "the intensity"),
        0.0,
    )


def _number(text: str) -> float | None:
    return float(text) if is_number(text) and isfinite(float(text)) else None


def _factor(text: str, option: str, example: str) -> Fact:
    def parse(part: str, where: str) -> float:
        value = _number(part)
        if value is None or value > MOST_FACTOR:
            said = (
                "no plain number"
                if value is None
                else f"more than {MOST_FACTOR:g}, which nothing built is near to"
            )
            raise FomkitError(where, f"{part!r} is {said}. Write, for example, {option} '{example}'.")
        return value

    return _fact(text, option, example, parse, 1.0)


def parse_pue(text: str) -> Fact:
    """Read a building's energy over that of its machines, such as ``1.2, operator 2024``."""
    return _factor(text, "--pue", "1.2, operator 2024")


def parse_to_wall(text: str) -> Fact:
    """Read energy at the wall over that of a narrower scope, such as ``1.6, 1.4 to 1.9, meter beside NVML``."""
    return _factor(text, "--to-wall", "1.6, 1.4 to 1.9, meter beside NVML")


def parse_grid(intensity: str | None, to_wall: str | None, pue: str | None) -> Grid:
    """Read what is declared for carbon; what is None is not declared."""
    return Grid(
        parse_intensity(intensity) if intensity is not None else None,
        parse_to_wall(to_wall) if to_wall is not None else None,
        parse_pue(pue) if pue is not None else None,
    )


def parse_claims(texts: Sequence[str]) -> dict[str, float]:
    """Read claimed speed-ups such as ``hardware=3.1``.

    Raises
    ------
    FomkitError
        When one has no name or no number, or stands twice.

    Examples
    --------
    >>> parse_claims(["hardware=3.1", "larger batch=1.25"])
    {'hardware': 3.1, 'larger batch': 1.25}
    """
    found: dict[str, float] = {}
    for text in texts:
        name, _, factor = (part.strip() for part in text.partition("="))
        value = _number(factor)
        if not name or value is None or name in found:
            raise FomkitError(
                f"--claimed {text!r}",
                "is no new name with a factor. Write, for example, --claimed 'hardware=3.1'.",
            )
        found[name] = value
    return found

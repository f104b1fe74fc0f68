"""What a machine file may say of its price; see docs/cost.md."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

from fomkit.errors import FomkitError
from fomkit.hardware import Basis, Fact, Price, Scope
from fomkit.profiles.currencies import CURRENCIES
from fomkit.profiles.facts import fact_of
from fomkit.profiles.records import MoneyRate, Record
from fomkit.profiles.strict_yaml import Document
from fomkit.quantities import MONEY_PER, UNITS

EARLIEST_ZONE = timedelta(hours=14)
"""Where a day begins first, ahead of UTC."""


class PriceRecord(Record):
    """``price``: what the use of a device, a node or the system costs; low and high belong to the rate."""

    rate: MoneyRate
    per: Scope
    date: str
    source: str
    low: MoneyRate | None = None
    high: MoneyRate | None = None
    basis: Basis = "published"


def check_day(text: str, where: str) -> str:
    """Give a day as it stands.

    Raises
    ------
    FomkitError
        When it is no day of the form 2018-04-01, or is still to come everywhere on Earth.
    """
    try:
        day = date.fromisoformat(text)
    except ValueError:
        day = None
    if day is None or day.isoformat() != text:
        raise FomkitError(
            where, f"the price's date is {text!r}. Write the day when it was the price, for example 2018-04-01."
        )
    if day > (datetime.now(UTC) + EARLIEST_ZONE).date():
        raise FomkitError(
            where, f"the price's date is {text}, which is still to come. Write the day when it was the price."
        )
    return text


def check_price(where: str, rates: tuple[tuple[float, str], ...]) -> None:
    """Raise unless rates, low, value and high, are in order and of one currency, which is one of ISO 4217.

    Raises
    ------
    FomkitError
        With what was expected.
    """
    if len({currency for _, currency in rates}) > 1:
        raise FomkitError(where, "the price has ends in another currency than its value. Write all in one.")
    _, (_, currency), _ = rates
    if currency not in CURRENCIES:
        raise FomkitError(
            where,
            f"{currency!r} is no currency in use by ISO 4217. Write its code, for example USD.",
        )
    if sorted(per_s for per_s, _ in rates) != [per_s for per_s, _ in rates]:
        raise FomkitError(where, "the price must have low ≤ value ≤ high. Correct these.")


def price_of(document: Document, record: PriceRecord | None) -> Price | None:
    """Make the price noun of its part of a machine file; None where the file has none.

    Raises
    ------
    FomkitError
        With file and line, when the date is none, or the ends are not in order or in another currency.
    """
    if record is None:
        return None
    check_price(document.where(("price",)), (record.low or record.rate, record.rate, record.high or record.rate))
    day = check_day(record.date, document.where(("price", "date")))
    per_s, currency = record.rate
    low, high = (end[0] if end else None for end in (record.low, record.high))
    fact = fact_of(per_s, low, high, record.basis, record.source)
    return None if fact is None else Price(fact, currency, record.per, day)


def money_rate(per_s: float, currency: str) -> str:
    """Write a rate as text that is read back to the same float, by the hour where that is short.

    Examples
    --------
    >>> money_rate(4.56 / 3600, "USD")
    '4.56 USD/h'
    """
    for time in MONEY_PER:
        size = UNITS["time_s"][time]
        amount = f"{per_s * size:.12g}"
        if float(amount) / size == per_s:
            return f"{amount} {currency}/{time}"
    return f"{per_s!r} {currency}/s"


def price_content(price: Price) -> dict[str, str]:
    """Put a price in the form of the YAML file."""
    fact: Fact = price.per_s
    ends = {} if fact.low == fact.high else {"low": fact.low, "high": fact.high}
    return {
        "rate": money_rate(fact.value, price.currency),
        **{end: money_rate(value, price.currency) for end, value in ends.items()},
        "per": price.per,
        "date": price.date,
        "basis": fact.basis,
        "source": fact.source,
    }

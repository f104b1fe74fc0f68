"""The money of a sweep's points, by the rules of `fomkit.fom.money`: at a price asked for or the machine's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import pandas as pd

from fomkit.errors import FomkitError
from fomkit.fom.money import money, paid_units
from fomkit.hardware import Fact, Price
from fomkit.quantities import DAY_S, UNITS, parse_money_rate
from fomkit.spans import Span
from fomkit.tables.cells import is_number
from fomkit.whatif.sweep_parameters import PRICE

if TYPE_CHECKING:
    from fomkit.hardware import Machine, Scope
    from fomkit.whatif.sweep_axes import Given

Per = Literal["unit of work", "sample", "step"]
HOUR_S = UNITS["time_s"]["h"]
COST = "cost"
ENDS = ("", "_low", "_high")
_TURNED = {"": "", "_low": "_high", "_high": "_low"}


class Bill(NamedTuple):
    """What is paid: the price, whether its rate is varied, and the paid units; None is by the nodes of a point.

    ``level`` is that of the intervals, ``up_share`` the time that a system is up, 1 below its scope.
    """

    price: Price
    varied: bool
    units: int | None
    level: float
    up_share: float
    node_devices: int


def _hourly(text: str, own: str, where: str) -> tuple[str, str]:
    """Read one price: the number for an hour, and its currency."""
    if is_number(text):
        if not own:
            raise FomkitError(
                where, f"is {text!r}, which has no currency, and the machine states no price. Write, for example, "
                f"--vary '{PRICE}=2.50 USD/h'.",
            )  # fmt: skip
        return text, own
    per_s, currency = parse_money_rate(text, where, PRICE)
    return f"{per_s * HOUR_S:.12g}", currency


def read_prices(given: Given, own: Price | None) -> tuple[Given, str]:
    """Take the currency out of prices: plain numbers for an hour remain, as `make_axis` reads them.

    Raises
    ------
    FomkitError
        When there is no currency, or more than one.

    Examples
    --------
    >>> read_prices("1.50 USD/h..3 USD/h:4", None)
    ('1.5..3:4', 'USD')
    """
    where, known = f"--vary {PRICE}", own.currency if own else ""
    if not isinstance(given, str):
        return given, _hourly(str(np.ravel(given)[0]) if np.size(given) else "0", known, where)[1]
    body, colon, steps = given.partition(":")
    parts = re.split(r"(\.\.|,)", body)
    read = [_hourly(part.strip(), known, where) for part in parts[::2]]
    currencies = sorted({currency for _, currency in read})
    if len(currencies) > 1:
        raise FomkitError(where, f"is in {' and '.join(currencies)}. Write all in one currency.")
    parts[::2] = [number for number, _ in read]
    return "".join(parts) + colon + steps, currencies[0]


def with_prices(vary: Mapping[str, Given], own: Price | None) -> tuple[Mapping[str, Given], str]:
    """Read the prices among what is varied; "" is the currency where there are none."""
    if PRICE not in vary:
        return vary, ""
    prices, currency = read_prices(vary[PRICE], own)
    return {**vary, PRICE: prices}, currency


def bill_of(machine: Machine, scope: Scope, currency: str, level: float, *, on_nodes: bool) -> Bill | None:
    """Choose the price: that asked for (``currency`` says of what), else the machine's; None where there is none.

    Raises
    ------
    FomkitError
        When the machine's price is of more than the scope.
    """
    if not currency and machine.price is None:
        return None
    asked = Price(Fact(1.0, 1.0, 1.0, "assumed", "given by the user"), currency, "device", "")
    price = asked if currency or machine.price is None else machine.price
    units = None if on_nodes else paid_units(price, machine, scope)
    up_share = machine.availability if scope == "system" else 1.0
    return Bill(price, bool(currency), units, level, up_share, machine.node_devices or 1)


def _units(bill: Bill, found: pd.DataFrame) -> pd.Series | float:
    """Count what is paid for at each point; of nodes, those of all jobs at once."""
    if bill.units is not None:
        return float(bill.units)
    of = {"device": 1, "node": bill.node_devices}.get(bill.price.per)
    return 1.0 if of is None else found["devices"] * found["jobs"] / of


def add_cost(found: pd.DataFrame, points: pd.DataFrame, bill: Bill, per: Per) -> pd.DataFrame:
    """Add what one unit of work, sample or step costs, as `fomkit.fom.money.money_of_run` has it."""
    units = _units(bill, found)
    share = units / (found["jobs"] * bill.up_share)
    if per == "unit of work":  # its rate counts the jobs at once, and the time that they are up
        paid_s = {end: units * DAY_S / found[f"unit_per_day{_TURNED[end]}"] for end in ENDS}
    elif per == "sample":
        paid_s = {end: share / found[f"sample_per_s{_TURNED[end]}"] for end in ENDS}
    else:
        paid_s = {end: share * found[f"step_s{end}"] for end in ENDS}
    if bill.varied:
        # A price without a spread only scales: the interval is that of the time.
        return found.assign(**{f"{COST}{end}": points[PRICE] / HOUR_S * paid_s[end] for end in ENDS})
    times = zip(*(paid_s[end].tolist() for end in ENDS), strict=True)
    spans = [money(bill.price, Span(value, low, high, bill.level)) for value, low, high in times]
    return found.assign(
        **{COST: [one.value for one in spans], f"{COST}_low": [one.low for one in spans],
           f"{COST}_high": [one.high for one in spans]}
    )  # fmt: skip

"""Money: a price times the time that something is paid for, whole devices, nodes or systems at a time."""

from __future__ import annotations

from fomkit.errors import FomkitError
from fomkit.hardware import Machine, Price, Scope
from fomkit.spans import Span, multiply_independent


def paid_units(price: Price, machine: Machine, scope: Scope) -> int:
    """Count what is paid for while runs fill a scope: a node is paid whole, even for a run on one of its devices.

    Raises
    ------
    FomkitError
        When the price is of the whole system and the scope is narrower: nobody says what a part of it costs.
    """
    if price.per == "device":
        return machine.devices(scope)
    if price.per == "node":
        return machine.devices(scope) // machine.devices("node") if scope == "system" else 1
    if scope != "system":
        raise FomkitError(
            "price", f"is per system, and the scope is {scope!r}. Add '--scope system', or give it per node."
        )
    return 1


def money(price: Price, time_s: Span, units: float = 1.0) -> Span:
    """Give what a time [s] of so many paid units costs, in the currency of the price.

    Price and time are independent; where nobody states a spread of the price, the interval is that of the time.

    Examples
    --------
    The DAWNBench entry of ResNet-152: 243.9995 h at 4.56 USD/h.

    >>> from fomkit.hardware import Fact
    >>> rate = 4.56 / 3600
    >>> price = Price(Fact(rate, rate, rate, "published", "DAWNBench"), "USD", "node", "2018-04-01")
    >>> round(money(price, Span.exact(243.9995 * 3600)).value, 2)
    1112.64
    """
    return multiply_independent(price.per_s.span(time_s.level).scaled(units), time_s)


def money_of_run(price: Price, machine: Machine, scope: Scope, at_once: int, run_s: Span) -> Span:
    """Give what one run costs while ``at_once`` of them fill a scope; down time of a system is paid too.

    Parameters
    ----------
    price : Price
    machine : Machine
    scope : str
        device, node or system.
    at_once : int
        Runs in progress at the same time at that scope.
    run_s : Span
        Time of one run [s].
    """
    up_share = machine.availability if scope == "system" else 1.0
    return money(price, run_s, paid_units(price, machine, scope) / (at_once * up_share))

"""What a device's links carry in a stretch of a step: busy, what no op hides, and where times are from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from fomkit.network import Exchange
from fomkit.parallel.replicas import Traffic
from fomkit.parallel.tensor_traffic import Sent
from fomkit.spans import Span, add_common


@dataclass(frozen=True)
class Waits:
    """Busy and exposed time of links [s]; ``sources``: the exposed time by time source."""

    busy: Span
    exposed: Span
    sources: Mapping[str, float] = field(default_factory=dict)

    def scaled(self, times: float) -> Waits:
        """Have the same so many times."""
        sources = {name: seconds * times for name, seconds in self.sources.items()}
        return Waits(self.busy.scaled(times), self.exposed.scaled(times), sources)


def bare(one: Exchange) -> Waits:
    """Give an exchange that hides behind nothing."""
    return Waits(one.time, one.time, {one.source: one.time.value})


def of_traffic(one: Traffic) -> Waits:
    """Give what replicas send each other."""
    return Waits(one.busy_s, one.exposed_s, {one.source: one.exposed_s.value})


def add_waits(parts: Iterable[Waits]) -> Waits:
    """Add waits one after the other; the errors of links go up and down together."""
    found = list(parts)
    sources: dict[str, float] = {}
    for one in found:
        for name, seconds in one.sources.items():
            sources[name] = sources.get(name, 0.0) + seconds
    return Waits(add_common(one.busy for one in found), add_common(one.exposed for one in found), sources)


def waits_for(
    sent: Iterable[Sent], times: Mapping[str, Exchange], one_s: Mapping[str, float], level: float
) -> Waits:
    """Add up what is sent, each less the time of the op that hides it.

    Parameters
    ----------
    sent : iterable of Sent
    times : mapping
        Each collective's exchange.
    one_s : mapping
        Time of one execution of each op [s].
    level : float
        Of the intervals.

    Examples
    --------
    >>> sum_ = Exchange(Span(3.0, 2.0, 5.0), "measured")
    >>> waits_for([Sent("all_reduce", "product")] * 2, {"all_reduce": sum_}, {"product": 2.5}, 0.8).exposed
    Span(value=1.0, low=0.0, high=5.0, level=0.8)
    """
    zero = Span.exact(0.0, level)
    found = [Waits(zero, zero)]
    for one in sent:
        exchange = times[one.collective]
        time = exchange.time
        hidden = float(one_s[one.hidden_by]) if one.hidden_by else 0.0
        value, low, high = (max(0.0, end - hidden) for end in (time.value, time.low, time.high))
        found.append(Waits(time, Span(value, low, high, level), {exchange.source: value}))
    return add_waits(found)

"""A trace of several devices or processes: the one that is taken, and what is said of the others."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import TypeVar

from fomkit.errors import printable
from fomkit.quantities import format_quantity

MAX_NAMED = 8
_K = TypeVar("_K", bound=Hashable)


def busiest(times: Mapping[_K, float]) -> _K:
    """Give what ran longest; of equals the first.

    Parameters
    ----------
    times : mapping
        Time by device or process, at least one.
    """
    return max(times, key=lambda one: times[one])


def say_busiest(what: str, times_s: Mapping[str, float], taken: str) -> Iterator[str]:
    """Tell which device or process was taken and name the others; nothing where it is the only one.

    Parameters
    ----------
    what : str
        ``devices`` or ``processes``.
    times_s : mapping
        Time [s] by name.
    taken : str
    """
    if len(times_s) < 2:
        return
    listed = [
        f"{printable(name)} ({format_quantity(time_s, 'time_s', 3)})"
        for name, time_s in times_s.items()
        if name != taken
    ]
    more = f" and {len(listed) - MAX_NAMED} more" if len(listed) > MAX_NAMED else ""
    yield (
        f"partial: the trace is of {len(times_s)} {what}; the busiest was taken, {printable(taken)} "
        f"({format_quantity(times_s[taken], 'time_s', 3)}), and left out: {', '.join(listed[:MAX_NAMED])}{more}"
    )

"""A machine's overheads as times: those stated in seconds as they are, shares of the time they add to."""

from __future__ import annotations

from fomkit.errors import FomkitError
from fomkit.hardware import Machine, Overhead
from fomkit.spans import Span

INPUT = "input"
"""Name of the overhead per step that is the input pipeline, which runs beside the device."""


def overhead_span(overhead: Overhead, of: Span) -> Span:
    """Give the time [s] of one overhead on top of ``of``.

    Raises
    ------
    FomkitError
        When it states neither a time nor a share, which is unknown and not 0.
    """
    if overhead.time_s is not None:
        return overhead.time_s.span(of.level)
    if overhead.share is None:
        raise FomkitError(f"overhead {overhead.name}", "states neither a time nor a share. Give one of them.")
    return of.scaled(overhead.share.value)


def overheads(machine: Machine, per: str, of: Span) -> dict[str, Span]:
    """Give the machine's overheads per run, epoch or step, by name."""
    return {one.name: overhead_span(one, of) for one in machine.overheads if one.per == per}

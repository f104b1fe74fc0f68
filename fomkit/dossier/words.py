"""What the words of an estimate mean, for a reader who meets them for the first time."""

from __future__ import annotations

from collections.abc import Mapping

from fomkit.quantities import format_number, format_quantity
from fomkit.report.book import Cell
from fomkit.report.terminal import NARROW, NO_SPREAD
from fomkit.spans import Span

SOURCES: Mapping[str, str] = {
    "measured": "this very op was timed on this machine",
    "interpolated": "from timed ops near it",
    "extrapolated": "from timed ops farther off, with a wider interval",
    "transferred": "another form of the op was timed here, and the interval is wider",
    "roofline": "no such op was timed here: peak, bandwidth and launch cost, as far as timed machines use them",
    "alpha_beta": "start-up time and bandwidth of a link",
    "assumed": "somebody's assumption, marked as such",
    "unpriced": "without any time; a share of op executions, and no part of the result",
}  # fmt: skip

LEFT_OUT: Mapping[str, str] = {
    "input": "input: loading the data of a step; nobody stated how long it takes",
    "validation": "validation: nobody stated how many samples are validated after an epoch",
    "start_up": "start-up: importing, reading data and weights, once a run; nobody stated how long it takes",
    "host_launch": "host launch: what the host needs to start the kernels; the machine's profile does not say",
    "unpriced": "ops without a time",
    "loss": "loss: the source of the profile did not hold it",
}

BOUND: Mapping[str, str] = {
    "compute": "the device's arithmetic",
    "memory": "the device's memory traffic",
    "launch": "the host, which starts the kernels",
    "input": "the input",
    "network": "the network",
    "measured": "the device, as it was measured",
}


def amount(span: Span | None, dimension: str | None = "time_s") -> str:
    """Write the value of a span; ``unknown`` where there is none."""
    if span is None:
        return "unknown"
    return format_number(span.value, 3) if dimension is None else format_quantity(span.value, dimension, 3)


def both_ends(span: Span, dimension: str | None = "time_s") -> tuple[str, str]:
    """Write the low and the high end of a span."""
    low, high = (
        format_number(end, 3) if dimension is None else format_quantity(end, dimension, 3)
        for end in (span.low, span.high)
    )
    return low, high


def ends(span: Span | None, dimension: str | None = "time_s") -> str:
    """Write the interval of a span."""
    if span is None or span.low == span.high:
        return "" if span is None else NO_SPREAD
    low, high = both_ends(span, dimension)
    return NARROW if low == high else f"{low} to {high}"


def interval(span: Span | None, dimension: str | None = "time_s") -> str:
    """Write the interval of a span with its level, as a sentence does."""
    if span is None or span.low == span.high:
        return ends(span, dimension)
    low, high = both_ends(span, dimension)
    return f"{span.level:.0%} interval {NARROW}" if low == high else f"{span.level:.0%} between {low} and {high}"


def number(value: float | None, dimension: str | None = None, digits: int = 3) -> Cell:
    """Make a cell of a number that sorts by its value; an unknown one is empty and sorts last."""
    if value is None or value != value:
        return Cell("", -1.0)
    if dimension is None:
        return Cell(f"{value:,.0f}" if float(value).is_integer() else format_number(value, digits), value)
    return Cell(format_quantity(value, dimension, digits), value)


def share(value: float | None) -> Cell:
    """Make a cell of a share."""
    if value is None or value != value:
        return Cell("", -1.0)
    return Cell("< 0.1%" if 0 < value < 0.001 else f"{value:.1%}", value)


_PARAMETERS: Mapping[str, str] = {
    "byte_per_s": "memory bandwidth", "launch_s": "host cost of a launch", "alpha_s": "start-up time",
    "train_samples": "samples of an epoch", "validation_samples": "samples validated", "nodes": "nodes",
    "node_devices": "devices in a node", "availability": "share of time that the system is up",
}  # fmt: skip


def parameter(name: str) -> str:
    """Say the name of a parameter in words.

    Examples
    --------
    >>> parameter("flop_per_s/fp32/vector"), parameter("byte_per_s"), parameter("overhead/run/start-up")
    ('peak, fp32 vector', 'memory bandwidth', 'start-up, per run')
    >>> parameter("link/node/byte_per_s"), parameter("batch")
    ('bandwidth of the node link', 'batch')
    """
    match name.split("/"):
        case ["flop_per_s", dtype, engine]:
            return f"peak, {dtype} {engine}"
        case ["overhead", per, term]:
            return f"{term}, per {per}"
        case ["link", tier, "byte_per_s"]:
            return f"bandwidth of the {tier} link"
        case ["link", tier, figure]:
            return f"{_PARAMETERS.get(figure, figure)} of the {tier} link"
    return _PARAMETERS.get(name, name)


def plural(name: str, count: float) -> str:
    """Write a noun for a count."""
    return name if count == 1 else f"{name}s"

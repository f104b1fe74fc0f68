"""Format figures for all pages: a value, its interval, its coverage, and marks beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from fomkit.core.interval import level_text
from fomkit.core.units import count_text, format_number, format_quantity
from fomkit.output.screen import Column, Entry
from fomkit.profiles.metrics import metric_of, title_of

if TYPE_CHECKING:
    from fomkit.plan.content import AnyEnds, OfJob, Part, Range

NO_SPREAD = "no spread stated"
NARROW = "under 1 % wide"
UNFIT = "†"
"""Mark of a rate whose step fits no device's memory."""


def mark_of(one: Entry) -> str:
    """Return the mark of an entry whose step does not fit the device's memory; "" for others."""
    return f" {UNFIT}" if one["fits"] is False else ""


def numbered(sources: Iterable[str]) -> dict[str, int]:
    """Return the number of each distinct source of a table's rows; the sources are listed below the table."""
    return {source: place for place, source in enumerate(dict.fromkeys(filter(None, sources)), 1)}


def seconds(value: float, digits: int = 4) -> str:
    """Format a time."""
    return format_quantity(value, "time_s", digits)


def format_plain(value: float, dimension: str | None, digits: int = 4) -> str:
    """Format a value with its unit, as a share, a count, or a plain number.

    >>> format_plain(9e11, "byte_per_s"), format_plain(0.95, "share"), format_plain(1e3, "count")
    ('900.0 GB/s', '95.0%', '1,000')
    """
    if dimension is None:
        return format_number(value, digits)
    if dimension in ("share", "count"):
        return percent(value) if dimension == "share" else f"{value:,.0f}"
    return format_quantity(value, dimension, digits) if value else "0"


def percent(share: float) -> str:
    """Format a share; a very small one with two decimals.

    >>> percent(0.5), percent(1.6e-4), percent(0.0)
    ('50.0%', '0.02%', '0.0%')
    """
    return f"{share:.2%}" if 0 < abs(share) < 0.0005 else f"{share:.1%}"


_DIMENSIONS: Mapping[str, str] = {
    "s": "time_s", "byte": "byte", "byte/s": "byte_per_s", "flop": "flop", "flop/s": "flop_per_s", "J": "energy_j",
    "W": "power_w", "share": "share", "count": "count",
}  # fmt: skip


def dimension_of(name: str) -> str | None:
    """Return the dimension of a figure in the table of metrics, for `format_plain`; None is a plain number."""
    return _DIMENSIONS.get(metric_of(name).unit)


def column_of(name: str, words: str = "", rank: int = 0, *, of: str = "", marks: bool = False) -> Column:
    """Return the column of a figure: its title, and its value by its unit.

    `words`: other title; `of`: its key in the rows, default: the end of its name; `marks`: with `mark_of` the row.
    """
    key, dimension = of or name.rpartition(".")[2], dimension_of(name)

    def write(row: Entry) -> str:
        found = row[key]["value"] if isinstance(row[key], Mapping) else row[key]
        return "unknown" if found is None else format_plain(found, dimension) + (mark_of(row) if marks else "")

    return Column(words or title_of(name), "right", write, rank)


def interval_of(name: str, rank: int = 0) -> Column:
    """Return the column of a figure's interval."""
    key, dimension = name.rpartition(".")[2], dimension_of(name)
    return Column(title_of("interval"), "", lambda row: format_interval(row[key], dimension), rank)


def word_of(key: str, title: str = "", rank: int = 0) -> Column:
    """Return the column of a text; an unknown one is empty."""
    return Column(title or key, "", lambda row: str(row[key] or ""), rank)


def interval_words(level: float, span: Range | None, dimension: str | None) -> str:
    """Format the level and the bounds of an interval for a sentence; without spread, only that fact."""
    ends = format_interval(span, dimension)
    return ends if ends == NO_SPREAD else f"{level_text(level)} interval {ends}"


def format_interval(span: Range | AnyEnds | None, dimension: str | None) -> str:
    """Format the bounds of a span, with their unit or as plain numbers."""
    if span is None:
        return ""
    first, last = span["low"], span["high"]
    if first is None or last is None or first == last:
        return NO_SPREAD
    low, high = (format_plain(end, dimension, 3) for end in (first, last))
    if low == high:
        return NARROW
    if dimension is None:
        return f"{low} … {high}"
    # "122 … 165 ms" states the unit once if both bounds have the same.
    same = low.rpartition(" ")[2] == high.rpartition(" ")[2]
    return f"{low.rpartition(' ')[0] if same else low} … {high}"


def with_ends(span: AnyEnds | None, write: Callable[[float], str], unit: str = "", joint: str = " … ") -> str:
    """Format a span as ``value (low … high) unit``; without spread the bounds are omitted."""
    if span is None:
        return "unknown"
    low, high = (None if end is None else write(end) for end in (span["low"], span["high"]))
    ends = "" if low == high else f" ({low}{joint}{high})"
    return f"{write(span['value'])}{ends}{' ' if unit else ''}{unit}"


def deviation_lines(one: Entry, name: str = "") -> list[str]:
    """Format the deviations of an entry as notes; a step that does not fit the memory has its mark instead."""
    unfit = one["fits"] is False
    return [
        f"{UNFIT if unfit and text.startswith('does not fit') else 'note:'} {name}{text}"
        for text in one["deviations"]
    ]


def format_coverage(shares: Mapping[str, float]) -> str:
    """Format the shares of predicted time by source, the largest first, without empty ones.

    Work without a time has no share of the time; it is printed last, as a share of the op executions.
    """
    unpriced = shares.get("unpriced", 0.0)
    timed = {name: share / (1 - unpriced) for name, share in shares.items() if name != "unpriced" and share > 0}
    present = sorted(((share, name) for name, share in timed.items()), reverse=True)
    parts = [f"{name} {share:.0%}" if share >= 0.01 else f"{name} <1%" for share, name in present]
    return ", ".join([*parts, *([f"without a time {unpriced:.0%} of the op executions"] if unpriced else [])])


def run_notes(explained: Mapping[str, float], what: str) -> list[str]:
    """Return a note that names work whose measured runs the device explains by less than half, with each share."""
    if not explained:
        return []
    listed = ", ".join(f"{name} {share:.1%}" for name, share in explained.items())
    message = f"the device explains less than half of a measured run: {listed}; {what} of the device's work only"
    return [f"{message} (--json has the runs)"]


def cancel_notes(shares: Mapping[str, float]) -> list[str]:
    """Return a note on ratios of boards of one chip, which are narrower by errors in common; none for others."""
    listed = ", ".join(f"{name} {share:.0%}" for name, share in shares.items() if share)
    chip = "boards of one chip, by the profiles: errors that both have cancel in the ratio"
    return [f"{chip}, {listed} of its variance"] if listed else []


LONG_WAIT = 0.2
"""Share of a step that stages wait for each other, above which smaller microbatches are recommended."""


def job_words(job: OfJob | Part) -> str:
    """Write the devices and the layout of a job.

    >>> job_words({"devices": 16, "nodes": 2, "layout": "tensor 8", "replicas": 2, "batch": 8, "microbatches": 1})
    '16 devices (2 nodes), tensor 8; replicas: 2 (batch 8 in all), microbatches of each: 1'
    """
    nodes = f" ({count_text(job['nodes'], 'node')})" if job["nodes"] else ""
    return (f"{count_text(job['devices'], 'device')}{nodes}, {job['layout']}; "
            f"replicas: {job['replicas']:,} (batch {job['batch']:,} in all), microbatches of each: "
            f"{job['microbatches']:,}")  # fmt: skip


def job_lines(one: Entry) -> list[str]:
    """Format a run on several devices: its devices, and how much of a step waits; nothing for one device."""
    job = one.get("job")
    if job is None:
        return []
    exposed, busy, bubble, step = (job[name]["value"] for name in ("exposed_s", "busy_s", "bubble_s", "step_s"))
    samples, advice = job["batch"] // job["replicas"], ""
    if bubble / step > LONG_WAIT and samples > job["microbatches"]:
        advice = f"; microbatch=1 in the layout makes {samples:,} microbatches, so that stages wait less"
    return [
        f"{one['model']} on {one['target']}: {job_words(job)}",
        f"  {exposed / step:.1%} of a step is exposed communication ({seconds(exposed)} of the "
        f"{seconds(busy)} that links are busy), {bubble / step:.1%} waiting for other stages{advice}",
    ]

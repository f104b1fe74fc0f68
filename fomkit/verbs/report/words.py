"""Text, tables and charts of a report: the main result, its assumptions and exclusions, the meaning of words."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fomkit.core.interval import Span, level_text
from fomkit.core.units import by_key, count_text, format_number, format_quantity, memory_text
from fomkit.output.pages import Cell, Claim, Figure, Head, Listing, Section, Share, Table, Tile
from fomkit.output.values import NARROW, NO_SPREAD, format_plain
from fomkit.plan.content import INTERVAL_MEANING
from fomkit.plan.estimate import Estimate
from fomkit.profiles.metrics import upper_bounds

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

    from fomkit.plan.content import Estimated


with Path(__file__).with_name("words.csv").open(encoding="utf-8", newline="") as _file:
    _GROUPS = by_key((row["of"], (row["name"], row["means"])) for row in csv.DictReader(_file))
_WORDS: Mapping[str, Mapping[str, str]] = {group: dict(pairs) for group, pairs in _GROUPS.items()}
"""The meaning of names, by the group of names."""


def amount(span: Span | None, dimension: str | None = "time_s") -> str:
    """Format the value of a span; ``unknown`` where there is none."""
    return "unknown" if span is None else format_plain(span.value, dimension, 3)


def both_ends(span: Span, dimension: str | None = "time_s") -> tuple[str, str]:
    """Format the low and the high bound of a span."""
    return format_plain(span.low, dimension, 3), format_plain(span.high, dimension, 3)


def ends(span: Span | None, dimension: str | None = "time_s") -> str:
    """Format the interval of a span."""
    if span is None or span.low == span.high:
        return "" if span is None else NO_SPREAD
    low, high = both_ends(span, dimension)
    return NARROW if low == high else f"{low} to {high}"


def interval(span: Span | None, dimension: str | None = "time_s") -> str:
    """Format the interval of a span with its level, for a sentence."""
    if span is None or span.low == span.high:
        return ends(span, dimension)
    low, high = both_ends(span, dimension)
    level = level_text(span.level)
    return f"{level} interval {NARROW}" if low == high else f"{level} between {low} and {high}"


def number(value: float | None, dimension: str | None = None, digits: int = 3) -> Cell:
    """Make a cell of a number that sorts by its value; an unknown number is empty and sorts last."""
    if value is None or value != value:
        return Cell("", -1.0)
    if dimension is None:
        return Cell(f"{value:,.0f}" if float(value).is_integer() else format_number(value, digits), value)
    return Cell(memory_text(value) if dimension == "memory" else format_quantity(value, dimension, digits), value)


def share(value: float | None) -> Cell:
    """Make a cell of a share."""
    if value is None or value != value:
        return Cell("", -1.0)
    return Cell("< 0.1%" if 0 < value < 0.001 else f"{value:.1%}", value)


_PARAMETERS: Mapping[str, str] = {
    "byte_per_s": "memory bandwidth", "launch_s": "host cost of a launch",
    "link_byte_per_s": "bandwidth between nodes", "link_alpha_s": "start-up time between nodes",
    "node_link_byte_per_s": "bandwidth of the link in a node",
    "node_link_alpha_s": "start-up time of the link in a node",
    "train_samples": "samples of an epoch", "validation_samples": "samples validated", "nodes": "nodes",
    "node_devices": "devices in a node", "availability": "availability of the system, as a share of time",
}  # fmt: skip


def parameter(name: str) -> str:
    """Return a parameter's name in words.

    Examples
    --------
    >>> parameter("flop_per_s/fp32/vector"), parameter("byte_per_s"), parameter("overhead/run/start-up")
    ('peak, fp32 vector', 'memory bandwidth', 'start-up, per run')
    >>> parameter("node_link_byte_per_s"), parameter("batch")
    ('bandwidth of the link in a node', 'batch')
    """
    match name.split("/"):
        case ["flop_per_s", dtype, engine]:
            return f"peak, {dtype} {engine}"
        case ["overhead", per, term]:
            return f"{term}, per {per}"
    return _PARAMETERS.get(name, name)


_HEADS = {
    "time_s": "time", "low_s": "low", "high_s": "high", "flop_per_s": "rate", "all_byte": "together",
    "pass_name": "pass", "name": "op", "reached": "with those above",
}  # fmt: skip


def figure(
    key: str, title: str, chart: alt.TopLevelMixin, says: str, caption: tuple[str, ...] = (),
    table: Table | None = None, finds: str = "",
) -> Figure:  # fmt: skip
    """Convert a chart to a figure of the report, which has the page's width."""
    # The data are made by fomkit, so the library need not check each cell against its schema.
    spec: dict[str, Any] = chart.to_dict(validate=False)
    for name in ("$schema", "config", "title"):
        spec.pop(name, None)
    for layer in spec.get("layer", [spec]):
        for channel in layer.get("encoding", {}).values():
            if isinstance(channel, dict):  # the page places legends and cuts labels, by the width that it has
                (channel.get("axis") or {}).pop("labelLimit", None)
                (channel.get("legend") or {}).pop("orient", None)
    return Figure(key, title, says, spec, caption, table, finds)


def frame_table(caption: str, frame: pd.DataFrame, columns: Mapping[str, str]) -> Table:
    """Convert columns of a DataFrame to a table of the report.

    `columns`: dimension of each column (`fomkit.core.units`); ``share``, ``count``, ``memory``, or "" for text.
    """
    head = tuple(Head(_HEADS.get(name, name.replace("_", " ")), bool(kind)) for name, kind in columns.items())
    rows = tuple(
        tuple(_frame_cell(row[name], kind) for name, kind in columns.items()) for row in frame.to_dict("records")
    )
    return Table(caption, head, rows)


def _frame_cell(value: Any, kind: str) -> Cell:
    if kind == "share":
        return share(value)
    return number(value, None if kind == "count" else kind) if kind else Cell(str(value))


_SCOPES = {"device": "one device", "node": "one node", "system": "the whole system"}


def _excluded(estimate: Estimate) -> str:
    if estimate.fit.message:
        return f"It cannot run: the step {estimate.fit.message.removesuffix(' (fomkit memory)')}."
    terms = [_WORDS["left out"].get(term, term).partition(":")[0] for term in estimate.excludes]
    if not terms:
        return "Nothing that the profiles name is left out."
    return f"{upper_bounds(terms, 'Units/day')}."


def _claim(title: str, span: Span, dimension: str | None, unit: str, bound: str) -> Claim:
    low, high = both_ends(span, dimension)
    place = None if low == high else (span.value - span.low) / (span.high - span.low)
    return Claim(title, amount(span, dimension), unit, interval(span, dimension), low, high, place, bound)


def claim_of(estimate: Estimate) -> Claim:
    """Return the main result of an estimate: units of work a day, or the step where the profile states no run."""
    title = f"{estimate.model.name} on {estimate.machine.name}"
    per_day = estimate.unit_per_day
    if per_day is None:
        message = "Its profile does not define a run, so there are no runs a day."
        return _claim(title, estimate.step, "time_s", "for one training step", message)
    unit = f"{estimate.model.unit.name}{'s' * (per_day.value != 1)} a day on {_SCOPES[estimate.scope]}"
    return _claim(title, per_day, None, unit, _excluded(estimate))


def tiles_of(estimate: Estimate, content: Estimated) -> tuple[Tile, ...]:
    """Return the figures that are shown beside the main result."""
    run, batch = estimate.run_time, estimate.sizes.get("batch")
    sizes = ", ".join(f"{name} {size}" for name, size in estimate.sizes.items() if name != "batch")
    steps = "" if run.steps_per_epoch is None else f"{count_text(run.steps_per_epoch, 'step')} an epoch"
    epochs = "" if estimate.model.run.epochs is None else f", {count_text(estimate.model.run.epochs, 'epoch')}"
    more, bound = ", ".join(filter(None, (sizes, steps + epochs))), estimate.step_time.bound
    found = [
        Tile("one step", amount(estimate.step), interval(estimate.step)),
        Tile("one run", amount(run.run_s), interval(run.run_s) or "the profile does not define a run"),
        Tile("batch", "unknown" if batch is None else f"{batch:,}", more),
        Tile("number format", estimate.precision, estimate.formats.message),
        Tile("waits for", _WORDS["bound"].get(bound, bound)),
    ]  # fmt: skip
    ratio = content.get("ratio")
    if ratio is not None:
        span = Span(ratio["value"], ratio["low"], ratio["high"], estimate.step.level)
        detail = f"{interval(span, None)}; {ratio['of']}"
        found.append(Tile(f"times {ratio['baseline']}", f"{format_number(ratio['value'], 3)} ×", detail))
    energy = content["energy_j"]
    if energy is not None and energy["run"] is not None:
        found.append(Tile("energy of a run", format_quantity(energy["run"]["value"], "energy_j", 3)))
    return tuple(found)


def evidence_of_time(estimate: Estimate) -> tuple[Share, ...]:
    """Return the share of the predicted time by time source, the largest first; empty shares are left out."""
    shares = sorted(estimate.coverage.items(), key=lambda pair: -pair[1])
    return tuple(Share(name, part, _WORDS["time source"][name]) for name, part in shares if part > 0)


def limits(estimate: Estimate, key: str) -> Section:
    """Make the section about assumptions, exclusions and the meaning of the page's words."""
    excluded = tuple(_WORDS["left out"].get(term, term) for term in estimate.excludes)
    assumed = (
        f"number formats: {(estimate.formats.message or estimate.precision).removeprefix('number formats ')}",
        f"intervals ({level_text(estimate.step.level)}) cover {INTERVAL_MEANING}",
        "a device runs one op after the other; host and input work at the same time, and the longest time counts",
    )
    lists = [
        Listing("Left out; units/day are then upper bounds" if excluded else "Left out",
                excluded or ("nothing that the profiles name",)),
        Listing("Assumed", assumed),
    ]  # fmt: skip
    for title, lines in (("Deviations from the default", estimate.deviations),
                         ("Notes of the model", estimate.model.notes),
                         ("Notes of the machine", estimate.machine.notes)):  # fmt: skip
        if lines:
            lists.append(Listing(title, tuple(lines)))
    sources = (pair for pair in _WORDS["time source"].items() if estimate.coverage.get(pair[0], 0) > 0)
    words = tuple(f"{name}: {meaning}" for name, meaning in (*_WORDS["page"].items(), *sources))
    lists.append(Listing("Terms on this page", words))
    return Section(f"{key}-limits", "What it assumes and leaves out", lists=tuple(lists))

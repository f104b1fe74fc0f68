"""Format a study as text, from the same content that ``--json`` prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fomkit.core.interval import alone_text, level_text
from fomkit.core.units import by_key, format_number
from fomkit.output.money import energy_lines
from fomkit.output.screen import PLAIN, Column, Entry, Page, Screen
from fomkit.output.suites import show_merit
from fomkit.output.values import (
    NARROW,
    NO_SPREAD,
    cancel_notes,
    column_of,
    deviation_lines,
    format_coverage,
    format_interval,
    interval_of,
    job_lines,
    mark_of,
    word_of,
)
from fomkit.profiles.metrics import title_of, upper_bounds

if TYPE_CHECKING:
    from fomkit.plan.content import Estimated
    from fomkit.verbs.compare import Study


def _first_line(models: Sequence[Estimated]) -> str:
    """Format the shares of time sources for each machine, averaged over its models."""
    parts, kinds = [], set()
    for name in dict.fromkeys(model["target"] for model in models):
        own = [model for model in models if model["target"] == name]
        shares = {
            source: sum(model["coverage"][source] for model in own) / len(own) for source in own[0]["coverage"]
        }
        evidence = max(model["evidence"] for model in own)  # "timing table", if any model has it
        parts.append(f"{name} ({evidence}): {format_coverage(shares)}")
        kinds.add(evidence.startswith("datasheet"))
    mixed = "one side is based on a timing table, the other on a datasheet; " if len(kinds) > 1 else ""
    return f"{mixed}coverage, share of predicted time: {' | '.join(parts)}"


def _estimate_columns(models: Sequence[Estimated]) -> list[Column]:
    """Return the columns of estimates; the ratio, where there is one, is always kept."""

    def ratio(one: Entry) -> str:
        found = one.get("ratio")
        return f"{format_number(found['value'], 3)} ({format_interval(found, None)})" if found else ""

    compared = [Column(title_of("ratio"), "", ratio)] if any("ratio" in one for one in models) else []
    return [
        word_of("model"), word_of("target", "machine"), column_of("batch", rank=4),
        word_of("precision", rank=5), column_of("step_s"), interval_of("step_s", 3), column_of("run_s", rank=2),
        column_of("unit_per_day", marks=True), interval_of("unit_per_day", 1), *compared, word_of("bound", rank=6),
        Column(title_of("coverage"), "", lambda one: format_coverage(one["coverage"]), 7),
    ]  # fmt: skip


def _precision_lines(models: Sequence[Estimated]) -> list[str]:
    """Format what each precision in the table means, and on which machines, once for all models that share it.

    Models are named where the models of one machine differ in precision or in its meaning.
    """
    machines: dict[str, dict[str, dict[str, list[str]]]] = {}
    for one in models:
        named = machines.setdefault(one["precision_means"], {}).setdefault(one["precision"], {})
        named.setdefault(one["target"], []).append(one["model"])
    distinct = {(one["target"], one["precision"], one["precision_means"]) for one in models}
    differ = {target for target, *_ in distinct if sum(one == target for one, *_ in distinct) > 1}
    all_machines = {one["target"] for one in models}
    lines = []
    for means, names in machines.items():
        parts = []
        for name, targets in names.items():
            where = "" if targets.keys() == all_machines else f" on {', '.join(targets)}"
            own = ", ".join(dict.fromkeys(model for named in targets.values() for model in named))
            parts.append(f"{name}{where} ({own})" if targets.keys() & differ else f"{name}{where}")
        lines.append(f"precision {', '.join(parts)}: {means}")
    return lines


_PERIODS = (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0), ("s", 1.0), ("ms", 1e-3), ("µs", 1e-6))
_NO_RUN = "the profile does not define a run: add --samples, --epochs or both"
FEW = 4
"""Largest number of estimates that have a headline each; more are only in the table."""


def _headline(one: Estimated) -> str:
    """Format the main results: the time of a run, units a day, and the ratio to the baseline."""
    rate = one["unit_per_day"]
    span = one["run_s"] if rate is not None and one["run_s"] is not None else one["step_s"]
    # In the largest suitable unit, the bounds in the same one.
    name, period = next((one for one in _PERIODS if span["value"] >= one[1]), _PERIODS[-1])
    value, low, high = (format_number(span[end] / period, 3) for end in ("value", "low", "high"))
    ends = NO_SPREAD if span["low"] == span["high"] else NARROW if low == high else f"{low} … {high}"
    text = f"{value} {name} a {'step' if rate is None else 'run'} ({ends})"
    if rate is not None:
        text += f", {format_number(rate['value'], 3)} {one['unit']}s a day"
    text += mark_of(one)
    if tokens := one.get("token_per_s"):
        text += f", {format_number(tokens['value'], 3)} tokens/s a device ({format_interval(tokens, None)})"
    if one["excludes"]:
        text += f", at best: without {', '.join(one['excludes'])}"
    if rate is None:
        text += f"; {_NO_RUN}"
    if ratio := one.get("ratio"):
        text += f"; {format_number(ratio['value'], 3)} ({format_interval(ratio, None)}) times {ratio['baseline']}"
        if alone := alone_text(ratio["excludes_alone"]):
            text += f", but {alone}"
    place = "" if one["scope"] == "device" else f", one {one['scope']}"
    return f"{one['model']} on {one['target']}{place}: {text}"


def format_estimates(content: Study, screen: Screen = PLAIN) -> str:
    """Format a study: the headlines, the coverage, the table of estimates, and what they exclude."""
    page, models = Page(screen), content["models"]
    over = {model["ratio"]["baseline"] for model in models if model.get("ratio")}
    on_targets = [model for model in models if model["target"] not in over]
    page.lines([*map(_headline, on_targets), ""] if len(on_targets) <= FEW else [], "bold")
    page.line(_first_line(models))
    order = list(dict.fromkeys(model["model"] for model in models))
    page.columns(_estimate_columns(models), sorted(models, key=lambda entry: order.index(entry["model"])))
    # Sizes besides the batch, such as tokens of a sequence, once for all models that share them.
    sizes = by_key(
        (", ".join(f"{name} {size:,}" for name, size in one["sizes"].items() if name != "batch"), one["model"])
        for one in models
    )
    for text, owners in sizes.items():
        of = f" ({', '.join(dict.fromkeys(owners))})" if len(sizes) > 1 else ""
        page.lines([f"sizes: {text}{of}"] * bool(text))
    page.lines(_precision_lines(models))
    page.lines(line for model in models for line in job_lines(model))
    without = dict.fromkeys(one["model"] for one in models if one["run_s"] is None)
    if without and len(models) > FEW:
        page.line(f"{', '.join(without)}: {_NO_RUN}")
    excluded = dict.fromkeys(term for model in models for term in model["excludes"])
    page.line(f"scope: one {content['scope']}; {upper_bounds(excluded) or 'nothing excluded'}")
    page.line(f"intervals: {level_text(content['interval'])}, for {content['interval_covers']}")
    page.lines(energy_lines(models))
    for model in models:
        page.lines(deviation_lines(model, f"{model['model']} on {model['target']}: "), "yellow")
    page.lines((f"not estimated: {reason}" for reason in content["not_estimated"]), "yellow")
    if without and any("ratio" in model for model in models):
        no_run = (one for one in models if one["run_s"] is None)
        page.lines(cancel_notes({one["model"]: one.get("ratio", {}).get("errors_cancel", 0.0) for one in no_run}))
        page.line(f"no FOM: no run is defined for {', '.join(without)}; leave them out, or define their runs")
    for block in content.get("foms") or ([content["fom"]] if content["fom"] else []):
        show_merit(page, block, list(dict.fromkeys(model["unit"] for model in models)))
    return page.text()

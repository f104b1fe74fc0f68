"""The calculation of a figure of merit in the lecture's twelve steps, with the arithmetic of each step in text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from fomkit.core.interval import Span, divide, left_out_alone
from fomkit.core.measurement import Measurement
from fomkit.core.units import format_number, format_quantity
from fomkit.merit.fom import FigureOfMerit
from fomkit.merit.measured_steps import explained_share, mismatch, quantity_of
from fomkit.ops.groups import fewest, row_dicts, shape_label
from fomkit.ops.kinds import PRODUCT_KINDS
from fomkit.plan.content import Range, span_content
from fomkit.plan.estimate import Estimate, check_one_device
from fomkit.plan.run import no_run

if TYPE_CHECKING:
    import pandas as pd

Term = tuple[str, float, str]
"""A term of an equation: its sign ("" for the first), its number (whole ones in full), and its unit."""
Interval = Callable[[Range | None, str | None], str]
"""Writes the bounds of a span in a dimension."""
DOMINANT_SHARE = 0.95
NAMED_OPS = 6
RULES: Mapping[str, str] = {
    "extrapolated": "outside the timed sizes",
    "transferred": "from timings of a similar op",
    "roofline": "from rates and typical utilisations",
    "alpha_beta": "from the link's latency and rate",
    "assumed": "assumed",
}
"""How ops without a matching timing are priced, by their time source."""
RECORDED: Mapping[str, str] = {
    "step_s": "s a step", "epoch_s": "s an epoch", "run_s": "s a run", "latency_s": "s a forward pass",
    "sample_per_s": "samples a second",
}  # fmt: skip


def equation(terms: Sequence[Term], result: float, unit: str, digits: int = 6, factor: float = 1.0) -> str:
    """Write an equation with enough digits that a pocket calculator reproduces the result that is shown.

    `terms`: evaluated from left to right; `result`: the value of fomkit, in ``unit``; `digits`: of the result;
    `factor`: between the terms' units and that of the result.

    >>> equation([("", 287.2917, "ms"), ("×", 8001, "steps")], 2298.6208917, "s", factor=1e-3)
    '287.2917 ms × 8001 steps = 2298.62 s'
    """
    texts, rounded = list[str](), format_number(result, digits)
    for more in range(digits + 1, 17):
        texts = [format_number(one, len(str(one)) if isinstance(one, int) else more) for _, one, _ in terms]
        total = 0.0
        for (sign, _, _), text in zip(terms, texts, strict=True):
            one = float(text.replace(",", ""))
            total = total * one if sign == "×" else total / one if sign == "÷" else total + one
        if format_number(total * factor, digits) == rounded:
            break
    words = (" ".join(filter(None, (sign, text, of))) for (sign, _, of), text in zip(terms, texts, strict=True))
    return f"{' '.join(words)} = {rounded}{'' if unit == '%' else ' '}{unit}"


def _recorded_time(one: Estimate, rows: Sequence[Measurement]) -> str:
    """Describe the measurements of this model on this machine, and the share that the device explains."""
    own, records = (one.model.name, one.machine.name), []
    known = [row for row in rows if (row.model, row.machine) == own and row.quantity in RECORDED]
    of_device = replace(one, scope="device")
    for row in (row for row in known if not mismatch(row, of_device)):
        share = explained_share(row.quantity, quantity_of(one, row.quantity), row.value)
        explained = "" if share is None else f", of which the device explains {share:.1%}"
        records.append(f"{row.value:g} {RECORDED[row.quantity]} ({row.date or 'no date'}){explained}")
    other = f" at this batch, precision and scope, {len(known)} at others" if known else ""
    return "; ".join(dict.fromkeys(records)) or f"none recorded{other}"


def _dominant_cell(of_op: Mapping[str, float], whole_ms: float) -> str:
    """Add up the ops that take most of a step; `of_op`: time of each by name [ms]."""
    top = fewest(of_op, DOMINANT_SHARE)
    shown, others = top.groups[:NAMED_OPS], top.groups[NAMED_OPS:]
    terms: list[Term] = [("+" if place else "", of_op[name], name) for place, name in enumerate(shown)]
    if others:
        terms.append(("+", sum(of_op[name] for name in others), f"of {len(others)} more"))
    reached = sum(ms for _, ms, _ in terms)
    share = equation([("", reached, "ms"), ("÷", whole_ms, "ms")], 100 * reached / whole_ms, "%", 4, 100)
    return f"{equation(terms, reached, 'ms', 5)}; {share}"


def _products_cell(ops: pd.DataFrame, spent_ms: pd.Series) -> str:
    """Describe the rate of a step's products together, and the longest of them."""
    products = ops[ops["kind"].isin(PRODUCT_KINDS) & spent_ms.notna()]
    own_ms = spent_ms[products.index]
    flop, ms = float((products["flop"] * products["count"]).sum()) / 1e9, float(own_ms.sum())
    if not ms:
        return "none"
    longest = products.loc[own_ms.sort_values(ascending=False).index[:3]]
    sizes = ", ".join(map(shape_label, row_dicts(longest)))
    rate = equation([("", flop, "GFLOP"), ("÷", ms, "ms")], flop / ms, "TFLOP/s", 4)
    return f"{len(products)} rows, {rate}; longest: {sizes}"


def _op_cells(one: Estimate) -> list[str]:
    """Describe the profile, its dominant ops, its products, and the time that rests on timings and on rules."""
    ops, named = one.ops, one.ops["op"].astype("str").str.rpartition("::")[2]
    spent_ms = ops["time_s"] * ops["count"] * 1e3
    whole_ms = float(spent_ms.sum())
    of_op = {str(name): float(ms) for name, ms in spent_ms.groupby(named).sum().items()}
    parts = {
        str(name): f"{format_number(float(ms))} ms {name} ({float(ms) / whole_ms:.1%})"
        for name, ms in spent_ms.groupby(ops["time_source"]).sum().items()
        if name
    }
    timed = [part for name, part in parts.items() if name not in RULES]
    beyond = [f"{parts[name]}: {how}" for name, how in RULES.items() if name in parts]
    if untimed := ", ".join(dict.fromkeys(named[spent_ms.isna()])):
        beyond.append(f"no time for {one.coverage['unpriced']:.1%} of the executions: {untimed}")
    return [
        f"{ops['count'].sum():,.0f} op executions in {len(ops):,} rows",
        _dominant_cell(of_op, whole_ms),
        _products_cell(ops, spent_ms),
        ", ".join(timed) or "nothing",
        "; ".join(beyond) or "nothing",
    ]


def _pass_cell(one: Estimate, interval: Interval) -> str:
    """Add the passes up to the device's time, and describe the terms of the step beside it."""
    step, wall_ms, device_ms = one.step_time, one.step.value * 1e3, one.step_time.device_s.value * 1e3
    passes: list[Term] = [
        ("+" if place else "", span.value * 1e3, name) for place, (name, span) in enumerate(step.passes.items())
    ]
    added = equation(passes, device_ms, "ms", 7)
    if abs(wall_ms - device_ms) > 1e-9 * wall_ms:
        apart = step.late_s > 0 and step.host_term_s != step.host_launch_s  # some units wait, not the whole step
        beside = {
            "device and host" if apart else "host": step.host_term_s,
            "input": step.input_s,
            "other overheads": step.extra_s,
        }
        known = ", ".join(f"{name} {span.value * 1e3:.4g} ms" for name, span in beside.items() if span is not None)
        added += f" of the device; {known}: the longest plus overheads take {format_number(wall_ms, 7)} ms"
    limit = "limit unknown, the time is measured" if step.bound == "measured" else f"bound by {step.bound}"
    return f"{added} ({interval(span_content(one.step), 'time_s')}), {limit}"


def _epoch_cell(one: Estimate, training_s: float, epoch_s: float) -> str:
    """Multiply a step up to an epoch, and add the other terms of an epoch."""
    run, samples, batch = one.run_time, one.model.data.train_samples or 0, one.sizes["batch"]
    steps: Term = ("×", int(run.steps_per_epoch or 0), "steps")
    text = equation([("", one.step.value * 1e3, "ms"), steps], training_s, "s", factor=1e-3)
    besides = (("validation", run.validation_s), ("overheads", run.epoch_extra_s))
    others: list[Term] = [("+", span.value, f"s {name}") for name, span in besides if span and span.value]
    if others:
        text += f"; {equation([('', training_s, 's'), *others], epoch_s, 's')}"
    rest = samples % batch
    left = f", {rest} left {'for one more' if run.partial_step else 'over'}" if rest else ""
    return f"{text} ({samples:,} samples ÷ {batch:,}{left})"


def _run_cells(one: Estimate, epoch_s: float, run_s: float, rate: Span, interval: Interval) -> list[str]:
    """Multiply an epoch up to a run, and compute the runs, and units of work, a day."""
    model, startup, up, hours = one.model, one.run_time.startup_s, one.machine.up_share(one.scope), run_s / 3600
    terms: list[Term] = [("", epoch_s, "s"), ("×", int(model.run.epochs or 0), "epochs")]
    terms += [("+", startup.value, "s start-up")] if startup else []
    a_day: list[Term] = [("", 24 / hours, ""), ("×", one.runs_at_once, f"at once on a {one.scope}")]
    a_day += [("×", up, "of the time up")] if up != 1 else []
    a_day += [("÷", model.unit.runs, f"runs a {model.unit.name}")] if model.unit.runs != 1 else []
    missing = f", at best: without {', '.join(one.excludes)}" if one.excludes else ""
    units = equation(a_day, rate.value, f"{model.unit.name}s per day")
    return [
        f"{equation(terms, run_s, 's')}; {equation([('', run_s, 's'), ('÷', 3600, '')], hours, 'h', 5)}",
        equation([("", 24, "h"), ("÷", hours, "h")], 24 / hours, "runs a day"),
        f"{units} ({interval(span_content(rate), None)}){missing}",
    ]


def _roll_up_cells(one: Estimate, interval: Interval) -> list[str]:
    """Describe how ops add up to a pass, an epoch and a run, and how many runs a day has: five cells."""
    run, rate = one.run_time, one.unit_per_day
    one_pass = _pass_cell(one, interval)
    lacking = f"unknown: {no_run(one.model) or 'nothing has a time'}"
    if run.training_s is None or run.epoch_s is None:
        return [one_pass, *[lacking] * 4]
    epoch = _epoch_cell(one, run.training_s.value, run.epoch_s.value)
    if run.run_s is None or rate is None:
        return [one_pass, epoch, *[lacking] * 3]
    return [one_pass, epoch, *_run_cells(one, run.epoch_s.value, run.run_s.value, rate, interval)]


def _ratio_cell(one: Estimate, baseline: Estimate, merit: FigureOfMerit | None, interval: Interval) -> str:
    """Describe the target's speed-up, the side that leaves out more terms, and the figure of merit over all."""
    ours, theirs = one.unit_per_day, baseline.unit_per_day
    terms: list[Term] = [("", baseline.step.value * 1e3, "ms a step"), ("÷", one.step.value * 1e3, "ms a step")]
    ratio = divide(baseline.step, one.step)
    if ours is not None and theirs is not None:
        terms, ratio = [("", ours.value, ""), ("÷", theirs.value, "")], divide(ours, theirs)
    more, less = one.excludes_in_ratio, baseline.excludes_in_ratio
    left = left_out_alone([((baseline.machine.name, less), (one.machine.name, more))])
    alone = [f"only {name} excludes {', '.join(terms)}" for name, terms in left.items()]
    bound = ("at most " if more - less else "at least ") if len(alone) == 1 else ""
    ratio_text = f"{bound}{equation(terms, ratio.value, 'times', 4)} ({interval(span_content(ratio), None)})"
    many = f" over {len(merit.ratios)} models" if merit is not None and len(merit.ratios) > 1 else ""
    fom = [] if merit is None else [f"FOM{many}: {format_number(merit.value.value)}, {merit.mean}"]
    return "; ".join([ratio_text, *alone, *fom])


def method_steps(
    one: Estimate, baseline: Estimate | None, merit: FigureOfMerit | None, rows: Sequence[Measurement],
    interval: Interval,
) -> list[tuple[str, ...]]:  # fmt: skip
    """Describe an estimate in the lecture's twelve steps with their arithmetic, for the baseline and the target.

    The method is that of Foster & Stevens, Learning Systems 2018, lecture 10. `merit`: over all models of the
    study; `rows`: measurements of models. Returns a list: for each step its title, the cell of the baseline where
    there is one, and that of the target. Raises FomkitError for a run on several devices.
    """
    sides = [one] if baseline is None else [baseline, one]
    check_one_device(sides, "the lecture's method")
    model, framework = one.model, ", ".join(one.model.traced_with.values()) or "unknown framework"
    parameters = "unknown" if model.parameters_total is None else f"{model.parameters_total:,}"
    recorded = ""
    if "traced_time_s" in one.ops and one.ops["traced_time_s"].notna().all():
        traced_s = (one.ops["traced_time_s"] * one.ops["count"]).sum()
        recorded = f"; in the profile, {format_quantity(traced_s, 'time_s')} a pass"
    titles = [
        f"recorded training time{recorded}", f"profile: {parameters} parameters; {framework}",
        f"dominant ops, {DOMINANT_SHARE:.0%} of the step", "products and their sizes", "mapped onto timings",
        "beyond the timings", "one pass", "epoch: pass × steps", "run: epoch × epochs", "24 h ÷ run",
        "× runs at once", "÷ baseline",
    ]  # fmt: skip
    cells = [[_recorded_time(side, rows), *_op_cells(side), *_roll_up_cells(side, interval)] for side in sides]
    last = "needs --baseline" if baseline is None else _ratio_cell(one, baseline, merit, interval)
    columns = [*([[*cells[0], "the baseline"]] if baseline is not None else []), [*cells[-1], last]]
    return list(zip(titles, *columns, strict=True))

"""The nine steps of the figure-of-merit method, each with its number, for one estimate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fomkit.fom import FigureOfMerit
from fomkit.metrics import upper_bounds
from fomkit.quantities import format_number, format_quantity
from fomkit.spans import Span
from fomkit.study.estimate import Estimate
from fomkit.views import fewest

if TYPE_CHECKING:
    import pandas as pd

DOMINANT_SHARE = 0.95


@dataclass(frozen=True)
class Step:
    """One step of the method: what is done, its number, and where the number comes from."""

    title: str
    number: str
    detail: str


def _dominant(ops: pd.DataFrame) -> tuple[dict[str, float], float]:
    """Give the seconds per step of each dominant op, longest first, and the share of the step that they reach."""
    seconds = (ops["time_s"] * ops["count"]).groupby(ops["op"].astype("str")).sum()
    amounts = {str(name): float(value) for name, value in seconds.items()}
    cut = fewest(amounts, DOMINANT_SHARE)
    return {name: amounts[name] for name in cut.groups}, cut.reached


def _products(ops: pd.DataFrame) -> str:
    products = ops[ops["kind"] == "gemm"]
    if products.empty:
        return "no matrix product"
    seconds = (products["time_s"] * products["count"]).sort_values(ascending=False)
    longest = products.loc[seconds.index[:3], ["m", "n", "k"]].to_numpy(float)
    sizes = [" × ".join(f"{size:g}" for size in row) for row in longest]
    flop = (products["flop"] * products["count"]).sum()
    work = f"{format_quantity(flop, 'flop')} in {format_quantity(seconds.sum(), 'time_s')}"
    return f"{work}; longest (m × n × k): {'; '.join(sizes)}"


def _time(span: Span | None) -> tuple[str, str]:
    if span is None:
        return "unknown", "the profile does not say"
    low, high = (format_quantity(end, "time_s") for end in (span.low, span.high))
    if span.low == span.high:
        return format_quantity(span.value, "time_s", 7), "no spread stated"
    return format_quantity(span.value, "time_s", 7), f"{low} … {high}, {span.level:.0%} interval"


def explain(one: Estimate, merit: FigureOfMerit | None = None) -> list[Step]:
    """Tell an estimate as the lecture's nine steps (Foster & Stevens 2018, lecture 10)."""
    model, ops, run = one.model, one.ops, one.run_time
    top, reached = _dominant(ops)
    per_day = one.unit_per_day
    traced = ", ".join(model.traced_with.values()) or "unknown framework"
    parameters = "unknown" if model.parameters_total is None else f"{model.parameters_total:,}"
    sources = ", ".join(f"{source} {share:.1%}" for source, share in one.coverage.items() if share > 0)
    hours = "unknown" if run.run_s is None else f"{run.run_s.value / 3600:.3f} h"
    epochs = "unknown" if model.run.epochs is None else f"{model.run.epochs} epochs"
    steps = "unknown" if run.steps_per_epoch is None else f"{run.steps_per_epoch} steps"
    epoch = "unknown" if run.epoch_s is None else f"{run.epoch_s.value:.2f} s per epoch"
    rate = "unknown" if per_day is None else f"{format_number(per_day.value, 6)} {model.unit.name}s per day"
    interval = "" if per_day is None else f"{format_number(per_day.low)} … {format_number(per_day.high)}; "
    bound = upper_bounds(one.excludes) or "nothing excluded"
    fom = "needs --baseline" if merit is None else format_number(merit.value.value, 6)
    return [
        Step(
            "profile the model", f"{ops['count'].sum():,.0f} op executions", f"{parameters} parameters; {traced}"
        ),
        Step(
            "take the dominant ops",
            f"{reached:.2%} of the step",
            ", ".join(f"{name} {format_quantity(s, 'time_s')}" for name, s in top.items()),
        ),
        Step("size the matrix products", f"{int((ops['kind'] == 'gemm').sum())} rows", _products(ops)),
        Step("map onto the target's timings", sources, f"{one.machine.title}"),
        Step(
            "add up one pass",
            f"{one.step.value * 1e3:.4f} ms",
            f"{_time(one.step)[1]}; bound: {one.step_time.bound}",
        ),
        Step("roll up an epoch", epoch, f"{steps} of batch {one.sizes.get('batch', 'unknown')}"),
        Step("roll up a run", hours, epochs),
        Step("units of work per day", rate, f"{interval}{one.runs_at_once:,} at once, scope {one.scope}; {bound}"),
        Step("figure of merit", fom, "" if merit is None else f"over {merit.baseline.machine}, {merit.mean}"),
    ]

"""The ten models of the proof on the machine at hand, their steps timed, and estimates beside them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fomkit.bench.libraries import cells_of, shape_of
from fomkit.bench.model_steps import time_file
from fomkit.bench.power import watch_energy
from fomkit.core.errors import FomkitError
from fomkit.core.interval import Span, half_width
from fomkit.core.measurement import MeasuredRun, Repeated
from fomkit.core.model import ModelProfile
from fomkit.ops.pricing import split_recurrent
from fomkit.ops.resize import resize_ops
from fomkit.plan.coverage import Spread
from fomkit.profiles.locate import shipped_folder
from fomkit.profiles.models import save_model
from fomkit.validation.scores import Cases, cases_of_spans, interval_scores


@dataclass(frozen=True)
class Compared:
    """One model's step, estimated and timed.

    `timed_s`: median of the steps [s].
    `span`: the estimate [s].
    """

    name: str
    timed_s: float
    span: Span

    @property
    def log_error(self) -> float:
        """ln(timed / estimated)."""
        return math.log(self.timed_s / self.span.value)

    @property
    def error(self) -> float:
        """Estimated over timed, less 1."""
        return self.span.value / self.timed_s - 1

    @property
    def hit(self) -> bool:
        """True where the interval holds the timed step."""
        return self.span.low <= self.timed_s <= self.span.high

    @property
    def score(self) -> float:
        """Interval score; see `fomkit.validation.scores.interval_scores`."""
        timed_s, low, high = (np.array([one]) for one in (self.timed_s, self.span.low, self.span.high))
        return float(interval_scores(timed_s, low, high, self.span.level)[0])


def _side(errors: Sequence[float], widths: Sequence[float], pooled: float) -> float:
    """Give what errors towards one side have beyond their intervals, as a standard deviation; few are eked out."""
    known = [error**2 - width**2 for error, width in zip(errors, widths, strict=True)]
    return math.sqrt(max((sum(known) + pooled**2) / (len(known) + 1), 0.0))


def use_spread(steps: Sequence[Compared]) -> Spread:
    """Tell what a sum of single ops misses of a step, from steps that were timed.

    Errors of each side, less what the intervals allow for already, with one more that has the spread of all.
    """
    below = [step for step in steps if step.log_error < 0]
    above = [step for step in steps if step.log_error >= 0]

    def width(compared: Compared) -> float:
        z = half_width(compared.span.level)
        span = compared.span
        end = span.high / span.value if compared.log_error >= 0 else span.value / span.low
        return math.log(end) / z

    def side(some: Sequence[Compared], pooled: float) -> float:
        return _side([one.log_error for one in some], [width(one) for one in some], pooled)

    pooled = side(steps, 0.0)
    return Spread(side(below, pooled), side(above, pooled))


def widened(compared: Compared, spread: Spread) -> Compared:
    """Give an estimate with its interval widened."""
    span = compared.span
    low, high = spread.widen(span.value, span.low, span.high, span.level)
    return replace(compared, span=replace(span, low=low, high=high))


def widen_leave_one_out(steps: Sequence[Compared]) -> list[Compared]:
    """Widen each estimate by what the other models tell: none is scored on what it was fitted to.

    A single model has no others and stays as it is.
    """
    if len(steps) < 2:
        return list(steps)
    return [widened(step, use_spread([other for other in steps if other.name != step.name])) for step in steps]


def cases_of(steps: Sequence[Compared]) -> Cases:
    """Give steps as cases to score."""
    return cases_of_spans([step.timed_s for step in steps], [step.span for step in steps])


SOURCES = (
    "here/multilayer_perceptron", "here/convolutional", "here/depthwise", "here/lstm", "here/gru", "here/encoder",
    "here/decoder", "here/autoencoder", "here/embeddings", "candle/p1b3",
)  # fmt: skip
"""Below ``model_profiles/src``; a step of each takes 5 to 500 ms on one core."""
Shapes = frozenset[tuple[str, ...]]
Trace = Callable[[Path], ModelProfile]


@dataclass(frozen=True)
class Traced:
    """A model of the ten: where its source is, and its profile in memory and as a file."""

    source: Path
    model: ModelProfile
    path: Path


def source_of(name: str) -> Path:
    """Give the source of one of the ten."""
    return shipped_folder("model_profiles") / "src" / f"{name}.py"


def trace_models(names: Sequence[str], folder: Path, report: Callable[[str], None], trace: Trace) -> list[Traced]:
    """Trace models by the framework that is installed, and write their profiles for who measures their ops."""
    found = []
    for name in names:
        report(f"tracing {name}")
        source = source_of(name)
        model = trace(source)
        path = folder / f"{model.name}.yaml"
        save_model(model, path)
        found.append(Traced(source, model, path))
    return found


def shapes_of(model: ModelProfile) -> Shapes:
    """Give the shapes of all ops of a step; of recurrent layers those of the calls that they are made of, too."""
    ops = resize_ops(model.ops, model.sizes, model.name)
    rows = [*ops.to_dict("records"), *split_recurrent(ops).to_dict("records")]
    return frozenset(shape_of(cells_of({str(name): value for name, value in row.items()})) for row in rows)


def time_step(traced: Traced, threads: int, precision: str = "") -> MeasuredRun:
    """Time the plain step of a model, as ``fomkit profile --measure step`` does.

    ``precision`` is as there: ``bf16``, or "" for the step as it is.
    """
    mode = traced.model.traced_with["mode"]
    with watch_energy() as energy:
        return time_file(
            traced.source, mode=mode, sizes=traced.model.sizes, ops=False, threads=threads, precision=precision,
            energy=energy,
        ).run  # fmt: skip


def step_of(run: MeasuredRun, where: str) -> Repeated:
    """Give the times of a step by the clock that is meant."""
    if run.step_time is None:
        raise FomkitError(where, f"the clock of {run.clock} was not read.")
    return run.step_time

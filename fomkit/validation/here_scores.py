"""Trace and time the ten models of the check on this machine, and compare their steps with estimates."""

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
    """One model's step, estimated and timed."""

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
        """True if the interval contains the timed step."""
        return self.span.contains(self.timed_s)

    @property
    def score(self) -> float:
        """Interval score; see `fomkit.validation.scores.interval_scores`."""
        timed_s, low, high = (np.array([one]) for one in (self.timed_s, self.span.low, self.span.high))
        return float(interval_scores(timed_s, low, high, self.span.level)[0])


def use_spread(steps: Sequence[Compared]) -> Spread:
    """Estimate the error of a step as the sum of its single ops, from timed steps.

    For each side: the mean square of the errors less the square of the intervals' deviations. One more case with
    the spread of all steps is added, because there are few.
    """
    below = [step for step in steps if step.log_error < 0]
    above = [step for step in steps if step.log_error >= 0]

    def width(compared: Compared) -> float:
        z = half_width(compared.span.level)
        span = compared.span
        end = span.high / span.value if compared.log_error >= 0 else span.value / span.low
        return math.log(end) / z

    def side(some: Sequence[Compared], pooled: float) -> float:
        known = [one.log_error**2 - width(one) ** 2 for one in some]
        return math.sqrt(max((sum(known) + pooled**2) / (len(known) + 1), 0.0))

    pooled = side(steps, 0.0)
    return Spread(side(below, pooled), side(above, pooled))


def widen_leave_one_out(steps: Sequence[Compared]) -> list[Compared]:
    """Widen each estimate by the spread of the other models, so that none is scored on its own fit.

    A single model has no others and is not widened.
    """
    if len(steps) < 2:
        return list(steps)
    found = []
    for step in steps:
        spread = use_spread([other for other in steps if other.name != step.name])
        low, high = spread.widen(*step.span.ends, step.span.level)
        found.append(replace(step, span=replace(step.span, low=low, high=high)))
    return found


def cases_of(steps: Sequence[Compared]) -> Cases:
    """Return steps as cases to score."""
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
    """One of the ten models: the path of its source, its profile, and the path of the profile."""

    source: Path
    model: ModelProfile
    path: Path


def source_of(name: str) -> Path:
    """Return the path of the source of one of the ten models."""
    return shipped_folder("model_profiles") / "src" / f"{name}.py"


def trace_models(names: Sequence[str], folder: Path, report: Callable[[str], None], trace: Trace) -> list[Traced]:
    """Trace models by the installed framework, and write their profiles, which measuring their ops reads."""
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
    """Return the shapes of all ops of a step, and of the calls that its recurrent layers consist of."""
    ops = resize_ops(model.ops, model.sizes, model.name)
    rows = [*ops.to_dict("records"), *split_recurrent(ops).to_dict("records")]
    return frozenset(shape_of(cells_of({str(name): value for name, value in row.items()})) for row in rows)


def time_step(traced: Traced, threads: int, precision: str = "") -> MeasuredRun:
    """Time the plain step of a model as ``fomkit profile --measure step`` does; ``precision``: ``bf16`` or ""."""
    mode = traced.model.traced_with["mode"]
    with watch_energy() as energy:
        return time_file(
            traced.source, mode=mode, sizes=traced.model.sizes, ops=False, threads=threads, precision=precision,
            energy=energy,
        ).run  # fmt: skip


def step_of(run: MeasuredRun, where: str) -> Repeated:
    """Return the times of a step; raise FomkitError if the run's clock was not read."""
    if run.step_time is None:
        raise FomkitError(where, f"the clock of {run.clock} was not read.")
    return run.step_time

"""Subjects, which are evaluated at other parameter values, such as a model on a machine; and goals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NotRequired, TypedDict

import pandas as pd

from fomkit.core.errors import FomkitError
from fomkit.core.interval import Span, probability_above, reached_with
from fomkit.core.machine import HOST, Machine
from fomkit.core.measurement import verdict_on
from fomkit.core.model import ModelProfile
from fomkit.core.units import by_key
from fomkit.plan.content import Condition, conditions_content
from fomkit.plan.estimate import Estimate, estimate
from fomkit.plan.options import Options, change_machine, with_host
from fomkit.plan.run import FRAMEWORK
from fomkit.plan.scenarios import RESULTS, Study, columns_of, prepare_study, scenarios
from fomkit.profiles.evidence import with_fits
from fomkit.profiles.metrics import title_of
from fomkit.whatif import parameters as varied
from fomkit.whatif.parameters import ToMeasure, measurements

Point = Mapping[str, float]
"""Parameters at other values; parameters that are not named keep theirs."""
Figures = Mapping[str, Span]
"""By name: fom, unit_per_day [1/day], sample_per_s [1/s], step_s [s]."""
Outcome = Figures | FomkitError
FIGURES = ("fom", "unit_per_day", "sample_per_s", "step_s")
"""The order in which a subject's main figure is chosen: the first that it has."""
SMALLER_IS_BETTER = ("step_s",)

Title = TypedDict("Title", {
    "model": NotRequired[str], "suite": NotRequired[str], "target": str, "baseline": NotRequired[str],
    "unit": NotRequired[str], "sizes": NotRequired[dict[str, int]], "precision": NotRequired[str],
    "scope": NotRequired[str], "nodes": NotRequired[int], "samples_per_step": NotRequired[int],
    "layout": NotRequired[Mapping[str, object]], "lines_that_stay": NotRequired[list[str]], "excludes": list[str],
    "excludes_alone": NotRequired[dict[str, list[str]]], "little_explained": NotRequired[list[str]],
    "does_not_fit": str, "notes": list[str], "conditions": NotRequired[dict[str, Condition]],
    "line_conditions": NotRequired[dict[str, dict[str, Condition]]],
})  # fmt: skip


class Subject:
    """Base of the subjects: work on a machine under the options of an estimate."""

    machine: Machine
    options: Options
    tries: int
    """Approximate number of values of a whole number that may be tried, by the cost of an estimate."""

    @property
    def level(self) -> float:
        """Level of the intervals."""
        return self.options.interval

    @cached_property
    def _fitted(self) -> Machine:
        return with_fits(self.machine)

    def figures_at(self, point: Point) -> Figures:
        """Return the figures at a point."""
        raise NotImplementedError

    def _outcome(self, point: Point) -> Outcome:
        try:
            return self.figures_at(point)
        except FomkitError as error:
            return error

    def at(self, points: Sequence[Point]) -> list[Outcome]:
        """Return the figures at each point, or the error that prevents them."""
        return [self._outcome(point) for point in points]


@dataclass(frozen=True)
class Goal:
    """A figure that is to be at least a value; a step's time is to be at most the value.

    `figure`: fom, unit_per_day [1/day] or step_s [s].
    `probability`: required probability of reaching it, between 0 and 1; 0.5 compares the figure's value itself.
    """

    figure: str
    value: float
    probability: float = 0.5

    @property
    def at_most(self) -> bool:
        """True where smaller is better."""
        return self.figure in SMALLER_IS_BETTER

    def check(self, *, of_suite: bool) -> None:
        """Raise where work of this sort, a suite or a model, has no such figure."""
        if self.figure == "fom" and not of_suite:
            raise FomkitError(
                "fom", "needs a suite. Give `suite` in place of `model`, or use `unit_per_day` or `step`."
            )
        if self.figure != "fom" and of_suite:
            raise FomkitError(
                self.figure.removesuffix("_s"), "is of a model; a suite has only its FOM. Use `fom`."
            )

    def span(self, figures: Figures) -> Span:
        """Return the span of the goal's figure."""
        if self.figure in figures:
            return figures[self.figure]
        why = "the profile does not define a run: no train_samples or epochs"
        hint = f"Use {' or '.join(map(title_of, figures))}." if figures else "Nothing is known."
        raise FomkitError(title_of(self.figure), f"is not known here; {why}. {hint}")

    def reached(self, figures: Figures) -> float:
        """Return the probability that the goal is reached."""
        above = probability_above(self.span(figures), self.value)
        return 1 - above if self.at_most else above

    def margin(self, figures: Figures) -> float:
        """Return ln(figure reached with the probability / value), negated for a time; 0 or more is enough."""
        span = self.span(figures)
        if self.at_most:
            return math.log(self.value / reached_with(span, 1 - self.probability))
        return math.log(reached_with(span, self.probability) / self.value)


def _is_between(value: object, most: float) -> bool:
    # A notebook may pass any object.
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < most


def make_goal(
    *, unit_per_day: float | None = None, step_s: float | None = None, fom: float | None = None,
    probability: float = 0.5,
) -> Goal:  # fmt: skip
    """Make a goal from the one figure that is given; a step's time is in s.

    >>> make_goal(unit_per_day=50.0, probability=0.9)
    Goal(figure='unit_per_day', value=50.0, probability=0.9)
    """
    goals = {"unit_per_day": unit_per_day, "step_s": step_s, "fom": fom}
    called = {name: name.removesuffix("_s") for name in goals}
    given = {name: value for name, value in goals.items() if value is not None}
    if len(given) != 1:
        what = f"{' and '.join(f'`{called[name]}`' for name in given)} are given" if given else "none is given"
        choices = ", ".join(f"`{called[name]}`" for name in goals)
        raise FomkitError("goal", f"{what}. Give one of {choices} (`fom` needs `suite`).")
    ((figure, value),) = given.items()
    if not _is_between(value, math.inf):
        raise FomkitError(called[figure], f"is {value!r}. Give a finite number above 0.")
    if not _is_between(probability, 1.0):
        raise FomkitError("probability", f"is {probability!r}. Give a number between 0 and 1, for example 0.9.")
    return Goal(figure, float(value), float(probability))


def read_together(given: str | Sequence[str]) -> tuple[str, ...]:
    """Return the parameters of a frontier, from text with commas or a list; raise for fewer than two."""
    listed = given.split(",") if isinstance(given, str) else given
    names = tuple(name for one in listed if (name := one.strip()))
    if given and len(names) < 2:
        raise FomkitError("frontier", "needs at least two parameters. Name another one, or use `change`.")
    return names


def figures_of(estimated: Estimate) -> Figures:
    """Return the known figures of an estimate."""
    known = {"unit_per_day": estimated.unit_per_day, "sample_per_s": estimated.sample_per_s,
             "step_s": estimated.step}  # fmt: skip
    return {name: span for name, span in known.items() if span is not None}


def _figures(row: Mapping[Any, Any], level: float) -> Figures:
    found = {}
    for name in FIGURES:
        if name in row and not math.isnan(row[name]):
            value, low, high = (float(row[f"{name}{end}"]) for end in ("", "_low", "_high"))
            found[name] = Span(value, low, high, level, float(row["shared"]))
    return found


@dataclass(frozen=True)
class OneModel(Subject):
    """A model on a machine."""

    model: ModelProfile
    machine: Machine
    options: Options
    tries = 512  # scenarios are priced together

    @property
    def title(self) -> Title:
        """Model, target and sizes, and the terms that are not stated."""
        one = self.estimate
        return {"model": self.model.name, "target": self.machine.name, "unit": self.model.unit.name,
                "sizes": dict(one.sizes), "precision": one.precision, "scope": one.scope,
                "excludes": list(one.excludes), "does_not_fit": one.fit.message,
                "notes": list(verdict_on(one.machine)), "conditions": conditions_content(one)}  # fmt: skip

    @cached_property
    def estimate(self) -> Estimate:
        """The estimate at the current values."""
        return estimate(self.model, self._fitted, self.options)

    def parameters(self) -> tuple[varied.Parameter, ...]:
        """Return rates, costs and overheads of the machine, sizes and run of the model."""
        one = self.estimate
        return (
            *varied.device_parameters(with_host(self.machine, self.model), varied.peaks_in_use([one])),
            *varied.scope_parameters(self.machine, one.scope),
            *varied.model_parameters(self.model, self.options),
        )

    def not_varied(self) -> list[tuple[str, str]]:
        """Return rates that are not stated and sizes that are fixed."""
        return [
            *varied.unstated(self.machine, varied.peaks_in_use([self.estimate])),
            *(((HOST, f"{self.machine.name} does not state it"),) if FRAMEWORK in self.estimate.excludes else ()),
            *varied.fixed_sizes(self.model),
        ]

    def estimate_at(self, point: Point) -> Estimate:
        """Estimate at one point."""
        if not point:
            return self.estimate
        ours = {parameter.name for parameter in self.parameters() if parameter.of == "machine"} | {
            *self.machine.parameters
        }
        machine = change_machine(self._fitted, {name: value for name, value in point.items() if name in ours})
        others = {name: value for name, value in point.items() if name not in ours}
        model, options = varied.changed_model(self.model, self.options, others)
        return estimate(model, machine, options)

    @cached_property
    def _study(self) -> Study:
        return prepare_study(self.model, self._fitted, self.options)

    def at(self, points: Sequence[Point]) -> list[Outcome]:
        """Return the figures at each point; points with the same parameters are evaluated together."""
        found: dict[int, Outcome] = {}
        similar = by_key((tuple(sorted(point)), place) for place, point in enumerate(points))
        for names, places in similar.items():
            together = self._as_scenarios(names, [points[place] for place in places])
            found |= dict(zip(places, together, strict=True))
        return [found[place] for place in range(len(points))]

    def _as_scenarios(self, names: tuple[str, ...], points: Sequence[Point]) -> list[Outcome]:
        if not names or not columns_of(self.model, self.machine).issuperset(names):
            return [self._outcome(point) for point in points]
        table = pd.DataFrame([dict(point) for point in points], columns=list(names))
        found = scenarios(self._study, table)
        columns = {name: found[name].tolist() for name in (*RESULTS, "shared")}
        rows = (dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True))
        return [
            self._outcome(point) if why else _figures(row, self.level)
            for point, row, why in zip(points, rows, found["why"].tolist(), strict=True)
        ]

    def figures_at(self, point: Point) -> Figures:
        """Return the figures of an estimate at a point."""
        return figures_of(self.estimate_at(point))

    def measurements(self) -> ToMeasure:
        """Rank what could be measured by how much the step's interval would shrink."""
        return measurements(self.estimate, self.options, self.parameters())

    def binding(self, point: Point) -> str:
        """Return what the step waits for."""
        return self.estimate_at(point).step_time.bound

    def unfit(self, point: Point) -> str:
        """Return a message if a device's memory does not hold the step."""
        return self.estimate_at(point).fit.message

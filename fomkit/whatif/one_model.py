"""A model on a machine, asked at other values of its parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fomkit.errors import FomkitError
from fomkit.hardware import Machine
from fomkit.spans import Span
from fomkit.study.changes import parameters as device_names
from fomkit.study.estimate import Estimate, estimate, with_step
from fomkit.study.options import Options
from fomkit.study.plausible import verdict_on
from fomkit.study.scenarios import Study, blocks_of, in_order, prepare_study
from fomkit.whatif.changed import OF_A_RUN, changed_machine, changed_model
from fomkit.whatif.measurements import measurements
from fomkit.whatif.parameters import (
    Parameter,
    device_parameters,
    fixed_sizes,
    model_parameters,
    peaks_in_use,
    scope_parameters,
    unstated,
)
from fomkit.whatif.subject import FIGURES, Figures, OnMachine, Outcome, Point
from fomkit.workload import ModelProfile

if TYPE_CHECKING:
    import pandas as pd

FEW = 4
"""Points of which each is estimated alone where one of them cannot be."""


def figures_of(one: Estimate) -> Figures:
    """Give what an estimate knows."""
    batch = one.sizes.get("batch")
    samples = None if batch is None else one.step.per(batch)
    known = {"unit_per_day": one.unit_per_day, "sample_per_s": samples, "step_s": one.step}
    return {name: span for name, span in known.items() if span is not None}


def _figures(row: pd.Series[float], level: float) -> Figures:
    spans = {
        name: Span(float(row[name]), float(row[f"{name}_low"]), float(row[f"{name}_high"]), level)
        for name in FIGURES
        if name in row.index
    }
    return {name: span for name, span in spans.items() if span.value == span.value}


@dataclass(frozen=True)
class OneModel(OnMachine):
    """A model on a machine."""

    model: ModelProfile
    machine: Machine
    options: Options
    tries = 512  # scenarios are priced together

    @property
    def title(self) -> dict[str, Any]:
        """Name model, target and sizes, and what nobody stated."""
        one = self.estimate
        sizes = {"sizes": dict(one.sizes), "precision": one.precision, "scope": one.scope}
        return {"model": self.model.name, "target": self.machine.name, "unit": self.model.unit.name, **sizes,
                "excludes": sorted(one.excludes), "does_not_fit": one.fit.said,
                "notes": list(verdict_on(one.machine))}  # fmt: skip

    @cached_property
    def estimate(self) -> Estimate:
        """The estimate as it is."""
        return estimate(self.model, self._fitted, self.options)

    def parameters(self) -> tuple[Parameter, ...]:
        """List rates, costs and overheads of the machine, sizes and run of the model."""
        one = self.estimate
        return (
            *device_parameters(self.machine, peaks_in_use([one])),
            *scope_parameters(self.machine, one.scope),
            *model_parameters(self.model, self.options),
        )

    def left_out(self) -> list[tuple[str, str]]:
        """Name rates that nobody stated and sizes that are fixed."""
        return [*unstated(self.machine, peaks_in_use([self.estimate])), *fixed_sizes(self.model)]

    def estimate_at(self, point: Point) -> Estimate:
        """Estimate at one point.

        Raises
        ------
        FomkitError
            When a value cannot be.
        """
        if not point:
            return self.estimate
        ours = {one.name for one in self.parameters() if one.of == "machine"} | {*device_names(self.machine)}
        machine = changed_machine(self._fitted, {name: value for name, value in point.items() if name in ours})
        others = {name: value for name, value in point.items() if name not in ours}
        return estimate(*_of(changed_model(self.model, self.options, others), machine))

    @cached_property
    def _study(self) -> Study:
        return prepare_study(self.model, self._fitted, self.options)

    def at(self, points: Sequence[Point]) -> list[Outcome]:
        """Give the figures at each point; points of the same columns together, as scenarios."""
        found: dict[int, Outcome] = {}
        alike: dict[tuple[str, ...], list[int]] = {}
        for place, point in enumerate(points):
            alike.setdefault(tuple(sorted(point)), []).append(place)
        for names, places in alike.items():
            together = self._together(names, [points[place] for place in places])
            found |= dict(zip(places, together, strict=True))
        return [found[place] for place in range(len(points))]

    def _together(self, names: tuple[str, ...], points: Sequence[Point]) -> list[Outcome]:
        import pandas as pd

        columns = {*device_names(self.machine), *self.model.sizes, "batch"}
        if names and columns.issuperset(names):
            table = pd.DataFrame([dict(point) for point in points], columns=list(names))
            try:
                results = in_order(blocks_of(self._study, table), table)
            except FomkitError:
                if len(points) > FEW:  # one of them cannot be; the other half may be
                    half = len(points) // 2
                    return self._together(names, points[:half]) + self._together(names, points[half:])
            else:
                return [_figures(row, self.level) for _, row in results.drop(columns="basis").iterrows()]
        return [self._alone(point) for point in points]

    def _alone(self, point: Point) -> Outcome:
        try:
            return self._run(point) if set(OF_A_RUN).issuperset(point) else self.again(point)
        except FomkitError as error:
            return error

    def _run(self, point: Point) -> Figures:
        """Give the figures where only the run changes: its step is that of the estimate as it is."""
        model, options = changed_model(self.model, self.options, point)
        one = replace(self.estimate, model=model)
        return figures_of(with_step(one, one.step, options.last_batch))

    def again(self, point: Point) -> Figures:
        """Give the figures of an estimate at a point.

        Raises
        ------
        FomkitError
            When there are none.
        """
        return figures_of(self.estimate_at(point))

    def measurements(self) -> dict[str, Any]:
        """Rank what could be measured by how much narrower the step's interval would be."""
        return measurements(self.estimate, self.options, self.parameters())

    def binding(self, point: Point) -> str:
        """Say what the step waits for."""
        return self.estimate_at(point).step_time.bound

    def unfit(self, point: Point) -> str:
        """Say that a device's memory does not hold the step."""
        return self.estimate_at(point).fit.said


def _of(changed: tuple[ModelProfile, Options], machine: Machine) -> tuple[ModelProfile, Machine, Options]:
    return changed[0], machine, changed[1]

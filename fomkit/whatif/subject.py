"""What is asked of: something that gives figures with intervals at any values of its parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol

from fomkit.errors import FomkitError
from fomkit.hardware import Machine
from fomkit.spans import Span
from fomkit.study.fits import with_fits
from fomkit.study.options import Options
from fomkit.whatif.parameters import Parameter

Point = Mapping[str, float]
"""Parameters at other values; what is not named stays as it is."""
Figures = Mapping[str, Span]
"""By name: fom, unit_per_day [1/day], sample_per_s [1/s], step_s [s]."""
Outcome = Figures | FomkitError
FIGURES = ("fom", "unit_per_day", "sample_per_s", "step_s")
"""The order in which a subject's main figure is chosen: the first that it has."""
SMALLER_IS_BETTER = ("step_s",)


class Subject(Protocol):
    """A model on a machine, on many nodes of it, or a suite."""

    @property
    def title(self) -> dict[str, Any]:
        """Name what is asked of: model or suite, target, and under what conditions."""
        ...

    @property
    def level(self) -> float:
        """Level of the intervals."""
        ...

    @property
    def tries(self) -> int:
        """About how many values of one whole number may be tried; what an estimate costs decides."""
        ...

    def parameters(self) -> tuple[Parameter, ...]:
        """List the parameters that are known."""
        ...

    def left_out(self) -> list[tuple[str, str]]:
        """Name what cannot be varied, each with the reason."""
        ...

    def at(self, points: Sequence[Point]) -> list[Outcome]:
        """Give the figures at each point, or why there are none."""
        ...

    def again(self, point: Point) -> Figures:
        """Give the figures at a point by a whole estimate of its own.

        Raises
        ------
        FomkitError
            When there are none.
        """
        ...

    def measurements(self) -> dict[str, Any]:
        """Rank what could be measured by how much narrower the interval would be."""
        ...

    def binding(self, point: Point) -> str:
        """Say what a step waits for at a point."""
        ...

    def unfit(self, point: Point) -> str:
        """Say that the memory of a device does not hold a step at a point; "" where it does, or nobody knows."""
        ...


class OnMachine:
    """What is asked of a machine under the options of an estimate."""

    machine: Machine
    options: Options

    @property
    def level(self) -> float:
        """Level of the intervals."""
        return self.options.interval

    @cached_property
    def _fitted(self) -> Machine:
        return with_fits(self.machine)


def main_figure(figures: Figures) -> str:
    """Name the figure that an answer is about."""
    return next(name for name in FIGURES if name in figures)

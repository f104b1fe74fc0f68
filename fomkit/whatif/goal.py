"""What is to be reached: a figure at a value, with a probability."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fomkit.errors import FomkitError
from fomkit.spans import Span, probability_above, reached_with
from fomkit.whatif.subject import SMALLER_IS_BETTER, Figures


@dataclass(frozen=True)
class Goal:
    """A figure that is to be at least a value, a step's time at most.

    Attributes
    ----------
    figure : str
        fom, unit_per_day [1/day] or step_s [s].
    value : float
        Above 0.
    probability : float
        With which it shall be reached, between 0 and 1; 0.5 asks it of the value itself.
    """

    figure: str
    value: float
    probability: float = 0.5

    @property
    def at_most(self) -> bool:
        """True where smaller is better."""
        return self.figure in SMALLER_IS_BETTER

    def span(self, figures: Figures) -> Span:
        """Give the figure that is asked of.

        Raises
        ------
        FomkitError
            When it is not known.
        """
        if self.figure in figures:
            return figures[self.figure]
        why = "the profile does not say what a run is: no train_samples or epochs"
        hint = f"Ask of {' or '.join(figures)}." if figures else "Nothing is known."
        raise FomkitError(self.figure, f"is not known here; {why}. {hint}")

    def reached(self, figures: Figures) -> float:
        """Give the probability that it is reached."""
        above = probability_above(self.span(figures), self.value)
        return 1 - above if self.at_most else above

    def margin(self, figures: Figures) -> float:
        """Give ln(what is reached with the probability / value), of a time the negative; 0 or more is enough."""
        span = self.span(figures)
        if self.at_most:
            return math.log(self.value / reached_with(span, 1 - self.probability))
        return math.log(reached_with(span, self.probability) / self.value)


def _is_between(value: object, most: float) -> bool:
    # A notebook may give anything.
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < most


def make_goal(
    *, unit_per_day: float | None = None, step_s: float | None = None, fom: float | None = None,
    probability: float = 0.5,
) -> Goal:  # fmt: skip
    """Make a goal of the one figure that is given.

    Raises
    ------
    FomkitError
        When none or several are given, one is not above 0, or the probability is not between 0 and 1.

    Examples
    --------
    >>> make_goal(unit_per_day=50.0, probability=0.9)
    Goal(figure='unit_per_day', value=50.0, probability=0.9)
    """
    given = {
        name: value
        for name, value in (("unit_per_day", unit_per_day), ("step_s", step_s), ("fom", fom))
        if value is not None
    }
    if len(given) != 1:
        what = f"{' and '.join(given)} are given" if given else "none is given"
        raise FomkitError("goal", f"{what}. Give one of units per day, the time of a step, or a FOM of a suite.")
    ((figure, value),) = given.items()
    if not _is_between(value, math.inf):
        raise FomkitError("goal", f"{figure} is {value!r}. Give a finite number above 0.")
    if not _is_between(probability, 1.0):
        raise FomkitError("probability", f"is {probability!r}. Give a number between 0 and 1, for example 0.9.")
    return Goal(figure, float(value), float(probability))

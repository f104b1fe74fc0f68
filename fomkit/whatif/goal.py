"""What is to be reached: a figure at a value, with a probability."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from fomkit.errors import FomkitError
from fomkit.metrics import title_of
from fomkit.spans import Span, probability_above, reached_with
from fomkit.whatif.subject import SMALLER_IS_BETTER, Figures

OPTIONS: Mapping[str, str] = {
    "unit_per_day": "--units-per-day", "step_s": "--step", "fom": "--fom", "probability": "--probability"
}  # fmt: skip
"""What the command line calls what a goal is made of; in Python the names are those of `make_goal`."""


def said(figure: str) -> str:
    """Name a figure as tables do.

    Examples
    --------
    >>> said("unit_per_day")
    'units/day'
    """
    return title_of(figure)


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
        why = (
            "it is a suite's" if self.figure == "fom" else "a suite has only its FOM" if "fom" in figures
            else "the profile does not say what a run is: no train_samples or epochs"
        )  # fmt: skip
        hint = f"Ask of {' or '.join(map(said, figures))}." if figures else "Nothing is known."
        raise FomkitError(said(self.figure), f"is not known here; {why}. {hint}")

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
    probability: float = 0.5, names: Mapping[str, str] | None = None,
) -> Goal:  # fmt: skip
    """Make a goal of the one figure that is given.

    Parameters
    ----------
    unit_per_day, step_s, fom : float
        One of them; a step's time in s.
    probability : float
    names : mapping, optional
        What messages call them, such as `OPTIONS`; default: these names.

    Raises
    ------
    FomkitError
        When none or several are given, one is not above 0, or the probability is not between 0 and 1.

    Examples
    --------
    >>> make_goal(unit_per_day=50.0, probability=0.9)
    Goal(figure='unit_per_day', value=50.0, probability=0.9)
    """
    asked = {"unit_per_day": unit_per_day, "step_s": step_s, "fom": fom}
    called = names or {name: name for name in (*asked, "probability")}
    given = {name: value for name, value in asked.items() if value is not None}
    if len(given) != 1:
        what = f"{' and '.join(called[name] for name in given)} are given" if given else "none is given"
        choices = ", ".join(called[name] for name in asked)
        raise FomkitError("goal", f"{what}. Give one of {choices} (the FOM is a suite's).")
    ((figure, value),) = given.items()
    if not _is_between(value, math.inf):
        raise FomkitError(called[figure], f"is {value!r}. Give a finite number above 0.")
    if not _is_between(probability, 1.0):
        raise FomkitError(
            called["probability"], f"is {probability!r}. Give a number between 0 and 1, for example 0.9."
        )
    return Goal(figure, float(value), float(probability))

"""The smallest change that reaches a goal (``fomkit/solve/1``): of one parameter, or of several together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fomkit import __version__
from fomkit.errors import FomkitError
from fomkit.shown import Shown
from fomkit.study.content import INTERVAL_MEANING, span_content
from fomkit.whatif.frontier import Combination, Frontier, choose_parameters, frontier
from fomkit.whatif.goal import Goal
from fomkit.whatif.parameters import Parameter
from fomkit.whatif.solve_one import MOST, Asked, Change, solve_one
from fomkit.whatif.subject import Figures, Subject

SCHEMA = "fomkit/solve/1"
ASSUMED = (
    "every op keeps its utilisation on a changed machine; nobody builds a rate alone, without the rest",
    "the probability is that of the interval, its logarithm taken as normal on each side",
)
OF_TRIED = "of sizes and nodes only some values are tried, and another may do"
UNUSED = "nothing here runs at it"


@dataclass(frozen=True)
class Solution(Shown):
    """What it takes to reach a goal.

    Attributes
    ----------
    title : mapping
        Model or suite, target and conditions.
    figures : mapping
        As they are.
    probability : float
        That the goal is reached as it is.
    changes : tuple of Change
        Of one parameter each, the smallest first, then those that cannot reach it; empty where it is reached.
    refused : tuple of (str, str)
        Parameters that could not be tried, each with the reason.
    frontier : Frontier or None
        None where none was asked for, or the goal is reached.
    """

    title: Mapping[str, Any]
    level: float
    goal: Goal
    figures: Figures
    probability: float
    changes: tuple[Change, ...]
    refused: tuple[tuple[str, str], ...]
    frontier: Frontier | None

    @property
    def already(self) -> bool:
        """True where nothing must change."""
        return self.goal.margin(self.figures) >= 0

    @property
    def reached(self) -> bool:
        """True where the goal is reached, as it is or by a change that was found."""
        combined = self.frontier is not None and bool(self.frontier.points)
        return self.already or combined or any(one.reached for one in self.changes)

    @property
    def content(self) -> dict[str, Any]:
        """Everything in the form of ``fomkit/solve/1``."""
        goal = self.goal
        return {
            "schema": SCHEMA,
            "fomkit": __version__,
            **self.title,
            "interval": self.level,
            "interval_covers": INTERVAL_MEANING,
            "figure": goal.figure,
            "figures": {name: span_content(span) for name, span in self.figures.items()},
            "goal": {"asked": goal.value, "at_most": goal.at_most, "probability": goal.probability},
            "probability": self.probability,
            "already_reached": self.already,
            "reached": self.reached,
            "most_factor": MOST,
            "changes": [_change(one) for one in self.changes],
            "refused": [{"parameter": name, "why": why} for name, why in self.refused],
            "frontier": None if self.frontier is None else _frontier(self.frontier),
            "assumed": [*ASSUMED, *([OF_TRIED] if any(not one.proved for one in self.changes) else [])],
        }

    def summary(self) -> str:
        """Write it as the text that the command line prints."""
        return self._view.text(self)


def _change(one: Change) -> dict[str, Any]:
    parameter = one.parameter
    return {
        **parameter.content,
        "reached": one.reached,
        "needed": one.value if one.reached else None,
        "factor": one.factor if one.reached else None,
        "tried": None if one.reached else one.value,
        "then": span_content(one.figure),
        "probability": one.probability,
        "why": one.why or None,
        "proved": one.proved,
        "does_not_fit": one.unfit or None,
    }


def _combination(one: Combination) -> dict[str, Any]:
    return {"values": one.values, "factors": one.factors, "total": one.total, "then": span_content(one.figure),
            "probability": one.probability}  # fmt: skip


def _frontier(found: Frontier) -> dict[str, Any]:
    return {"parameters": list(found.names), "reached": bool(found.points),
            "points": [_combination(one) for one in found.points], "why": found.why or None}  # fmt: skip


def _by_size(one: Change) -> tuple[bool, float, float]:
    away = max(one.factor, 1 / one.factor)
    return (not one.reached, away if one.reached else 0.0, -one.probability)


def _tried(subject: Subject, names: Sequence[str], known: tuple[Parameter, ...]) -> tuple[Parameter, ...]:
    """Choose what is changed alone: what is named, else all, of a suite the machine's."""
    if names:
        return choose_parameters(known, names)
    of_suite = "suite" in subject.title
    return tuple(one for one in known if one.value > 0 and (one.of == "machine" or not of_suite))


def _is_unused(asked: Asked, one: Parameter) -> bool:
    """Tell whether a rate is that of no op: less of it by the most would else be slower."""
    return one.unit == "flop_per_s" and asked.still(one, [one.value / asked.most])


def solve(subject: Subject, goal: Goal, changes: Sequence[str] = (), together: Sequence[str] = ()) -> Solution:
    """Find the smallest changes that reach a goal.

    Each change is sought up to a factor of 1000 and estimated again where it is found. Sizes and nodes are whole
    numbers of which some values are tried (`fomkit.whatif.solve_one.solve_one`): another may do, or do with less.
    Peaks that no op runs at are named as not tried.

    Parameters
    ----------
    subject : Subject
    goal : Goal
    changes : sequence of str
        Parameters to change, each alone; default: all, of a suite those of the machine.
    together : sequence of str
        Two or more to change together, for a frontier; none by default.

    Raises
    ------
    FomkitError
        When the goal's figure or a parameter is not known.
    """
    here = subject.again({})
    known = subject.parameters()
    asked, tried = Asked(subject, goal), _tried(subject, changes, known)
    combined = choose_parameters(known, together)
    probability = goal.reached(here)
    if goal.margin(here) >= 0:
        return Solution(subject.title, subject.level, goal, here, probability, (), (), None)
    found, refused = [], []
    for one in tried if changes or not together else ():
        if not changes and _is_unused(asked, one):
            refused.append((one.name, UNUSED))
            continue
        try:
            found.append(solve_one(asked, one))
        except FomkitError as error:
            refused.append((one.name, error.what))
    border = frontier(asked, combined) if together else None
    ranked = tuple(sorted(found, key=_by_size))
    return Solution(subject.title, subject.level, goal, here, probability, ranked, tuple(refused), border)

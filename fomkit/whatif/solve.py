"""The smallest change that reaches a goal (``fomkit/solve/1``): of one parameter, or of several together."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise, product
from typing import TypedDict

import numpy as np

from fomkit import __version__
from fomkit.core.errors import FomkitError, Shown, nearest_names
from fomkit.core.interval import Span
from fomkit.core.machine import HOST
from fomkit.plan.content import INTERVAL_MEANING, Ends, as_content, span_content
from fomkit.plan.options import NODES
from fomkit.whatif.cases import Figures, Goal, Title
from fomkit.whatif.parameters import NotVaried, Parameter
from fomkit.whatif.solve_one import MOST, Change, Evaluator, root, solve_one
from fomkit.whatif.subjects import AnySubject

DIVISIONS = {2: 10, 3: 5, 4: 4}
"""Number of parts that a direction is divided into, by the number of parameters; all directions are tried."""
FEWEST_DIVISIONS = 3
CLOSEST = 0.002
"""Turn of a direction at which the search for the shortest way ends."""
SLACK = 1e-6
"""Length of a move [ln(factor)] that must be useless before the move is reduced."""
WHOLE_FACTORS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
"""Factors of a whole number that are tried."""
CLOSE = 1e-6
"""Differences of ln(factor) up to this count as none."""


@dataclass(frozen=True)
class Combination:
    """One point of the frontier.

    `factors`: value over the current value of the parameter.
    `figure`, `probability`: those of the goal, estimated again at this point.
    """

    values: dict[str, float]
    factors: dict[str, float]
    figure: Span
    probability: float

    @property
    def moves(self) -> list[float]:
        """The |ln(factor)| of each parameter."""
        return [abs(math.log(factor)) for factor in self.factors.values()]

    @property
    def total(self) -> float:
        """Sum of the moves: the cost if a change by a factor costs the same in every parameter."""
        return math.fsum(self.moves)


@dataclass(frozen=True)
class Frontier:
    """Combinations, the smallest total first; empty where none reaches the goal, with the reason."""

    names: tuple[str, ...]
    points: tuple[Combination, ...]
    why: str = ""


def choose_parameters(
    known: Sequence[Parameter], names: Sequence[str], option: str = "change"
) -> tuple[Parameter, ...]:
    """Find parameters by name; a prefix, such as ``flop_per_s``, is enough where only one parameter has it."""
    by_name = {one.name: one for one in known}
    found: list[Parameter] = []
    for given in names:
        parts = [name for name in by_name if name.startswith(f"{given}/")]
        if len(parts) > 1:
            raise FomkitError(f"{option} {given}", f"matches several: {', '.join(parts)}. Name one of them.")
        name = parts[0] if parts else given
        if name not in by_name:
            wider = {
                NODES: "It is one with --scope system. ",
                HOST: "It is one where the machine states its host. ",
            }
            raise FomkitError(
                f"{option} {name}", f"is not a parameter here. {wider.get(name, '')}{nearest_names(name, by_name)}"
            )
        if by_name[name] in found:
            raise FomkitError(f"{option} {name}", "is given twice. Give it once.")
        if not by_name[name].value > 0:
            raise FomkitError(f"{option} {name}", "is 0, so no factor changes it. Leave it out.")
        found.append(by_name[name])
    return tuple(found)


def _direction_shares(count: int) -> Iterator[tuple[float, ...]]:
    """Yield all ways to divide 1 among `count` parameters in multiples of equal parts.

    >>> len(list(_direction_shares(2))), len(list(_direction_shares(3)))
    (11, 21)
    """
    parts = DIVISIONS.get(count, FEWEST_DIVISIONS)
    if count == 1:
        yield (1.0,)
        return
    for bars in combinations(range(parts + count - 1), count - 1):
        ends = (-1, *bars, parts + count - 1)
        yield tuple((end - start - 1) / parts for start, end in pairwise(ends))


class _Search:
    """A search along directions in ln(factor) from one start, in which whole numbers already have their values."""

    def __init__(self, evaluator: Evaluator, real: Sequence[Parameter], fixed: dict[str, float]) -> None:
        self.evaluator, self.real, self.fixed = evaluator, real, fixed
        self.start = {**{one.name: one.value for one in real}, **fixed}
        self.ways: dict[tuple[float, ...], float | None] = {}

    def point(self, moves: Sequence[float]) -> dict[str, float]:
        """Return the values when every parameter is moved by its move in ln, to its better side."""
        moved = {
            one.name: one.value * math.exp(one.better * move) for one, move in zip(self.real, moves, strict=True)
        }
        return {**moved, **self.fixed}

    def end(self, shares: tuple[float, ...], way: float) -> dict[str, float]:
        """Return the values at the end of a way, with each move reduced as far as the others allow.

        Where a step waits for one thing only, part of the move in another parameter may be useless.
        """
        moves = [way * share for share in shares]
        for place, move in enumerate(moves):
            less = [*moves[:place], move - SLACK, *moves[place + 1 :]]
            margin = self.evaluator.margin(self.point(less)) if move > SLACK else None
            if margin is not None and margin >= 0:
                one = self.real[place]
                start = {**self.point(less), one.name: one.value}
                directions = {name: float(one.better) if name == one.name else 0.0 for name in start}
                moves[place] = root(self.evaluator, start, directions, move - SLACK) or 0.0
        return self.point(moves)

    def way(self, shares: tuple[float, ...]) -> float | None:
        """Return the length of the way to the goal in a direction; None where the farthest point is not enough."""
        if shares not in self.ways:
            slopes = {one.name: one.better * share for one, share in zip(self.real, shares, strict=True)}
            farthest = math.log(self.evaluator.most) / max(shares)
            directions = {**slopes, **dict.fromkeys(self.fixed, 0.0)}
            try:
                self.ways[shares] = root(self.evaluator, self.start, directions, farthest)
            except FomkitError:
                self.ways[shares] = None  # such a number of nodes has no step
        return self.ways[shares]

    def least(self) -> tuple[float, ...] | None:
        """Find the direction of the shortest way by refinement; times are convex in ln(rates), so it converges."""
        turn = 1 / (2 * DIVISIONS.get(len(self.real), FEWEST_DIVISIONS))
        best = self._best()
        while best is not None and turn > CLOSEST:
            for place in range(len(self.real)):
                self.way(tuple((1 - turn) * share + turn * (at == place) for at, share in enumerate(best)))
            last, best = best, self._best()
            turn = turn / 2 if best == last else turn
        return best

    def _best(self) -> tuple[float, ...] | None:
        known = [(way, shares) for shares, way in self.ways.items() if way is not None]
        return min(known)[1] if known else None


def _points(evaluator: Evaluator, real: Sequence[Parameter], fixed: dict[str, float]) -> list[dict[str, float]]:
    """Return the points that reach the goal, one for each direction, with whole numbers fixed."""
    if not real:
        margin = evaluator.margin(fixed)
        return [fixed] if margin is not None and margin >= 0 else []
    search = _Search(evaluator, real, fixed)
    ways = {shares: search.way(shares) for shares in _direction_shares(len(real))}
    if len(real) > 1 and (least := search.least()) is not None:
        ways[least] = search.way(least)
    return [search.end(shares, way) for shares, way in ways.items() if way is not None]


def _front_combination(
    evaluator: Evaluator, parameters: Sequence[Parameter], values: dict[str, float]
) -> Combination:
    found = evaluator.subject.figures_at(values)
    factors = {parameter.name: values[parameter.name] / parameter.value for parameter in parameters}
    return Combination(values, factors, evaluator.goal.span(found), evaluator.goal.reached(found))


def _is_dominated(combination: Combination, others: Sequence[Combination]) -> bool:
    """Check whether another point needs no more of any parameter, and less of one."""
    own = combination.moves
    less = [np.subtract(own, other.moves) for other in others]
    return any((by >= -CLOSE).all() and (by > CLOSE).any() for by in less)


def _without_twins(points: Sequence[Combination]) -> list[Combination]:
    remaining: list[Combination] = []
    for point in points:
        if not any(np.allclose(point.moves, other.moves, rtol=0, atol=CLOSE) for other in remaining):
            remaining.append(point)
    return remaining


def frontier(evaluator: Evaluator, parameters: Sequence[Parameter]) -> Frontier:
    """Find the frontier of two or more parameters, whose better direction is known, for a goal not yet reached.

    In every direction in ln(factor) the way to the goal is computed; around the shortest way the directions are
    refined. Whole numbers are tried at doubling factors.
    """
    names = tuple(parameter.name for parameter in parameters)
    if unclear := [parameter.name for parameter in parameters if not parameter.better]:
        raise FomkitError(
            "frontier",
            f"cannot include {', '.join(unclear)}: more of it may be faster or slower. Use --change for it.",
        )
    real = [parameter for parameter in parameters if not parameter.grain]
    wholes = [parameter for parameter in parameters if parameter.grain]
    found: list[dict[str, float]] = []
    enough: list[tuple[int, ...]] = []
    for factors in product(WHOLE_FACTORS, repeat=len(wholes)):
        if any(all(a <= b for a, b in zip(known, factors, strict=True)) for known in enough):
            continue
        fixed = {one.name: max(1.0, round(one.value * factor**one.better))
                 for one, factor in zip(wholes, factors, strict=True)}  # fmt: skip
        here = _points(evaluator, real, fixed)
        if any(all(point[one.name] == one.value for one in real) for point in here):
            enough.append(factors)  # larger whole numbers would be useless
        found += here
    points = [_front_combination(evaluator, parameters, values) for values in found]
    ranked = sorted(_without_twins(points), key=lambda twin: (twin.total, twin.moves))
    remaining = tuple(one for one in ranked if not _is_dominated(one, ranked))
    if remaining:
        return Frontier(names, remaining)
    far = {one.name: one.value * evaluator.most**one.better for one in real}
    far |= {whole.name: whole.value * WHOLE_FACTORS[-1] for whole in wholes if whole.better > 0}
    waits = evaluator.subject.binding(far)
    return Frontier(names, (), f"even if all are {evaluator.most:g} times as good, steps wait for {waits}")


SCHEMA = "fomkit/solve/1"
ASSUMED = (
    "every op keeps its utilisation on a changed machine; in real machines rates do not change alone",
    "the probability is that of the interval, with a normal distribution of the logarithm on each side",
)
OF_TRIED = "only some sizes and numbers of nodes are tried; another one may be enough"
OF_BATCH = (
    "where a partial last batch is dropped, a batch that does not divide an epoch's samples drops some, and its "
    "run has that much less work"
)
UNUSED = "nothing here uses it"

GoalContent = TypedDict("GoalContent", {"asked": float, "at_most": bool, "probability": float})
ChangeContent = TypedDict("ChangeContent", {
    "parameter": str, "of": str, "unit": str, "setting": float, "reached": bool, "needed": float | None,
    "factor": float | None, "tried": float | None, "then": Ends, "probability": float, "why": str | None,
    "proved": bool, "does_not_fit": str | None,
})  # fmt: skip
Together = TypedDict("Together", {"values": Mapping[str, float], "factors": Mapping[str, float], "total": float,
                                  "then": Ends, "probability": float})  # fmt: skip
FrontierContent = TypedDict("FrontierContent", {"parameters": list[str], "reached": bool, "points": list[Together],
                                                "why": str | None})  # fmt: skip

Solved = TypedDict("Solved", {
    "schema": str, "fomkit": str, "interval": float, "interval_covers": str, "figure": str,
    "figures": dict[str, Ends], "goal": GoalContent, "probability": float, "already_reached": bool,
    "reached": bool, "most_factor": float, "changes": list[ChangeContent], "refused": list[NotVaried],
    "frontier": FrontierContent | None, "assumed": list[str],
})  # fmt: skip


class SolveContent(Title, Solved):
    """The content of ``fomkit/solve/1``."""


@dataclass(frozen=True, repr=False)
class Solution(Shown):
    """The changes that reach a goal.

    `probability`: that the goal is reached without a change.
    `changes`: of one parameter each, the smallest first, then those that fail; empty where it is reached.
    `refused` (str, str): parameters that could not be tried, each with the reason.
    `frontier`: None where none was requested, or the goal is reached.
    """

    title: Title
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
        """True where the goal is reached, without a change or by one that was found."""
        combined = self.frontier is not None and bool(self.frontier.points)
        return self.already or combined or any(change.reached for change in self.changes)

    @property
    def content(self) -> SolveContent:
        """Everything in the form of ``fomkit/solve/1``."""
        goal = self.goal
        tried = any(not change.proved for change in self.changes)
        batch = any(change.parameter.name.rpartition(".")[2] == "batch" for change in self.changes)
        return {
            "schema": SCHEMA, "fomkit": __version__, **self.title, "interval": self.level,
            "interval_covers": INTERVAL_MEANING, "figure": goal.figure,
            "figures": {name: span_content(span) for name, span in self.figures.items()},
            "goal": {"asked": goal.value, "at_most": goal.at_most, "probability": goal.probability},
            "probability": self.probability, "already_reached": self.already, "reached": self.reached,
            "most_factor": MOST, "changes": [_change(change) for change in self.changes],
            "refused": [{"parameter": name, "why": why} for name, why in self.refused],
            "frontier": None if self.frontier is None else _frontier(self.frontier),
            "assumed": [*ASSUMED, *[OF_TRIED] * tried, *[OF_BATCH] * batch],
        }  # fmt: skip


def _change(change: Change) -> ChangeContent:
    reached, parameter = change.reached, change.parameter
    return as_content(
        ChangeContent, parameter, change, parameter=parameter.name, setting=parameter.value,
        needed=change.value if reached else None,
        factor=change.factor if reached else None, tried=None if reached else change.value, then=change.figure,
        does_not_fit=change.unfit,
    )  # fmt: skip


def _frontier(found: Frontier) -> FrontierContent:
    points = [as_content(Together, one, then=one.figure) for one in found.points]
    return as_content(FrontierContent, found, parameters=found.names, reached=bool(points), points=points)


def _by_size(change: Change) -> tuple[bool, float, float]:
    away = max(change.factor, 1 / change.factor)
    return (not change.reached, away if change.reached else 0.0, -change.probability)


def solve(subject: AnySubject, goal: Goal, changes: Sequence[str] = (), together: Sequence[str] = ()) -> Solution:
    """Find the smallest changes that reach a goal.

    Each change is searched up to a factor of 1000 and estimated again where it is found. Sizes and nodes are whole
    numbers of which only some values are tried (`fomkit.whatif.solve_one.solve_one`): another value, or a smaller
    change, may reach the goal too. Peaks at which no op runs are listed as not tried.

    `changes`: parameters to change, each alone; default: all, of a suite those of the machine; `together`: two or
    more to change together, for a frontier; none by default.
    """
    known = subject.parameters()
    evaluator, tried = Evaluator(subject, goal), choose_parameters(known, changes)
    combined, here = choose_parameters(known, together, "frontier"), subject.figures_at({})
    if not changes:
        of_suite = "suite" in subject.title
        tried = tuple(one for one in known if one.value > 0 and (one.of != "model" or not of_suite))
    probability = goal.reached(here)
    if goal.margin(here) >= 0:
        return Solution(subject.title, subject.level, goal, here, probability, (), (), None)
    found, refused = [], []
    for one in tried if changes or not together else ():
        # If an op ran at this peak, the largest reduction of it would make the step slower.
        if not changes and one.unit == "flop_per_s" and evaluator.still(one, [one.value / evaluator.most]):
            refused.append((one.name, UNUSED))
            continue
        try:
            found.append(solve_one(evaluator, one))
        except FomkitError as error:
            refused.append((one.name, error.what))
    border = frontier(evaluator, combined) if together else None
    ranked = tuple(sorted(found, key=_by_size))
    return Solution(subject.title, subject.level, goal, here, probability, ranked, tuple(refused), border)

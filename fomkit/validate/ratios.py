"""Ratios of two machines: how much longer one model takes on one than on the other, over all pairs of devices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import NamedTuple

import numpy as np

from fomkit.spans import Span, divide_independent
from fomkit.validate.labels import PEERS
from fomkit.validate.models import Outcome
from fomkit.validate.scores import Cases, Score, errors_of, make_cases, score

ALL_PAIRS = "all pairs"


class Pair(NamedTuple):
    """One model on two machines: the measured ratio, the predicted one, and those of peers."""

    truth: float
    span: Span
    peers: Mapping[str, float]


def _key(one: Outcome) -> tuple[object, ...]:
    return one.label["graph"], one.label["option"]


def pairs(one: list[Outcome], other: list[Outcome]) -> Iterator[Pair]:
    """Give the ratio of each model that was measured and predicted on both machines."""
    known = {_key(found): found for found in other}
    for left in one:
        right = known.get(_key(left))
        above, below = left.spans["step"], right.spans["step"] if right is not None else None
        if right is None or above is None or below is None:
            continue
        peers = {peer: left.seconds("step", peer) / right.seconds("step", peer) for peer in PEERS}
        yield Pair(left.seconds("step") / right.seconds("step"), divide_independent(above, below), peers)


def _cases(found: list[Pair]) -> Cases:
    ends = (np.array([getattr(pair.span, end) for pair in found]) for end in ("value", "low", "high"))
    return make_cases(np.array([pair.truth for pair in found]), *ends)


def _score(found: list[Pair], comparison: str, machine: str) -> Score:
    cases = _cases(found)
    said = {peer: np.array([pair.peers[peer] for pair in found]) for peer in PEERS}
    peers = {peer: errors_of(cases.truth, values) for peer, values in said.items() if np.isfinite(values).all()}
    return score(cases, comparison, "ratio", machine, "all", peers)


def ratio_cases(machines: Mapping[str, list[Outcome]]) -> list[Cases]:
    """Give the ratios of all pairs of machines, for pooled figures."""
    found = [pair for one, other in combinations(machines, 2) for pair in pairs(machines[one], machines[other])]
    return [_cases(found)] if found else []


def ratio_scores(machines: Mapping[str, list[Outcome]], comparison: str) -> Iterator[Score]:
    """Score the ratios of each pair of machines, and of all pairs together."""
    together: list[Pair] = []
    for one, other in combinations(machines, 2):
        found = list(pairs(machines[one], machines[other]))
        together += found
        if found:
            yield _score(found, comparison, f"{one} / {other}")
    if together:
        yield _score(together, comparison, ALL_PAIRS)

"""Estimator: the table knows the op in another pass, and the two passes usually differ by a known ratio."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fomkit.predict.estimates import Answers, Estimator, as_answers, join_answers, opened_by, timed_kinds
from fomkit.predict.rates import Bounds, bounds
from fomkit.predict.rows import Rows, Table, are, places_of, same_texts
from fomkit.predict.usual import Usuals, usual_utilisation, without_pass

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fomkit.hardware import Machine

    Matrix = NDArray[np.float64]

BASELINE = "forward"
TRANSFERRED: Mapping[str, tuple[str, ...]] = {"conv": ("backward_input", "backward_weight")}
"""Kinds and passes that follow the forward pass: their work is the same, in another order.

On the nine training tables of DeepBench, nothing heard of the machine's own chip, it is off by 19 % (input) and
30 % (weight) in the middle.
Recurrent layers do not follow: their weight gradient is one product over all steps, off by a factor of two.
"""


class UsualHere(NamedTuple):
    """What bounds ops on a machine, and their usual utilisation; ``known`` is False where a rate is unknown."""

    bounds: Bounds
    usual: Usuals
    known: NDArray[np.bool_]


def usual_here(rows: Table, machine: Machine, interval: float) -> UsualHere:
    """Give what bounds ops on a machine, and their usual utilisation."""
    usual, found = usual_utilisation(rows, machine, interval), bounds(rows, machine)
    return UsualHere(found, usual, ~np.isnan(usual.value) & ~np.isnan(found.floor_s))


def widen(times: Matrix, faster: Matrix | float, slower: Matrix | float) -> Matrix:
    """Carry times and their ends (3, q) over to other ops, wider by how much faster or slower [1] those may be."""
    time_s, low_s, high_s = times
    below = np.hypot(np.log(time_s / low_s), np.log(faster))
    above = np.hypot(np.log(high_s / time_s), np.log(slower))
    return np.stack([time_s, time_s / np.exp(below), time_s * np.exp(above)])


def transferred(
    known: Answers, times: Matrix, bound: NDArray[np.object_], evidence: Callable[[int], str]
) -> Answers:
    """Say of the same ops that they take other times (3, q), carried over from what is known."""
    return Answers(known.index, times, np.full(len(known), "transferred", object), bound, evidence)


def _answers(known: Answers, asked: Usuals, baseline: Usuals, bound: NDArray[np.object_]) -> Answers:
    ratio = baseline.value / asked.value
    times = widen(known.times, asked.high / asked.value, asked.value / asked.low) * ratio

    def evidence(place: int) -> str:
        return (
            f"{ratio[place]:.2g} × its {BASELINE} pass ({known.time_source[place]}, {known.evidence(place)}), "
            f"the ratio of what is {asked.source[place]} and {baseline.source[place]}"
        )

    return transferred(known, times, bound, evidence)


@opened_by(
    lambda rows, machine: np.any(
        [
            are(rows, "kind", *{kind} & timed_kinds(machine.timings)) & are(rows, "pass_name", *words)
            for kind, words in TRANSFERRED.items()
        ],
        axis=0,
    )
)
def estimate(chosen: Rows, machine: Machine, interval: float, *, table: Estimator) -> Answers:
    """Predict gradients of convolutions on a machine whose table has their forward pass only (an `Estimator`).

    time = forward time · usual utilisation of the forward pass / usual utilisation of the asked one. The machine's
    own library is in the forward time, which peak and bandwidth do not know: a slow one is slow in each pass.
    It answers where ``table`` knows the forward pass.
    """
    forward = chosen.assign(pass_name=BASELINE)
    known = as_answers(table(forward, machine, interval))
    groups, numbers_of = same_texts(chosen, "kind", "pass_name")
    found = []
    for number, (kind, word) in enumerate(groups):
        at, of = np.flatnonzero(numbers_of == number), without_pass(machine, kind, word)
        asked, baseline = (usual_here(part.take(at), of, interval) for part in (chosen, forward))
        places = places_of(chosen.index[at], known.index)
        good = (places >= 0) & asked.known & baseline.known
        bound = asked.bounds.names[good]
        found.append(
            _answers(known.chosen(places[good]), asked.usual.chosen(good), baseline.usual.chosen(good), bound)
        )
    return join_answers(found)

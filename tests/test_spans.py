"""Intervals of sums and ratios, compared with sampling."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fomkit.core.interval import SAME_CHIP, Span, add_common, add_independent, divide, longest_of

Z = NormalDist().inv_cdf(0.9)


def lognormal(value: float, deviation: float) -> Span:
    return Span(value, value * math.exp(-Z * deviation), value * math.exp(Z * deviation))


def sampled(parts: list[tuple[float, float]], seed: int = 7) -> np.ndarray:
    random = np.random.default_rng(seed)
    return np.stack([value * np.exp(deviation * random.standard_normal(200_000)) for value, deviation in parts])


@pytest.mark.parametrize(
    "parts",
    [
        [(1.0, 0.1), (1.0, 0.1)],
        [(1.0, 0.3), (2.0, 0.2), (0.5, 0.4)],
        [(10.0, 0.05), (1.0, 0.5)],
        [(1.0, 0.25)] * 10,
        [(3.0, 0.8), (1.0, 0.8), (0.5, 0.8)],
    ],
)
def test_independent_sum_covers_what_sampling_gives(parts: list[tuple[float, float]]) -> None:
    total = add_independent([lognormal(*part) for part in parts])
    samples = sampled(parts).sum(axis=0)
    inside = np.mean((samples >= total.low) & (samples <= total.high))
    assert 0.74 <= inside <= 0.86
    assert total.value == pytest.approx(math.fsum(value for value, _ in parts))


def test_ratio_covers_what_sampling_gives() -> None:
    ratio = divide(lognormal(6.0, 0.2), lognormal(2.0, 0.3))
    new, old = sampled([(6.0, 0.2), (2.0, 0.3)])
    inside = np.mean((new / old >= ratio.low) & (new / old <= ratio.high))
    assert inside == pytest.approx(0.8, abs=0.01)


@pytest.mark.parametrize("deviations", [(0.2, 0.2), (0.2, 0.35)])
def test_errors_common_to_boards_of_a_chip_cancel_in_a_ratio_as_sampling_gives(
    deviations: tuple[float, float],
) -> None:
    common = (("facts", 0.6), ("timings", 0.1)), (("facts", 0.8), ("another chip", 0.1))
    one, other = (replace(lognormal(2.0, by), common=of) for by, of in zip(deviations, common, strict=True))
    linked = SAME_CHIP * math.sqrt(0.6 * 0.8)
    drawn = np.random.default_rng(7).multivariate_normal([0, 0], [[1, linked], [linked, 1]], 200_000)
    samples = np.exp(drawn @ np.array([deviations[0], -deviations[1]]))
    ratio = divide(one, other)
    assert np.mean((samples >= ratio.low) & (samples <= ratio.high)) == pytest.approx(0.8, abs=0.01)
    assert divide(one, lognormal(2.0, deviations[1])).high > ratio.high


def test_boards_far_apart_are_not_of_one_chip_whatever_they_say() -> None:
    board = replace(lognormal(2.0, 0.2), common=(("facts", 1.0),))
    near, far = (math.log(divide(board.scaled(times), board).high / times) for times in (2.0, 2.1))
    assert far == pytest.approx(math.log(divide(board, lognormal(2.0, 0.2)).high))
    assert near < 0.5 * far


def test_terms_with_errors_of_their_own_leave_nothing_in_common() -> None:
    board, exact, own = (
        replace(lognormal(2.0, 0.2), common=(("facts", 1.0),)),
        Span.exact(1.0),
        lognormal(1.0, 0.1),
    )
    for kept in (board.scaled(3.0), board.per(1.0), add_common([board, exact]), longest_of([board, exact])):
        assert kept.common == board.common
    for lost in (add_common([board, own]), longest_of([board, lognormal(1.9, 0.5)])):
        assert lost.common == ()


@given(st.lists(st.tuples(st.floats(1e-6, 1e6), st.floats(0.0, 1.0)), min_size=1, max_size=8))
def test_independent_errors_never_widen_beyond_common_ones(parts: list[tuple[float, float]]) -> None:
    spans = [lognormal(*part) for part in parts]
    common, independent = add_common(spans), add_independent(spans)
    assert independent.high <= common.high * (1 + 1e-9)
    assert independent.low >= common.low * (1 - 1e-9)
    assert independent.low <= independent.value <= independent.high


def test_one_part_passes_its_interval_on() -> None:
    part = Span(2.0, 1.0, 8.0)
    assert add_independent([part]) == part
    assert add_independent([part, Span.exact(0.0)]) == part


def test_a_rate_turns_the_ends_around() -> None:
    rate = Span(10.0, 5.0, 20.0).per(100.0)
    assert (rate.value, rate.low, rate.high) == (10.0, 5.0, 20.0)

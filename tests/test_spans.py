"""Intervals of sums and ratios, compared with sampling."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fomkit.core.interval import Span, add_common, add_independent, divide_independent

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
    ratio = divide_independent(lognormal(6.0, 0.2), lognormal(2.0, 0.3))
    new, old = sampled([(6.0, 0.2), (2.0, 0.3)])
    inside = np.mean((new / old >= ratio.low) & (new / old <= ratio.high))
    assert inside == pytest.approx(0.8, abs=0.01)


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

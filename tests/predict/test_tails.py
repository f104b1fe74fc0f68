"""Intervals at high levels: nested, and bounded by how far left-out errors were seen to go."""

from __future__ import annotations

import math
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

import fomkit
from fomkit.plan.estimate import estimate
from fomkit.plan.options import Options
from fomkit.prediction import interpolate
from fomkit.prediction.gp import EXPONENTIAL, GROWTH, QUANTILE_LEVEL, Hyper, bounded
from fomkit.profiles.evidence import with_fits

LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)
MODELS = ("candle/p1b3", "candle/nt3", "resnet50")
MACHINES = ("titan", "titan-x", "knl-7250", "mi25", "t4", "h200-sxm")
MOST_GROWTH = 2.2
"""How many times as wide 99 % may be as 95, in logarithms: an op's doubles (`GROWTH`), a sum's a little more."""

_model, _machine = cache(fomkit.model), cache(lambda name: with_fits(fomkit.machine(name)))


def span(model: str, machine: str, level: float):
    return estimate(_model(model), _machine(machine), Options(interval=level)).step


@pytest.mark.parametrize("machine", MACHINES)
def test_ends_are_nested_and_grow_boundedly(machine: str) -> None:
    for model in MODELS:
        spans = [span(model, machine, level) for level in LEVELS]
        assert max(one.value for one in spans) == pytest.approx(min(one.value for one in spans))
        for inner, outer in pairwise(spans):
            assert outer.low <= inner.low * (1 + 1e-12)
            assert outer.high >= inner.high * (1 - 1e-12)
        above = [math.log(one.high / one.value) for one in spans[-2:]]
        below = [math.log(one.value / one.low) for one in spans[-2:]]
        assert above[1] < MOST_GROWTH * above[0], model
        assert below[1] < MOST_GROWTH * below[0], model


def test_one_strange_error_does_not_make_the_tail() -> None:
    def end_at(level: float) -> float:
        return 100.0 if level > 0.985 else 1.0

    assert bounded(end_at, 0.8) == 1.0
    assert bounded(end_at, 0.95) == 1.0
    assert bounded(end_at, 0.99) == pytest.approx(GROWTH[0.99])
    assert bounded(lambda level: -end_at(level), 0.99) == pytest.approx(-GROWTH[0.99])


def test_tails_are_a_little_heavier_than_exponential_ones() -> None:
    levels = (QUANTILE_LEVEL, *EXPONENTIAL)
    for before, level in pairwise(levels):
        by_formula = math.log(1 - level) / math.log(1 - before)
        assert EXPONENTIAL[level] == pytest.approx(by_formula, abs=0.006)
        assert 1.05 < GROWTH[level] / by_formula < 1.2


def test_bounded_ends_never_shrink_with_the_level() -> None:
    found = [bounded(lambda level: level**40 * 30, level) for level in np.linspace(0.5, 0.999, 200)]
    assert (np.diff(found) >= -1e-12).all()


def test_far_from_its_table_an_op_grows_as_a_normal_error_past_the_largest_one_seen() -> None:
    errors = np.linspace(-0.5, 0.5, 101)
    quantiles = np.interp(interpolate.LEVELS, (0.0, 0.1, 0.9, 1.0), (-40.0, -1.0, 1.0, 40.0))
    fit = interpolate.Fit(np.ones(1), Hyper(np.ones(1), 1.0, 0.1), errors, quantiles, errors)
    near, far = np.array([0.01]), np.array([3.0])
    assert interpolate.ends_of(fit, near, 0.99)[1][0] <= 0.5
    assert interpolate.ends_of(fit, far, 0.8)[1][0] == pytest.approx(3.0)
    assert interpolate.ends_of(fit, far, 0.99)[1][0] == pytest.approx(3.0 * 2.5758 / 1.2816, rel=1e-3)


def test_where_left_out_ops_were_hardly_off_an_end_grows_as_a_normal_error() -> None:
    """Of errors within a thousandth, 80 % end at 0.01; 99 % of a normal one end at 2.5758 / 1.2816 of that."""
    errors = np.linspace(-1e-3, 1e-3, 101)
    quantiles = np.interp(interpolate.LEVELS, (0.0, 0.1, 0.9, 1.0), (-40.0, -1.0, 1.0, 40.0))
    fit = interpolate.Fit(np.ones(1), Hyper(np.ones(1), 1.0, 0.1), errors, quantiles, errors)
    below, above = interpolate.ends_of(fit, np.array([0.01]), 0.99)
    assert above[0] == pytest.approx(0.01 * 2.5758 / 1.2816, rel=1e-3)
    assert below[0] == pytest.approx(-above[0])

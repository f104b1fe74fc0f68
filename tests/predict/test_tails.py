"""Intervals at high levels: nested, and growing as the errors of left-out ops do."""

from __future__ import annotations

import math
from functools import cache
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from scipy.special import stdtrit

import fomkit
from fomkit.core.interval import half_width, op_half_width
from fomkit.ops.check import fill_defaults
from fomkit.ops.pricing import add_costs
from fomkit.plan.estimate import estimate
from fomkit.plan.op_tables import as_terms, predict_ops
from fomkit.plan.options import Options
from fomkit.prediction import interpolate
from fomkit.prediction.cascade import add_times
from fomkit.prediction.gp import Hyper
from fomkit.prediction.typical import typical_utilisation
from fomkit.profiles.evidence import with_fits
from fomkit.validation.graphs import without_timings

LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)
MODELS = ("candle/p1b3", "candle/nt3", "resnet50")
MACHINES = ("titan", "titan-x", "knl-7250", "mi25", "t4", "h200-sxm")
MOST_GROWTH = 1.7
"""How many times as wide 99 % may be as 95, in logarithms: a normal's is 1.31 times, a sum of skew ends a little
more."""

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


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.99, 0.999])
def test_an_op_reaches_as_far_as_student_says(level: float) -> None:
    expected = half_width(0.8) * stdtrit(3, 0.5 + level / 2) / stdtrit(3, 0.9)
    assert op_half_width(level) == pytest.approx(expected, rel=1e-9)


def fit_of(errors: np.ndarray, *outermost: float) -> interpolate.Fit:
    quantiles = np.interp(interpolate.LEVELS, (0.0, 0.1, 0.5, 0.9, 1.0), (-40.0, -1.0, 0.0, 2.0, 40.0))
    if outermost:
        quantiles[-len(outermost) :] = outermost
    return interpolate.Fit(np.ones(1), Hyper(np.ones(1), 1.0, 0.1), errors, quantiles, errors)


def test_beyond_eighty_percent_an_end_grows_as_those_of_all_ops() -> None:
    """Neither one outlier determines the tail, nor is the largest of twenty errors its bound."""
    spread = np.array([0.01, 3.0])
    for fit in (fit_of(np.linspace(-0.5, 0.5, 101)), fit_of(np.linspace(-1e-3, 1e-3, 20), 2.0, 2.0)):
        below, above = interpolate.ends_of(fit, spread, 0.8)
        assert below == pytest.approx(-spread)
        assert above == pytest.approx(2 * spread)
        for level in (0.95, 0.99):
            farther = op_half_width(level) / half_width(0.8)
            assert interpolate.ends_of(fit, spread, level)[0] == pytest.approx(farther * below)
            assert interpolate.ends_of(fit, spread, level)[1] == pytest.approx(farther * above)
    assert interpolate.ends_of(fit, spread, 0.4)[1] == pytest.approx(spread)  # below, its own errors say it


def test_an_op_by_facts_alone_grows_likewise() -> None:
    """This holds for the part from other machines' utilisation; stated rates keep their intervals."""
    machine = with_fits(without_timings(fomkit.machine("v100-pcie-32gb")))
    ops = pd.DataFrame({"kind": "gemm", "dtype": "fp32", "engine": "vector", "pass_name": "forward", "b": 1.0,
                        "m": [64.0, 512.0, 4096.0], "n": 1024.0, "k": [100.0, 1024.0, 1024.0]})  # fmt: skip
    found = {
        level: typical_utilisation(add_costs(fill_defaults(ops, "")[0]), machine, level) for level in (0.8, 0.99)
    }
    for side in ("low", "high"):
        near, far = (np.log(getattr(one, side) / one.value) for one in found.values())
        assert far == pytest.approx(near * op_half_width(0.99) / half_width(0.8), rel=1e-6)


def test_what_is_added_up_grows_as_a_normal_error() -> None:
    """At 99 % an op inside a step has a narrower interval than the same op alone; at 80 % both are equal."""
    ops = pd.DataFrame({"kind": "gemm", "dtype": "fp32", "engine": "vector", "pass_name": "forward", "b": 1.0,
                        "m": [512.0, 3000.0], "n": 1000.0, "k": 700.0})  # fmt: skip
    costed = add_costs(fill_defaults(ops, "")[0])
    machine = _machine("v100")
    times = {(level, sums): add_times(costed, machine, interval=level, in_sums=sums)
             for level in (0.8, 0.99) for sums in (False, True)}  # fmt: skip
    pd.testing.assert_frame_equal(times[0.8, False], times[0.8, True])
    for sums, reach in ((False, op_half_width), (True, half_width)):
        near, far = (np.log(times[level, sums]["high_s"] / times[level, sums]["time_s"]) for level in (0.8, 0.99))
        assert far.tolist() == pytest.approx((near * reach(0.99) / half_width(0.8)).tolist(), rel=0.02)


def test_a_total_of_rows_grows_as_a_normal_error() -> None:
    ops = pd.DataFrame({"kind": "gemm", "dtype": "fp32", "m": [4096.0], "n": 1000.0, "k": 700.0})
    totals = {
        level: predict_ops(ops, _machine("titan"), interval=level).content["time_s"] for level in (0.8, 0.99)
    }
    near, far = (math.log(one["high"] / one["value"]) for one in totals.values() if one is not None)
    assert far == pytest.approx(near * half_width(0.99) / half_width(0.8), rel=0.01)


@pytest.mark.parametrize("level", [0.5, 0.8, 0.99])
def test_terms_of_a_sum_have_a_normals_tails(level: float) -> None:
    """Zero times stay zero; at 80 % an op's interval is that of a normal, below 80 % it is wider."""
    value, low, high = np.array([0.0, 1e-6, 3.0]), np.array([0.0, 5e-7, 2.0]), np.array([0.0, 4e-6, 3.6])
    timed = pd.DataFrame(
        {"kind": "gemm", "time_source": "roofline", "time_s": value, "low_s": low, "high_s": high}
    )
    found, power = as_terms(timed, level), half_width(level) / op_half_width(level)
    assert found["time_s"].tolist() == value.tolist()
    for name, end in (("low_s", low), ("high_s", high)):
        expected = [0.0, *(value[1:] * (end[1:] / value[1:]) ** power)]
        assert found[name].tolist() == pytest.approx(expected, rel=1e-12)

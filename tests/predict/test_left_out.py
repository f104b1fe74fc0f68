"""Stored cross-validation results of a fit: the error of every row, and the hit rate."""

from __future__ import annotations

import numpy as np
import pytest

from fomkit.prediction.calibration import CrossValidation, _quantiles, hit_rate
from fomkit.prediction.interpolate import LEVELS


@pytest.mark.parametrize("name", ["v100", "p100"])
def test_kept_errors_say_what_the_summary_says(name, request):
    fits = request.getfixturevalue(name).fits
    families = {key: fit for key, fit in fits.items() if key != "rates"}
    assert len(families) >= 10
    for key, fit in families.items():
        wrong = np.abs(np.exp(fit["left_out_log_error"]) - 1)
        assert len(wrong) == len(fit["residual"]), key
        assert np.median(wrong) == pytest.approx(fit["left_out_median_error"], rel=1e-4)
        assert wrong.mean() == pytest.approx(fit["left_out_mean_error"], rel=1e-4)
        assert 0.6 < fit["left_out_hit_rate"] < 0.95, key


def test_hits_are_judged_by_the_other_rounds():
    """One fold has ten times the errors of the others: the others' interval contains none of its rows."""
    typical = np.linspace(-1, 1, 30)
    error = np.concatenate([typical, typical, 10 * np.linspace(0.9, 1.0, 30)])
    fold = np.repeat([0, 1, 2], 30)
    found = CrossValidation(-error, np.ones(90), fold, {}, np.ones(90))
    # Rounds 0 and 1 lie inside an interval that round 2 has widened; round 2 lies outside theirs.
    above = np.quantile(np.concatenate([typical, error[60:]]), 0.9)
    assert above > 1
    low = np.quantile(np.concatenate([typical, error[60:]]), 0.1)
    inside = 2 * (typical > low).sum() / 90
    assert hit_rate(found) == pytest.approx(inside, abs=0.04)
    assert hit_rate(found) < 2 / 3


def test_spread_scales_the_error():
    rng = np.random.default_rng(7)
    spread = rng.uniform(0.1, 2.0, 4000)
    found = CrossValidation(rng.normal(size=4000) * spread, spread, np.arange(4000) % 10, {}, spread)
    assert hit_rate(found) == pytest.approx(0.8, abs=0.03)
    assert hit_rate(found, 0.5) == pytest.approx(0.5, abs=0.03)


def test_quantiles_are_kept_at_probabilities_as_far_below_the_middle_as_above():
    assert (np.diff(LEVELS) > 0).all()
    assert LEVELS + LEVELS[::-1] == pytest.approx(np.ones(len(LEVELS)))
    assert {0.1, 0.25, 0.5, 0.75, 0.9} <= {*LEVELS.tolist()}
    # Three errors are read as of a sample of four: the outermost are its fifth and four fifths and beyond.
    found = dict(zip(LEVELS.tolist(), _quantiles(np.array([-2.0, 0.0, 1.0])).tolist(), strict=True))
    assert (found[0.1], found[0.5], found[0.9]) == (-2.0, 0.0, 1.0)
    assert (found[0.25], found[0.75]) == pytest.approx((-2 * 2 / 3, 2 / 3))

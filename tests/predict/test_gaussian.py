"""The process on tables that are too large to be used at once."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from predict.machines import posterior

from fomkit.prediction import calibration, gp
from fomkit.prediction.estimators import as_rows
from fomkit.prediction.gp import LIMIT, Hyper

HYPER = Hyper(np.array([2.0, 3.0]), 0.5, 1e-3)


@pytest.fixture
def large():
    rng = np.random.default_rng(3)
    known = rng.random((LIMIT + 100, 2)) * 30
    return known, np.sin(known).sum(1), np.full(len(known), 1e-4), rng.random((70, 2)) * 30


def test_blocks_of_queries_change_nothing(large, monkeypatch):
    whole = posterior(*large, HYPER)
    monkeypatch.setattr(gp, "BLOCK", 16)
    for one, other in zip(whole, posterior(*large, HYPER), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)


def test_nearest_rows_are_the_nearest(large):
    known, _, _, query = large
    found = posterior(*large, HYPER)
    apart = np.linalg.norm((query[:, None] - known[None]) / HYPER.length, axis=2)
    np.testing.assert_array_equal(found.nearest, apart.argmin(1))
    np.testing.assert_allclose(found.distance, apart.min(1), atol=1e-7)


def test_local_variance_is_between_the_noise_and_the_whole(large):
    variance = posterior(*large, HYPER).variance
    assert (variance >= HYPER.noise).all()
    assert (variance <= HYPER.variance + HYPER.noise + 1e-12).all()


def test_a_known_row_is_believed(large):
    known, target, noise, _ = large
    found = posterior(known, target, noise, known[:40], HYPER)
    np.testing.assert_allclose(found.mean, target[:40], atol=0.1)
    np.testing.assert_allclose(found.distance, 0.0, atol=1e-5)


def test_where_a_fit_keeps_weights_all_rows_tell_the_mean_and_near_ones_how_sure_it_is(large):
    known, target, noise, query = large
    # Noisy rows with long lengths: thirty of six hundred know the trend less well than all do.
    hyper, loud = Hyper(np.array([20.0, 20.0]), 2.0, 0.3), noise + 0.2
    weights = calibration._weights_in_mean(known, target, loud, hyper, 1)
    by_all = gp.posterior(gp.precompute(known, target, loud, hyper, weights), query)
    near = posterior(known, target, loud, query, hyper)
    shared = hyper.variance * gp.correlation(gp.distances(known, known, hyper.length))
    toward = hyper.variance * gp.correlation(gp.distances(query, known, hyper.length))
    truth = toward @ np.linalg.solve(shared + np.diag(loud + hyper.noise), target)
    assert by_all.mean == pytest.approx(truth, abs=1e-5)
    assert np.abs(near.mean - truth).max() > 0.01
    assert by_all.variance == pytest.approx(near.variance)


@pytest.mark.parametrize("count", [LIMIT, gp.WHOLE + 1])
def test_a_table_that_is_small_or_huge_keeps_no_weights(count):
    assert not len(calibration._weights_in_mean(np.zeros((count, 1)), np.zeros(count), np.zeros(count), HYPER, 1))


def test_slow_rows_of_a_large_table_hardly_count_for_others():
    """A tenth of the rows takes twice as long, as where a library chooses a slow kernel."""
    places = np.sort(np.random.default_rng(1).uniform(0, 30, LIMIT + 100))[:, None]
    smooth, slow = np.sin(places[:, 0]), np.log(2.0) * (np.arange(len(places)) % 10 == 0)
    hyper, noise = Hyper(np.array([4.0]), 1.0, 0.05), np.zeros(len(places))

    def bias(rounds):
        weights = calibration._weights_in_mean(places, smooth + slow, noise, hyper, rounds)
        return np.median(gp.posterior(gp.precompute(places, smooth, noise, hyper, weights), places).mean - smooth)

    assert bias(1) > 0.05
    assert abs(bias(calibration.REWEIGHED)) < 0.02
    assert abs(bias(calibration.REWEIGHED + 1) - bias(calibration.REWEIGHED)) < 0.002


@pytest.mark.parametrize("count", [LIMIT, LIMIT + 100])
def test_a_large_table_has_the_median_lengths_of_its_rounds(count):
    """Each round searches other rows of it; one whose few slow rows hide a jump does not decide."""
    size = np.exp2(np.random.default_rng(2).uniform(10, 30, count))
    rows = pd.DataFrame({"kind": "pointwise", "op": "", "inputs": 1.0, "row": 64.0, "numel": size, "flop": size,
                         "read_byte": 4 * size, "write_byte": 4 * size, "byte": 8 * size, "launches": 1.0,
                         "_time_s": 1e-6 + 1e-12 * size, "_step_s": 0.0})  # fmt: skip
    rounds = [Hyper(np.full(3, length), 0.1 * length, 1e-3 * length) for length in (1.0, 2.0, 90.0)]
    found = calibration._fit_alone(as_rows(rows), "pointwise", None, [*rounds, Hyper(np.ones(4), 9.0, 9.0)]).hyper
    usual = [*found.length, found.variance, found.noise] == pytest.approx([2.0, 2.0, 2.0, 0.2, 2e-3])
    assert usual == (count > LIMIT)


def test_a_search_that_takes_a_wave_for_noise_is_made_again_from_a_process_that_saw_it():
    places = np.linspace(0, 6, 200)[:, None]
    wave, noise = np.sin(2 * np.pi * places[:, 0] / 0.15), np.zeros(200)
    alone = calibration.fit_hyper(places, wave, noise)
    seen = Hyper(np.array([0.05]), 1.0, 1e-4)
    assert alone.noise > 0.3
    assert calibration.fit_hyper(places, wave, noise, beside=[seen]).noise < 0.01
    # One that is no likelier, or of other features, changes nothing.
    for other in (Hyper(np.array([50.0]), 1e-3, 1.0), Hyper(np.array([0.05, 1.0]), 1.0, 1e-4)):
        assert calibration.fit_hyper(places, wave, noise, beside=[other]) == alone


@pytest.mark.parametrize("better", ["all", "near"])
def test_a_family_is_told_by_all_its_rows_or_the_near_ones_whichever_misses_less(better, monkeypatch):
    """The choice is by the left-out errors of the other folds; the fits themselves are made once."""
    rounds = np.repeat([0, 1, 2], [4, 2, 3])
    count, fit = LIMIT + 100, calibration.Fit(*(np.ones(1) for _ in range(5)), weights=np.ones(3))
    rows = pd.DataFrame({"k": np.arange(float(count))})

    def predict(*given):
        known_fits = given[6] if len(given) > 6 else None
        error = 0.1 if (known_fits is None) == (better == "all") else 0.2
        fits = {0: fit} if known_fits is None else known_fits
        errors = np.where(rounds == 1, 0.3 - error, error)  # in round 1 the other way misses less
        return calibration.CrossValidation(errors, np.full(9, error), rounds, fits, np.ones(9))

    monkeypatch.setattr(calibration, "predict_folds", predict)
    monkeypatch.setattr(calibration, "shape_folds", lambda *_: np.zeros(count, int))
    found = calibration.cross_validate(rows, "gemm")
    # No round chooses for itself: the second has the larger of its errors.
    assert found.log_error.tolist() == pytest.approx([0.1] * 4 + [0.2] * 2 + [0.1] * 3)
    assert found.spread.tolist() == [0.1] * 9
    assert bool(len(found.fits[0].weights)) == (better == "all")


def test_a_timing_that_is_odd_beside_its_neighbours_says_little_of_them():
    places, noise = np.linspace(0, 30, 60)[:, None], np.zeros(60)
    smooth = 0.3 * np.sin(places[:, 0] / 3)
    target, hyper, beside = (
        smooth + 1.6 * (np.arange(60) == 30),
        Hyper(np.array([3.0]), 0.1, 1e-3),
        [28, 29, 31, 32],
    )
    odd = calibration._oddity(places, target, noise, hyper)
    assert odd[30] > 0.3
    assert odd[[*range(25), *range(36, 60)]] == pytest.approx(0.0)
    between = places[beside] + 0.25
    truth = 0.3 * np.sin(between[:, 0] / 3)
    believing, doubting = (
        posterior(places, target, one, between, hyper).mean - truth for one in (noise, noise + odd)
    )
    assert np.abs(doubting).max() < 0.2 * np.abs(believing).max()
    assert not calibration._oddity(places, smooth, noise, hyper).any()


def test_one_row_pulls_a_coefficient_from_its_prior_as_far_as_its_error_weighs():
    """Of 1 s for one start the prior says 0.1 s: error e and weight 1/1000 leave e + 2/1000·(e + ln 10) = 0."""
    error = -0.002 * np.log(10) / 1.002
    assert calibration.fit_mean(np.ones((1, 1)), np.ones(1)) == pytest.approx(np.exp([error]), rel=1e-6)
    # What others say weighs 10 instead; an error beyond 0.3 pulls with no more than 0.3.
    assert calibration.fit_mean(np.ones((1, 1)), np.ones(1), np.array([0.9])) == pytest.approx(
        0.9 ** (20 / 21), rel=1e-6
    )
    assert np.log(calibration.fit_mean(np.ones((1, 1)), np.ones(1), np.array([0.01]))) == pytest.approx(
        np.log(0.01) + 0.3 / 20, rel=1e-6
    )


@pytest.mark.parametrize("usual", [None, np.array([0.7, 2.0])])
def test_a_process_is_the_likeliest_beside_what_is_said_of_its_priors(usual):
    """The priors written out: log-normal for each length, the variance and the noise."""
    rng = np.random.default_rng(5)
    features, noise = rng.random((12, 2)) * 4, np.full(12, 1e-3)
    target = np.sin(features).sum(1) + 0.1 * rng.standard_normal(12)
    found = calibration.fit_hyper(features, target, noise, usual)
    spread = target.std() + 1e-3
    means = np.log([*(usual if usual is not None else [2 * np.sqrt(2)] * 2), spread**2, 0.01 * spread**2])
    widths = np.array([1.0 if usual is None else 0.5] * 2 + [np.sqrt(2), 2.0])

    def unlikely(logged):
        length, variance, own = np.exp(logged[:2]), np.exp(logged[2]), np.exp(logged[3])
        apart = np.sqrt(3 * (((features[:, None] - features[None]) / length) ** 2).sum(2))
        covariance = variance * (1 + apart) * np.exp(-apart) + np.diag(noise + own)
        of_rows = 0.5 * target @ np.linalg.solve(covariance, target) + 0.5 * np.linalg.slogdet(covariance)[1]
        return of_rows + 0.5 * (((logged - means) / widths) ** 2).sum()

    at, step = np.log([*found.length, found.variance, found.noise]), 1e-4 * np.eye(4)
    slope = [(unlikely(at + one) - unlikely(at - one)) / 2e-4 for one in step]
    assert slope == pytest.approx([0.0] * 4, abs=2e-3)


def test_a_feature_that_no_row_varies_lengthens_nothing():
    """Two features, of which one varies, start where one alone does."""
    places = np.linspace(0, 6, 40)[:, None]
    wave, noise = np.sin(places[:, 0]), np.full(40, 1e-3)
    alone = calibration.fit_hyper(places, wave, noise)
    both = calibration.fit_hyper(np.column_stack([places, np.ones(40)]), wave, noise)
    assert both.length[0] == pytest.approx(alone.length[0], rel=1e-3)
    assert both.length[1] == pytest.approx(2.0, rel=1e-3)


def growing(*starts: float, bent: int | None = None) -> np.ndarray:
    """Return three features of ops at batches 64 to 400; the second grows with the batch too, one op's is bent."""
    batch = np.log2(np.arange(64.0, 401.0))
    ops = [np.column_stack([batch, batch + start, np.full(len(batch), start)]) for start in starts]
    if bent is not None:
        ops[1][bent, 2] += 2.0
    return np.concatenate(ops)


@pytest.fixture
def timed():
    rng = np.random.default_rng(5)
    known = rng.random((60, 3)) * [4.0, 5.0, 4.0]
    hyper = Hyper(np.array([2.0, 3.0, 2.5]), 0.5, 1e-3)
    return gp.precompute(known, np.sin(known).sum(1), np.full(60, 1e-4), hyper)


def parts_of(precomputed, query, ops):
    """Return the predictions by polynomials and by all rows, each as one part."""
    grid = np.arange(len(query)).reshape(ops, -1)
    parts = list(gp.posterior_parts(precomputed, gp.Queries.of(query), grid, 8))
    return [part for part in parts if part.rows is not None], [part for part in parts if part.rows is None]


def check_the_same(precomputed, query, parts):
    whole = gp.posterior(precomputed, query)
    apart = gp.distances(query, precomputed.scaled * precomputed.hyper.length, precomputed.hyper.length)
    for part in parts:
        np.testing.assert_allclose(part.mean, whole.mean[part.at], atol=1e-12)
        np.testing.assert_allclose(part.variance, whole.variance[part.at], rtol=1e-12)
        distance, rows = part.nearest(8)
        np.testing.assert_array_equal(rows, np.sort(np.argsort(apart[part.at], 1)[:, :8], 1))
        np.testing.assert_allclose(distance, np.take_along_axis(apart[part.at], rows, 1), rtol=1e-12)


def test_ops_at_many_batches_are_told_by_polynomials_and_no_otherwise_than_by_all_rows(timed):
    query = growing(0.5, 2.0, 3.0)
    smooth, rest = parts_of(timed, query, 3)
    assert sum(len(part.at) for part in smooth) == len(query)
    assert not rest
    check_the_same(timed, query, smooth + rest)


def test_a_query_off_its_line_is_told_by_all_rows(timed):
    query = growing(0.5, 2.0, 3.0, bent=20)
    smooth, rest = parts_of(timed, query, 3)
    assert 337 + 20 in np.concatenate([part.at for part in rest])
    assert 337 + 21 in np.concatenate([part.at for part in smooth])
    check_the_same(timed, query, smooth + rest)


def test_where_a_timed_op_lies_beside_the_line_no_polynomial_tells(timed):
    query = growing(0.5)
    near = query[[40]] + [0.0, 0.001, 0.0]
    known = np.concatenate([timed.scaled * timed.hyper.length, near])
    target = np.append(timed.target, 3.0)
    smooth, rest = parts_of(gp.precompute(known, target, np.full(61, 1e-4), timed.hyper), query, 1)
    assert 40 in np.concatenate([part.at for part in rest])
    assert 200 in np.concatenate([part.at for part in smooth])


def test_rows_of_one_op_that_are_no_line_are_told_by_all_rows(timed):
    query = growing(0.5)[np.random.default_rng(0).permutation(337)]
    smooth, rest = parts_of(timed, query, 1)
    assert not smooth
    check_the_same(timed, query, rest)

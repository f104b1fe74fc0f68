"""The process on tables that are too large to be used at once."""

from __future__ import annotations

import numpy as np
import pytest
from predict.machines import posterior

from fomkit.prediction import gp
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

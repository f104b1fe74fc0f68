"""The process against scikit-learn's: its Matérn kernel of smoothness 3/2 times a variance, and a common noise."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from predict.machines import posterior

from fomkit.prediction.calibration import _likelihood
from fomkit.prediction.gp import LIMIT, NEIGHBOURS, Hyper

pytestmark = pytest.mark.parametrize("seed", range(6))
EQUAL = {"rtol": 1e-10, "atol": 1e-12}


class Data(NamedTuple):
    """Rows with a noise of their own, queries, and a process; features differ in scale, lengths fit them."""

    known: Any
    target: Any
    noise: Any
    query: Any
    hyper: Hyper

    def oracle(self, rows: Any = slice(None)) -> Any:
        process = pytest.importorskip("sklearn.gaussian_process", reason="scikit-learn is the oracle")
        kernels = process.kernels
        smooth = kernels.ConstantKernel(self.hyper.variance) * kernels.Matern(self.hyper.length, nu=1.5)
        kernel, alpha = smooth + kernels.WhiteKernel(self.hyper.noise), self.noise[rows]
        made = process.GaussianProcessRegressor(kernel, alpha=alpha, optimizer=None, normalize_y=False)
        return made.fit(self.known[rows], self.target[rows])


def drawn(seed: int, rows: int, queries: int) -> Data:
    rng = np.random.default_rng(seed)
    features = 1 + seed % 4
    scale = np.exp(rng.normal(size=features))
    known, query = rng.normal(size=(rows, features)) * scale, rng.normal(size=(queries, features)) * 1.5 * scale
    target = np.sin(known / scale).sum(1) + 0.1 * rng.normal(size=rows)
    hyper = Hyper(scale * rng.uniform(0.5, 4.0, features), rng.uniform(0.2, 3.0), rng.uniform(1e-3, 0.1))
    return Data(known, target, rng.uniform(0.0, 0.05, rows), query, hyper)


def test_mean_and_variance_are_the_oracles(seed: int) -> None:
    data = drawn(seed, 80, 50)
    found = posterior(data.known, data.target, data.noise, data.query, data.hyper)
    mean, deviation = data.oracle().predict(data.query, return_std=True)
    np.testing.assert_allclose(found.mean, mean, **EQUAL)
    np.testing.assert_allclose(found.variance, deviation**2, **EQUAL)


def test_of_a_large_table_the_nearest_rows_give_the_oracles_mean_and_variance(seed: int) -> None:
    data = drawn(seed, LIMIT + 100, 8)
    found = posterior(data.known, data.target, data.noise, data.query, data.hyper)
    for place, query in enumerate(data.query):
        apart = np.linalg.norm((data.known - query) / data.hyper.length, axis=1)
        near = np.argsort(apart, kind="stable")[:NEIGHBOURS]
        mean, deviation = data.oracle(near).predict(query[None], return_std=True)
        np.testing.assert_allclose(found.mean[place], mean[0], **EQUAL)
        np.testing.assert_allclose(found.variance[place], deviation[0] ** 2, **EQUAL)


def test_likelihood_and_its_gradient_are_the_oracles(seed: int) -> None:
    """The oracle's parameters are the logarithms of variance, lengths and noise, in this order."""
    data = drawn(seed, 60, 1)
    oracle = data.oracle()
    value, slope = oracle.log_marginal_likelihood(oracle.kernel_.theta, eval_gradient=True)
    found, own = _likelihood(data.known, data.target, data.noise, data.hyper)
    half = 0.5 * len(data.target) * np.log(2 * np.pi)
    assert found + half == pytest.approx(-value, rel=1e-10)
    np.testing.assert_allclose(own, -np.array([*slope[1:-1], slope[0], slope[-1]]), rtol=1e-9, atol=1e-10)

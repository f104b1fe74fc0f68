"""Predictions in columns: the fast formulas equal the textbook formulas."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from predict.machines import as_answers, loaded, posterior

import fomkit
from fomkit.ops.columns import Columns, alike
from fomkit.plan.estimate import estimate
from fomkit.plan.options import Options
from fomkit.prediction import beside_facts, gp
from fomkit.prediction.beside_facts import (
    ENOUGH,
    ERRORS,
    FAR,
    FEW,
    _LeftOut,
    _octaves,
    _offsets,
    deviation,
    errors_nearby,
)
from fomkit.prediction.cascade import add_times
from fomkit.prediction.estimators import Rows, Timed, as_rows, join_answers, repeated, same_texts
from fomkit.prediction.families import _OF_SHAPE, _shape_factors, _shape_features, conv_features, conv_terms
from fomkit.prediction.gp import BLOCK, Hyper, correlation, distances


def test_prepared_covariances_give_the_textbook_posterior() -> None:
    random = np.random.default_rng(3)
    known, target = random.normal(size=(90, 5)), random.normal(size=90)
    noise, query = random.uniform(0, 0.01, 90), random.normal(size=(2 * BLOCK + 7, 5))
    hyper = Hyper(np.full(5, 1.5), 0.4, 0.01)
    found = posterior(known, target, noise, query, hyper)
    covariance = hyper.variance * correlation(distances(known, known, hyper.length)) + np.diag(hyper.noise + noise)
    shared = hyper.variance * correlation(distances(query, known, hyper.length))
    np.testing.assert_allclose(found.mean, shared @ np.linalg.solve(covariance, target), rtol=1e-9, atol=1e-12)
    explained = np.einsum("ij,ji->i", shared, np.linalg.solve(covariance, shared.T))
    variance = np.maximum(hyper.variance + hyper.noise - explained, hyper.noise)
    np.testing.assert_allclose(found.variance, variance, rtol=1e-9)


@pytest.mark.parametrize("noise", [0.0, 1e-13])
def test_of_errors_equally_near_the_first_count(noise: float) -> None:
    random = np.random.default_rng(4)
    distance = np.round(random.uniform(0, 2, (50, 60)), 1)  # many are alike
    errors = random.normal(size=60)
    near = np.argsort(distance, 1, kind="stable")[:, :ERRORS]
    weight = (np.take_along_axis(distance, near, 1) + 0.1) ** -3.0
    wanted = (weight * np.abs(errors[near])).sum(1) / weight.sum(1) + 0.1 * np.abs(errors).mean() + 1e-6
    distance *= 1 + noise * random.normal(size=distance.shape)  # as sums in another order leave it
    np.testing.assert_allclose(errors_nearby(distance, errors), wanted, rtol=1e-11)


@pytest.mark.parametrize(
    ("count", "deviation_of_ln"), [(ENOUGH - 1, 0.3), (ENOUGH, 0.22 ** (2 / 3) * 0.3 ** (1 / 3))]
)
def test_of_few_errors_nothing_is_told_by_place(count: int, deviation_of_ln: float) -> None:
    own = gp.Posterior(np.zeros(1), np.array([0.09]), np.zeros(1, np.intp), np.zeros(1))
    # All errors are 0.2, so nearby they are that and a tenth.
    found = deviation(own, np.zeros((1, count)), np.full(count, 0.2))
    assert found == pytest.approx([deviation_of_ln], rel=1e-4)


@pytest.mark.parametrize("dtype", ["str", "object", "category"])
def test_rows_are_numbered_by_their_words(dtype: str) -> None:
    rows = pd.DataFrame({"kind": ["b", "a", "b", "b"], "op": ["x", "x", "x", ""]}).astype(dtype)
    found, numbers = same_texts(rows, "kind", "op", "absent")
    assert found == [("b", "x", ""), ("a", "x", ""), ("b", "", "")]
    assert numbers.tolist() == [0, 1, 0, 2]


def test_answers_read_as_the_mapping_they_were_made_of() -> None:
    first = {
        7: Timed(2.0, 1.0, 3.0, "measured", "memory", "a"),
        3: Timed(5.0, 4.0, 6.0, "roofline", "launch", "b"),
    }
    second = {1: Timed(1.0, 1.0, 1.0, "transferred", "compute", "c")}
    joined = join_answers([as_answers(first), as_answers({}), as_answers(second)])
    assert dict(joined) == {**first, **second}
    assert 2 not in joined
    assert len(join_answers([])) == 0


@pytest.mark.parametrize("name", ["v100", "v100-pcie-32gb", "titan"])
def test_rows_priced_alone_are_as_priced_together(name: str) -> None:
    machine = loaded(name)
    ops = estimate(fomkit.model("alexnet"), machine, Options()).ops.iloc[::9]
    times = ["time_s", "low_s", "high_s", "time_source", "bound", "evidence"]
    costed = ops.drop(columns=times)
    for index in ops.index:
        alone = add_times(costed.loc[[index]], machine, in_sums=True)
        pd.testing.assert_frame_equal(alone[times], ops.loc[[index], times], rtol=1e-9)


@pytest.mark.parametrize(("count", "far"), [(FEW, 1 + 1 / 32), (FEW + 1, 5 + 1 / 32)])
def test_of_few_timed_products_those_far_off_correct_facts_as_near_ones_do(count: int, far: float) -> None:
    """All agree. The nearest eight, 0.1 apart, with 0.2 between machines; at 4 lengths from a large table 0.4."""
    apart = np.repeat([[0.0], [4.0]], 8, axis=1)
    found = _offsets(apart, np.arange(8) + np.zeros((2, 1), int), np.full(count, 0.05), np.ones(count))
    assert found == pytest.approx([0.05 / (1 + 1 / 32), 0.05 / far])


def products(**sides: list[float]) -> Rows:
    count = len(next(iter(sides.values())))
    return as_rows(pd.DataFrame({"dtype": ["fp32"] * count, "b": 1.0, "m": 64.0, "n": 64.0, "k": 64.0, **sides}))


def test_products_lie_as_far_apart_as_the_side_that_differs_most_and_their_alignment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rows of fp32 are read four numbers at a time; a batch is as far as can be from a single product."""
    asked = products(m=[64.0, 256.0, 64.0, 64.0], n=[64.0, 32.0, 63.0, 64.0], b=[1.0, 1.0, 1.0, 2.0])
    alone, both = products(m=[64.0]), products(m=[64.0, 128.0], b=[1.0, 2.0])
    monkeypatch.setattr(gp, "BLOCK", 3)
    first, rest = (block[:, 0].tolist() for block in _octaves(asked, alone))
    assert [*first, *rest] == pytest.approx([0.0, 2.0, 1 + np.log2(64 / 63), 0.0])
    apart = np.concatenate([*_octaves(asked, both)])
    assert apart[:, 0] == pytest.approx([0.0, 2.0, 1 + np.log2(64 / 63), FAR])
    assert apart[:, 1] == pytest.approx([1 + FAR, 1 + FAR, 2 + FAR, 1.0])


def test_what_facts_say_of_timed_products_is_computed_once_for_all_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, costs = list[int](), beside_facts.add_costs
    monkeypatch.setattr(
        beside_facts, "add_costs", lambda rows, **how: asked.append(len(rows)) or costs(rows, **how)
    )
    machine = loaded("v100")
    machine = replace(machine, timings=machine.timings.copy())
    for batch in (20_000, 3, 5_000):
        estimate(fomkit.model("vgg16"), machine, Options(batch=batch))
    assert len(asked) == 1


def test_a_fit_and_facts_weigh_by_what_each_missed_and_their_errors_cancel_in_part() -> None:
    """Errors are 0.2 and 0.1, so facts weigh 0.04 of 0.05, and an average of both keeps half of the squares."""
    missed = _LeftOut(by_fit=0.04, by_facts=0.01, apart=0.05)
    assert missed.share == pytest.approx(0.8)
    fit, facts = np.array([[0.0], [-0.3], [0.3]]), np.array([[0.0], [-0.1], [0.2]])
    found = missed.average(fit, facts, np.array([0.8]), 0.8)
    usual, cancelled = 0.2 * 0.04 + 0.8 * 0.01, 0.8 * 0.2 * 0.05
    part = np.sqrt((usual - cancelled) / (usual + cancelled))
    sides = [-np.sqrt(0.2 * 0.3**2 + 0.8 * 0.1**2), np.sqrt(0.2 * 0.3**2 + 0.8 * 0.2**2)]
    assert found[:, 0] == pytest.approx([0.0, *(part * side for side in sides)])
    # Where both lay apart by more than either was off, nothing is left.
    assert missed._replace(apart=1.0).average(fit, facts, np.array([0.8]), 0.8)[:, 0] == pytest.approx([0.0] * 3)


def test_errors_nearby_weigh_by_the_cube_of_their_distance_beside_a_tenth_of_all() -> None:
    errors, distance = np.array([0.1, -0.4]), np.array([[0.9, 1.9], [0.0, np.inf]])
    assert errors_nearby(distance, errors) == pytest.approx(
        [(0.1 + 0.4 / 8) / (1 + 1 / 8) + 0.025, 0.1 + 0.025], abs=2e-6
    )


@pytest.mark.parametrize("size", ["batch", "height", "in_channels"])
def test_features_of_a_shape_are_those_of_each_size_that_changes_it(size: str) -> None:
    """They are computed once for each op of a table, unless a column changes that they depend on."""
    model = fomkit.model("alexnet")
    ops = estimate(model, loaded("v100"), Options()).ops.query("kind == 'conv'").reset_index(drop=True)
    wanted = np.outer(ops[size], [1.0, 2.0, 3.0])
    columns = Columns(ops)
    of_each = repeated(columns, 3, **{size: wanted})
    plain = ops.loc[ops.index.repeat(3)].assign(**{size: wanted.ravel()}).reset_index(drop=True)
    for computed in (conv_features, conv_terms):
        computed(repeated(columns, 2, batch=wanted[:, :2]))  # stores what does not depend on the batch
        np.testing.assert_array_equal(computed(of_each), computed(plain))


def test_what_is_computed_once_reads_no_other_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A column that is missing in the set would keep old values where it changes."""
    asked = set[str]()

    def watch(name: str) -> None:
        known = getattr(Rows, name)
        monkeypatch.setattr(Rows, name, lambda rows, one, *more: (asked.add(one), known(rows, one, *more))[1])

    rows = as_rows(fomkit.model("alexnet").ops.query("kind == 'conv'").assign(batch=1.0))
    for name in ("number", "filled", "log2", "text", "is_in"):
        watch(name)
    _shape_features(rows)
    _shape_factors(rows)
    assert {"in_channels", "pass_name", "dtype", "engine"} < asked <= _OF_SHAPE


@pytest.mark.parametrize("rows", [3, 3000])
def test_rows_are_alike_where_all_columns_are(rows: int) -> None:
    random = np.random.default_rng(0)
    whole, far = random.integers(-3, 3, rows), random.integers(0, 2, rows) * 3e12
    empty, some = np.full(rows, np.nan), np.where(random.random(rows) < 0.5, np.nan, 0.5)
    first, number = alike([whole, far, empty, some, np.full(rows, 7.0)])
    met: dict[tuple[str, ...], int] = {}
    cells = [tuple(map(str, row)) for row in zip(whole, far, some, strict=True)]
    expected = [met.setdefault(row, len(met)) for row in cells]
    assert number.tolist() == expected
    assert [cells[place] for place in first] == list(met)

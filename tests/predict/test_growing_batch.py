"""A step takes no longer with a smaller batch, unless timings show it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
from costs.op_tables import gemm, table
from predict.machines import loaded

import fomkit
from fomkit.ops.columns import one_word
from fomkit.ops.kinds import KINDS
from fomkit.ops.precision import choose_formats
from fomkit.ops.pricing import add_costs
from fomkit.ops.resize import resize_ops
from fomkit.plan.estimate import _batched_products, estimate, slower_products
from fomkit.plan.options import Options
from fomkit.plan.scenarios import prepare_study, scenarios
from fomkit.plan.shapes import step_ops, times_at
from fomkit.prediction import gp, interpolate, monotone, prior
from fomkit.prediction.cascade import add_times
from fomkit.prediction.estimators import Columns, Rows, as_rows, repeated
from fomkit.prediction.families import VIEWS
from fomkit.profiles.evidence import with_fits

MODELS = ("candle/p1b3", "candle/p1b1", "candle/nt3", "alexnet", "gpt2")
FACTS_ONLY = ("titan", "p100", "a100-sxm", "knl-7250")
BATCHES = np.unique([*(2 ** np.arange(0, 11)), 3, 6, 20, 30, 33, 65, 127, 999, 1000, 1001])


_model = cache(fomkit.model)


@cache
def bare(name: str):
    """Return a machine without its timings."""
    machine = loaded(name)
    return replace(machine, timings=machine.timings.iloc[:0], fits={})


def assert_rising(times: np.ndarray, sizes: np.ndarray) -> None:
    fallen = np.flatnonzero(np.diff(times) < -1e-9 * times[:-1])
    assert not len(fallen), [(int(sizes[at]), int(sizes[at + 1]), times[at + 1] / times[at]) for at in fallen]


@pytest.mark.parametrize("machine", ["h100-sxm", "v100", "rtx-3090", "mi300x"])
@pytest.mark.parametrize(("model", "kind"), [("vgg16", "conv"), ("bert-large", "attention")])
def test_a_larger_batch_uses_a_device_known_by_facts_no_less(model: str, kind: str, machine: str) -> None:
    known, target, per_sample = fomkit.model(model), with_fits(bare(machine)), []
    for batch in (8, 32, 128, 512, 2048):
        ops = estimate(known, target, Options(batch=batch, precision="fp32")).ops
        own = ops[ops["kind"] == kind]
        per_sample.append(float((own["time_s"] * own["count"]).sum()) / batch)
    # Without its parts a batch of 2,048 took up to 2.4 times as long a sample as one of 8 or 32.
    assert (np.array(per_sample[1:]) <= np.array(per_sample[:-1]) * 1.001).all(), per_sample


@pytest.mark.parametrize(("model", "machine"), [("vgg16", "v100"), ("resnet50", "t4"), ("alexnet", "titan-x")])
def test_far_beyond_its_table_a_device_is_used_as_at_the_largest_timed_batches(model: str, machine: str) -> None:
    batches = np.array([128.0, 512.0, 2048.0])
    study = prepare_study(fomkit.model(model), with_fits(fomkit.machine(machine)), Options(precision="fp32"))
    found = times_at(study.step, study.machine, {**study.model.sizes, "batch": batches}, 0.8)
    own = study.step.rows["kind"] == "conv"
    per_sample = (found.times[0] * found.executions)[own].sum(0) / batches
    # By the fit alone, whose mean is another than that of its largest batches, 1.1 to 1.4 times as long.
    assert per_sample[1:].max() < 1.06 * per_sample[0]


def test_where_something_similar_is_timed_a_smaller_batch_tells_nothing() -> None:
    rows = as_rows(pd.DataFrame({"batch": [64.0, 64.0, 64.0, 3.0], "flop": 1.0, "byte": 1.0}))
    log_s, far = np.log([64.0, 64.0, 64.0, 3.0]), np.array([0.0, 0.5, 1.0, 1.0])
    found, batches = monotone.no_longer_than_parts(
        rows,
        log_s,
        far,
        [],
        lambda: (np.zeros(4), rows.number("batch") / 4),
        lambda parts, _: np.zeros(len(parts)),
    )
    assert np.exp(found) == pytest.approx([64.0, 32.0, 16.0, 0.75])
    assert [*map(monotone.as_at, batches)] == ["", ", as at batch 16", ", as at batch 16", ", as at batch 1"]


def test_ops_at_the_same_batches_have_each_part_corrected_once() -> None:
    """The first two ops share their batches; the third has others, and one of the first was timed at batch 4."""
    batches = np.array([[1.0, 4.0, 16.0, 18.0], [1.0, 4.0, 16.0, 18.0], [2.0, 8.0, 8.0, 36.0]])
    table = pd.DataFrame({"batch": [1.0] * 3, "height": [1.0, 2.0, 3.0], "flop": 1.0, "byte": 1.0})
    rows = repeated(Columns(table), 4, batch=batches, flop=batches, byte=batches)
    asked: list[tuple[float, float]] = []

    def correct(parts: Rows, grid: gp.Places) -> gp.Matrix:
        asked.extend(zip(parts.number("height").tolist(), parts.number("batch").tolist(), strict=True))
        for op in grid:
            assert len(set(parts.number("height")[op])) == 1
            assert (np.diff(parts.number("batch")[op]) > 0).all()
        return -np.log(parts.number("batch")) - parts.number("height")

    start_s, rest_s = np.full(12, 2.0), rows.number("batch") * 3
    moving = np.ones(12)
    moving[1] = 0.0
    found, of_part = monotone.no_longer_than_parts(
        rows, np.full(12, 99.0), moving, ["height"], lambda: (start_s, rest_s), correct
    )
    assert sorted(set(asked)) == sorted(asked)
    for number, (batch, height) in enumerate(zip(rows.number("batch"), rows.number("height"), strict=True)):
        whole = batch * (1 + np.floor(np.log2(batch)) % 2)
        sizes = [np.floor(whole / count) for count in monotone.PARTS if whole >= count]
        in_turn = [np.log(batch / size * (2 + 3 * size)) - np.log(size) - height for size in sizes]
        moved = sizes and number != 1
        assert of_part[number] == (sizes[int(np.argmin(in_turn))] if moved else 0)
        assert found[number] == pytest.approx(min(in_turn) if moved else 99.0, abs=1e-12)


@pytest.mark.parametrize("kind", [kind for kind in VIEWS if "batch" in KINDS[kind].dimensions])
def test_a_parts_mean_time_is_a_start_and_its_share_of_the_rest(kind: str) -> None:
    """`no_longer_than_parts` requires it of every kind with a batch."""
    random, share = np.random.default_rng(3), np.array([1.0, 0.5, 0.25, 0.0625])
    sizes = {name: float(2 ** random.integers(1, 5)) for name in KINDS[kind].dimensions if name != "batch"}
    row = {"kind": kind, "dtype": "fp32", "engine": "vector", "pass_name": "forward", "cell": "lstm", **sizes}
    rows = pd.DataFrame([row] * 4).assign(batch=64 * share, flop=1e9 * share, byte=1e7 * share)
    terms = VIEWS[kind].terms(rows)
    start, rest = 2 * terms[1] - terms[0], 2 * (terms[0] - terms[1])
    np.testing.assert_allclose(terms, start + share[:, None] * rest, rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize("kind", [kind for kind, view in VIEWS.items() if view.straight])
def test_features_that_are_said_to_be_on_a_line_are(kind: str) -> None:
    random, batch = np.random.default_rng(5), np.arange(1.0, 300.0)
    sizes = {name: float(2 ** random.integers(1, 6)) for name in KINDS[kind].dimensions if name != "batch"}
    row = {"kind": kind, "dtype": "fp32", "engine": "vector", "pass_name": "forward", "cell": "lstm", **sizes}
    features = VIEWS[kind].features(pd.DataFrame([row] * len(batch)).assign(batch=batch))
    slope = (features[-1] - features[0]) / np.log2(batch[-1])
    np.testing.assert_allclose(features, features[0] + np.log2(batch)[:, None] * slope, rtol=0, atol=gp.STRAIGHT)
    assert slope.any()


@pytest.mark.parametrize("count", [20, 600])
def test_a_mean_alone_is_that_with_a_variance(count: int) -> None:
    random = np.random.default_rng(count)
    features, target = random.normal(size=(count, 2)), random.normal(size=count)
    fitted = gp.precompute(features, target, np.zeros(count), gp.Hyper(np.ones(2), 1.0, 0.1))
    query = random.normal(size=(7, 2))
    assert interpolate.correction_of(fitted, gp.Queries.of(query)) == pytest.approx(
        gp.posterior(fitted, query).mean, rel=1e-12
    )


def test_batches_that_are_powers_of_two_have_parts_of_the_same_sizes() -> None:
    rows = as_rows(pd.DataFrame({"batch": [1.0, 2.0, 4.0, 8.0, 32.0, 6.0], "flop": 1.0, "byte": 1.0}))
    parts = [list[float]() for _ in range(len(rows))]
    divided = monotone.in_parts(rows)
    assert divided is not None
    size = divided.rows.number("batch")
    for place, one, flop in zip(divided.of, size, divided.rows.number("flop"), strict=True):
        parts[place].append(one)
        assert flop == pytest.approx(one / rows.number("batch")[place])
    best = divided.best(-size)
    assert [best[0], *size[best[1:]]] == [-1, 1, 1, 1, 1, 1]
    assert monotone.in_parts(rows.take(np.array([0]))) is None
    assert parts == [[], [1], [1], [4, 1], [16, 4, 1], [1]]


def test_a_product_takes_no_longer_than_its_halves_unless_it_is_short() -> None:
    rungs, times = np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 3.0, 3.5, 5.0]) * np.ones((4, 1, 1))
    long = np.array([[True, True, True, True]])
    assert prior.climbing(times.copy(), rungs, long)[0, 0].tolist() == [1.0, 2.0, 3.5, 4.0]
    long[0, 0] = False
    assert prior.climbing(times.copy(), rungs, long)[0, 0].tolist() == [1.0, 3.0, 3.5, 5.0]


@pytest.mark.parametrize("machine", FACTS_ONLY)
@pytest.mark.parametrize("model", MODELS)
def test_a_step_on_facts_alone_rises_with_the_batch(model: str, machine: str) -> None:
    few = BATCHES if model.startswith("candle/p") else BATCHES[::3]
    sizes = np.unique([*few, *np.random.default_rng(16).integers(1, 1100, 2)])
    # All at once: these are what a loop of estimates gives, which test_scenarios.py compares.
    found = scenarios(
        prepare_study(_model(model), with_fits(bare(machine)), Options()), pd.DataFrame({"batch": sizes * 1.0})
    )
    assert_rising(found["step_s"].to_numpy(), sizes)
    if machine == "titan":
        steps = [estimate(_model(model), bare(machine), Options(batch=int(batch))).step.value for batch in few[:4]]
        assert_rising(np.array(steps), few[:4])


@pytest.mark.parametrize("machine", ["rtx-3090", "mi300x"])
def test_a_transformer_of_197_tokens_takes_no_longer_at_an_odd_batch(machine: str) -> None:
    # Both gradients of a product are "backward" there; the depth of weights' is no whole vector at odd batches.
    sizes = np.array([15.0, 16.0, 127.0, 128.0, 255.0, 256.0])
    found = fomkit.scenarios("vit-b16", machine, pd.DataFrame({"batch": sizes}))
    assert_rising(found["step_s"].to_numpy(), sizes)
    assert found["step_s"][5] / found["step_s"][4] < 1.02


@pytest.mark.parametrize("machine", FACTS_ONLY)
@pytest.mark.parametrize("axis", ["m", "k", "b"])
def test_a_product_rises_with_the_size_that_a_batch_makes(machine: str, axis: str) -> None:
    sizes = np.unique([*BATCHES, *np.random.default_rng(8).integers(2, 5000, 60)])[axis == "b" :]
    word = {"pass_name": "backward_weight"} if axis == "k" else {}
    for other, wide in ((1000, 512), (17, 4096), (1, 50)):
        row = {**gemm(other, wide, other), **word}
        rows = add_costs(table(*({**row, axis: float(size)} for size in sizes)))
        found = prior.estimate(rows, bare(machine), 0.8)
        for seconds in found.times:
            assert_rising(seconds, sizes)
        assert (found.times[1] <= found.times[0]).all()
        assert (found.times[0] <= found.times[2]).all()


def test_what_it_reaches_is_said_of_the_time_it_gives() -> None:
    row = add_costs(table(gemm(1000, 512, 999)))
    found = prior.estimate(row, bare("titan"), 0.8)
    floor_s = max(row["flop"].iat[0] / 3.95e12, row["byte"].iat[0] / 250e9)
    assert f"utilisation {floor_s / (found.time_s[0] - 2e-6):.2g}," in found[0].evidence


TIMED = ("v100", "x86-lecture", "knl-7250")


@pytest.mark.parametrize("machine", TIMED)
@pytest.mark.parametrize("model", ["candle/p1b1", "candle/p1b3", "candle/uno", "candle/p3b1"])
def test_a_step_falls_only_where_two_timings_of_a_product_fall(model: str, machine: str) -> None:
    """None of these tables has products of more rows that took less time; only greater depths did."""
    there, profile = with_fits(fomkit.machine(machine)), _model(model)
    formats = choose_formats(None, profile.traced_with.get("framework", ""), there, profile.ops)
    batches = np.unique([*BATCHES, *range(1, 34), 63, 96, 99, 100, 101, 126])
    sizes = {name: np.full(len(batches), float(size)) for name, size in profile.sizes.items()} | {
        "batch": batches.astype(float)
    }
    found = times_at(step_ops(profile, there, formats), there, sizes, 0.8)
    assert_rising(np.nansum(found.times[0] * found.executions, 0), batches)


def slower(model: str, machine: str, batch: int) -> list[str]:
    found = estimate(_model(model), fomkit.machine(machine), Options(batch=batch))
    return [said for said in found.deviations if "takes" in said and "longer than one of" in said]


def test_a_dip_that_timings_show_stays_and_is_said() -> None:
    """DeepBench's P100 needs less time for products of 32 rows than of 16, so 30 samples take less than 16."""
    at = {
        batch: estimate(_model("candle/p1b3"), fomkit.machine("p100"), Options(batch=batch)) for batch in (16, 30)
    }
    more = at[16].step.value / at[30].step.value - 1
    assert more > 0.04
    assert slower("candle/p1b3", "p100", 30) == [
        f"a step of batch 16 takes {more:.1%} longer than one of 30: shown by timings of similar products"
    ]
    assert slower("candle/p1b3", "p100", 16) == []


@pytest.mark.parametrize(("model", "machine", "batch"), [("candle/p1b3", "titan", 1000), ("vgg16", "v100", 33)])
def test_nothing_is_said_where_no_smaller_batch_is_slower(model: str, machine: str, batch: int) -> None:
    assert slower(model, machine, batch) == []


@pytest.mark.parametrize(
    ("slow", "found"), [(32, 32), (16, 16), (39, 39), (1, 1), (2, None), (20, None), (40, None)]
)
def test_of_batch_40_the_powers_below_one_less_and_one_are_compared(
    monkeypatch: pytest.MonkeyPatch, slow: int, found: int | None
) -> None:
    model, machine = _model("candle/p1b3"), with_fits(fomkit.machine("p100"))
    sizes = {**model.sizes, "batch": 40}

    def estimated(rows: Rows, *_: object) -> SimpleNamespace:
        """Predict a second for a product, and two seconds at the slow batch."""
        is_slow = (rows.number("m") == slow) | (rows.number("k") == slow)
        return SimpleNamespace(index=rows.index, time_s=1.0 + is_slow, source=one_word("interpolated", len(rows)))

    monkeypatch.setattr(interpolate, "estimate", estimated)
    ops = add_costs(resize_ops(model.ops, sizes, model.name))
    assert slower_products(model, ops, machine, sizes, 0.8) == (found if found is None else (found, True))


@pytest.mark.parametrize("name", ["candle/p1b3", "gpt2"])
def test_products_of_a_smaller_batch_cost_what_a_table_of_it_says(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    model, machine = _model(name), with_fits(fomkit.machine("p100"))
    costed = {
        batch: add_costs(resize_ops(model.ops, {**model.sizes, "batch": batch}, name)) for batch in (6, 4, 2, 5, 1)
    }
    asked: list[Rows] = []

    def estimated(rows: Rows, *_: object) -> SimpleNamespace:
        asked.append(rows)
        return SimpleNamespace(index=rows.index, time_s=np.ones(len(rows)), source=one_word("", len(rows)))

    monkeypatch.setattr(interpolate, "estimate", estimated)
    slower_products(model, costed[6], machine, {**model.sizes, "batch": 6}, 0.8)
    (rows,), at = asked, [places[0] for places in _batched_products(model.ops)]
    assert at
    for column in ("flop", "byte"):
        wanted = np.stack([table_of_batch[column].to_numpy()[at] for table_of_batch in costed.values()], 1)
        np.testing.assert_allclose(rows.number(column).reshape(wanted.shape), wanted, rtol=1e-12)


@pytest.mark.parametrize(("octave", "size"), [(2, 5), (2, 7), (3, 9), (3, 11), (3, 15), (4, 18), (4, 30)])
def test_between_two_powers_of_two_each_rung_is_what_was_told_of_it(octave: int, size: int) -> None:
    powers, steps = 2.0 ** np.arange(7), min(2**octave, monotone.STEPS)
    inside = 2.0**octave * (1 + np.arange(1.0, monotone.STEPS) / steps)
    inside[steps - 1 :] = np.nan  # an octave of few whole sizes has as many rungs
    told = np.log(np.concatenate([powers, inside]))[None, :]
    times = monotone._climbed(told, np.ones_like(told), np.array([64.0]), np.array([octave]))
    found = monotone._between_steps(times, np.zeros(1, np.intp), np.array([float(size)]))
    assert found == pytest.approx([float(size)])


def test_rungs_go_as_far_as_timings_of_that_side_do() -> None:
    """Two products of four rows, whose sides were timed up to 8 and up to 64."""
    powers, octave = monotone._rungs(np.array([4.0, 4.0]), np.array([8.0, 64.0]))
    assert octave.tolist() == [2, 2]
    assert [one[np.isfinite(one)].tolist() for one in powers] == [[1, 2, 4, 8], [1, 2, 4, 8, 16, 32, 64]]


def test_between_falls_that_were_timed_no_time_falls() -> None:
    """Timings show a fall from 2 to 4 rows and from 32 to 64, and there are none in between."""
    at, axis = np.zeros(2, np.intp), np.full(2, monotone.SIDES.index("m"))
    falls = monotone.Falls(at, at, axis, np.log([2.0, 32.0]), np.log([4.0, 64.0]), np.array([-0.5, -0.25]))
    rows = as_rows(add_costs(table(gemm(512, 512, 512))))
    no_fit = cast(Any, None)  # what timings show is no fit's to say
    known = monotone.Surroundings(rows, falls, no_fit, no_fit, lambda _, places: np.ones(len(places), bool), {})
    ((ends, fallen),) = monotone._shown(rows, axis[:1], known)
    assert np.exp(ends) == pytest.approx([2, 4, 32, 64])
    assert fallen == pytest.approx([0.0, -0.5, -0.5, -0.75])


def test_products_of_two_number_formats_take_what_each_takes_alone() -> None:
    """One format's time at the same sizes does not affect another's, even in the same table."""
    machine = bare("a100-sxm")
    plain = {**gemm(100, 512, 512), "dtype": "fp32", "engine": "vector"}
    half = {**plain, "dtype": "bf16", "engine": "matrix"}
    alone = [prior.estimate(add_costs(table(row)), machine, 0.8).times[:, 0] for row in (plain, half)]
    for rows in ((plain, half), (half, plain)):
        together = prior.estimate(add_costs(table(*rows)), machine, 0.8).times
        wanted = alone if rows[0] is plain else alone[::-1]
        np.testing.assert_allclose(together, np.stack(wanted, 1), rtol=1e-12)
    assert alone[0][0] > alone[1][0]


def test_a_power_of_two_and_a_size_inside_its_octave_have_ladders_of_their_own():
    board = with_fits(fomkit.machine("v100"))
    power, inside = (add_costs(table(gemm(m, 1_003, 1_009))) for m in (1024, 1500))
    first, then = (float(add_times(one, board)["time_s"].iloc[0]) for one in (power, inside))
    assert then > 1.2 * first > 0

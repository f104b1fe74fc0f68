"""Estimator `borrow`: a few own timings and the tables of machines that this one follows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fomkit.ops.pricing import add_costs
from fomkit.prediction import donors, interpolate
from fomkit.prediction.calibration import fit_timings
from fomkit.prediction.families import FamilyName, training_rows

FORWARD = FamilyName("conv", "fp32", "vector", "forward")


@pytest.fixture(scope="module")
def split(v100):
    """V100's convolutions: 20 known ones, and the others."""
    rows = training_rows(add_costs(v100.timings), FORWARD)
    known = np.zeros(len(rows), bool)
    known[np.random.default_rng(0).choice(len(rows), 20, replace=False)] = True
    return rows[known].reset_index(drop=True), rows[~known].reset_index(drop=True)


def estimate_rows(machine, query, interval=0.8):
    times = donors.estimate_from_donors(query, machine, interval)
    return np.array([times[index][:3] for index in range(len(times))]).T


def test_another_gpu_tells_more_than_twenty_timings(v100, p100, split):
    known, others = split
    few = replace(v100, timings=known, fits=fit_timings(known))
    truth = others["_time_s"].to_numpy()
    alone = interpolate.estimate(others, few, 0.8)
    alone_s = np.array([alone[index].time_s for index in range(len(others))])
    time_s, low_s, high_s = estimate_rows(replace(few, donors=(p100,)), others)
    wrong, wrong_alone = (np.abs(values / truth - 1) for values in (time_s, alone_s))
    assert np.median(wrong) < 0.13
    assert np.median(wrong) < 0.85 * np.median(wrong_alone)
    assert 0.6 < ((low_s <= truth) & (truth <= high_s)).mean() < 0.95
    assert ((low_s < time_s) & (time_s < high_s)).all()


@pytest.fixture(scope="module")
def halves(p100):
    """Ratios to the donor's times, and widths, of five draws of a fifth of its rows at half the speed."""
    rows = training_rows(add_costs(p100.timings), FORWARD)
    slow = rows.assign(_time_s=2 * rows["_time_s"])
    found = []
    for seed in range(5):
        drawn = np.random.default_rng(seed).permutation(len(slow))
        known, others = (slow.iloc[part].reset_index(drop=True) for part in np.split(drawn, [len(slow) // 5]))
        time_s, low_s, high_s = estimate_rows(replace(p100, timings=known, fits={}, donors=(p100,)), others)
        alone = interpolate.estimate(others, p100, 0.8)
        found.append((time_s / np.array([alone[index].time_s for index in range(len(others))]), high_s / low_s))
    return found


def test_a_machine_at_half_the_speed_is_its_lender_twice_over(halves):
    """The law is exact: every answer is twice the donor's; which rows are known moves it a little."""
    assert np.median([np.median(np.abs(ratio / 2 - 1)) for ratio, _ in halves]) < 0.02
    assert np.median([np.median(width) for _, width in halves]) < 1.3
    for ratio, width in halves:
        assert np.median(np.abs(ratio / 2 - 1)) < 0.03
        assert ratio == pytest.approx(np.full(len(ratio), 2.0), rel=0.15)
        assert np.median(width) < 1.4


@pytest.mark.parametrize(
    ("count", "is_borrowed"),
    [(donors.FEWEST - 1, False), (donors.FEWEST, True), (donors.MOST, True), (donors.MOST + 1, False)],
)
def test_tables_of_eight_to_forty_ops_are_those_that_follow_others(v100, p100, split, count, is_borrowed):
    few = replace(v100, timings=split[1].head(count), fits={}, donors=(p100,))
    assert len(donors.estimate_from_donors(split[0], few, 0.8)) == (len(split[0]) if is_borrowed else 0)


def test_a_wider_interval_holds_a_narrower(v100, p100, split):
    few = replace(v100, timings=split[0], fits={}, donors=(p100,))
    narrow, wide = (estimate_rows(few, split[1], interval) for interval in (0.5, 0.9))
    assert (wide[1] < narrow[1]).all()
    assert (wide[2] > narrow[2]).all()
    assert (wide[0] == narrow[0]).all()


def test_nothing_is_borrowed_without_need_or_lender(v100, p100, split):
    known, others = split
    few = replace(v100, timings=known, fits={}, donors=(p100,))
    assert len(donors.estimate_from_donors(others, few, 0.8)) == len(others)
    many = training_rows(add_costs(v100.timings), FORWARD)
    jumping = known.assign(_time_s=known["_time_s"] * 9.0 ** (known.index % 2))
    refused = {
        "no donor": replace(few, donors=()),
        "a donor without fits": replace(few, donors=(replace(p100, fits={}),)),
        "timings without costs": replace(few, timings=known.drop(columns=["flop", "byte"])),
        "too few own timings": replace(few, timings=known.head(donors.FEWEST - 1)),
        "a table that needs nobody": replace(few, timings=many),
        "a ratio that jumps": replace(few, timings=jumping),
    }
    assert {
        why: len(donors.estimate_from_donors(others, one, 0.8)) for why, one in refused.items()
    } == dict.fromkeys(refused, 0)


def test_what_the_lender_never_timed_is_less_sure(v100, p100, split):
    known, others = split
    rows = training_rows(add_costs(p100.timings), FORWARD)
    plain = rows[rows["kernel_h"] == 1].reset_index(drop=True)
    poorer = replace(p100, timings=plain, fits=fit_timings(plain))
    far = others[others["kernel_h"] == 5].reset_index(drop=True)
    few = replace(v100, timings=known[known["kernel_h"] == 1].reset_index(drop=True), fits={})
    rich, poor = (estimate_rows(replace(few, donors=(one,)), far) for one in (p100, poorer))
    assert (poor[2] / poor[1] > rich[2] / rich[1]).all()


def test_the_steadier_lender_has_the_greater_share():
    steady, loose = np.full(20, 0.7), np.linspace(-1, 1, 20)
    share = donors._shares(np.array([steady + 0.05 * loose, loose]))
    assert share[0] > 0.99
    assert share.sum() == pytest.approx(1)

"""Estimator `roofline`: rates from facts or the table, usual utilisation, launches, and its interval."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from costs.op_tables import gemm, optimizer, table, traffic
from predict.machines import device, fact, machine, typical_at

import fomkit
from fomkit.core.errors import FomkitError
from fomkit.core.machine import Energy
from fomkit.ops.pricing import add_costs
from fomkit.plan.options import change_machine
from fomkit.prediction import prior
from fomkit.prediction.rates import bounds, rates, starts_within, throttled
from fomkit.prediction.typical import typical_utilisation
from fomkit.profiles.evidence import with_fits
from fomkit.profiles.machines import load_machine

PRODUCT = gemm(4096, 4096, 4096)


def estimate(row, known, interval=0.8):
    return prior.estimate(add_costs(table(row)), known, interval).get(0)


def test_a_large_product_by_hand():
    known = machine(device(fact(5e-6), fact(1e12), fp32_vector=1e13))
    answer = estimate(PRODUCT, known)
    floor_s = 2 * 4096**3 / 1e13
    utilisation = typical_at(typical_utilisation(add_costs(table(PRODUCT)), known, 0.8))
    assert answer.time_s == pytest.approx(floor_s / utilisation.value + 2e-6)
    assert answer.low_s == pytest.approx(floor_s / utilisation.high + 2e-6, rel=1e-5)
    assert answer.high_s == pytest.approx(floor_s / utilisation.low + 2e-6, rel=1e-5)
    assert (answer.bound, answer.time_source) == ("compute", "roofline")
    assert answer.evidence == (
        f"10.00 TFLOP/s, 1.000 TB/s; utilisation {utilisation.value:.2g}, {utilisation.source}; "
        "1 launch of 5.0 µs, 2.0 µs of it visible"
    )


def test_a_limit_of_power_holds_an_fp32_peak_down_by_hand():
    """70 W at 73 Gflop/J of a chip of 12 nm hold 5.11 of 8.1 TFLOP/s; of 16 nm (12/16)^1.5 of that."""
    peaks = {"fp32_vector": 8.1e12, "fp16_matrix": 65e12}
    t4 = machine(device(None, fact(320e9), **peaks), energy=Energy("chip", process_m=12e-9, limit_w=fact(70.0)))
    lower = machine(device(None, fact(320e9), fp32_vector=5.11e12))
    answer, plain = estimate(PRODUCT, t4), estimate(PRODUCT, lower)
    assert answer.time_s == pytest.approx(plain.time_s)
    assert answer.evidence.startswith("5.110 TFLOP/s limited by 70.00 W (peak 8.100 TFLOP/s), 320.0 GB/s")
    slower, sure = (math.log(one.high_s / one.time_s) for one in (answer, plain))
    assert slower == pytest.approx(math.hypot(sure, math.log(1.25)))
    assert throttled(t4).device.peak("fp16", "matrix").rate.value == 65e12
    older = replace(t4, energy=replace(t4.energy, process_m=16e-9))
    assert throttled(older).device.peak("fp32", "vector").rate.value == pytest.approx(5.11e12 * 0.75**1.5)


def test_no_product_from_facts_is_faster_than_the_stated_sustained_rate() -> None:
    built = load_machine("mi300x")
    peaks = tuple(replace(one, sustained=1.0) for one in built.device.peaks)
    without = replace(built, device=replace(built.device, peaks=peaks))
    sizes = ((4096, 4864, 32896), (1024, 1024, 1024))
    rows = [{"kind": "gemm", "dtype": dtype, "engine": "matrix", "b": 1, **dict(zip("mnk", size, strict=True))}
            for dtype in ("bf16", "fp16", "tf32") for size in sizes]  # fmt: skip
    now, before = (fomkit.predict(pd.DataFrame(rows), one).table for one in (built, without))
    flop = 2.0 * math.prod(sizes[0])
    for at, held in ((0, 708e12), (2, 654e12)):
        assert now["time_s"][at] == pytest.approx(flop / held)
        assert now["low_s"][at] == pytest.approx(flop / held / 1.1)
        assert now["high_s"][at] / now["time_s"][at] == pytest.approx(before["high_s"][at] / before["time_s"][at])
        assert "sustained in long products" in now["evidence"][at]
    # What facts predict slower anyway, and formats without such a rate, stay.
    assert now.drop(index=[0, 2]).equals(before.drop(index=[0, 2]))
    # With a faster engine the rate that is sustained grows with it.
    faster = change_machine(built, {"flop_per_s/bf16/matrix": 2 * 1307.4e12})
    assert fomkit.predict(pd.DataFrame(rows[:1]), faster).table["time_s"][0] == pytest.approx(
        flop / 1416e12, rel=5e-3
    )


def test_a_sustained_rate_above_the_peak_is_refused_and_a_right_one_is_kept(tmp_path) -> None:
    path = tmp_path / "m.yaml"
    fomkit.save(load_machine("mi300x"), path)
    assert load_machine(path).device.peaks == load_machine("mi300x").device.peaks
    path.write_text(path.read_text("utf-8").replace("sustained: 708 TFLOP/s", "sustained: 1308 TFLOP/s"), "utf-8")
    with pytest.raises(FomkitError, match=r"device\.peak\[5\]\.sustained is above the rate"):
        load_machine(path)


@pytest.mark.parametrize(
    "energy",
    [
        None,
        Energy("chip", limit_w=fact(70.0)),
        Energy("chip", process_m=12e-9),
        Energy("chip", process_m=12e-9, limit_w=fact(250.0)),
    ],
)
def test_a_peak_stays_where_power_is_enough_or_not_stated(energy):
    known = machine(device(None, fact(320e9), fp32_vector=8.1e12), energy=energy)
    assert throttled(known) is known


def test_the_spread_of_the_rate_that_binds_widens_the_interval():
    sure = estimate(traffic("copy", 1e8), machine(device(bandwidth=fact(1e12))))
    unsure = estimate(traffic("copy", 1e8), machine(device(bandwidth=fact(1e12, 0.5e12, 2e12))))
    other = estimate(traffic("copy", 1e8), machine(device(None, fact(1e12), fp32_vector=1e13)))
    assert unsure.time_s == sure.time_s == other.time_s
    quickest = typical_at(
        typical_utilisation(add_costs(table(traffic("copy", 1e8))), machine(device(bandwidth=fact(1e12))), 0.8)
    )
    assert sure.low_s == pytest.approx(1.2e9 / 1e12 / quickest.high)  # nothing of it for launches
    width = math.log(sure.high_s / sure.time_s)
    assert math.log(unsure.high_s / unsure.time_s) == pytest.approx(math.hypot(width, math.log(2)))
    assert unsure.low_s < sure.low_s
    assert "no peak known, traffic only" in sure.evidence
    assert "launch cost unknown, excluded" in sure.evidence


def test_many_launches_bind_and_their_spread_counts():
    row = optimizer("adam", "per_tensor", 1000.0, 100.0)
    answer = estimate(row, machine(device(fact(5e-6, 3e-6, 10e-6), fact(1e12))))
    assert answer.bound == "launch"
    # The device waits for as much of a launch as its shortest kernels show; the step counts the host's part apart.
    assert answer.time_s == pytest.approx(0.4 * 700 * 5e-6, rel=1e-3)
    assert answer.high_s == pytest.approx(0.4 * 700 * 10e-6, rel=1e-3)
    assert answer.low_s == pytest.approx(0.4 * 700 * 3e-6, rel=1e-3)
    assert "700 launches of 5.0 µs, 2.0 µs of each visible" in answer.evidence


@pytest.mark.parametrize("byte", [1e3, 3e6, 1e7, 1e9])
def test_a_launch_shows_as_much_beside_a_kernel_of_any_length(byte):
    """Of a launch of 5 µs, 2 µs show in a kernel's time, as for the shortest in replayed graphs."""
    row = traffic("copy", byte)
    with_launch, without = (estimate(row, machine(device(one, fact(1e12)))) for one in (fact(5e-6), None))
    assert with_launch.time_s - without.time_s == pytest.approx(2e-6, rel=1e-3)
    within_s = starts_within(np.array([with_launch.time_s]), np.array([5e-6]))
    assert within_s[0] == pytest.approx(2e-6 if with_launch.time_s > 2e-6 else 0.0)


@pytest.mark.parametrize(
    ("row", "longer"),
    [
        ({"op": "positions", "inputs": 1.0}, math.sqrt(2)),
        ({"op": "activation", "inputs": 2.0}, math.sqrt(2)),
        ({"op": "activation", "inputs": 1.0}, 1.0),
        ({"op": "aten::mul", "inputs": 2.0}, 1.0),
        ({"op": "", "inputs": 2.0}, 1.0),
        ({"op": "norm", "kind": "norm"}, math.sqrt(2)),
        ({"op": "aten::native_layer_norm", "kind": "norm"}, 1.0),
        ({"op": "words", "kind": "embedding"}, 2.0),
    ],
)
def test_kernels_that_may_load_number_by_number_take_longer_in_narrow_numbers(row, longer):
    """Typical utilisation is from fp32: bf16 bytes are as fast, numbers half as fast, unseen kernels between."""
    known = machine(device(None, fact(1e12), fp32_vector=1e13))
    of = add_costs(table({**traffic("pointwise", 1e8), "row": 1e4, **row, "dtype": "bf16"}))
    plain = of.assign(op="aten::x", kind=of["kind"].where(of["kind"] != "embedding", "copy"))
    found, wide = (typical_at(typical_utilisation(rows, known, 0.8)) for rows in (of, plain))
    assert wide.value / found.value == pytest.approx(longer)
    reach = 0.0 if row["op"] == "aten::mul" else math.log(2)  # of an op by its elements a framework loads vectors
    assert found.value / found.low >= math.exp(reach if longer == 2 else reach - math.log(longer))
    assert found.high / found.value >= wide.high / wide.value


@pytest.mark.parametrize("numel", [0.0, 1e-300])
def test_next_to_nothing_takes_its_launch_alone_at_the_usual_utilisation(numel):
    known = machine(device(fact(5e-6), fact(1e12)))
    answer = estimate(traffic("copy", numel), known)
    assert answer.time_s == pytest.approx(2e-6)  # the shortest of kernels, not what the host needs
    assert answer.bound == "launch"
    utilisation = typical_at(typical_utilisation(add_costs(table(traffic("copy", numel))), known, 0.8))
    assert f"utilisation {utilisation.value:.2g}, " in answer.evidence


@pytest.mark.parametrize(
    ("of", "row"),
    [
        (device(None, fact(1e12)), PRODUCT),
        (device(None, None, fp32_vector=1e13), PRODUCT),
        (device(None, None, fp32_vector=1e13), traffic("copy", 8.0)),
        (device(None, fact(1e12), fp64_vector=1e13), PRODUCT),
    ],
    ids=["no peak", "no bandwidth", "no bandwidth for traffic", "peak of another format"],
)
def test_a_rate_that_the_kind_needs_is_not_invented(of, row):
    assert estimate(row, machine(of)) is None
    assert np.isnan(bounds(add_costs(table(row)), machine(of)).floor_s).all()


def test_without_any_other_machine_rates_alone_tell_no_time():
    known = machine(device(fact(5e-6), fact(1e12), fp32_vector=1e13))
    others = {one.architecture for work in known.typical.of.values() for one in work.known}
    assert estimate(PRODUCT, known) is not None
    assert estimate(PRODUCT, replace(known, excluded=tuple(others))) is None


def test_without_facts_the_rates_are_those_of_the_table(x86):
    answer = estimate(gemm(3000, 3000, 3000), x86)
    assert "rates fitted to the table" in answer.evidence
    fitted = x86.fits["rates"]
    table_of = add_costs(x86.timings).query("kind == 'gemm'")
    assert fitted["flop_per_s"]["fp32/vector"] == pytest.approx((table_of["flop"] / table_of["time_s"]).max())
    assert fitted["byte_per_s"] == pytest.approx((table_of["byte"] / table_of["time_s"]).max())
    moved = estimate(traffic("copy", 1e8), x86)
    # The table's best rate is a lower bound, so the interval reaches to shorter times than it allows.
    assert moved.low_s < 1.2e9 / fitted["byte_per_s"] < moved.time_s


def test_facts_alone_know_how_wrong_they_are(v100, p100):
    hits, wrong = [], []
    for full in (v100, p100):
        chosen = full.timings["kind"].isin(["gemm", "conv"]) & (full.timings["dtype"] == "fp32")
        timed = add_costs(full.timings[chosen]).reset_index(drop=True)
        alone = replace(full, fits={}, excluded=(full.device.architecture,))
        answers = prior.estimate(timed, alone, 0.8)
        for at, time_s in timed["time_s"].items():
            hits.append(answers[at].low_s <= time_s <= answers[at].high_s)
            wrong.append(abs(answers[at].time_s / time_s - 1))
    # Nothing timed on these chips was heard.
    assert 0.65 <= np.mean(hits) <= 0.95
    assert np.median(wrong) < 0.4


def test_a_rate_that_a_table_sustained_is_the_peaks_value_and_the_least_of_the_bandwidth() -> None:
    stated = load_machine("v100")
    fitted = with_fits(replace(stated, device=replace(stated.device, peaks=(), byte_per_s=None)))
    found = rates(fitted, "fp32", "vector")
    assert found.flop_per_s is not None
    assert found.byte_per_s is not None
    assert found.flop_per_s.low == found.flop_per_s.value == found.flop_per_s.high
    assert found.byte_per_s.low == found.byte_per_s.value < found.byte_per_s.high
    # A board does no more than its peak, and a table of products reaches most of it.
    peak = stated.device.peak("fp32", "vector")
    assert peak is not None
    assert 0.5 < found.flop_per_s.value / peak.rate.value <= 1.05

"""Correlation of the errors of a step's ops: partly common in a family, the rest independent."""

from __future__ import annotations

import math
from dataclasses import replace

import pandas as pd
import pytest

import fomkit
from fomkit.core.interval import half_width, share_that_cancels
from fomkit.plan.coverage import TABLE_LEAVES, USES, uses_of
from fomkit.plan.step import COMMON, COMMON_BY_TABLE, common_of, device_time, roll_up_step
from fomkit.prediction.donors import levels_of
from fomkit.prediction.rates import power_shortfall, throttled
from fomkit.profiles.machines import load_machine

WIDTH = 0.1


def table(times: list[float], kind: str = "norm", source: str = "roofline") -> pd.DataFrame:
    rows = {"time_s": times, "low_s": [t - WIDTH for t in times], "high_s": [t + 2 * WIDTH for t in times]}
    return pd.DataFrame(rows).assign(count=1.0, kind=kind, pass_name="forward", time_source=source)


def widths(timed: pd.DataFrame) -> tuple[float, float]:
    span = device_time(timed, 0.8)
    return span.value - span.low, span.high - span.value


def test_one_op_is_as_wide_wherever_it_stands() -> None:
    assert widths(table([1.0])) == pytest.approx((WIDTH, 2 * WIDTH))
    assert widths(table([1.0, 1.0, 1.0])) == pytest.approx((3 * WIDTH, 6 * WIDTH))
    assert widths(table([1.0]).assign(count=3.0)) == pytest.approx((3 * WIDTH, 6 * WIDTH))


def test_of_different_ops_of_a_family_a_part_is_common() -> None:
    share = math.sqrt(COMMON * 4**2 + (1 - COMMON) * 4)
    assert widths(table([1.0, 2.0, 3.0, 4.0])) == pytest.approx((share * WIDTH, share * 2 * WIDTH))


def test_passes_are_other_ops_of_the_family_and_kinds_are_other_families() -> None:
    one = table([1.0])
    other_pass = pd.concat([one, one.assign(pass_name="backward_input")])
    assert widths(other_pass)[0] == pytest.approx(math.sqrt(COMMON * 4 + (1 - COMMON) * 2) * WIDTH)
    for other in (one.assign(kind="conv"), one.assign(time_source="interpolated")):
        assert widths(pd.concat([one, other]))[0] == pytest.approx(math.sqrt(2) * WIDTH)


def test_convolutions_have_less_in_common_than_products_and_those_less_than_what_moves_data() -> None:
    for kind in ("conv", "gemm", "norm"):
        share = common_of(kind, "roofline")
        expected = math.sqrt(share * 4**2 + (1 - share) * 4) * WIDTH
        assert widths(table([1.0, 2.0, 3.0, 4.0], kind))[0] == pytest.approx(expected)
    assert common_of("conv", "roofline") < common_of("gemm", "roofline") < common_of("norm", "roofline") == COMMON


def test_by_timings_of_the_machine_ops_have_little_in_common() -> None:
    assert common_of("gemm", "roofline") > COMMON_BY_TABLE
    for source in ("measured", "interpolated", "extrapolated", "transferred"):
        timed = table([1.0, 2.0, 3.0, 4.0], "gemm", source)
        expected = math.sqrt(COMMON_BY_TABLE * 4**2 + (1 - COMMON_BY_TABLE) * 4) * WIDTH
        assert widths(timed)[0] == pytest.approx(expected)
    assert common_of("gemm", "assumed") == COMMON


def test_a_step_says_what_its_error_shares_with_other_work() -> None:
    assert device_time(table([1.0]), 0.8).shared == pytest.approx(COMMON)
    many = device_time(table([float(time) for time in range(1, 101)]), 0.8).shared
    assert many == pytest.approx(COMMON / (COMMON + (1 - COMMON) / 100))
    # Two families of one op each: what is common to either is, what is not adds in quadrature.
    both = pd.concat([table([1.0]), table([1.0], "conv")])
    assert device_time(both, 0.8).shared == pytest.approx((COMMON + common_of("conv", "roofline")) / 2)
    assert device_time(table([1.0]).assign(low_s=1.0, high_s=1.0), 0.8).shared == 1.0


def test_boards_of_one_chip_have_the_errors_of_their_ops_in_common_and_others_have_none() -> None:
    """The spread of use in a step is a board's own, and facts and timings err for other reasons."""
    rows = pd.concat([table([1.0, 2.0]), table([1.0], "gemm", "interpolated")]).assign(
        bound="memory", launches=0.0
    )

    def common(name: str, dtype: str = "fp32", work: str = "net") -> dict[str, float]:
        step = roll_up_step(rows.assign(dtype=dtype), load_machine(name), 0.8, USES, work)
        return dict(step.device_s.common)

    h100, h200 = common("h100-sxm"), common("h200-sxm")
    assert h100 == h200
    assert len(h100) == 2
    assert 0.5 < sum(h100.values()) < 1
    for other in (common("b200-sxm"), common("h200-sxm", "bf16"), common("h200-sxm", work="another net")):
        assert not h100.keys() & other.keys()
    assert common("h200-sxm", work="") == {}
    # One chip, but only one board has the power for its clock.
    assert not common("a10").keys() & common("a40").keys()
    assert common("m40").keys() == common("titan-x").keys()


def test_a_second_word_for_a_generation_changes_no_prediction() -> None:
    """Boards of one chip are found by vendor, generation and chip, whether a profile says Ada or Ada Lovelace."""
    l40 = load_machine("l40")
    words = ("NVIDIA Ada Lovelace AD102", "NVIDIA Ada AD102", "NVIDIA Ada AD104")
    boards = [replace(l40, device=replace(l40.device, architecture=one)) for one in words]
    long, short, other = (fomkit.estimate("vit-b16", one, precision="bf16").step for one in boards)
    assert long == short != other
    assert levels_of(words[:1], words)[3].tolist() == [[True, True, False]]


BOARDS = ("t4", "l4", "a10", "h100-sxm", "rtx-4090")


def test_a_board_short_of_power_may_be_either_way_of_its_table() -> None:
    power = {name: power_shortfall(load_machine(name)) for name in BOARDS}
    assert min(power["t4"], power["l4"], power["a10"]) > 0 == power["h100-sxm"] == power["rtx-4090"]
    t4, l4, h100 = (uses_of(load_machine(name)) for name in ("t4", "l4", "h100-sxm"))
    assert h100 is USES
    assert l4 == {}  # nothing was timed there: its rates have the risk
    for side in ("faster", "slower"):
        added = getattr(t4["library"].whole, side) ** 2 - getattr(USES["library"].whole, side) ** 2
        assert math.sqrt(added) * half_width(0.8) == pytest.approx(power["t4"] * TABLE_LEAVES)
        for kept in ("element", "row"):
            assert getattr(t4[kept].whole, side) == getattr(USES[kept].whole, side)


def test_a_board_short_of_power_may_be_slower_than_the_peaks_of_its_matrix_engines() -> None:
    for name in BOARDS:
        machine = load_machine(name)
        short = math.exp(-power_shortfall(machine))
        for stated, rate in zip(machine.device.peaks, throttled(machine).device.peaks, strict=True):
            if stated.engine == "matrix":
                assert rate.rate.value == stated.rate.value
                assert rate.rate.low == pytest.approx(min(stated.rate.low, stated.rate.value * short))
            elif stated.dtype == "fp32":
                assert rate.rate.value == pytest.approx(stated.rate.value * short)


def test_no_op_takes_no_time() -> None:
    span = device_time(table([1.0]).iloc[:0], 0.8, USES)
    assert (span.value, span.low, span.high) == (0.0, 0.0, 0.0)


def test_steps_of_other_batches_are_other_work() -> None:
    h100, h200, other = (
        fomkit.estimate("p1b1", machine, batch=batch).step
        for machine, batch in (("h100-sxm", 100), ("h200-sxm", 100), ("h200-sxm", 200))
    )
    assert share_that_cancels(h100, h200) > 0 == share_that_cancels(h100, other)


def test_a_ratio_says_that_boards_of_one_chip_narrow_it() -> None:
    alike, other = (fomkit.estimate_all(["p1b1"], [one], "h100-sxm") for one in ("h200-sxm", "b200-sxm"))
    found, note = (
        alike.content,
        "boards of one chip, by the profiles: errors that both have cancel in the ratio, p1b1 ",
    )
    ratio, fom = found["models"][1]["ratio"], found["fom"]
    rates = fom["unit_per_day"]
    log_widths = [math.log(one["high"] / one["low"]) for one in (ratio, *(rates[side]["p1b1"] for side in rates))]
    assert ratio["errors_cancel"] == fom["errors_cancel"]["p1b1"] > 0.5
    assert log_widths[0] < 0.8 * math.hypot(*log_widths[1:])
    assert f"{note}{ratio['errors_cancel']:.0%} of its variance" in alike.summary()
    assert "errors_cancel" not in other.content["models"][1]["ratio"]
    assert "errors_cancel" not in other.content["fom"]
    assert note not in other.summary()

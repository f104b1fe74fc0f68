"""Energy of ops, steps and runs: laws of its sums, worked examples, missing data, file formats."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import fomkit
from fomkit.cli.main import app
from fomkit.core.errors import FomkitError
from fomkit.core.interval import Span
from fomkit.core.machine import TIMED_OPS, AveragePower, Energy, Fact, FlopEnergy
from fomkit.core.units import parse_quantity
from fomkit.merit.footprint import Sample, counted, integrate
from fomkit.plan.energy import (
    EnergyEstimate,
    Workload,
    _workload,
    add_energy,
    choose_method,
    energy_of_estimate,
    figures_for,
    price_work,
    spend,
)
from fomkit.profiles.machine_record import save_machine
from fomkit.profiles.machines import load_machine

LEVEL = 0.8


def told(*arguments: str) -> str:
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    return done.stdout


def fact(value: float, spread: float = 0.0, basis: str = "modelled") -> Fact:
    ends = value * (1 - spread), value * (1 + spread)
    return Fact(value, *ends, basis, "worked by hand")  # type: ignore[arg-type]


def ops(*rows: tuple[float, float, float, float], dtype: str = "fp32") -> pd.DataFrame:
    """Rows of count, flop, byte and time [s]."""
    table = pd.DataFrame(rows, columns=["count", "flop", "byte", "time_s"], dtype=float)
    return table.assign(dtype=dtype, engine="vector")


def known(**changes: object) -> Energy:
    whole = Energy(
        "chip", 1, 45e-9, fact(10.0, 0.1), (FlopEnergy("fp32", "", fact(2.3e-12, 0.2)),), fact(160e-12, 0.3)
    )
    return replace(whole, **changes)  # type: ignore[arg-type]


def spent_of(table: pd.DataFrame, energy: Energy, wall_s: Span) -> Span:
    figures, _ = figures_for(table, energy)
    work = price_work(table, energy, figures, LEVEL)
    method, missing = choose_method(energy, Workload("m", 1, "fp32"), work, LEVEL)
    assert method is not None, missing
    return spend(method, wall_s, work).energy_j


# --- numbers that can be checked by hand -----------------------------------------------------------------------


def test_energies_of_45_nm() -> None:
    """0.9 / 3.7 / 5 / 640 pJ: fp32 addition and product, 32 bits of SRAM and of DRAM (45 nm)."""
    sram, dram = (parse_quantity(text, "joule_per_byte", "", "") for text in ("1.25 pJ/B", "160 pJ/B"))
    assert dram / sram == pytest.approx(128)
    assert parse_quantity("20 pJ/bit", "joule_per_byte", "", "") == pytest.approx(dram)
    assert 4 * dram == pytest.approx(640e-12)
    # A fused multiply-add is 2 flop: (0.9 + 3.7) / 2 pJ each.
    each = parse_quantity("2.3 pJ/flop", "joule_per_flop", "", "")
    assert 2 * each == pytest.approx(4.6e-12)
    # A product of 100×100×100, its three matrices moved once: 2e6 flop, 12e4 byte; 4.6 µJ and 19.2 µJ.
    table = ops((1, 2e6, 12e4, 0.0))
    energy = known(idle_w=fact(1e-9))
    terms = price_work(table, energy, figures_for(table, energy)[0], LEVEL).terms
    assert terms["flop fp32 vector"].value == pytest.approx(4.6e-6)
    assert terms["byte"].value == pytest.approx(19.2e-6)


def test_a_step_worked_by_hand() -> None:
    """3 × 1e9 flop at 2.3 pJ + 3 × 1e6 byte at 160 pJ + 10 W × 0.01 s = 6.9 + 0.48 + 100 mJ."""
    found = spent_of(ops((3, 1e9, 1e6, 3e-3)), known(), Span.exact(0.01))
    assert found.value == pytest.approx(0.10738)
    # Half-widths: 20 % of 6.9, 30 % of 0.48; of idle power 10 %: in quadrature.
    assert found.high - found.value == pytest.approx(math.hypot(1.38e-3, 0.144e-3, 0.01), rel=1e-6)


def test_an_op_without_flop_takes_what_its_bytes_take_and_the_other_way_round() -> None:
    table, energy = ops((1, 0.0, 1e6, 1e-3), (1, 1e9, 0.0, 1e-3), (1, 0.0, 0.0, 1e-3)), known()
    figures, _ = figures_for(table, energy)
    method, _ = choose_method(energy, Workload("m", 1, "fp32"), price_work(table, energy, figures, LEVEL), LEVEL)
    assert method is not None
    found = add_energy(table, energy, method, figures)
    assert found["work_j"].tolist() == pytest.approx([1e6 * 160e-12, 1e9 * 2.3e-12, 0.0])


def test_a_node_is_shared_by_its_devices() -> None:
    node = known(scope="node", devices=4)
    alone, shared = (spent_of(ops((1, 0, 0, 1.0)), one, Span.exact(1.0)).value for one in (known(), node))
    assert alone == pytest.approx(10.0)
    assert shared == pytest.approx(2.5)


# --- laws ------------------------------------------------------------------------------------------------------

AMOUNT = st.floats(1.0, 1e12)
ROW = st.tuples(st.floats(1, 50), AMOUNT, AMOUNT, st.floats(1e-6, 1.0))
ROWS = st.lists(ROW, min_size=1, max_size=8)


@given(ROWS, ROWS)
def test_energy_adds_over_ops(first: list[tuple[float, ...]], second: list[tuple[float, ...]]) -> None:
    tables = [ops(*first), ops(*second), ops(*first, *second)]  # type: ignore[arg-type]
    walls = [float((one["time_s"] * one["count"]).sum()) for one in tables]
    parts = [spent_of(table, known(), Span.exact(wall)).value for table, wall in zip(tables, walls, strict=True)]
    assert parts[2] == pytest.approx(parts[0] + parts[1], rel=1e-9)


@given(ROWS, st.floats(0.5, 1.0), st.floats(1.0, 3.0))
def test_energy_is_never_below_idle_power(rows: list[tuple[float, ...]], low: float, high: float) -> None:
    wall = Span(2.0, 2.0 * low, 2.0 * high)
    found = spent_of(ops(*rows), known(), wall)  # type: ignore[arg-type]
    assert found.low <= found.value <= found.high
    assert found.value >= 10.0 * wall.value
    assert found.low >= 9.0 * wall.low * (1 - 1e-9)


@given(ROWS)
def test_columns_of_ops_add_up_to_the_step_and_nothing_else_changes(rows: list[tuple[float, ...]]) -> None:
    table, energy = ops(*rows), known()  # type: ignore[arg-type]
    before = table.copy()
    figures, _ = figures_for(table, energy)
    work = price_work(table, energy, figures, LEVEL)
    method, _ = choose_method(energy, Workload("m", 1, "fp32"), work, LEVEL)
    assert method is not None
    once = add_energy(table, energy, method, figures)
    pd.testing.assert_frame_equal(table, before)
    pd.testing.assert_frame_equal(once[before.columns], before)
    pd.testing.assert_frame_equal(add_energy(once, energy, method, figures), once)
    wall = float((table["time_s"] * table["count"]).sum())
    total = float((once["energy_j"] * once["count"]).sum())
    assert total == pytest.approx(spend(method, Span.exact(wall), work).energy_j.value, rel=1e-9)


@given(st.lists(st.tuples(st.floats(0.01, 5.0), st.floats(0.0, 500.0)), min_size=2, max_size=20), st.floats(0, 9))
def test_an_integral_lies_between_its_steps_and_splits_anywhere(
    steps: list[tuple[float, float]], error_w: float
) -> None:
    moments = np.cumsum([length for length, _ in steps])
    samples = [Sample(float(at), power) for at, (_, power) in zip(moments, steps, strict=True)]
    found = integrate(samples, error_w=error_w)
    powers = [one.power_w for one in samples]
    length = samples[-1].moment_s - samples[0].moment_s
    assert min(powers) * length <= found.energy_j.value * (1 + 1e-9) + 1e-9
    assert found.energy_j.value <= max(powers) * length * (1 + 1e-9) + 1e-9
    assert found.energy_j.low <= found.energy_j.value <= found.energy_j.high
    middle = (samples[0].moment_s + samples[-1].moment_s) / 2
    halves = integrate(samples, None, middle).energy_j.value + integrate(samples, middle, None).energy_j.value
    assert halves == pytest.approx(found.energy_j.value, rel=1e-9, abs=1e-9)


@given(st.floats(0, 100), st.floats(0, 99))
def test_a_counter_goes_forward_once_round_at_most(before: float, forward: float) -> None:
    after = (before + forward) % 100
    assert counted(before, after, 100.0, 1e-3) % 100 == pytest.approx(forward % 100, abs=1e-9)


# --- which figures are taken -----------------------------------------------------------------------------------


def measured(workload: str, power: float, **conditions: object) -> AveragePower:
    return AveragePower(workload, fact(power, 0.1, "measured"), "chip", **conditions)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("average", "time_measured", "name", "power", "basis"),
    [
        ((measured("m", 50.0),), True, "average_power", 50.0, "measured"),
        ((measured("m", 50.0),), False, "average_power", 50.0, "modelled"),
        ((measured("m", 50.0), measured("m", 60.0, batch=8)), True, "average_power", 60.0, "measured"),
        ((measured("m", 50.0, batch=9), measured("n", 70.0)), True, "per_work", 10.0, "modelled"),
        ((measured(TIMED_OPS, 80.0),), True, "power_of_ops", 0.75 * 80 + 0.25 * 10, "modelled"),
        ((measured("m", 50.0, precision="fp16"),), True, "per_work", 10.0, "modelled"),
    ],
)
def test_measured_power_goes_first_under_its_own_conditions_only(
    average: tuple[AveragePower, ...], time_measured: bool, name: str, power: float, basis: str
) -> None:
    energy, table = known(average=average), ops((1, 1e9, 1e6, 1e-3))
    work = price_work(table, energy, figures_for(table, energy)[0], LEVEL)
    method, missing = choose_method(energy, Workload("m", 8, "fp32", 0.75, time_measured), work, LEVEL)
    assert method is not None
    assert not missing
    assert (method.name, method.basis) == (name, basis)
    assert method.power_w.value == pytest.approx(power)
    assert (method.process_m is not None) == (name == "per_work")


@pytest.mark.parametrize(
    ("changes", "table", "said"),
    [
        ({"idle_w": None}, ops((1, 1e9, 1e6, 1.0)), "idle power"),
        ({"byte_j": None}, ops((1, 1e9, 1e6, 1.0)), "byte of memory traffic"),
        ({}, ops((1, 1e9, 1e6, 1.0), dtype="fp16"), "fp16 on the vector engine"),
        ({}, ops((1, math.nan, 1e6, 1.0)), "1 row of ops has no count"),
        (
            {"idle_w": None, "per_flop": (), "byte_j": None, "limit_w": fact(300.0)},
            ops((1, 1, 1, 1.0)),
            "idle power",
        ),
    ],
)
def test_what_nobody_stated_is_missing_and_no_zero(
    changes: dict[str, object], table: pd.DataFrame, said: str
) -> None:
    energy = known(**changes)
    work = price_work(table, energy, figures_for(table, energy)[0], LEVEL)
    method, missing = choose_method(energy, Workload("m", 1, "fp32"), work, LEVEL)
    assert method is None
    assert said in "; ".join(missing)


def test_a_device_that_never_waits_needs_no_idle_power() -> None:
    energy, table = known(average=(measured(TIMED_OPS, 80.0),), idle_w=None), ops((1, 1e9, 1e6, 1e-3))
    work = price_work(table, energy, figures_for(table, energy)[0], LEVEL)
    busy, waiting = (
        choose_method(energy, Workload("m", 8, "fp32", share), work, LEVEL)[0] for share in (1.0, 0.9)
    )
    assert busy is not None
    assert (busy.name, busy.power_w.value) == ("power_of_ops", 80.0)
    assert waiting is None


def test_a_device_is_busy_for_its_own_share_of_a_step() -> None:
    found = fomkit.estimate("candle/p1b3", "v100")
    waiting = replace(found, step_time=replace(found.step_time, wall_s=found.step_time.device_s.scaled(4.0)))
    assert _workload(waiting).busy_share == pytest.approx(0.25)


def test_work_without_traffic_needs_no_energy_of_a_byte() -> None:
    """1e9 flop at 2.3 pJ and 10 W × 0.01 s: 2.3 + 100 mJ."""
    found = spent_of(ops((1, 1e9, 0.0, 1e-3)), known(byte_j=None), Span.exact(0.01))
    assert found.value == pytest.approx(0.1023)


def test_a_trifle_in_another_format_takes_the_dearest_figure_and_is_said() -> None:
    table = pd.concat([ops((1, 1e9, 1e6, 1.0)), ops((1, 53, 8, 1e-6), dtype="int64")], ignore_index=True)
    figures, said = figures_for(table, known())
    assert figures["int64", "vector"].value == 2.3e-12
    assert "int64 on the vector engine" in said[0]
    assert ("int64", "vector") not in figures_for(ops((1, 1e9, 1e6, 1.0), dtype="int64"), known())[0]


def test_the_limit_of_a_chip_cuts_an_interval_but_no_value() -> None:
    table, energy = ops((1, 0, 0, 1.0)), known(idle_w=fact(10.0, 0.5))
    method, _ = choose_method(energy, Workload("m", 1, "fp32"), price_work(table, energy, {}, LEVEL), LEVEL)
    assert method is not None
    work = price_work(table, energy, {}, LEVEL)
    assert spend(method, Span.exact(1.0), work, 12.0).energy_j.high == 12.0
    assert spend(method, Span.exact(1.0), work, 9.0).energy_j.high == 10.0


# --- instruments -----------------------------------------------------------------------------------------------


def test_a_counter_that_may_have_gone_round_twice_tells_nothing() -> None:
    assert counted(90.0, 10.0, 100.0, 0.01) == pytest.approx(20.0)
    with pytest.raises(FomkitError, match="wrapped once more"):
        counted(10.0, 20.0, 100.0, 1.0)
    with pytest.raises(FomkitError, match="outside 0 to 100 J"):
        counted(10.0, 101.0, 100.0, 0.01)


def test_a_gap_widens_and_is_told() -> None:
    samples = [Sample(float(at), power) for at, power in ((0, 10.0), (1, 10.0), (2, 10.0), (12, 10.0), (13, 30.0))]
    found = integrate(samples)
    assert [(gap.moment_s, gap.length_s) for gap in found.gaps] == [(2.0, 10.0)]
    assert found.energy_j == Span(140.0, 130.0, 140.0 + 10 + 200)
    assert integrate(samples, error_w=2.0).energy_j.low == pytest.approx(130.0 - 26)


@pytest.mark.parametrize(
    ("samples", "cut", "said"),
    [
        ([], (None, None), "two readings"),
        ([Sample(0, 1.0)], (None, None), "two readings"),
        ([Sample(1, 1.0), Sample(1, 1.0)], (None, None), "Sort the readings"),
        ([Sample(0, 1.0), Sample(1, -1.0)], (None, None), "below 0"),
        ([Sample(0, 1.0), Sample(1, math.nan)], (None, None), "not a number"),
        ([Sample(0, 1.0), Sample(1, 1.0)], (0.7, 0.2), "not after the start"),
        ([Sample(0, 1.0), Sample(1, 1.0)], (0.5, 0.5), "not after the start"),
        ([Sample(0, 1.0), Sample(1, 1.0)], (-1.0, 0.5), "Nothing is extrapolated"),
        ([Sample(0, 1.0), Sample(1, 1.0)], (0.0, 1.5), "Nothing is extrapolated"),
    ],
)
def test_readings_that_make_no_energy(
    samples: list[Sample], cut: tuple[float | None, float | None], said: str
) -> None:
    with pytest.raises(FomkitError, match=said):
        integrate(samples, *cut)


# --- files and commands ----------------------------------------------------------------------------------------

MACHINE = """schema: fomkit/machine/1
name: mine
device:
  peak: [{dtype: fp32, engine: vector, rate: 10 TFLOP/s, source: example}]
  memory: {bandwidth: 500 GB/s, capacity: 16 GiB, source: example}
  launch: {per_op: 5 us, low: 3 us, high: 10 us, basis: assumed}
energy:
"""
WHOLE = """  scope: chip
  process: 45 nm
  idle: {power: 40 W, low: 35 W, high: 50 W, source: example}
  per_flop: [{dtype: fp32, energy: 2.3 pJ/flop, low: 2 pJ/flop, high: 3 pJ/flop, source: example}]
  per_byte: {energy: 160 pJ/B, source: example}
  average:
    - {workload: resnet50, batch: 32, power: 245 W, low: 240 W, high: 250 W, source: log}
    - {workload: gpt2, scope: wall, devices: 8, power: 3 kW, source: log}
  limit: {power: 300 W, source: example}
"""
Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def file(energy: str) -> Path:
        path = tmp_path / "mine.yaml"
        path.write_text(MACHINE + energy, encoding="utf-8")
        return path

    return file


def test_a_profile_says_the_same_once_saved(write: Write, tmp_path: Path) -> None:
    machine = load_machine(write(WHOLE))
    assert machine.energy is not None
    assert machine.energy.process_m == 45e-9
    assert [one.devices for one in machine.energy.average] == [1, 8]
    save_machine(machine, tmp_path / "again.yaml")
    assert load_machine(tmp_path / "again.yaml").energy == machine.energy


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("  process: 45 nm\n", "", "needs the process node"),
        ("process: 45 nm", "process: 45", "has no unit"),
        ("2.3 pJ/flop", "2.3 pJ", "not a unit of energy per operation"),
        ("2.3 pJ/flop", "12 pJ/flop", "low ≤ value ≤ high"),
        ("power: 40 W", "power: 0 W", "must be above 0"),
        ("power: 40 W", "power: -1 W", "0 or more"),
        ("power: 40 W", "power: 40 J", "not a unit of power"),
        ("power: 40 W", "power: .nan W", "not a number with a unit"),
        ("power: 40 W, low: 35 W, high: 50 W", "power: 400 W", "above the chip's limit"),
        ("scope: chip\n", "scope: device\n", "energy.scope is 'device'"),
        ("  scope: chip\n", "", "energy.scope is missing"),
        ("  scope: chip\n", "  scope: node\n", "the number of devices that its power covers"),
        ("scope: chip\n", "scope: chip\n  devices: 2\n", "a chip is one device"),
        ("wall, devices: 8,", "wall,", "the number of devices that its power covers"),
        ("dtype: fp32, energy", "dtype: fp23, energy", "'fp23' is not a number format"),
        ("[{dtype: fp32, energy: 2.3", "[{dtype: fp32, energy: 1 pJ/flop, source: x}, {dtype: fp32, energy: 2.3",
         "twice"),
        ("limit: {power", "limits: {power", "not a known key"),
        ("limit: {power: 300 W, source: example}", "limit: {power: 300 W}", "limit.source is missing"),
    ],
)  # fmt: skip
def test_a_profile_that_cannot_be(write: Write, old: str, new: str, said: str) -> None:
    assert old in MACHINE + WHOLE
    path = write("")
    path.write_text((MACHINE + WHOLE).replace(old, new, 1), encoding="utf-8")
    with pytest.raises(FomkitError) as error:
        load_machine(path)
    assert said in str(error.value)
    assert "mine.yaml:" in str(error.value)


def test_an_energy_part_without_a_figure_is_refused(write: Write) -> None:
    with pytest.raises(FomkitError, match="energy has no value"):
        load_machine(write("  scope: chip\n"))


def test_a_figure_is_measured_only_where_its_basis_says_so(write: Write) -> None:
    """Idle power without a basis counted as measured, whatever its source."""
    energy = load_machine(write(WHOLE)).energy
    stated = load_machine(write(WHOLE.replace("source: log", "source: log, basis: measured"))).energy
    assert (energy.idle_w.basis, {one.power_w.basis for one in energy.average}) == ("estimated", {"estimated"})
    assert {one.power_w.basis for one in stated.average} == {"measured"}


@pytest.mark.parametrize(("energy", "method"), [(WHOLE, "per_work"), (WHOLE.replace("  idle", "  #"), None)])
def test_a_power_for_another_batch_is_set_aside_aloud(write: Write, energy: str, method: str | None) -> None:
    path = str(write(energy))
    one = json.loads(told("estimate", "resnet50", "--target", path, "--batch", "64", "--json"))["models"][0]
    assert one["energy_j"]["method"] == method
    said = "the mean power of resnet50 for batch 32 is not used"
    assert said in one["energy_j"]["missing" if method is None else "notes"]
    assert said in told("estimate", "resnet50", "--target", path, "--batch", "64")
    assert said not in told("estimate", "resnet50", "--target", path, "--batch", "32")


def test_estimate_tells_energy_with_scope_basis_and_process(write: Write) -> None:
    path = str(write(WHOLE))
    done = json.loads(told("estimate", "p1b3", "resnet50", "gpt2", "--target", path, "--json"))
    p1b3, resnet50, gpt2 = (one["energy_j"] for one in done["models"])
    step_s = done["models"][0]["step_s"]["value"]
    assert (p1b3["method"], p1b3["scope"], p1b3["basis"]) == ("per_work", "chip", "modelled")
    assert p1b3["process_m"] == 45e-9
    assert p1b3["terms_step"]["idle power"]["value"] == pytest.approx(40 * step_s)
    assert sum(one["value"] for one in p1b3["terms_step"].values()) == pytest.approx(p1b3["step"]["value"])
    assert p1b3["step"]["low"] < p1b3["step"]["value"] < p1b3["step"]["high"]
    assert p1b3["run"]["value"] > p1b3["epoch"]["value"] > p1b3["step"]["value"]
    # Validation comes on top: its time at idle power at least, and no more than as many steps would take.
    terms = done["models"][0]["terms"]
    validated = p1b3["epoch"]["value"] - terms["steps_per_epoch"] * p1b3["step"]["value"]
    validation_s = terms["validation_s"]["value"]
    assert 40 * validation_s < validated < validation_s / step_s * p1b3["step"]["value"]
    steps = done["models"][1]["terms"]["steps_per_epoch"]
    assert resnet50["epoch"]["value"] == pytest.approx(steps * resnet50["step"]["value"], rel=1e-6)
    assert p1b3["step_at_most"] == pytest.approx(300 * done["models"][0]["step_s"]["high"])
    assert resnet50["method"] == "average_power"
    assert resnet50["step"]["value"] == pytest.approx(245 * done["models"][1]["step_s"]["value"])
    assert (gpt2["scope"], gpt2["process_m"]) == ("wall", None)
    assert gpt2["step"]["value"] == pytest.approx(3000 / 8 * done["models"][2]["step_s"]["value"])


def test_the_text_has_a_line_of_energy_and_explain_its_terms(write: Write) -> None:
    said = told("estimate", "p1b3", "--target", str(write(WHOLE)), "--explain")
    (line, again) = (one for one in said.splitlines() if one.strip().startswith("energy: p1b3 on mine:"))
    assert again.strip() == line
    for word in ("per step", "per run", "modelled", "scope chip", "45 nm process", "idle power"):
        assert word in line
    for term in ("  idle power: ", "  flop fp32 vector: ", "  byte: ", "  at most "):
        assert term in said


@pytest.mark.parametrize(
    ("flop", "said"),
    [("2.3 pJ/flop, source", True), ("2.3 pJ/flop, low: 2 pJ/flop, high: 3 pJ/flop, source", False)],
)
def test_figures_of_work_state_no_spread_only_where_none_of_them_does(write: Write, flop: str, said: bool) -> None:
    """The energy of a byte states no spread in either case."""
    energy = WHOLE.replace("2.3 pJ/flop, low: 2 pJ/flop, high: 3 pJ/flop, source", flop)
    found = energy_of_estimate(fomkit.estimate("p1b3", write(energy)))
    assert found is not None
    assert ("the figures per flop and byte have no stated interval" in " ".join(found.notes)) is said


@pytest.mark.parametrize(("share", "said"), [(0.99, True), (1.01, False)])
def test_a_mean_power_above_the_limit_is_told(write: Write, share: float, said: bool) -> None:
    path = write(WHOLE)
    found = fomkit.estimate("p1b3", load_machine(path))
    whole = energy_of_estimate(found)
    assert whole is not None
    assert whole.step is not None
    mean_w = whole.step.energy_j.value / found.step.value
    assert (
        50 < mean_w < 40 + 500e9 * 160e-12 + 10e12 * 2.3e-12
    )  # idle power, and all that memory and sums can take
    energy = replace(found.machine.energy, limit_w=fact(share * mean_w))
    limited = energy_of_estimate(replace(found, machine=replace(found.machine, energy=energy)))
    assert limited is not None
    assert any(f"a mean power of {mean_w:.3g} W is above" in note for note in limited.notes) == said


def test_a_limit_alone_bounds_and_gives_no_energy(write: Write) -> None:
    path = str(write("  scope: chip\n  limit: {power: 300 W, source: example}\n"))
    said = told("estimate", "p1b3", "--target", path)
    assert "energy: p1b3 on mine: at most " in said
    assert ": the upper end of the time at 300 W a chip, its power limit and no average\n" in said
    (one,) = json.loads(told("estimate", "p1b3", "--target", path, "--json"))["models"]
    energy = one["energy_j"]
    assert (energy["step"], energy["run"], energy["basis"]) == (None, None, None)
    assert energy["step_at_most"] == pytest.approx(300 * one["step_s"]["high"])
    assert energy["run_at_most"] == pytest.approx(300 * one["run_s"]["high"])
    cost = json.loads(told("cost", "p1b3", "--target", path, "--json"))["energy_j"]
    assert (cost["run"], cost["run_at_most"], cost["limit_w"]) == (None, energy["run_at_most"], 300)


def test_a_lower_bound_of_the_time_and_no_run_bound_no_energy(write: Write) -> None:
    path = write("  scope: chip\n  limit: {power: 300 W, source: example}\n")
    part = energy_of_estimate(fomkit.estimate("llama3-8b", path, allow_uncovered=True))
    assert (part.most_step_j, part.most_run_j, part.missing[-1]) == (None, None, "some ops have no time")
    assert "energy: missing, neither idle power" in told("cost", "candle/p3b2", "-t", str(path))


def of_job(path: Path, model: str, layout: str) -> tuple[fomkit.Estimate, EnergyEstimate]:
    found = fomkit.estimate(model, path, nodes=2, layout=layout, batch=64)
    energy = energy_of_estimate(found)
    assert found.job is not None
    assert energy is not None
    return found, energy


BF16 = "{dtype: bf16, engine: matrix, rate: 40 TFLOP/s, source: example}"
SERVER = """node: {devices: 4}
links:
  - {tier: node, alpha: 5 us, bandwidth: 100 GB/s, direction: each, source: example}
  - {tier: system, alpha: 5 us, bandwidth: 25 GB/s, direction: each, source: example}
"""


def test_the_energy_of_a_run_on_several_devices(write: Write) -> None:
    """A mean power of the model holds for its copies; parts of it take that of timed ops; a limit bounds both."""
    timed = "    - {workload: timed ops, power: 200 W, source: log}\n"
    path = write(WHOLE + SERVER)
    found, energy = of_job(path, "resnet50", "data=8")
    assert energy.method is None  # the power was measured at batch 32, a device has 8 samples
    assert "priced on one device only" in energy.missing[0]
    assert energy.most_step_j == pytest.approx(8 * 300 * found.step.high)
    found, energy = of_job(write(WHOLE.replace(" batch: 32,", "") + SERVER), "resnet50", "data=8")
    assert (energy.method.name, energy.method.basis, energy.devices) == ("average_power", "modelled", 8)
    assert energy.step.energy_j.value == pytest.approx(8 * 245 * found.step.value)
    assert energy.run.energy_j.value == pytest.approx(8 * 245 * found.run_time.run_s.value)
    assert "without the energy of links and switches" in energy.notes
    path = write(WHOLE.replace("  limit", timed + "  limit") + SERVER)
    path.write_text(path.read_text().replace("peak: [", f"peak: [{BF16}, "))
    found, energy = of_job(path, "megatron/gpt-22b", "tensor=8")
    busy = found.job.compute_s.value / found.step.value
    assert 0.1 < busy < 0.95
    assert energy.method.name == "power_of_ops"
    assert energy.step.energy_j.value == pytest.approx(8 * (200 * busy + 40 * (1 - busy)) * found.step.value)


def test_a_machine_that_states_nothing_has_no_energy() -> None:
    (one,) = json.loads(told("estimate", "p1b3", "--target", "x86-lecture", "--json",
                                "--allow-uncovered"))["models"]  # fmt: skip
    assert one["energy_j"] is None


def test_the_page_computes_what_it_says(root: Path) -> None:
    import doctest

    failed, tried = doctest.testfile(str(root / "docs/energy.md"), module_relative=False)
    assert (failed, tried) == (0, 4)


def test_an_energy_is_no_time_for_the_second_way(tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    path.write_text(
        "model,machine,quantity,value,batch,precision,devices,scope,basis\n"
        "p1b3,p100,step_s,0.05,100,fp32,1,device,measured\n"
        "p1b3,p100,energy_j,9000,100,fp32,1,wall,measured\n",
        encoding="utf-8",
    )
    said = told("estimate", "p1b3", "--target", "v100", "--baseline", "p100", "--from", str(path))
    assert "energy_j is not a time" in said

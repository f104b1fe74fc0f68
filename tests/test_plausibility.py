"""Implausible timings and facts are refused or left out, with the likely mistake."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from short_suite import short_suite
from typer.testing import CliRunner

from fomkit.cli.main import app
from fomkit.core.errors import FomkitError
from fomkit.core.machine import Device, Fact, Link, Machine, Peak
from fomkit.ops.pricing import add_costs
from fomkit.ops.tables import empty_table
from fomkit.plan.estimate import estimate
from fomkit.plan.options import Options
from fomkit.prediction.estimators import as_rows
from fomkit.prediction.rates import own_times
from fomkit.profiles import machines
from fomkit.profiles.claims import best_slips, claims_of, families_of, utilisation_at
from fomkit.profiles.evidence import with_fits, without_implausible
from fomkit.profiles.machine_record import save_machine
from fomkit.profiles.machines import load_machine
from fomkit.profiles.models import load_model
from fomkit.profiles.plausibility import _FASTEST, check_facts, check_timings
from fomkit.readers.registry import read_timings
from fomkit.readers.tables.neusight import read_neusight
from fomkit.verbs.machine_view import show_machine

ROOT = Path(__file__).resolve().parent.parent
MACHINES = sorted(path.stem for path in (ROOT / "machine_profiles").glob("*.yaml"))
SLIPPED = ["v100", "p100", "titan-x", "iphone-6", "iphone-7", "h200-sxm", "knl-7250", "raspberry-pi-3", "mi25"]
QUARANTINED: dict[str, tuple[str, ...]] = {}
"""Every row of a shipped or shared table that is left out, by table: none; list a new one with its reason."""

SHEETS = {
    "train/DeepBench_AMD_MI25": "mi25", "train/DeepBench_AMD_VegaFE": "vega-fe",
    "train/DeepBench_IA_KNL7250": "knl-7250", "train/DeepBench_NV_1080Ti": "gtx-1080-ti",
    "train/DeepBench_NV_M40": "m40", "train/DeepBench_NV_P100": "p100", "train/DeepBench_NV_TitanX": "titan-x",
    "train/DeepBench_NV_TitanX_Pascal": "titan-x-pascal", "train/DeepBench_NV_V100": "v100",
    "inference/DeepBench_NV_1080Ti": "gtx-1080-ti", "inference/DeepBench_NV_TitanX_Pascal": "titan-x-pascal",
    "inference/DeepBench_Raspberry_Pi_3": "raspberry-pi-3", "inference/DeepBench_iPhone_6": "iphone-6",
    "inference/DeepBench_iPhone_7": "iphone-7",
}  # fmt: skip
LABELS = {
    "A100-PCIe-40GB": "a100-pcie-40gb", "P100-PCIe-16GB": "p100-pcie-16gb", "P4": "p4", "T4": "t4",
    "V100-PCIe-32GB": "v100-pcie-32gb", "MI100": "",
}  # fmt: skip
# Datasheets: fp32 on the vector engine, bf16 and fp8 on the matrix engine [flop/s], bandwidth [byte/s].
SYSTEMS = {
    "a100_sxm": (19.5e12, 312e12, 624e12, 2.039e12), "h100_sxm": (67e12, 989e12, 1979e12, 3.35e12),
    "h200_sxm": (67e12, 989e12, 1979e12, 4.8e12), "l40s": (91.6e12, 362e12, 733e12, 864e9),
    "b200_sxm": (80e12, 2250e12, 4500e12, 8e12), "gb200": (80e12, 2500e12, 5000e12, 8e12),
}  # fmt: skip
KINDS = ("gemm", "context_attention", "generation_attention", "nccl", "attention_prefill")


def fact(value: float) -> Fact:
    return Fact(value, value, value, "published", "a datasheet")


def test_where_no_machine_is_like_one_its_own_peak_is_what_timings_are_held_against() -> None:
    """Without a stated bandwidth, no machine is known to have a similar balance."""
    of = with_fits(load_machine("v100"))
    alone = replace(of, device=replace(of.device, byte_per_s=None))
    timings, first = add_costs(of.timings.head(5)), np.arange(5)
    assert (utilisation_at(timings, alone, first) == 1).all()
    assert (utilisation_at(timings, of, first) < 1).all()


def board(
    vector: float, byte_per_s: float, narrow: tuple[float, float] | None = None, name: str = "NVIDIA board"
) -> Machine:
    peaks = [Peak("fp32", "vector", fact(vector))]
    if narrow is not None:
        peaks += [Peak(dtype, "matrix", fact(narrow[0])) for dtype in ("bf16", "fp16")]
        peaks += [Peak(dtype, "matrix", fact(narrow[1])) for dtype in ("fp8", "int8")]
    launch = Fact(5e-6, 3e-6, 10e-6, "assumed", "usual")
    device = Device(peaks=tuple(peaks), byte_per_s=fact(byte_per_s), launch_s=launch)
    return Machine("board", name, "published", device, empty_table("TIMINGS"))


def timed(machine: Machine, timings: pd.DataFrame) -> Machine:
    return replace(machine, timings=timings, fits={}, timings_key="", plausibility=None)


def times(machine: Machine, factor: float, rows: list[int] | slice = slice(None)) -> Machine:
    timings = machine.timings.copy()
    for name in ("time_s", "p25_s", "p75_s"):
        if name in timings:
            column = timings.columns.get_loc(name)
            timings.iloc[rows, column] = timings.iloc[rows, column] * factor
    return timed(machine, timings)


def with_rates(machine: Machine, factor: float, dtype: str = "") -> Machine:
    """Return a machine with another peak of a format, or with another bandwidth where none is named."""
    device = machine.device

    def times_factor(known: Fact) -> Fact:
        return replace(known, value=known.value * factor, low=known.low * factor, high=known.high * factor)

    if not dtype:
        assert device.byte_per_s is not None
        changed = replace(device, byte_per_s=times_factor(device.byte_per_s))
    else:
        peaks = [replace(one, rate=times_factor(one.rate)) if one.dtype == dtype else one for one in device.peaks]
        changed = replace(device, peaks=tuple(peaks))
    return replace(machine, device=changed, fits={}, timings_key="")


def found(machine: Machine) -> tuple[tuple[str, ...], tuple[str, ...]]:
    verdict = without_implausible(machine).plausibility
    assert verdict is not None
    return verdict.quarantined, verdict.suspicions


@pytest.mark.parametrize("name", MACHINES)
def test_no_shipped_machine_is_suspected(name: str) -> None:
    machine = load_machine(ROOT / "machine_profiles" / f"{name}.yaml")
    assert found(machine) == (QUARANTINED.get(name, ()), ())
    assert without_implausible(machine).timings is machine.timings or name in QUARANTINED


@pytest.mark.parametrize("sheet", SHEETS)
def test_no_sheet_of_deepbench_is_suspected(shared: Path, sheet: str) -> None:
    machine = load_machine(SHEETS[sheet])
    timings = read_timings(shared / "data/deepbench" / f"{sheet}.xlsx").timings
    assert found(timed(machine, timings)) == (QUARANTINED.get(sheet, ()), ())


@pytest.mark.parametrize("device", LABELS)
def test_no_table_of_neusight_is_suspected(kernels_of: dict[str, Path], device: str) -> None:
    machine = load_machine(LABELS[device]) if LABELS[device] else board(23.1e12, 1.2288e12, name="AMD CDNA MI100")
    timings = read_neusight(kernels_of[device], device).timings
    assert found(timed(machine, timings)) == (QUARANTINED.get(device, ()), ())


@pytest.mark.parametrize("system", SYSTEMS)
def test_no_table_of_modern_boards_is_suspected(shared: Path, system: str) -> None:
    """Products, prefill, decoding and exchanges of two sets, 0.9 million rows; none of these has like machines."""
    vector, bf16, fp8, byte_per_s = SYSTEMS[system]
    folder, seen = shared / "data/modern_gpus", 0
    for path in sorted(folder.glob(f"{system}[._]*.csv.gz")):
        kind = path.name.removesuffix(".csv.gz")[len(system) + 1 :]
        if kind not in KINDS or path.name == f"{system}.nccl.csv.gz":
            continue  # that one has another header, which no reader reads yet
        machine = board(vector, byte_per_s, (bf16, fp8))
        assert found(timed(machine, read_timings(path).timings)) == (QUARANTINED.get(path.name, ()), ())
        seen += 1
    assert seen >= 3


@pytest.mark.parametrize("name", SLIPPED)
@pytest.mark.parametrize(
    ("factor", "words"),
    [
        (1e3, "the times seem to be in milliseconds (about 1,000 × too long; "),
        (1e6, "the times seem to be in microseconds (about 1,000,000 × too long; "),
        (1e-3, "the times are too short, as if seconds had been read as milliseconds (about 1,000 ×; "),
    ],
)
def test_times_in_another_unit_are_refused_by_its_name(name: str, factor: float, words: str) -> None:
    with pytest.raises(FomkitError) as error:
        with_fits(times(load_machine(name), factor))
    assert error.value.where == f"{name}: timings"
    assert error.value.what.startswith(words)
    assert error.value.what.endswith("). Write seconds into time_s.")
    assert len(str(error.value)) < 330


@pytest.mark.parametrize(
    ("name", "dtype", "stated", "likely"),
    [
        ("v100", "fp32", "15.70 GFLOP/s", "15.70 TFLOP/s"),
        ("v100", "", "900.0 MB/s", "900.0 GB/s"),
        ("titan-x", "fp32", "6.600 GFLOP/s", "6.600 TFLOP/s"),
        ("h200-sxm", "", "4.800 GB/s", "4.800 TB/s"),
        ("a100-pcie-40gb", "fp32", "19.50 GFLOP/s", "19.50 TFLOP/s"),
        ("iphone-7", "fp32", "74.90 MFLOP/s", "74.90 GFLOP/s"),
    ],
)
def test_a_wrong_fact_is_named_and_not_the_timings(name: str, dtype: str, stated: str, likely: str) -> None:
    with pytest.raises(FomkitError) as error:
        without_implausible(with_rates(load_machine(name), 1e-3, dtype))
    assert error.value.where == f"{name}: facts"
    fact_name = f"the peak of {dtype} on the vector engine" if dtype else "the memory bandwidth"
    assert error.value.what.startswith(f"{fact_name}, {stated}, looks too low (about 1,000 ×: with {likely} the")
    assert error.value.what.endswith(f"). Correct device.{'peak' if dtype else 'memory.bandwidth'}.")


def of_kind(machine: Machine, *kinds: str) -> Machine:
    rows = machine.timings[machine.timings["kind"].isin(kinds)]
    return timed(machine, rows.reset_index(drop=True))


def with_peaks(machine: Machine, factor: float, places: tuple[int, ...] | None = None) -> Machine:
    """Return a machine with other peaks, all where no place is named."""
    peaks = [
        replace(one, rate=fact(one.rate.value * factor)) if places is None or place in places else one
        for place, one in enumerate(machine.device.peaks)
    ]
    return replace(machine, device=replace(machine.device, peaks=tuple(peaks)), fits={}, timings_key="")


def test_a_fact_that_is_too_high_is_suspected_from_timings_that_all_can_be() -> None:
    quarantined, (message,) = found(with_peaks(load_machine("p100"), 10, (0,)))
    assert quarantined == ()
    assert message.startswith(
        "the peak of fp32 on the vector engine, 93.00 TFLOP/s, looks too high (about 10 ×: with 9.300 TFLOP/s"
    )
    quarantined, suspicions = found(with_peaks(load_machine("v100"), 1e3))
    assert quarantined == ()
    assert any(
        text.startswith("all 4 peaks, the first of 15.70 PFLOP/s, look too high (about 1,000 ×")
        for text in suspicions
    )
    assert not any(text.startswith("the memory bandwidth") for text in suspicions)


@pytest.mark.parametrize(
    ("name", "places", "words"),
    [
        ("v100", None, "all 4 peaks, the first of 15.70 GFLOP/s, look too low (about 1,000 ×: with 15.70 TFLOP/s"),
        ("p100", (0, 2), "the peaks of fp32 on the vector engine and fp16 on the vector engine, the first of "
         "9.300 GFLOP/s, look too low (about 1,000 ×: with 9.300 TFLOP/s"),
    ],
)  # fmt: skip
def test_peaks_that_are_wrong_together_are_named_and_not_the_times(
    name: str, places: tuple[int, ...] | None, words: str
) -> None:
    with pytest.raises(FomkitError) as error:
        without_implausible(with_peaks(load_machine(name), 1e-3, places))
    assert error.value.where == f"{name}: facts"
    assert error.value.what.startswith(words)
    assert "time_s" not in error.value.what


@pytest.mark.parametrize(
    ("of", "words"),
    [
        (
            "times",
            "the times seem to be in milliseconds, or the peak of fp32 on the vector engine, 5.500 TFLOP/s, looks",
        ),
        (
            "peaks",
            "the peak of fp32 on the vector engine, 5.500 GFLOP/s, looks too low, or the times are too short",
        ),
    ],
)
def test_times_and_a_peak_that_explain_alike_are_both_named(of: str, words: str) -> None:
    """With products of one format and no bandwidth, a wrong unit of times looks like one of the peak."""
    machine = of_kind(load_machine("p4"), "gemm")
    machine = replace(machine, device=replace(machine.device, byte_per_s=None, peaks=machine.device.peaks[:1]))
    with pytest.raises(FomkitError) as error:
        without_implausible(times(machine, 1e3) if of == "times" else with_peaks(machine, 1e-3))
    assert error.value.where == "p4: timings or facts"
    assert error.value.what.startswith(words)
    assert error.value.what.endswith("Compare both with their sources, and correct the one that is wrong.")


def test_rows_that_only_a_wrong_bandwidth_makes_impossible_stay() -> None:
    quarantined, (message,) = found(with_rates(load_machine("p100"), 1 / 8))
    assert quarantined == ()
    assert message.startswith(
        "the memory bandwidth, 91.50 GB/s, looks too low (about 8 ×, bits instead of bytes?: with 732.0 GB/s "
        "the timings agree with the other facts; gemm/fp32/vector: 4 of 160 timings are physically impossible, "
        "up to 5.03 × the bandwidth)"
    )


def test_a_fact_is_refused_that_a_fiftieth_of_the_rows_denies() -> None:
    """33 of 1,182 rows are 2.8 %, 12 of 626 are 1.9 %."""
    with pytest.raises(FomkitError, match=r"^v100: facts: the memory bandwidth, 128\.6 GB/s, looks too low"):
        without_implausible(with_rates(load_machine("v100"), 1 / 7))
    quarantined, (message, *_) = found(with_rates(load_machine("titan-x"), 1 / 10))
    assert quarantined == ()
    assert message.startswith("the memory bandwidth, 33.65 GB/s, looks too low")


def with_impossible(wrong: Machine, beyond: int, rows: int) -> Machine:
    """Return a machine with so many of its timings that its facts make impossible, and others."""
    costed = add_costs(wrong.timings)
    impossible = claims_of(costed, own_times(costed), wrong.device, "gpu").impossible
    chosen = [*np.flatnonzero(impossible)[:beyond], *np.flatnonzero(~impossible)[: rows - beyond]]
    return timed(wrong, wrong.timings.iloc[sorted(chosen)].reset_index(drop=True))


@pytest.mark.parametrize(("rows", "beyond", "refused"), [(500, 10, True), (501, 10, False), (450, 9, False)])
def test_a_fact_is_wrong_from_ten_rows_and_a_fiftieth_on(rows: int, beyond: int, refused: bool) -> None:
    """The V100's timings with a seventh of its bandwidth."""
    machine = with_impossible(with_rates(load_machine("v100"), 1 / 7), beyond, rows)
    if refused:
        with pytest.raises(FomkitError, match=r"^v100: facts: the memory bandwidth, 128\.6 GB/s, looks too low"):
            without_implausible(machine)
    else:
        quarantined, (message, *_) = found(machine)
        assert quarantined == ()
        assert message.startswith("the memory bandwidth, 128.6 GB/s, looks too low")


@pytest.mark.parametrize(("beyond", "explained"), [(3, True), (2, False)])
def test_three_impossible_rows_are_a_facts_and_two_their_own(beyond: int, explained: bool) -> None:
    """The P100's products and convolutions with an eighth of its bandwidth."""
    machine = with_impossible(with_rates(load_machine("p100"), 1 / 8), beyond, 300)
    quarantined, suspicions = found(machine)
    assert len(quarantined) == (0 if explained else 2)
    assert any("the memory bandwidth, 91.50 GB/s, looks too low" in text for text in suspicions) == explained


def test_a_time_that_a_clock_cut_may_be_longer_by_its_step() -> None:
    """DeepBench prints whole microseconds: 30 may mean 31, so only shorter times are less than their harness."""
    rows = pd.DataFrame({"kind": "gemm", "dtype": "fp32", "engine": "vector", "b": 1.0, "m": 64.0, "n": 64.0,
                         "k": 64.0, "time_s": np.arange(21, 51) * 1e-6, "harness": "DeepBench"})  # fmt: skip
    costed = add_costs(rows)
    seen = claims_of(costed, own_times(costed), board(15e12, 900e9).device, "gpu")
    assert seen.printed == pytest.approx(np.arange(22, 52) * 1e-6)
    assert seen.seconds == pytest.approx(seen.printed)
    assert seen.compute_s == pytest.approx(2 * 64**3 / 15e12)
    timed_so = costed.assign(harness_s=20e-6)
    assert claims_of(timed_so, own_times(timed_so), board(15e12, 900e9).device, "gpu").seconds == pytest.approx(
        np.arange(2, 32) * 1e-6
    )


@pytest.mark.parametrize(("factor", "refused"), [(1e6, True), (1e4, False), (1e-3, False), (1e-6, True)])
def test_without_facts_a_rate_that_no_device_has_is_refused(factor: float, refused: bool) -> None:
    """The P4 reaches some 5e12 flop/s; any rate from 1e7 to 1e17 is accepted."""
    rows = of_kind(load_machine("p4"), "gemm").timings.assign(harness_s=0.0)
    products = timed(replace(load_machine("p4"), device=Device()), rows)
    if refused:
        with pytest.raises(
            FomkitError, match=r"gemm/fp32/vector: the fastest of 3,291 .*outside the plausible range"
        ):
            without_implausible(times(products, factor))
    else:
        assert found(times(products, factor)) == ((), ())
    few = timed(products, products.timings.head(4))
    assert found(times(few, factor)) == ((), ())


def test_products_that_their_harness_outlasts_are_refused_for_that_alone() -> None:
    """Without facts their utilisation is unknown, and their rate is not called impossible."""
    machine = of_kind(load_machine("p4"), "gemm")
    machine = replace(machine, device=Device())
    with pytest.raises(FomkitError) as error:
        without_implausible(timed(machine, machine.timings.assign(harness_s=1e6)))
    assert "families" not in error.value.what
    assert "outside the plausible range" not in error.value.what


def test_a_table_without_rows_has_no_slips_and_nothing_impossible() -> None:
    machine = load_machine("titan")
    none = add_costs(machine.timings.head(0))
    seen = claims_of(as_rows(none), own_times(none), machine.device, "gpu")
    assert best_slips(as_rows(none), seen, families_of(as_rows(none)), machine, wrong=True) == []
    assert check_timings(none, machine) == ({}, ())


def test_small_tables_are_held_against_like_machines_too() -> None:
    machine = of_kind(load_machine("v100"), "gemm", "conv")
    products = machine.timings[machine.timings["kind"] == "gemm"]
    four = timed(machine, products.iloc[[3, 40, 80, 120]].reset_index(drop=True))
    assert found(four) == ((), ())
    with pytest.raises(FomkitError, match=r"v100: timings: the times seem to be in milliseconds .*Write seconds"):
        without_implausible(times(four, 1e3))
    # Beside a family that is right, the rows are left out by name; where they are only odd, they are suspected.
    convolutions = machine.timings[(machine.timings["kind"] == "conv")].iloc[:2]
    both = timed(machine, pd.concat([products, convolutions], ignore_index=True))
    assert found(both) == ((), ())
    last = list(range(len(both.timings) - 2, len(both.timings)))
    quarantined, suspicions = found(times(both, 1e3, last))
    assert len(quarantined) == 2
    assert all("× as long as on similar machines" in text for text in quarantined)
    assert suspicions == ()


def test_products_a_few_times_as_slow_as_elsewhere_accuse_no_fact() -> None:
    """A slow library explains the times almost as well as a bandwidth that is 8 × too high."""
    machine = of_kind(load_machine("titan-x"), "gemm")
    assert found(times(machine, 4)) == ((), ())
    _, (message, *_) = found(times(machine, 10))
    assert "looks too high (about 10 ×" in message


def test_products_that_are_all_near_the_peak_or_all_far_from_it_are_suspected() -> None:
    machine = of_kind(load_machine("titan-x"), "gemm")
    _, (message,) = found(times(machine, 5))
    assert "the fastest of 160 products reaches 16% of the peak" in message
    products = add_costs(machine.timings)
    at_peak = products["flop"] / machine.device.peaks[0].rate.value
    _, (message,) = found(timed(machine, machine.timings.assign(time_s=at_peak / 0.95)))
    assert "half of 160 products reach 95% of the peak" in message
    short = at_peak < 5e-5
    assert found(timed(machine, machine.timings[short].assign(time_s=5e-4).reset_index(drop=True))) == ((), ())


@pytest.mark.parametrize(("name", "most"), [("v100", "1.88 ×"), ("p100", "1.96 ×"), ("titan-x", "1.60 ×")])
def test_halved_times_are_suspected_by_their_products(name: str, most: str) -> None:
    _, (message, *_) = found(times(load_machine(name), 0.5))
    assert message.startswith("gemm/fp32/vector: ")
    assert f" of 160 products exceed the peak, up to {most}: halved times, a peak stated too low" in message


def test_bits_for_bytes_are_named_and_gibibytes_are_no_finding() -> None:
    with pytest.raises(
        FomkitError, match=r"112\.5 GB/s, looks too low \(about 8 ×, bits instead of bytes\?: with"
    ):
        without_implausible(with_rates(load_machine("v100"), 1 / 8))
    for factor in (2**30 / 1e9, 1e9 / 2**30):
        assert found(with_rates(load_machine("v100"), factor)) == ((), ())


@pytest.mark.parametrize(("factor", "row"), [(1e-3, 200), (1e3, 200), (1e-3, 261), (1e3, 700)])
@pytest.mark.parametrize("name", ["v100", "titan-x", "t4", "h200-sxm"])
def test_one_impossible_row_is_left_out_by_name(name: str, factor: float, row: int) -> None:
    """None of 69,000 timings takes over 212 × as long as on similar machines; this one takes 1000 ×."""
    machine = load_machine(name)
    row %= len(machine.timings) - 40
    changed = without_implausible(times(machine, factor, [row]))
    assert changed.plausibility is not None
    (message,) = changed.plausibility.quarantined
    assert message.startswith(f"row {row + 1}, {machine.timings['kind'].iat[row]} ")
    assert str(machine.timings["source_file"].iat[row]) in message
    assert len(changed.timings) == len(machine.timings) - 1
    assert changed.plausibility.messages(name)[0].startswith(
        f"{name}: 1 of {len(machine.timings):,} timings is physically impossible and is excluded from every "
        f"result: row {row + 1}, "
    )


def test_a_row_left_out_answers_nothing_and_no_answer_changes_because_of_it() -> None:
    """The row of the step's longest product is left out: its time comes from the others, with a note."""
    machine, model = load_machine("titan-x"), load_model("p1b3")
    rows = machine.timings[machine.timings["kind"] == "gemm"].index
    wrong = times(machine, 1e-3, [int(rows[3])])
    without = timed(machine, machine.timings.drop(index=rows[3]).reset_index(drop=True))
    first, second = (estimate(model, one, Options()) for one in (wrong, without))
    assert first.step == second.step
    assert first.ops["evidence"].tolist() == second.ops["evidence"].tolist()
    assert any("1 of 626 timings is physically impossible" in text for text in first.deviations)
    assert not any("physically impossible" in text for text in second.deviations)


def test_a_few_rows_beside_a_right_peak_are_rows_and_not_the_peak() -> None:
    """Attention over a window whose column was lost: a fused kernel cannot explain 28 × the peak."""
    machine = load_machine("a100-sxm")
    rows = machine.timings.index[(machine.timings["kind"] == "attention")][5:400:80].tolist()
    flop = 4 * np.prod(machine.timings.loc[rows, ["batch", "heads", "q_len", "kv_len", "head_dim"]].to_numpy(), 1)
    timings = machine.timings.copy()
    timings.loc[rows, "time_s"] = flop / 312e12 / 28
    quarantined, _ = found(timed(machine, timings))
    assert len(quarantined) == len(rows)
    assert all("× the peak" in text or "of the time of its launches" in text for text in quarantined)


def test_a_table_half_of_which_cannot_be_is_refused_however_it_lies_in_families() -> None:
    """With three of six rows, one of each family, the table is refused; with two, the rows are left out."""
    machine = load_machine("v100")
    six = timed(machine, machine.timings.iloc[[40, 41, 271, 274, 552, 555]].reset_index(drop=True))
    assert six.timings["kind"].tolist() == ["gemm", "gemm", "conv", "conv", "rnn", "rnn"]
    assert found(six) == ((), ())
    assert len(found(times(six, 1e-4, [0, 2]))[0]) == 2
    with pytest.raises(FomkitError, match="3 families, for example"):
        without_implausible(times(six, 1e-4, [0, 2, 4]))


def test_a_family_of_other_rows_than_it_says_is_refused_without_a_slip() -> None:
    machine = load_machine("a100-sxm")
    rows = machine.timings.index[(machine.timings["kind"] == "attention")].tolist()
    with pytest.raises(
        FomkitError,
        match=r"attention/bf16/matrix/forward: .* timings are physically impossible, up to .* the peak",
    ):
        without_implausible(times(machine, 1 / 30, rows))


def test_facts_alone_are_held_against_machines_that_exist() -> None:
    assert found(board(15e12, 900e9)) == ((), ())
    _, (message,) = found(board(15e9, 900e9))
    assert message.startswith(
        "the peak of fp32 on the vector engine, 15.00 GFLOP/s, is 0.0167 flop a byte of the memory's 900.0 GB/s; "
        "shipped machines have 2.9 to 106 in fp32 there, so the peak looks too low, or the bandwidth too high"
    )
    _, (message,) = found(board(15e12, 900e12, (125e12, 250e12)))
    assert message.startswith("all 5 peaks look too low, or the memory bandwidth of 900.0 TB/s too high, by")
    _, (message,) = found(board(15e15, 900e9, (125e15, 250e15)))
    assert message.startswith("all 5 peaks look too high, or the memory bandwidth of 900.0 GB/s too low, by")
    with pytest.raises(FomkitError, match=r"board: facts: the peak of fp32 .* Correct device.peak"):
        without_implausible(board(15e6, 900e9))


@pytest.mark.parametrize(
    ("vector", "byte_per_s", "narrow", "words"),
    [
        (
            500e15,
            1000e12,
            None,
            ["the peak of fp32 on the vector engine, 500.0 PFLOP/s", "the memory bandwidth, 1000"],
        ),
        (
            100e12,
            100e12,
            None,
            ["the memory bandwidth, 100.0 TB/s, is 12.5 × the highest of shipped machines, 8.000"],
        ),
        (
            163e12,
            50e12,
            (160e15, 16e15),
            ["the peak of bf16 on the matrix engine", "the peak of fp16 on the matrix"],
        ),
        (163e13, 79e12, (149e15, 149e15), []),
    ],
)
def test_a_slip_of_all_facts_together_is_told_by_the_highest_of_machines(
    vector: float, byte_per_s: float, narrow: tuple[float, float] | None, words: list[str]
) -> None:
    messages = found(board(vector, byte_per_s, narrow))[1]
    assert len(messages) == len(words)
    assert all(text.startswith(start) for text, start in zip(messages, words, strict=True))


def linked(byte_per_s: float, tier: str = "system") -> Machine:
    return replace(board(15e12, 900e9), links=(Link(tier, 5e-6, byte_per_s, "each", "made up"),))


def test_a_link_is_held_against_the_quickest_of_machines_as_other_rates_are() -> None:
    for rate, told in ((9e12, 0), (9.1e12, 1), (1e16, 1)):
        of = linked(rate)
        texts = with_fits(of).plausibility.suspicions
        assert len(texts) == told == len(check_facts(of.device, "board", of.links))
        assert all(text.startswith("the link of tier system, ") for text in texts)
        assert all(
            text.endswith("shipped machines, 900.0 GB/s (b200-sxm); check the unit of links") for text in texts
        )
    with pytest.raises(
        FomkitError, match=r"facts: the link .*; no device reaches 1,000,000 TB/s\. Correct links\."
    ):
        with_fits(linked(1.1e18))
    again = replace(with_fits(linked(9e12)), links=linked(1e16).links)
    assert len(with_fits(again).plausibility.suspicions) == 1


def test_what_no_device_can_reach_is_refused_but_of_a_what_if() -> None:
    for rates, words in (((1.1e19, 1e17), "device.peak"), ((1e19, 1.1e18), "device.memory.bandwidth")):
        with pytest.raises(FomkitError, match=f"board: facts: .*; no device reaches .* Correct {words}."):
            check_facts(board(*rates).device, "board")
        assert len(check_facts(board(*rates).device, "board", refuse=False)) == 2


def test_no_shipped_machine_has_a_rate_above_those_that_are_said_to_be_the_highest() -> None:
    """The rates are read from the profiles' files, because loading all machines with their timings takes long."""
    scale = {"G": 1e9, "T": 1e12, "P": 1e15}
    found: dict[str, dict[str, float]] = {"vector": {}, "matrix": {}, "memory": {}, "links": {}}
    for path in (ROOT / "machine_profiles").glob("*.yaml"):
        text = path.read_text(encoding="utf-8")
        for engine, rate, unit in re.findall(r"engine: (\w+).*? rate: ([\d.]+) ([GTP])FLOP/s", text):
            found[engine][path.stem] = max(float(rate) * scale[unit], found[engine].get(path.stem, 0.0))
        for rate, unit in re.findall(r"memory: {.*?bandwidth: ([\d.]+) ([GTP])B/s", text):
            found["memory"][path.stem] = float(rate) * scale[unit]
        for rate, unit in re.findall(r"tier: .*?bandwidth: ([\d.]+) ([GTP])B/s", text):
            found["links"][path.stem] = float(rate) * scale[unit]
    for of, (rate, name) in _FASTEST.items():
        assert len(found[of]) > (4 if of == "links" else 20)
        assert rate == pytest.approx(max(found[of].values())) == pytest.approx(found[of][name])


@pytest.mark.parametrize(
    ("capacity", "launch", "words"),
    [
        (16 * 2.0**20, 5e-6, "a memory of 16 MiB at 900.0 GB/s is read once in 18.64 µs"),
        (16 * 2.0**40, 5e-6, "a memory of 16 TiB at 900.0 GB/s is read once in 19.55 s"),
        (16 * 2.0**30, 5e-3, "a launch of 5.000 ms is implausible (machines take"),
    ],
)
def test_capacity_and_launch_in_another_unit_are_suspected(capacity: float, launch: float, words: str) -> None:
    machine = board(15e12, 900e9)
    device = replace(machine.device, capacity_byte=fact(capacity), launch_s=fact(launch))
    _, (message,) = found(replace(machine, device=device))
    assert message.startswith(words)


def bare(byte_per_s: float = 1e12, **facts: float) -> Device:
    return Device(byte_per_s=fact(byte_per_s), **{name: fact(value) for name, value in facts.items()})


def with_ridge(ridge: float, dtype: str = "fp32", engine: str = "vector") -> Device:
    return replace(bare(), peaks=(Peak(dtype, engine, fact(ridge * 1e12)),))


@pytest.mark.parametrize(
    ("device", "is_suspected"),
    [
        # A memory is read once in 0.1 ms to 15 s, unless it is as fast as those on a chip.
        (bare(capacity_byte=1.01e8), False), (bare(capacity_byte=0.99e8), True),
        (bare(capacity_byte=14.9e12), False), (bare(capacity_byte=15.1e12), True),
        (bare(4.95e12, capacity_byte=1e8), True), (bare(5.05e12, capacity_byte=1e8), False),
        (bare(5.05e12, capacity_byte=76e12), True),
        # A launch takes 20 ns to 1 ms.
        (bare(launch_s=2.02e-8), False), (bare(launch_s=1.98e-8), True),
        (bare(launch_s=0.99e-3), False), (bare(launch_s=1.01e-3), True),
        # A peak is 0.1 to 1,500 flop a byte, of fp64 0.03, of an engine 1 to 20,000.
        (with_ridge(0.101), False), (with_ridge(0.099), True),
        (with_ridge(1490.0), False), (with_ridge(1510.0), True),
        (with_ridge(0.0303, "fp64"), False), (with_ridge(0.0297, "fp64"), True),
        (with_ridge(1.01, "fp16", "matrix"), False), (with_ridge(0.99, "fp16", "matrix"), True),
        (with_ridge(1.99e4, "fp16", "matrix"), False), (with_ridge(2.01e4, "fp16", "matrix"), True),
    ],
)  # fmt: skip
def test_facts_just_within_and_just_beyond_what_machines_have(device: Device, is_suspected: bool) -> None:
    assert len(check_facts(device, "board")) == is_suspected


def test_a_fact_a_thousand_times_beyond_is_refused_but_of_a_what_if() -> None:
    for ridge in (1500 * 990.0, 0.1 / 990):
        assert len(check_facts(with_ridge(ridge), "board")) == 1
    for ridge in (1500 * 1010.0, 0.1 / 1010):
        with pytest.raises(FomkitError, match="board: facts: the peak of fp32"):
            check_facts(with_ridge(ridge), "board")
        assert len(check_facts(with_ridge(ridge), "board", refuse=False)) == 1


LARGE = 1e10
"""Bytes that no cache holds."""


def claimed(limit: float, times: float, kind: str = "gemm", basis: str = "published", **cells: object) -> bool:
    """Return whether a timing that claims a multiple of a limit of a board of 1 TFLOP/s and 1 TB/s is refused."""
    rate = replace(fact(1e12), basis=basis)  # type: ignore[arg-type]
    device = Device(peaks=(Peak("fp32", "vector", rate),), byte_per_s=rate, launch_s=fact(1e-5))
    row = {"kind": kind, "dtype": "fp32", "engine": "vector", "op": "", "flop": 1e3, "byte": 1e3, "launches": 1.0,
           "message_byte": np.nan, "time_s": 1.0, **cells}  # fmt: skip
    by = str(row.pop("by", "flop"))
    amount = {"launch": 1e-5, "message": float(row["message_byte"]) / 1e12}.get(by, float(row.get(by, 0.0)) / 1e12)
    table = pd.DataFrame([{**row, "time_s": amount / limit / times}])
    return bool(claims_of(table, own_times(table), device, str(cells.get("of", "gpu"))).impossible[0])


@pytest.mark.parametrize(
    ("limit", "cells"),
    [
        (2.0, {"kind": "gemm", "flop": LARGE}), (2.0, {"kind": "sparse_gemm", "flop": LARGE}),
        (2.0, {"kind": "rnn", "flop": LARGE}), (2.0, {"kind": "experts", "flop": LARGE}),
        (3.0, {"kind": "attention", "flop": LARGE}), (5.5, {"kind": "conv", "flop": LARGE}),
        (2.0, {"kind": "pointwise", "flop": LARGE}),
        (64.0, {"dtype": "int8", "engine": "matrix", "flop": LARGE}),
        (8.0, {"flop": LARGE, "basis": "measured"}), (8.0, {"flop": LARGE, "basis": "modelled"}),
        (2.0, {"flop": LARGE, "basis": "estimated"}),
        (5.0, {"by": "byte", "byte": 1e8}), (40.0, {"by": "byte", "byte": 1e8, "of": "cpu"}),
        (40.0, {"by": "byte", "byte": 1e8, "of": ""}), (20.0, {"by": "byte", "byte": 1e8, "basis": "simulated"}),
        (1.5 * LARGE / (LARGE - 2.7e8), {"by": "byte", "byte": LARGE}),
        (1.5, {"kind": "collective", "by": "message", "message_byte": LARGE}),
        (50.0, {"by": "launch"}),
    ],
)  # fmt: skip
def test_a_timing_cannot_claim_more_than_its_limit(limit: float, cells: dict[str, object]) -> None:
    """By arithmetic, by traffic from memory and from caches, by an exchange's message, and by launches."""
    assert not claimed(limit, 0.99, **cells)
    assert claimed(limit, 1.01, **cells)


def test_milliseconds_of_exchanges_alone_are_suspected() -> None:
    machine = load_machine("l40s")
    own = machine.timings[machine.timings["kind"] == "collective"].reset_index(drop=True)
    assert found(timed(machine, own)) == ((), ())
    _, (message,) = found(times(timed(machine, own), 1e3))
    assert "time_s may be in milliseconds" in message
    with pytest.raises(FomkitError, match=r"up to .* × the bandwidth"):
        without_implausible(times(timed(machine, own), 1e-3))
    assert found(times(timed(machine, own[:4]), 1e3)) == ((), ())  # too few to tell
    _, (message,) = found(times(timed(machine, own[:5]), 1e3))
    assert message.startswith("no exchange of 5 takes less than ")


@pytest.mark.parametrize(
    ("column", "cells", "words"),
    [
        ("m", "many", "must be float64"),
        ("time_s", -1e-3, "time_s is -0.001"),
        ("time_s", np.nan, "time_s is empty"),
        ("time_s", np.inf, "time_s is inf"),
        ("k", 1e200, "k is 1e+200"),
        ("kind", "gem", "is not a kind of op"),
    ],
)
def test_a_table_made_in_python_is_checked_as_a_file_is(column: str, cells: object, words: str) -> None:
    machine, model = load_machine("v100"), load_model("p1b3")
    timings = machine.timings.copy()
    if isinstance(cells, str) and column == "m":
        timings[column] = timings[column].astype(object)
    timings.loc[3, column] = cells
    with pytest.raises(FomkitError) as error:
        estimate(model, replace(machine, timings=timings), Options())
    assert error.value.where.startswith("v100: timings")
    assert words in str(error.value)


def test_a_machine_is_judged_once_and_anew_when_it_changes() -> None:
    machine = load_machine("titan-x")
    wrong = times(machine, 1e-3, [5])
    first = without_implausible(wrong)
    assert without_implausible(first) is first
    assert with_fits(first).timings is first.timings
    # Other facts: all rows count again.
    again = without_implausible(replace(first, device=replace(first.device, capacity_byte=fact(12 * 2.0**30))))
    assert len(again.plausibility.quarantined) == 1
    mended = without_implausible(replace(first, timings=machine.timings))
    assert mended.plausibility.quarantined == ()


def test_every_door_says_what_was_left_out(tmp_path: Path) -> None:
    name = tmp_path / "odd.yaml"
    save_machine(replace(times(load_machine("titan-x"), 1e-3, [5]), name="odd"), name)
    runner = CliRunner()
    words = "1 of 626 timings is physically impossible and is excluded from every result: row 6, gemm fp32 b 1, m "
    shown = runner.invoke(app, ["show", str(name)])
    assert shown.exit_code == 0
    assert f"implausible: odd: {words}" in " ".join(shown.stdout.split())
    view = show_machine(load_machine(name), [])
    assert view["plausibility"][0].startswith(f"odd: {words}")
    assert view["timings"]["rows"] == 625
    page, sheet = tmp_path / "odd.html", tmp_path / "odd.xlsx"
    for output in (page, sheet):
        done = runner.invoke(app, ["estimate", "p1b3", "--target", str(name), "-o", str(output)])
        assert done.exit_code == 0, done.stderr
    assert words in page.read_text(encoding="utf-8")
    from openpyxl import load_workbook

    cells = [str(cell.value) for row in load_workbook(sheet)["Summary"].iter_rows() for cell in row]
    assert any(words in cell for cell in cells)
    answer = json.loads(runner.invoke(app, ["estimate", "p1b3", "--target", str(name), "--json"]).stdout)
    assert any(words in text for text in answer["models"][0]["deviations"])


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A machine with one row that cannot be; it is read once for all commands."""
    name = tmp_path_factory.mktemp("odd") / "odd.yaml"
    save_machine(replace(times(load_machine("titan-x"), 1e-3, [5]), name="odd"), name)
    read, known = machines._load, load_machine(name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machines, "_load", lambda path, by: known if path == name and not by else read(path, by))
        yield str(name)


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize(
    "command",
    [
        "estimate p1b3", "fom SUITE", "show p1b3", "advise p1b3", "cost p1b3", "explain p1b3",
        "scaling p1b3 --nodes 1,2 --link node,5us,25GB/s,each --link system,5us,25GB/s,each --node-devices 1",
        "sensitivity p1b3", "sensitivity --suite SUITE",
        "solve p1b3 --step 1ms --change byte_per_s", "solve p1b3 --step 100s", "sweep p1b3 --vary batch=16,32",
    ],
)  # fmt: skip
def test_every_command_with_a_target_says_once_what_was_left_out(
    odd: str, command: str, form: str, tmp_path: Path
) -> None:
    command = command.replace("SUITE", short_suite(tmp_path))
    arguments = [*command.split(), "--target", odd, *(["--json"] if form == "json" else [])]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.stderr
    message = " ".join(done.stdout.split())
    assert (
        message.count(
            "1 of 626 timings is physically impossible and is excluded from every result: row 6, gemm fp32"
        )
        == 1
    )
    assert "odd: odd: " not in message


def test_a_workbook_of_a_suite_names_what_was_left_out_once(odd: str, tmp_path: Path) -> None:
    from openpyxl import load_workbook

    book = tmp_path / "odd.xlsx"
    done = CliRunner().invoke(app, ["fom", short_suite(tmp_path), "--target", odd, "-o", str(book)])
    assert done.exit_code == 0, done.stderr
    cells = [str(cell.value) for row in load_workbook(book)["Summary"].iter_rows() for cell in row]
    (message,) = [cell for cell in cells if "1 of 626 timings is physically impossible" in cell]
    assert message.startswith("caveat: odd: 1 of 626")


def test_many_timings_left_out_are_one_row_and_a_count() -> None:
    machine = without_implausible(times(load_machine("titan-x"), 1e-3, [5, 300, 500]))
    (message,) = machine.plausibility.messages("titan-x")
    assert message.startswith(
        "titan-x: 3 of 626 timings are physically impossible and are excluded from every result: row 6, gemm "
        "fp32 b 1"
    )
    assert message.endswith("; and 2 more (`fomkit show` lists them)")
    assert len(message) < 300
    assert show_machine(machine, [])["plausibility"][0].count("; row ") == 2


def test_a_table_in_milliseconds_ends_every_command_with_code_2(tmp_path: Path) -> None:
    name = tmp_path / "slow.yaml"
    save_machine(replace(times(load_machine("titan-x"), 1e3), name="slow"), name)
    for command in (["show", str(name)], ["estimate", "p1b3", "--target", str(name)]):
        done = CliRunner().invoke(app, command)
        assert isinstance(done.exception, FomkitError) or done.exit_code == 2
        assert "the times seem to be in milliseconds" in f"{done.exception}{done.stderr}"


def test_a_review_finds_facts_that_became_implausible() -> None:
    from fomkit.verbs.compare import compare
    from fomkit.workbook.from_studies import sheet_model_of_comparison
    from fomkit.workbook.review import _implausible

    before = sheet_model_of_comparison(compare([load_model("p1b3")], [load_machine("titan")], None, Options()))
    (machine,) = before.machines
    after = replace(before, machines=(with_rates(machine, 1e3, "fp32"),))
    assert _implausible(before, before) == []
    (finding,) = _implausible(before, after)
    assert (finding.where, finding.kind) == ("facts of titan", "plausibility")
    assert finding.message.startswith(
        "The peak of fp32 on the vector engine, 3.950 PFLOP/s, is 15,800 flop a byte"
    )


def test_an_import_of_milliseconds_writes_nothing(tmp_path: Path) -> None:
    machine = load_machine("titan-x")
    facts, table, output = tmp_path / "facts.yaml", tmp_path / "slow.csv", tmp_path / "slow.yaml"
    save_machine(replace(timed(machine, machine.timings.iloc[:0]), name="slow"), facts)
    rows = machine.timings[machine.timings["kind"] == "gemm"]
    columns = ["kind", "dtype", "engine", "b", "m", "n", "k", "time_s"]
    rows.assign(time_s=rows["time_s"] * 1e3)[columns].to_csv(table, index=False)
    done = CliRunner().invoke(app, ["import", str(table), "--facts", str(facts), "-o", str(output)])
    assert "the times seem to be in milliseconds" in f"{done.exception}{done.stderr}"
    assert not output.exists()

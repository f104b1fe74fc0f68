"""The machines from aiconfigurator and NeuSight: facts, size, and tables that equal the script's output."""

from __future__ import annotations

import gzip
import importlib.util
import math

import pandas as pd
import pytest

import fomkit
from fomkit.files.op_csv import format_table
from fomkit.ops.pricing import add_costs
from fomkit.prediction.cascade import add_times
from fomkit.prediction.exchange import REPLAYED
from fomkit.prediction.families import families
from fomkit.profiles.evidence import with_fits
from fomkit.profiles.machines import load_machine
from fomkit.readers.registry import read_timings

PEAKS = {
    "a100-sxm": {"fp32/vector": 19.5, "tf32/matrix": 156, "bf16/matrix": 312, "int8/matrix": 624},
    "h200-sxm": {"fp32/vector": 66.9, "bf16/matrix": 989.4, "fp8/matrix": 1978.9},
    "h100-sxm": {"fp32/vector": 66.9, "tf32/matrix": 494.7, "bf16/matrix": 989.4, "fp8/matrix": 1978.9},
    "b200-sxm": {"fp32/vector": 75, "fp16/matrix": 2250, "bf16/matrix": 2250, "fp8/matrix": 4500},
    "gb200": {"fp32/vector": 80, "tf32/matrix": 1250, "bf16/matrix": 2500, "fp8/matrix": 5000},
    "l40s": {"fp32/vector": 91.6, "bf16/matrix": 362, "fp8/matrix": 733},
    "a100-pcie-40gb": {"fp32/vector": 19.5, "bf16/matrix": 312},
    "v100-pcie-32gb": {"fp32/vector": 14, "fp16/matrix": 112},
    "p100-pcie-16gb": {"fp32/vector": 9.3, "fp16/vector": 18.7},
    "t4": {"fp32/vector": 8.1, "fp16/matrix": 65, "int8/matrix": 130},
    "p4": {"fp32/vector": 5.5, "int8/vector": 22},
}
"""Dense, in TFLOP/s."""
BYTE_PER_S = {
    "a100-sxm": 2039e9, "h200-sxm": 4.8e12, "l40s": 864e9, "a100-pcie-40gb": 1555e9, "v100-pcie-32gb": 9e11,
    "h100-sxm": 3.35e12, "b200-sxm": 8e12, "gb200": 8e12, "p100-pcie-16gb": 732e9, "t4": 320e9, "p4": 192e9,
}  # fmt: skip
LINKS = {
    "a100-sxm": 300e9, "h200-sxm": 450e9, "h100-sxm": 450e9, "b200-sxm": 900e9, "gb200": 900e9, "l40s": 32e9,
}  # fmt: skip
DEVICES = dict.fromkeys(LINKS, 8) | {"gb200": 4}
ROWS = {
    "a100-sxm": 10573, "h200-sxm": 26721, "h100-sxm": 28169, "b200-sxm": 30721, "gb200": 31979, "l40s": 20367,
    "a100-pcie-40gb": 8765, "v100-pcie-32gb": 9050, "p100-pcie-16gb": 10767, "t4": 10774, "p4": 7132,
}  # fmt: skip


@pytest.fixture(scope="module")
def machines(root):
    return {name: load_machine(root / "machine_profiles" / f"{name}.yaml") for name in PEAKS}


@pytest.fixture(scope="module")
def script(root):
    spec = importlib.util.spec_from_file_location("modern_machines", root / "benchmarks" / "modern_machines.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", PEAKS)
def test_facts(machines, name):
    machine = machines[name]
    for key, rate in PEAKS[name].items():
        assert machine.device.peak(*key.split("/")).rate.value == pytest.approx(rate * 1e12), key
    assert machine.device.byte_per_s.value == pytest.approx(BYTE_PER_S[name])
    facts = (
        machine.device.byte_per_s,
        machine.device.capacity_byte,
        *(peak.rate for peak in machine.device.peaks),
    )
    assert all(fact.source and fact.basis == "published" for fact in facts)
    tiers = ("node", "system") if name == "gb200" else ("node",)
    assert {link.tier: link.byte_per_s for link in machine.links} == (
        dict.fromkeys(tiers, LINKS[name]) if name in LINKS else {}
    )
    assert machine.node_devices == DEVICES.get(name)
    assert len(machine.timings) == ROWS[name]
    assert machine.fits, "the fits beside the table are of another table; see CONTRIBUTING.md"


@pytest.mark.parametrize("name", PEAKS)
def test_no_product_is_faster_than_the_peak(machines, name):
    """The tolerance is a hundredth: a board may run above the clock assumed in its datasheet."""
    rows = machines[name].timings
    rows = rows[rows["kind"] == "gemm"]
    rate = 2 * rows.b * rows.m * rows.n * rows.k / (rows.time_s - rows.get("harness_s", 0.0)).fillna(rows.time_s)
    for (dtype, engine), fastest in rate.groupby([rows["dtype"], rows["engine"]]).max().items():
        assert 0.4 < fastest / machines[name].device.peak(dtype, engine).rate.value < 1.01, dtype


def test_every_op_of_a_framework_alone_stays_out(machines):
    """But for the all-reduce of serving in a replayed graph: 23 sizes of each number of ranks."""
    for name in LINKS:
        found = machines[name].timings["op"].value_counts().drop("").to_dict()
        assert found == {REPLAYED: 23 * (2 if name == "gb200" else 3)}, name


LIBRARIES = {
    "h100-sxm": {"": "fa3", "decode": "fa3", "window": "fa3", "full": "flash_attention_v3",
                 "latent": "flash_attention"},
    "l40s": {"": "flashinfer", "decode": "flashinfer", "window": "flashinfer", "full": "triton",
             "latent": "triton"},
    "b200-sxm": {"": "trtllm_mha", "decode": "trtllm_mha", "window": "trtllm_mha", "full": "flash_attention_v4",
                 "latent": "trtllm_mla"},
}  # fmt: skip
BY_TRITON = {
    "h100-sxm": {("", 512), ("decode", 512), ("window", 256)},
    "l40s": {(part, width) for part in ("", "decode", "window") for width in (64, 192)},
    "b200-sxm": {(part, 192) for part in ("", "decode", "window")},
}
"""Widths of heads for which SGLang has no other library on the board, by part."""


@pytest.mark.parametrize("name", LIBRARIES)
def test_every_width_of_a_part_of_attention_is_of_one_library(machines, name):
    rows = machines[name].timings
    rows = rows[(rows["kind"] == "attention") & (rows["dtype"] == "bf16")].reset_index(drop=True)
    found = {
        (family.part, width): set(own)
        for family, places in families(rows)
        for width, own in rows.iloc[places].groupby("head_dim")["library"]
    }
    expected = {
        (part, width): {"triton" if (part, width) in BY_TRITON[name] else LIBRARIES[name][part]}
        for part, width in found
    }
    assert found == expected
    assert {part for part, _ in found} == set(LIBRARIES[name])


FP8_CACHES = {"h100-sxm": 0.03, "h200-sxm": 0.03, "l40s": 0.05, "b200-sxm": 0.08, "gb200": 0.08}


@pytest.mark.parametrize("name", FP8_CACHES)
@pytest.mark.parametrize("table", ["generation_attention", "generation_mla"])
def test_one_query_over_an_fp8_cache_is_told_by_such_queries(machines, shared, name, table):
    """Rows that are not shipped; by the ratio to bf16 they were a fifth to a tenth too short (docs/adr/0103)."""
    sizes = list(DECODE)[4:]
    rows = read_timings(shared / "data" / "modern_gpus" / f"{name.replace('-', '_')}.{table}.csv.gz").timings
    rows = rows[(rows["op"] == "") & (rows["dtype"] == "fp8")]
    if not len(rows):  # the L40S has no latent cache in fp8
        return
    timed = machines[name].timings[machines[name].timings["dtype"] == "fp8"]
    rows = rows[~pd.MultiIndex.from_frame(rows[sizes]).isin(pd.MultiIndex.from_frame(timed[sizes]))]
    rows = rows[rows["library"] == rows["library"].mode().iloc[0]].iloc[::60].reset_index(drop=True)
    names = [*DECODE, *(["shared_dim"] if table == "generation_mla" else [])]
    found = add_times(add_costs(rows[names].assign(op="", count=1.0)), with_fits(machines[name]))
    assert set(found["time_source"]) <= {"interpolated", "extrapolated"}
    apart = (found["time_s"] / rows["time_s"]).apply(math.log).abs()
    assert apart.median() < FP8_CACHES[name]
    assert rows["time_s"].between(found["low_s"], found["high_s"]).mean() > 0.6


@pytest.mark.parametrize("name", LINKS)
def test_no_attention_is_faster_than_its_work_at_the_peak(machines, name):
    """A causal kernel may skip what the mask hides, which is half; nothing else is left out."""
    rows = machines[name].timings
    rows = add_costs(rows[rows["kind"].isin(["attention", "experts"])])
    assert set(rows["kind"]) == {"attention", "experts"}
    peak = rows["dtype"].map(
        {dtype: machines[name].device.peak(dtype, "matrix").rate.value for dtype in set(rows.dtype)}
    )
    masked = (rows["causal"] == 1).map({True: 0.5, False: 1.0})
    assert (rows["flop"] * masked / rows["time_s"] < peak).all()


@pytest.mark.parametrize("name", LINKS)
def test_every_mixture_is_of_one_library_and_no_faster_than_memory(machines, name):
    rows = add_costs(machines[name].timings[machines[name].timings["kind"] == "experts"])
    libraries = rows.groupby(["dtype", "n", "k", "experts", "top_k"])["library"].nunique()
    assert (libraries == 1).all()
    cached = rows["byte"] < 2.7e8
    assert (rows["byte"] / rows["time_s"])[~cached].max() < 0.98 * BYTE_PER_S[name]


def mixtral(name: str, time_s: float) -> float:
    """Return the low bound of Mixtral's experts, in a prefill of 4,096 tokens that took ``time_s``."""
    found = fomkit.estimate("mixtral-8x7b", name, mode="prefill", precision="bf16").ops
    experts = found[found["kind"] == "experts"].iloc[0]
    assert (experts["m"], experts["time_source"]) == (4096, "interpolated")
    assert experts["low_s"] <= time_s <= experts["high_s"], name
    assert abs(math.log(experts["time_s"] / time_s)) < 0.35, name
    return experts["low_s"]


def test_wide_experts_are_told_by_the_library_that_runs_them():
    """These rows of the whole tables are not in the shipped ones."""
    mixtral("b200-sxm", 7.834e-3)
    mixtral("gb200", 7.971e-3)
    mixtral("h200-sxm", 4.885e-3)


def test_a_kernel_that_is_not_tuned_leaves_room_for_one_that_is():
    """SGLang has no file of tiles for Mixtral's width on H100: the chip takes 2.7 times as long as on H200."""
    assert mixtral("h100-sxm", 12.968e-3) < 6.5e-3
    chips = [fomkit.estimate("mixtral-8x7b", f"{name}-sxm", mode="prefill", precision="bf16").step
             for name in ("h100", "h200")]  # fmt: skip
    assert chips[0].low < chips[1].value < chips[0].value < 2 * chips[1].value


@pytest.mark.parametrize(("name", "some"), [("h100-sxm", True), ("b200-sxm", False), ("l40s", True)])
def test_low_bounds_reach_the_halves_where_these_are_faster_and_in_no_cache(machines, name, some):
    machine = with_fits(machines[name])
    sizes = ["m", "k", "b", "experts", "top_k"]
    rows = machine.timings[(machine.timings["kind"] == "experts") & (machine.timings["dtype"] == "bf16")]
    pairs = rows.merge(
        rows.assign(n=2 * rows["n"])[[*sizes, "n", "time_s"]], on=[*sizes, "n"], suffixes=("", "_half")
    )
    asked = pairs[["kind", "dtype", "engine", "pass_name", "n", *sizes]].assign(op="", count=1.0)
    found = add_times(add_costs(asked), machine)
    assert set(found["time_source"]) == {"measured"}
    twice = 2 * pairs["time_s_half"]
    large = add_costs(asked)["byte"] / 2 > machine.device.cache_byte.value
    longer = (found["time_s"] > 1.25 * twice) & large
    lowered = found["evidence"].str.contains("two of half the width")
    assert lowered.tolist() == longer.tolist()
    assert lowered.any() == some
    assert found["low_s"][longer].tolist() == pytest.approx(twice[longer].tolist())
    assert (found["low_s"] > 0.9 * found["time_s"])[~longer].all()


DECODE = {
    "kind": "attention", "dtype": "bf16", "engine": "matrix", "pass_name": "forward", "batch": 8.0, "heads": 32.0,
    "kv_heads": 8.0, "q_len": 1.0, "kv_len": 1025.0, "head_dim": 128.0, "causal": 0.0,
}  # fmt: skip


LATENT = {
    **DECODE,
    "op": "",
    "count": 1.0,
    "heads": 24.0,
    "kv_heads": 1.0,
    "head_dim": 544.0,
    "shared_dim": 512.0,
    "kv_len": 4096.0,
}


@pytest.mark.parametrize("name", [name for name in LINKS if name != "a100-sxm"])
def test_one_token_over_a_latent_cache_is_told_by_latent_caches(machines, name):
    """Without timings of 24 heads the time is between those of 16 and 32, and far from that of a plain cache."""
    machine = with_fits(machines[name])
    ops = add_costs(pd.DataFrame([{**LATENT, "heads": heads} for heads in (16.0, 24.0, 32.0)]))
    found = add_times(ops, machine)
    assert found["time_source"].tolist() == ["measured", "interpolated", "measured"]
    assert "head_dim 544" in found["evidence"][1]
    less, between, more = found["time_s"]
    assert 0.85 * less < between < 1.15 * more


def test_a_board_that_timed_no_latent_cache_hears_those_that_did(machines):
    """The board's own decoding uses another kernel, which is 2.4 times as fast on L40S."""
    found = add_times(add_costs(pd.DataFrame([LATENT])), with_fits(machines["a100-sxm"]))
    assert found["time_source"].tolist() == ["roofline"]
    assert "typical of latent/matrix" in found["evidence"][0]


@pytest.mark.parametrize("name", LINKS)
def test_one_token_over_a_cache_is_told_by_decoding(machines, shared, name):
    """For a size that the shipped table lacks, the time is near that of the whole table, not that of prefill."""
    machine = machines[name]
    whole = read_timings(shared / "data" / "modern_gpus" / f"{name.replace('-', '_')}.generation_attention.csv.gz")
    rows = whole.timings
    main = rows["library"].mode().iloc[0]
    rows = rows[(rows["op"] == "") & (rows["library"] == main) & (rows["kv_len"] > 4000) & (rows["batch"] >= 8)]
    sizes = list(DECODE)[4:]
    known = machine.timings[sizes].merge(rows[sizes], on=sizes)
    query = rows.merge(known.assign(known=1), on=sizes, how="left")
    query = query[query["known"].isna()].iloc[::40].reset_index(drop=True)
    asked = query[list(DECODE)].assign(op="attention", count=1.0)
    timed = add_times(add_costs(asked), with_fits(machine))
    assert set(timed["time_source"]) <= {"interpolated", "extrapolated"}
    assert ((timed["time_s"] / query["time_s"]).apply(math.log).abs()).median() < 0.06


def test_decoding_with_odd_heads_is_told_by_such_heads(machines, shared):
    """Heads of 192 numbers take up to 1.7 times as long as those of 128 or 256, in rows that no fit has seen."""
    sizes = list(DECODE)[4:]
    rows = read_timings(shared / "data" / "modern_gpus" / "h200_sxm.generation_attention.csv.gz").timings
    rows = rows[(rows["op"] == "") & (rows["head_dim"] == 192)]
    drawn = pd.MultiIndex.from_frame(machines["h200-sxm"].timings[sizes])
    query = rows[~pd.MultiIndex.from_frame(rows[sizes]).isin(drawn)].iloc[::20].reset_index(drop=True)
    timed = add_times(add_costs(query[list(DECODE)].assign(op="", count=1.0)), with_fits(machines["h200-sxm"]))
    assert len(query) > 20
    assert ((timed["time_s"] / query["time_s"]).apply(math.log).abs()).median() < 0.04


@pytest.mark.parametrize("name", ["a100-sxm", "h100-sxm", "p4"])
def test_shipped_tables_are_what_the_script_makes(root, shared, script, name):
    shipped = gzip.decompress((root / "machine_profiles" / f"{name}.timings.csv.gz").read_bytes())
    assert format_table(script.thinned(shared, name), "TIMINGS").encode() == shipped


def test_the_profiles_stay_small(root):
    assert sum(path.stat().st_size for path in (root / "machine_profiles").iterdir()) < 10e6


def test_mixed_rests_on_the_table_as_bf16_does():
    """The tables of the modern boards are of bf16, and their matrix engines run fp16 at the same rate."""
    rests = {}
    for precision in ("bf16", "mixed"):
        coverage = fomkit.estimate("gpt2", "a100-sxm", precision=precision).coverage
        rests[precision] = 1 - coverage["roofline"]
    assert rests["bf16"] > 0.3
    assert rests["mixed"] == pytest.approx(rests["bf16"], abs=0.03)


@pytest.mark.parametrize(("name", "dtype"), [("h100-sxm", "fp8"), ("b200-sxm", "fp8"), ("l40s", "bf16")])
def test_beyond_the_largest_timed_product_the_rate_stays(machines, name, dtype):
    machine = with_fits(machines[name])
    timed = machine.timings[(machine.timings["kind"] == "gemm") & (machine.timings["dtype"] == dtype)]
    most = timed["m"].max()
    product = {"op": "", "kind": "gemm", "engine": "matrix", "pass_name": "forward", "count": 1.0, "b": 1.0}
    sizes = {"n": 4096.0, "k": 4096.0, "trans_a": 0.0, "trans_b": 1.0, "dtype": dtype}
    rows = [{**product, **sizes, "m": most * times} for times in (1, 1.5, 2, 3, 4, 16)]
    found = add_times(add_costs(pd.DataFrame(rows)), machine)
    rate = found["flop"] / found["time_s"]
    assert (rate / rate[0]).between(0.94, 1.06).all()
    assert (found["time_s"].diff().dropna() > 0).all()
    for share, text in zip(("58%", "100%", "100%"), found["evidence"][1:4], strict=True):
        assert f"{share} of the weight: " in text
    assert "the largest timed sides" not in found["evidence"][0]
    # What the table does not know grows with the distance.
    width = (found["high_s"] / found["low_s"])[2:]
    assert width.is_monotonic_increasing

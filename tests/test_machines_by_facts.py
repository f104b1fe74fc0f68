"""Machines known only by their vendors' figures, common misreadings of these, and the list of all machines."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

import fomkit
from fomkit.core.errors import FomkitError
from fomkit.plan.energy import energy_of_estimate
from fomkit.profiles.evidence import read_generations
from fomkit.validation.graphs import facts_only, shipped_labels

ROOT = Path(__file__).resolve().parent.parent
FACTS = {
    # name: bf16 on the matrix unit, fp8 there, fp32 on the vector unit [TFLOP/s]; GB/s; GiB; limit [W]; year
    "a100-sxm-40gb": (312, None, 19.5, 1555, 40, 400, 2020),
    "h100-pcie": (756, 1513, 51.2, 2000, 80, 350, 2022),
    "h100-nvl": (835.5, 1670.5, 60, 3900, 94, 400, 2023),
    "a10": (125, None, 31.2, 600, 22.5, 150, 2021),
    "l4": (121, 242.5, 30.3, 300, 22.5, 72, 2023),
    "rtx-3090": (71, None, 35.6, 936, 24, 350, 2020),
    "rtx-4090": (165.2, 330.3, 82.6, 1008, 24, 450, 2022),
    "rtx-5090": (209.5, 419, 104.8, 1792, 32, 575, 2025),
    "rtx-pro-6000": (503.8, 1007.6, 126, 1792, 96, 600, 2025),
    "b300-sxm": (2250, 4500, 75, 8000, 270, 1400, 2025),
    "gb300": (2500, 5000, 80, 8000, 279, 1400, 2025),
    "mi210": (181, None, 22.6, 1638, 64, 300, 2022),
    "mi250": (181.05, None, 22.65, 1638, 64, 280, 2021),
    "mi300x": (1307.4, 2614.9, 163.4, 5300, 192, 750, 2023),
    "mi325x": (1307.4, 2614.9, 163.4, 6000, 256, 1000, 2024),
    "gaudi-3": (1835, 1835, None, 3670, 128, 900, 2024),
    "tpu-v5e": (197, None, None, 819, 16, None, 2023),
    "tpu-v5p": (459, None, None, 2765, 95, None, 2023),
    "grace-cpu": (28.4, None, 7.1, 500, 240, 250, 2023),
    "epyc-9755": (54, None, 27, 576, 768, 500, 2024),
    "xeon-6980p": (328, None, 20.5, 844.8, 768, 500, 2024),
    "rtx-a6000": (154.8, None, 38.7, 768, 48, 300, 2020),
    "a40": (149.7, None, 37.4, 696, 45, 300, 2020),
    "a30": (165, None, 10.3, 933, 24, 165, 2021),
    "l40": (181.05, 362, 90.5, 864, 45, 300, 2022),
    "rtx-6000-ada": (364.2, 728.5, 91.1, 960, 48, 300, 2022),
    "rtx-3080": (59.5, None, 29.8, 760, 10, 320, 2020),
    "rtx-3060": (25.5, None, 12.74, 360, 12, 170, 2021),
    "rtx-4080": (97.5, 194.9, 48.7, 716.8, 16, 320, 2022),
    "rtx-4070": (58.3, 116.6, 29.1, 504, 12, 200, 2023),
    "rtx-5080": (112.6, 225.1, 56.3, 960, 16, 360, 2025),
    "rtx-2080-ti": (None, None, 13.4, 616, 11, 250, 2018),
    "titan-v": (None, None, 14.9, 652.8, 12, 250, 2017),
    "k80": (None, None, 4.37, 240, 11.25, 149, 2014),
    "gh200-96gb": (989.4, 1978.9, 66.9, 4000, 96, None, 2023),
    "gh200-144gb": (989.4, 1978.9, 66.9, 4900, 144, None, 2023),
    "h800-sxm": (989.4, 1978.9, 66.9, 3350, 80, 700, 2023),
    "h20": (148, 296, 39.5, 4000, 96, 500, 2023),
    "mi100": (92.3, None, 23.1, 1228.8, 32, 300, 2020),
    "mi300a": (980.6, 1961.2, 122.6, 5300, 128, 550, 2023),
    "mi350x": (2306.9, 4613.7, 144.2, 8000, 288, 1000, 2025),
    "mi355x": (2516.6, 5033.2, 157.3, 8000, 288, 1400, 2025),
    "gaudi-2": (432, 865, None, 2460, 96, 600, 2022),
    "tpu-v4": (275, None, None, 1200, 32, None, 2021),
    "tpu-v6e": (918, 918, None, 1638, 32, None, 2024),
    "tpu-v7": (2307, 4614, None, 7380, 192, None, 2025),
    "trainium-2": (667, 1299, None, 2900, 96, None, 2023),
    "epyc-9654": (18.4, None, 9.22, 460.8, 768, 360, 2022),
    "xeon-8480": (143, None, 8.96, 307.2, 512, 350, 2023),
    "graviton4": (34.4, None, 8.6, 537.6, 768, None, 2023),
}


@pytest.mark.parametrize("name", FACTS)
def test_facts_and_their_sources(name: str) -> None:
    machine = fomkit.machine(name)
    device = machine.device
    bf16, fp8, fp32, giga_byte_per_s, gibi_byte, limit_w, year = FACTS[name]
    wanted = {("bf16", "matrix"): bf16, ("fp8", "matrix"): fp8, ("fp32", "vector"): fp32}
    for (dtype, engine), tera in wanted.items():
        peak = device.peak(dtype, engine)
        assert (None if peak is None else peak.rate.value / 1e12) == pytest.approx(tera)
    assert device.byte_per_s.value == pytest.approx(giga_byte_per_s * 1e9)
    assert device.capacity_byte.value == gibi_byte * 2**30
    limit = machine.energy.limit_w.value if machine.energy else None
    assert limit == limit_w
    assert machine.year == year
    assert all(fact.source for fact in (device.byte_per_s, *(peak.rate for peak in device.peaks)))
    assert not len(machine.timings)


SHOWN_MIB = {
    "a100-sxm": 81_920, "a100-sxm-40gb": 40_960, "h100-sxm": 81_559, "h100-pcie": 81_559, "h100-nvl": 95_830,
    "h200-sxm": 143_771, "b200-sxm": 183_359, "gb200": 189_471, "b300-sxm": 275_040, "gb300": 284_208,
    "a10": 23_028, "l4": 23_034, "l40s": 46_068, "t4": 15_360, "p4": 7_611,
    "rtx-pro-6000": 97_887, "mi300x": 196_592, "rtx-a6000": 49_140, "rtx-6000-ada": 49_140, "a40": 46_068,
    "a30": 24_576, "gh200-96gb": 97_871, "h20": 97_871, "k80": 11_441,
}  # fmt: skip
"""What drivers say that a device has, as published by who ran them: vLLM, SGLang, ROCm and others."""


@pytest.mark.parametrize("path", sorted((ROOT / "machine_profiles").glob("*.yaml")), ids=lambda path: path.stem)
def test_a_capacity_is_binary_and_what_a_program_can_be_given(path: Path) -> None:
    """What vendors print as GB is GiB; error correction of GDDR takes a sixteenth (docs/profiles.md)."""
    stated = re.search(r"capacity: ([\d.]+) (\w+)", path.read_text())
    if stated is None:
        assert path.stem in ("a", "x86-lecture", "summit", "a800-sxm")  # nobody said; the last two name a device
        return
    gibi_byte, unit = float(stated[1]), stated[2]
    machine = fomkit.machine(path.stem)
    source = machine.device.capacity_byte.source
    assert unit == "GiB"
    printed = re.search(r"\b(\d+) ?GB\b", machine.title)
    if printed is not None and "on the package" not in source:
        assert gibi_byte == int(printed[1]) * (15 / 16 if "error correction" in source else 1)
    if path.stem in SHOWN_MIB:
        assert 0.99 < SHOWN_MIB[path.stem] / (gibi_byte * 1024) <= 1
        assert f"{SHOWN_MIB[path.stem]:,} MiB" in source


@pytest.mark.parametrize("name", FACTS)
def test_no_peak_counts_zeros(name: str) -> None:
    """A format of half the bits has at most twice the rate; a rate with sparsity would have four times it."""
    rates = {peak.dtype: peak.rate.value for peak in fomkit.machine(name).device.peaks if peak.engine == "matrix"}
    for wide, narrow in (("tf32", "bf16"), ("bf16", "fp8"), ("bf16", "int8")):
        if wide in rates and narrow in rates:
            most = 4.01 if narrow == "int8" and name.startswith("rtx") else 2.02
            assert rates[narrow] / rates[wide] <= most


OWN_CLOCK = ("h20", "h800-sxm", "h100-pcie", "h100-nvl", "gh200-96gb", "gh200-144gb", "b300-sxm", "gb300")
"""NVIDIA counts the tensor cores of these at a lower clock than the vector unit."""


@pytest.mark.parametrize("name", [name for name, (bf16, _, fp32, *_) in FACTS.items() if bf16 and fp32])
def test_a_matrix_engine_does_a_power_of_two_of_the_vector_unit(name: str) -> None:
    """Both count on one clock and one number of processors, so a misread or mistyped rate stands out."""
    power = math.log2(FACTS[name][0] / FACTS[name][2])
    assert (abs(power - round(power)) < 0.005) == (name not in OWN_CLOCK)


def test_boards_rank_as_they_are_known() -> None:
    def ratio(model: str, one: str, other: str, precision: str | None = None) -> float:
        steps = [fomkit.estimate(model, name, precision=precision).step.value for name in (one, other)]
        return steps[0] / steps[1]

    # A 3090's chip with slower memory that sums in fp32 at the full rate; an L40S's at half of it.
    assert 1 < ratio("resnet50", "rtx-a6000", "rtx-3090") < 1.2
    assert ratio("bert-large", "rtx-a6000", "rtx-3090", "bf16") < 0.8
    assert 1 < ratio("resnet50", "l40", "l40s") < ratio("bert-large", "l40", "l40s", "bf16") < 2
    assert ratio("gpt2", "rtx-4090", "rtx-4080", "bf16") < 0.8 < 1 < ratio("gpt2", "rtx-4080", "rtx-5080", "bf16")
    # An H20 generates about as fast as the H100 that trains almost three times as fast with seven times the peak.
    assert 2.6 < ratio("bert-large", "h20", "h100-sxm", "bf16") < 3.2
    assert 0.8 < ratio("llama3-8b-decode", "h20", "h100-sxm") < 1.2
    assert ratio("llama3-8b-decode", "gh200-144gb", "h200-sxm") == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize(("mode", "measured_ms"), [("train", 430.43), ("infer", 134.11)])
def test_an_mi100_multiplies_fp32_on_its_matrix_engine(mode: str, measured_ms: float) -> None:
    """Passes that NeuSight measured (validation/neusight/e2e.csv); the vector unit would take 1.7 times."""
    found = fomkit.estimate("bert-large", "mi100", precision="fp32", batch=8, mode=mode)
    assert found.step.value == pytest.approx(measured_ms / 1e3, rel=0.15)


@pytest.mark.parametrize("path", sorted((ROOT / "machine_profiles").glob("*.yaml")), ids=lambda path: path.stem)
def test_a_gpu_is_of_a_generation_whose_year_is_known(path: Path) -> None:
    """Kernels of near generations tell more, which an unknown name would switch off in silence."""
    years = read_generations(ROOT / "machine_profiles" / "usual_utilisation" / "generations.csv")
    device = fomkit.machine(path.stem).device
    assert device.units is None or " ".join(device.architecture.split()[:2]) in years


def test_a_board_with_slower_links_alone_has_the_steps_of_the_board_that_was_timed() -> None:
    both = [fomkit.estimate("gpt2", name, precision="bf16") for name in ("a800-sxm", "a100-sxm")]
    assert both[0].step == both[1].step
    assert fomkit.machine("a800-sxm").device_of == "a100-sxm"
    for slow, fast in (("a800-sxm", "a100-sxm"), ("h800-sxm", "h100-sxm")):
        rates = [fomkit.machine(name).links[0].byte_per_s for name in (slow, fast)]
        assert rates[0] == 200e9 < rates[1]
        times = [
            fomkit.estimate("gpt2", name, precision="bf16", batch=32, nodes=1).step.value for name in (slow, fast)
        ]
        assert times[0] > 1.01 * times[1]  # most of the traffic goes beside the passes


def test_a_model_is_estimated_on_each() -> None:
    for name, facts in FACTS.items():
        found = fomkit.estimate("gpt2", name, precision="bf16" if facts[0] else "fp32")
        assert found.step.low < found.step.value < found.step.high
        assert math.isclose(found.coverage["roofline"], 1.0, abs_tol=1e-9)


def test_processors_with_bf16_products_are_rated_on_a_model_in_bf16() -> None:
    """Their rate in bf16 follows from another by what an instruction does a clock; memory bounds a token."""
    for name, wide, times in (
        ("epyc-9755", "fp32", 2), ("epyc-9654", "fp32", 2), ("grace-cpu", "fp64", 8), ("graviton4", "fp64", 8),
        ("xeon-6980p", "fp32", 16), ("xeon-8480", "fp32", 16),
    ):  # fmt: skip
        device = fomkit.machine(name).device
        assert device.peak("bf16", "matrix").rate.value == pytest.approx(
            times * device.peak(wide, "vector").rate.value, rel=0.01
        )
        found = fomkit.estimate("llama3-8b-decode", name)
        assert found.precision == "bf16"
        assert found.step_time.bound == "memory"
        least_s = 2 * 8.03e9 / device.byte_per_s.value
        assert least_s < found.step.value < 3 * least_s


def test_a_limit_alone_is_no_energy_and_says_so_in_a_line() -> None:
    found = energy_of_estimate(fomkit.estimate("gpt2", "l4"))
    assert (found.step, found.missing, found.limit_w) == (
        None,
        ("neither idle power nor energy per flop or byte is stated",),
        72,
    )


def test_only_machines_whose_makers_print_no_limit_of_a_chip_state_none() -> None:
    """Google and Amazon print none, and those of a GH200 and of two phones are of more than the chip."""
    without = {row["name"] for row in fomkit.show("machines").content["machines"]
               if fomkit.machine(row["name"]).energy is None}  # fmt: skip
    assert without == {"a", "x86-lecture", "gh200-96gb", "gh200-144gb", "graviton4", "iphone-6", "iphone-7",
                       "raspberry-pi-3", "tpu-v4", "tpu-v5e", "tpu-v5p", "tpu-v6e", "tpu-v7",
                       "trainium-2"}  # fmt: skip
    limits = {
        name: fomkit.machine(name).energy.limit_w.value for name in ("v100", "a100-sxm", "h100-sxm", "gb200")
    }
    assert limits == {"v100": 300, "a100-sxm": 400, "h100-sxm": 700, "gb200": 1200}


def test_machines_are_listed_and_searched() -> None:
    rows = fomkit.show("machines").content["machines"]
    years = [row["year"] or 0 for row in rows]
    assert years == sorted(years, reverse=True)
    assert {"v100", "x86-lecture", *FACTS} <= {row["name"] for row in rows}
    some = fomkit.show("machines", having="bf16 AMD").content["machines"]
    blocks = fomkit.show("machines", having="fp8_block").content["machines"]  # no file has this word
    assert blocks == [row for row in rows if "fp8_block" in row["formats"]]
    assert {row["name"] for row in some} == {
        *("epyc-9654", "epyc-9755", "mi100", "mi210", "mi250"),
        *("mi300a", "mi300x", "mi325x", "mi350x", "mi355x"),
    }
    assert next(row for row in rows if row["name"] == "v100")["evidence"] == "timing table"
    with pytest.raises(FomkitError, match=r"^having: no machine matches 'fp9'"):
        fomkit.show("machines", having="fp9")
    with pytest.raises(FomkitError, match="is for the list of machines"):
        fomkit.show("v100", having="bf16")
    with pytest.raises(FomkitError, match="lists machines"):
        fomkit.show("machines", by="op")


def test_a_node_is_what_one_host_runs_on_every_profile() -> None:
    """No server or tray has more devices than these; a link that joins more states their number."""
    for row in fomkit.show("machines").content["machines"]:
        machine = fomkit.machine(row["name"])
        assert machine.node_devices in {None, 1, 4, 6, 8}, machine.name
        for link in machine.links:
            assert (link.joins is None) == (link.tier == "node"), machine.name
            if link.joins is not None:
                assert link.joins > machine.node_devices, machine.name
                assert link.joins % machine.node_devices == 0, machine.name
        if "NVL72" in machine.title:
            assert (machine.node_devices, [link.joins for link in machine.links]) == (4, [72, None])


def test_boards_whose_power_is_short_have_one_process_in_both_lists() -> None:
    """The process decides what a power limit sustains: 4 instead of 5 nm gives an L4 1.4 times the rate."""
    listed = shipped_labels() / "devices.csv"
    for name in ("t4", "p4", "l4"):
        ours, theirs = fomkit.machine(name).energy, facts_only(name.upper(), listed)
        assert ours is not None
        assert theirs is not None
        assert theirs.energy is not None
        assert ours.process_m == pytest.approx(theirs.energy.process_m), name


def test_a_ratio_of_nodes_of_one_size_is_that_of_devices() -> None:
    found = [
        fomkit.estimate_all(["today/llama3-8b-decode"], ["gb300"], "gb200", batch=64, scope=scope)
        for scope in ("node", "device")
    ]
    ratios = [each.merits[0].value.value for each in found]
    assert ratios[0] == pytest.approx(ratios[1], rel=1e-9)
    assert ratios[0] == pytest.approx(1.0, abs=0.25)  # one bandwidth; one was timed, the other is known by facts


def test_a_run_on_more_devices_than_a_link_joins_is_refused_until_somebody_states_what_joins_them() -> None:
    model, layout = "today/llama3-8b", "zero=3,microbatch=1"
    found = fomkit.scaling(model, "gb300", nodes=[1, 18, 19], mode="weak", layout=layout)
    assert [one["nodes"] for one in found.content["not_estimated"]] == [19]
    assert "76 devices exceed the 72 that the links" in found.content["not_estimated"][0]["why"]
    with pytest.raises(FomkitError, match="--node-devices 72 --link 'system, "):
        fomkit.estimate(model, "gb300", nodes=32, layout=layout)
    two_racks = {"nodes": 2, "node_devices": 72, "links": ["system, 5 us, 50 GB/s, each"]}
    assert fomkit.estimate(model, "gb300", batch=576, layout=layout, **two_racks).job.devices == 144


def test_a_sustained_rate_is_explained_where_it_is_shown() -> None:
    said = "sustained: what the board's power leaves of the peak in long products, as its maker measured"
    assert said in fomkit.show("mi300x").summary()
    assert "sustained" not in fomkit.show("v100").summary()

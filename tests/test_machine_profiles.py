"""The shipped machine profiles: their facts, and tables that are exactly what the importer makes."""

from __future__ import annotations

import pytest

from fomkit.profiles import load_machine
from fomkit.tables import format_table
from fomkit.timings import read_timings

WORKBOOKS = {"v100": "DeepBench_NV_V100.xlsx", "p100": "DeepBench_NV_P100.xlsx"}
PEAKS = {
    "v100": {
        ("fp32", "vector", "fp32"): 15.7e12, ("fp64", "vector", "fp64"): 7.8e12,
        ("fp16", "matrix", "fp32"): 125e12, ("fp16", "vector", "fp16"): 31.4e12,
    },
    "p100": {
        ("fp32", "vector", "fp32"): 9.3e12, ("fp64", "vector", "fp64"): 4.7e12,
        ("fp16", "vector", "fp32"): 9.3e12, ("fp16", "vector", "fp16"): 18.7e12,
    },
    "titan": {("fp32", "vector", "fp32"): 3.95e12, ("fp64", "vector", "fp64"): 1.31e12},
    "a": {("fp32", "vector", "fp32"): 30e12},
}  # fmt: skip
BYTE_PER_S = {"v100": 900e9, "p100": 732e9, "titan": 250e9, "a": 0.68e12}
CAPACITY_BYTE = {"v100": 16 * 2**30, "p100": 16 * 2**30, "titan": 6 * 2**30, "a": None}
DEVICES = {"v100": (8, None), "p100": (None, None), "titan": (1, 18_688), "a": (1, 94_000)}


@pytest.fixture(scope="module")
def machines(root):
    return {name: load_machine(root / "machine_profiles" / f"{name}.yaml") for name in PEAKS}


@pytest.mark.parametrize("name", WORKBOOKS)
def test_shipped_tables_are_what_the_importer_makes(root, shared, name):
    timings = read_timings(shared / "data" / "deepbench" / "train" / WORKBOOKS[name]).timings
    shipped = (root / "machine_profiles" / f"{name}.timings.csv").read_bytes()
    assert format_table(timings, "TIMINGS").encode() == shipped


@pytest.mark.parametrize("name", PEAKS)
def test_facts(machines, name):
    machine = machines[name]
    device = machine.device
    assert machine.name == name
    found = {(peak.dtype, peak.engine, peak.accumulate_dtype): peak.rate.value for peak in device.peaks}
    assert found == pytest.approx(PEAKS[name])
    assert device.byte_per_s.value == pytest.approx(BYTE_PER_S[name])
    assert (device.capacity_byte.value if device.capacity_byte else None) == CAPACITY_BYTE[name]
    assert (machine.node_devices, machine.system_nodes) == DEVICES[name]
    launch = device.launch_s
    assert (launch.value, launch.low, launch.high, launch.basis) == pytest.approx((5e-6, 3e-6, 10e-6, "assumed"))
    assert all(fact.source for fact in (device.byte_per_s, launch, *(peak.rate for peak in device.peaks)))


def test_parties_and_scopes(machines):
    assert {name: machine.party for name, machine in machines.items()} == {
        "v100": "published", "p100": "published", "titan": "published", "a": "lab",
    }  # fmt: skip
    assert machines["titan"].scopes == machines["a"].scopes == ("device", "node", "system")
    assert machines["v100"].scopes == ("device", "node")
    assert machines["p100"].scopes == ("device",)
    assert {name: len(machine.timings) for name, machine in machines.items()} == {
        "v100": 1182, "p100": 1149, "titan": 0, "a": 0,
    }  # fmt: skip


def test_machine_a_is_an_estimate_with_a_wide_interval(machines):
    device = machines["a"].device
    rate, bandwidth = device.peaks[0].rate, device.byte_per_s
    assert (rate.basis, bandwidth.basis) == ("estimated", "estimated")
    assert rate.value == pytest.approx(7.6 * 3.95e12, rel=1e-2)
    for fact in (rate, bandwidth):
        assert fact.low < fact.value < fact.high
        assert fact.high / fact.low > 2


@pytest.mark.parametrize(
    ("name", "dtype", "engine", "share"),
    [
        ("v100", "fp32", "vector", 0.941),
        ("v100", "fp16", "matrix", 0.898),
        ("p100", "fp32", "vector", 0.981),
        ("p100", "fp16", "vector", 0.978),
    ],
)
def test_the_fastest_product_fits_the_stated_board(machines, name, dtype, engine, share):
    """98 % of the PCIe P100's rate would be 86 % of the SXM2's: the notes decide the board by this."""
    machine = machines[name]
    rows = machine.timings[(machine.timings.kind == "gemm") & (machine.timings["dtype"] == dtype)]
    assert set(rows.engine) == {engine}
    fastest = (2 * rows.b * rows.m * rows.n * rows.k / rows.time_s).max()
    assert fastest / machine.device.peak(dtype, engine).rate.value == pytest.approx(share, abs=1e-3)


@pytest.mark.parametrize("name", WORKBOOKS)
def test_shipped_fits_are_what_the_table_gives(root, tmp_path, name):
    from dataclasses import replace

    import fomkit
    from fomkit.study.fits import make_fits

    shipped = load_machine(root / "machine_profiles" / f"{name}.yaml")
    assert shipped.fits, "the fits beside the table are of another table; see CONTRIBUTING.md"
    fresh = replace(shipped, fits=make_fits(shipped, tmp_path / "fits.json"))
    assert set(fresh.fits) == set(shipped.fits)
    steps = [fomkit.estimate("resnet50", machine).step for machine in (shipped, fresh)]
    for end in ("value", "low", "high"):
        assert getattr(steps[0], end) == pytest.approx(getattr(steps[1], end), rel=1e-3)

"""NeuSight's table of kernels: a made table with known harness time, and the real table."""

from __future__ import annotations

import numpy as np
import pytest

from fomkit.core.errors import FomkitError
from fomkit.readers.registry import read_timings
from fomkit.readers.tables.neusight import devices_of, floor_seconds, intercept

HEADER = "device,op,split,B,M,N,K,H,Cin,Cout,ks,HW,stride,pad,latency_ms,tile,gx,gy,gz,bx,nkern,kernel,flag"
COLUMNS = HEADER.split(",")
DEVICE = "Made GPU"
FLOOR_S, COST_S, BYTE_PER_S = 30e-6, 18e-6, 800e9
LINEAR_FLOOR_S = 60e-6
SIZES = np.unique(np.geomspace(2, 40_000, 120).astype(int)).tolist()


def row(op: str, time_s: float, device: str = DEVICE, **cells: object) -> str:
    values = {"device": device, "op": op, "split": "train", "latency_ms": time_s * 1e3, **cells}
    return ",".join(str(values.get(column, "")) for column in COLUMNS)


def timed(byte: float, cost_s: float = COST_S, floor_s: float = FLOOR_S) -> float:
    return max(floor_s, cost_s + byte / BYTE_PER_S)


def additions(device: str = DEVICE) -> list[str]:
    return [row("add", timed(12 * size * 1024), device, B=size, H=1024) for size in SIZES]


def linears() -> list[str]:
    sizes = [(2 * size, 64, 64) for size in range(1, 26)]
    rows = [row("linear", LINEAR_FLOOR_S, B=1, M=m, N=n, K=k) for m, n, k in sizes]
    return [*rows, row("linear", 1e-3, B=1, M=512, N=3072, K=768)]


@pytest.fixture
def write(tmp_path):
    def made(*rows: str):
        path = tmp_path / "kernels.csv"
        path.write_text("\n".join([HEADER, *rows]) + "\n")
        return path

    return made


def test_the_reduction_is_n_and_weights_are_transposed(write):
    timings = read_timings(write(*linears(), row("bmm", 2e-3, B=8, M=5, N=6, K=7))).timings
    linear, batched = timings.iloc[-2], timings.iloc[-1]
    assert linear[["b", "m", "n", "k", "trans_a", "trans_b"]].tolist() == [1, 512, 768, 3072, 0, 1]
    assert batched[["b", "m", "n", "k", "trans_a", "trans_b"]].tolist() == [8, 5, 7, 6, 0, 0]
    assert linear[["kind", "dtype", "engine", "op", "library"]].tolist() == [
        "gemm",
        "fp32",
        "vector",
        "",
        "PyTorch",
    ]


def test_the_fixed_cost_is_told_from_the_timings(write):
    imported = read_timings(write(*additions(), *linears()))
    costs = imported.timings.groupby("kind")["harness_s"].agg(["min", "max"])
    assert costs.loc["pointwise"].tolist() == pytest.approx([COST_S] * 2, rel=1e-3)
    # Between 48 us, if the host does all of its further work before the kernel, and 36, if it shares it out.
    assert costs.loc["gemm"].tolist() == pytest.approx([42e-6] * 2, rel=1e-3)
    assert "linear 42 (carried over)" in imported.remarks[0]


def test_what_hides_in_the_harness_is_left_out_and_counted(write):
    imported = read_timings(write(*additions(), *linears()))
    counts = {count.section: count for count in imported.counts}
    hidden = sum(timed(12 * size * 1024) < 1.2 * FLOOR_S for size in SIZES)
    assert (counts["add"].below_resolution, counts["add"].imported) == (hidden, len(SIZES) - hidden)
    assert 0 < hidden < len(SIZES)
    assert (counts["linear"].below_resolution, counts["linear"].imported) == (25, 1)
    assert (imported.timings["time_s"] > imported.timings["harness_s"]).all()


def test_an_unknown_cost_is_not_zero_but_what_other_tables_have(write):
    imported = read_timings(write(*linears()))
    (linear,) = imported.timings.itertuples()
    assert linear.harness_s == pytest.approx(2.2 * 17.5e-6)
    # Its quartiles say how little that is known.
    assert [linear.time_s - linear.p25_s, linear.p75_s - linear.time_s] == pytest.approx([5e-6] * 2, rel=0.01)
    assert "No element-wise op has enough long timings" in imported.remarks[0]
    assert "linear 38 (by its ratio to element-wise ops" in imported.remarks[0]


@pytest.mark.parametrize("ops", [("add",), ("add", "mul", "div", "pow")], ids=["one op", "four of ten rows"])
def test_a_table_without_short_rows_tells_its_cost_from_long_ones(write, ops):
    """The host's work must not count as kernel time if no row shows the harness alone."""
    sizes = np.geomspace(20_000, 2_000_000, 40).astype(int)[:: len(ops)]
    rows = [row(op, timed(12 * size * 1024), B=size, H=1024) for op in ops for size in sizes.tolist()]
    imported = read_timings(write(*rows, linears()[-1]))
    costs = imported.timings.groupby("kind")["harness_s"].median()
    assert costs["pointwise"] == pytest.approx(COST_S, rel=0.02)
    assert costs["gemm"] == pytest.approx(2.2 * COST_S, rel=0.02)
    assert imported.timings["p25_s"].notna().tolist() == [len(ops) > 1] * (len(rows)) + [True]


def test_where_a_dense_table_begins_is_no_floor(write):
    """Twenty rows above the cut agree within a third only because the table is dense; linears have short rows."""
    sizes = np.concatenate([np.linspace(6_000, 7_800, 30), np.geomspace(8_000, 300_000, 60)]).astype(int)
    rows = [row(op, timed(12 * size * 1024), B=size, H=1024) for op in ("add", "mul") for size in sizes.tolist()]
    byte = 12 * sizes[:20] * 1024.0
    seconds = np.array([timed(one) for one in byte])
    assert 1.1 < np.quantile(seconds, 0.9) / np.quantile(seconds, 0.1) < 1.35
    assert np.isnan(floor_seconds(seconds, byte))
    costs = read_timings(write(*rows, *linears())).timings.groupby("kind")["harness_s"].median()
    assert costs["pointwise"] == pytest.approx(COST_S, rel=0.02)
    assert costs["gemm"] == pytest.approx(2.2 * COST_S, rel=0.02)


def test_few_rows_on_the_floor_are_not_taken_for_kernels(write):
    """Some of a dozen rows are as long as the harness alone, which only much longer rows reveal."""
    rows = [row(op, timed(12 * size * 1024), B=size, H=1024) for op in ("add", "mul") for size in SIZES[::6]]
    imported = read_timings(write(*rows, *(text.replace("add", "pow") for text in additions()[-40:])))
    assert imported.timings["time_s"].min() > 1.2 * FLOOR_S


def test_flagged_rows_are_left_out_and_counted(write):
    rows = [*additions(), row("linear", 1e-3, B=1, M=512, N=64, K=64, flag="throttled"), linears()[-1]]
    imported = read_timings(write(*rows))
    (linear,) = (count for count in imported.counts if count.section == "linear")
    assert (linear.imported, linear.skipped, linear.reason) == (1, 1, "flagged throttled")


def test_element_wise_ops_name_their_op_and_traffic(write):
    rows = [row("mulu", 1e-3, B=100, H=50), row("ln", 1e-3, B=100, H=50), row("softmax", 1e-3, B=100, H=50)]
    scaled, norm, softmax = read_timings(write(*rows)).timings.itertuples()
    assert (scaled.op, scaled.kind, scaled.inputs) == ("aten::mul", "pointwise", 1)
    assert (scaled.numel, scaled.row, scaled.read_byte, scaled.write_byte) == (5000, 50, 20_000, 20_000)
    # Gain and bias are read; the mean and the deviation of each row are kept.
    assert (norm.op, norm.inputs, norm.read_byte, norm.write_byte) == (
        "aten::native_layer_norm", 3, 20_000 + 400, 20_000 + 800,
    )  # fmt: skip
    assert (softmax.op, softmax.kind, softmax.pass_name) == ("aten::_softmax", "softmax", "forward")


def test_convolutions_are_square(write):
    (one,) = read_timings(
        write(row("conv", 1e-3, B=8, Cin=3, Cout=64, ks=3, HW=56, stride=1, pad=1))
    ).timings.itertuples()
    assert (one.batch, one.in_channels, one.out_channels, one.height, one.width) == (8, 3, 64, 56, 56)
    assert (one.kernel_h, one.kernel_w, one.kernel_d, one.depth, one.pad_h, one.pad_d) == (3, 3, 1, 1, 1, 0)
    assert (one.kind, one.layout, one.pass_name, one.groups) == ("conv", "nchw", "forward", 1)


def test_one_device_is_read_by_name(write):
    path = write(*additions(), row("add", 1e-3, "Other GPU", B=10, H=10))
    assert devices_of(path) == (DEVICE, "Other GPU")
    with pytest.raises(FomkitError, match="of 2 devices: Made GPU, Other GPU"):
        read_timings(path)
    with pytest.raises(FomkitError, match="no device 'Othr GPU'"):
        read_timings(path, device="Othr GPU")
    assert len(read_timings(path, device="Other GPU").timings) == 1


@pytest.mark.parametrize(
    ("bad", "match"),
    [
        (row("add", 1e-3, B=10), "kernels.csv:2: H is empty"),
        (row("add", 0.0, B=10, H=10), "kernels.csv:2: latency_ms is 0"),
        (row("addd", 1e-3, B=10, H=10), "kernels.csv:2: op is 'addd'"),
        (row("conv", 1e-3, B=8, Cin=0, Cout=64, ks=3, HW=56, stride=1, pad=1), "kernels.csv:2: Cin is 0"),
        (row("add", 1e-3, B=10, H=10, ks=1e300), "kernels.csv:2: ks is 1e\\+300. Expected a number of at most"),
    ],
)
def test_mistakes_name_file_and_line(write, bad, match):
    with pytest.raises(FomkitError, match=match):
        read_timings(write(bad))


def test_a_floor_needs_agreement():
    work = np.arange(1.0, 41.0)
    assert np.isnan(floor_seconds(work * 1e-6, work))
    assert np.isnan(floor_seconds(np.full(5, 1e-5), np.arange(5.0)))


def test_the_fixed_cost_stands_against_outliers():
    byte = np.linspace(1e7, 1e9, 100)
    seconds = 15e-6 + byte / 900e9
    seconds[::20] *= 1.5
    assert intercept(seconds, byte) == pytest.approx(15e-6, rel=0.1)


REAL = {
    # rows used, below the harness's resolution, flagged; cost of aten::mul of two tensors and of linear [us]
    "V100-PCIe-32GB": (34971, 18466, 0, 17.0, 42.5),
    "T4": (46100, 9245, 0, 13.6, 36.0),
    "P4": (39639, 7296, 6423, 14.1, 35.0),
}


@pytest.mark.parametrize("device", REAL)
def test_the_real_table(shared, kernels_of, device):
    rows, hidden, flagged, mul_us, linear_us = REAL[device]
    whole = shared / "data" / "neusight" / "kernels.csv.gz"
    imported = read_timings(whole if device == "P4" else kernels_of[device], device=device)
    counts = imported.counts
    assert (len(imported.timings), sum(one.below_resolution for one in counts)) == (rows, hidden)
    assert sum(one.skipped for one in counts) == flagged
    cost_us = 1e6 * imported.timings.groupby(["op", "inputs", "note"])["harness_s"].first()
    assert cost_us["aten::mul", 2.0, ""] == pytest.approx(mul_us, abs=1)
    linear = imported.timings["note"] == "timed as linear"
    assert 1e6 * imported.timings.loc[linear, "harness_s"].iloc[0] == pytest.approx(linear_us, abs=1)
    assert (imported.timings["time_s"] > imported.timings["harness_s"]).all()

"""The meaning of the imported figures, checked against other figures of the real workbooks."""

from __future__ import annotations

import warnings

import openpyxl
import pandas as pd
import pytest

from fomkit.core.errors import FomkitError
from fomkit.readers.tables.deepbench import read_deepbench

GATES = {"vanilla": 1, "lstm": 4, "gru": 3}
CONV_SIZES = [
    "width", "height", "in_channels", "batch", "out_channels", "kernel_w", "kernel_h",
    "pad_w", "pad_h", "stride_w", "stride_h",
]  # fmt: skip


@pytest.fixture(scope="module")
def read(deepbench):
    tables: dict[str, pd.DataFrame] = {}

    def one(name: str, folder: str = "train") -> pd.DataFrame:
        key = f"{folder}/DeepBench_{name}.xlsx"
        if key not in tables:
            tables[key] = read_deepbench(deepbench / key).timings
        return tables[key]

    return one


@pytest.fixture(scope="module")
def printed(deepbench):
    books: dict[str, openpyxl.Workbook] = {}

    def cell(name: str, sheet: str, column: str, row: float, folder: str = "train") -> object:
        key = f"{folder}/DeepBench_{name}.xlsx"
        if key not in books:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # openpyxl says that it drops chart extensions
                books[key] = openpyxl.load_workbook(deepbench / key, data_only=True)
        return books[key][sheet][f"{column}{int(row)}"].value

    return cell


def test_first_rows_of_the_v100(read):
    v100 = read("NV_V100")
    first = v100.iloc[0]
    assert (first.kind, first["dtype"], first.engine, first.accumulate_dtype) == ("gemm", "fp32", "vector", "fp32")
    assert (first.b, first.m, first.n, first.k, first.trans_a, first.trans_b) == (1, 1760, 16, 1760, 0, 0)
    assert (first.time_s, first.pass_name, first.source_sheet, first.source_row) == (38e-6, "", "Results FP32", 5)
    assert pd.isna(first.repeats)
    assert pd.isna(first.harness_s)
    conv = v100[v100.kind == "conv"].iloc[0]
    assert [conv[name] for name in CONV_SIZES] == [700, 161, 1, 4, 32, 20, 5, 0, 0, 2, 2]
    assert (conv.depth, conv.kernel_d, conv.stride_d, conv.pad_d) == (1, 1, 1, 0)
    assert (conv.dilation_d, conv.dilation_h, conv.dilation_w, conv.groups) == (1, 1, 1, 1)
    assert (conv["layout"], conv.transposed, conv.pass_name, conv.time_s) == ("nchw", 0, "forward", 78e-6)
    rnn = v100[v100.kind == "rnn"].iloc[0]
    assert (rnn.cell, rnn.hidden_size, rnn.batch, rnn.steps) == ("vanilla", 1760, 16, 50)
    assert (rnn.input_size, rnn.layers, rnn.directions, rnn.time_s) == (0, 1, 1, 4201e-6)


def test_precision_by_sheet(read):
    def formats(name: str) -> set:
        table = read(name)
        return set(zip(table.source_sheet, table.dtype, table.engine, table.accumulate_dtype, strict=True))

    assert formats("NV_V100") == {
        ("Results FP32", "fp32", "vector", "fp32"),
        ("Results - FP16 ip, Mixed math", "fp16", "matrix", "fp32"),
    }
    assert formats("NV_P100") == {
        ("Results FP32", "fp32", "vector", "fp32"),
        ("Results - Psuedo FP16", "fp16", "vector", "fp32"),
    }
    assert formats("AMD_MI25") == {("Results FP32", "fp32", "vector", "fp32")}


@pytest.mark.parametrize("name", ["NV_V100", "NV_P100", "AMD_VegaFE", "NV_TitanX_Pascal"])
def test_printed_rate_of_recurrent_layers_counts_the_recurrent_product_alone(read, printed, name):
    """2 · gates · hidden² · batch · steps is what the workbook divides by the time: no input projection."""
    rnn = read(name)[(read(name).kind == "rnn") & (read(name).pass_name == "forward")]
    column = "I" if name == "AMD_VegaFE" else "J"
    rnn = rnn[rnn.source_sheet != "Results - Psuedo FP16"]
    assert len(rnn) in (53, 106)
    for row in rnn.itertuples():
        flop = 2 * GATES[row.cell] * row.hidden_size**2 * row.batch * row.steps
        rate = float(printed(name, row.source_sheet, column, row.source_row)) * 1e12
        # The vanilla formula adds the element-wise step, 1 / (2 · hidden) of the product.
        assert flop / row.time_s == pytest.approx(rate, rel=6e-4)


WORKBOOKS = {
    "train": ("AMD_MI25", "AMD_VegaFE", "IA_KNL7250", "NV_1080Ti", "NV_M40", "NV_P100", "NV_TitanX",
              "NV_TitanX_Pascal", "NV_V100"),
    "inference": ("NV_1080Ti", "NV_TitanX_Pascal", "Raspberry_Pi_3", "iPhone_6", "iPhone_7"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("folder", "name"), [(folder, name) for folder in WORKBOOKS for name in WORKBOOKS[folder]]
)
def test_printed_rate_of_matrix_products(read, printed, folder, name):
    """Of all printed rates only these are right in every workbook; on phones they are in giga."""
    table = read(name, folder)
    unit = 1e9 if table.source_sheet.iloc[0] == "Kernels" else 1e12
    gemm = table[(table.kind == "gemm") & (table.note == "")]
    first_of_sparse = table[table.kind == "sparse_gemm"].source_row.min()
    gemm = gemm[~(gemm.source_row >= first_of_sparse)]
    assert len(gemm) >= 13
    for row in gemm.itertuples():
        rate = float(printed(name, row.source_sheet, "J", row.source_row, folder)) * unit
        assert 2 * row.m * row.n * row.k / row.time_s == pytest.approx(rate, rel=1e-4)


def test_output_size_follows_from_the_imported_input_size(read, printed):
    """P and Q of the V100 are width and height; the other family prints them swapped and with fractions."""
    v100 = read("NV_V100")
    for row in v100[(v100.kind == "conv") & (v100.pass_name == "forward")].itertuples():
        out_w = (row.width - row.kernel_w + 2 * row.pad_w) // row.stride_w + 1
        out_h = (row.height - row.kernel_h + 2 * row.pad_h) // row.stride_h + 1
        assert (out_w, out_h) == (
            printed("NV_V100", row.source_sheet, "R", row.source_row),
            printed("NV_V100", row.source_sheet, "S", row.source_row),
        )
    first = read("NV_P100")[lambda table: table.kind == "conv"].iloc[0]
    assert printed("NV_P100", first.source_sheet, "R", first.source_row) == 78.5
    assert (first.height - first.kernel_h) // first.stride_h + 1 == 79


@pytest.mark.parametrize("name", ["AMD_MI25", "AMD_VegaFE", "NV_1080Ti", "NV_P100"])
def test_both_column_orders_give_the_same_convolutions(read, name):
    """R, S, pad_h, pad_w, vertical, horizontal here; S, R, pad_w, pad_h, horizontal, vertical in the V100's."""

    def sizes(workbook: str) -> set:
        table = read(workbook)
        conv = table[(table.kind == "conv") & (table.pass_name == "forward")]
        return set(conv[CONV_SIZES].itertuples(index=False, name=None))

    common = sizes(name) & sizes("NV_V100")
    assert len(common) >= 0.95 * len(sizes("NV_V100"))
    assert any(one[5] != one[6] for one in common), "a filter that is not square"
    assert not {one for one in sizes(name) if one[6] > one[1] + 2 * one[8]}, "a filter higher than its image"


@pytest.mark.parametrize("name", ["AMD_MI25", "AMD_VegaFE"])
def test_a_bare_backward_is_the_input_gradient_only(read, name):
    rnn = read(name)[read(name).kind == "rnn"]
    assert set(rnn.pass_name) == {"forward", "backward_input"}
    assert rnn[rnn.source_row == 275].set_index("pass_name").time_s.to_dict() == pytest.approx(
        {"forward": 3.378e-3, "backward_input": 3.945e-3}
        if name == "AMD_MI25"
        else {"forward": 3.4e-3, "backward_input": 4.358e-3}
    )


def test_k_of_1530_was_run_as_1536(read):
    total = 0
    for name in ("IA_KNL7250", "NV_1080Ti", "NV_M40", "NV_P100", "NV_TitanX", "NV_TitanX_Pascal", "NV_V100"):
        table = read(name)
        rows = table[table.note == "k printed 1530, run as 1536"]
        assert (rows.k == 1536).all()
        assert not (table.k == 1530).any()
        total += len(rows)
    assert total == 72
    assert not read("AMD_MI25").note.str.contains("1530").any()


def test_n_of_7133_on_the_titan_x_alone(read):
    titan = read("NV_TitanX")
    rows = titan[titan.note.str.contains("run as 7133")]
    assert dict(zip(rows.source_row, rows.note, strict=True)) == {
        45: "n printed 6574, run as 7133",
        46: "n printed 10376, run as 7133",
        47: "n printed 8935, run as 7133",
    }
    assert list(titan[titan.n == 7133].m) == [1760, 2048, 2560, 4096]
    assert list(read("NV_V100")[lambda table: table.n == 7133].note.unique()) == [""]


def test_formulas_are_read_by_their_cached_value(read):
    p100 = read("NV_P100")
    time = p100[(p100.source_sheet == "Results FP32") & (p100.source_row == 98)]
    assert time.time_s.tolist() == [68325e-6]
    assert set(p100[(p100.source_row == 129)].n) == {24000}
    assert set(p100[(p100.source_row == 75)].m) == {3072}


def test_times_are_whole_microseconds_but_on_the_xeon_phi(read):
    for name in ("AMD_MI25", "NV_P100", "NV_V100"):
        micro = read(name)[lambda table: table.kind != "collective"].time_s * 1e6
        assert (micro - micro.round()).abs().max() < 1e-6
    micro = read("NV_P100")[lambda table: table.kind == "collective"].time_s * 1e6
    assert ((micro - micro.round()).abs() > 1e-3).sum() > 20, "the all-reduce's clock is another one"
    micro = read("IA_KNL7250").time_s * 1e6
    assert ((micro - micro.round()).abs() > 1e-3).sum() > 150


@pytest.mark.parametrize(("name", "widest"), [("NV_M40", 3.95), ("NV_P100", 1.08), ("NV_V100", 1.0)])
def test_ops_that_are_listed_twice_stay_twice(read, name, widest):
    """Four convolutions are listed twice on every sheet; their spread is the noise of the measurement."""
    conv = read(name)[lambda table: (table.kind == "conv") & (table.source_sheet == table.source_sheet.iloc[0])]
    twice = conv[conv.duplicated([*CONV_SIZES, "pass_name"], keep=False)]
    assert twice.groupby("pass_name").size().to_dict() == {"forward": 8, "backward_input": 8, "backward_weight": 8}
    times = twice.groupby([*CONV_SIZES, "pass_name"]).time_s
    assert (times.max() / times.min()).max() == pytest.approx(widest, abs=0.01)


def test_tensor_core_convolutions_pad_channels_to_8(read):
    v100 = read("NV_V100")
    conv = v100[v100.kind == "conv"]
    padded = conv[conv.padded == 1]
    assert set(padded.dtype) == {"fp16"}
    assert set(padded.in_channels) | set(padded.out_channels) >= {1, 3}
    assert padded.iloc[0].note == "in_channels 1 padded to 8 by the harness"
    matrix = conv[conv.engine == "matrix"]
    assert (((matrix.in_channels % 8 > 0) | (matrix.out_channels % 8 > 0)) == (matrix.padded == 1)).all()
    assert conv[conv.engine == "vector"].padded.isna().all()


@pytest.mark.parametrize("name", ["IA_KNL7250", "NV_1080Ti", "NV_M40", "NV_P100", "NV_TitanX", "NV_TitanX_Pascal"])
def test_printed_rate_of_all_reduces_tells_what_a_size_is(read, printed, name):
    """Gigabytes/sec is 4 byte · floats · ranks / time: the size is in floats, on each rank."""
    rows = read(name)[read(name).kind == "collective"]
    assert len(rows) in (28, 35)
    for row in rows.itertuples():
        rate = float(printed(name, row.source_sheet, "I", row.source_row)) * 1e9
        assert row.message_byte * row.ranks / row.time_s == pytest.approx(rate, rel=1e-6)
    assert (rows.p25_s <= rows.time_s).all()
    assert (rows.time_s <= rows.p75_s).all()
    assert set(rows["dtype"]) == {"fp32"}


def test_nodes_of_all_reduces_stand_in_a_column_without_header(read):
    rows = read("NV_M40")[lambda table: table.kind == "collective"]
    assert rows.groupby("ranks").link.unique().map(list).to_dict() == {
        2: ["node"], 4: ["node"], 8: ["node"], 16: ["system"], 32: ["system"],
    }  # fmt: skip
    assert rows.note.str.startswith("32 ranks on 4 nodes; ").sum() == 7
    knl = read("IA_KNL7250")[lambda table: table.kind == "collective"]
    assert set(knl.link) == {"system"}
    assert knl.note.str.startswith("2 ranks on 2 nodes; ").sum() == 7


@pytest.mark.parametrize(
    ("name", "sheet", "unit", "flop_of_multiply_add"),
    [
        ("NV_1080Ti", "Results - Mixed Precision", 1e12, 2),
        ("NV_TitanX_Pascal", "Results - Mixed Precision", 1e12, 2),
        ("Raspberry_Pi_3", "Kernels", 1e9, 2),
        ("iPhone_6", "Kernels", 1e9, 1),
        ("iPhone_7", "Kernels", 1e9, 1),
    ],
)
def test_printed_rate_of_sparse_products_counts_the_zeros(read, printed, name, sheet, unit, flop_of_multiply_add):
    """They are 9 to 19 times too high: the share of zeros was used instead of that of non-zeros.

    The iPhones' are half of that: they count a multiply-add once, as no other rate in the workbooks does.
    """
    rows = read(name, "inference")[lambda table: table.kind == "sparse_gemm"]
    assert set(rows.density) == {0.05, 0.1}
    for row in rows.itertuples():
        rate = float(printed(name, sheet, "L", row.source_row, "inference")) * unit
        zeros = (1 - row.density) * row.m * row.n * row.k
        assert flop_of_multiply_add * zeros / row.time_s == pytest.approx(rate, rel=1e-6)


@pytest.mark.parametrize("name", ["NV_1080Ti", "NV_TitanX_Pascal"])
def test_servers_run_bytes_and_floats_in_one_sheet(read, name):
    table = read(name, "inference")
    formats = table.groupby("kind")["dtype"].unique().map(sorted).to_dict()
    assert formats == {
        "gemm": ["fp32", "int8"], "conv": ["int8"], "rnn": ["fp32"], "sparse_gemm": ["fp32"],
    }  # fmt: skip
    int8 = table[(table.kind == "gemm") & (table["dtype"] == "int8")]
    # Four bytes at a time in the vector lanes: four times the rate of fp32, and no more.
    fastest = (2 * int8.m * int8.n * int8.k / int8.time_s).max()
    assert 35e12 < fastest < 4 * 11.4e12
    assert set(int8.padded) == {0, 1}
    assert set(table[table.kind == "conv"].layout) == {"nhwc"}
    dense = table[(table.kind == "gemm") & (table["dtype"] == "fp32")]
    assert (2 * dense.m * dense.n * dense.k / dense.time_s).max() < 12.2e12


def test_phones_run_bytes_but_for_the_convolutions_of_the_pi(read):
    for name, expected in {
        "iPhone_6": {"gemm": ["int8"], "sparse_gemm": ["int8"]},
        "iPhone_7": {"gemm": ["int8"], "sparse_gemm": ["int8"]},
        "Raspberry_Pi_3": {"gemm": ["int8"], "sparse_gemm": ["int8"], "conv": ["fp32"]},
    }.items():
        table = read(name, "inference")
        assert table.groupby("kind")["dtype"].unique().map(list).to_dict() == expected
    first = read("iPhone_7", "inference").iloc[0]
    assert (first.m, first.n, first.k, first.time_s) == (5124, 700, 2048, 212.836e-3)


@pytest.mark.parametrize("name", ["NV_1080Ti", "NV_TitanX_Pascal"])
def test_input_of_an_lstm_is_its_hidden_size(read, printed, name):
    lstm = read(name, "inference")[lambda table: table.cell == "lstm"]
    for row in lstm.itertuples():
        rate = float(printed(name, row.source_sheet, "H", row.source_row, "inference")) * 1e12
        assert 2 * 4 * row.hidden_size**2 * row.batch * row.steps / row.time_s == pytest.approx(rate, rel=6e-4)


@pytest.mark.parametrize("folder", ["train", "inference"])
def test_a_list_of_kernels_has_no_times(deepbench, folder):
    with pytest.raises(FomkitError, match="lists ops without any time"):
        read_deepbench(deepbench / f"DeepBenchKernels_{folder}.xlsx")

"""Layouts and mistakes of workbooks, each in a separate workbook or sheet."""

from __future__ import annotations

import datetime

import pytest
from deepbench_cells import GEMM, PREAMBLE
from hypothesis import given
from hypothesis import strategies as st

from fomkit.core.errors import FomkitError
from fomkit.files.xlsx import Sheet
from fomkit.readers.registry import READERS, read_timings
from fomkit.readers.registry import Format as Reader
from fomkit.readers.tables.deepbench import SectionRows, read_deepbench
from fomkit.readers.tables.deepbench_sections import PRECISIONS, SECTIONS
from fomkit.readers.tables.deepbench_sheet import find_layout, split_blocks

CONV_HEADER = [
    "W", "H", "C", "N", "K ", "S (Fitler width)", "R (Filter height)", "pad_w", "pad_h", "Horizontal stride",
    "Vertical Stride", "Forward (msec)", "wrt Inputs (msec)", "wrt Parameters  (msec)",
]  # fmt: skip
CONV_ROW = [700, 161, 1, 4, 32, 20, 5, 0, 2, 3, 2, 0.2, "N/A*", 0.3]
RNN_HEADER = ["Recurrent Layers - LSTM", None, "Hidden Units", "N", "Timesteps", None, "Time Forward (msec) "]


def gemm_row(**cells: object) -> list[object]:
    row = list(GEMM[1])
    for column, value in cells.items():
        row["ABCDEFGHI".index(column)] = value
    return row


def test_a_made_workbook_is_read(make_workbook):
    path = make_workbook(
        {"Kernels": [*PREAMBLE, *GEMM], "Specs": [["GPU Model", "Some  Device"], ["CUDA Version", 8]]}
    )
    imported = read_timings(path)
    assert (imported.device, imported.specs) == ("Some Device", {"GPU Model": "Some Device", "CUDA Version": "8"})
    (row,) = imported.timings.itertuples()
    assert (row.m, row.n, row.k, row.trans_a, row.trans_b, row.time_s) == (1760, 16, 1760, 0, 1, 59e-6)
    assert (row.library, row.library_version, row.source_row) == ("cuBLAS", "CUDA 8", 4)


@pytest.mark.parametrize(
    "name", ["FP32", "Results FP32", "Results - FP32", "Results - Mixed Precision", "Kernels"]
)
def test_the_sheet_may_have_any_name_and_specs_may_be_absent(make_workbook, name):
    imported = read_deepbench(make_workbook({name: [*PREAMBLE, *GEMM]}))
    assert imported.timings.source_sheet.tolist() == [name]
    assert (imported.device, imported.timings.library.tolist()) == ("", [""])


def test_blank_rows_footnotes_and_strays_inside_a_section(make_workbook):
    rows = [
        *PREAMBLE, *GEMM, [], [], gemm_row(I=0.07), [],
        [None, None, None, "* = excluded since they are input layers"],
        [None] * 11 + [2.8057], gemm_row(A=2.1157, I=0.08),
    ]  # fmt: skip
    assert read_deepbench(make_workbook({"r": rows})).timings.time_s.tolist() == [59e-6, 70e-6, 80e-6]


def test_convolution_header_stands_one_row_below(make_workbook):
    rows = [*PREAMBLE, ["Convolution"], [None, None, *CONV_HEADER], [None, "OCR", *CONV_ROW]]
    imported = read_deepbench(make_workbook({"r": rows}))
    assert imported.timings.set_index("pass_name").time_s.to_dict() == {"forward": 2e-4, "backward_weight": 3e-4}
    row = imported.timings.iloc[0]
    assert (row.width, row.height, row.kernel_w, row.kernel_h) == (700, 161, 20, 5)
    assert (row.pad_w, row.pad_h, row.stride_w, row.stride_h) == (0, 2, 3, 2)
    assert [(one.pass_name, one.imported, one.without_time) for one in imported.counts] == [
        ("forward", 1, 0), ("backward_input", 0, 1), ("backward_weight", 1, 0),
    ]  # fmt: skip


@given(st.permutations(range(len(CONV_HEADER))))
def test_columns_are_matched_by_header_in_any_order(order):
    rows = (
        ("Convolution",),
        (None, *(CONV_HEADER[place] for place in order)),
        (None, *(CONV_ROW[place] for place in order)),
    )
    sheet = Sheet("s", rows)
    (block,) = split_blocks(sheet, "s")
    (section,) = SECTIONS["convolution"]
    layout = find_layout(sheet, block, section, "s")
    timings, counts = SectionRows(sheet, block, section, layout, PRECISIONS["float"], "", "s").read()
    assert [(row["pass_name"], row["time_s"]) for row in timings] == [("forward", 2e-4), ("backward_weight", 3e-4)]
    sizes = [timings[0][one.column] for one in section.dimensions]
    assert sizes == CONV_ROW[:11]
    assert sum(one.imported for one in counts) == 2


def test_bare_backward_of_a_recurrent_layer(make_workbook):
    rows = [*PREAMBLE, [*RNN_HEADER, "Time Backward (msec)"], [None, None, 512, 16, 25, None, 2.3, 3.1]]
    timings = read_deepbench(make_workbook({"r": rows})).timings
    assert timings.pass_name.tolist() == ["forward", "backward_input"]
    assert timings.cell.tolist() == ["lstm", "lstm"]


@pytest.mark.parametrize("text", ["N/A*", "N/A", "Not Supported", " ", "#VALUE!", "-", None])
def test_what_stands_for_no_time(make_workbook, text):
    imported = read_deepbench(make_workbook({"r": [*PREAMBLE, *GEMM, gemm_row(I=text)]}))
    (count,) = imported.counts
    assert (count.imported, count.without_time, len(imported.timings)) == (1, 1, 1)


def test_a_time_of_zero_is_below_the_timer(make_workbook):
    (count,) = read_deepbench(make_workbook({"r": [*PREAMBLE, *GEMM, gemm_row(I=0)]})).counts
    assert (count.imported, count.without_time, count.below_resolution) == (1, 0, 1)


@pytest.mark.parametrize("value", ["0.059", "fast", -0.1, True, datetime.datetime(2017, 1, 1)])
def test_a_time_that_is_not_understood_fails_with_its_cell(make_workbook, value):
    with pytest.raises(FomkitError, match=r"made\.xlsx sheet 'r' cell I5: the time is"):
        read_deepbench(make_workbook({"r": [*PREAMBLE, *GEMM, gemm_row(I=value)]}))


@pytest.mark.parametrize(
    ("cells", "cell"),
    [({"D": 78.5}, "D5"), ({"E": None}, "E5"), ({"C": 0}, "C5"), ({"F": "X"}, "F5"), ({"E": -1}, "E5")],
)
def test_a_size_that_is_not_understood_fails_with_its_cell(make_workbook, cells, cell):
    with pytest.raises(FomkitError, match=f"sheet 'r' cell {cell}: [a-z_]+ is .* A size was expected"):
        read_deepbench(make_workbook({"r": [*PREAMBLE, *GEMM, gemm_row(**cells)]}))


@pytest.mark.parametrize("column", ["D", "I"])
def test_a_needed_formula_without_cached_value_fails_with_its_cell(make_workbook, column):
    rows = [*PREAMBLE, *GEMM, gemm_row(**{column: "=1500*16"})]
    with pytest.raises(FomkitError, match=f"sheet 'r' cell {column}5: is a formula without a cached value"):
        read_deepbench(make_workbook({"r": rows}))


def test_a_formula_that_nobody_needs_may_lack_its_value(make_workbook):
    rows = [*PREAMBLE, GEMM[0] + ["TERAFLOPS"], GEMM[1] + ["=2*C4*D4*E4/I4"]]
    assert len(read_deepbench(make_workbook({"r": rows})).timings) == 1


def test_padded_column(make_workbook):
    rows = [*PREAMBLE, GEMM[0] + ["TERAFLOPS", "Padded Kernels"], GEMM[1] + [1.0, 1], GEMM[1] + [1.0, 0], GEMM[1]]
    padded = read_deepbench(make_workbook({"r": rows})).timings.padded
    assert padded.tolist()[:2] == [1, 0]
    assert padded.isna().tolist() == [False, False, True]


@pytest.mark.parametrize(("device", "n"), [("Nvidia TitanX", 7133), ("Nvidia TitanX Pascal", 6574), ("", 6574)])
def test_a_correction_of_one_workbook_leaves_others_alone(make_workbook, device, n):
    sheets = {"r": [*PREAMBLE, *GEMM, gemm_row(D=6574, E=1530)], "Specs": [["GPU Model", device]]}
    row = read_deepbench(make_workbook(sheets)).timings.iloc[1]
    assert (row.n, row.k) == (n, 1536)
    assert row.note == "k printed 1530, run as 1536" + "; n printed 6574, run as 7133" * (n == 7133)


@pytest.mark.parametrize(("channels", "padded"), [((4, 12), 1), ((8, 4), 1), ((8, 64), 0)])
def test_channels_that_the_tensor_core_harness_pads(make_workbook, channels, padded):
    row = [*CONV_ROW[:2], channels[0], 4, channels[1], *CONV_ROW[5:]]
    half = ["Precision", "16 bit inputs, 16 bit multiplication, 32 bit addition"]
    rows = [half, ["Convolution"], [None, None, *CONV_HEADER], [None, None, *row]]
    first = read_deepbench(make_workbook({"r": rows})).timings.iloc[0]
    assert (first.padded, first.in_channels, first.out_channels) == (padded, *channels)
    assert first.note == "; ".join(
        f"{name} {value} padded to {value + 4} by the harness"
        for name, value in zip(("in_channels", "out_channels"), channels, strict=True)
        if value % 8
    )


def test_precision_is_per_section(make_workbook):
    rnn = [RNN_HEADER, [None, None, 512, 16, 25, None, 2.3]]
    half = "GEMM, Conv: 16 bit inputs, 16 bit multiplication,  32 bit addition"
    rows = [["Precision", half], [None, "Sparse Ops, RNN: single precision"], *GEMM, *rnn]
    timings = read_deepbench(make_workbook({"r": rows})).timings
    assert timings[["kind", "dtype", "engine"]].to_numpy().tolist() == [
        ["gemm", "fp16", "matrix"],
        ["rnn", "fp32", "vector"],
    ]


@pytest.mark.parametrize("text", ["Int4 multiplication, 32 bit accumulation", "Double", "RNN: Float"])
def test_unknown_precision_shows_it_and_what_is_known(make_workbook, text):
    with pytest.raises(FomkitError, match=r"precision .*float; single precision; 16 bit inputs") as caught:
        read_deepbench(make_workbook({"r": [["Precision", text], *GEMM]}))
    if text != "RNN: Float":
        assert repr(text.casefold()) in str(caught.value)


def test_absent_precision(make_workbook):
    with pytest.raises(FomkitError, match="states no precision for gemm"):
        read_deepbench(make_workbook({"r": GEMM}))


def test_sections_not_covered_are_skipped_by_name_and_counted(make_workbook):
    attention = [["Attention", None, "Heads", "Length", "Time (msec)"], [None, None, 8, 512, 0.3], []]
    unknown = [["Element-wise"], [None, None, "N", "Type", "Time (msec)"], [None, None, 9]]
    rows = [*PREAMBLE, *attention, *GEMM, *unknown]
    imported = read_deepbench(make_workbook({"r": rows, "remarks": [["a"], ["b"]]}))
    assert [(one.sheet, one.section, one.imported, one.skipped, one.reason) for one in imported.counts] == [
        ("r", "Attention", 0, 1, "it is not a section that fomkit knows"),
        ("r", "Dense Matrix Multiplication", 1, 0, ""),
        ("r", "Element-wise", 0, 2, "it is not a section that fomkit knows"),
        ("remarks", "(no section)", 0, 2, ""),
    ]


def test_an_unknown_section_is_named(make_workbook):
    with pytest.raises(FomkitError, match=r"cell A5 is 'Convolutions', not a known section.*'convolution'"):
        read_deepbench(make_workbook({"r": [*PREAMBLE, *GEMM, ["Convolutions"]]}))


def test_a_missing_and_a_double_header(make_workbook):
    header = list(GEMM[0])
    header[4] = "Depth"
    with pytest.raises(FomkitError, match=r"row 3: has no column 'k', which is k\. The header reads: m, n, depth"):
        read_deepbench(make_workbook({"r": [*PREAMBLE, header, GEMM[1]]}))
    header[4], header[7] = "K", "k "
    with pytest.raises(FomkitError, match=r"columns \[5, 8\] have the same header"):
        read_deepbench(make_workbook({"r": [*PREAMBLE, header, GEMM[1]]}))


def test_another_unit_of_time_is_not_taken_for_milliseconds(make_workbook):
    header = [*GEMM[0][:8], "Time (usec)"]
    with pytest.raises(FomkitError, match=r"has no time in milliseconds\. Expected one of 'time \(msec\)'"):
        read_deepbench(make_workbook({"r": [*PREAMBLE, header, GEMM[1]]}))


def test_a_workbook_without_sections_and_one_without_times(make_workbook):
    other = make_workbook({"budget": [["Item", "Cost"], ["Disk", 12]]}, "other.xlsx")
    with pytest.raises(
        FomkitError, match=r"other\.xlsx: is not of a known format\. The formats of such files are: deepbench"
    ):
        read_timings(other)
    with pytest.raises(FomkitError, match="has no DeepBench section"):
        read_deepbench(other)
    with pytest.raises(FomkitError, match="lists ops without any time"):
        read_deepbench(make_workbook({"r": [*PREAMBLE, *GEMM[:1], gemm_row(I=None)]}))


def test_recognised_by_content_not_by_name(make_workbook, tmp_path):
    path = make_workbook({"r": [*PREAMBLE, *GEMM]}, "timings.dat")
    assert len(read_timings(path).timings) == 1
    text = tmp_path / "DeepBench_NV_V100.xlsx"
    text.write_text("Dense Matrix Multiplication")
    with pytest.raises(FomkitError, match="is not of a known format"):
        read_timings(text)


def test_ambiguity_and_a_wrong_name_list_the_formats(make_workbook):
    path = make_workbook({"r": [*PREAMBLE, *GEMM]})
    deepbench = READERS["deepbench"]
    twin = {"deepbench": deepbench, "twin": Reader("a twin", deepbench.recognise, deepbench.read)}
    with pytest.raises(FomkitError, match=r"fits more than one format: deepbench: .*twin: a twin"):
        read_timings(path, readers=twin)
    assert len(read_timings(path, "twin", twin).timings) == 1
    with pytest.raises(
        FomkitError, match=r"'deepbanch' is not a known format\. The nearest names are 'deepbench'"
    ):
        read_timings(path, "deepbanch")

"""Unknown variants of the workbooks: other spellings, orders and gaps, and the messages about them."""

from __future__ import annotations

import pytest
from deepbench_cells import ALL_REDUCE, CONV, GEMM, LSTM, PREAMBLE, SPARSE, write_workbook
from hypothesis import given, settings
from hypothesis import strategies as st

from fomkit.core.errors import FomkitError
from fomkit.readers.tables.deepbench import read_deepbench
from fomkit.readers.tables.deepbench_sections import heading

BLOCKS = {"gemm": GEMM, "sparse_gemm": SPARSE, "conv": CONV, "rnn": LSTM, "collective": ALL_REDUCE}
INT8 = [
    ["Precision", "GEMM, Conv: Int8 multiplication, 32 bit accumulation"],
    [None, "Sparse Ops, RNN: single precision"],
]


def stacked(*names, gap=2):
    return [row for name in names for row in (*BLOCKS[name], *([[]] * gap))]


def respelled(rows, change):
    """Change every header (the first row with three texts, and the title)."""
    number = next(at for at, row in enumerate(rows) if sum(isinstance(cell, str) for cell in row[1:]) > 2)
    return [
        [change(cell) if isinstance(cell, str) else cell for cell in row] if at <= number else row
        for at, row in enumerate(rows)
    ]


SPELLINGS = {
    "upper case": str.upper,
    "double spaces": lambda text: text.replace(" ", "   ") + " ",
    "line breaks": lambda text: text.replace(" ", "\n"),
    "milliseconds": lambda text: text.replace("(msec)", "(ms)"),
    "underscores": lambda text: text.replace(" ", "_"),
    "no brackets but units": lambda text: text.split(" (")[0] if "msec" not in text else text,
}


@pytest.mark.parametrize("kind", BLOCKS)
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_other_spellings_of_titles_and_headers_read_the_same(make_workbook, kind, spelling):
    expected = read_deepbench(make_workbook({"a": [*PREAMBLE, *BLOCKS[kind]]}, "usual.xlsx"))
    rows = respelled(BLOCKS[kind], SPELLINGS[spelling])
    other = read_deepbench(make_workbook({"a": [*PREAMBLE, *rows]}, "other.xlsx"))
    dimensions = expected.timings.drop(columns="source_file")
    assert other.timings.drop(columns="source_file").equals(dimensions)
    assert set(dimensions.kind) >= {kind}


@given(st.permutations(list(BLOCKS)), st.sets(st.sampled_from(list(BLOCKS)), min_size=1), st.integers(0, 3))
@settings(max_examples=25)
def test_sections_in_any_order_and_number(tmp_path_factory, order, chosen, gap):
    names = [name for name in order if name in chosen]
    path = write_workbook(
        {"r": [*PREAMBLE, *stacked(*names, gap=gap)]}, tmp_path_factory.mktemp("made") / "a.xlsx"
    )
    imported = read_deepbench(path)
    titles = [BLOCKS[name][0][0] for name in names]
    assert list(dict.fromkeys(one.section for one in imported.counts)) == titles
    assert {one.kind for one in imported.counts} >= chosen
    assert len(imported.timings) == sum(one.imported for one in imported.counts)
    assert imported.remarks == ()


@pytest.mark.parametrize("kind", BLOCKS)
def test_columns_may_stand_in_another_order(make_workbook, kind):
    rows = BLOCKS[kind]
    # The title keeps column A, and the number of nodes its place right of the ranks.
    moved = [[*row[:1], *[None] * (12 - len(row)), *reversed(row[1:])] for row in rows]
    if kind == "collective":
        moved = [[*row[:1], *row[5:], *[None] * (12 - len(row)), *row[1:5]] for row in rows]
    expected = read_deepbench(make_workbook({"a": [*PREAMBLE, *rows]}))
    other = read_deepbench(make_workbook({"a": [*PREAMBLE, *moved]}))
    assert other.timings.equals(expected.timings)


def test_a_misspelled_header_is_read_and_said(make_workbook):
    rows = respelled(LSTM, lambda text: text.replace("Hidden Units", "Hiden Units"))
    imported = read_deepbench(make_workbook({"a": [*PREAMBLE, *rows]}))
    assert imported.timings.hidden_size.tolist() == [512, 512]
    assert imported.remarks == ("sheet 'a', Recurrent Layers - LSTM: 'Hiden Units' is read as 'hidden units'",)


@pytest.mark.parametrize("name", ["Hidden units", "Input"])
def test_names_of_the_hidden_size(make_workbook, name):
    rows = respelled(LSTM, lambda text: text.replace("Hidden Units", name))
    timings = read_deepbench(make_workbook({"a": [*PREAMBLE, *rows]})).timings
    assert timings[["hidden_size", "input_size"]].values.tolist() == [[512, 0]] * 2


def test_columns_that_nobody_knows_are_reported_by_name(make_workbook):
    rows = [[*GEMM[0], "TERAFLOPS", "Energy (J)"], [*GEMM[1], 1.0, 0.2]]
    imported = read_deepbench(make_workbook({"a": [*PREAMBLE, *rows]}))
    assert imported.remarks == ("sheet 'a', Dense Matrix Multiplication: not read: 'Energy (J)'",)
    assert len(imported.timings) == 1


def test_a_second_time_in_another_unit_is_reported_and_not_read(make_workbook):
    rows = respelled(LSTM, lambda text: text.replace("Time Backward (msec)", "Time Backward (usec)"))
    imported = read_deepbench(make_workbook({"a": [*PREAMBLE, *rows]}))
    assert imported.timings.pass_name.tolist() == ["forward"]
    assert imported.remarks == ("sheet 'a', Recurrent Layers - LSTM: not read: 'Time Backward (usec)'",)


def test_a_time_without_a_unit_is_read_and_noted(make_workbook):
    rows = respelled(CONV, lambda text: text.replace("Forward (msec)", "Forward"))
    timings = read_deepbench(make_workbook({"a": [*PREAMBLE, *rows]})).timings.set_index("pass_name")
    assert timings.time_s["forward"] == 2e-4
    assert "no unit" in timings.note["forward"]
    assert timings.note["backward_weight"] == ""


def test_a_header_below_a_remark(make_workbook):
    rows = [GEMM[0][:1], [None, None, None, "timed at night"], [None, *GEMM[0][1:]], GEMM[1]]
    assert len(read_deepbench(make_workbook({"a": [*PREAMBLE, *rows]})).timings) == 1


def test_a_footnote_in_column_a_ends_no_section(make_workbook):
    rows = [*GEMM, ["* = measured twice"], [*GEMM[1][:8], 0.07]]
    assert read_deepbench(make_workbook({"a": [*PREAMBLE, *rows]})).timings.time_s.tolist() == [59e-6, 70e-6]


@pytest.mark.parametrize("name", ["Specs", "Specifications", "System specs"])
@pytest.mark.parametrize("key", ["GPU Model", "gpu model"])
def test_sheets_of_specs(make_workbook, name, key):
    sheets = {"FP32": [*PREAMBLE, *GEMM], name: [[key, "A board"], ["CUDA version", 9.2]]}
    imported = read_deepbench(make_workbook(sheets))
    assert imported.device == "A board"
    assert imported.timings.library_version.tolist() == ["CUDA 9.2"]


def test_precision_is_by_section(make_workbook):
    rows = [*INT8, *stacked("gemm", "sparse_gemm", "conv", "rnn", "collective")]
    timings = read_deepbench(make_workbook({"a": rows})).timings
    found = set(zip(timings.kind, timings["dtype"], timings.engine, timings.accumulate_dtype, strict=True))
    assert found == {
        ("gemm", "int8", "vector", "int32"),
        ("sparse_gemm", "fp32", "vector", "fp32"),
        ("gemm", "fp32", "vector", "fp32"),  # the dense product beside the sparse one
        ("conv", "int8", "vector", "int32"),
        ("rnn", "fp32", "vector", "fp32"),
        ("collective", "fp32", "vector", "fp32"),
    }
    assert set(timings[timings["dtype"] == "int8"].layout) == {"column_major", "nhwc"}


def test_a_remark_takes_a_section_out_of_the_sheets_precision(make_workbook):
    remark = "Convolution results are still in float, since int8 isn't supported"
    rows = [["Precision", "Int8 inputs 32 bit math", None, remark], *stacked("gemm", "sparse_gemm", "conv")]
    imported = read_deepbench(make_workbook({"a": rows}))
    found = imported.timings.groupby("kind")["dtype"].unique().map(list).to_dict()
    assert found == {"gemm": ["int8"], "sparse_gemm": ["int8"], "conv": ["fp32"]}
    assert imported.remarks == ("sheet 'a', Sparse Matrix Multiplication: not read: 'Dense Time (msec)'",)


def test_a_sheet_of_unknown_precision_is_skipped_and_the_others_are_read(make_workbook):
    unknown = [["Precision", "Posit16 everywhere"], *stacked("gemm", "sparse_gemm", "collective")]
    imported = read_deepbench(make_workbook({"a": unknown, "b": [*PREAMBLE, *GEMM]}))
    skipped = {one.section: one for one in imported.counts if one.skipped}
    assert list(skipped) == ["Dense Matrix Multiplication", "Sparse Matrix Multiplication"]
    assert all("'posit16 everywhere', which is not known" in one.reason for one in skipped.values())
    # Floats are floats, whatever the sheet says of its products.
    assert imported.timings.kind.tolist() == ["collective", "gemm"]
    with pytest.raises(FomkitError, match=r"lists ops without any time.*Skipped: states the precision 'posit16"):
        read_deepbench(make_workbook({"a": unknown[:4]}))


def test_density_is_the_share_of_non_zeros(make_workbook):
    timings = read_deepbench(make_workbook({"a": [*PREAMBLE, *SPARSE]})).timings.set_index("kind")
    assert timings.density["sparse_gemm"] == 0.05
    assert timings[["m", "n", "k", "b"]].values.tolist() == [[7680, 2, 2560, 1]] * 2
    assert timings.time_s.to_dict() == {"sparse_gemm": 43e-6, "gemm": 255e-6}
    assert timings.layout.to_dict() == {"sparse_gemm": "", "gemm": "column_major"}


@pytest.mark.parametrize("sparsity", [95, 1, -0.1, "95 %", None])
def test_a_sparsity_that_is_no_share_fails_with_its_cell(make_workbook, sparsity):
    row = [*SPARSE[1][:7], sparsity, *SPARSE[1][8:]]
    with pytest.raises(FomkitError, match=r"cell H4: density is .* A size was expected"):
        read_deepbench(make_workbook({"a": [*PREAMBLE, SPARSE[0], row]}))


def reduced(make_workbook, *cells, header=ALL_REDUCE[0]):
    rows = [[None, None, *row] for row in cells]
    return read_deepbench(make_workbook({"a": [*PREAMBLE, header, *rows]})).timings


def test_an_all_reduce_is_counted_in_bytes_and_its_nodes_name_the_link(make_workbook):
    rows = [100000, 8, None, None, 0.2], [100000, 16, 2, None, 0.5], [100000, 16, 1, None, 0.3]
    timings = reduced(make_workbook, *rows)
    assert timings[["message_byte", "ranks"]].values.tolist() == [[4e5, 8], [4e5, 16], [4e5, 16]]
    assert timings.link.tolist() == ["node", "system", "node"]
    assert timings.note.tolist() == ["8 ranks on 1 node", "16 ranks on 2 nodes", "16 ranks on 1 node"]
    assert set(timings.collective) == {"all_reduce"}
    assert set(timings.harness) == {"DeepBench all-reduce"}


def test_an_all_reduce_over_nodes_alone(make_workbook):
    header = [*ALL_REDUCE[0]]
    header[3] = "# nodes (1 process per node)"
    timings = reduced(make_workbook, [100000, 8, None, None, 0.2], header=header)
    assert (timings.link.tolist(), timings.note.tolist()) == (["system"], ["8 ranks on 8 nodes"])


def test_the_algorithm_is_the_library_and_the_deviation_gives_quartiles(make_workbook):
    timings = reduced(make_workbook, [100000, 8, None, None, 0.2, None, 4.0, "NCCL 2.0 MPI", 0.01])
    (row,) = timings.itertuples()
    assert row.library == "NCCL 2.0 MPI"
    assert (row.p25_s, row.p75_s) == pytest.approx((193.255e-6, 206.745e-6))
    assert row.note.endswith("quartiles from the printed standard deviation of 0.01 ms")


def test_units_stand_in_brackets():
    assert [heading(text).unit for text in ("Time (msec)", "W (input - time)", "Time (s)", "Time")] == [
        "msec", "", "s", "",
    ]  # fmt: skip

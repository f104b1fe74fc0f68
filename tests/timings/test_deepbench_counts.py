"""Pinned number of timings from each section of the fourteen workbooks."""

from __future__ import annotations

import pytest

from fomkit.ops.check import check_table
from fomkit.ops.tables import column_names
from fomkit.readers.registry import read_timings

# (section, kind): {pass: (imported, without time, corrected)}
CONV_ALL = {"forward": (94, 0, 0), "backward_input": (94, 0, 0), "backward_weight": (94, 0, 0)}
CONV_84 = {**CONV_ALL, "backward_input": (84, 10, 0)}
CONV_85 = {**CONV_ALL, "backward_input": (85, 9, 0)}
RNN_ROWS = {"Vanilla": 12, "LSTM": 22, "GRU": 19}
THREE = ("forward", "backward_input", "backward_weight")
TWO = THREE[:2]


def gemm(corrected: int, rows: int = 160) -> dict:
    return {("Dense Matrix Multiplication", "gemm"): {"": (rows, 0, corrected)}}


def conv(passes: dict) -> dict:
    return {("Convolution", "conv"): passes}


def rnn(*passes: str, timed: bool = True, rows: dict = RNN_ROWS) -> dict:
    return {
        (f"Recurrent Layers - {cell}", "rnn"): dict.fromkeys(passes, (number, 0, 0) if timed else (0, number, 0))
        for cell, number in rows.items()
    }


def all_reduce(timed: int, without: int = 0) -> dict:
    return {("All-Reduce", "collective"): {"": (timed, without, 0)}}


SERVER = {
    "Results - Mixed Precision": {
        **gemm(6, rows=75),
        ("Sparse Matrix Multiplication", "sparse_gemm"): {"": (24, 0, 0)},
        ("Sparse Matrix Multiplication", "gemm"): {"": (24, 0, 0)},
        **conv({"forward": (107, 0, 0)}),
        **rnn("forward", rows={"LSTM": 15, "GRU": 54}),
    }
}


def phone(convolutions: tuple[int, int, int]) -> dict:
    return {
        "Kernels": {
            **gemm(0, rows=13),
            ("Sparse Matrix Multiplication", "sparse_gemm"): {"": (8, 0, 0)},
            **conv({"forward": convolutions}),
            **rnn("forward", timed=False, rows={"Vanilla": 2, "LSTM": 1}),
        }
    }


FOUR = {**gemm(8), **conv(CONV_84), **rnn(*THREE)}
EXPECTED = {
    "train/AMD_MI25": {"Results FP32": {**gemm(0), **conv(CONV_ALL), **rnn(*TWO)}},
    "train/AMD_VegaFE": {"Results FP32": {**gemm(0), **conv(CONV_ALL), **rnn(*TWO)}},
    "train/IA_KNL7250": {
        "Results - FP32": {**gemm(8), **conv(CONV_85), **rnn(*TWO, timed=False), **all_reduce(35)}
    },
    "train/NV_1080Ti": {"Results - FP32": {**gemm(8), **conv(CONV_ALL), **rnn(*THREE), **all_reduce(35)}},
    "train/NV_M40": {"Results - FP32": {**FOUR, **all_reduce(35)}},
    "train/NV_P100": {
        "Results FP32": {**gemm(8), **conv(CONV_ALL), **rnn(*THREE), **all_reduce(28)},
        "Results - Psuedo FP16": {**gemm(8), **conv(CONV_ALL), **rnn(*TWO)},
    },
    "train/NV_TitanX": {"Results - FP32": {**FOUR, **gemm(11), **all_reduce(35)}},
    "train/NV_TitanX_Pascal": {"Results - FP32": {**FOUR, **conv(CONV_85), **all_reduce(35)}},
    "train/NV_V100": {
        "Results FP32": {**FOUR, **all_reduce(0, without=25)},
        "Results - FP16 ip, Mixed math": FOUR,
    },
    "inference/NV_1080Ti": SERVER,
    "inference/NV_TitanX_Pascal": SERVER,
    "inference/Raspberry_Pi_3": phone((16, 1, 0)),
    "inference/iPhone_6": phone((0, 17, 0)),
    "inference/iPhone_7": phone((0, 17, 0)),
}
TIMINGS = {
    "train/AMD_MI25": 548, "train/AMD_VegaFE": 548, "train/IA_KNL7250": 468, "train/NV_1080Ti": 636,
    "train/NV_M40": 626, "train/NV_P100": 1177, "train/NV_TitanX": 626, "train/NV_TitanX_Pascal": 627,
    "train/NV_V100": 1182, "inference/NV_1080Ti": 299, "inference/NV_TitanX_Pascal": 299,
    "inference/Raspberry_Pi_3": 37, "inference/iPhone_6": 21, "inference/iPhone_7": 21,
}  # fmt: skip
DEVICES = {
    "train/AMD_MI25": "AMD MI25",
    "train/AMD_VegaFE": "AMD Vega Frontier Edition 16GB",
    "train/IA_KNL7250": "Intel(R) Xeon Phi(TM) 7250F",
    "train/NV_1080Ti": "NVIDIA GTX 1080 Ti",
    "train/NV_M40": "Nvidia Tesla M40",
    "train/NV_P100": "NVIDIA Tesla P100",
    "train/NV_TitanX": "Nvidia TitanX",
    "train/NV_TitanX_Pascal": "Nvidia TitanX Pascal",
    "train/NV_V100": "NVIDIA V100",
    "inference/NV_1080Ti": "Nvidia 1080Ti",
    "inference/NV_TitanX_Pascal": "Nvidia TitanX Pascal",
    "inference/Raspberry_Pi_3": "1.2 GHZ quad-core ARM Cortex A53",
    "inference/iPhone_6": "Apple A8 dual core 1.4GHz (ARM v8)",
    "inference/iPhone_7": "Apple A10 quad core 2.3GHz (ARM v8)",
}


def workbook(deepbench, name):
    folder, _, stem = name.partition("/")
    return deepbench / folder / f"DeepBench_{stem}.xlsx"


@pytest.fixture(scope="module")
def imported(deepbench):
    return {name: read_timings(workbook(deepbench, name)) for name in EXPECTED}


def test_these_are_all_workbooks_of_results(deepbench):
    found = [path for folder in ("train", "inference") for path in (deepbench / folder).glob("*.xlsx")]
    assert sorted(found) == sorted(workbook(deepbench, name) for name in EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_counts_per_sheet_section_and_pass(imported, name):
    counts: dict = {}
    for one in imported[name].counts:
        passes = counts.setdefault(one.sheet, {}).setdefault((one.section, one.kind), {})
        passes[one.pass_name] = (one.imported, one.without_time, one.corrected)
        assert (one.below_resolution, one.skipped, one.reason) == (0, 0, "")
    assert counts == EXPECTED[name]


@pytest.mark.parametrize("name", EXPECTED)
def test_the_table_holds_what_the_counts_say(imported, name):
    timings = imported[name].timings
    assert len(timings) == TIMINGS[name] == sum(one.imported for one in imported[name].counts)
    for sheet, sections in EXPECTED[name].items():
        rows = timings[timings.source_sheet == sheet]
        found = rows.groupby(["kind", "cell", "pass_name"]).size().to_dict()
        expected: dict = {}
        for (section, kind), passes in sections.items():
            cell = section.rpartition(" - ")[2].lower() if kind == "rnn" else ""
            for pass_name, (number, _, _) in passes.items():
                key = (kind, cell, pass_name)
                expected |= {key: expected.get(key, 0) + number} if number else {}
        assert found == expected


def test_totals_over_all_workbooks(imported):
    """The data's README speaks of 713 rows without time and of 120 with a K of 1530, over more workbooks."""
    counts = [one for found in imported.values() for one in found.counts]
    assert sum(one.imported for one in counts) == 7115
    assert sum(one.without_time for one in counts) == 233
    assert sum(one.corrected for one in counts) == 87
    printed_1530 = [found.timings.note.str.startswith("k printed 1530").sum() for found in imported.values()]
    assert sum(printed_1530) == 84


@pytest.mark.parametrize("name", EXPECTED)
def test_columns_that_nobody_knows_are_named_and_only_the_dense_times_of_bytes_are(imported, name):
    beside = ("sheet 'Kernels', Sparse Matrix Multiplication: not read: 'Dense Time (msec)'",)
    assert imported[name].remarks == (beside if "Kernels" in EXPECTED[name] else ())


@pytest.mark.parametrize("name", EXPECTED)
def test_table_follows_the_schema(imported, name):
    timings = imported[name].timings
    check_table(timings, "TIMINGS", name)
    assert list(timings.columns) == column_names("TIMINGS")
    assert (timings.time_s > 0).all()
    assert (timings.time_s < 60).all()
    assert set(timings.source_file) == {f"DeepBench_{name.partition('/')[2]}.xlsx"}
    assert set(timings.harness) == {"DeepBench"} | (
        {"DeepBench all-reduce"} if "collective" in set(timings.kind) else set()
    )
    assert (timings.note != "").sum() >= sum(one.corrected for one in imported[name].counts)


@pytest.mark.parametrize("name", EXPECTED)
def test_device_and_specs(imported, name):
    assert imported[name].device == DEVICES[name]
    assert {"CPU Model", "CPU"} & set(imported[name].specs)


def test_libraries_and_versions(imported):
    def libraries(name: str) -> set:
        timings = imported[name].timings
        return set(zip(timings.kind, timings.library, timings.library_version, strict=True))

    assert libraries("train/NV_V100") == {
        ("gemm", "cuBLAS", "CUDA 10.1.243"),
        ("conv", "cuDNN", "7.6.2.24; CUDA 10.1.243"),
        ("rnn", "cuDNN", "7.6.2.24; CUDA 10.1.243"),
    }
    assert ("conv", "cuDNN", "5; CUDA 7.5.18") in libraries("train/NV_M40")
    assert libraries("train/AMD_MI25") == {
        ("gemm", "ROCm", "1.7.1"),
        ("conv", "MIOpen", "1.3; ROCm 1.7.1"),
        ("rnn", "MIOpen", "1.3; ROCm 1.7.1"),
    }
    assert libraries("train/IA_KNL7250") == {
        ("gemm", "MKL", "MKL 2017.3, MKLML (2017.0.1)"),
        ("conv", "MKL or LIBXSMM", "MKL 2017.3, MKLML (2017.0.1); LIBXSMM master-1.5.2-190"),
        ("collective", "Intel MLSL", "MLSL 2017 Update 2 Preview; MPI 2017 Update 3"),
    }
    assert libraries("inference/NV_1080Ti") == {
        ("gemm", "cuBLAS", "CUDA 8.0.61"),
        ("sparse_gemm", "cuSPARSE", "CUDA 8.0.61"),
        ("conv", "cuDNN", "6; CUDA 8.0.61"),
        ("rnn", "cuDNN", "6; CUDA 8.0.61"),
    }
    assert libraries("inference/Raspberry_Pi_3") == {
        ("gemm", "gemmlowp", "Latest code from github repo"),
        ("sparse_gemm", "Eigen", "3.3.3"),
        ("conv", "ARM Compute Library", "17.05"),
    }

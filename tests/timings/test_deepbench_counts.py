"""How many rows of each section of the nine workbooks become timings, pinned."""

from __future__ import annotations

import pytest

from fomkit.schema import check_table, column_names
from fomkit.timings import read_timings

# section: {pass: (imported, without time, corrected)}
CONV_ALL = {"forward": (94, 0, 0), "backward_input": (94, 0, 0), "backward_weight": (94, 0, 0)}
CONV_84 = {**CONV_ALL, "backward_input": (84, 10, 0)}
CONV_85 = {**CONV_ALL, "backward_input": (85, 9, 0)}
RNN_ROWS = {"Vanilla": 12, "LSTM": 22, "GRU": 19}


def gemm(corrected: int) -> dict:
    return {"Dense Matrix Multiplication": {"": (160, 0, corrected)}}


def rnn(*passes: str, timed: bool = True) -> dict:
    return {
        f"Recurrent Layers - {cell}": dict.fromkeys(passes, (rows, 0, 0) if timed else (0, rows, 0))
        for cell, rows in RNN_ROWS.items()
    }


THREE = ("forward", "backward_input", "backward_weight")
TWO = THREE[:2]
EXPECTED = {
    "AMD_MI25": {"Results FP32": {**gemm(0), "Convolution": CONV_ALL, **rnn(*TWO)}},
    "AMD_VegaFE": {"Results FP32": {**gemm(0), "Convolution": CONV_ALL, **rnn(*TWO)}},
    "IA_KNL7250": {"Results - FP32": {**gemm(8), "Convolution": CONV_85, **rnn(*TWO, timed=False)}},
    "NV_1080Ti": {"Results - FP32": {**gemm(8), "Convolution": CONV_ALL, **rnn(*THREE)}},
    "NV_M40": {"Results - FP32": {**gemm(8), "Convolution": CONV_84, **rnn(*THREE)}},
    "NV_P100": {
        "Results FP32": {**gemm(8), "Convolution": CONV_ALL, **rnn(*THREE)},
        "Results - Psuedo FP16": {**gemm(8), "Convolution": CONV_ALL, **rnn(*TWO)},
    },
    "NV_TitanX": {"Results - FP32": {**gemm(11), "Convolution": CONV_84, **rnn(*THREE)}},
    "NV_TitanX_Pascal": {"Results - FP32": {**gemm(8), "Convolution": CONV_85, **rnn(*THREE)}},
    "NV_V100": {
        "Results FP32": {**gemm(8), "Convolution": CONV_84, **rnn(*THREE)},
        "Results - FP16 ip, Mixed math": {**gemm(8), "Convolution": CONV_84, **rnn(*THREE)},
    },
}
TIMINGS = {
    "AMD_MI25": 548, "AMD_VegaFE": 548, "IA_KNL7250": 433, "NV_1080Ti": 601, "NV_M40": 591,
    "NV_P100": 1149, "NV_TitanX": 591, "NV_TitanX_Pascal": 592, "NV_V100": 1182,
}  # fmt: skip
SKIPPED_ALL_REDUCE = {
    "AMD_MI25": 0, "AMD_VegaFE": 0, "IA_KNL7250": 35, "NV_1080Ti": 35, "NV_M40": 35,
    "NV_P100": 28, "NV_TitanX": 35, "NV_TitanX_Pascal": 35, "NV_V100": 25,
}  # fmt: skip
DEVICES = {
    "AMD_MI25": "AMD MI25",
    "AMD_VegaFE": "AMD Vega Frontier Edition 16GB",
    "IA_KNL7250": "Intel(R) Xeon Phi(TM) 7250F",
    "NV_1080Ti": "NVIDIA GTX 1080 Ti",
    "NV_M40": "Nvidia Tesla M40",
    "NV_P100": "NVIDIA Tesla P100",
    "NV_TitanX": "Nvidia TitanX",
    "NV_TitanX_Pascal": "Nvidia TitanX Pascal",
    "NV_V100": "NVIDIA V100",
}


@pytest.fixture(scope="module")
def imported(train):
    return {name: read_timings(train / f"DeepBench_{name}.xlsx") for name in EXPECTED}


def test_these_are_all_training_workbooks(train):
    assert sorted(path.stem for path in train.glob("*.xlsx")) == sorted(f"DeepBench_{name}" for name in EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_counts_per_sheet_section_and_pass(imported, name):
    counts: dict = {}
    for one in imported[name].counts:
        if one.section != "All-Reduce":
            passes = counts.setdefault(one.sheet, {}).setdefault(one.section, {})
            passes[one.pass_name] = (one.imported, one.without_time, one.corrected)
            assert (one.below_resolution, one.skipped) == (0, 0)
    assert counts == EXPECTED[name]


@pytest.mark.parametrize("name", EXPECTED)
def test_the_table_holds_what_the_counts_say(imported, name):
    timings = imported[name].timings
    assert len(timings) == TIMINGS[name] == sum(one.imported for one in imported[name].counts)
    for sheet, sections in EXPECTED[name].items():
        rows = timings[timings.source_sheet == sheet]
        found = rows.groupby(["kind", "cell", "pass_name"]).size().to_dict()
        expected = {
            (
                "rnn" if "Recurrent" in section else {"Convolution": "conv"}.get(section, "gemm"),
                section.rpartition(" - ")[2].lower() if "Recurrent" in section else "",
                pass_name,
            ): imported_rows
            for section, passes in sections.items()
            for pass_name, (imported_rows, _, _) in passes.items()
            if imported_rows
        }
        assert found == expected


@pytest.mark.parametrize("name", EXPECTED)
def test_sections_that_are_not_covered_are_counted(imported, name):
    skipped = {one.section: one.skipped for one in imported[name].counts if one.skipped}
    assert skipped == ({"All-Reduce": SKIPPED_ALL_REDUCE[name]} if SKIPPED_ALL_REDUCE[name] else {})


@pytest.mark.parametrize("name", EXPECTED)
def test_table_follows_the_schema(imported, name):
    timings = imported[name].timings
    check_table(timings, "TIMINGS", name)
    assert list(timings.columns) == column_names("TIMINGS")
    assert (timings.time_s > 0).all()
    assert (timings.time_s < 10).all()
    assert set(timings.source_file) == {f"DeepBench_{name}.xlsx"}
    assert set(timings.harness) == {"DeepBench"}
    assert (timings.note != "").sum() >= sum(one.corrected for one in imported[name].counts)


@pytest.mark.parametrize("name", EXPECTED)
def test_device_and_specs(imported, name):
    assert imported[name].device == DEVICES[name]
    assert imported[name].specs["CPU Model"]


def test_libraries_and_versions(imported):
    def libraries(name: str) -> set:
        timings = imported[name].timings
        return set(zip(timings.kind, timings.library, timings.library_version, strict=True))

    assert libraries("NV_V100") == {
        ("gemm", "cuBLAS", "CUDA 10.1.243"),
        ("conv", "cuDNN", "7.6.2.24; CUDA 10.1.243"),
        ("rnn", "cuDNN", "7.6.2.24; CUDA 10.1.243"),
    }
    assert ("conv", "cuDNN", "5; CUDA 7.5.18") in libraries("NV_M40")
    assert libraries("AMD_MI25") == {
        ("gemm", "ROCm", "1.7.1"),
        ("conv", "MIOpen", "1.3; ROCm 1.7.1"),
        ("rnn", "MIOpen", "1.3; ROCm 1.7.1"),
    }
    assert libraries("IA_KNL7250") == {
        ("gemm", "MKL", "MKL 2017.3, MKLML (2017.0.1)"),
        ("conv", "MKL or LIBXSMM", "MKL 2017.3, MKLML (2017.0.1); LIBXSMM master-1.5.2-190"),
    }

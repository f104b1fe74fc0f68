"""tfprof's text: the lecture's table of products, in their roles."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fomkit.core.errors import FomkitError
from fomkit.readers.profilers.tfprof import read_tfprof, recognise_tfprof
from fomkit.verbs.profiles import model

PRODUCTS = """-1x29532 29532x1000 1 65310 | -1x29532 100x1000 1 42270 | 100x1000 29532x1000 0 0
| 100x1000 1000x500 1 1210 | 100x1000 100x500 1 1980 | 100x500 1000x500 1 2110 | 100x500 500x100 1 515
| 100x500 100x100 1 592 | 100x100 500x100 1 609 | 100x100 100x50 2 549 | 100x50 100x50 1 293 | 100x50 50x1 1 22
| 100x50 100x1 1 26 | 100x1 50x1 1 42"""
"""Foster & Stevens, Learning Systems 2018, lecture 10: operands, runs and microseconds of P1B3 on an x86."""
OTHERS = {"Assign": 73.65, "Mul": 61.46, "Add": 22.31, "ReluGrad": 1.11}
HEADER = "node name | requested bytes | total execution time | op occurrence (run|defined)\n"


def lecture_text() -> str:
    """Print the lecture's figures as tfprof does."""
    lines = [HEADER, "MatMul    121.67MB (100.00%, 33.02%),    115.52ms (100.00%, 40.21%),   14|15\n"]
    for product in PRODUCTS.split("|"):
        left, right, run, time = product.split()
        lines.append(f"input_type: 0:{left},\t1:{right},\t(run*{run}|defined*1)\texec_time: {time}us\n")
    lines += [f"{op}    0B (0.00%, 0.00%),    {time}ms (1.00%, 1.00%),   1|1\n" for op, time in OTHERS.items()]
    return "".join(lines)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "printed.txt"
    found.write_text(lecture_text(), encoding="utf-8")
    return found


def test_the_lectures_products_come_out_in_their_roles(path: Path) -> None:
    assert recognise_tfprof(path)
    ops, said = read_tfprof(path, {"batch": 100})
    names = ["pass_name", "count", "b", "m", "n", "k", "trans_a", "trans_b"]
    products, wanted = ops[ops["kind"] == "gemm"], model("p1b3-lecture").ops
    wanted = wanted[wanted["kind"] == "gemm"]
    got, expected = (sorted(map(tuple, one[names].to_numpy().tolist())) for one in (products, wanted))
    assert got == expected
    assert len(got) == 14
    assert (products["traced_time_s"] * products["count"]).sum() == pytest.approx(0.11552, rel=1e-3)
    assert any(line.startswith("partial: 4 types of op are sums") for line in said)


@pytest.mark.parametrize(
    "lost",
    [
        lambda text: text.replace("\t", " ").replace(" | ", " "),
        lambda text: text.replace("\t", "").replace("|", " "),
        lambda text: text.replace(",\t", "").replace(" | ", "").replace("    ", " "),
        lambda text: text.replace("    ", "").replace(",", " ").replace("|", ""),
    ],
    ids=["bars and tabs", "tabs, and bars of counts", "commas between shapes", "spaces after names"],
)
def test_columns_that_lost_their_separators_are_read_all_the_same(path: Path, lost: Callable[[str], str]) -> None:
    whole = read_tfprof(path, {"batch": 100})[0]
    path.write_text(lost(lecture_text()), encoding="utf-8")
    assert recognise_tfprof(path)
    found = read_tfprof(path, {"batch": 100})[0]
    assert found.drop(columns="code_line", errors="ignore").equals(
        whole.drop(columns="code_line", errors="ignore")
    )


def test_other_ops_keep_their_time(path: Path) -> None:
    ops = read_tfprof(path, {"batch": 100})[0].set_index("op")
    assert ops.loc["Assign", "traced_time_s"] == pytest.approx(0.07365)
    assert ops.loc["Assign", "pass_name"] == "update"
    assert ops.loc["ReluGrad", "pass_name"] == "backward"


@pytest.mark.parametrize(
    ("text", "batch", "words"),
    [
        (None, None, "its shapes leave the batch open. Give it, for example --set batch=100."),
        (None, 64, r"is not of a dense layer at batch 64. Check --set batch"),
        (HEADER, 100, "has no op with a time"),
    ],
)
def test_what_cannot_be_read_is_told(path: Path, text: str | None, batch: int | None, words: str) -> None:
    if text is not None:
        path.write_text(text)
    with pytest.raises(FomkitError, match=words):
        read_tfprof(path, {} if batch is None else {"batch": batch})

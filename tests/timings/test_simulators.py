"""Tables of two simulators: Vidur's pieces of a decoder layer and collectives, vTrain's all-reduces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fomkit.core.errors import FomkitError
from fomkit.ops.pricing import add_costs
from fomkit.readers.registry import read_timings

PIECES = ("emb", "input_layernorm", "attn_pre_proj", "attn_rope", "attn_post_proj", "post_attention_layernorm",
          "mlp_up_proj", "mlp_act", "mlp_down_proj", "add")  # fmt: skip
SIZES = {"n_head": "4", "n_kv_head": "2", "n_embd": "512", "n_expanded_embd": "1024", "vocab_size": "32000",
         "use_gated_mlp": "True", "num_tokens": "96", "num_tensor_parallel_workers": "2"}  # fmt: skip


def layer(path: Path, *, pieces: tuple[str, ...] = PIECES, ms: str = "0.02", **sizes: str) -> Path:
    """Write a table of one line."""
    stats = {f"time_stats.{piece}.{word}": ms for piece in pieces for word in ("median", "min", "max")}
    cells = {**stats, **SIZES, **sizes}
    path.write_text(f"{','.join(cells)}\n{','.join(cells.values())}\n", encoding="utf-8")
    return path


def test_pieces_have_the_sizes_that_a_worker_has(tmp_path: Path) -> None:
    """Of 2 workers each has 2 of 4 heads, 1 of 2 key heads, half the width inside; 96 tokens of 512."""
    found = read_timings(layer(tmp_path / "t.csv"))
    rows = found.timings.set_index("note")
    assert set(rows["time_s"]) == {2e-5}
    assert set(rows["dtype"]) == {"fp16"}
    products = {name: tuple(rows.loc[name, ["m", "n", "k", "trans_b"]]) for name in rows.index if "proj" in name}
    assert products == {
        "attn_pre_proj": (96, (2 + 2 * 1) * 128, 512, 1), "attn_post_proj": (96, 512, 256, 1),
        "mlp_up_proj": (96, 2 * 512, 512, 1), "mlp_down_proj": (96, 512, 512, 1),
    }  # fmt: skip
    traffic = {name: tuple(rows.loc[name, ["kind", "op", "read_byte", "write_byte"]]) for name in
               ("attn_rope", "mlp_act", "add", "input_layernorm", "post_attention_layernorm")}  # fmt: skip
    turned, inner, whole = (2 + 1) * 128 * 96, 512 * 96, 512 * 96
    norm = ("norm", "", 2 * (whole + 512), 2 * whole)
    assert traffic == {
        "attn_rope": ("pointwise", "positions", 2 * turned, 2 * turned),
        "mlp_act": ("pointwise", "activation", 2 * 2 * inner, 2 * inner),
        "add": ("pointwise", "", 2 * 2 * whole, 2 * whole),
        "input_layernorm": norm, "post_attention_layernorm": norm,
    }  # fmt: skip
    assert add_costs(found.timings)["byte"].gt(0).all()


ONE_NORM = tuple(piece for piece in PIECES if "post_attention" not in piece)


@pytest.mark.parametrize(
    ("change", "piece", "reason"),
    [
        ({}, "emb", "several kernels in one time"),
        ({"pieces": ONE_NORM}, "add", "two kernels in one time"),
        ({"pieces": ONE_NORM}, "input_layernorm", "which norm"),
        ({"time_stats.mlp_act.median": "0.002", "time_stats.mlp_act.min": "0.002"}, "mlp_act", "less than 3 us"),
        ({"time_stats.add.min": "0.5"}, "add", "a median outside its range"),
        ({"time_stats.attn_rope.median": ""}, "attn_rope", "no time"),
    ],
)
def test_what_is_no_timing_of_one_op_is_left_out_by_name(
    tmp_path: Path, change: dict[str, Any], piece: str, reason: str
) -> None:
    found = read_timings(layer(tmp_path / "t.csv", **change))
    assert any(one.section == piece and one.skipped == 1 and reason in one.reason for one in found.counts)
    assert piece not in set(found.timings["note"])
    assert "mlp_up_proj" in set(found.timings["note"])


def test_one_worker_looks_words_up_in_one_kernel(tmp_path: Path) -> None:
    rows = read_timings(layer(tmp_path / "t.csv", num_tensor_parallel_workers="1")).timings
    assert rows.loc[rows["note"] == "emb", ["kind", "numel"]].to_numpy().tolist() == [["embedding", 96.0 * 512]]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"use_gated_mlp": "1"}, "t.csv:2: use_gated_mlp is '1'. Expected True or False"),
        ({"num_tokens": "0"}, "t.csv:2: num_tokens is 0. Expected a number above 0"),
        ({"num_tensor_parallel_workers": "3"}, "t.csv:2: n_head does not divide"),
        ({"ms": "0.001"}, "has no time that a clock of microseconds resolves"),
        ({"time_stats.add.median": "fast"}, "time_stats.add.median is 'fast'"),
    ],
)
def test_a_wrong_table_is_one_message(tmp_path: Path, change: dict[str, str], said: str) -> None:
    with pytest.raises(FomkitError) as error:
        read_timings(layer(tmp_path / "t.csv", **change))
    assert said in str(error.value)


def test_collectives_know_their_link_and_ranks(tmp_path: Path) -> None:
    head = "time_stats.all_reduce.median,rank,num_workers,size,collective,devices_per_node,max_devices_per_node"
    text = f"{head}\n0.05,0,8,2048,all_reduce,8,8\n0.09,0,16,4096,all_reduce,8,8\n"
    (tmp_path / "t.csv").write_text(text, encoding="utf-8")
    rows = read_timings(tmp_path / "t.csv").timings
    columns = ["collective", "message_byte", "ranks", "link"]
    assert rows[columns].to_numpy().tolist() == [
        ["all_reduce", 2048, 8, "node"],
        ["all_reduce", 4096, 16, "system"],
    ]
    assert rows["time_s"].tolist() == pytest.approx([5e-5, 9e-5])


VTRAIN = "size(B),count,type,time(ns),busbw(GB/s),time(ns),busbw(GB/s)\n"


def test_ranks_of_all_reduces_follow_from_their_rates(tmp_path: Path) -> None:
    """With 4 ranks the bus carries 1.5 times the bytes; a line with another rate is left out by name."""
    path = tmp_path / "t.csv"
    lines = "".join(f"{1e6:.0f},250000,float,{time},{1.5e6 / time:.2f},{time},{1.5e6 / time:.2f}\n" for time in
                    (51400, 52740))  # fmt: skip
    path.write_text(f"{VTRAIN}{lines}1000000,250000,float,50000,99,50000,30\n", encoding="utf-8")
    found = read_timings(path)
    assert set(found.timings["ranks"]) == {4.0}
    assert found.timings["time_s"].tolist() == pytest.approx([5.14e-5] * 2 + [5.274e-5] * 2 + [5e-5])
    assert [(one.skipped, one.reason) for one in found.counts] == [(1, "size, time and rate that do not agree")]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("1000000,250000,float,50,20,50,20", "which no number of ranks gives"),
        ("1000000,250000,floaty,50000,20,50000,20", "type is 'floaty'"),
        ("1000000,250000,float,,20,50000,20", "empty or not above 0"),
    ],
)
def test_rates_of_no_ranks_are_refused(tmp_path: Path, line: str, said: str) -> None:
    (tmp_path / "t.csv").write_text(VTRAIN + line + "\n", encoding="utf-8")
    with pytest.raises(FomkitError, match=said):
        read_timings(tmp_path / "t.csv")


def test_the_shared_tables_are_read(shared: Path) -> None:
    """In times of real boards no product exceeds the A100's 312 TFLOP/s, and no large op twice its bandwidth."""
    found = read_timings(shared / "data" / "layer_kernels" / "a100_Llama-2-7b-hf.mlp.csv.gz")
    costed = add_costs(found.timings)
    products = costed[costed["kind"] == "gemm"]
    assert len(products) == 4 * 1044
    assert 0.3 < (products["flop"] / products["time_s"]).max() / 312e12 < 1
    large = costed[(costed["kind"] != "gemm") & (costed["time_s"] > 5e-5)]
    assert 0.5 < (large["byte"] / large["time_s"]).max() / 2039e9 < 1.1
    for name, ranks in (("a100_AR_GPU2", 2), ("a100_AR_GPU4", 4), ("v100_AR_GPU8", 8)):
        timings = read_timings(shared / "data" / "collectives" / f"vtrain_{name}.csv.gz").timings
        assert set(timings["ranks"]) == {ranks}
        assert len(timings) == 2048
    sent = read_timings(shared / "data" / "collectives" / "vidur_h100_dgx_send_recv.csv.gz").timings
    assert set(sent["link"]) == {"node", "system"}
    inside = sent[sent["link"] == "node"]
    assert 200e9 < (inside["message_byte"] / inside["time_s"]).max() < 450e9

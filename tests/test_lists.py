"""Lists of ops that people time: profiles that run each op once."""

from __future__ import annotations

import gzip
import json
import runpy
from pathlib import Path

import pytest

import fomkit
from fomkit.core.errors import FomkitError


def test_every_op_of_the_list_has_a_time_where_its_formats_and_links_are_stated() -> None:
    found = fomkit.predict("operatorx", "gb200")
    assert len(found.ops) == len(fomkit.model("operatorx").ops) > 2000
    assert len(found.unpriced) == 0
    assert (found.ops["low_s"] <= found.ops["time_s"]).all()


def test_a_machine_says_how_much_of_the_list_its_table_covers() -> None:
    one = fomkit.show("l40s").content["coverage"]["lists"][0]
    assert one["name"] == "operatorx"
    assert sum(one["sources"].values()) == one["ops"]
    assert one["sources"]["interpolated"] > 300 < one["sources"]["unpriced"]


def test_a_profile_is_predicted_at_its_own_sizes_or_others() -> None:
    own, small = (fomkit.predict("p1b3", "v100", sizes=sizes) for sizes in (None, {"batch": 10}))
    for given, other in zip(own.ops.to_dict("records"), small.ops.to_dict("records"), strict=True):
        assert given["kind"] != "gemm" or given["flop"] == 10 * other["flop"]
    with pytest.raises(FomkitError, match="'seq' is not one of its sizes"):
        fomkit.predict("p1b3", "v100", sizes={"seq": 8})


ENTRIES = {
    "gemm": [
        {"args": {"m": 4, "n": 7168, "k": 2048, "dtype_a": "int4", "dtype_b": "int4", "dtype_out": "bf16"}},
        {"args": {"m": 4, "n": 7168, "k": 2048, "dtype_a": "fp4", "dtype_b": "fp4", "dtype_out": "bf16"}},
        {"args": {"m": 5, "n": 7168, "k": 2048, "dtype_a": "fp8", "dtype_b": "fp8", "dtype_out": "bf16"}},
    ],
    "attention": [
        {"type": "attention_mla", "name": "dsr1", "args": {
            "batch_size": 16, "seq_len_q": 2, "seq_len_kv": 8704, "num_heads": 16, "head_dim_qk_nope": 128,
            "head_dim_qk_rope": 64, "head_dim_v": 128, "kv_lora_rank": 512, "dtype_q": "nvfp4", "dtype_kv": "fp8",
        }},
        {"type": "attention_mha", "name": "gptoss", "args": {
            "batch_size": 4, "seq_len_q": 1024, "seq_len_kv": 1024, "num_heads": 64, "num_heads_kv": 8,
            "head_dim": 64, "dtype_q": "nvfp4", "dtype_k": "fp8", "sliding_window": 128,
        }},
    ],
    "moe": [
        {"name": "dsr1", "args": {
            "num_tokens": 64, "hidden": 7168, "intermediate": 2048, "num_experts": 256, "top_k": 8,
            "dtype_act": "fp8", "dtype_weight": "mxfp4", "tp": 2, "ep": 8,
        }},
    ],
    "moe_gemm": [],
    "collectives": [
        {"type": "allgather", "args": {"num_elements_per_rank": 2**18, "dtype": "bf16", "world_size": 8}},
        {"type": "dispatch", "args": {"num_tokens": 64, "dtype": "bf16", "world_size": 8}},
    ],
}  # fmt: skip


def test_entries_become_rows(tmp_path: Path, root: Path) -> None:
    for name, entries in ENTRIES.items():
        (tmp_path / f"{name}.json.gz").write_bytes(gzip.compress(json.dumps(entries).encode()))
    made = runpy.run_path(str(root / "benchmarks" / "op_lists.py"))["ops_of"](tmp_path)
    product, latent, window, experts, gather = made.to_dict("records")
    assert (product["dtype"], product["weight_share"]) == ("bf16", pytest.approx(9 / 32))
    assert [latent[name] for name in ("dtype", "heads", "kv_heads", "q_len", "head_dim", "shared_dim")] == [
        "fp8", 16, 1, 2, 544, 512,
    ]  # fmt: skip
    assert [window[name] for name in ("q_len", "kv_len", "causal")] == [1024, 128, 1]
    assert [experts[name] for name in ("b", "m", "n", "k")] == [32, 64, 1024, 7168]
    assert experts["weight_share"] == pytest.approx(17 / 32)
    assert [gather[name] for name in ("collective", "message_byte", "ranks")] == ["all_gather", 2**22, 8]

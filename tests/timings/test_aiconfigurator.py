"""aiconfigurator's tables: small tables in the exact layouts, and the nine real tables."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from fomkit.core.errors import FomkitError
from fomkit.core.units import ITEM_BYTE
from fomkit.ops.pricing import add_costs
from fomkit.prediction.exchange import REPLAYED
from fomkit.readers.registry import read_timings
from fomkit.readers.tables.aiconfigurator import recognise_aiconfigurator

GEMM = "framework,version,device,kernel_source,gemm_dtype,m,n,k,time_ms"
ATTENTION = (
    "framework,version,device,kernel_source,batch_size,isl,num_heads,num_key_value_heads,head_dim,attn_dtype,"
    "kv_cache_dtype,time_ms"
)
NCCL = "framework,version,device,op_name,kernel_source,nccl_dtype,num_gpus,message_size,time_ms,nccl"


@pytest.fixture
def made(tmp_path):
    def write(*lines: str, name: str = "made.csv") -> Path:
        path = tmp_path / name
        content = "\n".join(lines).encode() + b"\n"
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return path

    return write


def gemm(dtype: str, time_ms: float = 0.5, device: str = "Some GPU") -> str:
    return f"SGLang,0.5.10,{device},sglang,{dtype},16,4096,1024,{time_ms}"


@pytest.mark.parametrize("name", ["made.csv", "made.csv.gz"])
def test_products_are_linear_layers_with_their_origin(made, name):
    imported = read_timings(made(GEMM, gemm("bfloat16"), gemm("fp8", 0.25), name=name))
    first, second = imported.timings.itertuples()
    assert (first.kind, first.dtype, first.engine, first.pass_name) == ("gemm", "bf16", "matrix", "")
    assert (first.b, first.m, first.n, first.k, first.trans_a, first.trans_b) == (1, 16, 4096, 1024, 0, 1)
    assert (first.time_s, second.time_s, second.dtype, second.op) == (0.5e-3, 0.25e-3, "fp8", "")
    assert (first.library, first.library_version, first.source_file) == ("sglang", "SGLang 0.5.10", name)
    assert (first.source_row, second.source_row, imported.device) == (2, 3, "Some GPU")
    assert imported.timings.harness_s.isna().all()


def test_block_scaled_products_have_a_format_of_their_own(made):
    imported = read_timings(made(GEMM, gemm("fp8_block"), gemm("fp8")))
    assert imported.timings["dtype"].tolist() == ["fp8_block", "fp8"]
    assert imported.timings["op"].tolist() == ["", ""]


def test_unknown_number_formats_are_counted(made):
    imported = read_timings(made(GEMM, gemm("int4_wo"), gemm("bfloat16")))
    (count,) = imported.counts
    assert (count.imported, count.skipped, len(imported.timings)) == (1, 1, 1)
    assert "gemm_dtype" in count.reason
    with pytest.raises(FomkitError, match="number format"):
        read_timings(made(GEMM, gemm("int4_wo")))


def test_attention_is_causal_and_marks_what_differs(made):
    rows = [
        f"SGLang,0.5.10,Some GPU,flash_attention,4,2048,96,8,128,{attention},{cache},1.5"
        for attention, cache in (("bfloat16", "bfloat16"), ("bfloat16", "fp8"), ("fp8", "fp8"))
    ]
    timings = read_timings(made(ATTENTION, *rows)).timings
    assert timings["op"].tolist() == ["", "attention_fp8_kv_cache", ""]
    assert timings["dtype"].tolist() == ["bf16", "bf16", "fp8"]
    row = next(timings.itertuples())
    assert (row.batch, row.heads, row.kv_heads, row.q_len, row.kv_len) == (4, 96, 8, 2048, 2048)
    assert (row.head_dim, row.causal, row.pass_name, row.engine) == (128, 1, "forward", "matrix")


def test_a_prompt_beyond_a_window_sees_its_keys_and_any_other_is_an_op_of_its_own(made):
    header = ATTENTION.replace("time_ms", "step,window_size,time_ms")
    row = "SGLang,0.5.10,Some GPU,flash_attention,4,{},96,8,128,bfloat16,bfloat16,{},{},1.5"
    cells = ((2048, 0, 0), (2048, 0, 8192), (2048, 0, 128), (1, 4096, 128))
    timings = read_timings(made(header, *(row.format(*one) for one in cells))).timings
    assert timings["op"].tolist() == ["", "attention_window_8192", "", "attention_window_128"]
    assert timings["kv_len"].tolist() == [2048, 2048, 128, 4097]
    assert timings["causal"].tolist() == [1, 1, 1, 0]


def test_one_query_over_an_fp8_cache_is_attention_in_fp8(made):
    header = ATTENTION.replace("time_ms", "step,time_ms")
    row = "SGLang,0.5.14,Some GPU,fa3,4,1,96,8,128,bfloat16,fp8,1023,1.5"
    timings = read_timings(made(header, row)).timings
    assert timings[["op", "dtype", "kv_len"]].to_numpy().tolist() == [["", "fp8", 1024]]


def test_decoding_sees_the_whole_cache(made):
    """``isl`` is the one new token; the cache's length is ``step``, and every query sees all of it."""
    header = ATTENTION.replace("time_ms", "step,time_ms")
    row = "SGLang,0.5.14,Some GPU,fa3,4,{},96,8,128,bfloat16,bfloat16,{},1.5"
    timings = read_timings(made(header, row.format(2048, 0), row.format(1, 2047))).timings
    assert timings["q_len"].tolist() == [2048, 1]
    assert timings["kv_len"].tolist() == [2048, 2048]
    assert timings["causal"].tolist() == [1, 0]


def test_collectives_name_the_version_where_either_column_has_it(made):
    header = NCCL.removesuffix(",nccl")
    timings = read_timings(made(header, "TRTLLM,2.29.2,Some GPU,all_gather,NCCL,half,8,1024,0.1")).timings
    assert timings["library_version"].tolist() == ["2.29.2"]


def test_the_message_of_a_collective_is_elements_times_item(made):
    row = "TRTLLM,2.27.3,Some GPU,{},NCCL,{},8,1048576,0.1,2.27.3"
    timings = read_timings(made(NCCL, row.format("alltoall", "half"), row.format("all_reduce", "int8"))).timings
    assert timings["collective"].tolist() == ["all_to_all", "all_reduce"]
    assert timings["message_byte"].tolist() == [2 * 2**20, 2**20]
    assert timings[["kind", "dtype", "link", "library_version"]].iloc[0].tolist() == [
        "collective", "fp16", "node", "2.27.3",
    ]  # fmt: skip
    assert (timings["ranks"].tolist(), timings["harness"].tolist()) == ([8, 8], ["nccl-tests"] * 2)


@pytest.mark.parametrize(
    ("rows", "match"),
    [
        ([gemm("bfloat16", 0.0)], r"made.csv:2: time_ms is 0. Expected a number above 0"),
        ([gemm("bfloat16"), gemm("bfloat16").replace("4096", "")], r"made.csv:3: n is empty"),
        ([gemm("bfloat16").replace("4096", "many")], r"made.csv:2: n is 'many'"),
        ([gemm("bfloat16"), gemm("bfloat16", device="Other")], "several devices: Other, Some GPU"),
    ],
)
def test_mistakes_name_file_and_line(made, rows, match):
    with pytest.raises(FomkitError, match=match):
        read_timings(made(GEMM, *rows))


def test_other_tables_are_not_recognised(made):
    assert not recognise_aiconfigurator(made("kind,dtype,engine,time_s", "gemm,bf16,matrix,1"))
    with pytest.raises(FomkitError, match="--device Some GPU"):
        read_timings(made(GEMM, gemm("fp8")), device="Some GPU")


EXPERTS = (
    "framework,version,device,op_name,kernel_source,moe_dtype,num_tokens,hidden_size,inter_size,topk,num_experts,"
    "moe_tp_size,moe_ep_size,distribution,time_ms"
)
OWN = "framework,version,device,op_name,kernel_source,allreduce_dtype,num_gpus,message_size,time_ms,backend"


def test_an_encoder_has_no_mask_and_as_many_keys_as_queries(made):
    header = "framework,version,device,op_name,kernel_source,batch_size,isl,num_heads,head_dim,attn_dtype,time_ms"
    row = "SGLang,0.5.14,Some GPU,encoder_attention,flash_attention_v3,4,1296,16,80,bfloat16,1.5"
    (read,) = read_timings(made(header, row)).timings.itertuples()
    assert (read.batch, read.heads, read.kv_heads, read.q_len, read.kv_len) == (4, 16, 16, 1296, 1296)
    assert (read.head_dim, read.causal, read.op, read.library) == (80, 0, "", "flash_attention_v3")


def test_experts_are_those_of_one_device(made):
    row = "SGLang,0.5.14,Some GPU,moe,triton,{},64,7168,2048,8,384,4,16,{},1.9"
    kinds = [
        ("bfloat16", "balanced"),
        ("bfloat16", "power_law_1.2"),
        ("fp8_block", "balanced"),
        ("int4_wo", "balanced"),
    ]
    imported = read_timings(made(EXPERTS, *(row.format(*one) for one in kinds)))
    read = imported.timings
    assert read["op"].tolist() == ["", "experts_power_law_1.2", ""]
    assert read["dtype"].tolist() == ["bf16", "bf16", "fp8_block"]
    assert read[["m", "k", "n", "b", "experts", "top_k"]].iloc[0].tolist() == [64, 7168, 512, 24, 384, 8]
    (count,) = imported.counts
    assert (count.kind, count.imported, count.skipped) == ("experts", 3, 1)
    assert count.reason.endswith("moe_dtype: 1 int4_wo")


@pytest.mark.parametrize(
    ("sizes", "name"),
    [("2688,1856,6,128", "experts_without_gate"), ("8192,5120,22,512", "experts_without_gate"),
     ("7168,2048,8,256", "experts_in_groups"), ("6144,2048,8,256", "")],
)  # fmt: skip
def test_experts_without_a_gate_and_routers_in_groups_are_ops_of_their_own(made, sizes, name):
    row = "SGLang,{},Some GPU,moe,triton,bfloat16,64,{},1,1,{},1.9"
    cells = (("0.5.14", "balanced"), ("0.5.14", "power_law_1.2"), ("0.5.10", "balanced"))
    read = read_timings(made(EXPERTS, *(row.format(version, sizes, even) for version, even in cells))).timings
    assert read["op"].tolist() == [name, f"{name or 'experts'}_power_law_1.2", ""]


BANDWIDTH = {"a100_sxm": 2.039e12, "h100_sxm": 3.35e12, "h200_sxm": 4.8e12, "b200_sxm": 8e12, "gb200": 8e12}


@pytest.mark.parametrize("machine", BANDWIDTH)
def test_no_evenly_chosen_experts_are_read_faster_than_memory(shared, machine):
    """Where each expert has a token, the device reads the weights of all of them, three matrices each."""
    rows = read_timings(shared / "data" / "modern_gpus" / f"{machine}.moe.csv.gz").timings
    rows = rows[(rows["m"] * rows["top_k"] >= rows["experts"]) & ~rows["op"].str.contains("power_law")]
    byte = 3 * rows["b"] * rows["n"] * rows["k"] * rows["dtype"].map(ITEM_BYTE)
    share = (byte / rows["time_s"] / BANDWIDTH[machine])[byte > 4e8]
    assert share[rows["op"] == ""].max() < 0.98
    fast = share[rows["op"] == "experts_in_groups"]
    assert fast.empty or 1.6 < fast.max() < 2 * 0.98
    two = share[rows["op"] == "experts_without_gate"] * 2 / 3
    assert two.empty or two.max() < 0.99


def test_the_serving_librarys_own_all_reduce_counts_items(made, shared):
    row = "SGLang,0.5.14,Some GPU,all_reduce,Own_{0},bfloat16,8,1024,0.03,sglang_{0}"
    read = read_timings(made(OWN, row.format("graph"), row.format("eager"))).timings
    assert read["message_byte"].tolist() == [2048, 2048]
    assert read["op"].tolist() == ["all_reduce_replayed", "all_reduce_with_launches"]
    # Large ones are NCCL's own, at the same count of items.
    tables = [shared / "data" / "modern_gpus" / f"a100_sxm.{name}.csv.gz" for name in ("custom_allreduce", "nccl")]
    own, nccl = (read_timings(table).timings for table in tables)
    both = own[own["op"] == REPLAYED].merge(
        nccl[(nccl["collective"] == "all_reduce") & (nccl["dtype"] == "fp16")], on=["message_byte", "ranks"]
    )
    large = both[both["message_byte"] >= 2**27]
    assert len(large) >= 6
    assert (large["time_s_x"] / large["time_s_y"] - 1).abs().max() < 0.03


LATENT = "framework,version,device,kernel_source,mla_dtype,kv_cache_dtype,num_heads,batch_size,isl,step,time_ms"


def test_one_token_over_a_latent_cache_reads_it_once_for_all_heads(made):
    row = "SGLang,0.5.14,Some GPU,trtllm_mla,bfloat16,{},16,8,{},{},0.03"
    cells = (("bfloat16", 1, 1023), ("fp8", 1, 1023), ("bfloat16", 4, 0))
    read = read_timings(made(LATENT, *(row.format(*one) for one in cells))).timings
    token = read.iloc[0]
    # 512 numbers are key and value, 64 are key alone; the mean of 576 and 512 is the width of a head.
    assert token[["heads", "kv_heads", "q_len", "kv_len"]].tolist() == [16, 1, 1, 1024]
    assert token[["head_dim", "shared_dim", "causal"]].tolist() == [544, 512, 0]
    assert add_costs(read[:1])["byte"].tolist() == [2 * 8 * (1024 * 576 + 2 * 16 * 544)]
    assert read["op"].tolist() == ["", "", "latent_attention_prompt"]
    assert read["dtype"].tolist() == ["bf16", "fp8", "bf16"]
    assert read.iloc[2][["kv_heads", "kv_len", "head_dim", "shared_dim", "causal"]].tolist() == [16, 4, 160, 0, 1]


@pytest.mark.parametrize(
    ("column", "named"),
    [("head_k_dim", "linear attention"), ("d_state", "state-space layers")],
)
def test_ops_without_a_kind_are_refused_by_name(made, column, named):
    path = made(f"framework,version,device,kernel_source,{column},time_ms", "SGLang,0.5,Some GPU,some,1,0.5")
    with pytest.raises(FomkitError, match=f"{named}.*no kind"):
        read_timings(path)


SECOND = {
    "h100_sxm": {
        "gemm": (101010, 0),
        "context_attention": (35090, 3946),
        "encoder_attention": (7679, 0),
        "moe": (86751, 61641),
        "custom_allreduce": (138, 138),
        "context_mla": (3520, 3520),
        "generation_mla": (5792, 0),
        "generation_attention": (40468, 7640),
    },
    "b200_sxm": {
        "gemm": (130536, 0),
        "moe": (126279, 93636),
        "context_attention": (43211, 7239),
        "generation_attention": (48501, 7629),
    },
}
"""Rows read, and those that stand for one op only, of the second set."""


@pytest.mark.parametrize("machine", SECOND)
def test_the_second_set(shared, machine):
    for table, (count, named) in SECOND[machine].items():
        timings = read_timings(shared / "data" / "modern_gpus" / f"{machine}.{table}.csv.gz").timings
        assert len(timings) == count
        assert int((timings["op"] != "").sum()) == named
    assert set(timings["q_len"]) == {1}
    assert timings["kv_len"].max() == 2**17
    assert (timings["causal"] == 0).all()


REAL = {
    "a100_sxm": {"gemm": (35742, 0), "attention_prefill": (5627, 0), "nccl": (504, 0)},
    "h200_sxm": {"gemm": (101010, 0), "attention_prefill": (16881, 5627), "nccl": (504, 0)},
    "l40s": {"gemm": (71484, 0), "attention_prefill": (5646, 19), "nccl": (504, 0)},
}
LINK_BYTE_PER_S = {
    "a100_sxm_nccl": 300e9, "h200_sxm_nccl": 450e9, "l40s_nccl": 32e9, "h100_sxm.nccl": 450e9,
    "b200_sxm.nccl": 900e9,
}  # fmt: skip
"""One direction: NVLink, and PCIe 4.0 ×16 of the L40S."""


@pytest.mark.parametrize("machine", REAL)
def test_the_real_tables(shared, machine):
    for table, (count, named) in REAL[machine].items():
        timings = read_timings(shared / "data" / "modern_gpus" / f"{machine}_{table}.csv.gz").timings
        assert (len(timings), int((timings["op"] != "").sum())) == (count, named)
        assert not timings.duplicated([*timings.columns.drop(["source_row", "time_s"])]).any()


@pytest.mark.parametrize("table", LINK_BYTE_PER_S)
def test_no_collective_beats_its_link(shared, table):
    """Each rank of a gather, scatter or exchange sends (p − 1)/p of the message.

    An all-reduce sends it at least once: the H200's switch reduces on the way, a ring sends 2·(p − 1)/p of it.
    """
    timings = read_timings(shared / "data" / "modern_gpus" / f"{table}.csv.gz").timings
    sent = timings.message_byte * (timings.ranks - 1) / timings.ranks
    sent = sent.where(timings.collective != "all_reduce", timings.message_byte)
    fastest = (sent / timings.time_s).groupby(timings.collective).max()
    assert (fastest < LINK_BYTE_PER_S[table]).all()
    assert (fastest > 0.3 * LINK_BYTE_PER_S[table]).all()

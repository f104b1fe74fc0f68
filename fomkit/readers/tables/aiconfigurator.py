"""Read op tables of the serving performance model aiconfigurator (NVIDIA, 2025-2026) as TIMINGS.

The header identifies one of six layouts: products, attention, latent attention, experts, collectives of two
libraries. Times are milliseconds of one op inside a replayed CUDA graph (nccl-tests for collectives), means over
the replays: they contain no host time, so nothing is subtracted. Its collectors' sources (``collector/``) show
what ran:

- A product is ``F.linear``: the weights are stored n×k (``trans_b`` 1). Six sets of factors are used in turn, so
  weights come from device memory unless six of them fit the cache. ``fp8``, ``fp8_block`` and ``nvfp4`` quantise
  bf16 activations first and write bf16; ``fp8_block`` has a scale per 128 values.
- Prefill attention is causal, with all keys in the same pass (``q_len`` = ``kv_len``), and also stores keys and
  values in the cache. Decoding has ``step`` keys in the cache before its one query (``isl`` 1), which sees all of
  them. An encoder's attention has as many key heads as query heads and no mask. The tensors are the same every
  time: small ones come from the L2 cache. One query over an fp8 cache is attention in fp8, although the query is
  given in bf16: nearly all of its bytes are the cache's. A prompt that is stored in such a cache and multiplied in
  bf16 is an op of its own. A prompt that is longer than a window has as many keys as the window; shorter ones, and
  single queries, are as without a window, but by other kernels, and ops of their own.
- Latent attention (DeepSeek-V2, arXiv:2405.04434) has the sizes of DeepSeek's models, which no row states: `RANK`
  numbers of the cache are keys and values of all heads, `ROTARY` more are keys alone. One token after ``step``
  others reads just that. Some libraries compute a prompt this way, others with keys and values of each head:
  Hopper's rows imply 617 TFLOP/s by the first way and 181 by the second, Blackwell's twice the peak by the first.
  No row states the way, so a prompt is an op of its own.
- Experts are those of one device: ``num_tokens`` are all tokens that are routed, ``num_experts`` / ``moe_ep_size``
  experts are on the device, each ``inter_size`` / ``moe_tp_size`` wide. A balanced router sends each expert as
  many tokens; any other is an op of its own. So are two sorts of rows that would read their weights faster than
  the memory can (docs/adr/0087). Nemotron's experts (`NO_GATE`) have no gate: with three products their fastest
  rows imply 1.27 to 1.47 times the bandwidth of L40S, B200 and GB200, with two 0.85 to 0.98, like other experts.
  DeepSeek-V3's router (`GROUPS`) uses 4 of 8 groups of experts, the balanced one the same for all tokens: with all
  experts in use the fastest rows imply 1.63 to 1.80 times the bandwidth of four boards, with half of them 0.82 to
  0.90. Rows of `GATED_VERSION` (A100) have gates and no groups: they reach 0.81 to 0.88 of it as their sizes say.
- The size of a collective is nccl-tests' size divided by the item: all ranks' output of an all-gather, all ranks'
  input of a reduce-scatter, what each rank holds of an all-reduce or all-to-all. The serving library's own
  all-reduce counts items too: from 64 MiB on its times are NCCL's at the same ``message_size`` on every board. It
  is an op of its own; without a replayed graph it includes the host's launches and is another one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from fomkit.core.errors import FomkitError
from fomkit.core.units import ITEM_BYTE, agree, count_text
from fomkit.files.csv import read_header
from fomkit.prediction.exchange import REPLAYED
from fomkit.readers.tables.foreign import ImportedTimings, SectionCount, check_present, make_timings, read_columns

HARNESS = "aiconfigurator"
DTYPES: Mapping[str, str] = {
    "bfloat16": "bf16", "float16": "fp16", "half": "fp16", "fp8": "fp8", "fp8_block": "fp8_block",
    "nvfp4": "nvfp4", "int8": "int8",
}  # fmt: skip
"""aiconfigurator's names of number formats; rows with others are skipped and counted."""

FP8_CACHE = "attention_fp8_kv_cache"  # of a prompt
WINDOW = "attention_window_{:g}"
LATENT_PROMPT = "latent_attention_prompt"
RANK, ROTARY, PLAIN = 512.0, 64.0, 128.0
"""Widths of DeepSeek's compressed cache, of its rotary keys, and of a head's other keys and of its values."""
NO_GATE = {
    (2688, 1856, 6, 128),
    (1024, 2688, 22, 512),
    (4096, 2688, 22, 512),
    (2048, 5120, 22, 512),
    (8192, 5120, 22, 512),
}
GROUPS = {(7168, 2048, 8, 256)}
"""Mixtures without a gate, and with a router in groups: widths of token and expert, experts of a token, of all."""
GATED_VERSION = "SGLang 0.5.10"
ROUTED, WITHOUT_GATE, IN_GROUPS = "experts", "experts_without_gate", "experts_in_groups"
EAGER = "all_reduce_with_launches"
NO_KIND: Mapping[str, str] = {
    "head_k_dim": "linear attention (gated delta rule)",
    "d_state": "state-space layers (Mamba 2)",
}  # fmt: skip
"""Columns that identify tables of ops without a kind, and these ops."""
COLLECTIVES: Mapping[str, str] = {
    "all_reduce": "all_reduce", "all_gather": "all_gather", "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
}  # fmt: skip
NOTES: Mapping[str, str] = {
    "gemm": "aiconfigurator's products are means over a replayed CUDA graph of six F.linear with weights of "
    "their own: warm, without host time. fp8, fp8_block and nvfp4 products quantise bf16 activations and "
    "write bf16.",
    "attention": "aiconfigurator's attention is causal prefill, one new token over a cache, or an encoder's, by "
    "the backend of SGLang that a row names, in a replayed CUDA graph. Except for an encoder it also writes keys "
    "and values to the cache; small tensors stay in the L2 cache. Latent attention has DeepSeek's sizes; a "
    "prompt is a separate op, as the table does not state how the cache is expanded.",
    "experts": "aiconfigurator's experts are those of one device: gate, up, down and the ops between them, in a "
    "replayed CUDA graph. m counts the tokens of all devices, b the experts of this device. Experts without a "
    "gate, and those of which the router uses half, are ops of their own.",
    "collective": "Collectives are nccl-tests, out of place, one process for all devices of a node. message_byte "
    "is nccl-tests' size: the whole of a gather's output and of a scatter's input.",
}


class Layout(NamedTuple):
    """One layout of aiconfigurator's files: columns, the column of the number format, and the conversion."""

    texts: tuple[str, ...]
    numbers: tuple[str, ...]
    optional: tuple[str, ...]
    dtype: str
    columns: Callable[[pd.DataFrame], dict[str, object]]


_SUMMED_IN_FP32 = {"engine": "matrix", "accumulate_dtype": "fp32"}
_ORIGIN = ("framework", "version", "device", "kernel_source")


def _origin(rows: pd.DataFrame) -> dict[str, object]:
    return {
        "library": rows["kernel_source"],
        "library_version": rows["framework"] + " " + rows["version"],
        "harness": HARNESS,
        "pass_name": "forward",
    }


def _gemm_columns(rows: pd.DataFrame) -> dict[str, object]:
    sizes = {name: rows[name] for name in ("m", "n", "k")}
    stored = {"b": 1.0, "trans_a": 0.0, "trans_b": 1.0}
    fixed = {"kind": "gemm", "pass_name": "", **_SUMMED_IN_FP32}
    return {**_origin(rows), **fixed, **sizes, **stored}


def _held_before(rows: pd.DataFrame) -> pd.Series:
    """Return the keys in the cache before the pass: ``step`` in decoding, which adds one token, else 0."""
    return rows["step"].fillna(0.0) if "step" in rows.columns else 0.0 * rows["isl"]


def _by_cache(rows: pd.DataFrame, dtype: str, before: pd.Series) -> dict[str, pd.Series]:
    """Return number format and op of attention: one query has the format of the cache that it reads."""
    cache = rows["kv_cache_dtype"] if "kv_cache_dtype" in rows.columns else rows[dtype]
    differs = (cache != rows[dtype]) & (before == 0)
    formats = rows[dtype].where(before == 0, cache).map(DTYPES)
    return {"dtype": formats, "op": differs.map({True: FP8_CACHE, False: ""})}


def _attention_columns(rows: pd.DataFrame) -> dict[str, object]:
    cached, before = "kv_cache_dtype" in rows.columns, _held_before(rows)
    given = _by_cache(rows, "attn_dtype", before)
    window = rows["window_size"].fillna(0.0) if "window_size" in rows.columns else 0.0 * before
    beyond = (window > 0) & (window < rows["isl"])
    given["op"] = given["op"].mask((window > 0) & ~beyond, window.map(WINDOW.format))
    sizes = {
        "batch": rows["batch_size"], "heads": rows["num_heads"],
        "kv_heads": rows["num_key_value_heads" if cached else "num_heads"],
        "q_len": rows["isl"], "kv_len": (rows["isl"] + before).mask(beyond, window), "head_dim": rows["head_dim"],
        "causal": (before == 0).astype("float64") * cached,
    }  # fmt: skip
    return {**_origin(rows), **_SUMMED_IN_FP32, "kind": "attention", **given, **sizes}


def _latent_columns(rows: pd.DataFrame) -> dict[str, object]:
    before = _held_before(rows)
    token, given = before > 0, _by_cache(rows, "mla_dtype", before)
    op = given["op"].where(token, LATENT_PROMPT)
    # The mean of a head's key and value widths counts (`fomkit.ops.families.costs.attention`).
    of_head = PLAIN + ROTARY / 2
    sizes = {
        "batch": rows["batch_size"], "heads": rows["num_heads"], "kv_heads": rows["num_heads"].mask(token, 1.0),
        "q_len": rows["isl"], "kv_len": rows["isl"] + before,
        "head_dim": token.map({True: RANK + ROTARY / 2, False: of_head}),
        "shared_dim": token.map({True: RANK, False: 0.0}), "causal": (~token).astype("float64"),
    }  # fmt: skip
    return {**_origin(rows), **_SUMMED_IN_FP32, "kind": "attention", **given, "op": op, **sizes}


def _experts(rows: pd.DataFrame) -> dict[str, object]:
    mixtures = zip(*(rows[name] for name in ("hidden_size", "inter_size", "topk", "num_experts")), strict=True)
    names = [WITHOUT_GATE if one in NO_GATE else IN_GROUPS if one in GROUPS else "" for one in mixtures]
    name = pd.Series(names, rows.index).mask(rows["framework"] + " " + rows["version"] == GATED_VERSION, "")
    uneven = name.replace("", ROUTED) + "_" + rows["distribution"]
    sizes = {
        "m": rows["num_tokens"], "k": rows["hidden_size"], "n": rows["inter_size"] / rows["moe_tp_size"],
        "b": rows["num_experts"] / rows["moe_ep_size"], "experts": rows["num_experts"], "top_k": rows["topk"],
    }  # fmt: skip
    op = name.where(rows["distribution"] == "balanced", uneven)
    return {**_origin(rows), **_SUMMED_IN_FP32, "kind": "experts", "op": op, **sizes}


def _own_collective(rows: pd.DataFrame) -> dict[str, object]:
    item_byte = rows["allreduce_dtype"].map(DTYPES).map(ITEM_BYTE)
    eager = rows["backend"].str.endswith("_eager").map({True: EAGER, False: REPLAYED})
    fixed = {"kind": "collective", "pass_name": "", "engine": "vector", "link": "node", "op": eager}
    sizes = {"message_byte": rows["message_size"] * item_byte, "ranks": rows["num_gpus"]}
    return {**_origin(rows), **fixed, "collective": rows["op_name"].map(COLLECTIVES), **sizes}


def _collective(rows: pd.DataFrame) -> dict[str, object]:
    item_byte = rows["nccl_dtype"].map(DTYPES).map(ITEM_BYTE)
    return {
        "kind": "collective",
        "engine": "vector",
        "collective": rows["op_name"].map(COLLECTIVES),
        "message_byte": rows["message_size"] * item_byte,
        "ranks": rows["num_gpus"],
        "link": "node",
        "library": rows["kernel_source"],
        "library_version": rows["nccl" if "nccl" in rows.columns else "version"],
        "harness": "nccl-tests",
    }


LAYOUTS: Mapping[str, Layout] = {
    "gemm": Layout((*_ORIGIN, "gemm_dtype"), ("m", "n", "k", "time_ms"), (), "gemm_dtype", _gemm_columns),
    "attention": Layout(
        (*_ORIGIN, "attn_dtype", "kv_cache_dtype"),
        ("batch_size", "isl", "num_heads", "num_key_value_heads", "head_dim", "step", "window_size", "time_ms"),
        ("num_key_value_heads", "kv_cache_dtype", "step", "window_size"),
        "attn_dtype",
        _attention_columns,
    ),
    "latent attention": Layout(
        (*_ORIGIN, "mla_dtype", "kv_cache_dtype"),
        ("batch_size", "isl", "num_heads", "step", "time_ms"),
        ("step",),
        "mla_dtype",
        _latent_columns,
    ),
    "experts": Layout(
        (*_ORIGIN, "moe_dtype", "distribution"),
        (
            "num_tokens",
            "hidden_size",
            "inter_size",
            "topk",
            "num_experts",
            "moe_tp_size",
            "moe_ep_size",
            "time_ms",
        ),
        (),
        "moe_dtype",
        _experts,
    ),
    "own collective": Layout(
        (*_ORIGIN, "op_name", "allreduce_dtype", "backend"),
        ("num_gpus", "message_size", "time_ms"),
        (),
        "allreduce_dtype",
        _own_collective,
    ),
    "collective": Layout(
        ("device", "op_name", "kernel_source", "nccl_dtype", "nccl", "version"),
        ("num_gpus", "message_size", "time_ms"),
        ("nccl", "version"),
        "nccl_dtype",
        _collective,
    ),
}


def _kind(path: Path) -> str:
    """Return the layout whose columns a file has, or the column that identifies ops without a kind, or ""."""
    header = set(read_header(path))
    for kind, layout in LAYOUTS.items():
        if {*layout.texts, *layout.numbers} - {*layout.optional} <= header:
            return kind
    return next((name for name in NO_KIND if {*_ORIGIN, name, "time_ms"} <= header), "")


def recognise_aiconfigurator(path: Path) -> bool:
    """Return whether a file's header has the columns of one of aiconfigurator's layouts."""
    return bool(_kind(path))


def read_aiconfigurator(path: Path) -> ImportedTimings:
    """Read a table of products, attention, latent attention, experts or collectives; times become seconds.

    `path`: a CSV file, gzipped or not. Rows with an ``op`` are evidence for that op only.
    """
    kind = _kind(path)
    if not kind:
        raise FomkitError(str(path), "does not have the columns of an aiconfigurator table. Check its first line.")
    if kind in NO_KIND:
        what = f"is a table of {NO_KIND[kind]}, for which fomkit has no kind. No row of it was read; leave it out."
        raise FomkitError(str(path), what)
    layout = LAYOUTS[kind]
    rows = read_columns(path, layout.texts, layout.numbers, optional=layout.optional)
    devices = sorted(set(rows["device"]))
    if len(devices) > 1:
        listed = ", ".join(devices)
        raise FomkitError(str(path), f"is of several devices: {listed}. Split it by the column device.")
    check_present(rows, path, [name for name in layout.numbers if name not in layout.optional])
    unread = ~rows[layout.dtype].isin(list(DTYPES))
    if "op_name" in layout.texts:
        unread |= ~rows["op_name"].isin(list(COLLECTIVES))
    read = rows[~unread]
    if not len(read):
        raise FomkitError(str(path), f"has no row in a number format that fomkit knows: {', '.join(DTYPES)}.")
    columns = {"dtype": read[layout.dtype].map(DTYPES), "time_s": read["time_ms"] / 1e3, **layout.columns(read)}
    timings = make_timings(columns, read.index, path)
    left = rows.loc[unread, layout.dtype].value_counts()
    formats = ", ".join(f"{many:,} {name}" for name, many in left.items())
    reason = f"no number format or collective that fomkit knows in {layout.dtype}: {formats}" if formats else ""
    table, skipped = layout.dtype.replace("dtype", "table"), int(unread.sum())
    kind = str(columns["kind"])
    count = SectionCount("-", table, imported=len(read), skipped=skipped, reason=reason, kind=kind)
    named = timings.loc[timings["op"] != "", "op"].value_counts()
    remarks = tuple(
        f"{count_text(many, 'timing')} {agree(many, 'serves/serve')} the op {op} only."
        for op, many in named.items()
    )
    return ImportedTimings(timings, devices[0], counts=(count,), notes=(NOTES[kind],), remarks=remarks)

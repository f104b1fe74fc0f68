"""Write the list of ops that serving programs time today: ``python benchmarks/op_lists.py FOLDER``.

FOLDER has the test lists of SemiAnalysisAI/InferenceX, ``experimental/operatorx/testlists`` (commit 843c6254),
packed. They state shapes and no times. The list becomes a model profile whose step runs each op once, so that
verbs of models take it. The lists combine every layout with every batch: only tokens, sequences and MiB that are
powers of four are kept (`KEPT`), and ops whose tensors a device can hold (`MOST_BYTE`).
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from fomkit.core.model import ModelProfile
from fomkit.core.units import ITEM_BYTE, count_text
from fomkit.ops.pricing import add_costs
from fomkit.ops.tables import empty_table, table_of_rows
from fomkit.profiles.models import save_model

Entry = Mapping[str, Any]
FOLDER = Path(__file__).resolve().parent.parent / "model_profiles" / "lists"
KEPT = [4**power for power in range(9)]
"""Tokens, sequences of an attention, and MiB of a message, that are kept."""
MOST_BYTE = 2.0**33
"""Traffic above which an op is left out: its tensors would fill a device."""
PACKED = {"int4": 1 / 2 + 2 / 32, "mxfp4": 1 / 2 + 1 / 32}
"""Bytes of a weight in formats that are unpacked to be multiplied: scales of 2 byte, or 1, for 32 weights."""
IN_NODE = 8
"""Ranks up to which a collective counts as one inside a node; the lists state no placement."""
COLLECTIVES = {"allreduce": "all_reduce", "allgather": "all_gather", "reduce_scatter": "reduce_scatter",
               "alltoall": "all_to_all"}  # fmt: skip
NOTES = (
    "shapes, without times, of SemiAnalysisAI/InferenceX, experimental/operatorx/testlists (843c6254, Apache-2.0)",
    "left out: products in fp4 and mxfp4, attention over a cache of another format, the format of results (bf16)",
    "left out: dispatch and combine, which send each token to its experts only; shared experts are products",
)


def read(folder: Path, name: str) -> list[Entry]:
    """Read one of the lists."""
    with gzip.open(folder / f"{name}.json.gz", "rt", encoding="utf-8") as file:
        found: list[Entry] = json.load(file)
    return found


def _stored(factors: str, weights: str) -> dict[str, object] | None:
    """Return the number format of a product, and the share that its weights take; None if none."""
    if factors == weights and factors in ITEM_BYTE:
        return {"dtype": factors}
    computed = "bf16" if factors == "int4" else factors
    share = PACKED.get(weights, 1.0) / ITEM_BYTE.get(computed, 1.0)
    return {"dtype": computed, "weight_share": share} if computed in ITEM_BYTE and share < 1 else None


def products(entries: list[Entry]) -> Iterator[dict[str, object]]:
    """Yield dense products, whose weights are stored as n × k."""
    for args in (one["args"] for one in entries):
        stored = _stored(args["dtype_a"], args["dtype_b"])
        if stored and args["m"] in KEPT:
            sizes = {name: args[name] for name in ("m", "n", "k")}
            yield {"op": "product", "kind": "gemm", **stored, "b": 1, **sizes, "trans_a": 0, "trans_b": 1}


def attentions(entries: list[Entry]) -> Iterator[dict[str, object]]:
    """Yield attention: a prompt, or queries over a cache, which latent attention compresses.

    The format of the cache is that of the op: the lists call queries nvfp4 where weights are.
    """
    for one in entries:
        args, latent = one["args"], one["type"] == "attention_mla"
        cache = args["dtype_kv" if latent else "dtype_k"]
        queries, keys, heads = args["seq_len_q"], args["seq_len_kv"], args["num_heads"]
        mixed = args["dtype_q"] in ("bf16", "fp16") and args["dtype_q"] != cache
        if cache not in ITEM_BYTE or mixed or args["batch_size"] not in KEPT:
            continue
        cached = queries < keys
        if latent and cached:
            rank = args["kv_lora_rank"]
            width = {"kv_heads": 1, "head_dim": rank + args["head_dim_qk_rope"] / 2, "shared_dim": rank}
        elif latent:
            parts = sum(args[f"head_dim_{name}"] for name in ("qk_nope", "qk_rope", "v"))
            width = {"kv_heads": heads, "head_dim": parts / 2}
        else:
            width = {"kv_heads": args["num_heads_kv"], "head_dim": args["head_dim"]}
        window = min(args.get("sliding_window", keys), keys)  # as many keys for each query
        sizes = {"batch": args["batch_size"], "heads": heads, "q_len": queries, "kv_len": window, **width}
        causal = int(not cached)
        op = "latent attention" if latent else "attention"
        yield {"op": op, "module": one["name"], "kind": "attention", "dtype": cache, **sizes, "causal": causal}


def experts(entries: list[Entry]) -> Iterator[dict[str, object]]:
    """Yield the routed experts of one device; tokens are those of all devices."""
    for one in entries:
        args = one["args"]
        stored = _stored(args["dtype_act"], args["dtype_weight"])
        apart = args.get("ep", args.get("expert_parallel_size"))
        split = args.get("tp", args.get("routed_tensor_parallel_size"))
        if stored and args["num_tokens"] in KEPT and args["num_experts"] % apart == 0:
            here = {"b": args["num_experts"] // apart, "m": args["num_tokens"], "n": args["intermediate"] // split}
            sizes = {**here, "k": args["hidden"], "experts": args["num_experts"], "top_k": args["top_k"]}
            yield {"op": "experts", "module": one["name"], "kind": "experts", **stored, **sizes}


def collectives(entries: list[Entry]) -> Iterator[dict[str, object]]:
    """Yield collectives over the ranks; a message is all ranks' output of a gather, or input of a scatter."""
    for one in entries:
        args = one["args"]
        if one["type"] not in COLLECTIVES:
            continue
        each = args.get("num_elements_per_rank")
        numbers = args["num_elements"] if each is None else each * args["world_size"]
        byte = numbers * ITEM_BYTE[args["dtype"]]
        if byte / 2**20 in KEPT:
            link = "node" if args["world_size"] <= IN_NODE else "system"
            of = {"collective": COLLECTIVES[one["type"]], "message_byte": byte, "ranks": args["world_size"]}
            yield {
                "op": one["type"],
                "kind": "collective",
                "dtype": args["dtype"],
                "engine": "vector",
                **of,
                "link": link,
            }


def ops_of(folder: Path) -> pd.DataFrame:
    """Return the distinct ops of all lists; an op of several models is listed with the first."""
    makers = [("gemm", products), ("attention", attentions), ("moe", experts), ("moe_gemm", experts),
              ("collectives", collectives)]  # fmt: skip
    rows = [row for name, made in makers for row in made(read(folder, name))]
    found = table_of_rows([{"engine": "matrix", "pass_name": "forward", "count": 1, **row} for row in rows], "OPS")
    found["module"] = found["module"].str.replace(".", "-")  # a dot divides the names of modules
    found = found.drop_duplicates([name for name in found.columns if name != "module"]).dropna(axis=1, how="all")
    held = ~(add_costs(found)["byte"] > MOST_BYTE)
    return found.loc[held, (found != "").any()].reset_index(drop=True)


def main(folder: Path) -> None:
    """Write the profile."""
    ops = ops_of(folder)
    title = f"{count_text(len(ops), 'op')} of serving programs in 2026 (InferenceX, operatorx), each once"
    made = {"framework": "list", "mode": "infer"}
    profile = ModelProfile("operatorx", title, ops, empty_table("OPS"), sizes={}, traced_with=made, notes=NOTES)
    print(*save_model(profile, FOLDER / "operatorx.yaml"), sep="\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

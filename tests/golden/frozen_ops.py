"""Ops of every kind, format and pass, of tiny, odd, thin and large sizes and sizes beyond any table.

Their costs and times are frozen (`frozen.py`): each row uses its own path through costs and prediction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pandas as pd

from fomkit.core.units import default_engine
from fomkit.ops.kinds import KINDS
from fomkit.ops.tables import OPS

Op = dict[str, object]
TEXTS = tuple(column.name for column in OPS if column.dtype == "text")


def _sized(kind: str, columns: str, *sizes: str, **more: object) -> Iterator[Op]:
    """Yield an op for each line of sizes, in the order of the columns."""
    for line in sizes:
        yield {"kind": kind, **dict(zip(columns.split(), map(float, line.split()), strict=True)), **more}


def _products() -> Iterator[Op]:
    sides = (
        "1 1 1 1", "1 1 4096 4096", "1 4096 1 4096", "1 8 4096 4096", "1 1701 41 901", "1 16 1000 31",
        "1 1024 1024 1024", "1 1760 128 1760", "1 8448 32 2816", "96 128 128 64", "1 64 64 60000",
        "1 65536 16384 256", "1 2048 7133 2048",
    )  # fmt: skip
    for dtype in ("fp32", "fp16", "bf16", "fp8"):
        yield from _sized("gemm", "b m n k", *sides, dtype=dtype)
    few = "1 1 4096 4096", "1 512 512 500", "1 8192 4096 4096"
    for dtype in ("fp64", "tf32", "int8", "nvfp4", "complex64", "mxfp8"):
        yield from _sized("gemm", "b m n k", *few, dtype=dtype)
    for dtype, engine in (("fp16", "vector"), ("fp32", "matrix")):
        yield from _sized("gemm", "b m n k", few[1], dtype=dtype, engine=engine)
    for order, dtype in (("1 0", "fp32"), ("0 1", "fp32"), ("1 1", "fp32"), ("1 0", "bf16"), ("0 1", "fp16")):
        yield from _sized(
            "gemm", "b m n k trans_a trans_b", f"1 1760 128 1760 {order}", f"4 333 35 2000 {order}", dtype=dtype
        )
    yield from _sized("gemm", "b m n k", "1 512 24000 2816", dtype="fp32", layout="column_major")
    for share in (0.28125, 0.5):
        yield from _sized("gemm", "b m n k", few[0], "1 64 4096 11008", dtype="bf16", weight_share=share)
    for dtype in ("fp32", "int8"):
        yield from _sized(
            "sparse_gemm", "b m n k density", "1 7680 1 2560 0.1", "1 10752 2 3584 0.05", "2 100 99 98 0.5",
            dtype=dtype,
        )  # fmt: skip
    experts = "1 1 4096 1024 8 2", "8 64 14336 4096 8 2", "32 2048 768 2048 128 8", "256 1 2048 7168 256 8"
    for dtype in ("bf16", "fp8", "nvfp4"):
        yield from _sized("experts", "b m n k experts top_k", *experts, dtype=dtype)
    yield from _sized("experts", "b m n k experts top_k", experts[1], dtype="bf16", weight_share=0.5)


_CONV = "batch in_channels height width out_channels kernel_h kernel_w stride_h stride_w pad_h pad_w"
_CONVOLUTIONS = (
    ("16 3 224 224 64 7 7 2 2 3 3", {}), ("8 64 56 56 64 3 3 1 1 1 1", {}), ("1 64 57 55 192 1 1 1 1 0 0", {}),
    ("32 512 7 7 512 3 3 1 1 1 1", {}), ("4 48 27 27 128 5 5 1 1 2 2", {}), ("8 1 161 700 32 5 20 2 2 0 0", {}),
    ("2 16 1000 1000 16 11 11 4 4 0 0", {}), ("8 32 112 112 32 3 3 1 1 1 1", {"groups": 32.0}),
    ("8 96 28 28 192 3 3 2 2 1 1", {"groups": 4.0}),
    ("1 8 33 33 8 3 3 1 1 2 2", {"dilation_h": 2.0, "dilation_w": 2.0}),
    ("4 64 16 16 32 4 4 2 2 1 1", {"transposed": 1.0, "output_pad_h": 1.0, "output_pad_w": 1.0}),
    ("2 4 32 32 8 3 3 1 1 1 1", {"depth": 16.0, "kernel_d": 3.0, "pad_d": 1.0}),
    ("20 1 1 60483 128 1 20 1 1 0 0", {}), ("1 3 8 8 4 3 3 1 1 1 1", {}),
)  # fmt: skip


def _convolutions() -> Iterator[Op]:
    for place, (sizes, more) in enumerate(_CONVOLUTIONS):
        for pass_name in ("forward", "backward_input", "backward_weight"):
            layout = "nhwc" if place % 5 == 4 else "nchw"
            yield from _sized("conv", _CONV, sizes, dtype="fp32", pass_name=pass_name, layout=layout, **more)
        dtype, pass_name = (("fp16", "backward"), ("bf16", "forward"), ("tf32", "backward_weight"))[place % 3]
        yield from _sized("conv", _CONV, sizes, dtype=dtype, pass_name=pass_name, **more)


def _recurrent() -> Iterator[Op]:
    columns = "batch steps input_size hidden_size layers directions"
    sizes = "16 25 1760 1760 1 1", "64 50 0 2560 1 1", "3 7 33 65 2 2"
    for place, cell in enumerate(("vanilla", "lstm", "gru")):
        for pass_name in ("forward", "backward", "backward_weight"):
            dtype = ("fp32", "fp16", "bf16")[place] if pass_name == "backward" else "fp32"
            yield from _sized("rnn", columns, *sizes, dtype=dtype, cell=cell, pass_name=pass_name)


def _attention() -> Iterator[Op]:
    columns = "batch heads kv_heads q_len kv_len head_dim causal"
    sizes = (
        "1 32 8 1 4096 128 1", "64 64 8 1 1000 128 1", "4 16 16 1024 1024 64 1", "2 12 12 197 197 64 0",
        "1 32 32 77 3000 40 0", "1 8 1 16384 16384 128 1", "1 1 1 3 5 16 0",
    )  # fmt: skip
    for dtype in ("bf16", "fp32", "fp8"):
        for pass_name in ("forward", "backward") if dtype != "fp8" else ("forward",):
            yield from _sized("attention", columns, *sizes, dtype=dtype, pass_name=pass_name)
    yield from _sized(
        "attention", f"{columns} shared_dim", "8 128 1 1 2048 576 1 512", dtype="bf16", pass_name="forward"
    )


_ROWS = {"pointwise": "relu", "reduction": "sum", "norm": "native_layer_norm", "softmax": "_softmax",
         "pool": "max_pool2d", "embedding": "embedding", "copy": "copy_", "other": "sort",
         "input": "input"}  # fmt: skip


def _traffic() -> Iterator[Op]:
    for place, (kind, op) in enumerate(_ROWS.items()):
        for numel, row, inputs in (
            (1.0, 1.0, 1.0),
            (98_304.0, 768.0, 2.0),
            (3e7 + 1, 1000.0, 1.0),
            (6.4e9, 50.0, 3.0),
        ):
            pass_name = ("forward", "backward")[(place + int(inputs)) % 2]
            for dtype in ("fp32", "bf16") if numel == 98_304.0 else ("fp32",):
                item = 4.0 if dtype == "fp32" else 2.0
                size = {"numel": numel, "row": row, "inputs": inputs}
                moved = {"read_byte": item * inputs * numel, "write_byte": item * numel}
                yield {"kind": kind, "op": f"aten::{op}", "dtype": dtype, "pass_name": pass_name, **size, **moved}
    for op in ("native_batch_norm", "gelu", "native_layer_norm_backward", "add"):
        kind = "norm" if "norm" in op else "pointwise"
        pass_name = "backward" if "backward" in op else "forward"
        size = {
            "numel": 1_605_632.0,
            "row": 3136.0,
            "inputs": 2.0,
            "read_byte": 12_845_056.0,
            "write_byte": 6_422_528.0,
        }
        yield {"kind": kind, "op": f"aten::{op}", "dtype": "fp32", "pass_name": pass_name, **size}
    yield {
        "kind": "other",
        "op": "aten::mystery",
        "dtype": "fp32",
        "pass_name": "forward",
    }  # nobody knows its sizes
    yield {
        "kind": "pointwise",
        "op": "aten::mul",
        "dtype": "bool",
        "numel": 999.0,
        "read_byte": 999.0,
        "write_byte": 0.0,
    }


_UPDATES = (("sgd", "per_tensor"), ("momentum", "foreach"), ("adam", "fused"), ("adamw", "foreach"),
            ("radam", "foreach"), ("adagrad", "per_tensor"), ("adadelta", "foreach"),
            ("lion", "fused"))  # fmt: skip


def _updates() -> Iterator[Op]:
    for rule, impl in _UPDATES:
        sizes = ("1 1", "25600000 161", "3000000001 500")[: 2 + (rule == "adam")]
        how = {"rule": rule, "impl": impl, "dtype": "fp32", "pass_name": "update"}
        yield from _sized("optimizer", "numel tensors", *sizes, **how)


def _exchanges() -> Iterator[Op]:
    for collective in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "p2p"):
        for size in ("1024 2", "1e6 4", "1.02e8 8", "3e9 16"):
            link = "system" if size.endswith("16") else "node"
            yield from _sized(
                "collective", "message_byte ranks", size, collective=collective, link=link, dtype="fp16"
            )


def _label(op: Op) -> str:
    """Return all cells of an op as text."""
    said = {name: cell for name, cell in op.items() if name not in ("kind", "count")}
    return " ".join(cell if isinstance(cell, str) else f"{name}={cell:.9g}" for name, cell in said.items())


_PLAIN = {"b": 1.0, "depth": 1.0, "groups": 1.0, "layers": 1.0, "directions": 1.0, "kernel_d": 1.0,
          "stride_d": 1.0, "dilation_d": 1.0, "dilation_h": 1.0, "dilation_w": 1.0, "pad_d": 0.0}  # fmt: skip


def ops() -> tuple[pd.DataFrame, list[str]]:
    """Return an OPS table, whose index names each op by its kind and a number, and the text of each op."""
    makers = (_products, _convolutions, _recurrent, _attention, _traffic, _updates, _exchanges)
    rows, names, seen = [], [], Counter[str]()
    given = [one for make in makers for one in make()]
    for one in given:
        kind, dtype = str(one["kind"]), str(one["dtype"])
        plain = {name: value for name, value in _PLAIN.items() if name in KINDS[kind].columns}
        rows.append(
            {
                "op": kind,
                "engine": default_engine(kind, dtype),
                "pass_name": "forward",
                "count": 1.0,
                **plain,
                **one,
            }
        )
        seen[kind] += 1
        names.append(f"{kind} {seen[kind]}")
    table = pd.DataFrame(rows, names)
    return table.astype({name: np.float64 for name in table if name not in TEXTS}), list(map(_label, given))

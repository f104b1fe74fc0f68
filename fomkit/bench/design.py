"""List ops that fill the space of sizes of each kind evenly, for a profile that has to serve any model.

`design` returns all ops to time; `seeds` selects those for the first fits.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np

from fomkit.bench.libraries import Cells, Wanted, as_table, cell
from fomkit.core.units import ITEM_BYTE, by_key
from fomkit.ops.pricing import add_costs

Choice = TypeVar("Choice")


def shuffled(choices: Sequence[Choice], count: int, seed: int = 0) -> list[Choice]:
    """Return each choice equally often, in a shuffled order.

    In strict rotation, each of three choices would always meet the same third of Halton's second coordinate.

    >>> sorted(shuffled("abc", 6))
    ['a', 'a', 'b', 'b', 'c', 'c']
    """
    found = [choices[place % len(choices)] for place in range(count)]
    random.Random(seed).shuffle(found)  # noqa: S311 - sizes, no secret
    return found


def rounded(value: float, step: int) -> int:
    """Round to a whole multiple of a step, at least one.

    >>> rounded(100.0, 32), rounded(3.0, 32)
    (96, 32)
    """
    return max(1, round(value / step)) * step


def log_sizes(
    count: int, ranges: Mapping[str, tuple[float, float]], steps: Sequence[int] = (1,), start: int = 1
) -> Iterator[dict[str, int]]:
    """Yield sizes spread evenly in their logarithms (Halton, Numerische Mathematik 2, 1960).

    Models use round sizes and libraries run these by other kernels, so each rounding step is used equally often;
    sizes below four steps are only rounded to whole numbers.

    `ranges`: least and largest value of each size; `steps`: sizes are multiples of one of these; `start`: number
    of the first point of the sequence.
    """
    from scipy.stats import qmc

    points = qmc.Halton(len(ranges), scramble=False).fast_forward(start).random(count)
    low, high = np.log([*ranges.values()]).T
    sizes = np.exp(low + points * (high - low)).tolist()
    for step, row in zip(shuffled(steps, count, start), sizes, strict=True):
        yield {name: rounded(one, step if one >= 4 * step else 1) for name, one in zip(ranges, row, strict=True)}


ROUND = (64, 1, 32, 8)
STORAGE_ORDERS = (("0", "0"), ("0", "1"), ("1", "0"))
"""Storage orders (trans_a, trans_b) of a dense layer: input gradient or batched, forward, weight gradient."""


def _as_cells(sizes: Mapping[str, int]) -> dict[str, str]:
    return {name: cell(value) for name, value in sizes.items()}


PRODUCTS = {"m": (1.0, 8192.0), "n": (1.0, 8192.0), "k": (1.0, 32768.0)}
WIDE_SIZES = {"m": (1500.0, 20000.0), "n": (1500.0, 8000.0), "k": (4.0, 256.0)}
"""Large m and n with small k: gradients of large layers, whose results are written to fresh pages."""
BATCHED = {"b": (2.0, 256.0), "m": (16.0, 1024.0), "n": (16.0, 1024.0), "k": (16.0, 1024.0)}


def _product_cells(
    count: int, dtype: str, engine: str, ranges: Mapping[str, tuple[float, float]],
    steps: Sequence[int] = ROUND, stored: Sequence[tuple[str, str]] = STORAGE_ORDERS,
) -> Iterator[Cells]:  # fmt: skip
    for (trans_a, trans_b), sizes in zip(shuffled(stored, count), log_sizes(count, ranges, steps), strict=True):
        yield {"kind": "gemm", "dtype": dtype, "engine": engine, "b": "1", **_as_cells(sizes),
               "trans_a": trans_a, "trans_b": trans_b}  # fmt: skip


def _sparse(count: int, dtype: str, engine: str) -> Iterator[Cells]:
    ranges = {"m": (64.0, 8192.0), "n": (1.0, 512.0), "k": (64.0, 8192.0)}
    densities = shuffled(("0.05", "0.1", "0.02"), count)
    for density, sizes in zip(densities, log_sizes(count, ranges, ROUND), strict=True):
        yield {"kind": "sparse_gemm", "dtype": dtype, "engine": engine, "b": "1", **_as_cells(sizes),
               "trans_a": "0", "trans_b": "0", "density": density}  # fmt: skip


PASSES = ("forward", "backward_input", "backward_weight")
FORMS = ((3, False), (1, False), (3, True), (5, False), (1, False), (7, False))
"""Side of a filter, and whether the convolution is depthwise (one filter per channel)."""


def _convolutions(count: int, dtype: str, engine: str) -> Iterator[Cells]:
    ranges = {
        "batch": (1.0, 32.0),
        "in_channels": (3.0, 768.0),
        "out_channels": (16.0, 768.0),
        "side": (6.0, 112.0),
    }
    forms, strides = shuffled(FORMS, count), shuffled(("1", "1", "1", "2"), count, seed=1)
    for (kernel, alone), stride, sizes in zip(forms, strides, log_sizes(count, ranges, (32, 16, 1)), strict=True):
        side, edge = str(sizes.pop("side")), str(kernel // 2)
        groups = sizes["in_channels"] if alone else 1
        if alone:
            sizes["out_channels"] = groups
        shape = {
            "kind": "conv", "dtype": dtype, "engine": engine, **_as_cells(sizes), "depth": "1", "height": side,
            "width": side, "kernel_d": "1", "kernel_h": str(kernel), "kernel_w": str(kernel), "stride_d": "1",
            "stride_h": stride, "stride_w": stride, "pad_d": "0", "pad_h": edge, "pad_w": edge, "dilation_d": "1",
            "dilation_h": "1", "dilation_w": "1", "groups": str(groups), "layout": "nchw",
        }  # fmt: skip
        for pass_name in PASSES:
            yield {**shape, "pass_name": pass_name}


def _recurrent(count: int, dtype: str, engine: str) -> Iterator[Cells]:
    ranges = {"batch": (1.0, 128.0), "steps": (4.0, 128.0), "hidden_size": (32.0, 1024.0)}
    cells = shuffled(("lstm", "gru", "vanilla"), count)
    for cell_name, sizes in zip(cells, log_sizes(count, ranges, (32, 16)), strict=True):
        # Tables hold the recurrence alone: the product with the input is priced as a product.
        shape = {"kind": "rnn", "dtype": dtype, "engine": engine, "cell": cell_name, **_as_cells(sizes),
                 "input_size": "0", "layers": "1", "directions": "1"}  # fmt: skip
        for pass_name in PASSES:
            yield {**shape, "pass_name": pass_name}


def _attentions(count: int, dtype: str, engine: str) -> Iterator[Cells]:
    ranges = {"batch": (1.0, 16.0), "heads": (2.0, 16.0), "q_len": (16.0, 1024.0), "head_dim": (32.0, 128.0)}
    for causal, sizes in zip(shuffled("01", count), log_sizes(count, ranges, (32, 16)), strict=True):
        shape = {"kind": "attention", "dtype": dtype, "engine": engine, **_as_cells(sizes),
                 "kv_heads": str(sizes["heads"]), "kv_len": str(sizes["q_len"]),
                 "causal": causal}  # fmt: skip
        for pass_name in ("forward", "backward"):
            yield {**shape, "pass_name": pass_name}


Traffic = tuple[str, str, str, float, float, float]
ELEMENTWISE: tuple[Traffic, ...] = (
    ("pointwise", "aten::relu", "forward", 1, 1, 0), ("pointwise", "aten::add", "forward", 2, 1, 0),
    ("pointwise", "aten::gelu", "forward", 1, 1, 0), ("pointwise", "aten::native_dropout", "forward", 1, 1, 1),
    ("pointwise", "aten::tanh", "forward", 1, 1, 0), ("pointwise", "aten::sigmoid", "forward", 1, 1, 0),
    ("pointwise", "aten::threshold_backward", "backward", 2, 1, 0),
    ("pointwise", "aten::mul", "backward", 2, 1, 0),
    ("pointwise", "aten::gelu_backward", "backward", 2, 1, 0),
    ("pointwise", "aten::tanh_backward", "backward", 2, 1, 0),
    ("pointwise", "aten::native_dropout_backward", "backward", 1, 1, -1),
    ("pointwise", "weight_decay", "update", 2, 1, 0),
    ("copy", "aten::clone", "forward", 1, 1, 0), ("copy", "aten::clone", "backward", 1, 1, 0),
    ("copy", "aten::new_zeros", "forward", 0, 1, 0), ("copy", "aten::cat", "forward", 1, 1, 0),
)  # fmt: skip
"""Kind, op, pass, number of tensors read and written, and whether a byte mask is also written (1) or read (-1)."""


def _elementwise(count: int, dtype: str) -> Iterator[Cells]:
    for number, (kind, op, pass_name, reads, writes, mask) in enumerate(ELEMENTWISE):
        each = ITEM_BYTE[dtype]
        for sizes in log_sizes(count, {"numel": (256.0, 4e7)}, (64, 1), start=1 + number):
            numel = sizes["numel"]
            read_byte, write_byte = numel * (reads * each + max(-mask, 0)), numel * (writes * each + max(mask, 0))
            inputs = {"inputs": "4"} if op == "aten::cat" else {}
            yield {"kind": kind, "op": op, "dtype": dtype, "engine": "vector", "pass_name": pass_name, **inputs,
                   "numel": str(numel), "read_byte": cell(read_byte), "write_byte": cell(write_byte)}  # fmt: skip


OVER_ROWS: tuple[Traffic, ...] = (
    ("reduction", "aten::sum", "forward", 1, 0, 0), ("reduction", "aten::sum", "backward", 1, 0, 0),
    ("norm", "aten::native_layer_norm", "forward", 1, 1, 0),
    ("norm", "aten::native_layer_norm_backward", "backward", 2, 1, 0),
    ("norm", "aten::native_batch_norm", "forward", 1, 1, 0),
    ("norm", "aten::native_batch_norm_backward", "backward", 2, 1, 0),
    ("softmax", "aten::_softmax", "forward", 1, 1, 0),
    ("softmax", "aten::_softmax_backward_data", "backward", 2, 1, 0),
    ("softmax", "aten::_log_softmax", "forward", 1, 1, 0),
    ("softmax", "aten::_log_softmax_backward_data", "backward", 2, 1, 0),
    ("embedding", "aten::embedding", "forward", 1, 1, 0),
    ("embedding", "aten::embedding_dense_backward", "backward", 1, 1, 0),
)  # fmt: skip


def _over_rows(count: int, dtype: str) -> Iterator[Cells]:
    each = ITEM_BYTE[dtype]
    for number, (kind, op, pass_name, reads, writes, _) in enumerate(OVER_ROWS):
        ranges = {"row": (16.0, 4096.0), "rows": (4.0, 16384.0)}
        for sizes in log_sizes(count, ranges, (64, 1), start=1 + number):
            row, rows = sizes["row"], sizes["rows"]
            numel = row * rows
            written = numel * writes * each if writes else rows * each
            if op == "aten::embedding_dense_backward":
                written = 8192 * row * each
            yield {"kind": kind, "op": op, "dtype": dtype, "engine": "vector", "pass_name": pass_name,
                   "numel": str(numel), "row": str(row), "read_byte": cell(numel * reads * each),
                   "write_byte": cell(written)}  # fmt: skip


def _pools(count: int, dtype: str) -> Iterator[Cells]:
    each = ITEM_BYTE[dtype]
    for name, index_byte in (("max_pool2d_with_indices", 8), ("avg_pool2d", 0)):
        ranges = {"planes": (8.0, 4096.0), "side": (4.0, 28.0)}
        windows = shuffled(((4, 2), (9, 2)), count)
        for (window, step), sizes in zip(windows, log_sizes(count, ranges, (16, 1)), strict=True):
            results = sizes["planes"] * sizes["side"] ** 2
            read = results * step * step * each
            moved = results * (each + index_byte)
            shape = {"kind": "pool", "dtype": dtype, "engine": "vector", "numel": str(results * window),
                     "row": str(window)}  # fmt: skip
            yield {**shape, "op": f"aten::{name}", "pass_name": "forward", "read_byte": cell(read),
                   "write_byte": cell(moved)}  # fmt: skip
            yield {**shape, "op": f"aten::{name}_backward", "pass_name": "backward", "read_byte": cell(moved),
                   "write_byte": cell(read)}  # fmt: skip


UPDATES = (
    ("sgd", "foreach"), ("adam", "foreach"), ("momentum", "foreach"), ("adamw", "foreach"), ("rmsprop", "foreach"),
    ("adam", "per_tensor"), ("adam", "fused"), ("sgd", "per_tensor"), ("sgd", "fused"), ("adamw", "fused"),
)  # fmt: skip


def _updates(count: int, dtype: str) -> Iterator[Cells]:
    for number, (rule, impl) in enumerate(UPDATES):
        ranges = {"length": (1024.0, 1.5e7), "tensors": (1.0, 64.0)}
        for sizes in log_sizes(count, ranges, (64, 1), start=1 + number):
            numel = min(sizes["length"] * sizes["tensors"], 40_000_000 // sizes["tensors"] * sizes["tensors"])
            yield {"kind": "optimizer", "dtype": dtype, "engine": "vector", "pass_name": "update", "rule": rule,
                   "impl": impl, "numel": str(numel), "tensors": str(sizes["tensors"])}  # fmt: skip


def _weighted_groups(count: int, dtype: str, engine: str) -> Iterator[tuple[float, Iterator[Cells]]]:
    """Yield the weight of each group of ops, and its ops."""
    yield 1.0, _product_cells(2 * count, dtype, engine, PRODUCTS)
    yield 0.4, _product_cells(count // 4, dtype, engine, WIDE_SIZES, (1, 64), (("1", "0"),))
    yield 0.3, _product_cells(count, dtype, engine, BATCHED)
    yield 0.8, _convolutions(count, dtype, engine)
    yield 0.5, _attentions(count // 2, dtype, engine)
    yield 0.6, _elementwise(max(2, count // 8), dtype)
    if dtype == "fp32":
        yield 0.2, _sparse(count // 2, dtype, engine)
        yield 0.5, _recurrent(count // 2, dtype, engine)
        yield 0.5, _over_rows(max(3, count // 6), dtype)
        yield 0.2, _pools(max(4, count // 6), dtype)
        yield 0.5, _updates(max(2, count // 12), dtype)


SHARES: Mapping[str, float] = {"fp32": 1.0, "fp64": 0.15}
"""Share of ops and weight by number format, one half for all others; few models train in double precision."""
LARGE_BYTE = 3e7
"""Traffic [byte] from which an op counts as large: allocators request such tensors from the system."""
LARGE_OP_FACTOR = 4.0
"""Factor on the longest allowed time for large ops, none of which is short."""


def design(
    formats: list[tuple[str, str]], count: int, longest_s: float, flop_per_s: Mapping[tuple[str, str], float],
    byte_per_s: float,
) -> list[Wanted]:  # fmt: skip
    """List ops of every kind that fill the space of sizes; each group of ops has its own share of the weight.

    `formats` (dtype, engine): formats and engines of products, whose shares of ops and weight are in `SHARES`;
    `count`: shapes of each kind; `longest_s`: longest time of an op at the machine's best rates [s], longer ops
    are left out; `flop_per_s`: best rate of products, by number format and engine; `byte_per_s`: memory bandwidth.
    """
    found = []
    for dtype, engine in formats:
        share = SHARES.get(dtype, 0.5)
        for weight, cells in _weighted_groups(max(4, int(count * share)), dtype, engine):
            ops = list(cells)
            if not ops:
                continue
            costs = add_costs(as_table(ops))
            flop, byte = costs["flop"].fillna(0.0), costs["byte"].fillna(0.0)
            seconds = flop / flop_per_s[dtype, engine] + byte / byte_per_s
            limits = np.where(byte > LARGE_BYTE, LARGE_OP_FACTOR * longest_s, longest_s)
            kept = [one for one, good in zip(ops, (seconds <= limits).tolist(), strict=True) if good]
            found += [Wanted(one, share * weight / max(len(kept), 1)) for one in kept]
    return found


KIND_SEEDS: Mapping[str, int] = {"gemm": 48, "conv": 12, "optimizer": 2}
"""Number of ops of each family to time before the first prediction, by kind; else `OTHER_SEEDS`. A fit needs 8."""
OTHER_SEEDS = 9
ALL_FORMAT_KINDS = ("gemm", "conv")
"""Kinds whose seeds include all number formats; other kinds have seeds only in formats with a full share."""


def seeds(ops: list[Wanted]) -> list[Wanted]:
    """Draw ops of each family, enough for a first fit."""
    names = ("kind", "dtype", "pass_name", "rule", "impl")
    families = by_key((tuple(one.cells.get(name, "") for name in names), one) for one in ops)
    found = []
    for (kind, dtype, *_), family in families.items():
        share = SHARES.get(dtype, 0.5)
        if share < 1 and kind not in ALL_FORMAT_KINDS:
            continue
        many = round(share * KIND_SEEDS.get(kind, OTHER_SEEDS))
        # Drawn at random, not at a fixed stride: properties that alternate in the list must not coincide with it.
        found += random.Random(0).sample(family, min(many, len(family)))  # noqa: S311 - sizes, no secret
    return found

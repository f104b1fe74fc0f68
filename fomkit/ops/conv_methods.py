"""The methods of convolutions as tables: what each takes for each op, or why it cannot compute it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from fomkit.ops.families import products
from fomkit.ops.families.conv_methods import AXES, FFT_TILE, FORMULAS, PARTS, PASSES, WINOGRAD_KERNEL, MethodCost
from fomkit.ops.families.formula import Row, columns_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Flags = NDArray[np.bool_]


BOTH = "backward"
"""The pass of a row that stands for both gradients."""
_PARTS = {**products.PARTS, **PARTS}


class Method(NamedTuple):
    """A way to compute a convolution.

    `formulas`: a key of `fomkit.ops.families.conv_methods.FORMULAS`.
    `in_memory`: false where one kernel does all steps and keeps on the chip what belongs to samples.
    """

    name: str
    title: str
    formulas: str
    in_memory: bool = True


METHODS: tuple[Method, ...] = (
    Method("direct", "direct", "direct"),
    Method("implicit_gemm", "implicit GEMM", "direct"),
    Method("im2col", "im2col", "im2col"),
    Method("fft", "FFT", "fft"),
    Method("fft_tiled", f"FFT, tiles of {FFT_TILE}", "fft_tiled"),
    Method("winograd_2", "Winograd F(2,3)", "winograd_2"),
    Method("winograd_2_fused", "Winograd F(2,3), fused", "winograd_2", in_memory=False),
    Method("winograd_4", "Winograd F(4,3)", "winograd_4"),
    Method("winograd_4_fused", "Winograd F(4,3), fused", "winograd_4", in_memory=False),
)
"""In the order in which the first of several equal ones is taken."""


def _any_above(sizes: Row, column: str, limit: float, *, where_it_slides: bool = False) -> Flags:
    """Tell where a size passes a limit along an axis, or along one where the kernel is longer than 1."""
    found = [(sizes[f"{column}_{axis}"] > limit) & (sizes[f"slides_{axis}"] >= where_it_slides) for axis in AXES]
    return np.asarray(found[0] | found[1] | found[2])


def _obstacles(sizes: Row, formulas: str) -> list[tuple[Flags, str]]:
    """List why a method cannot compute ops: for each reason the ops that it is true of."""
    if formulas in ("direct", "im2col"):
        return []
    found = [
        (np.asarray(sizes["transposed"] > 0), "transposed: its formulas are of plain convolutions"),
        (_any_above(sizes, "stride", 1), "stride above 1: it gives every position, and the skipped ones are lost"),
        (_any_above(sizes, "dilation", 1, where_it_slides=True), "dilation above 1: neighbours share no inputs"),
        (~_any_above(sizes, "kernel", 1), "kernel of 1: neighbours share no inputs"),
    ]
    if formulas == "fft_tiled":
        found.append((_any_above(sizes, "kernel", FFT_TILE), f"kernel longer than the tile of {FFT_TILE}"))
    if formulas.startswith("winograd"):
        kernels = [sizes[f"kernel_{axis}"] for axis in AXES]
        odd = [(length != 1) & (length != WINOGRAD_KERNEL) for length in kernels]
        message = f"no transforms for its kernel: those for {WINOGRAD_KERNEL} are counted"
        found.append((np.asarray(odd[0] | odd[1] | odd[2]), message))
    return found


def _costs(
    sizes: Row, formulas: str, pass_name: str, many: int | tuple[int, ...]
) -> tuple[MethodCost, NDArray[np.object_]]:
    """Give what ops take by one set of formulas, NaN where it cannot compute them, and why not."""
    why = np.full(many, "", object)
    for true_of, reason in reversed(_obstacles(sizes, formulas)):
        why[np.broadcast_to(true_of, many)] = reason
    # What a method cannot compute may have a tile without outputs.
    with np.errstate(divide="ignore", invalid="ignore"):
        cost: MethodCost = sizes.give(FORMULAS[formulas], pass_name=pass_name)
    possible = why == ""
    return MethodCost(*(np.where(possible, part, np.nan) for part in cost)), why


def _flop(cost: MethodCost) -> Array:
    return np.asarray(2 * cost.multiply_adds + cost.additions + cost.multiplications)


def least_flop(row: Row, pass_name: str, flop: Array) -> Array:
    """Give the arithmetic [flop] of the method that needs least, transforms included.

    `row`: convolutions (n) of one pass, and the parts of their formulas; `pass_name`: where it is backward, both
    gradients, each by its own method; `flop` (n,): that of direct convolution.
    """
    halves = PASSES[1:] if pass_name == BOTH else (pass_name,)
    sizes, found = Row(row.__getitem__, PARTS), np.zeros(flop.shape)
    for half in halves:
        saving = (name for name in FORMULAS if name not in ("direct", "im2col"))
        costs = [_flop(_costs(sizes, name, half, flop.shape)[0]) for name in saving]
        found += np.fmin.reduce([flop / len(halves), *costs])
    return found


def method_costs(ops: pd.DataFrame) -> pd.DataFrame:
    """Give what the convolutions of a table take by each method.

    `ops`: an OPS table whose dimensions are numbers. Gives a DataFrame: one row for each convolution and each of
    `METHODS`: ``of``, the op's index; ``method``; multiply_adds, additions and multiplications; ``flop``, all of
    it with 2 for a multiply-add; work_depth [levels]; fixed_byte and sample_byte [byte], the workspace as far as
    filters and as far as each sample needs it; and ``absent``, why the method cannot compute it, where it cannot:
    all figures are then NaN.

    >>> line = {"depth": 1.0, "kernel_d": 1.0, "stride_d": 1.0, "pad_d": 0.0, "dilation_d": 1.0, "groups": 1.0}
    >>> square = {"height": 28.0, "kernel_h": 3.0, "stride_h": 1.0, "pad_h": 1.0, "dilation_h": 1.0}
    >>> square |= {name.replace("_h", "_w").replace("height", "width"): size for name, size in square.items()}
    >>> op = {"kind": "conv", "dtype": "fp32", "pass_name": "forward", "batch": 1.0, "in_channels": 512.0}
    >>> found = method_costs(pd.DataFrame([{**op, **line, **square, "out_channels": 512.0}])).set_index("method")
    >>> found.loc["direct", ["multiply_adds", "work_depth"]].tolist()
    [1849688064.0, 13.0]
    >>> float(found.at["direct", "multiply_adds"] / found.at["winograd_4", "multiply_adds"])
    4.0
    """
    places = np.flatnonzero(ops["kind"].to_numpy(object) == "conv")
    passes = ops["pass_name"].to_numpy(object)[places]
    tables: list[pd.DataFrame] = []
    read: dict[str, Array] = {}
    for pass_name in dict.fromkeys(passes):
        rows = places[passes == pass_name]
        sizes = Row(columns_of(ops, rows, read), _PARTS)
        tables.extend(_table_of_method(sizes, method, str(pass_name), rows) for method in METHODS)
    if not tables:
        return pd.DataFrame(columns=["of", "method", *MethodCost._fields, "flop", "absent"])
    order = {method.name: place for place, method in enumerate(METHODS)}
    whole = pd.concat(tables, ignore_index=True)
    whole = whole.assign(_method=whole["method"].map(order)).sort_values(["of", "_method"], kind="stable")
    return whole.assign(of=ops.index.to_numpy()[whole["of"]]).drop(columns="_method").reset_index(drop=True)


def im2col_byte(ops: pd.DataFrame, *, whole_batch: bool) -> pd.Series[float]:
    """Give the bytes that each convolution of a table would gather as a plain product, 0 for other ops.

    It gathers for its whole batch or for one sample after the other, for one group after the other, and, in a row
    that stands for both gradients, for one gradient after the other.
    """
    found = pd.Series(0.0, ops.index)
    kinds, passes = (ops[name].to_numpy(object) for name in ("kind", "pass_name"))
    rows = np.flatnonzero(kinds == "conv")
    for pass_name in dict.fromkeys(passes[rows]):
        own = rows[passes[rows] == pass_name]
        sizes = Row(columns_of(ops, own, {}), _PARTS)
        half = pass_name if pass_name in PASSES else PASSES[-1]
        byte = sizes.give(FORMULAS["im2col"], pass_name=half).sample_byte
        found.iloc[own] = byte * (sizes["batch"] if whole_batch else 1.0)
    return found


def _table_of_method(sizes: Row, method: Method, pass_name: str, rows: NDArray[np.intp]) -> pd.DataFrame:
    many = len(rows)
    if pass_name in PASSES:
        cost, absent = _costs(sizes, method.formulas, pass_name, many)
        if not method.in_memory:
            cost = cost._replace(sample_byte=cost.sample_byte * 0)
    else:
        cost = MethodCost(*(np.full(many, np.nan) for _ in MethodCost._fields))
        absent = np.full(many, "one row stands for both gradients, each of which has methods of its own", object)
    return pd.DataFrame(
        {"of": rows, "method": method.name, **cost._asdict(), "flop": _flop(cost), "absent": absent}
    )

"""Layers by type: how many, their multiply-adds, parameters and bytes, as the classic networks' tables count them.

A layer counts when it changes its input at inference too: dropout and flattening do not. Batch normalisation is
two layers, one that normalises and one that scales, as in Caffe.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from fomkit.schema import PASSES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]

PRODUCT_KINDS = ("gemm", "sparse_gemm", "conv", "rnn", "attention")
"""Kinds whose arithmetic is multiply-adds, 2 flop each."""

WINDOW_KINDS = ("pool", "reduction")
"""Kinds that do one operation for each element that goes into an output."""

MOVING_KINDS = ("copy", "embedding")
"""Kinds that only move data."""

TYPE_COLUMNS = (
    "layers", "multiply_adds", "other_operations", "parameters", "parameter_byte", "output_byte", "im2col_byte",
)  # fmt: skip


class Census(NamedTuple):
    """The layers of one forward pass.

    Attributes
    ----------
    types : DataFrame
        One row per type of layer, in order of first appearance, with `TYPE_COLUMNS`: layers that count; their
        multiply-adds; their other operations (an addition per output for a bias, an operation per element of a
        pooling's or local normalisation's window, else one per output); parameters and their bytes; bytes of
        their outputs; bytes of the matrices that convolutions as plain products would gather (im2col).
    input_byte : float
        Bytes of the data.
    copy_byte : float
        Bytes of one copy per reader of each result that several layers read, as Caffe's split layers keep them.
    in_place_byte : float
        Bytes of outputs that take the place of an input, contained in ``types``.
    largest_im2col_byte : float
        The largest of these matrices; one workspace would serve all.
    idle : tuple of str
        Types that do not count, with their number.
    elsewhere_flop : float
        Arithmetic of the forward pass outside all layers, such as the loss [flop].
    """

    types: pd.DataFrame
    input_byte: float
    copy_byte: float
    in_place_byte: float
    largest_im2col_byte: float
    idle: tuple[str, ...]
    elsewhere_flop: float


def _place_of_ops(ops: pd.DataFrame, layers: pd.DataFrame) -> pd.Series[int]:
    """Give each op the position of its layer, the function of its name in its module, else the module, else -1."""
    functions = {(row.module, row.op): place for place, row in enumerate(layers.itertuples()) if row.op}
    modules = {row.module: place for place, row in enumerate(layers.itertuples()) if not row.op}
    inside = ops["module"] if "module" in ops.columns else pd.Series("", ops.index)
    keys = zip(inside.astype("str").fillna(""), ops["op"], strict=True)
    places = [functions.get(key, modules.get(key[0], -1)) for key in keys]
    return pd.Series(places, ops.index, dtype="int64")


def _sums(amounts: pd.Series, places: pd.Series[int], count: int) -> Matrix:
    return np.bincount(places, weights=amounts.to_numpy(np.float64), minlength=count).astype(np.float64)


def _work(layers: pd.DataFrame, forward: pd.DataFrame) -> dict[str, Matrix]:
    """Give each layer's multiply-adds, other operations and gathered bytes; rows of one module are one layer."""
    count = len(layers)
    products, windows = forward["kind"].isin(PRODUCT_KINDS), forward["kind"].isin(WINDOW_KINDS)
    flop = forward["flop"] * forward["count"]
    multiply_adds = _sums(flop[products] / 2, forward["_layer"][products], count)
    in_windows = np.zeros(count)
    if windows.any():
        elements = (forward["numel"] * forward["count"])[windows]
        in_windows = _sums(elements, forward["_layer"][windows], count)
    working = ~forward["kind"].isin(MOVING_KINDS)
    works = _sums(forward["count"][working], forward["_layer"][working], count) > 0
    outputs = (layers["output_numel"] * layers["count"]).to_numpy(np.float64)
    biased = np.where(layers["bias"] > 0, outputs, 0.0)
    plain = np.where(in_windows > 0, in_windows, np.where(works, outputs, 0.0))
    gathered = _sums(forward["_gathered"] * forward["count"], forward["_layer"], count)
    return {
        "multiply_adds": multiply_adds,
        "other_operations": np.where(multiply_adds > 0, biased, plain),
        "im2col_byte": gathered,
    }


def _scales(layers: pd.DataFrame) -> pd.DataFrame:
    """Give the scaling halves of batch normalisations, which own the parameters."""
    halves = layers[(layers["layer"] == "batch_norm") & (layers["bias"] > 0)]
    return halves.assign(layer="scale", in_place=0.0, readers=1.0)


def _with_scales(layers: pd.DataFrame) -> pd.DataFrame:
    """Part batch normalisation into normalising and scaling; what later layers read is the scaled one."""
    scales = _scales(layers)
    owned = ["parameters", "parameter_byte"]
    layers = layers.copy()
    layers.loc[scales.index, owned] = 0.0
    return pd.concat([layers, scales]).sort_index(kind="stable")


def layer_census(layers: pd.DataFrame, ops: pd.DataFrame, gathered: pd.Series[float]) -> Census:
    """Count the layers of one forward pass by type.

    Parameters
    ----------
    layers : DataFrame
        A LAYERS table whose sizes are numbers.
    ops : DataFrame
        The COSTED table of the same step.
    gathered : Series
        Bytes that each op would gather as a plain product (im2col), by its index; 0 where it would not.
    """
    layers = layers.reset_index(drop=True)
    forward = ops[ops["pass_name"] == PASSES[0]].assign(_gathered=gathered)
    forward = forward.assign(_layer=_place_of_ops(forward, layers))
    outside = forward["_layer"] < 0
    elsewhere = float((forward["flop"] * forward["count"])[outside].sum())
    forward = forward[~outside]
    layers = layers.assign(**_work(layers, forward))
    data = layers[layers["acts"] == "input"]
    acting = _with_scales(layers[layers["acts"] == "always"])
    calls = acting["count"]
    types = acting.assign(layers=calls, output_byte=acting["output_byte"] * calls)
    read = layers[layers["acts"].isin(("always", "input")) & (layers["readers"] > 1)]
    idle = layers[~layers["acts"].isin(("always", "input"))].groupby("layer", sort=False)["count"].sum()
    return Census(
        types=types.groupby("layer", sort=False)[list(TYPE_COLUMNS)].sum(),
        input_byte=float(data["output_byte"].sum()),
        copy_byte=float((read["output_byte"] * read["readers"] * read["count"]).sum()),
        in_place_byte=float((acting["output_byte"] * calls)[acting["in_place"] == 1].sum()),
        largest_im2col_byte=float(layers["im2col_byte"].max()),
        idle=tuple(f"{name} {number:g}" for name, number in idle.items()),
        elsewhere_flop=elsewhere,
    )

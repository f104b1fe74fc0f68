"""Fresh pages: what the system adds to an op whose result the allocator does not keep the memory of.

Above a size (glibc: 32 MiB at most) freed memory goes back to the system, so each new tensor is handed out page
by page. What that takes is a figure of the machine; timings of such ops are kept without it (``harness_s``), and
it is added where a time is given, whichever rule gave it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from fomkit.dtypes import ITEM_BYTE
from fomkit.predict.rows import are, numbers

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fomkit.hardware import Device

    Vector = NDArray[np.float64]

_WRITTEN = ("pointwise", "copy", "norm", "softmax", "pool", "embedding")
"""Kinds whose bytes written are those of their results."""


def result_byte(ops: pd.DataFrame) -> Vector:
    """Give the bytes of each op's new tensor; 0 where there is none, or its size is not told by the row."""

    def size(name: str) -> Vector:
        return numbers(ops, name, 1.0)

    item = np.array([ITEM_BYTE.get(str(one), 4.0) for one in ops["dtype"]])
    kernel = size("kernel_d") * size("kernel_h") * size("kernel_w")
    conv = {
        "backward_input": size("batch") * size("in_channels") * size("depth") * size("height") * size("width"),
        "backward_weight": size("out_channels") * size("in_channels") / size("groups") * kernel,
    }
    byte = np.where(are(ops, "kind", "gemm"), size("b") * size("m") * size("n") * item, 0.0)
    for pass_name, numel in conv.items():
        byte = np.where(are(ops, "kind", "conv") & are(ops, "pass_name", pass_name), numel * item, byte)
    in_place = np.array([str(one).endswith("_") for one in ops["op"]]) if "op" in ops.columns else False
    written = are(ops, "kind", *_WRITTEN) & ~np.asarray(in_place) & ~are(ops, "pass_name", "update")
    return np.asarray(np.where(written, numbers(ops, "write_byte", 0.0), byte), np.float64)


def fresh_seconds(ops: pd.DataFrame, device: Device) -> Vector:
    """Give what fresh pages add to each op [s]; 0 on a device of which nothing is known."""
    rate, above = device.fresh_byte_per_s, device.fresh_above_byte
    if rate is None or above is None or not len(ops):
        return np.zeros(len(ops))
    byte = result_byte(ops)
    return np.asarray(np.where(byte >= above, byte / rate.value, 0.0), np.float64)


def with_fresh(timed: pd.DataFrame, device: Device) -> pd.DataFrame:
    """Add fresh pages to the times of a TIMED table, and say so."""
    extra = fresh_seconds(timed, device)
    if not extra.any():
        return timed
    said = timed["evidence"].astype("str").to_numpy(object).copy()
    for place in np.flatnonzero(extra).tolist():
        said[place] = f"{said[place]}; fresh pages of its result {extra[place]:.3g} s"
    times = {name: timed[name] + extra for name in ("time_s", "low_s", "high_s")}
    return timed.assign(**times, evidence=pd.array(said, "str"))

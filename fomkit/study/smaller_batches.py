"""Whether a step of a smaller batch takes longer on a machine with timings, and whether these show it.

Only products do: a library takes another kernel for sixteen rows than for thirty. On facts alone no batch does
(`fomkit.predict.roofline`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fomkit.predict import interpolate
from fomkit.predict.ladder import prepared
from fomkit.predict.rows import Rows, as_rows
from fomkit.resize import evaluate_many
from fomkit.resize.expressions import names_in

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from fomkit.hardware import Machine
    from fomkit.workload import ModelProfile

    Array = NDArray[np.float64]

SIDES = ("b", "m", "n", "k")


class Slower(NamedTuple):
    """A smaller batch whose products take longer, and whether timings near them show it."""

    batch: int
    shown: bool


def _growing(ops: pd.DataFrame) -> list[list[int]]:
    """Give the places of products whose sizes depend on the batch, those of the same sizes together."""
    products = np.flatnonzero(ops["kind"].eq("gemm")).tolist()
    told = [name for name in (*SIDES, "trans_a", "trans_b") if name in ops.columns]
    cells = [ops[name].to_numpy(object)[products].tolist() for name in told]
    found: dict[tuple[object, ...], list[int]] = {}
    for place, row in zip(products, zip(*cells, strict=True), strict=True):
        if any(isinstance(cell, str) and "batch" in names_in(cell) for cell in row[: len(SIDES)]):
            found.setdefault(row, []).append(place)
    return list(found.values())


def _sides(ops: pd.DataFrame, at: NDArray[np.intp], sizes: Mapping[str, Array], where: str) -> dict[str, Array]:
    """Evaluate the sizes of some products at several batches (products × batches)."""
    found = {}
    for name in SIDES:
        cells = ops[name].to_numpy(object)[at].tolist()
        values = [evaluate_many(cell, sizes, where) if isinstance(cell, str) else float(cell) for cell in cells]
        found[name] = np.array([np.broadcast_to(value, sizes["batch"].shape) for value in values])
    return found


def _numel(sides: Mapping[str, Array]) -> Array:
    b, m, n, k = (sides[name] for name in SIDES)
    return np.asarray(b * (m * k + k * n + m * n), np.float64)


def _at(rows: Rows, here: Mapping[str, Array], there: Mapping[str, Array]) -> Rows:
    flop = np.prod([there[name] / here[name] for name in SIDES], 0)
    byte = rows.number("byte") * _numel(there) / _numel(here)
    return rows.assign(**there, flop=rows.number("flop") * flop, byte=byte)


def slower_products(
    model: ModelProfile, ops: pd.DataFrame, machine: Machine, sizes: Mapping[str, int], level: float
) -> Slower | None:
    """Find the smaller batch whose products take longest beyond this one's, if any.

    Tried are the two powers of two below, one less, and 1.

    Parameters
    ----------
    model : ModelProfile
    ops : DataFrame
        Its COSTED ops at these sizes, in the order of its table.
    machine : Machine
        With fits.
    sizes : mapping
    level : float
        Of the intervals.
    """
    batch = int(sizes.get("batch", 1))
    below = 1 << max(batch - 1, 1).bit_length() - 1
    smaller = dict.fromkeys((below, below // 2, batch - 1, 1))
    batches = [batch, *(size for size in smaller if 0 < size < batch)]
    groups = _growing(model.ops) if len(batches) > 1 and machine.fits else []
    if not groups:
        return None
    at, counts = np.array([places[0] for places in groups]), ops["count"].to_numpy(np.float64)
    times = np.array([counts[places].sum() for places in groups])
    named = {name: np.full(len(batches), float(size)) for name, size in sizes.items()} | {
        "batch": np.array(batches)
    }
    sides = _sides(model.ops, at, named, model.name)
    rows, built = as_rows(ops.reset_index(drop=True)).take(at), prepared(machine.as_built())
    of_batch = [{name: side[:, number] for name, side in sides.items()} for number in range(len(batches))]
    spent, shown = np.full((len(batches), len(at)), np.nan), np.zeros((len(batches), len(at)), bool)
    for number, there in enumerate(of_batch):
        found = interpolate.estimate(_at(rows, of_batch[0], there), built, level)
        places = np.searchsorted(at, found.index)
        spent[number, places] = found.time_s * times[places]
        shown[number, places] = found.time_source == "interpolated"
    longer = np.nan_to_num(spent[1:] - spent[0])
    worst = int(longer.sum(1).argmax())
    if longer[worst].sum() <= 0:
        return None
    risen = np.maximum(longer[worst], 0.0)
    return Slower(batches[1 + worst], bool(risen[shown[1 + worst]].sum() > risen.sum() / 2))

"""Estimate how well a board's own products can predict one of them, a bound for any table of products.

``python benchmarks/product_floor.py SHARED`` reads all 35,742 products that aiconfigurator timed on a board in one
number format, leaves 3,000 out, drawn once, and fits boosted trees (scikit-learn) to the rest: to the residual of
the board's tile form, with features from sizes, powers of two that divide them, and the filling of tiles and
waves. Other sizes with the same weights are known, so the task is easier than that of `fomkit validate`. It prints
errors in percent.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingRegressor

from fomkit.ops.pricing import add_costs
from fomkit.prediction.calibration import FORM_ROWS
from fomkit.prediction.families import fill
from fomkit.prediction.tiles import Chip, chips_of, fit_form, tile_seconds, tiled, waves
from fomkit.profiles.machines import load_machine
from fomkit.readers.registry import read_timings

BOARDS = ("a100-sxm", "h100-sxm", "h200-sxm", "l40s", "b200-sxm", "gb200")
LEFT_OUT, TREES, LEAVES = 3000, 400, 63
TILES = (16.0, 64.0, 128.0, 256.0)
POWERS = 10


def features(rows: pd.DataFrame, chip: Chip) -> np.ndarray:
    """Return features of a product and its chip by which a library may choose its kernel."""
    sizes = rows[["m", "n", "k"]].to_numpy(np.float64)
    divided = sum((sizes % 2**power == 0).astype(float) for power in range(1, POWERS + 1))
    filled = [fill(sizes[:, axis], tile) for axis in (0, 1) for tile in TILES]
    products = tiled(rows, chip).features
    return np.column_stack([np.log2(sizes), divided, *filled, products, waves(rows, chip.units)])


def errors(rows: pd.DataFrame, chip: Chip) -> np.ndarray:
    """Return the error of each product left out, relative to its time."""
    seconds, order = rows["time_s"].to_numpy(), np.random.default_rng(1).permutation(len(rows))
    out, known = order[:LEFT_OUT], order[LEFT_OUT:]
    form = fit_form(tiled(rows.iloc[known[:FORM_ROWS]], chip), chip, seconds[known[:FORM_ROWS]])
    above = np.log(seconds / tile_seconds(form, tiled(rows, chip), chip))
    table = features(rows, chip)
    trees = HistGradientBoostingRegressor(
        max_iter=TREES, max_leaf_nodes=LEAVES, min_samples_leaf=5, random_state=0
    )
    return np.expm1(trees.fit(table[known], above[known]).predict(table[out]) - above[out])


def main(shared: Path) -> None:
    """Print the errors of each board and number format."""
    for name in BOARDS:
        table = read_timings(shared / "data" / "modern_gpus" / f"{name.replace('-', '_')}.gemm.csv.gz").timings
        table = add_costs(table[table["op"] == ""].reset_index(drop=True))
        for key, chip in chips_of(load_machine(name).device).items():
            rows = table[table["dtype"] == key.partition("/")[0]].reset_index(drop=True)
            if len(rows):
                wrong = 100 * np.abs(errors(rows, chip))
                print(f"{name} {key}: median {np.median(wrong):.1f}, mean {wrong.mean():.1f}, of {len(rows):,}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

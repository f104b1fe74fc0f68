"""Compare the times of products in fp16, timed by Vidur, and in bf16, timed by aiconfigurator.

``python benchmarks/format_spread.py SHARED`` prints, for A100 and H100, ln(fp16 / bf16) over the products of
decoder layers that both have. Versions, harness and boards differ too, so the result is an upper bound on the
effect of the format: `fomkit.prediction.transfer.FORMAT_SPREAD`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd

from fomkit.readers.registry import read_timings

SHORTEST_S = 20e-6
"""Shortest time that is compared, because Vidur prints whole microseconds."""


def products(path: Path) -> pd.DataFrame:
    """Return sizes and fp16 times of the four products of a decoder layer, by tokens and devices that share it."""
    rows = pd.read_csv(path)
    apart, head = rows["num_tensor_parallel_workers"], rows["n_embd"] / rows["n_head"]
    up = np.where(rows["use_gated_mlp"], 2, 1) * rows["n_expanded_embd"] / apart
    sizes = {
        "attn_pre_proj": ((rows["n_head"] + 2 * rows["n_kv_head"]) * head / apart, rows["n_embd"]),
        "attn_post_proj": (rows["n_embd"], rows["n_embd"] / apart),
        "mlp_up_proj": (up, rows["n_embd"]),
        "mlp_down_proj": (rows["n_embd"], rows["n_expanded_embd"] / apart),
    }
    found = [
        pd.DataFrame({"m": rows["num_tokens"], "n": n, "k": k, "fp16_s": rows[f"time_stats.{op}.median"] / 1e3})
        for op, (n, k) in sizes.items()
    ]
    return pd.concat(found, ignore_index=True).astype("float64").dropna()


def pairs(data: Path, chip: str) -> pd.Series:
    """Return ln(fp16 / bf16) of the products of a chip that both have timed."""
    files = sorted((data / "layer_kernels").glob(f"{chip}_*.mlp.csv.gz"))
    fp16 = pd.concat(products(path) for path in files)
    timings = read_timings(data / "modern_gpus" / f"{chip}_sxm.gemm.csv.gz").timings
    bf16 = timings[timings["dtype"] == "bf16"][["m", "n", "k", "time_s"]]
    both = fp16.merge(bf16, on=["m", "n", "k"])
    both = both[both["fp16_s"] > SHORTEST_S]
    return np.log(both["fp16_s"] / both["time_s"])


def main(shared: Path) -> None:
    for chip in ("a100", "h100"):
        apart = pairs(shared / "data", chip)
        low, median, high = np.exp(apart.quantile([0.1, 0.5, 0.9]))
        print(
            f"{chip}: {len(apart):,} products, fp16 / bf16 {median:.2f} in the middle, "
            f"80 % {low:.2f} … {high:.2f}; root mean square of ln {np.sqrt((apart**2).mean()):.3f}"
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]))

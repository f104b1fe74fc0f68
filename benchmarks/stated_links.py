"""Fit the constants that turn a datasheet's rate of links inside a node into times; cross-validate by generation.

``python benchmarks/stated_links.py [SHARED]`` prints the errors of `fomkit.prediction.links.pipelined_s` for the
collectives of shipped machines with stated links, and of those in SHARED/data/collectives if given; of the latter
from 1 MiB on, because their shorter ones scatter by a factor of two. For each generation of links, the three
constants and the bounds are fitted to the rows of the other generations. The constants minimise the mean absolute
log error, with equal weight for each curve (system, source, collective, ranks) and each size in it; for the bounds
each generation has equal weight. The last generation uses the host's bus: it is predicted from the others, but not
used to predict them.
"""

from __future__ import annotations

import sys
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fomkit.core.machine import Link
from fomkit.prediction.links import HOP, OWN, SHARE, Line, pipelined_s, ring_s
from fomkit.profiles.machines import load_machine
from fomkit.readers.registry import read_timings

Vector = NDArray[np.float64]
GENERATIONS = {
    "v100": "NVLink 2", "a100-sxm": "NVLink 3", "h100-sxm": "NVLink 4", "h200-sxm": "NVLink 4",
    "b200-sxm": "NVLink 5", "gb200": "NVLink 5", "l40s": "PCIe 4",
}  # fmt: skip
TOLD_ONLY = "PCIe 4"
OTHERS = {"vtrain_v100": "v100", "vtrain_a100": "a100-sxm", "vidur_a100": "a100-sxm", "vidur_h100": "h100-sxm"}
V100 = Link("node", 9e-6, 150e9, "each", "NVIDIA V100 datasheet, 2017: NVLink 300 GB/s both ways; alpha as A100's")
CHOICES = list(product(np.arange(0.06, 0.2, 0.02), np.arange(0.3, 0.8, 0.1), np.arange(0.7, 1.0, 0.01)))
"""Candidates for the constants: a further step's start-up, a rank's own share moved, share of the stated rate."""
SIZES = {"to 16 KiB": 0, "to 1 MiB": 2**14, "to 16 MiB": 2**20, "to 128 MiB": 2**24, "above": 2**27}
CURVE = ["system", "source", "collective", "ranks"]


def rows_of(shared: Path | None) -> pd.DataFrame:
    """Read the collectives inside a node, with their weights and the generation of their links."""
    tables = {(name, "shipped"): load_machine(name).timings for name in GENERATIONS if name != "v100"}
    for path in sorted((shared / "data/collectives").glob("*.csv.gz")) if shared else ():
        if "send_recv" not in path.name:
            tables[OTHERS["_".join(path.name.split("_")[:2])], path.name] = read_timings(path).timings
    parts = []
    for (system, source), table in tables.items():
        own = table[(table["kind"] == "collective") & (table["link"] == "node")]
        own = own[own["message_byte"] >= (0 if source == "shipped" else 2**20)]
        parts.append(own[["collective", "ranks", "message_byte", "time_s"]].assign(system=system, source=source))
    rows = pd.concat(parts, ignore_index=True)
    octave = np.log2(rows["message_byte"]).round()
    rows["weight"] = 1 / rows.groupby([*CURVE, octave])["time_s"].transform("size")
    rows["weight"] /= rows.groupby(CURVE)["weight"].transform("sum")
    return rows.assign(generation=rows["system"].map(GENERATIONS))


def quantiles(values: Vector, weights: Vector, levels: tuple[float, ...]) -> list[float]:
    """Return weighted quantiles."""
    order = np.argsort(values)
    return [float(values[order][np.searchsorted(np.cumsum(weights[order]) / weights.sum(), at)]) for at in levels]


def alike(rows: pd.DataFrame) -> Vector:
    """Return weights with the same sum for each generation."""
    return (rows["weight"] / rows.groupby("generation")["weight"].transform("sum")).to_numpy()


def errors_of(rows: pd.DataFrame) -> tuple[Vector, Vector]:
    """Return ln(measured / predicted): for each choice (choices, rows), and for the textbook's ring."""
    links = {name: V100 if name == "v100" else next(one for one in load_machine(name).links if one.tier == "node")
             for name in rows["system"].unique()}  # fmt: skip
    asked = [(row.collective, row.message_byte, int(row.ranks), links[row.system]) for row in rows.itertuples()]
    ring = [ring_s(*what, Line(link.alpha_s, link.byte_per_s)) for *what, link in asked]
    times = [[pipelined_s(*what, Line(link.alpha_s, share * link.byte_per_s), hop=hop, own=own)
              for *what, link in asked] for hop, own, share in CHOICES]  # fmt: skip
    measured = np.log(rows["time_s"].to_numpy())
    return measured - np.log(times), measured - np.log(ring)


def main(shared: Path | None) -> None:
    """Print the constants and bounds of each fold, and the errors of the generation left out."""
    rows = rows_of(shared)
    errors, ring = errors_of(rows)
    weight, generation = rows["weight"].to_numpy(), rows["generation"].to_numpy()
    told, hits = np.empty(len(rows)), np.zeros(len(rows), bool)
    for name in (*dict.fromkeys(GENERATIONS.values()), "none"):
        others, out = (generation != name) & (generation != TOLD_ONLY), generation == name
        best = int((np.abs(errors[:, others]) @ weight[others]).argmin())
        low, high = quantiles(errors[best, others], alike(rows[others]), (0.1, 0.9))
        told[out], hits[out] = errors[best, out], (errors[best, out] >= low) & (errors[best, out] <= high)
        chosen = ", ".join(f"{one:.2f}" for one in CHOICES[best])
        print(f"without {name}: hop, own, share {chosen}; ends {np.exp(low):.2f} to {np.exp(high):.2f}", end="")
        print(f"; hits {np.average(hits[out], weights=weight[out]):.0%}" if out.any() else "")
    print(f"shipped: hop {HOP}, own {OWN}, share {SHARE}")
    size = np.digitize(rows["message_byte"], [*SIZES.values()]) - 1
    for (system, source), own in rows.groupby(["system", "source"], sort=False):
        for ranks, some in own.groupby("ranks") if system == "l40s" else [("all", own)]:
            print(f"{system}, {source}, ranks {ranks}: |error| (signed) of the stated ring -> left out")
            for place, name in enumerate(SIZES):
                at = some.index[size[some.index] == place].to_numpy()
                if not len(at):
                    continue
                found = [np.expm1(quantiles(what, weight[at], (0.5,))[0]) for one in (ring, told)
                         for what in (np.abs(one[at]), one[at])]  # fmt: skip
                print("  {:11} {:5.0%} ({:+.0%}) -> {:4.0%} ({:+.0%})".format(name, *found))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)

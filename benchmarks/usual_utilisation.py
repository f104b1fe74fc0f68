"""Measure how much of the floor max(flop / peak, byte / bandwidth) ops usually reach, over public tables.

``python benchmarks/usual_utilisation.py SHARED`` rewrites ``fomkit/predict/utilisation.py`` from the tables in
SHARED/data. Rules, the same for every table:

- utilisation = floor / (time − fixed cost), where at most half of the time is taken off. The fixed cost is the
  harness's: 5 µs for DeepBench's loops, 2 µs for the launched kernels of the serving tables. No NeuSight timing is
  shorter than its device's 16 to 32 µs, of which long kernels hide a part, so there it is what element-wise
  timings above that least time have besides their bytes at the device's best rate, 15 to 35 µs; and only ops with
  a floor above the least time are used (a choice by the time itself would keep the slow ones);
- left out: NeuSight's P4, which throttled, its flagged rows, and the products of the MI100, which run fp32 on its
  matrix units;
- at each floor of a half-decade grid, quantiles over the rows within a third of a decade, every machine with the
  same weight however many rows it has; no entry where fewer than `FEWEST` rows lie;
- peaks and bandwidths are those of ``public_machines.csv``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from fomkit.costs import add_costs
from fomkit.timings import read_timings

LEVELS = (0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 0.8, 0.85, 0.9, 0.95, 0.975, 0.99)
FLOORS = 10.0 ** np.arange(-6, -1.4, 0.5)
REACH = 1 / 3
FEWEST = 10
LAUNCH_S = {"deepbench": 5e-6, "serving": 2e-6}
BINARY = ("add", "mul", "div", "pow")
UNARY = ("addu", "mulu", "divu", "powu", "relu", "tanh", "gelu")
COLUMNS = ["machine", "work", "engine", "floor_s", "utilisation"]
HERE = Path(__file__).parent
TARGET = HERE.parent / "fomkit" / "predict" / "utilisation.py"


def facts() -> pd.DataFrame:
    return pd.read_csv(HERE / "public_machines.csv").set_index("machine")


def rated(
    timings: pd.DataFrame, machine: str, work: pd.Series, fixed_s: float, least_s: float = 0.0
) -> pd.DataFrame:
    """Utilisation of each timing of one machine with a floor above ``least_s`` [s]."""
    known = facts().loc[machine]
    costed = add_costs(timings)
    peak = np.where(costed["engine"] == "matrix", known["matrix_flop_per_s"], known["vector_flop_per_s"])
    floor_s = np.maximum(costed["flop"] / peak, costed["byte"] / known["byte_per_s"])
    kernel_s = np.maximum(costed["time_s"] - fixed_s, costed["time_s"] / 2)
    rows = {"machine": machine, "work": work, "engine": costed["engine"], "floor_s": floor_s}
    used = pd.DataFrame({**rows, "utilisation": floor_s / kernel_s})[COLUMNS].dropna()
    return used[used["floor_s"] > least_s]


def deepbench(data: Path) -> Iterator[pd.DataFrame]:
    for path in sorted((data / "deepbench" / "train").glob("*.xlsx")):
        timings = read_timings(path).timings
        word = timings["pass_name"].str.partition("_")[0]
        work = timings["kind"] + "/" + timings["engine"]
        work = work.where(timings["kind"] == "gemm", work + "/" + word)
        yield rated(timings, path.name, work, LAUNCH_S["deepbench"])
    # Only servers timed sparse products in a number format whose peak stands in the table of machines.
    for path in sorted((data / "deepbench" / "inference").glob("DeepBench_NV_*.xlsx")):
        timings = read_timings(path).timings
        timings = timings[timings["kind"] == "sparse_gemm"]
        work = timings["kind"] + "/" + timings["engine"]
        yield rated(timings, path.name, work, LAUNCH_S["deepbench"])


def _gemm(rows: pd.DataFrame, b: str | float, m: str, n: str, k: str) -> pd.DataFrame:
    sizes = {"m": rows[m], "n": rows[n], "k": rows[k], "b": rows[b] if isinstance(b, str) else b}
    return pd.DataFrame({"kind": "gemm", **sizes}).astype(dict.fromkeys(sizes, float))


def _moved(rows: pd.DataFrame, kind: str, tensors: int) -> pd.DataFrame:
    numel = (rows["B"] * rows["H"]).astype(float)
    sizes = {"numel": numel, "row": rows["H"], "read_byte": 4 * (tensors - 1) * numel, "write_byte": 4 * numel}
    return pd.DataFrame({"kind": kind, **sizes}).astype(dict.fromkeys(sizes, float))


def fixed_costs(rows: pd.DataFrame) -> tuple[float, float]:
    """Find a device's least time, and what longer kernels take besides their bytes [s]."""
    simple = rows[rows["op"].isin((*BINARY, *UNARY))]
    seconds = simple["latency_ms"] / 1e3
    byte = 4.0 * simple["B"] * simple["H"] * np.where(simple["op"].isin(BINARY), 3, 2)
    least_s = float(seconds.quantile(0.01))
    longer = (seconds > 1.3 * least_s) & (seconds < 10 * least_s)
    best = (byte / seconds).quantile(0.99)
    return least_s, float((seconds - byte / best)[longer].median())


def neusight(data: Path) -> Iterator[pd.DataFrame]:
    kernels = pd.read_csv(data / "neusight" / "kernels.csv.gz", low_memory=False)
    kernels = kernels[kernels["flag"].isna() & (kernels["device"] != "P4") & (kernels["op"] != "conv")]
    for machine, rows in kernels.groupby("device"):
        least_s, harness_s = fixed_costs(rows)
        linear, batched = rows[rows["op"] == "linear"], rows[rows["op"] == "bmm"]
        tables = {
            # Columns are B × (M×N)·(N×K): the reduction is N.
            "gemm/vector": _gemm(linear, 1.0, "M", "K", "N"),
            "batched gemm/vector": _gemm(batched, "B", "M", "K", "N"),
            "pointwise": pd.concat([
                _moved(rows[rows["op"].isin(BINARY)], "pointwise", 3),
                _moved(rows[rows["op"].isin(UNARY)], "pointwise", 2),
            ]),
            "softmax": _moved(rows[rows["op"] == "softmax"], "softmax", 2),
            "norm": _moved(rows[rows["op"] == "ln"], "norm", 2),
        }  # fmt: skip
        for work, table in tables.items():
            fixed = {"dtype": "fp32", "engine": "vector", "pass_name": "forward"}
            timings = table.assign(**fixed, time_s=rows.loc[table.index, "latency_ms"] / 1e3)
            if not ("gemm" in work and machine == "MI100"):
                yield rated(timings, str(machine), pd.Series(work, timings.index), harness_s, least_s)


def serving(data: Path) -> Iterator[pd.DataFrame]:
    fixed = {"dtype": "bf16", "engine": "matrix", "pass_name": "forward"}
    for machine in ("a100_sxm", "h200_sxm", "l40s"):
        gemm = pd.read_csv(data / "modern_gpus" / f"{machine}_gemm.csv.gz")
        gemm = gemm[gemm["gemm_dtype"] == "bfloat16"]
        timings = _gemm(gemm, 1.0, "m", "n", "k").assign(**fixed, time_s=gemm["time_ms"] / 1e3)
        yield rated(timings, machine, pd.Series("gemm/matrix", gemm.index), LAUNCH_S["serving"])
        table = pd.read_csv(data / "modern_gpus" / f"{machine}_attention_prefill.csv.gz")
        table = table[(table["attn_dtype"] == "bfloat16") & (table["kv_cache_dtype"] == "bfloat16")]
        names = {"batch_size": "batch", "num_heads": "heads", "num_key_value_heads": "kv_heads", "isl": "q_len"}
        sizes = table.rename(columns=names)[[*names.values(), "head_dim"]].astype(float)
        sizes = sizes.assign(kv_len=sizes["q_len"], causal=1.0, kind="attention")
        timings = sizes.assign(**fixed, time_s=table["time_ms"] / 1e3)
        yield rated(timings, machine, pd.Series("causal attention/matrix", table.index), LAUNCH_S["serving"])


def pooled(rows: pd.DataFrame) -> pd.DataFrame:
    """All timed kinds that move data, for those that nobody timed; each machine and kind counts once."""
    chosen = rows[rows["work"].isin(["pointwise", "softmax", "norm"])]
    return chosen.assign(machine=chosen["machine"] + chosen["work"], work="traffic")


def _quantiles(values: np.ndarray, weights: np.ndarray) -> list[float]:
    order = np.argsort(values, kind="stable")
    reached = (np.cumsum(weights[order]) - weights[order] / 2) / weights.sum()
    return np.exp(np.interp(LEVELS, reached, np.log(values[order]))).tolist()


def knots(rows: pd.DataFrame) -> Iterator[tuple[float, list[float]]]:
    for floor_s in FLOORS:
        near = rows[(np.log10(rows["floor_s"] / floor_s)).abs() <= REACH]
        if len(near) >= FEWEST:
            weights = 1 / near.groupby("machine")["machine"].transform("size")
            yield float(floor_s), _quantiles(near["utilisation"].to_numpy(), weights.to_numpy())


HEAD = '''# ruff: noqa: E501
"""Usual utilisation by work and floor; generated by ``benchmarks/usual_utilisation.py``, do not edit.

Utilisation is floor / (time less fixed cost), floor = max(flop / peak, byte / bandwidth) by the datasheet. Above 1
means faster than a direct method from memory could be: Winograd and FFT convolutions, caches, boost clocks.
Sources, all public: DeepBench da81ba7 (Apache-2.0), NeuSight 6945927 (MIT), aiconfigurator tables (Apache-2.0).
The script tells what was subtracted and left out; the machines' peaks stand beside it.
"""
# fmt: off

from __future__ import annotations

from collections.abc import Mapping

'''


def source(shared: Path) -> str:
    data = shared / "data"
    rows = pd.concat([*deepbench(data), *neusight(data), *serving(data)], ignore_index=True)
    rows = pd.concat([rows, pooled(rows)], ignore_index=True)
    lines = [HEAD, f"LEVELS = {LEVELS}\n", '"""Probabilities of the quantiles."""\n\n']
    lines.append("UTILISATION: Mapping[str, tuple[tuple[float, tuple[float, ...]], ...]] = {\n")
    for work, chosen in rows.groupby("work"):
        entries = list(knots(chosen))
        tables = chosen["machine"].nunique()
        lines.append(f"    # {len(chosen):,} timings in {tables} table{'s' if tables > 1 else ''}.\n")
        lines.append(f'    "{work}": (\n')
        for floor_s, values in entries:
            lines.append(f"        ({floor_s:.2g}, ({', '.join(f'{value:.3g}' for value in values)})),\n")
        lines.append("    ),\n")
    lines += ["}\n", '"""Work to (floor [s], quantiles of utilisation at `LEVELS`), by rising floor."""\n']
    return "".join(lines).replace("e-0", "e-")


if __name__ == "__main__":
    TARGET.write_text(source(Path(sys.argv[1])), encoding="utf-8")

"""Write the timings of the machines that come from aiconfigurator and NeuSight, thinned, beside their facts.

``python benchmarks/modern_machines.py SHARED [NAME…]`` rewrites ``machine_profiles/NAME.timings.csv.gz`` from the
tables in SHARED/data and prints how many rows were read and kept. Rows that stand for an op of a serving
framework alone (products scaled by blocks, attention over an fp8 cache or a window) are left out: no traced model
has that op. So is what it ran on another library than the fastest that it has for the machine: rows of two
libraries are of one size, and no traced model says which it asks for.
"""

from __future__ import annotations

import gzip
import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from fomkit.files.op_csv import format_table
from fomkit.readers.tables.aiconfigurator import HARNESS
from fomkit.readers.tables.foreign import thin_timings, whole_loads
from fomkit.readers.tables.registry import read_timings

FOLDER = Path(__file__).parent.parent / "machine_profiles"
MOST = {"gemm": 2000, "attention": 1000, "conv": 2000, "pointwise": 120, "softmax": 500, "norm": 500}
"""Rows kept of each part of a kind; NeuSight's linear and bmm are parts, as are the ops of kind pointwise."""
KERNELS = "neusight/kernels.csv.gz"
OTHER_LIBRARIES = ("triton", "flashinfer")
"""Libraries of attention beside the ones of the makers' boards in the second set: fa3 and trtllm_mha."""
SOURCES: dict[str, tuple[tuple[str, ...], str | None]] = {
    **{
        name: (
            tuple(f"modern_gpus/{stem}_{table}.csv.gz" for table in ("gemm", "attention_prefill", "nccl")),
            None,
        )
        for name, stem in (("a100-sxm", "a100_sxm"), ("h200-sxm", "h200_sxm"), ("l40s", "l40s"))
    },
    **{
        name: (
            tuple(f"modern_gpus/{stem}.{table}.csv.gz" for table in ("gemm", "context_attention", "nccl")),
            None,
        )
        for name, stem in (("h100-sxm", "h100_sxm"), ("b200-sxm", "b200_sxm"))
    },
    **{
        device.lower(): ((KERNELS,), device)
        for device in ("A100-PCIe-40GB", "V100-PCIe-32GB", "P100-PCIe-16GB", "T4", "P4")
    },
}
"""Machine to its tables, and to the device in them where they are of several."""


def whole(shared: Path, name: str) -> pd.DataFrame:
    """Everything that the tables of a machine say of ops that a traced model can have."""
    files, device = SOURCES[name]
    tables = [read_timings(shared / "data" / file, device=device).timings for file in files]
    timings = pd.concat(tables, ignore_index=True)
    framework = (timings["harness"] == HARNESS) & (timings["op"] != "")
    other = (timings["kind"] == "attention") & timings["library"].isin(OTHER_LIBRARIES)
    return timings[~(framework | other)].reset_index(drop=True)


def thinned(shared: Path, name: str) -> pd.DataFrame:
    rows = whole(shared, name)
    # NeuSight's products are of random sizes but for a tenth, on faster kernels, which are what models ask for.
    return thin_timings(rows, MOST, whole_loads(rows) if SOURCES[name][0] == (KERNELS,) else None)


def report(all_rows: pd.DataFrame, kept: pd.DataFrame) -> Iterator[str]:
    for (kind, dtype), rows in all_rows.groupby(["kind", "dtype"]):
        count = int(((kept["kind"] == kind) & (kept["dtype"] == dtype)).sum())
        yield f"  {kind} {dtype}: {count:,} of {len(rows):,} ({count / len(rows):.0%})"


def main(shared: Path, names: list[str]) -> None:
    for name in names or SOURCES:
        rows, kept = whole(shared, name), thinned(shared, name)
        path = FOLDER / f"{name}.timings.csv.gz"
        path.write_bytes(gzip.compress(format_table(kept, "TIMINGS").encode(), 9, mtime=0))
        print(f"{path.name}: {path.stat().st_size:,} bytes", *report(rows, kept), sep="\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])

"""Write thinned timing tables of the machines from aiconfigurator and NeuSight.

``python benchmarks/modern_machines.py SHARED [NAME…]`` rewrites ``machine_profiles/NAME.timings.csv.gz`` from the
tables in SHARED/data and prints the numbers of rows read and kept. Rows of ops that only a serving framework has
(a prompt stored in an fp8 cache, or attention over a window) are left out, but for the serving library's
own all-reduce in replayed graphs: no traced model has these ops, and none states how unevenly experts are chosen.
Rows by another library than that of most rows of a family are left out too: both libraries have rows of equal
sizes, and no traced model states which library it uses. Each mixture of experts, by its sizes, and each width of
the heads of attention counts for itself: the serving framework chooses a library for it, mostly one only.

Large tables are thinned for shipping. Rows are drawn by a hash of their sizes, so that everyone draws the same.

The rows left out test the fits, which have not seen them. Evenly spaced rows (each the farthest from those before)
would predict slightly better, 5.0 instead of 5.2 % for 2,000 of 35,742 products. But each kept row would be
farther from the others than rows usually are, so errors of left-out rows, and with them the intervals, would be
too large (93 % hits instead of 80 for convolutions).
"""

from __future__ import annotations

import gzip
import hashlib
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fomkit.core.units import ITEM_BYTE
from fomkit.files.op_csv import format_table
from fomkit.ops.kinds import KINDS
from fomkit.ops.tables import TIMINGS
from fomkit.prediction.exchange import REPLAYED
from fomkit.prediction.families import families
from fomkit.readers.registry import read_timings

FOLDER = Path(__file__).parent.parent / "machine_profiles"
MOST = {
    "gemm": 2000,
    "attention": 3000,
    "experts": 2000,
    "conv": 2000,
    "pointwise": 120,
    "softmax": 500,
    "norm": 500,
}
"""Number of rows kept of each part of a kind; NeuSight's linear and bmm are parts, as is each pointwise op."""
FEWER = {"fp8/decode": 1500, "fp8/latent": 700, "bf16/window": 250, "fp8/window": 250}
"""The same of families of attention of which fewer rows do: windows are simple."""
KERNELS = "neusight/kernels.csv.gz"
SYSTEM = (
    "gemm",
    "context_attention",
    "generation_attention",
    "generation_mla",
    "encoder_attention",
    "moe",
    "nccl",
    "custom_allreduce",
)
ABSENT = {("a100-sxm", "encoder_attention"), ("a100-sxm", "generation_mla")}
"""Tables that are not used: the first does not exist; the second is of another engine, and none of its steps takes
less than 295 us, which is the host's time and not a kernel's."""
SOURCES: dict[str, tuple[tuple[str, ...], str | None]] = {
    **{
        name: (
            tuple(
                f"modern_gpus/{name.replace('-', '_')}.{table}.csv.gz"
                for table in SYSTEM
                if (name, table) not in ABSENT
            ),
            None,
        )
        for name in ("a100-sxm", "h100-sxm", "h200-sxm", "l40s", "b200-sxm", "gb200")
    },
    **{
        device.lower(): ((KERNELS,), device)
        for device in ("A100-PCIe-40GB", "V100-PCIe-32GB", "P100-PCIe-16GB", "T4", "P4")
    },
}
"""Machine to its tables, and to its device in them if they hold several devices."""

PARTS = ("kind", "dtype", "engine", "pass_name", "op", "note", "collective", "layout", "cell")
"""Columns that define a part; rows with equal texts are thinned together."""
LOAD_BYTE = 16.0
"""Bytes that a thread loads at once."""
_NUMBERS = frozenset(column.name for column in TIMINGS if column.dtype == "number")


def draw(sizes: NDArray[np.float64], count: int) -> NDArray[np.intp]:
    """Draw about ``count`` rows by their sizes alone; rows of equal sizes stay together.

    `sizes` (n, p); `count`: at least 1; all rows are drawn if there are no more. Returns rising positions of the
    smallest hashes, more than ``count`` if the last sizes occur several times.

    Examples
    --------
    >>> draw(np.array([[1.0], [2.0], [3.0], [3.0]]), 2).tolist()
    [2, 3]
    """
    if count >= len(sizes):
        return np.arange(len(sizes))
    rows = np.ascontiguousarray(sizes, "<f8")
    hashes = np.array(
        [int.from_bytes(hashlib.blake2b(row.tobytes(), digest_size=7).digest(), "big") for row in rows]
    )
    return np.flatnonzero(hashes <= np.partition(hashes, count - 1)[count - 1])


def whole_loads(timings: pd.DataFrame) -> NDArray[np.bool_]:
    """Return which products have sizes that are multiples of the items in one load; False for other kinds.

    Examples
    --------
    >>> import pandas as pd
    >>> sizes = {"kind": "gemm", "dtype": "fp32", "m": [64.0, 63.0], "n": 128.0, "k": 4.0}
    >>> whole_loads(pd.DataFrame(sizes)).tolist()
    [True, False]
    """
    products = (timings["kind"] == "gemm").to_numpy()
    found = np.zeros(len(timings), bool)
    if products.any():
        rows = timings[products]
        items = LOAD_BYTE / rows["dtype"].map(ITEM_BYTE).to_numpy(np.float64)
        found[products] = (rows[["m", "n", "k"]].to_numpy(np.float64) % items[:, None] == 0).all(axis=1)
    return found


def thin_timings(
    timings: pd.DataFrame, most: Mapping[str, int], apart: NDArray[np.bool_ | np.intp] | None = None
) -> pd.DataFrame:
    """Keep about a given number of timings of each part, drawn by the hash of their sizes.

    `timings`: a TIMINGS table; `most`: kind of op to the number of rows kept of each part (`PARTS`); other kinds
    are kept whole; `apart` (n,): a further key of parts, to keep more of a few important rows than a draw from all
    rows would. Returns the kept rows, with their index and in their order; the draw is always the same.
    """
    kept: list[NDArray[np.intp]] = []
    parts = [name for name in PARTS if name in timings.columns]
    keys = [*(timings[name] for name in parts), np.zeros(len(timings), bool) if apart is None else apart]
    for key, at in timings.groupby(keys, dropna=False, sort=False).indices.items():
        positions = np.asarray(at, np.intp)
        kind = str(key[0]) if isinstance(key, tuple) else str(key)
        sizes = [name for name in KINDS[kind].dimensions if name in _NUMBERS]
        if kind in most and sizes:
            positions = positions[draw(timings[sizes].to_numpy(np.float64)[positions], most[kind])]
        kept.append(positions)
    return timings.iloc[np.sort(np.concatenate(kept))]


def family_of(timings: pd.DataFrame) -> NDArray[np.intp]:
    """Return the number of each timing's family, -1 if it has none."""
    found = np.full(len(timings), -1)
    for number, (_, places) in enumerate(families(timings)):
        found[places] = number
    return found


def of_one_library(timings: pd.DataFrame) -> NDArray[np.bool_]:
    """Return which timings are by the library that timed most of their family; links are counted separately.

    Of experts these are families: the mixtures of equal widths, number of experts, and experts of a token; of
    attention the heads of equal width.
    """
    chosen_by = {"experts": ("n", "k", "experts", "top_k"), "attention": ("head_dim",)}
    alike = [
        timings[name].where(timings["kind"] == kind, -1.0) for kind, names in chosen_by.items() for name in names
    ]
    family = timings.groupby([family_of(timings), *alike]).ngroup()
    counts = timings.groupby([family, timings["library"]])["library"].transform("size")
    return np.asarray((counts == counts.groupby(family).transform("max")).to_numpy(), np.bool_)


def whole(shared: Path, name: str) -> pd.DataFrame:
    """Return all timings in the tables of a machine of ops that a traced model can have."""
    files, device = SOURCES[name]
    tables = [read_timings(shared / "data" / file, device=device).timings for file in files]
    timings = pd.concat(tables, ignore_index=True)
    if files == (KERNELS,):
        return timings
    timings = timings[timings["op"].isin(["", REPLAYED])].reset_index(drop=True)
    own = (timings["op"] == REPLAYED).to_numpy()
    return timings[of_one_library(timings) | own].reset_index(drop=True)


def thinned(shared: Path, name: str) -> pd.DataFrame:
    rows = whole(shared, name)
    # Nine tenths of NeuSight's products have random sizes; the others, on faster kernels, are those of models.
    if SOURCES[name][0] == (KERNELS,):
        return thin_timings(rows, MOST, whole_loads(rows))
    return pd.concat(_thin_families(thin_timings(rows, MOST, family_of(rows)))).sort_index()


def _thin_families(timings: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Yield the timings by family, of those in `FEWER` so many; the draw of a draw is that of all rows."""
    yield timings[family_of(timings) < 0]
    for family, places in families(timings):
        most = (
            FEWER.get(f"{family.dtype}/{family.part}", len(places)) if family.kind == "attention" else len(places)
        )
        yield thin_timings(timings.iloc[places], {family.kind: most})


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

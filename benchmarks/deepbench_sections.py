"""Print one table of the DeepBench workbooks by device and section: imported rows and cross-validation errors.

``python benchmarks/deepbench_sections.py ../shared`` imports every workbook again and counts its timings by
section and pass (imported, of which corrected; rows without a time). It also prints the errors of the shipped fit
of that kind for shapes that its table does not have: median (mean) absolute error in percent and the share of 80 %
intervals that contain the truth, with whole shape groups left out and everything refitted
(`calibration.left_out`; ``left_out_errors.py`` repeats it, intervals included, with a baseline).
If two workbooks or sections feed one fit, its error is in the rows of each.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from fomkit.ops.kinds import PASS_FREE_KINDS
from fomkit.profiles.machines import load_machine
from fomkit.readers.registry import read_timings

PROFILES = Path(__file__).parent.parent / "machine_profiles"


def workbooks(data: Path) -> Iterator[tuple[str, Path]]:
    """Yield each shipped machine with each workbook that its timings are from."""
    for table in sorted(PROFILES.glob("*.timings.csv")):
        name = table.name.removesuffix(".timings.csv")
        source = str(pd.read_csv(table, usecols=["source_file"])["source_file"].iloc[0])
        folders = ("inference",) if name.endswith(".inference") else ("train", "inference")
        for path in [data / folder / source for folder in folders if (data / folder / source).is_file()][:1]:
            yield name.removesuffix(".inference"), path


def cross_validation_error(fits: dict, kind: str, dtype: str, engine: str, pass_name: str) -> str:
    word = "" if kind in PASS_FREE_KINDS else pass_name
    fit = fits.get("/".join(part for part in (kind, dtype, engine, word) if part))
    if fit is None:
        return "not fitted"
    median, mean = (100 * fit[f"left_out_{name}_error"] for name in ("median", "mean"))
    return f"{median:.2g} ({mean:.2g}), {fit['left_out_hit_rate']:.0%}"


def sections(machine: str, path: Path) -> Iterator[dict[str, object]]:
    imported, fits = read_timings(path), dict(load_machine(PROFILES / f"{machine}.yaml").fits)
    for one in imported.counts:
        # Dense products in a sparse section are fp32, on a sheet whose dense section is int8.
        beside = one.kind == "gemm" and one.section.startswith("Sparse")
        dtype, engine = ["fp32", "vector"] if beside else _format(imported.timings, one.sheet, one.kind)
        yield {
            "machine": machine, "workbook": path.parent.name, "section": one.section, "kind": one.kind,
            "precision": dtype, "pass": one.pass_name, "imported": one.imported, "corrected": one.corrected,
            "no time": one.without_time,
            "left out: median (mean) %, hits":
                cross_validation_error(fits, one.kind, dtype, engine, one.pass_name),
        }  # fmt: skip


def _format(timings: pd.DataFrame, sheet: str, kind: str) -> list[str]:
    rows = timings[(timings["source_sheet"] == sheet) & (timings["kind"] == kind)]
    return rows[["dtype", "engine"]].iloc[0].tolist() if len(rows) else ["", ""]


def table(shared: Path) -> pd.DataFrame:
    """Make the table of every section of every workbook."""
    data = shared / "data" / "deepbench"
    return pd.DataFrame([row for machine, path in workbooks(data) for row in sections(machine, path)])


if __name__ == "__main__":
    found = table(Path(sys.argv[1]))
    print(found.to_string(index=False))
    print(found[["imported", "corrected", "no time"]].sum().to_string())

"""Single kernels of NeuSight (Lee, Phanishayee & Mahajan, ASPLOS 2025) as TIMINGS: one device of ``kernels.csv``.

fp32 on the general units, TF32 off, PyTorch in eager mode; each time is the mean of the 5 fastest of 25 calls
between two events, in milliseconds. The fixed cost of a call is 12 to 63 µs (`fomkit.timings.neusight_harness`);
it becomes ``harness_s``, and timings that show nothing else are left out and counted, as are those with a flag.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fomkit.errors import FomkitError, nearest_names
from fomkit.tables.text import read_header
from fomkit.timings.foreign_table import check_present, make_timings, read_columns
from fomkit.timings.imported import ImportedTimings, SectionCount
from fomkit.timings.neusight_harness import TOLD, Harness, find_harness
from fomkit.timings.neusight_ops import (
    KINDS,
    NEEDED,
    SIZES,
    conv_columns,
    product_columns,
    traffic_columns,
    work_of,
)

if TYPE_CHECKING:
    import pandas as pd

HARNESS = "NeuSight"
REPEATS = 25.0
MATRIX_DEVICES = ("AMD", "MI1", "MI2", "MI3")
"""How devices begin whose fp32 products run on matrix units (AMD); a newer PyTorch timed them."""
_TEXTS = ("device", "op", "split", "flag")
NOTES = (
    "NeuSight's times are means of the 5 fastest of 25 single calls of PyTorch 2.1 (AMD: 2.4.1), CUDA 12.1, fp32 "
    "without TF32. harness_s is the host's work before a kernel starts: fitted to long element-wise timings of "
    "the device, and carried over to its other ops by the time of their shortest calls.",
)


def recognise_neusight(path: Path) -> bool:
    """Tell whether a file is text whose first line names the columns of NeuSight's table of kernels."""
    return set(read_header(path)) >= {*_TEXTS, *SIZES, "latency_ms"}


def devices_of(path: Path) -> tuple[str, ...]:
    """Name the devices of a table, in order of appearance."""
    return tuple(dict.fromkeys(read_columns(path, ("device",), ())["device"]))


def _choose_device(path: Path, device: str | None) -> str:
    devices = devices_of(path)
    if device is None and len(devices) > 1:
        raise FomkitError(
            str(path), f"is of {len(devices)} devices: {', '.join(devices)}. Name one with --device."
        )
    if device is not None and device not in devices:
        raise FomkitError(str(path), f"has no device {device!r}. {nearest_names(device, devices)}")
    return device or devices[0]


def _read_rows(path: Path, device: str) -> pd.DataFrame:
    rows = read_columns(path, _TEXTS, (*SIZES, "latency_ms"), chosen={"device": device})
    unknown = ~rows["op"].isin(list(KINDS)).to_numpy()
    if unknown.any():
        at = int(unknown.argmax())
        raise FomkitError(
            f"{path}:{rows.index[at]}",
            f"op is {rows['op'].iloc[at]!r}. {nearest_names(rows['op'].iloc[at], KINDS)}",
        )
    kinds = rows["op"].map(KINDS)
    for kind, sizes in NEEDED.items():
        check_present(rows[kinds == kind], path, (*sizes, "latency_ms"))
    return rows


def _timings(rows: pd.DataFrame, device: str, harness: Harness, path: Path) -> pd.DataFrame:
    """Make TIMINGS of the rows that are used, in file order."""
    import pandas as pd

    amd = device.startswith(MATRIX_DEVICES)
    kinds = rows["op"].map(KINDS)
    products, convolutions = rows[kinds == "gemm"], rows[kinds == "conv"]
    traffic = rows[~kinds.isin(["gemm", "conv"])]
    parts = (
        (products, product_columns(products, "matrix" if amd else "vector")),
        (convolutions, conv_columns(convolutions)),
        (traffic, traffic_columns(traffic)),
    )
    known = pd.concat([pd.DataFrame(columns, part.index) for part, columns in parts if len(part)]).loc[rows.index]
    texts = {name: known[name].fillna("") for name in ("op", "note", "layout", "pass_name") if name in known}
    return make_timings(
        {
            **{str(name): known[name] for name in known},
            **texts,
            "dtype": "fp32",
            "accumulate_dtype": "fp32",
            "time_s": rows["latency_ms"] / 1e3,
            "repeats": REPEATS,
            "harness": HARNESS,
            "harness_s": rows["op"].map(dict(harness.cost_s)),
            "library": "PyTorch",
            "library_version": "2.4.1" if amd else "2.1, CUDA 12.1",
        },
        rows.index,
        path,
    )


def _counts(rows: pd.DataFrame, flagged: pd.Series[bool], hidden: pd.Series[bool]) -> tuple[SectionCount, ...]:
    counts = []
    for op, group in rows.groupby("op", sort=False):
        doubtful, below = int(flagged[group.index].sum()), int(hidden[group.index].sum())
        reason = f"flagged {', '.join(sorted(set(group['flag']) - {''}))}" if doubtful else ""
        imported = len(group) - doubtful - below
        counts.append(SectionCount("-", str(op), "", imported, 0, below, 0, doubtful, reason, kind=KINDS[str(op)]))
    return tuple(counts)


def _remark(device: str, harness: Harness) -> str:
    if not harness.cost_s:
        return (
            f"{device}: too few long element-wise timings to tell the harness's fixed cost, which stays unknown."
        )
    costs = ", ".join(
        f"{op} {cost * 1e6:.0f}{'' if op in harness.fitted else ' (carried over)'}"
        for op, cost in sorted(harness.cost_s.items())
    )
    return f"{device}: fixed cost of the harness by op [us]: {costs}."


def read_neusight(path: Path, device: str | None = None) -> ImportedTimings:
    """Read the kernels of one device.

    Parameters
    ----------
    path : Path
        ``kernels.csv``, packed by gzip or not.
    device : str, optional
        As the table names it; needed where it has several.

    Returns
    -------
    ImportedTimings
        Times in seconds, with the harness's cost beside each. Element-wise ops, norms and softmax name their op.

    Raises
    ------
    FomkitError
        With file and line, when a column is missing, a cell is no number, or the device is not there or not named.
    """
    device = _choose_device(path, device)
    rows = _read_rows(path, device)
    told = work_of(rows)
    harness = find_harness(told, (rows["op"].map(KINDS) == "pointwise").to_numpy())
    flagged = rows["flag"] != ""
    hidden = ~flagged & (told["seconds"] < TOLD * rows["op"].map(dict(harness.floor_s)).fillna(0.0))
    used = rows[~flagged & ~hidden]
    if not len(used):
        raise FomkitError(str(path), f"has no timing of {device} that is longer than its harness. Check the file.")
    return ImportedTimings(
        _timings(used, device, harness, path),
        device,
        counts=_counts(rows, flagged, hidden),
        notes=NOTES,
        remarks=(_remark(device, harness),),
    )

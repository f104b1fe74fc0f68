"""Read single kernels of NeuSight (Lee, Phanishayee & Mahajan, ASPLOS 2025) as TIMINGS, for one device.

The table is ``kernels.csv``: fp32 on the vector units, TF32 off, PyTorch in eager mode; each time is the mean of
the 5 fastest of 25 calls between two events, in milliseconds. The fixed cost of a call is 12 to 63 µs; it is
estimated from the timings themselves and becomes ``harness_s``. Timings that show nothing but this cost are left
out and counted, as are those with a flag.

Each timing is the time between two events around one call on an idle device: time = max(F, H + kernel). H is the
host's work before the kernel starts, and F all of its work up to the second event. F hides short kernels: their
time is the same whatever their size. Long kernels show H: for an element-wise op, time = H + byte / rate fits its
long timings within 0.1 to 0.6 %. So

- F of an op is the median over its `SMALLEST` ops of least work, if these agree;
- H of an element-wise op is fitted where time exceeds `LONG`·F;
- H of any other op lies between its F minus the device's F − H (if all its further host work comes before the
  kernel) and its F times the device's H / F (if the work is distributed as in element-wise ops): the mean of the
  two is used. They are 15 µs apart for the V100's ``linear``; with the first, one product would exceed the peak
  rate;
- a table without short rows has no F. H of its element-wise ops is then fitted to rows well above its shortest, of
  all these ops together if one has too few, else it is `USUAL_S`; other ops have `SHARES` of it;
- a timing below `RESOLUTION`·F is below the harness's resolution: it says nothing about its kernel. Where no F was
  seen, F is `USUAL_FLOOR`·H.

H includes the kernel's start, 1 to 2 µs, which a kernel waiting in a queue has as well. It does not grow with the
kernel's bytes, so it cannot be separated from the host's work and is subtracted with it.

The source ``neusight/Dataset/collect.py`` of that project shows what ran: ``linear`` is nn.Linear with bias,
``ln`` nn.LayerNorm with gain and bias, ``addu`` and similar ops have one tensor and a scalar, ``conv`` is
nn.Conv2d without bias, cuDNN choosing by trial. Products are B × (M×N)·(N×K): the reduction is N.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fomkit.core.errors import FomkitError, nearest_names
from fomkit.core.units import ITEM_BYTE
from fomkit.files.csv import read_header
from fomkit.readers.tables.foreign import ImportedTimings, SectionCount, check_present, make_timings, read_columns

Vector = NDArray[np.float64]

SMALLEST = 20
AGREE = 1.35
"""Largest ratio of the 90 % to the 10 % quantile at which the smallest timings of an op count as equal."""
RISES = 0.25
"""Largest power of the work by which the smallest timings may grow if they are a floor.

In a dense table that begins above the floor they are similar too, but grow with the work; 88 floors of six devices
grow by the power 0.10 at most.
"""
LONG = 2.0
ENOUGH = 30
"""Fewest long timings from which cost and rate can be separated."""
RESOLUTION = 1.2
HUBER = 0.02
"""Relative error above which a timing's influence on the fit is constant."""
ROUNDS = 20
LIKE: Mapping[str, str] = {"conv": "linear"}
"""Both are modules that call a library; no convolution of the tables is short enough to show its own cost."""
SHARES: Mapping[str, float] = {"linear": 2.2, "conv": 2.2, "bmm": 1.1, "ln": 1.9, "softmax": 1.2}
"""Median H of an op over that of element-wise ops in the tables that have short rows (A100, P100, T4, V100, P4).

The ranges are 2.1 to 2.3 for ``linear``, 1.1 to 1.5, 0.9 to 2.0 and 1.1 to 1.3.
"""
SHARE_QUARTILE = 0.13
"""Relative distance of the quartiles from such a cost; they are used as the quartiles of repeats."""
USUAL_S, USUAL_FLOOR = 17.5e-6, 1.8
"""Median H [s] of element-wise ops, and their F over H, in the same tables: 15 to 29 µs, 1.6 to 2.3."""


class Harness(NamedTuple):
    """Costs of a device by op [s].

    `floor_s`: op to the time of its shortest kernels, if they agree.
    `cost_s`: op to the fixed cost in its long timings; absent if unknown.
    `shares`: those whose cost is a share of that of element-wise ops, known from other devices.
    """

    floor_s: Mapping[str, float]
    cost_s: Mapping[str, float]
    fitted: tuple[str, ...]
    shares: tuple[str, ...] = ()


def floor_seconds(seconds: Vector, work: Vector) -> float:
    """Return the time that the smallest ops share [s], whatever their work; NaN if they do not agree.

    >>> work = np.arange(1.0, 101.0)
    >>> round(floor_seconds(np.maximum(30e-6, work * 1e-6), work) * 1e6, 1)
    30.0
    >>> floor_seconds(30e-6 + (work + 100) * 1e-6, work + 100)
    nan
    """
    order = np.argsort(work, kind="stable")[:SMALLEST]
    if len(order) < SMALLEST:
        return float("nan")
    low, median, high = np.quantile(seconds[order], [0.1, 0.5, 0.9])
    least, most = np.quantile(work[order], [0.1, 0.9])
    is_flat = np.log(high / low) < RISES * np.log(most / least)
    return float(median) if high < AGREE * low and is_flat else float("nan")


def intercept(seconds: Vector, byte: Vector, op: NDArray[np.intp] | None = None) -> float:
    """Fit time = H + byte / rate by relative error, robust to outliers, and return H [s].

    Iteratively reweighted least squares with Huber's weights. `op` (n,): each row's op number; each op has a rate.

    >>> byte = np.linspace(1e7, 1e9, 50)
    >>> round(intercept(15e-6 + byte / 900e9, byte) * 1e6, 3)
    15.0
    """
    own = np.eye(1 if op is None else op.max() + 1)[np.zeros(len(byte), np.intp) if op is None else op]
    terms = np.column_stack([np.ones_like(byte), own * (byte / byte.max())[:, None]])
    weights, found = 1 / seconds, np.asarray(np.zeros(terms.shape[1]))
    for _ in range(ROUNDS):
        found = np.asarray(np.linalg.lstsq(terms * weights[:, None], seconds * weights, rcond=None)[0])
        error = np.abs(terms @ found / seconds - 1)
        weights = np.sqrt(HUBER / np.maximum(error, HUBER)) / seconds
    return float(found[0])


def _elementwise_costs(rows: pd.DataFrame, floors: Mapping[str, float]) -> tuple[dict[str, float], float]:
    """Fit H [s] of each element-wise op with enough long timings, and one H for all such ops."""
    # Without a floor, the shortest row may be at the floor or far above.
    shortest = rows["op"].map(rows.groupby("op")["seconds"].min().to_dict() | dict(floors))
    rows = rows[rows["seconds"] > LONG * shortest]
    fitted: dict[str, float] = {}
    for op, group in rows.groupby("op"):
        if len(group) >= ENOUGH:
            cost = intercept(group["seconds"].to_numpy(), group["byte"].to_numpy())
            if 0 < cost < shortest[group.index[0]]:
                fitted[str(op)] = cost
    if fitted:
        return fitted, float(np.median(list(fitted.values())))
    if len(rows) < ENOUGH:
        return {}, USUAL_S
    numbers = np.unique(rows["op"].to_numpy(str), return_inverse=True)[1]
    return {}, max(intercept(rows["seconds"].to_numpy(), rows["byte"].to_numpy(), numbers), 0.0)


def find_harness(rows: pd.DataFrame, elementwise: NDArray[np.bool_]) -> Harness:
    """Find floors and fixed costs of a device's ops.

    `rows`: ``op``, ``seconds``, ``work`` (anything that grows with the kernel's time) and ``byte``; `elementwise`:
    rows whose kernel moves its bytes and does nothing else.
    """
    floors = {
        str(op): floor_seconds(group["seconds"].to_numpy(), group["work"].to_numpy())
        for op, group in rows.groupby("op")
    }
    floors = {op: floor for op, floor in floors.items() if np.isfinite(floor)}
    fitted, typical = _elementwise_costs(rows[elementwise], floors)
    costs = {str(op): typical * SHARES.get(str(op), 1.0) for op in rows["op"].unique()}
    own: dict[str, float] = {}
    if both := [(floors[op], cost) for op, cost in fitted.items() if op in floors]:
        hidden = float(np.median([floor - cost for floor, cost in both]))
        share = float(np.median([cost / floor for floor, cost in both]))
        own = {op: (floor - hidden + share * floor) / 2 for op, floor in floors.items() if floor > hidden}
    own |= fitted
    own |= {op: own[like] for op, like in LIKE.items() if op in costs and like in own}
    costs |= own
    taken = costs.keys() - own.keys()
    unseen = {op: USUAL_FLOOR * costs[op] for op in taken | fitted.keys() if op not in floors}
    return Harness(floors | unseen, costs, tuple(fitted), tuple(sorted(taken)))


ITEM = ITEM_BYTE["fp32"]
PRODUCTS = ("linear", "bmm")
SIZES = ("B", "M", "N", "K", "H", "Cin", "Cout", "ks", "HW", "stride", "pad")


class Traffic(NamedTuple):
    """An op whose time its traffic determines: kind, PyTorch's name, and number of full-size tensors read."""

    kind: str
    op: str
    inputs: int


TRAFFIC: Mapping[str, Traffic] = {
    **{word: Traffic("pointwise", f"aten::{word}", 2) for word in ("add", "mul", "div", "pow")},
    **{f"{word}u": Traffic("pointwise", f"aten::{word}", 1) for word in ("add", "mul", "div", "pow")},
    **{word: Traffic("pointwise", f"aten::{word}", 1) for word in ("relu", "gelu", "tanh")},
    "softmax": Traffic("softmax", "aten::_softmax", 1),
    "ln": Traffic("norm", "aten::native_layer_norm", 1),
}
KINDS: Mapping[str, str] = {
    **dict.fromkeys(PRODUCTS, "gemm"), "conv": "conv", **{word: one.kind for word, one in TRAFFIC.items()},
}  # fmt: skip
"""NeuSight's names of ops and fomkit's kinds."""
NEEDED: Mapping[str, tuple[str, ...]] = {
    "gemm": ("B", "M", "N", "K"), "conv": ("B", "Cin", "Cout", "ks", "HW", "stride"),
    **dict.fromkeys(("pointwise", "softmax", "norm"), ("B", "H")),
}  # fmt: skip
"""The sizes that a kind must state."""


def _moved(rows: pd.DataFrame) -> tuple[pd.Series[float], pd.Series[float]]:
    """Return bytes read and written; a norm also reads gain and bias, and keeps mean and deviation per row."""
    numel = rows["B"] * rows["H"]
    norm = rows["op"] == "ln"
    inputs = rows["op"].map({word: one.inputs for word, one in TRAFFIC.items()})
    read, written = numel * inputs + 2 * rows["H"].where(norm, 0.0), numel + 2 * rows["B"].where(norm, 0.0)
    return ITEM * read, ITEM * written


def work_of(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the columns for `find_harness`: ``op``, ``seconds``, ``work``, and ``byte`` if traffic decides."""
    read, written = _moved(rows)
    byte = read + written
    used = [name for name in SIZES if name not in ("stride", "pad")]
    products = np.prod(rows[used].fillna(1.0).to_numpy(), axis=1)
    work = np.where(byte.notna(), byte, products * rows[["HW", "ks"]].fillna(1.0).prod(axis=1))
    return rows[["op"]].assign(seconds=rows["latency_ms"] / 1e3, work=work, byte=byte)


def product_columns(rows: pd.DataFrame, engine: str) -> dict[str, object]:
    """Return the columns of matrix products."""
    sizes = {"b": rows["B"], "m": rows["M"], "n": rows["K"], "k": rows["N"]}
    stored = {"trans_a": 0.0, "trans_b": (rows["op"] == "linear").astype("float64")}
    return {"kind": "gemm", "engine": engine, **sizes, **stored, "note": "timed as " + rows["op"]}


def conv_columns(rows: pd.DataFrame) -> dict[str, object]:
    """Return the columns of convolutions, all of them square and two-dimensional."""
    pairs = (("kernel", "ks"), ("stride", "stride"), ("pad", "pad"))
    square = {f"{name}_{axis}": rows[column] for name, column in pairs for axis in ("h", "w")}
    depth = {"depth": 1.0, "kernel_d": 1.0, "stride_d": 1.0, "pad_d": 0.0}
    plain = {"dilation_d": 1.0, "dilation_h": 1.0, "dilation_w": 1.0, "groups": 1.0, "transposed": 0.0}
    sizes = {"batch": rows["B"], "in_channels": rows["Cin"], "out_channels": rows["Cout"]}
    image = {"height": rows["HW"], "width": rows["HW"], "layout": "nchw"}
    fixed = {"kind": "conv", "engine": "vector", "pass_name": "forward"}
    return {**fixed, **sizes, **image, **square, **depth, **plain}


def traffic_columns(rows: pd.DataFrame) -> dict[str, object]:
    """Return the columns of element-wise ops, norms and softmax, each the timing of its own op."""
    read, written = _moved(rows)
    inputs = rows["op"].map({word: one.inputs + 2.0 * (word == "ln") for word, one in TRAFFIC.items()})
    return {
        "kind": rows["op"].map(KINDS),
        "op": rows["op"].map({word: one.op for word, one in TRAFFIC.items()}),
        "engine": "vector",
        "pass_name": "forward",
        "numel": rows["B"] * rows["H"],
        "row": rows["H"],
        "inputs": inputs,
        "read_byte": read,
        "write_byte": written,
    }


HARNESS = "NeuSight"
REPEATS = 25.0
MATRIX_DEVICES = ("AMD", "MI1", "MI2", "MI3")
"""Prefixes of devices whose fp32 products run on matrix units (AMD); a newer PyTorch timed these."""
_TEXTS = ("device", "op", "split", "flag")
NOTES = (
    "NeuSight's times are means of the 5 fastest of 25 single calls of PyTorch 2.1 (AMD: 2.4.1), CUDA 12.1, fp32 "
    "without TF32. harness_s is the host's work before a kernel starts: fitted to long element-wise timings of "
    "the device, and carried over to its other ops by the time of their shortest calls.",
)


def recognise_neusight(path: Path) -> bool:
    """Return whether a file is text whose first line names the columns of NeuSight's table of kernels."""
    return set(read_header(path)) >= {*_TEXTS, *SIZES, "latency_ms"}


def devices_of(path: Path) -> tuple[str, ...]:
    """Return the devices of a table, in order of appearance."""
    return tuple(dict.fromkeys(read_columns(path, ("device",), ())["device"]))


def _choose_device(path: Path, device: str | None) -> str:
    devices = devices_of(path)
    if device is None and len(devices) > 1:
        listed = ", ".join(devices)
        raise FomkitError(str(path), f"is of {len(devices)} devices: {listed}. Name one with --device.")
    if device is not None and device not in devices:
        raise FomkitError(str(path), f"has no device {device!r}. {nearest_names(device, devices)}")
    return device or devices[0]


def _read_rows(path: Path, device: str) -> pd.DataFrame:
    rows = read_columns(path, _TEXTS, (*SIZES, "latency_ms"), chosen={"device": device})
    unknown = ~rows["op"].isin(list(KINDS)).to_numpy()
    if unknown.any():
        at = int(unknown.argmax())
        op = rows["op"].iloc[at]
        raise FomkitError(f"{path}:{rows.index[at]}", f"op is {op!r}. {nearest_names(op, KINDS)}")
    kinds = rows["op"].map(KINDS)
    for kind, sizes in NEEDED.items():
        check_present(rows[kinds == kind], path, (*sizes, "latency_ms"))
    return rows


def _timings(rows: pd.DataFrame, device: str, harness: Harness, path: Path) -> pd.DataFrame:
    """Make TIMINGS of the rows that are used, in file order."""
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
    seconds, cost_s = rows["latency_ms"] / 1e3, rows["op"].map(dict(harness.cost_s))
    unsure_s = SHARE_QUARTILE * cost_s.where(rows["op"].isin(harness.shares))
    texts = {name: known[name].fillna("") for name in ("op", "note", "layout", "pass_name") if name in known}
    return make_timings(
        {
            **{str(name): known[name] for name in known},
            **texts,
            "dtype": "fp32",
            "accumulate_dtype": "fp32",
            "time_s": seconds,
            "p25_s": seconds - unsure_s,
            "p75_s": seconds + unsure_s,
            "repeats": REPEATS,
            "harness": HARNESS,
            "harness_s": cost_s,
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
    words = dict.fromkeys(harness.cost_s, " (carried over)") | dict.fromkeys(harness.fitted, "")
    words |= dict.fromkeys(harness.shares, " (by its ratio to element-wise ops in other devices' tables)")
    costs = ", ".join(f"{op} {cost * 1e6:.0f}{words[op]}" for op, cost in sorted(harness.cost_s.items()))
    no_fit = "" if harness.fitted else " No element-wise op has enough long timings to fit it."
    return f"{device}: fixed cost of the harness by op [us]: {costs}.{no_fit}"


def read_neusight(path: Path, device: str | None = None) -> ImportedTimings:
    """Read the kernels of one device; times become seconds, with the harness's cost in ``harness_s``.

    `path`: ``kernels.csv``, gzipped or not; `device`: as the table names it; needed if it has several.
    Element-wise ops, norms and softmax name their op.
    """
    device = _choose_device(path, device)
    rows = _read_rows(path, device)
    computed = work_of(rows)
    harness = find_harness(computed, (rows["op"].map(KINDS) == "pointwise").to_numpy())
    flagged = rows["flag"] != ""
    hidden = ~flagged & (computed["seconds"] < RESOLUTION * rows["op"].map(dict(harness.floor_s)).fillna(0.0))
    used = rows[~flagged & ~hidden]
    if not len(used):
        raise FomkitError(str(path), f"has no timing of {device} above the harness cost. Check the file.")
    timings, counts = _timings(used, device, harness, path), _counts(rows, flagged, hidden)
    return ImportedTimings(timings, device, counts=counts, notes=NOTES, remarks=(_remark(device, harness),))

"""The distinct ops of a step as a table for people: sizes, time with its interval, rates, evidence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fomkit.predict.engines import settle_engines
from fomkit.predict.rates import FITTED, rates
from fomkit.quantities import format_quantity
from fomkit.study.estimate import Estimate
from fomkit.study.evidence import distinct_ops
from fomkit.study.fits import with_fits
from fomkit.views.census import PRODUCT_KINDS
from fomkit.views.shapes import shape_label

if TYPE_CHECKING:
    import pandas as pd

TEXTS = ("op", "kind", "pass_name", "dtype", "engine", "time_source", "bound", "evidence")


def _where(ops: pd.DataFrame) -> list[str]:
    """Name the module of each op, the first of several."""
    if "module" not in ops.columns:
        return [""] * len(ops)
    pairs = zip(ops["module"].astype("str"), ops["places"].astype(int), strict=True)
    return [f"{module} and {places - 1} more" if places > 1 else module for module, places in pairs]


def _size(row: Mapping[str, Any]) -> str:
    """Write the sizes of an op shortly, those of a product in full."""
    if row["kind"] in PRODUCT_KINDS:
        return shape_label(row).partition(" ")[2]
    numel = row.get("numel")
    return "" if numel is None or numel != numel else f"{_si(float(numel))} elements"


def _label(row: Mapping[str, Any]) -> str:
    """Name an op shortly: products by kind and sizes, the others by their own name and number of elements."""
    if row["kind"] in PRODUCT_KINDS:
        return shape_label(row)
    name, size = str(row["op"]).rpartition("::")[2] or str(row["kind"]), _size(row)
    return f"{name} of {size}" if size else name


def _si(number: float) -> str:
    """Write a count shortly.

    Examples
    --------
    >>> _si(25_690_112.0), _si(512.0)
    ('25.7 M', '512')
    """
    size, prefix = next((pair for pair in ((1e9, "G"), (1e6, "M"), (1e3, "k")) if number >= pair[0]), (1.0, ""))
    return f"{number / size:.3g} {prefix}".rstrip()


def op_frame(one: Estimate) -> pd.DataFrame:
    """Give the distinct ops of a step, longest first; those without a time come last.

    Returns
    -------
    DataFrame
        ``label`` (short, for figures), ``op``, ``kind``, ``sizes``, ``size`` (short), ``pass_name``, ``dtype``,
        ``engine``, ``module``, ``count`` (executions), ``time_s``, ``low_s``, ``high_s`` (of all executions in a
        step [s]), ``share`` of the device time, ``flop`` and ``byte`` of all executions, ``intensity``
        [flop/byte], ``flop_per_s``, ``time_source``, ``bound``, ``evidence``. NaN is unknown.

    Examples
    --------
    >>> import fomkit
    >>> frame = op_frame(fomkit.estimate("p1b3-lecture", "x86-lecture"))
    >>> frame["op"].iloc[0], float(round(frame["share"].sum(), 9))
    ('Assign', 1.0)
    """
    import pandas as pd

    ops = distinct_ops(settle_engines(one.ops.reset_index(drop=True), with_fits(one.machine))[0])
    count = ops["count"].to_numpy(np.float64)
    amounts = {
        name: ops[name].to_numpy(np.float64) * count for name in ("time_s", "low_s", "high_s", "flop", "byte")
    }
    known = {name: np.where(column > 0, column, np.nan) for name, column in amounts.items()}
    rows = [{str(name): cell for name, cell in row.items()} for row in ops.to_dict("records")]
    frame = pd.DataFrame(
        {
            "label": [_label(row) for row in rows],
            **{name: ops[name].astype("str").to_numpy() for name in TEXTS},
            "sizes": [shape_label(row) for row in rows],
            "size": [_size(row) for row in rows],
            "module": _where(ops),
            "count": count,
            **amounts,
            "share": amounts["time_s"] / one.step_time.device_s.value,
            "intensity": amounts["flop"] / known["byte"],
            "flop_per_s": amounts["flop"] / known["time_s"],
        }
    )
    return frame.sort_values("time_s", ascending=False, kind="stable", na_position="last", ignore_index=True)


def roof_frame(one: Estimate, ops: pd.DataFrame) -> pd.DataFrame:
    """Give the rates that bound the ops: one row for each number format and engine that does their arithmetic.

    Parameters
    ----------
    one : Estimate
    ops : DataFrame
        Of `op_frame`.

    Returns
    -------
    DataFrame
        ``roof`` (its name and peak), ``flop_per_s``, ``byte_per_s``; no row where one is unknown.
    """
    import pandas as pd

    machine, rows = with_fits(one.machine), []
    busy = ops[ops["flop"] > 0]
    for dtype, engine in busy[["dtype", "engine"]].drop_duplicates().itertuples(index=False):
        known = rates(machine, str(dtype), str(engine))
        if known.flop_per_s is None or known.byte_per_s is None:
            continue
        peak = f"{dtype} {engine} {format_quantity(known.flop_per_s.value, 'flop_per_s', 3)}"
        fitted = FITTED in (known.flop_per_s.source, known.byte_per_s.source)
        rows.append({"roof": f"{peak} (fitted to the table)" if fitted else peak,
                     "flop_per_s": known.flop_per_s.value, "byte_per_s": known.byte_per_s.value})  # fmt: skip
    return pd.DataFrame(rows, columns=["roof", "flop_per_s", "byte_per_s"])

"""Products on a matrix engine whose stored rows are no multiple of the 16 bytes that it loads at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fomkit.advice.case import Case
from fomkit.advice.evidence import evidence, seconds_of
from fomkit.advice.finding import WORTH, Finding, does_not_apply
from fomkit.advice.saving import saving
from fomkit.dtypes import ITEM_BYTE
from fomkit.predict import add_times
from fomkit.predict.storage import row_major
from fomkit.quantities import format_quantity
from fomkit.schema import TIMES
from fomkit.study.estimate import Estimate

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

LOAD_BYTE = 16.0
"""Matrix engines are fed by loads of so many bytes (NVIDIA, "Matrix Multiplication Background User's Guide",
requirements to use tensor cores: sizes in multiples of 16 bytes)."""

_DO = (
    "Pad them: hidden sizes, classes or the vocabulary up to the next multiple, in the model's definition. What "
    "else grows with a padded size (a softmax over the vocabulary) is not counted."
)


def _stored_rows(products: pd.DataFrame) -> dict[str, NDArray[np.bool_]]:
    """Tell of m, n and k which are the length of a stored row: of A (m×k), of B (k×n) or of the result (m×n)."""
    turned_a, turned_b = ((products[name] == 1).to_numpy(bool) for name in ("trans_a", "trans_b"))
    return {"m": turned_a, "n": np.ones(len(products), bool), "k": ~turned_a | turned_b}


def padded_sizes(products: pd.DataFrame) -> pd.DataFrame:
    """Give m, n and k with the stored rows filled up to whole loads.

    Examples
    --------
    >>> import pandas as pd
    >>> row = {"m": 4095.0, "n": 50257.0, "k": 768.0, "trans_a": 0.0, "trans_b": 0.0, "dtype": "fp16"}
    >>> padded_sizes(pd.DataFrame([row])).values.tolist()
    [[4095.0, 50264.0, 768.0]]
    """
    multiple = LOAD_BYTE / products["dtype"].astype("str").map(ITEM_BYTE).astype(float)
    return products[["m", "n", "k"]].assign(
        **{
            name: products[name].where(~rows, np.ceil(products[name] / multiple) * multiple)
            for name, rows in _stored_rows(products).items()
        }
    )


def _misaligned(ops: pd.DataFrame) -> pd.Series[bool]:
    products = (ops["kind"] == "gemm") & (ops["engine"] == "matrix")
    found = products & False
    if products.any():
        own = ops[products]
        found[products] = (padded_sizes(own) != own[["m", "n", "k"]]).any(axis="columns")
    return found


def _timed_so(case: Case, rows: pd.Series[bool]) -> int:
    """Count the timings of such products in the machine's table."""
    table = case.machine.timings
    if not len(table) or "m" not in table.columns:
        return 0
    formats = set(case.ops.loc[rows, "dtype"].astype("str"))
    own = table[table["dtype"].isin(formats)].reset_index(drop=True)
    own = own[own["kind"] == "gemm"].reset_index(drop=True)
    return int(_misaligned(row_major(own)).sum()) if len(own) else 0


def _padded(case: Case, rows: pd.Series[bool]) -> Estimate:
    fixed = case.fixed
    sizes = padded_sizes(case.ops[rows])
    ops = fixed.ops.copy()
    at = sizes.index[sizes.index < len(ops)]
    padded = row_major(ops.iloc[at])
    for name in ops.columns.intersection(["trans_a", "trans_b", "layout"]).tolist():
        ops.loc[ops.index[at], name] = padded[name].to_numpy()
    ops.loc[ops.index[at], ["m", "n", "k"]] = sizes.loc[at].to_numpy(np.float64)
    return case.again(model=replace(fixed, ops=ops), sizes={}, batch=None)


def _findings(case: Case, rows: pd.Series[bool]) -> Iterator[Finding]:
    after, timed = _padded(case, rows), _timed_so(case, rows)
    after_s = seconds_of(after.ops)[: len(case.ops)]
    count = int(rows.sum())
    what = f"{count} products on the matrix engine have" if count > 1 else "One product on the matrix engine has"
    says = f"{what} rows of numbers that are no multiple of {LOAD_BYTE:.0f} bytes."
    told = f"The machine's table has {timed:,} such timings" if timed else "The machine's table has no such timing"
    found = Finding(
        says=says,
        do=_DO,
        sure=f"The padded products were estimated again. {told}.",
        saving=saving(case.before, after.ops),
        column="m, n, k (with trans_a, trans_b), engine",
        rows=evidence(case, rows, after_s),
    )
    yield found
    if found.state == "advice" or timed or not len(case.machine.timings):
        return
    longer_s = _without_the_engine(case, rows) - float(case.ops.loc[rows, "seconds"].sum())
    if longer_s > WORTH * case.before.step.value:
        more = format_quantity(longer_s, "time_s", 3)
        yield Finding(
            says=f"{says} Where the library cannot feed the matrix engine with them, a step takes up to {more} "
            "more than estimated.",
            do=_DO,
            sure="Nobody knows: the machine's table has no such timing, so they are estimated as if they were "
            "aligned. The bound sets them on the vector engine, as cuBLAS did before version 11; newer ones lose "
            "less. Time one of them.",
            column=found.column,
            rows=found.rows,
        )


def _without_the_engine(case: Case, rows: pd.Series[bool]) -> float:
    """Give what the products take on the vector engine [s]."""
    own = case.ops[rows].drop(columns=[*(column.name for column in TIMES), "floor_s", "seconds"], errors="ignore")
    timed = add_times(own.assign(engine="vector").reset_index(drop=True), case.fitted, checked=True)
    return float(np.nansum(seconds_of(timed)))


def misaligned(case: Case) -> list[Finding]:
    """Find products that the matrix engine cannot load whole."""
    on_engine = (case.ops["engine"] == "matrix") & (case.ops["kind"] == "gemm")
    if not on_engine.any():
        return [does_not_apply("no matrix product of the step runs on a matrix engine")]
    rows = _misaligned(case.ops) & case.ops["seconds"].notna()
    if not rows.any():
        return [does_not_apply(f"the rows of all its products are multiples of {LOAD_BYTE:.0f} bytes")]
    return list(_findings(case, rows))

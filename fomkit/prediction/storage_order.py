"""Products in one order of storage, so that m and n of a timing mean what m and n of an op mean.

Ops as a machine's table has them: products row-major, on an arithmetic unit that the machine has.

Rows ask for a unit by the framework's habit; the machine may only have the other one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, overload

import numpy as np
import pandas as pd

from fomkit.core.machine import Machine
from fomkit.ops.kinds import PRODUCT_KINDS
from fomkit.ops.tables import PRODUCT_LAYOUTS
from fomkit.prediction.estimates import Rows, Table, are, as_rows, cached, same_texts, words_of
from fomkit.prediction.gp import Flags

COLUMN_MAJOR = PRODUCT_LAYOUTS[1]
_PAIRS = (("m", "n"), ("trans_a", "trans_b"))


@overload
def row_major(table: pd.DataFrame) -> pd.DataFrame: ...


@overload
def row_major(table: Rows) -> Rows: ...


def row_major(table: Table) -> Table:
    """Turn products in column-major order around: timings and the ops that are asked alike.

    A column-major (m×k)·(k×n) is the row-major (n×k)·(k×m) of the same memory, and it is the second that
    frameworks ask for: their product of a batch of 16 with 1760×1760 weights is the BLAS product m=1760, n=16.
    Sparse products stay as they are, because which factor is the sparse one is part of the op.

    `table`: a table of timings or of ops. Gives a DataFrame: the same rows; m and n, trans_a and trans_b have
    changed places where ``layout`` was column_major. The layout of products is empty then.

    >>> import pandas as pd
    >>> blas = {"kind": "gemm", "layout": "column_major", "trans_a": 1.0, "trans_b": 0.0}
    >>> turned = row_major(pd.DataFrame([{**blas, "m": 1760.0, "n": 16.0}]))
    >>> turned[["m", "n", "trans_a", "trans_b"]].values.tolist()
    [[16.0, 1760.0, 0.0, 1.0]]
    """
    stated = are(table, "kind", "gemm") & are(table, "layout", *PRODUCT_LAYOUTS)
    if not stated.any():
        return table
    turned = stated & are(table, "layout", COLUMN_MAJOR)
    if isinstance(table, Rows):
        layout = table.text("layout")
        cleared = words_of(np.where(stated, len(layout.words), layout.codes), (*layout.words, ""))
        return table.assign(**_turned(table.number, _present(table.has), turned), layout=cleared)
    # The cells of a table that no one has sized yet are expressions.
    columns = _turned(lambda name: table.get(name, np.nan), _present(table.columns.__contains__), turned)
    return table.assign(**columns, layout=table["layout"].mask(stated, ""))


def _present(has: Callable[[str], bool]) -> list[tuple[str, str]]:
    return [pair for pair in _PAIRS if any(map(has, pair))]


def _turned(column: Callable[[str], Any], pairs: list[tuple[str, str]], turned: Flags) -> dict[str, Any]:
    both = [*pairs, *((other, one) for one, other in pairs)]
    return {one: np.where(turned, column(other), column(one)) for one, other in both}


def _alternatives(dtype: str, engine: str) -> Iterator[tuple[str, str]]:
    yield dtype, "vector" if engine == "matrix" else "matrix"
    if dtype == "tf32":
        yield "fp32", "vector"


def settle(rows: Rows, machine: Machine) -> tuple[Rows, dict[int, str]]:
    """Do what `settle_engines` does, on plain columns."""
    rows = row_major(rows)
    known: set[tuple[str, ...]] = {(peak.dtype, peak.engine) for peak in machine.device.peaks}
    known |= cached(machine.timings, None, "engines", lambda: {*same_texts(machine.timings, "dtype", "engine")[0]})
    triples, numbers_of = same_texts(rows, "kind", "dtype", "engine")
    settled, notes = [], dict[int, str]()
    for number, (kind, *wanted) in enumerate(triples):
        pair = (wanted[0], wanted[1])
        found = pair
        if kind in PRODUCT_KINDS and pair not in known:
            found = next((other for other in _alternatives(*pair) if other in known), pair)
        settled.append(found)
        if found != pair:
            note = f"{pair[0]} on the {pair[1]} engine is unknown here, taken as {found[0]} on {found[1]}"
            notes |= dict.fromkeys(rows.index[numbers_of == number].tolist(), note)
    if not notes:
        return rows, notes
    dtypes, engines = (words_of(numbers_of, words) for words in zip(*settled, strict=True))
    return rows.assign(dtype=dtypes, engine=engines), notes


def settle_engines(rows: pd.DataFrame, machine: Machine) -> tuple[pd.DataFrame, dict[int, str]]:
    """Let each arithmetic row run on an engine that the machine is known to have for its number format.

    A machine is known to have an engine by a stated peak or by a timing. Products are turned row-major, as its
    timings are before anything is compared with them (`row_major`). Gives the rows, with dtype and engine replaced
    where the machine knows only an alternative, and what was replaced, by index.
    """
    rows = row_major(rows)
    settled, notes = settle(as_rows(rows), machine)
    if not notes:
        return rows, notes
    return rows.assign(**{name: settled.text(name).cells().tolist() for name in ("dtype", "engine")}), notes

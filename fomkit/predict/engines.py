"""Rows ask for an arithmetic unit by the framework's habit; the machine may only have the other one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fomkit.dtypes import MATRIX_KINDS
from fomkit.hardware import Machine
from fomkit.predict.estimates import records, texts

if TYPE_CHECKING:
    import pandas as pd

ARITHMETIC_KINDS = ("sparse_gemm", *MATRIX_KINDS)
"""Kinds that run on a matrix engine where there is one; all others use the vector engine and wait for bytes."""


def _alternatives(dtype: str, engine: str) -> Iterator[tuple[str, str]]:
    yield dtype, "vector" if engine == "matrix" else "matrix"
    if dtype == "tf32":
        yield "fp32", "vector"


def settle_engines(rows: pd.DataFrame, machine: Machine) -> tuple[pd.DataFrame, dict[int, str]]:
    """Let each arithmetic row run on an engine that the machine is known to have for its number format.

    A machine is known to have an engine by a stated peak or by a timing.

    Returns
    -------
    rows : DataFrame
        With dtype and engine replaced where the machine knows only an alternative.
    notes : dict
        What was replaced, by index.
    """
    known = {(peak.dtype, peak.engine) for peak in machine.device.peaks}
    known |= set(zip(texts(machine.timings, "dtype"), texts(machine.timings, "engine"), strict=True))
    settled, notes = [], {}
    for index, row in records(rows):
        pair = (row["dtype"], row["engine"])
        if row["kind"] in ARITHMETIC_KINDS and pair not in known:
            found = next((other for other in _alternatives(*pair) if other in known), pair)
            if found != pair:
                notes[index] = (
                    f"{pair[0]} on the {pair[1]} engine is unknown here, taken as {found[0]} on {found[1]}"
                )
            pair = found
        settled.append(pair)
    dtypes, engines = zip(*settled, strict=True) if settled else ((), ())
    return rows.assign(dtype=list(dtypes), engine=list(engines)), notes

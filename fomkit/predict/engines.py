"""Rows ask for an arithmetic unit by the framework's habit; the machine may only have the other one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fomkit.dtypes import MATRIX_KINDS
from fomkit.hardware import Machine
from fomkit.predict.estimates import texts
from fomkit.predict.kept import kept

if TYPE_CHECKING:
    import pandas as pd

ARITHMETIC_KINDS = ("sparse_gemm", *MATRIX_KINDS)
"""Kinds that run on a matrix engine where there is one; all others use the vector engine and wait for bytes."""


def _alternatives(dtype: str, engine: str) -> Iterator[tuple[str, str]]:
    yield dtype, "vector" if engine == "matrix" else "matrix"
    if dtype == "tf32":
        yield "fp32", "vector"


def _timed_engines(timings: pd.DataFrame) -> set[tuple[str, str]]:
    return set(zip(texts(timings, "dtype"), texts(timings, "engine"), strict=True))


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
    known |= kept(machine.timings, None, "engines", lambda: _timed_engines(machine.timings))
    triples = [texts(rows, name).to_numpy(object) for name in ("kind", "dtype", "engine")]
    settled, notes = {}, {}
    for kind, dtype, engine in set(zip(*triples, strict=True)):
        pair = (dtype, engine)
        found = pair
        if kind in ARITHMETIC_KINDS and pair not in known:
            found = next((other for other in _alternatives(*pair) if other in known), pair)
        settled[kind, dtype, engine] = found
    dtypes, engines = (list(triples[1]), list(triples[2]))
    for place, (index, triple) in enumerate(zip(rows.index.tolist(), zip(*triples, strict=True), strict=True)):
        dtypes[place], engines[place] = found = settled[triple]
        if found != triple[1:]:
            notes[index] = (
                f"{triple[1]} on the {triple[2]} engine is unknown here, taken as {found[0]} on {found[1]}"
            )
    if not notes:
        return rows, notes
    return rows.assign(dtype=dtypes, engine=engines), notes

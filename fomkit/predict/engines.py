"""Ops as a machine's table has them: products row-major, on an arithmetic unit that the machine has.

Rows ask for a unit by the framework's habit; the machine may only have the other one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fomkit.dtypes import PRODUCT_KINDS
from fomkit.hardware import Machine
from fomkit.predict.kept import kept
from fomkit.predict.rows import Rows, as_rows, same_texts, words_of
from fomkit.predict.storage import row_major

if TYPE_CHECKING:
    import pandas as pd

ARITHMETIC_KINDS = PRODUCT_KINDS
"""Kinds that run on a matrix engine where there is one; all others use the vector engine and wait for bytes."""


def _alternatives(dtype: str, engine: str) -> Iterator[tuple[str, str]]:
    yield dtype, "vector" if engine == "matrix" else "matrix"
    if dtype == "tf32":
        yield "fp32", "vector"


def _timed_engines(timings: pd.DataFrame) -> set[tuple[str, str]]:
    return {(dtype, engine) for dtype, engine in same_texts(timings, "dtype", "engine")[0]}


def settle(rows: Rows, machine: Machine) -> tuple[Rows, dict[int, str]]:
    """Do what `settle_engines` does, on plain columns."""
    rows = row_major(rows)
    known = {(peak.dtype, peak.engine) for peak in machine.device.peaks}
    known |= kept(machine.timings, None, "engines", lambda: _timed_engines(machine.timings))
    triples, numbers_of = same_texts(rows, "kind", "dtype", "engine")
    settled, notes = [], dict[int, str]()
    for number, (kind, *asked) in enumerate(triples):
        pair = (asked[0], asked[1])
        found = pair
        if kind in ARITHMETIC_KINDS and pair not in known:
            found = next((other for other in _alternatives(*pair) if other in known), pair)
        settled.append(found)
        if found != pair:
            said = f"{pair[0]} on the {pair[1]} engine is unknown here, taken as {found[0]} on {found[1]}"
            notes |= dict.fromkeys(rows.index[numbers_of == number].tolist(), said)
    if not notes:
        return rows, notes
    dtypes, engines = (words_of(numbers_of, words) for words in zip(*settled, strict=True))
    return rows.assign(dtype=dtypes, engine=engines), notes


def settle_engines(rows: pd.DataFrame, machine: Machine) -> tuple[pd.DataFrame, dict[int, str]]:
    """Let each arithmetic row run on an engine that the machine is known to have for its number format.

    A machine is known to have an engine by a stated peak or by a timing. Products are turned row-major, as its
    timings are before anything is compared with them (`fomkit.predict.storage.row_major`).

    Returns
    -------
    rows : DataFrame
        With dtype and engine replaced where the machine knows only an alternative.
    notes : dict
        What was replaced, by index.
    """
    rows = row_major(rows)
    settled, notes = settle(as_rows(rows), machine)
    if not notes:
        return rows, notes
    return rows.assign(**{name: settled.text(name).cells().tolist() for name in ("dtype", "engine")}), notes

"""DeepBench result workbooks (Baidu Research, 2016-2019) as TIMINGS.

Sizes are what ran: figures that the workbooks print wrongly are corrected, and the row's ``note`` has the
printed one. Times are milliseconds in the workbook. NVIDIA's and AMD's programs cut their mean to whole
microseconds, so the true time lies in [time_s, time_s + 1 µs), and a printed 0 is no time but a count in the
report. Rows that occur twice stay twice: their spread is the measurement's noise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fomkit.errors import FomkitError
from fomkit.schema import TIMINGS, check_table
from fomkit.timings.deepbench_rows import Row, SectionRows
from fomkit.timings.deepbench_sheet import (
    find_layout,
    find_precision,
    has_sections,
    plain,
    split_blocks,
)
from fomkit.timings.deepbench_tables import DEVICE_SPECS, LIBRARIES, NOTES, SECTIONS, Precision, Section
from fomkit.timings.imported import ImportedTimings, SectionCount
from fomkit.timings.xlsx import Sheet, looks_like_workbook, read_workbook

if TYPE_CHECKING:
    import pandas as pd

SPECS_SHEET = "specs"


def recognise_deepbench(path: Path) -> bool:
    """Tell whether a file is a workbook with a DeepBench section in column A of any sheet."""
    return looks_like_workbook(path) and any(has_sections(sheet) for sheet in read_workbook(path))


def read_specs(sheet: Sheet) -> dict[str, str]:
    """Read the free list of keys (column A) and values (column B) about the system.

    Examples
    --------
    >>> read_specs(Sheet("Specs", (("GPU Model", "NVIDIA V100"), ("Cudnn Version", 5.0), ("NVIDIA DGX-1",))))
    {'GPU Model': 'NVIDIA V100', 'Cudnn Version': '5', 'NVIDIA DGX-1': ''}
    """
    specs = {}
    for number in range(1, len(sheet.rows) + 1):
        key, value = sheet.cell(number, 1), sheet.cell(number, 2)
        if isinstance(key, str) and key.strip():
            text = f"{value:.15g}" if isinstance(value, float) else "" if value is None else str(value)
            specs[" ".join(key.split())] = " ".join(text.split())
    return specs


def library_of(kind: str, specs: Mapping[str, str]) -> tuple[str, str]:
    """Name the library that ran a kind of op, and its version, from the Specs; "" where they do not say.

    Examples
    --------
    >>> library_of("conv", {"CUDA Version": "10.1.243", "Cudnn Version": "7.6.2.24"})
    ('cuDNN', '7.6.2.24; CUDA 10.1.243')
    """
    for name, keys in LIBRARIES.get(kind, ()):
        versions = [f"{word}{specs[key]}" for key, word in keys.items() if specs.get(key)]
        if versions:
            return name, "; ".join(versions)
    return "", ""


def _common(path: Path, sheet: Sheet, section: Section, precision: Precision, specs: Mapping[str, str]) -> Row:
    library, version = library_of(section.kind, specs)
    return {
        "kind": section.kind,
        "dtype": precision.dtype,
        "engine": precision.engine,
        "accumulate_dtype": precision.accumulate_dtype,
        "harness": "DeepBench",
        "library": library,
        "library_version": version,
        "source_file": path.name,
        "source_sheet": sheet.name,
    }


def _read_sheet(
    path: Path, sheet: Sheet, specs: Mapping[str, str], device: str
) -> tuple[list[Row], list[SectionCount]]:
    where = f"{path} sheet {sheet.name!r}"
    rows: list[Row] = []
    counts: list[SectionCount] = []
    blocks = split_blocks(sheet, where)
    for block in blocks:
        section = SECTIONS.get(block.key)
        if section is None:
            counts.append(SectionCount(sheet.name, block.title, skipped=sheet.filled(block.start + 1, block.stop)))
            continue
        precision = find_precision(sheet, blocks[0].start, section.kind, where)
        layout = find_layout(sheet, block, section, where)
        common = _common(path, sheet, section, precision, specs)
        reading = SectionRows(sheet, block, section, layout, precision, device, where, common)
        section_rows, section_counts = reading.read()
        rows += section_rows
        counts += section_counts
    if not blocks:
        counts.append(SectionCount(sheet.name, "(no section)", skipped=sheet.filled()))
    return rows, counts


def _table(rows: list[Row]) -> pd.DataFrame:
    import pandas as pd

    empty: dict[str, float | str] = {"number": math.nan, "text": ""}
    types = {"number": "float64", "text": "object"}
    return pd.DataFrame(
        {
            column.name: pd.Series(
                [row.get(column.name, empty[column.dtype]) for row in rows], dtype=types[column.dtype]
            )
            for column in TIMINGS
        }
    )


def read_deepbench(path: Path) -> ImportedTimings:
    """Read a DeepBench workbook: dense matrix products, convolutions and recurrent layers.

    Parameters
    ----------
    path : Path
        A result workbook: one or more sheets of results and a sheet ``Specs``.

    Returns
    -------
    ImportedTimings
        Times in seconds. Recurrent rows have ``input_size`` 0: the input projection is not in the timing.

    Raises
    ------
    FomkitError
        When the file is no workbook, has no DeepBench section or no time, or a needed cell is not understood;
        the message names sheet and cell.
    """
    sheets = read_workbook(path)
    results = [sheet for sheet in sheets if plain(sheet.name) != SPECS_SHEET]
    if not any(has_sections(sheet) for sheet in results):
        listed = ", ".join(repr(key) for key in SECTIONS)
        raise FomkitError(str(path), f"has no DeepBench section. Expected one of these in column A: {listed}.")
    specs = {key: value for sheet in sheets if sheet not in results for key, value in read_specs(sheet).items()}
    device = next((specs[key] for key in DEVICE_SPECS if specs.get(key)), "")
    rows: list[Row] = []
    counts: list[SectionCount] = []
    for sheet in results:
        sheet_rows, sheet_counts = _read_sheet(path, sheet, specs, device)
        rows += sheet_rows
        counts += sheet_counts
    if not rows:
        raise FomkitError(str(path), "lists ops and gives no time for any. A workbook of results was expected.")
    timings = _table(rows)
    check_table(timings, "TIMINGS", str(path))
    return ImportedTimings(timings, device, specs, tuple(counts), NOTES)

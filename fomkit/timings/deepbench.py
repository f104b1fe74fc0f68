"""DeepBench result workbooks (Baidu Research, 2016-2019) as TIMINGS.

Sizes are what ran: figures that the workbooks print wrongly are corrected, and the row's ``note`` has the
printed one. Times are milliseconds in the workbook. NVIDIA's and AMD's programs cut their mean to whole
microseconds, so the true time lies in [time_s, time_s + 1 µs), and a printed 0 is no time but a count in the
report. Rows that occur twice stay twice: their spread is the measurement's noise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fomkit.errors import FomkitError
from fomkit.schema import TIMINGS, check_table
from fomkit.tables.xlsx import Sheet, looks_like_workbook, read_workbook
from fomkit.timings.deepbench_layout import Layout, find_layout, not_read
from fomkit.timings.deepbench_libraries import library_of
from fomkit.timings.deepbench_precision import Precision, find_precision
from fomkit.timings.deepbench_rows import SectionRows
from fomkit.timings.deepbench_sections import SECTIONS, Cells, Section
from fomkit.timings.deepbench_sheet import Block, has_sections, split_blocks
from fomkit.timings.deepbench_tables import DEVICE_SPECS, NOTES
from fomkit.timings.deepbench_words import words
from fomkit.timings.imported import ImportedTimings, SectionCount

if TYPE_CHECKING:
    import pandas as pd

SPECS_SHEET = "spec"
"""A sheet without sections with this in its name lists what the system is made of."""


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


@dataclass
class _SheetReader:
    """One sheet on its way into rows, counts and remarks."""

    path: Path
    sheet: Sheet
    specs: Mapping[str, str]
    device: str
    rows: list[Cells] = field(default_factory=list)
    counts: list[SectionCount] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    @property
    def where(self) -> str:
        return f"{self.path} sheet {self.sheet.name!r}"

    def read(self) -> None:
        blocks = split_blocks(self.sheet, self.where)
        for block in blocks:
            if block.key in SECTIONS:
                layouts = [self._read(block, section, blocks[0].start) for section in SECTIONS[block.key]]
                self._remark(block, [layout for layout in layouts if layout is not None])
            else:
                self._skip(block, "it is no section that fomkit knows")
        if not blocks:
            self.counts.append(SectionCount(self.sheet.name, "(no section)", skipped=self.sheet.filled()))

    def _skip(self, block: Block, reason: str, kind: str = "") -> None:
        filled = self.sheet.filled(block.start + 1, block.stop)
        self.counts.append(SectionCount(self.sheet.name, block.title, skipped=filled, reason=reason, kind=kind))

    def _read(self, block: Block, section: Section, first: int) -> Layout | None:
        """Read one kind of op of a block; None where the block has none of that kind, or is skipped."""
        try:
            precision = section.precision or find_precision(
                self.sheet, first, section.scope or section.kind, self.where
            )
        except FomkitError as error:
            # A kind that only some precisions have is none that the others lack.
            if not section.dtypes:
                self._skip(block, error.what, section.kind)
            return None
        if section.dtypes and precision.dtype not in section.dtypes:
            return None
        layout = find_layout(self.sheet, block, section, self.where)
        common = self._common(section, precision)
        reading = SectionRows(self.sheet, block, section, layout, precision, self.device, self.where, common)
        rows, counts = reading.read()
        self.rows += rows
        self.counts += counts
        return layout

    def _common(self, section: Section, precision: Precision) -> Cells:
        library, version = library_of(section.kind, self.specs)
        return {
            "kind": section.kind,
            "dtype": precision.dtype,
            "engine": precision.engine,
            "accumulate_dtype": precision.accumulate_dtype,
            "harness": section.harness,
            "library": library,
            "library_version": version,
            "source_file": self.path.name,
            "source_sheet": self.sheet.name,
        }

    def _remark(self, block: Block, layouts: list[Layout]) -> None:
        place = f"sheet {self.sheet.name!r}, {block.title}"
        guessed = dict.fromkeys(remark for layout in layouts for remark in layout.remarks)
        self.remarks += [f"{place}: {remark}" for remark in guessed]
        if unread := not_read(layouts):
            self.remarks.append(f"{place}: not read: {', '.join(map(repr, unread))}")


def _table(rows: list[Cells]) -> pd.DataFrame:
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


def _check_any(path: Path, sheets: list[Sheet], read: list[_SheetReader]) -> None:
    if not any(has_sections(sheet) for sheet in sheets):
        listed = ", ".join(repr(key) for key in SECTIONS)
        raise FomkitError(str(path), f"has no DeepBench section. Expected one of these in column A: {listed}.")
    if not any(one.rows for one in read):
        reasons = dict.fromkeys(count.reason for one in read for count in one.counts if count.reason)
        why = f" Skipped: {' '.join(reasons).rstrip('.')}." if reasons else ""
        raise FomkitError(
            str(path), f"lists ops and gives no time for any. A workbook of results was expected.{why}"
        )


def read_deepbench(path: Path) -> ImportedTimings:
    """Read a DeepBench workbook: dense and sparse products, convolutions, recurrent layers and all-reduces.

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
    notes = [sheet for sheet in sheets if SPECS_SHEET in words(sheet.name) and not has_sections(sheet)]
    specs = {key: value for sheet in notes for key, value in read_specs(sheet).items()}
    named = {key.casefold(): value for key, value in specs.items()}
    device = next((named[key.casefold()] for key in DEVICE_SPECS if named.get(key.casefold())), "")
    results = [sheet for sheet in sheets if sheet not in notes]
    readers = [_SheetReader(path, sheet, specs, device) for sheet in results]
    for reader in readers:
        reader.read()
    _check_any(path, results, readers)
    timings = _table([row for reader in readers for row in reader.rows])
    check_table(timings, "TIMINGS", str(path))
    return ImportedTimings(
        timings, device, specs,
        counts=tuple(count for reader in readers for count in reader.counts),
        notes=NOTES,
        remarks=tuple(remark for reader in readers for remark in reader.remarks),
    )  # fmt: skip

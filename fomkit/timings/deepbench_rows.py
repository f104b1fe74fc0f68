"""Rows of one DeepBench section as TIMINGS rows: sizes read, corrected and noted, one row per printed time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from fomkit.errors import FomkitError
from fomkit.tables.xlsx import Sheet, cell_name
from fomkit.timings.deepbench_layout import Layout
from fomkit.timings.deepbench_precision import Precision
from fomkit.timings.deepbench_sections import Cells, Section
from fomkit.timings.deepbench_sheet import Block, needed_cell
from fomkit.timings.deepbench_tables import CORRECTIONS, HARNESS_CONSTANTS, HARNESS_PADDING, NO_TIME
from fomkit.timings.deepbench_values import as_number
from fomkit.timings.deepbench_words import plain
from fomkit.timings.imported import SectionCount

UNITLESS = "the header states no unit, milliseconds as in all these workbooks"
PICOSECOND_DIGITS = 12


def correct_sizes(kind: str, device: str, sizes: Cells) -> tuple[Cells, list[str]]:
    """Replace sizes that are known to be misprinted, and say what was printed.

    Examples
    --------
    >>> correct_sizes("gemm", "any", {"m": 512.0, "n": 24000.0, "k": 1530.0})
    ({'m': 512.0, 'n': 24000.0, 'k': 1536.0}, ['k printed 1530, run as 1536'])
    """
    found = [
        one
        for one in CORRECTIONS
        if one.kind == kind and one.device in ("", device) and sizes[one.column] == one.printed
    ]
    notes = [f"{one.column} printed {one.printed:g}, run as {one.actual:g}" for one in found]
    return {**sizes, **{one.column: one.actual for one in found}}, notes


def harness_padding(kind: str, engine: str, sizes: Cells) -> tuple[float, list[str]]:
    """Tell what the harness pads without printing it: 1, 0, or NaN where it is not known to pad this kind.

    The sizes stay as printed: they are the op that the time stands for, padding is part of what it cost.

    Examples
    --------
    >>> harness_padding("conv", "matrix", {"in_channels": 3.0, "out_channels": 64.0})
    (1.0, ['in_channels 3 padded to 8 by the harness'])
    """
    if (kind, engine) not in HARNESS_PADDING:
        return math.nan, []
    names, multiple = HARNESS_PADDING[kind, engine]
    printed = {name: float(sizes[name]) for name in names}
    notes = [
        f"{name} {value:g} padded to {math.ceil(value / multiple) * multiple:g} by the harness"
        for name, value in printed.items()
        if value % multiple
    ]
    return float(bool(notes)), notes


@dataclass(frozen=True)
class SectionRows:
    """The rows of one section of one sheet.

    Attributes
    ----------
    where : str
        File and sheet, for error messages.
    common : dict
        What all rows have in common, by TIMINGS column.
    """

    sheet: Sheet
    block: Block
    section: Section
    layout: Layout
    precision: Precision
    device: str
    where: str
    common: Cells = field(default_factory=dict)

    def _sizes(self, number: int) -> Cells | None:
        """Read the sizes of one row; None for a row without any, as a blank one or a footnote."""
        found: Cells = {}
        missing = []
        for one in self.section.dimensions:
            column = self.layout.dimensions.get(one.column)
            value = one.read(needed_cell(self.sheet, number, column, self.where)) if column is not None else None
            if value is not None:
                found[one.column] = value
            elif column is not None and not one.optional:
                missing.append((one.column, column))
        needed = {one.column for one in self.section.dimensions if not one.optional}
        if missing and needed & set(found):
            name, column = missing[0]
            raw = self.sheet.cell(number, column)
            raise FomkitError(
                f"{self.where} cell {cell_name(number, column)}", f"{name} is {raw!r}. A size was expected here."
            )
        return None if missing else found

    def _time_ms(self, number: int, column: int) -> float | None:
        """Read one printed time; None where the workbook says that there is none."""
        value = needed_cell(self.sheet, number, column, self.where)
        if value is None or (isinstance(value, str) and plain(value) in NO_TIME):
            return None
        time_ms = as_number(value)
        if time_ms is None or time_ms < 0:
            raise FomkitError(
                f"{self.where} cell {cell_name(number, column)}",
                f"the time is {value!r}. Expected milliseconds, a blank cell or N/A.",
            )
        return time_ms

    def _padding(self, number: int, sizes: Cells) -> tuple[float, list[str]]:
        if self.layout.padded is None:
            return harness_padding(self.section.kind, self.precision.engine, sizes)
        stated = as_number(needed_cell(self.sheet, number, self.layout.padded, self.where))
        return (math.nan if stated is None else stated), []

    def _row(self, number: int, name: str, time_s: float, sizes: Cells, notes: list[str]) -> Cells:
        columns = self.section.complete(sizes, time_s)
        constants = HARNESS_CONSTANTS.get((self.section.kind, self.precision.dtype), {})
        said = [*notes, *([UNITLESS] if name in self.layout.unitless else []), str(columns.get("note", ""))]
        return {
            **self.common, **self.section.constants, **constants, **columns, "pass_name": name, "time_s": time_s,
            "source_row": float(number), "note": "; ".join(filter(None, said)),
        }  # fmt: skip

    def read(self) -> tuple[list[Cells], list[SectionCount]]:
        """Give one TIMINGS row per printed time, and what became of every row of the section.

        Raises
        ------
        FomkitError
            When a needed cell is not understood; the message names it.
        """
        rows: list[Cells] = []
        outcomes: dict[str, list[str]] = {name: [] for name in self.layout.times}
        for number, sizes in self._listed():
            actual, corrections = correct_sizes(self.section.kind, self.device, sizes)
            padded, padding = self._padding(number, sizes)
            for name, column in self.layout.times.items():
                time_ms = self._time_ms(number, column)
                if not time_ms:
                    outcomes[name].append("without_time" if time_ms is None else "below_resolution")
                    continue
                outcomes[name] += ["imported", *(["corrected"] if corrections else [])]
                # To the picosecond: the spreadsheet's 0.14200000000000002 ms is 142 µs.
                time_s = round(time_ms / 1000, PICOSECOND_DIGITS)
                row = self._row(number, name, time_s, actual, corrections + padding)
                rows.append({**row, "padded": padded})
        kind = self.section.kind
        counts = [
            SectionCount(
                self.sheet.name, self.block.title, name,
                imported=found.count("imported"), without_time=found.count("without_time"),
                below_resolution=found.count("below_resolution"), corrected=found.count("corrected"), kind=kind,
            )
            for name, found in outcomes.items()
        ]  # fmt: skip
        return rows, counts

    def _listed(self) -> Iterator[tuple[int, Cells]]:
        for number in range(self.layout.first, self.block.stop):
            sizes = self._sizes(number)
            if sizes is not None:
                yield number, sizes

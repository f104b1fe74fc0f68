"""Read DeepBench result workbooks (Baidu Research, 2016-2019), and logs of its all-reduce, as TIMINGS.

Sizes are those that ran: figures misprinted in the workbooks are corrected, and the row's ``note`` has the printed
value. Times are milliseconds in the workbook. NVIDIA's and AMD's programs truncate their mean to whole
microseconds, so the true time lies in [time_s, time_s + 1 µs), and a printed 0 is counted in the report as no
time. Duplicate rows are kept: their spread is the measurement's noise. Literal tables hold the errors of the
workbooks (to cover more, add an entry); libraries and their versions are those of the sheet of Specs.

DeepBench has two NCCL all-reduce programs, which reduce fp32 over the devices of one node; their logs are read.
The first prints whole microseconds as milliseconds and waits for every all-reduce; the second starts them back to
back and prints the mean and the maximum over ranks.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fomkit.core.errors import FomkitError
from fomkit.files.xlsx import Sheet, cell_name, looks_like_workbook, read_workbook
from fomkit.ops.check import check_table
from fomkit.ops.tables import table_of_rows
from fomkit.readers.tables import deepbench_sections, deepbench_sheet, network_logs
from fomkit.readers.tables.deepbench_sections import SECTIONS, Cells, Precision, Section, as_number, find_precision
from fomkit.readers.tables.deepbench_sheet import Block, Layout, find_layout, has_sections, needed_cell, not_read
from fomkit.readers.tables.foreign import ImportedTimings, SectionCount
from fomkit.readers.tables.network_logs import LogRow, Run

NO_TIME = ("", "n/a", "n/a*", "na", "not available", "not supported", "#n/a", "#value!", "#div/0!", "-")
"""Texts in a time cell that mean "not measured"."""

DEVICE_SPECS = ("GPU Model", "CPU Model", "CPU")
"""The Specs that name the device, the preferred one first."""


@dataclass(frozen=True)
class Correction:
    """A size that the workbooks print but that did not run; ``device`` "" means every workbook."""

    kind: str
    column: str
    printed: float
    actual: float
    device: str = ""


CORRECTIONS = (
    # Older lists of kernels print 1530 for the depth of a layer of 1536 units; the harness always ran 1536.
    Correction("gemm", "k", 1530.0, 1536.0),
    # The workbook copied an old list for three of its four products with n = 7133.
    Correction("gemm", "n", 6574.0, 7133.0, "Nvidia TitanX"),
    Correction("gemm", "n", 10376.0, 7133.0, "Nvidia TitanX"),
    Correction("gemm", "n", 8935.0, 7133.0, "Nvidia TitanX"),
)
HARNESS_PADDING: Mapping[tuple[str, str], tuple[tuple[str, ...], int]] = {
    ("conv", "matrix"): (("in_channels", "out_channels"), 8)
}
"""By kind and engine: dimensions that the harness rounds up to a multiple before timing, without printing this."""
HARNESS_CONSTANTS: Mapping[tuple[str, str], Mapping[str, str]] = {("conv", "int8"): {"layout": "nhwc"}}
"""By kind and number format: values that replace the section's constants; cuDNN convolves bytes in this layout."""

NOTES = (
    "DeepBench times are means over repeats that the workbook does not count. The NVIDIA and AMD programs cut "
    "them to whole microseconds: a time may be up to 1 us longer than the table says.",
    "Matrix products are BLAS calls: m, n, k as printed, column-major. They add to their result, which is read "
    "as well as written. Recurrent layers are timed without biases and without the input projection: input_size "
    "is 0.",
)

UNITLESS = "the header states no unit, milliseconds as in all these workbooks"
PICOSECOND_DIGITS = 12


def correct_sizes(kind: str, device: str, sizes: Cells) -> tuple[Cells, list[str]]:
    """Correct sizes that are known to be misprinted, and return notes with the printed values.

    >>> correct_sizes("gemm", "any", {"m": 512.0, "n": 24000.0, "k": 1530.0})
    ({'m': 512.0, 'n': 24000.0, 'k': 1536.0}, ['k printed 1530, run as 1536'])
    """
    fitting = (one for one in CORRECTIONS if one.kind == kind and one.device in ("", device))
    found = [one for one in fitting if sizes[one.column] == one.printed]
    notes = [f"{one.column} printed {one.printed:g}, run as {one.actual:g}" for one in found]
    return {**sizes, **{one.column: one.actual for one in found}}, notes


def harness_padding(kind: str, engine: str, sizes: Cells) -> tuple[float, list[str]]:
    """Return whether the harness pads without printing it: 1, 0, or NaN for kinds not known to be padded.

    The sizes stay as printed: they are those of the timed op, and padding is part of its cost.

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

    `common`: values common to all rows, by TIMINGS column.
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
        """Read the sizes of one row; None for a row without any, such as a blank row or a footnote."""
        found: Cells = {}
        missing = []
        for dimension in self.section.dimensions:
            column = self.layout.dimensions.get(dimension.column)
            if column is None:
                continue
            value = dimension.read(needed_cell(self.sheet, number, column, self.where))
            if value is not None:
                found[dimension.column] = value
            elif not dimension.optional:
                missing.append((dimension.column, column))
        needed = {dimension.column for dimension in self.section.dimensions if not dimension.optional}
        if missing and needed & set(found):
            name, column = missing[0]
            raw = self.sheet.cell(number, column)
            raise FomkitError(
                f"{self.where} cell {cell_name(number, column)}", f"{name} is {raw!r}. A size was expected here."
            )
        return None if missing else found

    def _time_ms(self, number: int, column: int) -> float | None:
        """Read one printed time; None if the cell says that it was not measured."""
        value = needed_cell(self.sheet, number, column, self.where)
        if value is None or (isinstance(value, str) and deepbench_sections.plain(value) in NO_TIME):
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
        parts = [*notes, *([UNITLESS] if name in self.layout.unitless else []), str(columns.get("note", ""))]
        return {
            **self.common, **self.section.constants, **constants, **columns, "pass_name": name, "time_s": time_s,
            "source_row": float(number), "note": "; ".join(filter(None, parts)),
        }  # fmt: skip

    def read(self) -> tuple[list[Cells], list[SectionCount]]:
        """Return one TIMINGS row per printed time, and counts of what happened to every row of the section."""
        rows: list[Cells] = []
        outcomes: dict[str, list[str]] = {name: [] for name in self.layout.times}
        for number in range(self.layout.first, self.block.stop):
            if (sizes := self._sizes(number)) is None:
                continue
            actual, corrections = correct_sizes(self.section.kind, self.device, sizes)
            padded, padding = self._padding(number, sizes)
            for name, column in self.layout.times.items():
                time_ms = self._time_ms(number, column)
                if not time_ms:
                    outcomes[name].append("without_time" if time_ms is None else "below_resolution")
                    continue
                outcomes[name] += ["imported", *(["corrected"] if corrections else [])]
                # Rounded to the picosecond: the spreadsheet's 0.14200000000000002 ms is 142 µs.
                time_s = round(time_ms / 1000, PICOSECOND_DIGITS)
                row = self._row(number, name, time_s, actual, corrections + padding)
                rows.append({**row, "padded": padded})
        kind = self.section.kind
        counts = []
        for name, found in outcomes.items():
            outcome_counts: dict[str, Any] = {fate: found.count(fate) for fate in dict.fromkeys(found)}
            counts.append(SectionCount(self.sheet.name, self.block.title, name, kind=kind, **outcome_counts))
        return rows, counts


_CUDA = {"CUDA Version": "CUDA "}
_NETWORK_LIBRARIES = (
    ("cuDNN", {"Cudnn Version": "", **_CUDA}),
    ("MIOpen", {"MIOpen Version": "", "ROCm Version": "ROCm "}),
    ("ARM Compute Library", {"ARM Compute Lib version": ""}),
    ("MKL or LIBXSMM", {"Intel MKL Version": "", "LIBXSMM Version": "LIBXSMM "}),
)
LIBRARIES: Mapping[str, tuple[tuple[str, Mapping[str, str]], ...]] = {
    "gemm": (
        ("cuBLAS", _CUDA),
        ("ROCm", {"ROCm Version": ""}),
        ("MKL", {"Intel MKL Version": ""}),
        ("gemmlowp", {"Gemmlowp version": ""}),
    ),
    "sparse_gemm": (("cuSPARSE", _CUDA), ("Eigen", {"Eigen Version": ""})),
    "conv": _NETWORK_LIBRARIES,
    "rnn": _NETWORK_LIBRARIES,
    # Each row names its own library, the fastest one.
    "collective": (
        ("MPI", {"OpenMPI Version": "OpenMPI ", "Intel MLSL Version": "MLSL ", "Intel MPI Version": "MPI "}),
    ),
}
"""By kind: libraries, each with the Specs of its version and a prefix; the first with a version is used."""

_UNKNOWN = ("", "-")


def library_of(kind: str, specs: Mapping[str, str]) -> tuple[str, str]:
    """Return the library that ran a kind of op, and its version, from the Specs; "" if they are not stated.

    >>> library_of("conv", {"CUDA version": "10.1.243", "Cudnn Version": "7.6.2.24"})
    ('cuDNN', '7.6.2.24; CUDA 10.1.243')
    """
    known = {key.casefold(): value for key, value in specs.items() if value not in _UNKNOWN}
    for name, keys in LIBRARIES.get(kind, ()):
        versions = [f"{word}{known[key.casefold()]}" for key, word in keys.items() if key.casefold() in known]
        if versions:
            return name, "; ".join(versions)
    return "", ""


SPECS_SHEET = "spec"
"""A sheet without sections and with this in its name lists the parts of the system."""


def recognise_deepbench(path: Path) -> bool:
    """Return whether a file is a workbook with a DeepBench section in column A of any sheet."""
    return looks_like_workbook(path) and any(has_sections(sheet) for sheet in read_workbook(path))


def read_specs(sheet: Sheet) -> dict[str, str]:
    """Read the free list of keys (column A) and values (column B) about the system.

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
    """One sheet while it is read into rows, counts and remarks."""

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
        blocks = deepbench_sheet.split_blocks(self.sheet, self.where)
        for block in blocks:
            if block.key in SECTIONS:
                layouts = [self._read(block, section, blocks[0].start) for section in SECTIONS[block.key]]
                self._remark(block, [layout for layout in layouts if layout is not None])
            else:
                self._skip(block, "it is not a section that fomkit knows")
        if not blocks:
            self.counts.append(SectionCount(self.sheet.name, "(no section)", skipped=self.sheet.filled()))

    def _skip(self, block: Block, reason: str, kind: str = "") -> None:
        filled = self.sheet.filled(block.start + 1, block.stop)
        self.counts.append(SectionCount(self.sheet.name, block.title, skipped=filled, reason=reason, kind=kind))

    def _read(self, block: Block, section: Section, first: int) -> Layout | None:
        """Read one kind of op of a block; None if the block has none of that kind, or is skipped."""
        try:
            scope = section.scope or section.kind
            precision = section.precision or find_precision(self.sheet, first, scope, self.where)
        except FomkitError as error:
            # A kind limited to some number formats is simply absent in others.
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
            **vars(precision),
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


def read_deepbench(path: Path) -> ImportedTimings:
    """Read a DeepBench workbook: dense and sparse products, convolutions, recurrent layers and all-reduces.

    `path`: a result workbook: one or more sheets of results and a sheet ``Specs``. Times become seconds. Recurrent
    rows have ``input_size`` 0: the input projection is not in the timing.
    """
    sheets = read_workbook(path)
    named_specs = (sheet for sheet in sheets if SPECS_SHEET in deepbench_sections.words(sheet.name))
    notes = [sheet for sheet in named_specs if not has_sections(sheet)]
    specs = {key: value for sheet in notes for key, value in read_specs(sheet).items()}
    named = {key.casefold(): value for key, value in specs.items()}
    device = next((named[key.casefold()] for key in DEVICE_SPECS if named.get(key.casefold())), "")
    results = [sheet for sheet in sheets if sheet not in notes]
    readers = [_SheetReader(path, sheet, specs, device) for sheet in results]
    for reader in readers:
        reader.read()
    if not any(has_sections(sheet) for sheet in results):
        listed = ", ".join(repr(key) for key in SECTIONS)
        raise FomkitError(str(path), f"has no DeepBench section. Expected one of these in column A: {listed}.")
    rows = [row for reader in readers for row in reader.rows]
    counts = [count for reader in readers for count in reader.counts]
    if not rows:
        reasons = dict.fromkeys(count.reason for count in counts if count.reason)
        why = f" Skipped: {' '.join(reasons).rstrip('.')}." if reasons else ""
        raise FomkitError(str(path), f"lists ops without any time. A workbook of results was expected.{why}")
    timings = table_of_rows(rows, "TIMINGS")
    check_table(timings, "TIMINGS", str(path))
    return ImportedTimings(
        timings, device, specs,
        counts=tuple(counts),
        notes=NOTES,
        remarks=tuple(remark for reader in readers for remark in reader.remarks),
    )  # fmt: skip


LOG_HARNESS = "DeepBench all-reduce"
_TITLE = re.compile(r"^\s*NCCL (MPI )?AllReduce\s*$")
_RANKS = re.compile(r"^\s*Num Ranks:\s*(\d+)\s*$")
_HEADER = re.compile(r"^\s*# of floats\s+bytes transferred\s+(Time|Avg Time) \(msec\)(\s+Max Time \(msec\))?\s*$")
FLOAT_BYTE = 4
RESOLUTION_S = 1e-6


def recognise_deepbench_log(path: Path) -> bool:
    """Return whether a file holds the title and the columns of DeepBench's NCCL programs."""
    lines = network_logs.begin_of(path).splitlines()
    return any(_TITLE.match(line) for line in lines) and any("# of floats" in line for line in lines)


def read_deepbench_log(path: Path, sizes: Mapping[str, int] | None = None) -> ImportedTimings:
    """Read logs of DeepBench's NCCL all-reduce; `sizes`: ``nodes`` of an MPI run, ``ranks`` if not logged."""
    lines, sizes = network_logs.read_lines(path), network_logs.stated(sizes or {}, path)
    facts = next((match for line in lines if (match := _RANKS.match(line.text))), None)
    ranks = sizes.get("ranks") or (int(facts[1]) if facts else None)
    if ranks is None:
        raise FomkitError(str(path), "has no line 'Num Ranks: N'. Give their number: --set ranks=8.")
    header = next((match for line in lines if (match := _HEADER.match(line.text))), None)
    if header is None:
        raise FomkitError(
            str(path), "its columns are not '# of floats, bytes transferred, Time (msec)' of DeepBench's NCCL "
            "programs (2016 to 2018). Expected these.",
        )  # fmt: skip
    mean, width = header[1] == "Avg Time", 4 if header[2] else 3
    note = "mean over ranks, started one behind the other" if mean else "each awaited, in whole microseconds"
    rows, cut, below = list[LogRow](), 0, 0
    for line in lines:
        words = network_logs.numbers_of(line.text)
        if not words or words[0] is None:
            continue
        numbers = [word for word in words if word is not None]
        if not len(numbers) == len(words) == width or numbers[1] != FLOAT_BYTE * numbers[0]:
            cut += 1
            continue
        byte, time_s = numbers[1], numbers[2] / 1e3
        if time_s > 0 if mean else time_s >= RESOLUTION_S:
            rows.append(LogRow(line.number, "all_reduce", byte, time_s, "fp32", note))
        else:
            below += 1
    reason = "lines that are cut off, or whose bytes are not four times their floats" if cut else ""
    count = SectionCount(
        "-", "all_reduce", imported=len(rows), below_resolution=below, skipped=cut, reason=reason,
        kind="collective",
    )  # fmt: skip
    run = Run(ranks, sizes.get("nodes") or 1, LOG_HARNESS, "NCCL")
    return network_logs.imported(path, rows, run, (count,), ())

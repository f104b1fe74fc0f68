"""Output of the OSU micro-benchmarks (osu_latency, osu_bw, osu_allreduce, …) as TIMINGS.

Written after what versions 3 to 7 print: a line with the test's name and version, one that names the columns with
their units, then a line for each size. Times are means over iterations, of collectives the mean of all ranks. The
output does not say how many ranks ran: that is taken from a command in the log or from the user.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from fomkit.errors import FomkitError
from fomkit.timings.collectives import SEND, STREAM
from fomkit.timings.imported import ImportedTimings, SectionCount
from fomkit.timings.network_log import (
    Line,
    LogRow,
    Run,
    begin_of,
    imported,
    numbers_of,
    ranks_of_command,
    read_lines,
    stated,
)

HARNESS = "OSU micro-benchmarks"
_TITLE = re.compile(r"^# OSU MPI(?:-[\w.]+)?\s+(.+?) Test(?:\s+v?([\d.]+))?\s*$")
_DTYPES: Mapping[str, str] = {
    "MPI_CHAR": "int8", "MPI_FLOAT": "fp32", "MPI_INT": "int32", "MPI_DOUBLE": "fp64",
}  # fmt: skip
_LAST_KNOWN = 7


class Test(NamedTuple):
    """One of their programs: our word for it, its unit, what its sizes count, and its numbers.

    ``per_rank`` is set where the printed size is one rank's share of the message.
    """

    collective: str
    rate: bool = False
    per_rank: bool = False
    dtype: str = "int8"


TESTS: Mapping[str, Test] = {
    "latency": Test(SEND), "bandwidth": Test(STREAM, rate=True),
    "allreduce latency": Test("all_reduce", dtype="fp32"),
    "reduce latency": Test("reduce", dtype="fp32"), "allgather latency": Test("all_gather", per_rank=True),
    "reduce_scatter latency": Test("reduce_scatter", dtype="fp32"), "broadcast latency": Test("broadcast"),
    "all-to-all personalized exchange latency": Test("all_to_all", per_rank=True),
    "gather latency": Test("gather", per_rank=True), "scatter latency": Test("scatter", per_rank=True),
}  # fmt: skip
"""Their programs by the title that they print, without blocking variants."""


def recognise_osu(path: Path) -> bool:
    """Tell whether a file holds the title of one of the OSU micro-benchmarks for MPI."""
    return any(_TITLE.match(line.strip()) for line in begin_of(path).splitlines())


@dataclass
class _Section:
    """One program's output."""

    title: str
    version: str
    line: int
    dtype: str = ""
    header: str = ""
    rows: list[tuple[Line, list[float | None]]] = field(default_factory=list)


def _sections(lines: Sequence[Line]) -> Iterator[_Section]:
    section: _Section | None = None
    for line in lines:
        if title := _TITLE.match(line.text.strip()):
            if section is not None:
                yield section
            section = _Section(title[1], title[2] or "", line.number)
        elif section is not None:
            _take(section, line)
    if section is not None:
        yield section


def _take(section: _Section, line: Line) -> None:
    if said := re.match(r"^# Datatype:\s*(\w+)", line.text):
        section.dtype = said[1]
    elif re.match(r"^#\s*Size\b", line.text):
        section.header = line.text
    elif re.match(r"^\s*\d+(\s|$)", line.text):
        section.rows.append((line, numbers_of(line.text)))


def _check_unit(path: Path, section: _Section, test: Test) -> None:
    unit = "MB/s" if test.rate else "us"
    if not re.search(rf"\({re.escape(unit)}\)", section.header):
        shown = section.header.strip() or "missing"
        raise FomkitError(
            f"{path}:{section.line}", f"the line of columns of {section.title!r} is {shown!r}. "
            f"Expected one with ({unit}), as versions 3 to {_LAST_KNOWN} print it.",
        )  # fmt: skip


def _row(
    line: Line, words: Sequence[float | None], section: _Section, test: Test, run: Run
) -> tuple[LogRow | None, str]:
    """Make a row of a line, or say why not."""
    columns = len(re.findall(r"\([^)]*\)|Iterations", section.header)) + 1
    if len(words) < columns or None in words[:2]:
        return None, "lines that are cut off"
    size, value = float(words[0] or 0.0), float(words[1] or 0.0)
    if size <= 0 or value <= 0:
        return None, "messages of no bytes, or no time"
    byte = size * (run.ranks if test.per_rank else 1)
    # A megabyte of theirs is 10⁶ bytes.
    time_s = size / (value * 1e6) if test.rate else value / 1e6
    repeats = float(words[columns - 1] or "nan") if "Iterations" in section.header else float("nan")
    note = "mean over iterations" + (", messages in a window of 64 unless set otherwise" if test.rate else "")
    dtype = _DTYPES.get(section.dtype, test.dtype)
    return LogRow(line.number, test.collective, byte, time_s, dtype, note, repeats), ""


def _read(path: Path, section: _Section, run: Run) -> tuple[list[LogRow], list[SectionCount]]:
    test = TESTS.get(section.title.lower())
    if test is None:
        reason = "no test that fomkit reads; it reads those of latency, bandwidth and blocking collectives"
        return [], [SectionCount("-", section.title, skipped=len(section.rows), reason=reason)]
    _check_unit(path, section, test)
    rows, reasons = list[LogRow](), dict[str, int]()
    for line, words in section.rows:
        row, reason = _row(line, words, section, test, run)
        if row is not None:
            rows.append(row)
        else:
            reasons[reason] = reasons.get(reason, 0) + 1
    counts = [SectionCount("-", section.title, imported=len(rows), kind="collective")]
    counts += [SectionCount("-", section.title, skipped=many, reason=reason) for reason, many in reasons.items()]
    return rows, counts


def _run(path: Path, lines: Sequence[Line], sections: Sequence[_Section], sizes: Mapping[str, int]) -> Run:
    ranks = sizes.get("ranks") or ranks_of_command(lines)
    pairs = all(TESTS.get(one.title.lower(), Test(SEND)).collective in (SEND, STREAM) for one in sections)
    if ranks is None and not pairs:
        raise FomkitError(
            str(path), "does not say how many ranks ran, as these programs never do. Say it with --set ranks=N, "
            "or keep the command, 'mpirun -np N …', at the log's top.",
        )  # fmt: skip
    version = next((one.version for one in sections if one.version), "")
    return Run(ranks or 2, sizes.get("nodes") or 1, HARNESS, "MPI", f"OSU {version}".strip())


def read_osu(path: Path, sizes: Mapping[str, int] | None = None) -> ImportedTimings:
    """Read the output of one or several OSU micro-benchmarks.

    Parameters
    ----------
    path : Path
    sizes : mapping, optional
        ``ranks`` and ``nodes`` of the run; one node where nobody says.

    Raises
    ------
    FomkitError
        When a unit is another, the ranks of a collective are unknown, or there is no row.
    """
    lines, sizes = read_lines(path), stated(sizes or {}, path)
    sections = list(_sections(lines))
    run = _run(path, lines, sections, sizes)
    rows, counts = list[LogRow](), list[SectionCount]()
    for section in sections:
        found, told = _read(path, section, run)
        rows += found
        counts += told
    newer = sorted({one.version for one in sections if one.version and int(one.version[0]) > _LAST_KNOWN})
    remarks = [f"Version {one} is newer than those this reader was written after." for one in newer]
    if "nodes" not in sizes:
        remarks.append("The output does not say on how many nodes it ran: one is assumed; else --set nodes=N.")
    return imported(path, rows, run, counts, remarks)

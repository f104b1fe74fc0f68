"""Logs of nccl-tests 2 (all_reduce_perf and the like; rccl-tests print the same) as TIMINGS.

Written after the layout that versions 2.0 to 2.17 print: a header of two lines names the columns, of which the
older ones lack ``redop``, ``root`` or call ``#wrong`` ``error``. Each row has its time twice, out of place and in
place; both are read. A size is nccl-tests': what each rank holds of an all-reduce, the whole that a gather ends
with and a scatter begins with.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fomkit.errors import FomkitError
from fomkit.timings.collectives import SEND
from fomkit.timings.imported import ImportedTimings, SectionCount
from fomkit.timings.network_log import Line, LogRow, Run, begin_of, imported, read_lines, stated

HARNESS = "nccl-tests"
COLLECTIVES: Mapping[str, str] = {
    "all_reduce": "all_reduce", "all_gather": "all_gather", "reduce_scatter": "reduce_scatter",
    "broadcast": "broadcast", "reduce": "reduce", "alltoall": "all_to_all", "sendrecv": SEND, "gather": "gather",
    "scatter": "scatter",
}  # fmt: skip
"""Programs, without ``_perf``, and our words."""
DTYPES: Mapping[str, str] = {
    "float": "fp32", "half": "fp16", "bfloat16": "bf16", "double": "fp64", "int8": "int8", "uint8": "uint8",
    "int32": "int32", "int64": "int64", "f8e4m3": "fp8", "f8e5m2": "fp8", "fp8_e4m3": "fp8", "fp8_e5m2": "fp8",
}  # fmt: skip
PLACES = ("out of place", "in place")
TOLERANCE = 0.02
"""Share by which size and time may miss the printed rate, besides its last digit."""
_TIMED = ("time", "algbw", "busbw")
_PROGRAM = re.compile(r"\b(" + "|".join(COLLECTIVES) + r")_perf(?:_mpi)?\b")
_RANK = re.compile(r"^#?\s*Rank\s+(\d+)\s.*?\bPid\s+\d+ on\s+(\S+) device\s+\d+ \[[^\]]*\]\s*(.*)$")
_VERSION = re.compile(r"NCCL version ([\w.+-]+)|nccl-library=(\d+)")
_HEADER = re.compile(r"^#\s+size\s+count\s.*\balgbw\b")


def recognise_nccl_tests(path: Path) -> bool:
    """Tell whether a file holds a header of nccl-tests: rates by algorithm and by bus in columns."""
    begin = begin_of(path)
    return any("algbw" in line and "busbw" in line for line in begin.splitlines())


@dataclass
class _Found:
    """What was read so far, and what was not, by reason."""

    rows: list[LogRow] = field(default_factory=list)
    skipped: dict[str, int] = field(default_factory=dict)
    programs: list[str] = field(default_factory=list)
    finished: bool = False

    def skip(self, reason: str) -> None:
        self.skipped[reason] = self.skipped.get(reason, 0) + 1


def _columns(path: Path, line: Line) -> list[str]:
    names = line.text.lstrip("# ").split()
    missing = [name for name in ("size", "count", "type", *_TIMED) if name not in names]
    places = [place for place, name in enumerate(names) if name == _TIMED[0]]
    whole = len(places) == 2 and all(tuple(names[place : place + len(_TIMED)]) == _TIMED for place in places)
    if missing or not whole:
        twice = f"does not have {', '.join(_TIMED)} twice, out of place and in place"
        what = f"lacks {missing[0]!r}" if missing else twice
        raise FomkitError(f"{path}:{line.number}", f"the header {what}. Expected that of nccl-tests 2.0 to 2.17.")
    return names


def _check_units(path: Path, line: Line) -> None:
    if "(us)" not in line.text or "(GB/s)" not in line.text:
        raise FomkitError(
            f"{path}:{line.number}", "the line below the header does not say (B), (us) and (GB/s). Expected the "
            "units that nccl-tests 2.0 to 2.17 print.",
        )  # fmt: skip


def _collective(path: Path, program: str, number: int) -> str:
    if not program:
        raise FomkitError(
            f"{path}:{number}", "nothing before this table says which collective was timed. Put the command that "
            f"was run at the log's top, for example 'all_reduce_perf'; known are {', '.join(COLLECTIVES)}.",
        )  # fmt: skip
    return COLLECTIVES[program]


def _rows_of_line(found: _Found, line: Line, columns: Sequence[str], collective: str) -> None:
    """Read one line of results: two rows, or why not."""
    words = line.text.split()
    if len(words) != len(columns):
        found.skip("lines that are cut off")
        found.skip("lines that are cut off")
        return
    places = [place for place, name in enumerate(columns) if name == "time"]
    shared = dict(zip(columns[: places[0]], words, strict=False))
    for place, name in zip(places, PLACES, strict=True):
        timed = dict(zip(columns[place : place + 4], words[place : place + 4], strict=False))
        row = _row(found, line, {**shared, **timed}, collective, name)
        if row is not None:
            found.rows.append(row)


def _row(found: _Found, line: Line, cells: Mapping[str, str], collective: str, place: str) -> LogRow | None:
    try:
        size, time_us, rate = float(cells["size"]), float(cells["time"]), float(cells["algbw"])
    except ValueError:
        found.skip("lines with words where numbers belong")
        return None
    wrong = cells.get("#wrong", cells.get("error", "N/A"))
    if cells["type"] not in DTYPES:
        found.skip(f"number format {cells['type']}")
    elif wrong != "N/A" and _is_wrong(wrong, "#wrong" in cells):
        found.skip("wrong results (#wrong above 0)")
    elif size <= 0 or time_us <= 0:
        found.skip("messages of no bytes")
    elif abs(size / time_us / 1e3 - rate) > 0.0051 + TOLERANCE * rate:
        found.skip("size, time and rate that do not agree")
    else:
        check = "result not checked" if wrong == "N/A" else "result checked"
        reduction = f", {cells['redop']}" if cells.get("redop", "none") not in ("none", "") else ""
        note = f"{place}{reduction}, {check}"
        return LogRow(line.number, collective, size, time_us / 1e6, DTYPES[cells["type"]], note)
    return None


def _is_wrong(text: str, counted: bool) -> bool:
    """Tell wrong results: a count above 0, or of older versions an error beyond what rounding makes."""
    try:
        value = float(text)
    except ValueError:
        return True
    return not value <= (0 if counted else 1e-2)


def _read_tables(path: Path, lines: Sequence[Line]) -> _Found:
    found, columns, program = _Found(), list[str](), ""
    for place, line in enumerate(lines):
        if named := _PROGRAM.search(line.text):
            program = named[1]
        if _HEADER.match(line.text):
            columns = _columns(path, line)
            _check_units(path, lines[min(place + 1, len(lines) - 1)])
            found.programs.append(_collective(path, program, line.number))
            found.finished = False
        elif "Out of bounds values" in line.text:
            found.finished = True
        elif columns and re.match(r"^\s*\d+\s+\d+\s+\w", line.text):
            _rows_of_line(found, line, columns, found.programs[-1])
    return found


def _run(path: Path, lines: Sequence[Line], sizes: Mapping[str, int]) -> Run:
    devices = [match for line in lines if (match := _RANK.match(line.text))]
    ranks, hosts = [int(one[1]) for one in devices], {one[2] for one in devices}
    if len(set(ranks)) < len(ranks) and not sizes.get("ranks"):
        raise FomkitError(
            str(path), f"rank {ranks[0]} is listed more than once: each process ran alone (nccl-tests built "
            "without MPI), or the log holds several runs. Split it, or build with MPI=1 and run again.",
        )  # fmt: skip
    if not ranks and not sizes.get("ranks"):
        raise FomkitError(str(path), "lists no ranks ('# Rank 0 …'). Say how many ran: --set ranks=8.")
    told = next((match for line in lines if (match := _VERSION.search(line.text))), None)
    version = (told[1] or told[2]) if told else ""
    return Run(
        sizes.get("ranks") or len(ranks), sizes.get("nodes") or max(1, len(hosts)), HARNESS, "NCCL", version,
        devices[0][3].strip() if devices else "",
    )  # fmt: skip


def read_nccl_tests(path: Path, sizes: Mapping[str, int] | None = None) -> ImportedTimings:
    """Read a log of nccl-tests, of one program or of several after each other.

    Parameters
    ----------
    path : Path
    sizes : mapping, optional
        ``ranks`` and ``nodes``, where the log does not list its ranks.

    Raises
    ------
    FomkitError
        When the table's header is of another version, or nothing says which collective, or how many ranks.
    """
    lines, sizes = read_lines(path), stated(sizes or {}, path)
    if not any(_HEADER.match(line.text) for line in lines):
        at = next(line for line in lines if "algbw" in line.text)
        raise FomkitError(
            f"{path}:{at.number}", "is no header of nccl-tests 2: those begin with '# size count type'. Logs of "
            "the tests that came with NCCL 1 are not read.",
        )  # fmt: skip
    run, found = _run(path, lines, sizes), _read_tables(path, lines)
    remarks = [] if found.finished else [
        "The log ends without its summary ('Out of bounds values'): it is cut off; what is whole was read."
    ]  # fmt: skip
    return imported(path, found.rows, run, tuple(_counts(found)), remarks)


def _counts(found: _Found) -> Iterator[SectionCount]:
    for name in dict.fromkeys(found.programs):
        count = sum(row.collective == name for row in found.rows)
        yield SectionCount("-", name, imported=count, kind="collective")
    for reason, count in found.skipped.items():
        yield SectionCount("-", "log", skipped=count, reason=reason)

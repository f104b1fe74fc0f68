"""Text that DeepBench's NCCL all-reduce programs print (nccl_single_all_reduce, nccl_mpi_all_reduce) as TIMINGS.

Both reduce sums of fp32 over the devices of one node. The first prints whole microseconds as milliseconds and
waits for every all-reduce; the second starts them one behind the other and prints the mean and the longest over
ranks. The workbooks of results are read elsewhere (`fomkit.timings.deepbench`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from fomkit.errors import FomkitError
from fomkit.timings.imported import ImportedTimings, SectionCount
from fomkit.timings.network_log import LogRow, Run, begin_of, imported, numbers_of, read_lines, stated

HARNESS = "DeepBench all-reduce"
_TITLE = re.compile(r"^\s*NCCL (MPI )?AllReduce\s*$")
_RANKS = re.compile(r"^\s*Num Ranks:\s*(\d+)\s*$")
_HEADER = re.compile(r"^\s*# of floats\s+bytes transferred\s+(Time|Avg Time) \(msec\)(\s+Max Time \(msec\))?\s*$")
FLOAT_BYTE = 4
RESOLUTION_S = 1e-6


def recognise_deepbench_log(path: Path) -> bool:
    """Tell whether a file holds the title and the columns of DeepBench's NCCL programs."""
    lines = begin_of(path).splitlines()
    return any(_TITLE.match(line) for line in lines) and any("# of floats" in line for line in lines)


def read_deepbench_log(path: Path, sizes: Mapping[str, int] | None = None) -> ImportedTimings:
    """Read what DeepBench's NCCL all-reduce programs print.

    Parameters
    ----------
    path : Path
    sizes : mapping, optional
        ``nodes``, where an MPI run was on several.

    Raises
    ------
    FomkitError
        When ranks or columns are missing or are not those that it prints, or there is no row.
    """
    lines, sizes = read_lines(path), stated(sizes or {}, path)
    told = next((match for line in lines if (match := _RANKS.match(line.text))), None)
    ranks = sizes.get("ranks") or (int(told[1]) if told else None)
    if ranks is None:
        raise FomkitError(str(path), "has no line 'Num Ranks: N'. Say how many ran: --set ranks=8.")
    header = next((match for line in lines if (match := _HEADER.match(line.text))), None)
    if header is None:
        raise FomkitError(
            str(path), "its columns are not '# of floats, bytes transferred, Time (msec)' of DeepBench's NCCL "
            "programs (2016 to 2018). Expected these.",
        )  # fmt: skip
    mean, width = header[1] == "Avg Time", 4 if header[2] else 3
    note = "mean over ranks, started one behind the other" if mean else "each waited for, whole microseconds"
    rows, cut, below = list[LogRow](), 0, 0
    for line in lines:
        words = numbers_of(line.text)
        if not words or words[0] is None:
            continue
        if len(words) != width or None in words or words[1] != FLOAT_BYTE * (words[0] or 0):
            cut += 1
        elif not (words[2] or 0) * 1e-3 >= (0 if mean else RESOLUTION_S) or not words[2]:
            below += 1
        else:
            rows.append(
                LogRow(line.number, "all_reduce", float(words[1] or 0), float(words[2]) / 1e3, "fp32", note)
            )
    reason = "lines that are cut off, or whose bytes are not four times their floats" if cut else ""
    counts = [
        SectionCount(
            "-", "all_reduce", imported=len(rows), below_resolution=below, skipped=cut, reason=reason,
            kind="collective",
        )
    ]  # fmt: skip
    return imported(path, rows, Run(ranks, sizes.get("nodes") or 1, HARNESS, "NCCL"), counts, ())

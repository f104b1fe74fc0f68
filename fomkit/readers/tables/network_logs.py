"""Read network logs as TIMINGS: nccl-tests 2 (rccl-tests print the same) and the OSU micro-benchmarks.

nccl-tests, versions 2.0 to 2.17: a header of two lines names the columns; older versions lack ``redop`` and
``root`` or call ``#wrong`` ``error``. Each row has two times, out of place and in place; both are read. A size is
what each rank holds of an all-reduce, or the whole output of a gather and the whole input of a scatter. OSU,
versions 3 to 7: a line with the test's name and version, a line with the columns and their units, then a line for
each size. Times are means over iterations, for collectives the mean of all ranks. The output does not state the
number of ranks: it is read from a command in the log or set by the user.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from fomkit.core.errors import FomkitError
from fomkit.core.machine import Tier
from fomkit.files.csv import read_bytes, read_start
from fomkit.harness.torch.network import SEND, STREAM, op_of
from fomkit.readers.tables.foreign import ImportedTimings, SectionCount, make_timings
from fomkit.readers.tables.links import Timed, links_of

# mpirun and srun can put the rank before each line.
_TAG = re.compile(r"^(?:\[\d+,\d+\](?:<\w+>)?:?|\d+:)\s?")
_NO_SPREAD = 0.05
"""Relative half-width of the interval assumed for a mean without a spread."""
RUN_SIZES = ("ranks", "nodes")
"""Sizes of a log's run that ``--set`` may state."""


class LogLine(NamedTuple):
    """A line of a log and its number."""

    number: int
    text: str


@dataclass(frozen=True)
class LogRow:
    """One timing of a log.

    `message_byte`, `time_s`: as in the columns of `fomkit.ops.tables`.
    `repeats`: NaN if the log does not state it.
    """

    line: int
    collective: str
    message_byte: float
    time_s: float
    dtype: str
    note: str = ""
    repeats: float = float("nan")


@dataclass(frozen=True)
class Run:
    """Facts of a log's run: ranks, nodes, the program, the library and its version."""

    ranks: int
    nodes: int
    harness: str
    library: str = ""
    version: str = ""
    device: str = ""

    @property
    def tier(self) -> Tier:
        """The tier of links that the ranks use."""
        return "node" if self.nodes == 1 else "system"


def read_lines(path: Path) -> list[LogLine]:
    """Read a log, gzipped or not, without a launcher's prefixes."""
    text = read_bytes(path).decode("utf-8", errors="replace")
    return [LogLine(number, _TAG.sub("", line.rstrip())) for number, line in enumerate(text.splitlines(), 1)]


def begin_of(path: Path) -> str:
    """Return the first bytes of a file as text, to recognise it."""
    return read_start(path, 200_000).decode("utf-8", errors="replace")


def numbers_of(text: str) -> list[float | None]:
    """Return the words of a line as numbers, None for other words."""
    found = list[float | None]()
    for word in text.split():
        try:
            found.append(float(word))
        except ValueError:
            found.append(None)
    return found


def stated(sizes: Mapping[str, int], path: Path) -> Mapping[str, int]:
    """Check the user's sizes of a run from ``--set``."""
    wrong = [name for name in sizes if name not in RUN_SIZES]
    if wrong:
        raise FomkitError(str(path), f"is a log of a network; --set {wrong[0]} does not apply to it. Use only "
                                     "--set ranks=N and --set nodes=N.")  # fmt: skip
    return sizes


def imported(
    path: Path, rows: Sequence[LogRow], run: Run, counts: Sequence[SectionCount], remarks: Sequence[str]
) -> ImportedTimings:
    """Make timings from a log's rows, and links from its messages from rank to rank."""
    if not rows:
        reasons = "; ".join(count.reason for count in counts if count.reason) or "it ends before its first result"
        raise FomkitError(str(path), f"has no timing that can be read: {reasons}. Check that the log is complete.")
    names = [row.collective for row in rows]
    columns: dict[str, object] = {
        "kind": "collective",
        "op": [op_of(name) for name in names],
        "engine": "vector",
        "dtype": [row.dtype for row in rows],
        "collective": names,
        "message_byte": [row.message_byte for row in rows],
        "ranks": [2.0 if name in (SEND, STREAM) else float(run.ranks) for name in names],
        "link": run.tier,
        "time_s": [row.time_s for row in rows],
        "repeats": [row.repeats for row in rows],
        "harness": run.harness,
        "library": run.library,
        "library_version": run.version,
        "note": [row.note for row in rows],
    }
    timings = make_timings(columns, pd.Index([row.line for row in rows]), path)
    facts = {"Ranks": str(run.ranks), "Nodes": str(run.nodes), "Library": f"{run.library} {run.version}".strip()}
    sent = [row for row in rows if row.collective == SEND]
    messages = Timed(
        [row.message_byte for row in sent], [row.time_s for row in sent], [1.96 * _NO_SPREAD] * len(sent)
    )
    channel = (run.library or run.harness).lower()
    links = links_of(messages, run.tier, channel, f"{path.name}, {run.harness}")
    return ImportedTimings(timings, run.device, facts, tuple(counts), remarks=tuple(remarks), links=links)


NCCL_HARNESS = "nccl-tests"
COLLECTIVES: Mapping[str, str] = {
    "all_reduce": "all_reduce", "all_gather": "all_gather", "reduce_scatter": "reduce_scatter",
    "broadcast": "broadcast", "reduce": "reduce", "alltoall": "all_to_all", "sendrecv": SEND, "gather": "gather",
    "scatter": "scatter",
}  # fmt: skip
"""Programs, without ``_perf``, and fomkit's names."""
DTYPES: Mapping[str, str] = {
    "float": "fp32", "half": "fp16", "bfloat16": "bf16", "double": "fp64", "int8": "int8", "uint8": "uint8",
    "int32": "int32", "int64": "int64", "f8e4m3": "fp8", "f8e5m2": "fp8", "fp8_e4m3": "fp8", "fp8_e5m2": "fp8",
}  # fmt: skip
PLACES = ("out of place", "in place")
TOLERANCE = 0.02
"""Largest relative difference of size over time from the printed rate, besides its last digit."""
_TIMED = ("time", "algbw", "busbw")
_PROGRAM = re.compile(r"\b(" + "|".join(COLLECTIVES) + r")_perf(?:_mpi)?\b")
_RANK = re.compile(r"^#?\s*Rank\s+(\d+)\s.*?\bPid\s+\d+ on\s+(\S+) device\s+\d+ \[[^\]]*\]\s*(.*)$")
_VERSION = re.compile(r"NCCL version ([\w.+-]+)|nccl-library=(\d+)")
_HEADER = re.compile(r"^#\s+size\s+count\s.*\balgbw\b")


def recognise_nccl_tests(path: Path) -> bool:
    """Return whether a file holds a header of nccl-tests: columns of algorithm rate and bus rate."""
    return any("algbw" in line and "busbw" in line for line in begin_of(path).splitlines())


@dataclass
class _Found:
    """The rows read so far, and the number of skipped ones by reason."""

    rows: list[LogRow] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    programs: list[str] = field(default_factory=list)
    finished: bool = False


def _nccl_columns(path: Path, line: LogLine, below: LogLine) -> list[str]:
    """Check a table's header and the line of units below it, and return the names of its columns."""
    names = line.text.lstrip("# ").split()
    missing = [name for name in ("size", "count", "type", *_TIMED) if name not in names]
    places = [place for place, name in enumerate(names) if name == _TIMED[0]]
    whole = len(places) == 2 and all(tuple(names[place : place + len(_TIMED)]) == _TIMED for place in places)
    if missing or not whole:
        twice = f"does not have {', '.join(_TIMED)} twice, out of place and in place"
        what = f"lacks {missing[0]!r}" if missing else twice
        raise FomkitError(f"{path}:{line.number}", f"the header {what}. Expected that of nccl-tests 2.0 to 2.17.")
    if "(us)" not in below.text or "(GB/s)" not in below.text:
        raise FomkitError(
            f"{path}:{below.number}", "the line below the header does not state (B), (us) and (GB/s). Expected "
                                      "the units that nccl-tests 2.0 to 2.17 print.",
        )  # fmt: skip
    return names


def _rows_of_line(found: _Found, line: LogLine, columns: Sequence[str], collective: str) -> None:
    """Read one line of results as two rows, or count why not."""
    words = line.text.split()
    if len(words) != len(columns):
        found.skipped["lines that are cut off"] += 2
        return
    places = [place for place, name in enumerate(columns) if name == "time"]
    shared = dict(zip(columns[: places[0]], words, strict=False))
    for place, name in zip(places, PLACES, strict=True):
        timed = dict(zip(columns[place : place + 4], words[place : place + 4], strict=False))
        if (row := _nccl_row(found, line, {**shared, **timed}, collective, name)) is not None:
            found.rows.append(row)


def _nccl_row(
    found: _Found, line: LogLine, cells: Mapping[str, str], collective: str, place: str
) -> LogRow | None:
    try:
        size, time_us, rate = float(cells["size"]), float(cells["time"]), float(cells["algbw"])
    except ValueError:
        found.skipped["lines with words where numbers belong"] += 1
        return None
    wrong = cells.get("#wrong", cells.get("error", "N/A"))
    # A count above 0, in older versions an error above rounding, or no number.
    (error,), most = numbers_of(wrong), 0 if "#wrong" in cells else 1e-2
    if cells["type"] not in DTYPES:
        found.skipped[f"number format {cells['type']}"] += 1
    elif wrong != "N/A" and not (error is not None and error <= most):
        found.skipped["wrong results (#wrong above 0)"] += 1
    elif size <= 0 or time_us <= 0:
        found.skipped["messages of no bytes"] += 1
    elif abs(size / time_us / 1e3 - rate) > 0.0051 + TOLERANCE * rate:
        found.skipped["size, time and rate that do not agree"] += 1
    else:
        reduction = f", {cells['redop']}" if cells.get("redop", "none") not in ("none", "") else ""
        note = f"{place}{reduction}, result {'not ' * (wrong == 'N/A')}checked"
        return LogRow(line.number, collective, size, time_us / 1e6, DTYPES[cells["type"]], note)
    return None


def _read_tables(path: Path, lines: Sequence[LogLine]) -> _Found:
    found, columns, program = _Found(), list[str](), ""
    for place, line in enumerate(lines):
        if named := _PROGRAM.search(line.text):
            program = named[1]
        if _HEADER.match(line.text):
            columns = _nccl_columns(path, line, lines[min(place + 1, len(lines) - 1)])
            if not program:
                raise FomkitError(
                    f"{path}:{line.number}", "no line before this table names the collective that was timed. Put "
                                             "the command that was run at the log's top, for example "
                                             f"'all_reduce_perf'; known are {', '.join(COLLECTIVES)}.",
                )  # fmt: skip
            found.programs.append(COLLECTIVES[program])
            found.finished = False
        elif "Out of bounds values" in line.text:
            found.finished = True
        elif columns and re.match(r"^\s*\d+\s+\d+\s+\w", line.text):
            _rows_of_line(found, line, columns, found.programs[-1])
    return found


def _nccl_run(path: Path, lines: Sequence[LogLine], sizes: Mapping[str, int]) -> Run:
    devices = [match for line in lines if (match := _RANK.match(line.text))]
    ranks, hosts = [int(device[1]) for device in devices], {device[2] for device in devices}
    if len(set(ranks)) < len(ranks) and not sizes.get("ranks"):
        raise FomkitError(
            str(path), f"rank {ranks[0]} is listed more than once: each process ran alone (nccl-tests built "
            "without MPI), or the log holds several runs. Split it, or build with MPI=1 and run again.",
        )  # fmt: skip
    if not ranks and not sizes.get("ranks"):
        raise FomkitError(str(path), "lists no ranks ('# Rank 0 …'). Give their number: --set ranks=8.")
    version_match = next((match for line in lines if (match := _VERSION.search(line.text))), None)
    version = (version_match[1] or version_match[2]) if version_match else ""
    return Run(
        sizes.get("ranks") or len(ranks), sizes.get("nodes") or max(1, len(hosts)), NCCL_HARNESS, "NCCL", version,
        devices[0][3].strip() if devices else "",
    )  # fmt: skip


def read_nccl_tests(path: Path, sizes: Mapping[str, int] | None = None) -> ImportedTimings:
    """Read a log of nccl-tests; `sizes`: ``ranks`` and ``nodes``, if the log does not list its ranks."""
    lines, sizes = read_lines(path), stated(sizes or {}, path)
    if not any(_HEADER.match(line.text) for line in lines):
        at = next(line for line in lines if "algbw" in line.text)
        raise FomkitError(
            f"{path}:{at.number}", "is not a header of nccl-tests 2: those begin with '# size count type'. Logs "
                                   "of the tests that came with NCCL 1 are not read.",
        )  # fmt: skip
    run, found = _nccl_run(path, lines, sizes), _read_tables(path, lines)
    remarks = [] if found.finished else [
        "The log ends without its summary ('Out of bounds values'): it is cut off; its complete lines were read."
    ]  # fmt: skip
    read, programs = Counter(row.collective for row in found.rows), dict.fromkeys(found.programs)
    counts = [SectionCount("-", name, imported=read[name], kind="collective") for name in programs]
    counts += [SectionCount("-", "log", skipped=many, reason=reason) for reason, many in found.skipped.items()]
    return imported(path, found.rows, run, counts, remarks)


OSU_HARNESS = "OSU micro-benchmarks"
_TITLE = re.compile(r"^# OSU MPI(?:-[\w.]+)?\s+(.+?) Test(?:\s+v?([\d.]+))?\s*$")
_DTYPES: Mapping[str, str] = {
    "MPI_CHAR": "int8", "MPI_FLOAT": "fp32", "MPI_INT": "int32", "MPI_DOUBLE": "fp64",
}  # fmt: skip
_LAST_KNOWN = 7


class Test(NamedTuple):
    """One of the OSU programs: fomkit's name, whether it prints a rate, and its default number format.

    ``per_rank`` is set if the printed size is one rank's share of the message.
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
"""OSU programs by the title that they print, blocking ones only."""


def recognise_osu(path: Path) -> bool:
    """Return whether a file holds the title of one of the OSU micro-benchmarks for MPI."""
    return any(_TITLE.match(line.strip()) for line in begin_of(path).splitlines())


@dataclass
class _Section:
    """One program's output."""

    title: str
    version: str
    line: int
    dtype: str = ""
    header: str = ""
    rows: list[tuple[LogLine, list[float | None]]] = field(default_factory=list)


def _sections(lines: Sequence[LogLine]) -> list[_Section]:
    found = list[_Section]()
    for line in lines:
        if title := _TITLE.match(line.text.strip()):
            found.append(_Section(title[1], title[2] or "", line.number))
        elif not found:
            continue
        elif datatype := re.match(r"^# Datatype:\s*(\w+)", line.text):
            found[-1].dtype = datatype[1]
        elif re.match(r"^#\s*Size\b", line.text):
            found[-1].header = line.text
        elif re.match(r"^\s*\d+(\s|$)", line.text):
            found[-1].rows.append((line, numbers_of(line.text)))
    return found


def _osu_row(
    line: LogLine, words: Sequence[float | None], section: _Section, test: Test, run: Run
) -> tuple[LogRow | None, str]:
    """Return a row from a line, or the reason why there is none."""
    columns = len(re.findall(r"\([^)]*\)|Iterations", section.header)) + 1
    if len(words) < columns or None in words[:2]:
        return None, "lines that are cut off"
    size, value = float(words[0] or 0.0), float(words[1] or 0.0)
    if size <= 0 or value <= 0:
        return None, "messages of no bytes, or no time"
    byte = size * (run.ranks if test.per_rank else 1)
    # OSU's megabyte is 10⁶ bytes.
    time_s = size / (value * 1e6) if test.rate else value / 1e6
    repeats = float(words[columns - 1] or "nan") if "Iterations" in section.header else float("nan")
    note = "mean over iterations" + (", messages in a window of 64 unless set otherwise" if test.rate else "")
    dtype = _DTYPES.get(section.dtype, test.dtype)
    return LogRow(line.number, test.collective, byte, time_s, dtype, note, repeats), ""


def _read_section(path: Path, section: _Section, run: Run) -> tuple[list[LogRow], list[SectionCount]]:
    test = TESTS.get(section.title.lower())
    if test is None:
        reason = "not a test that fomkit reads; it reads those of latency, bandwidth and blocking collectives"
        return [], [SectionCount("-", section.title, skipped=len(section.rows), reason=reason)]
    unit = "(MB/s)" if test.rate else "(us)"
    if unit not in section.header:
        shown = section.header.strip() or "missing"
        raise FomkitError(
            f"{path}:{section.line}", f"the line of columns of {section.title!r} is {shown!r}. "
            f"Expected one with {unit}, as versions 3 to {_LAST_KNOWN} print it.",
        )  # fmt: skip
    found = [_osu_row(line, words, section, test, run) for line, words in section.rows]
    rows, reasons = [row for row, _ in found if row is not None], Counter(why for row, why in found if row is None)
    counts = [SectionCount("-", section.title, imported=len(rows), kind="collective")]
    counts += [SectionCount("-", section.title, skipped=many, reason=reason) for reason, many in reasons.items()]
    return rows, counts


def _osu_run(path: Path, lines: Sequence[LogLine], sections: Sequence[_Section], sizes: Mapping[str, int]) -> Run:
    commands = (line.text for line in lines if re.search(r"\b(mpirun|mpiexec|srun|mpirun_rsh)\b", line.text))
    stated_ranks = (re.search(r"(?:-np|-n|--ntasks|--n)[ =](\d+)\b", command) for command in commands)
    ranks = sizes.get("ranks") or next((int(found[1]) for found in stated_ranks if found), None)
    pairs = all(TESTS.get(section.title.lower(), Test(SEND)).collective in (SEND, STREAM) for section in sections)
    if ranks is None and not pairs:
        raise FomkitError(
            str(path), "does not state how many ranks ran, as these programs never do. Give --set ranks=N, or "
                       "keep the command, 'mpirun -np N …', at the log's top.",
        )  # fmt: skip
    version = next((section.version for section in sections if section.version), "")
    return Run(ranks or 2, sizes.get("nodes") or 1, OSU_HARNESS, "MPI", f"OSU {version}".strip())


def read_osu(path: Path, sizes: Mapping[str, int] | None = None) -> ImportedTimings:
    """Read the output of OSU micro-benchmarks; `sizes`: ``ranks`` and ``nodes`` (default: 1) of the run."""
    lines, sizes = read_lines(path), stated(sizes or {}, path)
    sections = _sections(lines)
    run = _osu_run(path, lines, sections, sizes)
    rows, counts = list[LogRow](), list[SectionCount]()
    for section in sections:
        found, section_counts = _read_section(path, section, run)
        rows += found
        counts += section_counts
    versions = sorted({section.version for section in sections if section.version})
    newer = (one for one in versions if int(one[0]) > _LAST_KNOWN)
    remarks = [f"Version {one} is newer than the versions that this reader knows." for one in newer]
    if "nodes" not in sizes:
        remarks.append("The output does not state the number of nodes: one is assumed; else give --set nodes=N.")
    return imported(path, rows, run, counts, remarks)

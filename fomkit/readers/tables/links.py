"""Logs of networks as TIMINGS, and a link's start-up time and rate: α + n/β for each class of sizes.

Hockney's model (Parallel Computing 20, 1994) with one pair for each class, since libraries change their way of
sending with the size. Errors are relative, as noise and the model's own faults are. Of DeepBench's two NCCL
all-reduce programs, which reduce sums of fp32 over the devices of one node, the first prints whole microseconds as
milliseconds and waits for every all-reduce; the second starts them one behind the other and prints the mean and
the longest over ranks. The workbooks of results are read elsewhere (`fomkit.readers.tables.deepbench`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fomkit.core.errors import FomkitError
from fomkit.core.interval import Span
from fomkit.core.machine import Link, Tier
from fomkit.files.csv import read_bytes
from fomkit.harness.torch.network import SEND, op_of
from fomkit.readers.tables.foreign import ImportedTimings, SectionCount, make_timings

Vector = NDArray[np.float64]


KIB = 2.0**10
CLASSES: Mapping[str, tuple[float, float]] = {
    "large": (256 * KIB, np.inf), "medium": (4 * KIB, 256 * KIB), "small": (0.0, 4 * KIB),
}  # fmt: skip
"""Classes of message sizes [byte], both ends within; long ones first, which training sends most of."""
LEVEL = 0.8
MOST_CONDITION = 1e6
"""Condition of the two terms beyond which their sum of squares cannot be inverted to any digit that counts."""
LEAST_ERROR = 0.01
"""No time is taken to be known better than to this share of it."""
FEWEST = 3
"""Sizes below which a line through them has no error that could be told."""


class LinkLine(NamedTuple):
    """What a class of sizes tells.

    `alpha_s`, `slope_s`: start-up time [s] and time of a byte [s].
    `sure`: whether the slope is above 0 at 95 %: else sizes tell nothing of it.
    """

    alpha_s: Span
    slope_s: Span
    sure: bool


@dataclass(frozen=True)
class Timed:
    """Timed messages of one link.

    `byte`, `time_s`: size [byte] and median time [s] of each.
    `width`: half the 95 % interval of each median, as a share of it.
    """

    byte: Sequence[float]
    time_s: Sequence[float]
    width: Sequence[float]

    def within(self, least: float, most: float) -> Timed:
        """Give the messages of a class of sizes."""
        chosen = [place for place, byte in enumerate(self.byte) if least <= byte <= most]
        return Timed(*([column[place] for place in chosen] for column in (self.byte, self.time_s, self.width)))


def fit_line(timed: Timed) -> LinkLine | None:
    """Fit α [s] and 1/β [s/byte] by weighted least squares; None for fewer than three sizes.

    Neither can be below 0: the fit is then made anew without it. Misfit beyond what the repeats explain widens the
    intervals, which are Student's.

    >>> sizes = [1e3, 1e4, 1e5, 1e6]
    >>> alpha, slope, _ = fit_line(Timed(sizes, [1e-5 + n / 1e9 for n in sizes], [0.01] * 4))
    >>> round(alpha.value * 1e6, 3), round(1e-9 / slope.value, 3)
    (10.0, 1.0)
    """
    byte, time_s = np.asarray(timed.byte, float), np.asarray(timed.time_s, float)
    if len(np.unique(byte)) < FEWEST:
        return None
    error = time_s * np.maximum(np.asarray(timed.width, float) / 1.96, LEAST_ERROR)
    terms = np.column_stack([np.ones(len(byte)), byte])
    weighed = terms / error[:, None]
    if np.linalg.cond(weighed / np.linalg.norm(weighed, axis=0)) > MOST_CONDITION:
        return None  # one message outweighs all others: they tell no latency apart from a rate
    used = [0, 1]
    values, half = _least_squares(terms, time_s, error, used)
    low, high, sure = values - half, values + half, values[1] > half[1] * _ratio(len(byte) - 2)
    if (values < 0).any():
        used = [int(np.argmax(values >= 0))]
        values, half = _least_squares(terms, time_s, error, used)
        # What is left out is at most what the first fit allows it.
        low, high = values - half, np.maximum(values + half, high)
    columns = (np.maximum(0.0, one).tolist() for one in (values, low, high))
    alpha, slope = (Span(*ends) for ends in zip(*columns, strict=True))
    return LinkLine(alpha, slope, bool(sure))


def _ratio(free: int) -> float:
    """Give how much wider Student's 95 % interval is than that of `LEVEL`."""
    from scipy.special import stdtrit

    return float(stdtrit(free, 0.975) / stdtrit(free, (1 + LEVEL) / 2))


def _least_squares(terms: Vector, time_s: Vector, error: Vector, used: list[int]) -> tuple[Vector, Vector]:
    """Give each term's value and half its interval; 0 for a term left out."""
    from scipy.special import stdtrit

    scaled, free = terms[:, used] / error[:, None], len(time_s) - len(used)
    size = np.linalg.norm(scaled, axis=0)
    found, *_ = np.linalg.lstsq(scaled / size, time_s / error, rcond=None)
    misfit = float(np.sum((scaled / size @ found - time_s / error) ** 2)) / free
    half = np.sqrt(np.diag(np.linalg.inv((scaled / size).T @ (scaled / size))) * max(1.0, misfit))
    values, spread = np.zeros(terms.shape[1]), np.zeros(terms.shape[1])
    values[used] = found / size
    spread[used] = half / size * float(stdtrit(free, (1 + LEVEL) / 2))
    return values, spread


def _short(value: float) -> float:
    """Give a figure to the four digits that it has at best."""
    return float(f"{value:.4g}")


def links_of(timed: Timed, tier: Tier, channel: str, source: str) -> tuple[Link, ...]:
    """Make the links of timed messages from rank to rank, one for each class that has sizes enough.

    A class of short messages tells little of the rate: where its slope may be nothing (`Line.sure`), the rate is
    that of all sizes together, and the source says so.
    """
    whole = fit_line(timed)
    if whole is None:
        return ()
    found = []
    for name, (least, most) in CLASSES.items():
        part = timed.within(least, most)
        if (line := fit_line(part)) is None:
            continue
        alpha, slope, sure = line
        provenance = f"{source}; {name} messages, {len(set(part.byte))} sizes"
        if not sure:
            slope, provenance = whole.slope_s, f"{provenance}, rate of all {len(set(timed.byte))}"
        if slope.low <= 0:
            continue
        found.append(
            Link(
                tier=tier,
                alpha_s=_short(alpha.value),
                byte_per_s=_short(1 / slope.value),
                direction="each",
                source=provenance,
                channel=channel,
                least_byte=min(part.byte),
                most_byte=max(part.byte),
                alpha_range_s=(_short(alpha.low), _short(alpha.high)),
                range_byte_per_s=(_short(1 / slope.high), _short(1 / slope.low)),
                basis="measured",
            )
        )
    return tuple(found)


# mpirun and srun can put the rank before each line.
_TAG = re.compile(r"^(?:\[\d+,\d+\](?:<\w+>)?:?|\d+:)\s?")
_NO_SPREAD = 0.05
"""Half the interval that a mean without any spread is given, as a share of it."""
RUN_SIZES = ("ranks", "nodes")
"""What ``--set`` may say of the run of a log."""


class LogLine(NamedTuple):
    """A line of a log and its number."""

    number: int
    text: str


@dataclass(frozen=True)
class LogRow:
    """One timing of a log.

    `message_byte`, `time_s`: as the columns of `fomkit.ops.tables` mean them.
    `repeats`: NaN where the log does not say.
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
    """What a log says of the run: ranks, nodes, the program, the library and its version."""

    ranks: int
    nodes: int
    harness: str
    library: str = ""
    version: str = ""
    device: str = ""

    @property
    def tier(self) -> Tier:
        """The link that the ranks talk over."""
        return "node" if self.nodes == 1 else "system"


def read_lines(path: Path) -> list[LogLine]:
    """Read a log, packed by gzip or not, without what a launcher puts before its lines."""
    text = read_bytes(path).decode("utf-8", errors="replace")
    return [LogLine(number, _TAG.sub("", line.rstrip())) for number, line in enumerate(text.splitlines(), 1)]


def begin_of(path: Path) -> str:
    """Give the first bytes of a file as text, for recognising it."""
    return read_bytes(path)[:200_000].decode("utf-8", errors="replace")


def numbers_of(text: str) -> list[float | None]:
    """Give the words of a line as numbers, None for those that are none."""
    found = list[float | None]()
    for word in text.split():
        try:
            found.append(float(word))
        except ValueError:
            found.append(None)
    return found


def ranks_of_command(lines: Sequence[LogLine]) -> int | None:
    """Find how many ranks a command in the log asks for: ``mpirun -np 4``, ``srun -n 4``; None where none does."""
    for line in lines:
        found = re.search(r"(?:-np|-n|--ntasks|--n)[ =](\d+)\b", line.text)
        if found and re.search(r"\b(mpirun|mpiexec|srun|mpirun_rsh)\b", line.text):
            return int(found[1])
    return None


def stated(sizes: Mapping[str, int], path: Path) -> Mapping[str, int]:
    """Check what the user says of a run by ``--set``."""
    wrong = [name for name in sizes if name not in RUN_SIZES]
    if wrong:
        raise FomkitError(str(path), f"is a log of a network; --set {wrong[0]} says nothing of it, "
                                     "only --set ranks=N and --set nodes=N do.")  # fmt: skip
    return sizes


def _links(rows: Sequence[LogRow], run: Run, path: Path) -> tuple[Link, ...]:
    sent = [row for row in rows if row.collective == SEND]
    timed = Timed(
        [row.message_byte for row in sent], [row.time_s for row in sent], [1.96 * _NO_SPREAD] * len(sent)
    )
    source = f"{path.name}, {run.harness}"
    return links_of(timed, run.tier, (run.library or run.harness).lower(), source)


def imported(
    path: Path, rows: Sequence[LogRow], run: Run, counts: Sequence[SectionCount], remarks: Sequence[str]
) -> ImportedTimings:
    """Make timings of a log's rows, and links of its messages from rank to rank."""
    if not rows:
        reasons = "; ".join(count.reason for count in counts if count.reason) or "it ends before its first result"
        raise FomkitError(str(path), f"has no timing that can be read: {reasons}. Check that the log is whole.")
    names = [row.collective for row in rows]
    pairs = (SEND, "send_stream")
    columns: dict[str, object] = {
        "kind": "collective",
        "op": [op_of(name) for name in names],
        "engine": "vector",
        "dtype": [row.dtype for row in rows],
        "collective": names,
        "message_byte": [row.message_byte for row in rows],
        "ranks": [2.0 if name in pairs else float(run.ranks) for name in names],
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
    return ImportedTimings(
        timings, run.device, facts, tuple(counts), remarks=tuple(remarks), links=_links(rows, run, path)
    )


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

    `sizes`: ``nodes``, where an MPI run was on several.
    """
    lines, sizes = read_lines(path), stated(sizes or {}, path)
    facts = next((match for line in lines if (match := _RANKS.match(line.text))), None)
    ranks = sizes.get("ranks") or (int(facts[1]) if facts else None)
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
    fates: dict[str, Any] = {"below_resolution": below, "skipped": cut, "reason": reason, "kind": "collective"}
    counts = [SectionCount("-", "all_reduce", imported=len(rows), **fates)]
    return imported(path, rows, Run(ranks, sizes.get("nodes") or 1, HARNESS, "NCCL"), counts, ())

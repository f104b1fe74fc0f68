"""Logs of network benchmarks: their lines, and what all of them become in a table of timings."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fomkit.errors import FomkitError
from fomkit.hardware import Link, Tier
from fomkit.tables.text import read_bytes
from fomkit.timings.collectives import SEND, op_of
from fomkit.timings.foreign_table import make_timings
from fomkit.timings.imported import ImportedTimings, SectionCount
from fomkit.timings.link_fit import Timed, links_of

# mpirun and srun can put the rank before each line.
_TAG = re.compile(r"^(?:\[\d+,\d+\](?:<\w+>)?:?|\d+:)\s?")
_NO_SPREAD = 0.05
"""Half the interval that a mean without any spread is given, as a share of it."""
RUN_SIZES = ("ranks", "nodes")
"""What ``--set`` may say of the run of a log."""


class Line(NamedTuple):
    """A line of a log and its number."""

    number: int
    text: str


@dataclass(frozen=True)
class LogRow:
    """One timing of a log.

    Attributes
    ----------
    line : int
    collective : str
    message_byte, time_s : float
        As `fomkit.schema` means them.
    dtype, note : str
    repeats : float
        NaN where the log does not say.
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


def read_lines(path: Path) -> list[Line]:
    """Read a log, packed by gzip or not, without what a launcher puts before its lines."""
    text = read_bytes(path).decode("utf-8", errors="replace")
    return [Line(number, _TAG.sub("", line.rstrip())) for number, line in enumerate(text.splitlines(), 1)]


def begin_of(path: Path, byte: int = 200_000) -> str:
    """Give the first bytes of a file as text, for recognising it."""
    return read_bytes(path)[:byte].decode("utf-8", errors="replace")


def numbers_of(text: str) -> list[float | None]:
    """Give the words of a line as numbers, None for those that are none."""
    return [_number(word) for word in text.split()]


def _number(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None


def ranks_of_command(lines: Sequence[Line]) -> int | None:
    """Find how many ranks a command in the log asks for: ``mpirun -np 4``, ``srun -n 4``; None where none does."""
    for line in lines:
        if re.search(r"\b(mpirun|mpiexec|srun|mpirun_rsh)\b", line.text):
            found = re.search(r"(?:-np|-n|--ntasks|--n)[ =](\d+)\b", line.text)
            if found:
                return int(found[1])
    return None


def stated(sizes: Mapping[str, int], path: Path) -> Mapping[str, int]:
    """Check what the user says of a run by ``--set``.

    Raises
    ------
    FomkitError
        When it is something else than ranks and nodes.
    """
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
    """Make timings of a log's rows, and links of its messages from rank to rank.

    Raises
    ------
    FomkitError
        When there is no row.
    """
    import pandas as pd

    if not rows:
        reasons = "; ".join(one.reason for one in counts if one.reason) or "it ends before its first result"
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
    told = {"Ranks": str(run.ranks), "Nodes": str(run.nodes), "Library": f"{run.library} {run.version}".strip()}
    return ImportedTimings(
        timings, run.device, told, tuple(counts), remarks=tuple(remarks), links=_links(rows, run, path)
    )

"""The memory that a process and the ones it started really take, as Linux tells it."""

from __future__ import annotations

import os
from pathlib import Path

_PROCESSES = Path("/proc")


def _started_by(pid: int) -> list[int]:
    found, waiting = [], [pid]
    while waiting:
        one = waiting.pop()
        try:
            text = (_PROCESSES / f"{one}/task/{one}/children").read_text(encoding="ascii")
        except OSError:
            continue
        children = [int(child) for child in text.split()]
        found += children
        waiting += children
    return found


def _own_byte(pid: int) -> int:
    """Give the resident memory of one process [byte]."""
    try:
        pages = (_PROCESSES / f"{pid}/statm").read_text(encoding="ascii").split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _share_byte(pid: int) -> int:
    """Give the resident memory of one process, pages that n processes share counted as an n-th [byte]."""
    try:
        lines = (_PROCESSES / f"{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    sizes = [line.split()[1] for line in lines if line.startswith("Pss:")]
    return int(sizes[0]) * 1024 if sizes else 0


def resident_byte(pid: int) -> int:
    """Give the memory that a process and those it started really take [byte]; 0 where the system does not say.

    An address-space limit would not do: importing torch alone reserves more than most models use. Forked processes
    share most of their pages, which are counted once.
    """
    started = _started_by(pid)
    return sum(map(_share_byte, (pid, *started))) if started else _own_byte(pid)

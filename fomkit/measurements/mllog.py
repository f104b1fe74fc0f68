"""MLPerf training logs: the time from run_start to run_stop of each run that reached its quality.

Format: lines ``:::MLLOG {…}`` of mlcommons/logging, among any others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fomkit.errors import FomkitError, printable
from fomkit.measurements.strict_json import parse_json, read_text, text
from fomkit.tables.text import MAX_BYTE, read_bytes

MARK = ":::MLLOG"
_WHO = ("submission_org", "submission_division")
_FACTS = ("submission_benchmark", "submission_platform", *_WHO, "global_batch_size")


def recognise_mllog(path: Path) -> bool:
    """Tell whether a file has a line of an MLPerf log."""
    return f"{MARK} {{".encode() in read_bytes(path)


def _events(path: Path) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Give place, key and content of each event; launchers put a rank before the mark."""
    for place, line in enumerate(read_text(path, MAX_BYTE).splitlines(), 1):
        _, mark, content = line.partition(MARK)
        if not mark:
            continue
        where = f"{path}:{place}"
        event = parse_json(content.strip(), where)
        if not isinstance(event, dict) or not isinstance(event.get("key"), str):
            raise FomkitError(where, "is an MLLOG line without an event. Expected an object {…} with a key.")
        yield where, event["key"], event


def _time_s(event: Mapping[str, Any], where: str) -> float:
    value = event.get("time_ms")
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e14:
        raise FomkitError(where, f"time_ms is {str(value)[:40]!r}. Expected milliseconds since 1970.")
    return value / 1e3


def _status(event: Mapping[str, Any]) -> str:
    metadata = event.get("metadata")
    return (
        printable(str(metadata.get("status", "not stated"))[:40]) if isinstance(metadata, dict) else "not stated"
    )


def _stopped(path: Path) -> tuple[dict[str, Any], list[tuple[str, float, float, str, Any]]]:
    """Give the facts of a log and its runs: place, start [s], end [s], status, last accuracy."""
    facts: dict[str, Any] = {}
    runs: list[tuple[str, float, float, str, Any]] = []
    start: tuple[str, float] | None = None
    accuracy: Any = None
    for where, key, event in _events(path):
        if key in _FACTS:
            facts.setdefault(key, event.get("value"))
        elif key == "eval_accuracy":
            value = event.get("value")
            accuracy = value if isinstance(value, float) else None
        elif key == "run_start":
            if start is not None:
                raise FomkitError(where, f"a run starts before that of {start[0]} has ended. Split the log.")
            start, accuracy = (where, _time_s(event, where)), None
        elif key == "run_stop":
            if start is None:
                raise FomkitError(where, "a run ends that has not started. The log is cut; take the whole of it.")
            if (end := _time_s(event, where)) <= start[1]:
                raise FomkitError(where, f"a run ends before it starts in {start[0]}. Check the clock.")
            runs.append((start[0], start[1], end, _status(event), accuracy))
            start = None
    return facts, runs


def read_mllog(path: Path) -> tuple[Sequence[Mapping[str, Any]], Sequence[str]]:
    """Read a log: one row of run_s for each run that succeeded; others are told.

    Raises
    ------
    FomkitError
        With the line, when it is broken; when no run succeeded, or benchmark or platform are not stated.
    """
    facts, runs = _stopped(path)
    failed = [(where, status) for where, _, _, status, _ in runs if status != "success"]
    said = [f"{where}: the run is left out, its status is {status}" for where, status in failed]
    if len(said) == len(runs):
        raise FomkitError(str(path), f"no run of it succeeded ({len(runs)} ended). Only such is a measured run.")
    batch = facts.get("global_batch_size")
    whole = isinstance(batch, int) and not isinstance(batch, bool) and 1 <= batch <= 1e15
    who = "".join(f", {text(facts, key, str(path))}" for key in _WHO if facts.get(key))
    rows = [
        {
            "model": text(facts, "submission_benchmark", str(path), needed=True),
            "machine": text(facts, "submission_platform", str(path), needed=True),
            "quantity": "run_s",
            "value": end - start,
            "batch": float(batch) if whole and batch else None,
            "scope": "system",
            "basis": "measured",
            "date": datetime.fromtimestamp(start, UTC).date().isoformat(),
            "source": f"MLPerf log {path.name}:{where.rpartition(':')[2]}{who}",
            "note": "" if accuracy is None else f"eval_accuracy {accuracy:g}",
        }
        for where, start, end, status, accuracy in runs
        if status == "success"
    ]
    return rows, said

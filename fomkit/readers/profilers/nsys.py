"""Read exports of Nsight Systems to SQLite, without trusting them, and convert them to events of PyTorch's traces.

Tables and columns: NVIDIA's *SQLite Export Schema Reference*, schema version 3. An SQLite file can hold code as
well as data: views, virtual tables and computed columns are refused, and only plain reading is allowed. PyTorch
passes the names of its calls to Nsight as NVTX ranges: ``torch.autograd.profiler.emit_nvtx(record_shapes=True)``
writes ``aten::addmm, seq = 12, op_id = 34, sizes = [[10], [32, 64], [64, 10], [], []]``.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fomkit.core.errors import FomkitError
from fomkit.files.csv import check_file, open_file
from fomkit.frontends.step_spread import busiest, busiest_notes
from fomkit.readers.profilers.kineto import TraceRows, rows_of, steps_of
from fomkit.readers.profilers.kineto_stream import Events

MAGIC = b"SQLite format 3\0"
SCHEMA = "3"
"""Major version of the export's schema that can be read."""
MAX_TEXT = 1_000_000
_VERSION = "META_DATA_EXPORT"
_EXPORT = "Export it again from its .nsys-rep with a current nsys: nsys export --type sqlite report.nsys-rep"
NEEDED: Mapping[str, tuple[str, ...]] = {
    _VERSION: ("name", "value"),
    "StringIds": ("id", "value"),
    "CUPTI_ACTIVITY_KIND_KERNEL": ("start", "end", "correlationId", "shortName", "demangledName"),
    "CUPTI_ACTIVITY_KIND_RUNTIME": ("start", "end", "globalTid", "correlationId"),
}
OPTIONAL: Mapping[str, tuple[str, ...]] = {
    "CUPTI_ACTIVITY_KIND_MEMCPY": ("start", "end", "correlationId", "bytes", "copyKind"),
    "CUPTI_ACTIVITY_KIND_MEMSET": ("start", "end", "correlationId", "bytes"),
    "NVTX_EVENTS": ("start", "end", "eventType", "text", "textId", "globalTid"),
    "TARGET_INFO_GPU": ("name",),
}
"""Tables that an export has only if it recorded such events."""
_ALLOWED = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ)
_COMPUTED = re.compile(r"\b(?:generated|as\s*\()", re.IGNORECASE)
_FUNCTION = "coalesce"


def recognise_nsys(path: Path) -> bool:
    """Return whether a file is an SQLite database, by its first bytes; no other format of fomkit is one."""
    with suppress(OSError, ValueError), open_file(path) as stream:
        return stream.read(len(MAGIC)) == MAGIC
    return False


class Report:
    """An open export; `tables`: those of `NEEDED` and `OPTIONAL` that it has."""

    def __init__(self, connection: sqlite3.Connection, where: str) -> None:
        self._connection, self._where = connection, where
        self.tables = self._checked()

    def _refused(self, what: str) -> FomkitError:
        return FomkitError(self._where, what)

    def _checked(self) -> set[str]:
        listed = self._connection.execute("SELECT name, type, sql FROM sqlite_master LIMIT 10000").fetchall()
        known = {str(name): (str(kind), str(sql or "")) for name, kind, sql in listed}
        missing = [name for name in NEEDED if name not in known]
        if _VERSION in missing:
            raise self._refused(f"is an SQLite database, not an export of Nsight Systems: it has no {_VERSION}.")
        wanted = {name: columns for name, columns in {**NEEDED, **OPTIONAL}.items() if name in known}
        for name in wanted:
            kind, sql = known[name]
            if kind != "table" or "virtual" in sql.lower()[:20] or _COMPUTED.search(sql):
                raise self._refused(f"is not an export of Nsight Systems: its {name} is not a plain table.")
        self._connection.set_authorizer(_only_reading)
        rows = dict(self._connection.execute(f"SELECT name, value FROM {_VERSION} LIMIT 1000").fetchall())  # noqa: S608
        version = str(rows.get("EXPORT_SCHEMA_VERSION", ""))
        if version.partition(".")[0] != SCHEMA:
            message = f"version {version!r:.40}" if version else "no version"
            raise self._refused(f"its export schema has {message}; fomkit knows {SCHEMA}.x. {_EXPORT}.")
        if missing:
            kernels = "CUPTI_ACTIVITY_KIND_KERNEL" in missing
            record = "Record with CUDA: nsys profile --trace=cuda,nvtx python train.py" if kernels else _EXPORT
            raise self._refused(f"has no table {', '.join(missing)}. {record}.")
        for name, columns in wanted.items():
            if lacking := [column for column in columns if column not in self._columns(name)]:
                raise self._refused(
                    f"its table {name} has no column {', '.join(lacking)}: a schema that fomkit does not know. "
                    f"{_EXPORT}."
                )
        return set(wanted)

    def _columns(self, table: str) -> list[str]:
        return [one[0] for one in self._connection.execute(f'SELECT * FROM "{table}" LIMIT 0').description]  # noqa: S608

    def has(self, table: str, column: str) -> bool:
        """Return whether a column exists that only some versions have."""
        return table in self.tables and column in self._columns(table)

    def rows(self, query: str) -> Iterator[tuple[Any, ...]]:
        """Run a query on the known tables, row by row."""
        yield from self._connection.execute(query)


def _only_reading(action: int, _first: str | None, second: str | None, *_: Any) -> int:
    called = action == sqlite3.SQLITE_FUNCTION and second == _FUNCTION
    return sqlite3.SQLITE_OK if called or action in _ALLOWED else sqlite3.SQLITE_DENY


@contextmanager
def open_report(path: Path) -> Iterator[Report]:
    """Open an export for a block."""
    where = str(path)
    if any(path.with_name(path.name + end).exists() for end in ("-wal", "-journal")):
        raise FomkitError(
            where, "is still being written, or was not closed: it has a journal file. Export it again."
        )
    try:
        check_file(path)
        uri = f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1"
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            connection.text_factory = lambda text: text.decode("utf-8", errors="replace")
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_TEXT)
            for setting in ("trusted_schema = OFF", "cell_size_check = ON", "query_only = ON"):
                connection.execute(f"PRAGMA {setting}")
            yield Report(connection, where)
    except OSError as error:
        raise FomkitError(where, f"cannot be read ({error.strerror}). Check the path.") from error
    except (sqlite3.Error, UnicodeDecodeError) as error:  # a message that quotes damaged names may not be text
        message = " ".join(getattr(error, "object", str(error).encode()).decode(errors="replace").split())
        raise FomkitError(
            where, f"cannot be read as an SQLite database ({message:.200}). Copy it, or export it, again."
        ) from error


_PUSHED = 59
"""Type of an NVTX event that is a range of one thread (NvtxPushPopRange)."""
_COPIES = {-1: "Memset", 1: "Memcpy HtoD", 2: "Memcpy DtoH", 8: "Memcpy DtoD", 10: "Memcpy PtoP"}
"""Kinds of copies, CUpti_ActivityMemcpyKind; -1 is a fill, not a copy."""
_DETAIL = re.compile(r", (?:seq|op_id|sizes|input_op_ids) = ")
_SEQUENCE = re.compile(r", seq = (-?\d{1,18})\b")
_SIZES = re.compile(r", sizes = \[((?:\[[\d, ]*\](?:, )?)*)\]")
_ONE = re.compile(r"\[([\d, ]*)\]")
_LONGEST = 20_000

Event = dict[str, Any]


def shapes_of(text: str) -> list[list[int]] | None:
    """Read the sizes of a call's arguments; None if the range has none.

    >>> shapes_of("aten::mm, seq = 3, op_id = 7, sizes = [[32, 64], [64, 10]], input_op_ids = [[(1,0)]]")
    [[32, 64], [64, 10]]
    >>> shapes_of("aten::mm, seq = 3") is None
    True
    """
    found = _SIZES.search(text[:_LONGEST])
    if found is None:
        return None
    return [[int(size) for size in one.split(",") if size.strip()] for one in _ONE.findall(found[1])]


def host_event(text: str) -> Event:
    """Describe an NVTX range as a trace describes a call."""
    name = text[: found.start()] if (found := _DETAIL.search(text)) else text
    args: dict[str, Any] = {}
    if sequence := _SEQUENCE.search(text[:_LONGEST]):
        args["Sequence number"] = int(sequence[1])
    shapes = shapes_of(text)
    if shapes is not None:
        # Only tensors have sizes here; number formats and other arguments are missing.
        args |= {"Input Dims": shapes, "Input type": ["float" if shape else "" for shape in shapes]}
    category = "cpu_op" if "::" in name.partition(" ")[0] else "user_annotation"
    return {"ph": "X", "cat": category, "name": name[:2000], "args": args}


def _process(number: Any) -> int:
    """Return the process in a global id of a process or thread, whose higher bits are hardware and machine."""
    return number >> 24 if type(number) is int else 0


def _correlation(process: Any, number: Any) -> int:
    """Return a launch's number, made unique across processes."""
    return (_process(process) % (1 << 28)) << 32 | number if type(number) is int and 0 <= number < 1 << 32 else -1


def _start_and_length(start: Any, end: Any) -> Event:
    """Return start and duration [µs]; None for values that are not integers, to be counted as broken."""
    if type(start) is not int or type(end) is not int:
        return {"ts": None, "dur": None}
    return {"ts": start / 1000, "dur": (end - start) / 1000}


def _ranges(report: Report) -> Iterator[Event]:
    query = (
        "SELECT n.start, n.end, n.globalTid, n.eventType, coalesce(n.text, s.value) FROM NVTX_EVENTS AS n "
        "LEFT JOIN StringIds AS s ON s.id = n.textId WHERE n.end IS NOT NULL"
    )
    for start, end, thread, kind, text in report.rows(query):
        if kind == _PUSHED and isinstance(text, str):
            yield {**host_event(text), **_start_and_length(start, end), "pid": _process(thread), "tid": thread}


def _launches(report: Report) -> Iterator[Event]:
    query = "SELECT start, end, globalTid, correlationId FROM CUPTI_ACTIVITY_KIND_RUNTIME"
    for start, end, thread, number in report.rows(query):
        args = {"correlation": _correlation(thread, number)}
        yield {"ph": "X", "cat": "cuda_runtime", "name": "launch", "pid": _process(thread), "tid": thread,
               "args": args, **_start_and_length(start, end)}  # fmt: skip


def _device_event(
    name: str, start: Any, end: Any, process: Any, device: Any, number: Any, byte: Any = None
) -> Event:
    args = {"correlation": _correlation(process, number), "device": device if type(device) is int else 0}
    args |= {} if byte is None else {"bytes": byte}
    category = "kernel" if byte is None else "gpu_memcpy"
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "args": args,
        "pid": _process(process),
        **_start_and_length(start, end),
    }


def _column(report: Report, table: str, name: str) -> str:
    """Return a column's name, or 0 if this version of the export lacks it."""
    return name if report.has(table, name) else "0"


def process_times(report: Report) -> dict[int, float]:
    """Return the time of kernels [s] by process, in the order of their numbers."""
    table = "CUPTI_ACTIVITY_KIND_KERNEL"
    times: dict[int, float] = {}
    for owner, start, end in report.rows(f"SELECT {_column(report, table, 'globalPid')}, start, end FROM {table}"):  # noqa: S608
        if type(start) is int and type(end) is int and end >= start:
            process = _process(owner)
            times[process] = times.get(process, 0.0) + (end - start) / 1e9
    return dict(sorted(times.items()))


def _device_events(report: Report) -> Iterator[Event]:
    def where(table: str) -> str:
        return f"{_column(report, table, 'globalPid')}, {_column(report, table, 'deviceId')}"

    table = "CUPTI_ACTIVITY_KIND_KERNEL"
    query = (
        f"SELECT coalesce(s.value, t.value), k.start, k.end, {where(table)}, k.correlationId FROM {table} AS k "  # noqa: S608
        "LEFT JOIN StringIds AS s ON s.id = k.demangledName LEFT JOIN StringIds AS t ON t.id = k.shortName"
    )
    for name, *rest in report.rows(query):
        yield _device_event(str(name or "kernel")[:2000], *rest)
    for table, kind in (("CUPTI_ACTIVITY_KIND_MEMCPY", "copyKind"), ("CUPTI_ACTIVITY_KIND_MEMSET", "-1")):
        if table in report.tables:
            query = f"SELECT {kind}, start, end, {where(table)}, correlationId, bytes FROM {table}"  # noqa: S608
            for copied, *rest in report.rows(query):
                yield _device_event(_COPIES.get(copied, "Memcpy"), *rest)


def events_of(report: Report, process: int | None) -> Iterator[Event]:
    """Yield ranges, launches, kernels and copies of a process (None: of all) as events of a trace."""
    ranges = _ranges(report) if "NVTX_EVENTS" in report.tables else iter(())
    for event in chain(ranges, _launches(report), _device_events(report)):
        if process is None or event["pid"] == process:
            yield event


def devices(report: Report) -> list[dict[str, Any]]:
    """Return number and name of each GPU, as a trace of PyTorch's profiler does."""
    table = "TARGET_INFO_GPU"
    if table not in report.tables:
        return []
    query = f"SELECT {_column(report, table, 'id')}, name FROM {table} LIMIT 64"  # noqa: S608
    return [{"id": number, "name": str(name)} for number, name in report.rows(query) if name]


RECORD = (
    "Record it with sizes: the steps inside 'with torch.autograd.profiler.emit_nvtx(record_shapes=True)', under "
    "nsys profile --trace=cuda,nvtx python train.py"
)


def read_nsys(path: Path) -> TraceRows:
    """Read an export of Nsight Systems, a file written by ``nsys export --type sqlite``."""
    events = Events()
    with open_report(path) as report:
        times_s = process_times(report)
        process = busiest(times_s) if len(times_s) > 1 else None
        events.add_all(events_of(report, process))
        properties = devices(report)
    if not len(events.device_time):
        raise FomkitError(
            str(path), f"has no kernel among its {events.seen:,} events. Check that CUDA was traced."
        )
    found = steps_of(events, {"deviceProperties": properties} if properties else {})
    trace = rows_of(found)
    sized = any(row.op.kind not in ("other", "copy") for row in trace.rows)
    message = (
        "partial: NVTX ranges state the sizes of tensors only: fp32 is assumed, products have no transposition, "
        "and convolutions, norms and other ops that need more have a time and no sizes"
        if sized
        else "partial: a table of kernels by name, without sizes; fp32 stands for unknown number formats. "
        f"{RECORD}"
    )
    if process is None:
        return replace(trace, notes=(message, *trace.notes))
    # Processes are named by their own number if that is unique, else with the machine's number above it.
    mask = 0xFFFFFF if len({number & 0xFFFFFF for number in times_s}) == len(times_s) else -1
    named = {f"process {number & mask}": time_s for number, time_s in times_s.items()}
    left = busiest_notes("processes", named, f"process {process & mask}")
    return replace(trace, notes=(message, *left, *trace.notes))

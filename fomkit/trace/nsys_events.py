"""An export of Nsight Systems in the words of PyTorch's own traces, so that the same rules read it.

PyTorch names its calls to Nsight as NVTX ranges: ``torch.autograd.profiler.emit_nvtx(record_shapes=True)`` writes
``aten::addmm, seq = 12, op_id = 34, sizes = [[10], [32, 64], [64, 10], [], []]``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from typing import Any

from fomkit.trace.nsys_file import Report

_PUSHED = 59
"""Type of an NVTX event that is a range of one thread (NvtxPushPopRange)."""
_COPIES = {1: "Memcpy HtoD", 2: "Memcpy DtoH", 8: "Memcpy DtoD", 10: "Memcpy PtoP"}
"""Kinds of copies, CUpti_ActivityMemcpyKind."""
_DETAIL = re.compile(r", (?:seq|op_id|sizes|input_op_ids) = ")
_SEQUENCE = re.compile(r", seq = (-?\d{1,18})\b")
_SIZES = re.compile(r", sizes = \[((?:\[[\d, ]*\](?:, )?)*)\]")
_ONE = re.compile(r"\[([\d, ]*)\]")
_LONGEST = 20_000

Event = dict[str, Any]


def shapes_of(text: str) -> list[list[int]] | None:
    """Read the sizes of a call's arguments; None where the range does not tell them.

    Examples
    --------
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
        # Only tensors have sizes here; number formats and other arguments are not told.
        args |= {"Input Dims": shapes, "Input type": ["float" if one else "" for one in shapes]}
    category = "cpu_op" if "::" in name.partition(" ")[0] else "user_annotation"
    return {"ph": "X", "cat": category, "name": name[:2000], "args": args}


def _process(number: Any) -> int:
    """Give the process in a global id of a process or thread, which has hardware and machine above it."""
    return number >> 24 if type(number) is int else 0


def _correlation(process: Any, number: Any) -> int:
    """Give a number of a launch that is one for all processes."""
    return (_process(process) % (1 << 28)) << 32 | number if type(number) is int and 0 <= number < 1 << 32 else -1


def _span(start: Any, end: Any) -> Event:
    """Give start and duration [µs]; texts and gaps stay as they are, to be counted as broken."""
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
            yield {**host_event(text), **_span(start, end), "pid": _process(thread), "tid": thread}


def _launches(report: Report) -> Iterator[Event]:
    query = "SELECT start, end, globalTid, correlationId FROM CUPTI_ACTIVITY_KIND_RUNTIME"
    for start, end, thread, number in report.rows(query):
        args = {"correlation": _correlation(thread, number)}
        yield {"ph": "X", "cat": "cuda_runtime", "name": "launch", "pid": _process(thread), "tid": thread,
               "args": args, **_span(start, end)}  # fmt: skip


def _device_event(
    name: str, start: Any, end: Any, process: Any, device: Any, number: Any, byte: Any = None
) -> Event:
    args = {"correlation": _correlation(process, number), "device": device if type(device) is int else 0}
    args |= {} if byte is None else {"bytes": byte}
    category = "kernel" if byte is None else "gpu_memcpy"
    return {"ph": "X", "cat": category, "name": name, "args": args, "pid": _process(process), **_span(start, end)}


def _column(report: Report, table: str, name: str) -> str:
    """Give a column's name, or 0 where this version of the export lacks it."""
    return name if report.has(table, name) else "0"


def process_times(report: Report) -> dict[int, float]:
    """Give the time of kernels [s] by process, in the order of their numbers."""
    table = "CUPTI_ACTIVITY_KIND_KERNEL"
    times: dict[int, float] = {}
    for owner, start, end in report.rows(f"SELECT {_column(report, table, 'globalPid')}, start, end FROM {table}"):  # noqa: S608
        if type(start) is int and type(end) is int and end >= start:
            process = _process(owner)
            times[process] = times.get(process, 0.0) + (end - start) / 1e9
    return dict(sorted(times.items()))


def _device(report: Report) -> Iterator[Event]:
    def where(table: str) -> str:
        return f"{_column(report, table, 'globalPid')}, {_column(report, table, 'deviceId')}"

    table = "CUPTI_ACTIVITY_KIND_KERNEL"
    query = (
        f"SELECT coalesce(s.value, t.value), k.start, k.end, {where(table)}, k.correlationId FROM {table} AS k "  # noqa: S608
        "LEFT JOIN StringIds AS s ON s.id = k.demangledName LEFT JOIN StringIds AS t ON t.id = k.shortName"
    )
    for name, *rest in report.rows(query):
        yield _device_event(str(name or "kernel")[:2000], *rest)
    table = "CUPTI_ACTIVITY_KIND_MEMCPY"
    if table in report.tables:
        query = f"SELECT copyKind, start, end, {where(table)}, correlationId, bytes FROM {table}"  # noqa: S608
        for kind, *rest in report.rows(query):
            yield _device_event(_COPIES.get(kind, "Memcpy"), *rest)
    table = "CUPTI_ACTIVITY_KIND_MEMSET"
    if table in report.tables:
        query = f"SELECT start, end, {where(table)}, correlationId, bytes FROM {table}"  # noqa: S608
        for row in report.rows(query):
            yield _device_event("Memset", *row)


def events_of(report: Report, process: int | None) -> Iterator[Event]:
    """Give an export's ranges, launches, kernels and copies as events of a trace.

    Parameters
    ----------
    report : Report
    process : int or None
        The process whose events are given; None for all.
    """
    ranges = _ranges(report) if "NVTX_EVENTS" in report.tables else iter(())
    for event in chain(ranges, _launches(report), _device(report)):
        if process is None or event["pid"] == process:
            yield event


def devices(report: Report) -> list[dict[str, Any]]:
    """Give number and name of each GPU, as a trace of PyTorch's profiler does."""
    table = "TARGET_INFO_GPU"
    if table not in report.tables:
        return []
    query = f"SELECT {_column(report, table, 'id')}, name FROM {table} LIMIT 64"  # noqa: S608
    return [{"id": number, "name": str(name)} for number, name in report.rows(query) if name]

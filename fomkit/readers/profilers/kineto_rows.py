"""Turn executions into rows of the op table, priced as dispatched calls are, or into timings of a machine."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fomkit.frontends.lowering import calls
from fomkit.frontends.lowering.aten import find_rule
from fomkit.frontends.lowering.calls import BACKWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, Array, Dimensions, TracedOp
from fomkit.ops.kinds import PASS_FREE_KINDS, UNNAMED_KINDS
from fomkit.readers.profilers.kineto_device import collective_word, is_collective, is_copy, message_of
from fomkit.readers.profilers.kineto_nesting import DTYPES, CallError, describe, positional_arguments
from fomkit.readers.profilers.kineto_results import with_results
from fomkit.readers.profilers.kineto_steps import Executions, Key
from fomkit.readers.profilers.kineto_stream import Events, Signature

_CELLS = {"lstm": "lstm", "gru": "gru", "rnn_tanh": "vanilla", "rnn_relu": "vanilla"}


class Row(NamedTuple):
    """One work of a call: its op, its executions' times [s] in order of steps, and whether the times are its own.

    ``unit`` is tf32 or matrix if the names of the kernels show it. If works share their call's time, ``times`` is
    a share of it, or NaN if it cannot be divided. ``occupancy`` is achieved [share], weighted by time; NaN if
    unknown.
    """

    op: TracedOp
    times: Sequence[float] | NDArray[np.float64]
    alone: bool
    unit: str
    occupancy: float = math.nan


@dataclass
class CallCounts:
    """Counts of calls besides the rows.

    `unsupported`: executions in a step, by name and reason.
    `without_shapes`: executions of priced ops without shapes.
    `halved`: backward convolutions and recurrent layers whose time was divided into equal halves.
    """

    unsupported: Counter[str] = field(default_factory=Counter)
    without_shapes: int = 0
    halved: int = 0
    halves: set[Key] = field(default_factory=set)
    called: int = 0


def commonest_dtype(events: Events) -> str:
    """Return the floating-point format of most distinct calls; fp32 if there is none."""
    found: Counter[str] = Counter()
    for (_, types, _, _), _ in events.calls.values:
        words = [word for word in types if isinstance(word, str)] if isinstance(types, list) else ()
        found.update(name for word in words if (name := DTYPES.get(word, "")).startswith(("fp", "bf")))
    return max(found, key=lambda name: found[name], default="fp32")


def _rnn_sizes(name: str, arguments: Sequence[Any]) -> tuple[Dimensions, str]:
    """Return dimensions and number format of a recurrent layer.

    Arguments are input, states, weights, has_biases, layers, dropout, train, bidirectional and batch_first. A
    packed sequence comes as (data, batch sizes, …) instead; its steps are values that the trace lacks.
    """
    values, states, weights = arguments[:3]
    if not isinstance(values, Array) or len(values.shape) != 3 or not isinstance(weights, tuple) or not weights:
        raise CallError("packed sequences do not state their lengths")
    layers, both, batch_first = int(arguments[4]), bool(arguments[7]), bool(arguments[8])
    first, second, width = values.shape
    batch, steps = (first, second) if batch_first else (second, first)
    hidden = (states[0] if isinstance(states, tuple) else states).shape[-1]
    sizes = calls.rnn_sizes(_CELLS[name], batch, steps, (width, hidden), layers=layers, directions=1 + both)
    return sizes, values.dtype


def _owner(name: str, signature: Signature, default_dtype: str, pass_name: str) -> TracedOp:
    arguments, kind = positional_arguments(signature, default_dtype), "rnn"
    try:
        if name == "scaled_dot_product_attention":
            kind, (query, key, value) = "attention", arguments[:3]
            if not all(isinstance(one, Array) and len(one.shape) >= 3 for one in (query, key, value)):
                raise CallError("its query, key and value are not in the trace")
            dimensions = calls.attention_of_shapes(query.shape, key.shape, value.shape, causal=arguments[5])
            dtype = query.dtype
        else:
            dimensions, dtype = _rnn_sizes(name, arguments)
    except (IndexError, TypeError, AttributeError, ValueError) as error:
        raise CallError(str(error) if isinstance(error, CallError) else "its arguments are not known") from error
    return TracedOp(f"aten::{name}", kind, dimensions, dtype, pass_name, "")


class Rows:
    """Makes the rows of one trace.

    `default_dtype`: number format of lists of tensors.
    `ranks`: processes of the run, 0 if the trace does not state them; ``local`` of them are on the node.
    """

    def __init__(self, events: Events, executions: Executions, default_dtype: str, ranks: int, local: int) -> None:
        self.call_counts = CallCounts()
        self._events, self._executions, self._default_dtype = events, executions, default_dtype
        self._ranks, self._local = ranks, local

    def __iter__(self) -> Iterator[Row]:
        """Yield a row for each work of each distinct call, in order of first execution."""
        for key in self._executions.counts:
            occupancy = self._executions.occupancy.get(key, math.nan)
            yield from (row._replace(occupancy=occupancy) for row in self.of(key))

    def of(self, key: Key) -> Iterator[Row]:
        """Yield the rows of one distinct call."""
        count, times = self._executions.counts[key], self._executions.times[key]
        self.call_counts.called += count
        if key.what == "update":
            op, dtype, *sizes = self._executions.updates[key.name]
            row = TracedOp(str(op), "optimizer", dict(sizes), str(dtype), key.pass_name, "", count=count)  # type: ignore[arg-type]
            yield Row(row, times, alone=True, unit="")
        elif key.what == "device":
            yield Row(replace(self._device_row(key, count), count=count), times, alone=True, unit="")
        else:
            yield from self._call_rows(key, count, times)

    def _call_rows(self, key: Key, count: int, times: NDArray[np.float64]) -> Iterator[Row]:
        name = self._events.names.values[key.name]
        try:
            ops = self._ops(key, name)
        except CallError as error:
            if key.call < 0 and key.what != "unknown":
                self.call_counts.without_shapes += count
            self.call_counts.unsupported[f"{name} ({error})"] += count
            op = TracedOp(name, "other", {}, self._default_dtype, key.pass_name, "", count=count)
            yield Row(op, times, alone=True, unit="")
            return
        parted = self._divided_times(key, ops, times, count)
        alone = len(ops) == 1 or key in self._executions.shares
        for op, own in zip(ops, parted, strict=True):
            yield Row(replace(op, count=count), own, alone, self._executions.units.get(key, ""))

    def _ops(self, key: Key, name: str) -> list[TracedOp]:
        short = name.partition("::")[2]
        if key.what == "unknown":
            raise CallError("no rule")
        if key.call < 0:
            raise CallError("no shapes")
        signature = self._events.calls.values[key.call][0]
        if key.what == "owner_back" or short in (*_CELLS, "scaled_dot_product_attention"):
            row = _owner(short, signature, self._default_dtype, key.pass_name)
            halves = (INPUT_GRADIENT, WEIGHT_GRADIENT) if (row.kind, key.pass_name) == ("rnn", BACKWARD) else ()
            return [replace(row, pass_name=pass_name) for pass_name in halves] or [row]
        _, rule = find_rule(name)
        call, _ = describe(short, signature, self._default_dtype)
        rule = rule or calls.pointwise
        try:
            works = calls.works_of(with_results(call, rule), rule)
        except (KeyError, IndexError, TypeError, ValueError, ZeroDivisionError) as error:
            if isinstance(error, CallError):
                raise
            raise CallError("its arguments do not fit the op, or are not in the trace") from error
        # Without strides, the storage order of factors is unknown.
        hidden = () if signature[2] is not None else ("trans_a", "trans_b")
        sizes = [{name: size for name, size in work.dimensions.items() if name not in hidden} for work in works]
        return [
            TracedOp(name, work.kind, own, work.dtype, work.pass_name or key.pass_name, "")
            for work, own in zip(works, sizes, strict=True)
        ]

    def _divided_times(
        self, key: Key, ops: Sequence[TracedOp], times: NDArray[np.float64], count: int
    ) -> list[NDArray[np.float64]]:
        """Divide a call's times among its works: whole, by the kernels' names, or in equal halves."""
        if len(ops) == 1:
            return [times]
        both = [op for op in ops if op.pass_name in (INPUT_GRADIENT, WEIGHT_GRADIENT)]
        shares = self._executions.shares.get(key)
        if not shares and len(both) == 2:
            self.call_counts.halved += count
            self.call_counts.halves.add(key)
            shares = (0.5, 0.5)
        parts = dict(zip((INPUT_GRADIENT, WEIGHT_GRADIENT), shares or (1.0, 1.0), strict=True))
        unknown = np.full(len(times), math.nan)
        return [parts[op.pass_name] * times if op in both else unknown for op in ops]

    def _device_row(self, key: Key, count: int) -> TracedOp:
        """Describe a kernel outside all calls: a collective, a copy, or one that is known by name only."""
        kernel = self._events.names.values[key.name]
        detail: Mapping[str, Any] = self._events.details.values[key.detail] if key.detail >= 0 else {}
        if is_copy(kernel):
            byte = detail.get("bytes")
            if type(byte) is int and 0 < byte < 1e15:
                read = 0 if kernel.lower().startswith(("memset", "filldevice")) else byte
                sizes: Dimensions = {"numel": byte, "inputs": int(read > 0), "read_byte": read, "write_byte": byte}
                return TracedOp(kernel, "copy", sizes, "uint8", key.pass_name, "")
        elif is_collective(kernel):
            around = self._events.calls.values[key.call][1] if key.call >= 0 else {}
            word, byte, ranks, dtype = message_of([detail, around])
            word, ranks = word or collective_word(kernel), ranks or self._ranks
            if word and byte == byte and ranks:
                link = "system" if self._local and ranks > self._local else "node"
                sizes = {"collective": word, "message_byte": byte, "ranks": ranks, "link": link}
                return TracedOp(kernel.partition("(")[0], "collective", sizes, dtype, key.pass_name, "")
            self.call_counts.unsupported[f"{kernel[:80]} (its message or ranks are not in the trace)"] += count
            return TracedOp(kernel[:80], "other", {}, self._default_dtype, key.pass_name, "")
        self.call_counts.unsupported[f"{kernel[:80]} (a kernel that no call of the trace launched)"] += count
        return TracedOp(kernel[:80], "other", {}, self._default_dtype, key.pass_name, "")


_NEVER = ("other", "input", "optimizer")


def _identity(row: Row) -> dict[str, object]:
    op = row.op
    dtype, engine = op.dtype, op.engine
    if op.kind in ("gemm", "conv") and dtype == "fp32" and row.unit:
        dtype, engine = ("tf32" if row.unit == "tf32" else dtype), "matrix"
    return {
        "kind": op.kind,
        "dtype": dtype,
        "engine": engine,
        "pass_name": "" if op.kind in PASS_FREE_KINDS else op.pass_name,
        "op": "" if op.kind in UNNAMED_KINDS else op.op,
        **op.dimensions,
    }


def _reason_dropped(row: Row) -> str:
    if row.op.kind in _NEVER:
        return "no dimensions to key a timing by"
    if not row.alone:
        return "one time for ops of different work"
    return "" if any(time > 0 for time in row.times) else "no time"


def trace_timings(rows: Iterable[Row]) -> tuple[pd.DataFrame, Mapping[tuple[str, str], int]]:
    """Make one timing of each distinct call.

    Returns the columns of TIMINGS that the trace determines, with median and quartiles of the executions' times
    [s], and by kind and reason the number of rows that became no timing.
    """
    known: dict[tuple[tuple[str, object], ...], dict[str, object]] = {}
    times: dict[tuple[tuple[str, object], ...], list[float]] = {}
    dropped: dict[tuple[str, str], int] = {}
    for row in rows:
        if why := _reason_dropped(row):
            dropped[row.op.kind, why] = dropped.get((row.op.kind, why), 0) + 1
            continue
        identity = _identity(row)
        key = tuple(sorted(identity.items()))
        known.setdefault(key, identity)
        times.setdefault(key, []).extend(time for time in row.times if time > 0 and not math.isnan(time))
    found = []
    for key, identity in known.items():
        low, median, high = np.quantile(times[key], (0.25, 0.5, 0.75)).tolist()
        repeats = float(len(times[key]))
        found.append({**identity, "time_s": median, "p25_s": low, "p75_s": high, "repeats": repeats})
    return pd.DataFrame(found), dropped

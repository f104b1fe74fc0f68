"""Turn nested calls into executions: which calls ran in each step, how often and how long, and updates."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fomkit.frontends.lowering.calls import BACKWARD, FORWARD, UPDATE, Array, TracedOp, arrays_in
from fomkit.frontends.step_spread import is_cold
from fomkit.readers.profilers import kineto_nesting
from fomkit.readers.profilers.kineto_device import DeviceTimes
from fomkit.readers.profilers.kineto_nesting import BACKWARD_PASS, INPUT_PASS, UPDATE_PASS, CallError, Nesting
from fomkit.readers.profilers.kineto_stream import Events, Signature

_CLOSING: Mapping[str, tuple[str, ...]] = {
    "SGD": ("add_", "_foreach_add_", "_fused_sgd_"),
    "Adam": ("addcdiv_", "_foreach_addcdiv_", "_fused_adam_"),
    "AdamW": ("addcdiv_", "_foreach_addcdiv_", "_fused_adamw_"),
}
"""By optimizer, ops whose first argument is the parameters; for SGD's sums, only those by a rate below 0."""


class Entry(NamedTuple):
    """One call of a step: its name without library, and its signature."""

    name: str
    signature: Signature | None


def _parameters(entry: Entry, default_dtype: str) -> list[Array]:
    if entry.signature is None:
        raise CallError("it has no shapes")
    arguments = kineto_nesting.positional_arguments(entry.signature, default_dtype)
    if entry.name.endswith("add_"):
        rate = arguments[2] if len(arguments) > 2 else None
        if not isinstance(rate, int | float) or rate >= 0:
            return []
    return list(arrays_in(arguments[:1]))


def _rule(kind: str, entries: Iterable[Entry]) -> str:
    names = {entry.name for entry in entries}
    if kind == "SGD":
        buffers = [entry.signature[0] for entry in entries if entry.name == "_fused_sgd_" and entry.signature]
        has_buffers = any(isinstance(dims, list) and len(dims) > 2 and dims[2] for dims in buffers)
        return "momentum" if has_buffers or names & {"mul_", "_foreach_mul_"} else "sgd"
    return kind.lower() + ("_amsgrad" if any("maximum" in name for name in names) else "")


def describe_update(annotation: str, impl: str, entries: Sequence[Entry], default_dtype: str) -> TracedOp | None:
    """Describe one step of an optimizer.

    `annotation`: ``Optimizer.step#Adam.step``; `impl`: per_tensor, foreach or fused; `entries`: its calls;
    `default_dtype`: number format of lists of tensors. Returns None if the optimizer's parameters cannot be found
    in its calls; these are then rows themselves.
    """
    kind = annotation.partition("#")[2].partition(".")[0]
    closing = [entry for entry in entries if entry.name in _CLOSING.get(kind, ())]
    try:
        parameters = [array for entry in closing for array in _parameters(entry, default_dtype)]
    except CallError:
        return None
    if not parameters:
        return None
    sizes: dict[str, Any] = {"rule": _rule(kind, entries), "impl": impl}
    sizes |= {"numel": sum(array.numel for array in parameters), "tensors": len(parameters)}
    return TracedOp(f"{kind}.step", "optimizer", sizes, parameters[0].dtype, UPDATE, "")


class Key(NamedTuple):
    """Key by which executions are equal: what they are, name, call (-1 for none), pass, and a detail.

    ``what`` is ``op``, ``unknown``, ``owner_back`` (the backward pass of a row that holds others), ``update``
    (``name`` is then its place among the updates) or ``device`` (a kernel outside all calls; ``name`` is its own,
    ``detail`` its message or bytes, ``call`` that of the call around it).
    """

    what: str
    name: int
    call: int
    pass_name: str
    detail: int = -1


PASSES = (FORWARD, BACKWARD, UPDATE)


@dataclass
class Executions:
    """The executions in the chosen steps.

    `counts`: executions in one step, by key, in order of first execution.
    `times`: times [s] of all executions in the chosen steps, step by step, NaN where unknown.
    `shares`: for a backward convolution the shares of time for its input's and its weight's gradient.
    `units`: for calls whose kernels' names show the arithmetic unit: tf32, or matrix.
    `occupancy`: achieved occupancy [share], weighted by time, of keys whose kernels state one.
    `updates`: identity of each update, by the number in its key.
    `steps`, `similar`: steps in the trace, and the size of the largest group of equal ones.
    `step_s`: time of all executions in each of the chosen steps [s].
    `cold`: place in the trace and time [s] of a first equal step that was left out as a cold start.
    `wall_s`: from begin to end [s] of each of the chosen steps; empty if the trace does not mark both.
    `marked_by`: the kind of mark that defines the steps, as in `step_windows`.
    `input_calls`: calls of the data loader, which are left out.
    """

    counts: dict[Key, int]
    times: dict[Key, NDArray[np.float64]]
    shares: dict[Key, tuple[float, float]]
    units: dict[Key, str]
    occupancy: dict[Key, float]
    updates: list[tuple[object, ...]]
    steps: int
    marked_by: str
    similar: int
    step_s: tuple[float, ...]
    cold: tuple[int, float] | None
    input_calls: int
    wall_s: tuple[float, ...] = ()


def _add_to(sums: dict[Key, list[float]], key: Key, more: Sequence[float]) -> None:
    """Add a pair of values to the sums of a key."""
    sums[key] = [one + other for one, other in zip(sums.get(key, (0.0, 0.0)), more, strict=True)]


class Collector:
    """Collects the executions of all steps.

    `events`, `nesting`, `device`: of one trace.
    `default_dtype`: number format of lists of tensors, which the trace lacks.
    """

    def __init__(self, events: Events, nesting: Nesting, device: DeviceTimes, default_dtype: str) -> None:
        self._events, self._nesting, self._device, self._default_dtype = events, nesting, device, default_dtype
        self._windows, self._marked_by = kineto_nesting.step_windows(events)
        self._on_device = bool(len(events.device_time))
        self._input_calls = 0
        # Executions by step and key, 16 bytes each.
        self._step, self._ran, self._time_s = array("i"), array("i"), array("d")
        self._keys: dict[Key, int] = {}
        self._gradients: dict[Key, list[float]] = {}
        self._units: dict[Key, str] = {}
        self._occupied: dict[Key, list[float]] = {}
        self._updates: dict[tuple[object, ...], int] = {}

    def _step_at(self, at: float) -> int:
        """Return the step that contains a moment; 0 if no step is marked, -1 between steps."""
        return kineto_nesting.step_at(self._windows, at) if self._windows else 0

    def _note(self, step: int, key: Key, time: float) -> None:
        """Record an execution with its time [µs]."""
        self._step.append(step)
        self._ran.append(self._keys.setdefault(key, len(self._keys)))
        self._time_s.append(time / 1e6)

    def _time(self, row: int) -> float:
        """Return a row's time [µs]: that of its kernels, or without a device that of its call."""
        if self._on_device:
            return float(self._device.of_row[row])
        event = self._nesting.rows.event[row]
        return self._events.end[event] - self._events.start[event]

    def _key(self, row: int) -> Key | None:
        rows, events = self._nesting.rows, self._events
        event, code = rows.event[row], rows.pass_code[row]
        if code == INPUT_PASS:
            self._input_calls += 1
            return None
        if not rows.known[row] and self._on_device and np.isnan(self._device.of_row[row]):
            # It launched no kernel that is not counted otherwise.
            return None
        what = "op" if rows.known[row] else "unknown"
        return Key(what, events.name[event], events.call[event], PASSES[code])

    def collect(self) -> Executions:
        """Collect all rows and loose kernels."""
        rows, events = self._nesting.rows, self._events
        backward: dict[tuple[int, int], float] = {}
        updates: dict[int, list[int]] = {}
        for row, event in enumerate(rows.event):
            step = self._step_at(events.start[event])
            if step < 0 or row in self._device.elsewhere:
                continue
            if rows.pass_code[row] == BACKWARD_PASS:
                owner = self._nesting.owners.get(rows.node[row], -1)
                if owner in self._device.elsewhere:
                    continue
                if owner >= 0:
                    time = self._time(row)
                    backward[step, owner] = backward.get((step, owner), 0.0) + (0.0 if np.isnan(time) else time)
                    self._occupy(self._backward_key(owner), [row])
                    continue
            if rows.pass_code[row] == UPDATE_PASS and rows.update[row] >= 0:
                updates.setdefault(rows.update[row], []).append(row)
                continue
            self._add(step, row)
        for update, members in updates.items():
            self._add_update(update, members)
        self._add_loose(backward)
        for (step, owner), time in backward.items():
            self._note(step, self._backward_key(owner), time if time else float("nan"))
        return self._chosen_steps()

    def _backward_key(self, owner: int) -> Key:
        event, events = self._nesting.rows.event[owner], self._events
        return Key("owner_back", events.name[event], events.call[event], BACKWARD)

    def _add(self, step: int, row: int) -> None:
        key = self._key(row)
        if key is None:
            return
        self._note(step, key, self._time(row))
        if (gradients := self._device.gradients.get(row)) is not None:
            _add_to(self._gradients, key, gradients)
        if row in self._device.units:
            self._units[key] = self._device.units[row]
        self._occupy(key, [row])

    def _occupy(self, key: Key, rows: list[int]) -> None:
        for row in rows:
            if (sums := self._device.occupied.get(row)) is not None:
                _add_to(self._occupied, key, sums)

    def _add_update(self, update: int, members: list[int]) -> None:
        events, rows = self._events, self._nesting.rows
        step = self._step_at(events.start[update])
        entries = []
        for row in members:
            event = rows.event[row]
            name = events.names.values[events.name[event]].partition("::")[2]
            call = events.call[event]
            entries.append(Entry(name, events.calls.values[call][0] if call >= 0 else None))
        annotation = events.names.values[events.name[update]]
        described = describe_update(annotation, self._nesting.updates[update], entries, self._default_dtype)
        if described is None:
            for row in members:
                self._add(step, row)
            return
        identity = (described.op, described.dtype, *described.dimensions.items())
        place = self._updates.setdefault(identity, len(self._updates))
        times = [time for row in members if not np.isnan(time := self._time(row))]
        key = Key("update", place, -1, UPDATE)
        self._note(step, key, sum(times) if times else float("nan"))
        self._occupy(key, members)

    def _add_loose(self, backward: dict[tuple[int, int], float]) -> None:
        events = self._events
        for device, host in zip(self._device.loose, self._device.loose_host, strict=True):
            at = events.start[host] if host >= 0 else events.device_start[device]
            step = self._step_at(at)
            if step < 0:
                continue
            call, pass_name, owner = -1, FORWARD, -1
            for one in self._nesting.around(host):
                known = events.calls.values[events.call[one]][1] if events.call[one] >= 0 else {}
                call = events.call[one] if call < 0 and known else call
                name = events.names.values[events.name[one]]
                if name.startswith("autograd::engine::evaluate_function") or events.forward_thread[one] > 0:
                    pass_name = BACKWARD
                    owner = max(owner, self._nesting.owners.get(events.sequence[one], -1))
                elif name.startswith("Optimizer.step#"):
                    pass_name = UPDATE
            if owner >= 0:
                backward[step, owner] = backward.get((step, owner), 0.0) + events.device_time[device]
                continue
            key = Key("device", events.device_name[device], call, pass_name, events.device_detail[device])
            self._note(step, key, events.device_time[device])
            if (percent := events.device_occupancy[device]) > 0:
                time = events.device_time[device]
                _add_to(self._occupied, key, [percent / 100 * time, time])

    def _chosen_steps(self) -> Executions:
        """Choose the largest group of equal steps, the later one of equal groups, without a cold start."""
        step, key = np.frombuffer(self._step, np.int32), np.frombuffer(self._ran, np.int32)
        time = np.frombuffer(self._time_s, np.float64)
        order = np.lexsort((key, step))
        starts = np.flatnonzero(np.diff(step[order], prepend=-1))
        similar: dict[bytes, list[int]] = {}
        for first, last in zip(starts, [*starts[1:], len(order)], strict=True):
            similar.setdefault(key[order[first:last]].tobytes(), []).append(int(step[order[first]]))
        largest = max(similar.values(), key=lambda members: (len(members), members[-1]), default=[])
        taken, known, cold = sorted(largest), np.nan_to_num(time), None
        step_s = tuple(float(known[step == one].sum()) for one in taken)
        if is_cold(step_s):
            cold, taken, step_s = (taken[0], step_s[0]), taken[1:], step_s[1:]
        inside = np.isin(step, taken)
        names = list(self._keys)
        ran, counts = np.unique(key[inside], return_counts=True)
        parts = np.split(time[inside][np.lexsort((step[inside], key[inside]))], np.cumsum(counts)[:-1])
        spans = [self._windows[one] for one in taken if one < len(self._windows)]
        wall_s = tuple((end - start) / 1e6 for start, end in spans)
        return Executions(
            counts={names[one]: int(count) // len(taken) for one, count in zip(ran, counts, strict=True)},
            times={names[one]: part for one, part in zip(ran, parts, strict=True)},
            shares={
                key: (to_input / both, to_weight / both)
                for key, (to_input, to_weight) in self._gradients.items()
                if (both := to_input + to_weight) > 0
            },
            units=self._units,
            occupancy={key: share / time for key, (share, time) in self._occupied.items() if time > 0},
            updates=list(self._updates),
            steps=len(self._windows) or 1,
            marked_by=self._marked_by,
            similar=len(largest),
            step_s=step_s,
            cold=cold,
            input_calls=self._input_calls,
            wall_s=wall_s if np.isfinite(wall_s).all() else (),
        )

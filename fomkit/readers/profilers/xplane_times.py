"""Count and time the executions of each node of a TensorFlow graph, in all and per step."""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fomkit.core.errors import FomkitError, printable
from fomkit.frontends.step_spread import busiest, busiest_notes, cold_note, contention_notes, is_cold, spread_notes
from fomkit.readers.profilers.xplane_file import Event, Line, Named, Plane, open_planes

_FUNCTION = re.compile(r"^(?:(?:Stateful)?PartitionedCall(?:_\d+)?/)+")
"""Prefix of the nodes of a step that another function runs, as Model.fit's does."""
_LOOP = re.compile(r"/(?:body|cond|then|else)/_\d+/")
"""Text that the runtime puts between the name of a loop and the names of its nodes."""
_LIBRARY = re.compile(r"^_Mkl(?:Native|Quantized)?|^_(?=Fused)")
_STEP = "step_num"
_SECONDS = 1e-12
MAX_PS = 10**18
"""Longest event: eleven days."""


@dataclass
class NodeTime:
    """Start [ns] and own time [s] of a node's executions, and their kernel; on a device, those of its kernels."""

    kernel: str
    start: array[int] = field(default_factory=lambda: array("q"))
    own: array[float] = field(default_factory=lambda: array("d"))

    @property
    def count(self) -> int:
        """Executions."""
        return len(self.own)

    @property
    def time_s(self) -> float:
        """Time of all executions [s]."""
        return sum(self.own)

    def in_order(self) -> NDArray[np.float64]:
        """Return the times [s] in the order in which the executions began."""
        return np.array(self.own)[np.argsort(np.array(self.start), kind="stable")]


@dataclass
class PlaneTimes:
    """Times of a graph's nodes in a file of planes.

    `nodes`: by the graph's names, without the functions around the step.
    `host`: executions on the host by the same names; those of ``nodes`` if nothing ran on a device.
    `steps`: steps that are marked (``tf.profiler.experimental.Trace`` with a ``step_num``); 0 if none.
    `device`: the accelerator whose kernels were timed; "" for a CPU.
    `loose_s`: time of kernels that name no node [s].
    `wrong`: number of events left out, by reason.
    `choices`: which of several devices or hosts is used, a line each.
    """

    nodes: dict[str, NodeTime] = field(default_factory=dict)
    host: dict[str, int] = field(default_factory=dict)
    steps: int = 0
    device: str = ""
    seen: int = 0
    loose_s: float = 0.0
    wrong: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    choices: list[str] = field(default_factory=list)

    @property
    def time_s(self) -> float:
        """Time of all nodes [s]."""
        return sum(node.time_s for node in self.nodes.values())

    @property
    def timer(self) -> str:
        """What was timed."""
        return f"kernels on {self.device}" if self.device else "ops on the host"

    def add(self, name: str, kernel: str, start: Iterable[int], own: Iterable[float]) -> None:
        """Add executions of a node, their starts [ns] and times [s]."""
        known = self.nodes.setdefault(name, NodeTime(kernel))
        known.start.extend(start)
        known.own.extend(own)

    def likely_steps(self) -> int:
        """Return the number of steps: the marked ones, else the commonest count of nodes outside loops."""
        if self.steps:
            return self.steps
        counts = Counter(count for name, count in self.host.items() if not in_loop(name))
        return max(counts, key=lambda count: (counts[count], count), default=1)


def plane_notes(times: PlaneTimes) -> Iterator[str]:
    """Yield notes on a file of planes and on what was left out, a line each."""
    if times.wrong:
        listed = ", ".join(f"{count:,} {what}" for what, count in times.wrong.items())
        yield f"partial: of {times.seen:,} events these were left out: {listed}"
    yield from times.choices
    if times.loose_s:
        share = times.loose_s / times.time_s
        yield f"partial: {share:.1%} of the time is of kernels that name no op of TensorFlow"
    yield from (f"message of the profiler: {printable(one)}" for one in times.notes)


def plain_name(name: str) -> str:
    """Return the name of a node in the step's graph.

    >>> plain_name("StatefulPartitionedCall/lstm/while/body/_1/lstm/while/MatMul")
    'lstm/while/body/lstm/while/MatMul'
    """
    return _LOOP.sub(lambda found: f"{found[0].rpartition('/_')[0]}/", _FUNCTION.sub("", name))


def in_loop(name: str) -> bool:
    """Return whether a loop or a branch runs a node, given its plain name."""
    return any(mark in name for mark in ("/body/", "/cond/", "/then/", "/else/"))


def op_of_kernel(kernel: str) -> str:
    """Return the type of op that a kernel runs, without the prefix of a library.

    >>> op_of_kernel("_MklMatMul"), op_of_kernel("_MklNativeFusedMatMul"), op_of_kernel("BiasAdd")
    ('MatMul', 'FusedMatMul', 'BiasAdd')
    """
    return _LIBRARY.sub("", kernel)


def _node_of(kind: Named) -> tuple[str, str]:
    """Return node and kernel of a host's event; "" and "" if it is no node."""
    node, separator, kernel = kind.name.rpartition(":")
    return (node, kernel) if separator and node and kernel and kernel == kind.display else ("", "")


class _Runs:
    """The events of one thread that are nodes, with their own times: without the events inside them."""

    def __init__(self) -> None:
        self._kind, self._start, self._end = array("q"), array("q"), array("q")

    def add(self, kind: int, start: int, duration: int) -> None:
        self._kind.append(kind)
        self._start.append(start)
        self._end.append(start + duration)

    def by_kind(self) -> Iterator[tuple[int, list[int], list[int]]]:
        """Yield the number of each kind, and start and own time of its events [ps]."""
        if not len(self._kind):
            return
        kind, own = self._own_times()
        order = np.argsort(kind, kind="stable")
        numbers, first = np.unique(kind[order], return_index=True)
        start = np.frombuffer(self._start, np.int64)
        for number, places in zip(numbers.tolist(), np.split(order, first[1:]), strict=True):
            yield number, start[places].tolist(), own[places].tolist()

    def _own_times(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the number of each event's kind and its own time [ps]."""
        kind, start, end = (np.frombuffer(one, np.int64) for one in (self._kind, self._start, self._end))
        own = end - start
        order = np.lexsort((-end, start))
        if not np.any(start[order][1:] < np.maximum.accumulate(end[order])[:-1]):
            return kind, own
        own, stack = own.copy(), list[int]()
        for place in order.tolist():
            while stack and start[place] >= end[stack[-1]]:
                stack.pop()
            if stack:
                own[stack[-1]] -= min(end[place], end[stack[-1]]) - start[place]
            stack.append(place)
        return kind, np.maximum(own, 0)


def _usable_events(plane: Plane, line: Line, times: PlaneTimes) -> Iterator[tuple[Event, Named]]:
    """Yield the events of a line that have a name and a possible time; count all of them, and what is wrong."""
    for event in line.events:
        times.seen += 1
        if event.duration_ps < 0 or event.offset_ps < 0:
            times.wrong["of negative time"] += 1
        elif event.duration_ps > MAX_PS or event.offset_ps > MAX_PS:
            times.wrong["of more than eleven days"] += 1
        elif (kind := plane.kinds.get(event.metadata_id)) is None:
            times.wrong["without a name"] += 1
        else:
            yield event, kind


def _read_host(plane: Plane, times: PlaneTimes) -> None:
    nodes = {number: found for number, kind in plane.kinds.items() if (found := _node_of(kind))[0]}
    counts_steps = _STEP in plane.details.values()
    marked: set[tuple[str, float]] = set()
    for line in plane.lines():
        runs = _Runs()
        for event, kind in _usable_events(plane, line, times):
            if event.metadata_id in nodes:
                runs.add(event.metadata_id, event.offset_ps, event.duration_ps)
            elif counts_steps and not kind.display:
                step = plane.stats(event.stats).get(_STEP)
                if isinstance(step, float):
                    marked.add((kind.name, step))
        for number, starts, own in runs.by_kind():
            node, kernel = nodes[number]
            at_ns = (line.start + start // 1000 for start in starts)
            times.add(plain_name(node), kernel, at_ns, (one * _SECONDS for one in own))
    named = Counter(name for name, _ in marked)
    times.steps = max(times.steps, *named.values(), 0)


_SUMMARIES = ("Steps", "XLA Modules", "TensorFlow", "Framework", "Source", "Launch")
"""Prefixes of a device's lines that only summarise what ran there."""


def _read_device(plane: Plane, times: PlaneTimes) -> None:
    common: dict[int, tuple[str, str]] = {}
    for line in (one for one in plane.lines() if not one.name.startswith(_SUMMARIES)):
        for event, kind in _usable_events(plane, line, times):
            if event.metadata_id not in common:
                common[event.metadata_id] = _node_on_device(plane, kind.stats)
            node, op = common[event.metadata_id]
            if not node and event.stats:
                node, op = _node_on_device(plane, event.stats)
            time_s, at_ns = event.duration_ps * _SECONDS, line.start + event.offset_ps // 1000
            if node:
                times.add(plain_name(node), op or kind.name[:80], (at_ns,), (time_s,))
            else:
                times.loose_s += time_s
                times.add(f":{kind.name[:80]}", kind.name[:80], (at_ns,), (time_s,))


def _node_on_device(plane: Plane, encoded: Sequence[bytes]) -> tuple[str, str]:
    """Return node and op that a kernel's details name: TensorFlow's op, else XLA's instruction."""
    found = {name: str(value) for name, value in plane.stats(encoded).items()}
    node, separator, op = found.get("tf_op", "").rpartition(":")
    if separator and node:
        return node, op
    return found.get("tf_op") or found.get("hlo_op", ""), found.get("hlo_category", "")


def _new_plane(known: dict[str, PlaneTimes], name: str) -> PlaneTimes:
    """Begin a plane; planes of the same name, as from several machines, are kept apart by a number."""
    same = sum(one.partition(" #")[0] == name for one in known)
    return known.setdefault(f"{name} #{same + 1}" if same else name, PlaneTimes())


def _busiest_planes(hosts: Mapping[str, PlaneTimes], devices: Mapping[str, PlaneTimes]) -> PlaneTimes:
    """Return the times of the busiest host and the busiest device: other planes are the same step again."""
    planes = [*hosts.values(), *devices.values()]
    times = PlaneTimes(
        seen=sum(plane.seen for plane in planes), wrong=sum((plane.wrong for plane in planes), Counter())
    )
    for what, known in (("hosts", hosts), ("devices", devices)):
        spent = {name: one.time_s for name, one in known.items() if one.nodes}
        if not spent:
            continue
        name = busiest(spent)
        times.choices += busiest_notes(what, spent, name)
        found = known[name]
        times.nodes, times.loose_s = found.nodes, found.loose_s
        if what == "hosts":
            times.host = {node: time.count for node, time in found.nodes.items()}
        else:
            times.device = name
    times.steps = max((host.steps for host in hosts.values()), default=0)
    return times


def read_plane_times(path: Path) -> PlaneTimes:
    """Read the times of nodes from a file of planes."""
    hosts: dict[str, PlaneTimes] = {}
    devices: dict[str, PlaneTimes] = {}
    with open_planes(path) as found:
        for plane in found.planes():
            if plane.name.startswith("/host:CPU"):
                _read_host(plane, _new_plane(hosts, plane.name.removeprefix("/")))
            elif plane.name.startswith("/device:") and plane.encoded:
                _read_device(plane, _new_plane(devices, plane.name.removeprefix("/device:")))
        notes = [*found.notes]
    times = _busiest_planes(hosts, devices)
    times.notes = notes
    if not times.nodes:
        raise FomkitError(
            str(path),
            f"has no op among its {times.seen:,} events. Record with host_tracer_level=2: "
            "tf.profiler.experimental.start(folder, options=tf.profiler.experimental.ProfilerOptions("
            "host_tracer_level=2)).",
        )
    return times


@dataclass(frozen=True)
class PlaneSteps:
    """The steps of a file of planes.

    `step_s`: time [s] in each step that is used, of the nodes that ran equally often in all.
    `cold_s`: the same of a first step that is left out.
    """

    steps: int
    step_s: tuple[float, ...]
    cold_s: float | None = None

    def step_time_s(self, time: NodeTime, count: float = 0.0) -> float:
        """Return a node's time in a step [s]: the median over steps if its executions fill them, else the mean.

        `count`: executions in a step of a node that was not recorded each time: the mean then counts for all.
        """
        if (by_step := _by_step(time, self.steps)) is not None and (not count or count * self.steps == time.count):
            return float(np.median(by_step[self.cold_s is not None :]))
        return time.time_s / time.count * (count or time.count / self.steps)


def _by_step(time: NodeTime, steps: int) -> NDArray[np.float64] | None:
    """Divide a node's time [s] among steps by the order of its executions; None if they do not fill the steps."""
    return None if time.count % steps else np.asarray(time.in_order().reshape(steps, -1).sum(axis=1))


def steps_of(times: PlaneTimes, steps: int) -> PlaneSteps:
    """Return the time of each step; ``steps`` is their number."""
    found = [node for time in times.nodes.values() if (node := _by_step(time, steps)) is not None]
    whole = tuple(np.sum(found, axis=0).tolist()) if found else ()
    return PlaneSteps(steps, whole[1:], whole[0]) if is_cold(whole) else PlaneSteps(steps, whole)


def step_notes(steps: PlaneSteps, timer: str, nodes: Iterable[NodeTime]) -> Iterator[str]:
    """Yield notes on which steps are used, how much they differ, and whether other work ran, a line each."""
    if steps.cold_s is not None:
        yield cold_note(f"step 1 of {steps.steps}", steps.cold_s, steps.step_s)
    yield from spread_notes(timer, steps.step_s)
    yield from contention_notes(node.in_order() for node in nodes)

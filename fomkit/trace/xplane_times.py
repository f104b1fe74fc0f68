"""How often and how long each node of a TensorFlow graph ran, as a file of planes tells it."""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fomkit.errors import FomkitError, printable
from fomkit.trace.xplane_file import Named, Plane, Span, open_planes

_FUNCTION = re.compile(r"^(?:(?:Stateful)?PartitionedCall(?:_\d+)?/)+")
"""What stands before the nodes of a step that another function runs, as Model.fit's does."""
_LOOP = re.compile(r"/(?:body|cond|then|else)/_\d+/")
"""What the runtime puts between the name of a loop and the names of the nodes that it runs."""
_LIBRARY = re.compile(r"^_Mkl(?:Native|Quantized)?|^_(?=Fused)")
_STEP = "step_num"
_SECONDS = 1e-12
MAX_PS = 10**18
"""Longest event: eleven days."""


@dataclass
class NodeTime:
    """Executions of a node, their time [s] and the kernel that ran; of a device, executions are its kernels."""

    kernel: str
    count: int = 0
    time_s: float = 0.0


@dataclass
class PlaneTimes:
    """What a file of planes says of a graph's nodes.

    Attributes
    ----------
    nodes : dict
        By name as the graph has it, without the functions around the step.
    host : dict
        Executions on the host by the same names; those of ``nodes`` where nothing ran on a device.
    steps : int
        Steps that are marked (``tf.profiler.experimental.Trace`` with a ``step_num``); 0 where none.
    device : str
        The accelerator whose kernels the times are of; "" for a CPU.
    seen : int
        Events in the file.
    loose_s : float
        Time of kernels that name no node [s].
    wrong : Counter
        Events that were left out, by what is wrong with them.
    said : list of str
        Errors and warnings of the profiler.
    """

    nodes: dict[str, NodeTime] = field(default_factory=dict)
    host: dict[str, int] = field(default_factory=dict)
    steps: int = 0
    device: str = ""
    seen: int = 0
    loose_s: float = 0.0
    wrong: Counter[str] = field(default_factory=Counter)
    said: list[str] = field(default_factory=list)

    @property
    def timer(self) -> str:
        """What the times are of."""
        return f"kernels on {self.device}" if self.device else "ops on the host"

    def add(self, name: str, kernel: str, time_s: float, count: int = 1) -> None:
        """Add executions of a node."""
        known = self.nodes.setdefault(name, NodeTime(kernel))
        known.count += count
        known.time_s += time_s

    def likely_steps(self) -> int:
        """Count the steps: as they are marked, else as often as most nodes outside loops ran."""
        if self.steps:
            return self.steps
        counts = Counter(count for name, count in self.host.items() if not in_loop(name))
        return max(counts, key=lambda count: (counts[count], count), default=1)


def say_read(times: PlaneTimes) -> Iterator[str]:
    """Tell what a file of planes is and what was left out of it, a line each."""
    if times.wrong:
        listed = ", ".join(f"{count:,} {what}" for what, count in times.wrong.items())
        yield f"partial: of {times.seen:,} events were left out: {listed}"
    yield f"traced_time_s: mean time of {times.timer}, under the profiler"
    if times.loose_s:
        whole = sum(node.time_s for node in times.nodes.values())
        yield f"partial: {times.loose_s / whole:.1%} of the time is of kernels that name no op of TensorFlow"
    yield from (f"the profiler said: {printable(one)}" for one in times.said)


def plain_name(name: str) -> str:
    """Give the name of a node as the step's graph has it.

    Examples
    --------
    >>> plain_name("StatefulPartitionedCall/lstm/while/body/_1/lstm/while/MatMul")
    'lstm/while/body/lstm/while/MatMul'
    """
    return _LOOP.sub(lambda found: f"{found[0].rpartition('/_')[0]}/", _FUNCTION.sub("", name))


def in_loop(name: str) -> bool:
    """Tell whether a node, by its plain name, is one that a loop or a branch runs."""
    return any(mark in name for mark in ("/body/", "/cond/", "/then/", "/else/"))


def op_of_kernel(kernel: str) -> str:
    """Give the type of op that a kernel runs, without the library that it is of.

    Examples
    --------
    >>> op_of_kernel("_MklMatMul"), op_of_kernel("_MklNativeFusedMatMul"), op_of_kernel("BiasAdd")
    ('MatMul', 'FusedMatMul', 'BiasAdd')
    """
    return _LIBRARY.sub("", kernel)


def _node_of(kind: Named) -> tuple[str, str]:
    """Give node and kernel of a host's event; two times "" where it is none."""
    node, separator, kernel = kind.name.rpartition(":")
    return (node, kernel) if separator and node and kernel and kernel == kind.display else ("", "")


class _Line:
    """The events of one thread that are nodes, with their own times: those inside them taken out."""

    def __init__(self, times: PlaneTimes) -> None:
        self._times = times
        self._kind, self._start, self._end = array("q"), array("q"), array("q")

    def add(self, kind: int, start: int, duration: int) -> None:
        self._kind.append(kind)
        self._start.append(start)
        self._end.append(start + duration)

    def sums(self) -> Iterator[tuple[int, int, float]]:
        """Give the number of each kind, its events and their own time together [ps]."""
        kind, own = self._own_times()
        numbers, places = np.unique(kind, return_inverse=True)
        counts, together = np.bincount(places), np.bincount(places, own)
        yield from zip(numbers.tolist(), counts.tolist(), together.tolist(), strict=True)

    def _own_times(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Give the number of each event's kind and its own time [ps]."""
        if not len(self._kind):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
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


def _usable(times: PlaneTimes, start: int, duration: int) -> bool:
    times.seen += 1
    if duration < 0 or start < 0:
        times.wrong["of negative time"] += 1
        return False
    if duration > MAX_PS or start > MAX_PS:
        times.wrong["of more than eleven days"] += 1
        return False
    return True


def _read_host(plane: Plane, times: PlaneTimes) -> None:
    nodes = {number: found for number, kind in plane.kinds.items() if (found := _node_of(kind))[0]}
    counts_steps = _STEP in plane.details.values()
    marked: set[tuple[str, float]] = set()
    for at in plane.lines:
        line = _Line(times)
        for event in plane.events(at):
            if not _usable(times, event.start, event.duration):
                continue
            if event.kind in nodes:
                line.add(event.kind, event.start, event.duration)
            elif event.kind not in plane.kinds:
                times.wrong["without a name"] += 1
            elif counts_steps and event.stats and not plane.kinds[event.kind].display:
                step = plane.stats(event.stats).get(_STEP)
                if isinstance(step, float):
                    marked.add((plane.kinds[event.kind].name, step))
        for number, count, own in line.sums():
            node, kernel = nodes[number]
            times.add(plain_name(node), kernel, own * _SECONDS, count)
    named = Counter(name for name, _ in marked)
    times.steps = max(times.steps, *named.values(), 0)


def _is_stream(plane: Plane, line: Span) -> bool:
    """Tell whether a device's line is what ran there, and no summary of it."""
    return not plane.line_name(line).startswith(
        ("Steps", "XLA Modules", "TensorFlow", "Framework", "Source", "Launch")
    )


def _read_device(plane: Plane, times: PlaneTimes) -> None:
    common: dict[int, tuple[str, str]] = {}
    for at in plane.lines:
        if not _is_stream(plane, at):
            continue
        for event in plane.events(at):
            kind = plane.kinds.get(event.kind)
            if not _usable(times, event.start, event.duration):
                continue
            if kind is None:
                times.wrong["without a name"] += 1
                continue
            if event.kind not in common:
                common[event.kind] = _node_on_device(plane, kind.stats)
            node, op = common[event.kind]
            if not node and event.stats:
                node, op = _node_on_device(plane, event.stats)
            time_s = event.duration * _SECONDS
            if node:
                times.add(plain_name(node), op or kind.name[:80], time_s)
            else:
                times.loose_s += time_s
                times.add(f":{kind.name[:80]}", kind.name[:80], time_s)


def _node_on_device(plane: Plane, spans: tuple[Span, ...]) -> tuple[str, str]:
    """Give node and op that a kernel's details name: TensorFlow's op, else XLA's instruction."""
    told = plane.stats(spans)
    node, separator, op = str(told.get("tf_op", "")).rpartition(":")
    if separator and node:
        return node, op
    return str(told.get("tf_op", "") or told.get("hlo_op", "")), str(told.get("hlo_category", ""))


def read_plane_times(path: Path) -> PlaneTimes:
    """Read what ran from a file of planes.

    Raises
    ------
    FomkitError
        When the file is damaged or cut off, or no node ran in it.
    """
    times, on_device = PlaneTimes(), PlaneTimes()
    with open_planes(path) as found:
        for plane in found.planes():
            if plane.name.startswith("/host:CPU"):
                _read_host(plane, times)
            elif plane.name.startswith("/device:") and plane.lines:
                _read_device(plane, on_device)
                on_device.device = on_device.device or plane.name.removeprefix("/device:")
        times.said = [*found.said]
    times.seen += on_device.seen
    times.wrong += on_device.wrong
    times.host = {name: node.count for name, node in times.nodes.items()}
    if on_device.nodes:
        times.nodes, times.device, times.loose_s = on_device.nodes, on_device.device, on_device.loose_s
    if not times.nodes:
        raise FomkitError(
            str(path),
            f"has no op among its {times.seen:,} events. Record with host_tracer_level=2: "
            "tf.profiler.experimental.start(folder, options=tf.profiler.experimental.ProfilerOptions("
            "host_tracer_level=2)).",
        )
    return times

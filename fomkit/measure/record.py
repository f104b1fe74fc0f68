"""The machine profile of a measurement: rates that were reached here, timings, and what else was seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fomkit.hardware import Device, Fact, Machine, Peak
from fomkit.measure.journal import Journal
from fomkit.measure.ops import Cells
from fomkit.measure.power import energy_of, missed_of
from fomkit.measure.timed import in_step, noise_of, timings_table, without_fresh
from fomkit.spans import DEFAULT_LEVEL, Span, at_level
from fomkit.timings.measure_facts import HostFacts
from fomkit.timings.measure_statistics import MEDIAN_LEVEL, summarise

DRIFTED = 0.05
"""Change of the reference op over a run, as a share, from which the profile warns."""


@dataclass(frozen=True)
class Subject:
    """What is measured.

    Attributes
    ----------
    name, device : str
        Of the profile; ``cpu`` or ``cuda``.
    host : HostFacts
    facts : mapping
        What the process that times told of itself.
    framework : str
        The library that runs the ops.
    """

    name: str
    device: str
    host: HostFacts
    facts: Mapping[str, Any]
    framework: str = "torch"

    @property
    def library(self) -> dict[str, str]:
        """Library and version, as columns of timings."""
        return {"library": self.framework, "library_version": str(self.facts["library_version"])}

    @property
    def title(self) -> str:
        """The device by its own name, and how many threads of it were used."""
        if self.device == "cuda":
            return str(self.facts["device_name"])
        threads = int(self.facts["threads"])
        return f"{self.host.model or 'CPU'}, {threads} thread{'s' if threads > 1 else ''}"

    @property
    def near_byte(self) -> float:
        """Bytes of operands that the op before will have left in a cache of the core's own; on a GPU in the L2."""
        if self.device == "cuda":
            return float(self.facts.get("cache_byte") or 0.0) / 4
        return self.host.cache_byte.get(2, 0.0)

    def source(self) -> str:
        """Say where a measured figure comes from."""
        return f"measured here, {self.framework} {self.facts['library_version']}"


def rate_fact(work: float, answer: Mapping[str, Any], source: str) -> Fact:
    """Make a rate [1/s] of work and repeats, with the interval of the median."""
    found = summarise(in_step(answer))
    slow, fast = found.high_s or max(in_step(answer)), found.low_s or min(in_step(answer))
    time = at_level(Span(found.median_s, fast, slow, MEDIAN_LEVEL), DEFAULT_LEVEL)
    return Fact(work / time.value, work / time.high, work / time.low, "measured", source)


def _peaks(journal: Journal, source: str) -> tuple[Peak, ...]:
    """Give the best rate that any product reached, for each number format and engine."""
    best: dict[tuple[str, str], Fact] = {}
    for cells, answer in journal.answers.values():
        if cells["kind"] != "gemm" or "reason" in answer:
            continue
        flop = 2.0
        for name in ("b", "m", "n", "k"):
            flop *= float(cells[name])
        fact = rate_fact(flop, answer, source)
        pair = cells["dtype"], cells["engine"]
        if pair not in best or fact.value > best[pair].value:
            best[pair] = fact
    return tuple(Peak(dtype, engine, rate) for (dtype, engine), rate in best.items())


def _probe(journal: Journal, name: str) -> dict[str, Any] | None:
    found = journal.marked(name)
    return found[-1] if found else None


def _exact(value: float, source: str) -> Fact:
    return Fact(value, value, value, "measured", source)


def device_of(journal: Journal, subject: Subject) -> Device:
    """Make the device: peak rates and bandwidth as reached, capacity as told, the launch cost as timed."""
    memory, host = _probe(journal, "bandwidth"), _probe(journal, "host")
    fresh, way = _probe(journal, "allocator"), _probe(journal, "from_host")
    capacity = subject.facts.get("memory_byte") or subject.host.memory_byte
    source = subject.source()
    return Device(
        peaks=_peaks(journal, source),
        capacity_byte=Fact(capacity, capacity, capacity, "measured", source) if capacity else None,
        byte_per_s=rate_fact(memory["byte"], memory["answer"], source) if memory else None,
        launch_s=Fact(host["op_s"], host["op_s"], host["op_s"], "measured", source) if host else None,
        fresh_byte_per_s=_exact(1 / fresh["s_per_byte"], source) if fresh else None,
        fresh_above_byte=fresh["above_byte"] if fresh else None,
        host_byte_per_s=_exact(way["pinned"], f"{source}; pageable {way['pageable']:.3g} byte/s") if way else None,
    )


def _drift(journal: Journal) -> list[str]:
    times = [summarise(in_step(one["answer"])).median_s for one in journal.marked("reference")]
    if len(times) < 2:
        return ["drift: the reference op ran once only, so nothing is known of it"]
    change = max(times) / min(times) - 1
    verdict = "steady" if change <= DRIFTED else "not steady: times are less sure than their intervals say"
    least, most = min(times), max(times)
    return [f"drift: the reference op took {least:.4g} to {most:.4g} s in {len(times)} rounds, {verdict}"]


def _skipped(journal: Journal) -> list[str]:
    """Say what was not timed and why, one line for each reason and kind."""
    groups: dict[tuple[str, str, str], list[Cells]] = {}
    for cells, answer in journal.answers.values():
        if "reason" in answer:
            groups.setdefault((cells["kind"], cells["dtype"], str(answer["reason"])), []).append(cells)
    return [f"not timed: {len(ops)} {kind} of {dtype}, {reason}" for (kind, dtype, reason), ops in groups.items()]


def notes_of(journal: Journal, subject: Subject) -> tuple[str, ...]:
    """Write what a reader of the profile should know: the machine, the noise, drift, load and what is missing."""
    count, noisy, width = noise_of([answer for _, answer in journal.answers.values()])
    clock = "process time of" if subject.device == "cpu" and subject.facts["threads"] == 1 else "wall time with"
    how = "CUDA events" if subject.device == "cuda" else f"{clock} {subject.facts['threads']} thread(s)"
    said = [f"{subject.facts['about']}; {how}", *subject.host.lines()]
    said.append(
        f"noise: of {count} timings the median is known to ±{width:.1%} in the middle; "
        f"{noisy} are wider than ±10 %, their intervals say so"
    )
    said += _drift(journal)
    loads = [one["load"] for one in journal.marked("moment") if one.get("load") is not None]
    if loads:
        said.append(f"load while measuring: {min(loads):.2f} to {max(loads):.2f} (/proc/loadavg), ours is about 1")
    counts = [one["throttled"] for one in journal.marked("moment") if one.get("throttled") is not None]
    said.append(
        f"throttling: {counts[-1] - counts[0]} more events while measuring"
        if counts
        else "throttling: not readable"
    )
    return (*said, *(str(one["said"]) for one in journal.marked("said")), *missed_of(journal), *_skipped(journal))


def _added_s(journal: Journal, subject: Subject) -> float:
    """Give what the framework takes for each op of a step [s], where the op has to wait for it."""
    host = _probe(journal, "host")
    return float(host["host_s"]) if host and subject.device == "cpu" else 0.0


def machine_of(journal: Journal, subject: Subject) -> Machine:
    """Make the machine of what was measured so far."""
    device = device_of(journal, subject)
    timings = timings_table(journal.answers.values(), subject.library, _added_s(journal, subject))
    return Machine(
        name=subject.name,
        title=subject.title,
        party="lab",
        device=device,
        timings=without_fresh(timings, device),
        node_devices=1,
        notes=notes_of(journal, subject),
        energy=energy_of(journal, subject.device),
    )

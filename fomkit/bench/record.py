"""Make a machine profile from a measurement: facts from the machine's own files, rates, timings and notes.

`read_facts` and `read_moment` read the machine's state, `machine_of` makes the machine from a journal,
`base_machine` and `write_machine` load and save the profile.
"""

from __future__ import annotations

import os
import platform
import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from math import prod
from pathlib import Path
from typing import Any

from fomkit import __version__
from fomkit.bench.journal import Journal, in_step, noise_of, timings_table, without_fresh
from fomkit.bench.power import energy_of, missed_of
from fomkit.core.errors import FomkitError
from fomkit.core.interval import DEFAULT_LEVEL, Span, at_level
from fomkit.core.machine import Device, Fact, Machine, Peak
from fomkit.core.units import count_text
from fomkit.harness.torch.cases import MEDIAN_LEVEL, processor_clock, summarise
from fomkit.ops.tables import empty_table
from fomkit.profiles.evidence import write_fits
from fomkit.profiles.machine_record import save_machine
from fomkit.profiles.machines import load_machine


def base_machine(output: Path, name: str, title: str, *, add: bool) -> Machine:
    """Return the machine that a measurement adds to: with ``add`` the one at ``output``, else an empty one."""
    if not add:
        name = name or output.name.removesuffix(".yaml")
        return Machine(name, title, "lab", Device(), empty_table("TIMINGS"))
    if not output.is_file():
        raise FomkitError(str(output), "is not there, so nothing can be added to it. Leave --add out.")
    return load_machine(output)


def write_machine(machine: Machine, output: Path, notes: Iterable[str]) -> list[Path]:
    """Write a machine with further notes, refit timings without stored fits, and return the files written."""
    machine = replace(machine, notes=tuple(dict.fromkeys((*machine.notes, *notes))))
    files = save_machine(machine, output)
    written = load_machine(output)
    if not written.fits:
        files += write_fits(written, output)
    return files


_CPU = "sys/devices/system/cpu"
_SIZES: Mapping[str, float] = {"K": 2.0**10, "M": 2.0**20, "G": 2.0**10 * 2.0**20, "": 1.0}
BF16_FLAGS = ("avx512_bf16", "amx_bf16", "bf16")
"""Flags in /proc/cpuinfo of processors that multiply bf16 numbers."""
MATRIX_FLAGS = ("amx_bf16", "amx_tile")
"""Flags of processors that multiply them in a matrix engine."""


@dataclass(frozen=True)
class HostFacts:
    """Facts of the machine that runs Python; None or empty if a file is missing or does not state them.

    `cores`: processors listed in /proc/cpuinfo.
    `cache_byte`: size of the data caches, by level.
    `memory_byte`: memory available to this process: the machine's, or less if its control group has a limit.
    `clock_hz`: present clock of each core; empty if not readable.
    """

    model: str = ""
    cores: int | None = None
    flags: frozenset[str] = frozenset()
    cache_byte: Mapping[int, float] = field(default_factory=dict)
    memory_byte: float | None = None
    clock_hz: tuple[float, ...] = ()
    clock_source: str = ""
    governor: str = ""
    kernel: str = ""
    hypervisor: bool = False

    @property
    def last_cache_byte(self) -> float:
        """The largest cache [byte]; 0 if none is known."""
        return max(self.cache_byte.values(), default=0.0)

    def lines(self) -> list[str]:
        """Return the facts as sentences, each with its source."""
        messages = []
        if self.cores:
            guest = ", guest of a hypervisor" if self.hypervisor else ""
            name = self.model or "processor without a name"
            messages.append(f"{name}, {count_text(self.cores, 'core')}{guest} (/proc/cpuinfo)")
        if self.cache_byte:
            levels = ", ".join(f"L{level} {size / 2**20:g} MiB" for level, size in sorted(self.cache_byte.items()))
            messages.append(f"data caches: {levels} (/sys/devices/system/cpu)")
        else:
            messages.append("data caches: not readable here")
        if self.clock_hz:
            low, high = (f"{value / 1e9:.2f}" for value in (min(self.clock_hz), max(self.clock_hz)))
            governor = f", governor {self.governor}" if self.governor else ""
            messages.append(f"clock before the run: {low} to {high} GHz ({self.clock_source}){governor}")
        else:
            messages.append("clock: not readable here")
        return messages


def _read_if_there(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _caches(root: Path) -> dict[int, float]:
    found: dict[int, float] = {}
    for folder in sorted((root / _CPU / "cpu0/cache").glob("index*")):
        size = re.fullmatch(r"(\d+)([KMG]?)", _read_if_there(folder / "size"))
        level = _read_if_there(folder / "level")
        if size and level.isdigit() and _read_if_there(folder / "type") != "Instruction":
            found[int(level)] = float(size[1]) * _SIZES[size[2]]
    return found


def _memory_byte(root: Path) -> float | None:
    stated = re.search(r"^MemTotal:\s*(\d+) kB", _read_if_there(root / "proc/meminfo"), re.MULTILINE)
    limits = [float(stated[1]) * _SIZES["K"]] if stated else []
    reported = map(
        _read_if_there, (root / "sys/fs/cgroup/memory.max", root / "sys/fs/cgroup/memory/memory.limit_in_bytes")
    )
    limits += [float(limit) for limit in reported if limit.isdigit()]
    return min(limits, default=None)


def _clocks_of_cores(root: Path, cpuinfo: str) -> tuple[tuple[float, ...], str]:
    files = sorted((root / _CPU).glob("cpu[0-9]*/cpufreq/scaling_cur_freq"))
    if clocks := tuple(float(text) * 1e3 for text in map(_read_if_there, files) if text.isdigit()):
        return clocks, "/sys/devices/system/cpu"
    reported = re.findall(r"^cpu MHz\s*:\s*([\d.]+)", cpuinfo, re.MULTILINE)
    return tuple(float(text) * 1e6 for text in reported), "/proc/cpuinfo" if reported else ""


def read_facts(root: Path = Path("/")) -> HostFacts:
    """Read the facts that the operating system states in ``proc`` and ``sys`` below ``root``."""
    cpuinfo = _read_if_there(root / "proc/cpuinfo")

    def reported(name: str) -> str:
        found = re.search(rf"^{name}\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
        return found[1].strip() if found else ""

    flags = frozenset((reported("flags") or reported("Features")).split())
    clocks, source = _clocks_of_cores(root, cpuinfo)
    return HostFacts(
        model=reported("model name") or reported("Hardware"),
        cores=len(re.findall(r"^processor\s*:", cpuinfo, re.MULTILINE)) or None,
        flags=flags,
        cache_byte=_caches(root),
        memory_byte=_memory_byte(root),
        clock_hz=clocks,
        clock_source=source,
        governor=_read_if_there(root / _CPU / "cpu0/cpufreq/scaling_governor"),
        kernel=_read_if_there(root / "proc/sys/kernel/osrelease"),
        hypervisor="hypervisor" in flags,
    )


@dataclass(frozen=True)
class Moment:
    """Conditions that change during a measurement: the load and the count of thermal throttling.

    `load`: number of processes running or waiting for a core, mean of the last minute.
    `throttled`: throttling events of all cores since the machine started.
    """

    load: float | None
    throttled: int | None


def read_moment(root: Path = Path("/")) -> Moment:
    """Read the load and the counts of throttling; None if a file is missing."""
    words = _read_if_there(root / "proc/loadavg").split()
    counts = [
        int(text)
        for path in sorted((root / _CPU).glob("cpu[0-9]*/thermal_throttle/core_throttle_count"))
        if (text := _read_if_there(path)).isdigit()
    ]
    return Moment(float(words[0]) if words else None, sum(counts) if counts else None)


MAX_DRIFT = 0.05
"""Relative change of the reference op over a run above which the profile warns."""


@dataclass(frozen=True)
class Subject:
    """The machine and device under measurement.

    `name`: name of the profile; `device`: ``cpu`` or ``cuda``.
    `facts`: facts reported by the timing process.
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
        """Name of the GPU, or name of the CPU and the number of threads used."""
        if self.device == "cuda":
            return str(self.facts["device_name"])
        return f"{self.host.model or 'CPU'}, {count_text(int(self.facts['threads']), 'thread')}"

    @property
    def near_byte(self) -> float:
        """Operand bytes that the previous op leaves in cache: a core's own L2, or a quarter of a GPU's cache."""
        if self.device == "cuda":
            return float(self.facts.get("cache_byte") or 0.0) / 4
        return self.host.cache_byte.get(2, 0.0)


def median_span(times: Sequence[float]) -> Span:
    """Return the median of repeats [s] with its 80 % interval; the range of fewer than 6 counts as 95 %."""
    found = summarise(times)
    low, high = found.low_s or min(times), found.high_s or max(times)
    return at_level(Span(found.median_s, low, high, MEDIAN_LEVEL), DEFAULT_LEVEL)


def rate_fact(work: float, answer: Mapping[str, Any], source: str) -> Fact:
    """Compute a rate [1/s] from work and repeats, with the interval of the median."""
    time = median_span(in_step(answer))
    return Fact(work / time.value, work / time.high, work / time.low, "measured", source)


def _best_rates(journal: Journal, source: str) -> tuple[Peak, ...]:
    """Return the best rate of any product, for each number format and engine."""
    best: dict[tuple[str, str], Fact] = {}
    for cells, answer in journal.answers.values():
        if cells["kind"] != "gemm" or "reason" in answer:
            continue
        flop = 2.0 * prod(float(cells[name]) for name in ("b", "m", "n", "k"))
        fact = rate_fact(flop, answer, source)
        pair = cells["dtype"], cells["engine"]
        if pair not in best or fact.value > best[pair].value:
            best[pair] = fact
    return tuple(Peak(dtype, engine, rate) for (dtype, engine), rate in best.items())


def device_of(journal: Journal, subject: Subject) -> Device:
    """Make the device: measured peak rates, bandwidth and launch cost, and the capacity that the system states."""
    memory, host, fresh, way = map(journal.last, ("bandwidth", "host", "allocator", "from_host"))
    capacity = subject.facts.get("memory_byte") or subject.host.memory_byte
    source = f"measured here, {subject.framework} {subject.facts['library_version']}"
    return Device(
        peaks=_best_rates(journal, source),
        capacity_byte=Fact.exact(capacity, "measured", source) if capacity else None,
        byte_per_s=rate_fact(memory["byte"], memory["answer"], source) if memory else None,
        launch_s=Fact.exact(host["op_s"], "measured", source) if host else None,
        fresh_byte_per_s=Fact.exact(1 / fresh["s_per_byte"], "measured", source) if fresh else None,
        fresh_above_byte=fresh["above_byte"] if fresh else None,
        host_byte_per_s=Fact.exact(way["pinned"], "measured", f"{source}; pageable {way['pageable']:.3g} byte/s")
        if way
        else None,
    )


def _drift(journal: Journal) -> list[str]:
    times = [summarise(in_step(one["answer"])).median_s for one in journal.marked("reference")]
    if len(times) < 2:
        return ["drift: unknown, because the reference op ran only once"]
    change = max(times) / min(times) - 1
    verdict = "steady" if change <= MAX_DRIFT else "not steady: times are less certain than their intervals state"
    least, most = min(times), max(times)
    return [
        f"drift: the reference op took {least * 1e3:.4g} to {most * 1e3:.4g} ms in {len(times)} rounds, {verdict}"
    ]


def notes_of(journal: Journal, subject: Subject) -> tuple[str, ...]:
    """Return the notes of the profile: machine, noise, drift, load, throttling and what is missing."""
    count, noisy, width = noise_of(in_step(one) for _, one in journal.answers.values() if "reason" not in one)
    threads = subject.facts["threads"]
    clock = "process time of" if processor_clock(threads) is time.process_time else "wall time with"
    how = "CUDA events" if subject.device == "cuda" else f"{clock} {count_text(threads, 'thread')}"
    messages = [f"{subject.facts['about']}; {how}", *subject.host.lines()]
    messages.append(
        f"noise: half of {count} timings have intervals within ±{width:.1%}; {noisy} are wider than ±10 %"
    )
    messages += _drift(journal)
    loads = [one["load"] for one in journal.marked("moment") if one.get("load") is not None]
    if loads:
        messages.append(
            f"load while measuring: {min(loads):.2f} to {max(loads):.2f} (/proc/loadavg), about 1 of it is ours"
        )
    counts = [one["throttled"] for one in journal.marked("moment") if one.get("throttled") is not None]
    cut = f"{counts[-1] - counts[0]} more events while measuring" if counts else "not readable"
    recorded = [str(one["said"]) for one in journal.marked("said")]
    reasons = ((cells, one["reason"]) for cells, one in journal.answers.values() if "reason" in one)
    groups = Counter((cells["kind"], cells["dtype"], str(reason)) for cells, reason in reasons)
    skipped = [f"not timed: {count} {kind} of {dtype}, {why}" for (kind, dtype, why), count in groups.items()]
    return (*messages, f"throttling: {cut}", *recorded, *missed_of(journal), *skipped)


def machine_of(journal: Journal, subject: Subject) -> Machine:
    """Make the machine from the measurements so far."""
    device, host = device_of(journal, subject), journal.last("host")
    # The framework's time per op of a step; only on a CPU does the op have to wait for it.
    host_s = float(host["host_s"]) if host and subject.device == "cpu" else 0.0
    timings = timings_table(journal.answers.values(), subject.library, host_s)
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


_ALLOCATOR = (
    "MALLOC_", "GLIBC_TUNABLES", "LD_PRELOAD", "TCMALLOC_", "_RJEM_MALLOC_CONF", "MIMALLOC_", "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_NO_CUDA_MEMORY_CACHING", "TF_GPU_ALLOCATOR",
    "TF_FORCE_GPU_ALLOW_GROWTH",
)  # fmt: skip
"""Prefixes of environment variables that configure an allocator."""
_LONGEST = 200


def load() -> float | None:
    """Return the load average of the last minute; None on systems without it."""
    try:
        return round(os.getloadavg()[0], 2)
    except (AttributeError, OSError):
        return None


def conditions_before(framework: str, version: str) -> dict[str, Any]:
    """Return the conditions that `fomkit.core.measurement.MeasuredRun` records, without the load at the end."""
    return {
        "processor": read_facts().model or platform.processor() or platform.machine() or "unknown",
        "software": {
            framework: version,
            "python": platform.python_version(),
            "system": platform.platform(terse=True),
            "fomkit": __version__,
        },
        "allocator": {
            name: text[:_LONGEST] for name, text in sorted(os.environ.items()) if name.startswith(_ALLOCATOR)
        },
        "load_start": load(),
        "date": datetime.now(tz=UTC).date().isoformat(),
    }

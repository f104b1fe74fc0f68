"""What a machine tells of itself in files: processor, caches, memory, clocks, load and throttling."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

_CPU = "sys/devices/system/cpu"
_SIZES: Mapping[str, float] = {"K": 2.0**10, "M": 2.0**20, "G": 2.0**10 * 2.0**20, "": 1.0}
BF16_FLAGS = ("avx512_bf16", "amx_bf16", "bf16")
"""Words in /proc/cpuinfo of processors that multiply bf16 numbers."""
MATRIX_FLAGS = ("amx_bf16", "amx_tile")
"""Words of those that do it in a matrix engine."""


@dataclass(frozen=True)
class HostFacts:
    """Facts of the machine that runs Python; None and empty where a file is not there or says nothing.

    Attributes
    ----------
    model : str
        Name of the processor.
    cores : int
        Cores that may run something now.
    flags : frozenset of str
        What the processor can do.
    cache_byte : mapping
        Level to bytes, of the data caches.
    memory_byte : float or None
        What this process may take: the machine's memory, or less where a group of processes is limited.
    clock_hz : tuple of float
        Lowest and highest clock of the moment over cores; empty where none is readable.
    clock_source : str
    hypervisor : bool
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
        """The largest cache; 0 where none is known."""
        return max(self.cache_byte.values(), default=0.0)

    def lines(self) -> list[str]:
        """Write the facts as sentences, each with where it stands."""
        said = []
        if self.cores:
            guest = ", guest of a hypervisor" if self.hypervisor else ""
            said.append(f"{self.model or 'processor without a name'}, {self.cores} cores{guest} (/proc/cpuinfo)")
        if self.cache_byte:
            levels = ", ".join(f"L{level} {size / 2**20:g} MiB" for level, size in sorted(self.cache_byte.items()))
            said.append(f"data caches: {levels} (/sys/devices/system/cpu)")
        if self.clock_hz:
            low, high = (f"{value / 1e9:.2f}" for value in (min(self.clock_hz), max(self.clock_hz)))
            governor = f", governor {self.governor}" if self.governor else ""
            said.append(f"clock before the run: {low} to {high} GHz ({self.clock_source}){governor}")
        else:
            said.append("clock: not readable here")
        return said


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _caches(root: Path) -> dict[int, float]:
    found: dict[int, float] = {}
    for folder in sorted((root / _CPU / "cpu0/cache").glob("index*")):
        size = re.fullmatch(r"(\d+)([KMG]?)", _text(folder / "size"))
        level = _text(folder / "level")
        if size and level.isdigit() and _text(folder / "type") != "Instruction":
            found[int(level)] = float(size[1]) * _SIZES[size[2]]
    return found


def _memory(root: Path) -> float | None:
    stated = re.search(r"^MemTotal:\s*(\d+) kB", _text(root / "proc/meminfo"), re.MULTILINE)
    limits = [float(stated[1]) * _SIZES["K"]] if stated else []
    told = map(_text, (root / "sys/fs/cgroup/memory.max", root / "sys/fs/cgroup/memory/memory.limit_in_bytes"))
    limits += [float(limit) for limit in told if limit.isdigit()]
    return min(limits, default=None)


def _clocks(root: Path, cpuinfo: str) -> tuple[tuple[float, ...], str]:
    files = sorted((root / _CPU).glob("cpu[0-9]*/cpufreq/scaling_cur_freq"))
    if clocks := tuple(float(text) * 1e3 for text in map(_text, files) if text.isdigit()):
        return clocks, "/sys/devices/system/cpu"
    told = re.findall(r"^cpu MHz\s*:\s*([\d.]+)", cpuinfo, re.MULTILINE)
    return tuple(float(text) * 1e6 for text in told), "/proc/cpuinfo" if told else ""


def read_facts(root: Path = Path("/")) -> HostFacts:
    """Read what the machine tells of itself.

    Parameters
    ----------
    root : Path
        Where ``proc`` and ``sys`` lie.
    """
    cpuinfo = _text(root / "proc/cpuinfo")

    def told(name: str) -> str:
        found = re.search(rf"^{name}\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
        return found[1].strip() if found else ""

    flags = frozenset((told("flags") or told("Features")).split())
    clocks, source = _clocks(root, cpuinfo)
    return HostFacts(
        model=told("model name") or told("Hardware"),
        cores=len(re.findall(r"^processor\s*:", cpuinfo, re.MULTILINE)) or None,
        flags=flags,
        cache_byte=_caches(root),
        memory_byte=_memory(root),
        clock_hz=clocks,
        clock_source=source,
        governor=_text(root / _CPU / "cpu0/cpufreq/scaling_governor"),
        kernel=_text(root / "proc/sys/kernel/osrelease"),
        hypervisor="hypervisor" in flags,
    )


@dataclass(frozen=True)
class Moment:
    """What changes while something is timed: the load, and how often the clock was cut for heat.

    Attributes
    ----------
    load : float or None
        Processes that ran or waited for a core, mean of the last minute.
    throttled : int or None
        Times that cores were throttled since the machine started.
    """

    load: float | None
    throttled: int | None


def read_moment(root: Path = Path("/")) -> Moment:
    """Read the load and the counts of throttling; None where there is no such file."""
    words = _text(root / "proc/loadavg").split()
    counts = [
        int(text)
        for path in sorted((root / _CPU).glob("cpu[0-9]*/thermal_throttle/core_throttle_count"))
        if (text := _text(path)).isdigit()
    ]
    return Moment(float(words[0]) if words else None, sum(counts) if counts else None)

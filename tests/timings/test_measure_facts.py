"""Facts of a machine from its files, which may be absent, limited, or say nothing."""

from __future__ import annotations

from pathlib import Path

from fomkit.bench.record import read_facts, read_moment

CPUINFO = """processor\t: 0
model name\t: Example 9000 @ 2.5GHz
cpu MHz\t\t: 2500.000
flags\t\t: fpu avx512f avx512_bf16 hypervisor

processor\t: 1
model name\t: Example 9000 @ 2.5GHz
cpu MHz\t\t: 2700.500
flags\t\t: fpu avx512f avx512_bf16 hypervisor
"""


def put(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def cache(index: int, level: int, kind: str, size: str) -> dict[str, str]:
    folder = f"sys/devices/system/cpu/cpu0/cache/index{index}"
    return {f"{folder}/level": f"{level}\n", f"{folder}/type": f"{kind}\n", f"{folder}/size": f"{size}\n"}


def test_facts_are_read(tmp_path: Path) -> None:
    root = put(tmp_path, {
        "proc/cpuinfo": CPUINFO, "proc/meminfo": "MemTotal:        1000 kB\nMemFree: 3 kB\n",
        **cache(0, 1, "Data", "32K"), **cache(1, 1, "Instruction", "64K"), **cache(2, 2, "Unified", "1024K"),
        **cache(3, 3, "Unified", "32M"),
    })  # fmt: skip
    facts = read_facts(root)
    assert facts.model == "Example 9000 @ 2.5GHz"
    assert facts.cores == 2
    assert facts.cache_byte == {1: 32 * 1024, 2: 1024**2, 3: 32 * 1024**2}
    assert facts.last_cache_byte == 32 * 1024**2
    assert facts.memory_byte == 1024_000
    assert facts.clock_hz == (2.5e9, 2.7005e9)
    assert facts.hypervisor
    assert any("2.50 to 2.70 GHz (/proc/cpuinfo)" in line for line in facts.lines())


def test_a_limit_of_a_group_of_processes_counts_as_the_memory(tmp_path: Path) -> None:
    root = put(tmp_path, {"proc/meminfo": "MemTotal: 1000 kB\n", "sys/fs/cgroup/memory.max": "5000\n"})
    assert read_facts(root).memory_byte == 5000
    put(tmp_path, {"sys/fs/cgroup/memory.max": "max\n"})
    assert read_facts(root).memory_byte == 1024_000


def test_nothing_is_made_up_where_nothing_is_told(tmp_path: Path) -> None:
    facts = read_facts(tmp_path)
    assert facts.model == ""
    assert facts.cores is facts.memory_byte is None
    assert facts.clock_hz == ()
    assert facts.lines() == ["data caches: not readable here", "clock: not readable here"]
    moment = read_moment(tmp_path)
    assert moment.load is moment.throttled is None


def test_the_kernels_own_clock_and_throttling_go_first(tmp_path: Path) -> None:
    folder = "sys/devices/system/cpu"
    root = put(tmp_path, {
        "proc/cpuinfo": CPUINFO, "proc/loadavg": "3.25 1.00 0.50 2/345 678\n",
        f"{folder}/cpu0/cpufreq/scaling_cur_freq": "3100000\n",
        f"{folder}/cpu1/cpufreq/scaling_cur_freq": "800000\n",
        f"{folder}/cpu0/cpufreq/scaling_governor": "powersave\n",
        f"{folder}/cpu0/thermal_throttle/core_throttle_count": "4\n",
        f"{folder}/cpu1/thermal_throttle/core_throttle_count": "3\n",
    })  # fmt: skip
    facts = read_facts(root)
    assert facts.clock_hz == (3.1e9, 0.8e9)
    assert facts.governor == "powersave"
    moment = read_moment(root)
    assert (moment.load, moment.throttled) == (3.25, 7)

"""Read energy and power: of an NVIDIA GPU through pynvml, else nvidia-smi; of processors through RAPL's files.

NVML states an error of ±5 W for its power. On Ampere (except GA100) and later the power is the mean of the last
second, so shorter events are averaged out; the energy counter, available from Volta on, has no such mean. Sources:
NVML API reference, nvmlDeviceGetPowerUsage and nvmlDeviceGetTotalEnergyConsumption; Linux kernel,
Documentation/power/powercap/powercap.rst, for /sys/class/powercap.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

_ZONES = "sys/class/powercap"
_MICRO = 1e-6
COUNTED = ("package", "dram")
"""Zones that are summed: a package includes its cores, memory is separate; psys would count all of them again."""


class CannotReadError(Exception):
    """An instrument cannot be read; the message is the reason."""


class Zone(NamedTuple):
    """An energy counter: its name, its file [µJ] and the value at which it wraps [J]."""

    name: str
    path: Path
    most_j: float


def _read_micro(path: Path) -> float:
    try:
        text = path.read_text(encoding="ascii", errors="replace").strip()
    except PermissionError as error:
        hint = "only root may read counters since Linux 5.10; run as root, or ask an administrator for permission"
        raise CannotReadError(f"{path}: no permission to read ({hint})") from error
    except OSError as error:
        raise CannotReadError(f"{path}: {error.strerror}") from error
    if not text.isdigit():
        raise CannotReadError(f"{path}: has {text[:40]!r}, but a number of microjoules was expected")
    return float(text) * _MICRO


def read_zone(zone: Zone) -> float:
    """Read a counter [J]."""
    return _read_micro(zone.path)


def find_zones(root: Path = Path("/")) -> list[Zone]:
    """Find the counters of packages and their memory; each is read once as a check."""
    found: list[Zone] = []
    for folder in sorted((root / _ZONES).glob("intel-rapl:*")):
        try:
            name = (folder / "name").read_text(encoding="ascii", errors="replace").strip()
        except OSError:
            continue
        if not name.startswith(COUNTED):
            continue
        # A package that cannot be read raises an error: a partial sum would not be the machine's energy.
        zone = Zone(name, folder / "energy_uj", _read_micro(folder / "max_energy_range_uj"))
        read_zone(zone)
        found.append(zone)
    if not any(zone.name.startswith("package") for zone in found):
        why = "no counter of a processor package (none, or a guest of a hypervisor)"
        raise CannotReadError(f"{root / _ZONES}: {why}")
    return found


def read_limit(zone: Zone) -> float | None:
    """Read the power limit [W] of a package; None if its files do not state it."""
    try:
        return _read_micro(zone.path.with_name("constraint_0_max_power_uw")) or None
    except CannotReadError:
        return None


STATED_ERROR_W = 5.0
"""Error of the power that NVML states, ± [W]."""
_MILLI = 1e-3
_SMI_S = 10.0


@dataclass(frozen=True)
class Gpu:
    """The readable quantities of a GPU's board.

    `power_w`: present power, or mean of the last second [W].
    `energy_j`: energy since the driver was loaded [J]; None before Volta and through nvidia-smi.
    `limit_w`: default power limit of the board [W].
    """

    power_w: Callable[[], float]
    energy_j: Callable[[], float] | None
    limit_w: float | None
    source: str


def by_nvml(library: Any, which: str) -> Gpu:
    """Read a GPU, by number or UUID, through ``pynvml`` or an object with its functions."""
    try:
        library.nvmlInit()
        if which.isdigit():
            handle = library.nvmlDeviceGetHandleByIndex(int(which))
        else:
            handle = library.nvmlDeviceGetHandleByUUID(which)

        def power_w() -> float:
            return float(library.nvmlDeviceGetPowerUsage(handle)) * _MILLI

        def energy_j() -> float:
            return float(library.nvmlDeviceGetTotalEnergyConsumption(handle)) * _MILLI

        power_w()
    except library.NVMLError as error:
        raise CannotReadError(f"NVML: {error}") from error
    counter: Callable[[], float] | None = energy_j
    try:
        energy_j()
    except library.NVMLError:
        counter = None
    limit = None
    with suppress(library.NVMLError):
        limit = float(library.nvmlDeviceGetPowerManagementDefaultLimit(handle)) * _MILLI
    return Gpu(power_w, counter, limit, "NVML energy counter" if counter else "NVML power")


def _command_output(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=_SMI_S, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotReadError(f"{command[0]}: {getattr(error, 'strerror', None) or 'does not answer'}") from error
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines() or ["no reason given"]
        raise CannotReadError(f"{command[0]}: {lines[0][:120]}")
    return done.stdout


def by_smi(which: str, run_command: Callable[[Sequence[str]], str] = _command_output) -> Gpu:
    """Read a GPU through nvidia-smi, with one process for each reading."""

    def query(field: str) -> float:
        command = ["nvidia-smi", "-i", which, f"--query-gpu={field}", "--format=csv,noheader,nounits"]
        words = run_command(command).split()
        try:
            return float(words[0])
        except (IndexError, ValueError) as error:
            raise CannotReadError(f"nvidia-smi: {field} is {' '.join(words)[:40]!r}, no number") from error

    query("power.draw")
    limit = None
    with suppress(CannotReadError):
        limit = query("power.default_limit")
    return Gpu(lambda: query("power.draw"), None, limit, "nvidia-smi power.draw")


def find_gpu() -> Gpu:
    """Return the GPU through pynvml, else nvidia-smi; raise CannotReadError if neither can read it."""
    # Number or UUID of PyTorch's first device.
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip() or "0"
    try:
        import pynvml
    except ImportError:
        return by_smi(chosen)
    try:
        return by_nvml(pynvml, chosen)
    except CannotReadError as reason:
        try:
            return by_smi(chosen)
        except CannotReadError as other:
            raise CannotReadError(f"{reason}; {other}") from other

"""Energy counters of processors in files: RAPL as Linux shows it under /sys/class/powercap.

Source: Linux kernel, Documentation/power/powercap/powercap.rst.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

_ZONES = "sys/class/powercap"
_MICRO = 1e-6
COUNTED = ("package", "dram")
"""Zones that are added up: a package counts its cores, memory is apart; psys counts all of these again."""


class CannotReadError(Exception):
    """Why an instrument gives no reading."""


class Zone(NamedTuple):
    """A counter: what it counts, its file [µJ] and where it begins anew [J]."""

    name: str
    path: Path
    most_j: float


def _number(path: Path) -> float:
    try:
        text = path.read_text(encoding="ascii", errors="replace").strip()
    except PermissionError as error:
        hint = "counters are for root alone since Linux 5.10; run as root, or let an administrator allow it"
        raise CannotReadError(f"{path}: no permission to read ({hint})") from error
    except OSError as error:
        raise CannotReadError(f"{path}: {error.strerror}") from error
    if not text.isdigit():
        raise CannotReadError(f"{path}: says {text[:40]!r}, and a number of microjoules was expected")
    return float(text) * _MICRO


def read_zone(zone: Zone) -> float:
    """Read a counter [J].

    Raises
    ------
    CannotReadError
        With the file and the reason.
    """
    return _number(zone.path)


def find_zones(root: Path = Path("/")) -> list[Zone]:
    """Find the counters of packages and their memory, each read once to be sure.

    Parameters
    ----------
    root : Path
        Where ``sys`` lies.

    Raises
    ------
    CannotReadError
        When there are none, or a package cannot be read: part of a machine's energy is not its energy.
    """
    found: list[Zone] = []
    for folder in sorted((root / _ZONES).glob("intel-rapl:*")):
        try:
            name = (folder / "name").read_text(encoding="ascii", errors="replace").strip()
        except OSError:
            continue
        if not name.startswith(COUNTED):
            continue
        zone = Zone(name, folder / "energy_uj", _number(folder / "max_energy_range_uj"))
        read_zone(zone)
        found.append(zone)
    if not any(zone.name.startswith("package") for zone in found):
        raise CannotReadError(
            f"{root / _ZONES}: no counter of a processor package (none, or a guest of a hypervisor)"
        )
    return found


def read_limit(zone: Zone) -> float | None:
    """Read the most power [W] that a package is built for; None where its files do not say."""
    try:
        return _number(zone.path.with_name("constraint_0_max_power_uw")) or None
    except CannotReadError:
        return None

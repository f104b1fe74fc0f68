"""Devices of a table of labels as machines: a profile by name, else the facts that the table's folder lists."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fomkit.hardware import Device, Fact, Machine, Peak
from fomkit.profiles import load_machine
from fomkit.tables import empty_table
from fomkit.timings.foreign_table import read_columns

LAUNCH_S = (5e-6, 3e-6, 10e-6)
"""Usual host cost of one launch: value, low, high, as in the shipped profiles."""
_WORD = re.compile(r"[a-z]+\d+[a-z]*|\d+[a-z]*|[a-z]+")
_PEAKS: Mapping[str, tuple[str, ...]] = {"vector": ("SingleFLOPs", "SingleFLOPsVEC"), "matrix": ("SingleFLOPsMM",)}


class Profiles(NamedTuple):
    """Which profiles stand for a device.

    Attributes
    ----------
    own : str
        Profile with the device's own timings; "" where there is none.
    other : str
        Profile of another board of that chip, timed by somebody else; "" where there is none.
    apart : str
        Why its figures are reported apart; "" where they count.
    """

    own: str
    other: str
    apart: str


def read_profiles(path: Path) -> dict[str, Profiles]:
    """Read which profile stands for which device."""
    rows = read_columns(path, ("device", "machine", "other", "apart"), ())
    return {row["device"]: Profiles(row["machine"], row["other"], row["apart"]) for row in rows.to_dict("records")}


def _words(name: str) -> set[str]:
    return set(_WORD.findall(name.lower()))


def nearest_device(name: str, known: list[str]) -> str | None:
    """Find the device of a list that a label means; None where none or more than one fits best.

    Examples
    --------
    >>> nearest_device("A100-PCIe-40GB", ["NVIDIA A100 80GB PCIe", "NVIDIA A100-PCIE-40GB", "Tesla T4"])
    'NVIDIA A100-PCIE-40GB'
    >>> nearest_device("H200", ["NVIDIA H100 80GB HBM3"]) is None
    True
    """
    asked = _words(name)
    # The chip must agree: the first word with a digit, such as a100 or t4.
    chip = next((word for word in _WORD.findall(name.lower()) if any(map(str.isdigit, word))), "")
    fitting = {one: len(asked & _words(one)) for one in known if chip and chip in _words(one)}
    best = [one for one, count in fitting.items() if count == max(fitting.values())]
    return best[0] if len(best) == 1 else None


def _fact(value: float, source: str) -> Fact:
    return Fact(value, value, value, "published", source)


def facts_only(name: str, path: Path) -> Machine | None:
    """Make a machine without timings from a list of devices; None where the list does not have it.

    Parameters
    ----------
    name : str
        As the labels name the device.
    path : Path
        ``devices.csv``: GFLOP/s, GB/s.
    """
    if not path.is_file():
        return None
    numbers = ("Mem_Bw", *(column for columns in _PEAKS.values() for column in columns))
    rows = read_columns(path, ("Device",), numbers)
    found = nearest_device(name, rows["Device"].tolist())
    if found is None:
        return None
    row = rows[rows["Device"] == found].iloc[0]
    source = f"NeuSight 6945927, {path.name}: {found}"
    peaks = []
    for engine, columns in _PEAKS.items():
        rates = [row[column] for column in columns if not np.isnan(row[column])]
        peaks += [Peak("fp32", engine, _fact(rates[0] * 1e9, source), "fp32")] if rates else []
    launch = Fact(*LAUNCH_S, "assumed", "usual host cost of one kernel launch")
    device = Device(peaks=tuple(peaks), byte_per_s=_fact(row["Mem_Bw"] * 1e9, source), launch_s=launch)
    return Machine(name, found, "published", device, empty_table("TIMINGS"), notes=(source,))


def profile_of(name: str) -> Machine | None:
    """Load a profile; None where the name is empty.

    Raises
    ------
    FomkitError
        When no profile has the name, or it cannot be read: facts must not take its place unsaid.
    """
    return load_machine(name) if name else None


def without_timings(machine: Machine, architecture: str = "") -> Machine:
    """Give the machine as if nobody had timed it, nor another board of its chip.

    Parameters
    ----------
    machine : Machine
    architecture : str
        Vendor, generation and chip, where the machine does not state it.
    """
    device = replace(machine.device, architecture=machine.device.architecture or architecture)
    bare = replace(machine, timings=machine.timings.iloc[:0], fits={}, timings_key="", device=device)
    return replace(bare, unheard=(device.architecture,)) if device.architecture else bare


def architecture_of(name: str, path: Path) -> str:
    """Find the architecture of a device by a word of its name; "" where the table has none.

    Parameters
    ----------
    name : str
        As the labels name the device.
    path : Path
        ``chips.csv``: word, architecture.
    """
    rows = read_columns(path, ("word", "architecture"), ())
    known = dict(zip(rows["word"], rows["architecture"], strict=True))
    return next((known[word] for word in _WORD.findall(name.lower()) if word in known), "")

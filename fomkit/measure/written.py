"""A machine profile that a measurement begins or adds to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from fomkit.errors import FomkitError
from fomkit.hardware import Device, Machine
from fomkit.profiles import load_machine, save_machine
from fomkit.study.fits import write_fits
from fomkit.tables import empty_table


def begun_machine(output: Path, name: str, title: str, *, add: bool) -> Machine:
    """Give the machine that a measurement is added to: the one at ``output``, else one of which nothing is known.

    Raises
    ------
    FomkitError
        When it is to be added to a profile that is not there.
    """
    if not add:
        name = name or output.name.removesuffix(".yaml")
        return Machine(name, title, "lab", Device(), empty_table("TIMINGS"))
    if not output.is_file():
        raise FomkitError(str(output), "is not there, so nothing can be added to it. Leave --add out.")
    return load_machine(output)


def write_machine(machine: Machine, output: Path, notes: Iterable[str]) -> list[Path]:
    """Write a machine with further notes; of one that comes with fomkit, fits of changed timings are made anew.

    Returns
    -------
    list of Path
        The files written.
    """
    machine = replace(machine, notes=tuple(dict.fromkeys((*machine.notes, *notes))))
    files = save_machine(machine, output)
    written = load_machine(output)
    if not written.fits:
        files += write_fits(written, output)
    return files

"""Imported timings and stated facts joined into one machine."""

from __future__ import annotations

from dataclasses import replace

from fomkit.errors import FomkitError
from fomkit.hardware import Device, Machine
from fomkit.timings.imported import ImportedTimings


def _source_note(imported: ImportedTimings) -> str:
    files = ", ".join(sorted(set(imported.timings["source_file"])))
    said = "; ".join(f"{key} {value}" for key, value in imported.specs.items() if value)
    return f"Timings from {files}. The file says of the system: {said or 'nothing'}."


def as_machine(imported: ImportedTimings, name: str, facts: Machine | None = None) -> Machine:
    """Join timings with a machine's facts; peaks and bandwidth come from the facts or stay unknown.

    Parameters
    ----------
    imported : ImportedTimings
    name : str
        Name of the new machine.
    facts : Machine, optional
        A machine without timings of its own.

    Raises
    ------
    FomkitError
        When ``facts`` has timings already.
    """
    if facts is not None and len(facts.timings):
        raise FomkitError(
            f"facts of {facts.name}",
            "has timings of its own, and facts are a machine file without 'timings'. Remove that line from it.",
        )
    base = facts or Machine(name, imported.device or name, "published", Device(), imported.timings)
    notes = dict.fromkeys((*base.notes, _source_note(imported), *imported.notes))
    links = (*base.links, *imported.links)
    return replace(base, name=name, timings=imported.timings, links=links, notes=tuple(notes))

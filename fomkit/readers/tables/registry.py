"""Foreign files of op timings, recognised by what they hold, read into TIMINGS and joined with facts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from fomkit.core.errors import FomkitError, nearest_names
from fomkit.core.machine import Device, Machine
from fomkit.readers.tables.aiconfigurator import read_aiconfigurator, recognise_aiconfigurator
from fomkit.readers.tables.collectives import read_nccl_tests, read_osu, recognise_nccl_tests, recognise_osu
from fomkit.readers.tables.deepbench import read_deepbench, recognise_deepbench
from fomkit.readers.tables.foreign import ImportedTimings, read_timings_table, recognise_timings_table
from fomkit.readers.tables.links import read_deepbench_log, recognise_deepbench_log
from fomkit.readers.tables.neusight import read_neusight, recognise_neusight
from fomkit.readers.tables.simulators import read_vidur, read_vtrain, recognise_vidur, recognise_vtrain


@dataclass(frozen=True)
class Format:
    """What tells one format from another: what it is, for people, and whether a file has it."""

    title: str
    recognise: Callable[[Path], bool]


@dataclass(frozen=True)
class Reader(Format):
    """A format that is read by ``read``, which takes the path and what ``takes`` says.

    That is the name of a device, where a file has several, or what the user says of the run, ranks and nodes,
    where the file does not say it all.
    """

    read: Callable[..., ImportedTimings]
    takes: Literal["", "device", "run"] = ""


READERS: Mapping[str, Reader] = {
    "deepbench": Reader("DeepBench result workbook (.xlsx)", recognise_deepbench, read_deepbench),
    "aiconfigurator": Reader(
        "aiconfigurator table of products, attention (latent too), experts or collectives (.csv)",
        recognise_aiconfigurator,
        read_aiconfigurator,
    ),
    "neusight": Reader("NeuSight table of kernels (.csv)", recognise_neusight, read_neusight, "device"),
    "nccl-tests": Reader("log of nccl-tests (all_reduce_perf, …)", recognise_nccl_tests, read_nccl_tests, "run"),
    "osu": Reader("output of OSU micro-benchmarks", recognise_osu, read_osu, "run"),
    "deepbench-log": Reader(
        "text of DeepBench's NCCL all-reduce", recognise_deepbench_log, read_deepbench_log, "run"
    ),
    "vidur": Reader("Vidur's table of a layer's pieces or of a collective (.csv)", recognise_vidur, read_vidur),
    "vtrain": Reader("vTrain's table of all-reduces (.csv)", recognise_vtrain, read_vtrain),
    "timings": Reader("table of timings (.csv: kind, time_s, …)", recognise_timings_table, read_timings_table),
}


class AmbiguousFormatError(FomkitError):
    """A file that fits more than one format."""


def choose_format(path: Path, file_format: str | None, formats: Mapping[str, Format]) -> str:
    """Take the format that was named, else the only one that a file's content fits."""
    if path.is_file() and not path.stat().st_size:
        raise FomkitError(str(path), "is empty. Copy it, or write it, again.")
    if file_format is not None:
        if file_format not in formats:
            nearest = nearest_names(file_format, formats)
            raise FomkitError(str(path), f"{file_format!r} is no known format. {nearest}")
        return file_format
    found = [name for name, one in formats.items() if one.recognise(path)]
    if len(found) != 1:
        what = f"fits more than one format: {', '.join(found)}" if found else "is of no known format"
        listed = "; ".join(f"{name}: {one.title}" for name, one in formats.items())
        kind = AmbiguousFormatError if found else FomkitError
        raise kind(str(path), f"{what}. The formats are: {listed}. Name one with --format, or check the file.")
    return found[0]


def read_timings(
    path: Path,
    file_format: str | None = None,
    readers: Mapping[str, Reader] = READERS,
    *,
    device: str | None = None,
    sizes: Mapping[str, int] | None = None,
) -> ImportedTimings:
    """Read measured timings from a file of any known format.

    `file_format`: a key of ``readers``; without it the file's content decides; `device`: the device to read from a
    file of several; `sizes`: ``ranks`` and ``nodes`` of the run that a log of a network is of.
    """
    name = choose_format(path, file_format, readers)
    reader = readers[name]
    if sizes:
        if reader.takes != "run":
            raise FomkitError("--set", "these sizes say something of a model, not of a machine. Leave them out.")
        return reader.read(path, sizes)
    if device is None:
        return reader.read(path)
    if reader.takes != "device":
        raise FomkitError(f"--device {device}", f"a file of the format {name!r} is of one device. Leave it out.")
    return reader.read(path, device)


def as_machine(imported: ImportedTimings, name: str, facts: Machine | None = None) -> Machine:
    """Join timings with a machine's facts; peaks and bandwidth come from the facts or stay unknown.

    `name`: name of the new machine; `facts`: a machine without timings of its own.
    """
    if facts is not None and len(facts.timings):
        what = "has timings of its own, and facts are a machine file without 'timings'. Remove that line from it."
        raise FomkitError(f"facts of {facts.name}", what)
    base = facts or Machine(name, imported.device or name, "published", Device(), imported.timings)
    files = ", ".join(sorted(set(imported.timings["source_file"])))
    stated = "; ".join(f"{key} {value}" for key, value in imported.specs.items() if value) or "nothing"
    source = f"Timings from {files}. The file says of the system: {stated}."
    notes = dict.fromkeys((*base.notes, source, *imported.notes))
    links = (*base.links, *imported.links)
    return replace(base, name=name, timings=imported.timings, links=links, notes=tuple(notes))

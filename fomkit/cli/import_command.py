"""``fomkit import``: a foreign file of measured timings becomes a machine profile."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fomkit.errors import FomkitError

if TYPE_CHECKING:
    from fomkit.timings import ImportedTimings

_HEADINGS = ("sheet", "section", "pass", "imported", "corrected", "no time", "below 1 us", "skipped")


def _report(imported: ImportedTimings) -> list[str]:
    """Write what became of each section's rows as aligned lines."""
    rows = [_HEADINGS] + [
        (
            one.sheet, one.section, one.pass_name or "-", str(one.imported), str(one.corrected),
            str(one.without_time), str(one.below_resolution), str(one.skipped),
        )
        for one in imported.counts
    ]  # fmt: skip
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if place < 3 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]


def import_file(
    source: Annotated[Path, typer.Argument(help="The file, for example a DeepBench workbook (.xlsx).")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The machine profile to write; M.timings.csv goes beside it.")
    ],
    facts: Annotated[
        Path | None, typer.Option(help="A machine file without timings: peaks, bandwidth and their sources.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the machine; default: that of the facts, or M.")
    ] = None,
    file_format: Annotated[
        str | None, typer.Option("--format", help="Format of the file; default: recognised by its content.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace files that exist already.")] = False,
) -> None:
    """Import measured timings as a machine profile.

    Examples:

      fomkit import DeepBench_NV_M40.xlsx -o machine_profiles/m40.yaml

      fomkit import results.xlsx --facts datasheet.yaml -o machine_profiles/mine.yaml
    """
    from fomkit.profiles import load_machine, save_machine
    from fomkit.profiles.write import check_absent
    from fomkit.timings import as_machine, read_timings

    if output.suffix not in (".yaml", ".yml"):
        raise FomkitError(str(output), "a machine profile is a YAML file. Write, for example, '-o machine.yaml'.")
    if facts is not None and not facts.is_file():
        raise FomkitError(str(facts), "is not a file. Give a machine file without timings; see docs/profiles.md.")
    check_absent([output, output.with_name(f"{output.stem}.timings.csv")], force)
    stated = load_machine(facts) if facts else None
    imported = read_timings(source, file_format)
    machine = as_machine(imported, name or (stated.name if stated else output.stem), stated)
    written = save_machine(machine, output)
    print(f"{machine.title}: {len(imported.timings)} timings from {source.name}")
    print("\n".join(_report(imported)))
    if stated is None:
        print("Peaks and bandwidth are not in this file and stay unknown; give them with --facts.")
    print(f"Written: {', '.join(map(str, written))}")

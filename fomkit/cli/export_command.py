"""``fomkit export``: a table of measurements in the form of another program."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer


def export(
    source: Annotated[
        Path, typer.Argument(metavar="MEASURED", help="A table of measurements (.csv), by path or name.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write.")],
    file_format: Annotated[
        Literal["benchmarker"], typer.Option("--format", help="Whose form: the modular benchmarker's JSON.")
    ] = "benchmarker",
    force: Annotated[bool, typer.Option("--force", help="Replace a file that exists already.")] = False,
) -> None:
    """Write measurements as records of the modular benchmarker, with all that an import kept of one.

    Examples:

      fomkit export measured.csv -o measured.json
    """
    from fomkit.measurements import read_measurements
    from fomkit.measurements.benchmarker import format_benchmarker
    from fomkit.profiles import check_absent, write_whole
    from fomkit.profiles.locate import locate

    del file_format  # the only one so far; the option names it for the day there are more
    check_absent([output], force)
    rows = read_measurements(locate(str(source), "measurements"))
    write_whole(output, format_benchmarker(rows))
    print(f"Written: {output} ({len(rows)} of {len(rows)} rows)")

"""``fomkit export``: measurements in the form of another program, or a measured profile as such a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

Source = Annotated[
    Path,
    typer.Argument(
        metavar="MEASURED", help="A table of measurements (.csv), or a measured model profile (.yaml)."
    ),
]
FileFormat = Annotated[
    Literal["benchmarker", "measurements"] | None,
    typer.Option(
        "--format",
        help="The modular benchmarker's JSON, or a profile's row for a table of measurements; default: by the "
        "output's ending.",
    ),
]
OnMachine = Annotated[
    str | None, typer.Option("--machine", metavar="NAME", help="The machine profile that a measured one ran on.")
]


def export(
    source: Source,
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write.")],
    file_format: FileFormat = None,
    machine: OnMachine = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that exists already.")] = False,
) -> None:
    """Write measurements as records of the modular benchmarker, with all that an import kept of one.

    A model profile that was made with --measure becomes a table of measurements, for estimate --from and compare.

    Examples:

      fomkit export measured.csv -o measured.json

      fomkit export timed.yaml --machine knl-7250 -o step.csv
    """
    from fomkit.measurements import format_measurements
    from fomkit.measurements.benchmarker import format_benchmarker
    from fomkit.profiles import check_absent, write_whole
    from fomkit.study.measured_run import rows_to_export

    check_absent([output], force)
    chosen = file_format or ("measurements" if output.suffix == ".csv" else "benchmarker")
    rows = rows_to_export(source, machine, chosen)
    write_whole(output, format_measurements(rows) if chosen == "measurements" else format_benchmarker(rows))
    print(f"Written: {output} ({len(rows)} of {len(rows)} rows)")

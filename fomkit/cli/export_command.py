"""``fomkit export``: measurements in the form of another program, or a measured profile as such a table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fomkit.errors import FomkitError

if TYPE_CHECKING:
    from fomkit.measurement import Measurement

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

    check_absent([output], force)
    chosen = file_format or ("measurements" if output.suffix == ".csv" else "benchmarker")
    rows = _rows(source, machine, chosen)
    write_whole(output, format_measurements(rows) if chosen == "measurements" else format_benchmarker(rows))
    print(f"Written: {output} ({len(rows)} of {len(rows)} rows)")


def _rows(source: Path, machine: str | None, chosen: str) -> tuple[Measurement, ...]:
    from fomkit.measurements import read_measurements
    from fomkit.profiles import load_model
    from fomkit.profiles.locate import locate
    from fomkit.study.measured_run import measurement_of

    if source.suffix in (".yaml", ".yml"):
        model = load_model(source)
        if machine is None:
            raise FomkitError(
                str(source), "does not say which machine profile stands for where it ran. Add --machine NAME."
            )
        return (measurement_of(model, machine, str(source)),)
    if machine is not None:
        raise FomkitError("--machine", "names where a model profile was measured; a table says it. Leave it out.")
    if chosen == "measurements":
        raise FomkitError(str(source), "is a table of measurements already. Write, for example, '-o record.json'.")
    return read_measurements(locate(str(source), "measurements"))

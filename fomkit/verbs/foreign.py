"""Files of others: timings, ops, traces and records that become profiles, and measurements for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from fomkit.core.model import ModelProfile
from fomkit.verbs.answer import Answer, command, written


@command(
    "exporting",
    arguments={"source": "MEASURED"},
    spelled={"machine": ("--machine",), "file_format": ("--format",)},
    metavar={"machine": "NAME"},
    plain=True,
    examples=(
        "fomkit export measured.csv -o measured.json",
        "fomkit export timed.yaml --machine knl-7250 -o step.csv",
    ),
)
def export(
    source: str | Path | ModelProfile,
    output: str | Path,
    *,
    machine: str | None = None,
    file_format: Literal["benchmarker", "measurements"] | None = None,
    force: bool = False,
) -> Answer:
    """Write measurements as records of the modular benchmarker, with all that an import kept of one.

    A model profile that was made with --measure becomes a table of measurements, for estimate --from and compare.

    Parameters
    ----------
    source : name, path or profile
        A table of measurements (.csv), or a measured model profile (.yaml).
    output : path
        The file to write.
    machine : str, optional
        The machine profile that a measured one ran on.
    file_format : str, optional
        The modular benchmarker's JSON, or a profile's row for a table of measurements; default: by the output's
        ending.
    force : bool
        Replace a file that exists already.

    Returns
    -------
    Answer
        ``fomkit/written/1``: the file that was written.

    Raises
    ------
    FomkitError
        When the source holds no measurement, or the file is there and ``force`` is not given.
    """
    from fomkit.files.write import check_absent, write_whole
    from fomkit.readers.measurements import format_measurements
    from fomkit.readers.records import format_benchmarker
    from fomkit.verbs.measured_run import rows_to_export

    path = Path(output)
    check_absent([path], force)
    chosen = file_format or ("measurements" if path.suffix == ".csv" else "benchmarker")
    rows = rows_to_export(source, machine, chosen)
    write_whole(path, format_measurements(rows) if chosen == "measurements" else format_benchmarker(rows))
    return written([path], [f"Written: {path} ({len(rows)} of {len(rows)} rows)"])

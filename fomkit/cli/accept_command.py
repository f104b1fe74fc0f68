"""``fomkit accept``: what a vendor committed to, held against measurements of the delivered machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fomkit.cli.choices import Interval
from fomkit.cli.names import complete_machine, complete_suite
from fomkit.cli.screen import Quiet, progress, standard_output


def accept(
    suite: Annotated[
        str, typer.Argument(metavar="SUITE", help="Suite by name or path.", autocompletion=complete_suite)
    ],
    committed: Annotated[
        str,
        typer.Option(
            metavar="MACHINE", help="Machine profile that was committed to.", autocompletion=complete_machine
        ),
    ],
    measured: Annotated[Path, typer.Option(metavar="FILE.csv", help="Measurements of the delivered machine.")],
    measured_on: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The machine's name in the measurements; default: the profile's."),
    ] = None,
    interval: Interval = 0.8,
    as_json: Annotated[bool, typer.Option("--json", help="Print fomkit/accept/1 instead of a table.")] = False,
    quiet: Quiet = False,
) -> None:
    """Say for each line of a suite whether what was committed is met.

    Exit code 1 where a required line is not met.

    Examples:

      fomkit accept suite.yaml --committed round2.yaml --measured m.csv
    """
    from fomkit.measurements import read_measurements
    from fomkit.profiles import load_machine, load_model, load_suite
    from fomkit.report.acceptance import format_acceptance
    from fomkit.report.files import to_json
    from fomkit.study import Options
    from fomkit.study.acceptance import accept as accept_lines
    from fomkit.study.acceptance_content import acceptance_content, all_required_met

    lines_of, machine = load_suite(suite), load_machine(committed)
    rows, name = read_measurements(measured), measured_on or machine.name
    with progress(f"rating {suite}", quiet=quiet):
        lines = accept_lines(lines_of, machine, rows, name, Options(interval=interval), load_model)
    content = acceptance_content(lines_of, name, lines, interval)
    print(to_json(content) if as_json else format_acceptance(content, standard_output()), end="")
    if not all_required_met(lines):
        raise typer.Exit(1)

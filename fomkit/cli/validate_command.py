"""``fomkit validate``: the public comparisons rerun, figures beside their targets, tolerances and peers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fomkit.cli.screen import Quiet, progress, standard_output, telling
from fomkit.errors import FomkitError

Data = Annotated[
    Path | None,
    typer.Option("--data", metavar="DIR", help="Labels laid out like validation/neusight; default: those."),
]
Full = Annotated[
    bool, typer.Option("--full", help="Refit and judge inside each fold, as a user would: minutes more.")
]
Sheets = Annotated[
    list[str] | None,
    typer.Option("--sheet", metavar="NAME", help="A DeepBench sheet, such as 'v100 fp32/vector'; default: all."),
]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="Write .json or .csv as well; replaces the file.")
]


Here = Annotated[
    bool,
    typer.Option(
        "--here", help="Measure this machine, estimate ten models' steps on its profile and time them: minutes."
    ),
]


def validate(
    data: Data = None,
    full: Full = False,
    sheets: Sheets = None,
    here: Here = False,
    quick: Annotated[bool, typer.Option("--quick", help="With --here: by the quick plan of measure.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print fomkit/validate/1 instead of tables.")] = False,
    output: Output = None,
    quiet: Quiet = False,
) -> None:
    """Rerun the public comparisons: how far predictions are from measurements that nobody fitted.

    Shape groups left out of DeepBench's tables; NeuSight's labels of calls, whole models and ratios of machines,
    beside what published predictors said of the same labels. No label is ever fitted. The exit code is 1 where a
    figure is past its tolerance (validation/aims.csv).

    With --here the proof is on hardware, of PyTorch on this machine: once without any of the models' shapes in the
    profile, once with exactly these. The models are shipped; the exit code is 1 where a median error is past its
    tolerance.

    Examples:

      fomkit validate

      fomkit validate --data ../shared/data/neusight --json -o validation.json

      fomkit validate --sheet 'v100 fp32/vector'

      fomkit validate --here --quick
    """
    from fomkit.profiles import write_whole
    from fomkit.report.files import to_csv, to_json
    from fomkit.report.validation import format_validation
    from fomkit.validate import validate as run

    if output is not None and output.suffix not in (".json", ".csv"):
        raise FomkitError(str(output), "has an ending that validate cannot write. Use .json or .csv.")
    if here:
        if data is not None or full or sheets:
            raise FomkitError(
                "--here", "takes no --data, --full or --sheet: it times this machine. Leave them out."
            )
        _prove(quick, as_json=as_json, output=output, quiet=quiet)
        return
    if quick:
        raise FomkitError("--quick", "is a plan of --here. Add --here, or leave it out.")
    with progress("validating", quiet=quiet):
        found = run(data, full=full, sheets=sheets)
    content = found.content()
    if output is not None:
        write_whole(output, to_json(content) if output.suffix == ".json" else to_csv(content["lines"]))
    print(to_json(content) if as_json else format_validation(content, standard_output()), end="")
    if found.regressed:
        raise typer.Exit(1)


def _prove(quick: bool, *, as_json: bool, output: Path | None, quiet: bool) -> None:
    """Prove the chain on the machine at hand."""
    from fomkit.profiles import write_whole
    from fomkit.report.files import to_csv, to_json
    from fomkit.report.proof import format_proof
    from fomkit.validate.here import prove_here
    from fomkit.validate.here_content import content_of

    with telling("starting", quiet=quiet) as tell:
        content = content_of(prove_here(quick=quick, tell=tell))
    if output is not None:
        write_whole(output, to_json(content) if output.suffix == ".json" else to_csv(content["models"]))
    print(to_json(content) if as_json else format_proof(content, standard_output()), end="")
    if content["regressed"]:
        raise typer.Exit(1)

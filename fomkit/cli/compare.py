"""``fomkit validate``: the public comparisons."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fomkit.cli import choices
from fomkit.cli.choices import option
from fomkit.core.errors import FomkitError

Data = Annotated[
    Path | None, option("Labels laid out like validation/neusight; default: those.", "--data", metavar="DIR")
]
Full = Annotated[bool, option("Refit and judge inside each fold, as a user would: minutes more.", "--full")]
Sheets = Annotated[
    list[str] | None,
    option("A DeepBench sheet, such as 'v100 fp32/vector'; default: all.", "--sheet", metavar="NAME"),
]
Here = Annotated[
    bool,
    option("Measure this machine, estimate ten models' steps on its profile and time them: minutes.", "--here"),
]


def validate(
    data: Data = None,
    full: Full = False,
    sheets: Sheets = None,
    here: Here = False,
    quick: Annotated[bool, option("With --here: by the quick plan of measure.", "--quick")] = False,
    as_json: Annotated[bool, option("Print fomkit/validate/1 instead of tables.", "--json")] = False,
    output: choices.Output = None,
    quiet: choices.Quiet = False,
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
    from fomkit.verbs.measuring import prove_here, validate_predictions

    choices.check_output(output, "validate")
    if here:
        if data is not None or full or sheets:
            raise FomkitError(
                "--here", "takes no --data, --full or --sheet: it times this machine. Leave them out."
            )
        with choices.status_line("starting", quiet=quiet) as tell:
            answer = prove_here(quick=quick, tell=tell)
    else:
        if quick:
            raise FomkitError("--quick", "is a plan of --here. Add --here, or leave it out.")
        with choices.progress("validating", quiet=quiet):
            answer = validate_predictions(data, full=full, sheets=sheets)
    choices.show_answer(answer, as_json=as_json, output=output)
    if answer.content["regressed"]:
        raise typer.Exit(1)

"""The verbs accept, review, pack and export.

``fomkit accept``: what a vendor committed to, held against measurements of the delivered machine.

``fomkit review``: what a vendor changed in a workbook, and what it does.

``fomkit pack``: what to ask a vendor to time, and a script that times it.

``fomkit export``: measurements in the form of another program, or a measured profile as such a table.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fomkit.cli import choices
from fomkit.cli.choices import argument, machine_option, model_argument, option, output_option
from fomkit.core.errors import FomkitError

if TYPE_CHECKING:
    from fomkit.core.machine import Machine
    from fomkit.workbook.review import Review


def accept(
    suite: Annotated[str, argument("Suite by name or path.", "SUITE", autocompletion=choices.complete_suite)],
    committed: Annotated[str, machine_option("Machine profile that was committed to.", metavar="MACHINE")],
    measured: Annotated[Path, option("Measurements of the delivered machine.", metavar="FILE.csv")],
    measured_on: Annotated[
        str | None, option("The machine's name in the measurements; default: the profile's.", metavar="NAME")
    ] = None,
    interval: choices.Interval = 0.8,
    as_json: Annotated[bool, option("Print fomkit/accept/1 instead of a table.", "--json")] = False,
    quiet: choices.Quiet = False,
) -> None:
    """Say for each line of a suite whether what was committed is met.

    Exit code 1 where a required line is not met.

    Examples:

      fomkit accept suite.yaml --committed round2.yaml --measured m.csv
    """
    from fomkit.profiles.suites import load_suite
    from fomkit.verbs.suites import acceptance

    lines, machine, options = (
        load_suite(suite),
        choices.load_machine(committed),
        choices.options_of(interval=interval),
    )
    with choices.progress(f"rating {suite}", quiet=quiet):
        found = acceptance(lines, machine, measured, measured_on, options)
    choices.show_answer(found, as_json=as_json)
    if any(line["required"] and line["verdict"] != "met" for line in found.rows):
        raise typer.Exit(1)


def review(
    workbook: Annotated[Path, argument("The workbook that came back (.xlsx).", "WORKBOOK")],
    issued: Annotated[Path, option("The workbook that was sent.", "--issued")],
    output: Annotated[
        Path | None, output_option("Keep the changed machine as a profile (.yaml) whose party is vendor.")
    ] = None,
    force: Annotated[bool, option("Replace files that exist.", "--force")] = False,
    as_json: Annotated[bool, option("Print fomkit/review/1 instead of text.", "--json")] = False,
) -> None:
    """Show what a vendor changed in a workbook, cell by cell, and what each change does.

    Every number is computed anew from the inputs; formulas of the returned workbook are compared and not trusted.
    Exit code 1 means that there is something to talk about.

    Examples:

      fomkit review vendor.xlsx --issued sent.xlsx

      fomkit review vendor.xlsx --issued sent.xlsx -o round3.yaml
    """
    from fomkit.output.suites import format_review
    from fomkit.workbook.review import review as run_review
    from fomkit.workbook.review import review_content

    if output is not None and output.suffix not in (".yaml", ".yml"):
        raise FomkitError(str(output), "has an ending that no machine profile has. Use .yaml.")
    found = run_review(workbook, issued)
    content = review_content(found)
    choices.write_answer(content, format_review, as_json=as_json)
    if output is not None:
        _keep(found, output, force)
    if content["findings"]:
        raise typer.Exit(1)


def _known(name: str) -> Machine | None:
    """Load the machine's own profile, whose table of timings no workbook holds."""
    try:
        return choices.load_machine(name)
    except FomkitError:
        return None


def _keep(found: Review, output: Path, force: bool) -> None:
    from fomkit.verbs.profiles import save
    from fomkit.workbook.review import changed_machine, not_recorded, round_machine

    impossible = next((finding for finding in found.findings if finding.kind == "range"), None)
    if impossible is not None:
        raise FomkitError(
            str(output), f"is not written, because {impossible.where} cannot be: {impossible.message}"
        )
    save(round_machine(found, _known(changed_machine(found))), output, force=force)
    for message in not_recorded(found):
        typer.echo(message, err=True)


def pack(
    models: Annotated[list[str], model_argument("Model profiles by name or path.", "MODEL...")],
    target: choices.Target,
    output: Annotated[Path, option("New folder to write.", "--output", "-o", metavar="FOLDER")],
    batch: choices.Batch = None,
    sizes: choices.Sizes = None,
    precision: choices.Precisions = None,
    quiet: choices.Quiet = False,
) -> None:
    """Ask somebody to time exactly the ops that carry the models' steps.

    Writes cases.csv, which a simulator can fill, time_ops.py, which fills it where PyTorch runs and checks each
    result, and README.txt. It tells what share of each step the table carries and the script can time, and
    which ops it cannot. What comes back is imported with 'fomkit import'.

    Examples:

      fomkit pack resnet50 gpt2 --target v100 -o for-vendor
    """
    from fomkit.verbs.suites import write_pack

    chosen = choices.options_of(batch=batch, sizes=sizes, precision=precision, allow_uncovered=True)
    with choices.progress("estimating", len(models), quiet=quiet) as advance:
        made = write_pack(models, target, output, chosen, advance)
    for line in made.lines:
        print(line)
    print(f"{output}: {', '.join(made.files)}")


Source = Annotated[
    Path, argument("A table of measurements (.csv), or a measured model profile (.yaml).", "MEASURED")
]
FileFormat = Annotated[
    Literal["benchmarker", "measurements"] | None,
    option(
        "The modular benchmarker's JSON, or a profile's row for a table of measurements; default: by the "
        "output's ending.",
        "--format",
    ),
]
OnMachine = Annotated[
    str | None, option("The machine profile that a measured one ran on.", "--machine", metavar="NAME")
]


def export(
    source: Source,
    output: Annotated[Path, output_option("The file to write.")],
    file_format: FileFormat = None,
    machine: OnMachine = None,
    force: Annotated[bool, option("Replace a file that exists already.", "--force")] = False,
) -> None:
    """Write measurements as records of the modular benchmarker, with all that an import kept of one.

    A model profile that was made with --measure becomes a table of measurements, for estimate --from and compare.

    Examples:

      fomkit export measured.csv -o measured.json

      fomkit export timed.yaml --machine knl-7250 -o step.csv
    """
    from fomkit.verbs.measurements import write_rows

    count = write_rows(source, output, machine, file_format, force)
    print(f"Written: {output} ({count} of {count} rows)")

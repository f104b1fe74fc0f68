"""``fomkit review``: what a vendor changed in a workbook, and what it does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fomkit.cli.screen import standard_output
from fomkit.errors import FomkitError

if TYPE_CHECKING:
    from fomkit.hardware import Machine
    from fomkit.study.rounds import Review


def review(
    workbook: Annotated[Path, typer.Argument(metavar="WORKBOOK", help="The workbook that came back (.xlsx).")],
    issued: Annotated[Path, typer.Option("--issued", help="The workbook that was sent.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Keep the changed machine as a profile (.yaml) whose party is vendor."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace files that exist.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print fomkit/review/1 instead of text.")] = False,
) -> None:
    """Show what a vendor changed in a workbook, cell by cell, and what each change does.

    Every number is computed anew from the inputs; formulas of the returned workbook are compared and not trusted.
    Exit code 1 means that there is something to talk about.

    Examples:

      fomkit review vendor.xlsx --issued sent.xlsx

      fomkit review vendor.xlsx --issued sent.xlsx -o round3.yaml
    """
    from fomkit.report.files import to_json
    from fomkit.report.review import format_review
    from fomkit.study.review import review as run_review
    from fomkit.study.review import review_content

    if output is not None and output.suffix not in (".yaml", ".yml"):
        raise FomkitError(str(output), "has an ending that no machine profile has. Use .yaml.")
    found = run_review(workbook, issued)
    content = review_content(found)
    print(to_json(content) if as_json else format_review(content, standard_output()), end="")
    if output is not None:
        _keep(found, output, force)
    if content["findings"]:
        raise typer.Exit(1)


def _known(name: str) -> Machine | None:
    """Load the machine's own profile, whose table of timings no workbook holds."""
    from fomkit.profiles import load_machine

    try:
        return load_machine(name)
    except FomkitError:
        return None


def _keep(found: Review, output: Path, force: bool) -> None:
    from fomkit.profiles.save_machine import save_machine
    from fomkit.profiles.write import check_absent
    from fomkit.study.rounds import changed_machine, not_kept, round_machine

    impossible = next((one for one in found.findings if one.kind == "range"), None)
    if impossible is not None:
        raise FomkitError(str(output), f"is not written, because {impossible.where} cannot be: {impossible.said}")
    check_absent([output, output.with_name(f"{output.stem}.timings.csv")], force)
    save_machine(round_machine(found, _known(changed_machine(found))), output)
    for said in not_kept(found):
        typer.echo(said, err=True)

"""``fomkit advise``: what to change in a training on a machine, and the time at stake."""

from __future__ import annotations

from typing import Annotated

import typer

from fomkit.cli.choices import Batch, Interval, Output, Precisions, Sizes, Target
from fomkit.cli.names import complete_model
from fomkit.cli.screen import Quiet, progress, standard_output
from fomkit.cli.sizes import parse_sizes
from fomkit.errors import FomkitError


def advise(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="Model profile by name or path.", autocompletion=complete_model)
    ],
    target: Target,
    batch: Batch = None,
    sizes: Sizes = None,
    precision: Precisions = None,
    interval: Interval = 0.8,
    tried: Annotated[
        bool, typer.Option("--all", help="List too what was tried and rejected, and what does not apply.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print fomkit/advise/1 instead of text.")] = False,
    output: Output = None,
    quiet: Quiet = False,
) -> None:
    """Advise what to change in a training: use of the device, memory, and the time at stake of each change.

    Each change is estimated again. The -o file as .csv has one line for each finding.

    Examples:

      fomkit advise resnet50 --target v100

      fomkit advise gpt2 --target a100-sxm --precision bf16 --batch 8 --all
    """
    from fomkit.advice import advise as advise_on
    from fomkit.profiles import load_machine, load_model, write_whole
    from fomkit.report.advise import format_advice, lines_of_findings
    from fomkit.report.files import to_csv, to_json
    from fomkit.study import Options

    if output is not None and output.suffix not in (".json", ".csv"):
        raise FomkitError(str(output), "has an ending that advise cannot write. Use .json or .csv.")
    options = Options(batch, interval, sizes=parse_sizes(sizes or ()), precision=precision)
    with progress("trying changes", quiet=quiet):
        content = advise_on(load_model(model), load_machine(target), options).content
    if output is not None:
        text = to_json(content) if output.suffix == ".json" else to_csv(lines_of_findings(content))
        write_whole(output, text)
    print(to_json(content) if as_json else format_advice(content, standard_output(), tried=tried), end="")

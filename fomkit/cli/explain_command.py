"""``fomkit explain``: what carries the time of a step, what that rests on, and what to time first."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fomkit.cli.choices import Batch, Interval, Precisions, Sizes, Target
from fomkit.cli.names import complete_model
from fomkit.cli.screen import Quiet, progress, standard_output
from fomkit.cli.sizes import parse_sizes
from fomkit.errors import FomkitError

Model = Annotated[
    str, typer.Argument(metavar="MODEL", help="Model profile by name or path.", autocompletion=complete_model)
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", help="Write as well: .json everything, .csv the ops to time; replaces the file."
    ),
]


def explain(
    model: Model,
    target: Target,
    top: Annotated[int, typer.Option(min=1, help="Ops, and measurements, to list.")] = 10,
    batch: Batch = None,
    sizes: Sizes = None,
    precision: Precisions = None,
    interval: Interval = 0.8,
    as_json: Annotated[bool, typer.Option("--json", help="Print fomkit/explain/1 instead of text.")] = False,
    output: Output = None,
    quiet: Quiet = False,
) -> None:
    """Explain a step's time: its longest ops, what each rests on, and what to time.

    For each op: time with interval, the nearest timings and where they stand, the formulas of arithmetic and
    traffic with the numbers put in, and the floor. At the end, which ops timed on the machine would shrink the
    step's interval most. The method's nine steps are in 'fomkit estimate --explain'.

    Examples:

      fomkit explain resnet50 --target v100 --top 5

      fomkit explain gpt2 --target a100-sxm --set seq=512 --precision bf16

      fomkit explain p1b3-lecture --target x86-lecture --json
    """
    from fomkit.profiles import load_machine, load_model, write_whole
    from fomkit.report.evidence import format_evidence, measurement_rows
    from fomkit.report.files import to_csv, to_json
    from fomkit.study import Options
    from fomkit.study.evidence import explain_ops

    if output is not None and output.suffix not in (".json", ".csv"):
        raise FomkitError(str(output), "has an ending that explain cannot write. Use .json or .csv.")
    options = Options(batch, interval, allow_uncovered=True, sizes=parse_sizes(sizes or ()), precision=precision)
    with progress("explaining", quiet=quiet):
        content = explain_ops(load_model(model), load_machine(target), options, top)
    if output is not None:
        rows = measurement_rows(content)
        write_whole(output, to_json(content) if output.suffix == ".json" else to_csv(rows))
    print(to_json(content) if as_json else format_evidence(content, standard_output()), end="")

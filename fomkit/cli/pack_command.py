"""``fomkit pack``: what to ask a vendor to time, and a script that times it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fomkit.cli.choices import Batch, Precisions, Sizes, Target
from fomkit.cli.names import complete_model
from fomkit.cli.screen import Quiet, progress
from fomkit.cli.sizes import parse_sizes


def pack(
    models: Annotated[
        list[str],
        typer.Argument(metavar="MODEL...", help="Model profiles by name or path.", autocompletion=complete_model),
    ],
    target: Target,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="New folder to write.")],
    batch: Batch = None,
    sizes: Sizes = None,
    precision: Precisions = None,
    quiet: Quiet = False,
) -> None:
    """Ask somebody to time exactly the ops that carry the models' steps.

    Writes cases.csv, which a simulator can fill, time_ops.py, which fills it where PyTorch runs and checks each
    result, and README.txt. It tells what share of each step the table carries and the script can time, and
    which ops it cannot. What comes back is imported with 'fomkit import'.

    Examples:

      fomkit pack resnet50 gpt2 --target v100 -o for-vendor
    """
    from fomkit.errors import FomkitError
    from fomkit.profiles import load_machine, load_model, write_whole
    from fomkit.study import Options, estimate
    from fomkit.study.pack import make_pack

    if output.exists():
        raise FomkitError(str(output), "is there already. Name a new folder.")
    chosen = Options(batch=batch, sizes=parse_sizes(sizes or []), precision=precision, allow_uncovered=True)
    machine = load_machine(target)
    with progress("estimating", len(models), quiet=quiet) as advance:
        estimates = []
        for name in models:
            estimates.append(estimate(load_model(name), machine, chosen))
            advance()
    made = make_pack(estimates)
    output.mkdir(parents=True)
    for name, text in made.files.items():
        write_whole(output / name, text)
    for line in made.lines:
        print(line)
    print(f"{output}: {', '.join(made.files)}")

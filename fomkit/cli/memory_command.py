"""``fomkit memory``: what a step takes of a device's memory, when, for what, and the largest batch that fits."""

from __future__ import annotations

from typing import Annotated

import typer

from fomkit.cli.choices import Batch, Output, Sizes
from fomkit.cli.names import complete_machine, complete_model
from fomkit.cli.screen import Quiet, progress, standard_output
from fomkit.cli.sizes import parse_sizes
from fomkit.errors import FomkitError


def memory(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="Model profile by name or path.", autocompletion=complete_model)
    ],
    batch: Batch = None,
    sizes: Sizes = None,
    target: Annotated[
        str | None,
        typer.Option(
            "--target", "-t", help="Machine whose device is to hold it.", autocompletion=complete_machine
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print fomkit/memory/1 instead of tables.")] = False,
    output: Output = None,
    quiet: Quiet = False,
) -> None:
    """Follow the memory of one step: parameters, gradients, optimizer state, activations, by moment and module.

    The -o file as .csv has one line for each moment.

    Examples:

      fomkit memory resnet50 --batch 64 --target v100

      fomkit memory gpt2 --set seq=512 --json
    """
    from fomkit.profiles import load_machine, load_model, write_whole
    from fomkit.report.files import to_csv, to_json
    from fomkit.report.memory import format_memory
    from fomkit.study import Options
    from fomkit.study.memory_view import memory_content

    if output is not None and output.suffix not in (".json", ".csv"):
        raise FomkitError(str(output), "has an ending that memory cannot write. Use .json or .csv.")
    with progress("following the memory", quiet=quiet):
        machine = None if target is None else load_machine(target)
        options = Options(batch, sizes=parse_sizes(sizes or ()))
        content = memory_content(load_model(model), options, machine)
    if output is not None:
        write_whole(output, to_json(content) if output.suffix == ".json" else to_csv(content["live"]))
    print(to_json(content) if as_json else format_memory(content, standard_output()), end="")

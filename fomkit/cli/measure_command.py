"""``fomkit measure``: time ops on this machine and write its profile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fomkit.cli.choices import Batch, Precisions, Sizes
from fomkit.cli.measure_beside import (
    Add,
    Backends,
    Beside,
    InputFile,
    Network,
    Nodes,
    RankCount,
    SlurmFile,
    Workers,
    measure_beside,
)
from fomkit.cli.names import complete_model
from fomkit.cli.screen import Quiet, Tell, telling
from fomkit.cli.sizes import parse_sizes

if TYPE_CHECKING:
    from fomkit.measure import Asked
    from fomkit.measure.run import Measured

Models = Annotated[
    list[str] | None,
    typer.Option(
        "--for",
        metavar="MODEL",
        help="Time the ops of this model, by profile name or path, at their exact sizes; may be repeated.",
        autocompletion=complete_model,
    ),
]

LibraryName = Annotated[
    Literal["torch", "tensorflow"] | None,
    typer.Option(help="What runs the ops; default: PyTorch, or TensorFlow where only that is here."),
]


def measure(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Machine profile to write.")],
    quick: Annotated[bool, typer.Option("--quick", help="About 2 minutes.")] = False,
    full: Annotated[bool, typer.Option("--full", help="About an hour; default: about 10 minutes.")] = False,
    models: Models = None,
    batch: Batch = None,
    sizes: Sizes = None,
    precision: Precisions = None,
    device: Annotated[Literal["cpu", "cuda"], typer.Option(help="What is measured.")] = "cpu",
    threads: Annotated[int, typer.Option(min=1, help="Threads on a CPU; 1 is timed by process time.")] = 1,
    library: LibraryName = None,
    name: Annotated[str, typer.Option(help="Name of the machine; default: the file's.")] = "",
    seed: Annotated[int, typer.Option(min=0, help="Of the random order in which ops are timed.")] = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from what an earlier run kept.")] = False,
    network: Network = False,
    ranks: RankCount = None,
    backend: Backends = None,
    slurm: SlurmFile = None,
    nodes: Nodes = None,
    input_file: InputFile = None,
    workers: Workers = None,
    add: Add = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print fomkit/measured/1 instead of text.")] = False,
    quiet: Quiet = False,
) -> None:
    """Time ops on this machine with PyTorch, or TensorFlow, and write its profile.

    Each result is checked against double precision first. Without --for the ops fill the space of sizes. Time is
    that of the clock that times the ops: on a busy machine it takes up to four times as long by the wall.

    Exit code 1 where less than 80 % of each model's predicted step time, without --for 20 % of the plan's ops, is
    measured or interpolated; --resume goes on. --network, --input: docs/measure-network.md.

    Examples:

      fomkit measure --quick -o here.yaml

      fomkit measure --for resnet50 --batch 8 -o here.yaml --force

      fomkit measure --library tensorflow --quick -o here_tensorflow.yaml

      fomkit measure --network --ranks 2 --quick -o ranks.yaml

      fomkit measure --input loader.py -o here.yaml --add
    """
    plan = _plan(output, quick, full)
    if beside := Beside.of(plan, locals()):
        measure_beside(beside)
        return
    from fomkit.measure import Asked
    from fomkit.profiles import check_absent
    from fomkit.study import Options

    check_absent([output], force or resume)
    options = Options(batch=batch, sizes=parse_sizes(sizes or []), precision=precision)
    asked = Asked(
        output, plan, tuple(models or ()), options, device, threads, seed, resume, name, library=library or ""
    )
    _report(_measured(asked, quiet), as_json)


def _plan(output: Path, quick: bool, full: bool) -> str:
    from fomkit.errors import FomkitError

    if quick and full:
        raise FomkitError("--quick, --full", "ask for two plans. Choose one.")
    if output.suffix != ".yaml":
        raise FomkitError(str(output), "has not the ending of a machine profile. Name it, for example, here.yaml.")
    return "quick" if quick else "full" if full else "default"


def _measured(asked: Asked, quiet: bool) -> Measured:
    from fomkit.measure import measure

    with _told(quiet) as tell:
        return measure(asked, tell)


@contextmanager
def _told(quiet: bool) -> Iterator[Tell]:
    """Tell the op that is timed and the time that is left at most."""
    count = 0
    with telling("starting the process that times", quiet=quiet) as tell:

        def advance(text: str) -> None:
            nonlocal count
            count += 1
            tell(f"op {count}, {text}")

        yield advance


def _report(found: Measured, as_json: bool) -> None:
    print(_as_json(found) if as_json else _as_text(found), end="")
    if not found.verdict.sufficient:
        raise typer.Exit(1)


def _as_json(found: Measured) -> str:
    from fomkit.report.files import to_json

    files = [str(one) for one in found.files]
    return to_json(
        {"schema": "fomkit/measured/1", "machine": found.machine.name, **found.verdict.content(), "files": files,
         "notes": list(found.machine.notes)}
    )  # fmt: skip


def _as_text(found: Measured) -> str:
    verdict = found.verdict
    lines = [*found.machine.notes, f"Written: {', '.join(str(one) for one in found.files)}"]
    if verdict.resume and (found.interrupted or not verdict.sufficient):
        lines.append(f"{'interrupted; ' if found.interrupted else ''}to go on: {verdict.resume}")
    return "".join(f"{line}\n" for line in lines)

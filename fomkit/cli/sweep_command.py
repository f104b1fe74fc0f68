"""``fomkit sweep``: one model on one machine at many points of its parameters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fomkit.cli.choices import Batch, Interval, Oversize, Precisions, Sizes, Target, Uncovered, end_if_oversize
from fomkit.cli.names import complete_model
from fomkit.cli.scaling_command import Layouts, Links, NodeDevices
from fomkit.cli.screen import Quiet, progress, standard_output
from fomkit.cli.sizes import parse_sizes
from fomkit.errors import FomkitError

if TYPE_CHECKING:
    import pandas as pd

    from fomkit.whatif.sweep import Sweep
    from fomkit.whatif.sweep_tally import Tally

Vary = Annotated[
    list[str],
    typer.Option(
        "--vary", metavar="NAME=VALUES", help="A parameter and its values: 16,32 or LOW..HIGH:STEPS[:log]."
    ),
]
Way = Annotated[
    Literal["grid", "random", "sobol"], typer.Option(help="Every combination, or points drawn from the ranges.")
]
Points = Annotated[
    int | None, typer.Option(min=1, help="Points to draw, with --way random or sobol.  [default: 4096]")
]
Seed = Annotated[int, typer.Option(min=0, help="Of the random numbers, or of the Sobol sequence.")]
Scheduler = Annotated[
    str | None, typer.Option(metavar="ADDRESS", help="Of a Dask scheduler whose workers do it: tcp://HOST:8786.")
]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="Write every point as .csv or .parquet, or .json; replaces the file."),
]
ScopeOf = Annotated[
    Literal["device", "node", "system"] | None,
    typer.Option(help="What of the machine does the work; default: the narrowest that it states."),
]


def parse_vary(texts: list[str]) -> dict[str, str]:
    """Read parameters such as ``batch=16,32``.

    Raises
    ------
    FomkitError
        When one has no name or no values, or stands twice.

    Examples
    --------
    >>> parse_vary(["batch=16,32", "byte_per_s=0.5 TB/s..4 TB/s:8"])
    {'batch': '16,32', 'byte_per_s': '0.5 TB/s..4 TB/s:8'}
    """
    found: dict[str, str] = {}
    for text in texts:
        name, _, values = (part.strip() for part in text.partition("="))
        if not name or not values:
            raise FomkitError(f"--vary {text}", "is no NAME=VALUES. Write, for example, --vary batch=16,32,64.")
        if name in found:
            raise FomkitError(f"--vary {text}", f"{name} stands twice. Put all its values into one.")
        found[name] = values
    return found


def sweep(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="Model profile by name or path.", autocompletion=complete_model)
    ],
    target: Target,
    vary: Vary,
    way: Way = "grid",
    points: Points = None,
    seed: Seed = 0,
    batch: Batch = None,
    sizes: Sizes = None,
    precision: Precisions = None,
    interval: Interval = 0.8,
    scope: ScopeOf = None,
    allow_uncovered: Uncovered = False,
    allow_oversize: Oversize = False,
    layout: Layouts = None,
    links: Links = None,
    node_devices: NodeDevices = None,
    scheduler: Scheduler = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print fomkit/sweep/1 instead of text.")] = False,
    output: Output = None,
    quiet: Quiet = False,
) -> None:
    """Estimate a training at many points: sizes, rates of the machine, nodes, links, price and power.

    Tells the best points and the front over time, cost, energy and memory. docs/sweep.md lists the parameters.
    Exit code 1 where the device's memory holds the step of no point.

    Examples:

      fomkit sweep vgg16 -t v100 --vary batch=16,32,64 -o points.csv

      fomkit sweep p1b3 -t v100 --vary 'byte_per_s=0.5 TB/s..4 TB/s:8:log'

      fomkit sweep gpt2 -t v100 --vary batch=1..8 --way sobol --points 8
    """
    from fomkit.profiles import load_machine, load_model
    from fomkit.report.sweep_files import check_ending
    from fomkit.study import Options
    from fomkit.study.layout_file import spread_of
    from fomkit.study.scaling import with_links
    from fomkit.whatif.sweep import make_sweep
    from fomkit.whatif.sweep_content import sweep_content
    from fomkit.whatif.sweep_tally import Tally

    if output is not None and output.suffix != ".json":
        check_ending(str(output), output.suffix)
    options = Options(batch, interval, scope, None, allow_uncovered, parse_sizes(sizes or ()), precision)
    spread, given = spread_of(layout or (), links or ())
    machine = with_links(load_machine(target), given, node_devices)
    asked = make_sweep(load_model(model), machine, parse_vary(vary), way=way, points=points, seed=seed,
                       options=options, layout=spread)  # fmt: skip
    tally = Tally(asked)
    _work(asked, tally, scheduler, output, quiet=quiet)
    content = sweep_content(asked, tally)
    _tell(content, output, as_json)
    if content["too_large"] == content["points"]:
        none = f"{content['model']} on {content['target']}: no point of the sweep fits the device's memory"
        end_if_oversize([none], allowed=allow_oversize)


def _tell(content: dict[str, Any], output: Path | None, as_json: bool) -> None:
    from fomkit.profiles import write_whole
    from fomkit.report.files import to_json
    from fomkit.report.sweep import format_sweep

    if output is not None and output.suffix == ".json":
        write_whole(output, to_json(content))
    print(to_json(content) if as_json else format_sweep(content, standard_output()), end="")


def _work(asked: Sweep, tally: Tally, scheduler: str | None, output: Path | None, *, quiet: bool) -> None:
    """Work the points out, and write them as they come."""
    from fomkit.profiles import check_absent, whole_file
    from fomkit.report.sweep_files import write_blocks
    from fomkit.whatif.sweep_result import blocks_of_sweep

    if output is not None:
        check_absent([output], force=True)
    with progress("sweeping", len(asked.stretches()), quiet=quiet) as advance:

        def passing() -> Iterator[pd.DataFrame]:
            for block in tally.over(blocks_of_sweep(asked, scheduler)):
                yield block
                advance()

        if output is None or output.suffix == ".json":
            for _ in passing():
                pass
            return
        with whole_file(output) as stream:
            write_blocks(passing(), stream, output.suffix)

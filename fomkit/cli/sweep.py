"""``fomkit sweep``: one model on one machine at many points of its parameters."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from fomkit.cli import choices
from fomkit.cli.choices import option, output_option
from fomkit.core.errors import FomkitError

if TYPE_CHECKING:
    from fomkit.whatif.sweep import Sweep
    from fomkit.whatif.sweep_result import Tally


Vary = Annotated[
    list[str],
    option("A parameter and its values: 16,32 or LOW..HIGH:STEPS[:log].", "--vary", metavar="NAME=VALUES"),
]
Way = Annotated[Literal["grid", "random", "sobol"], option("Every combination, or points drawn from the ranges.")]
Points = Annotated[int | None, option("Points to draw, with --way random or sobol.  [default: 4096]", min=1)]
Seed = Annotated[int, option("Of the random numbers, or of the Sobol sequence.", min=0)]
Scheduler = Annotated[
    str | None, option("Of a Dask scheduler whose workers do it: tcp://HOST:8786.", metavar="ADDRESS")
]
Resume = Annotated[
    bool, option("Go on where a sweep into the same -o was ended: its whole stretches are kept.", "--resume")
]
Output = Annotated[
    Path | None, output_option("Write every point as .csv or .parquet, or .json; replaces the file.")
]
ScopeOf = Annotated[
    choices.ScopeName | None, option("What of the machine does the work; default: the narrowest that it states.")
]


def parse_vary(texts: list[str]) -> dict[str, str]:
    """Read parameters such as ``batch=16,32``.

    Raises FomkitError when one has no name or no values, or stands twice.

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
    model: choices.Model,
    target: choices.Target,
    vary: Vary,
    way: Way = "grid",
    points: Points = None,
    seed: Seed = 0,
    batch: choices.Batch = None,
    sizes: choices.Sizes = None,
    precision: choices.Precisions = None,
    interval: choices.Interval = 0.8,
    scope: ScopeOf = None,
    allow_uncovered: choices.Uncovered = False,
    allow_oversize: choices.Oversize = False,
    layout: choices.Layouts = None,
    links: choices.Links = None,
    node_devices: choices.NodeDevices = None,
    scheduler: Scheduler = None,
    resume: Resume = False,
    as_json: Annotated[bool, option("Print fomkit/sweep/1 instead of text.", "--json")] = False,
    output: Output = None,
    quiet: choices.Quiet = False,
) -> None:
    """Estimate a training at many points: sizes, rates of the machine, nodes, links, price and power.

    Tells the best points and the front over time, cost, energy and memory. docs/sweep.md lists the parameters.
    Exit code 1 where the device's memory holds the step of no point.

    Examples:

      fomkit sweep vgg16 -t v100 --vary batch=16,32,64 -o points.csv

      fomkit sweep p1b3 -t v100 --vary 'byte_per_s=0.5 TB/s..4 TB/s:8:log'

      fomkit sweep gpt2 -t v100 --vary batch=1..8 --way sobol --points 8
    """
    from fomkit.output.points import check_ending
    from fomkit.output.sweeps import format_sweep
    from fomkit.plan.scaling import with_links
    from fomkit.profiles.declared import spread_of
    from fomkit.whatif.sweep import make_sweep
    from fomkit.whatif.sweep_result import Tally, sweep_content

    if output is not None and output.suffix != ".json":
        check_ending(str(output), output.suffix)
    options = choices.options_of(batch, interval, scope, None, allow_uncovered, sizes, precision)
    spread, given = spread_of(layout or (), links or ())
    machine = with_links(choices.load_machine(target), given, node_devices)
    spec = make_sweep(choices.load_model(model), machine, parse_vary(vary), way=way, points=points, seed=seed,
                       options=options, layout=spread)  # fmt: skip
    tally = Tally(spec)
    _work(spec, tally, scheduler, output, resume=resume, quiet=quiet)
    content = sweep_content(spec, tally)
    as_a_whole = output if output is not None and output.suffix == ".json" else None
    choices.write_answer(content, format_sweep, as_json=as_json, output=as_a_whole)
    if content["too_large"] == content["points"]:
        none = f"{content['model']} on {content['target']}: no point of the sweep fits the device's memory"
        choices.end_if_oversize([none], allowed=allow_oversize)


def _work(
    spec: Sweep, tally: Tally, scheduler: str | None, output: Path | None, *, resume: bool, quiet: bool
) -> None:
    """Work the points out, and keep them as they come."""
    from fomkit.files.write import check_absent
    from fomkit.output.points import KeptStretches
    from fomkit.whatif.sweep_result import blocks_of_sweep

    kept = None
    if output is not None:
        check_absent([output], force=True)
        kept = KeptStretches(output, spec.key) if output.suffix != ".json" else None
    if kept is not None:
        kept.begin(resume=resume)
    elif resume:
        raise FomkitError("--resume", "goes on with the points of a file. Name it: -o points.csv, or .parquet.")
    with choices.progress("sweeping", len(spec.stretches()), quiet=quiet) as advance:
        blocks = blocks_of_sweep(spec, scheduler, kept.count if kept is not None else 0)
        if kept is not None:
            blocks = kept.over(blocks, (*spec.names, *spec.columns), spec.stretches())
        for _ in tally.over(blocks):
            advance()
    if kept is not None:
        kept.write()

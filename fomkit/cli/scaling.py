"""``fomkit scaling``: a training on more and more nodes, what limits it, and the bandwidth that a gain needs.

``fomkit sweep``: one model on one machine at many points of its parameters.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from fomkit.cli import choices
from fomkit.cli.choices import option, output_option
from fomkit.core.errors import FomkitError

if TYPE_CHECKING:
    from fomkit.whatif.sweep import Sweep
    from fomkit.whatif.sweep_result import Tally


_RANGE = re.compile(r"(\d{1,9})(?:\.\.(\d{1,9}))?")
Nodes = Annotated[str, option("Numbers of nodes; a range doubles from its first to its last.", metavar="N,N|N..N")]

Mode = Annotated[Literal["strong", "weak", "both"], option("One batch shared out, or one for each replica.")]
WholeBatch = Annotated[
    int | None, option("Samples of a strong step; default: --batch for each replica of the fewest nodes.", min=1)
]
Once = Annotated[
    list[str] | None,
    option(
        "Paid once a job: scheduler=15.5% of it as it is, or compile=40s.", "--once", metavar="NAME=SHARE|TIME"
    ),
]
Slots = Annotated[int | None, option("Jobs that the queue lets run side by side.", min=1)]
Checkpoint = Annotated[str | None, option("To write a checkpoint: '60 s'.", metavar="TIME")]
Restart = Annotated[str | None, option("To start again after a failure.", metavar="TIME")]
DeviceMtbf = Annotated[str | None, option("Mean time between failures of one device: '50000 h'.", metavar="TIME")]
Every = Annotated[str | None, option("Between checkpoints; default: Daly's best.", metavar="TIME")]


def parse_nodes(text: str) -> list[int]:
    """Read numbers of nodes such as ``1..4096`` or ``1,3,12``.

    Raises FomkitError when one is no whole number of 1 or more.

    Examples
    --------
    >>> parse_nodes("1..6"), parse_nodes("3,12")
    ([1, 2, 4, 6], [3, 12])
    """
    found: set[int] = set()
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise FomkitError(f"--nodes {text}", f"{part.strip()!r} is no whole number. Give 1..4096, or 1,2,4.")
        first, last = int(match[1]), int(match[2] or match[1])
        if first < 1 or last < first:
            raise FomkitError(
                f"--nodes {text}", f"{part.strip()!r} is no range from 1 up. Give, for example, 1..64."
            )
        while first < last:
            found.add(first)
            first *= 2
        found.add(last)
    return sorted(found)


def scaling(
    model: choices.Model,
    target: choices.Target,
    nodes: Nodes = "1..4096",
    mode: Mode = "both",
    batch: choices.Batch = None,
    whole_batch: WholeBatch = None,
    layout: choices.Layouts = None,
    links: choices.Links = None,
    node_devices: choices.NodeDevices = None,
    sizes: choices.Sizes = None,
    precision: choices.Precisions = None,
    interval: choices.Interval = 0.8,
    allow_uncovered: choices.Uncovered = False,
    allow_oversize: choices.Oversize = False,
    slots: Slots = None,
    checkpoint: Checkpoint = None,
    restart: Restart = None,
    device_mtbf: DeviceMtbf = None,
    checkpoint_every: Every = None,
    once: Once = None,
    to_accuracy: choices.ToAccuracy = None,
    as_json: Annotated[bool, option("Print fomkit/scaling/1 instead of tables.", "--json")] = False,
    output: choices.Output = None,
    quiet: choices.Quiet = False,
) -> None:
    """Scale a training over nodes: steps, efficiency, what limits it, and the bandwidth that a gain needs.

    Batch is that of one replica; devices are nodes times those in a node. The -o file as .csv has one line for
    each number of nodes. docs/parallel.md lists the names of a layout. Exit code 1 where a device's memory does
    not hold a step at one of the numbers of nodes.

    Examples:

      fomkit scaling p1b3 -t a100-sxm --nodes 1..64 --link system,5us,25GB/s,each

      fomkit scaling gpt2 --target a100-sxm --nodes 1 --layout zero=1,clip
    """
    from fomkit.output.sweeps import format_scaling
    from fomkit.plan.job import parse_service
    from fomkit.plan.scaling import MODES, ScalingSpec, scale, with_links
    from fomkit.plan.stack import parse_once, times_of, with_once
    from fomkit.profiles.campaigns import load_epochs
    from fomkit.profiles.declared import spread_of
    from fomkit.verbs.scaling import scaling_content

    choices.check_output(output, "scaling")
    spread, given = spread_of(layout or (), links or ())
    options = choices.options_of(batch, interval, None, None, allow_uncovered, sizes, precision)
    spec = ScalingSpec(parse_nodes(nodes), spread, MODES if mode == "both" else (mode,), whole_batch, options)
    service = parse_service(slots, checkpoint=checkpoint, restart=restart, device_mtbf=device_mtbf,
                            checkpoint_every=checkpoint_every)  # fmt: skip
    paid, curve = parse_once(once or ()), load_epochs(to_accuracy) if to_accuracy else None
    with choices.progress("scaling", quiet=quiet):
        machine = with_once(with_links(choices.load_machine(target), given, node_devices), times_of(paid))
        content = scaling_content(scale(choices.load_model(model), machine, spec), service, paid, curve)
    choices.write_answer(content, format_scaling, as_json=as_json, output=output, rows=content["points"])
    choices.end_if_oversize(content["does_not_fit"], allowed=allow_oversize)


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

"""``fomkit scaling``: a training on more and more nodes, what limits it, and the bandwidth that a gain needs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from fomkit.cli.choices import (
    Batch,
    Interval,
    Output,
    Oversize,
    Precisions,
    Sizes,
    Target,
    ToAccuracy,
    Uncovered,
    check_output,
    end_if_oversize,
)
from fomkit.cli.names import complete_model
from fomkit.cli.screen import Quiet, progress, standard_output
from fomkit.cli.sizes import parse_sizes
from fomkit.errors import FomkitError

_RANGE = re.compile(r"(\d{1,9})(?:\.\.(\d{1,9}))?")
Model = Annotated[
    str, typer.Argument(metavar="MODEL", help="Model profile by name or path.", autocompletion=complete_model)
]
Nodes = Annotated[
    str, typer.Option(metavar="N,N|N..N", help="Numbers of nodes; a range doubles from its first to its last.")
]
Layouts = Annotated[
    list[str] | None,
    typer.Option(
        "--layout", metavar="NAME=VALUE,…|FILE", help="For example tensor=8,pipeline=8,sequence; or a YAML file."
    ),
]
Links = Annotated[
    list[str] | None,
    typer.Option("--link", metavar="'TIER, ALPHA, BANDWIDTH, DIRECTION'", help="A link; before the profile's."),
]

Mode = Annotated[
    Literal["strong", "weak", "both"], typer.Option(help="One batch shared out, or one for each replica.")
]
WholeBatch = Annotated[
    int | None,
    typer.Option(min=1, help="Samples of a strong step; default: --batch for each replica of the fewest nodes."),
]
Once = Annotated[
    list[str] | None,
    typer.Option(
        "--once",
        metavar="NAME=SHARE|TIME",
        help="Paid once a job: scheduler=15.5% of it as it is, or compile=40s.",
    ),
]
NodeDevices = Annotated[int | None, typer.Option(min=1, help="Devices in a node; default: the profile's.")]
Slots = Annotated[int | None, typer.Option(min=1, help="Jobs that the queue lets run side by side.")]
Checkpoint = Annotated[str | None, typer.Option(metavar="TIME", help="To write a checkpoint: '60 s'.")]
Restart = Annotated[str | None, typer.Option(metavar="TIME", help="To start again after a failure.")]
DeviceMtbf = Annotated[
    str | None, typer.Option(metavar="TIME", help="Mean time between failures of one device: '50000 h'.")
]
Every = Annotated[str | None, typer.Option(metavar="TIME", help="Between checkpoints; default: Daly's best.")]


def parse_nodes(text: str) -> list[int]:
    """Read numbers of nodes such as ``1..4096`` or ``1,3,12``.

    Raises
    ------
    FomkitError
        When one is no whole number of 1 or more.

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
    model: Model,
    target: Target,
    nodes: Nodes = "1..4096",
    mode: Mode = "both",
    batch: Batch = None,
    whole_batch: WholeBatch = None,
    layout: Layouts = None,
    links: Links = None,
    node_devices: NodeDevices = None,
    sizes: Sizes = None,
    precision: Precisions = None,
    interval: Interval = 0.8,
    allow_uncovered: Uncovered = False,
    allow_oversize: Oversize = False,
    slots: Slots = None,
    checkpoint: Checkpoint = None,
    restart: Restart = None,
    device_mtbf: DeviceMtbf = None,
    checkpoint_every: Every = None,
    once: Once = None,
    to_accuracy: ToAccuracy = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print fomkit/scaling/1 instead of tables.")] = False,
    output: Output = None,
    quiet: Quiet = False,
) -> None:
    """Scale a training over nodes: steps, efficiency, what limits it, and the bandwidth that a gain needs.

    Batch is that of one replica; devices are nodes times those in a node. The -o file as .csv has one line for
    each number of nodes. docs/parallel.md lists the names of a layout. Exit code 1 where a device's memory does
    not hold a step at one of the numbers of nodes.

    Examples:

      fomkit scaling p1b3 -t a100-sxm --nodes 1..64 --link system,5us,25GB/s,each

      fomkit scaling gpt2 --target a100-sxm --nodes 1 --layout zero=1,clip
    """
    from fomkit.profiles import load_machine, load_model
    from fomkit.profiles.epochs_table import load_epochs
    from fomkit.study import Options
    from fomkit.study.layout_file import spread_of
    from fomkit.study.scaling import MODES, Asked, scale, with_links
    from fomkit.study.scaling_view import scaling_content
    from fomkit.study.stack import parse_once, times_of, with_once
    from fomkit.study.system_rate import parse_service

    check_output(output, "scaling")
    spread, given = spread_of(layout or (), links or ())
    options = Options(batch, interval, None, None, allow_uncovered, parse_sizes(sizes or ()), precision)
    asked = Asked(parse_nodes(nodes), spread, MODES if mode == "both" else (mode,), whole_batch, options)
    service = parse_service(slots, checkpoint=checkpoint, restart=restart, device_mtbf=device_mtbf,
                            checkpoint_every=checkpoint_every)  # fmt: skip
    paid, curve = parse_once(once or ()), load_epochs(to_accuracy) if to_accuracy else None
    with progress("scaling", quiet=quiet):
        machine = with_once(with_links(load_machine(target), given, node_devices), times_of(paid))
        content = scaling_content(scale(load_model(model), machine, asked), service, paid, curve)
    _tell(content, output, as_json)
    end_if_oversize(content["does_not_fit"], allowed=allow_oversize)


def _tell(content: dict[str, Any], output: Path | None, as_json: bool) -> None:
    from fomkit.profiles import write_whole
    from fomkit.report.files import to_csv, to_json
    from fomkit.report.scaling import format_scaling

    if output is not None:
        write_whole(output, to_json(content) if output.suffix == ".json" else to_csv(content["points"]))
    print(to_json(content) if as_json else format_scaling(content, standard_output()), end="")

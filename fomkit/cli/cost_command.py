"""``fomkit cost``: money, carbon, inference, what is paid once, and time to an accuracy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fomkit.cli.choices import (
    Batch,
    Carbon,
    Interval,
    Output,
    Oversize,
    Precisions,
    Price,
    Pue,
    Sizes,
    Target,
    ToAccuracy,
    ToWall,
    Uncovered,
    check_output,
    end_if_oversize,
)
from fomkit.cli.names import complete_machine, complete_model
from fomkit.cli.screen import Quiet, progress, standard_output
from fomkit.cli.sizes import parse_sizes

if TYPE_CHECKING:
    from fomkit.study.cost import Cost

Scopes = Annotated[
    Literal["device", "node", "system"] | None,
    typer.Option(help="What runs fill side by side; default: one device."),
]
Baseline = Annotated[
    str | None, typer.Option(help="Machine to model the speed-up over.", autocompletion=complete_machine)
]
Once = Annotated[
    list[str] | None,
    typer.Option(
        "--once",
        metavar="NAME=TIME|SHARE",
        help="Paid once a run: compile=40s, or scheduler=15.5% of it as it is.",
    ),
]
InferBatch = Annotated[
    int | None, typer.Option("--infer-batch", min=1, help="Samples of one inference; default: the step's.")
]
Claimed = Annotated[
    list[str] | None,
    typer.Option(
        "--claimed", metavar="NAME=FACTOR", help="A speed-up that others claim, beside the modelled one."
    ),
]


def cost(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="Model profile by name or path.", autocompletion=complete_model)
    ],
    target: Target,
    baseline: Baseline = None,
    batch: Batch = None,
    sizes: Sizes = None,
    precision: Precisions = None,
    scope: Scopes = None,
    interval: Interval = 0.8,
    allow_uncovered: Uncovered = False,
    allow_oversize: Oversize = False,
    price: Price = None,
    once: Once = None,
    to_accuracy: ToAccuracy = None,
    infer_batch: InferBatch = None,
    carbon: Carbon = None,
    to_wall: ToWall = None,
    pue: Pue = None,
    claimed: Claimed = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print fomkit/cost/1 instead of text.")] = False,
    output: Output = None,
    quiet: Quiet = False,
) -> None:
    """Tell what a training and its inference cost: money, carbon, what is paid once, time to an accuracy.

    A price has a currency and a date; carbon needs energy at the wall. docs/cost.md has every formula. The -o file
    as .csv has a line for each figure. Exit code 1 where the device's memory does not hold a step.

    Examples:

      fomkit cost resnet50 -t v100 --price '3.06 USD/h per device, 2018-04-01'

      fomkit cost resnet50 -t v100 --once 'compile=40 s' --infer-batch 1

      fomkit cost resnet50 -t a100-sxm --batch 256 --to-accuracy epochs.csv
    """
    from fomkit.profiles import load_machine, load_model
    from fomkit.profiles.epochs_table import load_epochs
    from fomkit.study import Options
    from fomkit.study.cost import Declared
    from fomkit.study.cost import cost as work_out
    from fomkit.study.declared import parse_claims, parse_grid, parse_price
    from fomkit.study.stack import parse_once

    check_output(output, "cost")
    options = Options(batch, interval, scope, None, allow_uncovered, parse_sizes(sizes or ()), precision)
    declared = Declared(
        price=parse_price(price) if price is not None else None,
        once=parse_once(once or ()),
        grid=parse_grid(carbon, to_wall, pue),
        epochs=load_epochs(to_accuracy) if to_accuracy else None,
        infer_batch=infer_batch,
        claimed=parse_claims(claimed or ()),
    )
    with progress("working out", quiet=quiet):
        old = load_machine(baseline) if baseline else None
        found = work_out(load_model(model), load_machine(target), options, declared, old)
    _show(found, output, as_json, allow_oversize)


def _show(found: Cost, output: Path | None, as_json: bool, allow_oversize: bool) -> None:
    from fomkit.profiles import write_whole
    from fomkit.report.cost import format_cost
    from fomkit.report.files import to_csv, to_json
    from fomkit.study.cost_content import cost_content, figures_of

    content = cost_content(found)
    if output is not None:
        write_whole(output, to_json(content) if output.suffix == ".json" else to_csv(figures_of(content)))
    print(to_json(content) if as_json else format_cost(content, standard_output()), end="")
    end_if_oversize([found.estimate.fit.said], allowed=allow_oversize)

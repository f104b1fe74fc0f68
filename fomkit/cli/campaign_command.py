"""``fomkit campaign``: the phases of a workflow on whole machines, in days, money and energy."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from fomkit.cli.choices import (
    Carbon,
    Interval,
    Output,
    Oversize,
    Price,
    Pue,
    ToWall,
    Uncovered,
    check_output,
    end_if_oversize,
)
from fomkit.cli.names import complete_campaign, complete_machine
from fomkit.cli.screen import Quiet, progress, standard_output

Targets = Annotated[
    list[str],
    typer.Option(
        "--target", "-t", help="Machine profile by name or path; may be repeated.", autocompletion=complete_machine
    ),
]
Scopes = Annotated[
    Literal["device", "node", "system"],
    typer.Option(help="What a phase has to itself: the whole system, or less."),
]


def campaign(
    file: Annotated[
        str,
        typer.Argument(metavar="CAMPAIGN", help="Campaign by name or path.", autocompletion=complete_campaign),
    ],
    target: Targets,
    scope: Scopes = "system",
    interval: Interval = 0.8,
    allow_uncovered: Uncovered = False,
    allow_oversize: Oversize = False,
    price: Price = None,
    carbon: Carbon = None,
    to_wall: ToWall = None,
    pue: Pue = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print fomkit/campaign-cost/1 instead of tables.")
    ] = False,
    output: Output = None,
    quiet: Quiet = False,
) -> None:
    """Tell how long a campaign's phases take on a machine, and what they cost.

    Exit code 1 where a phase has no days, or the device's memory does not hold a step of it. The -o
    file as .csv has one line for each phase on each machine.

    Examples:

      fomkit campaign candle-example -t titan -t a

      fomkit campaign candle-example -t a --price '1 USD/h per node, 2018-04-01'
    """
    from fomkit.profiles import load_machine, load_model, load_suite, write_whole
    from fomkit.profiles.campaigns import load_campaign
    from fomkit.report.campaign import format_campaign
    from fomkit.report.files import to_csv, to_json
    from fomkit.study import Options
    from fomkit.study.all_measured import all_measured
    from fomkit.study.campaign import run_campaign
    from fomkit.study.campaign_content import campaigns_content, phase_rows
    from fomkit.study.declared import parse_grid, parse_price
    from fomkit.study.footprint import check_grid

    check_output(output, "campaign")
    workflow = load_campaign(file)
    options = Options(interval=interval, scope=scope, allow_uncovered=allow_uncovered)
    paid, declared = parse_price(price) if price is not None else None, parse_grid(carbon, to_wall, pue)
    check_grid(declared)
    with progress("working out", len(target), quiet=quiet) as advance:
        found, measured = [], all_measured()[0]
        for name in target:
            found.append(
                run_campaign(workflow, load_machine(name), options, paid, load_model, load_suite, measured)
            )
            advance()
        content = campaigns_content(found, declared)
    if output is not None:
        write_whole(output, to_json(content) if output.suffix == ".json" else to_csv(phase_rows(content)))
    print(to_json(content) if as_json else format_campaign(content, standard_output()), end="")
    end_if_oversize([said for one in found for said in one.unfit], allowed=allow_oversize)
    if any(machine["days"] is None for machine in content["machines"]):
        raise typer.Exit(1)

"""``fomkit campaign``: the phases of a workflow on whole machines, in days, money and energy.

``fomkit cost``: money, carbon, inference, what is paid once, and time to an accuracy.
"""

from __future__ import annotations

from typing import Annotated

import typer

from fomkit.cli import choices
from fomkit.cli.choices import argument, machine_option, option

CampaignScopes = Annotated[choices.ScopeName, option("What a phase has to itself: the whole system, or less.")]
CampaignJson = Annotated[bool, option("Print fomkit/campaign-cost/1 instead of tables.", "--json")]


def campaign(
    file: Annotated[
        str, argument("Campaign by name or path.", "CAMPAIGN", autocompletion=choices.complete_campaign)
    ],
    target: Annotated[list[str], choices.MACHINES],
    scope: CampaignScopes = "system",
    interval: choices.Interval = 0.8,
    allow_uncovered: choices.Uncovered = False,
    allow_oversize: choices.Oversize = False,
    price: choices.Price = None,
    carbon: choices.Carbon = None,
    to_wall: choices.ToWall = None,
    pue: choices.Pue = None,
    as_json: CampaignJson = False,
    output: choices.Output = None,
    quiet: choices.Quiet = False,
) -> None:
    """Tell how long a campaign's phases take on a machine, and what they cost.

    Exit code 1 where a phase has no days, or the device's memory does not hold a step of it. The -o
    file as .csv has one line for each phase on each machine.

    Examples:

      fomkit campaign candle-example -t titan -t a

      fomkit campaign candle-example -t a --price '1 USD/h per node, 2018-04-01'
    """
    from fomkit.merit.campaign import run_campaign
    from fomkit.output.money import format_campaign
    from fomkit.plan.footprint import check_grid
    from fomkit.profiles.campaigns import load_campaign
    from fomkit.profiles.declared import parse_grid, parse_price
    from fomkit.profiles.suites import load_suite
    from fomkit.readers.measurements import all_measured
    from fomkit.verbs.suite_content import campaigns_content, phase_rows

    choices.check_output(output, "campaign")
    workflow = load_campaign(file)
    options = choices.options_of(interval=interval, scope=scope, allow_uncovered=allow_uncovered)
    paid, declared = parse_price(price) if price is not None else None, parse_grid(carbon, to_wall, pue)
    check_grid(declared)
    with choices.progress("working out", len(target), quiet=quiet) as advance:
        found, measured = [], all_measured()[0]
        for machine in map(choices.load_machine, target):
            found.append(run_campaign(workflow, machine, options, paid, choices.load_model, load_suite, measured))
            advance()
    content = campaigns_content(found, declared)
    choices.write_answer(content, format_campaign, as_json=as_json, output=output, rows=phase_rows(content))
    choices.end_if_oversize([message for one in found for message in one.unfit], allowed=allow_oversize)
    if any(machine["days"] is None for machine in content["machines"]):
        raise typer.Exit(1)


CostScopes = Annotated[choices.ScopeName | None, option("What runs fill side by side; default: one device.")]
Baseline = Annotated[str | None, machine_option("Machine to model the speed-up over.")]
Once = Annotated[
    list[str] | None,
    option(
        "Paid once a run: compile=40s, or scheduler=15.5% of it as it is.", "--once", metavar="NAME=TIME|SHARE"
    ),
]
InferBatch = Annotated[
    int | None, option("Samples of one inference; default: the step's.", "--infer-batch", min=1)
]
Claimed = Annotated[
    list[str] | None,
    option("A speed-up that others claim, beside the modelled one.", "--claimed", metavar="NAME=FACTOR"),
]


def cost(
    model: choices.Model, target: choices.Target, baseline: Baseline = None, batch: choices.Batch = None,
    sizes: choices.Sizes = None, precision: choices.Precisions = None, scope: CostScopes = None,
    nodes: choices.Nodes = None, layout: choices.Layouts = None, links: choices.Links = None,
    node_devices: choices.NodeDevices = None, interval: choices.Interval = 0.8,
    allow_uncovered: choices.Uncovered = False, allow_oversize: choices.Oversize = False,
    price: choices.Price = None, once: Once = None, to_accuracy: choices.ToAccuracy = None,
    infer_batch: InferBatch = None, carbon: choices.Carbon = None, to_wall: choices.ToWall = None,
    pue: choices.Pue = None, claimed: Claimed = None,
    as_json: Annotated[bool, option("Print fomkit/cost/1 instead of text.", "--json")] = False,
    output: choices.Output = None, quiet: choices.Quiet = False,
) -> None:  # fmt: skip
    """Tell what a training and its inference cost: money, carbon, what is paid once, time to an accuracy.

    A price has a currency and a date; carbon needs energy at the wall. docs/cost.md has every formula. The -o file
    as .csv has a line for each figure. Exit code 1 where the device's memory does not hold a step.

    Examples:

      fomkit cost resnet50 -t v100 --price '3.06 USD/h per device, 2018-04-01'

      fomkit cost resnet50 -t v100 --once 'compile=40 s' --infer-batch 1

      fomkit cost resnet50 -t a100-sxm --batch 256 --to-accuracy epochs.csv

      fomkit cost gpt2 -t a100-sxm --nodes 1 --batch 64 --once 'compile=40 s'
    """
    from fomkit.output.money import format_cost
    from fomkit.plan.stack import parse_once
    from fomkit.profiles.campaigns import load_epochs
    from fomkit.profiles.declared import parse_claims, parse_grid, parse_price
    from fomkit.verbs import cost as verb
    from fomkit.verbs.answer import spread_as

    choices.check_output(output, "cost")
    options = choices.options_of(batch, interval, scope, None, allow_uncovered, sizes, precision)
    declared = verb.Declared(
        price=parse_price(price) if price is not None else None,
        once=parse_once(once or ()),
        grid=parse_grid(carbon, to_wall, pue),
        epochs=load_epochs(to_accuracy) if to_accuracy else None,
        infer_batch=infer_batch,
        claimed=parse_claims(claimed or ()),
    )
    old, spread = (
        choices.load_machine(baseline) if baseline else None,
        spread_as(nodes, layout or (), links or (), node_devices),
    )
    with choices.progress("working out", quiet=quiet):
        found = verb.cost(choices.load_model(model), choices.load_machine(target), options, declared, old, spread)
    content = verb.cost_content(found)
    choices.write_answer(content, format_cost, as_json=as_json, output=output, rows=verb.figures_of(content))
    choices.end_if_oversize([found.estimate.fit.message], allowed=allow_oversize)

"""``fomkit solve``: the smallest change of a machine or a workload that reaches a target."""

from __future__ import annotations

from typing import Annotated

import typer

from fomkit.cli.choices import Output, check_output
from fomkit.cli.screen import Quiet, progress, standard_output
from fomkit.cli.subjects import Asked, asked_of_a_subject

UnitsPerDay = Annotated[float | None, typer.Option("--units-per-day", help="At least so many units a day.")]
Step = Annotated[
    str | None, typer.Option("--step", metavar="TIME", help="A step of at most, for example '20 ms'.")
]
Fom = Annotated[float | None, typer.Option("--fom", help="With --suite: a FOM of at least.")]
Probability = Annotated[
    float, typer.Option(help="With which it is to be reached, above 0 and below 1; 0.5 asks of the value itself.")
]
Changes = Annotated[
    list[str] | None,
    typer.Option("--change", metavar="NAME", help="Change this parameter alone; may be repeated; default: each."),
]
Together = Annotated[
    str | None,
    typer.Option("--frontier", metavar="NAME,NAME,…", help="Change two or more together, for a frontier."),
]


@asked_of_a_subject
def solve(
    subject: Asked,
    units_per_day: UnitsPerDay = None,
    step: Step = None,
    fom: Fom = None,
    probability: Probability = 0.5,
    change: Changes = None,
    together: Together = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print fomkit/solve/1 instead of tables.")] = False,
    output: Output = None,
    quiet: Quiet = False,
) -> str:
    """Find the smallest change that reaches a target: of each parameter alone, or of several together.

    That nothing reaches it is an answer, with the reason and exit code 0; exit code 1 where the device's memory
    does not hold the step as it is. Names of parameters are those that
    'fomkit sensitivity' lists. The -o file as .csv has one line for each parameter. docs/whatif.md says more.

    Examples:

      fomkit solve resnet50 --target v100 --units-per-day 0.5 --probability 0.9

      fomkit solve p1b3 -t v100 --step 1.5ms --frontier byte_per_s,launch_s

      fomkit solve --suite candle --target v100 --fom 2 --change byte_per_s
    """
    from fomkit.profiles import write_whole
    from fomkit.quantities import parse_quantity
    from fomkit.report.files import to_csv, to_json
    from fomkit.report.solve import format_solution
    from fomkit.whatif.goal import OPTIONS, make_goal
    from fomkit.whatif.solve import solve as find

    check_output(output, "solve")
    step_s = None if step is None else parse_quantity(step, "time_s", "--step", "time")
    goal = make_goal(unit_per_day=units_per_day, step_s=step_s, fom=fom, probability=probability, names=OPTIONS)
    names = tuple(name.strip() for name in together.split(",")) if together is not None else ()
    with progress("changing parameters", quiet=quiet):
        content = find(subject(), goal, tuple(change or ()), names).content
    if output is not None:
        write_whole(output, to_json(content) if output.suffix == ".json" else to_csv(content["changes"]))
    print(to_json(content) if as_json else format_solution(content, standard_output()), end="")
    return str(content["does_not_fit"])

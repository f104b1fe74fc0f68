"""``fomkit sensitivity``: what a result hangs on; ``fomkit solve``: the smallest change that reaches a target."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from fomkit.cli import choices
from fomkit.cli.choices import machine_option, model_argument, option, output_option
from fomkit.core.errors import FomkitError

if TYPE_CHECKING:
    from fomkit.plan.options import Options
    from fomkit.whatif.cases import Subject


Model = Annotated[str | None, model_argument()]
SuiteName = Annotated[
    str | None,
    option("Ask of this suite's FOM instead of a model.", "--suite", autocompletion=choices.complete_suite),
]
Baseline = Annotated[str | None, machine_option("With --suite: machine to compare with; default: its own.")]
Nodes = Annotated[int | None, option("Ask of a training on so many nodes, the batch that of one replica.", min=1)]


def _subject_of(
    model: str | None, suite: str | None, baseline: str | None, target: str, options: Options,
    nodes: int | None, layouts: list[str] | None, stated: list[str] | None, node_devices: int | None,
) -> Subject:  # fmt: skip
    """Load what is asked of.

    Raises FomkitError when neither a model nor a suite is given, or both, or options do not go together.
    """
    from fomkit.profiles.declared import spread_of
    from fomkit.verbs.decisions import subject_of

    if (model is None) == (suite is None):
        raise FomkitError("MODEL", "or --suite: give one of them, not both or neither.")
    machine = choices.load_machine(target)
    named = {"nodes": nodes, "layout": layouts, "links": stated, "node_devices": node_devices}
    spread = [name for name, value in named.items() if value]
    if suite is not None and spread:
        raise FomkitError("--suite", f"and {', '.join(spread)} do not go together. Ask of a model.")
    if suite is None and baseline is not None:
        raise FomkitError("--baseline", "is the machine that a suite's FOM is over. Add --suite, or leave it out.")
    profile = None if model is None else choices.load_model(model)
    if nodes is None and suite is None and spread:
        raise FomkitError(f"--{spread[0]}".replace("_", "-"), "is about nodes. Add --nodes.")
    layout, links = spread_of(layouts or (), stated or ()) if nodes else (None, [])
    return subject_of(profile, machine, suite, baseline, options, nodes, layout, links, node_devices)


Output = Annotated[
    Path | None,
    output_option(
        "Write as well: a tornado as .html, .png or .svg; .csv the parameters; .json all. Replaces the file."
    ),
]


def _check(path: Path | None) -> None:
    from fomkit.output.plots.ink import ENDINGS, check_drawable

    if path is None or path.suffix in (".json", ".csv"):
        return
    if path.suffix not in ENDINGS:
        known = ", ".join((".json", ".csv", *ENDINGS))
        raise FomkitError(str(path), f"has an ending that sensitivity cannot write. Use one of {known}.")
    check_drawable(str(path))


def sensitivity(
    target: choices.Target,
    model: Model = None,
    suite: SuiteName = None,
    baseline: Baseline = None,
    batch: choices.Batch = None,
    sizes: choices.Sizes = None,
    precision: choices.Precisions = None,
    scope: choices.Scopes = None,
    nodes: Nodes = None,
    layout: choices.Layouts = None,
    links: choices.Links = None,
    node_devices: choices.NodeDevices = None,
    interval: choices.Interval = 0.8,
    allow_uncovered: choices.Uncovered = False,
    allow_oversize: choices.Oversize = False,
    as_json: Annotated[bool, option("Print fomkit/sensitivity/1 instead of tables.", "--json")] = False,
    output: Output = None,
    quiet: choices.Quiet = False,
) -> None:
    """Tell what units/day or a FOM hang on: each parameter's elasticity and swing, and what to measure.

    An elasticity is taken over 1 % of a parameter and held against half of it; a star marks a kink. The swing is
    between the ends of a parameter's own interval, else 10 % either way. Exit code 1 where the device's memory
    does not hold the step. docs/whatif.md says more.

    Examples:

      fomkit sensitivity resnet50 --target v100 -o tornado.html

      fomkit sensitivity --suite candle --target v100

      fomkit sensitivity p1b3 -t a100-sxm --nodes 4 --link system,5us,25GB/s,each
    """
    from fomkit.output.decisions import format_sensitivity
    from fomkit.whatif.sensitivity import sensitivity as find

    _check(output)
    with choices.progress("varying parameters", quiet=quiet):
        options = choices.options_of(batch, interval, scope, None, allow_uncovered, sizes, precision)
        subject = _subject_of(model, suite, baseline, target, options, nodes, layout, links, node_devices)
        found = find(subject)
    content = found.content
    if output is not None and output.suffix not in (".json", ".csv"):
        from fomkit.files.write import write_whole
        from fomkit.output.plots.ink import chart_file
        from fomkit.verbs.views import tornado_of

        write_whole(output, chart_file(tornado_of(found), output.suffix))
        output = None
    choices.write_answer(content, format_sensitivity, as_json=as_json, output=output, rows=content["parameters"])
    choices.end_if_oversize([content["does_not_fit"] or ""], allowed=allow_oversize)


UnitsPerDay = Annotated[float | None, option("At least so many units a day.", "--units-per-day")]
Step = Annotated[str | None, option("A step of at most, for example '20 ms'.", "--step", metavar="TIME")]
Fom = Annotated[float | None, option("With --suite: a FOM of at least.", "--fom")]
Probability = Annotated[
    float, option("With which it is to be reached, above 0 and below 1; 0.5 asks of the value itself.")
]
Changes = Annotated[
    list[str] | None,
    option("Change this parameter alone; may be repeated; default: each.", "--change", metavar="NAME"),
]
Together = Annotated[
    str | None, option("Change two or more together, for a frontier.", "--frontier", metavar="NAME,NAME,…")
]


def solve(
    target: choices.Target,
    model: Model = None,
    suite: SuiteName = None,
    baseline: Baseline = None,
    units_per_day: UnitsPerDay = None,
    step: Step = None,
    fom: Fom = None,
    probability: Probability = 0.5,
    change: Changes = None,
    together: Together = None,
    batch: choices.Batch = None,
    sizes: choices.Sizes = None,
    precision: choices.Precisions = None,
    scope: choices.Scopes = None,
    nodes: Nodes = None,
    layout: choices.Layouts = None,
    links: choices.Links = None,
    node_devices: choices.NodeDevices = None,
    interval: choices.Interval = 0.8,
    allow_uncovered: choices.Uncovered = False,
    allow_oversize: choices.Oversize = False,
    as_json: Annotated[bool, option("Print fomkit/solve/1 instead of tables.", "--json")] = False,
    output: choices.Output = None,
    quiet: choices.Quiet = False,
) -> None:
    """Find the smallest change that reaches a target: of each parameter alone, or of several together.

    That nothing reaches it is an answer, with the reason and exit code 0; exit code 1 where the device's memory
    does not hold the step as it is. Names of parameters are those that
    'fomkit sensitivity' lists. The -o file as .csv has one line for each parameter. docs/whatif.md says more.

    Examples:

      fomkit solve resnet50 --target v100 --units-per-day 0.5 --probability 0.9

      fomkit solve p1b3 -t v100 --step 1.5ms --frontier byte_per_s,launch_s

      fomkit solve --suite candle --target v100 --fom 2 --change byte_per_s

      fomkit solve --suite kpp --target summit --fom 50
    """
    from fomkit.core.units import parse_quantity
    from fomkit.output.decisions import format_solution
    from fomkit.whatif.cases import OPTIONS, make_goal
    from fomkit.whatif.solve import solve as find

    choices.check_output(output, "solve")
    step_s = None if step is None else parse_quantity(step, "time_s", "--step", "time")
    goal = make_goal(unit_per_day=units_per_day, step_s=step_s, fom=fom, probability=probability, names=OPTIONS)
    names = tuple(name.strip() for name in together.split(",")) if together is not None else ()
    with choices.progress("changing parameters", quiet=quiet):
        options = choices.options_of(batch, interval, scope, None, allow_uncovered, sizes, precision)
        subject = _subject_of(model, suite, baseline, target, options, nodes, layout, links, node_devices)
        content = find(subject, goal, tuple(change or ()), names).content
    choices.write_answer(content, format_solution, as_json=as_json, output=output, rows=content["changes"])
    choices.end_if_oversize([content["does_not_fit"] or ""], allowed=allow_oversize)

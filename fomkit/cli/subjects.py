"""What ``sensitivity`` and ``solve`` are asked of, by the same options."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial, wraps
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fomkit.cli.choices import (
    Batch,
    Interval,
    Oversize,
    Precisions,
    Scopes,
    Sizes,
    Target,
    Uncovered,
    end_if_oversize,
)
from fomkit.cli.names import complete_machine, complete_model, complete_suite
from fomkit.cli.scaling_command import Layouts, Links, NodeDevices
from fomkit.cli.sizes import parse_sizes
from fomkit.errors import FomkitError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fomkit.whatif.subject import Subject

Model = Annotated[
    str | None,
    typer.Argument(metavar="MODEL", help="Model profile by name or path.", autocompletion=complete_model),
]
SuiteName = Annotated[
    str | None,
    typer.Option("--suite", help="Ask of this suite's FOM instead of a model.", autocompletion=complete_suite),
]
Baseline = Annotated[
    str | None,
    typer.Option(help="With --suite: machine to compare with; default: its own.", autocompletion=complete_machine),
]
Nodes = Annotated[
    int | None, typer.Option(min=1, help="Ask of a training on so many nodes, the batch that of one replica.")
]

Asked = Callable[[], "Subject"]
"""Loads what is asked of."""


def _shared(
    target: Target,
    model: Model = None,
    suite: SuiteName = None,
    baseline: Baseline = None,
    *,
    batch: Batch = None,
    sizes: Sizes = None,
    precision: Precisions = None,
    scope: Scopes = None,
    nodes: Nodes = None,
    layout: Layouts = None,
    links: Links = None,
    node_devices: NodeDevices = None,
    interval: Interval = 0.8,
    allow_uncovered: Uncovered = False,
    allow_oversize: Oversize = False,
) -> None:
    """List the options in the order in which the help shows them."""


def asked_of_a_subject(verb: Callable[..., str]) -> Callable[..., None]:
    """Give a verb the options that say what it asks of, and end as it must where a step fits no device.

    Parameters
    ----------
    verb : function
        Takes `Asked` and its own options; those before its ``*`` are shown among the first, the others last. It
        answers, and gives which step the device's memory does not hold, or "".
    """
    shared = inspect.signature(_shared, eval_str=True).parameters.values()
    own = [*inspect.signature(verb, eval_str=True).parameters.values()][1:]
    # Of each the positional ones come first; a stable order keeps all others as they are written.
    options = [one.replace(kind=one.KEYWORD_ONLY) for one in sorted([*shared, *own], key=lambda one: one.kind)]

    @wraps(verb)
    def command(**given: Any) -> None:
        of_verb = {one.name: given.pop(one.name) for one in own}
        unfit = verb(partial(_subject_of, given), **of_verb)
        end_if_oversize([unfit], allowed=given["allow_oversize"])

    command.__annotations__ = {one.name: one.annotation for one in options}
    vars(command)["__signature__"] = inspect.Signature(options)
    return command


def _subject_of(given: Mapping[str, Any]) -> Subject:
    """Load what is asked of.

    Parameters
    ----------
    given : mapping
        The options of the command by name.

    Raises
    ------
    FomkitError
        When neither a model nor a suite is given, or both, or options do not go together.
    """
    from fomkit.profiles import load_machine, load_model, load_suite
    from fomkit.study import Options
    from fomkit.study.all_measured import all_measured
    from fomkit.study.layout_file import spread_of
    from fomkit.study.scaling import with_links
    from fomkit.whatif.choose import subject_of_model, subject_of_suite

    model, suite = given["model"], given["suite"]
    if (model is None) == (suite is None):
        raise FomkitError("MODEL", "or --suite: give one of them, not both or neither.")
    options = Options(
        given["batch"], given["interval"], given["scope"], None, given["allow_uncovered"],
        parse_sizes(given["sizes"] or ()), given["precision"],
    )  # fmt: skip
    target = load_machine(given["target"])
    spread = {name: given[name] for name in ("nodes", "layout", "links", "node_devices") if given[name]}
    if suite is not None:
        if spread:
            raise FomkitError("--suite", f"and {', '.join(spread)} do not go together. Ask of a model.")
        lines = load_suite(suite)
        baseline = load_machine(given["baseline"] or lines.baseline)
        return subject_of_suite(lines, baseline, target, options, load_model, all_measured()[0])
    if given["baseline"] is not None:
        raise FomkitError("--baseline", "is the machine that a suite's FOM is over. Add --suite, or leave it out.")
    profile = load_model(model)
    if given["nodes"] is None:
        if spread:
            raise FomkitError(f"--{next(iter(spread))}".replace("_", "-"), "is about nodes. Add --nodes.")
        return subject_of_model(profile, target, options)
    layout, links = spread_of(given["layout"] or (), given["links"] or ())
    machine = with_links(target, links, given["node_devices"])
    return subject_of_model(profile, machine, options, given["nodes"], layout)

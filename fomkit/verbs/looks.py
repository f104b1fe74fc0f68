"""A closer look: the evidence for times, the memory of a step, the contents of models and machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from fomkit.core.errors import FomkitError
from fomkit.core.interval import DEFAULT_LEVEL
from fomkit.core.machine import Fact, Link, Machine, with_room
from fomkit.core.model import ModelProfile, by_network
from fomkit.core.units import Precision, parse_quantity
from fomkit.files.write import write_whole
from fomkit.output.screen import Screen, format_profiles
from fomkit.plan.options import Options, check_options, options_of
from fomkit.verbs.answer import Answer, command
from fomkit.verbs.profiles import as_machine, as_model

# Modules that calculate are imported inside the functions, so that --help starts fast.
if TYPE_CHECKING:
    from fomkit.ops.groups import Grouping
    from fomkit.verbs.model_view import Measure, View


@command("explaining", judges_fit=True)
def explain(
    model: str | Path | ModelProfile, machine: str | Path | Machine, *, top: int = 10, batch: int | None = None,
    sizes: Mapping[str, int] | None = None, precision: Precision | None = None,
    nodes: int | Literal["fill"] | None = None, layout: str | Path | Sequence[str] = "",
    links: Sequence[str | Link] = (), node_devices: int | None = None,
    interval: float = DEFAULT_LEVEL,
) -> Answer:  # fmt: skip
    """Explain the predicted time of a step: the longest ops, the evidence for each, and what to measure first.

    For each op it prints the time with its interval, the nearest timings and where they come from, the formulas of
    arithmetic and traffic with their numbers, and the least time that the machine's rates allow. At the end it
    lists the ops whose timing would narrow the step's interval most. For the twelve steps of the method see
    'fomkit estimate --explain'.

    Parameters
    ----------
    model, machine : name, path or profile
    top : int
        Number of ops, and of proposed measurements, to list.
    nodes : int, optional
        Explain a device's part in a run on this many whole nodes: a microbatch, on the first of several stages.
    batch, sizes, precision, layout, links, node_devices, interval
        As of `fomkit.estimate`.

    Returns
    -------
    Answer
        ``fomkit/explain/1``: ``content["ops"]`` has the longest ops, the table the ops to time, the best first.

    Raises
    ------
    FomkitError
        When a profile is unknown or no op has a time.

    Examples
    --------
    >>> [op["time_source"] for op in explain("p1b3-lecture", "x86-lecture", top=1).content["ops"]]
    ['measured']
    """
    from fomkit.output.explained import format_evidence, measurement_rows
    from fomkit.plan.estimate import estimate
    from fomkit.plan.evidence import explain_ops
    from fomkit.plan.job import time_microbatch
    from fomkit.plan.memory_of import NO_FIT
    from fomkit.verbs.compare import placement_of

    check_options(sizes={"top": top})
    options = options_of(batch, interval, allow_uncovered=True, sizes=sizes, precision=precision)
    target = (placement := placement_of(nodes, layout, links, node_devices)).on(as_machine(machine))
    known = as_model(model, batch=options.batch)
    placed = placement.place(known, target, options)
    one = estimate(known, target, options) if placed is None else time_microbatch(placed, options)
    content = explain_ops(one, top, None if placed is None else placed.content)
    name = f"{content['model']} on {content['target']}"
    unfit = [f"{name} {one}" for one in content["deviations"] if one.startswith(NO_FIT)]
    return Answer(content, measurement_rows(content), format_evidence, unfit)


@command("computing the memory")
def memory(
    model: str | Path | ModelProfile, machine: str | Path | Machine | None = None, *, batch: int | None = None,
    sizes: Mapping[str, int] | None = None, precision: Precision | None = None,
    nodes: int | Literal["fill"] | None = None, layout: str | Path | Sequence[str] = "",
    links: Sequence[str | Link] = (), node_devices: int | None = None, reserve: str | None = None,
) -> Answer:  # fmt: skip
    """Compute the memory that one step needs (parameters, gradients, optimizer state, activations) at each moment.

    The peak is also listed by module. With --target also the largest batch that fits beside a reserve for the
    framework. A training from a config.json is counted by its sizes; without these, and without the order of its
    ops, only what is allocated all the time is known. With --nodes or --layout it is the memory of a device of the
    job, by what it is for.

    Parameters
    ----------
    model : name, path or profile
    machine : name, path or profile, optional
        Machine whose device memory the step should fit.
    precision : str, optional
        Number formats: fp32, or 16 bits as autocast keeps tensors; fp8 and alike: weights of linear layers, for
        inference.
    nodes : int, optional
        The memory of a device in a run on this many whole nodes, which share the batch.
    reserve : str, optional
        What the framework and its libraries take, such as 2GiB. Default: the machine's, else 0.5 GiB and 1/80.
    batch, sizes, layout, links, node_devices
        As of `fomkit.estimate`.

    Returns
    -------
    Answer
        ``fomkit/memory/1``; its table has a row for each moment, for a job one for each role.

    Raises
    ------
    FomkitError
        When a profile is unknown, or the memory (in these number formats) cannot be determined.

    Examples
    --------
    >>> memory("alexnet", "v100", batch=64).content["target"]["largest_batch"]
    1117
    """
    from fomkit.output.machines import format_memory
    from fomkit.verbs.compare import placement_of
    from fomkit.verbs.machine_view import memory_content, memory_of_job

    options = options_of(batch, sizes=sizes, precision=precision)
    device, placement = _with_reserve(machine, reserve), placement_of(nodes, layout, links, node_devices)
    stated = {"nodes": nodes, "layout": layout, "links": links, "node_devices": node_devices, "reserve": reserve}
    if device is None and (given := [name for name, value in stated.items() if value]):
        raise FomkitError(given[-1], "needs a machine, whose devices it describes. Add, for example, -t h100-sxm.")
    known = as_model(model, batch=options.batch)
    placed = None if device is None else placement.place(known, placement.on(device), options)
    if placed is None:
        content = memory_content(known, options, device)
        return Answer(content, content["live"], format_memory)
    content = memory_of_job(placed, options)
    rows = [{"role": role, "byte": byte} for role, byte in content["totals"].items()]
    return Answer(content, rows, format_memory)


def _with_reserve(given: str | Path | Machine | None, reserve: str | None) -> Machine | None:
    machine = None if given is None else as_machine(given)
    if machine is None or reserve is None:
        return machine
    byte = parse_quantity(reserve, "byte", f"reserve {reserve}", "the reserve")
    stated = replace(machine, reserve_byte=Fact.exact(byte, "assumed", "stated by you: --reserve"))
    return with_room(stated, f"reserve {reserve}")


_OF_GROUPS = ("by", "top", "measure", "depth", "timeline")
"""Arguments of the view by groups of ops, or of their order in time."""
LEVELS = 2
"""Levels of a tree that the text shows by default; the tree by code is shown whole (three levels)."""


@command(
    "looking",
    arguments={"profile": "MODEL|MACHINE"},
    spelled={"having": ("--with",)},
    metavar={"top": "SHARE", "workspace": "SIZE", "having": "WORDS"},
    files=("timeline",),
)
def show(
    profile: str | Path | ModelProfile | Machine | None = None, *,
    by: Literal["kind", "op", "shape", "module", "pass", "scope", "code"] | None = None,
    top: float | str | None = None, measure: Literal["time", "flop", "byte"] | None = None,
    depth: int | None = None, batch: int | None = None, sizes: Mapping[str, int] | None = None,
    precision: Precision | None = None, machine: str | Path | Machine | None = None,
    convolutions: bool = False, workspace: str | None = None, formula: bool = False, metrics: bool = False,
    timeline: str | Path | None = None, having: str | None = None, interval: float = DEFAULT_LEVEL,
) -> Answer:  # fmt: skip
    """Show a model's ops by group, a machine's facts and timing tables, or the names of all profiles.

    Parameters
    ----------
    profile : name, path or profile, optional
        Model or machine profile by name or path; machines: list machines and their main facts. Default: list all.
    by : str, optional
        Group a model's ops by this; default: kind, which also counts the layers.
    top : float or str, optional
        List only the fewest groups that together reach this share, such as 95%.
    measure : str, optional
        Sort and cut the groups by this; default: time if every op has one, else flop.
    depth : int, optional
        Levels of the tree; 0: all. Default: 2 in the text (all with --by code); all in files and in --json.
    machine : name, path or profile, optional
        Machine on which the times of the ops are predicted.
    convolutions : bool
        Show each convolution by method: work, depth, workspace, and the best method.
    workspace : str, optional
        With --convolutions: largest workspace that a method may use besides its operands, such as 256MiB.
    formula : bool
        Show the work of a step, by pass, as formulas of the batch and the other sizes.
    metrics : bool
        List every figure that fomkit reports, with its definition.
    timeline : path, optional
        Write the predicted step as trace events to this file, for ui.perfetto.dev.
    having : str, optional
        With machines: only those that match all words: number formats, or parts of name, title or architecture.
    batch, sizes, precision, interval
        As of `fomkit.estimate`.

    Returns
    -------
    Answer : ``fomkit/show/1``; its table has the groups, the families of timings, or the names.

    Raises
    ------
    FomkitError
        When the profile is unknown, or an argument does not apply to it.
    """
    found = _selected(profile, metrics=metrics, by=by, top=top, measure=measure, depth=depth, batch=batch,
                      sizes=sizes or None, precision=precision, machine=machine, timeline=timeline,
                      workspace=workspace, convolutions=convolutions, formula=formula, having=having)  # fmt: skip
    if isinstance(found, Answer):
        return found
    options = options_of(batch, interval, allow_uncovered=True, sizes=sizes, precision=precision)
    target = None if machine is None else as_machine(machine)
    answer = (_formulas(found, options) if formula
              else _method_view(found, options, target, workspace) if convolutions
              else _groups(found, options, target, _view(by, measure, top, depth)))  # fmt: skip
    return answer if timeline is None else _with_timeline(answer, found, target, options, Path(timeline))


def _selected(
    profile: str | Path | ModelProfile | Machine | None, *, metrics: bool, **given: object
) -> Answer | ModelProfile:
    """Return the answer where no model is shown; otherwise the model, to be shown as the arguments say."""
    if profile == "machines":
        return _machines(given)
    from fomkit.profiles.campaigns import find_profile

    named = [f"`{name}`" for name, value in given.items() if value is not None and value is not False]
    if given["having"] is not None:
        raise FomkitError("having", "is for the list of machines. Write 'fomkit show machines'.")
    path: str | Path | ModelProfile | Machine | None = profile
    what = "machine" if isinstance(profile, Machine) else "model"
    if isinstance(profile, str | Path):
        path, what = find_profile(str(profile))
    if metrics:
        if profile is not None or named:
            raise FomkitError("metrics", "lists figures and needs no profile. Leave the name and options out.")
        from fomkit.output.docs import format_metrics, metrics_content

        content = metrics_content()
        return Answer(content, content["metrics"], format_metrics)
    if path is None:
        if named:
            raise FomkitError("show", "these options need a model. Name one, or leave the options out.")
        from fomkit.profiles.campaigns import list_profiles

        rows: list[NamedProfile] = [
            {"what": one.what, "name": one.name, "title": one.title} for one in list_profiles()
        ]
        listed: NamedProfiles = {"schema": "fomkit/show/1", "profiles": rows}
        return Answer(listed, rows, lambda _, *screen: format_profiles(rows, *screen))
    if what == "machine" and not isinstance(path, ModelProfile):
        if named:
            where = path.name if isinstance(path, Machine) else str(profile)
            raise FomkitError(where, f"is a machine, and {', '.join(named)} is for models. Leave it out.")
        return _facts_view(as_machine(path))
    _check_together(named)
    if (events := given["timeline"]) is not None and Path(str(events)).suffix != ".json":
        raise FomkitError(str(events), "has the wrong ending for a timeline. Use .json.")
    return as_model(path)


def _check_together(named: list[str]) -> None:
    for name, about in (("precision", "depends on the machine"), ("timeline", "needs times on a machine")):
        if f"`{name}`" in named and "`machine`" not in named:
            raise FomkitError(name, f"{about}. Add, for example, `machine` v100.")
    groups, sizes = [f"`{name}`" for name in _OF_GROUPS], ("`formula`", "`batch`", "`sizes`")
    if "`convolutions`" in named and (others := [name for name in named if name in groups]):
        raise FomkitError("convolutions", f"cannot be combined with {', '.join(others)}. Leave that out.")
    if "`formula`" in named and (others := [name for name in named if name not in sizes]):
        raise FomkitError("formula", f"cannot be combined with {', '.join(others)}. Leave that out.")
    if "`workspace`" in named and "`convolutions`" not in named:
        raise FomkitError("workspace", "limits the methods of convolutions. Add `convolutions`.")


def _view(by: Grouping | None, measure: Measure | None, top: float | str | None, depth: int | None) -> View:
    from fomkit.ops.groups import GROUPINGS
    from fomkit.verbs.model_view import COLUMNS, View

    if by is not None and by not in GROUPINGS:
        raise FomkitError("by", f"is {by!r}. Give one of {', '.join(GROUPINGS)}.")
    if measure is not None and measure not in COLUMNS:
        raise FomkitError("measure", f"is {measure!r}. Give one of {', '.join(COLUMNS)}.")
    if depth is not None and depth < 0:
        raise FomkitError("depth", f"is {depth}. Give a whole number of 1 or more, or 0 for all.")
    share = parse_quantity(top, "share", f"top {top}", "the share") if isinstance(top, str) else top
    if isinstance(top, int | float) and not 0 < top <= 1:
        raise FomkitError("top", f"is {top!r}. Give a share above 0 and up to 1, for example 0.95.")
    return View(by or "kind", measure, share, depth)


def _groups(model: ModelProfile, options: Options, machine: Machine | None, view: View) -> Answer:
    """Show a model's ops by group; without a depth the text of a tree has its first `LEVELS` levels only."""
    from fomkit.output.models import format_model_view, view_rows
    from fomkit.verbs.model_view import show_model

    def write(content: dict[str, Any], *screen: Screen) -> str:
        if view.depth is None and view.by != "code" and view.top is None and content["by"]["separator"]:
            kept = [row for row in content["rows"] if row["depth"] < LEVELS]
            rows = [{**row, **row["inclusive"]} if row["depth"] == LEVELS - 1 else row for row in kept]
            content = {**content, "rows": rows, "view": {**content["view"], "depth": LEVELS}}
        return format_model_view(content, *screen)

    content = show_model(model, view, options, machine)
    return Answer(content, view_rows(content), write)


def _with_timeline(
    answer: Answer, model: ModelProfile, machine: Machine | None, options: Options, path: Path
) -> Answer:
    """Write the predicted step as trace events, and add a note at the end of the text."""
    from fomkit.output.files import timeline_text
    from fomkit.plan.op_tables import timeline_content

    if machine is not None:  # without one the argument was refused
        write_whole(path, timeline_text(timeline_content(model, machine, options)))
    note = f"timeline: {path}, predicted, for ui.perfetto.dev\n"
    return replace(answer, write=lambda *shown: answer.write(*shown) + note)


def _facts_view(machine: Machine) -> Answer:
    """Show the facts of a machine, and how its timings cover the ops of the shipped models."""
    from fomkit.output.machines import format_machine_view
    from fomkit.profiles.campaigns import shipped_models
    from fomkit.verbs.machine_view import show_machine

    # Profiles of one network from two frameworks have the same ops, which would count twice.
    models = [first for first, *_ in by_network(list(map(as_model, shipped_models())))]
    content = show_machine(machine, models, list(map(as_model, shipped_models(lists=True))))
    rows = content["coverage"]["families"] if content["coverage"] else content["facts"]["peaks"]
    return Answer(content, rows, format_machine_view)


def _machines(given: Mapping[str, Any]) -> Answer:
    """List the machines that match the words of ``having``."""
    from fomkit.output.machines import format_machines
    from fomkit.verbs.machine_view import machines_content

    others = [f"`{name}`" for name, value in given.items() if value not in (None, False) and name != "having"]
    if others:
        raise FomkitError("show machines", f"lists machines; {', '.join(others)} is for models. Leave it out.")
    content = machines_content(given["having"])
    return Answer(content, content["machines"], format_machines)


def _formulas(model: ModelProfile, options: Options) -> Answer:
    from fomkit.output.models import format_formulas, formula_rows
    from fomkit.verbs.model_view import formulas_content

    content = formulas_content(model, options)
    return Answer(content, formula_rows(content), format_formulas)


NamedProfile = TypedDict("NamedProfile", {"what": str, "name": str, "title": str})
NamedProfiles = TypedDict("NamedProfiles", {"schema": str, "profiles": list[NamedProfile]})


def _method_view(model: ModelProfile, options: Options, machine: Machine | None, workspace: str | None) -> Answer:
    """Show each convolution by each method; `workspace`: what a method may use besides its operands."""
    from fomkit.output.models import format_convolutions
    from fomkit.verbs.convolutions import convolutions_content, method_rows

    where, what = f"workspace {workspace}", "the workspace"
    limit = None if workspace is None else parse_quantity(workspace, "byte", where, what)
    content = convolutions_content(model, options, machine, limit)
    return Answer(content, method_rows(content), format_convolutions)

"""A closer look: what models and machines are made of, where time goes, methods of convolutions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from fomkit.core.errors import FomkitError
from fomkit.core.interval import DEFAULT_LEVEL
from fomkit.core.machine import Machine
from fomkit.core.model import ModelProfile, by_network
from fomkit.core.units import Precision, parse_quantity
from fomkit.files.write import write_whole
from fomkit.output.screen import Screen, format_profiles
from fomkit.plan.options import Options, check_options, options_of
from fomkit.verbs.answer import Answer, command
from fomkit.verbs.profiles import as_machine, as_model

# What calculates is imported where it is used: help comes at once.
if TYPE_CHECKING:
    from fomkit.ops.groups import Grouping
    from fomkit.verbs.model_view import Measure, View


@command("explaining", judges_fit=True)
def explain(
    model: str | Path | ModelProfile,
    machine: str | Path | Machine,
    *,
    top: int = 10,
    batch: int | None = None,
    sizes: Mapping[str, int] | None = None,
    precision: Precision | None = None,
    interval: float = DEFAULT_LEVEL,
) -> Answer:
    """Explain a step's time: its longest ops, what each rests on, and what to time to know better.

    For each op: time with interval, the nearest timings and where they stand, the formulas of arithmetic and
    traffic with the numbers put in, and the floor. At the end, which ops timed on the machine would shrink the
    step's interval most. The method's twelve steps are in 'fomkit estimate --explain'.

    Parameters
    ----------
    model, machine : name, path or profile
    top : int
        Ops, and measurements, to list.
    batch, sizes, precision, interval
        As of `fomkit.estimate`.

    Returns
    -------
    Answer
        ``fomkit/explain/1``: ``content["ops"]`` are the longest; its table has the ops to time, best first.

    Raises
    ------
    FomkitError
        When a profile is unknown or no op has a time.

    Examples
    --------
    >>> [op["time_source"] for op in explain("p1b3-lecture", "x86-lecture", top=1).content["ops"]]
    ['measured']
    """
    from fomkit.output.estimates import format_evidence, measurement_rows
    from fomkit.plan.evidence import explain_ops
    from fomkit.plan.memory_of import NO_FIT

    check_options(sizes={"top": top})
    options = options_of(batch, interval, allow_uncovered=True, sizes=sizes, precision=precision)
    content = explain_ops(as_model(model), as_machine(machine), options, top)
    name = f"{content['model']} on {content['target']}"
    unfit = [f"{name} {one}" for one in content["deviations"] if one.startswith(NO_FIT)]
    return Answer(content, measurement_rows(content), format_evidence, unfit)


@command("following the memory")
def memory(
    model: str | Path | ModelProfile,
    machine: str | Path | Machine | None = None,
    *,
    batch: int | None = None,
    sizes: Mapping[str, int] | None = None,
    precision: Precision | None = None,
) -> Answer:
    """Follow the memory of one step: parameters, gradients, optimizer state, activations, by moment and module.

    With a machine it also tells the largest batch that its device holds. Without the order of a model's ops only
    what stands all the time is known, and that is said.

    Parameters
    ----------
    model : name, path or profile
    machine : name, path or profile, optional
        Machine whose device is to hold it.
    precision : str, optional
        Where nothing is trained, weights of linear layers in this format; the rest stays as traced.
    batch, sizes
        As of `fomkit.estimate`.

    Returns
    -------
    Answer
        ``fomkit/memory/1``; its table has a row for each moment.

    Raises
    ------
    FomkitError
        When a profile is unknown, or nothing is known of the memory, in these number formats.

    Examples
    --------
    >>> memory("alexnet", "v100", batch=64).content["target"]["largest_batch"]
    1170
    """
    from fomkit.output.machines import format_memory
    from fomkit.verbs.machine_view import memory_content

    options = options_of(batch, sizes=sizes, precision=precision)
    device = None if machine is None else as_machine(machine)
    content = memory_content(as_model(model), options, device)
    return Answer(content, content["live"], format_memory)


_OF_GROUPS = ("by", "top", "measure", "depth", "timeline")
"""Arguments about groups of ops, or their order."""
LEVELS = 2
"""Levels shown of a tree as text, unless told; all of code, which has three."""


@command(
    "looking",
    arguments={"profile": "[MODEL|MACHINE]"},
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
    """Show a model's ops by group, a machine's facts and tables, or the names of all.

    Parameters
    ----------
    profile : name, path or profile, optional
        A profile by name or path; none = list them; machines = list these, with what is known.
    by : str, optional
        Group a model's ops by this; default: kind, which also counts its layers.
    top : float or str, optional
        Only the fewest groups that reach this share, such as 95%.
    measure : str, optional
        Order and cut by this; default: time where every op has one, else flop.
    depth : int, optional
        Levels of a tree; default: all, of which the text shows 2 (of code all); 0 = all.
    machine : name, path or profile, optional
        Machine to predict times on.
    convolutions : bool
        Each convolution by method: work, depth, workspace, the best.
    workspace : str, optional
        Most that a method of --convolutions may take besides its operands: 256MiB.
    formula : bool
        The work of a step, by pass, as formulas of its batch and other sizes.
    metrics : bool
        Every figure that fomkit gives, explained.
    timeline : path, optional
        Write the projected step as trace events, for ui.perfetto.dev.
    having : str, optional
        Only machines with these words: number formats, parts of name, title or architecture.
    batch, sizes, precision, interval
        As of `fomkit.estimate`.

    Returns
    -------
    Answer : ``fomkit/show/1``; its table has the groups, the families of tables, or the names.

    Raises
    ------
    FomkitError
        When there is no such profile, or an argument does not fit it.
    """
    found = _found(profile, metrics=metrics, by=by, top=top, measure=measure, depth=depth, batch=batch,
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


def _found(
    profile: str | Path | ModelProfile | Machine | None, *, metrics: bool, **given: object
) -> Answer | ModelProfile:
    """Give what is shown of no model, or the model that is to be looked at as the arguments say."""
    if profile == "machines":
        return _machines(given)
    from fomkit.profiles.campaigns import find_profile

    named = [f"`{name}`" for name, value in given.items() if value is not None and value is not False]
    if given["having"] is not None:
        raise FomkitError("with", "searches the list of machines. Ask for `fomkit show machines`.")
    path: str | Path | ModelProfile | Machine | None = profile
    what = "machine" if isinstance(profile, Machine) else "model"
    if isinstance(profile, str | Path):
        path, what = find_profile(str(profile))
    if metrics:
        if profile is not None or named:
            raise FomkitError("metrics", "lists figures, of no profile. Leave the name and options out.")
        from fomkit.output.docs import format_metrics, metrics_content

        content = metrics_content()
        return Answer(content, content["metrics"], format_metrics)
    if path is None:
        if named:
            raise FomkitError("show", "its options are for a model, and none is named. Name one, or leave them.")
        return _profile_names()
    if what == "machine" and not isinstance(path, ModelProfile):
        if named:
            where = path.name if isinstance(path, Machine) else str(path)
            raise FomkitError(where, f"is a machine, and {', '.join(named)} is for models. Leave it out.")
        return _facts_view(as_machine(path))
    _check_together(named)
    return as_model(path)


def _check_together(named: list[str]) -> None:
    for name, about in (("precision", "depends on what a machine has"), ("timeline", "is of times on a machine")):
        if f"`{name}`" in named and "`machine`" not in named:
            raise FomkitError(name, f"{about}. Add, for example, `machine` v100.")
    groups, sizes = [f"`{name}`" for name in _OF_GROUPS], ("`formula`", "`batch`", "`sizes`")
    if "`convolutions`" in named and (others := [name for name in named if name in groups]):
        raise FomkitError("convolutions", f"is a view of its own, without {', '.join(others)}. Leave that out.")
    if "`formula`" in named and (others := [name for name in named if name not in sizes]):
        raise FomkitError("formula", f"is a view of its own, without {', '.join(others)}. Leave that out.")
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
    """Show a model's ops by group; the text of a tree has its first levels unless a depth is asked for."""
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
    """Write the projected step as trace events, and say so at the end of the text."""
    from fomkit.output.files import timeline_text
    from fomkit.plan.timeline import timeline_content

    if path.suffix != ".json":
        raise FomkitError(str(path), "has an ending that a timeline cannot have. Use .json.")
    if machine is not None:  # without one the argument was refused
        write_whole(path, timeline_text(timeline_content(model, machine, options)))
    note = f"timeline: {path}, projected, for ui.perfetto.dev\n"
    return replace(answer, write=lambda *shown: answer.write(*shown) + note)


def _facts_view(machine: Machine) -> Answer:
    """Show what is known of a machine, beside the ops of the shipped models."""
    from fomkit.output.machines import format_machine_view
    from fomkit.profiles.campaigns import shipped_models
    from fomkit.verbs.machine_view import show_machine

    # The same ops from two frameworks would weigh twice.
    content = show_machine(machine, [first for first, *_ in by_network(list(map(as_model, shipped_models())))])
    rows = content["coverage"]["families"] if content["coverage"] else content["facts"]["peaks"]
    return Answer(content, rows, format_machine_view)


def _machines(given: Mapping[str, Any]) -> Answer:
    """List the machines that have some words."""
    from fomkit.output.machines import format_machines
    from fomkit.verbs.machine_view import machines_content

    others = [f"`{name}`" for name, value in given.items() if value not in (None, False) and name != "having"]
    if others:
        raise FomkitError("show machines", f"lists machines; {', '.join(others)} is for models. Leave it out.")
    content = machines_content(given["having"])
    return Answer(content, content["machines"], format_machines)


def _formulas(model: ModelProfile, options: Options) -> Answer:
    """Show the work of a step as formulas."""
    from fomkit.output.models import format_formulas, formula_rows
    from fomkit.verbs.model_view import formulas_content

    content = formulas_content(model, options)
    return Answer(content, formula_rows(content), format_formulas)


NamedProfile = TypedDict("NamedProfile", {"what": str, "name": str, "title": str})
NamedProfiles = TypedDict("NamedProfiles", {"schema": str, "profiles": list[NamedProfile]})


def _profile_names() -> Answer:
    """List the profiles that there are to name."""
    from fomkit.profiles.campaigns import list_profiles

    rows: list[NamedProfile] = [
        {"what": one.what, "name": one.name, "title": one.title} for one in list_profiles()
    ]
    content: NamedProfiles = {"schema": "fomkit/show/1", "profiles": rows}
    return Answer(content, rows, lambda _, *screen: format_profiles(rows, *screen))


def _method_view(model: ModelProfile, options: Options, machine: Machine | None, workspace: str | None) -> Answer:
    """Show each convolution by each method; `workspace`: what a method may take beside its operands."""
    from fomkit.output.models import format_convolutions
    from fomkit.verbs.convolutions import convolutions_content, method_rows

    where, what = f"workspace {workspace}", "the workspace"
    limit = None if workspace is None else parse_quantity(workspace, "byte", where, what)
    content = convolutions_content(model, options, machine, limit)
    return Answer(content, method_rows(content), format_convolutions)

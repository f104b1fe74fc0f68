"""``fomkit show``: what a model is made of, what is known of a machine, and what there is to name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from fomkit.cli import choices
from fomkit.cli.choices import argument, machine_option, option
from fomkit.core.errors import FomkitError

if TYPE_CHECKING:
    from fomkit.core.machine import Machine
    from fomkit.core.model import ModelProfile
    from fomkit.ops.groups import Grouping
    from fomkit.plan.options import Options
    from fomkit.verbs.answer import Answer
    from fomkit.verbs.model_view import Measure, View


ALL_LEVELS = 0
LEVELS = 2
"""Levels shown of a tree as text; all of code, which has three."""


def _complete(incomplete: str) -> list[str]:
    return [*choices.complete_model(incomplete), *choices.complete_machine(incomplete)]


Name = Annotated[
    str | None,
    argument("A profile by name or path; none = list them.", "[MODEL|MACHINE]", autocompletion=_complete),
]
By = Annotated[
    Literal["kind", "op", "shape", "module", "pass", "scope", "code"] | None,
    option("Group a model's ops by this; default: kind, which also counts its layers."),
]
Top = Annotated[str | None, option("Only the fewest groups that reach this share, such as 95%.", metavar="SHARE")]
MeasureOption = Annotated[
    Literal["time", "flop", "byte"] | None,
    option("Order and cut by this; default: time where every op has one, else flop."),
]
Depth = Annotated[
    int | None,
    option("Levels of a tree; default: 2, all of code and with --json and -o; 0 = all.", min=ALL_LEVELS),
]
Timeline = Annotated[
    Path | None, option("Write the projected step as trace events, for ui.perfetto.dev; replaces the file.")
]
Target = Annotated[str | None, machine_option("Machine to predict times on.", "--target", "-t")]

Convolutions = Annotated[
    bool, option("Each convolution by method: work, depth, workspace, the best.", "--convolutions")
]
Formula = Annotated[
    bool, option("The work of a step, by pass, as formulas of its batch and other sizes.", "--formula")
]
Workspace = Annotated[
    str | None,
    option("Most that a method of --convolutions may take besides its operands: 256MiB.", metavar="SIZE"),
]
_OF_MACHINES = {"--precision": "depends on what a machine has", "--timeline": "is of times on a machine"}
"""Options that make sense with a machine only."""
_OF_GROUPS = ("--by", "--top", "--measure", "--depth", "--timeline")
"""Options about groups of ops, or their order."""


def show(
    name: Name = None,
    by: By = None,
    top: Top = None,
    measure: MeasureOption = None,
    depth: Depth = None,
    batch: choices.Batch = None,
    sizes: choices.Sizes = None,
    precision: choices.Precisions = None,
    target: Target = None,
    convolutions: Convolutions = False,
    workspace: Workspace = None,
    formula: Formula = False,
    metrics: Annotated[bool, option("Every figure that fomkit gives, explained.", "--metrics")] = False,
    as_json: Annotated[bool, option("Print fomkit/show/1 instead of tables.", "--json")] = False,
    timeline: Timeline = None,
    output: choices.Output = None,
    quiet: choices.Quiet = False,
) -> None:
    """Show a model's ops by group, a machine's facts and tables, or the names of all.

    Examples:

      fomkit show p1b3-lecture --by op --top 95%

      fomkit show gpt2 --by module --depth 3 --target v100

      fomkit show gpt2 --target v100 --timeline gpt2.trace.json

      fomkit show resnet50 --convolutions --target v100 --workspace 256MiB

      fomkit show gpt2 --formula

      fomkit show v100

      fomkit show --metrics
    """
    choices.check_output(output, "show")
    of_models = {
        "--by": by, "--top": top, "--measure": measure, "--depth": depth, "--batch": batch, "--set": sizes,
        "--precision": precision, "--target": target, "--timeline": timeline, "--workspace": workspace,
        "--convolutions": convolutions or None, "--formula": formula or None,
    }  # fmt: skip
    named = [option for option, value in of_models.items() if value is not None]
    with choices.progress("looking", quiet=quiet):
        found, note = _found(name, named, metrics=metrics), ""
        if isinstance(found, Path):
            options = choices.options_of(batch, sizes=sizes, precision=precision, allow_uncovered=True)
            if depth is None:
                depth = ALL_LEVELS if as_json or output is not None or by == "code" else LEVELS
            how = _view(by or "kind", measure, top, depth), _limit(workspace)
            asked = "formula" if formula else "convolutions" if convolutions else "groups"
            found, note = _model(found, asked, *how, options, target, timeline)
    choices.show_answer(found, as_json=as_json, output=output, note=note)


def _found(name: str | None, named: list[str], *, metrics: bool) -> Answer | Path:
    """Give what is shown, or the path of a model that is to be looked at as the options say."""
    from fomkit.profiles.campaigns import find_profile

    path, what = (None, "list") if name is None else find_profile(name)
    if metrics:
        return _metrics(name is not None or bool(named))
    if path is None:
        return _list(named)
    if what == "machine":
        return _machine(path, named)
    _check_options(named)
    return path


def _model(
    path: Path, asked: str, view: View, limit_byte: float | None, options: Options, target: str | None,
    timeline: Path | None,
) -> tuple[Answer, str]:  # fmt: skip
    """Look at a model; give what is shown, and what the text ends with."""
    from fomkit.verbs import looks

    model, machine = choices.load_model(path), None if target is None else choices.load_machine(target)
    if asked == "formula":
        from fomkit.plan.work_formulas import formulas_content

        answer = looks.formulas_of(formulas_content(model, options))
    elif asked == "convolutions":
        answer = looks.methods_of(model, options, machine, limit_byte)
    else:
        answer = looks.groups_of(model, view, options, machine)
    return answer, _project(model, machine, options, timeline)


def _check_options(named: list[str]) -> None:
    for name, about in _OF_MACHINES.items():
        if name in named and "--target" not in named:
            raise FomkitError(name, f"{about}. Add, for example, --target v100.")
    if "--convolutions" in named and (others := [option for option in _OF_GROUPS if option in named]):
        raise FomkitError("--convolutions", f"is a view of its own, without {', '.join(others)}. Leave that out.")
    if "--formula" in named and (others := [one for one in named if one not in ("--formula", "--batch", "--set")]):
        raise FomkitError("--formula", f"is a view of its own, without {', '.join(others)}. Leave that out.")
    if "--workspace" in named and "--convolutions" not in named:
        raise FomkitError("--workspace", "limits the methods of convolutions. Add --convolutions.")


def _list(options: list[str]) -> Answer:
    from fomkit.verbs.looks import names

    if options:
        raise FomkitError("show", "its options are for a model, and none is named. Name one, or leave them.")
    return names()


def _metrics(more: bool) -> Answer:
    from fomkit.output.glossary import format_metrics, metrics_content
    from fomkit.verbs.answer import Answer

    if more:
        raise FomkitError("--metrics", "lists figures, of no profile. Leave the name and options out.")
    content = metrics_content()
    return Answer(content, content["metrics"], format_metrics)


def _machine(path: Path, options: list[str]) -> Answer:
    from fomkit.verbs.looks import facts_of

    if options:
        raise FomkitError(str(path), f"is a machine, and {', '.join(options)} is for models. Leave it out.")
    return facts_of(choices.load_machine(path))


def _view(by: Grouping, measure: Measure | None, top: str | None, depth: int) -> View:
    from fomkit.core.units import parse_quantity
    from fomkit.verbs.model_view import View

    share = None if top is None else parse_quantity(top, "share", f"--top {top}", "the share")
    return View(by, measure, share, depth or None)


def _limit(workspace: str | None) -> float | None:
    from fomkit.core.units import parse_quantity

    where = f"--workspace {workspace}"
    return None if workspace is None else parse_quantity(workspace, "byte", where, "the workspace")


def _project(model: ModelProfile, machine: Machine | None, options: Options, timeline: Path | None) -> str:
    from fomkit.files.write import write_whole
    from fomkit.output.files import timeline_text
    from fomkit.plan.timeline import timeline_content

    if timeline is None or machine is None:  # --timeline asks for --target
        return ""
    if timeline.suffix != ".json":
        raise FomkitError(str(timeline), "has an ending that a timeline cannot have. Use .json.")
    write_whole(timeline, timeline_text(timeline_content(model, machine, options)))
    return f"timeline: {timeline}, projected, for ui.perfetto.dev\n"

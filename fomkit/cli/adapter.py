"""The command line of a verb, made from its Python function: the signature's parameters are the options.

What every verb has besides is made here, the same for all: ``--json``, ``-o``, ``--quiet``, progress, exit codes.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import partial
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

import typer

from fomkit.cli import choices
from fomkit.core.errors import FomkitError, ManyFomkitError
from fomkit.verbs.answer import Command, Help, command_of, help_of

if TYPE_CHECKING:
    from fomkit.verbs.answer import Answer

SHARED: Mapping[str, Any] = {
    "machine": choices.Target, "machines": Annotated[list[str], choices.MACHINES],
    "batch": choices.Batch, "sizes": choices.Sizes,
    "precision": choices.Precisions, "interval": choices.Interval, "scope": choices.Scopes,
    "allow_uncovered": choices.Uncovered, "layout": choices.Layouts, "links": choices.Links,
    "node_devices": choices.NodeDevices, "price": choices.Price, "carbon": choices.Carbon,
    "to_wall": choices.ToWall, "pue": choices.Pue, "to_accuracy": choices.ToAccuracy,
}  # fmt: skip
"""Options that are said alike wherever they stand."""
_COMPLETED: Mapping[str, Callable[[str], list[str]]] = {
    "model": choices.complete_model, "machine": choices.complete_machine, "baseline": choices.complete_machine,
    "suite": choices.complete_suite, "campaign": choices.complete_campaign,
}  # fmt: skip
_TEXTS = {"model": "Model profile by name or path, or a model.py or ONNX file, which is profiled first."}
_QUOTED = re.compile(r"`(\w+)`")
_FLAGS = {"machine": "--target", "machines": "--target", "sizes": "--set", "links": "--link"}


def _own_text(said: Help, name: str) -> str:
    """Give what a docstring says of a parameter itself; "" where it names another verb."""
    text = said.parameters.get(name, "")
    return "" if text.startswith("As of ") else text.replace("`", "")


def _kinds(annotation: Any) -> list[Any]:
    """Give the types of a union, or the one that it is; None is left out."""
    is_union = get_origin(annotation) in (UnionType, Union)
    return [one for one in (get_args(annotation) if is_union else (annotation,)) if one is not type(None)]


def _typed(annotation: Any) -> Any:
    """Give the type of an option for the type of a parameter: text, where Python takes loaded things too."""
    kinds = _kinds(annotation)
    of = [get_origin(one) or one for one in kinds]
    if Literal in of and len(of) == 1:
        return kinds[0] | None
    if of[0] is Mapping or (of[0] is Sequence and str not in of):
        return list[str] | None
    if of == [bool]:
        return bool
    return (of[0] if len(of) == 1 and of[0] in (int, float) else str) | None


def _option(name: str, parameter: inspect.Parameter, annotation: Any, command: Command, said: Help) -> Any:
    """Make the option, or the argument, of a parameter."""
    own, metavar, completed = _own_text(said, name), command.metavar.get(name), _COMPLETED.get(name)
    text = own or _TEXTS.get(name, "")
    if name in command.arguments:
        optional = type(None) in get_args(annotation) or parameter.default is not parameter.empty
        kind = list[str] if get_origin(annotation) is Sequence else str
        return Annotated[
            kind | None if optional else kind,
            choices.argument(text, command.arguments[name], autocompletion=completed),
        ]
    if name in SHARED and name not in command.spelled:
        kind, known = get_args(SHARED[name])
        shared = copy(known)
        shared.help = own or known.help
        return Annotated[kind, shared]
    flags = command.spelled.get(name, (_FLAGS.get(name, f"--{name.replace('_', '-')}"),))
    kind = _typed(annotation)
    if parameter.default is parameter.empty and type(None) in get_args(kind):
        kind = next(one for one in get_args(kind) if one is not type(None))
    return Annotated[kind, choices.option(text, *flags, metavar=metavar, autocompletion=completed)]


def _default(parameter: inspect.Parameter, option: Any, optional: bool) -> Any:
    if parameter.default is parameter.empty:
        return None if optional else parameter.empty
    takes_many = any(get_origin(one) is list for one in _kinds(option))
    is_plain = isinstance(parameter.default, bool | int | float | str) and not takes_many
    return parameter.default if is_plain and parameter.default != "" else None


def _help_text(command: Command, said: Help) -> str:
    fits = "Exit code 1 where a device's memory does not hold a step (--allow-oversize)."
    said_of_it = said.about.replace("`", "")
    about = f"{said_of_it}\n\n{fits}" if command.judges_fit else said_of_it
    return "\n\n".join(
        [about, *(["Examples:"] if command.examples else []), *(f"  {one}" for one in command.examples)]
    )


def _as_asked(value: Any, parameter: inspect.Parameter, annotation: Any) -> Any:
    """Give what the function takes for what stands on the command line."""
    if value is None or (isinstance(value, list) and not value):
        return None if parameter.default is parameter.empty else parameter.default
    if get_origin(_kinds(annotation)[0]) is Mapping:
        return choices.parse_sizes(value)
    return tuple(value) if isinstance(value, list) else value


def _check_output(path: Path | None, verb: str, command: Command) -> None:
    if command.draw is None or path is None or path.suffix in (".json", ".csv"):
        choices.check_output(path, verb)
        return
    from fomkit.output.plots.ink import ENDINGS, check_drawable

    if path.suffix not in ENDINGS:
        known = ", ".join((".json", ".csv", *ENDINGS))
        raise FomkitError(str(path), f"has an ending that {verb} cannot write. Use one of {known}.")
    check_drawable(str(path))


def _write(result: Any, command: Command, output: Path | None, as_json: bool, shows: Mapping[str, Any]) -> Answer:
    """Write the files and the text of a result; give what it answers."""
    from fomkit.verbs.views import answer_of

    answer = answer_of(result)
    if output is not None and output.suffix not in (".json", ".csv") and command.draw is not None:
        from fomkit.files.write import write_whole
        from fomkit.output.plots.ink import chart_file

        write_whole(output, chart_file(command.draw(result), output.suffix))
        output = None
    write = partial(answer.write, **shows) if shows else answer.write
    choices.write_answer(dict(answer.content), write, as_json=as_json, output=output, rows=answer.rows)
    return answer


def command_line(verb: str, function: Callable[..., Any]) -> Callable[..., None]:
    """Give the function whose signature is a verb's command line."""
    command, said = command_of(function), help_of(function)
    parameters = inspect.signature(function).parameters
    module = vars(sys.modules[function.__module__])
    kinds = {name: eval(str(one.annotation), module) for name, one in parameters.items()}  # noqa: S307 - our own
    flags: dict[str, str] = {}
    own: list[inspect.Parameter] = []
    for name, one in parameters.items():
        annotation = _option(name, one, kinds[name], command, said)
        optional = type(None) in get_args(get_args(annotation)[0])
        named = command.spelled.get(name, (_FLAGS.get(name, f"--{name.replace('_', '-')}"),))
        flags[name] = command.arguments.get(name, named[0])
        own.append(_parameter(name, annotation, _default(one, get_args(annotation)[0], optional)))
    for name, (flag, text) in command.shows.items():
        own.append(_parameter(name, Annotated[bool, choices.option(text, flag)], False))
    if command.judges_fit:
        own.append(_parameter("allow_oversize", choices.Oversize, False))
    endings = ".json or .csv" if command.draw is None else ".json, .csv, or a chart as .html, .png or .svg"
    json = choices.option("Print everything as JSON instead of text.", "--json")
    written = choices.output_option(f"Write {endings} as well; replaces the file.")
    own.append(_parameter("as_json", Annotated[bool, json], False))
    own.append(_parameter("output", Annotated[Path | None, written], None))
    own.append(_parameter("quiet", choices.Quiet, False))

    def run(**given: Any) -> None:
        output, as_json, quiet = (given.pop(name) for name in ("output", "as_json", "quiet"))
        shows = {name: given.pop(name) for name in command.shows}
        allowed = given.pop("allow_oversize", True)
        _check_output(output, verb, command)
        asked = {name: _as_asked(given[name], one, kinds[name]) for name, one in parameters.items()}
        try:
            with choices.progress(command.doing, quiet=quiet):
                result = function(**asked)
        except ManyFomkitError:
            raise
        except FomkitError as error:
            raise _in_its_words(error, flags) from error
        answer = _write(result, command, output, as_json, shows)
        choices.end_if_oversize(answer.unfit, allowed=allowed)
        if command.unanswered(answer.content):
            raise typer.Exit(1)

    run.__doc__ = _help_text(command, said)
    run.__signature__ = inspect.Signature(sorted(own, key=lambda one: one.default is not one.empty))  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in own}
    run.__name__ = verb
    return run


def _in_its_words(error: FomkitError, flags: Mapping[str, str]) -> FomkitError:
    """Call parameters as the command line does: the place, and what stands in back quotes."""
    what = _QUOTED.sub(lambda found: flags.get(found[1], found[0]), error.what)
    return FomkitError(flags.get(error.where, error.where), what)


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=annotation)

"""Make a verb's command line from its Python function: each parameter becomes an argument or an option.

Options and behaviour common to all verbs are added here: ``--json``, ``-o``, ``--quiet``, progress, exit codes.
"""

from __future__ import annotations

import builtins
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from copy import copy
from functools import partial
from pathlib import Path
from shlex import quote
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import typer

from fomkit.cli import choices
from fomkit.core.errors import FomkitError, ManyFomkitError
from fomkit.files.csv import READ
from fomkit.verbs.answer import PROGRESS, Answer, Command, Help, command_of, help_of

_TEXTS = {"model": "Model profile by name or path, or a model.py or ONNX file, which is profiled first."}
_QUOTED = re.compile(r"`(\w+)`")
_SHOWN = 8
"""Largest number of free texts of one sort that are listed; the others are only in the workbook."""


@contextmanager
def without_pyarrow() -> Iterator[None]:
    """Hide PyArrow while pandas is imported, which would import it: a sixth of the time that a command starts."""
    modules: dict[str, Any] = {} if {"pandas", "pyarrow"} & set(sys.modules) else sys.modules
    modules["pyarrow"] = None  # as if it were not installed
    try:
        yield
    finally:
        del modules["pyarrow"]


def _union_types(annotation: Any) -> list[Any]:
    """Return the types of a union without None; for another annotation, that annotation alone."""
    is_union = get_origin(annotation) in (UnionType, Union)
    return [one for one in (get_args(annotation) if is_union else (annotation,)) if one is not type(None)]


def _option_type(annotation: Any) -> Any:
    """Return the type of a parameter's option: text where Python also accepts loaded objects."""
    kinds = _union_types(annotation)
    origins = [get_origin(one) or one for one in kinds]
    if Literal in origins and len(origins) == 1:
        return kinds[0] | None
    if origins[0] in (Mapping, Sequence):
        return list[str] | None
    if origins == [bool]:
        return bool
    return (origins[0] if len(origins) == 1 and origins[0] in (int, float) else str) | None


def _flags(name: str, command: Command) -> tuple[str, ...]:
    """Return a parameter's flags on the command line; messages use the longest."""
    if name in command.arguments:
        return (command.arguments[name],)
    option = get_args(choices.SHARED[name])[1] if name in choices.SHARED else None
    # In an annotated option typer stores the first flag as the default.
    shared = (
        [] if option is None else [one for one in (option.default, *option.param_decls) if isinstance(one, str)]
    )
    return command.spelled.get(name) or tuple(shared) or (f"--{name.replace('_', '-')}",)


def _option(name: str, parameter: inspect.Parameter, annotation: Any, command: Command, docs: Help) -> Any:
    """Make the option, or the positional argument, of a parameter."""
    written, metavar = docs.parameters.get(name, ""), command.metavar.get(name)
    completed = choices.COMPLETED.get(name)
    own = "" if written.startswith("As of ") else written.replace("`", "")  # else the text of another verb
    text = own or _TEXTS.get(name, "")
    if name in command.arguments:
        optional = type(None) in get_args(annotation) or parameter.default is not parameter.empty
        kind = list[str] if any(get_origin(one) is Sequence for one in _union_types(annotation)) else str
        return Annotated[
            kind | None if optional else kind,
            typer.Argument(help=text, metavar=command.arguments[name], autocompletion=completed),
        ]
    if name in choices.SHARED and name not in command.spelled:
        kind, known = get_args(choices.SHARED[name])
        shared = copy(known)
        shared.help, shared.metavar = own or known.help, metavar or known.metavar
        return Annotated[kind, shared]
    kind = _option_type(annotation)
    if parameter.default is parameter.empty and type(None) in get_args(kind):
        kind = next(one for one in get_args(kind) if one is not type(None))
    return Annotated[kind, choices.option(text, *_flags(name, command), metavar=metavar, autocompletion=completed)]


def _default(parameter: inspect.Parameter, option: Any, optional: bool) -> Any:
    if parameter.default is parameter.empty:
        return None if optional else parameter.empty
    takes_many = any(get_origin(one) is list for one in _union_types(option))
    is_plain = isinstance(parameter.default, bool | int | float | str) and not takes_many
    return parameter.default if is_plain and parameter.default != "" else None


def _python_value(value: Any, parameter: inspect.Parameter, annotation: Any) -> Any:
    """Convert a value of the command line to the function's argument."""
    if value is None or (isinstance(value, list) and not value):
        return None if parameter.default is parameter.empty else parameter.default
    if get_origin(_union_types(annotation)[0]) is Mapping:
        return choices.parse_sizes(value)
    if isinstance(value, str) and int in _union_types(annotation):
        return choices.in_digits(value)
    return tuple(value) if isinstance(value, list) else value


def _endings(command: Command) -> list[str]:
    """Return the file endings that -o accepts."""
    drawn = () if command.draw is None else (".html", ".png", ".svg")
    rows = () if command.streams else (".csv",)
    workbook = (".xlsx",) if command.workbook else ()
    return [*command.streams, ".json", *dict.fromkeys((*rows, *command.writes, *workbook, *drawn))]


def _check_file(path: Path | None, verb: str, command: Command, only: str | None) -> None:
    """Raise before the work when -o names a file that the verb cannot write."""
    if only is not None and (path is None or path.suffix != ".xlsx"):
        raise FomkitError(f"--for {only}", "needs a workbook. Add, for example, '-o vendor.xlsx'.")
    if path is None:
        return
    *others, last = _endings(command)
    if path.suffix not in (*others, last):
        wrong = "is a folder" if path.is_dir() else f"has an ending that {verb} cannot write"
        raise FomkitError(str(path), f"{wrong}. Use {', '.join(others)} or {last}.")
    if command.draw is not None and path.suffix not in (".json", ".csv"):
        from fomkit.output.pages import check_plotting

        check_plotting(str(path), "vl_convert")


def _check_absent(arguments: Mapping[str, Any], output: Path | None, command: Command, force: bool) -> None:
    """Raise before the work where an output file exists, unless it is to be replaced or resumed."""
    from fomkit.files.write import check_absent

    named = [arguments[name] for name in command.files] + ([] if arguments.get("resume") else [output])
    check_absent([Path(one) for one in named if one is not None], force)
    if command.streams and output is not None and not (force or arguments.get("resume")):
        from fomkit.output.files import KeptStretches

        KeptStretches(output, "").check_none()


def _file_content(result: Any, answer: Answer, command: Command, ending: str) -> str | bytes:
    """Convert a verb's result to a file's content, by the file's ending."""
    if ending in command.writes:
        return command.writes[ending](result)
    if ending in (".json", ".csv"):
        from fomkit.output.files import to_csv, to_json

        return to_json(dict(answer.content)) if ending == ".json" else to_csv(list(answer.rows))
    from fomkit.output.pages import chart_file

    return chart_file((command.draw or (lambda found: found))(result), ending)


def _write_workbook(result: Any, path: Path, only: str | None) -> None:
    """Write a workbook; for a single target also list its free texts, which the user must check before sending."""
    from fomkit.verbs.suites import sheet_model_of
    from fomkit.workbook.vendor import free_texts
    from fomkit.workbook.write import write_workbook

    shown = write_workbook(sheet_model_of(result), path, only)
    if only is None:
        return
    choices.print_aside(f"free texts that {path} contains; read them before you send it:")
    for sort, texts in free_texts(shown).items():
        more = [f"and {len(texts) - _SHOWN} more"] if len(texts) > _SHOWN else []
        choices.print_aside(f"  {sort}: {'; '.join([*texts[:_SHOWN], *more])}")
    back = f"fomkit review RETURNED.xlsx --issued {quote(path.as_posix())}"
    choices.print_aside(f"Next, when the vendor has sent it back: {back}")


def _profile_path(
    path: Path | None, command: Command, arguments: Mapping[str, Any], inputs: Sequence[str], force: bool
) -> Path | None:
    """Return the profile file that stores the result; raise before the work when it cannot be written."""
    name = None if command.stores is None else command.stores.name(arguments)
    path = Path(name) if path is None and name is not None else path
    if command.stores is None or path is None:
        return None
    from fomkit.verbs.profiles import check_save

    _check_no_input(path, inputs)
    check_save(command.stores.what, path, force=force)
    return path


def _input_names(
    arguments: Mapping[str, Any], parameters: Mapping[str, inspect.Parameter], command: Command
) -> list[str]:
    """Return the input files and profiles, as named on the command line."""
    files = (
        name for name, one in parameters.items() if name in command.arguments or "Path" in str(one.annotation)
    )
    values = [arguments[name] for name in files if name != "output"]
    every = [one for value in values for one in (value if isinstance(value, tuple) else (value,))]
    return [str(one) for one in every if isinstance(one, str | Path) and one != ""]


def _check_no_input(path: Path | None, inputs: Sequence[str]) -> None:
    """Raise where the output file is also an input, which would be lost."""
    if path is not None and path.resolve() in [Path(one).resolve() for one in inputs]:
        raise FomkitError(str(path), "is both input and output. Name another output with -o.")


def _deliver(result: Any, command: Command, path: Path | None, given: Mapping[str, Any]) -> Answer:
    """Write the file and print the text of a result; return its answer."""
    from fomkit.files.write import write_whole
    from fomkit.verbs.views import answer_of

    answer, as_json = answer_of(result), given.get("as_json", False)
    shows = {name: given[name] for name in command.shows}
    content, write = dict(answer.content), partial(answer.write, **shows)
    if any(shows.values()) and not as_json:
        write(content)  # raises before a file is written where an option of the text cannot be used
    if path is not None and path.suffix not in command.streams:
        with choices.progress(f"writing {path.name}", quiet=given["quiet"]):
            if path.suffix == ".xlsx" and command.workbook:
                _write_workbook(result, path, given.get("only"))
            else:
                write_whole(path, _file_content(result, answer, command, path.suffix))
    aside = bool(command.prints) and path is None and not as_json
    if aside:
        print(_file_content(result, answer, command, command.prints), end="")
    for line in () if command.stores else answer.said:
        choices.print_aside(line)
    with redirect_stdout(sys.stderr) if aside else nullcontext():
        choices.write_answer(content, write, as_json)
    if path is not None and command.prints and not as_json:
        print(f"Written: {path}")
    return answer


def _common_options(command: Command) -> Iterator[inspect.Parameter]:
    """Return the options that a verb has beside its function's parameters."""
    for name, (flag, text) in command.shows.items():
        yield _parameter(name, Annotated[bool, choices.option(text, flag)], False)
    if command.judges_fit:
        yield _parameter("allow_oversize", choices.Oversize, False)
    if command.override_option is not None:
        flag, text = command.override_option
        yield _parameter(flag[2:].replace("-", "_"), Annotated[bool, choices.option(text, flag)], False)
    if command.workbook:
        yield _parameter("only", choices.Only, None)
    if not command.plain:
        json = choices.option("Print everything as JSON instead of text.", "--json")
        yield _parameter("as_json", Annotated[bool, json], False)
    computes = {".xlsx": "a workbook with formulas (.xlsx)"} if command.workbook else {}
    *others, last = (computes.get(ending, ending) for ending in _endings(command))
    written = command.stores.text if command.stores else f"Also write {', '.join(others)} or {last}."
    yield _parameter("output", Annotated[Path | None, choices.option(written, "--output", "-o")], None)
    yield _parameter("force", choices.Force, False)
    yield _parameter("quiet", choices.Quiet, False)


class _Names(dict[str, Any]):
    """Names for evaluating annotations; names imported for type checking only evaluate to Any."""

    def __missing__(self, name: str) -> Any:
        return vars(builtins).get(name, Any)


class _Verb(NamedTuple):
    """A verb with its function, the parameters that become arguments and options, and their evaluated types."""

    name: str
    function: Callable[..., Any]
    command: Command
    parameters: Mapping[str, inspect.Parameter]
    kinds: Mapping[str, Any]

    def answer(self, given: Mapping[str, Any]) -> None:
        """Call the verb, write and print its result, and set the exit code."""
        with without_pyarrow():
            import pandas as pd  # imported here because --help does not need it

        pd.set_option("mode.string_storage", "python")  # PyArrow strings are slower for tables of this size
        command, parameters, force = self.command, self.parameters, given.get("force", False)
        arguments = {name: _python_value(given[name], one, self.kinds[name]) for name, one in parameters.items()}
        output = None if "output" in parameters else given["output"]
        inputs = _input_names(arguments, parameters, command)
        profile_path = _profile_path(output, command, arguments, inputs, force)
        if command.stores and profile_path is not None and not arguments.get("name", "none"):
            arguments["name"] = command.stores.called(arguments, profile_path)
        if command.stores is None:
            _check_no_input(output or arguments.get("output"), inputs)
            _check_file(output, self.name, command, given.get("only"))
            _check_absent(arguments, output, command, force)
        if command.streams:
            arguments["output"] = output if output is not None and output.suffix in command.streams else None
        result = self._call(arguments, output, inputs, given.get("only"), quiet=given["quiet"])
        answer = _deliver(result, command, None if command.stores else output, given)
        if profile_path is not None:
            _save_profile(result, answer, profile_path, command, force=force, told=not given.get("as_json", False))
        choices.end_if_oversize(answer.unfit, allowed=given.get("allow_oversize", True))
        override = "" if command.override_option is None else command.override_option[0][2:].replace("-", "_")
        if command.is_incomplete(answer.content) and not given.get(override):
            raise typer.Exit(1)

    def _call(
        self, arguments: Mapping[str, Any], output: Path | None, inputs: Sequence[str], only: str | None, *,
        quiet: bool,
    ) -> Any:  # fmt: skip
        """Call the function; convert parameter names in its errors to flags of the command line."""
        flags = {name: max(_flags(name, self.command), key=len) for name in self.parameters}
        tells = "tell" in inspect.signature(self.function).parameters
        try:
            self.command.before(arguments, output)
            if only is not None and self.command.workbook is not None:
                from fomkit.workbook.vendor import check_target

                check_target(only, self.command.workbook(arguments))
            with _progress_shown(self.command.doing, tells, quiet) as tell:
                return self.function(**arguments, **self.command.python_only, **tell)
        except ManyFomkitError as error:
            raise ManyFomkitError(_with_flags(one, flags, inputs) for one in error.errors) from error
        except FomkitError as error:
            raise _with_flags(error, flags, inputs) from error


def command_line(verb: str, function: Callable[..., Any], examples: Sequence[str] = ()) -> Callable[..., None]:
    """Return the function whose signature is a verb's command line."""
    command, docs = command_of(function), help_of(function)
    no_options = {"tell", *command.python_only, *(["output"] if command.streams else [])}
    signature = inspect.signature(function).parameters
    parameters = {name: one for name, one in signature.items() if name not in no_options}
    names = _Names(vars(sys.modules[function.__module__]))
    kinds = {name: eval(str(one.annotation), {}, names) for name, one in parameters.items()}  # noqa: S307 - our own
    verb_call = _Verb(verb, function, command, parameters, kinds)
    options: list[inspect.Parameter] = []
    for name, one in parameters.items():
        annotation = _option(name, one, kinds[name], command, docs)
        optional = type(None) in get_args(get_args(annotation)[0])
        options.append(_parameter(name, annotation, _default(one, get_args(annotation)[0], optional)))
    options += [one for one in _common_options(command) if one.name not in parameters]

    def run(**given: Any) -> None:
        with _reads_noted(adds="add" in parameters):
            verb_call.answer(given)

    fits = "Exit code 1 where a step does not fit the device's memory, unless --allow-oversize is given."
    description = docs.about.replace("`", "")
    about = (
        f"{description}\n\n{fits}" if command.judges_fit and "--allow-oversize" not in description else description
    )
    run.__doc__ = "\n\n".join([about, *(["Examples:"] if examples else []), *(f"\b\n  {one}" for one in examples)])
    run.__signature__ = inspect.Signature(sorted(options, key=lambda one: one.default is not one.empty))  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in options}
    run.__name__ = verb
    return run


@contextmanager
def _reads_noted(*, adds: bool) -> Iterator[None]:
    """Record the files read, so that none is overwritten; ``adds``: the verb may write to a file that it read."""
    before = READ.set(None if adds else set())
    try:
        yield
    finally:
        READ.reset(before)


@contextmanager
def _progress_shown(doing: str, tells: bool, quiet: bool) -> Iterator[dict[str, Callable[[str], None]]]:
    """Show progress: the parts that are done, or the messages of a function with a parameter ``tell``."""
    if tells:
        with choices.status_line(doing, quiet=quiet) as tell:
            yield {"tell": tell}
        return
    with choices.progress(doing, quiet=quiet) as advance:
        before = PROGRESS.set(advance)
        try:
            yield {}
        finally:
            PROGRESS.reset(before)


def _save_profile(result: Any, answer: Answer, path: Path, command: Command, *, force: bool, told: bool) -> None:
    from fomkit.verbs.profiles import save

    files = save(result, path, force=force)
    if told:
        print(f"Written: {', '.join(map(str, files))}")
    if told and command.stores and (then := command.stores.then(result)):
        print(f"Next: {then.format(file=quote(path.as_posix()))}")
    for line in answer.said:
        choices.print_aside(line)


def _with_flags(error: FomkitError, flags: Mapping[str, str], inputs: Sequence[str]) -> FomkitError:
    """Replace parameter names by flags in an error: names in backquotes, and the place unless it is an input."""
    where, what = (
        _QUOTED.sub(lambda found: flags.get(found[1], found[0]), text) for text in (error.where, error.what)
    )
    name, space, given = where.partition(" ")
    place = name if error.where in inputs else flags.get(name, name)
    return FomkitError(place + space + given, what)


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=annotation)

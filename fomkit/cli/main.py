"""The command line: parse, call, print; a mistake in the input ends with one message and exit code 2.

Errors of the parser are rewritten in fomkit's form: which option, what is wrong, what was expected, what to do.
"""

from __future__ import annotations

import codecs
import errno
import gc
import io
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from functools import cache, partial
from importlib import import_module
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_args

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

from fomkit.cli.choices import in_digits, print_error
from fomkit.core.errors import FomkitError, nearest_names


class VerbEntry(NamedTuple):
    """A verb of ``verbs.txt``.

    `where`: module of its function; after a colon the function's name where it differs from the verb's.
    """

    group: str
    where: str
    says: str
    examples: tuple[str, ...]


def _read_verbs() -> Iterator[tuple[str, VerbEntry]]:
    """Read the verbs in the order of the help: a paragraph is a verb, or a heading if it is a single line."""
    group = ""
    for paragraph in Path(__file__).with_name("verbs.txt").read_text(encoding="utf-8").split("\n\n"):
        head, *lines = (line.strip() for line in paragraph.strip().splitlines())
        if lines:
            name, where = head.split()
            yield name, VerbEntry(group, where, lines[0], tuple(lines[1:]))
        else:
            group = head


VERB_ENTRIES = dict(_read_verbs())
VERBS: Mapping[str, str] = {name: one.where for name, one in VERB_ENTRIES.items()}
"""Module of each verb's function, which is loaded on use."""

UsageError: Any = typer.BadParameter.__mro__[1]
"""The parser's error for invalid arguments; the package that defines it depends on the version of typer."""
_BARE = "requires an argument"


def _name(option: Any) -> str:
    """Return the name of an option or argument as the help shows it."""
    is_argument = option.param_type_name == "argument"
    return str(option.metavar or option.name) if is_argument else str(option.opts[0])


_CLICK_TYPES = {"integer": int, "float": float}


def _python_type(option: Any) -> Any:
    described = getattr(option, "type_descriptor", None)  # of typer from 0.29 on, before that click's types
    return described.annotation if described else _CLICK_TYPES.get(option.type.name.partition(" ")[0])


def _expected_number(option: Any) -> str:
    word = {int: "A whole number", float: "A number"}.get(_python_type(option), "")
    holder = option if hasattr(option, "type_descriptor") else option.type
    low, high = (getattr(holder, name, None) for name in ("min", "max"))
    if low is not None and high is not None:
        share = ", such as 0.8 for 80 %" if high < 1 else ""
        return f"{word} from {low:g} to {high:g} was expected{share}."
    bound = f" of {low:g} or more" if low is not None else f" of at most {high:g}" if high is not None else ""
    return f"{word}{bound} was expected."


def _literals(option: Any) -> list[str]:
    """Return the words that an option allows; empty where it is not limited to words."""
    allowed = get_args(_python_type(option)) or getattr(getattr(option, "type", None), "choices", ())
    return [one for one in allowed if isinstance(one, str)]


def wrong_value(option: Any, value: object, said: str, verb: str) -> FomkitError:
    """Make the error for an invalid value of an option of a verb; ``said``: the parser's message."""
    shown = value[0] if isinstance(value, list | tuple) and value else value
    words = _literals(option)
    if words:
        from fomkit.core.units import precision_meant  # imported here because only a mistake needs it

        hint = precision_meant(str(shown)) if "mixed" in words else nearest_names(str(shown), words)
        return FomkitError(_name(option), f"{shown!r} is not one of its values. {hint}")
    if _python_type(option) in (int, float):
        return FomkitError(_name(option), f"is {shown}. {_expected_number(option)}")
    return FomkitError(
        _name(option), f"is {shown!r}: {said.rstrip('.')}. 'fomkit {verb} -h' describes the option."
    )


def checked_value(option: Any, check: Callable[[Any, Any], Any], ctx: Any, value: Any) -> Any:
    """Return text, defaults and missing values unchecked; other values go to the parser, which loads pydantic."""
    kind = _python_type(option)
    words = value if kind == list[str] and value else (None,)
    good = type(value) is kind or all(type(one) is str for one in words) or (value is None and not option.required)
    if kind is not None and good:
        return value if option.callback is None else option.callback(ctx, option, value)
    try:
        return check(ctx, in_digits(value) if kind is int and isinstance(value, str) else value)
    except UsageError as error:
        if value is None or value == ():
            raise
        raise wrong_value(option, value, str(error.message), ctx.info_name) from None


def _missing(option: Any, verb: str) -> str:
    """Write the message that an option or argument is missing, with what it is."""
    example = " Add, for example, '--target v100'." if "--target" in option.opts else f" {option.help}"
    return f"{_name(option)} is missing.{example} 'fomkit {verb} -h' has examples."


def _without_value(verb: Any, name: str) -> str:
    """Write the message that an option has no value, with the values that it takes."""
    option = next((one for one in getattr(verb, "params", ()) if name in one.opts), None)
    value = getattr(option, "metavar", None) or ""
    words = _literals(option) or value.strip("<>").split("|")
    if all(word.isidentifier() and word.islower() for word in words):
        listed = " or ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
        return f"has no value. Expected {listed}. Write, for example, '{name} {words[0]}'."
    if not value:
        hint = f"'fomkit {getattr(verb, 'name', '')} -h' describes it."
        return f"has no value. Write it after the option; {hint}"
    return f"has no value. Expected {value}. 'fomkit {getattr(verb, 'name', '')} -h' has examples."


_CALLED = {
    **dict.fromkeys(("--machine", "--gpu", "--device", "--hardware"), "--target"), "--bs": "--batch",
    "--batch-size": "--batch", "--dtype": "--precision", **dict.fromkeys(("--amp", "--fp16"), "--precision mixed"),
    "--seq": "--set seq=N",
}  # fmt: skip
"""What to write for options that other tools have."""
_MEANT = {
    **dict.fromkeys(("list", "ls", "models", "info"), "show"), "machines": "show machines", "run": "estimate",
    **dict.fromkeys(("bench", "benchmark"), "measure"), "version": "--version", "help": "-h",
}  # fmt: skip
"""What to write for commands that other tools have."""
_EXTRA = re.compile(r"Got unexpected extra argument\S* \((.+)\)")


@contextmanager
def parser_errors_rewritten(verb: Any, ctx: Any) -> Iterator[None]:
    """Rewrite the parser's errors about a verb's arguments as FomkitError."""
    try:
        yield
    except UsageError as error:
        kind, name = type(error).__name__, str(ctx.info_name)
        where = str(verb.name or "fomkit")
        if kind == "NoArgsIsHelpError":
            raise
        if kind == "MissingParameter" and error.param is not None:
            raise FomkitError(where, _missing(error.param, name)) from None
        option = getattr(error, "option_name", None)
        if option and _BARE in str(error.message):
            raise FomkitError(option, _without_value(verb, option)) from None
        if kind == "NoSuchOption":
            known = [name for one in verb.get_params(ctx) for name in one.opts if name.startswith("--")]
            called = _CALLED.get(str(option), "-")
            hint = f"Write {called}." if called.split()[0] in known else nearest_names(str(option), known)
            raise FomkitError(where, f"has no option {option}. {hint}") from None
        text = str(error.format_message()).rstrip(".")
        if many := _EXTRA.match(text):
            text = f"{many[1]!r} is an unexpected argument"
        raise FomkitError(where, f"{text}. 'fomkit {name} -h' lists the options.") from None


class CheckedCommand:
    """A command that parses with `checked_value`, and whose parser errors `parser_errors_rewritten` rewrites."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options, including those that the parser adds."""
        found: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for one in found:
            if "process_value" not in vars(one):
                one.process_value = partial(checked_value, one, one.process_value)
        return found

    def make_parser(self, ctx: Any) -> Any:
        """Make the parser of the words; it refuses an option that takes one value and is given twice.

        Raises FomkitError for such an option, because it is ambiguous which value is meant; and for an empty
        value.
        """
        parser = super().make_parser(ctx)  # type: ignore[misc]
        read = parser.parse_args

        def parse_args(args: list[str]) -> Any:
            found = read(args=args)
            seen: set[int] = set()
            for one in found[2]:
                given = found[0].get(one.name)
                empty = given == "" or (isinstance(given, list | tuple) and "" in given)
                if empty and one.name != "arguments":  # arguments of the user's program may be empty
                    raise FomkitError(
                        _name(one), f"is empty. Give a value; 'fomkit {ctx.info_name} -h' has examples."
                    )
            for one in found[2]:  # in the order of the command line
                takes_one = one.param_type_name == "option" and not one.multiple and not one.is_flag
                if takes_one and id(one) in seen:
                    raise FomkitError(_name(one), "is given twice. Give it once.")
                seen.add(id(one))
            return found

        parser.parse_args = parse_args
        return parser

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the command line; what follows '--' are arguments of a program if the verb has this option."""
        if "--" in args and any("--argument" in one.opts for one in self.get_params(ctx)):
            at = args.index("--")
            args = [*args[:at], *(f"--argument={one}" for one in args[at + 1 :])]
        with parser_errors_rewritten(self, ctx):
            found: list[str] = super().parse_args(ctx, args)  # type: ignore[misc]
            return found


class Verb(CheckedCommand, TyperCommand):
    """One verb."""


def verb_function(name: str) -> Callable[..., Any]:
    """Load and return a verb's function."""
    module, _, function = VERBS[name].partition(":")
    found: Callable[..., Any] = getattr(import_module(module), function or name)
    return found


@cache
def verb_command(name: str) -> Any:
    """Make a verb's command."""
    from fomkit.cli.adapter import command_line, without_pyarrow  # listing the verbs does not need it

    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    with without_pyarrow():
        function = verb_function(name)
    alone.command(name, cls=Verb)(command_line(name, function, VERB_ENTRIES[name].examples))
    return typer.main.get_command(alone)


class Verbs(CheckedCommand, TyperGroup):
    """The verbs of the command line; each command is made on use."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - required by the base class
        """Return the names of the verbs."""
        return list(VERBS)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - required by the base class
        """Write each verb's line by group, without loading any verb."""
        for title, verbs in groupby(VERB_ENTRIES.items(), lambda verb: verb[1].group):
            with formatter.section(title):
                formatter.write_dl([(name, one.says) for name, one in verbs])

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 - as above
        """Return a verb's command, or None if unknown; all are then made, so that the nearest can be suggested."""
        for name in (cmd_name,) if cmd_name in VERBS else VERBS:
            self.commands[name] = verb_command(name)
        return self.commands.get(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the verb named by the first argument."""
        if args and args[0] not in VERBS:
            near = get_close_matches(args[0], VERBS, cutoff=0.6)
            hint = nearest_names(args[0], near) if near else "'fomkit -h' lists them."
            hint = f"Write 'fomkit {_MEANT[args[0]]}'." if args[0] in _MEANT else hint
            raise FomkitError(args[0], f"is not a command. {hint}")
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=Verbs,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="How many of my training runs a day will that machine do, and how sure are we?",
    epilog="Exit codes: 0 done, 1 a check failed, or rows have no time, "
    "2 a mistake in the input (one message on stderr).",
)
_debug = False


def _print_version(wanted: bool) -> None:
    if wanted:
        from fomkit import __version__

        print(f"fomkit {__version__}")
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of a mistake.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Set the options before the verb."""
    del version
    global _debug
    _debug = debug


_SIMILAR = {
    "×": "x", "·": "*", "…": "...", "µ": "u", "−": "-", "≤": "<=", "≥": ">=", "→": "->", "±": "+-", "─": "-",
    "–": "-", "²": "^2",
}  # fmt: skip


def _by_similar(error: Any) -> tuple[str, int]:
    """Replace characters that the encoding of the output lacks, as an error handler of `codecs`."""
    return "".join(_SIMILAR.get(one, "?") for one in error.object[error.start : error.end]), error.end


def _end(message: str) -> None:
    """End with a message and exit code 2, also where neither it nor the buffered output can be written."""
    with suppress(OSError):
        print_error(message)
        sys.stdout.flush()
        sys.exit(2)
    os._exit(2)


def main() -> None:
    """Run the command line; a mistake in the input ends with one message and exit code 2."""
    for library in ("OMP", "OPENBLAS", "MKL"):
        # The matrices are small; on a busy machine more threads would only wait for each other.
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")
    # A command makes little garbage; a collection would traverse 300,000 objects of the libraries.
    gc.set_threshold(100_000, 20, 20)
    # Pydantic's plugin search reads the metadata of all installed packages, and fomkit has no plugins.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    codecs.register_error("similar", _by_similar)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="similar")
        elif stream is None:  # closed by the shell with '>&-' or '2>&-'
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - used until the process ends
    try:
        try:
            app()  # raises SystemExit; printed text is still in a buffer
        finally:
            sys.stdout.flush()
            gc.freeze()  # so that no collection runs at exit
    except FomkitError as error:
        if _debug:
            raise
        _end(str(error))
    except (SystemExit, BrokenPipeError) as end:
        # Where nobody reads the output any more, the parser ends with 1.
        if BrokenPipeError in (type(end), type(end.__context__)):
            os._exit(0)
        raise
    except OSError as error:
        # So Windows reports a pipe that its reader closed.
        if os.name == "nt" and error.errno == errno.EINVAL and error.filename is None:
            os._exit(0)
        if _debug:
            raise
        where = error.filename or "the output"
        _end(f"{where}: cannot be read or written ({error.strerror}). Check the path, rights and the disk.")

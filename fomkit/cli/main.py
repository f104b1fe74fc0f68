"""The verbs as a group, in which an option without its value is told as any other mistake.

The command line: one file per verb; parse, call, print. Mistakes end with one message and exit code 2.
"""

from __future__ import annotations

import gc
import io
import os
import sys
from collections.abc import Mapping
from functools import cache, partial
from importlib import import_module
from typing import Annotated, Any

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

from fomkit.cli.choices import complain
from fomkit.core.errors import FomkitError

VERBS: Mapping[str, str] = {
    "estimate": "estimate", "fom": "fom", "compare": "compare", "pack": "workbooks", "accept": "workbooks",
    "predict": "advise", "profile": "profile", "import": "import_", "export": "workbooks", "show": "show",
    "measure": "measure", "memory": "advise", "advise": "advise", "scaling": "scaling", "cost": "money",
    "campaign": "money", "sensitivity": "decisions", "solve": "decisions", "sweep": "scaling",
    "explain": "advise", "validate": "compare", "review": "workbooks",
}  # fmt: skip
"""The file of each verb here, in the order of the help; it is loaded when the verb is asked for."""

_UsageError: Any = typer.BadParameter.__mro__[1]
"""What the parser raises of words that it cannot take; which package has it depends on the version of typer."""
_BARE = "requires an argument"


def _what_it_takes(verb: Any, name: str) -> str:
    """Say what a bare option of a verb wants after it."""
    option = next((one for one in getattr(verb, "params", ()) if name in one.opts), None)
    value = getattr(option, "metavar", None)
    if not value:
        hint = f"'fomkit {getattr(verb, 'name', '')} -h' says what it takes."
        return f"has no value. Write it after the option; {hint}"
    words = value.strip("<>").split("|")
    return f"has no value. It takes {' or '.join(words)}. Write, for example, '{name} {words[0]}'."


def _taken(option: Any, check: Any, ctx: Any, value: Any) -> Any:
    """Take what is text, a default or absent as it stands; for any other value the parser loads pydantic."""
    kind = getattr(getattr(option, "type_descriptor", None), "annotation", None)  # of typer from 0.29 on
    words = value if kind == list[str] and value else (None,)
    good = type(value) is kind or all(type(one) is str for one in words) or (value is None and not option.required)
    if kind is None or not good:
        return check(ctx, value)
    return value if option.callback is None else option.callback(ctx, option, value)


class _Taking:
    """A command whose options are `_taken`."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Give its options, and those that the parser adds."""
        found: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for one in found:
            if "process_value" not in vars(one):
                one.process_value = partial(_taken, one, one.process_value)
        return found


class Verb(_Taking, TyperCommand):
    """One verb."""


@cache
def verb_command(name: str) -> Any:
    """Make the command of a verb, from the function of its name (``import_file`` for import)."""
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    function = getattr(import_module(f"fomkit.cli.{VERBS[name]}"), "import_file" if name == "import" else name)
    alone.command(name, cls=Verb)(function)
    return typer.main.get_command(alone)


class Verbs(_Taking, TyperGroup):
    """The verbs of the command line, each made when it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - its parser gives it
        """Name the verbs."""
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 - as above
        """Give a verb; of an unknown name nothing, but all verbs are then known, for the nearest to be told."""
        for name in (cmd_name,) if cmd_name in VERBS else VERBS:
            self.commands[name] = verb_command(name)
        return self.commands.get(cmd_name)

    def invoke(self, ctx: Any) -> Any:
        """Run a verb.

        Raises FomkitError when an option stands at the end without its value.
        """
        try:
            return super().invoke(ctx)
        except _UsageError as error:
            if not getattr(error, "option_name", None) or _BARE not in str(error.message):
                raise
            verb = self.commands.get(ctx.invoked_subcommand)
            raise FomkitError(error.option_name, _what_it_takes(verb, error.option_name)) from None


app = typer.Typer(
    cls=Verbs,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="How many of my training runs a day will that machine do, and how sure are we?",
    epilog="Exit codes: 0 done, 1 a check failed or work has no time, "
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
    """Take the options that stand before the verb."""
    del version
    global _debug
    _debug = debug


def main() -> None:
    """Run the command line; every mistake in the input is one message and exit code 2."""
    for library in ("OMP", "OPENBLAS", "MKL"):
        # The matrices here are small; on a busy machine threads only wait for each other.
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")
    # One answer makes little garbage, and to look for it is to go through 300,000 objects of the libraries.
    gc.set_threshold(100_000, 20, 20)
    # Its search for plugins reads the metadata of everything installed, and none of them is ours.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    if sys.stdout is None:  # closed by the shell, as in '>&-'
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - it lives as long as the process
    try:
        try:
            app()  # ends by SystemExit, with what was printed still in a buffer
        finally:
            sys.stdout.flush()
            gc.freeze()  # nor at the end
    except FomkitError as error:
        if _debug:
            raise
        complain(str(error))
        sys.exit(2)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
    except OSError as error:
        if _debug:
            raise
        where = error.filename or "the output"
        complain(f"{where}: cannot be read or written ({error.strerror}). Check the path, rights and the disk.")
        os._exit(2)  # what is still buffered would fail again, with a traceback

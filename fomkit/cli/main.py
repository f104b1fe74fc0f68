"""The verbs as a group, in which an option without its value is told as any other mistake.

The command line: one file per verb; parse, call, print. Mistakes end with one message and exit code 2.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from fomkit.cli.advise import advise, explain, memory, predict
from fomkit.cli.choices import complain
from fomkit.cli.compare import compare, validate
from fomkit.cli.decisions import sensitivity, solve
from fomkit.cli.estimate import estimate
from fomkit.cli.fom import campaign, cost, fom
from fomkit.cli.import_ import import_file
from fomkit.cli.measure import measure
from fomkit.cli.profile import profile
from fomkit.cli.scaling import scaling, sweep
from fomkit.cli.show import show
from fomkit.cli.workbooks import accept, export, pack, review
from fomkit.core.errors import FomkitError

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


class Verbs(TyperGroup):
    """The verbs of the command line."""

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
app.command("estimate")(estimate)
app.command("fom")(fom)
app.command("compare")(compare)
app.command("pack")(pack)
app.command("accept")(accept)
app.command("predict")(predict)
app.command("profile")(profile)
app.command("import")(import_file)
app.command("export")(export)
app.command("show")(show)
app.command("measure")(measure)
app.command("memory")(memory)
app.command("advise")(advise)
app.command("scaling")(scaling)
app.command("cost")(cost)
app.command("campaign")(campaign)
app.command("sensitivity")(sensitivity)
app.command("solve")(solve)
app.command("sweep")(sweep)
app.command("explain")(explain)
app.command("validate")(validate)
app.command("review")(review)

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

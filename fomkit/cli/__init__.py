"""The command line: one file per verb; parse, call, print. Mistakes end with one message and exit code 2."""

from __future__ import annotations

import io
import os
import sys
from typing import Annotated

import typer

from fomkit.cli.accept_command import accept
from fomkit.cli.advise_command import advise
from fomkit.cli.campaign_command import campaign
from fomkit.cli.compare_command import compare
from fomkit.cli.cost_command import cost
from fomkit.cli.estimate_command import estimate
from fomkit.cli.explain_command import explain
from fomkit.cli.export_command import export
from fomkit.cli.fom_command import fom
from fomkit.cli.import_command import import_file
from fomkit.cli.measure_command import measure
from fomkit.cli.memory_command import memory
from fomkit.cli.pack_command import pack
from fomkit.cli.predict_command import predict
from fomkit.cli.profile_command import profile
from fomkit.cli.review_command import review
from fomkit.cli.scaling_command import scaling
from fomkit.cli.screen import complain
from fomkit.cli.sensitivity_command import sensitivity
from fomkit.cli.show_command import show
from fomkit.cli.solve_command import solve
from fomkit.cli.sweep_command import sweep
from fomkit.cli.validate_command import validate
from fomkit.cli.verbs import Verbs
from fomkit.errors import FomkitError

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

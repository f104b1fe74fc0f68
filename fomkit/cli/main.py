"""The verbs as a group, in which an option without its value is told as any other mistake.

The command line: one file per verb; parse, call, print. Mistakes end with one message and exit code 2.
"""

from __future__ import annotations

import gc
import io
import os
import sys
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

from fomkit.cli.choices import complain
from fomkit.cli.slips import Taking
from fomkit.core.errors import FomkitError, nearest_names

GROUPS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "Estimate": {
        "estimate": ("estimate", "Estimate steps, runs and units of work a day, with intervals."),
        "predict": ("predict", "Predict the time of every op of a table on a machine."),
    },
    "Look closer": {
        "explain": ("fomkit.verbs.looks", "Explain what the longest ops' times rest on, and what to time first."),
        "show": ("show", "Show what a model is made of, what is known of a machine, or all names."),
        "memory": ("fomkit.verbs.looks", "Follow what a step keeps in memory, and find the largest batch."),
        "advise": ("fomkit.verbs.estimates", "Advise what to change in a training, and for how much time."),
    },
    "Decide": {
        "cost": ("fomkit.verbs.decisions", "Tell what a training and its inference cost, in money and carbon."),
        "campaign": ("fomkit.verbs.suites", "Tell how long the phases of a workflow take, and what they cost."),
        "scaling": ("fomkit.verbs.scaling", "Tell what more nodes bring, and what limits them."),
        "sweep": ("sweep", "Estimate a training at many points: sizes, rates, nodes, prices."),
        "sensitivity": ("fomkit.verbs.decisions", "Tell what a result hangs on, and what to measure."),
        "solve": ("fomkit.verbs.decisions", "Find the smallest change that reaches a target."),
    },
    "Suites and vendors": {
        "fom": ("fom", "Rate a machine over a baseline on a suite: its figure of merit."),
        "compare": ("compare", "Put projections beside what somebody measured, cell by cell."),
        "pack": ("workbooks", "Ask a vendor to time exactly the ops that carry the time."),
        "review": ("workbooks", "Show what a vendor changed in a workbook, and what it does."),
        "accept": ("workbooks", "Say whether a delivered machine does what was committed."),
    },
    "Profile and measure": {
        "profile": ("profile", "Trace a model of PyTorch, Keras or ONNX into a table of ops."),
        "measure": ("measure", "Time ops on this machine, and write it as a machine profile."),
        "import": ("import_", "Import timings, a trace, a record or a log as a profile."),
        "export": ("workbooks", "Write measurements as records of the modular benchmarker."),
        "validate": ("compare", "Hold predictions against measurements that nobody fitted."),
    },
}
"""The verbs as the help lists them: where each is, in a room whose functions are verbs or in a file here, and
what it does.

A verb is loaded when it is asked for.
"""
VERBS: Mapping[str, str] = {name: where for group in GROUPS.values() for name, (where, _) in group.items()}


class Verb(Taking, TyperCommand):
    """One verb."""


@cache
def verb_command(name: str) -> Any:
    """Make the command of a verb, from the function of its name (``import_file`` for import)."""
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    if VERBS[name].startswith("fomkit."):
        from fomkit.cli.adapter import command_line

        function = command_line(name, getattr(import_module(VERBS[name]), name))
    else:
        function = getattr(import_module(f"fomkit.cli.{VERBS[name]}"), "import_file" if name == "import" else name)
    alone.command(name, cls=Verb)(function)
    return typer.main.get_command(alone)


class Verbs(Taking, TyperGroup):
    """The verbs of the command line, each made when it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - its parser gives it
        """Name the verbs."""
        return list(VERBS)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - its parser gives it
        """Write what each verb does, by group, without loading any."""
        for title, verbs in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name, said) for name, (_, said) in verbs.items()])

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 - as above
        """Give a verb; of an unknown name nothing, but all verbs are then known, for the nearest to be told."""
        for name in (cmd_name,) if cmd_name in VERBS else VERBS:
            self.commands[name] = verb_command(name)
        return self.commands.get(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the verb of the first word.

        Raises FomkitError when it is none.
        """
        if args and args[0] not in VERBS:
            raise FomkitError(args[0], f"is no verb. {nearest_names(args[0], VERBS)}")
        return super().resolve_command(ctx, args)


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

"""The page docs/commands.md, written from the commands themselves: ``python -m fomkit.cli.reference``."""

from __future__ import annotations

from typing import Any

from typer.main import get_command
from typer.testing import CliRunner

from fomkit.cli import app

_INTRODUCTION = """# Commands

Written by `python -m fomkit.cli.reference` from the commands themselves; a test compares.

Exit codes: 0 done · 1 a check failed, or work has no time · 2 a mistake in the input, told in one message on
standard error. Results go to standard output; what is said about them on the way goes to standard error. Colour
and progress appear on a terminal only (`NO_COLOR` and `--quiet` turn them off). `fomkit --install-completion` lets
the shell complete commands, options and the names of profiles. `fomkit --debug VERB …` shows the traceback of a
mistake.
"""


def verbs() -> dict[str, Any]:
    """Give the commands by name."""
    commands: dict[str, Any] = getattr(get_command(app), "commands", {})
    return commands


def help_of(*verb: str) -> str:
    """Give the text of ``--help``, as wide as a page."""
    result = CliRunner(env={"COLUMNS": "110", "TERMINAL_WIDTH": "110"}).invoke(
        app, [*verb, "--help"], prog_name="fomkit"
    )
    return "\n".join(line.rstrip() for line in result.output.strip().splitlines())


def command_reference() -> str:
    """Write what every verb says of itself."""
    sections = [f"## `fomkit {name}`\n\n```text\n{help_of(name)}\n```\n" for name in sorted(verbs())]
    return "\n".join([_INTRODUCTION, f"```text\n{help_of()}\n```\n", *sections])


if __name__ == "__main__":
    print(command_reference(), end="")

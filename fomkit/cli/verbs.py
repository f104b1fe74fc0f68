"""The verbs as a group, in which an option without its value is told as any other mistake."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from fomkit.errors import FomkitError

_UsageError: Any = typer.BadParameter.__mro__[1]
"""What the parser raises of words that it cannot take; which package has it depends on the version of typer."""
_BARE = "requires an argument"


def _what_it_takes(verb: Any, name: str) -> str:
    """Say what a bare option of a verb wants after it."""
    option = next((one for one in getattr(verb, "params", ()) if name in one.opts), None)
    value = getattr(option, "metavar", None)
    if not value:
        told = f"'fomkit {getattr(verb, 'name', '')} -h' says what it takes."
        return f"has no value. Write it after the option; {told}"
    words = value.strip("<>").split("|")
    return f"has no value. It takes {' or '.join(words)}. Write, for example, '{name} {words[0]}'."


class Verbs(TyperGroup):
    """The verbs of the command line."""

    def invoke(self, ctx: Any) -> Any:
        """Run a verb.

        Raises
        ------
        FomkitError
            When an option stands at the end without its value.
        """
        try:
            return super().invoke(ctx)
        except _UsageError as error:
            if not getattr(error, "option_name", None) or _BARE not in str(error.message):
                raise
            verb = self.commands.get(ctx.invoked_subcommand)
            raise FomkitError(error.option_name, _what_it_takes(verb, error.option_name)) from None

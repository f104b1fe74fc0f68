"""What the parser cannot take, in fomkit's voice: which option, what is wrong, what was expected, what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, get_args

import typer

from fomkit.core.errors import FomkitError, nearest_names

UsageError: Any = typer.BadParameter.__mro__[1]
"""What the parser raises of words that it cannot take; which package has it depends on the version of typer."""
_BARE = "requires an argument"


def _name(option: Any) -> str:
    """Name an option or an argument as the help does."""
    is_argument = option.param_type_name == "argument"
    return str(option.metavar or option.name) if is_argument else str(option.opts[0])


def _kind(option: Any) -> Any:
    return getattr(getattr(option, "type_descriptor", None), "annotation", None)  # of typer from 0.29 on


def _number(option: Any) -> str:
    word = {int: "A whole number", float: "A number"}.get(_kind(option), "")
    low, high = (getattr(option, name, None) for name in ("min", "max"))
    if low is not None and high is not None:
        return f"{word} from {low:g} to {high:g} was expected."
    bound = f" of {low:g} or more" if low is not None else f" of at most {high:g}" if high is not None else ""
    return f"{word}{bound} was expected."


def wrong_value(option: Any, value: object, said: str) -> FomkitError:
    """Say what is wrong with the value of an option; ``said``: what the parser says of it."""
    shown = value[0] if isinstance(value, list | tuple) and value else value
    words = [one for one in get_args(_kind(option)) if isinstance(one, str)]
    if words:
        return FomkitError(_name(option), f"is {shown!r}. {nearest_names(str(shown), words)}")
    if _kind(option) in (int, float):
        return FomkitError(_name(option), f"is {shown}. {_number(option)}")
    return FomkitError(_name(option), f"is {shown!r}: {said.rstrip('.')}. 'fomkit VERB -h' says what it takes.")


def taken(option: Any, check: Callable[[Any, Any], Any], ctx: Any, value: Any) -> Any:
    """Take what is text, a default or absent as it stands; for any other value the parser loads pydantic.

    Raises FomkitError when it is not what the option takes.
    """
    kind = _kind(option)
    words = value if kind == list[str] and value else (None,)
    good = type(value) is kind or all(type(one) is str for one in words) or (value is None and not option.required)
    if kind is not None and good:
        return value if option.callback is None else option.callback(ctx, option, value)
    try:
        return check(ctx, value)
    except UsageError as error:
        if value is None or value == ():
            raise
        raise wrong_value(option, value, str(error.message)) from None


def _missing(option: Any, verb: str) -> str:
    """Say that an option or argument is missing, and what it is."""
    example = " Add, for example, '--target v100'." if "--target" in option.opts else f" {option.help}"
    return f"{_name(option)} is missing.{example} 'fomkit {verb} -h' has examples."


def _without_value(verb: Any, name: str) -> str:
    """Say what a bare option of a verb wants after it."""
    option = next((one for one in getattr(verb, "params", ()) if name in one.opts), None)
    value = getattr(option, "metavar", None)
    if not value:
        hint = f"'fomkit {getattr(verb, 'name', '')} -h' says what it takes."
        return f"has no value. Write it after the option; {hint}"
    words = value.strip("<>").split("|")
    return f"has no value. It takes {' or '.join(words)}. Write, for example, '{name} {words[0]}'."


@contextmanager
def slips_told(verb: Any, ctx: Any) -> Iterator[None]:
    """Tell what the parser cannot take of a verb's words.

    Raises FomkitError for it.
    """
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
            raise FomkitError(where, f"has no option {option}. {nearest_names(str(option), known)}") from None
        text = str(error.format_message()).rstrip(".")
        raise FomkitError(where, f"{text}. 'fomkit {name} -h' says what it takes.") from None


class Taking:
    """A command whose options are `taken`, and whose slips are told."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Give its options, and those that the parser adds."""
        found: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for one in found:
            if "process_value" not in vars(one):
                one.process_value = partial(taken, one, one.process_value)
        return found

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words of the command line."""
        with slips_told(self, ctx):
            found: list[str] = super().parse_args(ctx, args)  # type: ignore[misc]
            return found

"""What the command line needs of a verb beside its function: the rest is the signature and the docstring.

A docstring's first paragraphs are the help, its section *Parameters* the help of each option; what is said to be
*As of* another verb is what that one says. ``fomkit.cli.adapter`` makes the command.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import fomkit

Function = TypeVar("Function", bound=Callable[..., Any])
_SECTION = re.compile(r"^(\S[^\n]*)\n-{3,}$", re.MULTILINE)
_ENTRY = re.compile(r"^(\S[^\n]*(?:(?<=,)\n\S[^\n]*)*)((?:\n[ ]+[^\n]*|\n(?=\n[ ]))*)", re.MULTILINE)
_OTHER = re.compile(r"As of `fomkit\.(\w+)`")


@dataclass(frozen=True)
class Command:
    """How a verb is asked on the command line.

    `doing`: what its progress says.
    `examples`: lines that may be typed.
    `arguments`: parameters that are written without an option's name, by what the help calls them.
    `spelled`: the names of options that are not those of their parameters.
    `metavar`: what the help writes for the value of an option.
    `shows` (flag, help): options of the text alone, by the name that the result's writer gives them.
    `judges_fit`: true where a step that no device's memory holds ends with exit code 1.
    `unanswered`: tells of a content whether it lacks what was asked for; the exit code is then 1.
    `draw`: makes the chart of a result that -o writes as .html, .png or .svg.
    """

    doing: str
    examples: tuple[str, ...] = ()
    arguments: Mapping[str, str] = field(default_factory=lambda: {"model": "MODEL"})
    spelled: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    metavar: Mapping[str, str] = field(default_factory=dict)
    shows: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    judges_fit: bool = False
    unanswered: Callable[[Mapping[str, Any]], bool] = lambda _: False
    draw: Callable[[Any], Any] | None = None


_COMMANDS: dict[Callable[..., Any], Command] = {}


def command(doing: str, **more: Any) -> Callable[[Function], Function]:
    """Put a verb on the command line; `more`: the other fields of `Command`."""

    def register(function: Function) -> Function:
        _COMMANDS[function] = Command(doing, **more)
        return function

    return register


def command_of(function: Callable[..., Any]) -> Command:
    """Give what a verb's command line needs."""
    return _COMMANDS[function]


class Help(NamedTuple):
    """A docstring, apart: what the verb does, and what each parameter is."""

    about: str
    parameters: Mapping[str, str]


def _entries(section: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for head, body in _ENTRY.findall(section):
        names, text = head.partition(" : ")[0], " ".join(body.split())
        found |= {name.strip(): text for name in names.split(",") if name.strip()}
    return found


def help_of(function: Callable[..., Any]) -> Help:
    """Read the docstring of a verb."""
    about, *rest = _SECTION.split(inspect.getdoc(function) or "")
    own = _entries(dict(zip(rest[::2], rest[1::2], strict=True)).get("Parameters", ""))
    for name, text in own.items():
        other = _OTHER.match(text)
        if other and other[1] != "estimate":  # whose options are said alike wherever they stand
            own[name] = help_of(getattr(fomkit, other[1])).parameters.get(name, "")
    return Help(about.strip(), own)

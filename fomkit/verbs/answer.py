"""What makes a function a verb: how the command line asks it, and what it answers.

A docstring's first paragraphs are the help, its section *Parameters* the help of each option; what is said to be
*As of* another verb is what that one says. ``fomkit.cli.adapter`` makes the command.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache, wraps
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, cast

import fomkit
from fomkit.core.errors import FomkitError, text_page

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, repr=False)
class Answer:
    """What a command says.

    `content`: everything, as ``--json`` prints it; ``content["schema"]`` names its form.
    `rows`: its main list, as ``-o FILE.csv`` writes it.
    `write`: of the content, and of a screen where there is one, the text that the command line prints.
    `unfit`: steps that no device's memory holds, in words.
    `said`: what is to be told beside the text, a line each.
    """

    content: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]]
    write: Callable[..., str]
    unfit: Sequence[str] = ()
    said: Sequence[str] = ()

    @property
    def table(self) -> pd.DataFrame:
        """The main list, one column a leaf (``time_s.low``)."""
        from fomkit.output.files import to_frame

        return to_frame(self.rows)

    def summary(self, **shows: bool) -> str:
        """Write it as the text that the command line prints; `shows`: options of the text alone."""
        return self.write(dict(self.content), **shows)

    def __repr__(self) -> str:
        what = self.content.get("schema") or self.content["title"]  # a JSON Schema has a title
        return f"<{what}: .summary(), .table ({len(self.rows)} rows), .content>"

    _repr_html_ = text_page


def written(files: Iterable[Path], lines: Iterable[str], said: Iterable[str] = ()) -> Answer:
    """Answer with the files that were written, and what is told of them; `said`: as of an `Answer`."""
    names, text = [str(file) for file in files], "".join(f"{line}\n" for line in lines)
    content = {"schema": "fomkit/written/1", "files": names, "text": text, "said": list(said)}
    return Answer(content, [{"file": name} for name in names], lambda *_: text, said=content["said"])


Advance = Callable[..., None]
WATCHED: ContextVar[Advance] = ContextVar("WATCHED", default=lambda _=None: None)
"""What is told of the work that is going on: with a number, of how many parts it is; without, that one is done."""


def parts(count: int) -> Callable[[], None]:
    """Say of how many parts the work is; give what is to be called after each."""
    advance = WATCHED.get()
    advance(count)
    return advance


Function = TypeVar("Function", bound=Callable[..., Any])
_SECTION = re.compile(r"^(\S[^\n]*)\n-{3,}$", re.MULTILINE)
_ENTRY = re.compile(r"^(\S[^\n]*(?:(?<=,)\n\S[^\n]*)*)((?:\n[ ]+[^\n]*|\n(?=\n[ ]))*)", re.MULTILINE)
_OTHER = re.compile(r"As of `fomkit\.(\w+)`")


class Kept(NamedTuple):
    """How -o keeps what a verb gives, by `fomkit.save`.

    `what`: what it is.
    `text`: what the help says of -o.
    `name`: of what was asked, the file where -o names none.
    `called`: of what was asked and that file, the name of what is kept where none was given; None for its own.
    `then`: of what is kept, the command that one goes on with, with a place for the ``{file}``.
    """

    what: Literal["machine", "model"]
    text: str
    name: Callable[[Mapping[str, Any]], str | None] = lambda _: None
    called: Callable[[Mapping[str, Any], Path], str | None] = lambda *_: None
    then: Callable[[Any], str] = lambda _: ""


@dataclass(frozen=True)
class Command:
    """How a verb is asked on the command line.

    `doing`: what its progress says.
    `arguments`: parameters that are written without an option's name, by what the help calls them.
    `spelled`: the names of options that are not those of their parameters.
    `metavar`: what the help writes for the value of an option.
    `shows` (flag, help): options of the text alone, by the name that the result's writer gives them.
    `judges_fit`: true where a step that no device's memory holds ends with exit code 1.
    `unanswered`: tells of a content whether it lacks what was asked for; the exit code is then 1.
    `excuse` (flag, help): an option with which the exit code is 0 though it does.
    `alone`: parameters that only Python has, and what the command line gives for them.
    `before`: checks what is asked and the file to write, before the work.
    `draw`: makes the chart of a result that -o writes as .html, .png or .svg.
    `workbook`: true where -o FILE.xlsx writes a workbook that computes, of which --for keeps one target.
    `writes`: makes other files of a result, by ending.
    `streams`: endings of files that the function itself writes, as its parameter ``output``.
    `prints`: the ending of what stands on standard output where -o names no file; the text goes to the other. A
      file that it names is told.
    `files`: parameters that name another file to write.
    `kept`: how -o keeps the result itself.
    `plain`: true where there is a text alone, no JSON.
    """

    doing: str
    arguments: Mapping[str, str] = field(default_factory=lambda: {"model": "MODEL"})
    spelled: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    metavar: Mapping[str, str] = field(default_factory=dict)
    shows: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    judges_fit: bool = False
    unanswered: Callable[[Mapping[str, Any]], bool] = lambda _: False
    excuse: tuple[str, str] | None = None
    alone: Mapping[str, Any] = field(default_factory=dict)
    before: Callable[[Mapping[str, Any], Path | None], None] = lambda *_: None
    draw: Callable[[Any], Any] | None = None
    workbook: bool = False
    writes: Mapping[str, Callable[[Any], str | bytes]] = field(default_factory=dict)
    streams: tuple[str, ...] = ()
    prints: str = ""
    files: tuple[str, ...] = ()
    kept: Kept | None = None
    plain: bool = False


_COMMANDS: dict[Callable[..., Any], Command] = {}


_TYPES: Mapping[str, tuple[type, str]] = {
    "None": (type(None), ""), "bool": (bool, "True or False"), "int": (Integral, "a whole number"),
    "float": (Real, "a number"), "str": (str, "a text"), "Path": (PathLike, "a path"),
    "Sequence": (Iterable, "a list"), "Mapping": (Mapping, "a dict"),
    **dict.fromkeys(("Fusion", "LastBatch", "Literal", "Mode", "Precision", "Scope"), (str, "a text")),
}  # fmt: skip
"""What stands in a signature: what fits it, and what a message calls it."""
_INNER = re.compile(r"\[[^\[\]]*\]")


@cache
def _expected(annotation: str) -> tuple[tuple[type, ...], str]:
    """Give the types that fit an annotation and their names; no types where it has one of fomkit's own."""
    while "[" in annotation:
        annotation = _INNER.sub("", annotation)
    words = annotation.split(" | ")
    if not all(word in _TYPES for word in words):
        return (), ""
    return tuple(_TYPES[word][0] for word in words), " or ".join(
        dict.fromkeys(_TYPES[word][1] for word in words if word != "None")
    )


def _check_type(name: str, value: object, annotation: str) -> None:
    types, told = _expected(annotation)
    # To Python True is a number, and a text a list of letters.
    fits = type(value) in types if isinstance(value, bool | str) else isinstance(value, types)
    fits = fits and (Mapping in types or not isinstance(value, Mapping))  # whose names alone would be its list
    if not types or fits:
        return
    if isinstance(value, str | PathLike) and Iterable in types:
        raise FomkitError(name, f"is one name, {str(value)!r}. Give a list, for example [{str(value)!r}].")
    raise FomkitError(name, f"is {value!r:.80}. Give {told}.")


def checked(function: Function) -> Function:
    """Have a public function refuse, by name, what is of another type than its signature says.

    Models, machines and tables are not looked at here: what reads them tells more.
    """
    annotations = {name: str(one.annotation) for name, one in inspect.signature(function).parameters.items()}

    @wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        for name, value in (*zip(annotations, given, strict=False), *named.items()):
            _check_type(name, value, annotations.get(name, "Any"))
        return function(*given, **named)

    return cast("Function", call)


def command(doing: str, **more: Any) -> Callable[[Function], Function]:
    """Put a verb on the command line; `more`: the other fields of `Command`."""

    def register(function: Function) -> Function:
        verb = checked(function)
        _COMMANDS[verb] = Command(doing, **more)
        return verb

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


@cache
def help_of(function: Callable[..., Any]) -> Help:
    """Read the docstring of a verb."""
    about, *rest = _SECTION.split(inspect.getdoc(function) or "")
    own = _entries(dict(zip(rest[::2], rest[1::2], strict=True)).get("Parameters", ""))
    for name, text in own.items():
        other = _OTHER.match(text)
        if other and other[1] != "estimate":  # whose options are said alike wherever they stand
            own[name] = help_of(getattr(fomkit, other[1])).parameters.get(name, "")
    return Help(about.strip(), own)

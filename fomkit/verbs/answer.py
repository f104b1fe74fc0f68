"""What makes a function a verb: `command` puts it on the command line, and `Answer` is the form of its result.

The first paragraphs of the function's docstring are the verb's help; its section *Parameters* has the help of each
option. A parameter described *As of* another verb has that verb's text. ``fomkit.cli.adapter`` builds the command.
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
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, cast, get_args

import fomkit
from fomkit.core.errors import FomkitError, text_page
from fomkit.core.units import count_text

if TYPE_CHECKING:
    import pandas as pd

    from fomkit.output.screen import Screen


@dataclass(frozen=True, repr=False)
class Answer:
    """The result of a command.

    `content`: everything, as ``--json`` prints it; ``content["schema"]`` names its schema.
    `rows`: its main list, as ``-o FILE.csv`` writes it.
    `write`: a function of the content, and optionally of a screen, that returns the text that is printed.
    `unfit`: messages about steps that no device's memory holds.
    `said`: further messages, one a line, that are printed separately from the text.
    """

    content: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]]
    write: Callable[..., str]
    unfit: Sequence[str] = ()
    said: Sequence[str] = ()

    @property
    def table(self) -> pd.DataFrame:
        """The main list as a DataFrame, with one column for each nested value (``time_s.low``)."""
        from fomkit.output.files import to_frame

        return to_frame(self.rows)

    def summary(self, **shows: bool) -> str:
        """Return the text that the command line prints; `shows`: options that only change the text."""
        return self.write(dict(self.content), **shows)

    def __repr__(self) -> str:
        what = self.content.get("schema") or self.content["title"]  # a JSON Schema has a title
        return f"<{what}: .summary(), .table ({count_text(len(self.rows), 'row')}), .content>"

    _repr_html_ = text_page


Table = Sequence[Sequence[Any]]
"""Headings, then rows of texts."""


def written(files: Iterable[Path], lines: Iterable[str], said: Iterable[str] = (), table: Table = ()) -> Answer:
    """Return an answer that lists the files written; headings and rows of ``table`` follow its first line."""
    from fomkit.output.screen import PLAIN, Page

    names, shown = [str(file) for file in files], list(lines)

    def write(_: object, screen: Screen = PLAIN) -> str:
        if not shown:
            return ""
        page = Page(screen)
        page.line(shown[0])
        if table:
            page.filled_rows(table[0], table[1:])
        page.lines(shown[1:])
        return page.text()

    content = {"schema": "fomkit/written/1", "files": names, "text": write(None), "said": list(said)}
    return Answer(content, [{"file": name} for name in names], write, said=content["said"])


Advance = Callable[..., None]
PROGRESS: ContextVar[Advance] = ContextVar("PROGRESS", default=lambda _=None: None)
"""Progress callback: called with a number it sets how many parts the work has; without one a part is done."""


def parts(count: int) -> Callable[[], None]:
    """Set the number of parts of the work for the progress display; return the function to call after each."""
    advance = PROGRESS.get()
    advance(count)
    return advance


Function = TypeVar("Function", bound=Callable[..., Any])
_SECTION = re.compile(r"^(\S[^\n]*)\n-{3,}$", re.MULTILINE)
_ENTRY = re.compile(r"^(\S[^\n]*(?:(?<=,)\n\S[^\n]*)*)((?:\n[ ]+[^\n]*|\n(?=\n[ ]))*)", re.MULTILINE)
_OTHER = re.compile(r"As of `fomkit\.(\w+)`")


class StoredResult(NamedTuple):
    """How -o stores a verb's result as a profile, with `fomkit.save`.

    `name`: returns the file for the given arguments where -o names none.
    `called`: returns, for the arguments and the file, the profile's name where none was given; None for its own.
    `then`: returns the command to run next for the result, with a placeholder ``{file}``.
    """

    what: Literal["machine", "model"]
    text: str
    name: Callable[[Mapping[str, Any]], str | None] = lambda _: None
    called: Callable[[Mapping[str, Any], Path], str | None] = lambda *_: None
    then: Callable[[Any], str] = lambda _: ""


@dataclass(frozen=True)
class Command:
    """How a verb appears on the command line.

    `doing`: the text of the progress display.
    `arguments`: parameters that are positional arguments, and their names in the help.
    `spelled`: the flags of parameters whose option is not named after the parameter.
    `metavar`: the placeholder of an option's value in the help.
    `shows` (flag, help): options that only change the text, by the name of the writer's argument.
    `judges_fit`: true where the exit code is 1 if no device's memory holds a step.
    `is_incomplete`: returns whether a content lacks what was requested; the exit code is then 1.
    `override_option` (flag, help): an option that sets the exit code to 0 in that case.
    `python_only`: parameters that only Python has, and their values on the command line.
    `before`: checks the arguments and the output file before the work.
    `draw`: makes the chart of a result that -o writes as .html, .png or .svg.
    `workbook`: where -o FILE.xlsx writes a workbook with formulas, which --for restricts to one target: returns
      the names of the targets for the arguments.
    `writes`: functions that make other file types of a result, by ending.
    `streams`: endings of files that the function itself writes, through its parameter ``output``.
    `prints`: the ending of the format written to standard output where -o names no file; the text then goes to
      standard error. Where -o names a file, its name is printed.
    `plain`: true where the verb has a text only, no JSON.
    """

    doing: str
    arguments: Mapping[str, str] = field(default_factory=lambda: {"model": "MODEL"})
    spelled: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    metavar: Mapping[str, str] = field(default_factory=dict)
    shows: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    judges_fit: bool = False
    is_incomplete: Callable[[Mapping[str, Any]], bool] = lambda _: False
    override_option: tuple[str, str] | None = None
    python_only: Mapping[str, Any] = field(default_factory=dict)
    before: Callable[[Mapping[str, Any], Path | None], None] = lambda *_: None
    draw: Callable[[Any], Any] | None = None
    workbook: Callable[[Mapping[str, Any]], Sequence[str]] | None = None
    writes: Mapping[str, Callable[[Any], str | bytes]] = field(default_factory=dict)
    streams: tuple[str, ...] = ()
    prints: str = ""
    files: tuple[str, ...] = ()
    stores: StoredResult | None = None
    plain: bool = False


_COMMANDS: dict[Callable[..., Any], Command] = {}

_TYPES: Mapping[str, tuple[type, str]] = {
    "None": (type(None), ""), "bool": (bool, "True or False"), "int": (Integral, "a whole number"),
    "float": (Real, "a number"), "str": (str, "a text"), "Path": (PathLike, "a path"),
    "Sequence": (Iterable, "a list"), "Mapping": (Mapping, "a dict"),
    **dict.fromkeys(("Fusion", "LastBatch", "Literal", "Mode", "Precision", "Scope"), (str, "a text")),
}  # fmt: skip
"""By the name of a type in a signature: the class that a value must have, and its name in messages."""
_WORDS = ("Fusion", "LastBatch", "Mode")  # precisions and scopes have messages of their own
_INNER = re.compile(r"\[[^\[\]]*\]")


@cache
def _expected(annotation: str) -> tuple[tuple[type, ...], str]:
    """Return the classes that an annotation allows and their names; none where it names a type of fomkit's."""
    while "[" in annotation:
        annotation = _INNER.sub("", annotation)
    words = annotation.split(" | ")
    if not all(word in _TYPES for word in words):
        return (), ""
    return tuple(_TYPES[word][0] for word in words), " or ".join(
        dict.fromkeys(_TYPES[word][1] for word in words if word != "None")
    )


def _check_word(name: str, value: object, annotation: str, names: Mapping[str, Any]) -> None:
    """Raise FomkitError for a text that is none of the values of a mode, a fusion or a last batch."""
    words = get_args(names[annotation.removesuffix(" | None")]) if annotation.startswith(_WORDS) else ()
    if isinstance(value, str) and words and value not in words:
        raise FomkitError(name, f"is {value!r:.80}. Give {', '.join(words[:-1])} or {words[-1]}.")


def _check_type(name: str, value: object, annotation: str) -> None:
    types, expected = _expected(annotation)
    # In Python True is also a number, and a str also an iterable: both need an exact type.
    fits = type(value) in types if isinstance(value, bool | str) else isinstance(value, types)
    fits = fits and (Mapping in types or not isinstance(value, Mapping))  # as an iterable it would be its keys
    listed = value if isinstance(value, Sequence) and re.search(r"Sequence\[str( \| Link)?\]", annotation) else ()
    if odd := [one for one in listed if isinstance(one, Real | bytes | None)]:
        raise FomkitError(name, f"contains {odd[0]!r:.80}. Give a list of texts.")
    if not types or fits:
        return
    if isinstance(value, str | PathLike) and Iterable in types:
        raise FomkitError(name, f"is one name, {str(value)!r}. Give a list, for example [{str(value)!r}].")
    raise FomkitError(name, f"is {value!r:.80}. Give {expected}.")


def checked(function: Function) -> Function:
    """Make a public function raise FomkitError where an argument's type does not match the signature.

    Models, machines and tables are not checked here: the functions that read them have better messages.
    """
    annotations = {name: str(one.annotation) for name, one in inspect.signature(function).parameters.items()}

    @wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        for name, value in (*zip(annotations, given, strict=False), *named.items()):
            _check_type(name, value, annotations.get(name, "Any"))
            _check_word(name, value, annotations.get(name, "Any"), function.__globals__)
        return function(*given, **named)

    return cast("Function", call)


def command(doing: str, **more: Any) -> Callable[[Function], Function]:
    """Decorate a function as a verb of the command line; `more`: the other fields of `Command`."""

    def register(function: Function) -> Function:
        verb = checked(function)
        _COMMANDS[verb] = Command(doing, **more)
        return verb

    return register


def command_of(function: Callable[..., Any]) -> Command:
    """Return the command-line description of a verb's function."""
    return _COMMANDS[function]


class Help(NamedTuple):
    """A verb's docstring in parts: the description of the verb, and that of each parameter."""

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
    """Parse the docstring of a verb."""
    about, *rest = _SECTION.split(inspect.getdoc(function) or "")
    own = _entries(dict(zip(rest[::2], rest[1::2], strict=True)).get("Parameters", ""))
    for name, text in own.items():
        other = _OTHER.match(text)
        if other and other[1] != "estimate":  # the options of estimate have shared texts in `choices.SHARED`
            own[name] = help_of(getattr(fomkit, other[1])).parameters.get(name, "")
    return Help(about.strip(), own)

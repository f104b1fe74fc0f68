"""What a command says, for a notebook: the whole content, its main list as a table, and the text.

What a person asks for in Python, checked where it comes in: a slip there is a message, not a traceback.

What the command line needs of a verb beside its function: a docstring's first paragraphs are the help, its section
*Parameters* the help of each option; what is said to be *As of* another verb is what that one says.
``fomkit.cli.adapter`` makes the command.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import fomkit
from fomkit.core.errors import FomkitError
from fomkit.core.interval import DEFAULT_LEVEL
from fomkit.core.units import Precision

if TYPE_CHECKING:
    import pandas as pd

    from fomkit.core.job import Job
    from fomkit.core.machine import Link, Machine, Scope
    from fomkit.core.model import LastBatch, ModelProfile
    from fomkit.plan.estimate import Estimate
    from fomkit.plan.options import Options


@dataclass(frozen=True)
class Spread:
    """How each run is spread over devices, as stated: links stand before those of a machine's profile."""

    job: Job | None = None
    links: Sequence[Link] = ()
    node_devices: int | None = None

    def on(self, machine: Machine) -> Machine:
        """Give a machine with what is stated of it."""
        if not self.links and self.node_devices is None:
            return machine
        from fomkit.plan.scaling import with_links  # most studies have none

        return with_links(machine, self.links, self.node_devices)

    def scope(self, models: Sequence[ModelProfile], machines: list[Machine], wanted: Scope | None) -> Scope | None:
        """Choose one scope that holds a run of each model; None where whole nodes of each machine are its own.

        Raises FomkitError when a machine does not state the scope.
        """
        from fomkit.plan.options import choose_scope  # with pandas, for which no help waits

        if wanted is None and self.job is not None and self.job.nodes is not None:
            return None
        devices = max((model.run.devices_per_run for model in models), default=1)
        return choose_scope(machines, wanted, devices)

    def estimate(self, model: ModelProfile, machine: Machine, options: Options) -> Estimate:
        """Estimate a run on a machine that has what is stated of it.

        Raises FomkitError as `fomkit.plan.job.time_job` does, and when links are of no use.
        """
        if self.job is None and self.links and model.run.devices_per_run == 1:
            raise FomkitError(
                "links", f"join the devices of a run, and one of {model.name} takes one. Add --nodes."
            )
        if self.job is None and model.run.devices_per_run == 1:
            from fomkit.plan.estimate import estimate

            return estimate(model, machine, options)
        from fomkit.plan.job import time_job  # most work has none

        return time_job(model, machine, self.job, options)


ALONE = Spread()
"""Each run as its model's profile says."""


def spread_as(
    nodes: object, layouts: Sequence[str], links: Sequence[str | Link], node_devices: int | None = None
) -> Spread:
    """Read how runs are spread, checked; texts are those of the command line."""
    check_counts(node_devices=node_devices)
    if nodes is None and not layouts and not links:
        return Spread(node_devices=node_devices)
    from fomkit.profiles.declared import parse_job  # nor a job

    return Spread(*parse_job(nodes, layouts, links), node_devices)


def layout_words(layout: str | Path | Sequence[str]) -> list[str]:
    """Give the words and files that state a layout; none for ""."""
    return [str(layout)] * bool(str(layout)) if isinstance(layout, str | Path) else list(layout)


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

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self.summary())}</pre>"


def written(files: Iterable[Path], lines: Iterable[str], said: Iterable[str] = ()) -> Answer:
    """Answer with the files that were written, and what is told of them; `said`: as of an `Answer`."""
    names, text = [str(file) for file in files], "".join(f"{line}\n" for line in lines)
    content = {"schema": "fomkit/written/1", "files": names, "text": text, "said": list(said)}
    return Answer(content, [{"file": name} for name in names], lambda *_: text, said=content["said"])


def as_name(value: object, what: str) -> str | Path:
    """Give a name or path of a profile.

    Raises FomkitError when it is neither.
    """
    if isinstance(value, str | Path):
        return value
    raise FomkitError(what, f"is a {type(value).__name__}. Give a name, a path or a loaded {what} profile.")


def _check_size(name: str, value: object) -> None:
    # numpy's whole numbers count too, True does not.
    if isinstance(value, bool) or not hasattr(value, "__index__") or int(value.__index__()) < 1:
        raise FomkitError(name, f"is {value!r}. Give a whole number of 1 or more.")


def check_lists(**given: object) -> None:
    """Raise where one name stands for a list of names, whose letters would be taken for names.

    >>> check_lists(machines="v100")
    Traceback (most recent call last):
    fomkit.core.errors.FomkitError: machines: is one name, 'v100'. Give a list, for example ['v100'].
    """
    for what, value in given.items():
        if isinstance(value, str | Path):
            raise FomkitError(what, f"is one name, {str(value)!r}. Give a list, for example [{str(value)!r}].")


def check_options(
    *, batch: object = None, sizes: object = None, interval: object = DEFAULT_LEVEL, scope: object = None
) -> None:
    """Raise unless the options of a study are of the right type.

    Raises FomkitError with the option's name, its value and what was expected.

    Examples
    --------
    >>> check_options(batch="8")
    Traceback (most recent call last):
    fomkit.core.errors.FomkitError: batch: is '8'. Give a whole number of 1 or more.
    """
    if not isinstance(sizes, Mapping | None):
        raise FomkitError("sizes", f"is {sizes!r}. Give a mapping, for example {{'seq': 512}}.")
    for name, value in {"batch": batch, **(sizes or {})}.items():
        if value is not None:
            _check_size(str(name), value)
    if isinstance(interval, bool) or not isinstance(interval, int | float) or not 0 < interval < 1:
        raise FomkitError("interval", f"is {interval!r}. Give a share between 0 and 1, for example 0.8.")
    if scope not in (None, "device", "node", "system"):
        raise FomkitError("scope", f"is {scope!r}. Give device, node or system.")


def check_counts(**stated: object) -> None:
    """Raise FomkitError unless what is stated is whole numbers of 1 or more; None is not stated."""
    check_options(sizes={name: count for name, count in stated.items() if count is not None})


def options_of(
    batch: int | None = None,
    interval: float = DEFAULT_LEVEL,
    scope: Scope | None = None,
    last_batch: LastBatch | None = None,
    allow_uncovered: bool = False,
    sizes: Mapping[str, int] | None = None,
    precision: Precision | None = None,
) -> Options:
    """Give the options of a study, checked by `check_options`."""
    from fomkit.plan.options import Options

    check_options(batch=batch, sizes=sizes, interval=interval, scope=scope)
    return Options(batch, interval, scope, last_batch, allow_uncovered, sizes or {}, precision)


def check_frame(table: object) -> pd.DataFrame:
    """Give a table of ops.

    Raises FomkitError when it is no DataFrame, has no rows, or has a column twice or without a name of text.
    """
    import pandas as pd

    if not isinstance(table, pd.DataFrame):
        raise FomkitError("table", f"is a {type(table).__name__}. Give a path or a DataFrame.")
    if not len(table):
        raise FomkitError("table", "has no rows. Give at least one op.")
    names: Iterable[object] = table.columns
    if table.columns.has_duplicates or not all(isinstance(name, str) for name in names):
        raise FomkitError("table", "its columns must be words, each once. Rename them.")
    return table


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
    `then`: the command that one goes on with, of the ``{file}``.
    """

    what: Literal["machine", "model"]
    text: str
    name: Callable[[Mapping[str, Any]], str | None] = lambda _: None
    then: str = ""


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
    `excuse` (flag, help): an option with which the exit code is 0 though it does.
    `alone`: parameters that only Python has, and what the command line gives for them.
    `before`: checks what is asked and the file to write, before the work.
    `draw`: makes the chart of a result that -o writes as .html, .png or .svg.
    `workbook`: true where -o FILE.xlsx writes a workbook that computes, of which --for keeps one target.
    `writes`: makes other files of a result, by ending.
    `streams`: endings of files that the function itself writes, as its parameter ``output``.
    `prints`: the ending of what stands on standard output where -o names no file; the text goes to the other.
    `keeps`: true where a file that is there is replaced with --force only, and what was written is told.
    `kept`: how -o keeps the result itself.
    `plain`: true where there is a text alone, no JSON.
    """

    doing: str
    examples: tuple[str, ...] = ()
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
    keeps: bool = False
    kept: Kept | None = None
    plain: bool = False


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

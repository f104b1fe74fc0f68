"""Errors that fomkit shows to users, and the registry of views, which show results as text, page or figure.

Rooms that calculate import nothing that prints: `Shown` looks up the view of its class, and `fomkit.verbs`
registers the views (`fomkit.verbs.views`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import pandas as pd


def printable(text: str) -> str:
    r"""Escape characters that a terminal would interpret or not show; foreign files may contain them.

    >>> printable("a\x1b[2Jb"), printable("2 × µs")
    ('a\\x1b[2Jb', '2 × µs')
    """
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() or letter == "\n" else letter.encode("unicode_escape").decode("ascii")
        for letter in text
    )


class FomkitError(Exception):
    """A mistake in the input: where it is, what is wrong, what was expected and what to do.

    `where`: the file and line, the command or the stage in which it occurs; `what`: full sentences.

    >>> str(FomkitError("x.yaml:7", "memory.bandwidth is '3.35', which has no unit. Write '3.35 TB/s'."))
    "x.yaml:7: memory.bandwidth is '3.35', which has no unit. Write '3.35 TB/s'."
    """

    def __init__(self, where: str, what: str) -> None:
        super().__init__(where, what)
        self.where = printable(where)
        self.what = printable(what)

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


class ManyFomkitError(FomkitError):
    """All mistakes found in one input, reported together, one per line."""

    def __init__(self, errors: Iterable[FomkitError]) -> None:
        self.errors = tuple(errors)
        super().__init__(self.errors[0].where, self.errors[0].what)

    def __str__(self) -> str:
        return "\n".join(str(error) for error in self.errors)


MANY = 20
"""Most names that a message lists."""


def nearest_names(name: str, known: Iterable[str], close: Sequence[str] = ()) -> str:
    """Write which known words resemble ``name``, or those of ``close``, as the end of an error message.

    >>> nearest_names("v10", ["v100", "p100", "titan"])
    "The nearest names are 'v100', 'p100'."
    >>> nearest_names("titanic", ["v100", "titan"])
    "The nearest name is 'titan'."
    >>> nearest_names("zebra", ["v100"])
    "Known names: 'v100'."
    """
    names = sorted(known)
    if not names:
        return "There are none."
    same = [word for word in names if letters(word) == letters(name)]
    close = same or close[:MANY] or get_close_matches(name, names, n=3, cutoff=0.5)
    listed = ", ".join(repr(word) for word in (close or names[:MANY]))
    more = f" and {len(names) - MANY} more" if len(names) > MANY else ""
    return (
        f"The nearest name{'s are' if len(close) > 1 else ' is'} {listed}."
        if close
        else f"Known names: {listed}{more}."
    )


def letters(name: str) -> str:
    """Return the letters and digits of a name in lower case.

    >>> letters("RTX 4090") == letters("rtx-4090")
    True
    """
    return "".join(filter(str.isalnum, name.lower()))


def names_within(name: str, known: Iterable[str]) -> list[str]:
    """Return the names of profiles that a longer name contains, such as a driver's, or that contain a shorter one.

    Of a name with a hyphen the part before it is enough if it has a digit.

    >>> boards = ["a10", "a100-sxm", "a100-sxm-40gb", "h100-pcie", "h100-sxm", "rtx-4090"]
    >>> [names_within(one, boards) for one in ("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", "4090", "8x")]
    [['h100-pcie', 'h100-sxm'], ['a100-sxm', 'a100-sxm-40gb'], ['rtx-4090'], []]
    """
    own, shared = letters(name), dict[str, int]()
    for one in sorted(known):
        chip = one.partition("-")[0]
        parts = [letters(one), *([chip] if any(map(str.isdigit, chip)) else [])]
        inside = [len(part) for part in parts if part in own]
        inside += [len(own)] if len(own) > 2 and own in parts[0] else []
        shared[one] = max(inside, default=0)
    most = max(max(shared.values(), default=0), 2)
    longest = [one for one, length in shared.items() if length == most]
    return [one for one in shared if one in longest or one.startswith(tuple(f"{of}-" for of in longest))]


_HERE = ("cpu", "gpu", "cuda", "mps", "here", "local", "localhost", "this")
"""What somebody writes who means the machine at hand."""


def names_meant(name: str, known: Sequence[str], machines: Sequence[str], models: Sequence[str]) -> str:
    """Write what a name is that is not known: one of another kind of profile, or several at once; else "".

    >>> names_meant("v100", ["p1b3"], ["v100"], ["p1b3"]), names_meant("a,b", ["a", "b"], ["a", "b"], [])
    ('It is a machine, not a model.', 'Give each name by itself.')
    """
    if name in {*machines, *models}:
        return "It is a machine, not a model." if name in machines else "It is a model, not a machine."
    if letters(name).rstrip("0123456789") in _HERE and {*known} <= {*machines}:
        return "To predict times on this machine: fomkit measure -o here.yaml, then give here.yaml."
    return "Give each name by itself." if "," in name and {*name.split(",")} <= {*known} else ""


_EXTRA = re.compile(r"""(.+?)\s*;\s*extra\s*==\s*['"]([\w.-]+)['"]""")


def install_hint(extra: str) -> str:
    """Return the command that installs the requirements of an extra of fomkit, by the packages' own names.

    Another project may publish under fomkit's name, so no hint installs fomkit itself from an index. Every
    shell knows the double quotes; the Windows command prompt does not know single ones.

    `extra`: a key of ``[project.optional-dependencies]``; the installed metadata contain its packages.

    >>> install_hint("parquet")
    'pip install "pyarrow>=16", or ".[parquet]" in the folder of the source'
    """
    from importlib.metadata import PackageNotFoundError, requires

    try:
        stated = requires("fomkit") or []
    except PackageNotFoundError:  # a source folder that was never installed
        stated = []
    found = [match[1] for one in stated if (match := _EXTRA.fullmatch(one)) and match[2] == extra]
    of_source = f'".[{extra}]" in the folder of the source'
    return "pip install " + ", or ".join(filter(None, [" ".join(f'"{one}"' for one in found), of_source]))


def _refuse_to_show(result: object) -> Any:
    raise FomkitError(
        type(result).__name__, "has no such view. Add it to the view of its class in fomkit.verbs.views."
    )


def text_page(result: Any) -> str:
    """Write a result's text as a page for a notebook."""
    from html import escape  # a command line shows no page

    return f"<pre>{escape(result.summary())}</pre>"


class View(NamedTuple):
    """Functions that return a result's `Answer`, its page for a notebook, and its figure or figures."""

    answer: Callable[[Any], Any]
    html: Callable[[Any], str] = text_page
    figure: Callable[[Any], Any] = _refuse_to_show


_VIEWS: list[Callable[[], Mapping[str, View]]] = []


class Shown:
    """A result that is shown by the view of its class, or of a base class.

    `content`: everything, as ``--json`` prints it.
    `table`: its main list as a DataFrame, with the rows and columns that ``-o FILE.csv`` writes.
    """

    @property
    def _view(self) -> View:
        names = [one.__name__ for one in type(self).__mro__]
        views = _VIEWS[0]() if _VIEWS else {}
        found = next((views[name] for name in names if name in views), None)
        if found is None:
            raise FomkitError(
                names[0], "has no view, so it cannot be shown. Views come with 'import fomkit.verbs'."
            )
        return found

    # A dataclass may have a field instead, written ``content: … = field()``: a cached property, unlike a property,
    # lets an object set its own value.
    @cached_property
    def content(self) -> Any:
        """Everything as plain values, as ``--json`` prints it; its form is the schema of the verb."""
        return self._view.answer(self).content

    @cached_property
    def table(self) -> pd.DataFrame:
        """The main list as a DataFrame, with the rows and columns that ``-o FILE.csv`` writes."""
        table: pd.DataFrame = self._view.answer(self).table
        return table

    def summary(self, **shows: bool) -> str:
        """Return the text that the command line prints; `shows`: options that only change the text."""
        text: str = self._view.answer(self).summary(**shows)
        return text

    def __repr__(self) -> str:
        # One line, not every table of the result; in a debugger no error may be raised.
        with suppress(FomkitError):
            return f"<{type(self).__name__}: {self.summary().partition(chr(10))[0]}>"
        return f"<{type(self).__name__}>"

    def _repr_html_(self) -> str:
        return self._view.html(self)


def register_views(load: Callable[[], Mapping[str, View]]) -> None:
    """Register the views of results, by class name; they are loaded when the first result is shown."""
    _VIEWS[:] = [load]

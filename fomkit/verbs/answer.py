"""What a command says, for a notebook: the whole content, its main list as a table, and the text.

What a person asks for in Python, checked where it comes in: a slip there is a message, not a traceback.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from fomkit.core.errors import FomkitError
from fomkit.core.interval import DEFAULT_LEVEL
from fomkit.core.machine import Scope
from fomkit.core.model import LastBatch
from fomkit.core.units import Precision
from fomkit.plan.options import Options

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, repr=False)
class Answer:
    """What a command says.

    `content`: everything, as ``--json`` prints it; ``content["schema"]`` names its form.
    `rows`: its main list, as ``-o FILE.csv`` writes it.
    `write`: of the content, and of a screen where there is one, the text that the command line prints.
    """

    content: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]]
    write: Callable[..., str]

    @property
    def table(self) -> pd.DataFrame:
        """The main list, one column a leaf (``time_s.low``)."""
        from fomkit.output.files import to_frame

        return to_frame(self.rows)

    def summary(self) -> str:
        """Write it as the text that the command line prints."""
        return self.write(dict(self.content))

    def __repr__(self) -> str:
        return f"<{self.content['schema']}: .summary(), .table ({len(self.rows)} rows), .content>"

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self.summary())}</pre>"


def as_name(value: object, what: str) -> str | Path:
    """Give a name or path of a profile.

    Raises FomkitError when it is neither.
    """
    if isinstance(value, str | Path):
        return value
    raise FomkitError(what, f"is a {type(value).__name__}. Give a name, a path or a loaded {what} profile.")


def _check_size(name: str, value: object) -> None:
    # numpy's whole numbers count too, True does not.
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise FomkitError(name, f"is {value!r}. Give a whole number of 1 or more.")
    if int(value.__index__()) < 1:
        raise FomkitError(name, f"is {value!r}, which makes no step. Give 1 or more.")


def check_options(
    *, batch: object = None, sizes: object = None, interval: object = 0.8, scope: object = None
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
    if scope is not None and scope not in get_args(Scope):
        raise FomkitError("scope", f"is {scope!r}. Give device, node or system.")


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

"""Adapters: readers of formats unknown to fomkit, in other packages, loaded on demand.

A distribution names its adapters as entry points: ``fomkit.trace`` for files that become a model's table of ops,
``fomkit.timings`` for files that become a machine's timings. docs/adapters.md has a complete one. Files are
recognised by their content, and the result is checked by the rules of CSV files.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib.metadata import Distribution, EntryPoint, entry_points
from pathlib import Path
from typing import Any, Literal, Protocol

import pandas as pd

from fomkit.core.errors import FomkitError, printable
from fomkit.files.csv import GZIP, open_file
from fomkit.ops.tables import LINE, SIZED, column_names
from fomkit.readers.tables.foreign import ImportedTimings, timings_of_table


@dataclass(frozen=True)
class ReadTable:
    """The result of an adapter.

    `rows`: with columns of OPS (``fomkit.trace``) or TIMINGS (``fomkit.timings``) of docs/profiles.md, as many as
      the file has; SI units, empty or NaN where unknown. Sizes of ops may be expressions in named sizes.
    `device`: the timed or traced device, as the file names it; "" where it does not.
    `notes`: what a reader of the numbers should know; kept in the profile.
    """

    rows: pd.DataFrame
    device: str = ""
    notes: tuple[str, ...] = ()


class Adapter(Protocol):
    """A reader of one format: an object, or a module, with these four attributes.

    `name`: the word for ``fomkit import --format``.
    """

    name: str
    title: str

    def recognises(self, head: bytes, path: Path) -> bool:
        """Return whether a file has the format, by its first 65,536 bytes, decompressed if it is gzip."""

    def read(self, path: Path) -> ReadTable:
        """Read a file; raise `fomkit.core.errors.FomkitError` if it is wrong."""


Product = Literal["model", "machine"]
GROUPS: Mapping[str, Product] = {"fomkit.trace": "model", "fomkit.timings": "machine"}
"""Groups of entry points, and what the files of their adapters become."""
HEAD = 65_536
"""Bytes at the start of a file that an adapter gets."""
_OFFERS = ("name", "title", "recognises", "read")


@dataclass(frozen=True)
class Installed:
    """An adapter, what its files become, and its distribution."""

    adapter: Adapter
    product: Product
    distribution: str

    @property
    def label(self) -> str:
        """Name of the adapter in errors."""
        return f"the adapter {self.adapter.name!r} of the distribution {self.distribution}"


def _distribution(point: EntryPoint) -> str:
    dist: Distribution | None = point.dist
    return f"{dist.name} {dist.version}" if dist else "without a name"


def _error_text(error: BaseException) -> str:
    words = " ".join(str(error).split())[:200]
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


def _fault(loaded: Any, taken: Collection[str]) -> str:
    """Return why a loaded object is no adapter; "" if it is one."""
    if isinstance(loaded, type):
        return "is a class. Name an instance of it in the entry point"
    if missing := [name for name in _OFFERS if not hasattr(loaded, name)]:
        return f"has no {missing[0]!r}; an adapter has {', '.join(_OFFERS)}"
    if not all(isinstance(getattr(loaded, name), str) and getattr(loaded, name) for name in _OFFERS[:2]):
        return "has a name or title that is not text"
    if not all(callable(getattr(loaded, name)) for name in _OFFERS[2:]):
        return "has a 'recognises' or 'read' that cannot be called"
    if loaded.name in taken:
        return f"calls its format {loaded.name!r}, which is one of fomkit's own. It needs another name"
    return ""


def find_adapters(taken: Collection[str]) -> tuple[dict[str, Installed], list[str]]:
    """Load the adapters of all installed distributions.

    `taken`: names of formats that no adapter may have. Returns the working adapters by name, and a sentence for
    each of the others; of two adapters with one name, neither works.
    """
    working: dict[str, Installed] = {}
    broken: list[str] = []
    twice: set[str] = set()
    for group, product in GROUPS.items():
        for point in sorted(entry_points(group=group), key=lambda point: (point.name, point.value)):
            loaded: Any = None
            try:
                loaded = point.load()
                fault = _fault(loaded, taken)
            except (Exception, SystemExit) as error:  # third-party code
                fault = f"cannot be loaded ({_error_text(error)})"
            if fault:
                broken.append(
                    f"the adapter {point.name!r} ({group}) of the distribution {_distribution(point)} {fault}"
                )
                continue
            one = Installed(loaded, product, _distribution(point))
            if (other := working.setdefault(loaded.name, one)) is not one:
                same = f"{other.label} and that of {one.distribution} have the same name; remove one of them"
                broken.append(same)
                twice.add(loaded.name)
    return {name: one for name, one in working.items() if name not in twice}, broken


def read_head(path: Path) -> bytes:
    """Read a file's first bytes, decompressed if it is gzip; raise OSError if it cannot be read."""
    with open_file(path) as stream:
        head = stream.read(HEAD)
    if head[:2] == GZIP:
        try:
            return zlib.decompressobj(wbits=31).decompress(head, HEAD)
        except zlib.error:
            return head
    return head


def recognised_by(installed: Installed, head: bytes, path: Path) -> bool | str:
    """Return whether an adapter recognises a file, or a sentence if the adapter fails."""
    try:
        answer: Any = installed.adapter.recognises(head, path)
    except (Exception, SystemExit) as error:  # third-party code
        return f"{installed.label} failed to look at the file ({_error_text(error)})"
    return answer if isinstance(answer, bool) else f"{installed.label} returned {answer!r}, not True or False"


def read_by(installed: Installed, path: Path) -> ReadTable:
    """Let an adapter read a file; raise if it fails or does not return a ReadTable."""
    remedy = f"Update {installed.distribution.split()[0]}, or report it to its authors"
    try:
        found: Any = installed.adapter.read(path)
    except FomkitError:
        raise
    except (Exception, SystemExit) as error:  # third-party code
        raise FomkitError(str(path), f"{installed.label} failed ({_error_text(error)}). {remedy}.") from error
    if not isinstance(found, ReadTable) or not isinstance(found.rows, pd.DataFrame):
        kind = type(found.rows if isinstance(found, ReadTable) else found).__name__
        raise FomkitError(str(path), f"{installed.label} made a {kind}, not a ReadTable of a DataFrame. {remedy}.")
    return found


def choose_adapter(
    path: Path, product: str | None, file_format: str | None, taken: Collection[str], refusal: FomkitError
) -> tuple[str, str]:
    """Choose a file's adapter, beside fomkit's own formats; return format and product, or raise ``refusal``."""
    working, broken = find_adapters(taken)
    fitting = {name: one for name, one in working.items() if product in (None, one.product)}
    if file_format is not None:
        fitting = {name: one for name, one in fitting.items() if name == file_format}
    else:
        try:
            head = read_head(path)
        except (OSError, ValueError):
            raise refusal from None
        answers = {name: recognised_by(one, head, path) for name, one in fitting.items()}
        broken += [answer for answer in answers.values() if isinstance(answer, str)]
        fitting = {name: one for name, one in fitting.items() if answers[name] is True}
    if len(fitting) > 1:
        listed = "; ".join(f"{name}: {one.label}" for name, one in fitting.items())
        raise FomkitError(str(path), f"fits more than one adapter: {listed}. Name one with --format.")
    if not fitting:
        if file_format is not None and file_format in working:
            makes = f"the format {file_format!r} makes a {working[file_format].product}"
            raise FomkitError(f"--as {product}", f"{makes}. Leave one of them out.")
        messages = [f"Installed as well: {', '.join(working)}."] if working else []
        messages += [f"Left out: {one}." for one in broken]
        raise FomkitError(refusal.where, " ".join([refusal.what, *messages])) from refusal
    return next((name, one.product) for name, one in fitting.items())


def _as_read(installed: Installed, table: pd.DataFrame, schema: str) -> pd.DataFrame:
    """Return an adapter's rows with the types of the schema: numbers, expressions in named sizes, text."""
    if unknown := [str(name) for name in table.columns if name not in column_names(schema)]:
        raise FomkitError(installed.label, f"returned the column {unknown[0]!r}, which {schema} does not have.")
    if table.columns.has_duplicates or table.empty:
        raise FomkitError(installed.label, "returned a table without rows, or with a column twice.")
    numbers, index = column_names(schema, "number"), pd.RangeIndex(1, len(table) + 1, name=LINE)
    columns = {}
    for name in table.columns:
        column = table[name].set_axis(index)
        if name not in numbers:
            columns[name] = column.astype(object).where(column.notna(), "")
            continue
        values = pd.to_numeric(column, errors="coerce")
        wrong = column[values.isna() & column.notna()]
        if len(wrong) and (schema == "TIMINGS" or name not in SIZED):
            raise FomkitError(
                installed.label, f"returned {name} = {wrong.iloc[0]!r} in row {wrong.index[0]}, not a number."
            )
        columns[name] = column.astype(object).where(values.isna(), values) if len(wrong) else values.astype(float)
    return pd.DataFrame(columns)


def ops_by_adapter(path: Path, file_format: str, taken: Collection[str]) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Read a table of ops, and the adapter's notes."""
    one = find_adapters(taken)[0][file_format]
    read = read_by(one, path)
    messages = (f"read by {one.label}", *map(printable, map(str, read.notes)))
    return _as_read(one, read.rows, "OPS"), messages


def timings_by_adapter(path: Path, file_format: str, taken: Collection[str]) -> ImportedTimings:
    """Read timings."""
    one = find_adapters(taken)[0][file_format]
    read = read_by(one, path)
    messages = (f"Read by {one.label}.", *map(printable, map(str, read.notes)))
    rows = _as_read(one, read.rows, "TIMINGS")
    return timings_of_table(rows, path, device=printable(str(read.device)), notes=messages)

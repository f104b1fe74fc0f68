"""The adapters that are installed, found by their entry points and loaded when somebody needs one."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import Distribution, EntryPoint, entry_points
from pathlib import Path
from typing import Any, Literal

from fomkit.adapters.protocol import Adapter, ReadTable
from fomkit.errors import FomkitError
from fomkit.tables.opening import GZIP, open_file

Product = Literal["model", "machine"]
GROUPS: Mapping[str, Product] = {"fomkit.trace": "model", "fomkit.timings": "machine"}
"""Groups of entry points, and what becomes of the files that their adapters read."""
HEAD = 65_536
"""What an adapter is shown of a file [byte]."""
_OFFERS = ("name", "title", "recognises", "read")


@dataclass(frozen=True)
class Installed:
    """An adapter, what becomes of its files, and the distribution it is from."""

    adapter: Adapter
    product: Product
    distribution: str

    @property
    def label(self) -> str:
        """What errors call it."""
        return f"the adapter {self.adapter.name!r} of the distribution {self.distribution}"


@dataclass(frozen=True)
class Found:
    """The adapters that work, by name, and a sentence for each that does not."""

    working: Mapping[str, Installed]
    broken: tuple[str, ...]


def _distribution(point: EntryPoint) -> str:
    dist: Distribution | None = point.dist
    return f"{dist.name} {dist.version}" if dist else "without a name"


def _said(error: BaseException) -> str:
    words = " ".join(str(error).split())[:200]
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


def _fault(loaded: Any, taken: Collection[str]) -> str:
    """Say what keeps a loaded object from being an adapter; "" where nothing does."""
    if isinstance(loaded, type):
        return "is a class. Name an object of it in the entry point"
    if missing := [name for name in _OFFERS if not hasattr(loaded, name)]:
        return f"has no {missing[0]!r}; an adapter offers {', '.join(_OFFERS)}"
    if not all(isinstance(getattr(loaded, name), str) and getattr(loaded, name) for name in _OFFERS[:2]):
        return "has a name or title that is no text"
    if not all(callable(getattr(loaded, name)) for name in _OFFERS[2:]):
        return "has a 'recognises' or 'read' that cannot be called"
    if loaded.name in taken:
        return f"calls its format {loaded.name!r}, which is one of fomkit's own. It needs another name"
    return ""


def _loaded(taken: Collection[str]) -> Iterator[Installed | str]:
    """Load each adapter, or say why it cannot be one."""
    for group, product in GROUPS.items():
        for point in sorted(entry_points(group=group), key=lambda one: (one.name, one.value)):
            of = f"{point.name!r} ({group}) of the distribution {_distribution(point)}"
            try:
                loaded = point.load()
                fault = _fault(loaded, taken)
            except (Exception, SystemExit) as error:  # it is a stranger's code
                yield f"the adapter {of} cannot be loaded ({_said(error)})"
                continue
            yield f"the adapter {of} {fault}" if fault else Installed(loaded, product, _distribution(point))


def find_adapters(taken: Collection[str]) -> Found:
    """Load the adapters of everything installed.

    Parameters
    ----------
    taken : collection of str
        Names of formats that no adapter may have.

    Returns
    -------
    Found
        Of two adapters with one name, neither works.
    """
    working: dict[str, Installed] = {}
    broken: list[str] = []
    twice: set[str] = set()
    for one in _loaded(taken):
        if isinstance(one, str):
            broken.append(one)
        elif (other := working.setdefault(one.adapter.name, one)) is not one:
            broken.append(f"{other.label} and that of {one.distribution} have one name; remove one of them")
            twice.add(one.adapter.name)
    return Found({name: one for name, one in working.items() if name not in twice}, tuple(broken))


def read_head(path: Path) -> bytes:
    """Read a file's first bytes, unpacked where it is gzip.

    Raises
    ------
    OSError
        When it cannot be read.
    """
    with open_file(path) as stream:
        head = stream.read(HEAD)
    if head[:2] == GZIP:
        try:
            return zlib.decompressobj(wbits=31).decompress(head, HEAD)
        except zlib.error:
            return head
    return head


def ask_adapter(one: Installed, head: bytes, path: Path) -> bool | str:
    """Ask an adapter whether a file is its; give a sentence where it fails to answer."""
    try:
        answer: Any = one.adapter.recognises(head, path)
    except (Exception, SystemExit) as error:  # it is a stranger's code
        return f"{one.label} failed to look at the file ({_said(error)})"
    return answer if isinstance(answer, bool) else f"{one.label} answered {answer!r}, not True or False"


def read_by(one: Installed, path: Path) -> ReadTable:
    """Let an adapter read a file.

    Raises
    ------
    FomkitError
        The adapter's own, or one that names it where it fails or gives something else than a table.
    """
    import pandas as pd

    remedy = f"Update {one.distribution.split()[0]}, or tell its authors"
    try:
        found: Any = one.adapter.read(path)
    except FomkitError:
        raise
    except (Exception, SystemExit) as error:  # it is a stranger's code
        raise FomkitError(str(path), f"{one.label} failed ({_said(error)}). {remedy}.") from error
    if not isinstance(found, ReadTable) or not isinstance(found.rows, pd.DataFrame):
        gave = type(found.rows if isinstance(found, ReadTable) else found).__name__
        raise FomkitError(str(path), f"{one.label} gave a {gave}, not a ReadTable of a DataFrame. {remedy}.")
    return found

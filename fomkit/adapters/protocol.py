"""What an adapter must offer: a reader of a format that fomkit does not know, in a package of somebody else.

A distribution names its adapters as entry points: ``fomkit.trace`` for what becomes a model's table of ops,
``fomkit.timings`` for what becomes a machine's timings. docs/adapters.md has a whole one.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class ReadTable:
    """What an adapter read.

    Attributes
    ----------
    rows : DataFrame
        With columns of OPS (``fomkit.trace``) or TIMINGS (``fomkit.timings``) of docs/profiles.md, as many as the
        file tells; SI units, empty or NaN where unknown. Sizes of ops may be expressions in named sizes.
    device : str
        The device that was timed or traced, as the file names it; "" where it does not.
    notes : tuple of str
        What a reader of the numbers should know; kept in the profile.
    """

    rows: pd.DataFrame
    device: str = ""
    notes: tuple[str, ...] = ()


class Adapter(Protocol):
    """A reader of one format: an object, or a module, with these four.

    Attributes
    ----------
    name : str
        The word for ``fomkit import --format``.
    title : str
        What it reads, for people.
    """

    name: str
    title: str

    def recognises(self, head: bytes, path: Path) -> bool:
        """Tell by a file's first 65,536 bytes, unpacked where it is gzip, whether it has the format."""

    def read(self, path: Path) -> ReadTable:
        """Read a file; raise `fomkit.errors.FomkitError` where it is wrong."""

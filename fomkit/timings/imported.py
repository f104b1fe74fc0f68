"""What every reader of foreign timings gives back: the table, where it came from, and what became of each row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fomkit.hardware import Link

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class SectionCount:
    """What became of the rows of one section of one sheet, for one pass.

    Attributes
    ----------
    sheet, section, pass_name : str
        ``pass_name`` is "" for ops that have no pass, and for skipped sections.
    imported : int
        Timings in the table.
    without_time : int
        Rows that list an op and give no time for this pass.
    below_resolution : int
        Rows whose time is printed as 0: faster than the timer can tell, so the time is unknown.
    corrected : int
        Imported timings of which the printed figure was corrected; their ``note`` says how.
    skipped : int
        Rows of a section that this reader does not cover; no figure of them was read.
    reason : str
        Why they were skipped.
    kind : str
        The kind of op, of which a section may have several; "" where it is not known.
    """

    sheet: str
    section: str
    pass_name: str = ""
    imported: int = 0
    without_time: int = 0
    below_resolution: int = 0
    corrected: int = 0
    skipped: int = 0
    reason: str = ""
    kind: str = ""


@dataclass(frozen=True)
class ImportedTimings:
    """The timings of one file.

    Attributes
    ----------
    timings : DataFrame
        A TIMINGS table with every column of `fomkit.schema.TIMINGS`, in file order.
    device : str
        The device as the file names it; "" when it does not.
    specs : mapping
        What the file says about the system it was measured on, as printed.
    counts : tuple of SectionCount
        One entry per sheet, section and pass.
    notes : tuple of str
        What holds for all timings of this source and has no column.
    remarks : tuple of str
        What the reader noticed in this file: columns that it does not know, headers that it had to guess.
    links : tuple of Link
        Connections whose start-up time and rate follow from the timings.
    """

    timings: pd.DataFrame
    device: str
    specs: Mapping[str, str] = field(default_factory=dict)
    counts: tuple[SectionCount, ...] = ()
    notes: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    links: tuple[Link, ...] = ()

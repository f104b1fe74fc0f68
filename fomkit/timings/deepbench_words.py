"""How the words of a DeepBench workbook are compared: titles, headers and labels, whatever their spelling."""

from __future__ import annotations

import re
from collections.abc import Collection
from difflib import get_close_matches
from typing import NamedTuple

MILLISECONDS = ("msec", "ms", "milliseconds")
_TIME_UNITS = (*MILLISECONDS, "usec", "us", "µs", "microseconds", "nsec", "ns", "sec", "s", "seconds")
_REMARK = re.compile(r"\(([^()]*)\)")
_LONG_ENOUGH = 6
_NEAR = 0.88


def plain(value: object) -> str:
    """Give a cell's text in lower case with single spaces; "" for anything but text.

    Examples
    --------
    >>> plain("Time Forward  (msec) "), plain(1760.0)
    ('time forward (msec)', '')
    """
    return " ".join(value.split()).casefold() if isinstance(value, str) else ""


def words(value: object) -> str:
    """Give the words of a cell's text alone, without punctuation.

    Examples
    --------
    >>> words("All-Reduce"), words("Recurrent Layers - LSTM"), words("# chips / accelerator cards")
    ('all reduce', 'recurrent layers lstm', 'chips accelerator cards')
    """
    return " ".join(re.findall(r"[^\W_]+", plain(value)))


class Heading(NamedTuple):
    """The words of a column's header, and its unit of time in lower case; "" where it states none."""

    name: str
    unit: str


def heading(value: object) -> Heading:
    """Read a header; what stands in brackets is the unit of a time or a remark.

    Examples
    --------
    >>> heading("wrt Parameters  (msec)"), heading("S (Fitler width)").name, heading("pad_w").name
    (Heading(name='wrt parameters', unit='msec'), 's', 'pad w')
    """
    text = plain(value)
    units = [found.strip() for found in _REMARK.findall(text) if found.strip() in _TIME_UNITS]
    return Heading(words(_REMARK.sub(" ", text)), units[0] if units else "")


def near(name: str, known: Collection[str]) -> str | None:
    """Give the one known name that a longer name misspells; None where there is none.

    Examples
    --------
    >>> near("hiden units", ["hidden units", "timesteps"]), near("r", ["s"])
    ('hidden units', None)
    """
    candidates = [one for one in known if len(one) >= _LONG_ENOUGH]
    found = get_close_matches(name, candidates, n=1, cutoff=_NEAR) if len(name) >= _LONG_ENOUGH else []
    return found[0] if found else None

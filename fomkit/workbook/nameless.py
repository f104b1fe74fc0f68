"""Texts without the names of machines that a reader is not to hear of."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import TypeVar, cast

Record = TypeVar("Record")
_SHORTEST = 2
"""Letters of a name that can be told from a word; what is shorter stays."""
ANOTHER = "another machine"


def _pattern(names: Iterable[str]) -> re.Pattern[str] | None:
    known = sorted({name for name in names if len(name) >= _SHORTEST}, key=len, reverse=True)
    words = "|".join(re.escape(name) for name in known)
    return re.compile(rf"(?<![\w-])(?:{words})(?![\w-])", re.IGNORECASE) if known else None


def _changed(value: object, pattern: re.Pattern[str]) -> object:
    if isinstance(value, str):
        return pattern.sub(ANOTHER, value)
    if isinstance(value, tuple):
        return tuple(_changed(one, pattern) for one in value)
    if isinstance(value, Mapping):
        return {key: _changed(one, pattern) for key, one in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        own = {one.name: _changed(getattr(value, one.name), pattern) for one in fields(value)}
        return replace(value, **own)
    return value


def without_names(record: Record, names: Iterable[str]) -> Record:
    """Put other words for names of machines into every text of a record.

    Parameters
    ----------
    record : dataclass
        Frozen, of texts, numbers, tuples, mappings and further records.
    names : iterable of str
        Whole words only: ``v100`` stays in ``v100-pcie``.

    Examples
    --------
    >>> from fomkit.hardware import Fact
    >>> without_names(Fact(1.0, 1.0, 1.0, "modelled", "usual on acme-1 and the like"), ["acme-1", "acme"]).source
    'usual on another machine and the like'
    """
    pattern = _pattern(names)
    return record if pattern is None else cast("Record", _changed(record, pattern))

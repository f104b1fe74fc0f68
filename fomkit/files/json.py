"""Read untrusted JSON: size limits, no duplicate keys, no NaN, no infinite numbers."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fomkit.core.errors import FomkitError
from fomkit.files.csv import read_bytes

MAX_TEXT = 1_000
"""Largest length of a text field."""
MAX_JSON_BYTE = 5_000_000
"""Largest record [byte]; known records have a few thousand."""


class _RefusedError(ValueError):
    """A construct that JSON allows and fomkit refuses."""


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _RefusedError(f"the key {key[:80]!r} is given twice")
        found[key] = value
    return found


def _finite(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise _RefusedError(f"{text[:40]} is not a finite number")
    return value


def parse_json(text: str, where: str) -> Any:
    """Parse JSON; raise FomkitError where it is invalid or has a refused construct."""
    try:
        return json.loads(text, object_pairs_hook=_no_repeats, parse_constant=_finite, parse_float=_finite)
    except json.JSONDecodeError as error:
        at = f"{where}:{error.lineno}" if "\n" in text else where
        raise FomkitError(at, f"is not valid JSON ({error.msg}). Correct it, or export it again.") from error
    except RecursionError as error:
        raise FomkitError(where, "is nested too deeply. Records of measurements are a few levels deep.") from error
    except ValueError as error:
        raise FomkitError(where, f"is JSON that cannot be read: {error}. Correct it.") from error


def read_text(path: Path, most_byte: int = MAX_JSON_BYTE) -> str:
    """Read a UTF-8 text file, unpacked if it is gzip."""
    content = read_bytes(path)
    if len(content) > most_byte:
        raise FomkitError(str(path), f"is larger than {most_byte:,} bytes. A record of a measurement is smaller.")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FomkitError(str(path), "is not text in UTF-8. Save it as UTF-8.") from error


def read_objects(path: Path) -> list[dict[str, Any]]:
    """Read a file with one JSON object or a list of JSON objects."""
    found = parse_json(read_text(path), str(path))
    records = found if isinstance(found, list) else [found]
    if not records or not all(isinstance(record, dict) for record in records):
        raise FomkitError(str(path), "is JSON without a record. Expected an object {…}, or a list of objects.")
    return records


def names_keys(path: Path, needed: Iterable[str]) -> bool:
    """Return whether a file begins like JSON and has these keys; its reader checks whether it is valid."""
    content = read_bytes(path).removeprefix(b"\xef\xbb\xbf").lstrip()
    return content[:1] in (b"{", b"[") and all(f'"{key}"'.encode() in content for key in needed)


def number(record: Mapping[str, Any], key: str, where: str, *, whole: bool = False) -> float | None:
    """Return a number above 0 of a record; None where it is absent or null."""
    value = record.get(key)
    if value is None:
        return None
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 1e15
    if not good or (whole and value != int(value)):
        what = "A whole number of 1 or more" if whole else "A number above 0, up to 1e15,"
        raise FomkitError(where, f"{key} is {str(value)[:40]!r}. {what} was expected.")
    return float(value)


def text(record: Mapping[str, Any], key: str, where: str, *, needed: bool = False) -> str:
    """Return a text of a record; "" where it is absent or null."""
    value = record.get(key)
    if not isinstance(value, str | None):
        raise FomkitError(where, f"{key} is {str(value)[:40]!r}. A text was expected.")
    found = " ".join((value or "").split())
    if not found.isprintable() or len(found) > MAX_TEXT:
        raise FomkitError(where, f"{key} must be a printable text of up to {MAX_TEXT:,} letters. Correct it.")
    if needed and not found:
        raise FomkitError(where, f"{key} is missing. The record must state it.")
    return found


MOST = 10**9
"""Largest whole number of a field."""
_STAND_IN = 40_320
"""Placeholder for a missing number until all missing ones are known; common head and patch counts divide it."""


@dataclass
class Fields:
    """The fields of a file, read one by one.

    `notes`: defaults that were used for absent fields; `asked`: names of the fields that were read.
    `missing`: smallest valid value of each missing number, which has a placeholder until `check_missing`; None
      where the first missing number raises an error.
    """

    where: str
    content: Mapping[str, Any]
    notes: list[str] = field(default_factory=list)
    asked: set[str] = field(default_factory=set)
    missing: dict[str, int] | None = None

    def check_missing(self) -> None:
        """Raise FomkitError with all numbers that the file lacks."""
        if self.missing:
            names, least = list(self.missing), max(self.missing.values())
            if len(names) == 1:
                raise FomkitError(self.where, f"{names[0]} is missing. Add it: a whole number of {least} or more.")
            listed = f"{', '.join(names[:-1])} and {names[-1]}"
            raise FomkitError(self.where, f"{listed} are missing. Add them: whole numbers of {least} or more.")

    def count(self, *names: str, least: int = 1, absent: int | None = None, why: str = "") -> int:
        """Read a whole number from the first of these names that the file has."""
        self.asked.update(names)
        name = next((name for name in names if self.content.get(name) is not None), None)
        if name is None:
            if absent is None:
                if self.missing is None:
                    replace(self, missing={names[0]: least}).check_missing()
                else:
                    self.missing[names[0]] = least
                return _STAND_IN
            if why:
                self.notes.append(f"{names[0]} is not in the file: {absent:,}, {why}")
            return absent
        value = self.content[name]
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST:
            what = f"a whole number from {least} to {MOST:,}"
            raise FomkitError(self.where, f"{name} is {value!r:.40}. Give {what}.")
        return value

    def counts(self, *names: str) -> list[int]:
        """Read whole numbers, one for each name."""
        return [self.count(name) for name in names]

    def flag(self, name: str, *, absent: bool, why: str = "") -> bool:
        """Read true or false; ``absent``: the value where the field is missing."""
        self.asked.add(name)
        value = self.content.get(name)
        if value is None:
            if why:
                self.notes.append(f"{name} is not in the file: {str(absent).lower()}, {why}")
            return absent
        if not isinstance(value, bool):
            raise FomkitError(self.where, f"{name} is {value!r:.40}. Give true or false.")
        return value

    def places(self, name: str) -> list[int]:
        """Read a list of layer numbers; empty where it is missing."""
        self.asked.add(name)
        found = self.content.get(name) or []
        if not isinstance(found, list) or not all(isinstance(one, int) for one in found):
            raise FomkitError(self.where, f"{name} is {found!r:.40}. Give a list of numbers of layers.")
        return found

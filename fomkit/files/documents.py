"""Read YAML and untrusted JSON strictly, and write YAML: no value is guessed, and an error names its line.

`load_document` reads back exactly what `format_document` writes. JSON gives no key twice, and finite numbers only.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from fomkit.core.errors import FomkitError
from fomkit.files.csv import note_read, open_file, read_bytes, read_errors_reported

MAX_BYTE = 1_000_000
MAX_YAML_BYTE = 200_000
"""Largest YAML file [byte]; shipped files are at most a twentieth of it, and it is read in 2 s."""
MAX_DEPTH = 20
_INTEGER = re.compile(r"-?(0|[1-9]\d*)")
_FLOAT = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")
_ODD_NUMBER = re.compile(
    r"[-+]?\d[\d_]*(:\d+)+|[-+]?0[0-7xob_][\da-f_]*|[-+]?\d+(_\d+)+|[-+]?\.(inf|nan)|nan|[-+]?inf", re.I
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]")
_HINTS: Mapping[str, str] = {
    "but found another document": "It contains a second document. Keep one, without lines of '---'.",
    "found character '\\t'": "A tab is used for indentation. Indent with spaces.",
    "that cannot start any token": "Put text that begins with such a character in quotes.",
    "mapping values are not allowed": "Put text with a colon and a space in quotes.",
    "unexpected end of stream": "A quote or bracket is not closed.",
    "expected '<document start>'": "The indentation of this line does not fit the lines above.",
    "expected <block end>": "The indentation of this line, or a bracket before it, does not fit.",
    "expected ',' or": "A bracket is not closed, or a comma is missing.",
}
"""Advice by a part of the YAML parser's message."""
_WORDS: Mapping[str, bool | None] = {"true": True, "false": False, "null": None, "~": None, "": None}

Keys = tuple[str | int, ...]


@dataclass(frozen=True)
class Document:
    """The content of a file and the line (from 1) of every key and item in it."""

    path: Path
    content: dict[str, object]
    lines: Mapping[Keys, int]

    def where(self, keys: Keys) -> str:
        """Return ``file:line`` of the innermost of ``keys`` that the file has."""
        known = next(keys[:end] for end in range(len(keys), -1, -1) if keys[:end] in self.lines)
        return f"{self.path}:{self.lines[known]}"

    def error(self, keys: Keys, what: str) -> FomkitError:
        """Return an error about the value at ``keys``."""
        return FomkitError(self.where(keys), what)


def check_shown(text: str, where: str) -> None:
    """Raise when text has control characters or lone surrogates, which would reach terminals and other files."""
    if _CONTROL.search(text):
        raise FomkitError(where, f"{text[:60]!r} contains an unprintable character. Write plain text.")


def is_plain_text(text: str) -> bool:
    """Return whether unquoted text is read as text, and not as a number, a word or an ambiguous number."""
    return text not in _WORDS and not any(form.fullmatch(text) for form in (_FLOAT, _ODD_NUMBER))


def _scalar(node: yaml.ScalarNode, where: str) -> object:
    text = str(node.value)
    check_shown(text, where)
    if node.style is not None or is_plain_text(text):
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text) and len(text) <= 18:
        return int(text)
    if _FLOAT.fullmatch(text):
        value = float(text)
        if not math.isfinite(value):
            raise FomkitError(where, f"{text[:60]} is too large a number. Write a finite one.")
        return value
    raise FomkitError(
        where, f"{text[:60]} could be read in several ways. Write a plain decimal number, or put text in quotes."
    )


class _Strict(yaml.SafeLoader):
    """Refuses anchors, aliases, tags and deep nesting while parsing; its ``name`` is the file's path."""

    depth = 0

    def get_event(self) -> yaml.Event:
        event: yaml.Event = super().get_event()  # type: ignore[no-untyped-call]
        self.depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        anchor, tag = (getattr(event, name, None) for name in ("anchor", "tag"))
        refused = (
            (anchor is not None, "anchors and aliases are not allowed here. Write the value out."),
            (tag is not None, f"the tag {tag} is not allowed here. Write a plain value."),
            (self.depth > MAX_DEPTH, f"nested more than {MAX_DEPTH} deep. A profile needs no more than 6."),
        )
        for what in (what for is_so, what in refused if is_so):
            raise FomkitError(f"{self.name}:{event.start_mark.line + 1}" if event.start_mark else self.name, what)
        return event


def _build(node: yaml.Node, path: Path, keys: Keys, lines: dict[Keys, int]) -> object:
    lines.setdefault(keys, node.start_mark.line + 1)
    where = f"{path}:{node.start_mark.line + 1}"
    if isinstance(node, yaml.ScalarNode):
        return _scalar(node, where)
    if isinstance(node, yaml.SequenceNode):
        return [_build(item, path, (*keys, index), lines) for index, item in enumerate(node.value)]
    mapping: dict[str, object] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            raise FomkitError(f"{path}:{line}", "a key must be a word, not a list or a mapping.")
        key = str(key_node.value)
        check_shown(key, f"{path}:{line}")
        if key in mapping:
            raise FomkitError(f"{path}:{line}", f"the key {key[:60]!r} is given twice. Keep one.")
        lines[(*keys, key)] = line
        mapping[key] = _build(value_node, path, (*keys, key), lines)
    return mapping


def read_text(path: Path, most: int = MAX_BYTE) -> str:
    """Read a UTF-8 file of at most ``most`` bytes."""
    with read_errors_reported(path), open_file(path) as stream:
        content = stream.read(most + 1)
    note_read(path)
    return _decoded(content, path, most, "A profile")


def _decoded(content: bytes, path: Path, most: int, has_fewer: str, encoding: str = "utf-8") -> str:
    if len(content) > most:
        raise FomkitError(str(path), f"has more than {most:,} bytes. {has_fewer} has fewer.")
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        raise FomkitError(str(path), "is not UTF-8 text. Save it as UTF-8.") from error


def load_document(path: Path) -> Document:
    """Read one YAML mapping.

    Numbers follow JSON's rules; ambiguous values such as ``1:30`` and ``010`` are refused. Also refused are
    duplicate keys, anchors, aliases, tags, NaN, infinities, characters that cannot be shown, files over 200 kB and
    nesting over 20. ``no`` is text.
    """
    text = read_text(path, MAX_YAML_BYTE)
    try:
        loader = _Strict(text)
        loader.name = str(path)
        node = loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        reason = str(error.problem or error.context or "its structure is broken").rstrip(".")
        otherwise = "Check quotes, colons and indentation."
        hint = next((hint for part, hint in _HINTS.items() if part in reason), otherwise)
        raise FomkitError(f"{path}{line}", f"is not valid YAML: {reason}. {hint}") from error
    except yaml.YAMLError as error:
        raise FomkitError(str(path), "is not YAML text; it contains control characters.") from error
    if not isinstance(node, yaml.MappingNode):
        raise FomkitError(str(path), "contains no mapping. A profile begins with 'schema: fomkit/…'.")
    lines: dict[Keys, int] = {}
    content = _build(node, path, (), lines)
    return Document(path, content if isinstance(content, dict) else {}, lines)


class _Dumper(yaml.SafeDumper):
    """Quotes text that the strict reader would read as a number or a word, for example ``1e3``."""


def _quoted_if_needed(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    check_shown(text, "save")
    style = None if is_plain_text(text) else "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _quoted_if_needed)


def format_document(content: Mapping[str, Any]) -> str:
    r"""Write content as YAML, keys in their order.

    >>> format_document({"name": "1e3", "rate": "900 GB/s"})
    "name: '1e3'\nrate: 900 GB/s\n"
    """
    return yaml.dump(dict(content), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)


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


def parse_json(text: str, where: str, *, infinite: bool = False) -> Any:
    """Parse JSON; raise FomkitError where it is invalid or has a refused construct.

    `infinite`: whether the words for infinite numbers are allowed, which Python writes beside JSON's own.
    """
    constant = float if infinite else _finite
    try:
        return json.loads(text, object_pairs_hook=_no_repeats, parse_constant=constant, parse_float=_finite)
    except json.JSONDecodeError as error:
        at = f"{where}:{error.lineno}" if "\n" in text else where
        raise FomkitError(at, f"is not valid JSON ({error.msg}). Correct it, or export it again.") from error
    except RecursionError as error:
        raise FomkitError(where, "is nested too deeply. Files of this kind are a few levels deep.") from error
    except ValueError as error:
        raise FomkitError(where, f"is JSON that cannot be read: {error}. Correct it.") from error


def read_json_text(path: Path, most_byte: int = MAX_JSON_BYTE) -> str:
    """Read a UTF-8 text file, unpacked if it is gzip."""
    return _decoded(read_bytes(path), path, most_byte, "A record of a measurement", "utf-8-sig")


def read_objects(path: Path) -> list[dict[str, Any]]:
    """Read a file with one JSON object or a list of JSON objects."""
    found = parse_json(read_json_text(path), str(path))
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

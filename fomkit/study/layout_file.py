"""Layouts and links as a user writes them: ``tensor=8,sequence`` on the command line, or a YAML file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, cast, get_args

from pydantic import Field

from fomkit.errors import FomkitError, nearest_names
from fomkit.hardware import Link, Tier
from fomkit.parallel import Layout, check_layout
from fomkit.profiles.machine_record import LinkRecord
from fomkit.profiles.machines import check_rates, link_of
from fomkit.profiles.records import Record, check_record, check_schema
from fomkit.profiles.strict_yaml import load_document
from fomkit.quantities import parse_quantity

SCHEMA = "fomkit/layout/1"
_NAMES = tuple(one.name for one in fields(Layout))
_FLAGS = tuple(one.name for one in fields(Layout) if one.type == "bool")
_WORDS = tuple(
    one.name for one in fields(Layout) if one.name in ("recompute", "algorithm", "channel", "optimizer")
)
_BYTES, _SHARES = ("bucket_byte",), ("compression",)
_LINK = "TIER, ALPHA, BANDWIDTH, DIRECTION"


class LayoutRecord(Record):
    """A layout file: the fields of `Layout` under ``layout``, and links of the network."""

    schema_: str = Field(alias="schema")
    layout: dict[str, Any] = Field(default_factory=dict)
    links: list[LinkRecord] = Field(default_factory=list)


def _value(name: str, value: object, where: str) -> object:
    if name in _BYTES and isinstance(value, str):
        return parse_quantity(value, "byte", where, name)
    if name in _SHARES and isinstance(value, str):
        return parse_quantity(value, "share", where, name)
    if name in _SHARES and isinstance(value, int | float):
        return float(value)
    if name in _FLAGS and not isinstance(value, bool):
        raise FomkitError(where, f"{name} is {value!r}. Expected true or false.")
    if name in _WORDS and not isinstance(value, str):
        raise FomkitError(where, f"{name} is {value!r}. Expected a word.")
    if name in (*_BYTES, *_SHARES) and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise FomkitError(where, f"{name} is {value!r}. Expected a number.")
    return value


def layout_from(values: Mapping[str, object], where: str) -> Layout:
    """Make a layout of named values.

    Raises
    ------
    FomkitError
        When a name is unknown or a value cannot be.
    """
    for name in values:
        if name not in _NAMES:
            raise FomkitError(where, f"{name!r} is not part of a layout. {nearest_names(name, _NAMES)}")
    made = {name: _value(name, value, where) for name, value in values.items()}
    return check_layout(Layout(**cast("dict[str, Any]", made)))


def _read_word(text: str) -> tuple[str, object]:
    name, _, value = (part.strip() for part in text.partition("="))
    if not value:
        return name, name in _FLAGS or None
    if name in _FLAGS:
        return name, {"true": True, "false": False}.get(value, value)
    whole = value.lstrip("-").isdecimal() and name not in (*_WORDS, *_SHARES)
    return name, int(value) if whole else value


def parse_layout(texts: Iterable[str], base: Mapping[str, object] | None = None) -> Layout:
    """Read layouts such as ``tensor=8,pipeline=8,sequence,recompute=selective``.

    Examples
    --------
    >>> parse_layout(["tensor=8,sequence"]).model_devices
    8
    """
    values: dict[str, object] = dict(base or {})
    for word in (word for text in texts for word in text.split(",") if word.strip()):
        name, value = _read_word(word)
        if value is None and name in _NAMES:
            raise FomkitError(f"--layout {word.strip()}", f"{name} needs a value. Write, for example, {name}=2.")
        values[name] = value
    return layout_from(values, "--layout")


def load_layout(path: Path, texts: Iterable[str] = ()) -> tuple[Layout, tuple[Link, ...]]:
    """Load a layout file; ``texts`` replace some of its values.

    Raises
    ------
    FomkitError
        With file and line for every mistake.
    """
    document = load_document(path)
    check_schema(document, SCHEMA)
    record = check_record(document, LayoutRecord)
    layout_from(record.layout, document.where(("layout",)))
    links = tuple(link_of(document, index, one) for index, one in enumerate(record.links))
    return parse_layout(texts, record.layout), links


def parse_link(text: str) -> Link:
    """Read a link such as ``system, 5 us, 25 GB/s, each``; a channel and its packing rate may follow.

    Examples
    --------
    >>> parse_link("system, 5 us, 25 GB/s, each").byte_per_s
    25000000000.0
    """
    where, parts = f"--link {text!r}", [part.strip() for part in text.split(",")]
    if not 4 <= len(parts) <= 6:
        raise FomkitError(where, f"is not {_LINK}. Write, for example, --link 'system, 5 us, 25 GB/s, each'.")
    tier, alpha, rate, direction, *rest = parts
    if tier not in get_args(Tier):
        raise FomkitError(where, f"the tier {tier!r} is not one. {nearest_names(tier, get_args(Tier))}")
    if direction not in ("each", "both"):
        raise FomkitError(
            where, f"the direction is {direction!r}. Say whether the rate is of 'each' direction or of 'both'."
        )
    packed = parse_quantity(rest[1], "byte_per_s", where, "serialise") if len(rest) > 1 else None
    link = Link(
        cast("Tier", tier), parse_quantity(alpha, "time_s", where, "alpha"),
        parse_quantity(rate, "byte_per_s", where, "bandwidth"), cast("Any", direction), "stated by the user",
        rest[0] if rest else "", serialise_byte_per_s=packed,
    )  # fmt: skip
    return check_rates(link, where)


def spread_of(layouts: Iterable[str], links: Iterable[str | Link]) -> tuple[Layout, list[Link]]:
    """Read a layout, from words or a file and words that replace some of it, and the links of both.

    Raises
    ------
    FomkitError
        When two files are named, or something in them cannot be.

    Examples
    --------
    >>> layout, links = spread_of(["zero=1"], ["system, 5 us, 25 GB/s, each"])
    >>> layout.zero, links[0].tier
    (1, 'system')
    """
    words = list(layouts)
    files = [text for text in words if text.endswith((".yaml", ".yml"))]
    if len(files) > 1:
        raise FomkitError("--layout", "names two files. Give one, and what differs as NAME=VALUE.")
    rest = [text for text in words if text not in files]
    spread, more = load_layout(Path(files[0]), rest) if files else (parse_layout(rest), ())
    return spread, [
        *(check_rates(one, "links") if isinstance(one, Link) else parse_link(one) for one in links),
        *more,
    ]

"""Parse figures, layouts and links that a user declares as text.

A figure has a unit, perhaps bounds, and a source: ``4.56 USD/h per node, 2018-04-01`` ·
``0.38 kg/kWh, 0.3 kg/kWh to 0.5 kg/kWh, grid operator 2024`` · ``1.2, the operator``

Layouts and links are written as ``tensor=8,sequence`` on the command line, or in a YAML file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from math import isfinite
from pathlib import Path
from typing import Any, cast, get_args

from pydantic import Field

from fomkit.core.errors import FomkitError, nearest_names
from fomkit.core.job import Job, Layout
from fomkit.core.machine import Fact, Link, Price, Scope, Tier
from fomkit.core.units import parse_money_rate, parse_quantity
from fomkit.files.csv import is_number
from fomkit.files.documents import load_document
from fomkit.merit.footprint import Grid
from fomkit.merit.one_off_costs import STATED
from fomkit.parallel.step import check_layout
from fomkit.plan.options import check_nodes
from fomkit.profiles.facts import check_day, check_price
from fomkit.profiles.machine_record import LinkRecord, check_rates, link_of
from fomkit.profiles.records import Record, TransformerRecord, check_record

_ENDS = re.compile(r"([\d.].*?)\s+to\s+([\d.].*)")
_PER = re.compile(r"(.*?)\s+per\s+(.*)")
MOST_FACTOR = 100.0
PRICE_EXAMPLE = "4.56 USD/h per node, 2018-04-01"


def _parts(text: str) -> tuple[str, tuple[str, str] | None, list[str]]:
    """Split a line into the figure, its bounds if it has any, and the other parts."""
    figure, *rest = (part.strip() for part in re.split(r",(?!\d)|(?<!\d),", text))  # not at 2,50
    for place, part in enumerate(rest):
        if match := _ENDS.fullmatch(part):
            return figure, (match[1], match[2]), rest[:place] + rest[place + 1 :]
    return figure, None, rest


def parse_price(text: str) -> Price:
    """Parse a price: ``4.56 USD/h per node, 2018-04-01``; bounds, ``4 USD/h to 5 USD/h``, and a source may follow.

    >>> price = parse_price("3600 USD/h per node, 2018-04-01, list price")
    >>> price.per_s.value, price.currency, price.per, price.date, price.per_s.source
    (1.0, 'USD', 'node', '2018-04-01', 'list price')
    """
    where, write = f"--price {text!r}", f"Write, for example, --price '{PRICE_EXAMPLE}'."
    figure, ends, rest = _parts(text)
    match = _PER.fullmatch(figure)
    rate = parse_money_rate(match[1] if match else figure, where, "the price")
    if match is None:
        raise FomkitError(where, f"does not state what the price is for: device, node or system. {write}")
    if match[2] not in get_args(Scope):
        raise FomkitError(where, f"{match[2]!r} has no price. {nearest_names(match[2], get_args(Scope))}")
    if not rest:
        raise FomkitError(where, f"has no date; prices change. {write}")
    low, high = (parse_money_rate(end, where, "low or high") for end in ends) if ends else (rate, rate)
    check_price(where, (low, rate, high))
    day, source = check_day(rest[0], where), ", ".join(rest[1:]) or STATED
    return Price(Fact(rate[0], low[0], high[0], "assumed", source), rate[1], cast("Scope", match[2]), day)


def _fact(text: str, option: str, example: str, parse: Callable[[str, str], float], least: float) -> Fact:
    where = f"{option} {text!r}"
    figure, ends, rest = _parts(text)
    value = parse(figure, where)
    low, high = (parse(end, where) for end in ends) if ends else (value, value)
    if not rest or not "".join(rest):
        raise FomkitError(where, f"has no source. Write, for example, {option} '{example}'.")
    if not low <= value <= high:
        raise FomkitError(where, "must have low ≤ value ≤ high. Correct these.")
    if low < least or not low > 0:
        raise FomkitError(where, f"is {low:g}. Give {'a value above 0' if not least else f'{least:g} or more'}.")
    return Fact(value, low, high, "assumed", ", ".join(rest))


def parse_intensity(text: str) -> Fact:
    """Parse the carbon intensity of a grid [kg CO2e/J], such as ``0.38 kg/kWh, grid operator 2024``.

    >>> round(parse_intensity("0.36 kg/kWh, operator").value * 1e6, 12)
    0.1
    """
    return _fact(
        text.replace(" CO2e/", "/").replace("CO2e/", "/"),
        "--carbon",
        "0.38 kg/kWh, grid operator 2024",
        lambda part, where: parse_quantity(part, "kg_per_j", where, "the intensity"),
        0.0,
    )


def _number(text: str) -> float | None:
    return float(text) if is_number(text) and isfinite(float(text)) else None


def _factor(text: str, option: str, example: str) -> Fact:
    def parse(part: str, where: str) -> float:
        value = _number(part)
        if value is None or value > MOST_FACTOR:
            large = f"more than {MOST_FACTOR:g}, outside the plausible range"
            problem = "not a number" if value is None else large
            raise FomkitError(where, f"{part!r} is {problem}. Write, for example, {option} '{example}'.")
        return value

    return _fact(text, option, example, parse, 1.0)


def parse_pue(text: str) -> Fact:
    """Parse a building's energy over that of its machines, such as ``1.2, operator 2024``."""
    return _factor(text, "--pue", "1.2, operator 2024")


def parse_to_wall(text: str) -> Fact:
    """Parse energy at the wall over that of a narrower scope, such as ``1.6, 1.4 to 1.9, meter beside NVML``."""
    return _factor(text, "--to-wall", "1.6, 1.4 to 1.9, meter beside NVML")


def parse_grid(intensity: str | None, to_wall: str | None, pue: str | None) -> Grid:
    """Parse the declarations for carbon; None means not declared."""
    return Grid(
        parse_intensity(intensity) if intensity is not None else None,
        parse_to_wall(to_wall) if to_wall is not None else None,
        parse_pue(pue) if pue is not None else None,
    )


def parse_claims(texts: Sequence[str]) -> dict[str, float]:
    """Parse claimed speed-ups such as ``hardware=3.1``.

    >>> parse_claims(["hardware=3.1", "larger batch=1.25"])
    {'hardware': 3.1, 'larger batch': 1.25}
    """
    found: dict[str, float] = {}
    for text in texts:
        name, _, factor = (part.strip() for part in text.partition("="))
        value = _number(factor)
        if not name or value is None or name in found:
            raise FomkitError(
                f"--claimed {text!r}",
                "is not a new name with a factor. Write, for example, --claimed 'hardware=3.1'.",
            )
        found[name] = value
    return found


SCHEMA = "fomkit/layout/1"
_NAMES = tuple(field.name for field in fields(Layout))
_FLAGS = tuple(field.name for field in fields(Layout) if field.type == "bool")
_WORDS = ("recompute", "algorithm", "channel", "optimizer", "prefetch", "scatter", "launch")
_BYTES, _SHARES = ("bucket_byte", "gradient_byte"), ("compression", "attention_peak_fraction")
_ALSO = {
    **dict.fromkeys(("tp", "mp", "tensor_parallel"), "It is called tensor."),
    **dict.fromkeys(("pp", "stages", "pipeline_parallel"), "It is called pipeline."),
    **dict.fromkeys(("ep", "experts", "expert_parallel"), "It is called expert."),
    "fsdp": "Write zero=3.",
    **dict.fromkeys(("etp", "expert_tensor"), "Write whole_experts where experts are not split by tensor."),
    **dict.fromkeys(("cp", "context_parallel"), "It is called context."),
    **dict.fromkeys(("dp", "ddp", "replicas", "data_parallel"), "It is called data."),
}
"""Other names of parts of a layout, and the advice for each."""
_LINK = "TIER, ALPHA, BANDWIDTH, DIRECTION"


class LayoutRecord(Record):
    """A layout file: the fields of `Layout` under ``layout``, and links of the network."""

    schema_: str = Field(alias="schema")
    layout: dict[str, Any] = Field(default_factory=dict, json_schema_extra={"propertyNames": {"enum": [*_NAMES]}})
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
    """Create a layout from named values."""
    for name in values:
        if name not in _NAMES:
            advice = _ALSO.get(name.lower()) or nearest_names(name, _NAMES)
            raise FomkitError(where, f"{name!r} is not part of a layout. {advice}")
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
    """Parse layouts such as ``tensor=8,pipeline=8,sequence,recompute=selective``.

    >>> parse_layout(["tensor=8,sequence"]).model_devices
    8
    """
    values: dict[str, object] = {}
    for word in (word for text in texts for word in text.split(",") if word.strip()):
        name, value = _read_word(word)
        if name in values:
            raise FomkitError(f"--layout {word.strip()}", f"{name} is given twice. Give it once.")
        if value is None and name in _NAMES:
            raise FomkitError(f"--layout {word.strip()}", f"{name} needs a value. Write, for example, {name}=2.")
        values[name] = value
    return layout_from({**(base or {}), **values}, "--layout")


def load_layout(path: Path, texts: Iterable[str] = ()) -> tuple[Layout, tuple[Link, ...]]:
    """Load a layout file; ``texts`` override some of its values."""
    document = load_document(path)
    record = check_record(document, LayoutRecord, SCHEMA)
    layout_from(record.layout, document.where(("layout",)))
    links = tuple(map(link_of, record.links))
    return parse_layout(texts, record.layout), links


def parse_link(text: str) -> Link:
    """Parse a link such as ``system, 5 us, 25 GB/s, each``; a channel and its packing rate may follow.

    >>> parse_link("system, 5 us, 25 GB/s, each").byte_per_s
    25000000000.0
    """
    where, parts = f"--link {text!r}", [part.strip() for part in text.split(",")]
    if not 4 <= len(parts) <= 6:
        raise FomkitError(where, f"is not {_LINK}. Write, for example, --link 'system, 5 us, 25 GB/s, each'.")
    tier, alpha, rate, direction, *rest = parts
    if tier not in get_args(Tier):
        raise FomkitError(where, f"{tier!r} is not a tier. {nearest_names(tier, get_args(Tier))}")
    if direction not in ("each", "both"):
        raise FomkitError(
            where, f"the direction is {direction!r}. Write 'each' for a rate per direction, 'both' for the sum."
        )
    packed = parse_quantity(rest[1], "byte_per_s", where, "serialise") if len(rest) > 1 else None
    link = Link(
        cast("Tier", tier), parse_quantity(alpha, "time_s", where, "alpha"),
        parse_quantity(rate, "byte_per_s", where, "bandwidth"), cast("Any", direction), "stated by the user",
        rest[0] if rest else "", serialise_byte_per_s=packed,
    )  # fmt: skip
    return check_rates(link, where)


def spread_of(layout: str | Path | Sequence[str], links: Iterable[str | Link]) -> tuple[Layout, list[Link]]:
    """Parse a layout from words, or from a file and words that override it, and return it with the links of both.

    >>> layout, links = spread_of(["zero=1"], ["system, 5 us, 25 GB/s, each"])
    >>> layout.zero, links[0].tier
    (1, 'system')
    """
    words = [str(layout)] * bool(str(layout)) if isinstance(layout, str | Path) else [str(one) for one in layout]
    files = [text for text in words if text.endswith((".yaml", ".yml"))]
    if len(files) > 1:
        raise FomkitError("--layout", "names two files. Give one file, and other values as NAME=VALUE.")
    rest = [text for text in words if text not in files]
    spread, more = load_layout(Path(files[0]), rest) if files else (parse_layout(rest), ())
    stated = [check_rates(link, "links") if isinstance(link, Link) else parse_link(link) for link in links]
    ways = [(one.tier, one.channel, one.least_byte, one.most_byte) for one in stated]
    if twice := next((way for way in ways if ways.count(way) > 1), None):
        raise FomkitError("links", f"the link of tier {twice[0]!r} is given twice. Give one link for each tier.")
    return spread, [*stated, *more]


def parse_job(
    nodes: object, layout: str | Path | Sequence[str], links: Iterable[str | Link]
) -> tuple[Job | None, list[Link]]:
    """Parse the distribution of a run and its links; no job if neither nodes nor a layout are stated.

    >>> parse_job("fill", ["zero=1"], [])[0].nodes
    'fill'
    """
    spread, stated = spread_of(layout, links)
    if isinstance(nodes, str) and nodes.isdecimal():
        nodes = int(nodes)
    if nodes not in (None, "fill"):
        check_nodes(nodes, ", or fill")
    return (Job(cast("Any", nodes), spread) if nodes is not None or layout else None), stated


class RecipeRecord(Record):
    """A recipe: a transformer by its sizes."""

    schema_: str = Field(alias="schema")
    name: str
    transformer: TransformerRecord
    title: str = ""
    batch: int = Field(default=1, ge=1)
    train_samples: int | None = Field(default=None, ge=1)
    epochs: int | None = Field(default=None, ge=1)

"""Load suites and freeze their baselines: lines of work, a machine as baseline, a scope and a mean.

A figure of merit is a ratio to a baseline; if it moves with the file or with fomkit it cannot be agreed on. So a
version of a suite stores its baseline's rates and a hash of everything that they depend on; a changed line or
baseline requires a new version.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from fomkit.core.errors import FomkitError
from fomkit.core.interval import DEFAULT_LEVEL, Span
from fomkit.core.job import (
    Campaign,
    Category,
    Conditions,
    FrozenRate,
    GivenTime,
    Job,
    Layout,
    MeanName,
    Suite,
    SuiteLine,
)
from fomkit.core.machine import Basis, Party, Scope
from fomkit.core.units import DAY_S, Precision
from fomkit.files.documents import Document, format_document, load_document, read_text
from fomkit.profiles.declared import layout_from, parse_layout
from fomkit.profiles.locate import locate
from fomkit.profiles.records import FIELD, AlsoText, Record, Time, check_record, fields_of

_BLOCK = re.compile(r"^frozen:.*?(?=^\S|\Z)", re.MULTILINE | re.DOTALL)
_VERSION = re.compile(r"^version:.*$", re.MULTILINE)


class FrozenRateRecord(Record):
    """``frozen.unit_per_day.LINE`` [1/day]."""

    value: float = Field(gt=0, strict=False)
    low: float = Field(gt=0, strict=False)
    high: float = Field(gt=0, strict=False)
    basis: Basis
    precision: str = ""
    work: str = ""
    excludes: list[str] | None = None
    shared: float = Field(default=1.0, ge=0, le=1, strict=False)


class FrozenRecord(Record):
    """``frozen``: written by ``fomkit fom SUITE --freeze``, never by hand."""

    sha256: str
    fomkit: str
    unit_per_day: dict[str, FrozenRateRecord]


def frozen_rates(record: FrozenRecord | None) -> dict[str, FrozenRate]:
    """Return the frozen rates of the baseline by line; empty if nothing is frozen."""
    if record is None:
        return {}
    return {
        name: FrozenRate(
            Span(one.value, one.low, one.high, DEFAULT_LEVEL, one.shared), **fields_of(one, FrozenRate)
        )
        for name, one in record.unit_per_day.items()
    }


def _stated(rate: FrozenRate) -> dict[str, Any]:
    """Return the hashed content of a frozen rate, without fields that older files do not have."""
    stated = asdict(rate)
    del stated["unit_per_day"]["common"]  # no file states it
    if rate.unit_per_day.shared == 1:
        del stated["unit_per_day"]["shared"]
    return {name: value for name, value in stated.items() if value is not None}


def _stated_time(given: GivenTime) -> dict[str, object]:
    """Return the hashed content of a given time, without fields that older files do not have."""
    stated = asdict(given)
    del stated["run_s"]["shared"], stated["run_s"]["common"]
    if given.precision_gain == 1:
        del stated["precision_gain"]
    return stated


def _stated_job(job: Job) -> dict[str, object]:
    """Return the hashed content of a job, without defaults: new fields of a layout do not change the hash."""
    plain, stated = vars(Layout()), vars(job.layout)
    return {"nodes": job.nodes, "layout": {name: stated[name] for name in stated if stated[name] != plain[name]}}


def suite_hash(suite: Suite, rates: Mapping[str, FrozenRate]) -> str:
    """Hash the content of a version of a suite: its baseline's rates, its lines' conditions, its scope and mean.

    Titles, notes, campaigns, threshold and times given for other machines may change without a new version.
    """
    lines = [
        {
            **{name: getattr(line, name) for name in ("name", "required", "unit", "runs", "weight", "model")},
            "conditions": line.conditions.stated(),
            **({"job": _stated_job(line.job)} if line.job is not None else {}),
            "given": _stated_time(line.given[suite.baseline]) if suite.baseline in line.given else None,
        }
        for line in suite.lines
    ]
    content = {
        **{name: getattr(suite, name) for name in ("name", "version", "baseline", "scope", "mean")},
        "lines": lines,
        "rates": {name: _stated(rate) for name, rate in rates.items()},
    }
    text = json.dumps(content, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def freeze_text(text: str, suite: Suite, rates: Mapping[str, FrozenRate], fomkit_version: str) -> str:
    """Return a suite's text with its version and the baseline's rates in the frozen block; the rest stays."""
    block = {
        "frozen": {
            "sha256": suite_hash(suite, rates),
            "fomkit": fomkit_version,
            "unit_per_day": {
                name: {
                    "value": rate.unit_per_day.value,
                    "low": rate.unit_per_day.low,
                    "high": rate.unit_per_day.high,
                    "basis": rate.basis,
                    **({"precision": rate.precision} if rate.precision else {}),
                    **({"work": rate.work} if rate.work else {}),
                    **({} if rate.excludes is None else {"excludes": list(rate.excludes)}),
                    **({} if rate.unit_per_day.shared == 1 else {"shared": rate.unit_per_day.shared}),
                }
                for name, rate in rates.items()
            },
        }
    }
    unchanged = _BLOCK.sub("", _VERSION.sub(f"version: {suite.version}", text, count=1)).rstrip()
    return f"{unchanged}\n{format_document(block)}"


SCHEMA = "fomkit/suite/1"
MOST = 1e12
"""Largest number of runs, units or weights in a suite; their products stay finite."""


class ConditionsRecord(Record):
    """Conditions that a line fixes, or that a given time states."""

    batch: int | None = Field(default=None, ge=1)
    sizes: dict[str, int] = {}
    precision: Precision | None = None
    epochs: int | None = Field(default=None, ge=1)
    samples: int | None = Field(default=None, ge=1)
    quality: str | None = None

    def conditions(self) -> Conditions:
        """Return the conditions as the noun."""
        return Conditions(self.batch, self.precision, self.epochs, self.samples, self.quality, self.sizes)


class GivenRecord(ConditionsRecord):
    """``lines[…].given.MACHINE``: a stated time of one run, or a stated rate relative to the reference's."""

    time: Time | None = Field(default=None, gt=0)
    low: Time | None = Field(default=None, gt=0)
    high: Time | None = Field(default=None, gt=0)
    relative_rate: float | None = Field(default=None, ge=1 / MOST, le=MOST, strict=False)
    utilisation_gain: float = Field(default=1.0, ge=1e-3, le=1e3, strict=False)
    precision_gain: float = Field(default=1.0, ge=1e-3, le=1e3, strict=False)
    basis: Basis | None = None
    party: Party | None = None
    class_: Category | None = Field(default=None, alias="class")
    source: str = ""


Given = Annotated[
    GivenRecord,
    BeforeValidator(lambda stated: stated if isinstance(stated, dict | GivenRecord) else {"time": stated}),
    AlsoText("A time with its unit, such as 10 h."),
]


def _nodes(stated: object) -> object:
    if stated == "fill" or (isinstance(stated, int) and not isinstance(stated, bool) and stated >= 1):
        return stated
    raise ValueError("a whole number of 1 or more, or fill")


Nodes = Annotated[int | Literal["fill"], BeforeValidator(_nodes)]
LayoutRecord = str | dict[str, Any]
"""A layout as text, ``tensor=8,zero=1``, or as a mapping."""


class LineRecord(ConditionsRecord):
    """``lines[…]``: ``given`` times per machine, a ``model`` to estimate where none is given, or both."""

    name: str = ""
    basis: Basis = "modelled"
    party: Party = "lab"
    required: bool = True
    class_: Category = Field(default="baseline", alias="class")
    unit: str = "run"
    runs: float = Field(default=1.0, ge=1 / MOST, le=MOST, strict=False)
    weight: float = Field(default=1.0, ge=1 / MOST, le=MOST, strict=False)
    given: dict[str, Given] = {}
    model: str | None = None
    nodes: Nodes | None = None
    layout: LayoutRecord | None = None

    @model_validator(mode="after")
    def _complete(self) -> Self:
        words = {"name": (), "basis": get_args(Basis), "party": get_args(Party)}
        absent = [f"{name}{': ' * bool(one)}{' or '.join(one)}" for name, one in words.items()
                  if name not in self.model_fields_set]  # fmt: skip
        if absent and self.given:
            what = f"{FIELD} has given times. Add to it {'; '.join(absent)}."
            raise PydanticCustomError("quantity", "{what}", {"what": what})
        return self


class CampaignRecord(Record):
    """``campaigns[…]``: units of one line to be done on the whole machine."""

    name: str
    line: str
    units: float = Field(ge=1 / MOST, le=MOST, strict=False)


class SuiteRecord(Record):
    """A suite file."""

    schema_: str = Field(alias="schema")
    name: str
    version: int = Field(ge=1)
    baseline: str
    scope: Scope
    mean: MeanName
    lines: list[LineRecord] = Field(min_length=1)
    title: str = ""
    threshold: float | None = Field(default=None, gt=0, strict=False)
    campaigns: list[CampaignRecord] = []
    notes: list[str] = []
    frozen: FrozenRecord | None = None


def _given(line: LineRecord, machine: str, record: GivenRecord, where: str) -> GivenTime:
    what = f"line {line.name!r} gives {machine}"
    if (record.time is None) == (record.relative_rate is None):
        raise FomkitError(where, f"{what} both or neither of 'time' and 'relative_rate'. Give one of them.")
    if (record.low is None) != (record.high is None):
        raise FomkitError(where, f"{what} one end of its interval. Give low and high, or neither.")
    time = record.time if record.time is not None else DAY_S / (record.relative_rate or 1.0)
    low, high = record.low or time, record.high or time
    if not low <= time <= high:
        raise FomkitError(where, f"{what} {time:g} s, which is not between low and high. Correct them.")
    return GivenTime(
        Span(time, low, high), record.basis or line.basis, record.party or line.party,
        record.class_ or line.class_, record.conditions(), record.source, record.relative_rate,
        record.utilisation_gain, record.precision_gain,
    )  # fmt: skip


def _line(record: LineRecord, where: str) -> SuiteLine:
    if not record.given and record.model is None:
        raise FomkitError(where, f"line {record.name!r} has no work. Add 'given' times, a 'model', or both.")
    given = {name: _given(record, name, stated, where) for name, stated in record.given.items()}
    if len({one.relative_rate is None for one in given.values()}) > 1 or (
        record.model is not None and any(one.relative_rate is not None for one in given.values())
    ):
        raise FomkitError(
            where, f"line {record.name!r} mixes relative rates with times. Use one of them for all machines."
        )
    if record.model is None and (record.nodes is not None or record.layout is not None):
        raise FomkitError(where, f"line {record.name!r} has nodes or a layout, but no model. Add 'model'.")
    own = {"name": record.name or Path(record.model or "").name, "category": record.class_, "given": given,
           "conditions": record.conditions(), "job": read_job(record.nodes, record.layout, where)}  # fmt: skip
    return SuiteLine(**{**fields_of(record, SuiteLine), **own})


def read_job(nodes: Nodes | None, layout: LayoutRecord | None, where: str) -> Job | None:
    """Return the job that a line or a phase states; None if it states none."""
    if nodes is None and layout is None:
        return None
    if isinstance(layout, str):
        try:
            return Job(nodes, parse_layout([layout]))
        except FomkitError as error:
            raise FomkitError(f"{where}, layout", error.what) from error
    return Job(nodes, layout_from(layout or {}, f"{where}, layout"))


def _check_names(names: Sequence[str], record: SuiteRecord, document: Document) -> None:
    for index, name in enumerate(names):
        if names.index(name) != index:
            raise document.error(("lines", index), f"line {name!r} is listed twice. Give one another name.")
    for index, campaign in enumerate(record.campaigns):
        if campaign.line not in names:
            what = f"{campaign.line!r} is not a line of the suite. Its lines: {', '.join(names)}."
            raise document.error(("campaigns", index), what)


def _read(name: str | Path) -> tuple[Suite, SuiteRecord, Document]:
    path = locate(str(name), "model_profiles", "suite")
    document = load_document(path)
    record = check_record(document, SuiteRecord, SCHEMA)
    lines = tuple(_line(one, document.where(("lines", index))) for index, one in enumerate(record.lines))
    _check_names([line.name for line in lines], record, document)
    own = {
        "title": record.title or record.name,
        "lines": lines,
        "frozen": frozen_rates(record.frozen),
        "campaigns": tuple(
            Campaign(campaign.name, campaign.line, campaign.units) for campaign in record.campaigns
        ),
    }
    return Suite(**{**fields_of(record, Suite), **own}), record, document


def load_suite(name: str | Path) -> Suite:
    """Load a suite by path or name."""
    suite, record, document = _read(name)
    if record.frozen is not None and suite_hash(suite, suite.frozen) != record.frozen.sha256:
        raise document.error(
            ("frozen",),
            f"a line or the baseline of {suite.name!r} differs from version {suite.version}, which is frozen. "
            "Restore it, or make the next version: fomkit fom SUITE --freeze NEW.suite.yaml.",
        )
    return suite


def read_unfrozen(name: str | Path) -> tuple[str, Suite]:
    """Return the text of a suite's file and the suite, without checking the frozen hash."""
    suite, _, document = _read(name)
    return read_text(document.path), suite

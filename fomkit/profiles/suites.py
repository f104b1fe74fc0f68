"""Suites on disk: lines of work, a baseline, a scope and a mean."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from fomkit.dtypes import Precision
from fomkit.errors import FomkitError
from fomkit.hardware import Basis, Party, Scope
from fomkit.profiles.locate import locate
from fomkit.profiles.records import Record, Time, check_record, check_schema
from fomkit.profiles.strict_yaml import load_document
from fomkit.workload import Suite, SuiteLine

SCHEMA = "fomkit/suite/1"


class LineRecord(Record):
    """``lines[…]``: either ``given`` times per machine or a ``model`` to estimate."""

    name: str
    basis: Basis
    party: Party
    required: bool = True
    class_: Literal["baseline", "ported", "optimized"] = Field(default="baseline", alias="class")
    given: dict[str, Time] = {}
    model: str | None = None
    batch: int | None = Field(default=None, ge=1)
    sizes: dict[str, int] = {}
    precision: Precision | None = None


class SuiteRecord(Record):
    """A suite file."""

    schema_: str = Field(alias="schema")
    name: str
    version: int
    baseline: str
    scope: Scope
    mean: Literal["ratio_of_harmonic_means"]
    lines: list[LineRecord] = Field(min_length=1)
    title: str = ""
    threshold: float | None = Field(default=None, gt=0, strict=False)
    notes: list[str] = []


def load_suite(name: str | Path) -> Suite:
    """Load a suite by path or name.

    Raises
    ------
    FomkitError
        With file and line for every mistake.
    """
    text = str(name)
    path = locate(text if text.endswith((".yaml", ".yml", ".suite")) else f"{text}.suite", "model_profiles")
    document = load_document(path)
    check_schema(document, SCHEMA)
    record = check_record(document, SuiteRecord)
    names = [line.name for line in record.lines]
    for index, line in enumerate(record.lines):
        where = document.where(("lines", index))
        if bool(line.given) == (line.model is not None):
            raise FomkitError(where, f"line {line.name!r} needs either 'given' times or a 'model', not both.")
        if names.index(line.name) != index:
            raise FomkitError(where, f"line {line.name!r} stands here a second time. Rename one of them.")
        for machine, seconds in line.given.items():
            if seconds == 0:
                raise FomkitError(where, f"line {line.name!r} gives {machine} no time at all. Give more than 0.")
    lines = tuple(
        SuiteLine(
            name=one.name,
            required=one.required,
            category=one.class_,
            basis=one.basis,
            party=one.party,
            given_s=one.given,
            model=one.model,
            batch=one.batch,
            sizes=one.sizes,
            precision=one.precision,
        )
        for one in record.lines
    )
    return Suite(
        record.name,
        record.title or record.name,
        record.version,
        record.baseline,
        record.scope,
        lines,
        record.threshold,
        tuple(record.notes),
    )

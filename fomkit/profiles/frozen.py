"""The frozen baseline of a suite: its rates, and a hash over all that they stand for.

A figure of merit is a ratio to a baseline; one that moves when the file or fomkit changes cannot be agreed on. So
a version of a suite keeps its baseline's rates, and whoever changes a line or the baseline makes a new version.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import Field

from fomkit.errors import FomkitError
from fomkit.hardware import Basis
from fomkit.profiles.format_yaml import format_document
from fomkit.profiles.records import Record
from fomkit.profiles.write import write_whole
from fomkit.spans import DEFAULT_LEVEL, Span
from fomkit.suite import FrozenRate, Suite

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


class FrozenRecord(Record):
    """``frozen``: written by ``fomkit fom SUITE --freeze``, never by hand."""

    sha256: str
    fomkit: str
    unit_per_day: dict[str, FrozenRateRecord]


def frozen_rates(record: FrozenRecord | None) -> dict[str, FrozenRate]:
    """Give the frozen rates of the baseline by line; empty where nothing is frozen."""
    if record is None:
        return {}
    return {
        name: FrozenRate(
            Span(one.value, one.low, one.high, DEFAULT_LEVEL),
            one.basis,
            one.precision,
            one.work,
            None if one.excludes is None else tuple(one.excludes),
        )
        for name, one in record.unit_per_day.items()
    }


def _stated(rate: FrozenRate) -> dict[str, Any]:
    """Give what a file states of a frozen rate; what older files do not say is no part of their hash."""
    return {name: value for name, value in asdict(rate).items() if value is not None}


def suite_hash(suite: Suite, rates: Mapping[str, FrozenRate]) -> str:
    """Hash what a version of a suite stands for: its baseline's rates, its lines' conditions, its scope and mean.

    Titles, notes, campaigns, the threshold and what is given of other machines may change without a new version.
    """
    lines = [
        {
            "name": line.name,
            "required": line.required,
            "unit": line.unit,
            "runs": line.runs,
            "weight": line.weight,
            "model": line.model,
            "conditions": line.conditions.stated(),
            "given": asdict(line.given[suite.baseline]) if suite.baseline in line.given else None,
        }
        for line in suite.lines
    ]
    content = {
        "name": suite.name,
        "version": suite.version,
        "baseline": suite.baseline,
        "scope": suite.scope,
        "mean": suite.mean,
        "lines": lines,
        "rates": {name: _stated(rate) for name, rate in rates.items()},
    }
    text = json.dumps(content, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def check_frozen(suite: Suite, record: FrozenRecord, where: str) -> None:
    """Raise when the suite is not what was frozen.

    Raises
    ------
    FomkitError
        When a line, the baseline or a frozen rate differs.
    """
    if suite_hash(suite, suite.frozen) != record.sha256:
        raise FomkitError(
            where,
            f"a line or the baseline of {suite.name!r} is not what version {suite.version} froze. "
            "Restore it, or make the next version: fomkit fom SUITE --freeze NEW.suite.yaml.",
        )


def freeze_text(text: str, suite: Suite, rates: Mapping[str, FrozenRate], fomkit_version: str) -> str:
    """Give the text of a suite file with the baseline's rates frozen; comments and order stay.

    Parameters
    ----------
    text : str
        The file as it is; a frozen block in it is replaced.
    suite : Suite
        With the version that the new file is to have.
    rates : mapping
        Units per day of the baseline by line.
    fomkit_version : str
        Version of the program that made the rates.
    """
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
                }
                for name, rate in rates.items()
            },
        }
    }
    kept = _BLOCK.sub("", _VERSION.sub(f"version: {suite.version}", text, count=1)).rstrip()
    return f"{kept}\n{format_document(block)}"


def save_frozen(path: Path, text: str, suite: Suite, rates: Mapping[str, FrozenRate], fomkit_version: str) -> None:
    """Write a suite file with its baseline frozen, whole or not at all.

    Raises
    ------
    FomkitError
        When the file cannot be written.
    """
    write_whole(path, freeze_text(text, suite, rates, fomkit_version))

"""Campaigns on disk: phases of a workflow, each so many runs of a model or units of a suite's line."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from fomkit.errors import FomkitError
from fomkit.hardware import Basis
from fomkit.profiles.locate import locate
from fomkit.profiles.records import Record, check_record, check_schema
from fomkit.profiles.strict_yaml import load_document
from fomkit.profiles.suites import MOST, ConditionsRecord
from fomkit.suite import Phase, Workflow

SCHEMA = "fomkit/campaign/1"


class PhaseRecord(ConditionsRecord):
    """``phases[…]``: runs of a ``model`` under conditions, or units of a ``line`` of a ``suite``."""

    name: str
    runs: float = Field(ge=1 / MOST, le=MOST, strict=False)
    basis: Basis
    source: str
    model: str | None = None
    mode: Literal["train", "infer"] = "train"
    suite: str = ""
    line: str = ""


class CampaignFileRecord(Record):
    """A campaign file."""

    schema_: str = Field(alias="schema")
    name: str
    phases: list[PhaseRecord] = Field(min_length=1)
    title: str = ""
    notes: list[str] = []


def _phase(record: PhaseRecord, where: str) -> Phase:
    of_line = bool(record.suite and record.line)
    if (record.model is None) == (not of_line) or bool(record.suite) != bool(record.line):
        raise FomkitError(
            where, f"phase {record.name!r} needs either 'model', or 'suite' and 'line', which say what runs."
        )
    conditions = record.conditions()
    if of_line and (conditions.stated() or record.mode != "train"):
        raise FomkitError(
            where,
            f"phase {record.name!r} is of a suite's line, which fixes how it runs. Leave the conditions out.",
        )
    if record.mode == "infer" and (conditions.samples is None or conditions.epochs is not None):
        raise FomkitError(
            where, f"phase {record.name!r} is inference: it needs 'samples', those of one run, and has no epochs."
        )
    return Phase(
        record.name, record.runs, record.basis, record.source, record.model, record.mode, conditions,
        record.suite, record.line,
    )  # fmt: skip


def load_campaign(name: str | Path) -> Workflow:
    """Load a campaign by path or name (``candle-example`` is ``candle-example.campaign.yaml``).

    Raises
    ------
    FomkitError
        With file and line for every mistake.
    """
    path = locate(str(name), "model_profiles", "campaign")
    document = load_document(path)
    check_schema(document, SCHEMA)
    record = check_record(document, CampaignFileRecord)
    names = [one.name for one in record.phases]
    for index, one in enumerate(names):
        if names.index(one) != index:
            raise FomkitError(
                document.where(("phases", index)), f"phase {one!r} stands here a second time. Rename it."
            )
    phases = tuple(_phase(one, document.where(("phases", index))) for index, one in enumerate(record.phases))
    return Workflow(record.name, record.title or record.name, phases, tuple(record.notes))

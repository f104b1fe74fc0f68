"""Load campaigns and curves of epochs from files, and find the file that a name means.

A campaign's phases are runs of a model, or units of a suite's line. A curve contains the epochs to a target by
batch. A name is looked up among models, suites, campaigns and machines, by the schema that each file states.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

import pandas as pd
from pydantic import Field

from fomkit.core.errors import FomkitError
from fomkit.core.interval import Span
from fomkit.core.job import Phase, Workflow
from fomkit.core.machine import Basis
from fomkit.core.model import EpochsToTarget
from fomkit.files.documents import load_document
from fomkit.files.op_csv import read_numbered_table
from fomkit.ops.check import check_table, row_place
from fomkit.profiles import locate as places
from fomkit.profiles.locate import Folder, check_one_board, check_profile, locate, no_file_of, profile_names
from fomkit.profiles.machine_record import SCHEMA as MACHINE
from fomkit.profiles.models import RECIPE
from fomkit.profiles.models import SCHEMA as MODEL
from fomkit.profiles.records import Record, check_record
from fomkit.profiles.suites import MOST, ConditionsRecord, LayoutRecord, Nodes, read_job
from fomkit.profiles.suites import SCHEMA as SUITE

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
    nodes: Nodes | None = None
    layout: LayoutRecord | None = None


class CampaignFileRecord(Record):
    """A campaign file."""

    schema_: str = Field(alias="schema")
    name: str
    phases: list[PhaseRecord] = Field(min_length=1)
    title: str = ""
    notes: list[str] = []


_WORK = "needs either 'model', or 'suite' and 'line'."


def _phase(record: PhaseRecord, where: str) -> Phase:
    of_line, infers, wrong = bool(record.suite and record.line), record.mode == "infer", ""
    conditions = record.conditions()
    if (record.model is None) == (not of_line) or bool(record.suite) != bool(record.line):
        raise FomkitError(where, f"phase {record.name!r} {_WORK}")
    job = read_job(record.nodes, record.layout, where)
    if of_line and (conditions.stated() or infers or job is not None):
        wrong = "uses a line of a suite, which fixes its conditions. Leave the conditions out."
    elif infers and (conditions.samples is None or conditions.epochs is not None):
        wrong = "is inference: give 'samples' (of one run), and no epochs."
    if wrong:
        raise FomkitError(where, f"phase {record.name!r} {wrong}")
    return Phase(
        record.name, record.runs, record.basis, record.source, record.model, record.mode, conditions,
        record.suite, record.line, job,
    )  # fmt: skip


def load_campaign(name: str | Path) -> Workflow:
    """Load a campaign by path or name (``candle-example`` is ``candle-example.campaign.yaml``)."""
    path = locate(str(name), "model_profiles", "campaign")
    document = load_document(path)
    record = check_record(document, CampaignFileRecord, SCHEMA)
    names = [phase.name for phase in record.phases]
    for index, one in enumerate(names):
        if names.index(one) != index:
            raise document.error(("phases", index), f"phase {one!r} is listed twice. Rename one of them.")
    phases = tuple(_phase(one, document.where(("phases", index))) for index, one in enumerate(record.phases))
    return Workflow(record.name, record.title or record.name, phases, tuple(record.notes))


def _span(table: pd.DataFrame, position: int, where: str) -> Span:
    value, low, high = (
        float(table[name].iloc[position]) if name in table.columns else float("nan")
        for name in ("epochs", "low", "high")
    )
    if pd.isna(low) and pd.isna(high):
        return Span.exact(value)
    if not low <= value <= high:
        raise FomkitError(where, "must have low ≤ epochs ≤ high, or neither low nor high. Correct these.")
    return Span(value, low, high)


def load_epochs(path: Path) -> EpochsToTarget:
    """Load a curve of epochs to a target from a CSV table with the columns of `fomkit.ops.tables.EPOCHS`."""
    table = read_numbered_table(path, "EPOCHS")
    check_table(table, "EPOCHS", str(path))
    found: dict[int, Span] = {}
    first = table.iloc[0]
    for position, batch in enumerate(table["batch"].astype(int).tolist()):
        where = row_place(str(path), table.index, position)
        if batch in found:
            raise FomkitError(where, f"batch {batch:,} is listed twice. Keep one row, with its interval.")
        for name in ("metric", "target"):
            if table[name].iloc[position] != first[name]:
                raise FomkitError(
                    where,
                    f"the {name} is {table[name].iloc[position]}, but {first[name]} in the first row. Give one "
                    "target per file.",
                )
        found[batch] = _span(table, position, where)
    sources = "; ".join(dict.fromkeys(table["source"].tolist()))
    in_order = dict(sorted(found.items()))
    return EpochsToTarget(in_order, str(first["metric"]), float(first["target"]), sources, str(path))


What = Literal["model", "machine"]
Kind = Literal["model", "machine", "suite", "campaign"]
FOLDERS: tuple[Folder, ...] = ("model_profiles", "machine_profiles")
_WHAT: dict[object, What] = {MODEL: "model", RECIPE: "model", MACHINE: "machine"}
_KINDS: dict[object, Kind] = {**_WHAT, SUITE: "suite", SCHEMA: "campaign"}


class Found(NamedTuple):
    """A profile: its path and whether it is a model or a machine."""

    path: Path
    what: What


class Listed(NamedTuple):
    """A profile, suite or campaign: its kind, its name, and its title or why it cannot be read."""

    what: Kind
    name: str
    title: str


def _candidates(name: str) -> list[Path]:
    found: dict[Path, Path] = {}
    for folder in FOLDERS:
        try:
            path = locate(name, folder)
        except FomkitError:
            continue
        found.setdefault(path.resolve(), path)
    return list(found.values())


def _of_another_verb(name: str, kind: str, file: str = "") -> FomkitError:
    """Return the error for a suite or a campaign, with the command that reads it; `file`: where a name led to."""
    suite = f"'fomkit fom {name}' rates machines on it."
    campaign = f"'fomkit campaign {name} --target MACHINE' predicts how long it takes."
    return FomkitError(name, f"is a {kind}{file}. {suite if kind == 'suite' else campaign}")


def find_profile(name: str) -> Found:
    """Find the model or machine that a name or path means."""
    check_profile(Path(name), "model or machine profile")
    paths = _candidates(name)
    if not paths:
        for kind in ("suite", "campaign"):
            if files := _candidates(f"{name}.{kind}"):
                raise _of_another_verb(name, kind, f", {files[0]}")
        check_one_board(name)
        known = [name for folder in FOLDERS for name in profile_names(folder)]
        raise no_file_of(name, "model or machine profile", known)
    schemas = {path: load_document(path).content.get("schema") for path in paths}
    found = [Found(path, _WHAT[schema]) for path, schema in schemas.items() if schema in _WHAT]
    if not found:
        path, schema = next(iter(schemas.items()))
        if _KINDS.get(schema) in ("suite", "campaign") and path.name != Path(name).name:
            return find_profile(path.name.partition(".")[0])  # "lecture suite" is not written as its file
        if _KINDS.get(schema) in ("suite", "campaign"):
            raise _of_another_verb(name, str(_KINDS[schema]))
        shown = "has no schema line" if schema is None else f"schema is {schema!r}"
        raise FomkitError(str(path), f"{shown}. Expected {MODEL!r} or {MACHINE!r}.")
    if len(found) > 1:
        listed = ", ".join(f"'{one.path}' (a {one.what})" for one in found)
        raise FomkitError(name, f"is both a model and a machine: {listed}. Give one of these paths.")
    return found[0]


def list_profiles() -> list[Listed]:
    """List every model, suite, campaign and machine that has a name, in this order."""
    listed: list[Listed] = []
    for folder in FOLDERS:
        for name in profile_names(folder):
            try:
                content = load_document(locate(name, folder)).content
            except FomkitError as error:
                kind: Kind = "model" if folder == "model_profiles" else "machine"
                listed.append(Listed(kind, name, f"cannot be read: {error.what}"))
                continue
            what = _KINDS.get(content.get("schema"))
            if what is not None:
                named = name.removesuffix(f".{what}") if what in ("suite", "campaign") else name
                listed.append(Listed(what, named, str(content.get("title", named))))
    return sorted(listed, key=lambda one: ("model", "suite", "campaign", "machine").index(one.what))


LISTS = "lists"
"""Folder of profiles that are no models: lists of ops that people time, each run once (docs/adr/0097)."""


def shipped_models(*, lists: bool = False) -> list[Path]:
    """Return the paths of the models that ship with fomkit, a set of commonly used ops; or of the lists of ops."""
    found = sorted(places.shipped_folder("model_profiles").rglob("*.yaml"))
    return [path for path in found if (path.parent.name == LISTS) is lists
            and load_document(path).content.get("schema") == MODEL]  # fmt: skip

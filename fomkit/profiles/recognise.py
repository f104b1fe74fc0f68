"""Which profile a name means: a model or a machine, told apart by what the file says of itself."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

from fomkit.errors import FomkitError
from fomkit.profiles.campaigns import SCHEMA as CAMPAIGN
from fomkit.profiles.locate import (
    Folder,
    check_one_board,
    check_profile,
    locate,
    no_file_of,
    profile_names,
    shipped_folder,
)
from fomkit.profiles.machines import SCHEMA as MACHINE
from fomkit.profiles.models import SCHEMA as MODEL
from fomkit.profiles.strict_yaml import load_document
from fomkit.profiles.suites import SCHEMA as SUITE

What = Literal["model", "machine"]
Kind = Literal["model", "machine", "suite", "campaign"]
FOLDERS: tuple[Folder, ...] = ("model_profiles", "machine_profiles")
_WHAT: dict[object, What] = {MODEL: "model", MACHINE: "machine"}
_KINDS: dict[object, Kind] = {**_WHAT, SUITE: "suite", CAMPAIGN: "campaign"}


class Found(NamedTuple):
    """A profile: its path and what it describes."""

    path: Path
    what: What


class Listed(NamedTuple):
    """A profile, suite or campaign that can be named: what it is, its name, its title or why it cannot be read."""

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


def find_profile(name: str) -> Found:
    """Find the model or machine that a name or path means.

    Raises
    ------
    FomkitError
        When there is none, when it is neither, or when a model and a machine have the name.
    """
    check_profile(Path(name), "model or machine profile")
    paths = _candidates(name)
    if not paths:
        if suites := _candidates(f"{name}.suite"):
            raise FomkitError(name, f"is a suite, {suites[0]}. 'fomkit fom {name}' rates machines on it.")
        if campaigns := _candidates(f"{name}.campaign"):
            do = f"'fomkit campaign {name} --target MACHINE' says how long it takes."
            raise FomkitError(name, f"is a campaign, {campaigns[0]}. {do}")
        check_one_board(name)
        known = [one for folder in FOLDERS for one in profile_names(folder)]
        raise no_file_of(name, "model or machine profile", known)
    said = {path: load_document(path).content.get("schema") for path in paths}
    found = [Found(path, _WHAT[schema]) for path, schema in said.items() if schema in _WHAT]
    if not found:
        path, schema = next(iter(said.items()))
        shown = "has no schema line" if schema is None else f"schema is {schema!r}"
        raise FomkitError(str(path), f"{shown}. Expected {MODEL!r} or {MACHINE!r}.")
    if len(found) > 1:
        listed = ", ".join(f"'{one.path}' (a {one.what})" for one in found)
        raise FomkitError(name, f"is a model and a machine: {listed}. Give one of these paths.")
    return found[0]


def list_profiles() -> list[Listed]:
    """List every model, suite, campaign and machine that can be named, in this order."""
    listed: list[Listed] = []
    for folder in FOLDERS:
        for name in profile_names(folder):
            try:
                content = load_document(locate(name, folder)).content
            except FomkitError as error:
                listed.append(Listed(_of(folder), name, f"cannot be read: {error.what}"))
                continue
            what = _KINDS.get(content.get("schema"))
            if what is not None:
                named = name.removesuffix(f".{what}") if what in ("suite", "campaign") else name
                listed.append(Listed(what, named, str(content.get("title", named))))
    return sorted(listed, key=lambda one: ("model", "suite", "campaign", "machine").index(one.what))


def _of(folder: Folder) -> What:
    return "model" if folder == "model_profiles" else "machine"


def shipped_models() -> list[Path]:
    """Give the paths of the models that come with fomkit: a set of ops that people ask for."""
    root = shipped_folder("model_profiles")
    return [path for path in sorted(root.rglob("*.yaml")) if load_document(path).content.get("schema") == MODEL]

"""Read shipped profiles once for many tests, which also shares all results derived from their tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import pandas as pd
import pytest

from fomkit.core.machine import Machine
from fomkit.core.model import ModelProfile
from fomkit.ops import columns
from fomkit.plan import estimate
from fomkit.profiles import machines, models

ROOT = Path(__file__).resolve().parent.parent
Profile = TypeVar("Profile", Machine, ModelProfile)
KEPT = ((columns, "TABLES", 256), (columns, "PAIRS", 2048), (estimate, "TIMED", 64))
"""Larger limits of the caches of results: many tests ask the same of shared profiles, with others in between."""


class Readers(NamedTuple):
    """The functions that read a machine and a model from their files each time."""

    machine: Callable[[Path, tuple[Path, ...]], Machine]
    model: Callable[[Path], ModelProfile]


Kept = tuple[dict[str, int], list[pd.DataFrame]]


class Shared:
    """Profiles by file and modification time; a rewritten file is read again."""

    def __init__(self) -> None:
        self.known: dict[str, tuple[Machine | ModelProfile, Kept]] = {}

    def get(self, path: Path, read: Callable[[], Profile], kind: type[Profile]) -> Profile:
        """Return a profile that was read before, or read it now."""
        state = [(file, file.stat().st_mtime_ns) for file in sorted(path.parent.glob(f"{path.stem}*"))]
        if str(state) not in self.known:
            found = read()
            self.known[str(state)] = (found, kept(found))
        known = self.known[str(state)][0]
        assert isinstance(known, kind)
        return known

    def changed(self) -> list[str]:
        """Return the names of profiles with tables changed in place, so that later tests saw other numbers."""
        return [one.name for one, before in self.known.values() if not is_kept(one, before)]


def kept(one: Machine | ModelProfile) -> Kept:
    """Return views of the parts that can be changed in place: the tables, and the sizes of a model.

    pandas copies a column that has a view before it writes to it, so a changed column has memory of its own.
    """
    tables = [one.timings] if isinstance(one, Machine) else [one.ops, one.parts, one.layers, one.order]
    views = [table.copy(deep=False) for table in tables if table is not None]
    return dict(one.sizes) if isinstance(one, ModelProfile) else {}, views


def is_kept(one: Machine | ModelProfile, before: Kept) -> bool:
    """Return whether a profile has the same tables and sizes as before."""
    (sizes, tables), (sizes_before, views) = kept(one), before
    return sizes == sizes_before and all(
        table.index.equals(view.index)
        and table.columns.equals(view.columns)
        and all(_is_same(table[name], view[name]) for name in view.columns)
        for table, view in zip(tables, views, strict=True)
    )


def _is_same(column: pd.Series, before: pd.Series) -> bool:
    now, then = (np.asarray(getattr(one.array, "_ndarray", one.array)).ctypes.data for one in (column, before))
    return now == then or column.equals(before)  # pandas also moves columns to keep those of a type together


@contextmanager
def profiles_are_read_once() -> Iterator[Readers]:
    """Share the shipped machines and models among the tests of a process; yield the replaced readers.

    Fails at the end if a test changed a shared table in place.
    """
    shared, before = Shared(), Readers(machines._load, models._load)

    def machine(path: Path, named_by: tuple[Path, ...]) -> Machine:
        if path.resolve().parent != ROOT / "machine_profiles" or named_by:
            return before.machine(path, named_by)
        return shared.get(path, lambda: before.machine(path, named_by), Machine)

    def model(path: Path) -> ModelProfile:
        if not path.resolve().is_relative_to(ROOT / "model_profiles"):
            return before.model(path)
        return shared.get(path, lambda: before.model(path), ModelProfile)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machines, "_load", machine)
        patch.setattr(models, "_load", model)
        for module, name, most in KEPT:
            patch.setattr(module, name, most)
        yield before
    assert shared.changed() == []

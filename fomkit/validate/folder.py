"""A folder of labels laid out like NeuSight's: what is not in it is taken from the one that comes with fomkit."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from fomkit.errors import FomkitError
from fomkit.hardware import Machine
from fomkit.profiles.locate import shipped_folder
from fomkit.timings import as_machine
from fomkit.timings.imported import ImportedTimings
from fomkit.timings.neusight import devices_of, read_neusight
from fomkit.validate.graph_rows import read_graphs
from fomkit.validate.graph_tables import ops_of
from fomkit.validate.labels import read_single_calls, read_whole_models
from fomkit.validate.machines import Profiles, architecture_of, facts_only, profile_of, read_profiles

if TYPE_CHECKING:
    import pandas as pd

NO_PROFILES = Profiles("", "", "")


def shipped() -> Path:
    """Give the tables that come with fomkit."""
    return shipped_folder("validation") / "neusight"


@dataclass(frozen=True)
class LabelFolder:
    """Labels, op graphs and devices, read when they are asked for.

    Attributes
    ----------
    path : Path
        With ``e2e.csv`` or ``oplabels.csv`` or both, and any of ``opgraphs.csv``, ``devices.csv``,
        ``kernels.csv``, ``profiles.csv``; each plain or packed (``.csv.gz``).
    """

    path: Path

    def __post_init__(self) -> None:
        if not self.path.is_dir():
            raise FomkitError(str(self.path), "is no folder. Name one laid out like validation/neusight.")
        if self.find("e2e") is None and self.find("oplabels") is None:
            raise FomkitError(str(self.path), "has no labels. Expected e2e.csv or oplabels.csv, plain or .csv.gz.")

    def find(self, name: str) -> Path | None:
        """Find one of the folder's own tables."""
        return next((path for end in (".csv", ".csv.gz") if (path := self.path / f"{name}{end}").is_file()), None)

    def _or_shipped(self, name: str) -> Path:
        found = self.find(name) or LabelFolder(shipped()).find(name)
        if found is None:
            raise FomkitError(str(shipped()), f"has no {name}.csv. Install fomkit again.")
        return found

    @cached_property
    def ops(self) -> pd.DataFrame:
        """The kernels of every op graph."""
        return ops_of(read_graphs(self._or_shipped("opgraphs")))

    @cached_property
    def whole_models(self) -> pd.DataFrame | None:
        """The labels of whole passes; None where the folder has none."""
        path = self.find("e2e")
        return None if path is None else read_whole_models(path)

    @cached_property
    def single_calls(self) -> pd.DataFrame | None:
        """The labels of single calls; None where the folder has none."""
        path = self.find("oplabels")
        return None if path is None else read_single_calls(path)

    @cached_property
    def profiles(self) -> dict[str, Profiles]:
        """Which profiles stand for which devices; the folder's own word goes first."""
        own = self.find("profiles")
        known = read_profiles(self._or_shipped("profiles"))
        return known | (read_profiles(own) if own is not None else {})

    @property
    def devices(self) -> list[str]:
        """Every device with a label, in order of appearance."""
        tables = (self.whole_models, self.single_calls)
        return list(dict.fromkeys(name for table in tables if table is not None for name in table["device"]))

    def facts(self, device: str) -> Machine | None:
        """Make a machine of the facts that a list of devices states; None where none knows the device."""
        lists = [path for path in (self.find("devices"), shipped() / "devices.csv") if path is not None]
        return next((found for path in lists if (found := facts_only(device, path)) is not None), None)

    def architecture(self, device: str) -> str:
        """Give vendor, generation and chip of a device; "" where the table of chips does not have it."""
        return architecture_of(device, self._or_shipped("chips"))

    def own_machine(self, device: str) -> Machine | None:
        """Give the machine with the device's own timings: its profile, else the folder's own kernels of it."""
        profile = profile_of(self.profiles.get(device, NO_PROFILES).own)
        kernels = self.find("kernels")
        if profile is not None or kernels is None or device not in devices_of(kernels):
            return profile
        imported: ImportedTimings = read_neusight(kernels, device)
        return as_machine(imported, device, self.facts(device))

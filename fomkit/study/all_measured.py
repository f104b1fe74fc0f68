"""The runs that somebody measured, read from the tables that ship or lie beside the user."""

from __future__ import annotations

from fomkit.errors import FomkitError
from fomkit.measurement import Measurement
from fomkit.measurements import read_measurements
from fomkit.profiles import load_machine
from fomkit.profiles.locate import locate, profile_names
from fomkit.study.explained import MeasuredRuns


def all_measured() -> tuple[MeasuredRuns, tuple[str, ...]]:
    """Read the tables of measurements that ship or lie beside the user, and say which files are none."""
    rows: list[Measurement] = []
    unread = []
    for name in profile_names("measurements"):
        try:
            rows += read_measurements(locate(name, "measurements"))
        except FomkitError as error:
            unread.append(f"not read, so nothing is held against it: {error}")
    return MeasuredRuns(tuple(rows), load_machine), tuple(unread)

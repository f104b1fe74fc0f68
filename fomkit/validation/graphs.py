"""Convert op graphs to OPS tables with one row per kernel, and predict their times per call and per pass.

`LabelFolder` reads a folder of labels, op graphs and devices laid out like NeuSight's; tables that it lacks are
read from the folder that ships with fomkit. A labelled device is a shipped profile, else the facts that the
folder lists.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from fomkit.core.errors import FomkitError
from fomkit.core.interval import DEFAULT_LEVEL, Span
from fomkit.core.machine import Device, Energy, Fact, Machine, Peak
from fomkit.ops.tables import empty_table
from fomkit.plan.coverage import USES, Uses
from fomkit.plan.op_tables import as_terms, predict_ops
from fomkit.plan.step import device_time
from fomkit.profiles.evidence import with_fits
from fomkit.profiles.locate import shipped_folder
from fomkit.profiles.machines import load_machine
from fomkit.readers.registry import as_machine
from fomkit.readers.tables.foreign import ImportedTimings, read_columns
from fomkit.readers.tables.neusight import devices_of, read_neusight
from fomkit.validation.framework import FORWARD, Work, accumulate, backward, backward_alone
from fomkit.validation.labels import GraphRow, read_graphs, read_single_calls, read_whole_models

FORWARD_LABEL, BACKWARD_LABEL, ACCUMULATE_LABEL = "fw", "bw", "acc"
"""The three times that a label has for a call."""
TRAINING = "-train-"
"""Part of the name of a training graph, which has gradients."""


def _forward(row: GraphRow) -> list[Work]:
    """Return the kernels of a call; a class without a rule is unpriced work (kind "other"), not zero work."""
    return FORWARD[row.opname](row) if row.opname in FORWARD else [{"op": row.opname, "kind": "other"}]


_PARTS: tuple[tuple[str, str, Callable[[GraphRow], list[Work]]], ...] = (
    (FORWARD_LABEL, "forward", _forward),
    (BACKWARD_LABEL, "backward", backward),
    (ACCUMULATE_LABEL, "backward", accumulate),
)


def _rows(graph: str, row: GraphRow) -> Iterator[dict[str, str | float]]:
    place: dict[str, str | float] = {"graph": graph, "call": row.name, "class": row.opname}
    for label, pass_name, works in _PARTS if TRAINING in graph else _PARTS[:1]:
        common = {**place, "pass_name": pass_name, "count": row.runs}
        alone = backward_alone(row) if label == BACKWARD_LABEL else []
        for work in works(row):
            yield {**work, **common, "label": "" if alone else label, "in_step": True}
        for work in alone:
            yield {**work, **common, "label": label, "in_step": False}


def ops_of(graphs: Iterable[tuple[str, GraphRow]]) -> pd.DataFrame:
    """Make one OPS table of all graphs.

    Returns the columns of OPS with ``graph``, ``call`` and ``class`` of each kernel, its ``label`` (fw, bw or acc;
    "" if no label counts it) and ``in_step``, false for kernels run only by a call timed by itself.
    """
    rows = [one for graph, row in graphs for one in _rows(graph, row)]
    return pd.DataFrame(rows).assign(dtype="fp32", engine="vector")


LAUNCH_S = (5e-6, 3e-6, 10e-6)
"""Typical host cost of one launch [s]: value, low, high, as in the shipped profiles."""
_WORD = re.compile(r"[a-z]+\d+[a-z]*|\d+[a-z]*|[a-z]+")
_PEAKS: Mapping[str, tuple[str, ...]] = {"vector": ("SingleFLOPs", "SingleFLOPsVEC"), "matrix": ("SingleFLOPsMM",)}
_POWER, _CHIP = ("tdp_w", "node_nm"), ("L2Cache", "real_sm", "Num_Sm")
"""Columns of a board's power limit [W] and process [nm]; of its last cache [MB] and its number of processors,
corrected and as NeuSight lists it (40 for a P4, which has 20). Each column may be missing."""


class Profiles(NamedTuple):
    """The profiles that represent a device.

    `own`: profile with the device's own timings; "" if there is none.
    `other`: profile of another board of that chip, timed by others; "" if there is none.
    `apart`: why the device's figures are reported separately; "" if they are counted.
    """

    own: str = ""
    other: str = ""
    apart: str = ""


def read_profiles(path: Path) -> dict[str, Profiles]:
    """Read the profiles of each device."""
    rows = read_columns(path, ("device", "machine", "other", "apart"), ())
    return {row["device"]: Profiles(row["machine"], row["other"], row["apart"]) for row in rows.to_dict("records")}


def _words(name: str) -> set[str]:
    return set(_WORD.findall(name.lower()))


def nearest_device(name: str, known: list[str]) -> str | None:
    """Find the device of a list that a label names; None if no device, or more than one, fits best.

    >>> nearest_device("A100-PCIe-40GB", ["NVIDIA A100 80GB PCIe", "NVIDIA A100-PCIE-40GB", "Tesla T4"])
    'NVIDIA A100-PCIE-40GB'
    >>> nearest_device("H200", ["NVIDIA H100 80GB HBM3"]) is None
    True
    """
    wanted = _words(name)
    # The chip must agree: the first word with a digit, such as a100 or t4.
    chip = next((word for word in _WORD.findall(name.lower()) if any(map(str.isdigit, word))), "")
    fitting = {one: len(wanted & _words(one)) for one in known if chip and chip in _words(one)}
    best = [one for one, count in fitting.items() if count == max(fitting.values())]
    return best[0] if len(best) == 1 else None


def facts_only(name: str, path: Path) -> Machine | None:
    """Make a machine without timings from a list of devices; None if the list does not have the device.

    `name`: the device as the labels name it; `path`: ``devices.csv``, with GFLOP/s, GB/s and optionally W, nm,
    processors and MB.
    """
    if not path.is_file():
        return None
    numbers = ("Mem_Bw", *(column for columns in _PEAKS.values() for column in columns))
    rows = read_columns(path, ("Device",), (*numbers, *_POWER, *_CHIP), optional=(*_POWER, *_CHIP))
    found = nearest_device(name, rows["Device"].tolist())
    if found is None:
        return None
    row = rows[rows["Device"] == found].iloc[0]
    source = f"NeuSight 6945927, {path.name}: {found}"
    fact, peaks = partial(Fact.exact, basis="published", source=source), []
    for engine, columns in _PEAKS.items():
        rates = [row[column] for column in columns if not np.isnan(row[column])]
        peaks += [Peak("fp32", engine, fact(rates[0] * 1e9), "fp32")] if rates else []
    launch = Fact(*LAUNCH_S, "assumed", "usual host cost of one kernel launch")
    power_w, process_nm, cache_mb, *units = (row.get(column, np.nan) for column in (*_POWER, *_CHIP))
    count = next((one for one in units if np.isfinite(one)), np.nan)
    device = Device(peaks=tuple(peaks), byte_per_s=fact(row["Mem_Bw"] * 1e9), launch_s=launch)
    if np.isfinite(count + cache_mb):
        device = replace(device, units=fact(count), cache_byte=fact(cache_mb * 1e6))
    limited = np.isfinite(power_w) and np.isfinite(process_nm)
    energy = Energy("chip", process_m=process_nm * 1e-9, limit_w=fact(power_w)) if limited else None
    return Machine(name, found, "published", device, empty_table("TIMINGS"), notes=(source,), energy=energy)


def without_timings(machine: Machine, architecture: str = "") -> Machine:
    """Return the machine without its timings, and with those of its chip on other boards excluded."""
    device = replace(machine.device, architecture=machine.device.architecture or architecture)
    excluded = (device.architecture,) if device.architecture else machine.excluded
    return replace(machine.with_timings(machine.timings.iloc[:0]), device=device, excluded=excluded)


def architecture_of(name: str, path: Path) -> str:
    """Find the architecture of a device by a word of its name in ``chips.csv``; "" if the table has none."""
    rows = read_columns(path, ("word", "architecture"), ())
    known = dict(zip(rows["word"], rows["architecture"], strict=True))
    return next((known[word] for word in _WORD.findall(name.lower()) if word in known), "")


def shipped_labels() -> Path:
    """Return the folder of the tables that ship with fomkit."""
    return shipped_folder("validation") / "neusight"


@dataclass(frozen=True)
class LabelFolder:
    """Labels, op graphs and devices of a folder, read on first use.

    `path`: folder with ``e2e.csv`` or ``oplabels.csv`` or both, and any of ``opgraphs.csv``, ``devices.csv``,
      ``kernels.csv``, ``profiles.csv``; each plain or gzipped (``.csv.gz``).
    """

    path: Path

    def __post_init__(self) -> None:
        if not self.path.is_dir():
            raise FomkitError(str(self.path), "is not a folder. Name one with the files of validation/neusight.")
        if self.find("e2e") is None and self.find("oplabels") is None:
            raise FomkitError(str(self.path), "has no labels. Expected e2e.csv or oplabels.csv, plain or .csv.gz.")

    def find(self, name: str) -> Path | None:
        """Find one of the folder's own tables."""
        return next((path for end in (".csv", ".csv.gz") if (path := self.path / f"{name}{end}").is_file()), None)

    def _or_shipped(self, name: str) -> Path:
        found = self.find(name) or LabelFolder(shipped_labels()).find(name)
        if found is None:
            raise FomkitError(str(shipped_labels()), f"has no {name}.csv. Install fomkit again.")
        return found

    @cached_property
    def ops(self) -> pd.DataFrame:
        """The kernels of every op graph."""
        return ops_of(read_graphs(self._or_shipped("opgraphs")))

    @cached_property
    def whole_models(self) -> pd.DataFrame | None:
        """The labels of whole passes; None if the folder has none."""
        path = self.find("e2e")
        return None if path is None else read_whole_models(path)

    @cached_property
    def single_calls(self) -> pd.DataFrame | None:
        """The labels of single calls; None if the folder has none."""
        path = self.find("oplabels")
        return None if path is None else read_single_calls(path)

    @cached_property
    def profiles(self) -> dict[str, Profiles]:
        """The profiles of each device; the folder's own table overrides the shipped one."""
        own = self.find("profiles")
        known = read_profiles(self._or_shipped("profiles"))
        return known | (read_profiles(own) if own is not None else {})

    @property
    def devices(self) -> list[str]:
        """Every device with a label, in order of appearance."""
        tables = (self.whole_models, self.single_calls)
        return list(dict.fromkeys(name for table in tables if table is not None for name in table["device"]))

    def facts(self, device: str) -> Machine | None:
        """Make a machine of the facts in the lists of devices; None if no list has the device."""
        lists = [path for path in (self.find("devices"), shipped_labels() / "devices.csv") if path is not None]
        return next((found for path in lists if (found := facts_only(device, path)) is not None), None)

    def architecture(self, device: str) -> str:
        """Return vendor, generation and chip of a device; "" if the table of chips does not have it."""
        return architecture_of(device, self._or_shipped("chips"))

    def own_machine(self, device: str) -> Machine | None:
        """Return the machine with the device's own timings: its profile, else one made of the folder's kernels."""
        name = self.profiles.get(device, Profiles()).own
        # A name without a profile raises an error: facts must not silently replace it.
        profile = load_machine(name) if name else None
        kernels = self.find("kernels")
        if profile is not None or kernels is None or device not in devices_of(kernels):
            return profile
        imported: ImportedTimings = read_neusight(kernels, device)
        return as_machine(imported, device, self.facts(device))


CALL_COLUMNS = ["graph", "call", "class", "label", "in_step"]
"""Columns that identify the call a kernel belongs to."""


def predict_graphs(ops: pd.DataFrame, machine: Machine, level: float = DEFAULT_LEVEL) -> pd.DataFrame:
    """Predict the kernels of graphs (`ops_of`) through the stages of ``fomkit predict``, with `CALL_COLUMNS`."""
    rows = ops.reset_index(drop=True)
    timed = predict_ops(rows.drop(columns=CALL_COLUMNS), with_fits(machine), interval=level).ops
    return timed.assign(**{name: rows[name].to_numpy() for name in CALL_COLUMNS})


def per_call(timed: pd.DataFrame) -> pd.DataFrame:
    """Sum one execution's kernels by graph, call and label: ``time_s, low_s, high_s``; NaN without a time."""
    keys = ["graph", "call", "label"]
    complete = timed["time_s"].notna().groupby([timed[key] for key in keys], sort=False).all()
    return timed.groupby(keys, sort=False)[["time_s", "low_s", "high_s"]].sum(min_count=1).where(complete)


def per_pass(
    timed: pd.DataFrame, graph: str, pass_name: str | None, level: float, uses: Uses = USES
) -> Span | None:
    """Sum a pass, or the whole step, of one model of `predict_graphs`; None if a kernel has no time."""
    rows = timed[(timed["graph"] == graph) & timed["in_step"]]
    rows = rows if pass_name is None else rows[rows["pass_name"] == pass_name]
    if not len(rows) or bool(np.isnan(rows["time_s"]).any()):
        return None
    return device_time(as_terms(rows, level), level, uses)

"""A machine looked at: facts, ridge points, tables and what they cover, as plain content (``fomkit/show/1``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import isfinite
from typing import TYPE_CHECKING, Any

from fomkit import __version__
from fomkit.costs import add_costs
from fomkit.hardware import Energy, Machine
from fomkit.predict.reach import LeftOutErrors, Reach, left_out_errors, reaches
from fomkit.predict.storage import row_major
from fomkit.resize import resize_ops
from fomkit.study.content import fact_content, price_content
from fomkit.study.fits import with_fits
from fomkit.study.model_view import SCHEMA
from fomkit.study.plausible import verdict_on, without_implausible
from fomkit.tables import empty_table
from fomkit.workload import ModelProfile

if TYPE_CHECKING:
    import pandas as pd

EVERY = 10**9
"""Timings left out that are named one by one: all."""
_TABLE_KEYS = ["kind", "dtype", "engine", "pass_name"]


def _peaks(machine: Machine) -> list[dict[str, Any]]:
    memory = machine.device.byte_per_s
    return [
        {
            "dtype": peak.dtype,
            "engine": peak.engine,
            "accumulate_dtype": peak.accumulate_dtype or None,
            "flop_per_s": fact_content(peak.rate),
            "ridge_point": None if memory is None else peak.rate.value / memory.value,
        }
        for peak in machine.device.peaks
    ]


def _energy(energy: Energy | None) -> dict[str, Any] | None:
    if energy is None:
        return None
    return {
        "scope": energy.scope,
        "devices": energy.devices,
        "process_m": energy.process_m,
        "idle_w": fact_content(energy.idle_w),
        "per_flop": [
            {"dtype": one.dtype, "engine": one.engine or None, "joule_per_flop": fact_content(one.joule)}
            for one in energy.per_flop
        ],
        "joule_per_byte": fact_content(energy.byte_j),
        "average": [{**vars(one), "power_w": fact_content(one.power_w)} for one in energy.average],
        "limit_w": fact_content(energy.limit_w),
    }


def _facts(machine: Machine) -> dict[str, Any]:
    device = machine.device
    return {
        "peaks": _peaks(machine),
        "byte_per_s": fact_content(device.byte_per_s),
        "capacity_byte": fact_content(device.capacity_byte),
        "launch_s": fact_content(device.launch_s),
        "fresh_byte_per_s": fact_content(device.fresh_byte_per_s),
        "fresh_above_byte": device.fresh_above_byte,
        "host_byte_per_s": fact_content(device.host_byte_per_s),
        "node_devices": machine.node_devices,
        "system_nodes": machine.system_nodes,
        "availability": machine.availability,
        "links": [vars(link) for link in machine.links],
        "overheads": [
            {
                "name": one.name,
                "per": one.per,
                "time_s": fact_content(one.time_s),
                "share": fact_content(one.share),
            }
            for one in machine.overheads
        ],
        "energy": _energy(machine.energy),
        "price": price_content(machine.price),
    }


def _texts(timings: pd.DataFrame, column: str) -> pd.Series[str]:
    import pandas as pd

    if column not in timings.columns:
        return pd.Series("", timings.index, dtype="str")
    return timings[column].astype("str").fillna("")


def _counted(timings: pd.DataFrame, *columns: str) -> list[dict[str, Any]]:
    """Count rows by some text columns, leaving out rows that say nothing."""
    words = timings.assign(**{name: _texts(timings, name) for name in columns})[list(columns)]
    counts = words.groupby(list(columns), sort=False).size()
    found = [(key if isinstance(key, tuple) else (key,), count) for key, count in counts.items()]
    return [{**dict(zip(columns, key, strict=True)), "rows": int(count)} for key, count in found if any(key)]


def _tables(timings: pd.DataFrame) -> dict[str, Any]:
    named = _texts(timings, "op") != ""
    return {
        "rows": len(timings),
        "sections": _counted(timings, *_TABLE_KEYS),
        "rows_of_one_op": int(named.sum()),
        "libraries": _counted(timings, "library", "library_version"),
        "sources": _counted(timings, "source_file", "source_sheet"),
        "corrected": int((_texts(timings, "note") != "").sum()),
    }


def _errors(errors: LeftOutErrors | None) -> dict[str, float] | None:
    return None if errors is None else errors._asdict()


def _family(reach: Reach) -> dict[str, Any]:
    content = {**reach.name._asdict(), **reach._asdict()}
    del content["name"]
    content["errors"] = _errors(reach.errors)
    content["near_flop_share"] = reach.near_flop_share if isfinite(reach.near_flop_share) else None
    return content


def _kinds(found: list[Reach], fits: Mapping[str, object]) -> list[dict[str, Any]]:
    """Join the left-out errors of all families of a kind."""
    kinds = []
    for kind in dict.fromkeys(reach.name.kind for reach in found):
        stored = [fits.get(str(reach.name)) for reach in found if reach.name.kind == kind]
        fitted = [fit for fit in stored if isinstance(fit, Mapping)]
        kinds.append({"kind": kind, "errors": _errors(left_out_errors(fitted))})
    return kinds


def _reference(models: Iterable[ModelProfile]) -> pd.DataFrame:
    import pandas as pd

    tables = [add_costs(resize_ops(model.ops, model.sizes, model.name)) for model in models]
    return pd.concat(tables, ignore_index=True) if tables else add_costs(empty_table("OPS"))


def _coverage(machine: Machine, reference: list[ModelProfile]) -> dict[str, Any] | None:
    if not len(machine.timings):
        return None
    machine = with_fits(machine)
    machine = replace(machine, timings=row_major(machine.timings))
    found = list(reaches(machine, add_costs(machine.timings), _reference(reference)))
    return {
        "reference_models": [model.name for model in reference],
        "families": [_family(reach) for reach in found],
        "kinds": _kinds(found, machine.fits),
    }


def show_machine(machine: Machine, reference: list[ModelProfile]) -> dict[str, Any]:
    """Look at a machine: what is stated of it, what was timed on it, and what the timings cover.

    Parameters
    ----------
    machine : Machine
    reference : list of ModelProfile
        Models whose ops are asked for.

    Returns
    -------
    dict
        ``fomkit/show/1``.
    """
    machine = without_implausible(machine)
    return {
        "schema": SCHEMA,
        "fomkit": __version__,
        "is": "machine",
        "name": machine.name,
        "title": machine.title,
        "party": machine.party,
        "device_of": machine.device_of or None,
        "scopes": list(machine.scopes),
        "facts": _facts(machine),
        "timings": _tables(machine.timings) if len(machine.timings) else None,
        "coverage": _coverage(machine, reference),
        "plausibility": list(verdict_on(machine, EVERY)),
        "notes": list(machine.notes),
    }

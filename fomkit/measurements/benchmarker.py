"""The modular benchmarker's records: samples per second of a training, or the time of a batch served, and back.

Format: undertherain/benchmarker. What has no column of its own is kept in ``record`` and comes back unchanged.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any

from fomkit.errors import FomkitError
from fomkit.measurement import Measurement
from fomkit.measurements.strict_json import names_keys, number, parse_json, read_objects, text

MAX_CELL = 32_000
"""Most letters of a table's cell; spreadsheet programs cut longer ones."""
AGREE = 1e-3
"""Relative difference up to which a stated rate is that of its samples and time."""


def recognise_benchmarker(path: Path) -> bool:
    """Tell whether a file is JSON with the fields of a record of the benchmarker."""
    return names_keys(path, ("problem", "framework", "device"))


def _samples(problem: Mapping[str, Any], where: str) -> float | None:
    """Give the samples of an epoch, which older records state as the first size of the data."""
    if (count := number(problem, "cnt_samples", where, whole=True)) is not None:
        return count
    sizes = problem.get("shape_x_train")
    return (
        number({"shape_x_train": sizes[0]}, "shape_x_train", where) if isinstance(sizes, list) and sizes else None
    )


def _rate(record: Mapping[str, Any], problem: Mapping[str, Any], where: str) -> float:
    """Give the samples per second [1/s], stated or worked out; both must agree."""
    stated, samples = number(record, "samples_per_second", where), _samples(problem, where)
    seconds = number(record, "time_epoch", where) or number(record, "time", where)
    made = samples / seconds if samples and seconds else None
    if stated and made and abs(stated / made - 1) > AGREE:
        said = (
            f"samples_per_second is {stated:g}, and {samples:,.0f} samples in {seconds:g} s are {made:g} a second"
        )
        raise FomkitError(where, f"{said}. Correct one of them.")
    if (rate := stated or made) is None:
        raise FomkitError(where, "states no time. Expected samples_per_second, or samples and time_epoch.")
    return rate


def _take(record: MutableMapping[str, Any], key: str, column: object) -> None:
    """Take a field out of what has no column; one that its column could not give back as it was stays."""
    if key in record and record[key] == column:
        del record[key]


def _kept(rest: Mapping[str, Any], where: str) -> str:
    """Write what has no column as text that any table can hold."""
    kept = json.dumps(rest, separators=(",", ":"), sort_keys=True)
    if len(kept) > MAX_CELL:
        raise FomkitError(
            where, f"what has no column takes {len(kept):,} letters, a cell holds {MAX_CELL:,}. Shorten its lists."
        )
    return kept


_SOURCE = "benchmarker, "
_BESIDE = "fomkit"
"""Field of a record for what the benchmarker has no field of."""
_ENDS, _WORDS = ("low", "high"), ("basis", "party", "date", "source", "note", "holds")


def _usual(mode: str) -> dict[str, str]:
    return {"basis": "measured", "note": f"mode {mode}"}


def _beside(row: Measurement, mode: str) -> dict[str, Any]:
    """Give what a record says of a row in no field of the benchmarker's, and an import would not know."""
    words = {name: getattr(row, name) for name in _WORDS}
    if row.source.startswith(_SOURCE):
        words["source"] = ""
    usual = _usual(mode)
    ends = {"low": row.low, "high": row.high} if row.spread_stated else {}
    return {**ends, **{name: text for name, text in words.items() if text and text != usual.get(name)}}


def _taken_beside(rest: dict[str, Any]) -> dict[str, Any]:
    """Take what an export put beside the benchmarker's fields out of a record; a stranger's field stays in it."""
    found = rest.get(_BESIDE)
    if not isinstance(found, dict) or not found.keys() <= {*_ENDS, *_WORDS}:
        return {}
    kinds = {**dict.fromkeys(_ENDS, float), **dict.fromkeys(_WORDS, str)}
    if not all(isinstance(value, kinds[name]) for name, value in found.items()):
        return {}
    return dict(rest.pop(_BESIDE))


def _row(record: Mapping[str, Any], where: str) -> dict[str, Any]:
    problem, rest = record.get("problem"), copy.deepcopy(dict(record))
    if isinstance(problem, str):
        problem = {"name": problem}
    if not isinstance(problem, dict):
        raise FomkitError(where, "problem is neither a name nor an object. Expected {name: …, cnt_samples: …}.")
    beside = _taken_beside(rest)
    rate, mode = _rate(record, problem, where), text(record, "mode", where) or "training"
    quantity, value, own = "sample_per_s", rate, "samples_per_second"
    if mode == "inference":
        batch_s = number(record, "time_batch", where)
        if batch_s is None:
            raise FomkitError(where, "is of inference and states no time_batch. Add it.")
        quantity, value, own = "latency_s", batch_s, "time_batch"
    precision, gpus = text(problem, "precision", where), record.get("nb_gpus") or 0
    model, machine, framework = (
        text(one, key, where, needed=True)
        for one, key in ((problem, "name"), (record, "device"), (record, "framework"))
    )
    batch = number(record, "batch_size", where, whole=True)
    for key, column in (("device", machine), ("framework", framework), (own, value), ("batch_size", batch)):
        _take(rest, key, column)
    if isinstance(rest["problem"], str):
        _take(rest, "problem", model)
        rest.setdefault("problem", "")
    else:
        _take(rest["problem"], "name", model)
    devices = max(number({"nb_gpus": gpus or 1}, "nb_gpus", where, whole=True) or 1.0, 1.0)
    return {
        "model": model,
        "machine": machine,
        "quantity": quantity,
        "value": value,
        "batch": batch,
        "precision": precision.lower(),
        "devices": devices,
        "scope": "device" if devices == 1 else "node",
        "repeats": number(record, "nb_epoch", where, whole=True),
        "framework": framework,
        "framework_version": text(record, "framework_full", where),
        "record": _kept(rest, where),
        **_usual(mode),
        **beside,
    }


def read_benchmarker(path: Path) -> tuple[Sequence[Mapping[str, Any]], Sequence[str]]:
    """Read records, one row each: sample_per_s of a training, latency_s of a batch in inference.

    Raises
    ------
    FomkitError
        When a field is not what it should be, there is no time, or two of them disagree.
    """
    return [{"source": f"{_SOURCE}{path.name}", **_row(one, str(path))} for one in read_objects(path)], ()


def benchmarker_record(row: Measurement) -> dict[str, Any]:
    """Put a measurement in the form of the benchmarker; fields of an imported record come back as they were.

    Raises
    ------
    FomkitError
        When it is of a run or an epoch, for which there is no field, or its record is broken.
    """
    if row.quantity not in ("sample_per_s", "latency_s", "step_s"):
        raise FomkitError(row.where, f"{row.quantity} has no field in such a record. Leave the row out.")
    record = parse_json(row.record, row.where) if row.record else {}
    if not isinstance(record, dict) or not isinstance(record.setdefault("problem", {}), dict | str):
        raise FomkitError(row.where, "its record is no object with a problem. Import it anew, or empty the cell.")
    named_only = isinstance(record["problem"], str)
    made: dict[str, Any] = {"device": row.machine, "framework": row.framework}
    if row.quantity != "sample_per_s":
        made["time_batch"] = row.value
    elif "time" not in record:  # older records have a time in the place of the rate
        made["samples_per_second"] = row.value
    if row.batch is not None:
        made["batch_size"] = row.batch
    if not row.record:
        made |= {"nb_gpus": row.devices or 1, "framework_full": row.framework_version}
        made["mode"] = "inference" if row.quantity == "latency_s" else "training"
        if row.precision:
            record["problem"]["precision"] = row.precision.upper()
        if row.repeats is not None:
            made["nb_epoch"] = row.repeats
    record["problem"] = (
        (record["problem"] or row.model) if named_only else {"name": row.model, **record["problem"]}
    )
    mode = str({**made, **record}.get("mode") or "training")
    if beside := _beside(row, mode):
        made[_BESIDE] = beside
    return {**made, **record}


def format_benchmarker(rows: Sequence[Measurement]) -> str:
    """Write measurements as the benchmarker does: one record as an object, several as a list of them."""
    records = [benchmarker_record(row) for row in rows]
    found = records[0] if len(records) == 1 else records
    return json.dumps(found, ensure_ascii=False, indent=4, sort_keys=True) + "\n"

"""Read records of runs as measurements: the modular benchmarker's (written too), DAWNBench entries, MLPerf logs.

Formats: undertherain/benchmarker, whose fields without a column are kept in ``record`` and written back unchanged;
stanford-futuredata/dawn-bench-entries, whose costs, which are prices, go to the note; lines ``:::MLLOG {…}`` of
mlcommons/logging among other lines.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal

from fomkit.core.errors import FomkitError, printable
from fomkit.core.measurement import Measurement
from fomkit.files.csv import MAX_BYTE, check_beside, read_bytes
from fomkit.files.documents import names_keys, number, parse_json, read_json_text, read_objects, text

MAX_CELL = 32_000
"""Most characters of a table's cell; spreadsheet programs cut longer ones."""
AGREE = 1e-3
"""Largest relative difference between a stated rate and the rate from samples and time."""


def _samples(problem: Mapping[str, Any], where: str) -> float | None:
    """Return the samples of an epoch; older records state them as the first size of the data."""
    if (count := number(problem, "cnt_samples", where, whole=True)) is not None:
        return count
    sizes = problem.get("shape_x_train")
    first = sizes[0] if isinstance(sizes, list) and sizes else None
    return number({"shape_x_train": first}, "shape_x_train", where)


def _samples_per_s(record: Mapping[str, Any], problem: Mapping[str, Any], where: str) -> float:
    """Return the samples per second [1/s], stated or computed; raise if the two disagree."""
    stated, samples = number(record, "samples_per_second", where), _samples(problem, where)
    seconds = number(record, "time_epoch", where) or number(record, "time", where)
    made = samples / seconds if samples and seconds else None
    if stated and made and abs(stated / made - 1) > AGREE:
        message = f"{stated:g}, and {samples:,.0f} samples in {seconds:g} s are {made:g} a second"
        raise FomkitError(where, f"samples_per_second is {message}. Correct one of them.")
    if (rate := stated or made) is None:
        raise FomkitError(where, "states no time. Expected samples_per_second, or samples and time_epoch.")
    return rate


def _take(record: MutableMapping[str, Any], key: str, column: object) -> None:
    """Remove a field that its column preserves exactly; other fields stay in the record."""
    if key in record and record[key] == column:
        del record[key]


_SOURCE = "benchmarker, "
_BESIDE = "fomkit"
"""Field of a record for facts that the benchmarker has no field for."""
_ENDS, _WORDS = ("low", "high"), ("basis", "party", "date", "source", "note", "holds")


def _default_words(mode: str) -> dict[str, str]:
    return {"basis": "measured", "note": f"mode {mode}"}


def _extra_fields(row: Measurement, mode: str) -> dict[str, object]:
    """Return the facts of a row that neither the benchmarker's fields hold nor an import would infer."""
    words = {name: getattr(row, name) for name in _WORDS}
    if row.source.startswith(_SOURCE):
        words["source"] = ""
    defaults = _default_words(mode)
    bounds = {"low": row.low, "high": row.high} if row.spread_stated else {}
    return {**bounds, **{name: text for name, text in words.items() if text and text != defaults.get(name)}}


def _take_extra_fields(rest: dict[str, Any]) -> dict[str, object]:
    """Remove and return the facts that an export added to a record; another program's field of this name stays."""
    found = rest.get(_BESIDE)
    kinds = {**dict.fromkeys(_ENDS, float), **dict.fromkeys(_WORDS, str)}
    ours = isinstance(found, dict) and all(
        name in kinds and isinstance(value, kinds[name]) for name, value in found.items()
    )
    return dict(rest.pop(_BESIDE)) if ours else {}


def _benchmarker_row(record: Mapping[str, Any], where: str) -> dict[str, object]:
    problem, rest = record.get("problem"), copy.deepcopy(dict(record))
    if isinstance(problem, str):
        problem = {"name": problem}
    if not isinstance(problem, dict):
        raise FomkitError(where, "problem is neither a name nor an object. Expected {name: …, cnt_samples: …}.")
    beside = _take_extra_fields(rest)
    rate, mode = _samples_per_s(record, problem, where), text(record, "mode", where) or "training"
    quantity, value, own = "sample_per_s", rate, "samples_per_second"
    if mode == "inference":
        batch_s = number(record, "time_batch", where)
        if batch_s is None:
            raise FomkitError(where, "is of inference and time_batch is missing. Add it.")
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
    without_column = json.dumps(rest, separators=(",", ":"), sort_keys=True)
    if len(without_column) > MAX_CELL:
        limits = f"{len(without_column):,} letters, a cell holds {MAX_CELL:,}"
        raise FomkitError(where, f"the fields without a column have {limits}. Shorten their lists.")
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
        "record": without_column,
        **_default_words(mode),
        **beside,
    }


def read_benchmarker(path: Path) -> tuple[Sequence[Mapping[str, Any]], Sequence[str]]:
    """Read records, one row each: sample_per_s of a training, latency_s of a batch in inference."""
    return [
        {"source": f"{_SOURCE}{path.name}", **_benchmarker_row(one, str(path))} for one in read_objects(path)
    ], ()


def benchmarker_record(row: Measurement) -> dict[str, object]:
    """Convert a measurement to the benchmarker's form; fields of an imported record keep their values."""
    if row.quantity not in ("sample_per_s", "latency_s", "step_s"):
        raise FomkitError(
            row.where,
            f"{row.quantity} has no field in a record of the modular benchmarker. Remove the row, or choose "
            "--format measurements.",
        )
    record = parse_json(row.record, row.where) if row.record else {}
    if not isinstance(record, dict) or not isinstance(record.setdefault("problem", {}), dict | str):
        raise FomkitError(row.where, "its record has no problem in an object. Import it again, or empty the cell.")
    named_only = isinstance(record["problem"], str)
    made: dict[str, Any] = {"device": row.machine, "framework": row.framework}
    if row.quantity != "sample_per_s":
        made["time_batch"] = row.value
    elif "time" not in record:  # older records have a time instead of the rate
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
    problem = record["problem"]
    record["problem"] = (problem or row.model) if named_only else {"name": row.model, **problem}
    mode = str({**made, **record}.get("mode") or "training")
    if beside := _extra_fields(row, mode):
        made[_BESIDE] = beside
    return {**made, **record}


def format_benchmarker(rows: Sequence[Measurement]) -> str:
    """Write measurements as the benchmarker does: one record as an object, several as a list of objects."""
    records = [benchmarker_record(row) for row in rows]
    one_or_all = records[0] if len(records) == 1 else records
    return json.dumps(one_or_all, ensure_ascii=False, indent=4, sort_keys=True) + "\n"


QUALITY: Mapping[str, float] = {"f1Score": 0.73, "top5Accuracy": 93.0, "top1Accuracy": 94.0}
"""Quality that a run must reach, by the first of these columns that its log has: SQuAD, ImageNet, CIFAR10."""

_VERSION = re.compile(r"^(.*?)[ -]v?(\d[\w.+]*)$")


def _log(path: Path, record: Mapping[str, Any]) -> Path:
    """Return the log beside an entry, by the name it states or by the entry's name; nothing is downloaded."""
    stated = record.get("logFilename")
    names = [Path(stated).name] if isinstance(stated, str) and stated.endswith(".tsv") else []
    for name in (*names, f"{path.stem}.tsv"):
        if (path.parent / name).is_file():
            check_beside(path.parent / name, path)
            return path.parent / name
    advice = "Put it there: it holds the time."
    raise FomkitError(str(path), f"states no latency, and its log {path.stem}.tsv is not beside it. {advice}")


def _reached(log: Path) -> tuple[float, str]:
    """Return the hours [h] to the quality, and the quality and epoch reached."""
    lines = [
        (place, line.split()) for place, line in enumerate(read_json_text(log).splitlines(), 1) if line.strip()
    ]
    header = lines[0][1] if lines else []
    quality = next((name for name in QUALITY if name in header), None)
    if quality is None or not {"epoch", "hours"} <= set(header):
        columns = " or ".join(QUALITY)
        raise FomkitError(f"{log}:1", f"is not a DAWNBench log. Expected the columns epoch, hours, {columns}.")
    for place, cells in lines[1:]:
        if len(cells) != len(header):
            raise FomkitError(f"{log}:{place}", f"has {len(cells)} cells where the header has {len(header)}.")
        try:
            row = {name: float(cell) for name, cell in zip(header, cells, strict=True)}
        except ValueError as error:
            raise FomkitError(f"{log}:{place}", f"a cell is not a number ({error}). Correct it.") from error
        if row[quality] >= QUALITY[quality]:
            hours = number(row, "hours", f"{log}:{place}")
            return hours or 0.0, f"{quality} {row[quality]:g} in epoch {row['epoch']:g}"
    least = f"{quality} {QUALITY[quality]:g}"
    raise FomkitError(str(log), f"never reaches {least}, the benchmark's target: no complete run was measured.")


def _entry_figure(path: Path, record: Mapping[str, Any], where: str) -> dict[str, object]:
    if (latency_ms := number(record, "latency", where)) is not None:
        return {"quantity": "latency_s", "value": latency_ms / 1e3, "batch": 1.0, "note": "one sample at a time"}
    hours, reached = _reached(_log(path, record))
    price = number(record, "costPerHour", where)
    cost = "" if price is None else f"; {price:g} USD/h, {price * hours:.2f} USD"
    return {"quantity": "run_s", "value": hours * 3600, "note": f"{reached}{cost}"}


def read_dawnbench(path: Path) -> tuple[Sequence[Mapping[str, Any]], Sequence[str]]:
    """Read an entry: one row, run_s to the benchmark's quality, or latency_s."""
    rows, where = [], str(path)
    for record in read_objects(path):
        framework = text(record, "framework", where)
        named = _VERSION.match(framework)
        version, author = text(record, "version", where), text(record, "author", where)
        rows.append(
            {
                "model": text(record, "model", where, needed=True),
                "machine": text(record, "hardware", where, needed=True),
                **_entry_figure(path, record, where),
                "basis": "measured",
                "party": "published",
                "framework": named[1] if named else framework,
                "framework_version": named[2] if named else "",
                "date": text(record, "timestamp", where),
                "source": f"DAWNBench {version}, {author}, {path.name}",
            }
        )
    return rows, ()


MARK = ":::MLLOG"
_WHO = ("submission_org", "submission_division")
_FACTS = ("submission_benchmark", "submission_platform", *_WHO, "global_batch_size")


def recognise_mllog(path: Path) -> bool:
    """Return whether a file has a line of an MLPerf log."""
    return f"{MARK} {{".encode() in read_bytes(path)


def _events(path: Path) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield place, key and content of each event; launchers put a rank before the mark."""
    for place, line in enumerate(read_json_text(path, MAX_BYTE).splitlines(), 1):
        _, mark, content = line.partition(MARK)
        if not mark:
            continue
        where = f"{path}:{place}"
        event = parse_json(content.strip(), where)
        if not isinstance(event, dict) or not isinstance(event.get("key"), str):
            raise FomkitError(where, "is an MLLOG line without an event. Expected an object {…} with a key.")
        yield where, event["key"], event


def _time_s(event: Mapping[str, Any], where: str) -> float:
    value = event.get("time_ms")
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e14:
        raise FomkitError(where, f"time_ms is {str(value)[:40]!r}. Expected milliseconds since 1970.")
    return value / 1e3


def _stopped(path: Path) -> tuple[dict[str, Any], list[tuple[str, float, float, str, Any]]]:
    """Return the facts of a log and its runs: place, start [s], end [s], status, last accuracy."""
    facts: dict[str, Any] = {}
    runs: list[tuple[str, float, float, str, Any]] = []
    start: tuple[str, float] | None = None
    accuracy: Any = None
    for where, key, event in _events(path):
        if key in _FACTS:
            facts.setdefault(key, event.get("value"))
        elif key == "eval_accuracy":
            value = event.get("value")
            accuracy = value if isinstance(value, float) else None
        elif key == "run_start":
            if start is not None:
                raise FomkitError(where, f"a run starts before that of {start[0]} has ended. Split the log.")
            start, accuracy = (where, _time_s(event, where)), None
        elif key == "run_stop":
            if start is None:
                raise FomkitError(where, "a run ends that has not started. Use the complete log.")
            if (end := _time_s(event, where)) <= start[1]:
                raise FomkitError(where, f"a run ends before it starts in {start[0]}. Check the clock.")
            metadata = event.get("metadata")
            status = metadata.get("status", "not stated") if isinstance(metadata, dict) else "not stated"
            runs.append((start[0], start[1], end, printable(str(status)[:40]), accuracy))
            start = None
    return facts, runs


def read_mllog(path: Path) -> tuple[Sequence[Mapping[str, Any]], Sequence[str]]:
    """Read a log: one row of run_s for each run that succeeded, and a message for each other run."""
    facts, runs = _stopped(path)
    failed = [(where, status) for where, _, _, status, _ in runs if status != "success"]
    messages = [f"{where}: the run is left out, its status is {status}" for where, status in failed]
    if len(messages) == len(runs):
        raise FomkitError(str(path), f"no run in it succeeded ({len(runs)} ended). Only successful runs are read.")
    batch = facts.get("global_batch_size")
    whole = isinstance(batch, int) and not isinstance(batch, bool) and 1 <= batch <= 1e15
    submitter = "".join(f", {text(facts, key, str(path))}" for key in _WHO if facts.get(key))
    rows = [
        {
            "model": text(facts, "submission_benchmark", str(path), needed=True),
            "machine": text(facts, "submission_platform", str(path), needed=True),
            "quantity": "run_s",
            "value": end - start,
            "batch": float(batch) if whole and batch else None,
            "scope": "system",
            "basis": "measured",
            "date": datetime.fromtimestamp(start, UTC).date().isoformat(),
            "source": f"MLPerf log {path.name}:{where.rpartition(':')[2]}{submitter}",
            "note": "" if accuracy is None else f"eval_accuracy {accuracy:g}",
        }
        for where, start, end, status, accuracy in runs
        if status == "success"
    ]
    return rows, messages


@dataclass(frozen=True)
class Format:
    """A foreign format: its title, how it is recognised and read, and what its files become.

    `read`: called with the path; for a model also with its step's named sizes, for a machine as ``takes`` says.
    `takes`: "device": the name of a device, if a file has several; "run": ranks and nodes, which the file may
      lack.
    `product`, `also`: what the file becomes, and what else it can become on request.
    """

    title: str
    recognise: Callable[[Path], bool]
    read: Callable[..., Any]
    takes: Literal["", "device", "run"] = ""
    product: str = "machine"
    also: str = ""

    def makes(self, product: str | None) -> bool:
        """Return whether the format can become a product; ``None`` is any."""
        return product in (None, self.product, self.also)


_OF_BENCHMARKER = partial(names_keys, needed=("problem", "framework", "device"))
_OF_DAWNBENCH = partial(names_keys, needed=("author", "framework", "hardware", "model"))
_RECORD = partial(Format, product="measurements")
IMPORTERS: Mapping[str, Format] = {
    "benchmarker": _RECORD("record of the modular benchmarker (.json)", _OF_BENCHMARKER, read_benchmarker),
    "dawnbench": _RECORD("DAWNBench entry (.json, its .tsv beside it)", _OF_DAWNBENCH, read_dawnbench),
    "mllog": _RECORD("MLPerf training log (lines :::MLLOG)", recognise_mllog, read_mllog),
}

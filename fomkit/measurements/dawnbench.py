"""DAWNBench entries: the time to a quality from the log beside the JSON, or the latency of one sample.

Format: stanford-futuredata/dawn-bench-entries, README. Costs, which are prices, stay in the note.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fomkit.errors import FomkitError
from fomkit.measurements.strict_json import names_keys, number, read_objects, read_text, text
from fomkit.tables.opening import check_beside

QUALITY: Mapping[str, float] = {"f1Score": 0.73, "top5Accuracy": 93.0, "top1Accuracy": 94.0}
"""Quality that a run must reach, by the first of these columns that its log has: SQuAD, ImageNet, CIFAR10."""

_VERSION = re.compile(r"^(.*?)[ -]v?(\d[\w.+]*)$")


def recognise_dawnbench(path: Path) -> bool:
    """Tell whether a file is JSON with the fields of a DAWNBench entry."""
    return names_keys(path, ("author", "framework", "hardware", "model"))


def _log(path: Path, record: Mapping[str, Any]) -> Path:
    """Find the log beside an entry, by the name it states or by its own; addresses elsewhere are not fetched."""
    stated = record.get("logFilename")
    names = [Path(stated).name] if isinstance(stated, str) and stated.endswith(".tsv") else []
    for name in (*names, f"{path.stem}.tsv"):
        if (path.parent / name).is_file():
            check_beside(path.parent / name, path)
            return path.parent / name
    raise FomkitError(
        str(path),
        f"states no latency, and its log {path.stem}.tsv is not beside it. Put it there: the time stands in it.",
    )


def _reached(log: Path) -> tuple[float, str]:
    """Give the hours [h] to the quality, and what was reached in which epoch."""
    lines = [(place, line.split()) for place, line in enumerate(read_text(log).splitlines(), 1) if line.strip()]
    header = lines[0][1] if lines else []
    quality = next((name for name in QUALITY if name in header), None)
    if quality is None or not {"epoch", "hours"} <= set(header):
        columns = " or ".join(QUALITY)
        raise FomkitError(f"{log}:1", f"is no DAWNBench log. Expected the columns epoch, hours, {columns}.")
    for place, cells in lines[1:]:
        if len(cells) != len(header):
            raise FomkitError(f"{log}:{place}", f"has {len(cells)} cells where the header has {len(header)}.")
        try:
            row = {name: float(cell) for name, cell in zip(header, cells, strict=True)}
        except ValueError as error:
            raise FomkitError(f"{log}:{place}", f"holds what is no number ({error}). Correct it.") from error
        if row[quality] >= QUALITY[quality]:
            hours = number(row, "hours", f"{log}:{place}")
            return hours or 0.0, f"{quality} {row[quality]:g} in epoch {row['epoch']:g}"
    least = f"{quality} {QUALITY[quality]:g}"
    raise FomkitError(str(log), f"never reaches {least}, the benchmark's quality: no run to it was measured.")


def _figure(path: Path, record: Mapping[str, Any], where: str) -> dict[str, Any]:
    latency_ms = number(record, "latency", where)
    if latency_ms is not None:
        return {"quantity": "latency_s", "value": latency_ms / 1e3, "batch": 1.0, "note": "one sample at a time"}
    hours, reached = _reached(_log(path, record))
    price = number(record, "costPerHour", where)
    cost = "" if price is None else f"; {price:g} USD/h, {price * hours:.2f} USD"
    return {"quantity": "run_s", "value": hours * 3600, "note": f"{reached}{cost}"}


def read_dawnbench(path: Path) -> tuple[Sequence[Mapping[str, Any]], Sequence[str]]:
    """Read an entry: one row, run_s to the benchmark's quality, or latency_s.

    Raises
    ------
    FomkitError
        When a field is not what it should be, the log is absent or broken, or the quality is never reached.
    """
    rows = []
    for record in read_objects(path):
        where = str(path)
        framework = text(record, "framework", where)
        named = _VERSION.match(framework)
        version, author = text(record, "version", where), text(record, "author", where)
        rows.append(
            {
                "model": text(record, "model", where, needed=True),
                "machine": text(record, "hardware", where, needed=True),
                **_figure(path, record, where),
                "basis": "measured",
                "party": "published",
                "framework": named[1] if named else framework,
                "framework_version": named[2] if named else "",
                "date": text(record, "timestamp", where),
                "source": f"DAWNBench {version}, {author}, {path.name}",
            }
        )
    return rows, ()

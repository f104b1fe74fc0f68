"""Read NeuSight's labels (measured times of calls and passes, with published predictions) and its op graphs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fomkit.core.errors import FomkitError
from fomkit.files.csv import read_rows
from fomkit.readers.tables.foreign import read_columns

PEERS: Mapping[str, str] = {
    "roofline": "pred_roofline", "Habitat": "pred_habitat", "Micro": "pred_micro", "NeuSight": "pred_neusight",
}  # fmt: skip
"""Published predictors to the prefixes of their columns."""
MODES: Mapping[str, str] = {"inf": "inference", "train": "training"}
CALLS_WITHOUT_KERNEL = ("size", "getattr")
"""Calls that start no kernel: their label is the time of the harness."""
_LABELS: Mapping[str, str] = {"fw": "fw_ms", "bw": "bw_ms", "acc": "acc_ms"}
_PASSES: Mapping[str, str] = {"forward": "fw", "backward": "bw"}
_MS = 1e-3


def read_whole_models(path: Path) -> pd.DataFrame:
    """Read the labels of whole passes.

    Returns one row per device, model, mode, sequence, batch and option: ``device, graph, mode, option, flag``,
    the measured ``forward`` and ``backward`` [s], and the predictions of each peer as ``NAME forward``,
    ``NAME backward``. Inference has no backward time.
    """
    predicted = [f"{start}_{word}" for start in PEERS.values() for word in _PASSES.values()]
    measured = [f"measured_{word}_ms" for word in _PASSES.values()]
    texts = ("device", "model", "mode", "option", "flag")
    table = read_columns(
        path, texts, ("batch", "seq", *measured, *predicted), optional=("option", "flag", *predicted)
    )
    seq, batch = (table[name].map("{:.0f}".format) for name in ("seq", "batch"))
    found = table[["device"]].assign(
        graph=table["model"] + "-" + table["mode"] + "-" + seq + "-" + batch,
        mode=table["mode"].map(lambda word: MODES.get(word, word)),
    )
    for name in ("option", "flag"):
        found[name] = table[name] if name in table.columns else ""
    training = table["mode"] == "train"
    for name, word in _PASSES.items():
        known = training if name == "backward" else table["mode"] != ""
        found[name] = table[f"measured_{word}_ms"].mul(_MS).where(known, np.nan)
        for peer, start in PEERS.items():
            if f"{start}_{word}" in table.columns:
                found[f"{peer} {name}"] = table[f"{start}_{word}"].mul(_MS).where(known, np.nan)
    return found


def read_single_calls(path: Path) -> pd.DataFrame:
    """Read the labels of single calls, less the time of their harness.

    The harness time is the median label of calls that start no kernel on the same device, 6 to 12 µs.

    Returns the columns ``device, graph, call, class, count, label, seconds, harness_s, flag``; calls without a
    time are left out.
    """
    texts = ("device", "graph", "name", "opname", "flag")
    table = read_columns(path, texts, ("count", *_LABELS.values()), optional=("flag",))
    table = table.assign(flag=table["flag"] if "flag" in table.columns else "")
    idle = table["name"].str.startswith(CALLS_WITHOUT_KERNEL) & (table["opname"] == "misc") & (table["fw_ms"] > 0)
    harness_s = table["device"].map(table[idle].groupby("device")["fw_ms"].median()) * _MS
    common = table[["device", "graph", "count", "flag"]].assign(
        call=table["name"], **{"class": table["opname"]}, harness_s=harness_s
    )
    parts = [common.assign(label=label, seconds=table[name] * _MS) for label, name in _LABELS.items()]
    found = pd.concat(parts, ignore_index=True)
    found = found[found["seconds"] > 0].reset_index(drop=True)
    return found.assign(seconds=found["seconds"] - found["harness_s"])


MIN_HARNESS_MULTIPLE = 3.0
"""A call is scored if its label less the harness is at least this multiple of the harness for each op it starts.
Shorter labels are mostly harness: the host's work for an op that adds a thousand numbers shows as 12 to 18 us."""
LONG_HARNESS_MULTIPLE = 50.0
"""A call is long from this multiple of its harness time on. A call alone waits for its own host, for several times
its harness; a step hides that wait."""
COVERAGE = 0.9
"""Share of a pass's time in long calls from which the sum of its calls is used."""


def whole_over_calls(whole: pd.DataFrame, calls: pd.DataFrame) -> dict[str, NDArray[np.float64]]:
    """Return ln(time of a whole pass / the sum of its calls, each timed by itself), by device.

    `whole`, `calls`: as read by `read_whole_models` and `read_single_calls`; doubtful labels, and passes with a
    large share of short calls, are left out.
    """
    words = {"fw": "forward", "bw": "backward", "acc": "backward"}
    spent = calls["seconds"].clip(lower=0.0) * calls["count"]
    seen = (calls["flag"] == "") & (calls["seconds"] >= LONG_HARNESS_MULTIPLE * calls["harness_s"])
    keys = [calls["device"], calls["graph"], calls["label"].map(words)]
    sums = pd.DataFrame({"all": spent, "seen": spent.where(seen, 0.0)}).groupby(keys).sum()
    found: dict[str, list[float]] = {}
    for row in whole[(whole["option"] == "") & (whole["flag"] == "")].to_dict("records"):
        for name in dict.fromkeys(words.values()):
            total = sums["all"].get((row["device"], row["graph"], name), 0.0)
            if row[name] > 0 and total > 0 and sums["seen"][row["device"], row["graph"], name] >= COVERAGE * total:
                found.setdefault(row["device"], []).append(float(np.log(row[name] / total)))
    return {device: np.array(ratios) for device, ratios in found.items()}


Shape = tuple[int, ...]
Called = tuple[tuple[str, Any], ...]
"""Op names of a graph with their sizes: ``("Linear", [rows, in, out])``, ``("MEM", [shape, …])``."""
COLUMNS = ("graph", "name", "opname", "count", "fw_ops", "bw_ops", "acc_ops", "in_shapes", "out_shape")


class GraphRow(NamedTuple):
    """One call of a model.

    `name`: name of the call in the traced model; calls of one function differ in their last number.
    `opname`: NeuSight's class of the call; ``misc`` are calls that NeuSight treats as free.
    `runs`: number of executions: layers of one shape are listed once.
    `forward`, `backward`, `accumulate`: ops of the call in each pass.
    `before`: name of the preceding call, "" for the first.
    """

    name: str
    opname: str
    runs: float
    forward: Called
    backward: Called
    accumulate: Called
    inputs: tuple[Shape, ...]
    output: Shape
    before: str

    @property
    def function(self) -> str:
        """The name without its running number: ``transpose`` of ``transpose_3``, ``masked_fill_`` unchanged."""
        stem, _, number = self.name.rpartition("_")
        return stem if stem and number.isdigit() else self.name

    @property
    def numel(self) -> int:
        """Elements of the output."""
        return prod(self.output)


def _shape(content: Any) -> Shape:
    """Return a shape; of several results the first, which has the size."""
    while content and isinstance(content[0], list):
        content = content[0]
    return tuple(int(size) for size in content)


def _called(text: str) -> Called:
    return tuple((str(word), sizes) for word, sizes in json.loads(text))


def _row(cells: dict[str, str], before: str) -> GraphRow:
    return GraphRow(
        name=cells["name"],
        opname=cells["opname"],
        runs=float(cells["count"]),
        forward=_called(cells["fw_ops"]),
        backward=_called(cells["bw_ops"]),
        accumulate=_called(cells["acc_ops"]),
        inputs=tuple(_shape(shape) for shape in json.loads(cells["in_shapes"])),
        output=_shape(json.loads(cells["out_shape"])),
        before=before,
    )


def read_graphs(path: Path) -> Iterator[tuple[str, GraphRow]]:
    """Read op graphs, gzipped or not; yield the name of the graph with each of its rows, in order."""
    lines = read_rows(path)
    _, header = next(lines, (1, []))
    if missing := [name for name in COLUMNS if name not in header]:
        raise FomkitError(f"{path}:1", f"has no column {', '.join(missing)}. Expected NeuSight's opgraphs.csv.")
    last = ("", "")
    for line, row in lines:
        cells = dict(zip(header, row, strict=True))
        graph = cells["graph"]
        try:
            found = _row(cells, last[1] if last[0] == graph else "")
        except (ValueError, TypeError, IndexError) as error:
            raise FomkitError(f"{path}:{line}", f"is not an op's row ({error}). Check the file.") from error
        last = (graph, found.name)
        yield graph, found

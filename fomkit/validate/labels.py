"""NeuSight's labels: measured times of calls and of passes, and what four published predictors said of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fomkit.timings.foreign_table import read_columns

if TYPE_CHECKING:
    import pandas as pd

PEERS: Mapping[str, str] = {
    "roofline": "pred_roofline", "Habitat": "pred_habitat", "Micro": "pred_micro", "NeuSight": "pred_neusight",
}  # fmt: skip
"""Published predictors to the beginning of their columns."""
MODES: Mapping[str, str] = {"inf": "inference", "train": "training"}
IDLE = ("size", "getattr")
"""Calls that start no kernel: what a label says of them is its harness."""
_LABELS: Mapping[str, str] = {"fw": "fw_ms", "bw": "bw_ms", "acc": "acc_ms"}
_PASSES: Mapping[str, str] = {"forward": "fw", "backward": "bw"}
_MS = 1e-3


def _graph(table: pd.DataFrame) -> pd.Series:
    """Name the op graph of each label: model, mode, sequence and batch."""
    seq, batch = (table[name].map("{:.0f}".format) for name in ("seq", "batch"))
    return table["model"] + "-" + table["mode"] + "-" + seq + "-" + batch


def read_whole_models(path: Path) -> pd.DataFrame:
    """Read the labels of whole passes.

    Returns
    -------
    DataFrame
        One row per device, model, mode, sequence, batch and option: ``device, graph, mode, option, flag``, the
        measured ``forward`` and ``backward`` [s], and what each peer said of them as ``NAME forward``,
        ``NAME backward``. Inference has no backward time.

    Raises
    ------
    FomkitError
        With file and line, when a column is missing or a cell is no number.
    """
    said = [f"{start}_{word}" for start in PEERS.values() for word in _PASSES.values()]
    measured = [f"measured_{word}_ms" for word in _PASSES.values()]
    texts = ("device", "model", "mode", "option", "flag")
    table = read_columns(path, texts, ("batch", "seq", *measured, *said), optional=("option", "flag", *said))
    found = table[["device"]].assign(
        graph=_graph(table), mode=table["mode"].map(lambda word: MODES.get(word, word))
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
    """Read the labels of single calls, less what their harness adds.

    The harness is the median label of calls that start no kernel on the same device, 6 to 12 µs.

    Returns
    -------
    DataFrame
        ``device, graph, call, class, count, label, seconds, harness_s, flag``; calls without a time are left out.

    Raises
    ------
    FomkitError
        With file and line, when a column is missing or a cell is no number.
    """
    import pandas as pd

    texts = ("device", "graph", "name", "opname", "flag")
    table = read_columns(path, texts, ("count", *_LABELS.values()), optional=("flag",))
    table = table.assign(flag=table["flag"] if "flag" in table.columns else "")
    idle = table["name"].str.startswith(IDLE) & (table["opname"] == "misc") & (table["fw_ms"] > 0)
    harness_s = table["device"].map(table[idle].groupby("device")["fw_ms"].median()) * _MS
    common = table[["device", "graph", "count", "flag"]].assign(
        call=table["name"], **{"class": table["opname"]}, harness_s=harness_s
    )
    parts = [common.assign(label=label, seconds=table[name] * _MS) for label, name in _LABELS.items()]
    found = pd.concat(parts, ignore_index=True)
    found = found[found["seconds"] > 0].reset_index(drop=True)
    return found.assign(seconds=found["seconds"] - found["harness_s"])

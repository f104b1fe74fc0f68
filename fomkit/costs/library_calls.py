"""Recurrent layers as the calls that tables of timings know: recurrences alone, and products with the input."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from fomkit.costs.pricing import add_costs
from fomkit.costs.recurrent import GATES
from fomkit.schema import COSTS, TIMES, column_names

_HALVES: Mapping[str, tuple[str, ...]] = {"backward": ("backward_input", "backward_weight")}


def _product(row: Mapping[str, Any], half: str, features: float) -> dict[str, Any]:
    """Size the product of all steps with the input of one layer and direction, as row-major storage has it."""
    tokens, gates = row["batch"] * row["steps"], GATES[row["cell"]] * row["hidden_size"]
    m, n, k, trans_a, trans_b = {
        "forward": (tokens, gates, features, 0.0, 1.0),
        "backward_input": (tokens, features, gates, 0.0, 0.0),
        "backward_weight": (gates, features, tokens, 1.0, 0.0),
    }[half]
    sizes = {"b": 1.0, "m": m, "n": n, "k": k, "trans_a": trans_a, "trans_b": trans_b}
    return {"op": f"{row['op']} input product", "kind": "gemm", **sizes}


def _calls(row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    place = {name: row[name] for name in ("op", "dtype", "engine", "module", "code_line") if name in row}
    layers, directions = row["layers"], row["directions"]
    inner = row["hidden_size"] * directions
    alone = {"input_size": 0.0, "layers": 1.0, "directions": 1.0}
    sizes = {name: row[name] for name in ("cell", "batch", "steps", "hidden_size")}
    for half in _HALVES.get(row["pass_name"], (row["pass_name"],)):
        shared = {**place, "pass_name": half}
        yield {**shared, "kind": "rnn", **sizes, **alone, "count": layers * directions}
        for features, count in ((row["input_size"], directions), (inner, (layers - 1) * directions)):
            if features and count:
                yield {**shared, **_product(row, half, features), "count": count}


def split_recurrent(ops: pd.DataFrame) -> pd.DataFrame:
    """Split recurrent rows into calls, with their costs.

    Published tables time the recurrence of one layer and direction without its input product. A layer is as many
    recurrences as it has layers and directions, and one product of all steps with the input for each of them.

    Parameters
    ----------
    ops : DataFrame
        An OPS table, with or without costs.

    Returns
    -------
    DataFrame
        COSTED rows with the column ``of``, the position of their op in ``ops``; ``count`` is per execution of that
        op. The flop of the calls add up to the op's. Empty where there is no recurrent row of a known cell and
        pass.
    """
    found = []
    recurrent = np.flatnonzero(ops["kind"] == "rnn")
    for position, record in zip(recurrent.tolist(), ops.iloc[recurrent].to_dict("records"), strict=True):
        row = {str(name): value for name, value in record.items()}
        passes = ("forward", "backward", "backward_input", "backward_weight")
        if row["cell"] in GATES and row["pass_name"] in passes:
            found += [{**call, "of": float(position)} for call in _calls(row)]
    later = {column.name for column in (*COSTS, *TIMES)}
    names = [name for name in ops.columns if name not in later]
    if not found:
        return (
            ops[names].iloc[:0].assign(**{column.name: np.empty(0) for column in COSTS}, of=np.empty(0, np.int64))
        )
    calls = pd.DataFrame(found, columns=[*dict.fromkeys([*names, *_GEMM_COLUMNS]), "of"])
    calls = calls.astype({name: "float64" for name in column_names("OPS", "number") if name in calls.columns})
    costed = add_costs(calls.drop(columns="of"))
    return costed.assign(of=calls["of"].astype("int64"))


_GEMM_COLUMNS = ("b", "m", "n", "k", "trans_a", "trans_b")

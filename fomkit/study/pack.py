"""The ops of an estimate that its time stands on, as a table for somebody else to time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fomkit.errors import FomkitError
from fomkit.schema import KIND_DIMENSIONS, OPTIONAL_DIMENSIONS, column_names
from fomkit.study.estimate import Estimate

if TYPE_CHECKING:
    import pandas as pd

DOMINANT = 0.95
"""Share of the predicted time that the ops of a pack carry, as the lecture cuts its table."""
_PASS_FREE = ("gemm", "sparse_gemm")


def _key_columns() -> list[str]:
    dimensions = {name for names in (*KIND_DIMENSIONS.values(), *OPTIONAL_DIMENSIONS.values()) for name in names}
    return [
        name for name in column_names("TIMINGS") if name in {"kind", "dtype", "engine", "pass_name", *dimensions}
    ]


def dominant_ops(estimates: Sequence[Estimate], share: float = DOMINANT) -> pd.DataFrame:
    """Give the distinct ops that carry most of the predicted time of some estimates.

    Parameters
    ----------
    estimates : sequence of Estimate
        Of one machine; each counts by its own step, so that a short one is not lost beside a long one.
    share : float
        Share of each step's predicted time that the ops carry, the longest first.

    Returns
    -------
    DataFrame
        A TIMINGS table without times; ``note`` names the models and the share of their steps.

    Raises
    ------
    FomkitError
        When nothing has a time.
    """
    import pandas as pd

    keys, found = _key_columns(), []
    for one in estimates:
        timed = one.ops[one.ops["time_s"].notna()]
        rows = timed.reindex(columns=keys).assign(seconds=timed["time_s"] * timed["count"], model=one.model.name)
        rows.loc[rows["kind"].isin(_PASS_FREE), "pass_name"] = ""
        total = rows["seconds"].sum()
        grouped = rows.groupby(keys, dropna=False, sort=False)["seconds"].sum().sort_values(ascending=False)
        before = (grouped.cumsum() - grouped) / total
        chosen = grouped[before < share].reset_index()
        found.append(chosen.assign(note=[f"{one.model.name} {part:.1%}" for part in chosen["seconds"] / total]))
    if not any(map(len, found)):
        raise FomkitError("pack", "no op has a time, so none can be asked for. Choose another target.")
    together = pd.concat(found).groupby(keys, dropna=False, sort=False)
    table = together.agg(note=("note", "; ".join), seconds=("seconds", "max")).reset_index()
    table = table.sort_values("seconds", ascending=False, kind="stable").drop(columns="seconds")
    return table.reindex(columns=column_names("TIMINGS")).reset_index(drop=True)


_TO_FILL = ("time_s", "p25_s", "p75_s", "repeats", "harness", "library", "library_version", "note")
_PAGE = """The {count} ops of cases.csv carry {share:.0%} of the predicted step time of {models}.
Please time exactly these, and send the table back with its columns as they are.

Where PyTorch runs on the machine:

    python time_ops.py cases.csv -o timed.csv

times each op, checks its result against double precision, and writes timed.csv with the device, clocks and
software in the column note. It needs nothing but Python and PyTorch. --device cpu|cuda and --threads choose
where; ops that it cannot make are named and left out.

From a simulator, fill time_s (seconds for one execution, fixed costs of the harness taken off) and, where
known, p25_s and p75_s (quartiles), repeats, harness (the simulator), library and library_version, and delete
the rows without a time.

What comes back becomes a machine profile with:

    fomkit import timed.csv --facts facts.yaml -o machine.yaml

where facts.yaml is a machine profile without timings, for example

    schema: fomkit/machine/1
    name: machine
    party: vendor
    device:
      peak:
        - {{dtype: fp32, engine: vector, rate: 15 TFLOP/s, source: "datasheet, 2026"}}
      memory: {{capacity: 16 GiB, bandwidth: 900 GB/s, source: "datasheet, 2026"}}
"""


def pack_files(estimates: Sequence[Estimate]) -> dict[str, str]:
    """Give the files of a pack, by name: the table to fill, the script that fills it, and what to do with both.

    Raises
    ------
    FomkitError
        When nothing has a time.
    """
    from fomkit.tables import format_as_given
    from fomkit.timings.measure_pack import script_text

    table = dominant_ops(estimates)
    sized = [
        name for name in _key_columns() if name in table and (table[name].notna() & (table[name] != "")).any()
    ]
    models = ", ".join(dict.fromkeys(one.model.name for one in estimates))
    return {
        "cases.csv": format_as_given(table[[*sized, *_TO_FILL]], "TIMINGS"),
        "time_ops.py": script_text(),
        "README.txt": _PAGE.format(count=len(table), share=DOMINANT, models=models),
    }

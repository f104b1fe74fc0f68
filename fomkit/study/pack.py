"""The ops of an estimate that its time stands on, as a table for somebody else to time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fomkit.errors import FomkitError
from fomkit.schema import KIND_DIMENSIONS, OPTIONAL_DIMENSIONS, column_names
from fomkit.study.estimate import Estimate
from fomkit.timings.measure_cases import CannotTimeError
from fomkit.timings.measure_makers import check_case, knows_op

if TYPE_CHECKING:
    import pandas as pd

DOMINANT = 0.95
"""Share of the predicted time that the ops of a pack carry, as the lecture cuts its table."""
_PASS_FREE = ("gemm", "sparse_gemm")


@dataclass(frozen=True)
class Pack:
    """What somebody is asked to time.

    Attributes
    ----------
    files : dict
        Texts by file name: the table to fill, the script that fills it, and what to do with both.
    asked, timed : dict
        Share of each model's predicted step time that the table carries, and that the script can time.
    lines : tuple of str
        The same in words, and what the script cannot time and why.
    """

    files: dict[str, str]
    asked: dict[str, float]
    timed: dict[str, float]
    lines: tuple[str, ...]


def _key_columns() -> list[str]:
    dimensions = {name for names in (*KIND_DIMENSIONS.values(), *OPTIONAL_DIMENSIONS.values()) for name in names}
    identity = {"kind", "op", "dtype", "engine", "pass_name", *dimensions}
    return [name for name in column_names("TIMINGS") if name in identity]


def _keyed(ops: pd.DataFrame) -> pd.DataFrame:
    """Give what makes ops themselves: a name only where the script makes the op by it, a pass where it matters."""
    import pandas as pd

    rows = ops.reindex(columns=_key_columns())
    named = [knows_op(cells) for cells in _cells(rows)]
    rows = rows.assign(op=rows["op"].where(pd.Series(named, rows.index), ""))
    return rows.assign(pass_name=rows["pass_name"].mask(rows["kind"].isin(_PASS_FREE), ""))


def _cells(rows: pd.DataFrame) -> list[dict[str, str]]:
    """Write rows as the script reads them from the table."""
    names = [str(name) for name in rows.columns]
    columns = [[_cell(value) for value in rows[name].tolist()] for name in names]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _cell(value: object) -> str:
    if value is None or value != value:
        return ""
    return value if isinstance(value, str) else f"{float(str(value)):.17g}"


def _refusals(rows: pd.DataFrame) -> list[str]:
    """Say why the script cannot time a row, in the row's place; "" where it can."""
    found = []
    for cells in _cells(rows):
        try:
            check_case(cells)
            found.append("")
        except CannotTimeError as reason:
            found.append(str(reason))
    return found


def _together(shares: Iterable[Mapping[str, float]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for each in shares:
        for model, share in each.items():
            found[model] = found.get(model, 0.0) + share
    return found


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
        A TIMINGS table without times; ``note`` names the models and the share of their steps, ``shares`` (model to
        share) gives them as numbers.

    Raises
    ------
    FomkitError
        When nothing has a time.
    """
    import pandas as pd

    keys, found = _key_columns(), []
    for one in estimates:
        timed = one.ops[one.ops["time_s"].notna()]
        rows = _keyed(timed).assign(seconds=timed["time_s"] * timed["count"])
        total = rows["seconds"].sum()
        grouped = rows.groupby(keys, dropna=False, sort=False)["seconds"].sum().sort_values(ascending=False)
        before = (grouped.cumsum() - grouped) / total
        chosen = grouped[before < share].reset_index()
        parts, model = (chosen["seconds"] / total).tolist(), one.model.name
        notes = [f"{model} {part:.1%}" for part in parts]
        shares = pd.Series([{model: part} for part in parts], chosen.index, dtype=object)
        found.append(chosen.assign(note=notes, shares=shares))
    if not any(map(len, found)):
        raise FomkitError("pack", "no op has a time, so none can be asked for. Choose another target.")
    together = pd.concat(found).groupby(keys, dropna=False, sort=False)
    table = together.agg(
        note=("note", "; ".join), seconds=("seconds", "max"), shares=("shares", _together)
    ).reset_index()
    table = table.sort_values("seconds", ascending=False, kind="stable").drop(columns="seconds")
    return table.reindex(columns=[*column_names("TIMINGS"), "shares"]).reset_index(drop=True)


_TO_FILL = ("time_s", "p25_s", "p75_s", "repeats", "harness", "library", "library_version", "note")
_PAGE = """The {count} ops of cases.csv carry most of the predicted step time of {models}.
Please time exactly these, and send the table back with its columns as they are.

{shares}

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


def _lines(table: pd.DataFrame, asked: Mapping[str, float], timed: Mapping[str, float]) -> tuple[str, ...]:
    carried = "cases.csv carries {:.1%} of the predicted step time, time_ops.py can time {:.1%}"
    found = [f"{model}: {carried.format(share, timed[model])}" for model, share in asked.items()]
    for (kind, dtype, why), rows in table[table["refusal"] != ""].groupby(
        ["kind", "dtype", "refusal"], sort=False
    ):
        found.append(f"not by time_ops.py: {len(rows)} {kind} of {dtype}, {why} ({'; '.join(rows['note'])})")
    return tuple(found)


def make_pack(estimates: Sequence[Estimate]) -> Pack:
    """Make a pack of the ops that carry most of the predicted time of some estimates.

    Raises
    ------
    FomkitError
        When nothing has a time.
    """
    from fomkit.tables import format_as_given
    from fomkit.timings.measure_pack import script_text

    table = dominant_ops(estimates)
    table = table.assign(refusal=_refusals(table[_key_columns()]))
    asked, timed = ({one.model.name: 0.0 for one in estimates} for _ in range(2))
    for shares, refusal in zip(table["shares"], table["refusal"], strict=True):
        for model, share in shares.items():
            asked[model] += share
            timed[model] += 0.0 if refusal else share
    sized = [
        name for name in _key_columns() if name in table and (table[name].notna() & (table[name] != "")).any()
    ]
    lines = _lines(table, asked, timed)
    page = _PAGE.format(count=len(table), models=", ".join(asked), shares="\n".join(f"- {line}" for line in lines))
    files = {
        "cases.csv": format_as_given(table[[*sized, *_TO_FILL]], "TIMINGS"),
        "time_ops.py": script_text(),
        "README.txt": page,
    }
    return Pack(files, asked, timed, lines)

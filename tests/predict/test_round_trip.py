"""Every row of every shipped table, queried as it is stored, is predicted as measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import fomkit
from fomkit.cli.main import app
from fomkit.core.errors import FomkitError
from fomkit.core.machine import Machine
from fomkit.ops.kinds import KINDS
from fomkit.ops.tables import column_names
from fomkit.plan.estimate import estimate
from fomkit.plan.evidence import explain_ops
from fomkit.plan.op_tables import predict_ops
from fomkit.plan.options import Options
from fomkit.prediction import cascade
from fomkit.prediction.estimators import Answers
from fomkit.profiles.evidence import with_fits
from fomkit.profiles.locate import shipped_folder
from fomkit.profiles.machines import load_machine

_DIMENSIONS = [name for kind in KINDS.values() for name in kind.columns]
KEY = list(dict.fromkeys(["kind", "dtype", "engine", "pass_name", "op", *_DIMENSIONS]))
"""What of a timing can be asked."""

EXCEPTED: dict[str, int] = {}
"""Rows by machine that are no evidence (quarantined by name), and so do not come back."""

TIMED = sorted(
    path.stem
    for path in shipped_folder("machine_profiles").glob("*.yaml")
    if any(shipped_folder("machine_profiles").glob(f"{path.stem}.timings.csv*"))
)


def ops_of_timings(machine: Machine) -> pd.DataFrame:
    """Convert a table of timings to a table of ops, as a user would write it."""
    names = [name for name in column_names("OPS") if name in machine.timings.columns]
    return machine.timings[names].reset_index(drop=True)


def medians(timings: pd.DataFrame) -> np.ndarray:
    """Return for each row the median of the rows of its key, less the harness time [s]; measured rows first."""
    timings = timings.reset_index(drop=True)
    if "harness_s" in timings.columns:
        timings = timings.assign(time_s=timings["time_s"] - timings["harness_s"].fillna(0.0))
    basis = timings["basis"].fillna("") if "basis" in timings.columns else pd.Series("", timings.index)
    keys = [timings[name] for name in KEY if name in timings.columns]
    measured = timings["time_s"].where(basis.isin(["", "measured"]))
    found, stated = (
        column.groupby(keys, dropna=False).transform("median") for column in (measured, timings["time_s"])
    )
    return found.fillna(stated).to_numpy()


def comes_back(machine: Machine, answers: pd.DataFrame) -> np.ndarray:
    """Return which rows have the table's time as measured, or as assumed if the table's are not measured."""
    timings = machine.timings.reset_index(drop=True)
    basis = timings["basis"].fillna("") if "basis" in timings.columns else pd.Series("", timings.index)
    stated = ~basis.isin(["", "measured"]).to_numpy()
    source = answers["time_source"].to_numpy(object)
    same = np.isclose(answers["time_s"].to_numpy(float), medians(timings), rtol=1e-9, atol=0)
    return same & np.where(stated, np.isin(source, ["assumed", "measured"]), source == "measured")


def without_sentences(costed: pd.DataFrame, answers: Answers, first: np.ndarray) -> pd.DataFrame:
    """Add times only: writing a sentence of evidence for each of 140,000 rows would take as long again."""
    answers.evidence = lambda _place: ""
    return WITH_ANSWERS(costed, answers, first)


WITH_ANSWERS = cascade.with_answers


@pytest.mark.parametrize("name", TIMED)
def test_every_row_of_a_table_comes_back_as_it_was_measured(name: str, monkeypatch) -> None:
    monkeypatch.setattr(cascade, "with_answers", without_sentences)
    machine = load_machine(name)
    found = predict_ops(ops_of_timings(machine), with_fits(machine)).ops
    good = comes_back(machine, found)
    columns = [*KEY, "time_s", "time_source"]
    lost = found.loc[~good, found.columns.intersection(columns)].dropna(axis="columns", how="all")
    assert len(lost) == EXCEPTED.get(name, 0), lost.head(5).T.to_string()


def test_every_shipped_table_is_asked() -> None:
    tables = {path.name for path in shipped_folder("machine_profiles").glob("*.timings.csv*")}
    named = {table for table in tables if table.split(".")[0] in TIMED}
    assert named == tables
    assert len(TIMED) >= 21


@pytest.mark.parametrize("name", ["titan-x-pascal", "x86-lecture"])
def test_the_command_gives_the_same(name: str, tmp_path: Path) -> None:
    machine = load_machine(name)
    ops_of_timings(machine).to_csv(tmp_path / "ops.csv", index=False)
    command = [
        "predict",
        str(tmp_path / "ops.csv"),
        "--target",
        name,
        "-o",
        str(tmp_path / "timed.csv"),
        "--quiet",
    ]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert comes_back(machine, pd.read_csv(tmp_path / "timed.csv")).all()


def product(m: float, n: float, k: float, layout: str = "column_major", trans: tuple[float, float] = (0, 0)):
    return {"kind": "gemm", "dtype": "fp32", "m": m, "n": n, "k": k, "layout": layout,
            "trans_a": trans[0], "trans_b": trans[1]}  # fmt: skip


def test_a_blas_product_meets_its_own_row() -> None:
    """Figures of Baidu's sheet, which counts m and n as BLAS does [s]."""
    rows = [product(1760, 16, 1760), product(35, 8457, 2560)]
    found = fomkit.predict(pd.DataFrame(rows), "titan-x-pascal").ops
    assert found["time_s"].tolist() == pytest.approx([50e-6, 1422e-6])
    assert found["time_source"].tolist() == ["measured", "measured"]
    # What was asked stands as it was asked.
    assert found[["m", "n", "layout"]].values.tolist() == [[1760, 16, "column_major"], [35, 8457, "column_major"]]


@pytest.mark.parametrize("trans", [(0, 0), (1, 0), (0, 1)])
@pytest.mark.parametrize("size", [(1760, 16, 1760), (1700, 40, 900), (3e5, 3e5, 4)])
def test_column_major_is_the_turned_product_whatever_prices_it(size, trans) -> None:
    m, n, k = size
    rows = [product(m, n, k, trans=trans), product(n, m, k, "", trans[::-1])]
    found = fomkit.predict(pd.DataFrame(rows), "titan-x-pascal").ops
    columns = ["time_s", "low_s", "high_s", "time_source", "bound", "evidence", "flop", "byte"]
    assert found.loc[0, columns].tolist() == found.loc[1, columns].tolist()


def test_one_stated_transposition_is_turned_too() -> None:
    rows = [{**product(1760, 16, 1760), "trans_a": 1.0}, product(1760, 16, 1760, trans=(1, 0))]
    del rows[0]["trans_b"]
    alone = fomkit.predict(pd.DataFrame(rows[:1]), "titan-x-pascal").ops
    both = fomkit.predict(pd.DataFrame(rows[1:]), "titan-x-pascal").ops
    assert alone.at[0, "time_s"] == both.at[0, "time_s"]


def test_row_major_in_words_is_what_nothing_said_is() -> None:
    rows = [product(16, 1760, 1760, "row_major"), product(16, 1760, 1760, "")]
    found = fomkit.predict(pd.DataFrame(rows), "titan-x-pascal").ops
    assert found.at[0, "time_s"] == found.at[1, "time_s"] == pytest.approx(50e-6)


@pytest.mark.parametrize("word", ["column-major", "Column_Major", "nchw"])
def test_an_order_that_means_nothing_is_refused(word: str) -> None:
    rows = pd.DataFrame([product(16, 1760, 1760), product(16, 1760, 1760, word)])
    with pytest.raises(FomkitError, match=f"row 1: layout is '{word}'. Expected row_major or column_major"):
        fomkit.predict(rows, "titan-x-pascal")


@pytest.fixture(scope="module")
def turned():
    """A model of products in row-major order, and the same in column-major."""
    model = fomkit.model("p1b3")
    ops = model.ops
    products = ops["kind"] == "gemm"
    swapped = ops.rename(columns={"m": "n", "n": "m", "trans_a": "trans_b", "trans_b": "trans_a"})
    ops = ops.where(~products, swapped[ops.columns])
    layout = np.where(products, "column_major", ops["layout"] if "layout" in ops.columns else "")
    return model, replace(model, ops=ops.assign(layout=pd.array(layout, "str")))


def test_estimate_explain_and_advise_turn_products_too(turned) -> None:
    one, other = (fomkit.estimate(model, "titan-x-pascal") for model in turned)
    assert one.step == other.step
    machine = load_machine("titan-x-pascal")
    told = [explain_ops(estimate(model, machine, Options()))["ops"] for model in turned]
    assert [op["sizes"] for op in told[0]] == [op["sizes"] for op in told[1]]
    assert [op["nearest"] for op in told[0]] == [op["nearest"] for op in told[1]]
    assert any(op["nearest"] for op in told[0])


def test_sweeps_and_advice_turn_products_too(turned) -> None:
    swept = [fomkit.sweep(model, "v100", {"batch": [64, 100, 256]}).table["step_s"].tolist() for model in turned]
    assert swept[0] == swept[1]
    for precision in (None, "mixed"):
        told = [fomkit.advise(model, "v100", precision=precision).content["findings"] for model in turned]
        assert told[0] == told[1]

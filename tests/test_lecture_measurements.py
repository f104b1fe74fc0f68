"""The lecture's table of CANDLE times: every cell, with the estimated ones marked and kept apart."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from test_cli import fail

import fomkit
from fomkit.merit.measured_steps import measured_step, read_row
from fomkit.plan.estimate import estimate
from fomkit.plan.options import Options
from fomkit.profiles.locate import locate, profile_names
from fomkit.profiles.machines import load_machine
from fomkit.profiles.models import load_model
from fomkit.readers.measurements import read_measurements

ROWS = {(row.model, row.machine): row for row in read_measurements(locate("candle-lecture", "measurements"))}
BRACKETED = {("p1b1", "titan"): 38, ("uno", "titan"): 4041, ("combo", "titan"): 1177, ("p2b1", "titan"): 3783}
MACHINES = {"P100": "p100", "V100": "v100", "KNL": "knl-7250", "Titan": "titan", "A": "a", "B": "b"}


def test_every_cell_is_there_once_and_says_where_it_is_from() -> None:
    assert len(ROWS) == 49 == len(read_measurements(locate("candle-lecture", "measurements")))
    assert {machine for _, machine in ROWS} == set(MACHINES.values())
    assert len({model for model, _ in ROWS}) == 11
    for row in ROWS.values():
        assert row.quantity == "epoch_s"
        assert "lecture 10" in row.source
        assert row.note.startswith("printed ")
        assert row.batch == load_model(row.model).batch
        assert not row.spread_stated


def test_the_brackets_and_the_columns_a_and_b_are_estimated() -> None:
    estimated = {cell for cell, row in ROWS.items() if row.basis == "estimated"}
    assert {cell for cell in estimated if cell[1] not in "ab"} == set(BRACKETED)
    assert {cell for cell in ROWS if cell[1] in "ab"} < estimated
    assert {row.basis for cell, row in ROWS.items() if cell not in estimated} == {"measured"}
    assert {row.scope for cell, row in ROWS.items() if cell[1] in "ab"} == {"system"}
    assert {row.scope for cell, row in ROWS.items() if cell[1] not in "ab"} == {"device"}


@pytest.mark.parametrize("cell", BRACKETED)
def test_the_brackets_follow_from_two_measured_cells(cell: tuple[str, str]) -> None:
    model = cell[0]
    made = int((ROWS[model, "v100"].value * 3.97 + ROWS[model, "knl-7250"].value * 1.5) / 2)
    assert made == ROWS[cell].value == BRACKETED[cell]


def test_an_estimated_cell_is_never_taken_for_a_measurement_or_averaged_with_one() -> None:
    one = estimate(load_model("p2b1"), load_machine("titan"), Options(allow_uncovered=True))
    printed = read_row(ROWS["p2b1", "titan"], one)
    assert printed.step is None
    assert printed.message == "its basis is estimated, not measured"
    on_v100 = estimate(load_model("p2b1"), load_machine("v100"), Options())
    measured = read_row(ROWS["p2b1", "v100"], on_v100)
    assert measured.step is not None
    together, alone = measured_step([measured, printed]), measured_step([measured])
    assert together is not None
    assert alone is not None
    assert together.step == alone.step
    assert alone.step.value == pytest.approx(300 / 2850)


def test_they_are_found_by_name(tmp_path: Path) -> None:
    assert set(profile_names("measurements")) == {"candle-lecture", "candle-readmes"}
    others = read_measurements(locate("candle-readmes", "measurements"))
    assert {row.basis for row in others} == {"measured"}
    arguments = ("estimate", "p1b1", "-t", "v100", "--baseline", "titan", "--from", "candle-lecture")
    assert "its basis is estimated, not measured" in fail(*arguments, cwd=tmp_path)
    told = fail(*arguments[:-1], "candle-lectur", cwd=tmp_path)
    assert "no table of measurements of this name. The nearest name is 'candle-lecture'" in told


def test_they_are_packed_into_the_wheel(root: Path) -> None:
    text = (root / "pyproject.toml").read_text(encoding="utf-8")
    assert '"measurements" = "fomkit/shipped/measurements"' in text
    assert (Path(fomkit.__file__).parent.parent / "measurements" / "candle-lecture.csv").exists() or (
        Path(fomkit.__file__).parent / "shipped" / "measurements" / "candle-lecture.csv"
    ).exists()


def test_the_cells_are_those_of_the_shared_data(shared: Path) -> None:
    known = yaml.safe_load((shared / "data" / "candle_models.yaml").read_text(encoding="utf-8"))["benchmarks"]
    cells = {
        (one["name"].lower(), MACHINES[column]): cell
        for one in known
        for column, cell in one["seconds_per_epoch"].items()
        if cell is not None
    }
    assert {cell: row.value for cell, row in ROWS.items()} == {at: cell["seconds"] for at, cell in cells.items()}
    marked = {at for at, cell in cells.items() if cell["seconds_estimated"]}
    assert marked == set(BRACKETED)

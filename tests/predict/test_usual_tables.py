"""The files of typical utilisation: read completely, or refused with name and line, in any folder."""

from __future__ import annotations

import pickle
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from predict.machines import machine

import fomkit
from fomkit.core.errors import FomkitError
from fomkit.core.measurement import TypicalTables, chip_words, kind_of_work
from fomkit.prediction.gp import SURFACE_VARIANCE, surfaces
from fomkit.prediction.typical import FEATURES
from fomkit.profiles import evidence, locate
from fomkit.profiles.evidence import (
    ENGINES,
    GENERATIONS,
    OPS,
    SURFACES,
    load_typical_tables,
    shipped_typical_tables,
    without_implausible,
)
from fomkit.profiles.locate import shipped_folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(shipped_folder("machine_profiles") / evidence.FOLDER, tmp_path / "usual"))


def test_what_is_read_is_what_stands_there(folder: Path) -> None:
    (folder / SURFACES).write_text(
        ",".join(evidence.SURFACE_COLUMNS) + "\n"
        "1,gemm/vector,a,X Y Z,fp32,40,2,3.5,-0.25,0.5 2,-1 1,1 2 3 4 5 6 7 8\n"
        "2,norm/vector,b,X Y Z,fp16,1,1,,-0.5,4,,\n"
    )
    empty = "," * 8
    (folder / OPS).write_text(
        ",".join(evidence.OP_COLUMNS) + f"\n1,-7,100,200{empty}\n1,8,300,-400{empty}\n2,9,50,{empty}\n"
    )
    read = load_typical_tables(folder).of
    first, second = read["gemm/vector"], read["norm/vector"]
    assert (first.length.tolist(), second.length.tolist()) == ([0.5, 2.0], [4.0])
    assert first.known[0][:6] == ("a", "X Y Z", "fp32", 3.5, -0.25, (-1.0, 1.0))
    assert (first.known[0].form, second.known[0].form) == ((1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0), ())
    assert first.known[0].rows.tolist() == [[-7, 100, 200], [8, 300, -400]]
    assert np.isnan(second.known[0].balance)
    assert second.known[0].rows.tolist() == [[9, 50]]
    whole = surfaces(load_typical_tables(folder), "gemm/vector")
    assert whole is not None
    assert (whole.lifted[:-2].T / -2).tolist() == [[2.0, 1.0], [6.0, -2.0]]
    assert (whole.weights[:, 0] / SURFACE_VARIANCE).tolist() == [-0.007, 0.008]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", ":1: expected the columns architecture, year, source"),
        ("architecture,year\nX Y,2020\n", ":1: expected the columns"),
        ("architecture,year,source\nX Y,2020,a\nX,2020,b\n", ":3: expected vendor, generation, a year"),
        ("architecture,year,source\nX Y,soon,a\n", ":2: expected vendor, generation, a year"),
        ("architecture,year,source\nX Y,0,a\n", ":2: expected vendor, generation, a year .a number from 1"),
        ("architecture,year,source\nX Y,2020,\n", ":2: expected vendor, generation, a year .*, and a source"),
    ],
)
def test_generations_are_read_or_refused_by_line(folder: Path, text: str, what: str) -> None:
    known = load_typical_tables(folder).years
    assert (known["NVIDIA Volta"], known["AMD CDNA"]) == (2017.0, 2020.0)
    (folder / GENERATIONS).write_text(text)
    with pytest.raises(FomkitError, match=f"{GENERATIONS}{what}"):
        load_typical_tables(folder)


def test_engines_are_read_or_refused_by_line(folder: Path) -> None:
    assert load_typical_tables(folder).engines["NVIDIA Hopper GH100"] == 13.9
    (folder / ENGINES).write_text("architecture,ratio,source\nNVIDIA Hopper,16,a\n")
    with pytest.raises(FomkitError, match=f"{ENGINES}:2: expected vendor, generation, chip, a ratio"):
        load_typical_tables(folder)


@pytest.mark.parametrize("chip", shipped_typical_tables().engines)
def test_no_shipped_board_has_more_than_its_chips_engine(chip: str) -> None:
    """The ratio is the least of full boards of a chip, so that none of them counts as held back."""
    boards = [fomkit.machine(path.stem) for path in sorted(shipped_folder("machine_profiles").glob("*.yaml"))]
    of = [one.device for one in boards if " ".join(chip_words(one.device.architecture)) == chip]
    peaks = [(one.peak("fp32", "vector"), one.peak("bf16", "matrix")) for one in of]
    ratios = [engine.rate.value / vector.rate.value for vector, engine in peaks if vector and engine]
    whole = shipped_typical_tables().engines[chip]
    assert ratios
    assert not [one for one in ratios if 0.75 * whole < one < whole]
    assert max(ratios) < 1.15 * whole


def test_every_machine_that_tells_of_products_has_its_generation_s_year() -> None:
    known = shipped_typical_tables()
    told = {one.architecture for name in ("tiles/vector", "tiles/matrix") for one in known.of[name].known}
    assert {" ".join(one.split()[:2]) for one in told} <= set(known.years)


def test_every_work_has_the_features_that_its_ops_are_looked_at_by() -> None:
    assert {*map(kind_of_work, shipped_typical_tables().of)} == {*FEATURES, "tiles", "twins"}


ROW, OP = (
    (shipped_folder("machine_profiles") / evidence.FOLDER / name).read_text().splitlines()[1].split(",")
    for name in (SURFACES, OPS)
)
COUNT, MEAN, LENGTH, WEIGHT = ROW[6], ROW[8], ROW[9].split(" ")[0], f"\n1,{OP[1]},"
"""Of the first surface: its ops, its mean and its first length; the weight of the first op, between its commas."""
DAMAGE = [
    (SURFACES, "1,attention", "2,attention", f"{SURFACES}:2: expected surface 1 of a work"),
    (SURFACES, LENGTH, f"{LENGTH}1", f"{SURFACES}:3: expected surface 2 of a work, its lengths as above"),
    (SURFACES, LENGTH, "-1", f"{SURFACES}:2: expected finite numbers: mean, lengths above 0"),
    (SURFACES, LENGTH, "many", f"{SURFACES}:2: could not convert string to float: 'many'"),
    (SURFACES, MEAN, "nan", f"{SURFACES}:2: expected finite numbers: mean"),
    (
        SURFACES,
        "bf16",
        "bf17",
        f"{SURFACES}:2: expected the name of a machine, an architecture and a number format",
    ),
    (SURFACES, f",{COUNT},", ",35,", f"{SURFACES}:2: expected 35 ops in {OPS}, with a feature for each length"),
    (SURFACES, f"{LENGTH} ", "", f"{SURFACES}:2: expected {COUNT} ops in {OPS}, with a feature for each length"),
    (SURFACES, "surface,work", "surface,works", f"{SURFACES}:1: expected the columns surface, work, "),
    (SURFACES, "bf16,", "bf16,,", f"{SURFACES}:2: has 13 cells where the header has 12"),
    (SURFACES, "4.46e-06 ", "", f"{SURFACES}:148: expected either no constants of a form or 8 above 0"),
    (OPS, WEIGHT, "\n1,3.5,", f"{OPS}:2: expected whole numbers: surface"),
    (OPS, WEIGHT, "\n1,1e12,", f"{OPS}:2: expected whole numbers: surface"),
    (OPS, WEIGHT, "\n1,,", f"{OPS}:2: expected whole numbers: surface"),
    (OPS, ",700,", ",,", f"{OPS}:2: expected whole numbers: surface"),
    (OPS, "\n1,", "\n2,", f"{OPS}:2: expected whole numbers: surface"),
    (OPS, WEIGHT, "\n1,x,", f"{OPS}: is not a table of numbers"),
    (OPS, "weight", "wait", f"{OPS}:1: expected rows with the columns surface, weight, "),
]


@pytest.mark.parametrize(("name", "before", "after", "told"), DAMAGE)
def test_damage_is_refused_where_it_is(folder: Path, name: str, before: str, after: str, told: str) -> None:
    text = (folder / name).read_text()
    assert before in text
    (folder / name).write_text(text.replace(before, after, 1))
    with pytest.raises(FomkitError) as error:
        load_typical_tables(folder)
    assert told in str(error.value)


@pytest.mark.parametrize("name", [SURFACES, OPS])
@pytest.mark.parametrize("left", [0, 1, 0.5])
def test_a_file_that_was_cut_or_emptied_is_refused(folder: Path, name: str, left: float) -> None:
    lines = (folder / name).read_text().splitlines(keepends=True)
    (folder / name).write_text("".join(lines[: left if left in (0, 1) else int(left * len(lines))]))
    with pytest.raises(FomkitError, match=f"{SURFACES}|{OPS}"):
        load_typical_tables(folder)


def test_they_are_found_in_an_installation_and_an_absent_one_says_what_to_do(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "fomkit" / "shipped" / "machine_profiles"
    installed.mkdir(parents=True)
    folder.rename(installed / evidence.FOLDER)
    monkeypatch.setattr(locate.fomkit, "__file__", str(tmp_path / "fomkit" / "__init__.py"))
    assert shipped_typical_tables.__wrapped__() == shipped_typical_tables()
    (installed / evidence.FOLDER / OPS).unlink()
    with pytest.raises(
        FomkitError, match=r"ops\.csv: cannot be read .* The file is part of fomkit: reinstall it\."
    ):
        shipped_typical_tables.__wrapped__()


def test_a_copy_from_another_process_keeps_what_was_worked_out() -> None:
    known = shipped_typical_tables()
    copied = pickle.loads(pickle.dumps(known))
    assert copied is not known
    assert surfaces(copied, "gemm/vector") is surfaces(known, "gemm/vector")


def test_a_machine_made_in_python_is_told_of_the_others_and_one_that_was_told_keeps_its_own() -> None:
    assert without_implausible(replace(machine(), typical=None)).typical is shipped_typical_tables()
    own = TypicalTables("own", {})
    assert without_implausible(replace(machine(), typical=own)).typical is own

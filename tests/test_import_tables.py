"""`fomkit import` of tables: timings become a machine, ops a model, by content and not by name."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from terminal import in_this_process

import fomkit
from fomkit.core.errors import FomkitError
from fomkit.profiles.machines import load_machine
from fomkit.profiles.models import load_model
from fomkit.readers.registry import FORMATS, PRODUCTS, choose_import, import_model

TIMINGS = (
    "kind,dtype,engine,m,n,k,time_s,note\ngemm,fp32,vector,64,64,64,1e-5,=x\ngemm,fp32,vector,128,64,64,1.5e-5,\n"
)
OPS = "kind,dtype,m,n,k,count\ngemm,fp32,batch,4096,1024,3\ngemm,fp16,batch,10,4096,1\n"
BOTH = "kind,dtype,m,n,k,time_s,count\ngemm,fp32,8,8,8,1e-5,3\n"
FACTS = "schema: fomkit/machine/1\nname: theirs\nparty: vendor\ndevice: {memory: {bandwidth: 1 TB/s, source: s}}\n"
MODEL_FACTS = (
    "schema: fomkit/model/1\nname: net\ntitle: A net\nsizes: {batch: 8}\n"
    "data: {train_samples: 100}\nrun: {epochs: 2}\nnotes: [theirs]\n"
)


def run(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return in_this_process("import", *map(str, arguments), cwd=cwd)


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder with a table of timings, one of ops, and facts of a machine and of a model."""
    for name, text in {"t.csv": TIMINGS, "o.csv": OPS}.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "facts.yaml").write_text(FACTS)
    (tmp_path / "model_facts.yaml").write_text(MODEL_FACTS)
    return tmp_path


def test_timings_become_a_machine_with_their_source(here: Path) -> None:
    done = run("t.csv", "-o", "mine.yaml", "--facts", "facts.yaml", cwd=here)
    assert done.returncode == 0, done.stderr
    machine = load_machine(here / "mine.yaml")
    assert (machine.name, machine.party, machine.device.byte_per_s.value) == ("theirs", "vendor", 1e12)
    assert machine.timings["time_s"].tolist() == [1e-5, 1.5e-5]
    assert machine.timings["source_file"].tolist() == ["t.csv", "t.csv"]
    assert machine.timings["source_row"].tolist() == [2.0, 3.0]
    assert machine.timings["note"].tolist() == ["=x", ""]
    assert machine.timings["b"].tolist() == [1.0, 1.0]
    assert any("b: not given in any row" in note for note in machine.notes)
    found = fomkit.predict(here / "t.csv", machine)
    assert found.ops["time_s"].tolist() == [1e-5, 1.5e-5]
    assert set(found.ops["time_source"]) == {"measured"}


def test_a_source_that_is_named_stays(here: Path) -> None:
    text = TIMINGS.replace("note\n", "source_file,source_row\n").replace("=x\n", "log.txt,77\n")
    (here / "t.csv").write_text(text.replace("1.5e-5,\n", "1.5e-5,,\n"))
    assert run("t.csv", "-o", "mine.yaml", cwd=here).returncode == 0
    timings = load_machine(here / "mine.yaml").timings
    assert timings["source_file"].tolist() == ["log.txt", "t.csv"]
    assert timings["source_row"].tolist() == [77.0, 3.0]


def test_ops_become_a_model(here: Path) -> None:
    done = run("o.csv", "-o", "net.yaml", "--set", "batch=32", "--samples", 1000, "--epochs", 3, cwd=here)
    assert done.returncode == 0, done.stderr
    assert "o.csv: op: not given in any row; taken as the kind." in done.stderr
    model = load_model(here / "net.yaml")
    assert (model.name, model.batch, model.data.train_samples, model.run.epochs) == ("net", 32, 1000, 3)
    assert model.ops["engine"].tolist() == ["vector", "matrix"]
    assert model.ops["m"].tolist() == ["batch", "batch"]
    small, large = (fomkit.estimate(model, "v100", batch=batch) for batch in (32, 64))
    assert small.run_time.steps_per_epoch == 31
    assert large.ops["flop"].sum() == 2 * small.ops["flop"].sum() == 2 * 2 * 32 * (4096 * 1024 + 10 * 4096)


def test_facts_of_a_model_are_joined_and_options_go_before_them(here: Path) -> None:
    done = run("o.csv", "-o", "x.yaml", "--facts", "model_facts.yaml", "--epochs", 5, cwd=here)
    assert done.returncode == 0, done.stderr
    model = load_model(here / "x.yaml")
    assert (model.name, model.title, model.batch, model.data.train_samples, model.run.epochs) == (
        "net", "A net", 8, 100, 5,
    )  # fmt: skip
    assert model.notes[:2] == ("theirs", "Op table from o.csv.")


def test_what_predict_wrote_can_be_imported(here: Path) -> None:
    timed = fomkit.predict(here / "o.csv", "v100", sizes={"batch": 8})
    timed.ops.to_csv(here / "timed.csv", index=False)
    done = run("timed.csv", "--as", "model", "-o", "y.yaml", cwd=here)
    assert done.returncode == 0, done.stderr
    assert "left out; an estimate recomputes them" in done.stderr
    assert load_model(here / "y.yaml").ops["m"].tolist() == [8.0, 8.0]


def test_the_name_of_a_file_decides_nothing(here: Path) -> None:
    (here / "ops.xlsx").write_text(TIMINGS)
    (here / "timings").write_text(OPS)
    assert choose_import(here / "ops.xlsx", None, None) == ("timings", "machine")
    assert choose_import(here / "timings", None, None) == ("ops", "model")


@pytest.mark.parametrize(
    ("text", "arguments", "words"),
    [
        (OPS.replace("count", "time_s"), [], "m is 'batch'. Expected a number"),
        (BOTH, [], "fits more than one format: timings: table"),
        (TIMINGS, ["--as", "measurements"], "is not of a known format. The formats of such files are: meter"),
        (TIMINGS, ["--as", "machin"], "cannot be imported. The nearest name is 'machine'"),
        (TIMINGS, ["--as", "model", "--format", "timings"], "the format 'timings' makes a machine"),
        (TIMINGS.replace("time_s", "time_s,time_ms"), [], "the column 'time_ms' is not a column of a table"),
        (TIMINGS.replace("time_s,note", "time_us,time_ms"), [], "the column 'time_ms' is not a column of a table"),
        (TIMINGS.replace("time_s", "Time_US").replace("1e-5", "10 us"), [], "x.csv:2: Time_US is '10 us'"),
        (TIMINGS.replace("1e-5", "0"), [], "x.csv:2: time_s is 0. Expected a finite number above 0"),
        (TIMINGS.replace(",vector", ","), [], "x.csv:2: engine is ''. Expected one of vector, matrix"),
        (TIMINGS, ["--set", "batch=8"], "are for a model, not for a machine"),
        (OPS, [], "its dimensions use batch. Give values, for example --set batch=64."),
        (OPS, ["--facts", "facts.yaml"], "schema is 'fomkit/machine/1'. Expected: 'schema: fomkit/model/1'"),
        (OPS, ["--facts", "absent.yaml"], "is not a file. Give a model file without ops"),
        ("a,b\n1,2\n", [], "is not of a known format"),
        (TIMINGS.replace(",", ";"), [], "x.csv:1: its cells are separated by ';'"),
    ],
)  # fmt: skip
def test_what_cannot_be_imported_is_told_and_nothing_is_written(
    here: Path, text: str, arguments: list[str], words: str
) -> None:
    (here / "x.csv").write_text(text)
    before = sorted(path.name for path in here.iterdir())
    done = run("x.csv", "-o", "out.yaml", *arguments, cwd=here)
    assert done.returncode == 2, done.stdout
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(path.name for path in here.iterdir()) == before


def test_what_facts_say_is_missing_stays_with_what_the_source_lacks(here: Path) -> None:
    (here / "model_facts.yaml").write_text(MODEL_FACTS + "missing: [loss]\nderived: [backward]\n")
    found, _ = import_model(here / "o.csv", here / "model_facts.yaml")
    assert (found.missing, found.derived) == (("loss",), ("backward",))
    (here / "model_facts.yaml").write_text(MODEL_FACTS + "derived: [sideways]\n")
    with pytest.raises(FomkitError, match="derived"):
        import_model(here / "o.csv", here / "model_facts.yaml")


def test_facts_with_an_op_table_are_refused(here: Path) -> None:
    (here / "model_facts.yaml").write_text(MODEL_FACTS + "ops: o.csv\n")
    done = run("o.csv", "-o", "x.yaml", "--facts", "model_facts.yaml", cwd=here)
    assert "model_facts.yaml:8: 'ops' is not allowed here" in done.stderr


def test_every_format_says_what_it_is_and_what_it_becomes() -> None:
    assert {"deepbench", "timings", "ops"} <= set(FORMATS)
    assert all(one.title and one.product in PRODUCTS for one in FORMATS.values())

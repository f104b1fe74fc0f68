"""Unusual files: pipes, links, archive bombs, foreign encodings, programs."""

from __future__ import annotations

import gzip
import os
import re
import time
import zipfile
from pathlib import Path

import openpyxl
import pytest
from test_bad_files import OPS, written
from typer.testing import CliRunner

from fomkit.cli.main import app
from fomkit.core.errors import FomkitError, install_hint
from fomkit.files.op_csv import read_table
from fomkit.files.xlsx import read_workbook
from fomkit.files.xlsx_marks import read_marks
from fomkit.profiles.machines import load_machine
from fomkit.profiles.models import load_model
from fomkit.readers.profilers.kineto_stream import TraceReader


def test_devices_and_pipes_are_refused_by_name(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.csv")
    for path in (Path("/dev/zero"), tmp_path / "x.csv"):
        with pytest.raises(
            FomkitError, match=f"^{path}: is a (device|pipe), which may never end. Write its output"
        ):
            read_table(path, "OPS")


def test_a_table_that_a_link_leads_out_of_a_profile_s_folder_is_not_read(tmp_path: Path) -> None:
    secret = written(tmp_path, "TOKEN=abc\n", "secret.txt")
    folder = tmp_path / "stranger"
    folder.mkdir()
    (folder / "m.ops.csv").symlink_to(secret)
    (folder / "m.timings.csv").symlink_to(secret)
    model = written(folder, "schema: fomkit/model/1\nname: m\nops: m.ops.csv\n", "m.yaml")
    machine = written(
        folder, "schema: fomkit/machine/1\nname: n\ndevice: {}\ntimings: [m.timings.csv]\n", "n.yaml"
    )
    for load, path in ((load_model, model), (load_machine, machine)):
        with pytest.raises(FomkitError, match=rf"is a link to a file outside the folder of {path.name}") as told:
            load(path)
        assert "secret" not in str(told.value)
        assert "TOKEN" not in str(told.value)
    (folder / "m.ops.csv").unlink()
    written(folder, OPS, "other.csv")
    (folder / "m.ops.csv").symlink_to("other.csv")
    assert len(load_model(model).ops) == 1


def test_gzip_of_many_times_its_size_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    bomb = written(tmp_path, gzip.compress(b'{"traceEvents": [' + b" " * 200_000_000, 9, mtime=0), "trace.json.gz")
    started = time.process_time()
    with pytest.raises(FomkitError, match=r"unpacks to over \d+ times its size. Up to 300 times was expected"):
        list(TraceReader(bomb))
    assert time.process_time() - started < 20


def repacked(folder: Path, part: str, content: bytes) -> Path:
    """Write a workbook of one cell with another content in one of its parts; without it where that is empty."""
    plain, changed = folder / "plain.xlsx", folder / "changed.xlsx"
    book = openpyxl.Workbook()
    book.active["A1"] = "kept"
    book.save(plain)
    with zipfile.ZipFile(plain) as old, zipfile.ZipFile(changed, "w") as new:
        for name in old.namelist():
            data = content if name == part else old.read(name)
            if data:
                new.writestr(name, data)
    return changed


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>', "declares a document type in xl/"),
        ('<?xml version="1.0" encoding="UTF-16"?><!DOCTYPE a><a/>'.encode("utf-16"), "'utf-16' text in xl/"),
        ("<!DOCTYPE a><a/>".encode("utf-16-le"), "'utf-16' text in xl/"),
        ('<?xml version="1.0" encoding="klingon"?><sst/>', "'klingon' text in xl/"),
        ("<?xml version='1.0' encoding='UTF-7'?><sst/>", "'utf-7' text in xl/"),
    ],
)
def test_document_types_and_other_encodings_of_a_workbook_are_refused(
    tmp_path: Path, content: str | bytes, words: str
) -> None:
    path = repacked(tmp_path, "xl/styles.xml", content if isinstance(content, bytes) else content.encode())
    with pytest.raises(FomkitError, match=words):
        read_workbook(path)


def test_a_package_that_does_not_say_which_part_is_the_workbook_is_refused(tmp_path: Path) -> None:
    path = repacked(tmp_path, "_rels/.rels", b'<?xml version="1.0"?><Relationships/>')
    with pytest.raises(FomkitError, match="is damaged or not a workbook"):
        read_marks(path)


def test_an_op_table_without_kind_is_told_wherever_it_is_read(tmp_path: Path) -> None:
    written(tmp_path, "op,dtype,engine,pass_name,count\nmm,fp32,vector,forward,1\n", "m.ops.csv")
    path = written(tmp_path, "schema: fomkit/model/1\nname: m\nops: m.ops.csv\n", "m.yaml")
    with pytest.raises(FomkitError, match=r"m\.ops\.csv: the column 'kind' is missing"):
        load_model(path)


@pytest.mark.parametrize("verb", ["show {}", "fom {}", "import {} -o x.yaml"])
def test_a_program_is_no_profile_and_the_message_says_how_to_make_one(tmp_path: Path, verb: str) -> None:
    path = written(tmp_path, "model = 1\n", "model.py")
    done = CliRunner().invoke(app, verb.format(path).split())
    assert isinstance(done.exception, FomkitError), done.output
    said = str(done.exception)
    assert said.startswith(f"{path}: is a Python program, not a ")
    assert said.endswith(f"fomkit profile {path} -o model.yaml")


@pytest.mark.parametrize("verb", ["estimate {} -t v100", "memory {}", "explain {} -t v100", "compare {} --grid"])
def test_a_program_without_a_model_is_profiled_and_says_what_it_lacks(tmp_path: Path, verb: str) -> None:
    pytest.importorskip("torch", reason="a program is profiled where a framework is")
    path = written(tmp_path, "import torch\nprint(1)\n", "model.py")
    done = CliRunner().invoke(app, verb.format(path).split())
    assert isinstance(done.exception, FomkitError), done.output
    assert str(done.exception).startswith(f"{path}: 'model' is missing. Give one, for example: model = ")
    assert "A program that trains by itself is profiled with --script." in str(done.exception)


def test_no_hint_fetches_what_is_called_fomkit_elsewhere(root: Path) -> None:
    for path in [*root.glob("*.md"), *root.glob("docs/*.md"), *root.glob("fomkit/**/*.py")]:
        assert not re.search(r"""pip install ['"]?fomkit""", path.read_text(encoding="utf-8")), path
    for extra in ("torch", "tensorflow", "onnx", "report", "parquet", "cluster", "xplane"):
        assert install_hint(extra).startswith('pip install "')
        assert "fomkit" not in install_hint(extra)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["estimate", "{}/net.ops.csv", "-t", "v100"], "is a table, not a model profile. To convert it"),
        (["estimate", "p1b3", "-t", "{}/net.ops.csv"], "is a table, not a machine profile. To convert it"),
        (["estimate", "{}/nett.yaml", "-t", "v100"], "profile of this name. That folder has 'net.yaml'."),
        (["estimate", "{}/net.yml", "-t", "v100"], "profile of this name. That folder has 'net.yaml'."),
        (["cost", "p1b3", "-t", "v100", "--price", "2,50 USD/h per node, 2018-04-01"],
         "the price is '2,50 USD/h', which is not a price per time. Write a number,"),
        (["predict", "nosuch", "-t", "v100", "-o", "{}/out.csv"], "no model profile of this name. Known names:"),
        (["profile", "{}/net.ops.csv"], ".py. Profiles of tables and traces are made by 'fomkit import'."),
        (["show", "p1b3", "v100"], "show: 'v100' is an unexpected argument. 'fomkit show -h' lists the options."),
        (["show", "machines", "--with", "fp9"], "--with: no machine matches 'fp9'."),
        (["estimate", "p1b3", "-t", "v100", "--precision", "FP32"],
         "--precision: 'FP32' is not one of its values. The nearest name is 'fp32'."),
        (["measure", "--batch", "8", "-o", "{}/m.yaml"], "--batch: is for the ops of a model. Add --for"),
        (["estimate", "p1b3", "-t", "v100", "--precision", "half"], "It is called 'mixed'."),
        (["estimate", "v100", "-t", "resnet50"], "of this name. It is a model, not a machine."),
        (["estimate", "p1b3", "-t", "v100", "p100"], "It is a machine, not a model."),
        (["estimate", "p1b3", "-t", "v100,p100"], "Give each name by itself."),
        (["memory", "p1b3,tc1"], "Give each name by itself."),
        (["estimate", "gpt2", "-t", "v100", "--seq", "64"], "has no option --seq. Write --set seq=N."),
        (["estimate", "p1b3", "--gpu", "v100"], "has no option --gpu. Write --target."),
        (["estimate", "p1b3", "-t", "v100", "--batch", "1.5e0"], "A whole number of 1 or more was expected."),
        (["estimate", "p1b3", "-t", "v100", "--interval", "80"], "from 0.01 to 0.999 was expected, such as 0.8"),
        (["solve", "p1b3", "-t", "v100", "--step", "50"], "Units of time: ns, us, ms, s, min, h, d."),
        (["campaign", "candle-example", "-t", "v100"], "or choose another scope: device or node."),
        (["estimate", "p1b3", "-t", "v100", "--batch", "100000000000000"], "Check the sizes and the batch."),
        (["estimate", "p1b3", "-t", "v100", "--set", "seq=0"], "--set seq=0: is not a name and a whole number"),
        (["memory", "gpt2", "--set", "seq=99999999999999999999"], "a whole number of 1 or more, at most 1e+15."),
        (["memory", "gpt2", "--batch", f"{10**30}"], f"--batch: is {10**30}. Give 1e+15 at most."),
        (["sweep", "p1b3", "-t", "v100", "--vary", f"batch={10**30}"], "of 1 or more, at most 9e+15."),
        (["fom", "{}"], "is a folder, not a file. Give a suite by path or by name."),
        (["campaign", "{}", "-t", "a"], "is a folder, not a file. Give a campaign by path or by name."),
        (["fom", "{}/none.json"], "is no suite by its ending. Give a file that ends in .yaml, .yml."),
        (["fom", "{}/none.suite.yaml"], "none.suite.yaml:7: lines is []. Expected: at least one entry."),
    ],
)  # fmt: skip
def test_what_was_likely_meant_is_named(words: list[str], message: str, tmp_path: Path) -> None:
    """Messages for users who confuse two files, or use one word for two."""
    written(tmp_path, OPS, "net.ops.csv")
    written(tmp_path, "schema: fomkit/model/1\nname: net\nops: net.ops.csv\n", "net.yaml")
    suite = "schema: fomkit/suite/1\nname: none\nversion: 1\nbaseline: titan\nscope: system\nmean: harmonic\n"
    written(tmp_path, f"{suite}lines: []\n", "none.suite.yaml")
    written(tmp_path, "{}", "none.json")
    done = CliRunner().invoke(app, [word.format(tmp_path) for word in words])
    assert isinstance(done.exception, FomkitError)
    assert message in str(done.exception)


def test_whole_numbers_may_be_written_as_people_write_them() -> None:
    plain = CliRunner().invoke(app, ["memory", "gpt2", "--batch", "1000", "--set", "seq=1024", "--json"])
    for batch, seq in (("1e3", "1.024e3"), ("1,000", "1,024")):
        other = CliRunner().invoke(app, ["memory", "gpt2", "--batch", batch, "--set", f"seq={seq}", "--json"])
        assert other.stdout == plain.stdout != ""

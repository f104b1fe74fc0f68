"""`fomkit import`: workbook to machine profile, whole or not at all."""

from __future__ import annotations

import re

import pandas as pd
import pytest
from deepbench_cells import GEMM, PREAMBLE
from typer.testing import CliRunner

from fomkit.cli.main import app
from fomkit.core.errors import FomkitError
from fomkit.ops.check import check_table
from fomkit.profiles.machines import load_machine
from fomkit.readers.registry import as_machine, read_timings

FACTS = """\
schema: fomkit/machine/1
name: tx
title: A stated title
party: vendor
device:
  peak: [{dtype: fp32, engine: vector, rate: 6.1 TFLOP/s, source: a datasheet}]
  memory: {bandwidth: 336 GB/s, source: a datasheet}
node: {devices: 4}
notes: [a stated note]
"""


def import_file(*arguments: object) -> str:
    """Run the command and return its output."""
    result = CliRunner().invoke(app, ["import", *(str(argument) for argument in arguments)])
    if result.exception:
        raise result.exception
    return result.output


@pytest.fixture
def workbook(make_workbook):
    specs = [["GPU Model", "Some Device"], ["CUDA Version", "8.0"], ["Driver"]]
    other = [*GEMM[1][:8], 0.07]
    return make_workbook({"Results FP32": [*PREAMBLE, *GEMM, other], "Specs": specs})


def test_without_facts_peaks_stay_unknown(workbook, tmp_path):
    printed = import_file(workbook, "-o", tmp_path / "some.yaml")
    machine = load_machine(tmp_path / "some.yaml")
    assert (machine.name, machine.title, machine.party) == ("some", "Some Device", "published")
    assert (machine.device.peaks, machine.device.byte_per_s, machine.scopes) == ((), None, ("device",))
    assert machine.timings.time_s.tolist() == [59e-6, 70e-6]
    assert machine.notes[0].endswith("system: GPU Model Some Device; CUDA Version 8.0.")
    assert "whole microseconds" in machine.notes[1]
    assert "Some Device: 2 timings from made.xlsx" in printed
    assert re.search(r"gemm +Results FP32 +Dense Matrix Multiplication +2 +0 +0", printed)
    assert "Next: fomkit show " in printed
    assert "give them with --facts" in printed


def test_what_was_read_fits_a_narrow_terminal(workbook, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    printed = import_file(workbook, "-o", tmp_path / "some.yaml", "-q")
    table = printed[: printed.index("Peaks")]
    assert max(map(len, table.splitlines())) <= 60


def test_facts_are_joined(workbook, tmp_path):
    facts = tmp_path / "facts.yaml"
    facts.write_text(FACTS)
    printed = import_file(workbook, "--facts", facts, "-o", tmp_path / "out.yaml")
    machine = load_machine(tmp_path / "out.yaml")
    assert (machine.name, machine.title, machine.party) == ("tx", "A stated title", "vendor")
    assert machine.device.peak("fp32", "vector").rate.value == 6.1e12
    assert (machine.device.byte_per_s.value, machine.node_devices) == (336e9, 4)
    assert (len(machine.timings), machine.notes[0]) == (2, "a stated note")
    assert "--facts" not in printed
    import_file(workbook, "--facts", facts, "--name", "mine", "-o", tmp_path / "named.yaml")
    assert load_machine(tmp_path / "named.yaml").name == "mine"


def test_facts_with_timings_are_refused(workbook, tmp_path):
    import_file(workbook, "-o", tmp_path / "first.yaml")
    with pytest.raises(FomkitError, match="has timings of its own"):
        import_file(workbook, "--facts", tmp_path / "first.yaml", "-o", tmp_path / "second.yaml")
    pod = tmp_path / "pod.yaml"
    pod.write_text("schema: fomkit/machine/1\nname: pod\ndevice: v100\n", encoding="utf-8")
    with pytest.raises(FomkitError, match="Remove its line 'device: v100'; state its facts instead"):
        import_file(workbook, "--facts", pod, "-o", tmp_path / "second.yaml")
    assert not (tmp_path / "second.yaml").exists()


@pytest.mark.parametrize("present", ["out.yaml", "out.timings.csv"])
def test_existing_files_are_kept_without_force(workbook, tmp_path, present):
    (tmp_path / present).write_text("mine")
    with pytest.raises(FomkitError, match=f"{present}: exists already"):
        import_file(workbook, "-o", tmp_path / "out.yaml")
    assert (tmp_path / present).read_text() == "mine"
    assert len(list(tmp_path.glob("out.*"))) == 1
    import_file(workbook, "-o", tmp_path / "out.yaml", "--force")
    assert len(load_machine(tmp_path / "out.yaml").timings) == 2


def test_bad_input_writes_nothing(tmp_path):
    bad = tmp_path / "bad.xlsx"
    bad.write_bytes(b"PK\x03\x04 and no more")
    (tmp_path / "out.yaml").write_text("mine")
    with pytest.raises(FomkitError, match="damaged or not a workbook"):
        import_file(bad, "-o", tmp_path / "out.yaml", "--force")
    assert (tmp_path / "out.yaml").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.xlsx", "out.yaml"]


def test_output_must_be_yaml(workbook, tmp_path):
    with pytest.raises(FomkitError, match=r"a profile is a YAML file\. Write, for example"):
        import_file(workbook, "-o", tmp_path / "out.json")


def test_a_named_format(workbook, tmp_path):
    import_file(workbook, "--format", "deepbench", "-o", tmp_path / "out.yaml")
    with pytest.raises(FomkitError, match="'csv' is not a known format"):
        import_file(workbook, "--format", "csv", "-o", tmp_path / "other.yaml")


@pytest.mark.parametrize("name", ["NV_P100", "IA_KNL7250", "AMD_MI25"])
def test_the_table_survives_the_way_through_the_file(train, tmp_path, name):
    source = train / f"DeepBench_{name}.xlsx"
    import_file(source, "-o", tmp_path / "m.yaml")
    machine = load_machine(tmp_path / "m.yaml")
    check_table(machine.timings, "TIMINGS", name)
    original = read_timings(source).timings
    pd.testing.assert_frame_equal(machine.timings, original[machine.timings.columns], check_column_type=False)
    dropped = original[[column for column in original if column not in machine.timings]]
    assert (dropped.isna() | (dropped == "")).all(axis=None)


def test_joining_changes_neither_part(workbook):
    imported = read_timings(workbook)
    before = imported.timings.copy()
    machine = as_machine(imported, "x")
    assert as_machine(imported, "x").notes == machine.notes
    pd.testing.assert_frame_equal(imported.timings, before)

"""Logs of wall meters: units, dates, gaps, cuts, and invalid files."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hostile_files import NASTY
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from fomkit.cli.main import app
from fomkit.core.errors import FomkitError
from fomkit.readers.measurements import import_meter, read_measurements, read_meter, recognise_meter
from fomkit.readers.registry import choose_import

PLAIN = "time,power_w\n0,100\n10,200\n20,200\n"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "meter.csv"


def notes(path: Path, **cut: str) -> tuple[str, ...]:
    return import_meter(path, model="m", machine="x", **cut).messages


@pytest.mark.parametrize(
    ("text", "powers"),
    [
        (PLAIN, (100.0, 200.0, 200.0)),
        ("Timestamp,Power (kW),Voltage\n0,0.1,230\n10,0.2,231\n", (100.0, 200.0)),
        ("time_s,power\n0,100 W\n10,0.2 kW\n", (100.0, 200.0)),
        ("volt,Active Power [W],Time (s)\n230,100,0\n230,200,10\n", (100.0, 200.0)),
        ("time,watts\n2024-05-01T12:00:00,100\n2024-05-01 12:00:10,200\n", (100.0, 200.0)),
        ("time,W\n2024-05-01T12:00:00+02:00,100\n2024-05-01T10:00:10Z,200\n", (100.0, 200.0)),
    ],
)
def test_moments_and_units_of_many_meters(log: Path, text: str, powers: tuple[float, ...]) -> None:
    log.write_text(text, encoding="utf-8")
    assert choose_import(log, None, None) == ("meter", "measurements")
    found = read_meter(log)
    assert found.powers_w == pytest.approx(powers)
    assert found.moments_s[1] - found.moments_s[0] == 10.0


def test_energy_between_two_moments_worked_by_hand(log: Path, tmp_path: Path) -> None:
    """From 5 to 15 s: 5 s from 150 up to 200 W, 5 s at 200 W: 875 + 1000 J."""
    log.write_text(PLAIN, encoding="utf-8")
    out = tmp_path / "energy.csv"
    done = CliRunner().invoke(app, ["import", str(log), "--model", "resnet50", "--machine", "v100", "--start", "5",
                                    "--end", "15", "-o", str(out)])  # fmt: skip
    assert done.exit_code == 0, done.output
    (row,) = read_measurements(out)
    assert (row.model, row.machine, row.quantity, row.scope, row.basis) == (
        "resnet50", "v100", "energy_j", "wall", "measured"
    )  # fmt: skip
    assert row.value == pytest.approx(1875.0)
    assert (row.low, row.high) == pytest.approx((1750.0, 2000.0))
    assert "mean power 187.5 W" in done.stderr
    assert "{workload: resnet50, scope: wall, power: 187.5 W, low: 175 W, high: 200 W" in done.stderr


def test_what_is_to_be_pasted_is_read_back(log: Path, tmp_path: Path) -> None:
    from fomkit.profiles.machines import load_machine

    log.write_text(PLAIN, encoding="utf-8")
    entry = notes(log)[-1].partition("energy.average: ")[2]
    path = tmp_path / "x.yaml"
    path.write_text(f"schema: fomkit/machine/1\nname: x\nnode: {{devices: 4}}\nenergy:\n  scope: wall\n"
                    f"  average:\n    - {entry}\n", encoding="utf-8")  # fmt: skip
    energy = load_machine(path).energy
    assert energy is not None
    assert energy.average[0].power_w.value == pytest.approx(175.0)
    assert energy.average[0].devices == 4


def test_a_gap_is_told_with_its_place(log: Path) -> None:
    log.write_text("time,power_w\n0,100\n1,100\n2,100\n60,100\n61,300\n", encoding="utf-8")
    assert any("no reading for 58 s, 2 s after the start" in line for line in notes(log))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("time,power_w\n", "0 readings"),
        ("time,power_w\n0,100\n", "1 readings"),
        ("time,power_w\n0,100\n0,100\n", ":3: the time '0' is not after"),
        ("time,power_w\n5,100\n4,100\n", ":3: the time '4' is not after"),
        ("time,power_w\n0,100\n1,-5\n", ":3: power is '-5 W'"),
        ("time,power_w\n0,100\n1,\n", ":3: power is ''"),
        ("time,power_w\n0,100\n1,nan\n", ":3: power is 'nan'"),
        ("time,power_w\n0,100\n1,1e999\n", ":3: power"),
        ("time,power\n0,100\n1,100\n", "no unit"),
        ("time,power\n0,100 J\n1,100 J\n", "is not a unit of power"),
        ("time,power_mw\n0,100\n1,100\n", "milliwatts or megawatts"),
        ("time,power_w\nyesterday,100\n1,100\n", ":2: the time is 'yesterday'"),
        ("time,power_w\n1714560000000,100\n1714560001000,100\n", "Divide milliseconds"),
        ("time,power_w\n0,100\n2024-05-01,100\n", "Use one form"),
        ("time,power_w\n2024-05-01T12:00:00,1\n2024-05-01T12:00:01Z,1\n", "Use one form"),
        ("time,power_w\n=1+1,100\n1,100\n", ":2: the time is '=1+1'"),
        ("time,power_w,power_kw\n0,100,1\n1,100,1\n", "2 columns name the power"),
        ("moment,power_w\n0,100\n1,100\n", "0 columns name the time"),
        ("", "is empty"),
        ("time,power_w\n0,0\n1,0\n", "has no power above 0"),
    ],
)
def test_logs_that_are_none(log: Path, text: str, message: str) -> None:
    log.write_text(text, encoding="utf-8")
    with pytest.raises(FomkitError) as error:
        import_meter(log, model="m", machine="x")
    assert message in str(error.value)
    assert "meter.csv" in str(error.value)


@pytest.mark.parametrize(
    ("cut", "message"),
    [
        ({"start": "-5"}, "Nothing is extrapolated"),
        ({"end": "21"}, "Nothing is extrapolated"),
        ({"start": "9", "end": "3"}, "not after the start"),
        ({"start": "2024-05-01"}, "are plain seconds"),
        ({"start": "noon"}, "the time is 'noon'"),
    ],
)
def test_cuts_that_cannot_be(log: Path, cut: dict[str, str], message: str) -> None:
    log.write_text(PLAIN, encoding="utf-8")
    with pytest.raises(FomkitError, match=message):
        notes(log, **cut)


def test_the_command_says_what_it_misses(log: Path, tmp_path: Path) -> None:
    log.write_text(PLAIN, encoding="utf-8")
    out = str(tmp_path / "energy.csv")
    nameless = CliRunner().invoke(app, ["import", str(log), "-o", out])
    assert isinstance(nameless.exception, FomkitError)
    assert "Add --model and --machine" in str(nameless.exception)
    record = tmp_path / "ops.csv"
    record.write_text("kind,count\ngemm,1\n", encoding="utf-8")
    cut = CliRunner().invoke(app, ["import", str(record), "--start", "5", "-o", out])
    assert "is for a meter's log, and this is none" in str(cut.exception)


def test_tables_of_ops_and_timings_are_no_logs(log: Path) -> None:
    for header in ("kind,count,power_w,time", "kind,time_s", "model,machine,quantity,value", "time,power_w,w"):
        log.write_text(f"{header}\n", encoding="utf-8")
        assert not recognise_meter(log)


@given(st.lists(st.tuples(st.sampled_from(NASTY), st.sampled_from(NASTY)), max_size=4), st.sampled_from(NASTY))
def test_nothing_written_in_a_log_breaks_the_reader(
    tmp_path_factory: pytest.TempPathFactory, cells: list[tuple[str, str]], heading: str
) -> None:
    path = tmp_path_factory.mktemp("log") / "meter.csv"
    rows = "".join(f"{one},{other}\n" for one, other in cells)
    for header in ("time,power_w", f"time,{heading}", f"{heading},power (kW)"):
        path.write_text(f"{header}\n{rows}", encoding="utf-8", newline="")
        with contextlib.suppress(FomkitError):
            recognise_meter(path)
            read_meter(path)

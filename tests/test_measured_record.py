"""The block ``measured`` of a model file, and the summary figures of repeats."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fomkit.bench.model_steps import repeated
from fomkit.core.errors import FomkitError
from fomkit.core.measurement import StepEnergy
from fomkit.profiles.models import load_model, save_model

DOCS = Path(__file__).resolve().parent.parent / "docs" / "profiles.md"
BLOCK = re.search(r"^measured:\n.*?(?=^```)", DOCS.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
HEAD = "schema: fomkit/model/1\nname: m\nsizes: {batch: 64}\nops: m.ops.csv\n"
OPS = "op,kind,dtype,engine,pass_name,count,b,m,n,k\nmm,gemm,fp32,vector,forward,1,1,batch,4,4\n"


@pytest.fixture
def write(tmp_path: Path):
    (tmp_path / "m.ops.csv").write_text(OPS, encoding="utf-8")

    def to_file(old: str = "", new: str = "") -> Path:
        assert BLOCK is not None
        assert old in BLOCK[0]
        path = tmp_path / "m.yaml"
        path.write_text(HEAD + BLOCK[0].replace(old, new, 1), encoding="utf-8")
        return path

    return to_file


def test_the_example_of_the_page_loads_and_comes_back(write, tmp_path) -> None:
    model = load_model(write())
    run = model.measured
    assert run is not None
    assert run.ops is not None
    assert run.step_time is not None
    assert run.step_time.median_s == 0.0032
    assert run.overhead == pytest.approx(3.4 / 3.2 - 1)
    assert run.ops.total_s == pytest.approx(3.004e-3)
    assert run.ops_share == pytest.approx(3.004 / 3.2)
    save_model(model, tmp_path / "back.yaml")
    assert load_model(tmp_path / "back.yaml").measured == run


def test_energy_and_precision_are_kept(write, tmp_path) -> None:
    model = load_model(write("threads: 1", "threads: 1\n  precision: bf16"))
    assert model.measured is not None
    assert model.measured.energy == StepEnergy(0.096, 0.095, 0.097, "chip", "RAPL counters package-0")
    assert model.measured.precision == "bf16"
    save_model(model, tmp_path / "back.yaml")
    assert load_model(tmp_path / "back.yaml").measured == model.measured


def test_what_times_of_ops_were_divided_by_is_kept(write, tmp_path) -> None:
    model = load_model(write("    joined: 3.0 ms\n", "    joined: 3.0 ms\n    scaled_by: 1.25\n"))
    assert model.measured is not None
    assert model.measured.ops is not None
    assert model.measured.ops.scaled_by == 1.25
    assert model.measured.ops_share is None
    save_model(model, tmp_path / "back.yaml")
    assert load_model(tmp_path / "back.yaml").measured == model.measured


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("  clock: process\n", "", "measured.clock is missing"),
        ("clock: process", "clock: sundial", "measured.clock is 'sundial'"),
        ("clock: process", "clock: device", "every step has its time by the clock 'device'"),
        ("median: 3.2 ms", "median: 3.2", "has no unit"),
        ("median: 3.2 ms", "median: 32 ms", "p25 ≤ median ≤ p75"),
        ("low: 3.15 ms, ", "", "low and high, or neither"),
        ("repeats: 20", "repeats: 0", "measured.step.repeats"),
        ("threads: 1", "threads: one", "measured.threads is 'one'"),
        ("warm_up: 3", "warm_ups: 3", "warm_ups is not a known key"),
        ("why: no row", "because: no row", "because is not a known key"),
        ("start: 0.4", "start: -1", "measured.load.start"),
        ("step: 96 mJ", "step: 96", "has no unit"),
        ("step: 96 mJ", "step: 98 mJ", "low ≤ step ≤ high"),
        ("step: 96 mJ, low: 95 mJ", "step: 0 J, low: 0 J", "a step above 0"),
        ("scope: chip", "scope: moon", "measured.energy.scope"),
        ("threads: 1", "threads: 1\n  precision: fp4", "measured.precision"),
    ],
)
def test_what_cannot_be_is_refused_with_its_line(old, new, told, write) -> None:
    with pytest.raises(FomkitError, match=told) as caught:
        load_model(write(old, new))
    assert re.search(r"m\.yaml:\d+", str(caught.value))


@pytest.mark.parametrize(
    ("repeats", "rank"), [(5, None), (6, 1), (8, 1), (9, 2), (12, 3), (15, 4), (20, 6), (30, 10), (50, 18)]
)
def test_the_interval_of_a_median_has_the_ranks_of_the_sign_test(repeats, rank) -> None:
    """Ranks for 95 %: W. J. Conover, Practical Nonparametric Statistics, by the binomial distribution."""
    found = repeated([float(number) for number in range(1, repeats + 1)])
    expected = (None, None) if rank is None else (rank, repeats + 1 - rank)
    assert (found.low_s, found.high_s) == expected


def test_one_repeat_has_no_spread_of_its_own() -> None:
    found = repeated([0.25])
    assert (found.median_s, found.p25_s, found.p75_s, found.low_s) == (0.25, 0.25, 0.25, None)


def test_pages_name_what_is_measured() -> None:
    """A bare ``--measure`` is no command."""
    for page in DOCS.parent.rglob("*.md"):
        for command in re.findall(r"`(fomkit profile [^`]*)`", page.read_text(encoding="utf-8")):
            assert not re.search(r"--measure(?! (step|ops))", command), (page.name, command)

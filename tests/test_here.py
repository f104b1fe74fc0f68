"""The check on this machine: unseen shapes stay unseen, intervals come from other models, all is reported."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fomkit.bench.design import design
from fomkit.bench.libraries import shape_of
from fomkit.bench.model_steps import repeated
from fomkit.bench.run import Measured, MeasureSpec, measure
from fomkit.cli.main import app
from fomkit.core.errors import FomkitError
from fomkit.core.interval import Span
from fomkit.core.measurement import MeasuredRun, StepEnergy, StepTimes
from fomkit.output.comparisons import format_proof
from fomkit.plan.coverage import Spread
from fomkit.profiles.models import load_model
from fomkit.validation.here import Proof, Tools, content_of, prove_here
from fomkit.validation.here_scores import SOURCES, Compared, Traced, source_of, use_spread, widen_leave_one_out

sys.path.insert(0, str(Path(__file__).parent / "measure"))
from simple_machine import Simple

LEVEL = 0.8
TIMED_S = {"p1b3": 0.9, "p1b2": 0.3}


def trace(source: Path):
    """Replace tracing by shipped profiles at a small batch."""
    model = load_model(source.stem)
    return replace(model, sizes={**model.sizes, "batch": 4})


def time_step(one: Traced, threads: int, precision: str) -> MeasuredRun:
    if one.model.name == "tc1":
        raise FomkitError(str(one.source), "does not fit into the memory here.")
    time_s = TIMED_S[one.model.name] / threads**0.5 / (1.5 if precision else 1.0)
    found = repeated([time_s * (1 + 0.001 * number) for number in range(10)])
    why = ("energy: not measured, /sys/…/energy_uj: no permission to read",)
    return MeasuredRun("process", "cpu", "Example 9000", threads, {}, 3, StepTimes(10, process=found), notes=why)


def simply(requested: MeasureSpec, tell) -> Measured:
    tell("an op")
    return measure(requested, start=lambda _setup: Simple())


@pytest.fixture(autouse=True, scope="module")
def few_ops():
    """Time too few ops of the design for a fit, in one round, because fits take longer than everything else."""
    patched = pytest.MonkeyPatch()
    patched.setattr("fomkit.bench.run.design", lambda *requested: design(*requested)[::37])
    patched.setattr("fomkit.bench.session.MIN_PER_REFIT", 1_000)
    yield
    patched.undo()


TOOLS = Tools(trace, time_step, simply, lambda: 2, lambda: 1.0, lambda: False)


@pytest.fixture(scope="module")
def proof() -> Proof:
    return prove_here(quick=True, names=("candle/p1b3", "candle/p1b2", "candle/tc1"), tools=TOOLS)


def test_the_ten_models_are_shipped_sources() -> None:
    assert len(set(SOURCES)) == 10
    assert all(source_of(name).is_file() for name in SOURCES)


def test_a_proof_has_every_model_twice_and_says_what_it_left_out(proof: Proof) -> None:
    assert [one.name for one in proof.exact] == [one.name for one in proof.unseen] == ["p1b3", "p1b2"]
    assert ("tc1", "does not fit into the memory here.") in proof.skipped
    assert set(proof.drift) == set(proof.widths) == {"p1b3", "p1b2"}
    assert proof.drift["p1b3"] == 0.0
    assert ("ratio of fp32 and bf16", "the processor does not multiply bf16 numbers") in proof.skipped
    (ratio,) = proof.ratios
    assert (ratio.name, ratio.threads, ratio.precision) == ("p1b3", 2, "")
    assert ratio.timed == pytest.approx(math.sqrt(2))
    assert ratio.projected == pytest.approx(1.0)  # the machine of the mind has no second core


@pytest.fixture(scope="module")
def of_one_core() -> Proof:
    """Run the check of one model on one core that multiplies bf16 numbers but cannot time them."""

    def refusing(one: MeasureSpec, tell) -> Measured:
        if one.options.precision:
            raise FomkitError("measure", "no bf16 here.")
        return simply(one, tell)

    tools = TOOLS._replace(cores=lambda: 1, load=lambda: 0.0, narrow=lambda: True, measure=refusing)
    return prove_here(names=("candle/p1b2",), tools=tools)


def test_threads_are_not_compared_where_there_is_one_core(of_one_core: Proof) -> None:
    assert not of_one_core.ratios
    assert any("there is 1 core" in told for _, told in of_one_core.skipped)


def test_threads_are_not_compared_where_they_would_wait() -> None:
    found = prove_here(quick=True, names=("candle/p1b2",), tools=TOOLS._replace(load=lambda: 6.0))
    assert not found.ratios
    assert any("the load is 6 on 2" in told for _, told in found.skipped)


def test_two_number_formats_are_compared_as_two_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fomkit.bench.run.formats_here", lambda _: [("fp32", "vector"), ("bf16", "vector")])
    monkeypatch.setattr("fomkit.validation.here.QUICK_NARROW", ("p1b2",))
    requested: list[MeasureSpec] = []

    def keep(one: MeasureSpec, tell) -> Measured:
        requested.append(one)
        return simply(one, tell)

    tools = TOOLS._replace(cores=lambda: 1, narrow=lambda: True, measure=keep)
    found = prove_here(quick=True, names=("candle/p1b3", "candle/p1b2"), tools=tools)
    (ratio,) = found.ratios
    assert (ratio.name, ratio.threads, ratio.precision) == ("p1b2", 1, "bf16")
    assert ratio.timed == pytest.approx(1.5)
    # The machine of the mind moves half the bytes of products, and computes as fast.
    assert 1.0 < ratio.projected < 2.0
    (narrow,) = (one for one in requested if one.options.precision == "bf16")
    assert len(narrow.models) == 1
    (content,) = content_of(found)["ratios"]
    assert (content["precision"], content["error"]) == ("bf16", pytest.approx(ratio.projected / 1.5 - 1))
    assert "relative to another way" in format_proof(content_of(found))


def test_a_format_that_cannot_be_measured_costs_its_ratio_only(of_one_core: Proof) -> None:
    assert ("ratio of fp32 and bf16", "measure: no bf16 here.") in of_one_core.skipped
    assert [one.name for one in of_one_core.exact] == ["p1b2"]


def test_energy_of_steps_is_told_or_why_there_is_none(proof: Proof) -> None:
    assert ("energy", "/sys/…/energy_uj: no permission to read") in proof.skipped
    assert all(one["energy"] is None for one in content_of(proof)["models"])
    read = StepEnergy(1.5, 1.25, 1.75, "chip", "RAPL counters package-0")
    content = content_of(replace(proof, energy={"p1b2": read}))
    known = {one["model"]: one["energy"] for one in content["models"]}
    assert known["p1b3"] is None
    assert known["p1b2"]["value_j"] == 1.5
    assert "energy of p1b2: 1.500 J (1.250 J to 1.750 J) a step, scope chip" in format_proof(content)


def test_a_shape_that_is_known_where_none_may_be_is_an_error() -> None:
    def leaky(requested: MeasureSpec, tell) -> Measured:
        models = requested.models or (str(requested.output.with_name("p1b3.yaml")),)
        return simply(replace(requested, models=models), tell)

    with pytest.raises(FomkitError, match="of its ops have their exact shape"):
        prove_here(quick=True, names=("candle/p1b3",), tools=TOOLS._replace(measure=leaky))


def test_shapes_that_are_kept_apart_are_not_timed(tmp_path: Path) -> None:
    def shapes(apart: frozenset) -> set:
        timer = Simple()
        measure(MeasureSpec(tmp_path / "here.yaml", "quick", apart=apart), start=lambda _setup: timer)
        return {shape_of(one) for one in timer.requested}

    some = frozenset(sorted(one for one in shapes(frozenset()) if one[0] != "gemm")[:3])
    assert len(some) == 3
    assert not some & shapes(some)


def compared(name: str, factor: float) -> Compared:
    return Compared(name, factor, Span(1.0, 0.99, 1.01, LEVEL))


def test_an_interval_comes_of_the_other_models_alone() -> None:
    steps = [compared(str(number), math.exp(0.1 * (-1) ** number)) for number in range(6)]
    spread = use_spread(steps)
    assert spread.faster == pytest.approx(spread.slower, rel=0.01)
    assert 0.08 < spread.slower < 0.1
    assert all(one.hit for one in widen_leave_one_out(steps))
    far = [*steps[:-1], compared("5", 9.0)]
    assert not widen_leave_one_out(far)[-1].hit
    assert widen_leave_one_out(far)[-1].span == widen_leave_one_out([*steps[:-1], compared("5", 2.0)])[-1].span
    assert widen_leave_one_out(steps[:1]) == steps[:1]
    assert use_spread([compared("0", 1.0), compared("1", 1.0)]) == Spread(0.0, 0.0)


def test_it_is_told_as_text_and_as_json(proof: Proof, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    content = content_of(proof)
    assert content["regressed"]
    text = format_proof(content)
    for word in ("p1b3", "exact shapes: median error", "unseen shapes", "PAST ITS TOLERANCE", "excluded: tc1"):
        assert word in text, word
    monkeypatch.setattr("fomkit.validation.here.prove_here", lambda **_settings: proof)
    path = tmp_path / "proof.csv"
    done = CliRunner().invoke(app, ["validate", "--here", "--quick", "--json", "-o", str(path)])
    assert done.exit_code == 1
    assert json.loads(done.stdout)["schema"] == "fomkit/here/1"
    assert path.read_text(encoding="utf-8").startswith("model,timed_s")


@pytest.mark.parametrize("arguments", [["--quick"], ["--here", "--full"], ["--here", "--sheet", "v100"]])
def test_options_that_do_not_go_together_are_told(arguments: list[str]) -> None:
    done = CliRunner().invoke(app, ["validate", *arguments])
    assert isinstance(done.exception, FomkitError)
    assert "Leave them out" in str(done.exception) or "Add --here" in str(done.exception)

"""A sheet model, evaluated from its inputs alone, equals the pipeline's results."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from fomkit.core.errors import FomkitError
from fomkit.core.interval import Span
from fomkit.core.job import Conditions, GivenTime, MeanName, Suite, SuiteLine
from fomkit.core.machine import Fact, Machine, Overhead
from fomkit.merit.fom import MEANS
from fomkit.merit.suites import SuiteResult, run_suite
from fomkit.plan.estimate import Estimate
from fomkit.plan.options import Options
from fomkit.profiles.machines import load_machine
from fomkit.profiles.models import load_model
from fomkit.profiles.suites import load_suite
from fomkit.verbs.compare import Comparison, compare
from fomkit.workbook.from_studies import sheet_model_of_comparison, sheet_model_of_suite
from fomkit.workbook.records import CaseValues, SheetModel, evaluate, floor_s, op_time

NEAR = 1e-12


def ends(span: Span | None) -> tuple[float, ...]:
    assert span is not None
    return span.value, span.low, span.high


def assert_same(found: CaseValues, one: Estimate) -> None:
    pairs = [
        (found.step.wall_s, one.step),
        (found.step.device_s, one.step_time.device_s),
        (found.step.host_launch_s, one.step_time.host_launch_s),
        (found.step.input_s, one.step_time.input_s),
        (found.run.epoch_s, one.run_time.epoch_s),
        (found.run.validation_s, one.run_time.validation_s),
        (found.run.run_s, one.run_time.run_s),
        (found.unit_per_day, one.unit_per_day),
        *((found.step.passes[name], span) for name, span in one.step_time.passes.items()),
    ]
    for ours, theirs in pairs:
        assert (ours is None) is (theirs is None)
        if theirs is not None:
            assert ends(ours) == pytest.approx(ends(theirs), rel=NEAR)
    assert found.coverage == pytest.approx(dict(one.coverage), rel=NEAR, abs=NEAR)
    assert found.step.bound == one.step_time.bound
    assert found.run.steps_per_epoch == one.run_time.steps_per_epoch


def assert_sheet_model_is(result: Comparison) -> SheetModel:
    book = sheet_model_of_comparison(result)
    values = evaluate(book)
    for one in (*result.estimates, *result.baseline):
        assert_same(values.cases[one.model.name, one.machine.name], one)
    for merit in result.merits:
        found = values.merits[merit.target.machine]
        assert ends(found.value) == pytest.approx(ends(merit.value), rel=NEAR)
        assert found.weights == pytest.approx(dict(merit.weights), rel=NEAR)
        for name, span in merit.others.items():
            assert ends(found.others[name]) == pytest.approx(ends(span), rel=NEAR), name
    return book


@cache
def machine(name: str) -> Machine:
    return load_machine(name)


def run(models: list[str], targets: list[Machine], baseline: Machine | None, **options: object) -> Comparison:
    return compare([load_model(name) for name in models], targets, baseline, Options(**options))  # type: ignore[arg-type]


def test_of_models_on_machines_with_tables() -> None:
    names = ["resnet50", "gpt2", "p1b3"]
    book = assert_sheet_model_is(run(names, [machine("v100")], machine("p100"), interval=0.5))
    assert book.level == 0.5
    assert max(len(case.ops) for case in book.cases) < 200  # equal ops of many modules are one line
    for case in book.cases:
        seconds = [span.value * line.count for line, span in priced(book, case.workload, case.machine)]
        assert seconds == sorted(seconds, reverse=True)


def priced(book: SheetModel, workload: str, name: str) -> list[tuple[object, Span]]:
    case = next(one for one in book.cases if (one.workload, one.machine) == (workload, name))
    device = book.machine(name).device
    return [(line, span) for line in case.ops if (span := op_time(line, device, book.level)) is not None]


def test_of_machines_that_are_short_of_power() -> None:
    book = assert_sheet_model_is(run(["alexnet"], [machine("t4"), machine("l4")], None))
    assert {name.partition(" on ")[2] for name in book.uses} == {
        "",
        "t4",
    }  # nothing was timed on the l4: its rates have the risk


def test_of_another_batch_a_kept_last_batch_and_a_machine_known_by_measured_ops() -> None:
    assert_sheet_model_is(run(["p1b3"], [machine("v100")], None, batch=256, last_batch="keep"))
    book = assert_sheet_model_is(run(["p1b3-lecture"], [machine("x86-lecture")], None))
    assert all(line.time_s is not None and line.utilisation is None for line in book.cases[0].ops)


def test_of_overheads_validation_and_a_system() -> None:
    def stated(value: float) -> Fact:
        return Fact(value, value / 2, value * 2, "measured", "")

    slowed = replace(
        machine("titan"),
        availability=0.9,
        overheads=(
            Overhead("input", "step", stated(0.5), None),
            Overhead("logging", "step", None, stated(0.01)),
            Overhead("checkpoint", "epoch", stated(9.0), None),
            Overhead("queue", "run", None, stated(0.05)),
        ),
    )
    model = load_model("p1b3")
    model = replace(model, data=replace(model.data, validation_samples=20_000))
    assert_sheet_model_is(compare([model], [slowed], machine("a"), Options(scope="system")))


def test_of_work_without_a_time(unsized: Path) -> None:
    unknown = replace(machine("x86-lecture"), name="partly")
    short = replace(unknown, timings=unknown.timings.iloc[:10].reset_index(drop=True), timings_key="")
    book = assert_sheet_model_is(run([str(unsized)], [short], None, allow_uncovered=True))
    assert any(line.time_s is None and line.utilisation is None for line in book.cases[0].ops)


def assert_suite_is(result: SuiteResult) -> SheetModel:
    book = sheet_model_of_suite(result)
    values = evaluate(book)
    for machine_, side in zip(result.machines, (result.baseline, result.target), strict=True):
        for one in side:
            found = values.unit_per_day.get((one.line.name, machine_.name))
            assert (found is None) is (one.unit_per_day is None)
            if one.unit_per_day is not None:
                assert ends(found) == pytest.approx(ends(one.unit_per_day), rel=NEAR)
    if result.merit is None:
        assert not values.merits
        return book
    merit = values.merits[result.machines[1].name]
    assert ends(merit.value) == pytest.approx(ends(result.merit.value), rel=NEAR)
    assert merit.other_means == pytest.approx(dict(result.merit.other_means), rel=NEAR)
    assert merit.weights == pytest.approx(dict(result.merit.weights), rel=NEAR)
    return book


@pytest.mark.parametrize(("name", "target", "fom"), [("lecture", "a", 229125 / 2774), ("kpp", "summit", 20.416)])
def test_of_a_suite_of_given_times(name: str, target: str, fom: float) -> None:
    suite = load_suite(name)
    result = run_suite(suite, machine(suite.baseline), machine(target), Options(), load_model)
    book = assert_suite_is(result)
    assert evaluate(book).merits[target].value.value == pytest.approx(fom, rel=1e-4)
    assert (book.threshold, book.worst_basis, book.cases) == (suite.threshold, "estimated", ())


@pytest.mark.parametrize("mean", list(MEANS))
def test_of_a_suite_with_estimated_given_changed_and_missing_lines(mean: MeanName) -> None:
    hours = {"v100": 2.0, "p100": 2.5}
    given = {
        name: GivenTime(Span(hour * 3600, hour * 3000, hour * 4000), "estimated", "lab", "baseline")
        for name, hour in hours.items()
    }
    lines = (
        SuiteLine("drug", True, "baseline", "modelled", "lab", model="p1b3", conditions=Conditions(batch=256)),
        SuiteLine("hours", True, "baseline", "estimated", "lab", given=given, weight=3.0),
        SuiteLine("twice", True, "optimized", "modelled", "lab", model="p1b3", runs=2.0, weight=2.0),
        SuiteLine("lost", False, "baseline", "estimated", "lab", given={"v100": given["v100"]}),
    )
    suite = Suite("s", "", 1, "p100", "device", lines, mean=mean)
    proposed = {"twice": Conditions(batch=500)}
    result = run_suite(suite, machine("p100"), machine("v100"), Options(), load_model, proposed)
    book = assert_suite_is(result)
    assert {(one.workload, one.machine) for one in book.cases} == {
        ("drug", "v100"), ("drug", "p100"), ("twice", "v100")
    }  # fmt: skip
    assert book.deviations[0][0] == "v100"
    assert "batch 100 → 500" in book.deviations[0][1]
    needed = replace(suite, lines=(*lines[:3], replace(lines[3], required=True)))
    assert_suite_is(run_suite(needed, machine("p100"), machine("v100"), Options(), load_model))


def test_a_predicted_op_follows_the_facts_and_a_measured_one_does_not() -> None:
    book = sheet_model_of_comparison(run(["p1b3", "alexnet"], [machine("v100")], None))
    device = book.machine("v100").device
    assert device.byte_per_s is not None
    twice = replace(device, byte_per_s=replace(device.byte_per_s, value=2 * device.byte_per_s.value))
    for case in book.cases:
        for line in case.ops:
            before, after = op_time(line, device, 0.8), op_time(line, twice, 0.8)
            assert before is not None
            assert after is not None
            faster = floor_s(line, device) / floor_s(line, twice)
            if line.utilisation is None:
                assert after == before
            elif not line.starts:
                assert before.value / after.value == pytest.approx(faster)
            assert after.low / after.value == pytest.approx(before.low / before.value)


def test_a_run_of_several_devices_is_refused() -> None:
    book = sheet_model_of_comparison(run(["p1b3"], [machine("v100")], None))
    (one,) = book.workloads
    greedy = replace(book, workloads=(replace(one, run=replace(one.run, devices_per_run=2)),))
    with pytest.raises(FomkitError, match=r"its run uses 2 devices .* for one device without communication"):
        evaluate(greedy)

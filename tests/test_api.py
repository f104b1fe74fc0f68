"""The Python interface: its surface, and an estimate as a person writes it in a notebook."""

from __future__ import annotations

import inspect
import json
import pkgutil
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

import fomkit
from docs.generate import api_page
from fomkit.cli.main import VERB_ENTRIES, VERBS, app, verb_function
from fomkit.verbs import views
from fomkit.verbs.answer import PROGRESS, Answer

FUNCTIONS = {
    "estimate": "estimate estimate_all write_report", "predict": "predict",
    "fom": "fom write_workbook",
    "compare": "compare", "advise": "advise", "memory": "memory",
    "show": "show",
    "explain": "explain", "profile": "profile save",
    "import": "import_file import_machine import_model import_measurements",
    "export": "export", "measure": "measure measure_machine measure_network measure_input",
    "validate": "validate", "pack": "pack", "review": "review", "accept": "accept",
    "cost": "cost", "sweep": "sweep", "sensitivity": "sensitivity", "solve": "solve",
    "scaling": "scaling", "campaign": "campaign", "schema": "schema",
}  # fmt: skip
"""What does in Python what a verb does."""


def test_every_verb_has_a_function() -> None:
    assert set(VERBS) == set(FUNCTIONS)
    for names in FUNCTIONS.values():
        for name in names.split():
            assert inspect.isfunction(getattr(fomkit, name))


def test_the_public_surface(root: Path) -> None:
    """docs/api.md lists all names, arguments and results, so every change of them is noticed."""
    page = (root / "docs" / "api.md").read_text(encoding="utf-8")
    assert page == api_page(), "run 'python docs/generate.py api > docs/api.md'"
    for name in fomkit.__all__:
        assert getattr(fomkit, name) is not None
        assert f"`{name}`" in page
    assert dir(fomkit) == sorted(fomkit.__all__)
    with pytest.raises(AttributeError, match="It has: Conditions"):
        _ = fomkit.nothing


def test_no_public_name_is_that_of_a_room() -> None:
    """An imported room replaces any attribute of its name in the package."""
    rooms = {one.name for one in pkgutil.iter_modules(fomkit.__path__)}
    assert not rooms & set(fomkit.__all__)


@pytest.mark.parametrize("name", [name for name in fomkit.__all__ if name.islower() and name[0] != "_"])
def test_every_function_is_documented_and_typed(name: str) -> None:
    function = getattr(fomkit, name)
    found, said = inspect.signature(function), inspect.getdoc(function) or ""
    assert found.return_annotation is not found.empty
    assert "Raises\n------\nFomkitError" in said
    for one in found.parameters.values():
        assert one.annotation is not one.empty
        told = re.search(rf"^(?:[\w, ]*\b)?{one.name}\b[\w, ]*( : .*)?$", said, re.MULTILINE)
        assert told or len(found.parameters) == 1, one.name


def test_a_machine_is_a_function_before_and_after_other_calls() -> None:
    assert fomkit.machine("titan").name == "titan"
    fomkit.estimate("p1b3-lecture", "x86-lecture")
    assert fomkit.machine("titan").name == "titan"


def test_an_estimate_carries_every_table_and_tells_itself() -> None:
    one = fomkit.estimate(fomkit.model("resnet50"), fomkit.machine("v100"), batch=64)
    assert one.sizes["batch"] == 64
    assert {"flop", "byte", "time_s", "low_s", "high_s", "time_source", "evidence"} <= set(one.ops.columns)
    assert one.step.low < one.step.value < one.step.high
    assert one.summary().startswith("resnet50 on v100: 3.58 days a run (")
    page = one._repr_html_()
    assert page.startswith('<p class="bold">resnet50 on v100: 3.58 days a run (')
    assert "<td>resnet50</td>" in page


def test_a_larger_batch_takes_longer_a_step_and_less_a_sample() -> None:
    small, large = (fomkit.estimate("resnet50", "v100", batch=batch).step.value for batch in (16, 64))
    assert small < large < 4 * small


def test_names_in_a_page_stay_text() -> None:
    hostile = replace(fomkit.model("p1b3-lecture"), name="<script>alert(1)</script>")
    assert "<script>" not in fomkit.estimate(hostile, "x86-lecture")._repr_html_()


def test_a_wider_level_gives_a_wider_interval() -> None:
    narrow, wide = (fomkit.estimate("alexnet", "v100", interval=level).step for level in (0.5, 0.95))
    assert wide.low < narrow.low < narrow.high < wide.high


def test_a_suite_and_its_proposals() -> None:
    rated = fomkit.fom("lecture", "a")
    assert rated.summary().splitlines()[0].startswith("lecture, version 1")
    with pytest.raises(fomkit.FomkitError, match="is given"):
        fomkit.fom("lecture", "a", proposals={"P1": fomkit.Conditions(batch=2)})
    with pytest.raises(fomkit.FomkitError, match="not a line of it"):
        fomkit.fom("lecture", "a", proposals={"P9": fomkit.Conditions(batch=2)})


def test_measured_and_projected_stand_in_one_table() -> None:
    table = fomkit.compare().table
    tc1 = table[(table["model"] == "tc1") & (table["machine"] == "v100")].iloc[0]
    assert tc1["measured.value"] == 44
    assert tc1["projected.low"] < tc1["projected.value"] < tc1["projected.high"]


def test_several_models_against_a_baseline() -> None:
    both = fomkit.estimate_all(["alexnet", "p1b3"], ["v100"], baseline=fomkit.machine("p100"))
    (merit,) = both.merits
    alone = fomkit.estimate("p1b3", "v100")
    assert both.estimates[1].unit_per_day == alone.unit_per_day
    times = [1 / rate.value for rates in (merit.baseline, merit.target) for rate in rates.unit_per_day.values()]
    assert merit.value.value == pytest.approx(sum(times[:2]) / sum(times[2:]))
    assert "FOM v100 over p100" in both.summary()
    with pytest.raises(fomkit.FomkitError, match=r"is one name, 'alexnet'\. Give a list"):
        fomkit.estimate_all("alexnet", ["v100"])


def test_a_partial_batch_is_kept_or_dropped() -> None:
    steps = [fomkit.estimate("p1b3", "v100", last_batch=one).run_time.steps_per_epoch for one in ("drop", "keep")]
    assert steps == [8001, 8002]


def test_answers_say_what_the_command_line_says() -> None:
    for words, answer in (
        (["explain", "p1b3", "--target", "v100", "--top", "3"], fomkit.explain("p1b3", "v100", top=3)),
        (
            ["memory", "alexnet", "--batch", "64", "--target", "v100"],
            fomkit.memory("alexnet", "v100", batch=64),
        ),
        (["show", "p1b3", "--by", "module", "--depth", "1"], fomkit.show("p1b3", by="module", depth=1)),
        (["show", "v100"], fomkit.show("v100")),
        (["show"], fomkit.show()),
    ):
        done = CliRunner().invoke(app, words)
        assert done.stdout == answer.summary()
        assert len(answer.table) == len(answer.rows) > 0
        assert answer.content["schema"] in repr(answer)


SAME = {
    "estimate p1b3 tc1 -t v100 --baseline p100 --last-batch keep --from candle-lecture": (
        fomkit.estimate_all, (["p1b3", "tc1"], ["v100"], "p100"),
        {"last_batch": "keep", "measurements": "candle-lecture"},
    ),
    "estimate p1b3 -t a100-sxm --nodes 1 --layout zero=1 --node-devices 4": (
        fomkit.estimate_all, (["p1b3"], ["a100-sxm"]), {"nodes": 1, "layout": "zero=1", "node_devices": 4}
    ),
    "fom candle -t v100 --propose P1B3.batch=200 --threshold 0.5 --allow-excluded": (
        fomkit.fom, ("candle", "v100"),
        {"proposals": {"P1B3": fomkit.Conditions(batch=200)}, "threshold": 0.5, "allow_excluded": True},
    ),
    "fom candle -t v100 --propose P1B3.batch=20": (
        fomkit.fom, ("candle", "v100"), {"proposals": ["P1B3.batch=20"]}
    ),
    "fom candle -t v100 --from candle-lecture": (
        fomkit.fom, ("candle", "v100"), {"measurements": "candle-lecture"}
    ),
    "compare tc1 nt3 -t v100 --calibrate-on tc1": (
        fomkit.compare, (["tc1", "nt3"],), {"machines": ["v100"], "calibrate_on": "tc1"}
    ),
    "compare tc1 --grid -t v100 --latency 5ms": (
        fomkit.compare, (["tc1"],), {"machines": ["v100"], "grid": True, "latency": 0.005}
    ),
    "show gpt2 --by module --top 50%": (fomkit.show, ("gpt2",), {"by": "module", "top": 0.5}),
    "show gpt2 --by module": (fomkit.show, ("gpt2",), {"by": "module"}),
    "show gpt2 --by module --depth 0": (fomkit.show, ("gpt2",), {"by": "module", "depth": 0}),
    "show --metrics": (fomkit.show, (), {"metrics": True}),
    "sweep p1b3 -t v100 --vary batch=50,100 --scope device": (
        fomkit.sweep, ("p1b3", "v100", {"batch": [50, 100]}), {"scope": "device"}
    ),
}  # fmt: skip
"""Command lines, and the calls that say the same."""


@pytest.mark.parametrize("words", SAME)
def test_python_says_what_the_command_line_says(words: str) -> None:
    function, given, named = SAME[words]
    assert CliRunner().invoke(app, words.split()).stdout == function(*given, **named).summary()


def test_loaded_profiles_are_as_good_as_names() -> None:
    found = fomkit.compare([fomkit.model("candle/tc1")], machines=[fomkit.machine("v100")], grid=True)
    assert found.summary() == fomkit.compare(["tc1"], machines=["v100"], grid=True).summary()
    shown = fomkit.show(fomkit.model("gpt2"), machine=fomkit.machine("v100"))
    assert shown.summary() == fomkit.show("gpt2", machine="v100").summary()


def test_profiles_are_equal_to_themselves_and_not_to_others() -> None:
    """Their tables have an `==` of their own, by which a dataclass of Python 3.13 would compare them."""
    for profile, table in ((fomkit.machine("v100"), "timings"), (fomkit.model("gpt2"), "ops")):
        assert profile == replace(profile)
        assert profile != replace(profile, title="another")
        assert profile != replace(profile, **{table: getattr(profile, table).copy()})
        assert profile != "v100"


def test_the_twelve_steps_are_told_in_python() -> None:
    found = fomkit.estimate_all(["p1b3-lecture"], ["x86-lecture"])
    words = ["estimate", "p1b3-lecture", "-t", "x86-lecture", "--explain"]
    assert CliRunner().invoke(app, words).stdout == found.summary(explain=True) != found.summary()


def test_python_writes_the_points_of_a_sweep_as_the_command_line_does(tmp_path) -> None:
    words = ["sweep", "p1b3", "-t", "v100", "--vary", "batch=50,100", "-o", str(tmp_path / "typed.csv")]
    assert CliRunner().invoke(app, words).exit_code == 0
    found = fomkit.sweep("p1b3", "v100", ["batch=50,100"], output=tmp_path / "called.csv", keep=False)
    assert (tmp_path / "called.csv").read_bytes() == (tmp_path / "typed.csv").read_bytes()
    assert len(found.table) == 0
    assert found.best["batch"] == 100
    with pytest.raises(fomkit.FomkitError, match="resume: continues a file of points"):
        fomkit.sweep("p1b3", "v100", ["batch=50,100"], resume=True)


def test_python_freezes_a_suite(tmp_path, root: Path) -> None:
    path = tmp_path / "next.suite.yaml"
    found = fomkit.fom(root / "model_profiles" / "candle.suite.yaml", freeze=path)
    assert f"{path}: version" in found.summary()
    assert found.content["lines"]
    again = fomkit.fom(path, "v100", allow_excluded=True)
    assert again.suite.frozen
    with pytest.raises(fomkit.FomkitError, match=r"own baseline only\. Leave `target` out"):
        fomkit.fom("candle", "v100", freeze=path)


def test_work_tells_its_parts_to_who_watches() -> None:
    told = []
    mark = PROGRESS.set(lambda count=None: told.append(count))
    try:
        fomkit.estimate_all(["p1b3", "tc1"], ["v100"])
    finally:
        PROGRESS.reset(mark)
    assert told == [2, None, None]


def test_a_page_of_an_answer_is_text() -> None:
    hostile = replace(fomkit.model("p1b3-lecture"), name="<script>alert(1)</script>")
    assert "<script>" not in fomkit.explain(hostile, "x86-lecture", top=1)._repr_html_()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: fomkit.show("p1b3", by="size"), "by: is 'size'. Give one of kind, op"),
        (lambda: fomkit.show("p1b3", measure="power"), "measure: is 'power'"),
        (lambda: fomkit.show("p1b3", top=95), "top: is 95. Give a share"),
        (lambda: fomkit.show("p1b3", precision="fp16"), "precision: depends on the machine"),
        (lambda: fomkit.explain("p1b3", 5), "machine: is of type int"),
        (lambda: fomkit.machine(5), "machine: is of type int"),
        (lambda: fomkit.save("p1b3", "x.yaml"), "what: is of type str"),
        (
            lambda: fomkit.estimate("p1b3", "v100", nodes=1, layout={"tensor": 8}),
            "layout: is {'tensor': 8}. Give a text or a path or a list.",
        ),
        (lambda: fomkit.scenarios("p1b3", "v100", {"byte_per_s": ["1 TB/s"]}), "dict of columns, of numbers."),
        (lambda: fomkit.save(fomkit.machine("titan"), "x.json"), "a profile is a YAML file"),
        (lambda: fomkit.measure_machine("here.yaml", plan="slow"), "plan: is 'slow'. Expected one of quick"),
        (lambda: fomkit.measure_machine("here.json"), "has the wrong ending for a machine profile"),
        (lambda: fomkit.measure_network("here.yaml", ranks=1), "ranks: is 1. Give 2 or more"),
        (lambda: fomkit.compare(["alexnet"], machines=["v100"], grid=True, latency=0), "latency: is 0"),
        (lambda: fomkit.write_workbook(None, "x.csv"), "has the wrong ending for a workbook"),
        (lambda: fomkit.pack(["alexnet"], "v100", Path()), "exists already"),
    ],
)
def test_a_slip_is_one_message(call, said: str, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(fomkit.FomkitError) as caught:
        call()
    assert said in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_a_table_of_timings_is_a_machine_and_back(root: Path, tmp_path) -> None:
    table = root / "machine_profiles" / "m40.timings.csv"
    found = fomkit.import_machine(table, name="mine")
    written = fomkit.save(found, tmp_path / "mine.yaml")
    again = fomkit.machine(written[0])
    assert len(again.timings) == len(found.timings) == 626
    with pytest.raises(fomkit.FomkitError):
        fomkit.save(found, tmp_path / "mine.yaml")
    assert fomkit.save(found, tmp_path / "mine.yaml", force=True) == written


def test_a_table_of_ops_is_a_model_and_back(root: Path, tmp_path) -> None:
    table = root / "model_profiles" / "vgg16.ops.csv"
    found = fomkit.import_model(table, sizes={"batch": 64}, train_samples=1000, epochs=2)
    written = fomkit.save(found, tmp_path / "mine.yaml")
    assert fomkit.model(written[0]).run.epochs == 2
    vgg, mine = (fomkit.estimate(one, "v100", batch=64).step.value for one in ("vgg16", written[0]))
    assert mine == pytest.approx(vgg)


def test_measurements_of_a_record_and_back(tmp_path) -> None:
    record = tmp_path / "record.json"
    record.write_text(RECORD, encoding="utf-8")
    found = fomkit.import_measurements(record, model="resnet50", machine="v100")
    assert found.table.loc[0, ["model", "machine", "quantity", "value"]].tolist() == [
        "resnet50", "v100", "sample_per_s", 321.0
    ]  # fmt: skip
    with pytest.raises(fomkit.FomkitError, match="are for a meter's log"):
        fomkit.import_measurements(record, start="1")
    (table,) = fomkit.save(found, tmp_path / "measured.csv")
    (back,) = fomkit.export(table, tmp_path / "back.json").content["files"]
    told = json.loads(Path(back).read_text(encoding="utf-8"))
    assert told == {**told, **json.loads(RECORD), "device": "v100"}
    with pytest.raises(fomkit.FomkitError, match="measurements are a CSV file"):
        fomkit.save(found, tmp_path / "measured.yaml")


RECORD = '{"device": "V100", "framework": "pytorch", "problem": {"name": "resnet50"}, "samples_per_second": 321}'
SUITE = """schema: fomkit/suite/1
name: agreed
version: 1
baseline: p100
scope: device
mean: ratio_of_harmonic_means
lines: [{name: A, basis: committed, party: vendor, given: {p100: 9 h, v100: 5 h}}]
"""
DELIVERED = "model,machine,quantity,value,devices,scope,basis\nA,v100,run_s,17000,1,device,measured\n"


def test_a_measured_baseline_carries_over(tmp_path) -> None:
    table = tmp_path / "measured.csv"
    table.write_text(
        "model,machine,quantity,value,batch,precision,devices,scope,basis\n"
        "resnet50,p100,step_s,0.15,32,fp32,1,device,measured\n", encoding="utf-8"
    )  # fmt: skip
    both = fomkit.estimate_all(["resnet50"], ["v100"], baseline="p100", measurements=table)
    (way,) = both.content["from_measurements"]["models"]
    assert way["measured_times_ratio"]["step_s"]["value"] == pytest.approx(
        0.15 * both.estimates[0].step.value / both.baseline[0].step.value
    )
    assert "measured baseline × predicted ratio" in both.summary()
    with pytest.raises(fomkit.FomkitError, match="needs the machine that was measured"):
        fomkit.estimate_all(["resnet50"], ["v100"], measurements=table)


def test_a_round_with_a_vendor(tmp_path) -> None:
    (tmp_path / "agreed.suite.yaml").write_text(SUITE, encoding="utf-8")
    (tmp_path / "m.csv").write_text(DELIVERED, encoding="utf-8")
    rated = fomkit.fom(tmp_path / "agreed.suite.yaml", "v100")
    assert rated.merit.value.value == pytest.approx(9 / 5)
    accepted = fomkit.accept(tmp_path / "agreed.suite.yaml", "v100", tmp_path / "m.csv")
    assert accepted.table["verdict"].tolist() == ["met"]
    fomkit.write_workbook(rated, tmp_path / "sent.xlsx", only="v100")
    back = fomkit.review(tmp_path / "sent.xlsx", tmp_path / "sent.xlsx")
    assert back.changes == ()
    assert back.summary()
    written = fomkit.pack(["alexnet"], "v100", tmp_path / "asked")
    assert {Path(path).name for path in written.table["file"]} == {"cases.csv", "time_ops.py", "README.txt"}
    assert written.summary().startswith("alexnet: cases.csv covers")


def test_rates_within_a_latency() -> None:
    grid = fomkit.compare(["alexnet"], machines=["v100"], grid=True, latency=0.01).table
    assert {"model", "machine"} <= set(grid.columns)
    assert set(grid["model"]) == {"alexnet"}


def test_scaling_is_a_table_with_intervals() -> None:
    options = {"nodes": range(1, 3), "links": ["system, 5 us, 25 GB/s, each"]}
    found = fomkit.scaling("p1b3", "a100-sxm", **options, slots=2, checkpoint="60 s", device_mtbf="50000 h")
    table = found.table
    assert table[["mode", "nodes"]].to_numpy().tolist() == [["strong", 1], ["strong", 2], ["weak", 1], ["weak", 2]]
    assert (table["efficiency.low"] < table["efficiency.value"]).all()
    assert (table["step_s.value"] < table["step_s.high"]).all()
    assert table["system.useful_share"].between(0.9, 1).all()
    assert found.bandwidth()["replicas"].tolist() == [8, 16]
    assert found.summary().startswith("p1b3 on a100-sxm, 8 devices in a node")
    alone = fomkit.scaling(fomkit.model("p1b3"), fomkit.machine("v100"), nodes=[1], node_devices=1)
    assert alone.bandwidth().empty
    assert alone.table["efficiency.value"].tolist() == [1.0, 1.0]


def test_scaling_in_python_has_one_message_for_each_slip() -> None:
    for slip, said in (
        ({"nodes": [0]}, "nodes: 0 is not a number of nodes"),
        ({"nodes": [1.5]}, "nodes: 1.5 is not a number of nodes"),
        ({"nodes": []}, "nodes: are missing"),
        ({"layout": "tensr=2"}, "'tensr' is not part of a layout"),
        ({"links": ["5 us"]}, "is not TIER, ALPHA, BANDWIDTH, DIRECTION"),
        ({"mode": "fast"}, "mode: is 'fast'. Give strong, weak or both"),
        ({"node_devices": 0}, "node_devices: is 0. Give a whole number of 1 or more"),
        ({"slots": 1.5}, "slots: is 1.5. Give a whole number"),
        ({"checkpoint": "60"}, "has no unit"),
    ):
        with pytest.raises(fomkit.FomkitError, match=said):
            fomkit.scaling("p1b3", "v100", **({"nodes": [1], "node_devices": 1} | slip))


@pytest.mark.parametrize("verb", [name for name, where in VERBS.items() if where.startswith("fomkit.")])
def test_the_command_line_asks_what_the_function_asks(verb: str) -> None:
    """Options are made from the signature: none is missing on either side, except options that every verb has."""
    from fomkit.cli.adapter import command_line
    from fomkit.verbs.answer import command_of, help_of

    function = verb_function(verb)
    assert getattr(fomkit, function.__name__) is function
    assert function.__name__ in (verb, f"{verb}_all", f"{verb}_file")  # import is a word of Python's own
    asked, said = inspect.signature(command_line(verb, function)).parameters, help_of(function)
    command, takes = command_of(function), set(inspect.signature(function).parameters)
    of_all = {
        "as_json", "output", "quiet", *command.shows, *(["allow_oversize"] if command.judges_fit else []),
        *([command.override_option[0][2:].replace("-", "_")] if command.override_option else []),
        *(["only"] if command.workbook else []), "force",
    }  # fmt: skip
    made = {"tell", *command.python_only, *(["output"] if command.streams else [])}
    assert set(asked) - (of_all - (takes - made)) == takes - made
    assert said.about
    assert VERB_ENTRIES[verb].examples
    assert all(f"{example} ".startswith(f"fomkit {verb} ") for example in VERB_ENTRIES[verb].examples)
    assert set(said.parameters) == takes


def test_a_name_of_before_is_told() -> None:
    same = {"follow_memory": "memory", "export_measurements": "export", "validate_predictions": "validate"}
    for name, now in same.items():
        with pytest.warns(DeprecationWarning, match=rf"fomkit\.{now}"):
            assert getattr(fomkit, name) is getattr(fomkit, now)
    with pytest.warns(DeprecationWarning, match=r"fomkit\.fom now"):
        rated = fomkit.rate_suite("candle", "v100", baseline="p100", measured="candle-lecture")
    assert rated.calibration is not None
    with pytest.warns(DeprecationWarning, match=r"fomkit\.validate now, with here=True"):
        assert fomkit.prove_here.keywords == {"here": True}


HELP_LOADS_NOTHING = sorted(set(VERBS) - {"scaling", "schema"})


def test_the_help_of_verbs_loads_no_library_that_calculates() -> None:
    """Help must not wait for libraries that only the work needs."""
    code = "import sys; from fomkit.cli.main import verb_command as made; [made(one) for one in sys.argv[1:]]; "
    heavy = ("pandas", "numpy", "pydantic", "yaml", "rich.progress", "fomkit.plan.estimate", "fomkit.merit.suites")
    asked = [sys.executable, "-c", f"{code}print(*(set({heavy}) & set(sys.modules)))", *HELP_LOADS_NOTHING]
    assert subprocess.run(asked, capture_output=True, text=True, check=True).stdout == "\n"


def test_a_verb_says_what_it_is_at_and_keeps_what_it_gives(tmp_path, monkeypatch, capsys) -> None:
    """A parameter ``tell`` is the progress line, a Python-only parameter is no option, -o is `fomkit.save`."""
    from fomkit.cli.adapter import command_line
    from fomkit.verbs.answer import StoredResult, command

    told: list[str] = []

    @command(
        "starting", arguments={"source": "FILE"}, plain=True, python_only={"loss": None},
        stores=StoredResult("machine", "Keep it.", lambda asked: f"{Path(asked['source']).stem}.yaml"),
    )  # fmt: skip
    def halved(source: str, *, limit: int = 9, loss=None, tell=told.append) -> object:
        """Halve a system."""
        tell("halving")
        if limit < 9:
            raise fomkit.FomkitError("`source`, `limit`", f"`loss` is {loss}, `limit` is {limit}.")
        return replace(fomkit.machine(source), system_nodes=9344)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fomkit.cli.choices.status_line", lambda *_, **__: nullcontext(told.append))
    monkeypatch.setitem(
        views.ANSWERS, "Machine", lambda one: Answer({}, [], lambda *_: f"{one.name}\n", said=["said"])
    )
    verb = command_line("halve", halved)
    assert "loss" not in inspect.signature(verb).parameters
    given = {"source": "titan", "limit": 9, "output": None, "force": False, "quiet": False}
    verb(**given)
    assert told == ["halving"]
    assert fomkit.machine("titan.yaml").system_nodes == 9344
    assert capsys.readouterr() == ("titan\nWritten: titan.yaml\n", "said\n")
    with pytest.raises(fomkit.FomkitError, match=r"titan\.yaml.* exists already"):
        verb(**given)
    assert told == ["halving"]  # a file that is there is told before the work
    verb(**given | {"force": True})
    with pytest.raises(fomkit.FomkitError, match="is both input and output"):
        verb(**given | {"source": "titan.yaml"})
    with pytest.raises(fomkit.FomkitError, match=r"^FILE, --limit: `loss` is None, --limit is 3\.$"):
        verb(**given | {"limit": 3, "force": True})


def test_what_is_of_another_type_is_refused_by_name() -> None:
    read_elsewhere, asked = re.compile(r"\b(Any|Callable|\w*Frame|\w*Plan|\w*Result|Estimate)\b"), 0
    for function in filter(
        inspect.isfunction, (getattr(fomkit, name) for name in fomkit.__all__ if name not in ("machine", "model"))
    ):
        for name, parameter in inspect.signature(function).parameters.items():
            whole = re.sub(r"Sequence\[[^\]]*\]", "Sequence", parameter.annotation)
            if not read_elsewhere.search(parameter.annotation) and not re.search(r"Machine|ModelProfile", whole):
                with pytest.raises(fomkit.FomkitError, match=rf"^{name}: is <object .*Give [a-zT].*\.$"):
                    function(**{name: object()})
                asked += 1
    assert asked > 200


def test_sizes_and_words_are_no_other_type() -> None:
    for given in ({"batch": True}, {"batch": "64"}, {"precision": 16}, {"interval": "0.8"}, {"sizes": ["batch"]}):
        (name,) = given
        with pytest.raises(fomkit.FomkitError, match=f"^{name}: is .* Give a "):
            fomkit.estimate("resnet50", "v100", **given)
    for given in ({"batch": 10**400}, {"nodes": 10**400}, {"sizes": {"seq": 10**16}}):
        with pytest.raises(fomkit.FomkitError, match=r"10+( is not a number of nodes)?\. Give .*1e\+15"):
            fomkit.estimate("gpt2", "v100", **given)
    with pytest.raises(fomkit.FomkitError, match="precision: 'x' is not a precision"):
        fomkit.memory("gpt2", precision="x")
    with pytest.raises(fomkit.FomkitError, match="machines: is missing"):
        fomkit.estimate_all(["gpt2"], [])
    with pytest.raises(fomkit.FomkitError, match=r"points: are 3: .* Expected a DataFrame, or a dict of columns"):
        fomkit.scenarios("gpt2", "v100", 3)
    with pytest.raises(fomkit.FomkitError, match=r"bandwidth: is not a column .* It is called byte_per_s"):
        fomkit.scenarios("gpt2", "v100", {"bandwidth": [1e12]})
    for word, advice in (
        ("tp=2", "It is called tensor"),
        ("dp=8", "It is called data"),
        ("fsdp", "zero=3"),
    ):
        with pytest.raises(fomkit.FomkitError, match=f"--layout: .* is not part of a layout. .*{advice}"):
            fomkit.estimate("gpt2", "v100", layout=word)


@pytest.mark.parametrize(
    ("what", "ask"),
    [
        ("machines", lambda: fomkit.campaign("candle-example", "titan")),
        ("models", lambda: fomkit.compare("p1b3")),
        ("models", lambda: fomkit.pack("p1b3", "v100", "nowhere")),
    ],
)
def test_one_name_for_a_list_is_told(what: str, ask: Callable[[], object]) -> None:
    with pytest.raises(fomkit.FomkitError, match=rf"^{what}: is one name, '\w+'\. Give a list"):
        ask()


@pytest.mark.parametrize(
    "words",
    [
        "estimate p1b3 -t v100 --baseline p100 --from mine.csv -o mine.csv",
        "fom candle -t v100 --from mine.csv -o ./mine.csv",
        "cost p1b3 -t v100 --to-accuracy mine.csv -o mine.csv",
        "predict mine.csv -t v100 -o mine.csv --force",
        "export mine.csv -o mine.csv --force",
    ],
)
def test_a_file_that_is_read_is_never_written(words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.csv").write_text("of my own\n", encoding="utf-8")
    done = CliRunner().invoke(app, words.split())
    assert isinstance(done.exception, fomkit.FomkitError)
    assert "is both input and output. Name another output with -o." in str(done.exception)
    assert Path("mine.csv").read_text(encoding="utf-8") == "of my own\n"


@pytest.mark.parametrize(
    ("words", "lost"),
    [
        ("explain cnn.yaml -t v100", "cnn.ops.csv"),
        ("estimate cnn.yaml -t v100", "cnn.ops.csv"),
        ("sweep cnn.yaml -t v100 --vary batch=100", "cnn.ops.csv"),
        ("memory cnn.yaml", "cnn.layers.csv"),
    ],
)
def test_a_table_that_is_read_of_a_profile_is_never_written(
    words: str, lost: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fomkit.save(fomkit.model("vgg16"), "cnn.yaml")
    before = Path(lost).read_bytes()
    for _ in range(2):  # fresh, and from the cache
        done = CliRunner().invoke(app, [*words.split(), "-o", lost, "--force"])
        assert f"{lost}: is an input, and would be overwritten" in str(done.exception)
        assert Path(lost).read_bytes() == before
    fomkit.save(fomkit.model("cnn.yaml"), "cnn.yaml", force=True)  # who says so in Python may


@pytest.mark.parametrize(
    "words",
    [
        "estimate p1b3 -t v100 -o mine.json",
        "sweep p1b3 -t v100 --vary batch=100 -o mine.csv",
        "fom lecture --freeze mine.suite.yaml",
        "show p1b3 -t v100 --timeline mine.json",
    ],
)
def test_no_verb_replaces_a_file_unless_forced(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    mine = Path(words.split()[-1])
    mine.write_text("of my own\n", encoding="utf-8")
    done = CliRunner().invoke(app, words.split())
    assert f"{mine}: exists already. Choose another name, or pass --force" in str(done.exception)
    assert mine.read_text(encoding="utf-8") == "of my own\n"
    assert CliRunner().invoke(app, [*words.split(), "--force"]).exit_code == 0
    assert mine.read_text(encoding="utf-8") != "of my own\n"


def test_json_stands_alone_where_a_file_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("ops.csv").write_text("kind,dtype,m,n,k\ngemm,fp32,64,64,64\n", encoding="utf-8")
    done = CliRunner().invoke(app, ["predict", "ops.csv", "-t", "v100", "-o", "timed.csv", "--json"])
    assert json.loads(done.stdout)["schema"] == "fomkit/predict/1"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("estimate batch -t v100", "batch: no model profile"),
        ("show interval", "interval: no model or machine profile"),
        ("profile bad.py", "raises ValueError: 'optimizer' must be set, see 'name'"),
    ],
)
def test_words_of_others_are_not_taken_for_parameters(
    words: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.py").write_text("raise ValueError('`optimizer` must be set, see `name`')\n", encoding="utf-8")
    done = CliRunner().invoke(app, words.split())
    assert said in str(done.exception)


def test_what_python_shows_of_an_answer_is_one_line() -> None:
    shown = {repr(one) for one in (fomkit.estimate("p1b3", "v100"), fomkit.machine("v100"), fomkit.model("p1b3"))}
    assert all(len(one) < 200 and "\n" not in one for one in shown)
    assert any(one.startswith("<p1b3 on v100: a step takes 1.681 ms (") for one in shown)


def test_a_session_shows_each_result_in_one_line() -> None:
    results = [
        fomkit.fom("lecture", "a"), fomkit.sensitivity("p1b3", "v100"), fomkit.solve("p1b3", "v100", step="1 ms"),
        fomkit.cost("p1b3", "v100"), fomkit.sweep("p1b3", "v100", {"batch": [50]}),
        fomkit.estimate_all(["p1b3"], ["v100"]),
    ]  # fmt: skip
    for one in results:
        shown = repr(one)
        assert "\n" not in shown
        assert shown == f"<{type(one).__name__}: {one.summary().splitlines()[0]}>"


@pytest.mark.parametrize("name", ["links", "layout"])
@pytest.mark.parametrize("value", [1, None, b"x"])
def test_a_list_of_texts_contains_texts(name: str, value: object) -> None:
    with pytest.raises(fomkit.FomkitError, match=rf"^{name}: contains {value!r}\. Give a list of texts"):
        fomkit.estimate("p1b3", "v100", **{name: [value]})

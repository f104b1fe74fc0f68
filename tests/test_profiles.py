"""Profile files: what is read, what is refused with file and line, and that a failure loses nothing."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from read_once import Readers

import fomkit
from fomkit.core.errors import FomkitError, ManyFomkitError
from fomkit.files.documents import load_document
from fomkit.files.op_csv import format_table, read_table
from fomkit.files.write import write_whole
from fomkit.ops.check import check_table
from fomkit.profiles.campaigns import find_profile
from fomkit.profiles.evidence import others_of
from fomkit.profiles.machine_record import save_machine
from fomkit.profiles.machines import load_machine
from fomkit.profiles.models import load_model, save_model
from fomkit.profiles.suites import load_suite
from fomkit.verbs.compare import estimates_content

HEAD = "schema: fomkit/machine/1\nname: x\n"


def written(folder: Path, text: str | bytes, name: str = "x.yaml") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize(
    ("given", "name"), [("V100", "v100"), ("RTX 4090", "rtx-4090"), ("rtx4090", "rtx-4090"), ("B200", "b200-sxm")]
)
def test_names_differ_by_more_than_case_and_signs(given: str, name: str) -> None:
    """As somebody writes them; V100 is the V100, though another board of it has a longer name."""
    assert fomkit.machine(given).name == name
    assert any("taken for" in one for one in fomkit.machine(given).caveats) == (given == "B200")


def test_models_and_suites_are_found_as_somebody_writes_them() -> None:
    assert load_model("ResNet-50").name == "resnet50"
    assert load_model("CANDLE/P1B1").name == "p1b1"  # in a subfolder
    assert load_suite("KPP").name == "kpp"
    with pytest.raises(FomkitError, match=r"\./V100: no such file"):
        load_machine("./V100")


@pytest.mark.parametrize(
    ("text", "value"),
    [("15.7e12", 15.7e12), ("1e3", 1000.0), ("no", "no"), ("yes", "yes"), ("on", "on"), ("8", 8), ("-0.5", -0.5),
     ("true", True), ("null", None), ("'010'", "010"), ("2017-01-01", "2017-01-01"), ("900 GB/s", "900 GB/s")],
)  # fmt: skip
def test_scalars_are_what_they_look_like(tmp_path: Path, text: str, value: object) -> None:
    found = load_document(written(tmp_path, f"a: {text}\n")).content["a"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1\na: 2\n", r"x.yaml:2: the key 'a' is given twice"),
        ("a: &x 1\nb: *x\n", r"x.yaml:1: anchors and aliases"),
        ("a: 1:30\n", "could be read in several ways"),
        ("a: 010\n", "could be read in several ways"),
        ("a: 0x10\n", "could be read in several ways"),
        ("a: .nan\n", "could be read in several ways"),
        ("a: .inf\n", "could be read in several ways"),
        ("a: NaN\n", "could be read in several ways"),
        ("a: 1e999\n", "too large"),
        ("a: !!python/object/apply:os.system [ls]\n", r"the tag .* is not allowed"),
        ("a: " + "[" * 50 + "]" * 50, "nested more than 20 deep"),
        ("a: " + "{a: " * 5000 + "}" * 5000, "nested more than 20 deep"),
        ("- 1\n- 2\n", "contains no mapping"),
        ("", "contains no mapping"),
        ("a: [1, 2\n", "is not valid YAML"),
        ("? [1, 2]\n: 3\n", "a key must be a word"),
        (b"\xff\xfe\x00a", "not UTF-8"),
        (b"a: \x00\x01", "control characters"),
        ("x" * 200_001, "has more than 200,000 bytes"),
    ],
)
def test_doubtful_yaml_is_refused(tmp_path: Path, text: str | bytes, words: str) -> None:
    with pytest.raises(FomkitError, match=words):
        load_document(written(tmp_path, text))


def test_a_billion_laughs_are_refused_at_once(tmp_path: Path) -> None:
    lines = ["a0: &a0 [lol]"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    with pytest.raises(FomkitError, match="anchors and aliases"):
        load_document(written(tmp_path, "\n".join(lines)))


@given(st.text(max_size=300))
def test_any_text_is_read_or_refused_never_a_crash(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = written(tmp_path_factory.getbasetemp(), text.encode("utf-8", "surrogatepass"), "any.yaml")
    try:
        told = str(load_document(path).path)
    except FomkitError as error:
        told = str(error)
    assert str(path) in told


def test_all_mistakes_are_told_at_once_with_their_lines(tmp_path: Path) -> None:
    text = HEAD + (
        "device:\n"
        "  peak:\n"
        "    - {rate: 15.7 TFLOP/s, source: x}\n"
        "  memory: {capacity: 16 GiB, bandwidth: 3.35, source: x}\n"
        "  launch: {per_op: 5 us, lo: 3 us}\n"
        "nodes: {devices: 8}\n"
    )
    with pytest.raises(ManyFomkitError) as caught:
        load_machine(written(tmp_path, text))
    told = str(caught.value)
    assert "x.yaml:5: device.peak[0].dtype is missing" in told
    assert "x.yaml:5: device.peak[0].engine is missing" in told
    assert (
        "x.yaml:6: device.memory.bandwidth is '3.35', which has no unit. Write, for example, '900 GB/s'." in told
    )
    assert "x.yaml:7: device.launch.lo is not a known key. The nearest name is 'low'." in told
    assert "x.yaml:8: nodes is not a known key. The nearest names are 'node'" in told


def test_a_number_with_quotes_or_a_unit_is_told_to_be_written_without(tmp_path: Path) -> None:
    with pytest.raises(ManyFomkitError) as caught:
        load_machine(written(tmp_path, HEAD + 'node: {devices: 4}\nsystem: {nodes: "16", availability: true}\n'))
    assert "nodes is '16'. Expected: a whole number, without quotes or a unit." in str(caught.value)
    assert "availability is True. Expected: a number, without quotes or a unit." in str(caught.value)


@pytest.mark.parametrize(("text", "share"), [("0.95", 0.95), ("95 %", 0.95), ("'95%'", 0.95), ("100 %", 1.0)])
def test_availability_is_a_number_or_a_percentage(tmp_path: Path, text: str, share: float) -> None:
    system = f"node: {{devices: 4}}\nsystem: {{nodes: 16, availability: {text}}}\n"
    assert load_machine(written(tmp_path, HEAD + system)).availability == share
    with pytest.raises(FomkitError, match=r"system\.availability is 1\.95\. Expected: less than or equal to 1"):
        load_machine(written(tmp_path, HEAD + system.replace(text, "195 %")))


def test_figures_that_no_machine_has_are_told_at_once_by_name(tmp_path: Path) -> None:
    """Before, only the date was reported; number format, zero memory, process and name were accepted."""
    text = (
        "schema: fomkit/machine/1\n"
        "name: my machine\n"
        "device:\n"
        "  memory: {bandwidth: 900 GB/s, capacity: 0 GiB, source: x}\n"
        "  peak:\n"
        "    - {dtype: fp31, engine: vector, rate: 1 TFLOP/s, source: x}\n"
        "    - {dtype: fp32, engine: vector, rate: 0 TFLOP/s, source: x}\n"
        "  launch: {per_op: 5 us, low: 9 us, high: 3 us}\n"
        "links: [{tier: node, alpha: 1 us, bandwidth: 0 GB/s, direction: each, source: x}]\n"
        "overheads: [{name: io, per: run, time: 5 s, high: 4 s, source: x}]\n"
        "energy: {scope: chip, process: 0 nm, idle: {power: 5 W, high: 0 W, source: x}}\n"
        "price: {rate: 3 USD/h, per: device, date: 2026-02-30, source: x}\n"
    )
    with pytest.raises(ManyFomkitError) as caught:
        load_machine(written(tmp_path, text))
    told = sorted(str(error).partition("x.yaml:")[2] for error in caught.value.errors)
    absent, order = (
        "Write a value above 0, or leave it out if it is unknown.",
        "low ≤ value ≤ high. Correct these.",
    )
    assert told == sorted([
        "2: the name 'my machine' is not a single word. Write, for example, 'my-machine'.",
        f"4: device.memory.capacity is 0. {absent}",
        "6: device.peak[0].dtype: 'fp31' is not a number format. The nearest names are 'fp32', 'fp16', 'fp8'.",
        f"7: device.peak[1].rate must be above 0 with {order}",
        f"8: device.launch.per_op must be above 0 with {order}",
        "9: bandwidth is 0 B/s. Give a rate above 0.",
        "10: the overhead 'io' must have low ≤ time ≤ high. Correct these.",
        f"11: energy.process is 0. {absent}",
        f"11: energy.idle.power must be above 0 with {order}",
        "12: the price's date is '2026-02-30'. Write the day of the price, for example 2018-04-01.",
    ])  # fmt: skip


@pytest.mark.parametrize(
    ("entries", "told"),
    [
        ("device: {peak: [{dtype: fp32, engine: vector, rate: 1 TFLOP/s, source: x}, "
         "{dtype: fp32, engine: vector, rate: 2 TFLOP/s, source: y}]}",
         r"x.yaml:3: device.peak\[1\] and device.peak\[0\] both describe fp32 vector. Keep one of them."),
        ("links: [{tier: node, alpha: 1 us, bandwidth: 1 GB/s, direction: each, source: x}, "
         "{tier: node, alpha: 1 us, bandwidth: 2 GB/s, direction: each, source: x}]",
         r"x.yaml:3: links\[1\] and links\[0\] both describe node."),
        ("overheads: [{name: load, per: run, time: 5 s, source: x}, {name: load, per: run, time: 9 s, source: x}]",
         r"x.yaml:3: overheads\[1\] and overheads\[0\] both describe load run."),
    ],
)  # fmt: skip
def test_a_fact_that_is_stated_twice_is_refused(tmp_path: Path, entries: str, told: str) -> None:
    with pytest.raises(FomkitError, match=told):
        load_machine(written(tmp_path, f"{HEAD}{entries}\n"))


@pytest.mark.parametrize(
    ("cells", "told"),
    [
        ("1e-3,2e-3,5e-4,9", r"x.timings.csv:2: time_s is 0.001 and its quartiles are p25_s 0.002 and p75_s"),
        ("1e-3,1e-4,5e-4,9", "Expected p25_s ≤ time_s ≤ p75_s: the time is the median of the repeats."),
        ("1e-3,9e-4,2e-3,0", r"x.timings.csv:2: repeats is 0. Expected a finite number of 1 or more"),
        ("1e-3,-1,2e-3,5", r"x.timings.csv:2: p25_s is -1. Expected a finite number of 0 or more"),
    ],
)  # fmt: skip
def test_a_time_beside_its_quartiles_is_refused(tmp_path: Path, cells: str, told: str) -> None:
    head = "kind,dtype,engine,b,m,n,k,time_s,p25_s,p75_s,repeats"
    written(tmp_path, f"{head}\ngemm,fp32,vector,1,64,64,64,{cells}\n", "x.timings.csv")
    with pytest.raises(FomkitError, match=told):
        load_machine(written(tmp_path, f"{HEAD}timings: [x.timings.csv]\n"))


def test_other_sums_messages_and_steps_are_other_facts(tmp_path: Path) -> None:
    peak = "{dtype: fp16, engine: matrix, rate: 1 TFLOP/s, source: x"
    link = "{tier: node, alpha: 1 us, bandwidth: 1 GB/s, direction: each, source: x"
    text = (
        f"{HEAD}device: {{peak: [{peak}}}, {peak}, accumulate_dtype: fp32}}]}}\n"
        f"links: [{link}, messages_to: 1 kB}}, {link}, messages_from: 1 kB}}, {link}, channel: mpi}}]\n"
        "overheads: [{name: in, per: run, time: 5 s, source: x}, {name: in, per: epoch, time: 9 s, source: x}]\n"
    )
    machine = load_machine(written(tmp_path, text))
    assert (len(machine.device.peaks), len(machine.links), len(machine.overheads)) == (2, 3, 2)


def test_a_machine_that_is_saved_has_a_name_of_one_word(tmp_path: Path) -> None:
    save_machine(replace(load_machine("v100"), name="in my office"), path := tmp_path / "mine.yaml")
    assert load_machine(path).name == "in-my-office"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name: x\n", "has no schema line. Expected: 'schema: fomkit/machine/1'"),
        ("schema: fomkit/model/1\nname: x\n", r"x.yaml:1: schema is 'fomkit/model/1'"),
        (HEAD + "system: {nodes: 4}\n", r"x.yaml:3: states nodes, but node.devices is absent"),
        (HEAD + "timings: [../secret.csv]\n", r"x.yaml:3: timings '../secret.csv' must be in the folder"),
        (HEAD + "timings: [absent.csv]\n", "its table absent.csv is absent. Put it beside"),
        (HEAD + "overheads: [{name: io, per: run, source: x}]\n", "needs either 'time' or 'share'"),
        (HEAD + "device: {memory: {bandwidth: 0 GB/s, source: x}}\n", "above 0"),
        (HEAD + "device: {memory: {bandwidth: 9 GB/s, low: 10 GB/s, source: x}}\n", "low ≤ value ≤ high"),
    ],
)
def test_wrong_machines_are_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(FomkitError, match=words):
        load_machine(written(tmp_path, text))


def test_unknown_names_get_the_nearest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FomkitError, match=r"v10: no machine profile of this name. The nearest names are 'v100'"):
        load_machine("v10")
    with pytest.raises(FomkitError, match=r"resnet5: no model profile .*'resnet50'"):
        load_model("resnet5")


def test_a_chip_names_its_only_board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_machine("h200").name == "h200-sxm"
    with pytest.raises(FomkitError, match="several machines begin with this name: a100-pcie-40gb, a100-sxm"):
        load_machine("a100")
    with pytest.raises(FomkitError, match="several machines begin with this name: a100-pcie-40gb, a100-sxm"):
        find_profile("a100")
    with pytest.raises(FomkitError, match=r"mi300: no machine profile .*'mi300x'"):
        load_machine("mi300")
    for other in ("gtx-1080", "rtx-6000", "trainium"):  # other devices than those whose names they begin
        with pytest.raises(FomkitError, match=f"{other}: no machine profile of this name. The nearest name is"):
            load_machine(other)
    assert load_machine("H 200").asked_as == "H 200"
    Path("mine.yaml").write_text("schema: fomkit/machine/1\nname: mine\n")
    assert load_machine("mine.yaml").asked_as == ""


# --- device: NAME ------------------------------------------------------------------------------------------------


def machine_file(folder: Path, name: str, rest: str) -> Path:
    return written(folder, f"schema: fomkit/machine/1\nname: {name}\n{rest}", f"{name}.yaml")


@pytest.mark.parametrize("model", ["p1b3", "resnet50"])
def test_summit_prices_what_v100_prices(model: str) -> None:
    alone, built = (fomkit.estimate(model, name) for name in ("v100", "summit"))
    pd.testing.assert_frame_equal(alone.ops, built.ops)
    assert alone.step == built.step
    summit = load_machine("summit")
    assert (summit.node_devices, summit.system_nodes, summit.device_of) == (6, 4608, "v100")
    assert fomkit.estimate(model, "summit", scope="system").runs_at_once == 27_648


def test_a_named_device_lies_beside_the_file_or_has_a_known_name(tmp_path: Path) -> None:
    peak = 'device: {peak: [{dtype: fp32, engine: vector, rate: 1 TFLOP/s, source: "s"}]}\n'
    machine_file(tmp_path, "chip", peak)
    machine_file(tmp_path, "v100", peak)
    for name, rate in (("chip", 1e12), ("chip.yaml", 1e12), ("v100", 1e12), ("p100", 9.3e12), ("h200", 66.9e12)):
        built = load_machine(machine_file(tmp_path, "cluster", f"device: {name}\nnode: {{devices: 2}}\n"))
        assert built.device.peaks[0].rate.value == pytest.approx(rate)
    assert (built.device_of, built.node_devices) == ("h200-sxm", 2)
    assert any("come from the profile h200-sxm" in note for note in built.notes)


def test_a_machine_keeps_what_it_states_and_takes_links_of_a_node_of_the_same_size_only(tmp_path: Path) -> None:
    link = '{tier: node, alpha: 1 us, bandwidth: 1 GB/s, direction: each, source: "s"}'
    of = load_machine("h100-sxm")
    same, other, own = (
        load_machine(machine_file(tmp_path, "cluster", f"device: h100-sxm\n{rest}"))
        for rest in ("node: {devices: 8}\n", "node: {devices: 4}\n", f"node: {{devices: 8}}\nlinks: [{link}]\n")
    )
    assert same.links == of.links
    assert same.timings_key == of.timings_key
    assert set(same.fits) == set(of.fits)
    assert other.links == ()
    assert own.links[0].byte_per_s == 1e9
    for machine in (other, own):
        assert set(machine.timings["kind"]) == {"gemm", "attention", "experts"}
        assert set(machine.fits) == {name for name in of.fits if not name.startswith("collective")}


def test_a_link_between_nodes_leaves_the_devices_link_inside_a_node(tmp_path: Path) -> None:
    """Who states the network of a cluster keeps NVLink and what was timed over it."""
    link = '{tier: system, alpha: 5 us, bandwidth: 25 GB/s, direction: each, source: "s"}'
    of = load_machine("h100-sxm")
    built = load_machine(machine_file(tmp_path, "cluster", f"device: h100-sxm\nlinks: [{link}]\n"))
    assert [one.tier for one in built.links] == ["system", "node"]
    assert built.links[1:] == of.links
    assert built.timings_key == of.timings_key
    layout = {"nodes": 1, "layout": "tensor=8", "batch": 8}
    alone, there = (fomkit.estimate("llama3-8b-decode", one, **layout) for one in (of, built))
    assert alone.step == there.step


def test_timings_of_its_own_come_beside_those_of_the_device(tmp_path: Path) -> None:
    row = "kind,dtype,engine,time_s,b,m,n,k,trans_a,trans_b\ngemm,fp32,vector,0.5,1,3,5,7,0,0\n"
    written(tmp_path, row, "own.csv")
    machine = load_machine(machine_file(tmp_path, "cluster", "device: v100\ntimings: [own.csv]\n"))
    assert len(machine.timings) == len(load_machine("v100").timings) + 1
    assert not machine.fits


@pytest.mark.parametrize(
    ("rest", "words"),
    [
        ("device: v10\n", r"x.yaml:3: the device 'v10': no machine profile of this name. The nearest .*'v100'"),
        ("device: a100\n", r"x.yaml:3: the device 'a100': several machines begin with this name: a100-pcie"),
        ("device: x\n", r"x.yaml:3: the device is the machine itself: x.yaml → x.yaml. Name a machine"),
        ("device: y\n", r"y.yaml:3: the device is the machine itself: x.yaml → y.yaml → x.yaml. Name a machine"),
        ("device: ../x\n", r"x.yaml:3: the device '../x' must be in the folder of this file"),
        ("device: /x.yaml\n", r"x.yaml:3: the device '/x.yaml' must be in the folder of this file"),
        ("device: 5\n", r"x.yaml:3: device is 5. Expected: a mapping"),
        ("device: v100\norigin: {}\n", r"x.yaml:4: is stated, but the device is that of another machine"),
    ],
)
def test_devices_that_cannot_be_taken_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rest: str, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    machine_file(tmp_path, "y", "device: x\n")
    with pytest.raises(FomkitError, match=words):
        load_machine(machine_file(tmp_path, "x", rest))


def test_a_machine_of_a_named_device_is_no_second_board() -> None:
    """Summit is a V100: it must neither be used as evidence for V100s nor be scored as another machine."""
    forward = "conv/fp32/vector/forward"
    told = {name: len(others_of(load_machine(name))[forward].log_s) for name in ("summit", "v100", "a100-sxm")}
    assert told == {"summit": 8, "v100": 8, "a100-sxm": 9}


def test_a_machine_of_the_name_itself_comes_before_boards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_machine("v100").name == "v100"
    assert load_machine("p100").name == "p100"


@pytest.mark.parametrize("name", ["titan", "titan.yaml", "machine_profiles/titan.yaml"])
def test_a_machine_is_found_by_every_spelling(name: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    assert load_machine(name).system_nodes == 18_688


def test_the_folder_beside_the_user_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "machine_profiles").mkdir()
    written(tmp_path / "machine_profiles", HEAD.replace("name: x", "name: mine"), "titan.yaml")
    monkeypatch.chdir(tmp_path)
    assert load_machine("titan").name == "mine"
    assert load_machine("a").name == "a"


@pytest.mark.parametrize("name", ["v100", "p100", "titan", "a", "x86-lecture"])
def test_saved_machines_load_the_same(name: str, tmp_path: Path) -> None:
    machine = load_machine(name)
    again = load_machine(save_machine(machine, tmp_path / f"{name}.yaml")[0])
    pd.testing.assert_frame_equal(again.timings, machine.timings)
    assert (again.device, again.node_devices, again.system_nodes) == (
        machine.device,
        machine.node_devices,
        machine.system_nodes,
    )
    assert again.timings_key == machine.timings_key


def test_saved_models_load_the_same(tmp_path: Path) -> None:
    model = load_model("p1b3-lecture")
    again = load_model(save_model(model, tmp_path / "again.yaml")[0])
    pd.testing.assert_frame_equal(again.ops, model.ops)
    assert (again.data, again.run, again.unit, again.sizes) == (model.data, model.run, model.unit, model.sizes)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("op,speed\nmm,3\n", "'speed' is not a column of a table of ops"),
        ("", "is empty. A table of ops was expected, with a header."),
        ("op\n", "has a header and no rows. At least one row of ops was expected."),
        ("op,op\nmm,mm\n", "is given twice"),
        ("op,m\nmm\n", ":2: has 1 cells where the header has 2"),
        ("op,count\nmm,many!\n", ":2: count is 'many!'. Expected a number"),
        ("op,m\nmm,nan\n", "Leave the cell empty"),
        ("op,m\nmm,inf\n", "Leave the cell empty"),
        ("op,m\nmm,import os; 1\n", "Expected a number or an expression"),
        ('op,m\n"mm,3\n', "is not a CSV table"),
        (b"op\n\xff\xfe\n", "is not a CSV table"),
    ],
)
def test_wrong_tables_are_refused(tmp_path: Path, text: str | bytes, words: str) -> None:
    with pytest.raises(FomkitError, match=words):
        read_table(written(tmp_path, text, "x.csv"), "OPS")


def test_rows_of_empty_cells_are_none(tmp_path: Path) -> None:
    # Spreadsheet programs leave them above and below a table.
    text = "\ufeff,,\r\nop,kind,m\r\na,gemm,2\r\n,,\r\nb,gemm,3\r\n,,\r\n"
    assert read_table(written(tmp_path, text, "x.csv"), "OPS")["m"].tolist() == [2.0, 3.0]


names = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0", exclude_categories=["Cs"]), max_size=20)
cells = st.one_of(st.floats(allow_nan=False, allow_infinity=False, width=64), st.just(math.nan))


@given(st.lists(st.tuples(names, cells), min_size=1, max_size=6))
def test_tables_read_back_exactly(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, float]]) -> None:
    data = pd.DataFrame(
        {"op": pd.Series([name for name, _ in rows], dtype="object"),
         "kind": pd.Series(["gemm"] * len(rows), dtype="object"),
         "m": pd.Series([cell for _, cell in rows], dtype="float64")}
    )  # fmt: skip
    path = tmp_path_factory.getbasetemp() / "round.csv"
    path.write_bytes(format_table(data, "OPS").encode())
    again = read_table(path, "OPS")
    for column in again.columns:
        pd.testing.assert_series_equal(again[column], data[column])


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x", "'=1", "\tx"])
def test_live_text_is_disarmed_in_the_file(text: str) -> None:
    data = pd.DataFrame({"op": [text], "kind": ["gemm"]})
    cell = format_table(data, "OPS").splitlines()[1].split(",")[0].strip('"')
    assert cell == f"'{text}"


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, "old")

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(FomkitError, match="No space left"):
        write_whole(path, "new")
    assert path.read_text() == "old"
    assert [item.name for item in tmp_path.iterdir()] == ["x.yaml"]


def test_suites_need_given_times_or_a_model(tmp_path: Path) -> None:
    text = (
        "schema: fomkit/suite/1\nname: s\nversion: 1\nbaseline: titan\nscope: system\n"
        "mean: ratio_of_harmonic_means\nlines:\n  - {name: P1, basis: estimated, party: lab}\n"
    )
    with pytest.raises(
        FomkitError, match=r"x.yaml:8: line 'P1' has no work. Add 'given' times, a 'model', or both"
    ):
        load_suite(written(tmp_path, text))


def test_a_folder_is_no_file_to_write(tmp_path: Path) -> None:
    (tmp_path / "out.csv").mkdir()
    with pytest.raises(FomkitError, match=r"is a folder\. Choose another name"):
        write_whole(tmp_path / "out.csv", "text")
    assert [item.name for item in tmp_path.iterdir()] == ["out.csv"]


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("count", math.nan, "count is empty. Expected a finite number above 0"),
        ("count", -5.0, "count is -5. Expected a finite number above 0"),
        ("count", 0.0, "above 0"),
        ("n", 0.5, "n is 0.5. Expected a whole number of 1 or more"),
        ("n", 0.0, "whole number of 1 or more"),
        ("m", -5.0, "whole number of 1 or more"),
        ("trans_a", 7.0, "whole number of 0 or more, at most 1"),
        ("write_byte", -100.0, "finite number of 0 or more"),
        ("pass_name", "foward", "Expected one of forward, backward"),
        ("pass_name", "", "Expected one of forward, backward"),
        ("dtype", "fp31", "Expected one of .*fp32"),
        ("engine", "tensor", "Expected one of vector, matrix"),
    ],
)
def test_values_out_of_range_are_refused(column: str, value: object, words: str) -> None:
    ops = load_model("p1b3-lecture").ops.copy()
    check_table(ops, "OPS", "x")
    ops.loc[0, column] = value
    with pytest.raises(FomkitError, match=rf"x: row 0: {column}.*{words}|{words}"):
        check_table(ops, "OPS", "x")


def test_one_wrong_word_among_right_ones_is_refused_where_it_stands() -> None:
    ops = load_model("p1b3-lecture").ops.loc[[0, 0, 0]].reset_index(drop=True)
    ops.loc[1, "pass_name"] = "foward"
    with pytest.raises(FomkitError, match="x: row 1: pass_name is 'foward'"):
        check_table(ops, "OPS", "x")


@pytest.mark.parametrize("value", [0.0, -0.001, math.nan])
def test_a_timing_without_a_time_is_refused(value: float) -> None:
    timings = load_machine("x86-lecture").timings.copy()
    timings.loc[3, "time_s"] = value
    with pytest.raises(FomkitError, match=r"row 3: time_s is .* Expected a finite number above 0"):
        check_table(timings, "TIMINGS", "x")


def test_an_op_table_without_rows_is_refused(tmp_path: Path, root: Path) -> None:
    for name in ("p1b3.yaml", "p1b3.ops.csv", "p1b3.layers.csv", "p1b3.order.csv.gz"):
        (tmp_path / name).write_bytes((root / "model_profiles" / "candle" / name).read_bytes())
    header = (tmp_path / "p1b3.ops.csv").read_text().splitlines()[0]
    (tmp_path / "p1b3.ops.csv").write_text(header + "\n")
    with pytest.raises(FomkitError, match="has a header and no rows"):
        load_model(tmp_path / "p1b3.yaml")


@pytest.mark.parametrize("name", ["sub/zzzz", "zzzz.yaml", "zzzz.txt", "./zzzz.pt"])
@pytest.mark.parametrize("load", [load_model, load_machine, find_profile])
def test_a_path_that_leads_nowhere_is_no_list_of_names(name, load) -> None:
    with pytest.raises(FomkitError, match="no such file, and no m") as caught:
        load(name)
    assert "Known names" not in str(caught.value)
    with pytest.raises(FomkitError, match="Known names"):
        load("zzzz")


@pytest.mark.parametrize("load", [load_model, load_machine, find_profile])
def test_a_pipe_and_a_folder_are_named_as_such(load, tmp_path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    with pytest.raises(FomkitError, match="is a pipe"):
        load(str(tmp_path / "pipe"))
    with pytest.raises(FomkitError, match="is a folder, not a file"):
        load(str(tmp_path / "folder"))


@pytest.mark.parametrize("name", ["resnet50", "gpt2"])
def test_text_in_pyarrows_arrays_gives_the_same_figures(name: str, root: Path, read_each_time: Readers) -> None:
    pytest.importorskip("pyarrow", reason="PyArrow is not installed, so pandas keeps text itself")
    found = []
    for storage in ("python", "pyarrow"):
        with pd.option_context("mode.string_storage", storage):
            machine = read_each_time.machine(root / "machine_profiles" / "v100.yaml", ())
            model = read_each_time.model(root / "model_profiles" / f"{name}.yaml")
            assert getattr(pd.Series(["gemm"]).dtype, "storage", storage) == storage
            found.append(estimates_content(fomkit.estimate_all([model], [machine])))
    assert found[0] == found[1]

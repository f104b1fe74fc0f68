"""Memory of a step: liveness by hand, figures of classic networks, shipped orders, steps that do not fit."""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import replace
from math import ceil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from fomkit.cli.main import app
from fomkit.core.errors import FomkitError
from fomkit.core.machine import Fact, Machine
from fomkit.core.units import Precision
from fomkit.frontends.config import profile_config
from fomkit.ops.resize import resize_ops
from fomkit.plan.memory import largest_that_fits, memory_use, standing_memory
from fomkit.plan.memory_of import can_follow, fit_in, largest_batch, reserve_of, room_byte, step_memory
from fomkit.plan.options import Options
from fomkit.plan.scaling import smallest_layout
from fomkit.profiles.machine_record import save_machine
from fomkit.profiles.machines import load_machine
from fomkit.profiles.models import load_model, save_model
from fomkit.verbs.estimates import estimate, estimate_all
from fomkit.verbs.looks import explain, memory
from fomkit.verbs.machine_view import memory_content

MIB = 2**20
NAN = float("nan")
SHIPPED = ["alexnet", "vgg16", "googlenet", "resnet50-caffe", "resnet50", "gpt2", "candle/p1b3", "candle/p3b2"]


def order_of(*lines: tuple[float, float, str, float, float]) -> pd.DataFrame:
    table = pd.DataFrame(lines, columns=["id", "row", "role", "output_byte", "freed_by"])
    return table.assign(module="", pass_name="")


OPS = pd.DataFrame({
    "op": ["conv", "relu", "conv_backward", "sgd"], "kind": ["conv", "pointwise", "conv", "optimizer"],
    "module": ["a", "b", "a", ""], "pass_name": ["forward", "forward", "backward_weight", "update"],
})  # fmt: skip


def test_a_line_of_the_order_may_stand_for_a_thousand_ops_and_no_more() -> None:
    memory_use(order_of((2000, 0, "activation", 1, NAN), (1, 1, "activation", 1, NAN)), OPS, np.zeros(4), "x")
    with pytest.raises(FomkitError, match="refers to op 2,001, but has 2 lines"):
        memory_use(order_of((2001, 0, "activation", 1, NAN), (1, 1, "activation", 1, NAN)), OPS, np.zeros(4), "x")


def test_memory_is_known_where_an_order_was_recorded_and_says_the_size() -> None:
    model = load_model("candle/p1b3")
    fixed = replace(model, order=resize_ops(model.order, model.sizes, model.name))
    other = {**model.sizes, "batch": 64}
    assert [can_follow(one, other) for one in (model, fixed, replace(model, order=None))] == [True, False, False]
    assert [can_follow(one, model.sizes) for one in (fixed, replace(model, order=None))] == [True, False]


def test_liveness_by_hand() -> None:
    order = order_of(
        (0, NAN, "parameter", 1000, NAN),  # 1024 in blocks
        (1, 0, "activation", 512, 3),
        (2, 1, "temporary", 512, 2),
        (3, 2, "gradient", 1000, NAN),
        (4, 3, "", 0, NAN),
    )
    use = memory_use(order, OPS, np.array([0.0, 0.0, 300.0, 0.0]), "net")
    assert use.live_byte.tolist() == [1024, 1536, 2048, 2860, 2048]
    assert (use.peak_id, use.peak_byte) == (3, 2860)
    assert {role: byte for role, byte in use.by_role(3).items() if byte} == {
        "parameter": 1024, "gradient": 1024, "activation": 512, "workspace": 300,
    }  # fmt: skip
    assert [use.peak_of(name) for name in ("forward", "backward", "update", "other")] == [2, 3, 4, None]
    assert use.standing(3).groupby("module")["byte"].sum().to_dict() == {"": 1024, "a": 512 + 1024 + 300}


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 4000), st.integers(0, 8) | st.none()), min_size=1))
def test_liveness_is_what_counting_moment_by_moment_gives(pieces) -> None:
    lines = [(first, byte, NAN if more is None else first + more) for first, byte, more in pieces]
    order = order_of(*((first, NAN, "temporary", byte, freed) for first, byte, freed in lines))
    use = memory_use(order, OPS, np.zeros(4), "net")
    for moment, live in enumerate(use.live_byte):
        stands = [byte for first, byte, freed in lines if first <= moment and not freed < moment]
        assert live == sum(512 * ceil(byte / 512) for byte in stands)
        assert sum(use.by_role(moment).values()) == live


def test_orders_that_belong_to_no_step_are_refused() -> None:
    with pytest.raises(FomkitError, match="refers to row 9 of 4 ops"):
        memory_use(order_of((1, 9, "temporary", 8, 1)), OPS, np.zeros(4), "net")
    # What the op that makes it frees is in order; the line after it is not.
    lines = (2, 1, "temporary", 8, 2), (5, 1, "temporary", 8, 3)
    with pytest.raises(FomkitError, match="net: row 1: memory is freed before it is allocated"):
        memory_use(order_of(*lines), OPS, np.zeros(4), "net")


@given(st.integers(0, 3000))
def test_the_largest_batch(most: int) -> None:
    assert largest_that_fits(lambda batch: batch <= most, 2048) == min(most, 2048)


# weights, activations and im2col of one sample in MiB, as the lecture prints them
@pytest.mark.parametrize(
    ("name", "weights", "activations", "gathered"),
    [("alexnet", 233, 8, 11.24), ("vgg16", 528, 110, None), ("googlenet", 26.7, 52.6, 46.19),
     ("resnet50-caffe", 97.5, 221.1, 79.19)],
)  # fmt: skip
def test_the_classic_networks(name, weights, activations, gathered) -> None:
    content = memory_content(load_model(name), Options())
    layers = content["layers"]
    for byte, told in (
        (content["totals"]["parameter"], weights),
        (layers["with_copies_byte"], activations),
        (layers["im2col_byte"], gathered),
    ):
        digits = len(str(told).partition(".")[2])
        assert told is None or round(byte / MIB, digits) == told


def test_feature_maps_of_resnet_and_its_workspace() -> None:
    model = load_model("resnet50-caffe")
    layers = memory_content(model, Options(batch=32))["layers"]
    assert round(layers["feature_maps_byte"] / MIB, 2) == 178.21
    assert round(32 * layers["feature_maps_in_place_byte"] / MIB, 1) == 4594.1
    assert round(32 * layers["feature_maps_byte"] / MIB, 1) == 5702.7
    use = step_memory(model, model.sizes)
    assert use is not None
    assert use.workspace_byte.max() == layers["largest_im2col_byte"]


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_orders_agree_with_their_other_tables(name: str) -> None:
    model = load_model(name)
    use = step_memory(model, model.sizes)
    assert use is not None
    standing = standing_memory(resize_ops(model.ops, model.sizes, name))
    assert standing is not None
    unrounded = 512 * len(use.pieces)
    for role, least in standing._asdict().items():
        assert least <= use.total(role) <= least + unrounded, role
    assert 4 * model.parameters_total <= use.total("parameter") <= 4 * model.parameters_total + unrounded
    executed = model.order[model.order["row"].notna()].drop_duplicates("id")["row"].value_counts()
    single = resize_ops(model.ops, model.sizes, name).reset_index(drop=True)
    plain = single[~single["kind"].isin(["attention", "rnn"])]
    assert executed.reindex(plain.index).tolist() == plain["count"].tolist()


@pytest.mark.parametrize("name", SHIPPED)
def test_the_largest_batch_is_the_last_that_fits(name: str) -> None:
    model = load_model(name)
    largest = largest_batch(model, model.sizes, 16 * 1024 * MIB)
    fits = [
        step_memory(model, {**model.sizes, "batch": batch}).peak_byte <= 16 * 1024 * MIB
        for batch in (largest, largest + 1)
    ]
    assert fits == [True, False]


def test_an_estimate_says_what_does_not_fit() -> None:
    fits, too_large = (estimate("vgg16", "titan", batch=batch) for batch in (32, 256))
    assert not any("does not fit" in said for said in fits.deviations)
    (said,) = [one for one in too_large.deviations if "does not fit" in one]
    assert "titan has 6,144 MiB" in said
    assert "a step would need 19,538 MiB" in said
    assert not any(
        "does not fit" in one for one in estimate("vgg16", "v100", batch=256, precision="mixed").deviations
    )
    bare = replace(load_model("vgg16"), order=None)
    assert not any("does not fit" in one for one in estimate(bare, "titan", batch=256).deviations)
    huge = replace(bare, ops=bare.ops.assign(numel=bare.ops["numel"].where(bare.ops["kind"] != "optimizer", 1e9)))
    (said,) = [one for one in estimate(huge, "titan").deviations if "does not fit" in one]
    assert "optimizer's state alone would need 11,444 MiB" in said


def _fits(devices: int, **layout: int | bool) -> bool | None:
    words = ",".join(name if value is True else f"{name}={value}" for name, value in layout.items())
    found = estimate("today/llama3-8b", "a100-sxm", nodes=1, node_devices=devices, layout=words or "zero=0")
    return found.fit.fits


@pytest.mark.parametrize(
    ("inside", "layout"), [(4, "tensor 4, sequence,"), (2, "tensor 2, pipeline 2, sequence,")]
)
def test_one_sample_is_split_by_tensor_over_a_whole_node_and_no_farther(inside: int, layout: str) -> None:
    machine = replace(load_machine("a100-sxm"), node_devices=inside)
    found = smallest_layout(load_model("today/llama3-8b"), machine, Options(batch=1))
    assert found.startswith(f"the smallest layout that fits: 4 devices, {layout}")


SMALLEST = "the smallest layout that fits: 4 devices, tensor 2, sequence, microbatch 1, zero 1, 65,426 MiB on each"
OPTIONS = "--nodes 1 --node-devices 4 --layout tensor=2,sequence,microbatch=1,zero=1"


def test_what_fits_no_device_names_the_smallest_layout_that_does() -> None:
    run = CliRunner().invoke
    room = run(app, ["memory", "today/llama3-8b", "-t", "a100-sxm"]).output
    assert f"{SMALLEST} ({OPTIONS})" in " ".join(room.split())
    assert "does not fit in 81,920 MiB (549%); largest batch that fits: 0, with the reserve" in room
    done = run(app, ["estimate", "today/llama3-8b", "-t", "a100-sxm"])
    assert (done.exit_code, SMALLEST in done.stderr) == (1, True)
    assert "a step would need 449,464 MiB" in done.stderr
    told = run(app, ["estimate", "today/llama3-8b", "-t", "a100-sxm", *OPTIONS.split()]).output
    assert "fit" not in told.replace("fits of", "")
    # On half of them nothing does: what replicas share out, and what a tensor group or stages split.
    tried = [{"zero": zero, "microbatch": 1} for zero in range(4)]
    tried += [{"tensor": 2, "sequence": True, "microbatch": 1}, {"pipeline": 2, "microbatch": 1}]
    assert not any(_fits(2, **layout) for layout in tried)
    assert not any(_fits(4, zero=zero, microbatch=1) for zero in range(3))


def test_between_a_full_device_and_its_reserve_there_is_a_warning() -> None:
    """81,090 of 81,920 MiB: it may run, so it is not refused; 1,536 MiB are needed besides, as a rule."""
    spread = ["--nodes", "1", "--node-devices", "4", "--layout", "microbatch=1,zero=3"]
    run = CliRunner().invoke
    done = run(app, ["estimate", "today/llama3-8b", "-t", "a100-sxm", *spread])
    assert done.exit_code == 0
    said = "fits only without the reserve: a step needs 81,090 MiB of the 81,920 MiB per device of a100-sxm, of " \
           "which the framework and its libraries take about 1,536 MiB (256 MiB to 3,584 MiB)"  # fmt: skip
    assert said in " ".join(done.output.split())
    asked = ["memory", "today/llama3-8b", "-t", "a100-sxm", *spread]
    target = json.loads(run(app, [*asked, "--json"]).output)["target"]
    assert (target["fits"], target["tight"], target["largest_microbatch"]) == (True, True, 0)
    assert target["smallest_layout"].startswith(SMALLEST)
    smaller = json.loads(run(app, [*asked, "--json", "--reserve", "800MiB"]).output)["target"]
    assert (smaller["fits"], smaller["tight"], smaller["largest_microbatch"]) == (True, False, 1)
    assert smaller["reserve_byte"]["source"] == "stated by you: --reserve"
    vary = ["--vary", "nodes=1", "--vary", "replica_batch=8", *spread[2:]]
    swept = run(app, ["sweep", "today/llama3-8b", "-t", "a100-sxm", *vary]).output
    assert "note: best time and memory: its step fits only without the reserve" in swept
    scaled = run(app, ["scaling", "today/llama3-8b", "-t", "a100-sxm", *spread, "--replica-batch", "2"]).output
    assert "weak scaling, nodes 1: fits only without the reserve" in scaled
    told = run(app, asked).output
    assert "fits only without the reserve in 81,920 MiB (99%)" in told
    assert (
        "reserve for the framework and its libraries: 1,536 MiB (256 MiB to 3,584 MiB), assumed: PyTorch's" in told
    )


def test_the_reserve_is_a_fact_of_a_machine(tmp_path: Path) -> None:
    """By default 1/80 of the capacity and 0.5 GiB; a profile or `with_` states another."""
    default = reserve_of(load_machine("h100-sxm"))
    assert (default.value / MIB, default.low / MIB, default.high / MIB) == (1536, 256, 3584)
    stated = "schema: fomkit/machine/1\nname: ours\ndevice: h100-sxm\n"
    own = "reserve: {memory: 3 GiB, low: 2 GiB, high: 5 GiB, basis: measured, source: our runs}\n"
    (path := tmp_path / "ours.yaml").write_text(stated + own, encoding="utf-8")
    machine = load_machine(path)
    assert reserve_of(machine) == Fact(3 * 2**30, 2 * 2**30, 5 * 2**30, "measured", "our runs")
    assert room_byte(machine) == 77 * 2**30
    assert "reserve of the framework" in CliRunner().invoke(app, ["show", str(path)]).output
    save_machine(machine, tmp_path / "again.yaml")
    assert load_machine(tmp_path / "again.yaml").reserve_byte == machine.reserve_byte
    assert reserve_of(load_machine("h100-sxm").with_(reserve="2 GiB")).value == 2**31
    assert reserve_of(load_machine("x86-lecture")) is None
    path.write_text(f"{stated}reserve: {{memory: 3 GiB, low: 4 GiB, source: x}}\n", encoding="utf-8")
    with pytest.raises(FomkitError, match="must be 0 or more with low ≤ value ≤ high"):
        load_machine(path)


def test_one_rule_for_a_reserve_wherever_it_is_stated(tmp_path: Path) -> None:
    """0 is no reserve; one that leaves nothing is refused, with the place that states it."""
    path, board = tmp_path / "ours.yaml", load_machine("v100")
    said = r"the reserve is [\d,]+ MiB, and a device of \S+ has [\d,]+ MiB of memory. Give less than that; 0 GiB"

    def stated(memory: str) -> Machine:
        reserve = f"reserve: {{memory: {memory}, source: x}}"
        path.write_text(f"schema: fomkit/machine/1\nname: ours\ndevice: v100\n{reserve}\n", encoding="utf-8")
        return load_machine(path)

    assert room_byte(stated("0")) == room_byte(stated("0.0")) == room_byte(stated('"0"')) == 16 * 2**30
    assert room_byte(stated("0 GiB")) == room_byte(board.with_(reserve=0)) == 16 * 2**30
    save_machine(stated("0 GiB"), tmp_path / "again.yaml")
    assert load_machine(tmp_path / "again.yaml").reserve_byte == stated("0 GiB").reserve_byte
    assert room_byte(board.with_(reserve="0")) == 16 * 2**30
    for none in ("0GiB", "0", "0.0"):
        assert memory("alexnet", board, reserve=none).content["target"]["reserve_byte"]["value"] == 0
    for where, of in (("ours.yaml:4", lambda: stated("16 GiB")), ("with_", lambda: board.with_(reserve="16 GiB")),
                      ("with_", lambda: board.with_(reserve="3 GiB").with_(capacity="2 GiB")),
                      ("reserve 16GiB", lambda: memory("alexnet", board, reserve="16GiB"))):  # fmt: skip
        with pytest.raises(FomkitError, match=said) as refused:
            of()
        assert refused.value.where.endswith(where)
    for wrong in ("false", "1"):
        with pytest.raises(FomkitError, match=r"reserve\.memory is "):
            stated(wrong)
    path.write_text("schema: fomkit/machine/1\nname: ours\nreserve: 0\n", encoding="utf-8")
    with pytest.raises(FomkitError, match=r"reserve is 0\. Expected: a mapping, {source: …, memory: …}"):
        load_machine(path)


def test_a_training_from_a_config_is_counted_as_a_layout_of_one_device() -> None:
    model, run = load_model("today/llama3-8b"), CliRunner().invoke
    alone = memory(model, "b300-sxm", batch=2).content
    placed = memory(model, "b300-sxm", batch=2, layout="data=1").content
    assert alone["totals"] == placed["totals"]
    assert memory(model, batch=2).content["totals"] == alone["totals"]
    assert memory(model, batch=2, precision="fp8").content["totals"] == alone["totals"]
    most = alone["target"]["largest_batch"]
    assert most == placed["target"]["largest_microbatch"] == 3
    fits = [estimate(model, "b300-sxm", batch=batch).fit for batch in (most, most + 1)]
    assert [(fit.fits, fit.notes != ()) for fit in fits] == [(True, False), (False, True)]
    (unfit,) = estimate_all([model], ["b300-sxm"], batch=4).unfit
    assert unfit.endswith("; a batch of 3 fits")
    told = run(app, ["sweep", "llama3-8b", "-t", "b300-sxm", "--vary", "batch=2,3,4"]).output
    assert "1 of the points does not fit the device's memory" in told
    assert "best units/day" in told
    assert "254,704 MiB" in told  # at a batch of 3
    advice = run(app, ["advise", "llama3-8b", "-t", "b300-sxm", "--batch", "2", "--all"]).output
    assert "The peak is 215,752 MiB, 78.0% of the device" in advice
    assert "the largest that leaves the reserve is 3" in " ".join(advice.split())
    # Half the sequence: half the activations.
    short = memory(model, batch=2, sizes={"seq": 4096}).content["totals"]
    assert short["activation"] == alone["totals"]["activation"] / 2


def test_a_training_whose_ops_were_changed_is_not_counted_by_its_sizes() -> None:
    """With another rule of the update, or weights that it leaves out, what Adam holds is not what is there."""
    model = load_model("today/llama3-8b")
    updated = model.ops["kind"].eq("optimizer")
    plain = replace(model, ops=model.ops.assign(rule=model.ops["rule"].mask(updated, "sgd")))
    frozen = replace(model, ops=model.ops.assign(numel=model.ops["numel"].mask(updated, 1e9)))
    for one in (plain, frozen):
        content = memory(one).content
        assert "activation" not in content["totals"]
        assert content["excludes"] == ["activations and everything else that needs the order"]
    with pytest.raises(FomkitError, match=r"is counted by its sizes in bf16, .*fp8_block.* in fp32 is unknown"):
        memory(model, precision="fp32")
    assert estimate(model, "b300-sxm", batch=1, precision="fp32").fit.fits is None


def test_a_suite_and_a_cost_name_the_smallest_layout_too(tmp_path: Path) -> None:
    line = "{name: A, model: llama3-8b, batch: 8, precision: bf16, samples: 8000, epochs: 1}"
    head = "schema: fomkit/suite/1\nname: one\nversion: 1\nbaseline: b200-sxm\nscope: device\nmean: harmonic\n"
    (suite := tmp_path / "one.suite.yaml").write_text(f"{head}lines: [{line}]\n", encoding="utf-8")
    price = ["--price", "2 USD/h per device, 2020-01-01", "--batch", "8", "--precision", "bf16"]
    for words in (["fom", str(suite)], ["cost", "llama3-8b", *price]):
        done = CliRunner().invoke(app, [*words, "-t", "a100-sxm"])
        assert done.exit_code == 1
        assert f"; {SMALLEST}" in done.stderr


def test_what_has_no_layouts_names_the_largest_batch() -> None:
    done = CliRunner().invoke(app, ["estimate", "resnet50", "-t", "v100", "--batch", "1000"])
    (batch,) = re.findall(r"would need [\d,]+ MiB; a batch of (\d+) fits\. Such a step", done.stderr)
    fits = [estimate("resnet50", "v100", batch=int(batch) + more).fit for more in (0, 1)]
    assert [(fit.fits, bool(fit.warning)) for fit in fits] == [(True, False), (True, True)]
    large = replace(load_model("today/llama3-8b"), transformer=None)
    (said,) = estimate_all([large], ["a100-sxm"]).unfit
    assert said.endswith("would need 137,849 MiB; no batch fits")
    (said,) = estimate_all([large], ["a100-sxm"], precision="fp32").unfit
    assert said.endswith("would need 122,532 MiB; no batch fits")


BERT = {"model_type": "bert", "vocab_size": 30522, "hidden_size": 256, "num_hidden_layers": 2,
        "num_attention_heads": 4, "intermediate_size": 1024, "max_position_embeddings": 512}  # fmt: skip
VIT = {"model_type": "vit", "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "num_labels": 10,
       "intermediate_size": 1024, "image_size": 32, "patch_size": 8, "num_channels": 3}  # fmt: skip
LLAMA = {"model_type": "llama", "vocab_size": 1000, "hidden_size": 256, "num_hidden_layers": 2,
         "num_attention_heads": 4, "intermediate_size": 512, "max_position_embeddings": 512}  # fmt: skip


@pytest.mark.parametrize("config", [BERT, VIT, LLAMA], ids=["bert", "vit", "llama"])
@pytest.mark.parametrize(("dtype", "each"), [("bfloat16", (2, 4, 12)), ("float32", (4, 4, 8))])
def test_a_step_keeps_the_same_of_every_parameter(
    config: dict[str, object], dtype: str, each: tuple[int, ...], tmp_path: Path
) -> None:
    """Parameters that products read, gradients, and Adam's state with the parameters that it updates."""
    (path := tmp_path / "config.json").write_text(json.dumps({**config, "torch_dtype": dtype}), encoding="utf-8")
    model, content = profile_config(path), memory(path).content
    totals = [content["totals"][role] / model.parameters_total for role in ("parameter", "gradient", "state")]
    assert totals == pytest.approx(each, rel=0.001)


def test_advice_on_unknown_memory_fits_what_was_given(tmp_path: Path) -> None:
    """A config.json has no program: a decoder's memory is known in 16 bits, another model's from a Python file."""
    path, wide = tmp_path / "config.json", {"torch_dtype": "float32"}

    def advice(config: dict[str, object]) -> str:
        path.write_text(json.dumps({**config, **wide}), encoding="utf-8")
        (said,) = memory(path).content["deviations"]
        assert said in " ".join(CliRunner().invoke(app, ["memory", str(path)]).output.split())
        return str(said)

    assert advice(LLAMA).endswith("Add, for example, --precision bf16")
    assert memory(path, precision="bf16").content["totals"]["activation"] > 0
    for config in (BERT, VIT):
        assert advice(config).endswith("For others give a Python file with the model, its inputs and its loss")
    traced = replace(load_model("alexnet"), order=None)
    assert "'fomkit profile FILE.py' writes it" in memory(traced).content["deviations"][-1]


@pytest.mark.parametrize(("model", "batch"), [("llama3-70b-decode", 16), ("llama3-8b-decode", 512)])
def test_in_another_precision_the_named_batch_is_of_its_own_weights(model: str, batch: int) -> None:
    asked = {"machines": ["h100-sxm"], "precision": "fp8"}
    most = memory(f"today/{model}", "h100-sxm", precision="fp8").content["target"]["largest_batch"]
    (said,) = estimate_all([f"today/{model}"], batch=batch, **asked).unfit
    assert said.endswith(f"; a batch of {most} fits")
    assert most > 0
    alone = [memory(f"today/{model}", "h100-sxm", precision="fp8", batch=one).content for one in (most, most + 1)]
    assert [one["target"]["tight"] for one in alone] == [False, True]


def test_the_command(tmp_path: Path) -> None:
    run = CliRunner().invoke
    told = run(app, ["memory", "gpt2", "--batch", "8", "--set", "seq=512", "--target", "v100"]).output
    for words in ("peak of backward", "optimizer state", "largest batch that fits", "cuDNN's choice is unknown",
                  "reserve for the framework", "batch 8, seq 512"):  # fmt: skip
        assert words in told, words
    out = tmp_path / "moments.csv"
    content = json.loads(run(app, ["memory", "gpt2", "--json", "-o", str(out)]).output)
    assert content["schema"] == "fomkit/memory/1"
    assert sum(content["peak"]["roles"].values()) == content["peak"]["byte"]
    assert sum(one["byte"] for one in content["modules"]) == content["peak"]["byte"]
    assert max(one["byte"] for one in content["live"]) == content["peak"]["byte"]
    assert len(out.read_text().splitlines()) == len(content["live"]) + 1
    bare = run(app, ["memory", "p1b3-lecture", "--target", "titan"]).output
    assert "114.78" in bare
    assert "unknown: activations and the peak" in bare
    assert "may fit in 6,144 MiB; memory independent of the batch fits, the peak is unknown" in bare
    assert "%" not in bare
    room = json.loads(run(app, ["memory", "p1b3-lecture", "--target", "titan", "--json"]).output)["target"]
    assert (room["fits"], room["share"]) == (None, None)


def test_what_a_device_holds_to_the_last_byte_fits_and_an_unknown_one_is_not_judged() -> None:
    known = load_machine("titan")
    capacity, room = known.device.capacity_byte, room_byte(known)
    assert capacity is not None
    assert [fit_in(known, byte).notes for byte in (room, 1.0)] == [(), ()]
    for byte in (room + 1, capacity.value):
        assert fit_in(known, byte).fits is True
        assert fit_in(known, byte).warning.startswith("fits only without the reserve: a step needs")
    assert "does not fit: titan has" in fit_in(known, capacity.value + 1).message
    part = fit_in(known, room + 1, "parameters alone", whole=False)
    assert (part.fits, "parameters alone needs" in part.warning) == (None, True)
    assert fit_in(replace(known, device=replace(known.device, capacity_byte=None)), 1e15).notes == ()


def test_a_machine_without_a_capacity_and_a_model_without_anything() -> None:
    with pytest.raises(FomkitError, match="states no capacity"):
        memory_content(load_model("alexnet"), Options(), load_machine("x86-lecture"))
    empty = replace(load_model("p1b3-lecture"), parameters_total=None)
    with pytest.raises(FomkitError, match="has no data on memory"):
        memory_content(empty, Options())


def test_an_order_at_one_batch_only(tmp_path: Path) -> None:
    model = load_model("alexnet")
    fixed = resize_ops(model.order, model.sizes, "alexnet")
    path = tmp_path / "fixed.yaml"
    assert path.with_name("fixed.order.csv.gz") in save_model(replace(model, order=fixed), path)
    assert gzip.decompress(path.with_name("fixed.order.csv.gz").read_bytes()).startswith(b"id,row,role,")
    again = load_model(path)
    pd.testing.assert_frame_equal(again.order[list(fixed.columns)], fixed, check_dtype=False)
    assert largest_batch(again, again.sizes, 1e12) is None
    with pytest.raises(FomkitError, match=r"fixed at batch \d+, so the memory at 7 needs a new trace"):
        memory_content(again, Options(batch=7))
    estimate(again, "titan", batch=7)  # judged by what stands alone


def test_each_role_that_takes_any_is_told_while_the_step_runs() -> None:
    model = load_model("alexnet")
    use = step_memory(model, dict(model.sizes))
    assert use is not None
    found = use.over_time
    np.testing.assert_allclose(found.sum(axis=1), use.live_byte, rtol=1e-12)
    # Gradients are not there from the beginning.
    assert found["gradient"].iloc[0] == 0 < found["gradient"].max()


def test_weights_of_linear_layers_are_kept_in_the_low_format_that_is_asked_for() -> None:
    model = load_model("llama3-70b-decode")
    as_traced, low = (memory_content(model, Options(precision=precision)) for precision in (None, "fp8"))
    # All 70,553,706,496 parameters in 2 bytes; the 80 blocks' layers in 1: the stream is 8,192 wide, keys and
    # values together 2,048, a feed-forward layer 28,672.
    layers = 80 * 8192 * (2 * 8192 + 2048 + 3 * 28672)
    parameter = [one["totals"]["parameter"] for one in (as_traced, low)]
    assert parameter == [2 * 70_553_706_496, 2 * 70_553_706_496 - layers]
    assert as_traced["totals"]["buffer"] == low["totals"]["buffer"]
    assert "in fp8" in low["assumed"][-1]


@pytest.mark.parametrize(
    ("name", "precision"), [("resnet50", "fp8"), ("llama3-8b-decode", "fp32"), ("nt3-keras", "bf16")]
)
def test_memory_that_no_rule_derives_from_the_trace_is_unknown(name: str, precision: Precision) -> None:
    """Quantised copies; a trace in 16 bits; Keras, whose norms keep wide copies (1.7 times the derived peak)."""
    with pytest.raises(FomkitError, match=f"{name}: was traced in other formats, .* its memory in {precision}"):
        memory(name, precision=precision)
    as_traced, known = memory(name).content, memory(name, precision="fp32" if precision != "fp32" else "bf16")
    assert known.content["totals"] == as_traced["totals"]


def test_what_every_step_of_an_encoder_holds_is_known_in_other_formats() -> None:
    """18 bytes of each parameter in 16 bits, 16 in fp32; its activations are unknown in any."""
    mib = {precision: sum(memory("bert-large", precision=precision).content["totals"].values()) / MIB
           for precision in (None, "bf16", "mixed", "fp8", "fp32")}  # fmt: skip
    assert [round(mib[name]) for name in (None, "bf16", "mixed", "fp8", "fp32")] == [5754, 5754, 5754, 5754, 5114]
    in_fp32, in_16 = (memory("bert-large", precision=precision).content for precision in ("fp32", "bf16"))
    assert in_16["assumed"] != [] == in_fp32["assumed"]
    assert in_fp32["excludes"] == ["activations and everything else that needs the order"]
    run = CliRunner().invoke(app, ["memory", "p1b3-lecture", "--precision", "bf16"])
    assert "114.78" in run.output  # autocast keeps the parameters in fp32


def test_what_fits_follows_the_format_of_the_weights() -> None:
    fits = {
        precision: estimate("llama3-70b-decode", "h200-sxm", precision=precision, batch=8).fit.fits
        for precision in ("bf16", "fp8")
    }
    assert fits == {"bf16": False, "fp8": True}


def test_the_memory_of_a_job_is_that_of_its_device_by_role() -> None:
    """Weights and cache as computed by hand ; half the cache at half the batch."""
    asked = ["memory", "llama3-70b-decode", "-t", "h100-sxm", "--layout", "tensor=8"]
    held = {batch: json.loads(CliRunner().invoke(app, [*asked, "--batch", str(batch), "--json"]).output)
            for batch in (16, 32)}  # fmt: skip
    assert {one["totals"]["parameter"] for one in held.values()} == {17_640_734_720.0}  # 16,823.5 MiB
    assert held[32]["totals"]["buffer"] == 2 * held[16]["totals"]["buffer"] == pytest.approx(5121.25 * 2**20)
    assert held[16]["part"] == {"devices": 8, "nodes": 1, "layout": "tensor 8", "replicas": 1, "batch": 16,
                                "microbatch": 16, "microbatches": 1}  # fmt: skip
    most = held[16]["target"]["largest_microbatch"]
    tight = [
        json.loads(CliRunner().invoke(app, [*asked, "--batch", str(batch), "--json"]).output)["target"]["tight"]
        for batch in (most, most + 1)
    ]
    assert tight == [False, True]
    text = CliRunner().invoke(app, asked).output
    assert "memory of a device in one step" in text
    assert "8 devices (1 node), tensor 8; replicas: 1 (batch " in text
    with pytest.raises(
        FomkitError, match=r"layout: needs a machine, whose devices it describes. Add, for example"
    ):
        memory("llama3-70b-decode", layout="tensor=8")
    with pytest.raises(FomkitError, match="nodes: needs a machine"):
        memory("llama3-70b-decode", nodes=1)
    for verb in (memory, explain):
        with pytest.raises(FomkitError, match="links: are for runs on several devices"):
            verb("llama3-70b-decode", "h100-sxm", links=["node, 5 us, 25 GB/s, each"])


def test_the_memory_of_a_training_job_is_by_its_sizes(tmp_path: Path) -> None:
    """8.03 billion parameters over two devices: 2, 4 and 12 bytes of each, 12 over the four replicas."""
    layout = ["--layout", "tensor=2,sequence,zero=1,microbatch=1", "-o", str(tmp_path / "held.csv")]
    done = CliRunner().invoke(app, ["memory", "llama3-8b", "-t", "h100-sxm", "--nodes", "1", *layout])
    held = pd.read_csv(tmp_path / "held.csv").set_index("role")["byte"]
    parameters = 8_030_261_248 / 2
    assert (held.drop("activation") / parameters).to_dict() == pytest.approx(
        {"parameter": 2, "gradient": 4, "state": 3}, rel=1e-4
    )
    stream, words = 8192 * 4096, 8192 * 128_256 / 2
    # Norms 4 + 4, queries to context 2 × (4,096 × 2 + 1,024 × 2), gate, up and their product 6 × 14,336, over two.
    of_block = stream * 8 / 2 + 8192 * (2 * (4096 * 2 + 2 * 1024) + 6 * 14_336) / 2
    assert held["activation"] == pytest.approx(32 * of_block + 4 * stream / 2 + 4 * words)
    assert "largest microbatch that fits: 2 samples" in done.output


def test_gradients_of_earlier_microbatches_are_kept() -> None:
    """AlexNet's peak is in forward, before any gradient; with a second microbatch all are there."""
    job = {"batch": 8 * 64, "nodes": 1}
    one, two = (memory("alexnet", "v100", layout=layout, **job).content for layout in ("overlap", "microbatch=32"))
    whole = memory("alexnet", "v100", batch=64).content
    assert sum(one["totals"].values()) == whole["peak"]["byte"]
    gradients = whole["totals"]["gradient"]
    assert two["totals"]["gradient"] == gradients > one["totals"].get("gradient", 0.0)


def test_what_is_assumed_of_a_device_and_not_counted_is_said() -> None:
    job = {"batch": 64, "nodes": 1, "layout": "zero=3"}
    traced, narrow = (memory("resnet50", "a100-sxm", precision=one, **job).content for one in (None, "bf16"))
    assert traced["assumed"] == memory("resnet50").content["assumed"]
    assert narrow["assumed"] == memory("resnet50", precision="bf16").content["assumed"] != traced["assumed"]
    assert "layers that zero gathers" in traced["excludes"][-1]
    packed = memory("llama3-8b-decode", "h100-sxm", precision="fp8", layout="tensor=2").content
    assert packed["assumed"][-1] == "except the weights of linear layers, in fp8"
    by_sizes = memory("llama3-8b", "h100-sxm", nodes=1, layout="zero=3").content
    assert (by_sizes["assumed"], by_sizes["excludes"]) == ([], ["gaps between pieces (fragmentation)"])


def test_a_profile_whose_run_uses_several_devices_is_a_job() -> None:
    """As `estimate` reads it: its batch is that of all devices."""
    alone = load_model("alexnet")
    model = replace(alone, run=replace(alone.run, devices_per_run=8))
    for verb in (memory, explain):
        part = verb(model, "v100", batch=512).content["part"]
        assert (part["replicas"], part["microbatch"]) == (8, 64)
        assert verb(alone, "v100", batch=512).content["part"] is None

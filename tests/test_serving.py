"""Steps without gradients on many devices: copies, and tensor groups."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

import fomkit
from fomkit.core.errors import FomkitError
from fomkit.core.job import Layout
from fomkit.core.machine import Machine
from fomkit.core.model import ModelProfile
from fomkit.frontends.config import profile_config
from fomkit.frontends.config_file import read_architecture
from fomkit.ops.pricing import add_costs
from fomkit.ops.resize import resize_ops
from fomkit.parallel.step import ParallelStep
from fomkit.parallel.transformer import step_rows
from fomkit.plan.inference import InferenceStep, architecture_of, one_of_group
from fomkit.plan.options import Options
from fomkit.plan.scaling import smallest_layout, stepper_of
from fomkit.prediction import links
from fomkit.prediction.exchange import REPLAYED, Network, table_time
from fomkit.profiles.machines import load_machine
from fomkit.profiles.models import load_model

PUBLIC = json.loads((Path(__file__).parent / "data" / "public_configs.json").read_text())
SIZES = {"cache": 1024}


@pytest.fixture(scope="module")
def h100() -> Machine:
    return load_machine("h100-sxm")


def made(tmp_path: Path, name: str, mode: str = "decode") -> ModelProfile:
    path = tmp_path / f"{name}.json"
    path.write_text(json.dumps(PUBLIC[name]["config"]))
    sizes = SIZES if mode == "decode" else {"seq": 1024}
    return profile_config(path, mode=mode, batch=8, sizes=sizes)  # type: ignore[arg-type]


def serve(model: ModelProfile, machine: Machine, devices: int, samples: int, **layout: Any) -> ParallelStep:
    stepper = stepper_of(model, machine, Layout(**layout), Options(sizes=SIZES if "cache" in model.sizes else {}))
    assert isinstance(stepper, InferenceStep)
    return stepper.at(devices, samples)


@pytest.mark.parametrize("mode", ["decode", "infer"])
@pytest.mark.parametrize(
    "name",
    ["llama3-70b", "gemma2-2b", "gpt-oss-20b", "qwen3-30b-a3b", "deepseek-v2-lite", "deepseek-v3", "gpt2-xl"],
)
def test_the_sizes_of_a_layout_make_the_ops_of_the_config(tmp_path: Path, name: str, mode: str) -> None:
    """A profile is split by its sizes alone: they describe the same ops as its config.json."""
    model, shape = made(tmp_path, name, mode), read_architecture(tmp_path / f"{name}.json")
    assert model.transformer is not None
    of_config, of_sizes = (
        sorted(json.dumps(row, sort_keys=True) for row in step_rows(one, mode, model.sizes))  # type: ignore[arg-type]
        for one in (shape, architecture_of(model.transformer, shape.dtype))
    )
    assert of_sizes == of_config


def test_a_device_of_a_group_does_its_part(tmp_path: Path, h100: Machine) -> None:
    """Flop of products and bytes of the cache divide by the group; so do weights but for norms."""
    model = made(tmp_path, "llama3-70b")
    whole = stepper_of(model, h100, Layout(), Options(sizes=SIZES))
    part = stepper_of(model, h100, Layout(tensor=8), Options(sizes=SIZES))
    assert isinstance(whole, InferenceStep)
    assert isinstance(part, InferenceStep)
    flop = []
    for stepper in (whole, part):
        costed = add_costs(resize_ops(stepper.model.ops, {**stepper.model.sizes, "batch": 32}, "x"))
        flop.append(costed[costed["kind"].isin(["gemm", "attention"])].eval("flop * count").sum())
    assert flop[0] == pytest.approx(8 * flop[1], rel=1e-12)
    held = [sum((stepper.held(devices, 32) or {}).values()) for devices, stepper in ((1, whole), (8, part))]
    assert held[0] == pytest.approx(8 * held[1], rel=2e-3)  # norms, and what ops write for the next
    sums = part.model.ops.query("kind == 'collective'")
    assert sums.groupby("collective")["count"].sum().to_dict() == {"all_gather": 1, "all_reduce": 2 * 80 + 1}
    assert set(sums["ranks"]) == {8}


APART: dict[str, object] = {"expert": 8}
WITHIN = {**APART, "tensor": 2, "sequence": True, "whole_experts": True}


@pytest.mark.parametrize("layout", [APART, WITHIN])
def test_experts_apart_by_hand(tmp_path: Path, h100: Machine, layout: dict[str, Any]) -> None:
    """Qwen3-30B-A3B: 48 blocks, 128 experts of 768 × 2,048, 8 for a token; 64 requests, 8 tokens a device."""
    model = made(tmp_path, "qwen3-30b-a3b")
    step, stepper = (
        serve(model, h100, 8, 64, **layout),
        stepper_of(model, h100, Layout(**layout), Options(sizes=SIZES)),
    )
    assert isinstance(stepper, InferenceStep)
    ops = resize_ops(stepper.model.ops, {**stepper.model.sizes, "batch": 8 * step.layout.tensor}, "x")
    experts = ops[ops["kind"].eq("experts")].iloc[0]
    assert experts[["b", "m", "n", "k", "experts", "top_k", "count"]].tolist() == [16, 64, 768, 2048, 16, 1, 48]
    place, stream = 8 * 8 * 2048 * 2, 16 * 2048 * 2
    sent = ops[ops["collective"].eq("all_to_all")]
    assert sent[["ranks", "message_byte", "count"]].to_numpy().tolist() == [[8, place, 48]] * 2
    assert step.sent_byte["experts"] == pytest.approx(2 * 48 * 7 / 8 * place)
    moved = ops.set_index("op").loc[["tokens copied for experts", "sum of experts"], ["read_byte", "write_byte"]]
    assert moved.to_numpy().tolist() == [[place, place], [place, place / 8]]
    halves = ops[ops["collective"].isin(["reduce_scatter", "all_gather"]) & ops["count"].eq(48)]
    assert halves[["ranks", "message_byte"]].to_numpy().tolist() == [[2, stream]] * (2 * (step.layout.tensor == 2))
    attention = 2 * 2048 * (32 + 4) * 128 // step.layout.tensor + 256
    block = attention + 16 * 3 * 768 * 2048 + 128 * 2048 + 2 * 2048
    assert stepper.model.order is not None
    weights = stepper.model.order.query("role == 'parameter'")["output_byte"].astype(float).sum()
    assert weights == 2 * (48 * block + 2 * 151936 // step.layout.tensor * 2048 + 2048)
    assert step.replicas == 8 // step.layout.tensor
    assert sum("spread evenly over experts" in note for note in step.notes) == 1


@pytest.mark.parametrize("mode", ["decode", "infer"])
@pytest.mark.parametrize("layout", [APART, WITHIN])
@pytest.mark.parametrize("name", ["qwen3-30b-a3b", "gpt-oss-20b", "mixtral-8x7b"])
def test_devices_with_experts_share_the_work(
    tmp_path: Path, h100: Machine, name: str, layout: dict[str, Any], mode: str
) -> None:
    """Eight devices do together what one would: the flop of products, attention and experts."""
    model, flop = made(tmp_path, name, mode), []
    for of in ({}, layout):
        stepper = stepper_of(model, h100, Layout(**of), Options(sizes=SIZES if mode == "decode" else {}))
        assert isinstance(stepper, InferenceStep)
        batch = 64 // (8 // of.get("tensor", 1)) if of else 64
        costed = add_costs(resize_ops(stepper.model.ops, {**stepper.model.sizes, "batch": batch}, "x"))
        flop.append(costed[costed["kind"].isin(["gemm", "attention", "experts"])].eval("flop * count").sum())
    assert flop[0] == pytest.approx(8 * flop[1], rel=1e-9)


def test_a_part_of_the_tokens_is_whole_tokens(tmp_path: Path, h100: Machine) -> None:
    """Of three tokens of a group of two devices, the busier one has two: as many as its block's last sum adds."""
    stepper = stepper_of(made(tmp_path, "qwen3-30b-a3b"), h100, Layout(**WITHIN), Options(sizes=SIZES))  # type: ignore[arg-type]
    assert isinstance(stepper, InferenceStep)
    ops = resize_ops(stepper.model.ops, {**stepper.model.sizes, "batch": 3}, "x").set_index("op")
    assert ops["numel"]["feed-forward added to the stream"] == 2 * 2048
    assert ops["numel"]["norm 1"] == 3 * 2048
    assert ops["m"]["experts"] == 2 * 8


def test_experts_apart_that_do_not_divide_are_refused(tmp_path: Path, h100: Machine) -> None:
    model = made(tmp_path, "qwen3-30b-a3b")
    for layout, said in (
        ({"expert": 3}, "experts 128 do not divide by expert 3"),
        ({"expert": 4, "tensor": 2}, "Add sequence and whole_experts"),
        ({"tensor": 2, "sequence": True}, "for which sequence is not modelled"),
    ):
        with pytest.raises(FomkitError, match=said):
            serve(model, h100, 24, 48, **layout)
    with pytest.raises(FomkitError, match="has no experts, which expert 2 would share"):
        serve(load_model("today/llama3-8b-decode"), h100, 2, 8, expert=2)


def test_few_heads_of_keys_are_on_several_devices(tmp_path: Path) -> None:
    sizes = made(tmp_path, "llama3-70b").transformer
    assert sizes is not None
    assert (sizes.kv_heads, one_of_group(sizes, 8).kv_heads, one_of_group(sizes, 16).kv_heads) == (8, 1, 1)
    latent = made(tmp_path, "deepseek-v3").transformer
    assert latent is not None
    assert one_of_group(latent, 8).block.attention.heads == 16
    with pytest.raises(FomkitError, match="heads 64 is not divisible by tensor 3"):
        one_of_group(sizes, 3)
    with pytest.raises(
        FomkitError, match="tensor 6 is not divisible by kv_heads 4"
    ):  # two of 12 heads, of groups of 3
        one_of_group(replace(sizes, heads=12, kv_heads=4), 6)


def test_copies_exchange_nothing(h100: Machine) -> None:
    """Before, copies of a step without gradients summed gradients: 92 % of a step of llama3-8b-decode."""
    model = load_model("today/llama3-8b-decode")
    one, eight = serve(model, h100, 1, 32), serve(model, h100, 8, 256)
    assert eight.wall_s == one.wall_s
    assert (eight.exposed_s.value, eight.busy_s.value, eight.sent_byte) == (0.0, 0.0, {})
    alone = fomkit.estimate(model, h100, batch=32, sizes={"cache": 1024})
    assert one.wall_s.value == pytest.approx(alone.step.value, rel=1e-12)
    traced = fomkit.model("resnet50")
    traced = replace(traced, traced_with={**traced.traced_with, "mode": "infer"})
    assert serve(traced, h100, 8, 256).exposed_s.value == 0


def test_a_group_waits_for_its_sums(h100: Machine) -> None:
    """Two sums a block and one of words, of the serving library's own kernel, and the gathered scores."""
    model = load_model("today/llama3-8b-decode")
    step = serve(model, h100, 8, 32, tensor=8)
    rows = {"all_reduce": (65, 32 * 4096 * 2, REPLAYED), "all_gather": (1, 32 * 128256 * 2, "")}
    spent = sum(count * table_time(h100.timings, name, byte, 8, op=op).value  # type: ignore[union-attr]
                for name, (count, byte, op) in rows.items())  # fmt: skip
    assert step.exposed_s.value == pytest.approx(spent, rel=0.02)
    of_nccl = table_time(h100.timings, "all_reduce", 32 * 4096 * 2, 8)
    own = table_time(h100.timings, "all_reduce", 32 * 4096 * 2, 8, op=REPLAYED)
    assert own is not None
    assert of_nccl is not None
    assert own.value < 0.5 * of_nccl.value
    assert step.sent_byte["tensor"] == pytest.approx(65 * 1.75 * 32 * 4096 * 2 + 0.875 * 32 * 128256 * 2)
    two = serve(model, h100, 8, 64, tensor=4)
    assert (two.replicas, step.replicas) == (2, 1)


def test_what_links_take_of_a_lower_bound_is_known(h100: Machine) -> None:
    """Without links, the gathered scores have no time; the sums have theirs from the table."""
    step = fomkit.estimate(
        "llama3-8b-decode", replace(h100, links=()), layout="tensor=8", allow_uncovered=True
    ).job
    assert step is not None
    assert 0 < step.exposed_s.value < step.wall_s.value
    assert step.compute_s.value + step.exposed_s.value == pytest.approx(step.wall_s.value)


def test_what_links_take_has_the_interval_of_its_ops(h100: Machine) -> None:
    """Formulas of links are less certain than the rest of a step; its own interval was given to both."""
    found = fomkit.estimate(
        "llama3-8b-decode", h100, layout="tensor=16", nodes=2, links=["system, 5 us, 50 GB/s, each"]
    )
    sums = found.ops.query("kind == 'collective'")
    assert found.job is not None
    for end, column in (("value", "time_s"), ("low", "low_s"), ("high", "high_s")):
        assert getattr(found.job.exposed_s, end) == pytest.approx((sums[column] * sums["count"]).sum())
    wide = [one.high / one.value for one in (found.job.exposed_s, found.step)]
    assert wide[0] > 1.1 * wide[1]


@pytest.mark.parametrize("name", ["a100-sxm", "b200-sxm"])
def test_left_out_sizes_of_servings_sums_are_in_their_intervals(name: str) -> None:
    """The bounds are those of NCCL's tables; 80 % are meant, of 42 sizes on two and eight ranks."""
    timings, inside = load_machine(name).timings, []
    rows = timings[timings["op"] == REPLAYED]
    for ranks in (2, 8):
        own = rows[rows["ranks"] == ranks].set_index("message_byte")["time_s"].sort_index()
        for byte, time_s in own.iloc[1:-1].items():
            left = rows[(rows["ranks"] != ranks) | (rows["message_byte"] != byte)]
            found = table_time(left, "all_reduce", byte, ranks, op=REPLAYED)
            assert found is not None
            inside.append(found.low < time_s < found.high)
    assert len(inside) == 42
    assert 0.7 < np.mean(inside) < 0.95


def test_training_does_not_use_the_serving_librarys_sums(h100: Machine) -> None:
    without = h100.with_timings(h100.timings[h100.timings["op"] != REPLAYED])
    found = [table_time(one.timings, "all_reduce", 1e6, 8) for one in (h100, without)]
    assert found[0] == found[1]
    assert found[0] is not None
    assert np.isfinite(found[0].value)


def test_weights_stored_in_fewer_bytes_are_so_on_each_device(tmp_path: Path, h100: Machine) -> None:
    path = tmp_path / "packed.json"
    config = {
        **PUBLIC["llama3-8b"]["config"],
        "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128},
    }
    path.write_text(json.dumps(config))
    model = profile_config(path, mode="decode", batch=8, sizes=SIZES)
    held = []
    for tensor in (1, 4):
        stepper = stepper_of(model, h100, Layout(tensor=tensor), Options(sizes=SIZES))
        assert isinstance(stepper, InferenceStep)
        held.append(sum((stepper.held(tensor, 8) or {}).values()))
        shares = stepper.model.ops.set_index("op")["weight_share"].dropna()
        assert (shares < 0.3).all()
        assert len(shares) == 4
    assert held[0] == pytest.approx(4 * held[1], rel=0.01)


def test_formats_are_those_of_the_same_op_in_any_order(h100: Machine) -> None:
    """A profile whose rows stand in another order is split alike."""
    model = load_model("today/deepseek-v3-decode")
    packed = model.ops["op"].map({"experts": 0.25})
    found = []
    for order in (slice(None), slice(None, None, -1)):
        ops = model.ops.assign(weight_share=packed).iloc[order].reset_index(drop=True)
        stepper = stepper_of(replace(model, ops=ops), h100, Layout(tensor=8), Options(sizes=SIZES))
        assert isinstance(stepper, InferenceStep)
        found.append(stepper.model.ops[["op", "weight_share"]].fillna(1).to_numpy().tolist())
    assert found[0] == found[1]
    assert {share for op, share in found[0] if op == "experts"} == {0.25}


def test_what_serving_does_not_know_is_refused_by_name(tmp_path: Path, h100: Machine) -> None:
    model = load_model("today/llama3-8b-decode")
    for layout, said in (
        (Layout(pipeline=2), "for which pipeline is not modelled"),
        (Layout(zero=1), "zero is not"),
    ):
        with pytest.raises(FomkitError, match=said):
            stepper_of(model, h100, layout, Options())
    with pytest.raises(FomkitError, match="only profiles of decoders from a config"):
        serve(made(tmp_path, "t5-base", "infer"), h100, 2, 8, tensor=2)
    with pytest.raises(FomkitError, match="states no link of tier 'node'"):
        fomkit.estimate("llama3-8b-decode", "a10", layout="tensor=2", node_devices=8)
    with pytest.raises(FomkitError, match="number of devices in a node is not stated"):
        fomkit.estimate("llama3-8b-decode", "a10", layout="tensor=2")


def test_other_ops_than_those_of_the_sizes_are_not_split(h100: Machine) -> None:
    """Names alone were compared: the sizes were priced, whatever the ops of the profile were."""
    model = load_model("today/llama3-8b-decode")
    assert model.transformer is not None
    wider = model.ops.assign(n=model.ops["n"].where(~model.ops["op"].eq("feed-forward in"), 57344))
    for other in (replace(model, ops=wider), replace(model, transformer=replace(model.transformer, blocks=16))):
        with pytest.raises(FomkitError, match="its ops are not those of the sizes in its block 'transformer'"):
            serve(other, h100, 4, 16, tensor=4)
        assert smallest_layout(other, h100, Options(batch=4096)) == ""  # not: "no layout does"


@pytest.mark.parametrize(("mode", "size"), [("decode", "cache"), ("infer", "seq")])
def test_learnt_positions_do_not_depend_on_the_length(
    tmp_path: Path, mode: Literal["decode", "infer"], size: str
) -> None:
    made(tmp_path, "gpt2-xl")
    short = profile_config(tmp_path / "gpt2-xl.json", mode=mode, batch=8, sizes={size: 512})
    assert short.transformer is not None
    assert short.transformer.seq == 1024


def test_the_smallest_group_needs_no_links() -> None:
    """The memory of a group is known without links, and without the number of devices in a node."""
    model, a10 = load_model("today/llama3-70b-decode"), load_machine("a10")
    assert (a10.node_devices, a10.links) == (None, ())
    found = smallest_layout(model, a10, Options(batch=16, sizes={"cache": 4096}))
    assert found.startswith("the smallest layout that fits: 8 devices, tensor 8, 19,385 MiB")


def test_the_smallest_layout_may_have_experts_apart() -> None:
    """Copies of latent attention and an expert's share fit where tensor groups inside a node need 512 devices."""
    model, h100 = load_model("today/deepseek-v3-decode"), load_machine("h100-sxm")
    found = smallest_layout(model, h100, Options(batch=128, precision="fp8"))
    assert found.startswith("the smallest layout that fits: 16 devices, expert 16,")
    assert found.endswith("on each (--nodes 2 --link system,… --layout expert=16)")
    linked = replace(h100, links=(*h100.links, replace(h100.links[0], tier="system")))
    found = smallest_layout(model, linked, Options(batch=128, precision="fp8"))
    assert found.endswith("on each (--nodes 2 --layout expert=16)")
    step = stepper_of(model, h100, Layout(expert=16), Options(precision="fp8"))
    assert isinstance(step, InferenceStep)
    held = step.held(16, 128)
    assert held is not None
    assert h100.device.capacity_byte is not None
    assert sum(held.values()) < h100.device.capacity_byte.value


def test_a_layout_alone_says_how_many_devices_it_needs(h100: Machine) -> None:
    found = fomkit.estimate("llama3-70b-decode", h100, batch=32, sizes=SIZES, layout="tensor=8")
    assert found.job is not None
    assert (found.job.devices, found.job.replicas, found.scope) == (8, 1, "node")
    too_much = fomkit.estimate("llama3-70b-decode", h100, batch=8, sizes=SIZES)
    assert too_much.fit.fits is False


def test_a_million_tokens_of_a_group_cost_what_its_devices_do(h100: Machine) -> None:
    """Eight devices at 3 USD an hour, and 32 tokens a step."""
    found = fomkit.cost(
        "llama3-70b-decode", h100, batch=32, sizes=SIZES, layout="tensor=8",
        price="3 USD/h per device, 2026-01-01",
    ).content["inference"]  # fmt: skip
    assert found is not None
    assert found["money_per_million"]["value"] == pytest.approx(
        3 * 8 / 3600 * found["latency_s"]["value"] / 32 * 1e6
    )


def test_groups_do_not_cross_nodes(h100: Machine) -> None:
    wide = h100.with_(node_devices=6)
    for model in ("llama3-8b-decode", "llama3-8b"):
        with pytest.raises(
            FomkitError, match="tensor 4 does not divide the 6 devices of a node: groups would cross"
        ):
            fomkit.estimate(model, wide, batch=12, layout="tensor=4", nodes=2)


def test_samples_of_a_unit_are_no_parameter_of_serving() -> None:
    """A million tokens that are fewer are another unit, not a quicker machine."""
    found = fomkit.solve("llama3-8b-decode", "h100-sxm", unit_per_day=4000.0)
    names = {one.parameter.name for one in found.changes}
    assert names.isdisjoint({"train_samples", "epochs"})
    assert {"batch", "byte_per_s"} <= names


def test_a_layout_that_fills_whole_nodes_needs_no_nodes() -> None:
    job = {"layout": "tensor=8"}
    step = fomkit.estimate("llama3-70b-decode", "h100-sxm", **job).step
    assert fomkit.sensitivity("llama3-70b-decode", "h100-sxm", **job).content["figures"]["step_s"]["value"] == (
        pytest.approx(step.value)
    )
    swept = fomkit.sweep("llama3-70b-decode", "h100-sxm", {"batch": [16, 32]}, **job)
    assert swept.table["step_s"].iloc[0] == pytest.approx(step.value)
    with pytest.raises(FomkitError, match="layout: is for runs on nodes"):
        fomkit.solve("llama3-70b-decode", "h100-sxm", unit_per_day=200.0, layout="tensor=4")


NVLINK = ("a100-sxm", "h100-sxm", "h200-sxm", "b200-sxm", "gb200")


def shares_of(name: str) -> dict[tuple[int, float], float]:
    """Return the time of serving's own all-reduce over a ring's, by ranks and bytes."""
    machine = load_machine(name)
    rows = machine.timings[machine.timings["op"] == REPLAYED]
    ring = Network(machine.with_timings(machine.timings.iloc[:0]))
    found = {}
    for ranks, byte, time_s in rows[["ranks", "message_byte", "time_s"]].to_numpy(float).tolist():
        around = ring.exchange("all_reduce", byte, ring.group(int(ranks))).time.value
        found[int(ranks), byte] = time_s / around
    return found


def test_boards_without_the_serving_librarys_sums_have_those_of_others() -> None:
    """The shares are medians of five boards; each board's own is off by 11 % on average if it is left out."""
    of_board = {name: shares_of(name) for name in NVLINK}
    for ranks, shares in links.REPLAYED_SHARES.items():
        for bits, share in zip(links.REPLAYED_BITS, shares, strict=True):
            known = [own[ranks, 2.0**bits] for own in of_board.values() if (ranks, 2.0**bits) in own]
            assert np.median(known) == pytest.approx(share, abs=0.006), (ranks, bits)
    off = []
    for name, own in of_board.items():
        others = [other for board, other in of_board.items() if board != name]
        for key, share in own.items():
            off.append(np.log(share / np.median([other[key] for other in others if key in other])))
    assert len(off) == 322
    assert np.abs(off).mean() < 0.12
    assert np.exp(np.quantile(off, [0.1, 0.9])) == pytest.approx(links._OFF, abs=0.02)


def test_a_board_without_timings_sums_like_others_over_fast_links(h100: Machine) -> None:
    """Of 256 KiB over eight B300, which states NVLink and no table, and over eight L4 on a bus."""
    b300, l4 = load_machine("b300-sxm"), replace(load_machine("l40s"), timings=h100.timings.iloc[:0])
    for machine, share in ((b300, links.REPLAYED_SHARES[8][2]), (l4, 1.0)):
        plain, serving = Network(machine), Network(machine, op=REPLAYED)
        times = [one.exchange("all_reduce", 2.0**18, one.group(8)).time for one in (plain, serving)]
        assert times[1].value == pytest.approx(share * times[0].value)
        assert (times[1].high / times[1].value > times[0].high / times[0].value) == (share < 1)
    gathers = [one.exchange("all_gather", 2.0**18, one.group(8)).time for one in (plain, serving)]
    assert gathers[0] == gathers[1]

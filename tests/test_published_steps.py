"""Published steps on many devices, and the features that they need: low formats, overlap, all-to-all exchanges."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fomkit.core.errors import FomkitError
from fomkit.core.interval import Span
from fomkit.core.job import Layout
from fomkit.core.machine import Machine
from fomkit.core.transformer import Latent, Transformer
from fomkit.parallel.kernels import Split, update_rows
from fomkit.parallel.step import check_layout, stages_of
from fomkit.parallel.transformer import training_rows
from fomkit.plan.memory_of import reserve_of
from fomkit.plan.options import Options
from fomkit.plan.scaling import stepper_of, with_user_links
from fomkit.plan.transformer_step import TransformerStep
from fomkit.prediction.exchange import Network
from fomkit.prediction.links import Group
from fomkit.profiles.declared import parse_link
from fomkit.profiles.machines import load_machine
from fomkit.profiles.models import load_model, transformer_profile
from fomkit.validation.published_steps import (
    MPT,
    OTHER_FRACTION,
    VTRAIN,
    by_setting,
    published_steps,
    sizes_left_out,
)

LINK = "system, 10 us, 50 GB/s, each"
LLAMA = Transformer(hidden=4096, heads=32, blocks=32, seq=4096, vocabulary=32000, feed_forward=11008, kv_heads=8,
                    attention="fused", style="llama", tied=False)  # fmt: skip


@pytest.fixture(scope="module")
def h100() -> Machine:
    return with_user_links(load_machine("h100-sxm"), [parse_link(LINK)], node_devices=8)


def test_the_sets_hold_what_was_published() -> None:
    rows = list(published_steps())
    counts = {of: sum(row.of == of for row in rows) for of in dict.fromkeys(row.of for row in rows)}
    assert counts == {MPT: 61, VTRAIN: 720, "Megatron-LM on JUWELS Booster": 3, "Megatron-Bridge on H100": 20}
    large = rows[0]
    # 26,274 tokens a second of 2,048 sequences of 2,048 tokens.
    assert large.step_s == pytest.approx(2048 * 2048 / 26274, rel=1e-3)
    assert (large.devices, large.layout.zero, large.layout.recompute) == (64, 3, "full")
    assert large.model.parameters_total == pytest.approx(64862437376, rel=0.005)
    assert len({row.setting for row in rows if row.of == VTRAIN}) == 31


def test_every_fifth_step_under_fsdp_is_priced_and_held() -> None:
    rows = [row for row in published_steps() if row.of == MPT][::5]
    asked = ((row, row.with_attention(OTHER_FRACTION)) for row in rows)
    steps, others = zip(*([one.stepper.at(one.devices, one.batch) for one in both] for both in asked), strict=True)
    assert all(step.memory_byte is not None and step.memory_byte < 80 * 2**30 * 1.02 for step in steps)  # all ran
    found = sizes_left_out(rows, [step.wall_s for step in steps], [step.wall_s for step in others])
    assert np.abs(found.log_error).mean() < 0.09
    # An interval keeps its factors, and what the others choose is not what is stated.
    assert found.high / found.value == pytest.approx([step.wall_s.high / step.wall_s.value for step in steps])
    assert not np.allclose(found.value, [step.wall_s.value for step in steps])


def test_layouts_of_today_are_priced_and_held() -> None:
    """Uneven stages, sequences on two devices, whole experts: all ran in 80 GB, and were published in tokens/s."""
    rows = {row.model.name: row for row in published_steps() if row.of == "Megatron-Bridge on H100"}
    assert set(rows) == {"llama3-70b", "llama3.1-405b", "qwen3-30b-a3b", "qwen3-235b-a22b", "gpt-oss-120b"}
    for name, error in (("llama3.1-405b", 0.08), ("qwen3-235b-a22b", 0.2)):
        step = rows[name].stepper.at(rows[name].devices, rows[name].batch)
        assert step.memory_byte is not None
        assert step.memory_byte < 80 * 2**30
        assert step.wall_s.value == pytest.approx(rows[name].step_s, rel=error)
        assert step.wall_s.low < rows[name].step_s < step.wall_s.high


def test_all_published_steps_fit_beside_the_reserve() -> None:
    """All ran; the fullest leaves 2,307 MiB of 81,920, of which the reserve takes 1,536."""
    left = [
        row.machine.device.capacity_byte.value - sum(row.stepper.held(row.devices, row.batch).values())
        for row in published_steps()
    ]
    reserves = [reserve_of(row.machine).value for row in published_steps()]
    assert len(left) == 804
    assert all(room > reserve for room, reserve in zip(left, reserves, strict=True))
    assert round(min(left) / 2**20) == 2307


def test_settings_of_small_layers_are_sums_of_their_rows() -> None:
    rows = [row for row in published_steps() if row.of == VTRAIN][:40]
    spans = [Span.exact(2 * row.step_s) for row in rows]
    found = by_setting(rows, spans)
    assert len(found) == len({row.setting for row in rows}) < 31
    assert found.truth.sum() == pytest.approx(sum(row.step_s for row in rows))
    assert found.value == pytest.approx(2 * found.truth)
    slow = rows[0].projected(host_s=1e-3).value
    assert slow > 5 * rows[0].projected().value
    assert rows[0].projected(host_s=51e-6).value == pytest.approx(rows[0].projected().value)


def test_pretraining_in_fp8_is_priced_with_nothing_fitted() -> None:
    rows = [row for row in published_steps() if row.model.name == "llama3-70b"]
    errors = [row.projected().value / row.step_s - 1 for row in rows]
    assert np.abs(errors).max() < 0.12


def test_linear_layers_take_a_low_format_and_nothing_else_does() -> None:
    wide, low = (training_rows(LLAMA, Split(1, 1, False, "bf16", low=name))[0] for name in ("", "fp8"))
    changed = [two for one, two in zip(wide, low, strict=True) if one != two]
    assert {row["dtype"] for row in changed} == {"fp8"}
    assert len(changed) == 12  # four layers, a product and two of its gradients each
    # 11,000 is no multiple of 16, gate and up together are: one layer stays wide.
    odd = training_rows(replace(LLAMA, feed_forward=11000), Split(1, 1, False, "bf16", low="fp8"))[0]
    assert sum(row["dtype"] == "fp8" for row in odd) == 9
    quantised = update_rows(1e9, 10, clip=False, low="fp8", of_low=9e8)[-2]  # words are not
    assert (quantised["read_byte"], quantised["write_byte"]) == (1.8e9, 1.8e9)


def test_a_step_in_fp8_is_quicker_where_a_machine_has_it(h100: Machine) -> None:
    model = transformer_profile(LLAMA, "small")
    wide, low = (stepper_of(model, h100, Layout(), Options(precision=name)).at(8, 8) for name in ("bf16", "fp8"))
    assert 0.55 * wide.wall_s.value < low.wall_s.value < 0.9 * wide.wall_s.value
    assert (wide.precision, low.precision) == ("bf16", "fp8")
    with pytest.raises(FomkitError, match="needs arithmetic in fp8"):
        stepper_of(model, load_machine("a100-sxm"), Layout(), Options(precision="fp8"))
    with pytest.raises(FomkitError, match="int8 is not modelled for it"):
        stepper_of(model, h100, Layout(), Options(precision="int8"))


def test_a_tensor_group_sends_beside_its_products(h100: Machine) -> None:
    model, layout = transformer_profile(LLAMA, "small"), Layout(tensor=8, sequence=True, microbatch=1)
    plain, beside = (
        stepper_of(model, h100, replace(layout, tensor_overlap=on), Options()).at(8, 8) for on in (False, True)
    )
    assert beside.exposed_s.value < 0.7 * plain.exposed_s.value
    assert beside.busy_s == plain.busy_s
    assert beside.compute_s == plain.compute_s
    with pytest.raises(FomkitError, match="hides gathers and scatters along the sequence"):
        check_layout(Layout(tensor=8, tensor_overlap=True))


SMALL_DEEPSEEK = Transformer(
    hidden=1024, heads=8, blocks=6, seq=512, vocabulary=32000, feed_forward=512, attention="fused", style="llama",
    tied=False, experts=16, top_k=4, shared=512, dense_blocks=2, dense_feed_forward=2816,
    latent=Latent(query_rank=256, rank=128, plain=64, rotary=32, value=64),
)  # fmt: skip


def test_deepseek_v3_takes_as_long_as_its_report_says(h100: Machine) -> None:
    """180 thousand H800 hours for 10^12 tokens, on 2,048 of them, with the report's links (arXiv 2412.19437)."""
    links = ["node, 5 us, 160 GB/s, each", "system, 5 us, 50 GB/s, each"]
    machine = with_user_links(h100, [parse_link(one) for one in links])
    layout = Layout(pipeline=16, expert=64, zero=1, microbatch=1, expert_overlap=True)
    model = load_model("today/deepseek-v3")
    step = stepper_of(model, machine, layout, Options(precision="fp8")).at(2048, 15360)
    published = 180e3 * 3600 / 2048 * 15360 * 4096 / 1e12
    assert step.wall_s.low < published < step.wall_s.high
    assert step.wall_s.value == pytest.approx(published, rel=0.08)
    alone = stepper_of(model, machine, replace(layout, expert_overlap=False), Options(precision="fp8"))
    assert alone.at(2048, 15360).exposed_s.value > 3 * step.exposed_s.value


def test_stages_take_blocks_of_each_kind_in_order() -> None:
    """Two blocks without experts, then four with; of 3 stages the first has the first two."""
    stages = stages_of(SMALL_DEEPSEEK, Layout(pipeline=3))
    assert [(one.blocks, one.many, one.first, one.last) for one in stages] == [
        ((2, 0), 1, True, False), ((0, 2), 1, False, False), ((0, 2), 1, False, True)
    ]  # fmt: skip
    assert [one.blocks for one in stages_of(SMALL_DEEPSEEK, Layout(pipeline=4))] == [
        (1, 0),
        (1, 1),
        (0, 2),
        (0, 1),
    ]


def test_blocks_of_two_kinds_are_held_and_summed_once(h100: Machine) -> None:
    """All parameters of the model are on its stages, and all its gradients are sent."""
    model = transformer_profile(SMALL_DEEPSEEK, "small")
    assert SMALL_DEEPSEEK.parameters == sum(
        many * of.block_parameters() for many, of in SMALL_DEEPSEEK.kinds
    ) + 1024 * (2 * 32000 + 1)
    whole = stepper_of(model, h100, Layout(microbatch=1), Options())
    assert isinstance(whole, TransformerStep)
    # The last norm is no block's.
    assert whole.gradient_byte() == 4 * (SMALL_DEEPSEEK.parameters - 1024)
    for zero in (0, 3):
        step = stepper_of(model, h100, Layout(microbatch=1, zero=zero), Options()).at(8, 16)
        share = 7 / 8 * (SMALL_DEEPSEEK.parameters - 1024 * (zero < 3))
        each = (
            2 * 4 if zero == 0 else 2 * 4 + 2 * (2 * 2)
        )  # scatters in two microbatches, and gathers twice in each
        words = 2 * 2 * 7 / 8 * (2 * 32000 + 2) * 1024 if zero == 3 else 0  # gathered once in each
        assert step.sent_byte["replicas"] == pytest.approx(share * each - words, rel=1e-4)


def test_a_tensor_group_holds_what_compresses_whole(h100: Machine) -> None:
    model, found = transformer_profile(SMALL_DEEPSEEK, "small"), []
    for tensor in (1, 2):
        stepper = stepper_of(model, h100, Layout(tensor=tensor), Options())
        assert isinstance(stepper, TransformerStep)
        found.append(stepper.gradient_byte() / 4)
    compress = 6 * (1024 * 256 + 256 + 1024 * (128 + 32) + 128)
    assert found[1] == pytest.approx((found[0] - compress) / 2 + compress)


def test_bytes_to_experts_are_those_of_the_stage_that_sends_most(h100: Machine) -> None:
    """Of stages of (2, 2) and (0, 3) blocks, the second sends more to experts, though it has fewer blocks."""
    shape = replace(SMALL_DEEPSEEK, blocks=7)
    layout = Layout(pipeline=2, expert=2, microbatch=1)
    assert [one.blocks for one in stages_of(shape, layout)] == [(2, 2), (0, 3)]
    machine = with_user_links(h100, [parse_link("system, 5 us, 50 GB/s, each")])
    step = stepper_of(transformer_profile(shape, "small"), machine, layout, Options()).at(4, 8)
    assert step.sent_byte["experts"] == 4 * 3 * 4 * (512 * 4 * 1024 * 2) / 2  # each way twice, 4 microbatches


def test_gradients_of_compressed_queries_and_keys_are_added() -> None:
    ops = transformer_profile(SMALL_DEEPSEEK, "small").ops
    (added,) = {*ops.loc[ops["op"].eq("queries, keys, values, by input"), "numel"]}
    assert added == "524288*batch"


@pytest.mark.parametrize("name", ["shared", "dense_feed_forward"])
def test_other_feed_forward_layers_divide_too(h100: Machine, name: str) -> None:
    model = transformer_profile(replace(SMALL_DEEPSEEK, **{name: 510}), "small")  # type: ignore[arg-type]
    with pytest.raises(FomkitError, match=f"{name} 510 is not divisible by tensor 4"):
        stepper_of(model, h100, Layout(tensor=4), Options())


def test_experts_are_sent_to_beside_another_microbatch(h100: Machine) -> None:
    model, layout = transformer_profile(SMALL_DEEPSEEK, "small"), Layout(expert=8, microbatch=1)
    plain, beside = (
        stepper_of(model, h100, replace(layout, expert_overlap=on), Options()) for on in (False, True)
    )
    one, two = plain.at(8, 32), beside.at(8, 32)
    assert two.exposed_s.value < one.exposed_s.value
    assert (two.busy_s, two.sent_byte) == (one.busy_s, one.sent_byte)
    with pytest.raises(FomkitError, match="expert_overlap needs another microbatch, but a step has one"):
        beside.at(8, 8)
    with pytest.raises(FomkitError, match="hides exchanges with experts that devices share"):
        check_layout(Layout(expert_overlap=True))


def test_all_with_all_sends_between_nodes_what_goes_to_other_nodes(h100: Machine) -> None:
    byte = 128e6
    found = Network(h100).exchange("all_to_all", byte, Group(8, 2)).time.value
    assert found == pytest.approx(byte / 2 / 50e9 + 10e-6)  # half of it, by the device's own adapter
    alone = Network(h100).exchange("all_to_all", byte, Group(1, 16)).time.value
    assert alone == pytest.approx(15 * (byte / 16 / 50e9 + 10e-6))

"""Published steps on many devices, and the features that they need: low formats, overlap, all-to-all exchanges."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fomkit.core.errors import FomkitError
from fomkit.core.interval import Span
from fomkit.core.job import Layout
from fomkit.core.machine import Machine
from fomkit.core.transformer import Transformer
from fomkit.parallel.step import check_layout
from fomkit.parallel.transformer import Split, block_rows, update_rows
from fomkit.plan.options import Options
from fomkit.plan.scaling import stepper_of, with_user_links
from fomkit.prediction.exchange import Group, Network
from fomkit.profiles.declared import parse_link
from fomkit.profiles.machines import load_machine
from fomkit.profiles.models import transformer_profile
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
    wide, low = (block_rows(LLAMA, Split(1, 1, False, "bf16", low=name)) for name in ("", "fp8"))
    changed = [two for one, two in zip(wide, low, strict=True) if one != two]
    assert {row["dtype"] for row in changed} == {"fp8"}
    assert len(changed) == 12  # four layers, a product and two of its gradients each
    # 11,000 is no multiple of 16, gate and up together are: one layer stays wide.
    odd = block_rows(replace(LLAMA, feed_forward=11000), Split(1, 1, False, "bf16", low="fp8"))
    assert sum(row["dtype"] == "fp8" for row in odd) == 9
    quantised = update_rows(1e9, 10, clip=False, low="fp8")[-2]
    assert (quantised["read_byte"], quantised["write_byte"]) == (2e9, 2e9)


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


def test_all_with_all_sends_between_nodes_what_goes_to_other_nodes(h100: Machine) -> None:
    byte = 128e6
    found = Network(h100).exchange("all_to_all", byte, Group(8, 2)).time.value
    assert found == pytest.approx(byte / 2 / 50e9 + 10e-6)  # half of it, by the device's own adapter
    alone = Network(h100).exchange("all_to_all", byte, Group(1, 16)).time.value
    assert alone == pytest.approx(15 * (byte / 16 / 50e9 + 10e-6))

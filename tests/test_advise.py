"""The advisor: each rule fires exactly where it should, and the gain comes from a second estimate."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pandas as pd
import pytest

import fomkit
from fomkit.cli.main import app
from fomkit.core.errors import FomkitError
from fomkit.core.interval import Span
from fomkit.core.machine import Device, Fact, Machine, Overhead, Peak
from fomkit.core.model import Data, ModelProfile, Run
from fomkit.ops.tables import column_names
from fomkit.output.advice import WIDTH, format_advice, lines_of_findings
from fomkit.output.files import to_csv, to_json
from fomkit.output.machines import format_memory
from fomkit.output.models import format_model_view
from fomkit.plan.content import estimate_content
from fomkit.plan.op_tables import timeline_content
from fomkit.plan.options import Options
from fomkit.verbs.machine_view import memory_content
from fomkit.verbs.model_view import View, show_model
from fomkit.whatif.advice_case import WORTH, one_at_a_time
from fomkit.whatif.advice_rules import RULES
from fomkit.whatif.advise import Advice, advise, structure

GEMM = {"op": "mm", "kind": "gemm", "b": 1.0, "trans_a": 0.0, "trans_b": 0.0}
RELU = {"op": "relu", "kind": "pointwise", "inputs": 1.0}


def fact(value: float, low: float | None = None, high: float | None = None) -> Fact:
    return Fact(value, low or value, high or value, "published", "a made-up datasheet")


def machine(launch_s: float = 1e-6, **changed: object) -> Machine:
    """A machine of round figures without timings: 10 TFLOP/s, 100 on its matrix engine, 1 TB/s, 1 GB."""
    peaks = (
        Peak("fp32", "vector", fact(10e12)),
        Peak("fp16", "vector", fact(20e12)),
        Peak("fp16", "matrix", fact(100e12)),
    )
    device = Device(peaks, fact(1e9), fact(1e12), fact(launch_s, launch_s / 2, launch_s * 2))
    made = Machine("made", "a made-up machine", "lab", device, pd.DataFrame(columns=column_names("TIMINGS")))
    return replace(made, **changed)  # type: ignore[arg-type]


def op(kind: dict[str, object], count: float = 1.0, dtype: str = "fp32", **sizes: object) -> dict[str, object]:
    shared = {"engine": "matrix" if dtype == "fp16" and kind is GEMM else "vector", "pass_name": "forward"}
    return {**shared, **kind, "count": count, "dtype": dtype, "module": "net.0", **sizes}


def product(size: float, count: float = 1.0, dtype: str = "fp32") -> dict[str, object]:
    return op(GEMM, count, dtype, m=size, n=size, k=size)


def relu(numel: float, count: float = 1.0) -> dict[str, object]:
    return op(RELU, count, numel=numel, read_byte=4 * numel, write_byte=4 * numel)


def model(*rows: dict[str, object], **changed: object) -> ModelProfile:
    made = ModelProfile(
        name="net",
        title="a made-up net",
        ops=pd.DataFrame(rows),
        parts=pd.DataFrame(),
        sizes={"batch": 8},
        traced_with={"framework": "torch"},
        data=Data(8_000, 0, "drop"),
        run=Run(10),
    )
    return replace(made, **changed)  # type: ignore[arg-type]


def advice_for(net: ModelProfile, on: Machine, **options: object) -> Advice:
    return advise(net, on, Options(**options))  # type: ignore[arg-type]


def of(advice: Advice, rule: str, state: str | None = None) -> list[dict[str, object]]:
    return [one for one in advice.content["findings"] if one["rule"] == rule and state in (None, one["state"])]


def only(advice: Advice, rule: str) -> dict:
    (one,) = of(advice, rule)
    return one


def test_every_rule_answers_every_study() -> None:
    found = {one["rule"] for one in advice_for(model(product(1024)), machine()).content["findings"]}
    assert found == {rule.name for rule in RULES}
    assert len(found) == len(RULES)


# --- faster engine


def test_a_faster_engine_is_found_and_the_saving_is_that_of_an_estimate() -> None:
    net, on = model(product(4096, 10)), machine()
    one = of(advice_for(net, on), "faster engine", "advice")[0]
    before, after = (fomkit.estimate(net, on, precision=name) for name in (None, "mixed"))
    assert one["stake"]["time_s"]["value"] == pytest.approx(before.step.value - after.step.value, rel=1e-9)
    gain = after.unit_per_day.value - before.unit_per_day.value
    assert one["stake"]["unit_per_day"]["value"] == pytest.approx(gain, rel=1e-9)
    assert "--precision mixed" in one["says"]
    assert "100 TFLOP/s" in one["says"]


def test_no_faster_engine_no_advice() -> None:
    slow = machine()
    slow = replace(slow, device=replace(slow.device, peaks=slow.device.peaks[:1]))
    found = of(advice_for(model(product(4096)), slow), "faster engine")
    assert {one["state"] for one in found} == {"not_applicable"}
    assert "made has no peak or timing in mixed" in found[-1]["says"]
    mixed = only(advice_for(model(product(4096)), machine(), precision="mixed"), "faster engine")
    assert "--precision mixed is given" in mixed["says"]


def test_a_format_that_costs_time_is_tried_and_rejected() -> None:
    update = op({"op": "sgd", "kind": "optimizer", "rule": "sgd", "impl": "foreach"}, numel=5e8, tensors=4.0)
    net = model(product(128), relu(10), {**update, "pass_name": "update"})
    one = of(advice_for(net, machine()), "faster engine", "rejected")[0]
    assert one["stake"]["time_s"]["value"] < 0
    assert one["rejected"] == "the step would take longer"


def test_a_changed_step_with_a_gap_saves_nothing(monkeypatch) -> None:
    """If the step in the other format has an op without a time, there is no saving."""
    gap = pd.DataFrame([op({"op": "packs", "kind": "other", "dtype": "fp16"}, numel=float("nan"))])
    added = lambda ops, *_, **__: pd.concat([ops, gap], ignore_index=True)  # noqa: E731
    monkeypatch.setattr("fomkit.ops.precision.with_casts", added)
    update = op({"op": "sgd", "kind": "optimizer", "rule": "sgd", "impl": "foreach"}, numel=5e8, tensors=4.0)
    found = of(advice_for(model(product(1024), {**update, "pass_name": "update"}), machine()), "faster engine")
    assert "in mixed part of the step has no time" in found[-1]["says"]


# --- misaligned


def test_a_product_of_odd_rows_is_found_on_a_table_that_knows() -> None:
    """The surfaces of typical utilisation of the A100 were also fitted to products of odd sizes."""
    net = model(product(4095, 4, "fp16"))
    found = of(fomkit.advise(net, "a100-pcie-40gb"), "misaligned", "advice")
    assert len(found) == 1
    padded = fomkit.estimate(model({**product(4095, 4, "fp16"), "n": 4096.0, "k": 4096.0}), "a100-pcie-40gb")
    present = fomkit.estimate(net, "a100-pcie-40gb")
    assert found[0]["stake"]["time_s"]["value"] == pytest.approx(present.step.value - padded.step.value, rel=1e-9)
    assert found[0]["stake"]["share"]["value"] > 0.2


def test_padding_saves_no_cast_of_a_bias() -> None:
    """Which the sum of its gradient tells, whose bytes grow with no padded size."""
    layer = {**product(1023), "module": "dense"}
    bias = {**op({"op": "sum", "kind": "reduction"}, numel=1023.0 * 1023, row=1023.0,
                  read_byte=4 * 1023.0 * 1023, write_byte=4092.0),
            "pass_name": "backward", "module": "dense"}  # fmt: skip
    update = op({"op": "sgd", "kind": "optimizer", "rule": "sgd", "impl": "foreach"}, numel=1e6, tensors=2.0)
    net = model(layer, bias, {**update, "pass_name": "update"})
    found = of(advice_for(net, machine(), precision="mixed"), "misaligned")[0]
    present, padded = (
        fomkit.estimate(model(one, bias, {**update, "pass_name": "update"}), machine(), precision="mixed").ops
        for one in (layer, {**layer, "n": 1024.0, "k": 1024.0})
    )
    assert (present["op"] == "weight cast").sum() == 2
    saved = present["time_s"].iloc[0] - padded["time_s"].iloc[0]
    assert found["stake"]["time_s"]["value"] == pytest.approx(saved, rel=1e-6)


def test_a_product_of_1023_is_seen_where_padding_does_not_pay() -> None:
    one = only(advice_for(model(product(1023, 1, "fp16")), machine()), "misaligned")
    assert one["state"] == "rejected"
    assert one["ops"][0]["sizes"] == "gemm 1023×1023×1023"


def test_a_table_without_such_products_hears_what_others_paid_for_them() -> None:
    """The A100's table has no product with odd stored rows: other machines' cost is used, with uncertainty."""
    net = model(op(GEMM, 4, "bf16", engine="matrix", m=4096.0, n=50257.0, k=768.0))
    (found,) = of(fomkit.advise(net, "a100-sxm"), "misaligned", "advice")
    time_s = found["stake"]["time_s"]
    assert time_s["low"] < time_s["value"] < time_s["high"]
    assert time_s["high"] - time_s["low"] > time_s["value"] / 2
    even = fomkit.estimate(model(op(GEMM, 4, "bf16", engine="matrix", m=4096.0, n=50304.0, k=768.0)), "a100-sxm")
    assert fomkit.estimate(net, "a100-sxm").step.value > even.step.value


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (product(1024, 1, "fp16"), "multiples of 16 bytes"),
        (product(1023), "no matrix product of the step runs on a matrix engine"),
        # The rows of the first factor are its k, those of the second its n: m is no length of a row.
        (op(GEMM, 1, "fp16", m=1023.0, n=1024.0, k=1024.0), "multiples of 16 bytes"),
    ],
)
def test_aligned_products_and_other_engines_are_left_alone(row, why) -> None:
    one = only(advice_for(model(row), machine()), "misaligned")
    assert one["state"] == "not_applicable"
    assert why in one["says"]


# --- launches, input


def test_a_tiny_model_waits_for_its_launches() -> None:
    advice = advice_for(model(relu(1000, 300), product(64, 100)), machine(launch_s=10e-6))
    one = only(advice, "launch bound")
    assert one["state"] == "advice"
    assert one["stake"]["share"]["value"] > 0.8
    assert "400 kernels" in one["says"]
    graph = machine(launch_s=0.5e-6)
    changed = fomkit.estimate(model(relu(1000, 300), product(64, 100)), graph)
    saved = advice.content["step_s"]["value"] - changed.step.value
    assert one["stake"]["time_s"]["value"] == pytest.approx(saved, rel=0.02)
    assert advice.content["use"]["verdict"] == "poorly"


def test_long_kernels_do_not_wait() -> None:
    assert only(advice_for(model(product(8192)), machine()), "launch bound")["state"] == "rejected"
    silent = machine()
    silent = replace(silent, device=replace(silent.device, launch_s=None))
    one = only(advice_for(model(product(1024)), silent), "launch bound")
    assert "does not state the cost of a kernel launch" in one["says"]


def with_input(time_s: float) -> Machine:
    return machine(overheads=(Overhead("input", "step", fact(time_s, 0.9 * time_s, 1.1 * time_s), None),))


def test_a_stated_input_pipeline_that_is_slower_is_found() -> None:
    net = model(product(4096, 10))
    device_s = fomkit.estimate(net, machine()).step.value
    advice = advice_for(net, with_input(3 * device_s))
    one = only(advice, "input bound")
    assert one["state"] == "advice"
    assert one["stake"]["time_s"]["value"] == pytest.approx(2 * device_s, rel=1e-6)
    assert advice.content["use"]["bounds"]["waiting"]["value"] == pytest.approx(2 / 3, rel=1e-6)
    # What the device does is hidden behind the input: no change of it is advice.
    assert of(advice, "faster engine", "rejected")
    hidden = only(advice_for(net, with_input(device_s / 3)), "input bound")
    assert "is hidden by" in hidden["says"]
    unknown = only(advice_for(net, machine()), "input bound")
    assert "unknown, not 0" in unknown["says"]


# --- memory, batch


def with_order(byte: float, sizes: dict[str, int] | None = None) -> ModelProfile:
    """Make a network with a given size of activations per sample."""
    rows = [op(GEMM, 10, m="64*batch", n=512.0, k=512.0), {**relu(1.0), "numel": "100*batch"}]
    rows[1] |= {"read_byte": "400*batch", "write_byte": "400*batch"}
    order = pd.DataFrame(
        {
            "id": [0.0, 1.0, 2.0], "row": [np.nan, 0.0, 1.0], "output_byte": [4096.0, f"{byte:.0f}*batch", 512.0],
            "role": ["parameter", "activation", "temporary"], "freed_by": [np.nan, 2.0, 2.0],
            "module": ["net.0", "", ""], "pass_name": ["", "forward", "forward"],
        }
    )  # fmt: skip
    return model(*rows, order=order, sizes=sizes or {"batch": 8})


def test_a_training_that_waits_for_its_host_counts_its_own_starts() -> None:
    """The host needs 51 µs for an op of a training by rule, and 5 µs for each further kernel of it."""
    asked = {"batch": 2}
    step = fomkit.estimate("bert-large", "h100-sxm", **asked)
    starts = (step.ops["launches"] * step.ops["count"]).sum()
    one = only(fomkit.advise("bert-large", "h100-sxm", **asked), "launch bound")
    assert one["says"].startswith(f"{starts:,.0f} kernels are started in a step, which takes the host 40.6 ms; ")
    assert "The host's time for an op is assumed: layers of Megatron-DeepSpeed" in one["sure"]


def test_memory_near_full_is_told_and_room_is_not() -> None:
    device = replace(machine(), reserve_byte=Fact.exact(1e8, "measured", "here"))
    full = advice_for(with_order(0.95e9 / 8), device)
    one = only(full, "memory full")
    assert one["state"] == "advice"
    assert "fits only without the reserve: " in one["says"]
    assert "take about 95.37 MiB. The largest batch that leaves the reserve is 7." in one["says"]
    assert "twice the batch does not fit or has no time" in only(full, "larger batch")["says"]
    assert "does not fit: " in only(advice_for(with_order(1.2e9 / 8), device), "memory full")["says"]
    large = advice_for(with_order(1.2e9 / 8), device)
    assert large.findings[0]["rule"] == "memory full"
    assert "First make the step fit" in large.summary()
    assert "accumulate gradients" in only(large, "memory full")["do"]
    infers = replace(with_order(1.2e9 / 8), traced_with={"mode": "infer"})
    assert "--layout tensor=N" in only(advice_for(infers, machine()), "memory full")["do"]
    room = advice_for(with_order(1e6), machine())
    assert only(room, "memory full")["state"] == "not_applicable"
    assert full.content["memory"]["structures"][0]["structure"] == "net.*"


def test_a_larger_batch_that_fits_is_priced_for_the_same_samples() -> None:
    net, on = with_order(1e6), machine(launch_s=20e-6)
    one = only(advice_for(net, on), "larger batch")
    assert one["state"] == "advice"
    assert "batch 128 instead of 8" in one["says"]
    small, large = (fomkit.estimate(net, on, batch=batch).step.value for batch in (8, 128))
    assert one["stake"]["time_s"]["value"] == pytest.approx(small - large * 8 / 128, rel=1e-9)


def test_a_larger_batch_needs_to_know_what_fits() -> None:
    fixed = only(advice_for(model(product(64)), machine()), "larger batch")
    assert "fixed at its batch" in fixed["says"]
    unknown = replace(with_order(1e6), order=None)
    assert "it is unknown which batch fits" in only(advice_for(unknown, machine()), "larger batch")["says"]


# --- update, floors, unknown work


def update(rule: str, impl: str) -> dict[str, object]:
    named = {"op": rule, "kind": "optimizer", "rule": rule, "impl": impl, "pass_name": "update"}
    return op(named, numel=1e8, tensors=10.0)


def test_a_fused_update_is_estimated_again() -> None:
    net, on = model(product(2048), update("adam", "foreach")), machine()
    one = only(advice_for(net, on), "update")
    fused = fomkit.estimate(model(product(2048), update("adam", "fused")), on)
    saved = fomkit.estimate(net, on).step.value - fused.step.value
    assert one["state"] == "advice"
    assert one["stake"]["time_s"]["value"] == pytest.approx(saved, rel=1e-9)
    assert saved > 0


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([update("adam", "fused")], "fused already"),
        ([update("radam", "foreach")], "no known fused update for radam"),
        ([], "has no update"),
    ],
)
def test_updates_that_cannot_be_fused(rows, why) -> None:
    assert why in only(advice_for(model(product(64), *rows), machine()), "update")["says"]


def test_expensive_ops_and_low_use_are_bounded_by_the_floor() -> None:
    """A tiny product takes the time of its launch, far more than its floor; a big product is near its floor."""
    advice = advice_for(model(product(64, 100), product(4096)), machine(launch_s=20e-6))
    low = only(advice, "low use")
    assert low["stake"]["at_most"] is True
    assert [one["sizes"] for one in low["ops"]] == ["gemm 64×64×64"]
    row = low["ops"][0]
    assert low["stake"]["time_s"]["value"] == pytest.approx(row["step_time_s"] - row["floor_s"], rel=0.35)
    assert only(advice, "expensive ops")["state"] == "advice"
    even = advice_for(model(*(product(4096 + 8 * place) for place in range(12))), machine())
    assert "no op takes 10%" in only(even, "expensive ops")["says"]


# --- what beats its floor, what a change slows down, what the profile lacks


def test_no_cap_is_stated_where_ops_beat_their_floors() -> None:
    """Most of vgg16's time on V100 is Winograd convolutions, whose direct flop are no lower bound."""
    advice = fomkit.advise("vgg16", "v100")
    least, use = advice.content["least"], advice.content["use"]
    text = " ".join(advice.summary(tried=True).split())
    assert least["share_without_bound"] > 0.5
    assert "cannot save more" not in text
    assert f"For {least['share_without_bound']:.1%} of the device's time no bound is known" in text
    assert use["peak_fraction"]["value"] > 1
    assert "it uses" not in text
    assert "Winograd and FFT convolutions need fewer flop than the direct ones" in text
    listed = [row for one in advice.content["findings"] for row in one["ops"] if row["after_s"] is None]
    below = [row for row in listed if row["floor_s"] is not None and row["floor_s"] > row["step_time_s"]]
    assert text.count("by the stated rates;") == len(below)


def test_a_cap_is_stated_where_every_op_keeps_to_its_floor() -> None:
    advice = advice_for(model(product(4096), relu(1e6)), machine())
    assert advice.content["least"]["share_without_bound"] == 0
    assert advice.content["use"]["above_peak"] is None
    assert "formats and algorithms cannot save more than" in " ".join(advice.summary().split())


def test_an_op_that_a_change_makes_slower_says_so_and_stands_last() -> None:
    advice = fomkit.advise("resnet50", "v100")
    assert repr(advice).endswith("; 0.264 trained models a day>")
    (found,) = [one for one in advice.findings if "--precision mixed" in one["says"]]
    slower = [one["after_s"] > one["step_time_s"] for one in found["ops"]]
    assert slower == sorted(slower)
    assert any(slower)
    assert " ".join(advice.summary().split()).count(", which is slower") >= sum(slower)


def test_every_view_says_what_the_profile_says_is_missing() -> None:
    notes = ("partial: the program ended after 2 steps", "other")
    net = model(product(1024), notes=notes, missing=("loss",), derived=("backward",), parameters_total=10)
    said = {
        "derived by rule, not traced: backward",
        "not in the profile and not counted: loss",
        "partial: the program ended after 2 steps",
    }
    assert set(net.caveats) == said
    options, ordered = Options(), with_order(1e6)
    memory = memory_content(replace(net, ops=ordered.ops, order=ordered.order), options)
    excluding = [
        advice_for(net, machine()).content,
        timeline_content(net, machine(), options)["otherData"],
        estimate_content(fomkit.estimate(net, machine())),
    ]
    views = [show_model(net, View(), options, on) for on in (None, machine())]
    for content in (memory, *views, *excluding):
        assert said <= set(content["deviations"])
    assert all("loss" in content["excludes"] for content in excluding)
    for text in (format_memory(memory), format_model_view(views[0]), advice_for(net, machine()).summary()):
        assert all(one in " ".join(text.split()) for one in said)


def test_work_without_a_time_is_told_and_never_counts_nothing() -> None:
    odd = {"op": "sort", "kind": "other", "numel": 1e6, "read_byte": np.nan, "write_byte": np.nan}
    net = model(product(1024), op(odd, 3), unsupported=("aten::nonzero (2)",))
    one = only(advice_for(net, machine()), "unknown work")
    assert "other (3)" in one["says"]
    assert "aten::nonzero (2)" in one["says"]
    assert one["stake"] is None
    with pytest.raises(FomkitError, match="no op has a time, so there is nothing to advise on"):
        advice_for(model(op(odd)), machine())


# --- the whole


SHIPPED = [
    ("resnet50", "v100"),
    ("gpt2", "v100"),
    ("p1b3", "v100"),
    ("resnet50", "a100-sxm"),
    ("gpt2", "a100-sxm"),
]


@pytest.fixture(scope="module", params=SHIPPED, ids=lambda pair: "-".join(pair))
def shipped(request: pytest.FixtureRequest) -> Advice:
    return fomkit.advise(*request.param)


def test_nothing_at_stake_is_more_than_the_step(shipped) -> None:
    step_s = shipped.content["step_s"]["value"]
    for one in shipped.content["findings"]:
        if one["stake"] is None:
            continue
        time_s, share = one["stake"]["time_s"], one["stake"]["share"]
        assert time_s["low"] <= time_s["value"] <= time_s["high"] < step_s
        assert time_s["value"] == pytest.approx(share["value"] * step_s)
        assert one["state"] != "advice" or share["value"] >= WORTH
    stakes = [one["stake"]["time_s"]["value"] for one in shipped.findings if one["stake"]]
    assert stakes == sorted(stakes, reverse=True)


def test_the_best_is_the_change_that_saves_most(shipped) -> None:
    best = shipped.content["findings"][shipped.content["best"]]
    assert best["stake"]["at_most"] is False
    estimated = [one for one in shipped.findings if one["stake"] and not one["stake"]["at_most"]]
    assert best == max(estimated, key=lambda one: one["stake"]["time_s"]["value"])
    bounds = shipped.content["use"]["bounds"]
    assert math.fsum(one["value"] for one in bounds.values()) == pytest.approx(1.0)
    assert all(one["low"] <= one["value"] <= one["high"] <= 1 for one in bounds.values())


def test_the_share_of_the_peak_is_flop_over_peak_and_time() -> None:
    net, on = model(product(1024, 3), relu(1e6)), machine()
    used = advice_for(net, on).content["use"]
    step_s = fomkit.estimate(net, on).step.value
    assert used["peak_fraction"]["value"] == pytest.approx(3 * 2 * 1024**3 / 10e12 / step_s)
    assert used["fastest"]["peak_fraction"]["value"] == pytest.approx(3 * 2 * 1024**3 / 100e12 / step_s)


def test_the_text_is_narrow_and_says_why(shipped) -> None:
    text = shipped.summary(tried=True)
    _, *others = text.splitlines()  # the terminal folds the headline, as in other verbs
    assert max(map(len, others)) <= WIDTH
    for words in (
        "device well?",
        "carry the memory?",
        "best opportunity?",
        "no sum is given",
        "does not apply",
    ):
        assert words in text
    assert "nan" not in text
    assert json.loads(to_json(shipped.content))["schema"] == "fomkit/advise/1"
    assert len(to_csv(lines_of_findings(shipped.content)).splitlines()) == 1 + len(shipped.content["findings"])


def test_the_page_shows_what_is_printed(root) -> None:
    page = (root / "docs" / "advise.md").read_text(encoding="utf-8")
    shown = page.split("<!-- advice resnet50 v100 -->")[1].split("```")[1].split()
    assert shown == fomkit.advise("resnet50", "v100").summary().split()[: len(shown)]


def test_the_page_names_every_rule(root) -> None:
    page = (root / "docs" / "advise.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| (.*?) \|", page, flags=re.MULTILINE)[1:] == [rule.name for rule in RULES]


def test_without_an_order_memory_is_said_to_be_unknown() -> None:
    text = format_advice(advice_for(model(product(64)), machine()).content)
    assert "Unknown: the profile has no order of its ops" in text


def test_structures_are_modules_without_their_numbers() -> None:
    assert structure("blocks.3.norm") == structure("blocks.11.norm") == "blocks.*.norm"


def test_one_at_a_time_is_the_interval_of_one_part_alone() -> None:
    found = one_at_a_time([Span(2.0, 1.0, 4.0), Span.exact(1.0)], lambda at: at[0] / at[1], 0.8)
    assert (found.value, found.low, found.high) == pytest.approx((2.0, 1.0, 4.0))


def test_the_interval_of_a_ratio_holds_what_sampling_gives() -> None:
    """Kept ops, changed ops before and after: 80 % of the draws of (kept + after) / (kept + before) lie in it."""
    draws = np.random.default_rng(7).normal(size=(3, 200_000))
    z, widths = NormalDist().inv_cdf(0.9), (0.10, 0.20, 0.30)
    values = (3.0, 5.0, 2.0)
    parts = [
        Span(value, value * math.exp(-z * width), value * math.exp(z * width), 0.8)
        for value, width in zip(values, widths, strict=True)
    ]
    found = one_at_a_time(parts, lambda at: (at[0] + at[2]) / (at[0] + at[1]), 0.8)
    kept, before, after = np.array(values)[:, None] * np.exp(draws * np.array(widths)[:, None])
    ratio = (kept + after) / (kept + before)
    inside = ((ratio >= found.low) & (ratio <= found.high)).mean()
    assert inside == pytest.approx(0.8, abs=0.01)


def test_a_shipped_saving_is_the_difference_of_two_estimates() -> None:
    found = of(fomkit.advise("gpt2", "v100", batch=2), "update", "advice")[0]
    net = fomkit.model("gpt2")
    fused = net.ops["impl"].mask(net.ops["kind"] == "optimizer", "fused")
    steps = [
        fomkit.estimate(one, "v100", batch=2).step.value
        for one in (net, replace(net, ops=net.ops.assign(impl=fused)))
    ]
    assert found["stake"]["time_s"]["value"] == pytest.approx(steps[0] - steps[1], rel=1e-9)


def test_runs_gained_are_those_of_the_other_estimate_with_its_validation() -> None:
    engines = [one for one in fomkit.advise("p1b3", "l4").content["findings"] if one["rule"] == "faster engine"]
    before = fomkit.estimate("p1b3", "l4").unit_per_day
    for one in engines:
        (precision,) = re.findall(r"with --precision (\w+)", one["says"])
        after = fomkit.estimate("p1b3", "l4", precision=precision).unit_per_day
        assert one["stake"]["unit_per_day"]["value"] == pytest.approx(after.value - before.value, rel=1e-9)
    assert len(engines) == 3


def test_the_command(capsys, tmp_path) -> None:
    app(
        ["advise", "p1b3", "--target", "v100", "--all", "-q", "-o", str(tmp_path / "a.csv")], standalone_mode=False
    )
    assert "How sure" not in capsys.readouterr().out.splitlines()[0]
    assert (tmp_path / "a.csv").read_text().startswith("rule,question,state")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["p1b3", "-t", "v100", "-o", "a.txt"], "has an ending that advise cannot write. Use .json or .csv"),
        (["p1b3", "-t", "v101"], "v101"),
        (["p1b3", "-t", "v100", "--precision", "bf16"], "needs arithmetic in bf16"),
        (["p1b3", "-t", "v100", "--set", "seq=3"], "'seq' is not one of its sizes"),
    ],
)
def test_mistakes_are_one_message(options, words) -> None:
    with pytest.raises(FomkitError, match=words):
        app(["advise", *options], standalone_mode=False)

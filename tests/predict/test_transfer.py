"""Estimator `transfer`: gradients of convolutions from their forward pass, on a machine that timed only that."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from costs.op_tables import attention, conv, rnn, table, traffic
from predict.machines import as_answers, device, fact, loaded, machine, timings

from fomkit.ops.pricing import add_costs
from fomkit.prediction import exact as measured
from fomkit.prediction import transfer
from fomkit.prediction.cascade import add_times
from fomkit.prediction.composed import BACKWARD, BACKWARD_FASTER, BACKWARD_SLOWER
from fomkit.prediction.exact import row_major
from fomkit.prediction.transfer import without_pass
from fomkit.prediction.typical import typical_utilisation
from fomkit.profiles.evidence import with_fits
from fomkit.profiles.machines import load_machine

TRAINED = ["v100", "p100", "m40", "titan-x", "titan-x-pascal", "gtx-1080-ti", "mi25", "vega-fe", "knl-7250"]
GRADIENTS = ("backward_input", "backward_weight")


@pytest.fixture
def forward_only():
    op = conv(4.0, (64.0, 64.0), 56.0, 3.0)
    known = timings({**op, "op": "", "time_s": 1e-3})
    return machine(device(bandwidth=fact(1e12), fp32_vector=1e13), known), op


def test_a_gradient_takes_the_usual_ratio_to_its_forward_pass(forward_only):
    known, op = forward_only
    timed = add_times(add_costs(table(*({**op, "pass_name": word} for word in ("forward", *GRADIENTS)))), known)
    assert timed["time_source"].tolist() == ["measured", "transferred", "transferred"]
    query = add_costs(table(*({**op, "pass_name": word} for word in ("forward", *GRADIENTS))))
    for at, word in enumerate(GRADIENTS, 1):
        utilisation = typical_utilisation(query, without_pass(known, "conv", word), 0.8)
        assert timed["time_s"].iloc[at] == pytest.approx(1e-3 * utilisation.value[0] / utilisation.value[at])
        # The forward time is measured and exact, so the spread is that of the ratio.
        assert timed["time_s"].iloc[at] / timed["low_s"].iloc[at] == pytest.approx(
            utilisation.high[at] / utilisation.value[at]
        )
        assert "× its forward pass (measured, in the table)" in timed["evidence"].iloc[at]
        assert timed["bound"].iloc[at] == "compute"


def test_an_uncertain_forward_time_widens_the_gradients(forward_only):
    known, op = forward_only
    rows = add_costs(table({**op, "pass_name": "backward_input"}))
    exact = transfer.estimate(rows, known, 0.8, table=measured.estimate)[0]

    def vague(query, of, interval):
        times = measured.estimate(query, of, interval)
        return as_answers(
            {at: time._replace(low_s=time.time_s / 2, high_s=time.time_s * 2) for at, time in times.items()}
        )

    wide = transfer.estimate(rows, known, 0.8, table=vague)[0]
    assert wide.time_s == exact.time_s
    spread = math.hypot(math.log(2), math.log(exact.high_s / exact.time_s))
    assert math.log(wide.high_s / wide.time_s) == pytest.approx(spread)


def test_only_what_the_table_knows_and_what_follows_is_transferred(forward_only):
    known, op = forward_only
    others = [
        {**op, "batch": 8.0, "pass_name": "backward_input"},
        {**op, "pass_name": "backward"},
        rnn("lstm", 16.0, 25.0, 512.0, pass_name="backward_input"),
    ]
    timed = add_times(add_costs(table(*others)), known)
    assert timed["time_source"].tolist() == ["roofline"] * 3
    without = replace(known, device=device())
    assert add_times(add_costs(table({**op, "pass_name": "backward_input"})), without)["time_s"].isna().all()


def test_a_timed_gradient_is_not_transferred(forward_only):
    known, op = forward_only
    gradient = {**op, "pass_name": "backward_input"}
    both = replace(known, timings=timings({**op, "time_s": 1e-3}, {**gradient, "time_s": 5e-3}))
    timed = add_times(add_costs(table(gradient)), both)
    assert (timed["time_source"].iloc[0], timed["time_s"].iloc[0]) == ("measured", 5e-3)


@pytest.mark.parametrize("word", GRADIENTS)
def test_on_the_nine_training_tables(root, word):
    """Predicted without the machine's own chip; the hit rate of the intervals is about their level."""
    errors, hits = [], []
    for name in TRAINED:
        known = loaded(root / "machine_profiles" / f"{name}.yaml")
        table_of = row_major(known.timings)
        truth = table_of[(table_of["kind"] == "conv") & (table_of["dtype"] == "fp32")]
        truth = truth[truth["pass_name"] == word].reset_index(drop=True)
        query = add_costs(truth).assign(op="conv")
        chip = (known.device.architecture,)
        forward = replace(known, timings=table_of[table_of["pass_name"] == "forward"], excluded=chip)
        times = transfer.estimate(query, forward, 0.8, table=measured.estimate)
        found = [times[at] for at in query.index]
        time_s = np.array([one.time_s for one in found])
        errors.append(np.median(np.abs(np.log(time_s / truth["time_s"]))))
        low_s, high_s = np.array([(one.low_s, one.high_s) for one in found]).T
        hits.append(((low_s <= truth["time_s"]) & (truth["time_s"] <= high_s)).mean())
    assert np.expm1(np.mean(errors)) == pytest.approx(
        {"backward_input": 0.19, "backward_weight": 0.30}[word], abs=0.04
    )
    assert 0.75 <= np.mean(hits) <= 0.95


@pytest.mark.parametrize("tokens", [50_035.0, 50_048.0, 50_049.0, 50_235.0, 50_432.0])
def test_a_gradient_of_weights_takes_as_long_by_any_number_of_tokens(tokens: float) -> None:
    """No operand has the tokens in its rows, so one token more is read equally fast. It doubled the time."""
    known = with_fits(load_machine("a100-sxm"))
    product = {
        "op": "aten::mm", "kind": "gemm", "dtype": "bf16", "engine": "matrix", "pass_name": "backward",
        "count": 1.0, "b": 1.0, "m": 3072.0, "n": 768.0, "trans_a": 1.0, "trans_b": 0.0,
    }  # fmt: skip
    costed = add_costs(pd.DataFrame([{**product, "k": tokens}, {**product, "k": 50_176.0}]))
    own, whole = add_times(costed, known)["time_s"] / costed["flop"]
    assert own == pytest.approx(whole, rel=0.02)


SHAPE = attention(4.0, 12.0, 1024.0, 64.0, dtype="bf16", engine="matrix")


def attention_on(*timed: dict[str, object], engine: str = "matrix") -> pd.DataFrame:
    """Time both passes of an attention and the parts of its backward pass on a machine with these timings."""
    known = machine(device(bandwidth=fact(1e12), bf16_matrix=1e14, bf16_vector=1e13), timings(*timed))
    rows = add_costs(table(*({**SHAPE, "engine": engine, "pass_name": word} for word in ("forward", "backward"))))
    scores = {**traffic("softmax", 4 * 12 * 1024**2 * 2.0), "dtype": "bf16", "pass_name": "backward", "count": 3.0}
    parts = add_costs(table(scores)).assign(of=1)
    return add_times(rows, known, parts=parts)


def test_attention_in_one_kernel_goes_back_in_one() -> None:
    """Its parts were summed although its forward pass was one timed kernel: nine times that pass, not three."""
    forward, back = attention_on({**SHAPE, "op": "", "time_s": 1e-3}).to_dict("records")
    assert (forward["time_source"], back["time_source"]) == ("measured", "transferred")
    assert back["time_s"] == pytest.approx(BACKWARD * 1e-3)
    z = 1.2815515655446004
    assert back["time_s"] / back["low_s"] == pytest.approx(math.exp(z * BACKWARD_FASTER))
    assert back["high_s"] / back["time_s"] == pytest.approx(math.exp(z * BACKWARD_SLOWER))
    assert back["evidence"].startswith("2.9 × its forward pass (measured, in the table)")


def test_attention_that_no_table_has_is_one_kernel_on_a_matrix_engine_and_parts_elsewhere() -> None:
    forward, back = attention_on().to_dict("records")
    assert back["time_s"] == pytest.approx(BACKWARD * forward["time_s"])
    assert back["time_source"] == "roofline"
    _, back = attention_on(engine="vector").to_dict("records")
    assert back["evidence"].startswith("sum of 3 parts")


def test_attention_of_sizes_alone_goes_back_in_proportion_to_its_forward_pass() -> None:
    rows = add_costs(table(*({**SHAPE, "pass_name": word, "causal": 0.0} for word in ("forward", "backward"))))
    for name in ("a100-sxm", "h100-sxm", "v100"):
        known = with_fits(load_machine(name))
        of = rows if name != "v100" else add_costs(rows.assign(dtype="fp16"))
        forward, back = add_times(of, known).to_dict("records")
        assert back["time_s"] == pytest.approx(BACKWARD * forward["time_s"])
        assert back["time_source"] == ("roofline" if name == "v100" else "transferred")  # the A100: with a mask


def times_of(name: str, *shapes: dict[str, object]) -> pd.DataFrame:
    rows = table(
        *({**attention(4.0, 32.0, 4096.0, 128.0, dtype="bf16", engine="matrix"), **one} for one in shapes)
    )
    return add_times(add_costs(rows), with_fits(load_machine(name)))


@pytest.mark.parametrize("name", ["l40s", "a100-sxm", "b200-sxm", "b300-sxm", "mi300x", "rtx-4090"])
def test_attention_without_a_mask_is_predicted_from_that_with_a_mask_at_widths_of_heads_timed_so(
    name: str,
) -> None:
    """On the L40S it took 3.6 times the masked one's arithmetic, on the B200 it exceeded the peak."""
    masked, full = times_of(name, {"causal": 1.0}, {"causal": 0.0}).to_dict("records")
    assert 1.8 <= full["time_s"] / masked["time_s"] <= 2.1
    assert full["low_s"] < full["time_s"] < full["high_s"]
    assert full["high_s"] / full["low_s"] < 2.6
    assert full["evidence"].startswith("as masked attention of as many tiles, heads of 128 (")


@pytest.mark.parametrize("name", ["h100-sxm", "l40s", "a100-sxm", "b300-sxm", "gaudi-3", "h20"])
def test_several_queries_over_a_cache_take_between_one_query_and_the_whole(name: str) -> None:
    """Two queries took 28 times as long as one on a B300, and fewer queries longer than more."""
    sizes = [1, 2, 3, 4, 8, 16, 32, 64, 256, 1024, 4096]
    found = times_of(name, *({"batch": 16.0, "kv_heads": 8.0, "q_len": float(q), "causal": 1.0} for q in sizes))
    time_s = found["time_s"].to_numpy()
    assert (time_s[1:] >= 0.98 * time_s[:-1]).all()
    assert (time_s[1:] <= 1.05 * time_s[:-1] * np.divide(sizes[1:], sizes[:-1])).all()
    assert time_s[3] <= 1.3 * time_s[0]
    assert (found["low_s"] <= found["time_s"]).all()
    assert (found["time_s"] <= found["high_s"]).all()


@pytest.mark.parametrize("name", ["h100-sxm", "b200-sxm", "l40s"])
def test_two_queries_in_a_format_timed_for_prompts_only_follow_one_query_in_another_format(name: str) -> None:
    """Two queries in fp8 took 6 times as long as in bf16 on the B200, whose fp8 rows are all prompts."""
    of_draft = {"heads": 8.0, "kv_heads": 1.0, "kv_len": 8704.0, "head_dim": 256.0, "dtype": "fp8", "causal": 0.0}
    one, two = times_of(name, *({**of_draft, "q_len": queries} for queries in (1.0, 2.0))).to_dict("records")
    assert one["time_s"] <= two["time_s"] <= 1.2 * one["time_s"]


@pytest.mark.parametrize("dtype", ["bf16", "fp8"])
@pytest.mark.parametrize("name", ["h100-sxm", "b200-sxm", "l40s", "mi300x", "b300-sxm"])
def test_queries_over_a_latent_cache_are_one_query_of_as_many_more_heads(name: str, dtype: str) -> None:
    """Two took up to 15 times as long as one on the MI300X, half as long on the L40S with an interval of ×457."""
    latent = {"kv_heads": 1.0, "head_dim": 544.0, "shared_dim": 512.0, "kv_len": 8704.0, "dtype": dtype}
    one, two, packed = times_of(
        name,
        {**latent, "heads": 16.0, "q_len": 1.0, "causal": 0.0},
        {**latent, "heads": 16.0, "q_len": 2.0, "causal": 1.0},
        {**latent, "heads": 32.0, "q_len": 1.0, "causal": 0.0},
    ).to_dict("records")
    assert two["time_s"] == pytest.approx(max(packed["time_s"], one["time_s"]), rel=0.01)
    wide = [time["high_s"] / time["low_s"] for time in (one, two, packed)]
    assert wide[1] <= 1.5 * max(wide[0], wide[2])


@pytest.mark.parametrize("dtype", ["bf16", "fp8"])
@pytest.mark.parametrize("name", ["h100-sxm", "b200-sxm"])
def test_a_window_takes_as_long_as_masked_squares_of_its_size(name: str, dtype: str) -> None:
    """In bf16, windows of 128 keys took 0.3 to 0.4 of their time in public tables, in fp8 0.87 to 0.9 of it."""
    heads = {"heads": 64.0, "kv_heads": 8.0, "head_dim": 64.0, "kv_len": 128.0, "dtype": dtype}
    window, squares = times_of(
        name,
        {**heads, "batch": 2.0, "q_len": 4096.0, "causal": 0.0},
        {**heads, "batch": 64.0, "q_len": 128.0, "causal": 1.0},
    ).to_dict("records")
    assert window["time_s"] == pytest.approx(squares["time_s"])
    assert window["high_s"] / window["low_s"] > 1.7


@pytest.mark.parametrize("name", ["b300-sxm", "tpu-v5p", "mi300x"])
@pytest.mark.parametrize("queries", [1.0, 4096.0])
def test_narrow_heads_take_no_longer_than_wider_ones(name: str, queries: float) -> None:
    """By facts a query over a cache with heads of 40 took 1.4 times as long as with heads of 64."""
    widths = (16.0, 40.0, 64.0, 80.0, 128.0)
    time_s = times_of(name, *({"q_len": queries, "head_dim": wide} for wide in widths))["time_s"].to_numpy()
    assert (time_s[1:] >= 0.85 * time_s[:-1]).all()


def test_heads_of_a_width_that_no_row_has_get_a_wider_interval() -> None:
    """All rows of the A100 have heads of 128: with heads of 64 the interval was 4 % wide."""
    found = times_of("a100-sxm", *({"head_dim": wide, "causal": 1.0} for wide in (64.0, 120.0, 128.0, 256.0)))
    widths = np.log(found["high_s"] / found["low_s"]).to_numpy()
    assert widths[[0, 3]].min() > 0.6 > 0.2 > widths[1] > widths[2]

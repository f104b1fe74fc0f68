"""Recurrent layers and attention: one row per pass, and parts with the same work."""

from __future__ import annotations

from typing import Any

import pytest
from traced_work import flop, numbers, row_flop

from fomkit.core.model import ModelProfile, Workload
from fomkit.frontends.profile import profile_workload

BATCH, STEPS, WIDTH, HIDDEN = 6, 7, 5, 8


def assert_parts_hold_the_work(profile: ModelProfile, *kinds: str) -> None:
    rows, parts = numbers(profile), numbers(profile, "parts")
    whole = rows[rows.kind.isin(kinds)]
    assert set(parts["of"].astype(int)) == set(whole.index)
    for place, row in whole.iterrows():
        inside = parts[parts["of"] == place]
        assert flop(inside, "forward", "backward", kind="gemm") == row_flop(row), (row["op"], row["pass_name"])
        assert set(inside["pass_name"]) == {row["pass_name"]}


def sequences(torch: Any, batch_first: bool = True, trained_input: bool = True) -> Any:
    def inputs(batch: int) -> Any:
        shape = (batch, STEPS, WIDTH) if batch_first else (STEPS, batch, WIDTH)
        return torch.randn(*shape, requires_grad=trained_input)

    return inputs


@pytest.mark.parametrize(("layer", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)], ids=["lstm", "gru", "vanilla"])
@pytest.mark.parametrize(("layers", "directions"), [(1, 1), (2, 1), (3, 2)])
def test_a_recurrent_layer_is_one_row_a_pass(
    torch: Any, layer: str, gates: int, layers: int, directions: int
) -> None:
    model = getattr(torch.nn, layer)(WIDTH, HIDDEN, layers, batch_first=True, bidirectional=directions == 2)
    profile = profile_workload(Workload(model, sequences(torch), batch_size=BATCH))
    rows = numbers(profile).query("kind == 'rnn'")
    assert rows["pass_name"].tolist() == ["forward", "backward_input", "backward_weight"]
    assert rows["count"].tolist() == [1, 1, 1]
    first = 2 * BATCH * STEPS * gates * HIDDEN * (WIDTH + HIDDEN) * directions
    above = 2 * BATCH * STEPS * gates * HIDDEN * (directions * HIDDEN + HIDDEN) * directions
    assert [row_flop(row) for _, row in rows.iterrows()] == [first + (layers - 1) * above] * 3
    assert profile.ops["batch"].iloc[0] == "batch"
    assert_parts_hold_the_work(profile, "rnn")


def test_time_first_unbatched_and_given_states(torch: Any) -> None:
    model = torch.nn.LSTM(WIDTH, HIDDEN)

    def dimensions(inputs: Any, **more: Any) -> list[float]:
        rows = numbers(profile_workload(Workload(model, inputs, **more)))
        return rows.loc[0, ["batch", "steps", "input_size", "hidden_size", "layers", "directions"]].tolist()

    assert dimensions(sequences(torch, batch_first=False), batch_size=BATCH) == [BATCH, STEPS, WIDTH, HIDDEN, 1, 1]
    assert dimensions(torch.randn(STEPS, WIDTH)) == [1, STEPS, WIDTH, HIDDEN, 1, 1]
    states = (torch.zeros(1, BATCH, HIDDEN), torch.zeros(1, BATCH, HIDDEN))
    assert dimensions((torch.randn(STEPS, BATCH, WIDTH), states), batch_size=BATCH)[:2] == [BATCH, STEPS]


def test_an_lstm_on_data_has_no_input_gradient_in_its_first_layer(torch: Any) -> None:
    model = torch.nn.LSTM(WIDTH, HIDDEN, 2, batch_first=True)
    profile = profile_workload(Workload(model, sequences(torch, trained_input=False), batch_size=BATCH))
    rows = numbers(profile).query("kind == 'rnn'").set_index("pass_name")
    assert rows["input_size"].to_dict() == {"forward": WIDTH, "backward_input": 0, "backward_weight": WIDTH}
    never_run = 2 * BATCH * STEPS * 4 * HIDDEN * WIDTH
    work = {name: row_flop(row) for name, row in rows.assign(pass_name=rows.index).iterrows()}
    assert work["backward_input"] == work["forward"] - never_run
    assert_parts_hold_the_work(profile, "rnn")


def test_a_frozen_lstm_passes_gradients_and_learns_nothing(torch: Any) -> None:
    model = torch.nn.Sequential(torch.nn.Embedding(50, WIDTH), torch.nn.LSTM(WIDTH, HIDDEN, batch_first=True))
    model[1].requires_grad_(False)
    profile = profile_workload(Workload(model, torch.zeros(BATCH, STEPS, dtype=torch.long)))
    rows = numbers(profile).query("kind == 'rnn'")
    assert rows["pass_name"].tolist() == ["forward", "backward_input"]


def test_inference_has_the_forward_row_only(torch: Any) -> None:
    model = torch.nn.GRU(WIDTH, HIDDEN, dropout=0.5, num_layers=2)
    profile = profile_workload(Workload(model, sequences(torch), batch_size=BATCH), mode="infer")
    assert set(profile.ops["pass_name"]) == set(profile.parts["pass_name"]) == {"forward"}
    assert_parts_hold_the_work(profile, "rnn")


def test_one_layer_run_twice_is_one_row_with_the_parts_of_one_run(torch: Any) -> None:
    class Twice(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.LSTM(WIDTH, WIDTH, batch_first=True)

        def forward(self, x: Any) -> Any:
            return self.layer(self.layer(x)[0])[0]

    profile = profile_workload(Workload(Twice(), sequences(torch), batch_size=BATCH))
    assert numbers(profile).query("kind == 'rnn'")["count"].tolist() == [2, 2, 2]
    assert_parts_hold_the_work(profile, "rnn")


def test_what_the_columns_cannot_say_stays_single_ops(torch: Any) -> None:
    model = torch.nn.LSTM(WIDTH, HIDDEN, proj_size=3, batch_first=True)
    profile = profile_workload(Workload(model, sequences(torch), batch_size=BATCH))
    assert "rnn" not in set(profile.ops["kind"])
    # Gates from the input and from the projected state, and the projection itself, at every step.
    by_hand = 2 * BATCH * STEPS * (4 * HIDDEN * (WIDTH + 3) + 3 * HIDDEN)
    assert flop(numbers(profile), "forward") == by_hand


# --- attention -------------------------------------------------------------------------------------------------

HEADS, LENGTH, HEAD = 4, 10, 8


def attend(torch: Any, **more: Any) -> Any:
    class Attention(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(1))

        def forward(self, query: Any, key: Any, value: Any) -> Any:
            function = torch.nn.functional.scaled_dot_product_attention
            return function(query * self.scale, key * self.scale, value * self.scale, **more)

    return Attention()


@pytest.mark.parametrize("causal", [False, True])
def test_attention_is_one_row_a_pass(torch: Any, causal: bool) -> None:
    def inputs(batch: int) -> Any:
        query = torch.randn(batch, HEADS, LENGTH, HEAD)
        return query, torch.randn(batch, HEADS, 2 * LENGTH, HEAD), torch.randn(batch, HEADS, 2 * LENGTH, HEAD)

    profile = profile_workload(Workload(attend(torch, is_causal=causal, dropout_p=0.1), inputs, batch_size=BATCH))
    rows = numbers(profile).query("kind == 'attention'")
    names = ["batch", "heads", "kv_heads", "q_len", "kv_len", "head_dim", "causal"]
    assert rows[names].to_numpy().tolist() == [[BATCH, HEADS, HEADS, LENGTH, 2 * LENGTH, HEAD, causal]] * 2
    assert rows["pass_name"].tolist() == ["forward", "backward"]
    once = 4 * BATCH * HEADS * LENGTH * 2 * LENGTH * HEAD
    assert [row_flop(row) for _, row in rows.iterrows()] == [once, 2 * once]
    assert_parts_hold_the_work(profile, "attention")


def test_grouped_heads(torch: Any) -> None:
    keys = torch.randn(BATCH, 2, LENGTH, HEAD)
    inputs = (torch.randn(BATCH, HEADS, LENGTH, HEAD), keys, keys)
    profile = profile_workload(Workload(attend(torch, enable_gqa=True), inputs))
    rows = numbers(profile).query("kind == 'attention'")
    assert rows[["heads", "kv_heads"]].to_numpy().tolist() == [[HEADS, 2]] * 2
    assert_parts_hold_the_work(profile, "attention")


@pytest.mark.parametrize("mode", ["train", "infer"])
def test_attention_inside_pytorchs_own_layers(torch: Any, mode: Any) -> None:
    width, forward_width, layers = HEADS * HEAD, 64, 2
    layer = torch.nn.TransformerEncoderLayer(width, HEADS, forward_width, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
    # Without gradients PyTorch would run a fused layer that no table prices.
    profile = profile_workload(
        Workload(model, lambda batch: torch.randn(batch, LENGTH, width), batch_size=BATCH), mode=mode
    )
    rows = numbers(profile)
    tokens = BATCH * LENGTH
    products = layers * 2 * tokens * (3 * width * width + width * width + 2 * width * forward_width)
    attention = layers * 4 * BATCH * HEADS * LENGTH * LENGTH * HEAD
    assert flop(rows, "forward", kind="gemm") == products
    assert flop(rows, "forward", kind="attention") == attention
    modules = set(rows[rows.kind == "attention"]["module"])
    assert modules == {f"layers.{place}.self_attn" for place in range(layers)}
    assert not profile.unsupported
    if mode == "train":
        first = 2 * tokens * 3 * width * width
        assert flop(rows, "backward_weight", kind="gemm") == products
        assert flop(rows, "backward_input", kind="gemm") == products - first
        assert flop(rows, "backward", kind="attention") == 2 * attention
        # The first layer's attention wants the gradients of query, key and value, which come from weights.
        assert_parts_hold_the_work(profile, "attention")


def test_attention_that_returns_its_weights_stays_single_products(torch: Any) -> None:
    class Weights(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.MultiheadAttention(HEADS * HEAD, HEADS, batch_first=True)

        def forward(self, x: Any) -> Any:
            return self.layer(x, x, x, need_weights=True)[0]

    profile = profile_workload(Workload(Weights(), torch.randn(BATCH, LENGTH, HEADS * HEAD)))
    rows = numbers(profile)
    assert "attention" not in set(rows["kind"])
    width, tokens = HEADS * HEAD, BATCH * LENGTH
    square = 4 * BATCH * LENGTH * LENGTH * width
    assert flop(rows, "forward", kind="gemm") == 2 * tokens * 4 * width * width + square

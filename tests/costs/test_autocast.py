"""The casts of a narrow precision compared with those of PyTorch's autocast, tensor by tensor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

import fomkit
from fomkit.core.model import Workload
from fomkit.ops.precision import FORMATS, add_casts, restate_ops
from fomkit.ops.resize import resize_ops

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

Casts = Counter[tuple[str, float, float]]
"""How many tensors are cast: by pass, numbers, and bytes written over bytes read."""


class Perceptron(nn.Module):
    """A tower that runs twice, and layers of which one has no bias."""

    def __init__(self) -> None:
        super().__init__()
        self.tower = nn.Sequential(nn.Linear(12, 20), nn.ReLU(), nn.Linear(20, 8))
        self.head = nn.Linear(16, 1, bias=False)

    def forward(self, pair):
        return self.head(torch.cat([self.tower(pair[:, 0]), self.tower(pair[:, 1])], 1))


class Residual(nn.Module):
    """Convolutions with batch norms, a shortcut, groups and biases."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.wide, self.deep = nn.Conv2d(8, 8, 3, padding=1, groups=2), nn.Conv2d(8, 8, 1)
        self.head = nn.Linear(8, 5)

    def forward(self, image):
        first = self.norm(self.stem(image)).relu()
        return self.head((first + self.deep(self.wide(first).relu())).mean((2, 3)))


class Attending(nn.Module):
    """Words, one block with a norm before and one after, separate queries, keys and values, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.norm, self.last = nn.Embedding(30, 16), nn.LayerNorm(16), nn.LayerNorm(16)
        self.query, self.key, self.value = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16)
        self.out, self.head = nn.Linear(16, 16), nn.Linear(16, 30, bias=False)

    def forward(self, words):
        read = self.norm(self.words(words))
        parts = [one(read).unflatten(2, (2, 8)).transpose(1, 2) for one in (self.query, self.key, self.value)]
        mixed = functional.scaled_dot_product_attention(*parts).transpose(1, 2).flatten(2)
        return self.head(self.last(self.out(mixed)))


def squares(output, _):
    return functional.mse_loss(output, torch.zeros(output.shape))


def next_words(output, inputs):
    return functional.cross_entropy(output.flatten(0, 1), inputs.flatten())


SOURCES: dict[str, tuple[Callable[[], Any], Callable[[int], Any], Callable[[Any, Any], Any]]] = {
    "perceptron": (Perceptron, lambda batch: torch.randn(batch, 2, 12), squares),
    "residual": (Residual, lambda batch: torch.randn(batch, 3, 10, 10), squares),
    "attending": (Attending, lambda batch: torch.randint(30, (batch, 7)), next_words),
}
BATCH = 6


class Recorder(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.casts: Casts = Counter()
        self.of_pass = "forward"

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        if func is torch.ops.aten._to_copy.default and args[0].dtype != made.dtype:
            self.casts[self.of_pass, made.numel(), made.itemsize / args[0].itemsize] += 1
        return made


def run(name: str) -> Casts:
    """Run a step under the autocast of a CPU, and record what is cast."""
    make, inputs, loss = SOURCES[name]
    model, recorder = make(), Recorder()
    with recorder:
        values = inputs(BATCH)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            lost = loss(model(values), values)
        recorder.of_pass = "backward"
        lost.backward()
    return recorder.casts


def profile(name: str) -> fomkit.ModelProfile:
    make, inputs, loss = SOURCES[name]
    return fomkit.profile(Workload(make(), inputs, loss, torch.optim.Adam, BATCH))


def counted(ops: pd.DataFrame) -> Casts:
    found: Casts = Counter()
    for row in ops[ops["op"].str.endswith((" cast", "_to_copy"))].to_dict("records"):
        found[row["pass_name"], row["numel"], row["write_byte"] / row["read_byte"]] += row["count"]
    return found


@pytest.mark.parametrize("name", ["perceptron", "residual"])
def test_each_tensor_is_cast_that_autocast_casts(name) -> None:
    model = profile(name)
    assert counted(restate_ops(resize_ops(model.ops, model.sizes, name), FORMATS["bf16"])) == run(name)


def test_norms_and_losses_read_fp32_as_on_a_gpu() -> None:
    """A CPU's autocast leaves norms in bf16, but a profile traced under autocast follows a GPU's rules."""
    make, inputs, loss = SOURCES["attending"]

    class Cast(make):  # type: ignore[misc, valid-type]
        def forward(self, words):
            with torch.autocast("cuda", dtype=torch.bfloat16):
                return super().forward(words)

    def of_cast(output, words):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return loss(output, words)

    traced = fomkit.profile(Workload(Cast(), inputs, of_cast, torch.optim.Adam, BATCH))
    stated = profile("attending")
    restated = restate_ops(resize_ops(stated.ops, stated.sizes, "stated"), FORMATS["bf16"])
    assert counted(restated) == counted(resize_ops(traced.ops, traced.sizes, "traced"))
    norms = restated[restated["kind"] == "norm"]
    assert (norms["dtype"] == "fp32").all()
    on_a_cpu = run("attending")
    weights = {key: many for key, many in on_a_cpu.items() if key[:2] in {("forward", 256), ("forward", 480)}}
    assert weights == {key: counted(restated)[key] for key in weights}
    assert sum(weights.values()) == 5


def test_casts_of_any_batch_are_those_at_that_batch() -> None:
    for name in SOURCES:
        model = profile(name)
        sized = add_casts(model.ops, resize_ops(model.ops, model.sizes, name), FORMATS["mixed"])
        for batch in (BATCH, 50):
            at = {**model.sizes, "batch": batch}
            numbers = resize_ops(model.ops, at, name)
            expected = counted(add_casts(numbers, numbers, FORMATS["mixed"]))
            assert counted(resize_ops(sized, at, name)) == expected
            assert len(expected) > 3


def test_a_step_without_an_update_or_of_short_weights_casts_nothing() -> None:
    model = profile("perceptron")
    ops = resize_ops(model.ops, model.sizes, "perceptron")
    short = ops.assign(dtype=ops["dtype"].mask(ops["kind"] == "gemm", "bf16"))
    for rows in (ops[ops["kind"] != "optimizer"], short):
        assert not counted(restate_ops(rows, FORMATS["bf16"]))
    assert set(restate_ops(ops, FORMATS["fp8"])["op"]) >= {"weight cast", "gradient cast"}
    assert "activation cast" not in set(restate_ops(ops, FORMATS["fp8"])["op"])


def test_weights_of_experts_and_of_recurrent_layers_are_cast_matrix_by_matrix() -> None:
    shared = {"dtype": "fp32", "engine": "vector", "pass_name": "forward", "count": 1.0, "module": ""}
    layer = {"cell": "lstm", "batch": 2.0, "steps": 3.0, "input_size": 5.0, "hidden_size": 7.0, "layers": 2.0,
             "directions": 2.0}  # fmt: skip
    experts = {"b": 4.0, "m": 10.0, "n": 3.0, "k": 2.0, "experts": 4.0, "top_k": 1.0}
    updated = {"op": "SGD.step", "kind": "optimizer", "pass_name": "update", "rule": "sgd", "numel": 10_000.0}
    moved = {"read_byte": float("nan"), "write_byte": float("nan")}
    ops = pd.DataFrame(
        [
            {**shared, "op": "lstm", "kind": "rnn", **layer},
            {**shared, "op": "experts", "kind": "experts", **experts},
            {**shared, **updated, **moved},
        ]
    )
    # Two directions: of 4 gates from 5 numbers, above from 14, two layers from 7 themselves, and eight biases.
    forward = {("forward", numel, 0.5): many for numel, many in ((140, 2), (392, 2), (196, 4), (28, 8), (24, 3))}
    found = counted(restate_ops(ops, FORMATS["bf16"]))
    assert {key: many for key, many in found.items() if key[0] == "forward"} == forward


ON = {"dtype": "fp32", "engine": "vector", "module": "", "count": 1.0, "read_byte": float("nan"),
      "write_byte": float("nan")}  # fmt: skip
UPDATE = {**ON, "op": "SGD.step", "kind": "optimizer", "pass_name": "update", "rule": "sgd"}
PRODUCT = {**ON, "op": "mm", "kind": "gemm", "b": 1.0, "m": 16.0}
ALL = ("forward", "backward_input", "backward_weight")


def test_a_weight_that_is_read_again_is_cast_once_and_one_of_many_blocks_with_each() -> None:
    blocks = {**PRODUCT, "module": "blocks", "n": 8.0, "k": 8.0, "count": 12.0}
    beside = {**blocks, "n": 4.0, "k": 16.0}  # as large, and another weight of the same modules
    cell = {**PRODUCT, "module": "cell", "n": 4.0, "k": 6.0, "count": 50.0}
    products = [{**one, "pass_name": pass_name} for one in (blocks, beside, cell) for pass_name in ALL]
    lower = {**blocks, "m": 2.0, "count": 3.0, "pass_name": "forward"}  # three blocks read fewer rows
    update = {**UPDATE, "numel": 64 * 15 + 64 * 12 + 24 + 500.0}
    casts = restate_ops(pd.DataFrame([*products, lower, update]), FORMATS["fp8"]).query("op == 'weight cast'")
    assert sorted(zip(casts["module"], casts["numel"], casts["count"], strict=True)) == [
        ("blocks", 64.0, 12.0), ("blocks", 64.0, 15.0), ("cell", 24.0, 1.0),
    ]  # fmt: skip


def test_a_recurrent_layer_counts_as_often_as_it_runs_and_a_frozen_one_casts_nothing_back() -> None:
    sizes = {"batch": 2.0, "steps": 3.0, "input_size": 5.0, "hidden_size": 7.0, "layers": 1.0, "directions": 1.0}
    layer = {**ON, **sizes, "kind": "rnn", "op": "gru", "cell": "gru", "count": 2.0}
    product = {**PRODUCT, "m": 2.0, "n": 3.0, "k": 7.0}
    step = [{**layer, "pass_name": pass_name} for pass_name in ALL[:2]]
    step += [{**product, "pass_name": pass_name} for pass_name in ALL[::2]]
    found = counted(restate_ops(pd.DataFrame([*step, {**UPDATE, "numel": 600.0}]), FORMATS["bf16"]))
    assert found[("forward", 105, 0.5)] == found[("forward", 147, 0.5)] == 2
    assert found[("forward", 21, 0.5)] == 2 * 2 + 1  # biases of both runs, and the product's weight
    assert {key[1] for key in found if key[0] == "backward"} == {21}


def test_p1b3_casts_its_first_layer_once_and_not_ten_times_the_mean() -> None:
    step = fomkit.estimate("p1b3", "h100-sxm", precision="bf16").timed.table
    casts = step[step["op"] == "weight cast"]
    assert casts["numel"].max() == 1000 * 29_532
    assert casts["count"].sum() == 10
    assert (casts["numel"] * casts["count"]).sum() == 30_088_701

"""One model has the same products, convolutions and flop by PyTorch, Keras on both backends, and ONNX."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from extras import needs
from keras_twins import PAIRS
from onnx_twins import Twin
from traced_work import convolutions, flop, numbers, products, row_flop

from fomkit.core.model import ModelProfile
from fomkit.frontends.drafting import Request
from fomkit.frontends.onnx.profile import draft_profile
from fomkit.frontends.profile import profile_workload

WHY = "the doors side by side need fomkit's extras [torch,tensorflow,onnx]"
pytestmark = needs("torch", "tensorflow", "keras", "onnx", reason=WHY)

BATCH = 24
WRITTEN_OUT = {"onnx": ("attention",)}
"""ONNX has no word for attention before version 23, and PyTorch's exporter writes its products out."""
PADDED_BEFORE = {("keras_torch", "decoder")}
"""Keras on PyTorch pads its convolution of an even size by an op of its own: the same work on a larger image."""
BIASES_TWICE = {("onnx", "tagger"): 4 * 8 + 4 * 5}
"""Keras's cells have one bias; PyTorch's file holds both, and cannot say that the second is not trained."""
FIRST_STATE = ("keras_torch", "rnn", "backward_input")
"""Parts of a layer that Keras writes step by step: the first state is zeros, which need no gradient."""

Profiles = dict[str, ModelProfile]


@pytest.fixture(scope="module")
def keras_on_torch(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[ModelProfile, bool]]:
    """Return profiles with Keras on PyTorch, made in one child, and whether the weights stayed unchanged."""
    result = tmp_path_factory.mktemp("pairs") / "profiles.pickle"
    script = Path(__file__).with_name("keras_on_torch.py")
    package = Path(__file__).resolve().parents[2]
    path = os.pathsep.join([str(package), *filter(None, [os.environ.get("PYTHONPATH")])])
    subprocess.run(
        [sys.executable, str(script), str(result), str(BATCH)], check=True,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    found: dict[str, Any] = pickle.loads(result.read_bytes())
    return found


@pytest.fixture(scope="module", params=PAIRS, ids=lambda pair: pair.__name__)
def doors(
    request: pytest.FixtureRequest, keras: Any, torch: Any, keras_on_torch: Any, tmp_path_factory: Any
) -> tuple[str, Profiles]:
    """Return the name of a model, and its profiles by door."""
    name = request.param.__name__
    in_keras, in_torch = request.param(keras, torch, BATCH)
    path = tmp_path_factory.mktemp(name) / "model.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        Twin(in_torch.model, in_torch.inputs).export(torch, path, 2)
    trace_request = Request(name, str(path), "train", {"batch": BATCH})
    return name, {
        "torch": profile_workload(in_torch),
        "keras": profile_workload(in_keras),
        "keras_torch": keras_on_torch[name][0],
        "onnx": draft_profile(path, trace_request, None, {}).profile(),
    }


def test_the_same_products_and_convolutions(doors: tuple[str, Profiles]) -> None:
    name, profiles = doors
    for door, profile in profiles.items():
        plain, count = WRITTEN_OUT.get(door, ()), products
        if (door, name) in PADDED_BEFORE:
            count = convolutions
        expected = products(profiles["torch"], written_out=plain) if plain else count(profiles["torch"])
        assert count(profile) == expected, door


def test_the_same_flop_of_each_pass(doors: tuple[str, Profiles]) -> None:
    _, profiles = doors
    wanted = {name: flop(numbers(profiles["torch"]), name) for name in ("forward", "backward")}
    for door, profile in profiles.items():
        assert {name: flop(numbers(profile), name) for name in wanted} == wanted, door
    assert min(wanted.values()) > 0


def test_the_same_parameters_and_nothing_unsupported(doors: tuple[str, Profiles]) -> None:
    name, profiles = doors
    for door, profile in profiles.items():
        more = BIASES_TWICE.get((door, name), 0)
        assert profile.parameters_trainable == profiles["torch"].parameters_trainable + more, door
        assert not profile.unsupported, door
        assert any("batch" in str(cell) for cell in profile.ops["numel"]), door


def test_the_parts_do_the_work_of_their_row(doors: tuple[str, Profiles]) -> None:
    for door, profile in doors[1].items():
        for place, row in numbers(profile).query("kind in ('rnn', 'attention')").iterrows():
            parts = numbers(profile, "parts").query(f"of == {place}")
            inside, whole = flop(parts, "forward", "backward", kind="gemm"), row_flop(row)
            is_short = (door, row["kind"], row["pass_name"]) == FIRST_STATE
            least = round(whole * (1 - 1 / row["steps"])) if is_short else whole
            assert least <= inside <= whole, (door, row["op"], row["pass_name"])


def test_keras_on_pytorch_leaves_the_weights_and_knows_its_layers(doors: Any, keras_on_torch: Any) -> None:
    profile, is_same = keras_on_torch[doors[0]]
    assert is_same, "what is traced changes no weight"
    assert profile.layers is not None
    assert profile.layers["parameters"].sum() == profile.parameters_trainable
    assert profile.traced_with["framework"] == "torch"

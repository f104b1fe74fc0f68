"""Keras on its PyTorch backend: model files and programs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from extras import needs
from traced_work import flop, numbers

from fomkit.core.errors import FomkitError
from fomkit.frontends.profile import profile_file, profile_script

pytestmark = needs("keras", reason="Keras's tests need Keras: pip install '.[tensorflow]'")
pytest.importorskip("torch", reason="Keras's second backend is PyTorch: pip install '.[torch]'")

P1B3 = """
import os
os.environ["KERAS_BACKEND"] = "torch"
import keras
import torch

class MadeByHand(keras.layers.Layer):
    def call(self, values):
        return torch.relu(values)

layers = [keras.Input((29532,))]
for width in (1000, 500, 100, 50):
    layers += [keras.layers.Dense(width), MadeByHand(), keras.layers.Dropout(0.1)]
model = keras.Sequential([*layers, keras.layers.Dense(1)])
model.compile(optimizer=keras.optimizers.SGD(0.001), loss="mse", metrics=["mae"])
batch_size, train_samples, epochs = 100, 800_121, 20
"""


def test_the_lectures_products_of_p1b3_come_out(file_of: Callable[[str], Path]) -> None:
    profile = profile_file(file_of(P1B3), name="p1b3")
    rows = numbers(profile)
    products = rows[rows["kind"] == "gemm"]
    assert products["count"].sum() == 14
    assert sum(row["m"] * row["n"] * 4 * row["count"] for _, row in products.iterrows()) == 121_668_600
    assert flop(rows, "forward", "backward", kind="gemm") == 12_145_830_000
    assert profile.optimizer == {"rule": "sgd", "impl": "foreach"}
    assert (profile.parameters_total, profile.batch, profile.data.train_samples) == (30_088_701, 100, 800_121)
    assert not profile.unsupported


def test_a_fit_program_on_pytorch(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    profile = profile_script(root / "tests" / "data" / "scripts" / "flowers" / "train.py")
    data = profile.data
    facts = profile.batch, data.train_samples, data.validation_samples, data.last_batch, profile.run.epochs
    assert facts == (16, 250, 70, "keep", 12)
    assert profile.parameters_total == 1_229
    assert profile.traced_with["framework"] == "torch"
    assert {row["op"] for _, row in profile.ops.query("kind == 'conv'").iterrows()} >= {"aten::convolution"}
    assert not profile.unsupported
    assert not list(tmp_path.iterdir())


def test_a_backend_that_is_not_read_is_told(
    file_of: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from fomkit.frontends.model_file import framework_of_file

    path = file_of("import keras\n")
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    with pytest.raises(FomkitError, match=r"its jax backend here, whose steps cannot be profiled\. Let it run on"):
        profile_file(path)
    chosen = file_of('import os\nos.environ["KERAS_BACKEND"] = "torch"\nimport keras\n')
    assert framework_of_file(chosen) == "keras_torch"


def test_the_backend_of_kerass_own_settings_is_taken(
    file_of: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fomkit.frontends.model_file import framework_of_file

    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    path = file_of("import keras\n")
    assert framework_of_file(path) == "tensorflow"
    (tmp_path / "keras.json").write_text('{"backend": "torch"}', encoding="utf-8")
    assert framework_of_file(path) == "keras_torch"
    (tmp_path / "keras.json").write_text("[", encoding="utf-8")
    assert framework_of_file(path) == "tensorflow"


def test_a_pytorch_program_may_import_tensorflow_too(file_of: Callable[[str], Path]) -> None:
    from fomkit.frontends.model_file import framework_of_file

    assert framework_of_file(file_of("import torch\nimport tensorflow as tf\n")) == "torch"


@pytest.mark.usefixtures("started_anew")
def test_a_loop_of_pytorchs_around_a_model_of_kerass_is_profiled(file_of: Callable[..., Path]) -> None:
    path = file_of("""
import os
os.environ["KERAS_BACKEND"] = "torch"
import keras, torch
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(3)])
optimizer = keras.optimizers.SGD(0.1)
for step in range(9):
    (model(torch.ones(12, 8)) ** 2).mean().backward()
    weights = model.trainable_weights
    with torch.no_grad():
        optimizer.apply([one.value.grad for one in weights], weights)
    model.zero_grad()
""")
    profile = profile_script(path)
    assert (profile.batch, profile.parameters_total) == (12, 8 * 3 + 3)
    assert profile.ops["pass_name"].eq("update").any()

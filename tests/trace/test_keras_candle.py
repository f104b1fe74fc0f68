"""CANDLE's networks in Keras, as the benchmarks are written, beside the shipped tables of their PyTorch twins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_keras_twins import products
from traced_work import flop, numbers

from fomkit.profiles import load_model
from fomkit.trace import profile_workload
from fomkit.workload import Workload

CANDLE = Path(__file__).resolve().parents[2] / "model_profiles" / "candle"


def expression_classifier(keras: Any, classes: int) -> Any:
    layers = keras.layers
    return keras.Sequential([
        keras.Input((60_483, 1)), layers.Conv1D(128, 20, activation="relu"), layers.MaxPooling1D(1),
        layers.Conv1D(128, 10, activation="relu"), layers.MaxPooling1D(10), layers.Flatten(),
        layers.Dense(200, activation="relu"), layers.Dropout(0.1), layers.Dense(20, activation="relu"),
        layers.Dropout(0.1), layers.Dense(classes, activation="softmax"),
    ])  # fmt: skip


@pytest.mark.parametrize(("name", "classes", "parameters"), [("nt3", 2, 154_922_918), ("tc1", 36, 154_923_632)])
def test_the_table_is_that_of_the_shipped_twin(keras: Any, name: str, classes: int, parameters: int) -> None:
    from fomkit.trace.keras_weights import weights_without_data

    with weights_without_data():
        model = expression_classifier(keras, classes)
        model.compile(optimizer=keras.optimizers.SGD(0.001), loss="categorical_crossentropy")
        profile = profile_workload(Workload(model, None, batch_size=20))
    twin = load_model(CANDLE / f"{name}.yaml")
    assert profile.parameters_total == twin.parameters_total == parameters
    assert not profile.unsupported
    assert products(profile) == products(twin)
    for pass_name in ("forward", "backward"):
        assert flop(numbers(profile), pass_name) == flop(numbers(twin), pass_name)

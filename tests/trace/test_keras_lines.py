"""Keras: the line of the user's code from the graph, or the line that made the layer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fomkit.frontends.profile import profile_file

MODEL = """\
import keras
from keras import layers

class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.first = layers.Dense(6, activation="relu", name="first")
        self.inner = keras.Sequential([
            layers.Dense(5),
        ], name="inner")
        inputs = keras.Input((5,))
        self.graph = keras.Model(
            inputs,
            layers.Dense(4)(inputs),
            name="graph",
        )

    def call(self, x):
        x = self.first(x)
        x = self.inner(x)
        return self.graph(x) * 2.0

model = Net()
model.compile(optimizer="sgd", loss="mse")
batch_size = 8
inputs = lambda batch: (keras.ops.zeros((batch, 7)), keras.ops.zeros((batch, 4)))
"""
FUNCTIONAL = """\
import keras
from keras import layers

inputs = keras.Input((20, 3))
x = layers.LSTM(4)(inputs)
x = layers.Dense(2, activation="relu")(x)
model = keras.Model(inputs, x)
model.compile(optimizer="sgd", loss="mse")
batch_size = 8
"""


@pytest.mark.usefixtures("keras")
def test_a_models_own_call_has_lines_and_so_have_its_gradients(file_of: Callable[[str], Path]) -> None:
    ops = profile_file(file_of(MODEL)).ops
    products = ops[ops["kind"] == "gemm"]
    told = products.groupby(["module", "pass_name"])["code_line"].first().to_dict()
    assert told["first", "forward"] == told["first", "backward_weight"] == "model.py:19 call"
    assert ("first", "backward_input") not in told
    assert {line for (module, _), line in told.items() if module.startswith("inner")} == {"model.py:20 call"}
    assert {line for (module, _), line in told.items() if module.startswith("graph")} == {"model.py:21 call"}
    assert ops.loc[ops["op"] == "ReluGrad", "code_line"].tolist() == ["model.py:19 call"]
    assert set(ops.loc[ops["pass_name"] == "update", "code_line"]) == {""}
    assert set(ops.loc[(ops["module"] == "loss") & (ops["pass_name"] == "forward"), "code_line"]) == {""}


@pytest.mark.usefixtures("keras")
def test_a_functional_models_layers_have_the_lines_that_made_them(file_of: Callable[[str], Path]) -> None:
    ops = profile_file(file_of(FUNCTIONAL)).ops
    assert set(ops.loc[ops["kind"] == "rnn", "code_line"]) == {"model.py:5 <module>"}
    assert set(ops.loc[ops["module"] == "dense", "code_line"]) == {"model.py:6 <module>"}

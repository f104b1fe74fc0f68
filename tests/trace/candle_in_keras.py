"""CANDLE's networks in Keras, as the benchmarks are written; sizes are those of model_profiles/src/candle."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Network = Callable[[Any], Any]


def _dense(keras: Any, *widths: int, activation: str = "relu", dropout: float = 0.0, **options: Any) -> list[Any]:
    layers = []
    for width in widths:
        layers.append(keras.layers.Dense(width, activation=activation, **options))
        layers += [keras.layers.Dropout(dropout)] if dropout else []
    return layers


def _compiled(model: Any, optimizer: str, loss: Any) -> Any:
    model.compile(optimizer=optimizer, loss=loss)
    return model


def expression_classifier(keras: Any, classes: int) -> Any:
    layers = keras.layers
    model = keras.Sequential([
        keras.Input((60_483, 1)), layers.Conv1D(128, 20, activation="relu"), layers.MaxPooling1D(1),
        layers.Conv1D(128, 10, activation="relu"), layers.MaxPooling1D(10), layers.Flatten(),
        *_dense(keras, 200, 20, dropout=0.1), layers.Dense(classes, activation="softmax"),
    ])  # fmt: skip
    return _compiled(model, "sgd", "categorical_crossentropy")


def p1b1(keras: Any) -> Any:
    last = keras.layers.Dense(60_483, activation="sigmoid")
    inner = _dense(keras, 2000, 600, 2, 600, 2000)
    return _compiled(keras.Sequential([keras.Input((60_483,)), *inner, last]), "adam", "mse")


def p1b2(keras: Any) -> Any:
    squares = keras.regularizers.L2(1e-5)
    penalties = {"kernel_regularizer": squares, "activity_regularizer": squares}
    hidden = _dense(keras, 1024, 512, 256, activation="sigmoid", **penalties)
    model = keras.Sequential([keras.Input((28_204,)), *hidden, keras.layers.Dense(10, activation="sigmoid")])
    return _compiled(model, "rmsprop", "categorical_crossentropy")


def p1b3(keras: Any) -> Any:
    hidden = _dense(keras, 1000, 500, 100, 50, dropout=0.1)
    return _compiled(keras.Sequential([keras.Input((29_532,)), *hidden, keras.layers.Dense(1)]), "sgd", "mse")


def _drug_pair(keras: Any, widths: Mapping[str, int], features: tuple[str, ...], beside: int = 0) -> Any:
    towers = {
        name: keras.Sequential([keras.Input((width,)), *_dense(keras, 1000, 1000, 1000)], name=name)
        for name, width in widths.items()
    }
    inputs = [keras.Input((widths[name],)) for name in features]
    plain = [keras.Input((beside,))] if beside else []
    encoded = [towers[name](values) for name, values in zip(features, inputs, strict=True)]
    joint = keras.layers.Concatenate()([*encoded, *plain])
    for layer in _dense(keras, 1000, 1000, 1000):
        joint = layer(joint)
    return _compiled(keras.Model([*inputs, *plain], keras.layers.Dense(1)(joint)), "adam", "mse")


def combo(keras: Any) -> Any:
    return _drug_pair(keras, {"cell": 942, "drug": 3_820}, ("cell", "drug", "drug"))


def uno(keras: Any) -> Any:
    widths = {"cell": 949, "drug": 5_270, "bits": 2_048}
    return _drug_pair(keras, widths, ("cell", "drug", "bits", "drug", "bits"), beside=13)


def p2b1(keras: Any) -> Any:
    layers = keras.layers
    plain = {"use_bias": False, "kernel_regularizer": keras.regularizers.L2(0.01)}
    made = [keras.Input((1, 48_240, 1))]
    for filters, size in ((256, 20), (128, 12)):
        conv = layers.Conv2D(filters, size, strides=size, padding="same", activation="elu", **plain)
        made += [conv, layers.BatchNormalization(), layers.Dropout(0.5)]
    made.append(layers.Flatten())
    for width in (64, 32, 16, 8, 16, 32, 64, 128, 256):
        made += [layers.Dense(width, activation="elu", **plain), layers.BatchNormalization()]
        made += [layers.Dropout(0.5)] if width != 8 else []
    made.append(layers.Dense(48_240, activation="tanh", **plain))
    return _compiled(keras.Sequential(made), "adam", "mse")


def p3b1(keras: Any) -> Any:
    """The first of the three networks that are trained in turn."""
    hidden = _dense(keras, 2400, 2400, 1200, 1200)
    model = keras.Sequential([keras.Input((400,)), *hidden, keras.layers.Dense(13, activation="softmax")])
    return _compiled(model, "sgd", "categorical_crossentropy")


def p3b2(keras: Any) -> Any:
    layers = keras.layers
    recurrent = layers.LSTM(64, recurrent_activation="hard_sigmoid")
    model = keras.Sequential([keras.Input((20, 99)), recurrent, layers.Dense(99, activation="softmax")])
    return _compiled(model, "rmsprop", "categorical_crossentropy")


def p3b3(keras: Any) -> Any:
    layers = keras.layers
    words = keras.Input((1_500,), dtype="int32")
    values = layers.Embedding(4_654, 300, embeddings_regularizer=keras.regularizers.L2(0.001))(words)
    filters = [layers.Conv1D(100, size, padding="same", activation="relu") for size in (3, 4, 5)]
    joined = layers.Concatenate()([layers.GlobalMaxPooling1D()(one(values)) for one in filters])
    joined = layers.Dropout(0.5)(joined)
    answers = [layers.Dense(classes, activation="softmax")(joined) for classes in (15, 3, 3, 3)]
    return _compiled(keras.Model(words, answers), "adam", ["categorical_crossentropy"] * 4)


NETWORKS: Mapping[str, Network] = {
    "nt3": lambda keras: expression_classifier(keras, 2), "tc1": lambda keras: expression_classifier(keras, 36),
    "p1b1": p1b1, "p1b2": p1b2, "p1b3": p1b3, "combo": combo, "uno": uno, "p2b1": p2b1, "p3b1": p3b1,
    "p3b2": p3b2, "p3b3": p3b3,
}  # fmt: skip

"""Pairs of one model, in Keras and in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fomkit.core.model import Workload

Pair = Callable[[Any, Any, int], tuple[Workload, Workload]]


def _keras(keras: Any, layers: list[Any], loss: str, batch: int) -> Workload:
    model = keras.Sequential(layers)
    model.compile(optimizer=keras.optimizers.SGD(0.1), loss=loss)
    return Workload(model, None, batch_size=batch)


def _torch(torch: Any, layers: Any, shape: tuple[int, ...], batch: int, dtype: Any = None) -> Workload:
    model = torch.nn.Sequential(*layers) if isinstance(layers, list) else layers
    return Workload(
        model, lambda size: torch.zeros(size, *shape, dtype=dtype), loss=lambda output, _: output.square().mean(),
        batch_size=batch, optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    )  # fmt: skip


def perceptron(keras: Any, torch: Any, batch: int) -> tuple[Workload, Workload]:
    ours, theirs = keras.layers, torch.nn
    one = [keras.Input((23,)), ours.Dense(17, activation="relu"), ours.Dropout(0.1), ours.Dense(11), ours.Dense(3)]
    two = [theirs.Linear(23, 17), theirs.ReLU(), theirs.Dropout(0.1), theirs.Linear(17, 11), theirs.Linear(11, 3)]
    return _keras(keras, one, "mse", batch), _torch(torch, two, (23,), batch)


def image_classifier(keras: Any, torch: Any, batch: int) -> tuple[Workload, Workload]:
    ours, theirs = keras.layers, torch.nn
    one = [
        keras.Input((17, 19, 3)), ours.Conv2D(8, 3, padding="same"), ours.BatchNormalization(), ours.ReLU(),
        ours.MaxPooling2D(2), ours.DepthwiseConv2D(3), ours.Conv2D(12, (3, 1), strides=2, dilation_rate=1),
        ours.Conv2D(16, 1, groups=4), ours.GlobalAveragePooling2D(), ours.Dense(10),
    ]  # fmt: skip
    two = [
        theirs.Conv2d(3, 8, 3, padding=1), theirs.BatchNorm2d(8), theirs.ReLU(), theirs.MaxPool2d(2),
        theirs.Conv2d(8, 8, 3, groups=8), theirs.Conv2d(8, 12, (3, 1), stride=2),
        theirs.Conv2d(12, 16, 1, groups=4), theirs.AdaptiveAvgPool2d(1), theirs.Flatten(), theirs.Linear(16, 10),
    ]  # fmt: skip
    return _keras(keras, one, "mse", batch), _torch(torch, two, (3, 17, 19), batch)


def decoder(keras: Any, torch: Any, batch: int) -> tuple[Workload, Workload]:
    ours, theirs = keras.layers, torch.nn
    one = [
        keras.Input((5, 7, 4)), ours.Conv2DTranspose(6, 3, strides=2), ours.ReLU(),
        ours.Conv2DTranspose(2, 4, strides=2, padding="same"), ours.Conv2D(3, 5, strides=2, padding="same"),
    ]  # fmt: skip
    two = [
        theirs.ConvTranspose2d(4, 6, 3, stride=2), theirs.ReLU(),
        theirs.ConvTranspose2d(6, 2, 4, stride=2, padding=1), theirs.Conv2d(2, 3, 5, stride=2, padding=2),
    ]  # fmt: skip
    return _keras(keras, one, "mse", batch), _torch(torch, two, (4, 5, 7), batch)


def volumes(keras: Any, torch: Any, batch: int) -> tuple[Workload, Workload]:
    ours, theirs = keras.layers, torch.nn
    one = [keras.Input((9, 8, 7, 2)), ours.Conv3D(4, 3), ours.MaxPooling3D(2), ours.Flatten(), ours.Dense(2)]
    two = [theirs.Conv3d(2, 4, 3), theirs.MaxPool3d(2), theirs.Flatten(), theirs.Linear(4 * 3 * 3 * 2, 2)]
    return _keras(keras, one, "mse", batch), _torch(torch, two, (2, 9, 8, 7), batch)


def expressions(keras: Any, torch: Any, batch: int) -> tuple[Workload, Workload]:
    ours, theirs = keras.layers, torch.nn
    one = [
        keras.Input((400, 1)), ours.Conv1D(12, 20, activation="relu"), ours.MaxPooling1D(1), ours.Conv1D(12, 10),
        ours.MaxPooling1D(10), ours.Flatten(), ours.Dense(20), ours.Dense(2, activation="softmax"),
    ]  # fmt: skip
    two = [
        theirs.Conv1d(1, 12, 20), theirs.ReLU(), theirs.MaxPool1d(1), theirs.Conv1d(12, 12, 10),
        theirs.MaxPool1d(10), theirs.Flatten(), theirs.Linear(12 * 37, 20), theirs.Linear(20, 2),
        theirs.Softmax(1),
    ]  # fmt: skip
    return _keras(keras, one, "categorical_crossentropy", batch), _torch(torch, two, (1, 400), batch)


class _LastStep:
    """Select the part of a recurrent layer's output that its Keras twin returns."""

    def __new__(cls, torch: Any) -> Any:
        class LastStep(torch.nn.Module):
            def forward(self, outputs: Any) -> Any:
                return outputs[0][:, -1]

        return LastStep()


def tagger(keras: Any, torch: Any, batch: int) -> tuple[Workload, Workload]:
    ours, theirs = keras.layers, torch.nn
    one = [
        keras.Input((7,), dtype="int32"), ours.Embedding(50, 9), ours.LSTM(8, return_sequences=True), ours.LSTM(5),
        ours.Dense(3),
    ]  # fmt: skip

    class Tagger(theirs.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = theirs.Embedding(50, 9)
            # Keras's cells have one bias, PyTorch's two.
            self.first, self.second = theirs.LSTM(9, 8, batch_first=True), theirs.LSTM(8, 5, batch_first=True)
            for cell in (self.first, self.second):
                cell.bias_hh_l0.requires_grad_(False)
            self.dense = theirs.Linear(5, 3)

        def forward(self, words: Any) -> Any:
            return self.dense(self.second(self.first(self.embedding(words))[0])[0][:, -1])

    two = _torch(torch, Tagger(), (7,), batch, torch.long)
    return _keras(keras, one, "mse", batch), two


def recurrent(keras: Any, torch: Any, batch: int) -> tuple[Workload, Workload]:
    """A GRU on input data, which needs no gradient."""
    ours, theirs = keras.layers, torch.nn
    one = [keras.Input((7, 5)), ours.GRU(8), ours.Dense(3)]
    two = [theirs.GRU(5, 8, batch_first=True), _LastStep(torch), theirs.Linear(8, 3)]
    return _keras(keras, one, "mse", batch), _torch(torch, two, (7, 5), batch)


def attention(keras: Any, torch: Any, batch: int) -> tuple[Workload, Workload]:
    ours, theirs = keras.layers, torch.nn
    tokens = keras.Input((10, 12))
    hidden = ours.Dense(12)(tokens)
    hidden = ours.MultiHeadAttention(3, 4)(hidden, hidden)
    one = keras.Model(tokens, ours.Dense(2)(hidden))
    one.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse")

    class Attention(theirs.Module):
        def __init__(self) -> None:
            super().__init__()
            self.into, self.out = theirs.Linear(12, 12), theirs.Linear(12, 2)
            self.query, self.key, self.value = (theirs.Linear(12, 12) for _ in range(3))
            self.joined = theirs.Linear(12, 12)

        def forward(self, tokens: Any) -> Any:
            hidden = self.into(tokens)
            parts = (
                one(hidden).unflatten(-1, (3, 4)).transpose(1, 2) for one in (self.query, self.key, self.value)
            )
            heads = theirs.functional.scaled_dot_product_attention(*parts)
            return self.out(self.joined(heads.transpose(1, 2).flatten(2)))

    two = _torch(torch, Attention(), (10, 12), batch)
    return Workload(one, None, batch_size=batch), two


PAIRS: tuple[Pair, ...] = (
    perceptron, image_classifier, decoder, volumes, expressions, tagger, recurrent, attention,
)  # fmt: skip

"""Models in PyTorch, and their ONNX files as PyTorch's own exporter writes them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from fomkit.core.model import Workload


class Twin(NamedTuple):
    """A model and a function that makes its input for a batch."""

    model: Any
    inputs: Callable[[int], Any]

    def workload(self, torch: Any, batch: int) -> Workload:
        return Workload(
            self.model, self.inputs, batch_size=batch,
            loss=lambda output, _: (output[0] if isinstance(output, tuple) else output).square().mean(),
            optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        )  # fmt: skip

    def export(self, torch: Any, path: Path, batch: int) -> Path:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                self.model, (self.inputs(batch),), str(path), dynamo=False, input_names=["x"],
                dynamic_axes={"x": {0: "batch"}}, training=torch.onnx.TrainingMode.TRAINING,
                do_constant_folding=False,
            )  # fmt: skip
        return path


def _images(torch: Any, *shape: int) -> Callable[[int], Any]:
    return lambda batch: torch.zeros(batch, *shape)


def perceptron(torch: Any) -> Twin:
    nn = torch.nn
    layers = [
        nn.Linear(23, 17),
        nn.ReLU(),
        nn.Dropout(0.1),
        nn.Linear(17, 11, bias=False),
        nn.Tanh(),
        nn.Linear(11, 1),
    ]
    return Twin(nn.Sequential(*layers), _images(torch, 23))


def image_classifier(torch: Any) -> Twin:
    nn = torch.nn
    layers = [
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, groups=8), nn.Conv2d(8, 12, (3, 1), stride=2, padding=(2, 0)), nn.ReLU6(),
        nn.Conv2d(12, 16, 1, groups=4), nn.Conv2d(16, 16, 3, padding=2, dilation=2), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(16, 10),
    ]  # fmt: skip
    return Twin(nn.Sequential(*layers), _images(torch, 3, 17, 19))


def decoder(torch: Any) -> Twin:
    nn = torch.nn
    layers = [
        nn.ConvTranspose2d(4, 6, 3, stride=2), nn.ReLU(),
        nn.ConvTranspose2d(6, 6, 4, stride=2, padding=1, groups=3),
        nn.ConvTranspose2d(6, 2, 3, stride=2, padding=1, output_padding=1),
        nn.Conv2d(2, 3, 5, stride=2, padding=2),
    ]  # fmt: skip
    return Twin(nn.Sequential(*layers), _images(torch, 4, 5, 7))


def volumes(torch: Any) -> Twin:
    nn = torch.nn
    layers = [nn.Conv3d(2, 4, 3), nn.MaxPool3d(2), nn.Flatten(), nn.Linear(4 * 3 * 3 * 2, 2)]
    return Twin(nn.Sequential(*layers), _images(torch, 2, 9, 8, 7))


def expressions(torch: Any) -> Twin:
    nn = torch.nn
    layers = [nn.Conv1d(1, 12, 20), nn.ReLU(), nn.Conv1d(12, 12, 10), nn.MaxPool1d(10), nn.Flatten(),
              nn.Linear(12 * 37, 20), nn.Linear(20, 2), nn.Softmax(1)]  # fmt: skip
    return Twin(nn.Sequential(*layers), _images(torch, 1, 399))


def tagger(torch: Any) -> Twin:
    """A model with an embedding, so that its bidirectional recurrent layer needs a gradient of its input."""
    nn = torch.nn

    class Tagger(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.cell = nn.Embedding(50, 9), nn.LSTM(9, 8, batch_first=True, bidirectional=True)
            self.dense = nn.Linear(16, 3)

        def forward(self, words: Any) -> Any:
            return self.dense(self.cell(self.embedding(words))[0])

    return Twin(Tagger(), lambda batch: torch.zeros(batch, 7, dtype=torch.long))


def recurrent(torch: Any) -> Twin:
    """A GRU on input data, which needs no gradient."""
    nn = torch.nn

    class Recurrent(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.cell, self.dense = nn.GRU(5, 8, batch_first=True), nn.Linear(8, 3)

        def forward(self, values: Any) -> Any:
            return self.dense(self.cell(values)[0][:, -1])

    return Twin(Recurrent(), _images(torch, 7, 5))


def attention(torch: Any) -> Twin:
    """Attention as products and a softmax, because ONNX has no attention op before version 23."""
    nn = torch.nn

    class Attention(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.into, self.out = nn.LayerNorm(12), nn.Linear(12, 36), nn.Linear(12, 12)
            self.wide, self.back = nn.Linear(12, 48), nn.Linear(48, 12)

        def forward(self, tokens: Any) -> Any:
            parts = self.into(self.norm(tokens)).chunk(3, dim=-1)
            query, key, value = (one.reshape(*one.shape[:2], 3, 4).transpose(1, 2) for one in parts)
            heads = ((query @ key.transpose(-1, -2)) * 0.5).softmax(-1) @ value
            hidden = tokens + self.out(heads.transpose(1, 2).flatten(2))
            return hidden + self.back(nn.functional.gelu(self.wide(hidden)))

    return Twin(Attention(), _images(torch, 10, 12))


TWINS = (
    perceptron, image_classifier, decoder, volumes, expressions, tagger, recurrent, attention,
)  # fmt: skip

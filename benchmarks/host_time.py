"""Time the host's work an op of eager PyTorch and of a TensorFlow graph: steps of networks that hardly compute.

``python benchmarks/host_time.py`` prints one line a network: rows of its profile, the first quartile of the
processor time of a step, and the time a row. On a GPU the launch of a kernel comes on top. The constant
`fomkit.plan.run.EAGER_OP_S` rests on these lines.
"""

import time
from collections.abc import Callable

import numpy as np
import torch
from torch import nn

import fomkit

WIDTH, REPEATS = 4, 80


class Residual(nn.Module):
    """A bottleneck of three convolutions around a shortcut."""

    def __init__(self) -> None:
        super().__init__()
        sides = ((WIDTH, WIDTH, 1), (WIDTH, WIDTH, 3), (WIDTH, WIDTH, 1))
        self.steps = nn.ModuleList(
            nn.Sequential(nn.Conv2d(i, o, side, padding=side // 2, bias=False), nn.BatchNorm2d(o), nn.ReLU())
            for i, o, side in sides
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x
        for step in self.steps:
            y = step(y)
        return torch.relu(x + y)


class Block(nn.Module):
    """A block of a transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, seq, _ = x.shape
        q, k, v = self.qkv(self.norms[0](x)).view(batch, seq, 3, 2, WIDTH // 2).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, seq, WIDTH))
        return x + self.down(nn.functional.gelu(self.up(self.norms[1](x))))


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "residual, 16 blocks": (lambda: nn.Sequential(*(Residual() for _ in range(16))), (2, WIDTH, 2, 2)),
    "transformer, 12 blocks": (lambda: nn.Sequential(*(Block() for _ in range(12))), (1, 4, WIDTH)),
    "perceptron, 20 layers": (
        lambda: nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(20))), (2, WIDTH),
    ),
}  # fmt: skip


def quartile_s(step: Callable[[], object]) -> float:
    """Return the first quartile of the processor time [s] of a call."""
    found = []
    for _ in range(REPEATS):
        begin = time.process_time()
        step()
        found.append(time.process_time() - begin)
    return float(np.quantile(found[10:], 0.25))


def of_torch(name: str, autocast: bool) -> str:
    """Return the line of one network, with or without autocast."""
    make, shape = NETWORKS[name]
    model, data = make(), torch.randn(shape)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6, momentum=0.9, foreach=True)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            out = model(data)
        out.float().sum().backward()
        optimizer.step()

    def sgd(parameters: object) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=1e-6, momentum=0.9, foreach=True)

    profile = fomkit.profile(make(), inputs=(data,), optimizer=sgd)
    return line(f"{name}{', autocast' * autocast}", profile, quartile_s(step))


def of_keras() -> str:
    """Return the line of a perceptron in a graph of TensorFlow."""
    import keras

    layers = [keras.layers.Dense(WIDTH, activation="relu") for _ in range(20)]
    model = keras.Sequential([keras.Input((WIDTH,)), *layers])
    model.compile(optimizer=keras.optimizers.SGD(1e-6, momentum=0.9), loss="mse")
    data = np.zeros((2, WIDTH), "float32")
    model.fit(data, data, verbose=0)
    batch = iter([(keras.ops.convert_to_tensor(data),) * 2] * (REPEATS + 20))
    step = model.make_train_function()
    return line(
        "perceptron of Keras, 20 layers", fomkit.profile(model, inputs=data), quartile_s(lambda: step(batch))
    )


def line(name: str, profile: object, step_s: float) -> str:
    """Write the rows of a profile, the time of a step and the time a row."""
    rows = fomkit.estimate(profile, "v100").ops["count"].sum()
    return f"{name:36s} {rows:6.0f} rows {step_s * 1e3:8.2f} ms {step_s / rows * 1e6:6.1f} µs a row"


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name in NETWORKS:
        for autocast in (False, True):
            print(of_torch(name, autocast))
    print(of_keras())

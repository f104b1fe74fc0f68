"""The memory of a graph's step by its order, against what TensorFlow's own allocator says of a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fomkit.core.model import Workload
from fomkit.frontends.profile import profile_workload
from fomkit.ops.resize import resize_ops
from fomkit.plan.memory import Use, memory_use
from fomkit.readers.profilers.xplane_file import open_planes

BLOCK_BYTE = 64
LEAST_BYTE = 2**18
"""Smaller pieces come out of a pool that is not told."""


def residual(keras: Any) -> Any:
    layers = keras.layers
    inputs = keras.Input((64, 64, 8))
    x = layers.Conv2D(16, 3, padding="same")(inputs)
    for _ in range(2):
        inner = layers.Conv2D(16, 3, padding="same", activation="relu")(x)
        x = layers.ReLU()(layers.Add()([x, layers.Conv2D(16, 3, padding="same")(inner)]))
    return keras.Model(inputs, layers.Dense(10)(layers.GlobalAveragePooling2D()(x)))


def use_of(model: Any, batch: int, mode: str = "train") -> Use:
    profile = profile_workload(Workload(model, None, batch_size=batch), mode=mode)
    assert profile.order is not None
    order = resize_ops(profile.order, profile.sizes, "order")
    return memory_use(order, profile.ops, np.zeros(len(profile.ops)), "order", BLOCK_BYTE)

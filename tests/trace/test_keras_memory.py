"""The memory of a graph's step by its order, compared with TensorFlow's allocator in a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fomkit.core.model import STATE_TENSORS, Workload
from fomkit.frontends.profile import profile_workload
from fomkit.ops.resize import resize_ops
from fomkit.plan.memory import Use, memory_use
from fomkit.readers.profilers.xplane_file import open_planes

BLOCK_BYTE = 64
MAP_BYTE = 32 * 64 * 64 * 16 * 4
"""One feature map of the network."""


@pytest.fixture(scope="module")
def residual(keras: Any) -> Any:
    layers = keras.layers
    inputs = keras.Input((64, 64, 8))
    x = layers.Conv2D(16, 3, padding="same")(inputs)
    for _ in range(2):
        inner = layers.Conv2D(16, 3, padding="same", activation="relu")(x)
        x = layers.ReLU()(layers.Add()([x, layers.Conv2D(16, 3, padding="same")(inner)]))
    model = keras.Model(inputs, layers.Dense(10)(layers.GlobalAveragePooling2D()(x)))
    model.compile("adam", "mse")
    return model


def use_of(model: Any, batch: int, mode: Any = "train") -> Use:
    profile = profile_workload(Workload(model, None, batch_size=batch), mode=mode)
    assert profile.order is not None
    order = resize_ops(profile.order, profile.sizes, "order")
    return memory_use(order, profile.ops, np.zeros(len(profile.ops)), "order", BLOCK_BYTE)


def allocated_peak_byte(step: Any, folder: Path, *values: Any) -> float:
    """Return the least peak of twelve steps above the memory before; pieces under 256 KiB are not reported.

    TensorFlow runs ops that are ready together in any order, at times one feature map ahead of need.
    """
    import tensorflow as tf

    profiler = tf.profiler.experimental
    step(*values)
    step(*values)
    peaks = []
    for attempt in range(12):
        profiler.start(str(folder / str(attempt)), options=profiler.ProfilerOptions(host_tracer_level=3))
        step(*values)
        profiler.stop()
        peaks.append(peak_of_trace(folder / str(attempt)))
    return min(peaks)


def peak_of_trace(folder: Path) -> float:
    changes, sizes, live = [], dict[float, float](), [0.0]
    with open_planes(next(folder.rglob("*.xplane.pb"))) as file:
        for plane in file.planes():
            for line in plane.lines():
                for event in line.events:
                    if (name := plane.kinds[event.metadata_id].name) in ("MemoryAllocation", "MemoryDeallocation"):
                        at = line.start * 1000 + event.offset_ps
                        changes.append((at, name == "MemoryAllocation", plane.stats(event.stats)))
    for _, allocates, details in sorted(changes, key=lambda change: change[0]):
        address = float(details["addr"])
        if allocates:
            sizes[address] = float(details["requested_bytes"])
        live.append(live[-1] + (sizes[address] if allocates else -sizes.pop(address, 0.0)))
    return max(live)


def test_the_peak_is_what_the_allocator_reports(residual: Any, tmp_path: Path) -> None:
    import tensorflow as tf

    step = tf.function(lambda x, y: residual.train_step((x, y)), jit_compile=False, autograph=False)
    measured = allocated_peak_byte(step, tmp_path, tf.random.normal((32, 64, 64, 8)), tf.random.normal((32, 10)))
    use = use_of(residual, 32)
    assert measured > 5 * MAP_BYTE
    assert use.peak_byte - use.live_byte[0] == pytest.approx(measured, rel=0.03)


def test_what_stands_and_what_is_kept(residual: Any) -> None:
    use = use_of(residual, 32)
    parameters = sum(4 * np.prod(one.shape) for one in residual.trainable_variables)
    assert use.total("parameter") == pytest.approx(parameters, rel=0.02)
    assert use.total("gradient") == pytest.approx(parameters, rel=0.02)
    assert use.total("state") == pytest.approx(STATE_TENSORS["adam"] * parameters, rel=0.02)
    assert use.total("input") == pytest.approx(32 * (64 * 64 * 8 + 10) * 4, rel=0.001)
    # The results of five layers; biases, additions and activations are written over what they read.
    assert use.total("activation") == pytest.approx(5 * MAP_BYTE, rel=0.01)


def test_rows_that_are_equal_at_one_batch_only_leave_the_order_free(keras: Any) -> None:
    """2 × 16 means of a normalisation, and its 32 factors."""
    layers = keras.layers
    model = keras.Sequential([keras.Input((16, 32)), layers.Dense(32), layers.LayerNormalization()])
    model.compile("sgd", "mse")
    assert use_of(model, 2).peak_byte > 0
    notes = profile_workload(Workload(model, None, batch_size=2)).notes
    assert not any("the order of the ops" in note for note in notes)


def test_inference_keeps_nothing_for_a_backward_pass(residual: Any) -> None:
    use = use_of(residual, 32, "infer")
    assert use.total("activation") == use.total("gradient") == use.total("state") == 0
    assert use.peak_byte - use.live_byte[0] == pytest.approx(3 * MAP_BYTE, rel=0.01)


def test_a_loop_keeps_what_its_gradient_reads(keras: Any) -> None:
    """An LSTM keeps gates and states of each step, and no copy of its weights."""
    layers, batch, steps, units = keras.layers, 16, 30, 64
    model = keras.Sequential([keras.Input((steps, 8)), layers.LSTM(units), layers.Dense(2)])
    model.compile("sgd", "mse")
    kept = use_of(model, batch).total("activation") / (batch * steps * units * 4)
    assert 7 <= kept <= 14

"""Weights of Keras models that nobody has written to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

import tensorflow as tf
from keras.src.backend.tensorflow import core

LARGE_NUMEL = 100_000
"""Weights of this many elements or more get memory that is never written to, which takes none."""


@contextmanager
def weights_without_data() -> Iterator[None]:
    """Leave large weights unwritten inside the block, so that they take no memory and no time."""
    kind: Any = core.Variable
    before = kind._initialize_with_initializer

    def initialize(self: Any, initializer: Any) -> None:
        dtype = tf.as_dtype(self._dtype)
        if not dtype.is_floating or prod(self._shape) < LARGE_NUMEL:
            before(self, initializer)
            return
        self._initialize(lambda: tf.raw_ops.Empty(shape=self._shape, dtype=dtype, init=False))

    kind._initialize_with_initializer = initialize
    try:
        yield
    finally:
        kind._initialize_with_initializer = before

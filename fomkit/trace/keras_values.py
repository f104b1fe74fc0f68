"""Values to run a Keras step on: those that the user's file gives, else made up from shapes alone."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import tensorflow as tf

from fomkit.trace.keras_inputs import parted
from fomkit.trace.symbolic import Sizes
from fomkit.workload import Workload

_MADE_UP = "inputs are made up: numbers between 0 and 1"
_WHOLE = "whole numbers are 0 and 1 in turn, so that lookups stay in two rows"


def _made_up(spec: Any) -> Any:
    shape, dtype = spec.shape.as_list(), spec.dtype
    if dtype.is_floating:
        return tf.cast(tf.random.Generator.from_seed(0).uniform(shape), dtype)
    if dtype == tf.string:
        return tf.fill(shape, "")
    return tf.cast(tf.reshape(tf.range(prod(shape)) % 2, shape), dtype)


def _given(workload: Workload, sizes: Sizes) -> list[Any]:
    """Give the arrays of the user's file, in the order of the specifications."""
    made = workload.inputs
    if callable(made) and not hasattr(made, "shape"):
        made = made(sizes["batch"], **{name: size for name, size in sizes.items() if name != "batch"})
    return [] if made is None else tf.nest.flatten(parted(workload.model, made))


def step_values(workload: Workload, specs: Any, sizes: Sizes) -> tuple[Any, list[str]]:
    """Make the inputs and targets of a step.

    Parameters
    ----------
    workload : Workload
    specs : tuple
        What a step takes, as TensorFlow specifies it.
    sizes : mapping
        Their named sizes.

    Returns
    -------
    values : tuple
        In the structure of ``specs``.
    notes : list of str
        What was made up.
    """
    flat, given = tf.nest.flatten(specs), _given(workload, sizes)
    values: list[Any] = []
    notes: list[str] = []
    for place, spec in enumerate(flat):
        leaf = given[place] if place < len(given) else None
        if spec is None:
            values.append(None)
        elif isinstance(leaf, np.ndarray | tf.Tensor) and leaf.shape == spec.shape:
            values.append(tf.cast(tf.convert_to_tensor(leaf), spec.dtype))
        else:
            values.append(_made_up(spec))
            notes.append(_MADE_UP if spec.dtype.is_floating else f"{_MADE_UP}; {_WHOLE}")
    return tf.nest.pack_sequence_as(specs, values), sorted(set(notes))[-1:]

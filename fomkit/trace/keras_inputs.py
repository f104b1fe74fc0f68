"""Specifications of a Keras model's inputs and targets at any named sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from fomkit.errors import FomkitError, nearest_names
from fomkit.trace.input_sizes import MakeInputs, named_sizes
from fomkit.trace.symbolic import Sizes
from fomkit.workload import Workload


def _spec(leaf: Any) -> Any:
    if isinstance(leaf, keras.KerasTensor):
        return keras.KerasTensor(leaf.shape, leaf.dtype)
    if isinstance(leaf, np.ndarray) and leaf.dtype == np.float64:
        return keras.KerasTensor(leaf.shape, keras.config.floatx())
    return keras.KerasTensor(tuple(np.shape(leaf)), keras.backend.standardize_dtype(leaf.dtype))


def specs(values: Any) -> Any:
    """Give the shapes and number formats of tensors, in the lists and dicts that they lie in."""
    return keras.tree.map_structure(_spec, values)


def parted(model: Any, values: Any) -> tuple[Any, Any]:
    """Part what the model takes from what the loss compares with: the rest of a tuple, as in ``fit``."""
    if not isinstance(values, tuple | list) or len(values) < 2:
        return values, None
    if isinstance(values[0], tuple | list | Mapping):
        return values[0], values[1]
    taken = len(model.inputs) if getattr(model, "inputs", None) else len(values) - 1
    x, y = list(values[:taken]), list(values[taken:])
    return (x[0] if taken == 1 else x), (None if not y else y[0] if len(y) == 1 else y)


def _loss_name(loss: Any) -> str:
    return str(getattr(loss, "name", None) or getattr(loss, "__name__", None) or loss or "").lower()


def _targets(model: Any, x: Any) -> Any:
    """Make up targets by the compiled losses: class numbers for sparse ones, else the shape of the output."""
    outputs = model.compute_output_spec(x)
    loss = model._compile_loss._user_loss if model._compile_loss is not None else None
    if loss is None:
        return None
    flat = keras.tree.flatten(outputs)
    given = keras.tree.flatten(loss) if isinstance(loss, list | tuple | Mapping) else [loss] * len(flat)
    specs = []
    for output, one in zip(flat, given, strict=False):
        if "sparse" in _loss_name(one):
            specs.append(keras.KerasTensor(output.shape[:-1], "int32"))
        else:
            specs.append(keras.KerasTensor(output.shape, output.dtype))
    return keras.tree.pack_sequence_as(outputs, specs)


def _own_inputs(model: Any, where: str) -> Any:
    """Give the symbols of a model that was built from them.

    Raises
    ------
    FomkitError
        When it has none, or they leave more open than the batch.
    """
    try:
        symbols = model._inputs_struct if hasattr(model, "_inputs_struct") else model.inputs
    except AttributeError:
        symbols = None
    if symbols is None:
        raise FomkitError(
            where, "'inputs' is missing, which a model without keras.Input needs. For example: "
                   "inputs = lambda batch: np.zeros((batch, 784), 'float32')")  # fmt: skip
    for symbol in keras.tree.flatten(symbols):
        if None in symbol.shape[1:]:
            raise FomkitError(
                where, f"the input {symbol.name!r} has the shape {symbol.shape}, which leaves more open than the "
                       "batch. Say the rest: inputs = lambda batch, seq=9: np.zeros((batch, seq))")  # fmt: skip
    if isinstance(symbols, list | tuple) and len(symbols) == 1:
        return symbols[0]
    return symbols


def _with_targets(model: Any, x: Any, y: Any) -> tuple[Any, ...]:
    if y is None and model.compiled:
        y = _targets(model, x)
    return (x,) if y is None else (x, y)


def batched(values: Any, given: int | None, batch: int) -> Any:
    """Give specifications for another batch: each first axis that is open or was the given batch."""

    def at(spec: Any) -> Any:
        same = len(spec.shape) and spec.shape[0] in (None, given)
        return keras.KerasTensor((batch, *spec.shape[1:]), spec.dtype) if same else spec

    return keras.tree.map_structure(at, values)


def inputs_and_sizes(workload: Workload, wanted: Sizes, where: str) -> tuple[MakeInputs, dict[str, int]]:
    """Give inputs and targets as a function of the named sizes, and the sizes to trace at, the batch first.

    Parameters
    ----------
    workload : Workload
        Its ``inputs`` may be missing where the model was built from ``keras.Input``.
    wanted : mapping
        What was asked for.
    where : str
        The user's file, for error messages.

    Raises
    ------
    FomkitError
        When the batch size or the shape of an input is not known, or a size is asked for that nobody named.
    """
    model, given, make = workload.model, workload.inputs, None
    if callable(given) and not hasattr(given, "shape"):
        make, sizes = given, named_sizes(given, where)
        own = workload.batch_size
    else:
        values, sizes = specs(_own_inputs(model, where) if given is None else given), {}
        first = keras.tree.flatten(values)[0].shape
        own = workload.batch_size or (first[0] if len(first) else 1)
        fixed = first[0] if len(first) else None
    batch = wanted.get("batch") or own
    if batch is None:
        raise FomkitError(
            where, "'batch_size' is missing. Give it, for example: batch_size = 100, or pass --batch 100."
        )
    known = {"batch": batch, **sizes}
    for name in wanted:
        if name not in known:
            raise FomkitError(where, f"inputs has no size {name!r}. {nearest_names(name, known)}")

    def at(at_sizes: Sizes) -> tuple[Any, ...]:
        if make is None:
            found = batched(values, fixed, at_sizes["batch"])
        else:
            others = {name: size for name, size in at_sizes.items() if name != "batch"}
            found = specs(make(at_sizes["batch"], **others))
        return _with_targets(model, *parted(model, found))

    return at, {**known, **wanted}

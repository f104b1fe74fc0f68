"""A Keras workload ready to be traced, and what its optimizer is handed while it is; of both backends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import keras

from fomkit.trace.symbolic import Sizes

Values = Any
"""Tensors, or specifications of tensors, in tuples, lists and dicts."""


@dataclass(frozen=True)
class Prepared:
    """A workload ready to be traced.

    Attributes
    ----------
    inputs : function of the named sizes
        Gives one batch as a training step takes it, in ``keras.KerasTensor``: what the model takes, mostly with
        what the loss compares with and the samples' weights.
    loss : function of (output, inputs), optional
        Without one the model's own training step runs.
    """

    model: Any
    inputs: Callable[[Sizes], Values]
    loss: Callable[[Any, Any], Any] | None
    optimizer: Any
    mode: str

    @property
    def has_own_step(self) -> bool:
        """Tell whether the model's own training step runs."""
        return self.loss is None and bool(self.model.compiled)


def parted(data: Values) -> tuple[Values, Values]:
    """Part what a model takes from what is given to the loss: that and the targets, where there are any."""
    x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
    return x, x if y is None else (x, y)


@dataclass
class Update:
    """What the optimizer was handed while the step was traced."""

    gradients: list[Any] = field(default_factory=list)
    variables: list[Any] = field(default_factory=list)


@contextmanager
def watch_update(optimizer: Any, *, run: bool) -> Iterator[Update]:
    """Note what the optimizer is handed inside the block; its own ops are traced only where ``run`` says so."""
    seen = Update()
    if optimizer is None:
        yield seen
        return
    apply = optimizer.apply

    def watched(grads: Any, trainable_variables: Any = None) -> Any:
        grads = list(grads)
        variables = list(optimizer._trainable_variables if trainable_variables is None else trainable_variables)
        for gradient, variable in zip(grads, variables, strict=True):
            if gradient is not None:
                seen.gradients.append(gradient)
                seen.variables.append(variable)
        return apply(grads, variables) if run else None

    optimizer.apply = watched
    try:
        yield seen
    finally:
        del optimizer.apply

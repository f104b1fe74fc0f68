"""The update of a Keras step: a row by the optimizer's class, or its ops one by one where more is switched on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import keras

from fomkit.trace.calls import UPDATE, Dimensions, TracedOp
from fomkit.trace.keras_calls import dtype_name

_IMPL = {"torch": "foreach"}
"""Keras updates variable by variable, but on PyTorch by lists of them."""


def _sgd(optimizer: Any) -> str:
    if not optimizer.momentum:
        return "sgd"
    return "nesterov" if optimizer.nesterov else "momentum"


def _rmsprop(optimizer: Any) -> str:
    switches = [name for name in ("centered", "momentum") if getattr(optimizer, name)]
    return "_".join(["rmsprop", *switches])


def _adam(optimizer: Any) -> str:
    return "adam_amsgrad" if optimizer.amsgrad else "adam"


def _adamw(optimizer: Any) -> str:
    return "adamw_amsgrad" if optimizer.amsgrad else "adamw"


RULES: Mapping[type, Callable[[Any], str]] = {
    keras.optimizers.SGD: _sgd,
    keras.optimizers.Adam: _adam,
    keras.optimizers.AdamW: _adamw,
    keras.optimizers.Adamax: lambda _: "adamax",
    keras.optimizers.Nadam: lambda _: "nadam",
    keras.optimizers.RMSprop: _rmsprop,
    keras.optimizers.Adagrad: lambda _: "adagrad",
    keras.optimizers.Adadelta: lambda _: "adadelta",
}
"""Optimizers with a cost formula, by exact class."""

_MORE = ("clipnorm", "clipvalue", "global_clipnorm", "use_ema", "loss_scale_factor", "gradient_accumulation_steps")


def _keras_class(optimizer: Any) -> type:
    """Give the class as users write it; on PyTorch, Keras makes one of its own of it."""
    kind = type(optimizer)
    if kind.__module__.startswith("keras.src.backend."):
        return next((one for one in kind.__mro__ if one in RULES), kind)
    return kind


def scales_loss(optimizer: Any) -> bool:
    """Tell whether gradients are looked through for overflow, and scaled, before the rule."""
    return type(optimizer) is keras.optimizers.LossScaleOptimizer


def rule_of(optimizer: Any) -> str:
    """Name the rule of an optimizer; "" where it does more than its rule, or has none here.

    Of one with loss scaling it is the rule of the optimizer inside.
    """
    if scales_loss(optimizer):
        return rule_of(optimizer.inner_optimizer)
    found = RULES.get(_keras_class(optimizer))
    decays = optimizer.weight_decay and not isinstance(optimizer, keras.optimizers.AdamW)
    if found is None or decays or any(getattr(optimizer, name, None) for name in _MORE):
        return ""
    return found(optimizer)


def implementation() -> str:
    """Tell how Keras updates on the backend at hand."""
    return _IMPL.get(keras.backend.backend(), "per_tensor")


def notes_on(optimizer: Any) -> list[str]:
    """Say what the row of an update leaves out."""
    told = "loss scaling: the look through the gradients for overflow, and their scaling back, are not counted"
    return [told] if scales_loss(optimizer) else []


def update_rows(optimizer: Any, updated: Sequence[Any]) -> list[TracedOp]:
    """Describe one update of the variables that got a gradient, a row for each number format."""
    by_dtype: dict[str, list[int]] = {}
    for variable in updated:
        by_dtype.setdefault(dtype_name(variable.dtype), []).append(prod(variable.shape))
    rows = []
    for dtype, numels in by_dtype.items():
        sizes: Dimensions = {
            "rule": rule_of(optimizer),
            "impl": implementation(),
            "numel": sum(numels),
            "tensors": len(numels),
        }
        rows.append(TracedOp(f"{type(optimizer).__name__}.apply", "optimizer", sizes, dtype, UPDATE, ""))
    return rows

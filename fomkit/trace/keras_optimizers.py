"""The update of a Keras step: a row by the optimizer's class, or its ops one by one where more is switched on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import keras

from fomkit.trace.calls import UPDATE, Dimensions, TracedOp
from fomkit.trace.keras_calls import dtype_name

IMPL = "per_tensor"
"""Keras updates variable by variable."""


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


def rule_of(optimizer: Any) -> str:
    """Name the rule of an optimizer; "" where it does more than its rule, or has none here."""
    found = RULES.get(type(optimizer))
    decays = optimizer.weight_decay and not isinstance(optimizer, keras.optimizers.AdamW)
    if found is None or decays or any(getattr(optimizer, name, None) for name in _MORE):
        return ""
    return found(optimizer)


def update_rows(optimizer: Any, updated: Sequence[Any]) -> list[TracedOp]:
    """Describe one update of the variables that got a gradient, a row for each number format."""
    by_dtype: dict[str, list[int]] = {}
    for variable in updated:
        by_dtype.setdefault(dtype_name(variable.value.dtype), []).append(prod(variable.shape))
    rows = []
    for dtype, numels in by_dtype.items():
        sizes: Dimensions = {
            "rule": rule_of(optimizer),
            "impl": IMPL,
            "numel": sum(numels),
            "tensors": len(numels),
        }
        rows.append(TracedOp(f"{type(optimizer).__name__}.apply", "optimizer", sizes, dtype, UPDATE, ""))
    return rows

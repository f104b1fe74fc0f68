"""What a workload for Keras must have, and what it lacks."""

from __future__ import annotations

import keras

from fomkit.errors import FomkitError, ManyFomkitError
from fomkit.trace.doors import BACKENDS, other_backend
from fomkit.trace.model_file import count_errors
from fomkit.workload import Workload


def check_workload(workload: Workload, where: str) -> None:
    """Raise unless a workload has a Keras model and sensible counts; inputs may be the model's own.

    Raises
    ------
    ManyFomkitError
        With every mistake.
    """
    errors = count_errors(workload, where)
    if keras.backend.backend() not in BACKENDS:
        errors.append(other_backend(where, keras.backend.backend()))
    if workload.model is None:
        example = "model = keras.Sequential([keras.Input((784,)), keras.layers.Dense(10)])"
        errors.append(FomkitError(where, f"'model' is missing. Give one, for example: {example}"))
    elif not isinstance(workload.model, keras.Model):
        made = "a class: call it" if isinstance(workload.model, type) else f"a {type(workload.model).__name__}"
        errors.append(FomkitError(where, f"'model' is {made}. A keras.Model was expected."))
    if workload.optimizer is not None and not isinstance(workload.optimizer, keras.optimizers.Optimizer):
        errors.append(
            FomkitError(where, f"the optimizer is a {type(workload.optimizer).__name__}. A keras.optimizers "
                               "optimizer was expected, for example: optimizer = keras.optimizers.SGD(0.1)")
        )  # fmt: skip
    if errors:
        raise ManyFomkitError(errors)

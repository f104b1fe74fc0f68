"""The named sizes of an inputs function, by its signature."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from fomkit.errors import FomkitError
from fomkit.trace.symbolic import Sizes

MakeInputs = Callable[[Sizes], Any]


def named_sizes(make: Any, where: str) -> dict[str, int]:
    """Give the sizes besides the batch that an inputs function names: parameters whose default is a whole number.

    Raises
    ------
    FomkitError
        When such a default is below 1.

    Examples
    --------
    >>> named_sizes(lambda batch, seq=1024, causal=True: None, "model.py")
    {'seq': 1024}
    """
    try:
        parameters = list(inspect.signature(make).parameters.values())[1:]
    except ValueError:  # a builtin does not say
        return {}
    sizes = {}
    for parameter in parameters:
        if isinstance(parameter.default, bool) or not isinstance(parameter.default, int):
            continue
        if parameter.default < 1:
            raise FomkitError(
                where, f"inputs has {parameter.name}={parameter.default}. A size of 1 or more was expected."
            )
        sizes[parameter.name] = parameter.default
    return sizes

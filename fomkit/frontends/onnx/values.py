"""Small values that a graph works out of shapes: what Reshape, Slice and Expand are told to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

Value = np.ndarray[Any, Any]

MOST_ELEMENTS = 4096
"""Larger values are not worked out; their shapes are still known."""

Attributes = Mapping[str, Any]
Rule = Callable[[Sequence[Any], Attributes], Any]


def _axes(values: Sequence[Any], attributes: Attributes) -> tuple[int, ...] | None:
    """Give the axes, which were an attribute before they became an input."""
    if len(values) > 1 and values[1] is not None:
        return tuple(int(one) for one in values[1].ravel())
    stated = attributes.get("axes")
    return None if stated is None else tuple(stated)


def _reduced(name: str) -> Rule:
    def rule(values: Sequence[Any], attributes: Attributes) -> Any:
        keep = bool(attributes.get("keepdims", 1))
        return getattr(np, name)(values[0], axis=_axes(values, attributes), keepdims=keep)

    return rule


def _numpy(name: str, count: int) -> Rule:
    """Make the rule of a function of numpy on the first values."""
    return lambda values, _: getattr(np, name)(*values[:count])


def _divide(values: Sequence[Any], _attributes: Attributes) -> Any:
    if values[0].dtype.kind in "iu":
        return np.trunc(values[0] / values[1]).astype(values[0].dtype)
    return values[0] / values[1]


def _slice(values: Sequence[Any], attributes: Attributes) -> Any:
    data = values[0]
    stated = [attributes.get("starts"), attributes.get("ends"), attributes.get("axes"), None]
    for at, value in enumerate(values[1:]):
        stated[at] = stated[at] if value is None else value.tolist()
    starts, ends = stated[0] or [], stated[1] or []
    axes = list(range(len(starts))) if stated[2] is None else stated[2]
    steps = [1] * len(starts) if stated[3] is None else stated[3]
    where = [slice(None)] * data.ndim
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        first, last = int(start), int(end)
        # Backwards, an end far below zero means the beginning, which Python writes as None.
        where[int(axis)] = slice(first, None if step < 0 and last < -data.shape[int(axis)] else last, int(step))
    return data[tuple(where)]


def _reshape(values: Sequence[Any], _attributes: Attributes) -> Any:
    shape = [int(one) for one in values[1]]
    shape = [values[0].shape[at] if one == 0 else one for at, one in enumerate(shape)]
    return values[0].reshape(shape)


def _filled(values: Sequence[Any], attributes: Attributes) -> Any:
    shape = tuple(int(one) for one in values[0])
    fill = attributes.get("value")
    if prod(shape) > MOST_ELEMENTS:
        return None
    return np.zeros(shape, np.float32) if fill is None else np.full(shape, fill.ravel()[0], fill.dtype)


def _counted(values: Sequence[Any], _attributes: Attributes) -> Any:
    start, end, step = (value.item() for value in values)
    if not step or abs((end - start) / step) > MOST_ELEMENTS:
        return None
    return np.arange(start, end, step, dtype=values[0].dtype)


def _expanded(values: Sequence[Any], _attributes: Attributes) -> Any:
    shape = np.broadcast_shapes(values[0].shape, tuple(int(one) for one in values[1]))
    return None if prod(shape) > MOST_ELEMENTS else np.broadcast_to(values[0], shape)


def _cast(values: Sequence[Any], attributes: Attributes) -> Any:
    import onnx

    return values[0].astype(onnx.helper.tensor_dtype_to_np_dtype(attributes["to"]))


RULES: Mapping[str, Rule] = {
    "Identity": lambda values, _: values[0],
    "Gather": lambda values, stated: values[0].take(values[1], axis=stated.get("axis", 0)),
    "Concat": lambda values, stated: np.concatenate(values, axis=stated["axis"]),
    "Slice": _slice, "Reshape": _reshape, "Cast": _cast,
    "Unsqueeze": lambda values, stated: np.expand_dims(values[0], _axes(values, stated) or ()),
    "Squeeze": lambda values, stated: values[0].squeeze(_axes(values, stated)),
    "Transpose": lambda values, stated: values[0].transpose(stated.get("perm")),
    "ConstantOfShape": _filled, "Range": _counted, "Expand": _expanded, "Where": _numpy("where", 3),
    "Div": _divide,
    **{name: _numpy(theirs, 2) for name, theirs in (
        ("Add", "add"), ("Sub", "subtract"), ("Mul", "multiply"), ("Mod", "mod"), ("Pow", "power"),
        ("Min", "minimum"), ("Max", "maximum"), ("Equal", "equal"), ("Less", "less"), ("Greater", "greater"),
        ("LessOrEqual", "less_equal"), ("GreaterOrEqual", "greater_equal"), ("And", "logical_and"),
        ("Or", "logical_or"),
    )},
    **{name: _numpy(theirs, 1) for name, theirs in (
        ("Neg", "negative"), ("Not", "logical_not"), ("Floor", "floor"), ("Ceil", "ceil"), ("Abs", "abs"),
        ("Sqrt", "sqrt"),
    )},
    **{name: _reduced(theirs) for name, theirs in (
        ("ReduceProd", "prod"), ("ReduceSum", "sum"), ("ReduceMax", "max"), ("ReduceMin", "min"),
    )},
}  # fmt: skip
"""Ops whose results are worked out where all that they read is known and small."""


def work_out(op: str, values: Sequence[Value | None], attributes: Attributes) -> Value | None:
    """Give the result of an op on known values; ``None`` where it is none of these, too large, or cannot be.

    >>> import numpy as np
    >>> work_out("Concat", [np.array([2]), np.array([3, 4])], {"axis": 0}).tolist()
    [2, 3, 4]
    """
    rule = RULES.get(op)
    if rule is None or not values or values[0] is None:
        return None
    try:
        with np.errstate(all="ignore"):
            found = rule(values, attributes)
    except (ValueError, TypeError, IndexError, KeyError, OverflowError, AttributeError, MemoryError):
        return None
    return None if found is None or np.size(found) > MOST_ELEMENTS else np.asarray(found)

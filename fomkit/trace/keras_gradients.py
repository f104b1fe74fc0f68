"""Which products of a graph are gradients of weights, and which op a gradient is of."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from fomkit.trace.keras_graph import CALLS, LOOPS, Graph, Operation, Place, Tensor
from fomkit.trace.keras_scopes import BACKWARD_SCOPE
from fomkit.trace.tf_table import PRODUCTS

_SAME_VALUES = ("Identity", "Reshape", "Transpose", "Cast", "Squeeze", "ExpandDims", "AddN", "AddV2", "Add")
"""Ops that hand a gradient on, or add one to others."""


def forward_type(op: Operation, graph: Graph) -> str:
    """Give the type of the op that a gradient is of, by its name; "" where the name does not say."""
    if not op.name.startswith(BACKWARD_SCOPE):
        return ""
    name = op.name.removeprefix(BACKWARD_SCOPE).rpartition("/")[0]
    while name:
        try:
            return str(graph.get_operation_by_name(name).type)
        except (KeyError, ValueError):
            name = name.rpartition("/")[0]
    return ""


def product_group(op: Operation) -> str:
    """Name what the gradients of one product have in common: all before the last part of their names."""
    return str(op.name).rpartition("/")[0]


def _of_one_product(total: Operation, product: Operation) -> bool:
    """Tell a sum over the batch that a weight does not have from one that is the gradient of a bias."""
    return product_group(total) == product_group(product)


def tensors_of(gradients: Iterable[Any]) -> list[Tensor]:
    """Give the tensors of gradients; of a sparse one its values and the rows that they belong to."""
    found: list[Tensor] = []
    for one in gradients:
        found += [one.values, one.indices] if isinstance(one, tf.IndexedSlices) else [one]
    return found


def weight_products(gradients: Iterable[Any], graph: Graph) -> set[Operation]:
    """Find the matrix products that make gradients of variables, through sums of them, loops and calls."""
    waiting: list[tuple[Tensor, Place]] = [(one, Place(graph)) for one in tensors_of(gradients)]
    found: set[Operation] = set()
    seen: set[tuple[int, int]] = set()
    while waiting:
        tensor, place = waiting.pop()
        op, at = tensor.op, tensor.value_index
        if (id(op), at) in seen:
            continue
        seen.add((id(op), at))
        if op.type in PRODUCTS:
            found.add(op)
        elif op.type in _SAME_VALUES:
            waiting += [(one, place) for one in op.inputs]
        elif op.type == "IdentityN":
            waiting.append((op.inputs[at], place))
        elif op.type in LOOPS or op.type in CALLS:
            inner = place.enter(op, "body" if op.type in LOOPS else "f")
            waiting.append((inner.graph.outputs[at], inner))
        elif op.type == "Sum" and op.inputs[0].op.type in PRODUCTS and _of_one_product(op, op.inputs[0].op):
            found.add(op.inputs[0].op)
    return found

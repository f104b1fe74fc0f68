"""The memory of a Keras step on PyTorch that no op makes: weights, the optimizer's state, the update's tensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fomkit.trace.calls import TracedOp
from fomkit.trace.keras_layers import layer_paths
from fomkit.trace.keras_optimizers import rule_of
from fomkit.trace.torch_order import Line, OrderLog
from fomkit.trace.torch_update_memory import made_byte
from fomkit.workload import STATE_TENSORS


def hold_variables(order: OrderLog, model: Any) -> None:
    """Note a model's variables, each at the layer that made it."""
    paths = layer_paths(model)
    for layer in model._flatten_layers():
        for variables, role in (
            (layer._trainable_variables, "parameter"),
            (layer._non_trainable_variables, "buffer"),
        ):
            order.hold([one.value for one in variables], role, paths.get(id(layer), layer.name))


def _byte(variable: Any) -> int:
    return int(variable.value.numel() * variable.value.element_size())


def update_lines(
    model: Any, optimizer: Any, rows: Sequence[TracedOp], updated: Sequence[Any], executed: int
) -> Iterator[Line]:
    """Give the lines of an update by lists of tensors; its own tensors are taken to be those of torch.optim's.

    Parameters
    ----------
    model : Model
    optimizer : Optimizer
        One with a rule.
    rows : list of TracedOp
        Of the update, one for each number format.
    updated : list of Variable
        Those that got a gradient.
    executed : int
        Ops executed before.
    """
    rule = rule_of(optimizer)
    paths = layer_paths(model)
    owners = {
        id(one): paths.get(id(layer), layer.name)
        for layer in model._flatten_layers()
        for one in layer._trainable_variables
    }
    for variable in updated:
        if states := STATE_TENSORS[rule]:
            yield Line(0, None, owners.get(id(variable), ""), "", None, states * _byte(variable), "state")
    byte = made_byte({}, rule, "foreach", [_byte(one) for one in updated])
    for number, row in enumerate(rows, executed + 1):
        own = byte if number == executed + 1 else 0
        yield Line(number, row, "", "", None, own, "temporary" if own else "", number if own else None)

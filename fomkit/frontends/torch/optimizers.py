"""The update: one row per parameter group, by the optimizer's class and switches, and its memory; none is run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

from fomkit.core.errors import FomkitError
from fomkit.core.model import IMPL_BY_DEFAULT
from fomkit.frontends.layers import COPIES, byte_in_turn, rmsprop_rule, sgd_rule
from fomkit.frontends.lowering.calls import UPDATE, Dimensions, TracedOp, update_rows
from fomkit.frontends.step import Update
from fomkit.frontends.torch.calls import dtype_name
from fomkit.frontends.torch.order import Line, state_lines, update_line

Group = Mapping[str, Any]
_BY_DEFAULT = "optimizer: no implementation was asked for; foreach, the default on accelerators, is taken"


def _adam(group: Group) -> str:
    rule = "adamw" if group.get("decoupled_weight_decay") and group.get("weight_decay") else "adam"
    return f"{rule}_amsgrad" if group.get("amsgrad") else rule


RULES: Mapping[type, Callable[[Group], str]] = {
    torch.optim.SGD: sgd_rule, torch.optim.Adam: _adam,
    torch.optim.AdamW: lambda group: _adam({**group, "decoupled_weight_decay": True}),
    torch.optim.Adamax: lambda _: "adamax", torch.optim.NAdam: lambda _: "nadam",
    torch.optim.RAdam: lambda _: "radam", torch.optim.RMSprop: rmsprop_rule,
    torch.optim.Adagrad: lambda _: "adagrad", torch.optim.Adadelta: lambda _: "adadelta",
}  # fmt: skip
"""Optimizers with a cost formula, by exact class: a subclass may do anything in its step."""


def has_formula(optimizer: torch.optim.Optimizer) -> bool:
    """Tell whether an update is known by its optimizer's class; another one is what its own code does."""
    return type(optimizer) in RULES


def make_optimizer(given: Any, model: torch.nn.Module, where: str) -> torch.optim.Optimizer | None:
    """Give the optimizer of the shape-only model: the one given, or what the given function makes."""
    if given is None:
        return None
    is_ready = isinstance(given, torch.optim.Optimizer) or not callable(given)
    made = given if is_ready else given(list(model.parameters()))
    if not isinstance(made, torch.optim.Optimizer):
        raise FomkitError(
            where,
            f"the optimizer is a {type(made).__name__}. Give a torch.optim optimizer or a function of the "
            "parameters, for example: optimizer = lambda parameters: torch.optim.SGD(parameters, lr=0.1)",
        )
    return made


def _impl(group: Group) -> tuple[str, bool]:
    """Name the implementation, and tell whether it is only the default."""
    if group.get("fused"):
        return "fused", False
    foreach = group.get("foreach")
    return ("per_tensor", False) if foreach is False else ("foreach", foreach is None)


def with_gradients(
    optimizer: torch.optim.Optimizer, stand_ins: Mapping[int, torch.Tensor]
) -> Iterator[tuple[Group, dict[str, list[torch.Tensor]]]]:
    """Give each group of parameters with those that have a gradient, by number format."""
    for group in optimizer.param_groups:
        by_dtype: dict[str, list[torch.Tensor]] = {}
        for parameter in group["params"]:
            traced = stand_ins.get(id(parameter), parameter)
            if traced.grad is not None:
                by_dtype.setdefault(dtype_name(traced.dtype), []).append(traced)
        yield group, by_dtype


def kernels_before(group: Group, rule: str) -> list[tuple[str, int]]:
    """Name the kernels that unfused updates run before their rule, with the tensors that each reads.

    A gradient to climb is negated first. Weight decay adds a share of each parameter to its gradient; decoupled
    from it, it shrinks the parameter itself, which the rule of AdamW has in it.
    """
    found = [("maximize", 1)] if group.get("maximize") else []
    if group.get("weight_decay") and not rule.startswith("adamw"):
        found.append(("weight_decay", 1 if group.get("decoupled_weight_decay") else 2))
    return found


def _rows_before(group: Group, rule: str, parameters: list[torch.Tensor], impl: str) -> list[TracedOp]:
    """Describe the kernels that run before the rule; a fused update does all on the way."""
    single = [parameter.numel() for parameter in parameters]
    dtype = dtype_name(parameters[0].dtype)
    rows = []
    for op, inputs in [] if impl == "fused" else kernels_before(group, rule):
        for numel in single if impl == "per_tensor" else [sum(single)]:
            byte = numel * parameters[0].element_size()
            sizes: Dimensions = {"numel": numel, "inputs": inputs, "read_byte": inputs * byte, "write_byte": byte}
            rows.append(TracedOp(op, "pointwise", sizes, dtype, UPDATE, ""))
    return rows


def _groups_rows(groups: Iterable[tuple[Group, dict[str, list[torch.Tensor]]]], rule_of: Any, op: str) -> Update:
    rows, notes, any_default = [], [], False
    for group, by_dtype in groups:
        impl, by_default = _impl(group)
        any_default |= by_default
        if by_default:
            notes.append(_BY_DEFAULT)
        rule = rule_of(group)
        gradients = [parameter.grad for parameters in by_dtype.values() for parameter in parameters]
        if any(gradient is not None and gradient.layout is not torch.strided for gradient in gradients):
            notes.append("optimizer: sparse gradients are priced as if every row of their tables were updated")
        for dtype, parameters in by_dtype.items():
            rows.extend(update_rows(op, rule, impl, [(dtype, one.numel()) for one in parameters]))
            rows += _rows_before(group, rule, parameters, impl)
    optimizer = {name: str(rows[0].dimensions[name]) for name in ("rule", "impl")} if rows else {}
    if rows and any_default:
        optimizer["impl_from"] = IMPL_BY_DEFAULT
    return Update(rows, "", list(dict.fromkeys(notes)), optimizer)


def trace_update(optimizer: torch.optim.Optimizer | None, stand_ins: Mapping[int, torch.Tensor]) -> Update:
    """Describe one update of the parameters, or of their stand-ins by ``id``, that got a gradient."""
    if optimizer is None:
        return Update(notes=["no optimizer is given: the update is not counted"])
    name = type(optimizer).__name__
    rule_of = RULES.get(type(optimizer))
    if rule_of is None:
        known = ", ".join(rule.__name__ for rule in RULES)
        hint = (
            f"the update of {name} is not counted: only torch.optim's own {known} have a formula. A training "
            "program that runs it (--script) shows its ops"
        )
        return Update([], f"optimizer {name}", [hint])
    return _groups_rows(with_gradients(optimizer, stand_ins), rule_of, f"{name}.step")


def made_byte(group: Mapping[str, Any], rule: str, impl: str, sizes: Sequence[int]) -> int:
    """Give the most memory that an update makes for itself at once [byte], of parameters of these sizes [byte]."""
    if impl == "fused":
        return 0
    copies = COPIES[rule]
    changes_gradients = any(name == "maximize" or inputs > 1 for name, inputs in kernels_before(group, rule))
    if impl == "foreach":
        return sum(sizes) * (copies.listed_decayed if changes_gradients else copies.listed)
    return int(byte_in_turn(copies, sizes, int(changes_gradients)))


def update_lines(
    optimizer: torch.optim.Optimizer | None,
    stand_ins: Mapping[int, torch.Tensor],
    rows: Sequence[TracedOp],
    modules: Mapping[int, str],
    executed: int,
) -> Iterator[Line]:
    """Give the lines of an update.

    `stand_ins`: for the ``id`` of each of the optimizer's parameters the traced one; `rows`: the rows of the
    update; `modules`: path of the module of each traced parameter by its ``id``; `executed`: ops executed before.
    """
    waiting = list(enumerate(rows, executed + 1))
    rule_of = RULES.get(type(optimizer))
    if optimizer is None or rule_of is None:
        return
    for group, by_dtype in with_gradients(optimizer, stand_ins):
        rule = rule_of(group)
        for dtype, parameters in by_dtype.items():
            sizes = [parameter.numel() * parameter.element_size() for parameter in parameters]
            owners = [modules.get(id(parameter), "") for parameter in parameters]
            yield from state_lines(rule, zip(owners, sizes, strict=True))
            number, row = next(one for one in waiting if one[1].kind == "optimizer" and one[1].dtype == dtype)
            waiting.remove((number, row))
            yield update_line(number, row, made_byte(group, rule, str(row.dimensions["impl"]), sizes))
    for number, row in waiting:
        yield Line(number, row)

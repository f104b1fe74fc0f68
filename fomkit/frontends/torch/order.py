"""The order of a step: every executed op, the memory that it makes, and the op after which that memory is free.

An update with a formula is described without running it: one row per parameter group, from the optimizer's class
and options, with its memory. The layers of the forward pass are recorded here too (`watch_layers`).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from fomkit.core.errors import FomkitError
from fomkit.core.model import IMPL_BY_DEFAULT, STATE_TENSORS
from fomkit.frontends.layers import COPIES, LayerLog, Weight, per_tensor_peak_byte, rmsprop_rule, sgd_rule
from fomkit.frontends.lowering.calls import FORWARD, UPDATE, Array, Dimensions, TracedOp, update_rows
from fomkit.frontends.step import Update, order_line
from fomkit.frontends.torch.calls import FreedWatch, as_array, dtype_name, storage_id, storage_of, tensors_of


@dataclass(eq=False, slots=True)
class Line:
    """One executed op, or one more storage that it makes; ``id`` 0 is memory that exists before the step."""

    id: int
    row: TracedOp | None
    module: str = ""
    pass_name: str = ""
    storage: int | None = None
    byte: int = 0
    role: str = ""
    freed_by: int | None = None

    def traced(self, places: Mapping[int, int]) -> TracedOp:
        """Return the line as a row named like an op; ``places`` are positions of rows by their ``id()``."""
        row = None if self.row is None else places[id(self.row)]
        place = (self.pass_name, self.module) if self.row is None else ()
        return order_line(self.id, self.role, self.byte, row, self.freed_by, *place)


def state_lines(rule: str, parameters: Iterable[tuple[str, int]]) -> Iterator[Line]:
    """Yield the state that an optimizer keeps from step to step, for parameters given by module and bytes."""
    for module, byte in parameters if STATE_TENSORS[rule] else ():
        yield Line(0, None, module, byte=STATE_TENSORS[rule] * byte, role="state")


def update_line(number: int, row: TracedOp, byte: int) -> Line:
    """Return the line of a row of an update, with its temporary memory."""
    return Line(number, row, byte=byte, role="temporary" if byte else "", freed_by=number if byte else None)


class OrderLog:
    """Collects the lines of one step, op by op; `executed` is the number of ops so far."""

    def __init__(self) -> None:
        self.executed = 0
        self._resident: list[Line] = []
        self._lines: list[Line] = []
        self._made: dict[int, Line] = {}
        self._watch = FreedWatch(self._freed)
        self._attended: set[int] = set()
        self._forward_end: int | None = None

    def _freed(self, number: int) -> None:
        if number in self._made:  # a tensor without elements takes no memory
            self._made[number].freed_by = self.executed

    def mark(self) -> tuple[int, int, int]:
        """Return how much is recorded, for `back_to`."""
        return self.executed, len(self._resident), len(self._lines)

    def back_to(self, mark: tuple[int, int, int]) -> None:
        """Forget what was recorded since a `mark`."""
        self.executed, resident, lines = mark
        del self._resident[resident:], self._lines[lines:]

    def hold(self, values: Any, role: str, module: str = "") -> None:
        """Record storages that exist already, once each."""
        for number, byte in self._watch.new_ones(tensors_of(values)):
            line = Line(0, None, module, "", number, byte, role)
            self._made[number] = line
            self._resident.append(line)

    def hold_model(self, model: torch.nn.Module) -> None:
        """Record a model's parameters and buffers, each at its first module; tensors without a shape are skipped.

        A second call after the step adds the tensors that got a shape in the step.
        """
        for role, named in (("parameter", model.named_parameters()), ("buffer", model.named_buffers())):
            for name, tensor in named:
                if is_lazy(tensor):
                    continue
                self.hold([tensor], role, name.rpartition(".")[0])
                line = self._made.get(storage_id(tensor))
                if line is not None and line.role == "input":
                    line.role, line.module = role, name.rpartition(".")[0]

    def note(
        self, rows: Sequence[TracedOp], results: Any, module: str, pass_name: str, around: TracedOp | None = None
    ) -> None:
        """Record one executed op with the rows that it belongs to and its results.

        `around`: the row whose memory an op without work makes, such as the mask of a dropout in attention.
        """
        made = [(number, byte) for number, byte in self._watch.new_ones(tensors_of(results)) if byte]
        inside = bool(rows and rows[0].parts and self._lines and self._lines[-1].row is rows[0])
        if not made and (inside or not rows):
            return
        lines = [Line(self.executed + 1 + place, row) for place, row in enumerate(rows)]
        lines = lines or [Line(self.executed + 1, around, module, pass_name)]
        self.executed += len(lines)
        first = lines[0]
        lines[1:1] = [Line(first.id, first.row, first.module, first.pass_name) for _ in made[1:]]
        for line, (number, byte) in zip(lines, made, strict=False):
            line.storage, line.byte = number, byte
            self._made[number] = line
        self._lines += lines

    def note_attention(self, factors: Iterable[torch.Tensor], result: torch.Tensor, *, is_kept: bool) -> None:
        """Keep for an attention's backward pass what one fused kernel keeps, if anything: factors and result."""
        self._attended.add(storage_id(result))
        factors = list(factors)
        nodes = [factor.grad_fn for factor in factors if factor.requires_grad and factor.grad_fn is not None]
        if not nodes or not is_kept:
            return
        saved = [storage_of(tensor) for tensor in (*factors, result)]
        nodes[0].register_prehook(lambda _: saved.clear())

    def end_forward(self) -> None:
        """Mark the begin of the backward pass; memory in use now is kept for it."""
        self._forward_end = self.executed

    def finish(self, gradients: Iterable[torch.Tensor]) -> list[Line]:
        """Return the lines, each with the role of its storage; ``gradients`` stay until the step's end."""
        self._watch.stop()
        made, end = {storage_id(gradient) for gradient in gradients}, self._forward_end
        for line in self._lines:
            if line.storage is None:
                line.role = ""
            elif line.storage in made:
                line.role = "gradient"
            else:
                is_saved = end is not None and line.id <= end and (line.freed_by is None or line.freed_by > end)
                line.role = "activation" if is_saved else "temporary"
        return [*self._resident, *self._fused()]

    def _fused(self) -> Iterator[Line]:
        """Yield the lines without the inner memory of decomposed attention, which a fused kernel keeps on chip."""
        for _, run in groupby(self._lines, key=lambda line: id(line.row)):
            lines = list(run)
            row, last = lines[0].row, lines[-1].id
            if row is None or row.kind != "attention":
                yield from lines
                continue
            seen = {number for line in lines if (number := line.storage) is not None and self._leaves(line, last)}
            for place, line in enumerate(lines):
                if line.storage in seen:
                    yield line
                elif place == 0:
                    yield Line(line.id, row)

    def _leaves(self, line: Line, last: int) -> bool:
        if line.row is not None and line.row.pass_name == FORWARD:
            return line.storage in self._attended
        return line.freed_by is None or line.freed_by > last


WORDS: Mapping[str, str] = {
    "Conv": "conv", "ConvTranspose": "transposed_conv", "Linear": "linear", "Embedding": "embedding",
    "ReLU": "relu", "GELU": "gelu", "Softmax": "softmax", "LocalResponseNorm": "lrn", "BatchNorm": "batch_norm",
    "LayerNorm": "layer_norm", "GroupNorm": "group_norm", "MaxPool": "pool", "AvgPool": "pool",
    "AdaptiveMaxPool": "pool", "AdaptiveAvgPool": "pool", "Dropout": "dropout", "Flatten": "flatten",
    "LSTM": "lstm", "GRU": "gru", "RNN": "rnn", "MultiheadAttention": "attention",
    "aten::cat": "concat", "aten::native_dropout": "dropout", "aten::_softmax": "softmax",
    "aten::scaled_dot_product_attention": "attention",
}  # fmt: skip
"""Types of layers by the framework's name, without axes; any other layer goes by its own name."""

_NAMED_AXES = re.compile(r"[123]d$")


def module_word(module: torch.nn.Module) -> str:
    """Return the type of a module."""
    name = type(module).__name__
    return WORDS.get(_NAMED_AXES.sub("", name), name)


def function_word(op: str) -> str:
    """Return the type of a function by its op; the in-place spelling has the same type."""
    return WORDS.get(op, op.partition("::")[2].rstrip("_") or op)


def is_layer(module: torch.nn.Module) -> bool:
    """Return whether a module is a layer: no children, or a module of torch.nn with parameters of its own."""
    if not any(True for _ in module.children()):
        return True
    own = any(True for _ in module.parameters(recurse=False))
    return own and type(module).__module__.startswith("torch.nn.")


def arrays_of(values: Any) -> tuple[Array, ...]:
    """Describe the distinct tensors among values; an LSTM's last state, for example, occurs twice."""
    return tuple(dict.fromkeys(map(as_array, tensors_of(values))))


def _weights(module: torch.nn.Module, *, inside: bool) -> Iterator[Weight]:
    bias = getattr(module, "bias", None)
    for parameter in module.parameters(recurse=inside):
        byte = parameter.numel() * parameter.element_size()
        yield Weight(id(parameter), parameter.numel(), byte, parameter is bias)


def layer_rows(log: LayerLog, model: torch.nn.Module) -> list[TracedOp]:
    """Return the layers seen, and the modules with parameters that no seen layer has."""
    named = model.named_modules()
    return log.rows((module_word(module), path, _weights(module, inside=False)) for path, module in named)


def _watch_layer(module: torch.nn.Module, path: str, log: LayerLog) -> Iterator[Any]:
    def before(_module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        log.enter(path, arrays_of((args, kwargs)))

    def after(module: torch.nn.Module, _args: Any, output: Any) -> None:
        is_dropout = isinstance(module, torch.nn.modules.dropout._DropoutNd)
        weights = _weights(module, inside=True)
        log.leave(module_word(module), weights, arrays_of(output), is_dropout=is_dropout)

    # Before the hook that sets the first states of recurrent layers, which are the layer's own.
    yield module.register_forward_pre_hook(before, prepend=True, with_kwargs=True)
    yield module.register_forward_hook(after)


@contextmanager
def watch_layers(model: torch.nn.Module, *, once: bool = False) -> Iterator[LayerLog]:
    """Record the layers of a model's forward pass inside the block; with ``once``, of the first pass only."""
    log = LayerLog(function_word, once=once)

    def begin(_module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        log.begin(arrays_of((args, kwargs)))

    def end(_module: torch.nn.Module, _args: Any, _output: Any) -> None:
        log.end()

    with ExitStack() as handles:
        for path, module in model.named_modules():
            if is_layer(module) and not isinstance(module, torch.jit.ScriptModule):
                for handle in _watch_layer(module, path, log):
                    handles.callback(handle.remove)
        if not isinstance(model, torch.jit.ScriptModule):
            handles.callback(model.register_forward_pre_hook(begin, prepend=True, with_kwargs=True).remove)
            handles.callback(model.register_forward_hook(end).remove)
        yield log


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
    """Return whether an optimizer's class has a cost formula; another optimizer does what its own code does."""
    return type(optimizer) in RULES


def _twin(optimizer: torch.optim.Optimizer, stand_ins: Mapping[int, torch.Tensor]) -> Any:
    """Return an optimizer of the same code and options for the stand-ins, optimizers inside it likewise.

    They share nothing: a copy has the stand-ins in its memo. A scheduler binds ``step`` to the given optimizer.
    """
    twin: Any = object.__new__(type(optimizer))
    for name, value in vars(optimizer).items():
        if isinstance(value, torch.optim.Optimizer):
            vars(twin)[name] = _twin(value, stand_ins)
        elif name.endswith("_hooks"):
            vars(twin)[name] = type(value)()
        elif name not in ("step", "state"):
            vars(twin)[name] = deepcopy(value, dict(stand_ins))
    twin.state = defaultdict(dict)
    return twin


def updated_often(optimizer: torch.optim.Optimizer, stand_ins: Mapping[int, torch.Tensor]) -> Any:
    """Return a twin of an optimizer for the stand-ins by ``id``, after six updates; rectified rules start late."""
    twin = _twin(optimizer, stand_ins)
    for _ in range(6):
        twin.step()
    return twin


def make_optimizer(given: Any, model: torch.nn.Module, where: str) -> torch.optim.Optimizer | None:
    """Return the optimizer of the shape-only model: the given one, or the result of the given function."""
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


def with_gradients(
    optimizer: torch.optim.Optimizer, stand_ins: Mapping[int, torch.Tensor]
) -> Iterator[tuple[Group, dict[str, list[torch.Tensor]]]]:
    """Yield each parameter group with its parameters that have a gradient, by number format."""
    for group in optimizer.param_groups:
        by_dtype: dict[str, list[torch.Tensor]] = {}
        for parameter in group["params"]:
            traced = stand_ins.get(id(parameter), parameter)
            if traced.grad is not None:
                by_dtype.setdefault(dtype_name(traced.dtype), []).append(traced)
        yield group, by_dtype


def kernels_before(group: Group, rule: str) -> list[tuple[str, int]]:
    """Return the kernels that an unfused update runs before its rule, with the number of tensors that each reads.

    With ``maximize`` the gradient is negated first. Weight decay adds a share of each parameter to its gradient.
    Decoupled weight decay shrinks the parameter itself; the rule of AdamW includes it.
    """
    found = [("maximize", 1)] if group.get("maximize") else []
    if group.get("weight_decay") and not rule.startswith("adamw"):
        found.append(("weight_decay", 1 if group.get("decoupled_weight_decay") else 2))
    return found


def _rows_before(group: Group, rule: str, parameters: list[torch.Tensor], impl: str) -> list[TracedOp]:
    """Return rows for the kernels that run before the rule; a fused update includes them."""
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
    rows, notes = [], []
    for group, by_dtype in groups:
        impl = "fused" if group.get("fused") else "per_tensor" if group.get("foreach") is False else "foreach"
        if impl == "foreach" and group.get("foreach") is None:
            notes.append(_BY_DEFAULT)
        rule = rule_of(group)
        gradients = [parameter.grad for parameters in by_dtype.values() for parameter in parameters]
        if any(gradient is not None and gradient.layout is not torch.strided for gradient in gradients):
            notes.append("optimizer: sparse gradients are priced as if every row of their tables were updated")
        for dtype, parameters in by_dtype.items():
            rows.extend(update_rows(op, rule, impl, [(dtype, one.numel()) for one in parameters]))
            rows += _rows_before(group, rule, parameters, impl)
    optimizer = {name: str(rows[0].dimensions[name]) for name in ("rule", "impl")} if rows else {}
    if rows and _BY_DEFAULT in notes:
        optimizer["impl_from"] = IMPL_BY_DEFAULT
    return Update(rows, "", list(dict.fromkeys(notes)), optimizer)


def trace_update(
    optimizer: torch.optim.Optimizer | None, stand_ins: Mapping[int, torch.Tensor], *, failed: str | None = None
) -> Update:
    """Describe one update of the parameters with a gradient, or of their stand-ins by ``id``.

    `failed`: why the ops of an update without a formula were not recorded; "" where they were.
    """
    if optimizer is None:
        return Update(notes=["no optimizer is given: the update is not counted"])
    name = type(optimizer).__name__
    rule_of = RULES.get(type(optimizer))
    if failed == "":
        return Update(notes=[f"optimizer: {name} has no formula, so the ops that its code runs are counted"])
    if rule_of is None:
        known = ", ".join(rule.__name__ for rule in RULES)
        hint = (
            f"the update of {name} is not counted: only torch.optim's own {known} have a formula"
            f"{f', and its own code did not run ({failed})' * bool(failed)}. A training program that runs it "
            "(--script) shows its ops"
        )
        return Update([], f"optimizer {name}", [hint])
    return _groups_rows(with_gradients(optimizer, stand_ins), rule_of, f"{name}.step")


def made_byte(group: Mapping[str, Any], rule: str, impl: str, sizes: Sequence[int]) -> int:
    """Return the most memory that an update allocates at once [byte], for parameters of these sizes [byte]."""
    if impl == "fused":
        return 0
    copies = COPIES[rule]
    changes_gradients = any(name == "maximize" or inputs > 1 for name, inputs in kernels_before(group, rule))
    if impl == "foreach":
        return sum(sizes) * (copies.listed_decayed if changes_gradients else copies.listed)
    return int(per_tensor_peak_byte(copies, sizes, int(changes_gradients)))


def update_lines(
    optimizer: torch.optim.Optimizer | None,
    stand_ins: Mapping[int, torch.Tensor],
    rows: Sequence[TracedOp],
    modules: Mapping[int, str],
    executed: int,
) -> Iterator[Line]:
    """Return the lines of an update.

    `stand_ins`: the traced parameter by the ``id`` of the optimizer's; `rows`: the rows of the update; `modules`:
    path of the module of each traced parameter by its ``id``; `executed`: ops executed before.
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

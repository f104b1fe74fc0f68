"""Record every op that PyTorch dispatches, with its pass, its module and the row that it is part of, if any.

`Recorder` is the dispatch mode; `ScopeStack` finds the module of an op, `LineLog` its line of code.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Any

import torch
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes, _pop_mode_temporarily
from torch.utils._pytree import tree_map

from fomkit.frontends.layers import LayerLog, RowOwner, Scope
from fomkit.frontends.lowering import calls, products
from fomkit.frontends.lowering.calls import BACKWARD, FORWARD, UPDATE, WEIGHT_GRADIENT, Call, Rule, TracedOp
from fomkit.frontends.model_file import CodeLines
from fomkit.frontends.step import Step, Update
from fomkit.frontends.torch.calls import (
    MOST_UPDATED,
    OpFacts,
    all_tensors_at_once,
    describe_call,
    facts_of,
    storage_id,
    tensors_in,
    tensors_of,
    unwrapped,
    with_data,
)
from fomkit.frontends.torch.forms import KnownForms, has_form, wraps_tensors
from fomkit.frontends.torch.order import Line, OrderLog, updated_often

_KEYS = count()

Node = Any
"""An autograd node; PyTorch has no public type for it."""

_VIEWS = """T Transpose Permute View UnsafeView ReshapeAlias Expand ToCopy Slice Select Split SplitWithSizes Unbind
    Alias Squeeze Unsqueeze AsStrided Clone"""
_SAME_VALUES = frozenset(f"{name}Backward{version}" for name in _VIEWS.split() for version in ("", "0", "1"))
"""Nodes that pass a gradient on without combining it with others: views, casts and copies."""


def _is_parameter_edge(node: Node, parameters: Mapping[int, torch.Tensor]) -> bool:
    """Return whether a gradient sent to this node reaches a parameter, through `_SAME_VALUES` at most."""
    while node is not None:
        variable = getattr(node, "variable", None)
        if variable is not None:
            inside = unwrapped(variable)
            # torch.func differentiates by tensors that share the memory of parameters.
            shares = inside is not variable and storage_id(inside) in {
                storage_id(one) for one in parameters.values() if not is_lazy(one)
            }
            return id(inside) in parameters or shares
        if node.name() not in _SAME_VALUES:
            return False
        node = node.next_functions[0][0]
    return False


@dataclass(eq=False, slots=True)
class ScopeStack:
    """The calls now running, the loss at the bottom, and the scope of every autograd node that they made.

    PyTorch's own module tracker assigns backward ops of branching networks to the wrong module. Tagging the nodes
    is exact: when a call begins, the nodes behind its inputs belong to the caller; when it ends, the new nodes
    behind its outputs are its own.

    `on_gradients`: called when a node has run, with those of its results that are gradients of parameters.
    `key`: under which a node stores its scope; differs by step, since a parameter's node may outlive a step.
    """

    parameters: dict[int, torch.Tensor]
    on_gradients: Callable[[list[torch.Tensor]], None]
    running: list[Scope] = field(default_factory=lambda: [Scope("loss")])
    key: int = field(default_factory=partial(next, _KEYS))

    def scope_of(self, node: Node) -> Scope | None:
        """Return a node's scope, stored in the node itself: a list here would keep alive what nodes hold."""
        found: Scope | None = node.metadata.get(self.key)
        return found

    @property
    def top(self) -> Scope:
        """The innermost call now running."""
        return self.running[-1]

    def runs_call(self, node: Node) -> bool:
        """Tell whether what runs is a call; else a backward pass runs, perhaps one within a call (a penalty)."""
        return len(self.running) > 1 and (node is None or self.top.runs_again)

    def enter(self, path: str, inputs: Any, row: TracedOp | None = None) -> None:
        """Begin a call."""
        self.tag(inputs, self.top)
        owner = self.top.owner
        if row is not None and owner is None:
            owner = RowOwner(row)
        again = torch._C._current_autograd_node() is not None
        self.running.append(Scope(path, owner, runs_again=again))

    def leave(self, outputs: Any) -> None:
        """End the innermost call."""
        self.tag(outputs, self.running.pop())

    def tag(self, values: Any, scope: Scope) -> None:
        """Assign the autograd nodes behind some tensors to a scope, up to nodes that have a scope already."""
        with torch._C.DisableTorchFunction():  # looking at a tensor is no call of the user's
            waiting: list[Node] = [tensor.grad_fn for tensor in tensors_of(values) if tensor.requires_grad]
        while waiting:
            node = waiting.pop()
            if node is None or self.scope_of(node) is not None:
                continue
            node.metadata[self.key] = scope
            following = node.next_functions
            self.watch(node, following)
            waiting += [successor for successor, _ in following]

    def watch(self, node: Node, following: Iterable[tuple[Node, int]]) -> None:
        """Report the gradients of parameters that a node makes; it sends gradients to those ``following``."""
        to_parameters = [_is_parameter_edge(successor, self.parameters) for successor, _ in following]
        if not any(to_parameters):
            return

        # The hook must not hold the node, since the node holds the hook.
        def after(gradients: tuple[Any, ...], _: Any) -> None:
            pairs = zip(gradients, to_parameters, strict=False)
            self.on_gradients([one for one, wanted in pairs if wanted and isinstance(one, torch.Tensor)])

        node.register_hook(after)


def _next_number() -> int:
    number: Any = torch._C._autograd._get_sequence_nr()
    return int(number)


class LineLog:
    """Records the lines of code that made autograd nodes.

    `made`: by module path, the line that made the module; a Sequential calls its modules without a user's line.
    """

    def __init__(self, code: CodeLines, made: Mapping[str, str]) -> None:
        self._code, self._made = code, made
        self._of_nodes: dict[int, str] = {}
        self._numbered = _next_number()
        self._last = ""

    def find(self, node: Node, path: str, *, in_call: bool) -> str:
        """Return the line of the op that is now dispatched.

        `node`: the autograd node that now runs; `path`: of the module whose call runs; `in_call`: whether a call
        runs too; inside the backward pass this is a repeated forward pass (checkpointing).
        """
        if node is None or in_call:
            line = self._code.of(sys._getframe(1)) or self._made.get(path, "")
        else:
            # The node that accumulates a parameter's gradient has no number; it runs right after the op that made
            # the gradient.
            line = self._of_nodes.get(node._sequence_nr(), self._last)
        number = _next_number()
        for made in range(self._numbered, number):
            # An op that writes into a view numbers one more node at its end.
            self._of_nodes[made] = line if made == number - 1 else self._last
        self._numbered, self._last = number, line
        return line


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records one step.

    `on_meta`: whether tensors are on the meta device; any other tensor (a constant in the user's code) is replaced
      by its shape where it meets them.

    `ops`: in order; a row found at the call is at the place of its first op.
    `states`: ops seen, by state: priced, zero_work, unsupported.
    `unsupported`, `bounded`: ops without a price, and those whose price is a lower bound, by name.
    `recomputed`: forward ops that ran again in the backward pass (activation checkpointing).
    `as_forward`: ops of the backward pass whose cost is that of the forward pass, which they are listed in.
    `between`: the pass of ops outside calls and outside the backward pass.
    `layers`: log of the ops with work in the model's forward pass.
    `made`: the line of code that made each module, by path.
    `places`: after `finish`, the position of each op in the step, by its ``id()``.
    """

    def __init__(self, parameters: Sequence[torch.Tensor], *, on_meta: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.layers: LayerLog | None = None
        self._parameters = {id(parameter): parameter for parameter in parameters}
        self._on_meta = on_meta
        self._code, self.made = CodeLines(), dict[str, str]()
        self.forget()

    def forget(self) -> None:
        """Start again, between two calls of the user's; earlier records are no part of the step."""
        self.ops: list[TracedOp] = []
        self.states: Counter[str] = Counter()
        self.unsupported: Counter[str] = Counter()
        self.bounded: Counter[str] = Counter()
        self.recomputed = self.as_forward = 0
        self.notes: list[str] = []
        self.in_backward, self.between = False, FORWARD
        self.order = OrderLog()
        self.updated: Any = None
        self.places: dict[int, int] = {}
        self._forms = KnownForms()
        self.stack = ScopeStack(self._parameters, self._note_gradients)
        self._lines = LineLog(self._code, self.made)
        self._now_at: dict[str, int] = {}
        self._node: Node = None
        self._node_ops: list[tuple[TracedOp, set[int]]] = []
        self._gradients: set[int] = set()
        self._last_backward = self.stack.top

    def note(self, text: str) -> None:
        """Add a remark for the profile."""
        if text not in self.notes:
            self.notes.append(text)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run an op and record it."""
        if own := [kind.__name__ for kind in types if wraps_tensors(kind)]:
            self.note(f"{own[0]}: its ops are those that its code runs here; on an accelerator it may run others")
            return NotImplemented
        kwargs, facts = kwargs or {}, facts_of(func)
        if facts.state == "framework":
            return func(*args, **kwargs)
        if facts.state == "composite":  # only inference_mode dispatches these undivided
            with self:
                return func.decompose(*args, **kwargs)
        # The framework computes shapes in Python too; modes that watch the user's calls must ignore that.
        with torch._C.DisableTorchFunction():
            self.order.hold((args, kwargs), "input")
            node: Node = torch._C._current_autograd_node()
            in_call = self.stack.runs_call(node)
            line = self._lines.find(node, self.stack.top.path, in_call=in_call)
            self._now_at = {line: 1} if line else {}
            if self._on_meta:
                args, kwargs = _all_meta(facts, args, kwargs)
            results = self._forms.run(func, args, kwargs, in_place=facts.rule is calls.pointwise)
            stored = [one.is_sparse or one.is_sparse_csr for one in tensors_in(args)]
            if stored.count(True) > 1 and not calls.has_bound(facts.name):  # the result's zeros depend on both
                facts = replace(facts, name=f"{facts.name} of sparse matrices", state="unsupported", rule=None)
            is_aten = facts.state == "unsupported" and facts.name.startswith("aten::")
            rule = calls.other if is_aten and calls.has_bound(facts.name) else facts.rule
            self.states["priced" if rule else facts.state] += 1
            rows: list[TracedOp] = []
            if facts.state == "unsupported" or products.is_sequential(facts.name):
                (self.bounded if rule else self.unsupported)[facts.name] += 1
            if rule is not None:
                call = describe_call(facts, args, kwargs, results)
                rows = self._record(call, rule)
                if self.layers is not None and in_call and not self.in_backward:
                    self.layers.note_op(call, self.stack.top)
            self.order.note(rows, results, *self._around())
        return results

    def _record(self, call: Call, rule: Rule) -> list[TracedOp]:
        scope, now = self._place()
        rows = []
        for work in calls.works_of(call, rule):
            pass_name = work.pass_name or now
            op = TracedOp(call.op, work.kind, work.dimensions, work.dtype, pass_name, scope.path)
            op.lines = self._now_at
            by_gradient = op.kind == "gemm"
            if scope.owner is None:
                self.ops.append(op)
                rows.append(op)
            else:
                row = self._row(scope.owner, now)
                row.parts.append(op)
                rows.append(row)
                by_gradient |= row.kind == "rnn"
                if row.pass_name == FORWARD:
                    op.pass_name = FORWARD
            self.as_forward += now == BACKWARD and op.pass_name == FORWARD
            if op.pass_name == BACKWARD:
                self._track_gradients(op if by_gradient else None, call)
        return rows[:1] if scope.owner is not None else rows

    def _around(self) -> tuple[str, str, TracedOp | None]:
        """Return module and pass in which the op just recorded ran, and the row that it is part of, if any."""
        node: Node = torch._C._current_autograd_node()
        is_gradient = node is not None and not self.stack.runs_call(node)
        scope = self._maker(node) if is_gradient else self.stack.top
        row = scope.owner and (scope.owner.backward if is_gradient else scope.owner.row)
        pass_name = BACKWARD if self.in_backward or node is not None else FORWARD
        return scope.path, pass_name, row if row and row.parts else None

    def _row(self, owner: RowOwner, pass_name: str) -> TracedOp:
        """Return the row that an op inside ``owner`` belongs to; its first op adds the row to the list."""
        is_gradient = pass_name == BACKWARD and not self.stack.runs_call(torch._C._current_autograd_node())
        row = owner.in_pass(BACKWARD if is_gradient else FORWARD)
        if not row.parts:
            row.lines = self._now_at
            self.ops.append(row)
        return row

    def _place(self) -> tuple[Scope, str]:
        """Return the scope that runs the op, and the pass."""
        node: Node = torch._C._current_autograd_node()
        if node is not self._node:
            self._node, self._node_ops = node, []
        if self.stack.runs_call(node):  # a call is running: forward, or repeated inside the backward pass
            self.recomputed += node is not None
            return self.stack.top, BACKWARD if node is not None else FORWARD
        if node is not None:
            self._last_backward = self._maker(node)
            return self._last_backward, BACKWARD
        now = BACKWARD if self.in_backward else self.between
        return Scope("") if now == UPDATE else self.stack.top, now

    def _maker(self, node: Node) -> Scope:
        """Return the call that made a node; if that call has not ended, the call that is running."""
        around = self.stack.top if len(self.stack.running) > 1 else self._last_backward
        return self.stack.scope_of(node) or around

    def _track_gradients(self, op: TracedOp | None, call: Call) -> None:
        """Track which storages hold gradients of parameters, and thereby which ops make them.

        Sums of such gradients are gradients of parameters too. A storage newly made by another op is not, even if
        its number was in the set.
        """
        sources = {array.storage for array in call.read}
        results = {array.storage for array in call.written}
        inherits = bool(sources) and sources <= self._gradients
        self._gradients = self._gradients | results if inherits else self._gradients - (results - sources)
        if op is not None:
            if inherits:
                op.pass_name = WEIGHT_GRADIENT
            self._node_ops.append((op, results))

    def _note_gradients(self, gradients: list[torch.Tensor]) -> None:
        made = {storage_id(gradient) for gradient in gradients}
        self._gradients |= made
        if torch._C._current_autograd_node() is not self._node:
            return
        for op, results in self._node_ops:
            if results & made:
                op.pass_name = WEIGHT_GRADIENT
            elif op.kind == "gemm" and op.pass_name == BACKWARD:
                op.pass_name = calls.INPUT_GRADIENT

    @property
    def checkpoint_notes(self) -> list[str]:
        """Notes on ops that ran again, and on those among the forward ones that the backward pass runs."""
        again = f"{self.recomputed} ops of the forward pass run again in the backward pass (checkpointing)"
        kept = "forward convolutions, attention and recurrent layers of the backward pass count as forward"
        return [again] * bool(self.recomputed) + [kept] * bool(self.as_forward)

    def record_update(self, optimizer: torch.optim.Optimizer, stand_ins: Mapping[int, torch.Tensor]) -> str:
        """Record the ops of an update without a formula, as its own code runs them; return why not, or "".

        Six updates run before, which make its state. Code that reads values gets parameters with data; counters
        have values in any case, since they are made outside the modes of the user's code.
        """
        parameters = (one for group in optimizer.param_groups for one in group["params"])
        held = {id(one): stand_ins.get(id(one), one) for one in parameters}
        order, marks, self.between = self.order, self._marks(), UPDATE
        try:
            try:
                with torch._C.DisableTorchFunction(), all_tensors_at_once():
                    with _pop_mode_temporarily():
                        self.updated = updated_often(optimizer, held)
                    order.hold([*self.updated.state.values()], "state")
                    self.updated.step()
            except Exception:  # it reads values of tensors
                self._back_to(marks)
                if sum(one.numel() for one in held.values()) > MOST_UPDATED:
                    return f"it reads values, and there are more than {MOST_UPDATED:,} parameters"
                self._update_with_data(optimizer, held)
        except Exception as error:  # the user's optimizer may raise anything
            self.order = order
            self._back_to(marks)
            return f"it raises {type(error).__name__}: {' '.join(str(error).split())}"
        finally:
            self.order, self.between = order, FORWARD
        return "" if len(self.ops) > marks[0] else "it ran no op"

    def _update_with_data(self, optimizer: torch.optim.Optimizer, held: Mapping[int, torch.Tensor]) -> None:
        """Record an update of parameters with data, which are no memory of the step."""
        with torch._C.DisableTorchFunction(), all_tensors_at_once(), _disable_current_modes():
            self.updated = updated_often(optimizer, with_data(held))
            self.order.hold([*self.updated.state.values()], "state")
            self.order = OrderLog()
            with self:
                self.updated.step()
        self.note("what the update allocates for a short time is not part of the memory")

    def _marks(self) -> tuple[Any, ...]:
        """Return how much is recorded, for `_back_to`."""
        return len(self.ops), self.states.copy(), self.unsupported.copy(), self.bounded.copy(), self.order.mark()

    def _back_to(self, marks: tuple[Any, ...]) -> None:
        del self.ops[marks[0] :]
        self.states, self.unsupported, self.bounded = (one.copy() for one in marks[1:4])
        self.order.back_to(marks[4])

    @contextmanager
    def backward(self, outputs: Any) -> Iterator[None]:
        """Run a backward pass inside the block; ``outputs``, such as a loss, belong to the program itself."""
        self.stack.tag(outputs, self.stack.top)
        self.in_backward = True
        self.order.end_forward()
        yield
        self.in_backward = False

    def finish(self, notes: list[str]) -> Step:
        """Return the recorded step without its update, recurrent backward rows split into their two gradients."""
        found: list[TracedOp] = []
        for op in self.ops:
            self.places[id(op)] = len(found)
            found += calls.split_gradients(op)
        return Step(found, self.states, self.unsupported, {}, notes, bounded=self.bounded)

    def with_update(self, step: Step, update: Update, lines: Iterable[Line], layers: Iterable[TracedOp]) -> Step:
        """Append the update, then the layers, to the ops of a finished step; the lines are its order."""
        self.places.update((id(row), len(step.ops) + place) for place, row in enumerate(update.rows))
        step.add_update(update)
        step.order.extend(line.traced(self.places) for line in lines)
        step.ops.extend(layers)
        return step


def _all_meta(facts: OpFacts, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, Any]:
    """Remove the data of constants that meet tensors without data; constants among themselves keep it."""
    if len({tensor.is_meta for tensor in tensors_in((*args, *kwargs.values()))}) < 2:
        return args, kwargs
    written = (args[facts.parameters.index(name)] for name in facts.written)
    if any(isinstance(one, torch.Tensor) and not one.is_meta for one in written):
        raise RuntimeError("a constant is overwritten with values that have no data")
    to_meta = partial(tree_map, lambda leaf: has_form(leaf).to("meta") if isinstance(leaf, torch.Tensor) else leaf)
    return to_meta(args), to_meta(kwargs)

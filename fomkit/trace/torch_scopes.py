"""Who ran an op: module calls as scopes, and the autograd nodes that carry a scope over to the backward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from fomkit.trace.calls import TracedOp


@dataclass(eq=False, slots=True)
class RowScope:
    """One execution of something that is a row of its own, with the row of each pass."""

    row: TracedOp
    backward: TracedOp | None = None


@dataclass(eq=False, slots=True)
class Scope:
    """One execution of a module or function: the module's path and the row that it lies in, if any."""

    path: str
    owner: RowScope | None = None


_KEYS = count()

Node = Any
"""An autograd node; PyTorch has no public type for it."""


_VIEWS = """T Transpose Permute View UnsafeView ReshapeAlias Expand ToCopy Slice Select Split SplitWithSizes Unbind
    Alias Squeeze Unsqueeze AsStrided Clone"""
_SAME_VALUES = frozenset(f"{name}Backward{version}" for name in _VIEWS.split() for version in ("", "0", "1"))
"""Nodes that hand a gradient on without mixing it with others: views, casts and copies."""


def _is_parameter_edge(node: Node, parameters: set[int]) -> bool:
    """Tell whether a gradient sent to this node goes to a parameter, through `_SAME_VALUES` at most."""
    while node is not None:
        variable = getattr(node, "variable", None)
        if variable is not None:
            return id(variable) in parameters
        if node.name() not in _SAME_VALUES:
            return False
        node = node.next_functions[0][0]
    return False


@dataclass(eq=False, slots=True)
class ScopeStack:
    """The calls now running, above all of them the loss, and the scope of every autograd node they made.

    PyTorch's own module tracker puts backward ops of branching networks on the wrong module; tagging the nodes is
    exact: when a call begins, the nodes behind its inputs belong to the caller, and when it ends, the new nodes
    behind its outputs are its own.

    Parameters
    ----------
    parameters : set of int
        ``id`` of each trainable parameter.
    on_gradients : function of a list of tensors
        Called when a node has run, with those of its results that are gradients of parameters.
    key : int
        Under which a node knows its scope; a parameter's node may live on from one step to the next.
    """

    parameters: set[int]
    on_gradients: Callable[[list[torch.Tensor]], None]
    running: list[Scope] = field(default_factory=lambda: [Scope("loss")])
    key: int = field(default_factory=partial(next, _KEYS))

    def scope_of(self, node: Node) -> Scope | None:
        """Give the scope that a node belongs to.

        It is kept in the node's own dictionary: a list of nodes here would keep alive what they hold.
        """
        found: Scope | None = node.metadata.get(self.key)
        return found

    def _keep(self, node: Any, scope: Scope) -> None:
        node.metadata[self.key] = scope

    @property
    def top(self) -> Scope:
        """The innermost call now running."""
        return self.running[-1]

    def enter(self, path: str, inputs: Any, row: TracedOp | None = None) -> None:
        """Begin a call."""
        self.tag(inputs, self.top)
        owner = self.top.owner
        if row is not None and owner is None:
            owner = RowScope(row)
        self.running.append(Scope(path, owner))

    def leave(self, outputs: Any) -> None:
        """End the innermost call."""
        self.tag(outputs, self.running.pop())

    def tag(self, values: Any, scope: Scope) -> None:
        """Give the autograd nodes behind some tensors to a scope, up to nodes that are someone's already."""
        with torch._C.DisableTorchFunction():  # a look at a tensor is no call of the user's
            tensors = (leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor))
            waiting = [tensor.grad_fn for tensor in tensors if tensor.requires_grad]
        while waiting:
            node = waiting.pop()
            if node is None or self.scope_of(node) is not None:
                continue
            self._keep(node, scope)
            following = node.next_functions
            self._watch(node, following)
            waiting += [successor for successor, _ in following]

    def _watch(self, node: Node, following: Iterable[tuple[Node, int]]) -> None:
        to_parameters = [_is_parameter_edge(successor, self.parameters) for successor, _ in following]
        if not any(to_parameters):
            return

        # The hook must not hold the node, which holds the hook.
        def after(gradients: tuple[Any, ...], _: Any) -> None:
            found = [
                gradient
                for gradient, wanted in zip(gradients, to_parameters, strict=False)
                if wanted and isinstance(gradient, torch.Tensor)
            ]
            self.on_gradients(found)

        node.register_hook(after)

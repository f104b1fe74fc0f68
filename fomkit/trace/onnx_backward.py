"""The backward pass of a graph, derived: which gradients are needed, and the steps that make them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from fomkit.trace.calls import BACKWARD, Array, TracedOp
from fomkit.trace.onnx_calls import Executed, Walked, is_float, new_array, reshaped
from fomkit.trace.onnx_gemm import NoRule
from fomkit.trace.onnx_gradients import WITHOUT_GRADIENT, Derived, derive_gradient, takes_gradient
from fomkit.trace.traffic import traffic


@dataclass
class BackwardPass:
    """The derived backward pass.

    Attributes
    ----------
    steps : list of Derived
        In order; the first have no rows: a loss hands its gradients in.
    gradients : dict
        Finished gradients of weights, by the memory that these are read from.
    trained : set of int
        The memory of the weights that get a gradient.
    unsupported : list of str
    """

    steps: list[Derived] = field(default_factory=list)
    gradients: dict[int, Array] = field(default_factory=dict)
    trained: set[int] = field(default_factory=set)
    unsupported: list[str] = field(default_factory=list)


def _reached(walked: Walked, weights: set[int]) -> tuple[set[int], set[int]]:
    """Find the memory that depends on a weight, and that which is made of weights alone."""
    touched, only = set(weights), set(weights)
    for one in walked.ran:
        if one.op in WITHOUT_GRADIENT:
            continue
        sources = [array.storage for at in takes_gradient(one) if (array := one.inputs[at]) is not None]
        made = {array.storage for array in one.outputs if array is not None and is_float(array)}
        if touched & set(sources):
            touched |= made
        if {array.storage for array in one.inputs if array is not None} <= only:
            only |= made
    return touched, only


def derive_backward(walked: Walked, results: Iterable[Array]) -> BackwardPass:
    """Derive the backward pass.

    Parameters
    ----------
    walked : Walked
    results : iterable of Array
        What a loss reads: the graph's outputs.
    """
    own = set(walked.layouts)
    touched, of_weights = _reached(walked, own)
    found = BackwardPass()
    pending: dict[int, list[Array]] = {}
    for array in results:
        if is_float(array) and array.storage in touched and array.storage not in own:
            gradient = new_array(array.shape, array.dtype)
            pending.setdefault(array.storage, []).append(gradient)
            found.steps.append(Derived([], (), (gradient,)))
    for one in reversed(walked.ran):
        given = tuple(None if made is None else _whole(made, one, pending, found) for made in one.outputs)
        if all(gradient is None for gradient in given) or one.op in WITHOUT_GRADIENT:
            continue
        wanted = tuple(at for at in takes_gradient(one) if _storage(one, at) in touched)
        if not wanted:
            continue
        weighty = frozenset(at for at in range(len(one.inputs)) if _storage(one, at) in of_weights)
        try:
            back = derive_gradient(one, given, wanted, weighty)
        except NoRule as missing:
            found.unsupported.append(str(missing))
            continue
        found.steps += back.steps
        for at, gradient in back.found.items():
            pending.setdefault(_storage(one, at), []).append(gradient)
    for storage in sorted(own & pending.keys()):
        found.gradients[storage] = _sum(pending[storage], "", found)
        found.trained |= walked.layouts[storage]
    return found


def _storage(one: Executed, at: int) -> int:
    array = one.inputs[at]
    return 0 if array is None else array.storage


def _whole(array: Array, one: Executed, pending: dict[int, list[Array]], found: BackwardPass) -> Array | None:
    """Give the gradient of an output: all its readers' together."""
    parts = pending.pop(array.storage, None)
    return None if parts is None else reshaped(_sum(parts, one.module, found), array.shape)


def _sum(parts: list[Array], module: str, found: BackwardPass) -> Array:
    """Add up the gradients that several readers give one tensor."""
    total = parts[0]
    for part in parts[1:]:
        made = new_array(total.shape, total.dtype)
        row = TracedOp(
            "SumGrad", "pointwise", traffic(made.numel, [total, part], [made]), made.dtype, BACKWARD, module
        )
        found.steps.append(Derived([row], (total, part), (made,)))
        total = made
    return total

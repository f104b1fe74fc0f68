"""The update as a trace shows it: the calls of one optimizer's step as one row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from fomkit.trace.calls import UPDATE, Array, TracedOp, arrays_in
from fomkit.trace.kineto_call import CallError, loose
from fomkit.trace.kineto_events import Signature

_CLOSING: Mapping[str, tuple[str, ...]] = {
    "SGD": ("add_", "_foreach_add_", "_fused_sgd_"),
    "Adam": ("addcdiv_", "_foreach_addcdiv_", "_fused_adam_"),
    "AdamW": ("addcdiv_", "_foreach_addcdiv_", "_fused_adamw_"),
}
"""By optimizer, the op that changes the parameters, its first argument; of SGD's sums, those by a rate below 0."""


class Entry(NamedTuple):
    """One call of a step: its name without library, and its signature."""

    name: str
    signature: Signature | None


def optimizer_class(annotation: str) -> str:
    """Give the class that an annotation names.

    Examples
    --------
    >>> optimizer_class("Optimizer.step#AdamW.step")
    'AdamW'
    """
    return annotation.partition("#")[2].partition(".")[0]


def _parameters(entry: Entry, usual: str) -> list[Array]:
    if entry.signature is None:
        raise CallError("it has no shapes")
    arguments = loose(entry.signature, usual)
    if entry.name.endswith("add_"):
        rate = arguments[2] if len(arguments) > 2 else None
        if not isinstance(rate, int | float) or rate >= 0:
            return []
    return list(arrays_in(arguments[:1]))


def _rule(kind: str, entries: Iterable[Entry]) -> str:
    names = {entry.name for entry in entries}
    if kind == "SGD":
        buffers = [entry.signature[0] for entry in entries if entry.name == "_fused_sgd_" and entry.signature]
        kept = any(isinstance(dims, list) and len(dims) > 2 and dims[2] for dims in buffers)
        return "momentum" if kept or names & {"mul_", "_foreach_mul_"} else "sgd"
    return kind.lower() + ("_amsgrad" if any("maximum" in name for name in names) else "")


def describe_update(annotation: str, impl: str, entries: Sequence[Entry], usual: str) -> TracedOp | None:
    """Describe one step of an optimizer.

    Parameters
    ----------
    annotation : str
        ``Optimizer.step#Adam.step``.
    impl : str
        per_tensor, foreach or fused.
    entries : sequence of Entry
        Its calls.
    usual : str
        Number format of lists of tensors.

    Returns
    -------
    TracedOp or None
        None for an optimizer whose parameters cannot be told from its calls; these are then rows themselves.
    """
    kind = optimizer_class(annotation)
    closing = [entry for entry in entries if entry.name in _CLOSING.get(kind, ())]
    try:
        parameters = [array for entry in closing for array in _parameters(entry, usual)]
    except CallError:
        return None
    if not parameters:
        return None
    numel = sum(array.numel for array in parameters)
    sizes: dict[str, Any] = {
        "rule": _rule(kind, entries),
        "impl": impl,
        "numel": numel,
        "tensors": len(parameters),
    }
    return TracedOp(f"{kind}.step", "optimizer", sizes, parameters[0].dtype, UPDATE, "")

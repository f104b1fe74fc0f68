"""One step of an ONNX graph: its forward pass, the derived backward pass and update, and what stands in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fomkit.trace.aten_table import works_of
from fomkit.trace.calls import FORWARD, UPDATE, Array, Dimensions, TracedOp
from fomkit.trace.onnx_backward import BackwardPass, derive_backward
from fomkit.trace.onnx_calls import Walked, new_array
from fomkit.trace.onnx_gemm import NoRule
from fomkit.trace.onnx_gradients import Derived
from fomkit.trace.onnx_order import Memory, order_of
from fomkit.trace.onnx_rows import CELLS, kept_byte, parts_of
from fomkit.trace.onnx_shapes import NotAtTheseSizes, Walker
from fomkit.trace.onnx_table import RULES
from fomkit.trace.onnx_weights import Weights
from fomkit.trace.step import Step
from fomkit.trace.symbolic import Sizes
from fomkit.workload import IMPL_BY_DEFAULT

IMPL = "foreach"
"""How the update is taken to run: PyTorch's default on accelerators."""


@dataclass(frozen=True)
class Prepared:
    """A graph ready to be walked.

    Attributes
    ----------
    results : tuple of str
        Names of its outputs.
    modules : mapping
        Path of the module of each weight.
    mode : str
        train or infer.
    rule : str
        Of the optimizer; "" for no update.
    """

    walker: Walker
    weights: Weights
    results: tuple[str, ...]
    modules: Mapping[str, str]
    mode: str
    rule: str


def _forward(walked: Walked, states: Counter[str], unsupported: Counter[str], training: bool) -> list[Derived]:
    """Price the forward pass."""
    found = []
    for one in walked.ran:
        rule = RULES[one.op]
        try:
            works = [] if rule is None else works_of(one.call, rule)
        except NoRule as missing:
            unsupported[str(missing)] += 1
            states["unsupported"] += 1
            continue
        except (ValueError, TypeError, KeyError, IndexError, ZeroDivisionError) as error:
            raise NotAtTheseSizes(f"{one.op} that makes {one.results[0]!r:.80} cannot run: {error}") from error
        states["priced" if works else "zero_work"] += 1
        rows = [
            TracedOp(one.op, work.kind, work.dimensions, work.dtype, work.pass_name or FORWARD, one.module)
            for work in works
        ]
        for row in rows:
            if row.kind in ("rnn", "attention"):
                row.parts = parts_of(one.call, row.dtype, row.module, backward=False)
        if training and one.op in CELLS:
            one.kept.append(new_array((kept_byte(one.call),), "int8"))
        written = tuple(array for array in one.outputs if array is not None)
        found.append(Derived(rows, one.call.read, (*written, *one.kept)))
    return found


def _update(rule: str, updated: Iterable[Array]) -> list[TracedOp]:
    """Describe one update, a row for each number format."""
    by_dtype: dict[str, list[int]] = {}
    for array in updated:
        by_dtype.setdefault(array.dtype, []).append(array.numel)
    rows = []
    for dtype, numels in by_dtype.items() if rule else ():
        sizes: Dimensions = {"rule": rule, "impl": IMPL, "numel": sum(numels), "tensors": len(numels)}
        rows.append(TracedOp("Update", "optimizer", sizes, dtype, UPDATE, ""))
    return rows


def trace_step(prepared: Prepared, sizes: Sizes) -> Step:
    """Walk the graph once at the given sizes.

    Raises
    ------
    NotAtTheseSizes
        When an op cannot run at them.
    """
    walked = prepared.walker.walk(sizes)
    training = prepared.mode == "train"
    unsupported = Counter(walked.unsupported)
    states = Counter(zero_work=walked.without_work, unsupported=len(walked.unsupported))
    forward = _forward(walked, states, unsupported, training)
    weights = {name: walked.arrays[name] for name in prepared.weights.trainable if name in walked.arrays}
    results = [walked.arrays[name] for name in prepared.results if name in walked.arrays]
    backward = BackwardPass()
    rows: list[TracedOp] = []
    if training:
        try:
            backward = derive_backward(walked, results)
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise NotAtTheseSizes(f"the backward pass cannot be derived: {error}") from error
        unsupported.update(backward.unsupported)
        states["unsupported"] += len(backward.unsupported)
        states["priced"] += sum(len(step.rows) for step in backward.steps)
        rows = _update(prepared.rule, (one for one in weights.values() if one.storage in backward.trained))
        states["priced"] += len(rows)
    memory = Memory(
        inputs=walked.inputs,
        weights={name: (array, prepared.modules[name]) for name, array in weights.items()},
        others=[walked.arrays[name] for name in (*prepared.weights.quantised, *prepared.weights.others)
                if name in walked.arrays],
        results=results,
        rule=prepared.rule if training else "",
    )  # fmt: skip
    order = order_of(memory, forward, backward, rows)
    ops = [row for step in (*forward, *backward.steps) for row in step.rows]
    optimizer = {"rule": prepared.rule, "impl": IMPL, "impl_from": IMPL_BY_DEFAULT} if rows else {}
    return Step([*ops, *rows], states, unsupported, optimizer, [], order)

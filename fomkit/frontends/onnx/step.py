"""One step of an ONNX graph: its forward pass, the derived backward pass and update, and what stands in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fomkit.core.model import IMPL_BY_DEFAULT, STATE_TENSORS
from fomkit.frontends.layers import COPIES
from fomkit.frontends.lowering import calls, onnx_calls
from fomkit.frontends.lowering.calls import BACKWARD, FORWARD, Array, TracedOp, traffic
from fomkit.frontends.lowering.onnx import RULES, NoRule
from fomkit.frontends.lowering.onnx_calls import CELLS, Executed, Walked, is_float, new_array, parts_of, reshaped
from fomkit.frontends.lowering.onnx_gradients import WITHOUT_GRADIENT, Derived, derive_gradient, takes_gradient
from fomkit.frontends.onnx.file import Weights
from fomkit.frontends.onnx.shapes import NotAtTheseSizes, Walker
from fomkit.frontends.sizes import Sizes
from fomkit.frontends.step import Step, order_line


@dataclass
class BackwardPass:
    """The derived backward pass.

    `steps`: in order; the first have no rows: a loss hands its gradients in.
    `gradients`: finished gradients of weights, by the memory that these are read from.
    `trained`: the memory of the weights that get a gradient.
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
    """Derive the backward pass from the graph's outputs, which a loss reads."""
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


def _storage(executed: Executed, at: int) -> int:
    array = executed.inputs[at]
    return 0 if array is None else array.storage


def _whole(array: Array, executed: Executed, pending: dict[int, list[Array]], found: BackwardPass) -> Array | None:
    """Give the gradient of an output: all its readers' together."""
    parts = pending.pop(array.storage, None)
    return None if parts is None else reshaped(_sum(parts, executed.module, found), array.shape)


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


@dataclass(frozen=True)
class Memory:
    """What stands in memory before a step, and what stays until its end.

    `weights`: array and module of each weight by name.
    `others`: stored tensors that are no weights.
    `results`: the graph's outputs, which a training loop holds through the backward pass.
    `rule`: of the optimizer; "" for no update.
    """

    inputs: Sequence[Array]
    weights: Mapping[str, tuple[Array, str]]
    others: Sequence[Array]
    results: Sequence[Array]
    rule: str


def _line(
    number: int, role: str, byte: int, module: str = "", *, row: int | None = None, freed_by: int | None = None
) -> TracedOp:
    # What runs and has no row is the loss, which hands its gradients in.
    return order_line(number, role, byte, row, freed_by, BACKWARD if number and row is None else "", module)


def order_of(
    memory: Memory, forward: Sequence[Derived], backward: BackwardPass, update: Sequence[TracedOp]
) -> list[TracedOp]:
    """Give the lines of the order; the rows of the update come last."""
    steps = [*forward, *backward.steps]
    firsts, number = [], 1
    for step in steps:
        firsts.append(number)
        number += max(len(step.rows), 1)
    executed = number - 1
    end_of_forward = firsts[len(forward)] - 1 if len(forward) < len(steps) else executed
    last: dict[int, int] = {}
    for first, step in zip(firsts, steps, strict=True):
        for array in (*step.written, *step.read):
            last[array.storage] = max(first + max(len(step.rows), 1) - 1, last.get(array.storage, 0))
    last.update((array.storage, executed) for array in memory.results)
    stays = {array.storage for array in backward.gradients.values()}
    lines = list(_before(memory))
    row = 0
    for first, step in zip(firsts, steps, strict=True):
        lines += _lines_of(step, first, row, last, stays, end_of_forward if backward.steps else 0)
        row += len(step.rows)
    return [*lines, *_update_lines(memory, backward, update, executed, row)]


def _before(memory: Memory) -> Iterator[TracedOp]:
    for array, module in memory.weights.values():
        yield _line(0, "parameter", array.byte, module)
    for array in memory.others:
        yield _line(0, "buffer", array.byte)
    for array in memory.inputs:
        yield _line(0, "input", array.byte)


def _lines_of(
    step: Derived, first: int, row: int, last: Mapping[int, int], stays: set[int], end_of_forward: int
) -> Iterator[TracedOp]:
    """Give the lines of one step: one for each tensor that it makes, one at least for each of its rows."""
    made = list({array.storage: array for array in step.written if array.byte}.values())
    place = row if step.rows else None
    for array in made:
        if array.storage in stays:
            yield _line(first, "gradient", array.byte, row=place)
            continue
        freed = last[array.storage]
        role = "activation" if first <= end_of_forward < freed else "temporary"
        yield _line(first, role, array.byte, row=place, freed_by=freed)
    if not made:
        yield _line(first, "", 0, row=place)
    for at in range(1, len(step.rows)):
        yield _line(first + at, "", 0, row=row + at)


def _update_lines(
    memory: Memory, backward: BackwardPass, update: Sequence[TracedOp], executed: int, row: int
) -> Iterator[TracedOp]:
    updated = [(one, module) for one, module in memory.weights.values() if one.storage in backward.trained]
    for at, op in enumerate(update):
        arrays = [(array, module) for array, module in updated if array.dtype == op.dtype]
        for array, module in arrays:
            if states := STATE_TENSORS[memory.rule]:
                yield _line(0, "state", states * array.byte, module)
        number = executed + 1 + at
        byte = COPIES[memory.rule].listed * sum(array.byte for array, _ in arrays)
        role, freed_by = ("temporary", number) if byte else ("", None)
        yield _line(number, role, byte, row=row + at, freed_by=freed_by)


IMPL = "foreach"
"""How the update is taken to run: PyTorch's default on accelerators."""


@dataclass(frozen=True)
class Prepared:
    """A graph ready to be walked.

    `results`: names of its outputs.
    `modules`: path of the module of each weight.
    `mode`: train or infer.
    `rule`: of the optimizer; "" for no update.
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
            works = [] if rule is None else calls.works_of(one.call, rule)
        except NoRule as missing:
            unsupported[str(missing)] += 1
            states["unsupported"] += 1
            continue
        except (ValueError, TypeError, KeyError, IndexError, ZeroDivisionError) as error:
            raise NotAtTheseSizes(f"{one.op} that makes {one.results[0]!r:.80} cannot run: {error}") from error
        states["priced" if works else "zero_work"] += 1
        rows = []
        for work in works:
            name = work.pass_name or FORWARD
            rows.append(TracedOp(one.op, work.kind, work.dimensions, work.dtype, name, one.module))
        for row in rows:
            if row.kind in ("rnn", "attention"):
                row.parts = parts_of(one.call, row.dtype, row.module, backward=False)
        if training and one.op in CELLS:
            one.saved_for_backward.append(new_array((onnx_calls.saved_byte(one.call),), "int8"))
        written = tuple(array for array in one.outputs if array is not None)
        found.append(Derived(rows, one.call.read, (*written, *one.saved_for_backward)))
    return found


def trace_step(prepared: Prepared, sizes: Sizes) -> Step:
    """Walk the graph once at the given sizes."""
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
        updated = [one for one in weights.values() if prepared.rule and one.storage in backward.trained]
        rows = calls.update_rows("Update", prepared.rule, IMPL, [(one.dtype, one.numel) for one in updated])
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

"""Make a step from an ONNX file, derive its backward pass and update, and draft its profile.

This runs in a child process, because the file may crash the library or exhaust the memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import onnx

from fomkit.core.errors import FomkitError, printable
from fomkit.core.model import BATCH, IMPL_BY_DEFAULT, STATE_TENSORS, Workload
from fomkit.frontends import drafting
from fomkit.frontends.drafting import Request, SizedStep, Traced, run_file_request, trace_sizes
from fomkit.frontends.layers import COPIES
from fomkit.frontends.lowering import calls, onnx_calls
from fomkit.frontends.lowering.calls import BACKWARD, FORWARD, UPDATE, Array, TracedOp, traffic
from fomkit.frontends.lowering.onnx import RULES, NoRule
from fomkit.frontends.lowering.onnx_calls import CELLS, Executed, Walked, is_float, new_array, parts_of, reshaped
from fomkit.frontends.lowering.onnx_gradients import WITHOUT_GRADIENT, Derived, derive_gradient, takes_gradient
from fomkit.frontends.onnx.file import RULE, Weights, find_weights, in_running_order, read_graph, read_inputs
from fomkit.frontends.onnx.known import NotAtTheseSizes, every_op, lift_stored, module_of
from fomkit.frontends.onnx.shapes import Walker
from fomkit.frontends.sizes import Sizes
from fomkit.frontends.step import Draft, Piece, Step, lines_of_op, order_line


@dataclass
class BackwardPass:
    """The derived backward pass.

    `steps`: in order; the first have no rows: they are the loss, which supplies the output gradients.
    `gradients`: finished gradients of weights, by the memory that the weights are read from.
    `trained`: the memory of the weights that get a gradient.
    """

    steps: list[Derived] = field(default_factory=list)
    gradients: dict[int, Array] = field(default_factory=dict)
    trained: set[int] = field(default_factory=set)
    unsupported: list[str] = field(default_factory=list)


def _reached(walked: Walked, weights: set[int]) -> tuple[set[int], set[int]]:
    """Return the memory that depends on a weight, and the memory made of weights alone."""
    dependent, only = set(weights), set(weights)
    for one in walked.ran:
        if one.op in WITHOUT_GRADIENT:
            continue
        sources = [array.storage for at in takes_gradient(one) if (array := one.inputs[at]) is not None]
        made = {array.storage for array in one.outputs if array is not None and is_float(array)}
        if dependent & set(sources):
            dependent |= made
        if {array.storage for array in one.inputs if array is not None} <= only:
            only |= made
    return dependent, only


def derive_backward(walked: Walked, results: Iterable[Array]) -> BackwardPass:
    """Derive the backward pass from the graph's outputs, which a loss reads."""
    own = set(walked.layouts)
    dependent, of_weights = _reached(walked, own)
    found = BackwardPass()
    pending: dict[int, list[Array]] = {}
    for array in results:
        if is_float(array) and array.storage in dependent and array.storage not in own:
            gradient = new_array(array.shape, array.dtype)
            pending.setdefault(array.storage, []).append(gradient)
            found.steps.append(Derived([], (), (gradient,)))
    for one in reversed(walked.ran):
        given: list[Array | None] = []
        for made in one.outputs:
            parts = None if made is None else pending.pop(made.storage, None)
            summed = _summed(parts, one.module, found) if parts else None
            given.append(None if summed is None or made is None else reshaped(summed, made.shape))
        if all(gradient is None for gradient in given) or one.op in WITHOUT_GRADIENT:
            continue
        wanted = tuple(at for at in takes_gradient(one) if _storage(one, at) in dependent)
        if not wanted:
            continue
        weight_inputs = frozenset(at for at in range(len(one.inputs)) if _storage(one, at) in of_weights)
        try:
            back = derive_gradient(one, tuple(given), wanted, weight_inputs)
            gradients = back.found
            found.steps += back.steps
        except NoRule as missing:  # its gradients still reach the ops before it
            found.unsupported.append(str(missing))
            likes = {at: like for at in wanted if (like := one.inputs[at]) is not None}
            gradients = {at: new_array(like.shape, like.dtype) for at, like in likes.items()}
            read = tuple(gradient for gradient in given if gradient is not None)
            found.steps.append(Derived([], read, tuple(gradients.values())))
        for at, gradient in gradients.items():
            pending.setdefault(_storage(one, at), []).append(gradient)
    for storage in sorted(own & pending.keys()):
        found.gradients[storage] = _summed(pending[storage], "", found)
        found.trained |= walked.layouts[storage]
    return found


def _storage(executed: Executed, at: int) -> int:
    array = executed.inputs[at]
    return 0 if array is None else array.storage


def _summed(parts: list[Array], module: str, found: BackwardPass) -> Array:
    """Sum the gradients of one tensor from its readers."""
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
    """The memory that exists before a step or stays until its end.

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


def order_of(
    memory: Memory, forward: Sequence[Derived], backward: BackwardPass, update: Sequence[TracedOp]
) -> list[TracedOp]:
    """Return the lines of the order; the rows of the update come last."""
    steps = [*forward, *backward.steps]
    firsts, number = [], 1
    for step in steps:
        firsts.append(number)
        number += max(len(step.rows), 1)
    executed = number - 1
    end_of_forward = firsts[len(forward)] - 1 if backward.steps else 0
    last: dict[int, int] = {}
    for first, step in zip(firsts, steps, strict=True):
        for array in (*step.written, *step.read):
            last[array.storage] = max(first + max(len(step.rows), 1) - 1, last.get(array.storage, 0))
    last.update((array.storage, executed) for array in memory.results)
    stays = {array.storage for array in backward.gradients.values()}
    lines = [order_line(0, "parameter", one.byte, module=module) for one, module in memory.weights.values()]
    for role, arrays in (("buffer", memory.others), ("input", memory.inputs)):
        lines += [order_line(0, role, array.byte) for array in arrays]
    row = 0
    for first, step in zip(firsts, steps, strict=True):
        made = {array.storage: array for array in step.written if array.byte}.values()
        pieces: list[Piece] = [
            (one.byte, None, "gradient") if one.storage in stays else (one.byte, last[one.storage], "")
            for one in made
        ]
        # The only steps without rows are those of the loss.
        lines += lines_of_op(first, range(row, row + len(step.rows)), pieces, end_of_forward, BACKWARD)
        row += len(step.rows)
    return [*lines, *_update_lines(memory, backward, update, executed, row)]


def _update_lines(
    memory: Memory, backward: BackwardPass, update: Sequence[TracedOp], executed: int, row: int
) -> Iterator[TracedOp]:
    updated = [(one, module) for one, module in memory.weights.values() if one.storage in backward.trained]
    for at, op in enumerate(update):
        arrays = [(array, module) for array, module in updated if array.dtype == op.dtype]
        for array, module in arrays:
            if states := STATE_TENSORS[memory.rule]:
                yield order_line(0, "state", states * array.byte, module=module)
        number = executed + 1 + at
        byte = COPIES[memory.rule].listed * sum(array.byte for array, _ in arrays)
        role, freed_by = ("temporary", number) if byte else ("", None)
        yield order_line(number, role, byte, row + at, freed_by)


IMPL = "foreach"
"""The assumed implementation of the update: PyTorch's default on accelerators."""


@dataclass(frozen=True)
class Prepared:
    """A graph ready to be walked.

    `modules`: path of the module of each weight.
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
            raise NotAtTheseSizes(f"{one.op} that makes {one.result!r:.80} cannot run: {error}") from error
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
    notes = [calls.branch_note(walked.branches)] * bool(walked.branches)
    return Step([*ops, *rows], states, unsupported, optimizer, notes, order)


_FOLDED = "onnx::Conv_"
"""Prefix by which PyTorch's exporter names the weight of a convolution that it has changed."""
_LOSSES = ("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss")


def _weight_modules(nodes: Sequence[Any], names: Sequence[str]) -> dict[str, str]:
    """Return the module of each weight: from the weight's name, else from the op that reads it."""
    readers = {name: module_of(node) for node in reversed(nodes) for name in node.input}
    own = {name: printable(name.rpartition(".")[0])[:200] for name in names if "." in name and "::" not in name}
    return {name: own.get(name, readers.get(name, "")) for name in names}


def _derived_notes(
    nodes: Sequence[Any], weights: Weights, mode: str, rule: str, by_default: bool
) -> Iterator[str]:
    ops = Counter(node.op_type for node in nodes)
    if mode == "train":
        yield (
            "derived, not traced: an ONNX file holds the forward pass; gradients of the ops between a weight and "
            "an output are added by rule, of all weights: the file does not say which are frozen"
        )
        own = any(ops[loss] for loss in _LOSSES)
        yield "the loss is the file's own" if own else "the loss is not in the file and not counted"
        if rule:
            why = "assumed, as none was named; --optimizer names another" if by_default else "as named"
            yield f"optimizer: {rule}, {why}; {IMPL}, the default on accelerators"
        else:
            yield "optimizer: none was named, so the update is not counted"
    yield RULE
    yield from _export_notes(nodes, ops, mode)
    if weights.external:
        yield f"the values of {weights.external} stored tensors are in files beside it, which were not opened"
    if ops["QuantizeLinear"] + ops["DequantizeLinear"]:
        yield "quantised: ops between DequantizeLinear and QuantizeLinear are priced as floating-point ops"


def _folded(nodes: Sequence[Any]) -> int:
    """Count the convolutions that include a folded batch normalisation."""
    if any(node.op_type == "BatchNormalization" for node in nodes):
        return 0
    convolutions = [node for node in nodes if node.op_type == "Conv"]
    return sum(len(node.input) > 1 and node.input[1].startswith(_FOLDED) for node in convolutions)


def _export_notes(nodes: Sequence[Any], ops: Counter[str], mode: str) -> Iterator[str]:
    folded = _folded(nodes)
    keep = "torch.onnx.export(…, training=TrainingMode.TRAINING) keeps it"
    if folded:
        text = f"the export folded batch normalisation into {folded} convolutions"
        yield f"partial: {text}; {keep}" if mode == "train" else text
    elif mode == "train" and not ops["Dropout"] and not ops["BatchNormalization"]:
        yield f"an export for inference has no dropout, and its batch normalisation is folded; {keep}"


def _unsupported_notes(unsupported: Iterable[str], weights: Weights, mode: str) -> Iterator[str]:
    """Yield notes on the consequences of unsupported ops and unknown shapes."""
    missing = list(unsupported)
    if missing and mode == "train":
        yield "partial: the gradient of an unsupported op is not counted, and may not reach the ops before it"
    if weights.external and any("unknown shape" in one for one in missing):
        yield (
            "partial: shapes stored in files beside it are unknown; save the model with small tensors inside, "
            "for example onnx.save(model, path, save_as_external_data=True, size_threshold=1024)"
        )


def _traced_sizes(prepared: Prepared, sizes: Sizes) -> SizedStep:
    """Walk the graph at several sizes.

    One sample needs no sum over samples, so its step differs from that of a batch. If the graph is valid for any
    batch, the ops of two samples are used.
    """
    if sizes.get(BATCH) == 1:
        with suppress(NotAtTheseSizes):
            found = trace_sizes(partial(trace_step, prepared), {**sizes, BATCH: 2})
            if not found.fixed:
                return replace(found, sizes=sizes)
    return trace_sizes(partial(trace_step, prepared), sizes)


def draft_profile(path: Path, request: Request, optimizer: str | None, run: dict[str, int | None]) -> Draft:
    """Walk a file's graph and draft its profile; the rule of the update is sgd by default, which is noted."""
    where = request.where
    model, graph = read_graph(path, where)
    lift_stored(graph)
    inputs = read_inputs(graph, request.sizes, where)
    stored = {one.name for one in graph.initializer}
    nodes = in_running_order(graph, stored | {one.name for one in inputs.inputs}, where)
    weights = find_weights(graph, every_op(nodes))
    training = request.mode == "train"
    if training and not weights.trainable:
        raise FomkitError(
            where, "has no weight in a floating-point format, so there is nothing to train. Profile it with "
                   "--mode infer.")  # fmt: skip
    rule = "" if not training or optimizer == "none" else optimizer or "sgd"
    walker = Walker(model, nodes, inputs, frozenset(weights.trainable), training=training)
    results, modules = tuple(one.name for one in graph.output), _weight_modules(nodes, weights.trainable)
    prepared = Prepared(walker, weights, results, modules, request.mode, rule)
    try:
        sized = _traced_sizes(prepared, inputs.sizes)
    except NotAtTheseSizes as error:
        text = ", ".join(f"{name} {value}" for name, value in inputs.sizes.items())
        of_type = "unsupported type" in str(error)
        do = "Export it with a later opset_version" if of_type else "Give sizes that the model is made for"
        raise FomkitError(where, f"{error}, at {text}. {do}.") from error
    if not sized.step.states["priced"]:
        listed = ", ".join(sized.step.listed_unsupported[:5]) or "none at all"
        raise FomkitError(where, f"has no op of known work: {listed}.")
    notes = [*inputs.notes, *_derived_notes(nodes, weights, request.mode, rule, optimizer is None)]
    notes += _unsupported_notes(sized.step.unsupported, weights, request.mode)
    sizes_of = {one.name: prod(one.dims) for one in graph.initializer}
    trainable = sum(sizes_of[name] for name in weights.trainable)
    whole = trainable + sum(weights.packed.get(name, sizes_of[name]) for name in weights.quantised)
    made_with = drafting.traced_with("onnx", onnx.__version__, "file", request.mode)
    maker = f"{model.producer_name} {model.producer_version}".strip()
    title = printable(f"ONNX graph{f' of {maker}' if maker else ''}"[:120])
    traced = Traced(title, made_with, whole, trainable)
    draft = drafting.make_draft(Workload(None, None, **run), request, traced, sized, notes)  # type: ignore[arg-type]
    if not training:
        return draft
    loss = [] if any(node.op_type in _LOSSES for node in nodes) else ["loss"]
    folded = ["batch normalisation"] if _folded(nodes) else []
    derived = [BACKWARD, *([UPDATE] if rule else [])]
    return replace(draft, missing=[*loss, *folded, *draft.missing], derived=derived)


def main() -> None:
    """Run one request of the parent process."""
    run_file_request(lambda *request, **more: {"draft": asdict(draft_profile(*request, **more))})

"""An ONNX file's draft of a profile, in a child process: the file may crash the library or take all memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import onnx

from fomkit.core.errors import FomkitError, printable
from fomkit.core.model import Workload
from fomkit.frontends import drafting
from fomkit.frontends.drafting import BATCH, Request, SizedStep, Traced, run_file_request, trace_sizes
from fomkit.frontends.lowering.calls import BACKWARD, UPDATE
from fomkit.frontends.onnx.file import RULE, Weights, find_weights, in_running_order, read_graph, read_inputs
from fomkit.frontends.onnx.shapes import NotAtTheseSizes, Walker, module_of
from fomkit.frontends.onnx.step import IMPL, Prepared, trace_step
from fomkit.frontends.sizes import Sizes
from fomkit.frontends.step import Draft

_FOLDED = "onnx::Conv_"
"""How PyTorch's exporter names the weight of a convolution that it has changed."""
_LOSSES = ("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss")


def _modules(nodes: Sequence[Any], names: Sequence[str]) -> dict[str, str]:
    """Give the module of each weight: what its own name says of it, else the op that reads it."""
    readers = {name: module_of(node) for node in reversed(nodes) for name in node.input}
    own = {name: printable(name.rpartition(".")[0])[:200] for name in names if "." in name and "::" not in name}
    return {name: own.get(name, readers.get(name, "")) for name in names}


def _notes(nodes: Sequence[Any], weights: Weights, mode: str, rule: str, by_default: bool) -> Iterator[str]:
    ops = Counter(node.op_type for node in nodes)
    if mode == "train":
        yield (
            "derived, not traced: an ONNX file holds the forward pass; gradients follow from it by rule, of all "
            "that leads from a weight to an output"
        )
        own = any(ops[loss] for loss in _LOSSES)
        yield "the loss is the file's own" if own else "the loss is not in the file and not counted"
        if rule:
            why = "taken, since none was named; --optimizer names another" if by_default else "as named"
            yield f"optimizer: {rule}, {why}; {IMPL}, the default on accelerators"
        else:
            yield "optimizer: none was asked for, so the update is not counted"
    yield RULE
    yield from _of_export(nodes, ops, mode)
    if weights.external:
        yield f"the values of {weights.external} stored tensors are in files beside it, which were not opened"
    if ops["QuantizeLinear"] + ops["DequantizeLinear"]:
        yield "quantised: ops between DequantizeLinear and QuantizeLinear are priced as floating-point ops"


def _folded(nodes: Sequence[Any]) -> int:
    """Count the convolutions that hold a batch normalisation."""
    if any(node.op_type == "BatchNormalization" for node in nodes):
        return 0
    convolutions = [node for node in nodes if node.op_type == "Conv"]
    return sum(len(node.input) > 1 and node.input[1].startswith(_FOLDED) for node in convolutions)


def _as_derived(draft: Draft, nodes: Sequence[Any], rule: str) -> Draft:
    """Mark the passes of a training step that the file does not hold, and name the work that nobody can derive."""
    loss = [] if any(node.op_type in _LOSSES for node in nodes) else ["loss"]
    folded = ["batch normalisation"] if _folded(nodes) else []
    derived = [BACKWARD, *([UPDATE] if rule else [])]
    return replace(draft, missing=[*loss, *folded, *draft.missing], derived=derived)


def _of_export(nodes: Sequence[Any], ops: Counter[str], mode: str) -> Iterator[str]:
    folded = _folded(nodes)
    keep = "torch.onnx.export(…, training=TrainingMode.TRAINING) keeps it"
    if folded:
        text = f"the export folded batch normalisation into {folded} convolutions"
        yield f"partial: {text}; {keep}" if mode == "train" else text
    elif mode == "train" and not ops["Dropout"] and not ops["BatchNormalization"]:
        yield f"an export for inference has no dropout, and its batch normalisation is folded; {keep}"


def _of_unsupported(unsupported: Iterable[str], weights: Weights, mode: str) -> Iterator[str]:
    """Say what an op without a rule, or of unknown shape, keeps from being known."""
    missing = list(unsupported)
    if missing and mode == "train":
        yield "partial: no gradient goes through an op that is unsupported, so those before it may lack theirs"
    if weights.external and any("unknown shape" in one for one in missing):
        yield (
            "partial: shapes that stand in files beside it are not known; write it with small tensors inside, for "
            "example onnx.save(model, path, save_as_external_data=True, size_threshold=1024)"
        )


def _sized(prepared: Prepared, sizes: Sizes) -> SizedStep:
    """Walk the graph at several sizes.

    One sample needs no sum over samples, so its step is not that of a batch. The ops of two are taken for it where
    the graph holds for any batch.
    """
    if sizes.get(BATCH) == 1:
        with suppress(NotAtTheseSizes):
            found = trace_sizes(partial(trace_step, prepared), {**sizes, BATCH: 2})
            if not found.fixed:
                return replace(found, sizes=sizes)
    return trace_sizes(partial(trace_step, prepared), sizes)


def draft_profile(path: Path, request: Request, optimizer: str | None, run: dict[str, int | None]) -> Draft:
    """Walk a file's graph.

    `optimizer`: rule of the update, ``none`` for none; default: sgd, and a note says so; `run`: ``train_samples``
    and ``epochs``, where they are known.
    """
    where = request.where
    model, graph = read_graph(path, where)
    inputs = read_inputs(graph, request.sizes, where)
    stored = {one.name for one in graph.initializer}
    nodes = in_running_order(graph, stored | {one.name for one in inputs.inputs}, where)
    weights = find_weights(graph, nodes)
    training = request.mode == "train"
    if training and not weights.trainable:
        raise FomkitError(
            where, "has no weight in a floating-point format, so there is nothing to train. Profile it with "
                   "--mode infer.")  # fmt: skip
    rule = "" if not training or optimizer == "none" else optimizer or "sgd"
    walker = Walker(model, nodes, inputs, frozenset(weights.trainable), training=training)
    results, modules = tuple(one.name for one in graph.output), _modules(nodes, weights.trainable)
    prepared = Prepared(walker, weights, results, modules, request.mode, rule)
    try:
        sized = _sized(prepared, inputs.sizes)
    except NotAtTheseSizes as error:
        text = ", ".join(f"{name} {value}" for name, value in inputs.sizes.items())
        raise FomkitError(where, f"{error}, at {text}. Give sizes that the model is made for.") from error
    if not sized.step.states["priced"]:
        listed = ", ".join(sized.step.listed_unsupported[:5]) or "none at all"
        raise FomkitError(where, f"has no op with work that is known here: {listed}.")
    notes = [*inputs.notes, *_notes(nodes, weights, request.mode, rule, optimizer is None)]
    notes += _of_unsupported(sized.step.unsupported, weights, request.mode)
    sizes_of = {one.name: prod(one.dims) for one in graph.initializer}
    trainable = sum(sizes_of[name] for name in weights.trainable)
    whole = trainable + sum(sizes_of[name] for name in weights.quantised)
    made_with = drafting.traced_with("onnx", onnx.__version__, "file", request.mode)
    maker = f"{model.producer_name} {model.producer_version}".strip()
    title = printable(f"ONNX graph{f' of {maker}' if maker else ''}"[:120])
    traced = Traced(title, made_with, whole, trainable)
    draft = drafting.make_draft(Workload(None, None, **run), request, traced, sized, notes)  # type: ignore[arg-type]
    return _as_derived(draft, nodes, rule) if training else draft


def main() -> None:
    """Run one request."""
    run_file_request(lambda *request, **more: {"draft": asdict(draft_profile(*request, **more))})

"""From a step traced at several sizes to the draft of a profile: what every tracer does alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fomkit.errors import FomkitError
from fomkit.trace.calls import UPDATE, TracedOp
from fomkit.trace.draft import Draft
from fomkit.trace.explore_sizes import SizedStep
from fomkit.trace.layer_table import count_layers, split_layers
from fomkit.trace.op_table import count_rows, row_places
from fomkit.trace.order_table import order_rows
from fomkit.trace.routes import Route
from fomkit.trace.symbolic import Sizes
from fomkit.workload import Workload


@dataclass(frozen=True)
class Request:
    """What is asked of a trace.

    Attributes
    ----------
    name : str
        Of the profile.
    where : str
        The user's file, "" in a notebook.
    mode : str
        train or infer.
    sizes : mapping
        Values of named sizes that were asked for; the workload's own where absent.
    route : str
        How tensors are made without data, `Route`.
    nodes : bool
        Whether the nodes of a graph are told, too.
    """

    name: str
    where: str
    mode: str
    sizes: Sizes
    route: Route = "meta"
    nodes: bool = False


@dataclass(frozen=True)
class Traced:
    """What a draft says of the model itself: its class, what traced it, and its parameters."""

    kind: str
    traced_with: Mapping[str, str]
    parameters_total: int
    parameters_trainable: int


def make_draft(
    workload: Workload, request: Request, model: Traced, sized: SizedStep, notes: Sequence[str]
) -> Draft:
    """Count what was traced.

    Parameters
    ----------
    workload : Workload
    request : Request
    model : Traced
    sized : SizedStep
    notes : sequence of str
        What was said before the step ran.

    Raises
    ------
    FomkitError
        When a batch was asked for on which nothing depends.
    """
    step = sized.step
    ops, layers = split_layers(sized.ops)
    deaf = _deaf_to_the_batch(ops, sized.sizes, request, sized.fixed)
    rows, parts = count_rows(ops)
    infer = request.mode == "infer"
    return Draft(
        name=request.name,
        title=f"{model.kind}, {'inference' if infer else 'training step'}",
        rows=rows,
        parts=parts,
        layers=count_layers(layers),
        order=order_rows(sized.order, step.ops, sized.ops, row_places(sized.ops)) if sized.order else None,
        sizes=dict(sized.sizes),
        traced_with=dict(model.traced_with),
        parameters_total=model.parameters_total,
        parameters_trainable=model.parameters_trainable,
        # An inference step is no part of a training run, so it is not rolled up to one.
        train_samples=None if infer else workload.train_samples,
        validation_samples=None if infer else workload.validation_samples,
        last_batch=workload.last_batch,
        epochs=None if infer else workload.epochs,
        optimizer=step.optimizer,
        unsupported=step.listed_unsupported,
        missing=[] if infer or any(op.pass_name == UPDATE for op in ops) else [UPDATE],
        notes=[step.shares, *notes, *deaf, *step.notes, *sized.fixed, *sized.notes, *workload.notes],
    )


def _deaf_to_the_batch(ops: Sequence[TracedOp], sizes: Sizes, request: Request, fixed: Sequence[str]) -> list[str]:
    """Say where inputs gives one size whatever batch it is asked for.

    Raises
    ------
    FomkitError
        When a batch was asked for, which would then be another number of samples for the same work.
    """
    if fixed or any("batch" in str(value) for op in ops for value in op.dimensions.values()):
        return []
    if "batch" in request.sizes:
        raise FomkitError(
            request.where or "profile",
            f"no op depends on the batch, so {request.sizes['batch']} samples cannot be made. "
            "Let inputs(batch) use its batch.",
        )
    return [f"no op depends on the batch: its work is taken to be that of {sizes['batch']} samples"]

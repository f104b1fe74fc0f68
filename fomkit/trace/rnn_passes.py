"""The backward row of a recurrent layer, told apart into its two gradients."""

from __future__ import annotations

from dataclasses import replace

from fomkit.trace.calls import BACKWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, TracedOp


def split_gradients(op: TracedOp) -> list[TracedOp]:
    """Split a recurrent backward row in two; data needs no gradient, so its product is not in the row's sizes."""
    if op.kind != "rnn" or op.pass_name != BACKWARD:
        return [op]
    rows = []
    for pass_name in (INPUT_GRADIENT, WEIGHT_GRADIENT):
        wanted = pass_name == WEIGHT_GRADIENT
        parts = [part for part in op.parts if (part.pass_name == WEIGHT_GRADIENT) == wanted]
        for part in parts:
            part.pass_name = pass_name
        if parts:
            sizes = op.dimensions if wanted or op.input_gradient else {**op.dimensions, "input_size": 0}
            rows.append(replace(op, dimensions=sizes, pass_name=pass_name, parts=parts))
    return rows

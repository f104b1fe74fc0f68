"""Recurrent layers run as one library call."""

from __future__ import annotations

from collections.abc import Mapping

from fomkit.costs.formula import Cost, Variant, counts, sizes

GATES: Mapping[str, int] = {"vanilla": 1, "lstm": 4, "gru": 3}
"""Matrices per cell: the gates of Hochreiter & Schmidhuber 1997 and Cho et al. 2014, one for the plain cell."""


def formulas() -> dict[Variant, Cost]:
    """Price each pass of a recurrent layer by its matrix products.

    A step multiplies the input and the hidden state of every sample with ``gates`` matrices:
    2·batch·steps·directions·gates·hidden·(input + hidden) flop. Layers above the first take the output of all
    directions as input. ``input_size`` 0 means the recurrent half only, which is what DeepBench times (its
    TERAFLOPS are 2·gates·hidden²·batch·steps). The gates' own pointwise work, below 1 % at the published sizes, is
    left out. Both gradients repeat the forward products; ``backward`` is the two together.

    Traffic is compulsory: forward reads weights and input and writes the output; a gradient pass touches weights,
    input and output once each, and also the gates' gradients, which pass from one gradient pass to the other
    through memory. Weights that outgrow the caches are really read once a step; the estimator adds that, not the
    formula.
    """
    batch, steps, hidden_size, layers, directions, item_byte = sizes(
        "batch steps hidden_size layers directions item_byte"
    )
    input_size = counts("input_size")
    above = hidden_size * directions
    table: dict[Variant, Cost] = {}
    for cell, gates in GATES.items():
        inputs = input_size + (layers - 1) * above
        weights = directions * gates * hidden_size * (inputs + layers * hidden_size)
        flop = 2 * batch * steps * weights
        tokens = batch * steps
        forward = item_byte * (weights + tokens * (inputs + layers * above))
        gradient = item_byte * (weights + tokens * (inputs + layers * above * (1 + gates)))
        table[(cell, "forward")] = Cost(flop, forward, 1)
        table[(cell, "backward_input")] = Cost(flop, gradient, 1)
        table[(cell, "backward_weight")] = Cost(flop, gradient, 1)
        table[(cell, "backward")] = Cost(2 * flop, 2 * gradient, 2)
    return table

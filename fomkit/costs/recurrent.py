"""Recurrent layers run as one library call."""

from __future__ import annotations

from collections.abc import Mapping

from fomkit.costs.formula import PASSES, Cost, Size

GATES: Mapping[str, int] = {"vanilla": 1, "lstm": 4, "gru": 3}
"""Matrices per cell: the gates of Hochreiter & Schmidhuber 1997 and Cho et al. 2014, one for the plain cell."""


def rnn(
    cell: str,
    pass_name: str,
    batch: Size,
    steps: Size,
    input_size: Size,
    hidden_size: Size,
    layers: Size,
    directions: Size,
    item_byte: Size,
) -> Cost:
    """Price a pass of a recurrent layer by its matrix products.

    A step multiplies the input and the hidden state of every sample with ``gates`` matrices:
    2·batch·steps·directions·gates·hidden·(input + hidden) flop. Layers above the first take the output of all
    directions as input. ``input_size`` 0 means the recurrent half only, which is what DeepBench times (its
    TERAFLOPS are 2·gates·hidden²·batch·steps). The gates' own pointwise work, below 1 % at the published sizes, is
    left out. Both gradients repeat the forward products; ``backward`` is the two together.

    Traffic is compulsory: forward reads weights and input and writes the output; a gradient pass touches weights,
    input and output once each, and also the gates' gradients, which pass from one gradient pass to the other
    through memory. Weights that outgrow the caches are really read once a step; the estimator adds that, not the
    formula.

    Examples
    --------
    >>> sizes = {"batch": 16, "steps": 25, "input_size": 0, "hidden_size": 512, "layers": 1, "directions": 1}
    >>> rnn("lstm", "forward", **sizes, item_byte=4).flop == 2 * 4 * 512**2 * 16 * 25
    True
    """
    gates, above, tokens = GATES[cell], hidden_size * directions, batch * steps
    inputs = input_size + (layers - 1) * above
    weights = directions * gates * hidden_size * (inputs + layers * hidden_size)
    flop = 2 * tokens * weights
    outputs = layers * above * (1 + gates if pass_name.startswith("backward") else 1)
    byte = item_byte * (weights + tokens * (inputs + outputs))
    calls = PASSES[pass_name]
    return Cost(calls * flop, calls * byte, calls)

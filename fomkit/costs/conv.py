"""Convolutions in one to three dimensions, with groups, dilation and transposition."""

from __future__ import annotations

from typing import Any

from fomkit.costs.formula import Cost, Variant, counts, sizes


def output_length(axis: str, length: str) -> Any:
    """Output positions along one axis, as an expression.

    A convolution gives floor((in + 2·pad − dilation·(kernel − 1) − 1) / stride) + 1 positions, and a transposed
    one inverts that, (in − 1)·stride − 2·pad + dilation·(kernel − 1) + 1 + output padding (torch.nn.Conv2d and
    ConvTranspose2d, section Shape).

    Parameters
    ----------
    axis : str
        d, h or w, the end of the columns' names.
    length : str
        The column with the input's length: depth, height or width.

    Examples
    --------
    >>> row = {"width": 224, "kernel_w": 7, "stride_w": 2, "pad_w": 3, "dilation_w": 1}
    >>> row |= {"transposed": 0, "output_pad_w": 0}
    >>> formula = output_length("w", "width")
    >>> formula.subs({symbol: row[symbol.name] for symbol in formula.free_symbols})
    112
    """
    import sympy

    size, kernel, stride, dilation = sizes(f"{length} kernel_{axis} stride_{axis} dilation_{axis}")
    pad, added, transposed = counts(f"pad_{axis} output_pad_{axis} transposed")
    reach = dilation * (kernel - 1) + 1
    direct = sympy.floor((size + 2 * pad - reach) / stride) + 1
    inverse = (size - 1) * stride - 2 * pad + reach + added
    return (1 - transposed) * direct + transposed * inverse


def _positions() -> tuple[Any, Any, Any]:
    """Give the positions of the input, of the output, and those that the kernel slides over."""
    depth, height, width = sizes("depth height width")
    transposed = counts("transposed")
    inner = depth * height * width
    outer = output_length("d", "depth") * output_length("h", "height") * output_length("w", "width")
    return inner, outer, (1 - transposed) * outer + transposed * inner


def shorthands() -> dict[str, Any]:
    """Give the parts of the formulas that are easier read by name, as expressions by that name.

    ``slid_over`` counts the positions that the kernel slides over.
    """
    lengths = {f"out_{length}": output_length(length[0], length) for length in ("depth", "height", "width")}
    return {"slid_over": _positions()[2], **lengths}


def formulas() -> dict[Variant, Cost]:
    """Price direct convolution, each of its three passes alike.

    Every kernel element meets every position it slides over, the output's for a convolution and the input's for a
    transposed one: 2·batch·out_channels·(in_channels/groups)·kernel volume·positions flop. The input gradient and
    the weight gradient contain the same products in another order, grouped or not (Dumoulin & Visin,
    arXiv:1603.07285, chapter 4). Each pass reads two of input, weights and output, and writes the third.
    ``backward`` is both gradients. Winograd and FFT algorithms need less arithmetic, so a measured time may lie
    below this flop divided by the peak.
    """
    batch, in_channels, out_channels, groups, item_byte = sizes("batch in_channels out_channels groups item_byte")
    kernel_d, kernel_h, kernel_w = sizes("kernel_d kernel_h kernel_w")
    positions_in, positions_out, slid_over = _positions()
    weights = in_channels * out_channels * kernel_d * kernel_h * kernel_w / groups
    flop = 2 * batch * weights * slid_over
    byte = item_byte * (batch * in_channels * positions_in + weights + batch * out_channels * positions_out)
    one = Cost(flop, byte, 1)
    both = Cost(2 * flop, 2 * byte, 2)
    return {
        ("forward",): one,
        ("backward_input",): one,
        ("backward_weight",): one,
        ("backward",): both,
    }

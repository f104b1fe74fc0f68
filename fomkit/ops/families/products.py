"""Costs of products: of matrices, dense or sparse; convolutions; recurrent layers as one call; attention; experts.

The left factor may be sparse; convolutions have one to three dimensions, groups, dilation and transposition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fomkit.ops.families.formula import PASSES, Cost, Size, floor

INDEX_BYTE = 4
"""Width of a row pointer and of a column index [byte]: 32-bit integers, as is usual in libraries."""


def gemm(b: Size, m: Size, n: Size, k: Size, item_byte: Size, weight_share: Size = 1) -> Cost:
    """Price b products of (m×k)·(k×n).

    Each of the b·m·n results needs k multiply-adds of 2 flop (Golub & Van Loan, Matrix Computations, §1.1). Both
    factors are read once and the product is written once, so the traffic is the compulsory one. The right factor
    has ``weight_share`` of its bytes if it is stored narrower than it is multiplied.

    >>> gemm(b=1, m=2, n=3, k=5, item_byte=4)
    Cost(flop=60, byte=124, launches=1)
    """
    return Cost(flop=2 * b * m * n * k, byte=item_byte * b * (m * k + k * n * weight_share + m * n))


def sparse_gemm(b: Size, m: Size, n: Size, k: Size, density: Size, item_byte: Size) -> Cost:
    """Price b products of a sparse m×k by a dense k×n matrix.

    Only the m·k·density stored elements are multiplied by the n columns: 2·b·m·n·k·density flop. The workbooks of
    DeepBench use the share of zeros instead. The left factor is stored by compressed rows (CSR; Saad, Iterative
    Methods for Sparse Linear Systems, §3.4): a value and a column index for each stored element and m + 1 row
    pointers. Each of the three matrices moves once.

    >>> sparse_gemm(b=1, m=2, n=3, k=10, density=0.5, item_byte=4)  # 10 stored; 80 + 12 + 120 + 24 byte
    Cost(flop=60.0, byte=236.0, launches=1)
    """
    stored = m * k * density
    left = stored * (item_byte + INDEX_BYTE) + (m + 1) * INDEX_BYTE
    return Cost(flop=2 * b * n * stored, byte=b * (left + item_byte * (k * n + m * n)))


PRODUCTS: Mapping[str, int] = {"forward": 2, "backward": 4}
"""Matrix products of one pass: q·kᵀ and weights·v; for their gradients twice as many."""


def attention(
    pass_name: str, batch: Size, heads: Size, kv_heads: Size, q_len: Size, kv_len: Size, head_dim: Size,
    item_byte: Size, shared_dim: Size = 0,
) -> Cost:  # fmt: skip
    """Price softmax(q·kᵀ)·v of all heads.

    Two products of 2·batch·heads·q_len·kv_len·head_dim flop forward; four backward (Dao, arXiv:2307.08691, §4.1;
    the fifth that its fused kernel recomputes is not counted). The full square is counted for causal attention
    too, as unfused kernels compute it and `torch.utils.flop_counter` counts it.

    The row is for a fused kernel: forward reads q, k and v and writes the output; backward reads those, the output
    and its gradient, and writes three gradients. The quadratic traffic of unfused attention is in the row's parts.
    Where a value is the first ``shared_dim`` numbers of its key, as in the cache of latent attention (DeepSeek-V2,
    arXiv:2405.04434, §2.1), these are read once; head_dim is the mean of key and value.

    >>> attention("forward", batch=1, heads=2, kv_heads=2, q_len=3, kv_len=5, head_dim=7, item_byte=2)
    Cost(flop=840, byte=448, launches=1)
    >>> attention("forward", 1, heads=2, kv_heads=1, q_len=1, kv_len=5, head_dim=7, item_byte=2, shared_dim=6)
    Cost(flop=280, byte=136, launches=1)
    """
    products = PRODUCTS[pass_name]
    product = 2 * batch * heads * q_len * kv_len * head_dim
    query = item_byte * batch * heads * q_len * head_dim
    keys = item_byte * batch * kv_heads * kv_len * (2 * head_dim - shared_dim)
    return Cost(products * product, products * query + products // 2 * keys)


MATRICES = 3
"""Products of one expert: gate, up and down."""


def mixture(
    b: Size, m: Size, n: Size, k: Size, experts: Size, top_k: Size, item_byte: Size, weight_share: Size = 1,
) -> Cost:  # fmt: skip
    """Price a mixture's gated experts on one device: b of all, m tokens of width k, inner width n.

    Each token is sent to ``top_k`` of all experts, so m·top_k·b/experts of them arrive here, and each needs three
    products of 2·n·k flop (gate, up and down). The device reads the weights of the experts that any token chose,
    b·(1 − (1 − 1/experts)^(m·top_k)) for random choices, ``weight_share`` of their bytes as in `gemm`, and the
    tokens; it writes their results.

    >>> mixture(b=8, m=1, n=10, k=100, experts=8, top_k=1, item_byte=2)  # one expert: 2·(3000 + 200)
    Cost(flop=6000.0, byte=6400.0, launches=1)
    """
    sent = m * top_k * b / experts
    chosen = b * (1 - (1 - 1 / experts) ** (m * top_k))
    weights = MATRICES * chosen * n * k * weight_share
    return Cost(2 * MATRICES * sent * n * k, item_byte * (weights + 2 * sent * k))


GATES: Mapping[str, int] = {"vanilla": 1, "lstm": 4, "gru": 3}
"""Matrices per cell: the gates of Hochreiter & Schmidhuber 1997 and Cho et al. 2014, one for the plain cell."""


def rnn(
    cell: str, pass_name: str, batch: Size, steps: Size, input_size: Size, hidden_size: Size, layers: Size,
    directions: Size, item_byte: Size,
) -> Cost:  # fmt: skip
    """Price a pass of a recurrent layer by its matrix products.

    A step multiplies the input and the hidden state of every sample by ``gates`` matrices:
    2·batch·steps·directions·gates·hidden·(input + hidden) flop. The input of layers above the first is the output
    of all directions. ``input_size`` 0 means the recurrent half only, as DeepBench times it (its TERAFLOPS are
    2·gates·hidden²·batch·steps). The pointwise work of the gates, below 1 % at the published sizes, is left out.
    Both gradients repeat the forward products; ``backward`` is both together.

    Traffic is compulsory: forward reads weights and input and writes the output; a gradient pass reads or writes
    weights, input and output once each, and also the gates' gradients, which go from one gradient pass to the
    other through memory. Weights that exceed the caches are read once per step; the estimator adds that, not the
    formula.

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


def output_length(
    size: Size, kernel: Size, stride: Size, pad: Size, dilation: Size, transposed: Size, output_pad: Size
) -> Size:
    """Count output positions along one axis.

    A convolution has floor((in + 2·pad − dilation·(kernel − 1) − 1) / stride) + 1 positions, and a transposed one
    inverts that, (in − 1)·stride − 2·pad + dilation·(kernel − 1) + 1 + output padding (torch.nn.Conv2d and
    ConvTranspose2d, section Shape).

    >>> float(output_length(224, kernel=7, stride=2, pad=3, dilation=1, transposed=0, output_pad=0))
    112.0
    """
    reach = dilation * (kernel - 1) + 1
    direct = floor((size + 2 * pad - reach) / stride) + 1
    inverse = (size - 1) * stride - 2 * pad + reach + output_pad
    return (1 - transposed) * direct + transposed * inverse


def out_depth(
    depth: Size, kernel_d: Size, stride_d: Size, pad_d: Size, dilation_d: Size,
    transposed: Size, output_pad_d: Size,
) -> Size:  # fmt: skip
    """Count output positions along the depth."""
    return output_length(depth, kernel_d, stride_d, pad_d, dilation_d, transposed, output_pad_d)


def out_height(
    height: Size, kernel_h: Size, stride_h: Size, pad_h: Size, dilation_h: Size,
    transposed: Size, output_pad_h: Size,
) -> Size:  # fmt: skip
    """Count output positions along the height."""
    return output_length(height, kernel_h, stride_h, pad_h, dilation_h, transposed, output_pad_h)


def out_width(
    width: Size, kernel_w: Size, stride_w: Size, pad_w: Size, dilation_w: Size,
    transposed: Size, output_pad_w: Size,
) -> Size:  # fmt: skip
    """Count output positions along the width."""
    return output_length(width, kernel_w, stride_w, pad_w, dilation_w, transposed, output_pad_w)


def slid_over(
    depth: Size, height: Size, width: Size, transposed: Size, out_depth: Size, out_height: Size, out_width: Size,
) -> Size:  # fmt: skip
    """Count the positions that the kernel slides over: the output's, or the input's if it is transposed."""
    return (1 - transposed) * (out_depth * out_height * out_width) + transposed * (depth * height * width)


PARTS: Mapping[str, Callable[..., Size]] = {
    "slid_over": slid_over,
    "out_depth": out_depth,
    "out_height": out_height,
    "out_width": out_width,
}
"""Arguments of the formulas of convolutions that are not columns."""


def conv(
    pass_name: str, batch: Size, in_channels: Size, out_channels: Size,
    depth: Size, height: Size, width: Size, kernel_d: Size, kernel_h: Size, kernel_w: Size,
    groups: Size, out_depth: Size, out_height: Size, out_width: Size, slid_over: Size, item_byte: Size,
) -> Cost:  # fmt: skip
    """Price direct convolution; its three passes cost the same.

    Every kernel element is used at every position it slides over, the output's for a convolution and the input's
    for a transposed one: 2·batch·out_channels·(in_channels/groups)·kernel volume·positions flop. The input
    gradient and the weight gradient contain the same products in another order, grouped or not (Dumoulin & Visin,
    arXiv:1603.07285, chapter 4). Each pass reads two of input, weights and output, and writes the third.
    ``backward`` is both gradients. Winograd and FFT algorithms need less arithmetic, so a measured time may be
    less than this flop divided by the peak.
    """
    weights = in_channels * out_channels * kernel_d * kernel_h * kernel_w / groups
    flop = 2 * batch * weights * slid_over
    inside, outside = depth * height * width, out_depth * out_height * out_width
    byte = item_byte * (batch * in_channels * inside + weights + batch * out_channels * outside)
    calls = PASSES[pass_name]
    return Cost(calls * flop, calls * byte, calls)

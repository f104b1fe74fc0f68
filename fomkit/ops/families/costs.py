"""Costs of the kinds: products, then kinds whose time is determined by traffic, then the update of an optimizer.

Products are those of matrices, dense or with a sparse left factor; convolutions of one to three dimensions, with
groups, dilation and transposition; recurrent layers as one call; attention; experts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from fomkit.core.model import STATE_TENSORS
from fomkit.ops.families.formula import PASSES, Cost, Size, Variant, ceil, floor

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


NORM_FLOP: Mapping[str, int] = {"forward": 8, "backward": 13}
"""Flop per element of layer normalisation (Ba et al., arXiv:1607.06450), without all work per row.

Forward: mean 1; squared deviation summed 3; centred and scaled 2; gain and bias 2. Backward: gradient times
gain 1; normalised value again 2; two row sums 1 + 2; combination 4; gradients of gain 2 and bias 1.
"""

SOFTMAX_FLOP: Mapping[str, int] = {"forward": 5, "backward": 4}
"""Flop per element of a stable softmax: maximum, difference, exponential, sum, quotient; back y·(g − Σ y·g)."""


def per_element(numel: Size, read_byte: Size, write_byte: Size) -> Cost:
    """Price one operation per element, of any kind: an exponential counts 1, like an addition.

    >>> per_element(numel=10, read_byte=80, write_byte=40)
    Cost(flop=10, byte=120, launches=1)
    """
    return Cost(numel, read_byte + write_byte)


def moved(read_byte: Size, write_byte: Size) -> Cost:
    """Price ops that only move data: no flop."""
    return Cost(0, read_byte + write_byte)


def norm(pass_name: str, numel: Size, read_byte: Size, write_byte: Size) -> Cost:
    """Price a normalisation by `NORM_FLOP`, batch and group norms alike."""
    return Cost(NORM_FLOP[pass_name] * numel, read_byte + write_byte)


def softmax(pass_name: str, numel: Size, read_byte: Size, write_byte: Size) -> Cost:
    """Price a softmax or log-softmax by `SOFTMAX_FLOP`."""
    return Cost(SOFTMAX_FLOP[pass_name] * numel, read_byte + write_byte)


class Traffic(NamedTuple):
    """Elements read and written, and flop, per parameter element, of one kernel or one update."""

    reads: int
    writes: int
    flop: int


KERNELS: Mapping[str, Traffic] = {
    **dict.fromkeys(("mul", "add", "sqrt", "div", "abs", "reciprocal"), Traffic(1, 1, 1)),
    **dict.fromkeys(("mul_two", "div_two", "maximum"), Traffic(2, 1, 1)),
    "add_scaled": Traffic(2, 1, 2),
    "lerp": Traffic(2, 1, 3),
    "addcmul": Traffic(2, 1, 3),
    "addcmul_three": Traffic(3, 1, 3),
    "addcdiv": Traffic(3, 1, 3),
}
"""The kernels of unfused updates; each operand counts once, so a squared gradient is one read."""

_MOMENTS = "lerp mul addcmul"
_MEAN_SQUARE = "mul addcmul"
_CENTERED = f"{_MEAN_SQUARE} lerp addcmul"
_STEP = "sqrt add addcdiv"
_MOMENTUM_STEP = "sqrt add mul addcdiv add_scaled"
UNFUSED: Mapping[str, str] = {
    "sgd": "add_scaled",
    "momentum": "mul add_scaled add_scaled",
    "nesterov": "mul add_scaled add_scaled add_scaled",
    "adam": f"{_MOMENTS} sqrt div add addcdiv",
    "adam_amsgrad": f"{_MOMENTS} maximum sqrt div add addcdiv",
    "adamw": f"mul {_MOMENTS} sqrt div add addcdiv",
    "adamw_amsgrad": f"mul {_MOMENTS} maximum sqrt div add addcdiv",
    "adamax": "lerp mul abs add maximum addcdiv",
    "nadam": f"{_MOMENTS} div sqrt add addcdiv addcdiv",
    "radam": f"{_MOMENTS} div mul sqrt add reciprocal mul mul_two mul add_scaled",
    "rmsprop": f"{_MEAN_SQUARE} {_STEP}",
    "rmsprop_momentum": f"{_MEAN_SQUARE} {_MOMENTUM_STEP}",
    "rmsprop_centered": f"{_CENTERED} {_STEP}",
    "rmsprop_centered_momentum": f"{_CENTERED} {_MOMENTUM_STEP}",
    "adagrad": f"addcmul {_STEP}",
    "adadelta": f"{_MEAN_SQUARE} add sqrt add sqrt div_two mul_two {_MEAN_SQUARE} add_scaled",
}
"""Kernels of one update as torch 2.13 (torch.optim) runs them tensor by tensor; also for lists, except `FOREACH`.

They are those of a step that finds its state; the first step creates the state too. Weight decay is a row of its
own, except for AdamW. Adam has 11 reads and 7 writes: 18 × 4 B × 30,088,701 = 2.166 GB on P1B3. A trace that
counts the squared gradient twice and is of the first step, which creates two states (4 more), has 23: 2.77 GB.
"""

FOREACH: Mapping[str, str] = {
    "adagrad": "addcmul sqrt add mul addcdiv",
    "radam": f"{_MOMENTS} sqrt add div reciprocal add addcmul_three",
}
"""Rules for which an update of whole lists runs other kernels."""

_FUSED_FLOP = {"sgd": 2, "momentum": 5, "nesterov": 7, "adam": 13, "adam_amsgrad": 14, "adamw": 14,
               "adamw_amsgrad": 15, "adagrad": 8}  # fmt: skip
FUSED: Mapping[str, Traffic] = {
    rule: Traffic(2 + STATE_TENSORS[rule], 1 + STATE_TENSORS[rule], flop) for rule, flop in _FUSED_FLOP.items()
}
"""One kernel that reads parameter, gradient and state and writes parameter and state: Adam 7 × 4 B per element."""

CHUNK = 65_536
BLOCKS = 320
TENSORS = 48
"""Elements per block, blocks and tensors per launch, of a kernel over three lists (ATen MultiTensorApply.cuh)."""

VARIANTS: tuple[Variant, ...] = (
    *((rule, impl) for rule in UNFUSED for impl in ("per_tensor", "foreach")),
    *((rule, "fused") for rule in FUSED),
)


def _kernels(rule: str, impl: str) -> list[Traffic]:
    if impl == "fused":
        return [FUSED[rule]]
    names = FOREACH.get(rule, UNFUSED[rule]) if impl == "foreach" else UNFUSED[rule]
    return [KERNELS[name] for name in names.split()]


def optimizer(rule: str, impl: str, numel: Size, tensors: Size, item_byte: Size) -> Cost:
    """Price one update of ``numel`` parameters in ``tensors`` tensors.

    Unfused updates launch each kernel per tensor (``per_tensor``) or per list (``foreach``). A list is split into
    launches when `BLOCKS` blocks or `TENSORS` tensors are full; the sum of both is a few launches too high at
    most.

    >>> optimizer("adam", "per_tensor", numel=1000, tensors=3, item_byte=4)
    Cost(flop=13000, byte=72000, launches=21)
    """
    kernels = _kernels(rule, impl)
    moved = sum(kernel.reads + kernel.writes for kernel in kernels)
    flop = sum(kernel.flop for kernel in kernels)
    each = tensors if impl == "per_tensor" else ceil(numel / (CHUNK * BLOCKS) + tensors / TENSORS)
    return Cost(flop * numel, moved * item_byte * numel, len(kernels) * each)

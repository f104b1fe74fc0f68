"""Rules of ops that are products by their work: solvers, factorisations, packed weights, unusual convolutions.

A factorisation counts as one product of the flop that textbooks give it (Golub & Van Loan, *Matrix Computations*,
4th ed.). A library needs longer, since much of it runs in sequence: these prices are lower bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

from fomkit.frontends.lowering import calls
from fomkit.frontends.lowering.calls import Array, Call, Dimensions, Rule, Work, arrays_in, each, traffic


def _three(values: Sequence[int], spatial: int, filler: int) -> list[int]:
    """Expand per-axis values to depth, height and width; a single value applies to every axis."""
    given = list(values) * spatial if len(values) == 1 else list(values)
    return [filler] * (3 - spatial) + given


def _layout(values: Array) -> str:
    spatial = len(values.shape) - 2
    axes = "dhw"[-max(spatial, 2) :]
    channels_last = values.stride[1] == 1 and values.shape[1] > 1 and values.stride[-1] != 1
    return f"n{axes}c" if channels_last else f"nc{axes}"


def conv_dimensions(arguments: Any, values: Array, weight: Array) -> Dimensions:
    """Return the dimensions of a convolution's row; ``arguments`` are those of ``aten::convolution``."""
    spatial, groups = len(weight.shape) - 2, int(arguments["groups"])
    transposed = bool(arguments["transposed"])
    # The weight is (in, out/groups, …) in a transposed convolution and (out, in/groups, …) in a direct one.
    out_channels = weight.shape[1] * groups if transposed else weight.shape[0]
    batch, in_channels = values.shape[:2]
    dimensions: Dimensions = {"batch": batch, "in_channels": in_channels, "out_channels": out_channels}
    dimensions.update(zip(calls.LENGTHS, _three(values.shape[2:], spatial, 1), strict=True))
    window = {"kernel": weight.shape[2:], "stride": arguments["stride"], "pad": arguments["padding"],
            "dilation": arguments["dilation"]}  # fmt: skip
    for name, given in window.items():
        per_axis = _three(given, spatial, 0 if name == "pad" else 1)
        dimensions.update({f"{name}_{axis}": size for axis, size in zip(calls.AXES, per_axis, strict=True)})
    dimensions |= {"groups": groups, "layout": _layout(values), "transposed": int(transposed)}
    if transposed and any(arguments["output_padding"]):
        added = _three(arguments["output_padding"], spatial, 0)
        dimensions.update({f"output_pad_{axis}": size for axis, size in zip(calls.AXES, added, strict=True)})
    return dimensions


def triangular_solve(call: Call) -> list[Work]:
    """Price the solution of a triangular system as a product with half the matrix, whose other half is zero."""
    values = call.array("B" if "B" in call.arguments else "rhs")
    rows, others = values.shape[-2:] if call.arguments.get("left", True) else values.shape[:-3:-1]
    sizes = calls.gemm_sizes(prod(values.shape[:-2]), rows, others, (rows + 1) // 2)
    return [Work("gemm", sizes, values.dtype)]


def factored(flop_of: Callable[[int, int], float]) -> Rule:
    """Make the rule of a factorisation of each matrix of a batch, by its flop for a long and a short side."""

    def rule(call: Call) -> list[Work]:
        values = next(arrays_in(call.arguments.values()))
        short, long = sorted(values.shape[-2:])
        k = max(round(flop_of(long, short) / (2 * long * short)), 1)
        return [Work("gemm", calls.gemm_sizes(prod(values.shape[:-2]), long, short, k), values.dtype)]

    return rule


def _either(flag: str, on: Rule, off: Rule, *, default: bool = True) -> Rule:
    """Make the rule of an op that does more where a flag is on, such as also finding vectors."""
    return lambda call: (on if call.arguments.get(flag, default) else off)(call)


def _orthogonal(call: Call) -> list[Work]:
    """Price a QR factorisation: both factors, R alone, or a square Q."""
    rows, columns = next(arrays_in(call.arguments.values())).shape[-2:]
    mode = call.arguments.get("mode") or ("complete" if call.arguments.get("full_matrices") else "reduced")
    return {"r": HALF_QR, "complete": SQUARE_QR if rows > columns else QR}.get(mode, QR)(call)


def solved(matrix: str, values: str, first: Rule | None = None) -> Rule:
    """Make the rule of a solution by two triangular systems, after the factorisation of the matrix, if any."""

    def rule(call: Call) -> list[Work]:
        square, given = call.array(matrix), call.array(values)
        b, n = prod(square.shape[:-2]), square.shape[-1]
        # One set of values may be solved for by every matrix of a batch, and many sets by one matrix.
        own = 1 if given.shape == square.shape[:-1] else given.numel // max(prod(given.shape[:-2]) * n, 1)
        sizes = calls.gemm_sizes(b, n, max(given.numel // max(b * n, 1), own, 1), n)
        return [*(first(call) if first else []), Work("gemm", sizes, given.dtype)]

    return rule


CHOLESKY = factored(lambda _, n: n**3 / 3)
LU = factored(lambda m, n: m * n**2 - n**3 / 3)
INVERSE = factored(lambda _, n: 2 * n**3)
QR = factored(lambda m, n: 4 * m * n**2 - 4 * n**3 / 3)
"""Of both factors; `HALF_QR` is of one of them."""
HALF_QR = factored(lambda m, n: 2 * m * n**2 - 2 * n**3 / 3)
SQUARE_QR = factored(lambda m, n: 4 * m**2 * n - 2 * m * n**2 + 2 * n**3 / 3)
SVD_VALUES = factored(lambda m, n: 4 * m * n**2 - 4 * n**3 / 3)
SVD = factored(lambda m, n: 14 * m * n**2 + 8 * n**3)
"""Of as many vectors on either side; `SQUARE_SVD` is of all."""
SQUARE_SVD = factored(lambda m, n: max(4 * m**2 * n + 8 * m * n**2 + 9 * n**3, 14 * m * n**2 + 8 * n**3))
SVDS = _either("compute_uv", _either("full_matrices", SQUARE_SVD, SVD, default=False), SVD_VALUES)
SYMMETRIC, OTHER = factored(lambda _, n: 9 * n**3), factored(lambda _, n: 25 * n**3)
"""Eigenvalues and eigenvectors of a symmetric matrix, and of any."""
SYMMETRIC_VALUES, OTHER_VALUES = factored(lambda _, n: 4 * n**3 / 3), factored(lambda _, n: 10 * n**3)

SOLVERS: Mapping[str, Rule | None] = {
    "linalg_solve_triangular": triangular_solve,
    **each(CHOLESKY, "linalg_cholesky_ex cholesky"),
    **each(LU, "linalg_lu_factor_ex linalg_lu _linalg_det _linalg_slogdet"),
    **each(INVERSE, "linalg_inv_ex"), "cholesky_inverse": factored(lambda _, n: 2 * n**3 / 3),
    "linalg_qr": _orthogonal, **each(HALF_QR, "geqrf linalg_householder_product"),
    "_linalg_svd": SVDS,
    "linalg_pinv": SVD, "_linalg_eigh": _either("compute_v", SYMMETRIC, SYMMETRIC_VALUES),
    "linalg_eig": OTHER, "_linalg_eigvals": OTHER_VALUES,
    "_linalg_solve_ex": solved("A", "B", LU), "linalg_lu_solve": solved("LU", "B"),
    "cholesky_solve": solved("input2", "self"), "linalg_lstsq": solved("self", "b", HALF_QR),
}  # fmt: skip
"""PyTorch's solvers and factorisations, without ``aten::``."""
TF_SOLVERS: Mapping[str, Rule | None] = {
    "Cholesky": CHOLESKY, "Lu": LU, **each(LU, "MatrixDeterminant LogMatrixDeterminant"),
    "MatrixInverse": INVERSE, "Qr": _orthogonal, "Svd": SVDS,
    "SelfAdjointEigV2": _either("compute_v", SYMMETRIC, SYMMETRIC_VALUES),
    "Eig": _either("compute_v", OTHER, OTHER_VALUES), "MatrixTriangularSolve": triangular_solve,
    "MatrixSolve": solved("matrix", "rhs", LU), "MatrixSolveLs": solved("matrix", "rhs", HALF_QR),
}  # fmt: skip
"""TensorFlow's."""

_AT_ONCE = {"linalg_solve_triangular", "MatrixTriangularSolve"}


def is_sequential(op: str) -> bool:
    """Return whether much of an op runs in sequence, so that a product of its flop takes less time."""
    name = op.removeprefix("aten::")
    return name not in _AT_ONCE and (name in SOLVERS or name in TF_SOLVERS)


def rows_times(values: Array, columns: int, share: float, dtype: str) -> Work:
    """Return the product of rows of some values with a weight that is stored in a share of its bytes."""
    sizes = calls.gemm_sizes(1, prod(values.shape[:-1]), columns, values.shape[-1], 0, 1)
    return Work("gemm", {**sizes, "weight_share": share} if share < 1 else sizes, dtype)


def packed_product(call: Call) -> list[Work]:
    """Price a product with a weight in packed integers: the kernel multiplies in the inputs' format."""
    values, *packed = arrays_in(call.arguments.values())
    columns = call.results[0].shape[-1]
    share = calls.total_byte(packed) / (values.shape[-1] * columns * values.item_byte)
    return [rows_times(values, columns, share, values.dtype)]


def quantized_linear(call: Call) -> list[Work]:
    """Price a layer with 8-bit weights; a dynamic one converts inputs and results, unless they are fp16."""
    values, columns = next(arrays_in(call.arguments.values())), call.results[0].shape[-1]
    if "fp16" in call.op:
        return [rows_times(values, columns, 2 / values.item_byte, values.dtype)]
    product, made = rows_times(values, columns, 1, "int8"), call.results[0]
    if "dynamic" not in call.op:
        return [product]
    converted = traffic(values.numel, [values], ())
    converted["write_byte"] = calls.total_byte([made]) - made.numel  # the product counts a byte of each result
    return [Work("pointwise", converted, values.dtype), product]


def quantized_convolution(call: Call) -> list[Work]:
    """Price a convolution with 8-bit weights, which PyTorch packs together with the window's sizes."""
    values, packed = call.array("qx"), call.arguments.get("packed_weight") or call.arguments["weight"]
    given = {**packed, "transposed": packed["transpose"], "output_padding": ()}
    return [Work("conv", conv_dimensions(given, values, packed["weight"]), "int8", calls.FORWARD)]


QUANTIZED: Mapping[str, Rule | None] = {
    **each(quantized_linear, """linear linear_relu linear_leaky_relu linear_tanh linear_dynamic
        linear_relu_dynamic linear_dynamic_fp16 linear_relu_dynamic_fp16"""),
    **each(quantized_convolution, "conv1d conv1d_relu conv2d conv2d_relu conv3d conv3d_relu"),
    **each(calls.pointwise, """add add_relu add_scalar mul mul_relu mul_scalar relu6 hardswish leaky_relu sigmoid
        elu batch_norm2d batch_norm2d_relu batch_norm3d"""),
    "cat": calls.copy,
}  # fmt: skip
"""Ops of PyTorch's own 8-bit models, without ``quantized::``."""


def deformed(call: Call) -> list[Work]:
    """Price a deformed convolution: columns are interpolated at shifted places, then multiplied with the weight.

    Backward multiplies twice, for columns and weight, and moves columns for inputs and for shifts.
    """
    values, weight, groups = call.array("input"), call.array("weight"), int(call.arguments["groups"])
    is_backward = "grad" in call.arguments
    places = (call.array("grad") if is_backward else call.results[0]).numel // max(weight.shape[0], 1)
    inner, columns = weight.numel // max(weight.shape[0], 1), values.shape[1] * prod(weight.shape[2:]) * places
    moved: Dimensions = {"numel": columns, "inputs": 2, "read_byte": calls.total_byte(call.read)}
    gather = Work("pointwise", {**moved, "write_byte": columns * values.item_byte}, values.dtype)
    sizes = {"m": weight.shape[0] // groups, "n": places, "k": inner}
    swaps = [("k", "n", "m"), ("m", "k", "n")] if is_backward else [("m", "n", "k")]
    products = (calls.gemm_sizes(groups, sizes[m], sizes[n], sizes[k]) for m, n, k in swaps)
    return [gather] * len(swaps) + [Work("gemm", one, values.dtype) for one in products]

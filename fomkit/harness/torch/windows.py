"""Make ops over rows, windows and lookup tables: sums, losses, norms, softmax, pooling, embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from math import isqrt
from typing import Any, NamedTuple

from fomkit.harness.torch.cases import (
    CHECKED_ROWS,
    CannotTimeError,
    Case,
    Cells,
    error_of,
    exact,
    item_byte,
    made,
    same_in_double,
    size_of,
    torch,
)
from fomkit.harness.torch.traffic import Maker, short_name

TABLE_BYTE = 128e6
"""Largest lookup table of an embedding [byte], if the row does not state its size."""


def _grid(cells: Cells, device: str) -> Any:
    """Make numel values as rows of the reduced length."""
    row = size_of(cells, "row")
    return made([size_of(cells, "numel") // row, row], cells, device)


def _sum(cells: Cells, device: str) -> Case:
    """Make a sum: backward over the first axis, the batch; forward over the last."""
    data = _grid(cells, device)
    if cells["pass_name"].startswith("backward"):
        data = data.reshape(data.shape[1], data.shape[0])
        return same_in_double(lambda values: values.sum(0), [data])
    functions: Mapping[str, Any] = {"amax": torch.amax, "mean": torch.mean}
    function = functions.get(short_name(cells), torch.sum)
    return same_in_double(lambda values: function(values, -1), [data])


def _bias_gradient(cells: Cells, device: str) -> Case:
    channels = size_of(cells, "numel") // size_of(cells, "row")
    samples = 8 if size_of(cells, "row") % 8 == 0 else 1
    data = made([samples, channels, size_of(cells, "row") // samples], cells, device)
    return same_in_double(lambda values: values.sum((0, 2)), [data])


def _mean_square(cells: Cells, device: str) -> Case:
    values = [made([size_of(cells, "numel")], cells, device) for _ in range(2)]
    return same_in_double(torch.nn.functional.mse_loss, values)


def _picked_loss(cells: Cells, device: str) -> Case:
    samples = size_of(cells, "numel")
    values = made([samples, 16], cells, device)
    target = torch.randint(0, 16, (samples,), device=device)
    return same_in_double(lambda data: torch.ops.aten.nll_loss_forward(data, target, None, 1, -100), [values])


def _softmax(cells: Cells, device: str) -> Case:
    function = torch.log_softmax if "log" in short_name(cells) else torch.softmax
    return same_in_double(lambda values: function(values, -1), [_grid(cells, device)])


def _softmax_back(cells: Cells, device: str) -> Case:
    function = getattr(torch.ops.aten, short_name(cells))
    gradient, values = _grid(cells, device), torch.softmax(_grid(cells, device), -1)
    return same_in_double(lambda one, other: function(one, other, -1, other.dtype), [gradient, values])


def _layer_norm(cells: Cells, device: str) -> Case:
    row = size_of(cells, "row")
    weights = [made([row], cells, device) for _ in range(2)]
    return same_in_double(
        lambda data, gain, bias: torch.ops.aten.native_layer_norm(data, [row], gain, bias, 1e-5),
        [_grid(cells, device), *weights],
    )


def _layer_norm_back(cells: Cells, device: str) -> Case:
    row, data = size_of(cells, "row"), _grid(cells, device)
    weights = [made([row], cells, device) for _ in range(2)]
    _, mean, deviation = torch.ops.aten.native_layer_norm(data, [row], *weights, 1e-5)

    def run(gradient: Any, values: Any, centre: Any, scale: Any, gain: Any, bias: Any) -> Any:
        return torch.ops.aten.native_layer_norm_backward(
            gradient, values, [row], centre, scale, gain, bias, [True] * 3
        )

    return same_in_double(run, [_grid(cells, device), data, mean, deviation, *weights])


def _channels(cells: Cells, device: str) -> Any:
    """Make values of numel / row channels; samples are not stated: rows up to 512 are all samples, else 8 or 1."""
    row = size_of(cells, "row")
    samples = 8 if row % 8 == 0 and row > 512 else row if row <= 512 else 1
    return made([samples, size_of(cells, "numel") // row, row // samples], cells, device)


def _batch_norm(cells: Cells, device: str) -> Case:
    data = _channels(cells, device)
    weights = [made([data.shape[1]], cells, device).abs() for _ in range(4)]
    return same_in_double(
        lambda values, *four: torch.ops.aten.native_batch_norm(values, *four, True, 0.1, 1e-5), [data, *weights]
    )


def _batch_norm_back(cells: Cells, device: str) -> Case:
    data, gradient = _channels(cells, device), _channels(cells, device)
    weights = [made([data.shape[1]], cells, device).abs() for _ in range(3)]
    _, mean, deviation = torch.ops.aten.native_batch_norm(
        data, weights[0], weights[1], None, None, True, 0.1, 1e-5
    )

    def run(back: Any, values: Any, gain: Any, running: Any, spread: Any, centre: Any, scale: Any) -> Any:
        return torch.ops.aten.native_batch_norm_backward(
            back, values, gain, running, spread, centre, scale, True, 1e-5, [True] * 3
        )

    return same_in_double(run, [gradient, data, *weights, mean, deviation])


class _Windows(NamedTuple):
    """Shape of the planes, and kernel, stride and padding of the windows on them."""

    shape: tuple[int, int, int, int]
    kernel: list[int]
    stride: list[int]
    pad: list[int]


def _windows(cells: Cells) -> _Windows:
    """Choose planes and windows with the row's results, elements and window size; the sides are not stated.

    Raises CannotTimeError when planes with a square or one-row window do not have about as many elements.
    """
    window = size_of(cells, "row")
    results = max(size_of(cells, "numel") // window, 1)
    back = cells["pass_name"].startswith("backward")
    elements = float(cells["write_byte" if back else "read_byte"]) / item_byte(cells)
    side = isqrt(window)
    flat = side * side != window
    kernel = [1, window] if flat else [side, side]
    ratio = elements / results
    step = max(1, round(ratio if flat else ratio**0.5))
    stride = [1, step] if flat else [step, step]
    pad = [(size - 1) // 2 if size > each else 0 for size, each in zip(kernel, stride, strict=True)]
    out = min(28, isqrt(results)) if not flat else min(1000, results)
    rows = 1 if flat else out
    planes = max(1, round(results / (rows * out)))
    sides = [(many - 1) * each + size - 2 * edge for many, each, size, edge in zip(
        (rows, out), stride, kernel, pad, strict=True)]  # fmt: skip
    if not 0.7 < planes * sides[0] * sides[1] / elements < 1.4:
        raise CannotTimeError("no square window fits its sizes")
    return _Windows((1, planes, sides[0], sides[1]), kernel, stride, pad)


def _pool(cells: Cells, device: str) -> Case:
    one, name = _windows(cells), short_name(cells)
    data = made(one.shape, cells, device)
    function: Any = torch.ops.aten.max_pool2d_with_indices if "max" in name else torch.ops.aten.avg_pool2d

    def run(values: Any) -> Any:
        return function(values, one.kernel, one.stride, one.pad)

    if not name.endswith("backward"):
        return same_in_double(run, [data])
    if "max" not in name:
        back = torch.ops.aten.avg_pool2d_backward
        return same_in_double(
            lambda of, values: back(of, values, one.kernel, one.stride, one.pad, False, True, None),
            [torch.randn_like(run(data)), data],
        )
    results, places = run(data)
    back = torch.ops.aten.max_pool2d_with_indices_backward
    return same_in_double(
        lambda of, values: back(of, values, one.kernel, one.stride, one.pad, [1, 1], False, places),
        [torch.randn_like(results), data],
    )


def _embedding(cells: Cells, device: str) -> Case:
    row, numel = size_of(cells, "row"), size_of(cells, "numel")
    each = item_byte(cells)
    back = short_name(cells).endswith("backward")
    table = round(float(cells["write_byte"]) / each / row) if back else int(min(50_000, TABLE_BYTE / each / row))
    places = torch.randint(0, max(table, 1), (max(numel // row, 1),), device=device)
    if not back:
        return same_in_double(lambda rows: torch.embedding(rows, places), [made([table, row], cells, device)])
    gradient = made([places.numel(), row], cells, device)
    function = torch.ops.aten.embedding_dense_backward
    return same_in_double(lambda of: function(of, places, table, -1, False), [gradient])


OVER: Mapping[str, Maker] = {
    **dict.fromkeys(("sum", "mean", "amax"), _sum),
    "convolution_backward": _bias_gradient,
    "mse_loss": _mean_square,
    "nll_loss_forward": _picked_loss,
    **dict.fromkeys(("_softmax", "_safe_softmax", "_log_softmax"), _softmax),
    **dict.fromkeys(("_softmax_backward_data", "_log_softmax_backward_data"), _softmax_back),
    "native_layer_norm": _layer_norm,
    "native_layer_norm_backward": _layer_norm_back,
    "native_batch_norm": _batch_norm,
    "native_batch_norm_backward": _batch_norm_back,
    **dict.fromkeys(("max_pool2d_with_indices", "avg_pool2d"), _pool),
    **dict.fromkeys(("max_pool2d_with_indices_backward", "avg_pool2d_backward"), _pool),
    **dict.fromkeys(("embedding", "embedding_dense_backward"), _embedding),
}
"""Makers of ops over rows, windows and lookup tables, by the op's short name."""


def check_rows(cells: Cells) -> None:
    """Raise `CannotTimeError` if the op is not made here, or a row of another pass than forward names no op."""
    name = short_name(cells)
    if OVER.get(name) is _pool:
        _windows(cells)
    if name in OVER:
        return
    if name or cells["kind"] in ("pool", "embedding"):
        raise CannotTimeError(f"the op {name or cells['kind']} is not timed here")
    if cells["pass_name"] not in ("forward", ""):
        raise CannotTimeError("only forward passes over rows are timed without a name of the op")


def over_rows(cells: Cells, device: str) -> Case:
    """Make an op over rows: the named op, else a forward softmax, layer normalisation or sum."""
    name = short_name(cells)
    if name in OVER:
        return OVER[name](cells, device)
    row, data = size_of(cells, "row"), _grid(cells, device)

    def apply(values: Any) -> Any:
        if cells["kind"] == "softmax":
            return torch.softmax(values, -1)
        if cells["kind"] == "norm":
            return torch.nn.functional.layer_norm(values, (row,))
        return values.sum(-1)

    return Case(
        lambda: apply(data), lambda result: error_of(result[:CHECKED_ROWS], apply(exact(data[:CHECKED_ROWS])))
    )

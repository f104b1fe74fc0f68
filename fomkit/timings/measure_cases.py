"""Single ops as something to run and something to check, from the cells of a table of timings.

Together with `fomkit.timings.measure_times` this is the script of a pack: it runs where there is nothing but
Python and PyTorch, so it imports nothing of fomkit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

Cells = Mapping[str, str]
CHECKED_ROWS = 64
"""Rows of a product that are computed again; all would take longer than the timing."""
TOLERANCES = {"fp64": 1e-9, "fp32": 1e-4, "tf32": 1e-2, "fp16": 1e-2, "bf16": 5e-2}
"""Largest error beside the largest true value, by number format; grows with the length of sums only slowly."""


class Case(NamedTuple):
    """One op: ``run`` does it once and gives its result, ``check`` gives the error of a result."""

    run: Callable[[], Any]
    check: Callable[[Any], float]


class CannotTimeError(Exception):
    """Why an op is not timed here."""


def _size(cells: Cells, name: str, default: int | None = None) -> int:
    text = cells.get(name, "")
    if not text and default is not None:
        return default
    return int(float(text))


def _dtype(cells: Cells) -> Any:
    import torch

    formats = {
        "fp64": torch.float64, "fp32": torch.float32, "tf32": torch.float32, "fp16": torch.float16,
        "bf16": torch.bfloat16,
    }  # fmt: skip
    if cells["dtype"] not in formats:
        raise CannotTimeError(f"numbers of format {cells['dtype']} are not made here")
    return formats[cells["dtype"]]


def _error(found: Any, truth: Any) -> float:
    scale = truth.abs().max().item()
    return float((found.double() - truth).abs().max().item() / (scale or 1.0))


def _product(cells: Cells, device: str) -> Case:
    import torch

    b, m, n, k = (_size(cells, name) for name in ("b", "m", "n", "k"))
    dtype = _dtype(cells)
    if cells.get("layout"):
        raise CannotTimeError(f"the layout {cells['layout']} is not row-major")

    def factor(rows: int, columns: int, transposed: bool) -> Any:
        shape = (b, columns, rows) if transposed else (b, rows, columns)
        made = torch.randn(shape, device=device, dtype=dtype)
        made = made.transpose(1, 2) if transposed else made
        return made[0] if b == 1 else made

    left = factor(m, k, _size(cells, "trans_a", 0) == 1)
    right = factor(k, n, _size(cells, "trans_b", 0) == 1)
    rows = torch.randperm(m, device=device)[:CHECKED_ROWS]

    def check(result: Any) -> float:
        chosen = left[..., rows, :].double()
        return _error(result[..., rows, :], chosen @ right.double())

    return Case(lambda: torch.matmul(left, right), check)


class _Convolution(NamedTuple):
    """A convolution's tensors and how it runs, with as many axes as its sizes need."""

    inputs: Any
    weights: Any
    stride: list[int]
    pad: list[int]
    dilation: list[int]
    groups: int

    def forward(self, data: Any, filters: Any) -> Any:
        import torch

        return torch.ops.aten.convolution(
            data, filters, None, self.stride, self.pad, self.dilation, False, [0] * len(self.pad), self.groups
        )

    def backward(self, of: Any, data: Any, filters: Any, mask: list[bool], groups: int) -> Any:
        import torch

        made = torch.ops.aten.convolution_backward(
            of, data, filters, None, self.stride, self.pad, self.dilation, False, [0] * len(self.pad), groups, mask
        )
        return made[0] if mask[0] else made[1]


def _convolution_parts(cells: Cells, device: str) -> _Convolution:
    import torch

    axes = ("d", "h", "w") if _size(cells, "depth", 1) > 1 or _size(cells, "kernel_d", 1) > 1 else ("h", "w")
    names = {"d": "depth", "h": "height", "w": "width"}
    groups, how = _size(cells, "groups", 1), {"device": device, "dtype": _dtype(cells)}
    if _size(cells, "transposed", 0):
        raise CannotTimeError("transposed convolutions are not timed here")
    shape = (_size(cells, "batch"), _size(cells, "in_channels"), *(_size(cells, names[axis]) for axis in axes))
    kernel = (_size(cells, f"kernel_{axis}") for axis in axes)
    inputs = torch.randn(shape, **how)
    weights = torch.randn((_size(cells, "out_channels"), shape[1] // groups, *kernel), **how)
    if cells.get("layout") == "nhwc":
        order = torch.channels_last if len(axes) == 2 else torch.channels_last_3d
        inputs, weights = inputs.to(memory_format=order), weights.to(memory_format=order)
    stride, pad, dilation = (
        [_size(cells, f"{name}_{axis}", default) for axis in axes]
        for name, default in (("stride", 1), ("pad", 0), ("dilation", 1))
    )
    return _Convolution(inputs, weights, stride, pad, dilation, groups)


def _convolution(cells: Cells, device: str) -> Case:
    """Make a convolution; its checks compute the first sample, or the first output channel of the weights."""
    import torch

    one = _convolution_parts(cells, device)
    data, filters, groups = one.inputs, one.weights, one.groups
    if cells["pass_name"] == "forward":
        return Case(
            lambda: one.forward(data, filters),
            lambda result: _error(result[:1], one.forward(data[:1].double(), filters.double())),
        )
    gradient = torch.randn_like(one.forward(data, filters))
    if cells["pass_name"] == "backward_input":
        mask = [True, False, False]

        def check_sample(result: Any) -> float:
            alone = one.backward(gradient[:1].double(), data[:1].double(), filters.double(), mask, groups)
            return _error(result[:1], alone)

        return Case(lambda: one.backward(gradient, data, filters, mask, groups), check_sample)
    mask = [False, True, False]
    channels = data.shape[1] // groups

    def check_channel(result: Any) -> float:
        first = data[:, :channels].double()
        alone = one.backward(gradient[:, :1].double(), first, filters[:1].double(), mask, 1)
        return _error(result[:1], alone)

    return Case(lambda: one.backward(gradient, data, filters, mask, groups), check_channel)


def _recurrent(cells: Cells, device: str) -> Case:
    import copy

    import torch

    layers = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU, "vanilla": torch.nn.RNN}
    if cells["pass_name"] == "backward_weight":
        raise CannotTimeError("PyTorch computes the weights' gradient only together with the inputs'")
    hidden, steps = _size(cells, "hidden_size"), _size(cells, "steps")
    layer = layers[cells["cell"]](
        _size(cells, "input_size", hidden) or hidden,
        hidden,
        num_layers=_size(cells, "layers", 1),
        bidirectional=_size(cells, "directions", 1) == 2,
    ).to(device, _dtype(cells))
    layer.requires_grad_(False)
    shape = (steps, _size(cells, "batch"), layer.input_size)
    inputs = torch.randn(shape, device=device, dtype=_dtype(cells))
    exact = copy.deepcopy(layer).double()
    if cells["pass_name"] == "forward":
        return Case(lambda: layer(inputs)[0], lambda result: _error(result, exact(inputs.double())[0]))
    inputs.requires_grad_(True)
    output = layer(inputs)[0]
    gradient = torch.randn_like(output)

    def check(result: Any) -> float:
        data = inputs.detach().double().requires_grad_(True)
        (truth,) = torch.autograd.grad(exact(data)[0], data, gradient.double())
        return _error(result, truth)

    return Case(lambda: torch.autograd.grad(output, inputs, gradient, retain_graph=True)[0], check)


def _attention(cells: Cells, device: str) -> Case:
    import torch

    batch, heads = _size(cells, "batch"), _size(cells, "heads")
    shared = heads // _size(cells, "kv_heads", heads)
    width, dtype, causal = _size(cells, "head_dim"), _dtype(cells), _size(cells, "causal", 0) == 1
    query = torch.randn((batch, heads, _size(cells, "q_len"), width), device=device, dtype=dtype)
    key, value = (
        torch.randn((batch, heads // shared, _size(cells, "kv_len"), width), device=device, dtype=dtype)
        .repeat_interleave(shared, 1)
        .requires_grad_(cells["pass_name"] != "forward")
        for _ in range(2)
    )
    attend = torch.nn.functional.scaled_dot_product_attention

    def exact(*parts: Any) -> Any:
        first_query, first_key, first_value = (part[:1, :1].double() for part in parts)
        return attend(first_query, first_key, first_value, is_causal=causal)

    if cells["pass_name"] == "forward":
        return Case(
            lambda: attend(query, key, value, is_causal=causal),
            lambda result: _error(result[:1, :1], exact(query, key, value)),
        )
    query.requires_grad_(True)
    output = attend(query, key, value, is_causal=causal)
    gradient = torch.randn_like(output)

    def check(result: Any) -> float:
        parts = [part.detach().requires_grad_(True) for part in (query, key, value)]
        (truth,) = torch.autograd.grad(exact(*parts), parts[0], gradient[:1, :1].double())
        return _error(result[0][:1, :1], truth[:1, :1].double())

    return Case(
        lambda: torch.autograd.grad(output, (query, key, value), gradient, retain_graph=True),
        check,
    )


def _tensors(cells: Cells) -> int:
    """Count the tensors of full size that an element-wise op reads, from its bytes."""
    whole = _size(cells, "numel") * int(_dtype(cells).itemsize)
    read = float(cells["read_byte"]) / whole
    if abs(float(cells["write_byte"]) / whole - 1) > 0.01 or abs(read - round(read)) > 0.01 or not 1 <= read <= 3:
        raise CannotTimeError("its bytes are not those of one to three tensors read and one written")
    return round(read)


def _elementwise(cells: Cells, device: str) -> Case:
    import torch

    count = _tensors(cells)
    parts = [torch.randn(_size(cells, "numel"), device=device, dtype=_dtype(cells)) for _ in range(count)]
    if cells["kind"] == "copy":
        if count != 1:
            raise CannotTimeError("a copy of several tensors is another op")
        return Case(parts[0].clone, lambda result: _error(result, parts[0].double()))
    by_count: Mapping[int, Callable[..., Any]] = {1: torch.relu, 2: torch.add, 3: torch.addcmul}
    run = by_count[count]
    return Case(lambda: run(*parts), lambda result: _error(result, run(*(part.double() for part in parts))))


def _rows(cells: Cells, device: str) -> Case:
    """Time a softmax, a layer normalisation or a sum over rows, forward."""
    import torch

    if cells["pass_name"] not in ("forward", "") or "batch_norm" in cells.get("op", ""):
        raise CannotTimeError("only forward passes over rows are timed here")
    row = _size(cells, "row")
    data = torch.randn((_size(cells, "numel") // row, row), device=device, dtype=_dtype(cells))

    def apply(values: Any) -> Any:
        if cells["kind"] == "softmax":
            return torch.softmax(values, -1)
        if cells["kind"] == "norm":
            return torch.nn.functional.layer_norm(values, (row,))
        return values.sum(-1)

    return Case(
        lambda: apply(data), lambda result: _error(result[:CHECKED_ROWS], apply(data[:CHECKED_ROWS].double()))
    )


def _update(cells: Cells, device: str) -> Case:
    import torch

    rules = {
        "sgd": torch.optim.SGD,
        "momentum": torch.optim.SGD,
        "adam": torch.optim.Adam,
        "adamw": torch.optim.AdamW,
    }
    if cells["rule"] not in rules:
        raise CannotTimeError(f"the rule {cells['rule']} is not timed here")
    options: dict[str, Any] = {"momentum": 0.9} if cells["rule"] == "momentum" else {}
    tensors = max(1, round(float(cells["tensors"])))
    length = -(-_size(cells, "numel") // tensors)

    def made(dtype: Any) -> tuple[Any, list[Any]]:
        generator = torch.Generator(device).manual_seed(1)
        values = [
            torch.randn(length, device=device, dtype=_dtype(cells), generator=generator)
            for _ in range(2 * tensors)
        ]
        parameters = [value.to(dtype).requires_grad_(True) for value in values[:tensors]]
        for parameter, gradient in zip(parameters, values[tensors:], strict=True):
            parameter.grad = gradient.to(dtype)
        how = {"foreach": cells["impl"] == "foreach", "fused": cells["impl"] == "fused"}
        return rules[cells["rule"]](parameters, lr=1e-3, **how, **options), parameters

    optimizer, parameters = made(_dtype(cells))

    def run() -> Any:
        optimizer.step()
        return parameters[0].detach()

    def check(result: Any) -> float:
        exact, truth = made(torch.float64)
        exact.step()
        return _error(result, truth[0].detach())

    return Case(run, check)


MAKERS: Mapping[str, Callable[[Cells, str], Case]] = {
    "gemm": _product,
    "conv": _convolution,
    "rnn": _recurrent,
    "attention": _attention,
    "pointwise": _elementwise,
    "copy": _elementwise,
    "softmax": _rows,
    "norm": _rows,
    "reduction": _rows,
    "optimizer": _update,
}


def make_case(cells: Cells, device: str) -> Case:
    """Make the op of a row.

    Parameters
    ----------
    cells : mapping
        Cells of a row of timings by column, as text.
    device : str
        ``cpu`` or ``cuda``.

    Raises
    ------
    CannotTimeError
        When the op has no way to be made here.
    """
    maker = MAKERS.get(cells["kind"])
    if maker is None:
        raise CannotTimeError(f"the kind {cells['kind']} is not timed here")
    try:
        return maker(cells, device)
    except (KeyError, ValueError) as error:
        raise CannotTimeError(f"a size is missing or no number ({error})") from error

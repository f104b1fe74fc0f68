"""Make products and ops made of products: batched and sparse ones, convolutions, recurrent layers, attention."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

from fomkit.harness.torch.cases import (
    CHECKED_ROWS,
    CannotTimeError,
    Case,
    Cells,
    error_of,
    size_of,
    torch,
    torch_dtype,
)


def check_product(cells: Cells) -> None:
    """Raise `CannotTimeError` if a product is not row-major, or its weights are packed."""
    if cells.get("layout"):
        raise CannotTimeError(f"the layout {cells['layout']} is not row-major")
    if float(cells.get("weight_share") or 1) < 1:
        raise CannotTimeError("products with packed weights have no kernel here")


def check_sparse_product(cells: Cells) -> None:
    """Raise `CannotTimeError` if a sparse product is batched or transposed."""
    if size_of(cells, "b") != 1 or size_of(cells, "trans_a", 0) or size_of(cells, "trans_b", 0):
        raise CannotTimeError("batched or transposed sparse products are not timed here")


def check_convolution(cells: Cells) -> None:
    """Raise `CannotTimeError` if a convolution is transposed."""
    if size_of(cells, "transposed", 0):
        raise CannotTimeError("transposed convolutions are not timed here")


def product(cells: Cells, device: str) -> Case:
    """Make a product, or a batch of products; the check recomputes some of its rows."""
    b, m, n, k = (size_of(cells, name) for name in ("b", "m", "n", "k"))
    dtype = torch_dtype(cells)

    def factor(rows: int, columns: int, transposed: bool) -> Any:
        shape = (b, columns, rows) if transposed else (b, rows, columns)
        made = torch.randn(shape, device=device, dtype=dtype)
        made = made.transpose(1, 2) if transposed else made
        return made[0] if b == 1 else made

    left = factor(m, k, size_of(cells, "trans_a", 0) == 1)
    right = factor(k, n, size_of(cells, "trans_b", 0) == 1)
    rows = torch.randperm(m, device=device)[:CHECKED_ROWS]

    def check(result: Any) -> float:
        chosen = left[..., rows, :].double()
        return error_of(result[..., rows, :], chosen @ right.double())

    return Case(lambda: torch.matmul(left, right), check)


def sparse_product(cells: Cells, device: str) -> Case:
    """Make a product whose left factor is sparse, in compressed sparse rows."""
    m, n, k = (size_of(cells, name) for name in ("m", "n", "k"))
    dense = torch.randn((m, k), device=device, dtype=torch_dtype(cells))
    dense *= torch.rand((m, k), device=device) < float(cells["density"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch warns that sparse CSR support is in beta
        left = dense.to_sparse_csr()
    right = torch.randn((k, n), device=device, dtype=dense.dtype)

    def check(result: Any) -> float:
        return error_of(result[:CHECKED_ROWS], dense[:CHECKED_ROWS].double() @ right.double())

    return Case(lambda: left @ right, check)


class _Convolution(NamedTuple):
    """A convolution's tensors and parameters, with as many axes as its sizes need."""

    inputs: Any
    weights: Any
    stride: list[int]
    pad: list[int]
    dilation: list[int]
    groups: int

    def forward(self, data: Any, filters: Any) -> Any:
        return torch.ops.aten.convolution(
            data, filters, None, self.stride, self.pad, self.dilation, False, [0] * len(self.pad), self.groups
        )

    def backward(self, of: Any, data: Any, filters: Any, mask: list[bool], groups: int) -> Any:
        made = torch.ops.aten.convolution_backward(
            of, data, filters, None, self.stride, self.pad, self.dilation, False, [0] * len(self.pad), groups, mask
        )
        return made[0] if mask[0] else made[1]


def _convolution_parts(cells: Cells, device: str) -> _Convolution:
    axes = ("d", "h", "w") if size_of(cells, "depth", 1) > 1 or size_of(cells, "kernel_d", 1) > 1 else ("h", "w")
    names = {"d": "depth", "h": "height", "w": "width"}
    groups, how = size_of(cells, "groups", 1), {"device": device, "dtype": torch_dtype(cells)}
    shape = (
        size_of(cells, "batch"),
        size_of(cells, "in_channels"),
        *(size_of(cells, names[axis]) for axis in axes),
    )
    kernel = (size_of(cells, f"kernel_{axis}") for axis in axes)
    inputs = torch.randn(shape, **how)
    weights = torch.randn((size_of(cells, "out_channels"), shape[1] // groups, *kernel), **how)
    if cells.get("layout") == "nhwc":
        order = torch.channels_last if len(axes) == 2 else torch.channels_last_3d
        inputs, weights = inputs.to(memory_format=order), weights.to(memory_format=order)
    stride, pad, dilation = (
        [size_of(cells, f"{name}_{axis}", default) for axis in axes]
        for name, default in (("stride", 1), ("pad", 0), ("dilation", 1))
    )
    return _Convolution(inputs, weights, stride, pad, dilation, groups)


def convolution(cells: Cells, device: str) -> Case:
    """Make a convolution; the check recomputes the first sample, or the first output channel of the weights."""
    one = _convolution_parts(cells, device)
    data, filters, groups = one.inputs, one.weights, one.groups
    if cells["pass_name"] == "forward":
        return Case(
            lambda: one.forward(data, filters),
            lambda result: error_of(result[:1], one.forward(data[:1].double(), filters.double())),
        )
    gradient = torch.randn_like(one.forward(data, filters))
    if cells["pass_name"] == "backward_input":
        mask = [True, False, False]

        def check_sample(result: Any) -> float:
            alone = one.backward(gradient[:1].double(), data[:1].double(), filters.double(), mask, groups)
            return error_of(result[:1], alone)

        return Case(lambda: one.backward(gradient, data, filters, mask, groups), check_sample)
    mask = [False, True, False]
    channels = data.shape[1] // groups

    def check_channel(result: Any) -> float:
        first = data[:, :channels].double()
        alone = one.backward(gradient[:, :1].double(), first, filters[:1].double(), mask, 1)
        return error_of(result[:1], alone)

    return Case(lambda: one.backward(gradient, data, filters, mask, groups), check_channel)


NARROW = 4
"""Input features that represent none, as 0 is not possible: their product is 1 % of a recurrence of width 400."""


def recurrent(cells: Cells, device: str) -> Case:
    """Make recurrent layers: forward, or the gradient of their inputs or of their weights.

    PyTorch computes the gradients of the weights only together with those of the inputs. On a GPU the time of the
    inputs' gradients is subtracted. On a CPU each gradient gets half the time of both, because another program
    computes those of the inputs alone; and a recurrence without its input product has `NARROW` input features.
    """
    import copy

    layers = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU, "vanilla": torch.nn.RNN}
    hidden, steps = size_of(cells, "hidden_size"), size_of(cells, "steps")
    on_cpu, alone = device == "cpu", NARROW if device == "cpu" else hidden
    layer = layers[cells["cell"]](
        size_of(cells, "input_size", hidden) or alone,
        hidden,
        num_layers=size_of(cells, "layers", 1),
        bidirectional=size_of(cells, "directions", 1) == 2,
    ).to(device, torch_dtype(cells))
    layer.requires_grad_(on_cpu)
    inputs = torch.randn(
        (steps, size_of(cells, "batch"), layer.input_size), device=device, dtype=torch_dtype(cells)
    )
    exact = copy.deepcopy(layer).double()
    if cells["pass_name"] == "forward":
        return Case(lambda: layer(inputs)[0], lambda result: error_of(result, exact(inputs.double())[0]))
    inputs.requires_grad_(True)
    one_way, gradient = layer(inputs)[0], torch.randn_like(layer(inputs)[0])
    grad = torch.autograd.grad

    def back_to_inputs() -> Any:
        return grad(one_way, inputs, gradient, retain_graph=True)[0]

    def check_inputs(result: Any) -> float:
        data = inputs.detach().double().requires_grad_(True)
        return error_of(result, grad(exact(data)[0], data, gradient.double())[0])

    if cells["pass_name"] == "backward_input" and not on_cpu:
        return Case(back_to_inputs, check_inputs)
    layer.requires_grad_(True)
    exact.requires_grad_(True)
    output, weights = layer(inputs)[0], list(layer.parameters())

    def check_weights(result: Any) -> float:
        (truth,) = grad(exact(inputs.detach().double())[0], [next(exact.parameters())], gradient.double())
        return error_of(result[0], truth)

    both = [*weights, inputs]

    def back() -> Any:
        return grad(output, both, gradient, retain_graph=True)

    return Case(back, check_weights, share=0.5) if on_cpu else Case(back, check_weights, back_to_inputs)


def check_attention(cells: Cells) -> None:
    """Raise CannotTimeError if values are parts of their keys: PyTorch has no kernel that reads them once."""
    if size_of(cells, "shared_dim", 0):
        raise CannotTimeError("attention whose values are parts of its keys has no kernel here")


def attention(cells: Cells, device: str) -> Case:
    """Make an attention; the check recomputes the first head of the first sample."""
    batch, heads = size_of(cells, "batch"), size_of(cells, "heads")
    shared = heads // size_of(cells, "kv_heads", heads)
    width, dtype, causal = size_of(cells, "head_dim"), torch_dtype(cells), size_of(cells, "causal", 0) == 1
    query = torch.randn((batch, heads, size_of(cells, "q_len"), width), device=device, dtype=dtype)
    key, value = (
        torch.randn((batch, heads // shared, size_of(cells, "kv_len"), width), device=device, dtype=dtype)
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
            lambda result: error_of(result[:1, :1], exact(query, key, value)),
        )
    query.requires_grad_(True)
    output = attend(query, key, value, is_causal=causal)
    gradient = torch.randn_like(output)

    def check(result: Any) -> float:
        parts = [part.detach().requires_grad_(True) for part in (query, key, value)]
        (truth,) = torch.autograd.grad(exact(*parts), parts[0], gradient[:1, :1].double())
        return error_of(result[0][:1, :1], truth[:1, :1].double())

    return Case(lambda: torch.autograd.grad(output, (query, key, value), gradient, retain_graph=True), check)

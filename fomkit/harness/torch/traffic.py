"""Make ops whose time depends on traffic: element-wise ops, copies, fills, joins and casts, by PyTorch's name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fomkit.harness.torch.cases import (
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
    torch_dtype,
)

Maker = Callable[[Cells, str], Case]
ONE: Mapping[str, tuple[Any, ...]] = {
    "relu": (), "relu_": (), "abs": (), "neg": (), "sigmoid": (), "tanh": (), "gelu": (), "elu": (), "silu": (),
    "hardsigmoid": (), "hardswish": (), "leaky_relu": (), "softplus": (), "sqrt": (), "exp": (), "log": (),
    "sgn": (), "sin": (), "cos": (), "erf": (), "rsqrt": (), "reciprocal": (), "logical_not": (),
    "bitwise_not": (), "pow": (2,), "clamp": (-1.0, 1.0),
}  # fmt: skip
"""Functions of one tensor, with their other arguments."""
POSITIVE = ("log", "sqrt", "rsqrt", "reciprocal", "pow", "div")
"""Functions that get only positive numbers: their errors near 0 are meaningless."""
TWO = (
    "add", "add_", "sub", "mul", "div", "maximum", "minimum", "eq", "ge", "le", "gt", "lt", "logical_and_",
    "mul_", "div_",
)  # fmt: skip
"""Functions of two tensors, the second of which may be a number or one row."""
BACK: Mapping[str, tuple[Any, ...]] = {
    "threshold_backward": (0.0,), "sigmoid_backward": (), "tanh_backward": (), "gelu_backward": (),
    "hardsigmoid_backward": (), "silu_backward": (), "leaky_relu_backward": (0.01, False),
    "hardswish_backward": (), "hardtanh_backward": (-1.0, 1.0),
}  # fmt: skip
"""Gradients computed from a gradient and one tensor, with their other arguments."""
FILLS = (
    "new_zeros",
    "zeros",
    "ones",
    "ones_like",
    "zeros_like",
    "scalar_tensor",
    "arange",
    "full",
    "nll_loss_backward",
)
"""Ops that write a tensor and read almost nothing."""
JOINS = ("cat", "stack")


def short_name(cells: Cells) -> str:
    """Return an op's name without its name space; "" if the row represents any op of its kind."""
    return cells.get("op", "").removeprefix("aten::")


def _function(name: str) -> Any:
    packet = getattr(torch.ops.aten, name, None)
    if packet is None:
        raise CannotTimeError(f"this PyTorch has no op {name}")
    return packet


def _values(cells: Cells, device: str, name: str, numel: int | None = None) -> Any:
    values = made([size_of(cells, "numel") if numel is None else numel], cells, device)
    return values.abs() + 0.5 if name in POSITIVE and values.is_floating_point() else values


def _one(cells: Cells, device: str) -> Case:
    name = short_name(cells)
    function, more = _function(name), ONE[name]
    return same_in_double(
        lambda data: function(data, *more), [_values(cells, device, name)], in_place=name.endswith("_")
    )


def _two(cells: Cells, device: str) -> Case:
    """Make a function of two tensors; the bytes read decide if the second is full, one row, or a number."""
    name, numel = short_name(cells), size_of(cells, "numel")
    function = _function(name)
    first = _values(cells, device, name)
    rest = round(float(cells["read_byte"]) / first.itemsize) - numel
    if size_of(cells, "inputs", 2) < 2 or rest <= 0:
        return same_in_double(lambda data: function(data, torch.tensor(2.0).to(data.dtype)), [first],
                              in_place=name.endswith("_"))  # fmt: skip
    if rest < numel and numel % rest == 0:
        first = first.reshape(numel // rest, rest)
    elif rest != numel:
        rest = 1
    second = _values(cells, device, name, rest)
    return same_in_double(lambda *pair: function(*pair), [first, second], in_place=name.endswith("_"))


def _back(cells: Cells, device: str) -> Case:
    name = short_name(cells)
    function, more = _function(name), BACK[name]
    values = [_values(cells, device, "") for _ in range(2)]
    return same_in_double(lambda *pair: function(*pair, *more), values)


def _elu_back(cells: Cells, device: str) -> Case:
    function = _function("elu_backward")
    gradient, values = (_values(cells, device, "") for _ in range(2))
    return same_in_double(lambda *pair: function(pair[0], 1.0, 1.0, 1.0, False, pair[1]), [gradient, values])


def _loss_back(cells: Cells, device: str) -> Case:
    function = _function("mse_loss_backward")
    gradient = made([], cells, device)
    values = [_values(cells, device, "") for _ in range(2)]
    return same_in_double(lambda *three: function(*three, 1), [gradient, *values])


def _dropout(cells: Cells, device: str) -> Case:
    """Make a dropout; the check compares the kept values, and the share of kept values with the probability."""
    function, data, keep_probability = _function("native_dropout"), _values(cells, device, ""), 0.9

    def check(result: Any) -> float:
        values, mask = result
        share = float(mask.double().mean())
        if abs(share - keep_probability) > 0.4 / max(mask.numel(), 1) ** 0.5 * 4 + 1e-9:
            return 1.0
        return error_of(values, exact(data) * mask / keep_probability)

    return Case(lambda: function(data, 1 - keep_probability, True), check)


def _dropout_back(cells: Cells, device: str) -> Case:
    function, gradient = _function("native_dropout_backward"), _values(cells, device, "")
    mask = torch.rand(gradient.shape, device=device) < 0.9
    return same_in_double(lambda *pair: function(*pair, 1 / 0.9), [gradient, mask])


def _where(cells: Cells, device: str) -> Case:
    values = _values(cells, device, "")
    chosen = torch.rand(values.shape, device=device) < 0.5
    full = float(cells["read_byte"]) > 2 * values.numel()
    first, zero = (values if full else made([], cells, device)), torch.zeros((), device=device, dtype=values.dtype)
    return same_in_double(torch.where, [chosen, first, zero])


def _decay(cells: Cells, device: str) -> Case:
    """Make a weight decay of all gradients at once, with the model's own tensor lengths if they are stated."""
    lengths = [int(part) for part in cells.get("lengths", cells["numel"]).split()]
    gradients, weights = ([made([length], cells, device) for length in lengths] for _ in range(2))

    def check(result: Any) -> float:
        return max(
            error_of(found, gradient.double() + 1e-4 * weight.double())
            for found, gradient, weight in zip(result, gradients, weights, strict=True)
        )

    return Case(lambda: torch._foreach_add(gradients, weights, alpha=1e-4), check)


def _clone(cells: Cells, device: str) -> Case:
    """Make a copy as attention needs it, of rows of 64 in another order; for other lengths a plain copy."""
    data = _values(cells, device, "")
    if data.numel() % 512 == 0:
        data = data.reshape(-1, 8, 64).transpose(0, 1)
    return same_in_double(lambda one: one.clone(memory_format=torch.contiguous_format), [data])


def _fill(cells: Cells, device: str) -> Case:
    numel, dtype = size_of(cells, "numel"), torch_dtype(cells)
    return same_in_double(lambda: torch.zeros(numel, device=device, dtype=dtype), [])


def _join(cells: Cells, device: str) -> Case:
    count, numel = max(1, size_of(cells, "inputs", 2)), size_of(cells, "numel")
    parts = [made([8, -(-numel // count // 8)], cells, device) for _ in range(count)]
    return same_in_double(lambda *all_parts: torch.cat(all_parts, 1), parts)


def _pad(cells: Cells, device: str) -> Case:
    each = torch_dtype(cells).itemsize
    read, written = (round(float(cells[f"{word}_byte"]) / each) for word in ("read", "write"))
    return same_in_double(
        lambda data: torch.ops.aten.constant_pad_nd(data, [0, written - read]), [made([read], cells, device)]
    )


NO_CAST = "its bytes are not those of a cast between numbers of 2, 4 and 8 bytes"


def _widths(cells: Cells) -> tuple[int, int] | None:
    """Return the bytes per number that a cast reads and writes, one of them the row's; None if it is no cast."""
    each = item_byte(cells)
    read, written = (float(cells[f"{way}_byte"]) / size_of(cells, "numel") for way in ("read", "write"))
    if read == written or each not in (read, written) or not {read, written} <= {2.0, 4.0, 8.0}:
        return None
    several = size_of(cells, "inputs", 1) > 1 and written == each
    return None if several else (int(read), int(written))


def _cast(cells: Cells, device: str) -> Case:
    """Make a copy from or to the row's number format; the other is bf16, fp32 or fp64 by its bytes."""
    widths = _widths(cells)
    if widths is None:
        raise CannotTimeError(NO_CAST)
    own, other = torch_dtype(cells), {2: torch.bfloat16, 4: torch.float32, 8: torch.float64}
    source, target = (own if width == item_byte(cells) else other[width] for width in widths)
    data = torch.randn(size_of(cells, "numel"), device=device).to(source)
    return same_in_double(lambda one: one.to(target), [data])


NAMED: Mapping[str, Maker] = {
    **dict.fromkeys(("weight cast", "gradient cast", "activation cast"), _cast),
    **dict.fromkeys(ONE, _one),
    **dict.fromkeys(TWO, _two),
    **dict.fromkeys(BACK, _back),
    **dict.fromkeys(FILLS, _fill),
    **dict.fromkeys(JOINS, _join),
    "elu_backward": _elu_back,
    "mse_loss_backward": _loss_back,
    "native_dropout": _dropout,
    "native_dropout_backward": _dropout_back,
    "where": _where,
    "weight_decay": _decay,
    "clone": _clone,
    "constant_pad_nd": _pad,
}
"""Makers of element-wise ops and copies, by the op's short name."""


def _tensors(cells: Cells) -> int:
    """Count the tensors of full size that an element-wise op reads, from its bytes."""
    whole = size_of(cells, "numel") * item_byte(cells)
    read = float(cells["read_byte"]) / whole
    if abs(float(cells["write_byte"]) / whole - 1) > 0.01 or abs(read - round(read)) > 0.01 or not 1 <= read <= 3:
        raise CannotTimeError("its bytes are not those of one to three tensors read and one written")
    return round(read)


def check_elementwise(cells: Cells) -> None:
    """Raise `CannotTimeError` if an element-wise op or a copy has a name or a traffic that is not supported."""
    name = short_name(cells)
    if name and name not in NAMED:
        raise CannotTimeError(f"the op {name} is not timed here")
    if NAMED.get(name) is _cast and _widths(cells) is None:
        raise CannotTimeError(NO_CAST)
    if not name and not (cells["kind"] == "copy" and _widths(cells)):
        _tensors(cells)


def elementwise(cells: Cells, device: str) -> Case:
    """Make an element-wise op or a copy: the named op, else any op with the same traffic.

    A copy from one number format into another is a cast, a copy of several tensors is a concatenation, and a copy
    that reads more than it writes is an element-wise function of so many tensors.
    """
    name = short_name(cells)
    if name:
        return NAMED[name](cells, device)
    if cells["kind"] == "copy":
        if _widths(cells):
            return _cast(cells, device)
        if _tensors(cells) == 1:
            several = size_of(cells, "inputs", 1) > 1
            return _join(cells, device) if several else same_in_double(torch.clone, [_values(cells, device, "")])
    count = _tensors(cells)
    parts = [_values(cells, device, "") for _ in range(count)]
    by_count: Mapping[int, Callable[..., Any]] = {1: torch.relu, 2: torch.add, 3: torch.addcmul}
    return same_in_double(by_count[count], parts)

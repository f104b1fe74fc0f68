"""Make the op of any kind as a case to time, by the maker of its kind; optimizer updates are made here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fomkit.harness.torch.cases import (
    CannotTimeError,
    Case,
    Cells,
    error_of,
    item_byte,
    size_of,
    torch,
    torch_dtype,
)
from fomkit.harness.torch.products import (
    attention,
    check_attention,
    check_convolution,
    check_product,
    check_sparse_product,
    convolution,
    product,
    recurrent,
    sparse_product,
)
from fomkit.harness.torch.traffic import NAMED, check_elementwise, elementwise, short_name
from fomkit.harness.torch.windows import OVER, check_rows, over_rows

RULES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "sgd": ("SGD", {}),
    "momentum": ("SGD", {"momentum": 0.9}),
    "nesterov": ("SGD", {"momentum": 0.9, "nesterov": True}),
    "adam": ("Adam", {}),
    "adam_amsgrad": ("Adam", {"amsgrad": True}),
    "adamw": ("AdamW", {}),
    "adamw_amsgrad": ("AdamW", {"amsgrad": True}),
    "adamax": ("Adamax", {}),
    "nadam": ("NAdam", {}),
    "radam": ("RAdam", {}),
    "rmsprop": ("RMSprop", {}),
    "rmsprop_momentum": ("RMSprop", {"momentum": 0.9}),
    "adagrad": ("Adagrad", {}),
    "adadelta": ("Adadelta", {}),
}
"""Class of ``torch.optim`` and its options, by rule."""


def check_update(cells: Cells) -> None:
    """Raise `CannotTimeError` if the rule of an update is not in `RULES`."""
    if cells["rule"] not in RULES:
        raise CannotTimeError(f"the rule {cells['rule']} is not timed here")


def _lengths(cells: Cells) -> list[int]:
    """Return the elements of each tensor: as stated, else of equal length.

    A tensor above the allocator's limit gets fresh pages for each of its temporaries, so the time depends on the
    division into tensors.
    """
    if cells.get("lengths"):
        return [int(part) for part in cells["lengths"].split()]
    tensors = max(1, round(float(cells["tensors"])))
    return [-(-size_of(cells, "numel") // tensors)] * tensors


def _optimizer(cells: Cells, lengths: Sequence[int], device: str) -> Callable[[Any], tuple[Any, list[Any]]]:
    name, options = RULES[cells["rule"]]
    how = {"foreach": cells["impl"] == "foreach"}
    if cells["impl"] == "fused":
        how["fused"] = True

    def optimizer(dtype: Any) -> tuple[Any, list[Any]]:
        generator = torch.Generator(device).manual_seed(1)
        parameters = []
        for length in lengths:
            drawn = torch.randn((2, length), device=device, dtype=torch_dtype(cells), generator=generator)
            values = drawn.to(dtype)
            parameters.append(values[0].clone().requires_grad_(True))
            parameters[-1].grad = values[1].clone()
        return getattr(torch.optim, name)(parameters, lr=0.1, **how, **options), parameters

    return optimizer


def update(cells: Cells, device: str) -> Case:
    """Make an optimizer's update; the check recomputes the longest tensor alone, from the same start."""
    lengths = _lengths(cells)
    longest = lengths.index(max(lengths))
    optimizer, parameters = _optimizer(cells, lengths, device)(torch_dtype(cells))
    before, gradient = (value.detach().clone() for value in (parameters[longest], parameters[longest].grad))

    def run() -> Any:
        optimizer.step()
        return parameters[longest].detach()

    def check(result: Any) -> float:
        exact, truth = _optimizer({**cells, "impl": "per_tensor"}, [1], device)(torch.float64)
        del truth
        alone = before.double().requires_grad_(True)
        alone.grad = gradient.double()
        exact.param_groups[0]["params"] = [alone]
        exact.step()
        # Compare the changes, not the parameters: a change is small relative to its parameter.
        changed = alone.detach() - before.double()
        return error_of(result.double() - before.double(), changed)

    return Case(run, check)


MAKERS: Mapping[str, Callable[[Cells, str], Case]] = {
    "gemm": product,
    "sparse_gemm": sparse_product,
    "conv": convolution,
    "rnn": recurrent,
    "attention": attention,
    "pointwise": elementwise,
    "copy": elementwise,
    "softmax": over_rows,
    "norm": over_rows,
    "reduction": over_rows,
    "pool": over_rows,
    "embedding": over_rows,
    "optimizer": update,
}
CHECKS: Mapping[str, Callable[[Cells], None]] = {
    "gemm": check_product,
    "sparse_gemm": check_sparse_product,
    "conv": check_convolution,
    "attention": check_attention,
    **dict.fromkeys(("pointwise", "copy"), check_elementwise),
    **dict.fromkeys(("softmax", "norm", "reduction", "pool", "embedding"), check_rows),
    "optimizer": check_update,
}
"""Functions, by kind, that raise `CannotTimeError` for a row that the maker cannot make; other kinds have none."""


def knows_op(cells: Cells) -> bool:
    """Return whether the op that a row names is made here, so that the timing may have that name."""
    name = short_name(cells)
    return name in (OVER if MAKERS.get(cells["kind"]) is over_rows else NAMED)


def check_case(cells: Cells) -> None:
    """Check, without PyTorch, that the op of a row can be made here.

    Raises CannotTimeError when the op cannot be made here or a size is missing.
    """
    if cells["kind"] not in MAKERS:
        raise CannotTimeError(f"the kind {cells['kind']} is not timed here")
    try:
        item_byte(cells)
        if cells["kind"] in CHECKS:
            CHECKS[cells["kind"]](cells)
    except (KeyError, ValueError) as error:
        raise CannotTimeError(f"a size is missing or no number ({error})") from error


def make_case(cells: Cells, device: str) -> Case:
    """Make the op of a row.

    `cells`: cells of a row of timings by column, as text; `device`: ``cpu`` or ``cuda``. Raises CannotTimeError
    when the op cannot be made here.
    """
    check_case(cells)
    try:
        return MAKERS[cells["kind"]](cells, device)
    except (KeyError, ValueError) as error:
        raise CannotTimeError(f"a size is missing or no number ({error})") from error

"""Which file makes an op of which kind, and the updates of optimizers among them."""

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
    """Raise `CannotTimeError` where the rule of an update is not known here."""
    if cells["rule"] not in RULES:
        raise CannotTimeError(f"the rule {cells['rule']} is not timed here")


def _lengths(cells: Cells) -> list[int]:
    """Give the elements of each tensor: those that are stated, else all alike.

    A tensor above the allocator's limit gets fresh pages for each of its temporaries, so how the elements are
    shared out decides.
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
    """Make an optimizer's update; its check computes the longest tensor alone, from the same start."""
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
        # What a step changes is small beside the parameter, and it is the change that may be wrong.
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
"""What raises `CannotTimeError` for a row that its maker does not make, by kind; the other kinds are all made."""


def knows_op(cells: Cells) -> bool:
    """Tell whether the op that a row names is made here, so that its timing may carry the name."""
    name = short_name(cells)
    return name in (OVER if MAKERS.get(cells["kind"]) is over_rows else NAMED)


def check_case(cells: Cells) -> None:
    """Find out, without PyTorch, whether the op of a row whose sizes are complete is made here.

    Raises CannotTimeError when the op has no way to be made here.
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
    when the op has no way to be made here.
    """
    check_case(cells)
    try:
        return MAKERS[cells["kind"]](cells, device)
    except (KeyError, ValueError) as error:
        raise CannotTimeError(f"a size is missing or no number ({error})") from error

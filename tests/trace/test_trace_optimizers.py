"""Updates priced from the parameters, compared with torch.optim recorded on small real tensors."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from traced_work import numbers

from fomkit.core.model import Workload
from fomkit.frontends.profile import profile_workload
from fomkit.ops.pricing import add_costs

P1B3_WIDTHS = (29532, 1000, 500, 100, 50, 1)
P1B3_PARAMETERS = 30_088_701

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "sgd": ("SGD", {"lr": 0.1}),
    "sgd, decay": ("SGD", {"lr": 0.1, "weight_decay": 0.1}),
    "sgd, maximize": ("SGD", {"lr": 0.1, "maximize": True}),
    "momentum": ("SGD", {"lr": 0.1, "momentum": 0.9}),
    "momentum, dampening": ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.5}),
    "nesterov": ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    "adam": ("Adam", {}),
    "adam, decay": ("Adam", {"weight_decay": 0.1}),
    "adam, amsgrad": ("Adam", {"amsgrad": True}),
    "adamw": ("AdamW", {}),
    "adamw without decay": ("AdamW", {"weight_decay": 0.0}),
    "adamw, amsgrad, maximize": ("AdamW", {"amsgrad": True, "maximize": True}),
    "adamax": ("Adamax", {}),
    "nadam": ("NAdam", {}),
    "nadam, decoupled decay": ("NAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True}),
    "radam, decay": ("RAdam", {"weight_decay": 0.1}),
    "rmsprop": ("RMSprop", {}),
    "rmsprop, centered": ("RMSprop", {"centered": True}),
    "rmsprop, momentum": ("RMSprop", {"momentum": 0.9}),
    "rmsprop, both": ("RMSprop", {"centered": True, "momentum": 0.9}),
    "adagrad": ("Adagrad", {}),
    "adadelta, decay": ("Adadelta", {"weight_decay": 0.1}),
}
SWITCHES = {"per_tensor": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}
FUSED = ("SGD", "Adam", "AdamW", "Adagrad")


def tensors_in(torch: Any, values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, torch.Tensor) and value.numel() > 1:  # step counts and rates are single numbers
            yield value
        elif isinstance(value, list | tuple):
            yield from tensors_in(torch, value)


def recorded(torch: Any, make: Any, shapes: list[tuple[int, ...]]) -> tuple[int, int]:
    """Run real steps; return kernels and bytes of the seventh: each tensor read once, each result written."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watch(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.kernels, self.byte = 0, 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            read = {id(one): one for one in tensors_in(torch, args)}
            name = func._schema.name.partition("::")[2]
            state = name.startswith("_fused")
            # A fused call lists what it changes before and after the gradients, which it leaves alone.
            changed = [*args[:1], *args[2:5]] if state else args[:1]
            out = [kwargs["out"]] if kwargs and "out" in kwargs else []
            written = changed if name.endswith("_") else out or [result]
            if read:
                self.kernels += 1
                moved = [*read.values(), *tensors_in(torch, written)]
                self.byte += sum(one.numel() * one.element_size() for one in moved)
            return result

    parameters = [torch.nn.Parameter(torch.ones(shape)) for shape in shapes]
    optimizer = make(parameters)
    for _ in range(7):  # RAdam warms up for five
        for parameter in parameters:
            parameter.grad = torch.full_like(parameter, 0.1)
        with Watch() as watch:
            optimizer.step()
    return watch.kernels, watch.byte


@pytest.mark.parametrize("impl", SWITCHES)
@pytest.mark.parametrize("case", CASES)
def test_priced_updates_move_what_torch_moves(torch: Any, case: str, impl: str) -> None:
    kind, given = CASES[case]
    if impl == "fused" and kind not in FUSED:
        with pytest.raises(TypeError, match="fused"):
            getattr(torch.optim, kind)([torch.nn.Parameter(torch.ones(2))], fused=True)
        return

    def make(parameters: Any) -> Any:
        return getattr(torch.optim, kind)(parameters, **given, **SWITCHES[impl])

    kernels, byte = recorded(torch, make, [(4, 8), (4,)])
    workload = Workload(torch.nn.Linear(8, 4), lambda batch: torch.randn(batch, 8), None, make, batch_size=2)
    priced = add_costs(numbers(profile_workload(workload)).query("pass_name == 'update'"))
    assert (priced["byte"] * priced["count"]).sum() == byte
    # Two tensors: a list update starts each kernel once, one by one twice; the adding up of lists is rounded up.
    assert (priced["launches"] * priced["count"]).sum() == kernels
    assert set(priced.loc[priced["kind"] == "optimizer", "impl"]) == {impl}


def test_p1b3_moves_2_17_gb_tensor_by_tensor_and_the_first_step_of_a_trace_2_77(torch: Any) -> None:
    """The notes on frameworks say 2.77 GB, which is a first step with its squared gradient counted twice."""
    with torch.device("meta"):
        layers = [torch.nn.Linear(one, two) for one, two in pairwise(P1B3_WIDTHS)]
        model = torch.nn.Sequential(*layers)

    def moved(**switch: bool) -> float:
        workload = Workload(
            model,
            lambda batch: torch.randn(batch, P1B3_WIDTHS[0]),
            None,
            lambda parameters: torch.optim.Adam(parameters, **switch),
            batch_size=100,
        )
        return float(add_costs(numbers(profile_workload(workload)).query("kind == 'optimizer'"))["byte"].iloc[0])

    assert moved(fused=True) == 842_483_628
    assert moved(foreach=False) == 18 * 4 * P1B3_PARAMETERS == 2_166_386_472
    twice_and_first = (18 + 1 + 2 * 2) * 4 * P1B3_PARAMETERS
    assert twice_and_first == pytest.approx(2.77e9, rel=1e-3)

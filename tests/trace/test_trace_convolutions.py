"""Output sizes of convolutions and their traffic, compared with PyTorch's for the same call."""

from __future__ import annotations

from typing import Any

import pytest
from traced_work import numbers

from fomkit.core.model import Workload
from fomkit.frontends.profile import profile_workload
from fomkit.ops.pricing import add_costs

BATCH = 6


def test_a_convolution_by_steps_has_a_product_for_each_tap(torch: Any) -> None:
    """Of three taps with a padding of 1, the first and the last one leave out a step."""

    class ByStep(torch.nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.before = torch.nn.Linear(5, 5)
            self.weight, self.bias = (torch.nn.Parameter(torch.ones(shape)) for shape in ((3, 5, 4), (4,)))

        def forward(self, values: Any) -> Any:
            return torch.conv_tbc(self.before(values), self.weight, self.bias, 1)

    profile = profile_workload(Workload(ByStep(), torch.ones(7, 2, 5)))
    assert not profile.unsupported
    rows = numbers(profile).query("kind == 'gemm' and module != 'before'")
    counted = rows.groupby("pass_name").apply(lambda of: (of["m"] * of["n"] * of["k"] * of["count"]).sum())
    taps = (6 + 7 + 6) * 2 * 5 * 4
    assert counted.to_dict() == {"forward": taps, "backward_input": taps, "backward_weight": taps}


def layers(torch: Any) -> dict[str, tuple[Any, tuple[int, ...]]]:
    nn = torch.nn
    return {
        "1-D": (nn.Conv1d(4, 8, 5, stride=3, padding=2), (4, 20)),
        "3-D": (nn.Conv3d(4, 2, 3, padding=(0, 1, 2), dilation=(1, 2, 1)), (4, 5, 9, 7)),
        "grouped": (nn.Conv2d(4, 8, 3, groups=2, bias=False), (4, 9, 9)),
        "same": (nn.Conv2d(4, 8, (3, 5), padding="same"), (4, 9, 9)),
        "transposed": (nn.ConvTranspose2d(4, 8, 4, stride=2, padding=1), (4, 9, 9)),
        "transposed, output padding": (nn.ConvTranspose2d(4, 8, 3, 2, 1, output_padding=1), (4, 9, 9)),
        "transposed, 1-D, output padding": (nn.ConvTranspose1d(4, 6, 3, 3, output_padding=2, groups=2), (4, 10)),
        "transposed, 3-D": (nn.ConvTranspose3d(4, 2, 3, (1, 2, 3), output_padding=(0, 1, 2)), (4, 5, 6, 7)),
    }


CASES = (
    *("1-D", "3-D", "grouped", "same", "transposed", "transposed, output padding"),
    *("transposed, 1-D, output padding", "transposed, 3-D"),
)


@pytest.mark.parametrize("name", CASES)
def test_a_convolution_reads_and_writes_what_its_tensors_hold(torch: Any, name: str) -> None:
    layer, shape = layers(torch)[name]
    output = layer(torch.zeros(BATCH, *shape))
    model = torch.nn.Sequential(torch.nn.PReLU(), layer)
    profile = profile_workload(Workload(model, lambda batch: torch.randn(batch, *shape), batch_size=BATCH))
    rows = add_costs(numbers(profile)).query("kind == 'conv'")
    held = BATCH * torch.Size(shape).numel() + layer.weight.numel() + output.numel()
    assert rows["byte"].tolist() == [4 * held] * 3
    # Every kernel element meets each position it slides over: of the input where transposed, else of the output.
    places = BATCH * torch.Size(shape[1:]).numel() if "transposed" in name else output[:, 0].numel()
    assert rows["flop"].tolist() == [2 * layer.weight.numel() * places] * 3


def test_an_output_size_asked_for_is_an_output_padding(torch: Any) -> None:
    class Doubled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.ConvTranspose1d(4, 8, 3, stride=2, padding=1)

        def forward(self, x: Any) -> Any:
            return self.layer(x, output_size=[2 * x.shape[-1]])

    profile = profile_workload(Workload(Doubled(), lambda batch: torch.randn(batch, 4, 10), batch_size=BATCH))
    assert profile.ops.loc[0, ["output_pad_d", "output_pad_h", "output_pad_w"]].tolist() == [0, 0, 1]

"""The layers of a forward pass: which layer owns parameters, makes an output, reads it."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from fomkit.core.model import Workload
from fomkit.frontends.profile import profile_workload
from fomkit.ops.check import check_table
from fomkit.ops.resize import resize_ops


def layers_of(torch: Any, model: Any, width: int = 8, **more: Any) -> pd.DataFrame:
    workload = Workload(model, lambda batch: torch.randn(batch, width), lambda output, _: output.mean(), **more)
    found = profile_workload(workload, batch=5)
    table = resize_ops(found.layers, found.sizes, "test")
    check_table(table, "LAYERS", "test")
    assert table["parameters"].sum() == found.parameters_total
    return table


@pytest.mark.usefixtures("on_meta")
def test_a_chain(torch: Any) -> None:
    nn = torch.nn
    model = nn.Sequential(nn.Linear(8, 4), nn.ReLU(inplace=True), nn.Dropout(0.5), nn.Identity(), nn.Linear(4, 3))
    table = layers_of(torch, model)
    assert table["layer"].tolist() == ["input", "linear", "relu", "dropout", "Identity", "linear"]
    assert table["acts"].tolist() == ["input", "always", "always", "training", "never", "always"]
    assert table["parameters"].tolist() == [0, 36, 0, 0, 0, 15]
    assert table["parameter_byte"].tolist() == [0, 144, 0, 0, 0, 60]
    assert table["bias"].tolist() == [0, 4, 0, 0, 0, 3]
    assert table["output_numel"].tolist() == [40, 20, 20, 20, 20, 15]
    assert table["output_byte"].tolist() == [160, 80, 80, 80, 80, 60]
    assert table["in_place"].tolist() == [0, 0, 1, 0, 0, 0]
    # Whatever hands its input on reads nothing: the last layer reads the dropout's output.
    assert table["readers"].tolist() == [1, 1, 1, 1, 0, 0]


@pytest.mark.usefixtures("on_meta")
def test_functions_between_modules_are_layers_too(torch: Any) -> None:
    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(8))
            self.inside = torch.nn.Linear(8, 8, bias=False)
            self.unused = torch.nn.Linear(2, 2)

        def forward(self, x: Any) -> Any:
            x = self.inside(self.inside(x * self.scale)) + x
            return torch.cat([x, x.flatten(1)], dim=1)

    table = layers_of(torch, Block())
    assert table["layer"].tolist() == ["input", "mul", "linear", "add", "concat", "Block", "linear"]
    assert table["module"].tolist() == ["", "", "inside", "", "", "", "unused"]
    assert table["op"].tolist() == ["", "aten::mul", "", "aten::add", "aten::cat", "", ""]
    # Both calls of the linear layer are alike; what no call owns stands last, called 0 times.
    assert table["count"].tolist() == [1, 1, 2, 1, 1, 0, 0]
    assert table["parameters"].tolist() == [0, 0, 64, 0, 0, 8, 6]
    # The data is read by the product with the scale and by the sum; the sum twice, by one layer.
    assert table["readers"].tolist() == [2, 1, 1, 1, 0, 0, 0]
    assert table["output_numel"].tolist() == [40, 40, 40, 40, 80, 0, 0]


@pytest.mark.usefixtures("on_meta")
def test_shared_weights_belong_to_the_first(torch: Any) -> None:
    first, second = torch.nn.Linear(8, 8, bias=False), torch.nn.Linear(8, 8, bias=False)
    second.weight = first.weight
    table = layers_of(torch, torch.nn.Sequential(first, second))
    assert table["parameters"].tolist() == [0, 64, 0]


@pytest.mark.usefixtures("on_meta")
def test_attention_is_one_layer_and_a_recurrent_layer_owns_its_first_states(torch: Any) -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = torch.nn.LSTM(8, 8, batch_first=True)

        def forward(self, x: Any) -> Any:
            x = self.rnn(x.unflatten(1, (4, 8)))[0].unsqueeze(1)
            return torch.nn.functional.scaled_dot_product_attention(x, x, x)

    table = layers_of(torch, Net(), width=32)
    assert table["layer"].tolist() == ["input", "lstm", "attention"]
    # All steps' states, and the last hidden and cell state.
    assert table["output_numel"].tolist() == [160, 5 * 4 * 8 + 2 * 5 * 8, 160]
    assert table["readers"].tolist() == [1, 1, 0]


@pytest.mark.usefixtures("on_meta")
def test_layers_that_run_again_in_the_backward_pass_count_once(torch: Any) -> None:
    from torch.utils.checkpoint import checkpoint

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inside = torch.nn.Linear(8, 8)

        def forward(self, x: Any) -> Any:
            return checkpoint(lambda y: torch.sin(self.inside(y)), x, use_reentrant=False)

    table = layers_of(torch, Net())
    assert table["layer"].tolist() == ["input", "linear", "sin"]
    assert table["count"].tolist() == [1, 1, 1]


@pytest.mark.usefixtures("on_meta")
def test_lazy_and_unknown_modules_go_by_their_names(torch: Any) -> None:
    class Squash(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x.tanh()

    table = layers_of(torch, torch.nn.Sequential(torch.nn.LazyLinear(4), Squash()))
    assert table["layer"].tolist() == ["input", "linear", "Squash"]
    assert table["parameters"].tolist() == [0, 36, 0]

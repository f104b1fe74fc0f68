"""The line of the user's code behind each op: forward, backward, run again, in scripts, libraries and layers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from fomkit.core.model import ModelProfile, Workload
from fomkit.frontends.lowering.calls import FORWARD, TracedOp
from fomkit.frontends.model_file import CodeLines, is_user_file
from fomkit.frontends.profile import profile_file, profile_script, profile_workload
from fomkit.frontends.sizes import name_sizes
from fomkit.frontends.step import count_rows
from fomkit.ops.tables import code_line, join_lines, split_code_lines

TORCH_MODEL = """\
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from inner.blocks import Block

class Twice(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x * 2

    @staticmethod
    def backward(context, gradient):
        return gradient * 2

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.block = nn.Linear(8, 8), Block()
        self.last = nn.Sequential(
            nn.Linear(8, 8),
            nn.Sigmoid(),
        )

    def forward(self, x):
        x = torch.tanh(self.first(x))
        x = torch.tanh(x)
        x = checkpoint(self.block, x, use_reentrant=False)
        x[:, 0] = 0.5
        x = Twice.apply(x)
        return self.last(x)

model = Net()
batch_size = 4
inputs = lambda batch: torch.randn(batch, 8)
loss_fn = lambda output, inputs: output.sum()
optimizer = lambda parameters: torch.optim.SGD(parameters, lr=0.1)
"""
BLOCK = """\
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 8)

    def forward(self, x):
        return self.inner(x).relu()
"""
SEQUENTIAL = """\
import torch
from torch import nn

def layer():
    return nn.Linear(8, 8)

model = nn.Sequential(
    layer(),
    nn.ReLU(),
    nn.Sequential(nn.Linear(8, 2)),
)
batch_size = 4
inputs = lambda batch: torch.randn(batch, 8)
"""
SCRIPT = """\
import torch
model = torch.nn.Linear(8, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(5):
    optimizer.zero_grad()
    output = model(torch.randn(6, 8))
    loss = output.square().sum()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
"""


def lines_of(profile: ModelProfile, op: str, pass_name: str, module: str | None = None) -> list[str]:
    """Return the cells of the rows of an op."""
    ops = profile.ops
    rows = ops[(ops["op"] == op) & (ops["pass_name"] == pass_name)]
    return rows["code_line"][(rows["module"] == module) | (module is None)].tolist()


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> ModelProfile:
    pytest.importorskip("torch", reason="the tracer's tests need PyTorch: pip install '.[torch]'")
    folder = tmp_path_factory.mktemp("net")
    (folder / "inner").mkdir()
    (folder / "inner" / "blocks.py").write_text(BLOCK)
    (folder / "model.py").write_text(TORCH_MODEL)
    return profile_file(folder / "model.py")


def test_a_forward_op_has_the_innermost_line_of_the_users(net: ModelProfile) -> None:
    assert lines_of(net, "aten::addmm", "forward", "first") == ["model.py:25 Net.forward"]
    assert lines_of(net, "aten::addmm", "forward", "block.inner") == ["inner/blocks.py:9 Block.forward"]
    assert lines_of(net, "aten::sum", "forward") == ["model.py:35 <lambda>"]
    assert lines_of(net, "aten::mul", "forward") == ["model.py:9 Twice.forward"]


def test_lines_of_one_row_are_joined_with_their_executions(net: ModelProfile) -> None:
    both = ["model.py:25 Net.forward ×1; model.py:26 Net.forward ×1"]
    assert lines_of(net, "aten::tanh", "forward") == both
    backward = lines_of(net, "aten::tanh_backward", "backward")
    assert sorted(backward[0].split("; ")) == both[0].split("; ")


def test_a_backward_op_has_the_line_of_the_op_whose_gradient_it_is(net: ModelProfile) -> None:
    assert lines_of(net, "aten::mm", "backward_weight", "first") == ["model.py:25 Net.forward"]
    assert lines_of(net, "aten::threshold_backward", "backward") == ["inner/blocks.py:9 Block.forward"]
    assert lines_of(net, "aten::mul", "backward") == ["model.py:9 Twice.forward"]
    assert lines_of(net, "aten::mm", "backward_input", "block.inner") == ["inner/blocks.py:9 Block.forward"]


def test_what_checkpointing_runs_again_has_its_own_line(net: ModelProfile) -> None:
    assert lines_of(net, "aten::addmm", "backward", "block.inner") == ["inner/blocks.py:9 Block.forward"]


def test_layers_that_the_framework_calls_have_the_line_that_made_them(net: ModelProfile) -> None:
    # The Sequential itself is called by the user.
    assert lines_of(net, "aten::sigmoid", "forward") == ["model.py:30 Net.forward"]
    assert lines_of(net, "SGD.step", "update") == [""]


@pytest.mark.usefixtures("torch")
def test_a_sequential_has_the_lines_of_its_layers(file_of: Callable[[str], Path]) -> None:
    profile = profile_file(file_of(SEQUENTIAL))
    assert lines_of(profile, "aten::addmm", "forward", "0") == ["model.py:5 layer"]
    assert lines_of(profile, "aten::relu", "forward") == ["model.py:9 <module>"]
    assert lines_of(profile, "aten::addmm", "forward", "2.0") == ["model.py:10 <module>"]
    assert lines_of(profile, "aten::mm", "backward_weight", "2.0") == ["model.py:10 <module>"]


def test_parts_have_no_lines_of_their_own(net: ModelProfile) -> None:
    assert set(net.parts.get("code_line", pd.Series([""])).tolist()) <= {""}


@pytest.mark.usefixtures("torch")
def test_a_script_has_the_lines_of_its_loop(file_of: Callable[..., Path]) -> None:
    profile = profile_script(file_of(SCRIPT, "train.py"))
    assert lines_of(profile, "aten::addmm", "forward") == ["train.py:6 <module>"]
    assert lines_of(profile, "aten::mm", "backward_weight") == ["train.py:6 <module>"]
    assert lines_of(profile, "aten::pow", "forward") == ["train.py:7 <module>"]
    assert lines_of(profile, "aten::_foreach_norm", "update") == ["train.py:9 <module>"]
    assert lines_of(profile, "SGD.step", "update") == ["train.py:10 <module>"]


def test_who_asks_for_a_profile_runs_no_op(torch: Any) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4))
    profile = profile_workload(Workload(model, lambda batch: torch.randn(batch, 4), batch_size=2))
    assert lines_of(profile, "aten::addmm", "forward") == [""]


@pytest.fixture
def installed() -> str:
    """Return a folder of installed packages."""
    return "/opt/anywhere/lib/python3.12/site-packages"


def test_files_are_named_from_a_folder_of_imports_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", ["/srv/user", "/srv/user/project"])
    stack = [("/opt/x/site-packages/torch/nn/module.py", 3, "call"), ("/srv/user/project/nets/a.py", 4, "run")]
    assert CodeLines().of_stack(stack) == "nets/a.py:4 run"
    assert CodeLines().of_stack([("/srv/elsewhere/b.py", 5, "run")]) == "b.py:5 run"


def test_a_librarys_line_stands_where_no_user_is(installed: str) -> None:
    stack = [
        (f"{installed}/torch/nn/functional.py", 1, "linear"),
        (f"{installed}/transformers/models/bert.py", 7, "attend"),
        (f"{installed}/transformers/trainer.py", 8, "train"),
    ]
    assert CodeLines().of_stack(stack) == "transformers/models/bert.py:7 attend"
    assert CodeLines().of_stack(stack[:1]) == ""
    own = ("/srv/user/train.py", 9, "main")
    assert CodeLines().of_stack([*stack, own]).endswith("train.py:9 main")


def test_generated_code_is_nobodys(installed: str) -> None:
    lines = CodeLines()
    assert lines.of_stack([("<eval_with_key>.3", 2, "forward"), ("<frozen runpy>", 1, "run")]) == ""
    assert not is_user_file(f"{installed}/torch/nn/modules/module.py")


def test_cells_of_a_notebook_have_no_path_of_the_machine() -> None:
    assert CodeLines().of_stack([("/tmp/ipykernel_31/417.py", 6, "forward")]) == "notebook:6 forward"


def test_a_joined_cell_reads_back() -> None:
    cell = join_lines({code_line("a;b.py", 3, "f×"): 2, "c.py:4 g": 1}, 3)
    assert cell == "a,b.py:3 fx ×2; c.py:4 g ×1"
    assert [(one.file, one.line, one.function, one.times) for one in split_code_lines(cell)] == [
        ("a,b.py", 3, "fx", 2),
        ("c.py", 4, "g", 1),
    ]
    assert split_code_lines("somewhere in the code")[0].file == "somewhere in the code"
    assert split_code_lines("") == []


@pytest.mark.parametrize(
    "text", [":1 " * 20_000 + "×", "a:" * 20_000, "f:" + "9" * 20_000, "a.py:3 f ×" + "9" * 9000]
)
def test_a_hostile_cell_is_a_text_like_any(text: str) -> None:
    (found,) = split_code_lines(text)
    assert text.startswith(found.file)
    assert found.line in (None, 1)
    assert found.times is None


def test_counts_that_are_expressions_leave_the_lines_without_theirs() -> None:
    def step(steps: int) -> list[TracedOp]:
        one, other = (
            TracedOp("mm", "gemm", {"m": 4}, "fp32", FORWARD, "", lines={line: 1}) for line in ("a:1 f", "a:2 f")
        )
        return [one, *[other] * steps]

    sizes = [{"seq": seq} for seq in (3, 5, 8)]
    named = name_sizes([step(one["seq"]) for one in sizes], sizes, ["seq"])
    rows, _ = count_rows(named)
    assert [(row["count"], row["code_line"]) for row in rows] == [("seq + 1", "a:1 f; a:2 f")]

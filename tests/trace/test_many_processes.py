"""Programs meant to be started once per device, run as a single process; and ops without a rule."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from traced_work import numbers
from typer.testing import CliRunner

from fomkit.cli.main import app
from fomkit.core.errors import FomkitError
from fomkit.core.model import ModelProfile
from fomkit.frontends.profile import is_program, profile_script
from fomkit.plan.coverage import check_bounded
from fomkit.plan.estimate import estimate
from fomkit.plan.options import Options
from fomkit.profiles.machines import load_machine
from fomkit.profiles.models import load_model, save_model

torch = pytest.importorskip("torch", reason="the tracer's tests need PyTorch: pip install '.[torch]'")

from fomkit.frontends.script.torch_draft import one_process  # noqa: E402

pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="PyTorch without torch.distributed")

PROGRAM = """
{before}
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

rows = DataLoader(TensorDataset(torch.randn(512, 64), torch.randint(0, 10, (512,))), batch_size=16)
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
{wrap}
optimizer = {optimizer}(model.parameters(), lr=0.1)
for values, targets in rows:
    optimizer.zero_grad()
    {more}
    nn.functional.cross_entropy(model(values), targets).backward()
    optimizer.step()
"""
GROUP = "import torch; import torch.distributed as dist; dist.init_process_group('nccl')"
WAYS = {
    "copies": (f"{GROUP}; import os; os.environ['LOCAL_RANK']",
               "from torch.nn.parallel import DistributedDataParallel as DDP; model = DDP(model)"),
    "copies on CUDA": (
        f"import os; {GROUP}; here = int(os.environ['LOCAL_RANK']); torch.cuda.set_device(here)",
        "from torch.nn.parallel import DistributedDataParallel as DDP; "
        "model = DDP(model.to(here), device_ids=[here], output_device=here); "
        "ones = torch.ones(2, device=f'cuda:{here}').cuda(); torch.cuda.synchronize()",
    ),
    "calls of its own": (GROUP, "[one.register_post_accumulate_grad_hook(lambda one: dist.all_reduce(one.grad)) "
                                "for one in model.parameters()]"),
    "shards": (GROUP, "from torch.distributed.fsdp import fully_shard; fully_shard(model[0]); fully_shard(model)"),
    "shards of before": (GROUP, "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP; "
                                "model = FSDP(model); assert model[2].out_features == 10"),
}  # fmt: skip
LAMB = """
import torch
class Lamb(torch.optim.Optimizer):
    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr})
    @torch.no_grad()
    def step(self, closure=None):
        for parameter in self.param_groups[0]["params"]:
            update = parameter.grad + 0.01 * parameter
            parameter.add_(update * (parameter.norm() / update.norm()), alpha=-self.param_groups[0]["lr"])
"""


def program(
    folder: Path, before: str = "", wrap: str = "", optimizer: str = "torch.optim.SGD", more: str = ""
) -> Path:
    path = folder / "train.py"
    path.write_text(PROGRAM.format(before=before, wrap=wrap, optimizer=optimizer, more=more or "pass"))
    return path


def products(profile: ModelProfile) -> list[tuple[object, ...]]:
    rows = numbers(profile)
    rows = rows[rows["kind"] == "gemm"]
    rows = rows.assign(pass_name=rows["pass_name"].str.split("_").str[0])  # shards do not say whose gradient it is
    return sorted(rows[["pass_name", "m", "n", "k", "count"]].itertuples(index=False, name=None))


@pytest.mark.parametrize("way", WAYS)
def test_one_of_many_processes_gives_the_step_of_one_device(way: str, tmp_path: Path) -> None:
    path = program(tmp_path, *WAYS[way])
    assert is_program(path)
    found = profile_script(path)
    assert not found.unsupported
    assert not found.bounded
    assert (found.batch, found.data.train_samples) == (16, 512)
    assert found.parameters_total == 64 * 256 + 256 + 256 * 10 + 10
    (note,) = (note for note in found.caveats if note.startswith("the step of one of processes"))
    assert ("--layout zero=3" in note) is way.startswith("shards")
    assert found.title == "Sequential, training step"
    assert ("by calls of their own" in note) is (way == "calls of its own")
    alone = profile_script(program(tmp_path))
    assert products(found) == products(alone)
    assert not any("processes" in note for note in alone.notes)


def test_the_first_of_spawned_processes_runs_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)  # no other change is wanted here
    monkeypatch.setattr("sys.meta_path", [*sys.meta_path])
    monkeypatch.setattr(torch.distributed, "new_group", lambda *ranks, **named: (ranks, named))
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    seen: list[tuple[int, str]] = []
    path = program(tmp_path)
    with one_process(path):
        torch.multiprocessing.spawn(lambda rank, word: seen.append((rank, word)), args=("given",), nprocs=4)
        torch.multiprocessing.spawn(lambda rank: seen.append((rank, "")), nprocs=2, join=True)
        group = torch.distributed.new_group([*range(8)], backend="nccl")
    assert group == ((), {})  # of the processes that there are
    assert seen == [(0, "given"), (0, "")]


def test_a_program_of_many_processes_is_spread_over_nodes_in_one_command(tmp_path: Path) -> None:
    path = program(tmp_path, *WAYS["copies"])
    words = ["estimate", path, "-t", "h100-sxm", "--nodes", "1", "--batch", "128", "--epochs", "2"]
    found = CliRunner().invoke(app, [str(word) for word in words])
    assert found.exit_code == 0, found.output
    assert "8 devices (1 node), copies of the model" in found.stdout


def test_an_optimizer_of_ones_own_is_what_its_code_runs(tmp_path: Path) -> None:
    found = profile_script(program(tmp_path, LAMB, optimizer="Lamb"))
    assert not found.unsupported
    update = found.ops[found.ops["pass_name"] == "update"]
    assert set(update["op"]) >= {"aten::linalg_vector_norm", "aten::add_", "aten::mul"}
    assert not update["kind"].eq("optimizer").any()
    # Of each of four parameters two norms.
    assert update.loc[update["op"] == "aten::linalg_vector_norm", "count"].sum() == 8
    assert any("what Lamb's own code ran" in note for note in found.notes)


def test_products_of_groups_are_as_many_equal_products(tmp_path: Path) -> None:
    more = ("weights = torch.randn(4, 64, 32, dtype=torch.bfloat16, requires_grad=True); "
            "ends = torch.tensor([2, 4, 11, 16], dtype=torch.int32); "
            "torch._grouped_mm(values.bfloat16(), weights, offs=ends).square().sum().backward()")  # fmt: skip
    found = profile_script(program(tmp_path, more=more))
    assert not found.unsupported
    rows = numbers(found)
    grouped = rows[rows["op"] == "aten::_grouped_mm"]
    assert sorted(grouped[["b", "m", "n", "k"]].itertuples(index=False, name=None)) == [
        (4, 4, 32, 64), (4, 64, 32, 4)
    ]  # fmt: skip


def test_an_op_without_a_rule_counts_with_its_traffic_and_is_told(tmp_path: Path) -> None:
    found = profile_script(program(tmp_path, more="torch._foreach_cosh([values.detach()])"))
    assert found.bounded == ("aten::_foreach_cosh",)
    assert not found.unsupported
    assert any(
        note.startswith("priced by a lower bound, by their bytes if they have no rule") for note in found.notes
    )
    save_model(found, tmp_path / "found.yaml")
    again = load_model(str(tmp_path / "found.yaml"))
    assert again.bounded == found.bounded
    row = again.ops[again.ops["op"] == "aten::_foreach_cosh"]
    assert (row["kind"].tolist(), row["read_byte"].tolist()) == (["other"], ["256*batch"])
    machine = load_machine("v100")
    timed = estimate(again, machine, Options(allow_uncovered=True)).ops
    share = (timed["time_s"] * timed["count"])[timed["op"] == "aten::_foreach_cosh"].sum()
    share /= (timed["time_s"] * timed["count"]).sum()
    much = replace(again, bounded=("aten::addmm", "aten::mm"))
    with pytest.raises(
        FomkitError, match=r"predicted times are lower bounds \(aten::addmm, aten::mm\), by their bytes"
    ):
        estimate(much, machine, Options())
    if share > 0.05:
        with pytest.raises(FomkitError, match=f"{share:.0%} of the step"):
            estimate(again, machine, Options())
    else:
        assert estimate(again, machine, Options()).step.value > 0
    check_bounded(timed, (), "nothing")


def test_the_price_of_a_factorisation_is_a_lower_bound_since_it_runs_in_sequence(tmp_path: Path) -> None:
    found = profile_script(
        program(tmp_path, more="torch.linalg.cholesky(values @ values.mT + torch.eye(len(values)))")
    )
    assert found.bounded == ("aten::linalg_cholesky_ex",)
    assert found.ops[found.ops["op"] == "aten::linalg_cholesky_ex"]["kind"].tolist() == ["gemm"]


@pytest.mark.parametrize(
    "op", ["torch.linalg.ldl_factor(values.mT @ values)", "torch.linalg.matrix_exp(values.mT @ values)"]
)
def test_what_may_be_heavy_in_arithmetic_has_no_bound(op: str, tmp_path: Path) -> None:
    found = profile_script(program(tmp_path, more=op))
    assert len(found.unsupported) == 1
    with pytest.raises(FomkitError, match=r"ops without a rule, which have no time.*Write what each does as rows"):
        estimate(found, load_machine("v100"), Options())


@pytest.mark.parametrize("more", ["torch.fft.irfft(torch.fft.rfft(values), n=64)", "torch.nonzero(values > 0)"])
def test_transforms_and_choices_of_places_are_priced_by_their_traffic(more: str, tmp_path: Path) -> None:
    found = profile_script(program(tmp_path, more=more))
    assert not found.unsupported
    assert not found.bounded
    assert found.ops["kind"].eq("other").any()

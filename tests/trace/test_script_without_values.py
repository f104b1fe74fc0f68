"""Training programs with large models: their parameters get no values, and the steps are those of any program."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from traced_work import numbers, row_flop

torch = pytest.importorskip("torch", reason="the tracer's tests need PyTorch: pip install '.[torch]'")

from fomkit.core.errors import FomkitError  # noqa: E402
from fomkit.frontends.profile import profile_script  # noqa: E402
from fomkit.frontends.script import torch_recorder  # noqa: E402
from fomkit.frontends.script.torch_recorder import LargeModel  # noqa: E402

PROGRAM = """
import math, sys
import torch
wide, deep = 8_000, 13_000
model = torch.nn.Sequential(torch.nn.Linear(wide, deep), torch.nn.ReLU(), torch.nn.Linear(deep, 10))
optimizer = torch.optim.AdamW(model.parameters())
for step in range(30):
    data, labels = torch.randn(32, wide), torch.arange(32) % 10
    found = model(data)
    chosen = labels != 3
    loss = torch.nn.functional.cross_entropy(found[chosen], labels[chosen])
    optimizer.zero_grad()
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if not torch.isfinite(loss) or torch.isnan(norm) or not math.isfinite(norm):
        sys.exit("the training diverged")
    print(f"{step}: {loss:.3f} {1 / loss.item()} {found.argmax(1).tolist()} {found.detach().numpy().mean()}")
    {more}
    optimizer.step()
"""


def program(folder: Path, more: str = "") -> Path:
    path = folder / "train.py"
    path.write_text(PROGRAM.replace("{more}", more), encoding="utf-8")
    return path


def test_a_large_model_trains_without_values(tmp_path: Path) -> None:
    # Its parameters and their states are 1.7 GB.
    found = profile_script(program(tmp_path), memory_limit_byte=1.2e9)
    count = 8_000 * 13_000 + 13_000 + 13_000 * 10 + 10
    assert (found.parameters_total, found.batch, found.unsupported) == (count, 32, ())
    assert any(note.startswith(f"the {count:,} parameters got no values") for note in found.notes)
    rows = numbers(found)
    flop = {name: sum(row_flop(row) * row["count"] for _, row in part.iterrows())
            for name, part in rows[rows["kind"] == "gemm"].groupby("pass_name")}  # fmt: skip
    first, last = 2 * 32 * 8_000 * 13_000, 2 * 32 * 13_000 * 10
    # The bias is added by the product, once for each row.
    assert flop["forward"] == pytest.approx(first + last, rel=1e-3)
    assert flop["backward_weight"] == pytest.approx(first + last, rel=1e-3)
    assert flop["backward_input"] == last
    update = rows[rows["kind"] == "optimizer"]
    assert (update["numel"] * update["count"]).sum() == count


def test_what_a_large_model_cannot_do_is_said(tmp_path: Path) -> None:
    path = program(tmp_path, more=f"torch.save(model.state_dict(), {str(tmp_path / 'saved.pt')!r})")
    with pytest.raises(FomkitError) as caught:
        profile_script(path)
    assert "train.py:18: raises" in str(caught.value)
    assert "Its 104,143,010 parameters have no values here, since more than 100,000,000" in str(caught.value)


def test_a_loop_that_values_end_is_named_at_the_limit_of_time(tmp_path: Path) -> None:
    more = "\n    while model(data)[0, 0] > 0: data = torch.zeros(1, wide)"
    with pytest.raises(FomkitError) as caught:
        profile_script(program(tmp_path, more=more), time_limit_s=5.0)
    message = str(caught.value)
    assert "did not finish within 5 s" in message
    assert "nor choose rows or end a loop by values of a result.\nThe end of what it printed:\n0: 1.000" in message


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> tuple[LargeModel, torch.nn.Linear, list[torch.Tensor]]:
    monkeypatch.setattr(torch_recorder, "MOST_WITH_VALUES", 10)
    large = LargeModel()
    with large.watch():
        model = torch.nn.Linear(8, 3)
    held = list(model.parameters())
    large.take_values(model)
    return large, model, held


def test_parameters_stay_the_same_objects(taken: tuple[LargeModel, torch.nn.Linear, list[torch.Tensor]]) -> None:
    large, model, held = taken
    assert [id(one) for one in model.parameters()] == [id(one) for one in held]
    assert all(isinstance(one, torch.nn.Parameter) and one.requires_grad for one in held)
    assert large.took == 27
    assert "27 parameters" in large.notes[0]


def test_numbers_that_are_read_are_one(taken: tuple[LargeModel, torch.nn.Linear, list[torch.Tensor]]) -> None:
    _, model, _ = taken
    found = model(torch.ones(4, 8)).detach()
    loss = found.sum()
    assert (loss.item(), (3 * loss + 1).item(), float(loss.detach().sqrt())) == (1, 4, 1)
    assert torch.isfinite(loss)
    assert torch.isfinite(found).all()
    assert not torch.isnan(loss)
    assert not torch.isnan(found).any()
    assert torch.allclose(found, found + 1)
    assert torch.equal(found, found + 1)
    assert not torch.equal(found, found[:2])
    assert found[torch.tensor([True, False, True, False])].shape == (2, 3)


def test_only_large_parameters_of_large_models_stay_unfilled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_recorder, "MOST_WITH_VALUES", 100)
    monkeypatch.setattr(torch_recorder, "_LARGE", 50)
    with LargeModel().watch():
        small = torch.nn.Linear(8, 8)  # 72 parameters
        torch.nn.Linear(8, 8)
        for value in (2.0, 3.0):
            torch.nn.init.constant_(small.weight, value)
            torch.nn.init.constant_(tensor=small.bias, val=value)
            other = torch.zeros(100).fill_(value)
        with Seen() as seen:  # copies and conversions touch no large parameter either
            twin = copy.deepcopy(small)
            assert small.float() is small.double()
    names = [name for name, _ in seen.ops]
    assert (names.count("clone"), names.count("empty_like")) == (1, 2)
    assert twin.bias.eq(3).all()
    assert (twin.weight.shape, small.weight.dtype) == ((8, 8), torch.float64)
    assert all(one.requires_grad for one in (*twin.parameters(), *small.parameters()))
    assert small.bias.eq(3).all()
    assert other.eq(3).all()
    assert not small.weight.eq(2).any()
    assert not small.weight.eq(3).any()


def test_a_wrapper_of_processes_passes_calls_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_recorder, "MOST_WITH_VALUES", 10)
    wrapper = torch.nn.parallel.DistributedDataParallel
    large = LargeModel()
    with large.watch():
        model = wrapper(torch.nn.Linear(8, 3), device_ids=[0])
        model.register_comm_hook(None, print)
        large.take_values(model)
        with model.no_sync():
            found = model(torch.ones(4, 8))
    found.sum().backward()
    assert isinstance(model, wrapper)
    assert found.shape == (4, 3)
    assert model.module.weight.grad.shape == (3, 8)
    assert large.took == 27


def test_hooks_attributes_graphs_and_weak_references_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_recorder, "MOST_WITH_VALUES", 10)
    model, seen = torch.nn.LSTM(8, 3), []  # it holds weak references to its parameters
    weight = next(model.parameters())
    weight.own_tag = "kept"
    weight.register_hook(lambda _: seen.append("hook"))
    weight.register_post_accumulate_grad_hook(lambda _: seen.append("after"))
    penalty = weight.square().sum()
    LargeModel().take_values(model)
    model(torch.ones(4, 2, 8))[0].sum().backward()
    assert penalty.grad_fn is not None  # its graph holds the parameter
    assert (weight.own_tag, seen) == ("kept", ["hook", "after"])


class Seen(torch.utils._python_dispatch.TorchDispatchMode):
    """Sees the ops that run, and whether each returns what it was given to write."""

    def __init__(self) -> None:
        super().__init__()
        self.ops: list[tuple[str, bool]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        self.ops.append((func.overloadpacket.__name__, made is (kwargs or {}).get("out", args and args[0])))
        return made


def test_steps_without_values_run_the_ops_of_steps_with_values(
    taken: tuple[LargeModel, torch.nn.Linear, list[torch.Tensor]],
) -> None:
    large, model, _ = taken
    result, state, total = model(torch.ones(4, 8)).sum(0), torch.zeros(3), torch.zeros(1)
    result.sum().backward()
    with Seen() as seen, torch.no_grad():
        state.add_(result)
        torch.add(state, result, out=state)
    assert seen.ops == [("add_", True), ("add", True)]
    total += result.detach().sum()
    assert total.item() == 1
    with Seen() as seen, large:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        assert result.detach().numpy().shape == (3,)
    names = [name for name, _ in seen.ops]
    assert "_foreach_norm" in names
    assert "full" not in names


def test_a_program_is_large_by_all_models_that_it_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_recorder, "MOST_WITH_VALUES", 30)
    large = LargeModel()
    with large.watch():
        for _ in range(3):
            model = torch.nn.Linear(8, 3)
            large.take_values(model)
            assert large.took == 0
        other = torch.nn.Linear(3, 2)
        large.take_values(other)
        large.take_values(model)
    assert large.took == 8 + 27

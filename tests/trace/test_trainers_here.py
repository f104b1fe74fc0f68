"""Trainers of libraries that are changed on import, by small stand-ins of the libraries."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the tracer's tests need PyTorch: pip install '.[torch]'")

from fomkit.frontends.script import loops  # noqa: E402
from fomkit.frontends.script.torch_draft import draft_script  # noqa: E402
from fomkit.frontends.script.torch_steps import Capture, StepWatch  # noqa: E402
from fomkit.frontends.script.trainers import (  # noqa: E402
    _CHANGED,
    SHARED,
    Fetched,
    loader_facts,
    watch_loaders,
)


@pytest.fixture(autouse=True)
def no_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no loop of a test count as one of a program."""
    monkeypatch.setattr(loops, "is_user_file", lambda _: False)


class _FastLoader:
    """As fastai's: no DataLoader, it iterates over a stand-in of itself whose name for it is ``d``."""

    def __init__(self, loader: Any, samples: int) -> None:
        self.dataset, self.bs, self.drop_last, self._loader = range(samples), 8, True, loader

    def __iter__(self) -> Any:
        stand_in = self._loader
        stand_in.d = self
        yield from torch.utils.data.dataloader._SingleProcessDataLoaderIter(stand_in)


class _Sgd:
    """An optimizer of a library's own class."""

    def __init__(self, parameters: Any) -> None:
        self.param_groups = [{"params": list(parameters)}]

    def step(self) -> None:
        with torch.no_grad():
            for one in self.param_groups[0]["params"]:
                one.sub_(one.grad * 0.1)
                one.grad = None


def test_an_optimizer_and_a_loader_of_a_librarys_own_classes_are_seen() -> None:
    kind = type("Sgd", (_Sgd,), {})
    assert _CHANGED["fastai.optimizer"][0] == "Optimizer"
    _CHANGED["fastai.optimizer"][1](kind, print)
    taken: list[Capture] = []
    watch = StepWatch(lambda capture, _: taken.append(capture))
    with watch.watch():
        net = torch.nn.Linear(4, 3)
        optimizer = kind(net.parameters())
        rows = _FastLoader(torch.utils.data.DataLoader(torch.ones(60, 4), batch_size=8), 60)
        for batch in rows:
            net(batch).sum().backward()
            optimizer.step()
            if taken:
                break
    found = taken[0]
    updates = [op for op in found.step.ops if op.pass_name == "update"]
    assert {op.op for op in updates} == {"aten::mul", "aten::sub_"}
    facts = loader_facts(found.seen.batches[0].loader)
    assert (facts.batch, facts.samples, facts.last_batch) == (8, 60, "drop")


def test_a_loader_of_the_programs_own_class_may_have_any_attribute() -> None:
    batches: list[Fetched] = []
    loader = torch.utils.data.DataLoader(torch.ones(60, 4), batch_size=8)
    loader.d = 7
    with watch_loaders(lambda: None, batches.append, nullcontext):
        next(iter(loader))
    assert batches[0].loader is loader


@pytest.fixture
def deepspeed() -> Iterator[dict[str, Any]]:
    """Make the names of a stand-in of DeepSpeed, changed as on its import."""
    names: dict[str, Any] = {"__name__": "deepspeed"}
    exec("def initialize():\n    pass\ndef init_distributed():\n    raise RuntimeError", names)
    word, change = _CHANGED["deepspeed"]
    change(names[word], SHARED.append)
    yield names
    SHARED.clear()


ROWS = [(torch.ones(4), 1.0)] * 60
ADAM = {"type": "AdamW", "params": {"lr": 0.1, "weight_decay": 0.1, "torch_adam": True}}


@pytest.mark.parametrize(
    ("config", "each", "every"),
    [
        ({"train_micro_batch_size_per_gpu": 5, "gradient_accumulation_steps": 2, "gradient_clipping": 1.0}, 5, 2),
        ({"train_batch_size": 12, "train_micro_batch_size_per_gpu": 3}, 3, 4),
        ({"train_batch_size": 12, "gradient_accumulation_steps": 2, "bf16": {"enabled": True}}, 6, 2),
        ({"train_batch_size": 6, "gradient_accumulation_steps": "auto", "gradient_clipping": "auto"}, 6, 1),
    ],
)
def test_deepspeed_trains_on_one_cpu(
    config: dict[str, Any], each: int, every: int, tmp_path: Path, deepspeed: dict[str, Any]
) -> None:
    path = tmp_path / "deepspeed.json"
    path.write_text(json.dumps({**config, "optimizer": ADAM, "zero_optimization": {"stage": 3}}))
    taken: list[Capture] = []
    watch = StepWatch(lambda capture, _: taken.append(capture))
    with watch.watch():
        deepspeed["init_distributed"]()
        net = torch.nn.Linear(4, 3)
        engine, optimizer, loader, _ = deepspeed["initialize"](model=net, training_data=ROWS, config=path)
        assert engine.load_checkpoint("of an earlier run", tag=3) == (None, {})
        assert engine.train_batch_size() == each * every == every * engine.train_micro_batch_size_per_gpu()
        assert (engine.gradient_accumulation_steps(), engine.zero_optimization_stage()) == (every, 3)
        assert engine.bfloat16_enabled() == ("bf16" in config)
        for place, (values, _) in enumerate(loader):
            assert (engine.global_steps, engine.get_lr()) == (place // every, [0.1])
            loss = engine(values.to(net.weight.dtype)).sum()
            engine.backward(loss)
            engine.step()
            engine.save_checkpoint("here", client_state={})
            if taken:
                break
    assert (type(optimizer), optimizer.param_groups[0]["weight_decay"]) == (torch.optim.AdamW, 0.1)
    found = draft_script(taken[0], {"name": "train"}).profile()
    assert (found.batch, found.data.train_samples, found.title) == (each * every, 60, "Linear, training step")
    products = found.ops[found.ops["kind"] == "gemm"]
    assert products["count"].tolist() == [every, every]
    assert set(products["dtype"]) == {"bf16" if "bf16" in config else "fp32"}
    assert found.optimizer == {"rule": "adamw", "impl": "fused"}
    clips = found.ops["op"].str.contains("norm").any()
    assert clips == (config.get("gradient_clipping") == 1.0)
    (note,) = (note for note in found.notes if "share its parameters (DeepSpeed" in note)
    assert ("fp32 copies" in note) == ("bf16" in config)


def test_an_unknown_optimizer_of_deepspeed_is_told(deepspeed: dict[str, Any]) -> None:
    given = {"model": torch.nn.Linear(4, 3), "config": {"optimizer": {"type": "OneBitAdam"}}}
    with pytest.raises(
        ValueError, match="'onebitadam' does not run here: choose one of adam, adamw, sgd, adagrad"
    ):
        deepspeed["initialize"](**given)

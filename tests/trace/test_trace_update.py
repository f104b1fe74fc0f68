"""The update: one row per parameter group, derived from the optimizer without running it."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
from traced_work import numbers

import fomkit
from fomkit.core.errors import FomkitError
from fomkit.core.model import ModelProfile, Workload
from fomkit.frontends.profile import profile_workload
from fomkit.ops.pricing import add_costs


def update(torch: Any, optimizer: Any, model: Any = None, mode: Any = "train") -> ModelProfile:
    chosen = model or torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 2))
    workload = Workload(chosen, lambda batch: torch.randn(batch, 8), optimizer=optimizer, batch_size=6)
    return profile_workload(workload, mode=mode)


def row(profile: ModelProfile) -> tuple[Any, ...]:
    (only,) = profile.ops[profile.ops.kind == "optimizer"].to_dict("records")
    assert (only["pass_name"], only["count"]) == ("update", 1)
    return tuple(only[name] for name in ("rule", "impl", "numel", "tensors", "dtype"))


def cases(torch: Any) -> dict[str, Any]:
    optim = torch.optim
    return {
        "sgd foreach": lambda given: optim.SGD(given, lr=0.1),
        "momentum per_tensor": lambda given: optim.SGD(given, lr=0.1, momentum=0.9, foreach=False),
        "nesterov foreach": lambda given: optim.SGD(given, lr=0.1, momentum=0.9, nesterov=True, foreach=True),
        "adam fused": lambda given: optim.Adam(given, fused=True),
        "adamw foreach": optim.AdamW,
        "rmsprop foreach": optim.RMSprop,
        "adagrad per_tensor": lambda given: optim.Adagrad(given, foreach=False),
    }


@pytest.mark.parametrize(
    "name",
    [
        *("sgd foreach", "momentum per_tensor", "nesterov foreach", "adam fused", "adamw foreach"),
        *("rmsprop foreach", "adagrad per_tensor"),
    ],
)
def test_rules_and_implementations(torch: Any, name: str) -> None:
    profile = update(torch, cases(torch)[name])
    rule, impl = name.split()
    assert row(profile) == (rule, impl, 90, 4, "fp32")
    is_stated = "per_tensor" in name or "fused" in name or "nesterov" in name
    assert profile.optimizer == {"rule": rule, "impl": impl, **({} if is_stated else {"impl_from": "default"})}
    assert any("no implementation was asked for" in note for note in profile.notes) is not is_stated
    priced = add_costs(numbers(profile).query("kind == 'optimizer'"))
    assert priced[["flop", "byte", "launches"]].notna().to_numpy().all()


def test_only_what_got_a_gradient_is_updated(torch: Any) -> None:
    class Unused(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.frozen, self.idle = (torch.nn.Linear(8, 8) for _ in range(3))
            self.frozen.requires_grad_(False)

        def forward(self, x: Any) -> Any:
            return self.used(self.frozen(x))

    profile = update(torch, torch.optim.SGD, Unused())
    assert row(profile)[2:4] == (72, 2)
    assert (profile.parameters_total, profile.parameters_trainable) == (216, 144)


def test_a_row_for_each_group_and_number_format(torch: Any) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 2))
    groups = [
        {"params": list(model[0].parameters())},
        {"params": list(model[1].parameters()), "momentum": 0.9, "fused": True},
    ]
    rows = update(torch, torch.optim.SGD(groups, lr=0.1), model).ops.query("kind == 'optimizer'")
    assert rows[["rule", "impl", "numel"]].to_numpy().tolist() == [
        ["sgd", "foreach", 72],
        ["momentum", "fused", 18],
    ]


def test_an_instance_made_for_real_weights(torch: Any) -> None:
    model = torch.nn.Linear(8, 2)
    profile = update(torch, torch.optim.AdamW(model.parameters(), fused=True), model)
    assert row(profile) == ("adamw", "fused", 18, 2, "fp32")


def test_without_a_formula_the_ops_of_its_code_count(torch: Any) -> None:
    """Signs of a mean of gradients; one version reads values, which only parameters with data have."""

    class Signs(torch.optim.Optimizer):
        reads = False

        def __init__(self, parameters: Any) -> None:
            super().__init__(parameters, {"lr": 0.1})

        @torch.no_grad()
        def step(self) -> None:
            for one in self.param_groups[0]["params"]:
                if one not in self.state:
                    self.state[one]["mean"] = torch.zeros_like(one)
                mean = self.state[one]["mean"].lerp_(one.grad, 0.1)
                if not self.reads or one.norm().item() > 0:
                    one.add_(mean.sign(), alpha=-0.1)

    model = torch.nn.Linear(8, 2)
    for reads in (False, True):
        Signs.reads, optimizer = reads, Signs(model.parameters())
        profile = update(torch, optimizer, model)
        rows = profile.ops[profile.ops["pass_name"] == "update"]
        norms = ["aten::linalg_vector_norm"] * reads
        assert rows["op"].tolist() == ["aten::lerp_", *norms, "aten::sign", "aten::add_"] * 2
        assert rows["numel"].astype(float).iloc[0] == 16
        assert not profile.unsupported
        assert any("Signs has no formula" in note for note in profile.notes)
        assert fomkit.memory(profile).content["totals"]["state"] == 2 * 512  # two blocks of 512 byte
        assert not optimizer.state
        assert all(one.grad is None for one in model.parameters())


def test_counters_of_steps_have_values_and_tensors_are_updated_at_once_as_on_an_accelerator() -> None:
    """The number of the step is read, which needs no data of the model; its four tensors are one op."""

    class Counting(torch.optim.Optimizer):
        def __init__(self, parameters: Any) -> None:
            super().__init__(parameters, {})

        @torch.no_grad()
        def step(self) -> None:
            many = self.param_groups[0]["params"]
            counter = self.state["all"].setdefault("step", torch.tensor(0.0))
            counter += 1
            default = sys.modules[torch.optim.Optimizer.__module__]._default_to_fused_or_foreach
            assert default(many, differentiable=False) == (False, True)
            assert many[0].is_meta
            torch._foreach_add_(many, [one.grad for one in many], alpha=-1 / counter.item())

    profile = update(torch, Counting)
    rows = profile.ops[profile.ops["pass_name"] == "update"]
    assert rows[["op", "numel", "count"]].to_numpy().tolist()[1:] == [["aten::_foreach_add_", 90, 1]]


def test_rules_that_start_late_count_as_they_run_later(torch: Any) -> None:
    class Rectified(torch.optim.Optimizer):  # type: ignore[name-defined,misc]
        def __init__(self, parameters: Any) -> None:
            super().__init__(parameters, {})
            self.count = 0

        @torch.no_grad()  # type: ignore[untyped-decorator]
        def step(self) -> None:
            self.count += 1
            for one in self.param_groups[0]["params"]:
                one.sub_(one.grad.sqrt() if self.count > 5 else one.grad)

    ops = set(update(torch, Rectified).ops.query("pass_name == 'update'")["op"])
    assert ops == {"aten::sqrt", "aten::sub_"}


def test_code_that_cannot_run_is_listed(torch: Any) -> None:
    profile = update(torch, torch.optim.LBFGS)
    assert "optimizer LBFGS" in profile.unsupported
    assert "update" not in set(profile.ops["pass_name"])
    assert any("have a formula" in note for note in profile.notes)


def test_none_is_said_and_inference_needs_none(torch: Any) -> None:
    assert "no optimizer is given: the update is not counted" in update(torch, None).notes
    inference = update(torch, torch.optim.SGD, mode="infer")
    assert set(inference.ops["pass_name"]) == {"forward"}
    assert not any("optimizer" in note for note in inference.notes)


def test_extra_state_has_rules_of_its_own(torch: Any) -> None:
    switches = {"adam_amsgrad": ("Adam", "amsgrad"), "rmsprop_centered": ("RMSprop", "centered")}
    for rule, (kind, switch) in switches.items():
        made = getattr(torch.optim, kind)
        profile = update(torch, lambda given, made=made, switch=switch: made(given, **{switch: True}))
        assert row(profile)[0] == rule


@pytest.mark.parametrize("wrong", ["adam", lambda _: None])
def test_something_else_is_refused(torch: Any, wrong: Any) -> None:
    with pytest.raises(FomkitError, match=r"the optimizer is a (str|NoneType)"):
        update(torch, wrong)


@pytest.mark.parametrize(
    ("name", "rows"),
    [("foreach", [90]), ("per_tensor", [64, 8, 16, 2]), ("fused", [])],
)
def test_weight_decay_is_a_kernel_of_its_own_where_the_update_is_not_fused(
    torch: Any, name: str, rows: list[int]
) -> None:
    switch = {"foreach": {"foreach": True}, "per_tensor": {"foreach": False}, "fused": {"fused": True}}[name]
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 2, bias=False), torch.nn.PReLU(2))
    profile = update(torch, lambda given: torch.optim.SGD(given, lr=0.1, weight_decay=0.1, **switch), model)
    decay = numbers(profile).query("op == 'weight_decay'")
    assert sorted(decay["numel"].repeat(decay["count"].astype(int))) == sorted(rows)
    assert (decay["read_byte"] == 8 * decay["numel"]).all()
    assert (decay["write_byte"] == 4 * decay["numel"]).all()


def test_adamw_has_its_decay_in_its_rule(torch: Any) -> None:
    profile = update(torch, lambda given: torch.optim.AdamW(given, weight_decay=0.1))
    assert "weight_decay" not in set(profile.ops["op"])


def test_inference_is_no_training_run(torch: Any) -> None:
    workload = Workload(
        torch.nn.Linear(8, 2), lambda batch: torch.randn(batch, 8), batch_size=6, train_samples=600, epochs=3
    )
    trained, inferred = (profile_workload(workload, mode=mode) for mode in ("train", "infer"))
    assert (trained.data.train_samples, trained.run.epochs) == (600, 3)
    assert (inferred.data.train_samples, inferred.run.epochs) == (None, None)


class Drawn(torch.optim.SGD):
    """An optimizer without a formula: its class is no own one of torch.optim's."""


@pytest.mark.parametrize("scheduled", [False, True])
def test_a_profile_in_a_notebook_leaves_the_given_optimizer_as_it_is(scheduled: bool) -> None:
    """A scheduler replaces `step` by one that is bound to the given optimizer, whose weights were then updated."""
    model = torch.nn.Linear(4, 4)
    for one in model.parameters():
        one.grad = torch.ones_like(one)
    before = [one.detach().clone() for one in model.parameters()]
    optimizer = torch.optim.Rprop(model.parameters())
    if scheduled:
        torch.optim.lr_scheduler.StepLR(optimizer, 1)
    found = fomkit.profile(Workload(model, torch.ones(8, 4), lambda y, _: y.sum(), optimizer))
    assert all(map(torch.equal, before, model.parameters()))
    assert not optimizer.state
    assert (found.ops["pass_name"] == "update").any()


def test_what_a_failed_update_recorded_is_forgotten() -> None:
    """Code that reads a value in its third update runs with data; before, its ops were counted twice."""

    class Reads(Drawn):
        steps = 0

        def step(self) -> None:
            super().step()
            self.steps += 1
            if self.steps == 3:
                self.param_groups[0]["params"][0].sum().item()

    rows = {}
    for kind in (Drawn, Reads):
        model = torch.nn.Linear(4, 4)
        optimizer = kind(model.parameters(), lr=0.1)
        ops = fomkit.profile(Workload(model, torch.ones(8, 4), lambda y, _: y.sum(), optimizer)).ops
        rows[kind] = (
            ops[(ops["pass_name"] == "update") & (ops["kind"] != "reduction")]["count"].astype(float).sum()
        )
    assert rows[Drawn] == rows[Reads] > 0


def test_the_reason_why_an_update_is_not_counted_is_told() -> None:
    class Broken(Drawn):
        def step(self) -> None:
            raise NameError("no such thing")

    model = torch.nn.Linear(4, 4)
    found = fomkit.profile(
        Workload(model, torch.ones(8, 4), lambda y, _: y.sum(), Broken(model.parameters(), lr=0.1))
    )
    assert "optimizer Broken" in found.unsupported
    assert any("its own code did not run (it raises NameError: no such thing)" in note for note in found.notes)

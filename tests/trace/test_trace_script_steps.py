"""Recognition of one step of a training program, for many styles of programs; run in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from traced_work import flop, numbers

from fomkit.core.model import ModelProfile
from fomkit.frontends.script import loops

pytest.importorskip("torch", reason="the tracer's tests need PyTorch: pip install '.[torch]'")

START = """
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset
torch.manual_seed(0)
def loader(count, batch, **options):
    data = TensorDataset(torch.randn(count, 8), torch.randint(3, (count,)))
    return DataLoader(data, batch_size=batch, **options)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=False)
"""


class Stopped(BaseException):
    pass


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ModelProfile]:
    """Run the text of a program, as the child process does, until a step is taken or it ends."""
    from fomkit.frontends.script.torch_draft import draft_script
    from fomkit.frontends.script.torch_steps import StepWatch

    def run_text(text: str, start: str = START) -> ModelProfile:
        path = tmp_path / "train.py"
        monkeypatch.setattr(loops, "is_user_file", lambda name: name == str(path))
        path.write_text(start + text, encoding="utf-8")

        def stop(_: Any, is_all: bool) -> None:
            if is_all:
                raise Stopped

        watch = StepWatch(stop)
        try:
            with watch.watch():
                exec(compile(path.read_text(), str(path), "exec"), {"__name__": "__main__"})
        except Stopped:
            pass
        assert watch.captured is not None
        return draft_script(watch.captured, {"name": "train"}).profile()

    return run_text


def products(profile: ModelProfile) -> list[tuple[Any, ...]]:
    rows = numbers(profile)
    rows = rows[rows["kind"] == "gemm"]
    return sorted(map(tuple, rows[["pass_name", "m", "n", "k", "count"]].to_numpy().tolist()))


ONE_STEP = [
    ("backward_input", 12.0, 16.0, 3.0, 1.0),
    ("backward_weight", 3.0, 16.0, 12.0, 1.0),
    ("backward_weight", 16.0, 8.0, 12.0, 1.0),
    ("forward", 12.0, 3.0, 16.0, 1.0),
    ("forward", 12.0, 16.0, 8.0, 1.0),
]
"""Products of one step of the small model at batch 12; its first layer needs no input gradient."""
TRAIN = """
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
"""


def told(profile: ModelProfile, text: str) -> bool:
    return any(text in note for note in profile.notes)


@pytest.mark.parametrize("samples", [120, 40, 12])
def test_evaluation_and_short_batches_are_no_part(run: Callable[..., ModelProfile], samples: int) -> None:
    profile = run(f"""
def evaluate():
    model.eval()
    with torch.no_grad():
        for x, y in loader(30, 30):
            (model(x).argmax(1) == y).float().mean().item()
    model.train()
train, epochs = loader({samples}, 12, shuffle=True), 9
for epoch in range(epochs):
    for x, y in train:
{TRAIN}
    evaluate()
""")
    assert products(profile) == ONE_STEP
    assert profile.batch == 12
    assert (profile.data.train_samples, profile.data.last_batch, profile.run.epochs) == (samples, "keep", 9)
    assert told(profile, "partial: every step came with") == (samples == 12)


@pytest.mark.parametrize("collected", [0, 5])
def test_calls_that_collect_samples_are_told_and_not_counted(
    run: Callable[..., ModelProfile], collected: int
) -> None:
    profile = run(f"""
teacher = nn.Linear(8, 3)
for update in range(50):
    with torch.no_grad():
        for _ in range({collected}):
            model(torch.randn(12, 8))
    for place in range(4):
        x, y = torch.randn(12, 8), torch.randint(3, (12,))
        with torch.no_grad():
            teacher(x)
{TRAIN}
""")
    assert [row for row in products(profile) if row != ("forward", 12.0, 3.0, 8.0, 1.0)] == ONE_STEP
    assert told(profile, "doubtful: the program called its models 5 times without gradients") == bool(collected)
    assert told(profile, "without gradients") == bool(collected)
    assert (profile.run.epochs, profile.data.train_samples) == (1, 200 * 12)


def test_two_optimizers_are_one_round(run: Callable[..., ModelProfile]) -> None:
    profile = run("""
generator, judge = nn.Linear(4, 8), nn.Linear(8, 1)
of_judge = torch.optim.Adam(judge.parameters(), foreach=False)
of_generator = torch.optim.Adam(generator.parameters(), foreach=False)
del optimizer
data = loader(120, 12)
for epoch in range(2):
    for place, (x, _) in enumerate(data):
        of_judge.zero_grad()
        (judge(generator(torch.randn(12, 4)).detach()).mean() - judge(x).mean()).backward()
        of_judge.step()
        if place % 2:
            of_generator.zero_grad()
            judge(generator(torch.randn(12, 4))).mean().backward()
            of_generator.step()
""")
    assert told(profile, "one step is one round of 2 optimizers: Adam 1 steps 2 times, Adam 2 steps once")
    rows = numbers(profile)
    updates = rows[rows["kind"] == "optimizer"]
    assert dict(zip(updates["numel"], updates["count"], strict=True)) == {9.0: 2.0, 40.0: 1.0}
    forward = rows[(rows["kind"] == "gemm") & (rows["pass_name"] == "forward")]
    assert dict(zip(forward["module"], forward["count"], strict=True)) == {"linear": 3.0, "linear2": 5.0}
    assert (profile.batch, profile.parameters_total, profile.run.epochs) == (24, 49, 2)


def test_optimizers_that_hooks_of_gradients_step(run: Callable[..., ModelProfile]) -> None:
    profile = run("""
each = {one: torch.optim.SGD([one], lr=0.01) for one in model.parameters()}
def step(one):
    each[one].step()
    each[one].zero_grad()
for one in each:
    one.register_post_accumulate_grad_hook(step)
for x, y in loader(1200, 12):
    criterion(model(x), y).backward()
""")
    assert products(profile) == ONE_STEP
    assert told(profile, "one step is one round of 4 optimizers")
    assert profile.batch == 12


@pytest.mark.parametrize(("seconds", "step"), [(600.0, 50), (0.0, 3)])
def test_an_optimizer_that_never_steps_is_told(
    run: Callable[..., ModelProfile], monkeypatch: pytest.MonkeyPatch, seconds: float, step: int
) -> None:
    monkeypatch.setattr("fomkit.frontends.script.torch_steps.MAX_IDLE_S", seconds)
    profile = run(f"idle = torch.optim.SGD(model.parameters(), lr=1.0)\nfor x, y in loader(1200, 12):\n{TRAIN}")
    assert products(profile) == ONE_STEP
    assert told(profile, f"its step {step},")
    assert told(profile, "1 more optimizers were made and took no step")


def test_an_optimizer_around_another_is_not_awaited(run: Callable[..., ModelProfile]) -> None:
    """SAM steps by the optimizer that it holds: two backward passes on a batch, one update."""
    profile = run("""
class SAM(torch.optim.Optimizer):
    def __init__(self, base):
        super().__init__(base.param_groups, {})
        self.base, self.param_groups = base, base.param_groups
sam = SAM(optimizer)
for x, y in loader(1200, 12):
    for is_last in (False, True):
        sam.zero_grad()
        criterion(model(x), y).backward()
    sam.base.step()
""")
    assert products(profile) == [(*one[:-1], 2 * one[-1]) for one in ONE_STEP]
    assert told(profile, "its step 3,")
    assert not told(profile, "took no step")
    assert not told(profile, "hold for batch")


def test_what_is_frozen_for_one_of_two_optimizers_is_trained_by_the_other(
    run: Callable[..., ModelProfile],
) -> None:
    profile = run("""
halves = [torch.optim.SGD(model[at].parameters(), lr=0.01) for at in (0, 2)]
for x, y in loader(1200, 12):
    for at, half in zip((0, 2), halves):
        model.requires_grad_(False)
        model[at].requires_grad_(True)
        criterion(model(x), y).backward()
        half.step()
        half.zero_grad()
""")
    assert profile.parameters_trainable == profile.parameters_total == 8 * 16 + 16 + 16 * 3 + 3


def test_batches_of_two_loaders_grow_together(run: Callable[..., ModelProfile]) -> None:
    """Labelled and unlabelled samples, one to three, as in FixMatch; the loaders are made anew for each epoch."""
    profile = run("""
for epoch in range(7):
    for (x, y), (more, _) in zip(loader(60, 12), loader(180, 36)):
        optimizer.zero_grad()
        made = model(torch.cat([x, more]))
        (criterion(made[: len(x)], y) + made.square().mean()).backward()
        optimizer.step()
""")
    assert not told(profile, "hold for batch")
    assert set(profile.ops.query("kind == 'gemm' and pass_name == 'forward'")["m"]) == {"4*batch"}


@pytest.mark.parametrize(("limit", "length"), [(5000, (1200, 7)), (30, (360, 1))])
def test_the_limit_that_is_met_first_ends_the_run(
    run: Callable[..., ModelProfile], limit: int, length: tuple[int, int]
) -> None:
    loops = "n, data = 0, loader(1200, 12)\nfor epoch in range(7):\n    for x, y in data:\n"
    profile = run(f"{loops}{TRAIN}        n += 1\n        if n >= {limit}: break")
    assert (profile.data.train_samples, profile.run.epochs) == length
    assert not told(profile, "may end the loop")


def test_a_long_evaluation_before_the_first_step_goes_on_without_values(
    run: Callable[..., ModelProfile], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fomkit.frontends.script.torch_steps.MAX_EVALUATION_S", 0.0)
    check = (
        "with torch.no_grad():\n    for x, y in loader(120, 12):\n        print(criterion(model(x), y).item())\n"
    )
    profile = run(f"{check}for x, y in loader(1200, 12):\n{TRAIN}")
    assert products(profile) == ONE_STEP
    assert told(profile, "parameters got no values")


def test_layers_that_get_their_sizes_from_the_first_batch_are_parameters(run: Callable[..., ModelProfile]) -> None:
    profile = run(f"""
model = nn.Sequential(nn.LazyLinear(16), nn.ReLU(), nn.LazyLinear(3))
model(torch.ones(1, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = loader(120, 12)
for epoch in range(3):
    for x, y in data:
{TRAIN}""")
    assert products(profile) == ONE_STEP
    assert profile.parameters_total == 8 * 16 + 16 + 16 * 3 + 3


def test_no_third_step_is_awaited_where_the_second_is_slow(
    run: Callable[..., ModelProfile], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fomkit.frontends.script.torch_steps.MAX_STEP_S", 0.0)
    profile = run("data = loader(120, 12)\nfor epoch in range(3):\n    for x, y in data:\n" + TRAIN)
    assert told(profile, "its step 2")
    assert not told(profile, "partial")
    assert products(profile) == ONE_STEP


@pytest.mark.parametrize("values", ["x", "next(iter(loader(12, 12)))[0]"])
def test_an_update_without_a_loop_is_the_run(run: Callable[..., ModelProfile], values: str) -> None:
    profile = run(f"""
x, y = torch.randn(12, 8), torch.ones(12).long()
criterion(model({values}), y).backward()
optimizer.step()
""")
    assert products(profile) == ONE_STEP
    assert (profile.batch, profile.data.train_samples, profile.run.epochs) == (12, 12, 1)
    assert told(profile, "1 step of the optimizer, as no loop is around it")
    assert profile.optimizer["rule"] == "sgd"
    assert not told(profile, "partial")


@pytest.mark.parametrize(("search", "loop", "steps"), [
    ("", "if True", 5000), ("line_search_fn='strong_wolfe', ", "if True", 6250),
    ("", "for part in range(3)", 15000), ("", "while True", None),
])  # fmt: skip
def test_a_call_of_a_closure_is_a_step_where_there_are_many(
    run: Callable[..., ModelProfile], search: str, loop: str, steps: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fomkit.frontends.script.torch_steps.MOST_EVALUATIONS", 9)
    profile = run(f"""
x, y = torch.randn(12, 8), torch.arange(12) % 3
optimizer = torch.optim.LBFGS(model.parameters(), {search}max_iter=5000, tolerance_grad=0, tolerance_change=0)
def closure():
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    return loss
{loop}:
    optimizer.step(closure)
""")
    assert [one for one in products(profile) if one[0] != "update"] == ONE_STEP
    assert profile.data.train_samples == (steps and 12 * steps)
    assert told(profile, "a step of LBFGS is long, so each call of its closure counts as a step")


def test_closures_run_in_the_step(run: Callable[..., ModelProfile]) -> None:
    profile = run("""
optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3, tolerance_grad=0.0, tolerance_change=0.0)
for x, y in loader(120, 12):
    def closure():
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        return loss
    optimizer.step(closure)
""")
    own = [row for row in products(profile) if row[0] == "update"]  # inner products of the history
    assert [row for row in products(profile) if row not in own] == [(*row[:-1], 3.0) for row in ONE_STEP]
    assert {row[1:3] for row in own} == {(1.0, 1.0)}
    assert told(profile, "the optimizer called its closure 3 times")
    assert told(profile, "what LBFGS's own code ran")
    assert not profile.unsupported
    assert profile.batch == 12


def test_autocast_and_loss_scaling(run: Callable[..., ModelProfile]) -> None:
    profile = run("""
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40)
for x, y in loader(480, 12):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = criterion(model(x), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
""")
    assert products(profile) == ONE_STEP
    rows = numbers(profile)
    assert set(rows.loc[rows["kind"] == "gemm", "dtype"]) == {"bf16"}
    assert told(profile, "autocast for cpu: casts are those of a CPU")
    checked = rows[rows["op"] == "aten::_amp_foreach_non_finite_check_and_unscale_"]
    assert checked[["pass_name", "numel", "count"]].to_numpy().tolist() == [["update", 195.0, 1.0]]
    clipped = rows[rows["op"] == "aten::_foreach_mul_"]
    assert clipped[["pass_name", "numel", "write_byte"]].to_numpy().tolist() == [["update", 195.0, 780.0]]
    assert not profile.unsupported


def test_steps_that_loss_scaling_leaves_out_do_not_accumulate(run: Callable[..., ModelProfile]) -> None:
    profile = run("""
scaler = torch.amp.GradScaler("cpu", init_scale=1.0)
for place, (x, y) in enumerate(loader(480, 12)):
    optimizer.zero_grad()
    loss = criterion(model(x), y) * (float("inf") if place % 2 else 1.0)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
""")
    assert products(profile) == ONE_STEP
    assert not told(profile, "accumulation")


@pytest.mark.filterwarnings("ignore:CUDA is not available or torch_xla")
def test_autocast_of_an_absent_device_is_told(run: Callable[..., ModelProfile], torch: Any) -> None:
    if torch.cuda.is_available():
        pytest.skip("a CUDA device is here")
    profile = run("""
for x, y in loader(480, 12):
    with torch.autocast("cuda", dtype=torch.float16):
        loss = criterion(model(x), y)
    optimizer.zero_grad(); loss.backward(); optimizer.step()
""")
    assert products(profile) == ONE_STEP
    assert set(profile.ops["dtype"]) >= {"fp32"}
    assert told(profile, "doubtful: autocast for cuda has no effect")


def test_layers_that_are_one_row(run: Callable[..., ModelProfile]) -> None:
    profile = run("""
class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.out = nn.LSTM(5, 7, batch_first=True), nn.Linear(7, 3)
        self.attention = nn.MultiheadAttention(7, 1, batch_first=True)
    def forward(self, x):
        x = self.lstm(x)[0]
        return self.out(self.attention(x, x, x, need_weights=False)[0])
model = Tagger()
optimizer = torch.optim.RMSprop(model.parameters())
for step in range(100):
    model(torch.randn(6, 11, 5)).sum().backward()
    optimizer.step()
""")
    rows = numbers(profile)
    lstm = rows[rows["kind"] == "rnn"]
    assert set(lstm["pass_name"]) == {"forward", "backward_input", "backward_weight"}
    assert set(lstm[["batch", "steps", "hidden_size"]].to_numpy().flatten()) == {6.0, 11.0, 7.0}
    attention = rows[rows["kind"] == "attention"]
    assert attention["pass_name"].tolist() == ["forward", "backward"]
    assert set(numbers(profile, "parts")["kind"]) >= {"gemm", "pointwise"}
    assert profile.batch == 6
    assert told(profile, "first axis of the model's input")
    assert told(profile, "100 steps of the optimizer, the rounds of the loop at train.py:")
    assert (profile.run.epochs, profile.data.train_samples) == (1, 600)


def test_checkpointing_and_frozen_teachers(run: Callable[..., ModelProfile]) -> None:
    profile = run("""
from torch.utils.checkpoint import checkpoint
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16))
        self.second = nn.Linear(16, 3)
    def forward(self, x):
        return self.second(checkpoint(self.first, x, use_reentrant=False).relu())
class Teacher(nn.Linear):
    pass
model, teacher = Net(), Teacher(8, 3).eval().requires_grad_(False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for x, _ in loader(120, 12):
    with torch.no_grad():
        wanted = teacher(x)
    (model(x) - wanted).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
""")
    rows = numbers(profile)
    gemm = rows[rows["kind"] == "gemm"]
    of = {module: part["count"].sum() for module, part in gemm.groupby("module")}
    assert of == {"teacher": 1.0, "net.first.0": 3.0, "net.first.2": 3.0, "net.second": 3.0}
    assert told(profile, "run again in the backward pass (checkpointing)")
    assert (profile.parameters_total, profile.parameters_trainable) == (494, 467)


BAR = """
class Bar:
    def __init__(self, iterable):
        self.iterable = iterable
    def __iter__(self):
        return iter(self.iterable)
"""


@pytest.mark.parametrize(
    ("loops", "epochs"),
    [
        ("for epoch in range(3, 10):\n    for x, y in data:\n", 7),
        ("args = {'epochs': 4}\nfor epoch in range(args['epochs'] * 2):\n    for x, y in iter(data):\n", 8),
        ("for fold in range(2):\n  for epoch in range(5):\n    for x, y in enumerate_(data):\n", None),
        ("epoch = 0\nwhile epoch < 5:\n    for x, y in data:\n", None),
        ("for _ in range(1):\n  def one():\n    for x, y in data:\n", 6),
        ("for x in range(2):\n  for x, y in data:\n", 2),
        ("for x in range(2):\n  bar = Bar(data)\n  for place, (x, y) in enumerate(bar):\n", 2),
        ("for x in range(3):\n  for x, y in torch.utils.data.DataLoader(data.dataset, 12):\n", 3),
        ("if True:\n    for x, y in data:\n", None),
    ],
)
def test_epochs_are_read_where_a_loop_says_them(
    run: Callable[..., ModelProfile], loops: str, epochs: int | None
) -> None:
    after = "\nfor round in range(6):\n    one()\n" if "def one" in loops else ""
    profile = run(f"data = loader(120, 12)\nenumerate_ = lambda x: (one for one in x)\n{BAR}{loops}{TRAIN}{after}")
    assert profile.run.epochs == epochs
    assert told(profile, "the number of epochs is unknown") == (epochs is None)


def test_gradients_that_are_only_looked_at_are_no_accumulation(
    run: Callable[..., ModelProfile], torch: Any
) -> None:
    profile = run("""
for x, y in loader(120, 12):
    x.requires_grad_()
    output = model(x)
    (slope,) = torch.autograd.grad(output.sum(), x, create_graph=True)
    (criterion(output, y) + slope.square().mean()).backward()
    optimizer.step()
    optimizer.zero_grad()
""")
    assert not told(profile, "accumulation")
    assert profile.batch == 12
    from torch.nn.functional import cross_entropy, linear
    from torch.utils.flop_counter import FlopCounterMode

    first, second = torch.randn(16, 8, requires_grad=True), torch.randn(3, 16, requires_grad=True)
    x = torch.randn(12, 8, requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        output = linear(linear(x, first).relu(), second)
        (slope,) = torch.autograd.grad(output.sum(), x, create_graph=True)
        (cross_entropy(output, torch.zeros(12, dtype=torch.int64)) + slope.square().mean()).backward()
    assert flop(numbers(profile), "forward", "backward") == counter.get_total_flops()


def test_compilation_is_off_and_told(
    run: Callable[..., ModelProfile], torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "compile", lambda model: model)  # as it is in the child
    profile = run(f"model = torch.compile(model)\nfor x, y in loader(120, 12):\n{TRAIN}")
    assert products(profile) == ONE_STEP
    assert told(profile, "compilation is switched off")


def test_streams_and_samplers(run: Callable[..., ModelProfile]) -> None:
    profile = run(f"""
class Stream(IterableDataset):
    def __iter__(self):
        while True:
            yield torch.randn(8), 1
for x, y in DataLoader(Stream(), batch_size=12):
{TRAIN}
""")
    assert products(profile) == ONE_STEP
    assert (profile.batch, profile.data.train_samples) == (12, None)
    profile = run(f"""
data = TensorDataset(torch.randn(100, 8), torch.randint(3, (100,)))
some = torch.utils.data.SubsetRandomSampler(range(60))
for x, y in DataLoader(data, batch_size=12, sampler=some, drop_last=True):
{TRAIN}
""")
    assert (profile.batch, profile.data.train_samples, profile.data.last_batch) == (12, 60, "drop")


SEQUENCES = """
class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.head = nn.LSTM(8, 16, num_layers=2), nn.Linear(16, 3)
    def forward(self, words, hidden):
        return self.head(self.inner(words, hidden)[0])
model = Tagger()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=False)
for step in range(9):
    optimizer.zero_grad()
    model({words}, (torch.zeros(2, 20, 16), torch.zeros(2, 20, 16))).sum().backward()
    optimizer.step()
"""


def test_a_batch_that_may_be_another_axis_is_told_wherever_it_is_used(run: Callable[..., ModelProfile]) -> None:
    profile = run(SEQUENCES.replace("{words}", "torch.randn(35, 20, 8)"))
    assert profile.batch == 35
    (doubt,) = [note for note in profile.notes if note.startswith("doubtful")]
    assert "the batch of 35 is the first axis" in doubt
    assert "others" not in doubt.split(";")[0]
    assert "begin with 2; 20 is an axis of all of them" in doubt
    assert doubt in profile.caveats


def test_inputs_that_agree_leave_no_doubt(run: Callable[..., ModelProfile]) -> None:
    profile = run(SEQUENCES.replace("{words}", "torch.randn(20, 20, 8)"))
    assert profile.batch == 20
    assert not told(profile, "doubtful")
    assert not any(note.startswith("doubtful") for note in run(f"for x, y in loader(1200, 12):\n{TRAIN}").notes)


@pytest.mark.parametrize(("more", "differs"), [(0, False), (2, True)])
def test_steps_that_differ_by_more_than_a_twentieth_are_told(
    run: Callable[..., ModelProfile], more: int, differs: bool
) -> None:
    profile = run(f"""
for step in range(9):
    x, y = torch.randn(20 + {more} * (step % 2), 8), torch.randint(3, (20 + {more} * (step % 2),))
{TRAIN.replace("        ", "    ")}""")
    assert told(profile, "doubtful: the 2 steps that were recorded differ by 1") == differs
    assert any("differ by" in caveat for caveat in profile.caveats) == differs


@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize(
    "update",
    ["p -= 0.1 * p.grad", "p.data.add_(p.grad, alpha=-0.1)", "p.data = p.data - 0.1 * p.grad", "p.grad = None"],
)
def test_an_update_by_hand_ends_a_step(run: Callable[..., ModelProfile], update: str, every: int) -> None:
    """The last one updates nothing, so nothing is a step."""
    text = f"""
del optimizer
train = loader(96, 12)
for epoch in range(7):
    for place, (x, y) in enumerate(train, 1):
        criterion(model(x), y).backward()
        if place % {every}:
            continue
        with torch.no_grad():
            for p in model.parameters():
                {update}
        model.zero_grad()
"""
    if "None" in update:
        with pytest.raises(AssertionError):
            run(text)
        return
    profile = run(text)
    assert products(profile) == [(*row[:-1], every * row[-1]) for row in ONE_STEP]
    assert (profile.batch, profile.run.epochs, profile.data.train_samples) == (12 * every, 7, 96)
    rows = numbers(profile)
    assert rows.loc[rows["pass_name"] == "update", "count"].sum() >= 4
    assert told(profile, f"gradient accumulation: {every}") == (every > 1)
    assert told(profile, "with the loop at train.py:16")
    assert told(profile, "optimizer: the update is what the program's own code ran")


def test_new_parameters_in_each_round_end_a_step(run: Callable[..., ModelProfile]) -> None:
    profile = run("""
del optimizer
w, v = (torch.randn(8, 3, requires_grad=True) for _ in "wv")
for step in range(50):
    x = torch.randn(12, 8)
    parts = torch.autograd.grad((x @ w * (x @ v)).sum(), [w, v])
    w, v = ((one - 0.1 * part).detach().requires_grad_() for one, part in zip((w, v), parts))
""")
    assert products(profile) == [("backward_weight", 8.0, 3.0, 12.0, 2.0), ("forward", 12.0, 3.0, 8.0, 2.0)]
    rows = numbers(profile)
    assert rows.loc[rows["pass_name"] == "update", "count"].sum() == 4  # a product and a difference for each


@pytest.mark.parametrize("has_loader", [True, False])
def test_a_run_is_one_fold_of_several(run: Callable[..., ModelProfile], has_loader: bool) -> None:
    """The loop over folds makes the optimizer; the inner one is over epochs, or over steps."""
    inner = (
        "for x, y in train:"
        if has_loader
        else "x, y = torch.randn(12, 8), torch.randint(3, (12,))\n        with torch.enable_grad():"
    )
    profile = run(f"""
train = loader(96, 12)
for fold in range(5):
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=False)
    for epoch in range(7):
        {inner}
    {TRAIN.replace(chr(10), chr(10) + "    ")}
""")
    assert (profile.run.epochs, profile.data.train_samples) == ((7, 96) if has_loader else (1, 7 * 12))
    assert told(profile, "the loop at train.py:14 makes an optimizer in each round")


def test_a_step_that_goes_on_in_the_next_epoch_is_not_taken(run: Callable[..., ModelProfile]) -> None:
    """Of five batches the last one waits for the two of the next epoch's first step."""
    profile = run("""
train = loader(60, 12)
for epoch in range(9):
    for place, (x, y) in enumerate(train):
        criterion(model(x), y).backward()
        if place % 2:
            optimizer.step()
            optimizer.zero_grad()
""")
    assert products(profile) == [(*row[:-1], 2.0) for row in ONE_STEP]
    assert not told(profile, "differ by")


def test_samples_of_vmap_are_the_batch(run: Callable[..., ModelProfile]) -> None:
    profile = run("""
from torch.func import functional_call, grad, vmap
def loss(parameters, x, y):
    return criterion(functional_call(model, parameters, (x[None],)), y[None])
for step in range(9):
    x, y = torch.randn(12, 8), torch.randint(3, (12,))
    found = vmap(grad(loss), in_dims=(None, 0, 0))({k: v.detach() for k, v in model.named_parameters()}, x, y)
    for name, parameter in model.named_parameters():
        parameter.grad = found[name].mean(0)
    optimizer.step()
""")
    assert profile.batch == 12


@pytest.mark.parametrize(
    "update",
    [
        "    parameters = {name: one - 0.1 * found[name] for name, one in parameters.items()}",
        "    for name in found:\n        parameters[name].sub_(0.1 * found[name])",
        "    for name, one in model.named_parameters():\n        one.grad = found[name]\n    optimizer.step()",
    ],
    ids=["new parameters", "in place", "an optimizer"],
)
def test_gradients_by_torch_func_are_those_of_the_parameters(
    update: str, run: Callable[..., ModelProfile]
) -> None:
    """The tensors by which it differentiates are no parameters beside those of the model."""
    profile = run(
        f"""
from torch.func import functional_call, grad
def loss(parameters, x, y):
    return criterion(functional_call(model, parameters, (x,)), y)
parameters = {{name: one.detach() for name, one in model.named_parameters()}}
for step in range(9):
    x, y = torch.randn(12, 8), torch.randint(3, (12,))
    found = grad(loss)(parameters, x, y)
{update}
""",
        START if "optimizer" in update else START.rpartition("optimizer =")[0],
    )
    assert products(profile) == ONE_STEP
    assert profile.parameters_total == profile.parameters_trainable == 8 * 16 + 16 + 16 * 3 + 3


def test_loops_over_optimizers_and_over_batches_in_memory_are_known(run: Callable[..., ModelProfile]) -> None:
    """A call on a single sample, to choose what to do, is not the batch."""
    profile = run("""
first, second = (torch.optim.SGD(part.parameters(), lr=0.1) for part in (model[0], model[2]))
batches = [(torch.randn(12, 8), torch.randint(3, (12,))) for _ in range(4)]
for epoch in range(7):
    for x, y in batches:
        model(torch.randn(8)).argmax().item()
        criterion(model(x), y).backward()
        for one in (first, second):
            one.step()
            one.zero_grad()
""")
    assert (profile.batch, profile.data.train_samples, profile.run.epochs) == (12, 7 * 4 * 12, 1)
    assert told(profile, "28 steps of the optimizer, the rounds of the loops at train.py:15 and train.py:16")


def test_a_model_that_was_called_once_while_it_was_made_is_no_part(run: Callable[..., ModelProfile]) -> None:
    profile = run(f"""
earlier = nn.Linear(50, 60)
earlier(torch.zeros(1, 50))
train = loader(96, 12)
for epoch in range(7):
    for x, y in train:
{TRAIN}
""")
    assert (profile.title, profile.parameters_total) == ("Sequential, training step", 8 * 16 + 16 + 16 * 3 + 3)
    assert set(profile.ops.loc[profile.ops["kind"] == "gemm", "module"]) == {"0", "2"}
    assert profile.layers is not None
    assert not profile.layers["module"].str.contains("linear").any()

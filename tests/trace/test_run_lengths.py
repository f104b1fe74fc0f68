"""How long a program trains: from the loops around its steps, and from further trainers."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the tracer's tests need PyTorch: pip install '.[torch]'")

from fomkit.frontends.drafting import replaced  # noqa: E402
from fomkit.frontends.script import loops  # noqa: E402
from fomkit.frontends.script.loops import RunLength  # noqa: E402
from fomkit.frontends.script.torch_draft import one_process  # noqa: E402
from fomkit.frontends.script.trainers import run_length, watch_loaders  # noqa: E402


def length_in(text: str, folder: Path, library: str = "") -> RunLength:
    """Run a program whose ``step()`` finds the length of its run, and return what the first step found.

    `library`: text of a library that it may import as ``trainer``, in which ``loader`` is its argument.
    """
    found: list[RunLength] = []
    loader = torch.utils.data.DataLoader(range(64), batch_size=8)

    def step(given: Any = None) -> None:
        found.append(run_length(sys._getframe(1), given))

    site = folder / "site-packages" / "trainer.py"
    site.parent.mkdir()
    path, names = folder / "train.py", {"step": step, "loader": loader}
    site.write_text(library)
    path.write_text(text)
    exec(compile(library, str(site), "exec"), names)
    with replaced(loops, is_user_file=lambda name: name == str(path)):
        exec(compile(text, str(path), "exec"), names)
    return found[0]


ROWS = "import torch, numpy as np\nfrom itertools import count, islice\nx = torch.ones(95, 3)\n"
PARTS = "def parts(n, size):\n    for i in range(0, n, size):\n        yield i\n"
ENDS = PARTS.replace("        yield", "        if i > 50: break\n        yield")


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("for n in range(700):\n    step()", 700),
        ("rows = [0] * 95\nfor e in range(3):\n    for i in range(0, len(rows), 10):\n        step()", 30),
        ("import torch\nx = torch.ones(95, 3)\nfor i in range(0, x.size(0) - 1, 10):\n    step()", 10),
        ("rows, bs = [0] * 95, 10\nfor i in range(min(20, round(len(rows) / bs))):\n    step()", 10),
        ("import math\nfor i in range(math.ceil(95 / 10)):\n    step()", 10),
        ("def once(i):\n    step()\nfor i in range(9):\n    once(i)", 9),
        ("n, last = 0, 40\nwhile n < last:\n    step()\n    n += 1", 40),
        ("n = 0\nwhile n < 40 or n < 50:\n    step()\n    n += 1", None),
        ("n = 0\nwhile True:\n    step()\n    n += 1\n    if n > 50: break", 51),
        ("n, m = 0, 50\nwhile True:\n    step()\n    n += 1\n    if m >= 0 and n >= m: break", 50),
        ("n = 0\nwhile True:\n    step()\n    n += 1\n    if n > 3 and n ** 2 > 50: break", None),
        ("n = 0\nwhile True:\n    if n >= 50: break\n    step()\n    n += 1", 50),
        ("n = 0\nif step is None: n = step['n']\nwhile True:\n    step()\n    n += 1\n    if n > 50: break", 51),
        ("n = 0\nif step: n = len('7' * 900)\nwhile n < 999:\n    step()\n    n += 1", None),
        ("n: int = 0\nlimit = 9.5\nwhile n < limit:\n    step()\n    n += 1", None),
        ("n = 0\nwhile n < 40:\n    step()\n    n += 1\n    if n < 0:\n        n = 5", None),
        ("for i in range(40):\n    if i % 4 == 0:\n        step()", None),
        ("def once(i):\n    if i % 4 == 0:\n        step()\nfor i in range(40):\n    once(i)", None),
        ("for i in [1, 2]:\n    for n in range(3):\n        step()", None),
        ("n = 0\nwhile True:\n    n += 1\n    if n > 50: break\n    step()", 50),
        ("n = 0\nwhile True:\n    n += 1\n    step()\n    if n >= 50: break", 50),
        ("for i in range(9): step()", 9),
        ("for i in range(9):\n    for n in [step()]: pass", 9),
        ("for i in range(9): [step() for _ in loader]", None),
        ("for i in range(9):\n    any(\n        step()\n        for _ in loader)", None),
        ("for i in range(9):\n    print(step(), [n for n in range(3)])", 9),
        ("for i in range(10**2 - 90 % 7 + -1):\n    step()", 93),
        ("c = {'n': 9}\nfor i in range(c.get('n')):\n    step()", 9),
        (f"{ROWS}for a, b in zip(x.split(30), torch.split(x, 30)):\n    step()", 4),
        (f"{ROWS}for a in torch.randperm(95).split(10):\n    step()", 10),
        (f"{ROWS}for a in x.chunk(20):\n    step()", 19),
        (f"{ROWS}for a, b in zip(torch.chunk(x, 2), np.array_split(x, 7)):\n    step()", 2),
        (f"{ROWS}for a in np.split(np.random.permutation(90), 9):\n    step()", 9),
        (f"{ROWS}for a in x.split([30, 65]):\n    step()", None),
        (f"{ROWS}for n, a in zip(count(), np.arange(0, 95, 10)):\n    step()", 10),
        (f"{ROWS}for a in zip(range(99), x.unbind()):\n    step()", None),
        (f"{ROWS}for a in islice(range(99), 5):\n    step()", 5),
        (f"{PARTS}for e in range(3):\n    for a in parts(95, 10):\n        step()", 30),
        (f"{PARTS}made = parts(95, 10)\nfor a in made:\n    step()", 10),
        (f"{ENDS}for a in parts(95, 10):\n    step()", None),
        (f"{PARTS}for a, b in zip(parts(95, 10), parts(95, 9)):\n    step()", None),
        (
            "class Own:\n    def __len__(self): return 6\n    def __getitem__(self, i): return [1][i // 6]\n"
            "own = Own()\nfor a in own:\n    step()",
            6,
        ),
        (
            "class Own:\n    def __iter__(self):\n        for i in range(6): yield i\n"
            "own = Own()\nfor a in own:\n    step()",
            6,
        ),
        ("for i in range(40):\n    if not (__name__ == 'a' or i is None) and isinstance(i, int): step()", 40),
        ("for i in range(40):\n    if i % 4 == 0 or __name__ != 'a': step()", None),
        ("for i in range(40):\n    if __name__ != i % 4: step()", None),
        ("learn(60)", 60),
        ("for seed in range(5):\n    learn(60)", 300),
        ("step()", None),
        ("for seed in range(5):\n    fit(loader)", None),
    ],
)
def test_steps_are_the_rounds_of_all_loops(text: str, steps: int | None, tmp_path: Path) -> None:
    hidden = "def fit(loader):\n    for it in zip(*[loader]):\n        step()\n"
    hidden += "def learn(steps):\n    for i in range(steps):\n        step()"
    found = length_in(text, tmp_path, hidden)
    assert (found.epochs, found.steps) == (None, steps)
    assert found.remarks == ()
    reasons = ("no loop over a DataLoader was found", "cannot be analysed", "a step is made")
    assert steps or found.origin.endswith(reasons)
    assert ("a condition decides in which rounds" in found.origin) == ("i % 4" in text or "_ in loader" in text)


DATA = "for batch in loader:\n{0}    step(loader)"


@pytest.mark.parametrize(
    ("text", "epochs"),
    [
        ("for e in range(7):\n    " + DATA.format("    "), 7),
        ("e = 0\nwhile e < 12:\n    " + DATA.format("    ") + "\n    e += 1", 12),
        ("rounds = range(1, 6)\nfor e in rounds:\n    " + DATA.format("    "), 5),
        ("for e in range(7):\n    for phase in ['train', 'val']:\n        " + DATA.format("        "), 7),
        ("for e in range(7):\n    for name, one in {'a': loader}.items():\n        " + DATA.format("        "), 7),
        ("for e in range(7):\n    for fold in [1, 2]:\n        " + DATA.format("        "), None),
        ("fit(loader, 4)", 4),
        ("for seed in range(5):\n    fit(loader, 4)", 4),
    ],
)
def test_epochs_are_the_rounds_around_the_data_also_in_a_library(
    text: str, epochs: int | None, tmp_path: Path
) -> None:
    library = "def fit(loader, epochs):\n    for e in range(epochs):\n        " + DATA.format("        ")
    found = length_in(text, tmp_path, library)
    assert (found.epochs, found.steps) == (epochs, None)
    is_around = text.startswith("for seed")
    assert (
        found.remarks == ("the loop at train.py:1 is around these epochs; its rounds are not counted",) * is_around
    )


STEP = "        step(loader)\n        n += 1\n"


@pytest.mark.parametrize(
    ("text", "length"),
    [
        (f"n = 0\nwhile n < 500:\n    for x in loader:\n{STEP}", (None, 500)),
        (f"n = 0\nwhile n < 500 and loader:\n    for x in loader:\n{STEP}", (None, 500)),
        (f"n = 0\nwhile n < 500 or n < 9:\n    for x in loader:\n{STEP}", (None, None)),
        (f"n, on = 0, 1\nwhile on:\n    for x in loader:\n{STEP}        if n > 500:\n            on = 0\n"
         "            break", (None, 501)),
        (f"n = 0\nfor e in range(9):\n    for x in loader:\n{STEP}        if n == 30: break", (9, 30)),
        (f"n = 0\nfor e in range(9):\n    for x in loader:\n{STEP}        if n >= -1: break", (9, None)),
        ("n = 0\nfor e in range(9):\n    for x in loader:\n        step(loader)\n        if e > 9:\n"
         "            n += 1\n        if n >= 3: break", (9, None)),
        ("n = 0\nwhile n < 500:\n    for x in loader:\n        n += 1\n        if n % 2:\n"
         "            step(loader)", (None, None)),
        ("n = 0\nwhile n < 5:\n    for x in loader:\n        step(loader)\n    n += 1", (5, None)),
        ("n = 0\nwhile n < 5:\n    for x in loader:\n        once()", (None, None)),
        ("for e in range(7):\n    bar = enumerate(loader)\n    bar = iter([*bar])\n    for i, x in bar:\n"
         "        step(loader)", (7, None)),
        ("import torch\nx = torch.arange(10)\nfor e in range(3):\n    for i in x:\n        step()", (None, 30)),
        ("for e in range(7):\n    rows = iter(loader)\n    while True:\n        try: x = next(rows)\n"
         "        except StopIteration: break\n        step(loader)", (7, None)),
        ("for e in range(7):\n    rows = iter(loader)\n    while True:\n        try: x = next(rows)\n"
         "        except StopIteration: rows = iter(loader)\n        step(loader)\n        break", (None, None)),
    ],
)  # fmt: skip
def test_a_counter_inside_the_loop_over_the_data_limits_the_steps(
    text: str, length: tuple[int | None, ...], tmp_path: Path
) -> None:
    once = "def once():\n    global n\n    step(loader)\n    n += 1\n" if "once" in text else ""
    found = length_in(once + text, tmp_path)
    assert (found.epochs, found.steps) == length


STEP = "step(loader)\n"
TO_LIMIT = f"for i, x in enumerate(loader):\n        {STEP}        if i + 1 == 3: break"


@pytest.mark.parametrize(
    ("text", "steps", "is_told"),
    [
        (f"for i, x in enumerate(loader, 1):\n    if i > 5: break\n    {STEP}", 5, False),
        (f"for i, x in enumerate(loader):\n    {STEP}    if i == 5: break", 6, False),
        (f"for e in range(4):\n    {TO_LIMIT}", 12, False),
        (f"for e in range(4):\n    {TO_LIMIT}".replace("i + 1 == 3", "x[0] == 99"), None, True),
        (f"for e in range(4):\n    {TO_LIMIT}".replace("step", "if i % 2 == 0: step"), None, True),
        ("from itertools import count\nfor n in count(10):\n    if n >= 2000: break\n    step()", 1990, False),
        ("from itertools import count\nfor n in count():\n    step()\n    if step: break", None, False),
    ],
)
def test_a_loop_that_numbers_its_rounds_ends_at_its_limit(
    text: str, steps: int | None, is_told: bool, tmp_path: Path
) -> None:
    found = length_in(text, tmp_path)
    assert (found.steps, any("before its last round" in one for one in found.remarks)) == (steps, is_told)


@pytest.mark.parametrize("test", ["not torch.isnan(x).any()", "~(torch.isnan(x) | torch.isinf(x))", "x > 1"])
def test_a_loss_that_must_be_finite_leaves_out_no_step(test: str, tmp_path: Path) -> None:
    found = length_in(f"import torch\nx = torch.tensor(2.)\nfor n in range(9):\n    if {test}: step()", tmp_path)
    assert found.steps == (None if test == "x > 1" else 9)


@pytest.mark.parametrize(
    ("later", "where"),
    [
        ("for e in range(6):\n    for x in loader: loss.backward()", "train.py:7"),
        ("for e in range(6):\n    tune()\nfor e in range(2):\n    tune()", "train.py:7 and train.py:9"),
        ("tune()", "train.py:7"),
        ("for x in loader:\n    loss.replay()", "train.py:7"),
        ("for e in range(6):\n    print()", ""),
        ("loss.backward()", ""),
    ],
)
def test_a_later_training_is_told(later: str, where: str, tmp_path: Path) -> None:
    """The program ends after some steps, so what it trains after them does not run."""
    tune = "class loss:\n    backward = replay = staticmethod(print)\ndef tune():\n    loss.backward()\n"
    found = length_in(f"{tune}for e in range(4):\n    for x in loader: step(loader)\n{later}", tmp_path)
    told = f"doubtful: {where} computes gradients later; its steps are not counted"
    assert (found.epochs, found.remarks) == (4, (told,) * bool(where))


@pytest.mark.parametrize(("passes", "steps"), [(1, 9), (2, None)])
def test_every_round_is_a_step_where_accelerate_joins_no_passes(
    passes: int, steps: int | None, tmp_path: Path
) -> None:
    state = (
        f"from types import SimpleNamespace\nstate = SimpleNamespace(sync_gradients=True, num_steps={passes})\n"
    )
    found = length_in(f"{state}for n in range(9):\n    if state.sync_gradients: step()", tmp_path)
    assert found.steps == steps


@pytest.mark.parametrize(
    ("text", "rounds", "line"),
    [
        ("for n in range(9):\n    step()\n    if n > 3: break", 9, 1),
        ("n = 1\nwhile n <= 40 and True:\n    step()\n    n += 1", 40, 2),
        ("for e in range(7):\n    for batch in loader:\n        step(loader)\n        if e > 3: break", 7, 2),
        ("for e in range(7):\n    for batch in loader:\n        step(loader)\n    else:\n        break", 7, 1),
    ],
)
def test_a_loop_that_may_end_early_is_told(text: str, rounds: int, line: int, tmp_path: Path) -> None:
    found = length_in(text, tmp_path)
    assert (found.steps or found.epochs) == rounds
    place = f"train.py:{line}"
    assert found.remarks == (f"a break or a condition may end the loop at {place} before its last round",)


class _Base:
    def run(self) -> RunLength:
        return run_length(sys._getframe(), self.loader)

    loader = torch.utils.data.DataLoader(range(64), batch_size=8)


TRAINERS = {
    "ignite.engine": ("Engine", {"state": SimpleNamespace(max_epochs=10, max_iters=None, epoch_length=8)}),
    "ignite.engine.of_steps": ("Engine", {"state": SimpleNamespace(
        max_epochs=None, max_iters=90, epoch_length=3)}),
    "composer.trainer": ("Trainer", {"state": SimpleNamespace(
        max_duration=SimpleNamespace(value=5, unit=SimpleNamespace(value="ep")))}),
    "composer.trainer.of_steps": ("Trainer", {"state": SimpleNamespace(
        max_duration=SimpleNamespace(value=70, unit=SimpleNamespace(value="ba")))}),
    "ultralytics.engine": ("BaseTrainer", {
        "epochs": 3, "batch_size": 8, "args": SimpleNamespace(nbs=64, val=True, patience=100),
        "test_loader": SimpleNamespace(dataset=range(20))}),
}  # fmt: skip


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        ("ignite.engine", (10, None, None, None)),
        ("ignite.engine.of_steps", (None, 90, 24, None)),
        ("composer.trainer", (5, None, None, None)),
        ("composer.trainer.of_steps", (None, 70, None, None)),
        ("ultralytics.engine", (3, None, None, 8)),
    ],
)
def test_further_trainers_state_their_length(module: str, expected: tuple[int | None, ...]) -> None:
    name, fields = TRAINERS[module]
    own = type("Mine", (type(name, (_Base,), {"__module__": module}),), fields)
    found = own().run()
    assert (found.epochs, found.steps, found.train_samples, found.accumulates) == expected
    assert found.validation_samples == (20 if module.startswith("ultra") else None)


def test_a_loader_that_keeps_its_iterator_is_known() -> None:
    class Endless(torch.utils.data.DataLoader):  # type: ignore[misc, name-defined]
        def __iter__(self) -> Any:
            self.kept = getattr(self, "kept", None) or self._get_iterator()
            yield from (next(self.kept) for _ in range(2))

    loader = Endless(range(64), batch_size=8)
    seen: list[Any] = []
    with watch_loaders(lambda: None, lambda batch: seen.append(batch.loader) or batch.values, nullcontext):
        list(loader)
    assert seen == [loader, loader]


def test_a_program_that_names_its_gpu_stays_on_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    path = tmp_path / "train.py"
    path.write_text("import torch")
    with one_process(path):
        device = torch.device("cuda:0")
        net = torch.nn.Linear(8, 2).cuda()
        rows = torch.ones(3, 8, device=device).pin_memory().to("cuda", non_blocking=True)
        torch.set_default_device("cuda")
        torch.cuda.synchronize()
        assert net(rows).device.type == torch.zeros(2).device.type == "cpu"
        torch.set_default_device(None)


def test_a_step_is_one_of_those_after_a_trainers_warm_up() -> None:
    """Its first steps have one batch, the later ones 8; the update runs once in each."""
    from fomkit.frontends.script.torch_draft import draft_script
    from fomkit.frontends.script.torch_steps import StepWatch

    def train(self: Any) -> None:  # noqa: ARG001 - by which a trainer is found
        for values in torch.utils.data.DataLoader(torch.ones(64, 4), batch_size=8):
            net(values).sum().backward()
            optimizer.step()

    name, fields = TRAINERS["ultralytics.engine"]
    base = type(name, (), {"__module__": "ultralytics.engine", "train": train})
    net = torch.nn.Linear(4, 3)
    optimizer = torch.optim.SGD(net.parameters(), foreach=False)

    def stop(_: Any, is_all: bool) -> None:
        if is_all:
            raise KeyboardInterrupt

    watch = StepWatch(stop)
    with pytest.raises(KeyboardInterrupt), watch.watch(), replaced(loops, is_user_file=lambda _: False):
        type("Mine", (base,), fields)().train()
    assert watch.captured
    found = draft_script(watch.captured, {"name": "train"}).profile()
    counts = found.ops.groupby("kind")["count"].sum()
    assert (found.batch, counts["gemm"], counts["optimizer"]) == (64, 2 * 8, 1)
    (note,) = (note for note in found.notes if "set to 8 batches a step" in note)
    assert "count 8 times" in note

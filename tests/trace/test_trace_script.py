"""Unchanged training programs: run in a child process, stopped after one recorded step."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from traced_work import numbers, row_flop

from fomkit.core.errors import FomkitError
from fomkit.frontends.profile import profile_file, profile_script

pytest.importorskip("torch", reason="the tracer's tests need PyTorch: pip install '.[torch]'")

Write = Callable[..., Path]
HEAVY = ("gemm", "conv", "attention", "rnn")
TRAINING = """
import torch
model = torch.nn.Linear(8, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range({steps}):
    optimizer.zero_grad()
    model(torch.randn(6, 8)).sum().backward()
    optimizer.step()
"""


def heavy_rows(table: pd.DataFrame) -> pd.DataFrame:
    """Return products, convolutions and layers with all their dimensions, each with its count."""
    rows = table[table["kind"].isin(HEAVY)]
    keys = [name for name in rows.columns if name not in ("count", "of")]
    counted = rows.fillna(-1).groupby(keys)["count"].sum().reset_index()
    return counted.sort_values(keys).reset_index(drop=True)


@pytest.mark.parametrize(
    ("folder", "arguments"), [("pictures", ("--workers", "2", "--epochs", "14")), ("tiny_lm", ())]
)
def test_a_program_gives_the_step_of_its_model_file(
    root: Path, folder: str, arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = root / "tests" / "data" / "scripts" / folder
    found, model = profile_script(source / "train.py", arguments), profile_file(source / "model.py")
    assert (found.traced_with["device"], model.traced_with["device"]) == ("cpu", "meta")
    batch = model.batch
    assert batch
    for table, at in (("ops", batch), ("parts", batch), ("ops", 5 * batch), ("parts", 5 * batch)):
        ran, expected = numbers(found, table, at), numbers(model, table, at)
        pd.testing.assert_frame_equal(heavy_rows(ran), heavy_rows(expected))
        flop = [sum(row_flop(row) * row["count"] for _, row in rows.iterrows()) for rows in (ran, expected)]
        assert flop[0] == flop[1]
        assert table == "parts" or flop[0] > 1e6
    update = [
        rows[rows["kind"] == "optimizer"][["rule", "impl", "numel", "tensors"]].to_numpy().tolist()
        for rows in (numbers(found), numbers(model))
    ]
    assert update[0] == update[1]
    assert (found.batch, found.data, found.run) == (model.batch, model.data, model.run)
    assert (found.parameters_total, found.optimizer) == (model.parameters_total, model.optimizer)
    assert not found.unsupported
    assert found.layers is not None
    assert model.layers is not None
    owned = ["layer", "module", "parameters"]
    assert found.layers[owned].equals(model.layers[owned])
    assert not any(note.startswith("partial") for note in found.notes)
    assert not list(tmp_path.iterdir()), "the program was not stopped"
    assert not list(source.rglob("__pycache__"))


def test_gradient_accumulation_is_one_step(root: Path) -> None:
    path = root / "tests" / "data" / "scripts" / "tiny_lm" / "train.py"
    once, twice = profile_script(path), profile_script(path, ["2"])
    assert (once.batch, twice.batch) == (4, 8)
    assert any("gradient accumulation: 2 backward passes" in note for note in twice.notes)
    single, double = heavy_rows(numbers(once)), heavy_rows(numbers(twice))
    assert (double["count"] == 2 * single["count"]).all()
    updates = twice.ops[twice.ops["kind"] == "optimizer"]
    assert updates["count"].tolist() == [1.0]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("print('nothing')", "ran without a step of an optimizer"),
        ("import torch\nx = torch.ones(3, requires_grad=True)\nx.sum().backward()", "with 1 backward passes"),
        (
            "import torch\nx = torch.ones(3, requires_grad=True)\nwhile True:\n    x.sum().backward()",
            "ran without a step of an optimizer in this process, with 1001 backward passes",
        ),
        (
            "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--data', required=True)\n"
            "parser.parse_args()",
            r":4: ends before its first training step: .*arguments are required: --data\. Give its own arguments",
        ),
        ("import sys\nsys.exit(0)", r":2: ends by sys.exit\(0\) before its first training step"),
        ("\nx = 1 / 0", r":2: raises ZeroDivisionError: division by zero, before its first training step"),
        ("import torch\ntorch.cuda.get_rng_state()", r":2: raises .*It is run on the CPU"),
        ("x = (", r":1: is not valid Python \(.*\)\. Correct it\.$"),
        ("import os\nos._exit(0)", r"exit code 0 \(os._exit, perhaps\).*Let it train in this process"),
        (TRAINING.format(steps=1), "took one training step and ended"),
        ("input('Name? ')", ":1: raises EOFError"),
    ],
    ids=[
        "empty",
        "own update",
        "own update for ever",
        "argparse",
        "sys.exit",
        "raises",
        "cuda",
        "syntax",
        "os._exit",
        "one",
        "asks",
    ],
)
def test_one_clear_error(file_of: Write, text: str, told: str) -> None:
    path = file_of(text, "train.py")
    with pytest.raises(FomkitError) as caught:
        profile_script(path, time_limit_s=60.0)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert re.search(told, message, re.DOTALL), message
    assert "Traceback" not in message


def test_a_hang_is_ended(file_of: Write) -> None:
    path = file_of(TRAINING.format(steps=2) + "\nimport time\ntime.sleep(600)", "train.py")
    with pytest.raises(FomkitError, match=r"did not finish within 3 s\. Three training steps are needed"):
        profile_script(path, time_limit_s=3.0)


@pytest.mark.parametrize(
    ("rest", "told"),
    [
        ("", "partial: the program ended after 2 steps"),
        ("raise ValueError('later')", "partial: the program raises ValueError: later after 2 steps"),
        ("raise SystemExit(3)", "partial: the program ended by sys.exit(3) after 2 steps"),
    ],
)
def test_a_program_that_ends_early_gives_a_partial_profile(file_of: Write, rest: str, told: str) -> None:
    profile = profile_script(file_of(TRAINING.format(steps=2) + rest, "train.py"))
    assert profile.notes[0].startswith(told)
    assert profile.caveats == profile.notes[:1]
    assert (profile.batch, profile.run.epochs, profile.data.train_samples) == (6, 1, 12)


def test_programs_are_stopped_in_order_and_for_good(file_of: Write, tmp_path: Path) -> None:
    file_of("raise RuntimeError('the standard module was wanted')", "grp.py")
    text = f"""
import contextlib
@contextlib.contextmanager
def tidy():
    try:
        yield
    finally:
        open({str(tmp_path / "tidied")!r}, "w").close()
with tidy():
    while True:
        try:
            exec({TRAINING.format(steps=50)!r})
        except:
            raise_again = True
"""
    profile = profile_script(file_of(text, "train.py"), time_limit_s=60.0)
    assert profile.batch == 6
    assert not (tmp_path / "tidied").exists(), "a program that would not stop is ended at its next step"
    text = text.replace("raise_again = True", "raise")
    profile_script(file_of(text, "train.py"), time_limit_s=60.0)
    assert (tmp_path / "tidied").exists()


OTHERWISE = """
import time, torch
from torch.utils.data import DataLoader, TensorDataset
model = torch.nn.Linear(8, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = DataLoader(TensorDataset(torch.randn(120, 8)), batch_size=12)
for epoch in range(4):
    for (x,) in data:
        {when}
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    "when",
    [
        "x = x.view(12, 8)",
        "assert len(x) == 12",
        "if len(x) != 12: import os; os._exit(3)",
        "if len(x) != 12: print('x' * 60_000_000); time.sleep(600)",
    ],
    ids=["a size that stands in it", "a check", "its end", "too much"],
)
def test_a_program_that_fails_at_other_batches_has_its_own(file_of: Write, when: str) -> None:
    profile = profile_script(file_of(OTHERWISE.format(when=when), "train.py"))
    assert (profile.batch, profile.run.epochs, profile.data.train_samples) == (12, 4, 120)
    assert any(note.startswith("the sizes hold for batch 12 only") for note in profile.notes)
    assert any("took no step of its own at another batch" in note for note in profile.notes)
    assert not profile.caveats


def test_a_program_s_batch_of_one_is_named_from_larger_ones(file_of: Write) -> None:
    path = file_of(
        OTHERWISE.format(when="x = x.expand(-1, 8)").replace("batch_size=12", "batch_size=1"), "train.py"
    )
    profile = profile_script(path)
    (product,) = profile.ops[profile.ops["op"] == "aten::addmm"][["m", "n", "k"]].to_numpy().tolist()
    assert (profile.batch, product) == (1, ["batch", 3, 8])

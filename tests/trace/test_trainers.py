"""Programs that train by a library's trainer: how long they run, and their step at any batch.

They run with small stand-ins of the libraries, and with the libraries themselves if they are installed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from traced_work import numbers

from fomkit.core.model import ModelProfile
from fomkit.frontends.profile import is_program

pytest.importorskip("torch", reason="the tracer's tests need PyTorch: pip install '.[torch]'")

STAND_INS = Path(__file__).parents[1] / "data" / "trainers" / "site-packages"
LIBRARIES = ("transformers", "lightning", "accelerate")
NET = """
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden, self.head = torch.nn.Linear(8, 16), torch.nn.Linear(16, 3)
    def forward(self, x, labels=None):
        logits = self.head(self.hidden(x).relu())
        loss = None if labels is None else torch.nn.functional.cross_entropy(logits, labels)
        return {"loss": loss, "logits": logits}
class Rows(Dataset):
    def __init__(self, count):
        self.count = count
    def __len__(self):
        return self.count
    def __getitem__(self, place):
        if place >= self.count:
            raise IndexError
        return {"x": torch.randn(8), "labels": torch.tensor(place % 3)}
class Stream(IterableDataset):
    def __iter__(self):
        while True:
            yield {"x": torch.randn(8), "labels": torch.tensor(1)}
"""
HUGGING_FACE = (
    NET
    + """
from transformers import EarlyStoppingCallback, Trainer, TrainingArguments
class Own(Trainer):
    pass
more = {}
import inspect
if "report_to" in inspect.signature(TrainingArguments).parameters:
    more = {"use_cpu": True, "report_to": "none", "disable_tqdm": True}
arguments = TrainingArguments("out", ARGUMENTS, **more)
Own(model=Net(), args=arguments, GIVEN).train()
"""
)
LIGHTNING = (
    NET
    + """
import lightning as L
class Module(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = Net()
    def training_step(self, batch, place):
        return self.net(**batch)["loss"]
    def validation_step(self, batch, place):
        self.log("loss", self.net(**batch)["loss"])
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1, foreach=False)
quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "accelerator": "cpu"}
L.Trainer(ARGUMENTS, **quiet).fit(Module(), GIVEN)
"""
)
ACCELERATE = (
    NET
    + """
from accelerate import Accelerator
accelerator = Accelerator(ARGUMENTS)
model, rows = Net(), DataLoader(Rows(400), batch_size=20)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
model, optimizer, rows = accelerator.prepare(model, optimizer, rows)
for epoch in range(GIVEN):
    for inputs in rows:
        with accelerator.accumulate(model):
            accelerator.backward(model(**inputs)["loss"])
            optimizer.step()
            optimizer.zero_grad()
"""
)
ROWS = "train_dataset=Rows(1000)"


def filled(text: str, arguments: str, given: str) -> str:
    return text.replace("ARGUMENTS", arguments).replace("GIVEN", given)


@pytest.fixture(params=["stand-ins", "installed"])
def libraries(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Let programs import the stand-ins, or the libraries themselves."""
    known = dict(sys.modules)
    if request.param == "stand-ins":
        for name in [name for name in known if name.partition(".")[0] in LIBRARIES]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.syspath_prepend(str(STAND_INS))
    yield request.param
    if request.param == "stand-ins":
        # Other tests import the libraries themselves, whose modules look each other up by these names.
        for name in [name for name in sys.modules if name.partition(".")[0] in LIBRARIES]:
            del sys.modules[name]
        sys.modules.update({name: known[name] for name in known if name.partition(".")[0] in LIBRARIES})


@pytest.fixture
def run(libraries: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ModelProfile]:
    from fomkit.frontends.script.torch_draft import draft_script
    from fomkit.frontends.script.torch_steps import StepWatch

    class Stopped(BaseException):
        pass

    def stop(_: Any, is_all: bool) -> None:
        if is_all:
            raise Stopped

    def run_text(text: str, arguments: str, given: str, library: str) -> ModelProfile:
        if libraries == "installed" and (find_spec(library) is None or find_spec("accelerate") is None):
            pytest.skip(f"{library} is not installed: pip install {' '.join({library: 0, 'accelerate': 0})}")
        monkeypatch.chdir(tmp_path)
        path = tmp_path / "train.py"
        path.write_text(filled(text, arguments, given), encoding="utf-8")
        assert is_program(path)
        watch = StepWatch(stop)
        try:
            with watch.watch(), warnings.catch_warnings(action="ignore" if libraries == "installed" else None):
                exec(compile(path.read_text(), str(path), "exec"), {"__name__": "__main__"})
        except Stopped:
            pass
        assert watch.captured is not None
        return draft_script(watch.captured, {"name": "train"}).profile()

    return run_text


def of_run(profile: ModelProfile) -> tuple[int | None, ...]:
    return profile.batch, profile.run.epochs, profile.data.train_samples, profile.data.validation_samples


def told(profile: ModelProfile, text: str) -> bool:
    return any(text in note for note in profile.notes)


def per_sample(profile: ModelProfile, batch: int) -> float:
    """Return the flop of the step's products for each sample at a batch."""
    rows = numbers(profile, "ops", batch)
    rows = rows[rows["kind"] == "gemm"]
    return float((2 * rows["m"] * rows["n"] * rows["k"] * rows["count"]).sum() / batch)


@pytest.mark.parametrize(
    ("arguments", "given", "expected", "says"),
    [
        ("num_train_epochs=3, per_device_train_batch_size=16, gradient_accumulation_steps=2", ROWS,
         (32, 3, 1000, 0), "3 epochs, num_train_epochs of transformers.Trainer"),
        ("num_train_epochs=1, per_device_train_batch_size=8, eval_strategy='epoch'",
         f"{ROWS}, eval_dataset=Rows(90)", (8, 1, 1000, 90), "1 epoch, num_train_epochs"),
        ("max_steps=250, per_device_train_batch_size=8", ROWS, (8, 2, 1000, 0), "250 steps of the optimizer"),
        ("max_steps=300, per_device_train_batch_size=8, eval_strategy='epoch'",
         f"{ROWS}, eval_dataset=Rows(90)", (8, 1, 2400, 180), "they count as one epoch of 2,400 samples"),
        ("num_train_epochs=0.5, per_device_train_batch_size=8", ROWS, (8, 1, 504, 0), "63 steps of the optimizer"),
        ("max_steps=40, per_device_train_batch_size=6", "train_dataset=Stream()", (6, 1, 240, 0), "40 steps"),
        ("per_device_train_batch_size=8, eval_strategy='steps', eval_steps=50", f"{ROWS}, eval_dataset=Rows(9)",
         (8, 3, 1000, None), "validates every 50 steps"),
    ],
    ids=["epochs", "validated", "whole epochs", "steps", "half an epoch", "stream", "by steps"],
)  # fmt: skip
def test_hugging_face(
    run: Callable[..., ModelProfile], arguments: str, given: str, expected: tuple[int, ...], says: str
) -> None:
    profile = run(HUGGING_FACE, arguments, given, "transformers")
    assert of_run(profile) == expected
    assert told(profile, says), profile.notes
    assert not told(profile, "doubtful")
    batch = expected[0]
    # Forward, weight gradients of both layers, and an input gradient of the second.
    assert per_sample(profile, batch) == 2 * (2 * (8 * 16 + 16 * 3) + 16 * 3)
    assert per_sample(profile, 4 * batch) == per_sample(profile, batch)
    updates = numbers(profile)
    updates = updates[updates["kind"] == "optimizer"]
    assert (updates["numel"] * updates["count"]).sum() == profile.parameters_total


def test_early_stopping_is_told(run: Callable[..., ModelProfile], libraries: str) -> None:
    given, arguments = f"{ROWS}, callbacks=[EarlyStoppingCallback()]", "per_device_train_batch_size=4"
    if libraries == "installed":  # which wants to know of what
        given += ", eval_dataset=Rows(8)"
        arguments += ", eval_strategy='epoch', save_strategy='epoch', load_best_model_at_end=True"
    assert told(run(HUGGING_FACE, arguments, given, "transformers"), "early stopping may end")


@pytest.mark.parametrize(
    ("arguments", "given", "expected"),
    [
        ("max_epochs=5, accumulate_grad_batches=2", "DataLoader(Rows(400), batch_size=20)", (40, 5, 400, 0)),
        ("max_epochs=5", "DataLoader(Rows(400), batch_size=20), DataLoader(Rows(90), batch_size=20)",
         (20, 5, 400, 90)),
        ("max_epochs=2, limit_train_batches=12", "DataLoader(Rows(400), batch_size=20)", (20, 2, 240, 0)),
        ("max_steps=40", "DataLoader(Rows(400), batch_size=20)", (20, 2, 400, 0)),
        ("max_epochs=9, max_steps=30", "DataLoader(Rows(400), batch_size=20)", (20, 1, 600, 0)),
        ("max_epochs=1, max_steps=30", "DataLoader(Rows(400), batch_size=20)", (20, 1, 400, 0)),
        ("max_epochs=3", "DataLoader(Stream(), batch_size=20)", (20, 3, None, 0)),
    ],
    ids=["epochs", "validated", "cut", "whole epochs", "steps first", "epochs first", "stream"],
)  # fmt: skip
def test_lightning(
    run: Callable[..., ModelProfile], arguments: str, given: str, expected: tuple[int | None, ...]
) -> None:
    profile = run(LIGHTNING, arguments, given, "lightning")
    assert of_run(profile) == expected, profile.notes
    assert told(profile, "of Lightning's Trainer")
    assert not told(profile, "closure")
    assert per_sample(profile, 80) == 2 * (2 * (8 * 16 + 16 * 3) + 16 * 3)


@pytest.mark.parametrize(("steps", "batch"), [(1, 20), (4, 80)])
def test_accelerate(run: Callable[..., ModelProfile], steps: int, batch: int) -> None:
    profile = run(ACCELERATE, f"gradient_accumulation_steps={steps}, cpu=True", "7", "accelerate")
    assert of_run(profile) == (batch, 7, 400, None)
    assert told(profile, "7 epochs, from the loop at train.py")
    assert told(profile, "gradient accumulation: 4") == (steps == 4)
    assert per_sample(profile, 160) == per_sample(profile, batch) > 0


def test_what_a_trainer_of_another_version_does_not_tell_is_missing(
    run: Callable[..., ModelProfile], libraries: str
) -> None:
    if libraries == "installed":
        pytest.skip("only the stand-in can lose an attribute")
    text = HUGGING_FACE.replace(
        "    pass\n", "    eval_dataset = property(lambda self: self.absent, lambda *_: None)\n"
    )
    profile = run(text, "per_device_train_batch_size=8", ROWS, "transformers")
    assert of_run(profile) == (8, None, 1000, None)
    assert told(profile, "the number of epochs is unknown: Own has another form than in known versions (Attr")


TORCHRUN = {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "3", "LOCAL_WORLD_SIZE": "8", "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": "29400", "TORCHELASTIC_RUN_ID": "none", "GROUP_RANK": "0"}  # fmt: skip
ON_GPUS = {
    "transformers": (
        HUGGING_FACE.replace('more = {"use_cpu": True, ', "more = {"),
        "num_train_epochs=3, per_device_train_batch_size=16, bf16=True, fsdp='full_shard'", ROWS,
    ),
    "lightning": (
        LIGHTNING.replace(', "accelerator": "cpu"', ""),
        "max_epochs=3, accelerator='gpu', devices=8, num_nodes=2, strategy='fsdp'",
        "DataLoader(Rows(1000), batch_size=16)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("library", ON_GPUS)
@pytest.mark.parametrize("of", ["stand-ins", "installed"])
def test_a_trainer_of_many_accelerators_is_traced_on_one_processor(
    library: str, of: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where ``torchrun`` says that this is one of many processes."""
    from fomkit.frontends.profile import profile_script

    if of == "installed" and (find_spec(library) is None or find_spec("accelerate") is None):
        pytest.skip(f"{library} is not installed")
    path = tmp_path / "train.py"
    path.write_text(filled(*ON_GPUS[library]), encoding="utf-8")
    around = [str(STAND_INS)] if of == "stand-ins" else sys.path
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([*around, str(Path(__file__).parents[2])]))
    for name, value in TORCHRUN.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    found = profile_script(path)
    assert of_run(found)[:3] == (16, 3, 1000)
    # A trainer makes its region of autocast once, before the first step.
    assert told(found, "autocast for cpu: casts are those of a CPU") is (
        library == "transformers" and of == "installed"
    )
    assert told(found, "share its parameters (fsdp): to estimate many devices, use --nodes N --layout zero=3")


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("from transformers import Trainer\nTrainer().train()", True),
        ("import lightning.pytorch as pl\ndef main():\n    pl.Trainer().fit(1)\nmain()", True),
        ("import pytorch_lightning as pl\npl.Trainer().fit(1)", True),
        ("import accelerate\na = accelerate.Accelerator()\nfor inputs in a.prepare():\n    inputs = 1", True),
        ("from trl import SFTTrainer\nSFTTrainer()", True),
        ("from transformers import BertModel\nmodel = BertModel(1)", False),
        ("from transformers import Trainer\nTrainer()\ninputs = 1", False),
        ("from transformers import Trainer\nTrainer()\ndef inputs(batch): pass", False),
        ("from transformers import Trainer\nTrainer()\ndef workload(): pass", False),
        ("class Trainer: pass\nTrainer()", False),
        ("import torch\nfor x in []:\n    loss.backward()\n    optimizer.step()", True),
        ("import torch\ndef main():\n    loss.backward()\n    optimizer.step()\nmain()", True),
        ("from fastai.vision.all import *\nLearner().fit_one_cycle(1)", True),
        ("from stable_baselines3 import PPO\nPPO().learn(total_timesteps=1)", True),
        ("from engine import train_one_epoch\ntrain_one_epoch()", True),
        ("from engine import *\ntrain_one_epoch()", False),
        ("from stable_baselines3 import PPO\nmodel = PPO()", False),
        ("import deepxde as dde\nmodel = dde.Model()\nmodel.train(iterations=9)", True),
        ("import torch\ninputs = 1\ndef main():\n    loss.backward()\n    optimizer.step()", False),
        ("import keras\ninputs = keras.Input(3)\nmodel = keras.Model(inputs)\nmodel.fit(1)", True),
        ("import keras\ninputs = lambda batch: 1\nmodel = keras.Model()\nmodel.fit(1)", False),
        ("import keras\ninputs = keras.Input(3)\nmodel = 1\ndef main():\n    model.fit(1)", False),
        ("import keras\ninputs = keras.Input(3)\nvae = 1\nif __name__ == '__main__':\n    vae.fit(1)", True),
        ("import torch\ninputs = 1\ndef fit():\n    loss.backward()\n    optimizer.step()\nfit()", True),
        ("from transformers import Trainer\nTrainer().train()\ninputs = 1", True),
        ("import torch\nmodel = 1\nloss.backward()", False),
        ("from some_diffusion import Trainer\nmodel = 1\nTrainer(model).train()", True),
        ("import torch\nfrom some_diffusion import Trainer\ndef main():\n    Trainer(1).train()", False),
        ("import torch\nfrom some_diffusion import Trainer\nmodel = 1\nTrainer(model).run_later()", False),
        ("import pyro\nfor x in rows:\n    svi.step(x)", True),
        ("import torch\nmodel = 1\nloss.backward()\nfor p in model:\n    p -= p.grad", True),
        ("import torch\nw = torch.ones(3)\nw.sum().backward()\nw -= w.grad", True),
        ("import keras\nmodel = keras.Sequential()\nmodel.fit(1)", True),
        ("import keras\nmodel = keras.Sequential()\nif __name__ == '__main__':\n    model.fit(1)", False),
        ("import keras\nmodel = 1\ndef step():\n    model.fit(1)\ndef main():\n    step()\nmain()", True),
        ("import keras\nmodel = 1\ndef step():\n    model.fit(1)\ndef main():\n    step()", False),
        ("import keras\ndef main():\n    keras.Sequential().fit(1)\nmain()", True),
        ("import tensorflow as tf\noptimizer.apply_gradients(1)", True),
        ("from sklearn import svm\nsvm.SVC().fit(1)", False),
        ("import torch\nworkload: object = 1\ndef own():\n    l.backward()\n    o.step()", False),
        ("import torch\nfrom sizes import inputs\ndef own():\n    l.backward()\n    o.step()", False),
    ],
)
def test_a_program_is_told_from_a_model_file(tmp_path: Path, text: str, is_one: bool) -> None:
    path = tmp_path / "any.py"
    path.write_text(text)
    (tmp_path / "engine.py").write_text("import torch\ndef own():\n    loss.backward()\n    optimizer.step()")
    assert is_program(path) is is_one


def test_one_command_gives_units_a_day(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    given = ("num_train_epochs=3, per_device_train_batch_size=16, gradient_accumulation_steps=2", ROWS)
    path.write_text(filled(HUGGING_FACE, *given), encoding="utf-8")
    around = os.pathsep.join([str(STAND_INS), str(Path(__file__).parents[2])])
    asked = ["estimate", "train.py", "--target", "v100", "--batch", "64", "--json"]
    found = subprocess.run(
        [sys.executable, "-m", "fomkit", *asked],
        capture_output=True, text=True, cwd=tmp_path, check=True,
        env={**os.environ, "PYTHONPATH": around, "XDG_CACHE_HOME": str(tmp_path / "cache")},
    )  # fmt: skip
    (one,) = json.loads(found.stdout)["models"]
    assert (one["batch"], one["run"]["steps_per_epoch"] if "run" in one else 16) == (64, 16)
    assert one["unit_per_day"]["value"] > 0

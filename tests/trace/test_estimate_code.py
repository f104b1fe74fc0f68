"""An estimate starts from code: a file, which is traced once, or a module in memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import fomkit
from fomkit import FomkitError
from fomkit.verbs import profiles

torch = pytest.importorskip("torch", reason="modules of PyTorch are estimated")

MODEL = """
import torch
from sizes import WIDE
model = torch.nn.Sequential(torch.nn.Linear(784, WIDE), torch.nn.ReLU(), torch.nn.Linear(WIDE, 10))
batch_size, train_samples, epochs = 64, 60_000, 10
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def inputs(batch):
    return torch.zeros(batch, 784), torch.zeros(batch, dtype=torch.long)
def loss_fn(output, inputs):
    return torch.nn.functional.cross_entropy(output, inputs[1])
"""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FOMKIT_CACHE", str(tmp_path / "cache"))
    code = tmp_path / "code"
    code.mkdir()
    (code / "sizes.py").write_text("WIDE = 512\n", encoding="utf-8")
    (code / "mine.py").write_text(MODEL, encoding="utf-8")
    return code / "mine.py"


def test_a_file_is_traced_once_and_again_when_it_or_one_beside_it_changes(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, asked = profiles.profile, list[Path]()

    def counted(source: Path, **more: object) -> fomkit.core.model.ModelProfile:
        asked.append(source)
        return plain(source, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(profiles, "profile", counted)
    first, again = (fomkit.estimate(path, "v100") for _ in range(2))
    assert len(asked) == 1
    assert first.step == again.step
    assert first.unit_per_day == again.unit_per_day
    path.with_name("sizes.py").write_text("WIDE = 1024\n", encoding="utf-8")
    wide = fomkit.estimate(str(path), "v100", batch=128)
    assert len(asked) == 2
    assert wide.model.parameters_total == 784 * 1024 + 1024 + 1024 * 10 + 10
    assert wide.sizes["batch"] == 128


def test_a_file_without_a_batch_is_traced_at_the_one_of_the_command(path: Path) -> None:
    path.write_text(MODEL.replace("batch_size, train_samples", "train_samples").replace("64, 60_000", "60_000"))
    with pytest.raises(FomkitError, match=r"'batch_size' is missing.*or pass --batch 100"):
        fomkit.memory(path)
    assert [fomkit.memory(path, batch=batch).content["sizes"]["batch"] for batch in (8, 16)] == [8, 16]


def test_names_that_are_not_read_are_told_with_every_figure(path: Path) -> None:
    path.write_text(MODEL.replace("loss_fn", "loss").replace("train_samples, epochs", "BATCH, num_epochs"))
    found = fomkit.estimate(path, "v100")
    assert "loss" in found.excludes
    unread = [note.split(": ")[-1] for note in found.model.notes if "is not read" in note]
    assert unread == [
        "the file's loss is not read. If it is meant as loss_fn, rename it.",
        "the file's num_epochs is not read. If it is meant as epochs, rename it.",
    ]
    assert set(unread) <= {note.split(": ")[-1] for note in found.model.caveats}


def test_the_command_line_takes_a_file(path: Path, root: Path) -> None:
    words = [sys.executable, "-m", "fomkit", "estimate", str(path), "--target", "v100"]
    done = subprocess.run(words, cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("mine on v100: ")
    assert " a run (" in done.stdout.splitlines()[0]


def test_a_module_in_memory_is_as_its_workload() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(784, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
    whole = fomkit.estimate(fomkit.profile(fomkit.Workload(net, torch.zeros(64, 784))), "v100")
    one = fomkit.estimate(net, "v100", inputs=torch.zeros(64, 784))
    assert one.step == whole.step
    assert one.step == fomkit.estimate(net, "v100", inputs=lambda batch: torch.zeros(batch, 784), batch=64).step
    assert "update" in one.excludes  # nobody gave an optimizer
    trained = fomkit.profile(
        net, inputs=torch.zeros(64, 784), loss=lambda output, _: output.mean(), optimizer=torch.optim.Adam
    )
    assert "update" in set(trained.ops["pass_name"])


def test_a_module_or_workload_in_memory_has_modes() -> None:
    net, inputs = torch.nn.Linear(784, 512), torch.zeros(64, 784)
    work = fomkit.Workload(net, inputs, lambda output, _: output.mean(), torch.optim.Adam)
    trained, forward = fomkit.estimate(work, "v100"), fomkit.estimate(work, "v100", mode="infer")
    assert {*trained.step_time.passes} == {"forward", "backward", "update"}
    assert {*forward.step_time.passes} == {"forward"}
    assert forward.step == fomkit.estimate(net, "v100", inputs=inputs, mode="infer").step
    with pytest.raises(FomkitError, match=r"mode decode: is for a transformer's config\.json"):
        fomkit.estimate(net, "v100", inputs=inputs, mode="decode")


@pytest.mark.parametrize(
    ("model", "more", "why"),
    [
        ("p1b3", {"inputs": 1}, "inputs: are for a module"),
        (torch.nn.Linear(2, 2), {}, "'inputs' is missing"),
        ("nothing.py", {}, "nothing.py: is not a file"),
        (5, {}, "model: is of type int. Give a name, a path"),
    ],
)
def test_what_cannot_be_is_told(model: object, more: dict[str, object], why: str) -> None:
    with pytest.raises(FomkitError, match=why):
        fomkit.estimate(model, "v100", **more)  # type: ignore[arg-type]


def test_a_wrong_input_is_one_message(capfd: pytest.CaptureFixture[str]) -> None:
    """PyTorch's log has the whole traceback of an error that its fake tensors raise."""
    net = torch.nn.Linear(10, 10)
    with pytest.raises(FomkitError, match="same reduction dim"):
        fomkit.estimate(net, "v100", inputs=torch.zeros(4, 11))
    with pytest.raises(FomkitError, match=r"For one of these sizes: torch\.zeros\(4, 10\)"):
        fomkit.estimate(net, "v100", inputs=(4, 10))
    assert capfd.readouterr().err == ""

"""The rate of an input pipeline: real loaders in a separate process, and the written overhead."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import fomkit
from fomkit.bench import input_rate
from fomkit.bench.input_rate import InputMeasured, InputSpec, loader_of, measure_input
from fomkit.core.errors import FomkitError
from fomkit.harness.torch.cases import CannotTimeError

SLOW = """
import time
import numpy

class Loader:
    batch_size = 4
    def __iter__(self):
        time.sleep(0.1)
        for _ in range(40):
            time.sleep(0.01)
            yield numpy.zeros((4, 3)), numpy.zeros(4)

loader = Loader
"""


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(input_rate.LIMITS_S, "quick", 1.5)


def read(folder: Path, text: str, **more: object) -> InputMeasured:
    path = folder / "loader.py"
    path.write_text(text)
    return measure_input(InputSpec(path, folder / "here.yaml", "quick", **more))


def test_a_known_rate_is_found_and_the_cold_start_is_apart(tmp_path: Path) -> None:
    found = read(tmp_path, SLOW)
    assert found.batch == 4
    assert 0.0099 < found.fact.value < 0.05
    assert found.starts_s[0] > 0.1
    machine = fomkit.machine(tmp_path / "here.yaml")
    [overhead] = machine.overheads
    assert (overhead.name, overhead.per, overhead.time_s.basis) == ("input", "step", "measured")
    assert overhead.time_s.low <= overhead.time_s.value <= overhead.time_s.high
    assert any("cold start" in note for note in machine.notes)


def test_an_estimate_reads_it(tmp_path: Path, root: Path) -> None:
    here = tmp_path / "here.yaml"
    here.write_text((root / "machine_profiles" / "titan.yaml").read_text())
    before = fomkit.machine(here)
    found = read(tmp_path, SLOW, add=True)
    machine = fomkit.machine(here)
    assert (machine.name, machine.device) == (before.name, before.device)
    step = fomkit.estimate("candle/p1b3", fomkit.machine(here), batch=4, allow_uncovered=True).step_time
    assert step.input_s is not None
    assert step.input_s.value == pytest.approx(found.fact.value)
    assert "input" not in step.excludes
    read(tmp_path, SLOW, add=True)
    assert len(fomkit.machine(here).overheads) == len(machine.overheads)


def test_a_dataset_is_put_into_a_loader_with_workers(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    text = "import torch\ndataset = torch.utils.data.TensorDataset(torch.zeros(400, 3))\nbatch_size = 8\n"
    found = read(tmp_path, text, workers=1)
    assert found.batch == 8
    assert "DataLoader of torch" in found.what
    assert "1 workers, batch 8" in found.what


def test_tf_data_is_known_by_where_it_is_from(monkeypatch: pytest.MonkeyPatch) -> None:
    class Dataset:
        def __iter__(self) -> Iterator[int]:
            return iter(())

        def batch(self, size: int) -> Dataset:
            self.size = size
            return self

    Dataset.__module__ = "tensorflow.python.data.ops.dataset_ops"
    monkeypatch.setitem(sys.modules, "tensorflow", SimpleNamespace(__version__="9.9"))
    found = loader_of(SimpleNamespace(dataset=Dataset(), batch_size=16), None, None)
    assert (found.what, found.ahead, found.batches.size) == ("tf.data of TensorFlow 9.9", 2, 16)
    with pytest.raises(CannotTimeError, match="num_parallel_calls"):
        loader_of(SimpleNamespace(dataset=Dataset(), batch_size=16), 2, None)


@pytest.mark.parametrize(
    ("text", "more", "said"),
    [
        ("x = 1", {}, "loader.py: has no 'loader', 'dataset' or 'inputs'"),
        ("loader = 3", {}, "its loader is of type int, which yields no batches"),
        ("loader = []", {}, "its loader yields no batch. Add data"),
        ("import numpy\nloader = iter([numpy.zeros(3)])", {}, "yields no batch a second time"),
        ("loader = ['a', 'b']", {}, "does not state a number of samples"),
        ("loader = [1]", {"batch": 4}, "its loader has its own workers and batch"),
        ("dataset = [1]", {}, "has a dataset and no batch_size"),
        ("x = 1\nraise ValueError('no data')", {}, r"loader.py:2: raises ValueError: no data"),
        ("import os\nos._exit(3)", {}, "ended the process with exit code 3"),
        ("inputs = 3\nbatch_size = 2", {}, "a function that returns a batch"),
    ],
)
def test_what_cannot_be_read_is_told(tmp_path: Path, text: str, more: dict[str, int], said: str) -> None:
    with pytest.raises(FomkitError, match=said):
        read(tmp_path, text, **more)
    assert not (tmp_path / "here.yaml").exists()

"""What a program finds that expects a terminal, an accelerator, arguments or variables which are not here."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the tracer's tests need PyTorch: pip install '.[torch]'")

from fomkit.core.errors import FomkitError  # noqa: E402
from fomkit.frontends.script import child  # noqa: E402
from fomkit.frontends.script.loops import trains  # noqa: E402
from fomkit.frontends.script.torch_draft import without_cuda  # noqa: E402

needs_none = pytest.mark.skipif(torch.cuda.is_available(), reason="there is an accelerator")


def run(text: str, folder: Path) -> dict[str, Any]:
    """Run the text of a program without an accelerator; return its names."""
    path, names = folder / "program.py", {"__name__": "__main__"}
    path.write_text(f"import torch, sys\ncuda = torch.cuda\n{text}")
    with without_cuda():
        exec(compile(path.read_text(), str(path), "exec"), names)
    return names


@needs_none
@pytest.mark.parametrize(
    "text",
    [
        "if not cuda.is_available():\n    print()\n    sys.exit()",
        "if not cuda.is_available(): raise ValueError",
        "if cuda.is_available():\n    pass\nelse:\n    exit(1)",
        "assert (cuda.device_count() > 0 and\n        cuda.is_available())",
    ],
)
def test_a_program_that_would_end_without_an_accelerator_runs(text: str, tmp_path: Path) -> None:
    names = run(f"{text}\nother = cuda.is_available(), cuda.device_count()", tmp_path)
    assert names["other"] == (False, 0)  # elsewhere it takes its path for CPUs


@needs_none
def test_a_program_that_would_end_for_another_reason_ends(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="mine"):
        run("ok = cuda.is_available()\nif not ok: raise ValueError('mine')", tmp_path)


@needs_none
@pytest.mark.filterwarnings("ignore:torch.set_default_tensor_type")
def test_objects_of_a_device_that_does_not_exist_do_nothing(tmp_path: Path) -> None:
    names = run(
        "begin = cuda.Event(enable_timing=True)\n"
        "cuda.Stream().wait_stream(cuda.current_stream())\n"
        "with cuda.device(0):\n    cuda.nvtx.range_push('a')\n"
        "cuda.reset_peak_memory_stats()\n"
        "took, name = begin.elapsed_time(begin), cuda.get_device_properties(0).name\n"
        "kinds = cuda.FloatTensor(3).type('torch.cuda.DoubleTensor').dtype\n"
        "torch.set_default_tensor_type('torch.cuda.FloatTensor')\n"
        "has_length = hasattr(begin, '__len__')",
        tmp_path,
    )
    assert (names["took"], names["name"], names["kinds"]) == (0.0, "no CUDA device", torch.float64)
    assert not names["has_length"]


def test_a_notebook_saved_as_a_program_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "argv", [*sys.argv])
    monkeypatch.setattr(sys, "modules", {**sys.modules})
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    path = tmp_path / "notebook.py"
    commands = (
        "run_line_magic('matplotlib', 'inline')", "system('pip')", "run_cell_magic('time', '', 'made = 5')",
        "run_cell_magic('writefile', 'x.py', 'made = 6')",
    )  # fmt: skip
    path.write_text("".join(f"get_ipython().{one}\n" for one in commands))
    child.run_program(path, [])
    assert sys.modules["__main__"].made == 5
    path.write_text("inside = 'get_ipython' in globals()")  # asks where it runs, and must not find a notebook
    child.run_program(path, [])
    assert not sys.modules["__main__"].inside


def test_a_process_that_trains_runs_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its steps would be in another process, where nothing is seen."""
    monkeypatch.setattr(child, "_BEGUN", [])
    text = """
        import multiprocessing
        seen = []
        class loss:
            backward = staticmethod(lambda: seen.append("a step"))
        def train(times):
            for _ in range(times): loss.backward()
        def begin(run, times): run(times)
        def load(): pass
        processes = [multiprocessing.Process(target=begin, args=(train, 2)) for _ in range(2)]
        for process in processes: process.start()
        for process in processes: process.join()
    """
    with child.training_here():
        names = run(textwrap.dedent(text), tmp_path)
    assert names["seen"] == ["a step"] * 4
    assert "(multiprocessing): to estimate many devices" in child.horovod_notes()[0]
    assert [trains(names[one]) for one in ("train", "load")] == [True, False]


def test_the_terminal_has_a_usual_size() -> None:
    with child._terminal():
        assert os.popen("stty size", "r").read().split() == ["24", "80"]
        with os.popen("echo 5") as other:
            assert other.read() == "5\n"
        assert os.get_terminal_size().columns == 80


def needs_arguments() -> None:
    parser = argparse.ArgumentParser("p")
    parser.add_argument("--data", required=True)
    parser.parse_args([])


def end_of_input() -> None:
    raise EOFError("EOF when reading a line")


@pytest.mark.parametrize(
    ("program", "text"),
    [
        (needs_arguments, "training step: the following arguments are required: --data. Give its own arguments"),
        (lambda: sys.exit(3), "ends by sys.exit(3) before"),
        (end_of_input, "let it take the answer from an argument, after '--'"),
        (lambda: os.environ["RUN_OF_MINE"], "pass it on: RUN_OF_MINE=… FOMKIT_PASS_ENV=RUN_OF_MINE fomkit …"),
        (lambda: {}["RUN_OF_MINE"], "before its first training step."),
    ],
)
def test_a_program_that_lacks_something_is_told_what_to_do(program: Callable[[], object], text: str) -> None:
    try:
        program()
    except BaseException as raised:
        error = raised
    watch, framework = SimpleNamespace(rounds=0, limits="", seen=""), SimpleNamespace(trains="fit")
    found = child._no_step_error(error, watch, framework, {"where": "p.py", "path": "/p.py"})  # type: ignore[arg-type]
    assert isinstance(found, FomkitError)
    assert text in found.what
    assert found.what.endswith(text) or not text.endswith("step.")


KERAS = ("keras", "keras.callbacks")


def test_horovod_is_a_job_of_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, child.AloneFinder()])
    monkeypatch.setattr(
        sys, "modules", {**sys.modules, "keras": SimpleNamespace(callbacks=SimpleNamespace(Callback=list))}
    )
    assert child.horovod_notes() == []
    hvd = importlib.import_module("horovod.torch")
    hvd.init()
    made = SimpleNamespace(param_groups=[{"lr": hvd.size() * 0.1}])
    optimizer = hvd.DistributedOptimizer(
        made, named_parameters=[], op=hvd.Average, compression=hvd.Compression.none
    )
    with optimizer.skip_synchronize():
        assert (optimizer.synchronize(), hvd.rank(), hvd.nccl_built()) == (None, 0, False)
    assert optimizer is made
    assert hvd.allreduce(value := torch.ones(2), name="loss") is value
    with pytest.raises(AttributeError, match="Horovod's elastic_thing has no stand-in"):
        hvd.elastic_thing()
    callbacks = importlib.import_module("horovod.tensorflow.keras").callbacks
    assert isinstance(callbacks.MetricAverageCallback(0, verbose=1), list)
    (note,) = child.horovod_notes()
    assert "share copies of the model (Horovod)" in note

"""A Keras model really timed: the plain step, and its ops joined to the rows of the table by their nodes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from xplane_files import host

from fomkit.bench import measured_run, model_steps
from fomkit.bench.measured_run import measure_profile
from fomkit.bench.model_steps import Timed
from fomkit.core.errors import FomkitError
from fomkit.core.measurement import StepTimes
from fomkit.core.model import ModelProfile
from fomkit.frontends.layers import Nodes
from fomkit.frontends.profile import profile_graph
from fomkit.profiles.models import save_model
from fomkit.readers.profilers import xplane as plane_imports
from fomkit.readers.profilers.xplane import JoinedNodes
from fomkit.readers.registry import import_model
from fomkit.verbs.profiles import model

FILE = """
import keras
words = keras.Input((6,), dtype="int32")
hidden = keras.layers.LSTM(16)(keras.layers.Embedding(30, 8)(words))
model = keras.Model(words, keras.layers.Dense(5, activation="relu")(hidden))
model.compile(optimizer=keras.optimizers.Adam(), loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
batch_size = 4
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("tensorflow", reason="Keras's tests need TensorFlow: pip install '.[tensorflow]'")
    path = tmp_path_factory.mktemp("measured") / "tagger.py"
    path.write_text(FILE)
    return path


@pytest.fixture(scope="module")
def graph(file: Path) -> tuple[ModelProfile, Nodes]:
    return profile_graph(file)


@pytest.fixture(scope="module")
def measured(file: Path, graph: tuple[ModelProfile, Nodes]) -> ModelProfile:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model_steps, "MOST_SHARED", float("inf"))  # whatever runs beside the tests
        return measure_profile(graph[0], file, ops=True, threads=1)


def test_times_stand_in_the_rows(measured: ModelProfile, tmp_path: Path) -> None:
    run = measured.measured
    assert run is not None
    assert run.ops is not None
    assert (run.device, run.threads, run.clock, dict(run.sizes)) == ("cpu", 1, "process", {"batch": 4})
    assert run.ops.joined_s / run.ops.total_s > 0.9
    times = measured.ops["traced_time_s"] * measured.ops["count"].astype("float64")
    assert times.sum() == pytest.approx(run.ops.joined_s, rel=1e-3)
    heavy = measured.ops["kind"].isin(["gemm", "rnn", "optimizer", "embedding"])
    assert measured.ops["traced_time_s"][heavy].notna().all()
    assert any("made up" in note for note in run.notes)
    assert any("on the CPU only" in note for note in run.notes)
    assert not any("gradients" in note or "halves" in note for note in run.notes)
    save_model(measured, tmp_path / "tagger.yaml")
    again = model(tmp_path / "tagger.yaml")
    assert again.measured is not None
    assert again.measured.step == run.step


def test_another_table_is_refused(measured: ModelProfile, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert measured.measured is not None
    timed = Timed(
        measured.measured, "tf.profiler", StepTimes(1), joined=JoinedNodes([1.0]), rows=(("MatMul", "", ""),)
    )
    monkeypatch.setattr(measured_run, "time_file", lambda *_, **__: timed)
    with pytest.raises(FomkitError, match="another step ran than was profiled"):
        measure_profile(replace(measured, measured=None), file)


def test_the_graph_names_its_nodes(graph: tuple[ModelProfile, Nodes]) -> None:
    profile, nodes = graph
    assert {row for node in nodes.values() for row in node.rows} == set(range(len(profile.ops)))
    rnn = profile.ops.index[profile.ops["kind"] == "rnn"].tolist()
    looped = [node for name, node in nodes.items() if "/while/body/" in name and node.op == "MatMul"]
    assert looped
    assert all(node.count == 6 and set(node.rows) <= set(rnn) for node in looped)
    fused = [name for name, node in nodes.items() if node.product]
    assert [name.rpartition("/")[2] for name in fused][-2:] == ["BiasAdd", "Relu"]


def test_a_trace_is_joined_to_its_model_and_no_other(
    file: Path, graph: tuple[ModelProfile, Nodes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plane_imports, "profile_graph", lambda *_, **__: graph)
    path = tmp_path / "vm.xplane.pb"
    path.write_bytes(host([("net/Conv2D", "Conv2D", [(0, 5000)])]))
    with pytest.raises(FomkitError, match=r"is not of the model in .*tagger.py: 0% of its time"):
        import_model(path, file_format="xplane", graph=file)
    path.write_bytes(
        host([(name, node.op, [(at, 7) for at in range(node.count)]) for name, node in graph[1].items()])
    )
    found, said = import_model(path, file_format="xplane", graph=file)
    assert found.ops["traced_time_s"].notna().all()
    assert found.traced_with["device"] == "cpu"
    assert not any(line.startswith("partial") for line in said)


def test_what_graph_is_not_for_is_refused(file: Path, tmp_path: Path) -> None:
    path = tmp_path / "vm.xplane.pb"
    path.write_bytes(host([("net/Conv2D", "Conv2D", [(0, 5000)])]))
    torch_file = tmp_path / "torch_model.py"
    torch_file.write_text("import torch\nmodel = torch.nn.Linear(2, 2)\n")
    with pytest.raises(FomkitError, match="has no TensorFlow model"):
        import_model(path, file_format="xplane", graph=torch_file)
    with pytest.raises(FomkitError, match="is for traces of TensorFlow's profiler"):
        import_model(path, file_format="ops", graph=file)


def test_a_mistake_is_no_lack_of_memory_whatever_its_file_is_called(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow", reason="Keras's tests need TensorFlow: pip install '.[tensorflow]'")
    path = tmp_path / "bloom.py"
    path.write_text("import keras\nmodel = keras.Sequential([keras.layers.Dense(3)])\nbatch_size = 4\n")
    with pytest.raises(FomkitError, match="'inputs' is missing") as told:
        model_steps.time_file(path, mode="infer", sizes={}, ops=False)
    assert "memory" not in str(told.value)

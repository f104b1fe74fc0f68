"""Real traces, recorded here on the CPU: the profiler's training step equals that of `fomkit profile`."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from traced_work import numbers

from fomkit.core.errors import FomkitError
from fomkit.core.model import ModelProfile, Workload
from fomkit.frontends.profile import profile_workload
from fomkit.ops.pricing import add_costs
from fomkit.readers.profilers.kineto import TraceRows, read_trace, trace_table
from fomkit.readers.profilers.kineto_nesting import schemas

HEAVY = ("gemm", "conv", "rnn", "attention", "optimizer")
LIGHT = ("pointwise", "reduction", "norm", "softmax", "pool", "embedding")
SIZES = {
    "gemm": ("b", "m", "n", "k", "trans_a", "trans_b"),
    "optimizer": ("rule", "impl", "numel", "tensors"),
    "rnn": ("cell", "batch", "steps", "input_size", "hidden_size", "layers", "directions"),
    "attention": ("batch", "heads", "kv_heads", "q_len", "kv_len", "head_dim", "causal"),
}


def network(torch: Any, name: str) -> tuple[Any, Any, Any]:
    """Return a model, its input and its optimizer's maker; the first layer reads data that need no gradient."""
    nn, optim = torch.nn, torch.optim
    if name == "mlp":
        model = nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 16), nn.Sigmoid(), nn.Linear(16, 5))
        return model, torch.randn(8, 20), lambda ones: optim.SGD(ones, lr=0.1, momentum=0.9, foreach=False)
    if name == "cnn":
        model = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, stride=2, groups=2, bias=False), nn.GELU(),
            nn.ConvTranspose2d(16, 4, 2, stride=2), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 5),
        )  # fmt: skip
        return model, torch.randn(4, 3, 14, 14), lambda ones: optim.Adam(ones, foreach=True)
    if name == "attention":
        layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
        model = nn.Sequential(nn.Embedding(50, 16), layer, nn.Flatten(), nn.Linear(96, 5))
        return model, torch.randint(0, 50, (4, 6)), lambda ones: optim.AdamW(ones, foreach=False)

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.inner, self.head = (
                nn.Embedding(50, 12),
                nn.LSTM(12, 8, 2, batch_first=True),
                nn.Linear(8, 5),
            )

        def forward(self, words: Any) -> Any:
            return self.head(self.inner(self.embed(words))[0][:, -1])

    return Recurrent(), torch.randint(0, 50, (4, 6)), lambda ones: optim.SGD(ones, lr=0.1, foreach=False)


def record(torch: Any, path: Path, step: Callable[[], None], *, shapes: bool = True, marked: bool = True) -> Path:
    """Write the trace of two steps."""
    step()
    profiler = torch.profiler
    plan = profiler.schedule(wait=0, warmup=1, active=2, repeat=1) if marked else None
    with profiler.profile(
        activities=[profiler.ProfilerActivity.CPU],
        record_shapes=shapes,
        schedule=plan,
        on_trace_ready=lambda one: one.export_chrome_trace(str(path)),
    ) as running:
        for _ in range(3 if marked else 2):
            step()
            running.step() if marked else None
    return path


def training(torch: Any, name: str) -> tuple[Workload, Callable[[], None]]:
    torch.manual_seed(1)
    model, inputs, make = network(torch, name)
    target = torch.randint(0, 5, (len(inputs),))
    cross_entropy = torch.nn.functional.cross_entropy
    optimizer = make(model.parameters())

    def step() -> None:
        optimizer.zero_grad()
        cross_entropy(model(inputs), target).backward()
        optimizer.step()

    loss = lambda output, _inputs: cross_entropy(output, target)  # noqa: E731
    return Workload(model=model, inputs=inputs, loss=loss, optimizer=make), step


def both(torch: Any, name: str, folder: Path) -> tuple[ModelProfile, TraceRows]:
    workload, step = training(torch, name)
    return profile_workload(workload), read_trace(record(torch, folder / "trace.json", step))


NO_SIZES = {"op", "pass_name", "module", "count", "code_line", "traced_time_s", "traced_occupancy"}


def counted(table: pd.DataFrame, kinds: tuple[str, ...]) -> dict[tuple[Any, ...], float]:
    """Count executions by kind, pass and all sizes; a trace does not state whose gradient a product is."""
    found: dict[tuple[Any, ...], float] = {}
    for row in table[table["kind"].isin(kinds)].to_dict("records"):
        pass_name = row["pass_name"].partition("_")[0] if row["kind"] == "gemm" else row["pass_name"]
        names = [name for name in table.columns if name not in NO_SIZES]
        key = (pass_name, *((name, row[name]) for name in names if row[name] == row[name] and row[name] != ""))
        found[key] = found.get(key, 0.0) + row["count"]
    return found


@pytest.mark.parametrize("name", ["mlp", "cnn", "attention", "recurrent"])
def test_a_traced_step_is_the_profiled_one(torch: Any, tmp_path: Path, name: str) -> None:
    profile, trace = both(torch, name, tmp_path)
    table = trace_table(trace.rows)
    assert not trace.unsupported
    wanted = numbers(profile)
    assert counted(table, HEAVY) == counted(wanted, HEAVY)
    flop = [(costed["flop"] * costed["count"])[costed["kind"].isin(HEAVY)].sum()
            for costed in (add_costs(table), add_costs(wanted))]  # fmt: skip
    assert flop[0] == flop[1] > 0


@pytest.mark.parametrize("name", ["mlp", "cnn", "attention"])
def test_traffic_is_the_profiled_one_too(torch: Any, tmp_path: Path, name: str) -> None:
    profile, trace = both(torch, name, tmp_path)
    table = trace_table(trace.rows)
    got, wanted = counted(table, LIGHT), counted(numbers(profile), LIGHT)
    # A batch norm counts its calls; the profiler shows the number added as a tensor.
    differing = [
        key for key in {*got, *wanted} if got.get(key) != wanted.get(key) and ("dtype", "int64") not in key
    ]
    assert not differing


def test_times_and_notes(torch: Any, tmp_path: Path) -> None:
    _, trace = both(torch, "mlp", tmp_path)
    table = trace_table(trace.rows)
    assert (table["traced_time_s"] > 0).all()
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    steps = [event["dur"] / 1e6 for event in events if str(event["name"]).startswith("ProfilerStep#")]
    assert (table["traced_time_s"] * table["count"]).sum() < sum(steps) / len(steps)
    assert trace.notes[0] == "2 of 2 steps are alike and were used, as the profiler marks them"
    assert "calls on the host" in trace.notes[1]


def test_without_marks_the_optimizer_tells_the_steps(torch: Any, tmp_path: Path) -> None:
    workload, step = training(torch, "mlp")
    trace = read_trace(record(torch, tmp_path / "trace.json", step, marked=False))
    assert trace.notes[0] == "2 of 2 steps are alike and were used, each ending with the optimizer's step"
    assert counted(trace_table(trace.rows), HEAVY) == counted(numbers(profile_workload(workload)), HEAVY)


def test_inference_keeps_products_in_one_piece(torch: Any, tmp_path: Path) -> None:
    layer, values = torch.nn.Linear(16, 4), torch.randn(8, 16)

    def step() -> None:
        with torch.inference_mode():
            layer(values)

    trace = read_trace(record(torch, tmp_path / "trace.json", step))
    (row,) = trace.rows
    assert row.op.kind == "gemm"
    assert [row.op.dimensions[name] for name in ("m", "n", "k")] == [8, 4, 16]


def test_without_shapes_the_trace_says_how_to_record_them(torch: Any, tmp_path: Path) -> None:
    _, step = training(torch, "mlp")
    path = record(torch, tmp_path / "trace.json", step, shapes=False)
    with pytest.raises(FomkitError, match=r"has no shapes .*record_shapes=True"):
        read_trace(path)


def test_clipping_is_named_as_unsupported_and_marked(torch: Any, tmp_path: Path) -> None:
    model = torch.nn.Linear(4, 3)

    def step() -> None:
        model.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)

    trace = read_trace(record(torch, tmp_path / "trace.json", step))
    assert any(one.startswith("aten::_foreach_norm") for one in trace.unsupported)
    assert any(note.startswith("partial: ") for note in trace.notes)


def test_the_table_of_schemas_is_that_of_pytorch(torch: Any, root: Path) -> None:
    """The table is committed so that traces are read without PyTorch; with another version, common ops agree."""
    spec = importlib.util.spec_from_file_location("aten_schemas", root / "benchmarks" / "aten_schemas.py")
    assert spec is not None
    assert spec.loader is not None
    writer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(writer)

    kept, now = writer.TABLE.read_text(encoding="utf-8").splitlines(), writer.schema_rows()
    if torch.__version__.startswith("2.13."):
        assert kept == now, "run 'python benchmarks/aten_schemas.py'"
    priced = {row.split(",")[0] for row in now if ",priced," in row}
    missing = priced - {name for name, state in schemas()[0].items() if state == "priced"}
    assert len(missing) < 0.05 * len(priced)


def test_reading_needs_no_pytorch(torch: Any, tmp_path: Path) -> None:
    import subprocess
    import sys

    _, step = training(torch, "mlp")
    path = record(torch, tmp_path / "trace.json", step)
    code = "import sys; from pathlib import Path; from fomkit.readers.profilers.kineto import read_trace; " \
           "read_trace(Path(sys.argv[1])); print('torch' in sys.modules)"  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"

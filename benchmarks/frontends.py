"""Compare the frontends on the same models: amount of work, share of it that is priced, and cost of profiling.

``python benchmarks/frontends.py [--model mlp] [--frontend kineto] [--public]`` writes four models in PyTorch and
in Keras, records traces of them, exports them, and runs ``fomkit profile`` or ``fomkit import`` on each as a
user would. The table has the flop of forward and backward pass relative to that of PyTorch's model.py, the share
of ops that are priced or have no work, the time that recording added to the plain step, and processor time [s] and
peak memory [MB] of the command with its children. It needs the extras [torch,tensorflow,onnx]. The MLP is P1B3;
``--public`` adds ResNet-50 and GPT-2 from ``model_profiles/src``.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

os.environ |= {"OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}

import pandas as pd

import fomkit
from fomkit.ops.pricing import add_costs
from fomkit.ops.resize import resize_ops
from fomkit.plan.coverage import work_per_pass

SOURCES = Path(__file__).resolve().parents[1] / "model_profiles" / "src"
COMMAND = [sys.executable, "-c", "from fomkit.cli.main import main; main()"]


class Twin(NamedTuple):
    """One model in PyTorch and in Keras, its batch and the shape of a sample."""

    batch: int
    sample: str
    words: bool
    in_torch: str
    in_keras: str


MODELS = {
    "mlp": Twin(100, "(29532,)", False, """
layers, width = [], 29532
for wide in (1000, 500, 100, 50):
    layers += [torch.nn.Linear(width, wide), torch.nn.ReLU(), torch.nn.Dropout(0.1)]
    width = wide
model = torch.nn.Sequential(*layers, torch.nn.Linear(50, 1))
""", """
layers = [keras.Input((29532,))]
for wide in (1000, 500, 100, 50):
    layers += [keras.layers.Dense(wide, activation="relu"), keras.layers.Dropout(0.1)]
model = keras.Sequential([*layers, keras.layers.Dense(1)])
"""),
    "cnn": Twin(16, "(3, 32, 32)", False, """
def block(before, after):
    return [torch.nn.Conv2d(before, after, 3, padding=1, bias=False), torch.nn.BatchNorm2d(after), torch.nn.ReLU(),
            torch.nn.MaxPool2d(2)]
model = torch.nn.Sequential(*block(3, 32), *block(32, 64), *block(64, 128), torch.nn.AdaptiveAvgPool2d(1),
                            torch.nn.Flatten(), torch.nn.Linear(128, 10))
""", """
layers = [keras.Input((32, 32, 3))]
for after in (32, 64, 128):
    layers += [keras.layers.Conv2D(after, 3, padding="same", use_bias=False), keras.layers.BatchNormalization(),
               keras.layers.ReLU(), keras.layers.MaxPooling2D(2)]
model = keras.Sequential([*layers, keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(10)])
"""),
    "lstm": Twin(16, "(20,)", True, """
class Tagger(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.cell = torch.nn.Embedding(1000, 64), torch.nn.LSTM(64, 96, batch_first=True)
        self.dense = torch.nn.Linear(96, 10)
    def forward(self, words):
        return self.dense(self.cell(self.words(words))[0])
model = Tagger()
""", """
model = keras.Sequential([keras.Input((20,), dtype="int32"), keras.layers.Embedding(1000, 64),
                          keras.layers.LSTM(96, return_sequences=True), keras.layers.Dense(10)])
"""),
    "attention": Twin(16, "(32, 64)", False, """
class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.into, self.query, self.key, self.value, self.joined = (torch.nn.Linear(64, 64) for _ in range(5))
        self.wide, self.back = torch.nn.Linear(64, 256), torch.nn.Linear(256, 64)
    def forward(self, tokens):
        hidden = self.into(tokens)
        parts = [one(hidden).unflatten(-1, (4, 16)).transpose(1, 2) for one in (self.query, self.key, self.value)]
        heads = torch.nn.functional.scaled_dot_product_attention(*parts)
        hidden = hidden + self.joined(heads.transpose(1, 2).flatten(2))
        return hidden + self.back(torch.relu(self.wide(hidden)))
model = Block()
""", """
tokens = keras.Input((32, 64))
hidden = keras.layers.Dense(64)(tokens)
hidden = hidden + keras.layers.MultiHeadAttention(4, 16)(hidden, hidden)
wide = keras.layers.Dense(256, activation="relu")(hidden)
model = keras.Model(tokens, hidden + keras.layers.Dense(64)(wide))
"""),
}  # fmt: skip
TORCH_MODEL = """
import torch
{body}
batch_size = {batch}
def inputs(batch):
    return torch.zeros(batch, *{sample}, dtype=torch.{dtype})
def loss_fn(output, _):
    return output.square().mean()
def optimizer(parameters):
    return torch.optim.SGD(parameters, lr=0.01)
"""
KERAS_MODEL = """
import keras
{body}
batch_size = {batch}
model.compile(optimizer=keras.optimizers.SGD(0.01), loss="mse")
"""
TORCH_PROGRAM = """
import torch
from model_torch import batch_size, inputs, loss_fn, model
from torch.utils.data import DataLoader
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(3):
    for batch in DataLoader(inputs(4 * batch_size), batch_size=batch_size, shuffle=True):
        optimizer.zero_grad()
        loss = loss_fn(model(batch), batch)
        loss.backward()
        optimizer.step()
        print(loss.item())
"""
KERAS_PROGRAM = """
import numpy as np
import keras
from model_keras import batch_size, model
samples = 4 * batch_size
given = np.zeros((samples, *model.input_shape[1:]), "float32")
wanted = np.zeros((samples, *model.output_shape[1:]), "float32")
model.fit(given, wanted, batch_size=batch_size, epochs=3, verbose=0)
"""
TIMED = """
import statistics, time
def timed(step):
    spent = []
    for _ in range(7):
        start = time.process_time()
        step()
        spent.append(time.process_time() - start)
    return statistics.median(spent)
"""
RECORDED_TORCH = """
from torch.profiler import ProfilerActivity, profile
from model_torch import batch_size, inputs, loss_fn, model, optimizer
data, sgd = inputs(batch_size), optimizer(model.parameters())
def step():
    sgd.zero_grad()
    loss_fn(model(data), data).backward()
    sgd.step()
timed(step)
plain = timed(step)
with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorder:
    def marked():
        step()
        recorder.step()
    told = timed(marked)
recorder.export_chrome_trace("trace.json")
print("overhead", told / plain - 1)
"""
RECORDED_KERAS = """
import tensorflow as tf
import numpy as np
from model_keras import batch_size, model
given = np.zeros((batch_size, *model.input_shape[1:]), "float32")
wanted = np.zeros((batch_size, *model.output_shape[1:]), "float32")
step = lambda: model.train_on_batch(given, wanted)
timed(step)
plain = timed(step)
tf.profiler.experimental.start("recorded", options=tf.profiler.experimental.ProfilerOptions(host_tracer_level=2))
told = timed(step)
tf.profiler.experimental.stop()
print("overhead", told / plain - 1)
"""
EXPORTED = """
import torch
from model_torch import inputs, model
torch.onnx.export(
    model, (inputs(2),), "model.onnx", dynamo=False, input_names=["x"], dynamic_axes={"x": {0: "batch"}},
    training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False,
)
"""


class Frontend(NamedTuple):
    """A way to import a model: a file to run before, and the command."""

    before: str
    command: str
    backend: str = "tensorflow"


FRONTENDS = {
    "model.py, PyTorch": Frontend("", "profile model_torch.py"),
    "model.py, Keras": Frontend("", "profile model_keras.py"),
    "model.py, Keras on PyTorch": Frontend("", "profile model_keras.py", "torch"),
    "--script, PyTorch": Frontend("", "profile --script train_torch.py"),
    "--script, Keras": Frontend("", "profile --script train_keras.py"),
    "trace of PyTorch (kineto)": Frontend("record_torch.py", "import trace.json --set batch={batch}"),
    "trace of TensorFlow (xplane)": Frontend(
        "record_keras.py", "import {xplane} --graph model_keras.py --set batch={batch}"
    ),
    "ONNX": Frontend("export.py", "profile model.onnx --batch {batch}"),
    "text of tfprof": Frontend("", "import printed.txt --set batch={batch}"),
}


class Spent(NamedTuple):
    """Output, exit code, processor time and peak memory of a command with its children."""

    output: str
    code: int
    processor_s: float
    memory_byte: float


def run(command: list[str], folder: Path, backend: str) -> Spent:
    """Run a command and wait by ``wait4``, which returns the use of the command and its children only."""
    log = folder / "said.txt"
    with log.open("w") as output:
        settings = {**os.environ, "KERAS_BACKEND": backend}
        child = subprocess.Popen(command, cwd=folder, stdout=output, stderr=subprocess.STDOUT, env=settings)
        _, status, use = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    return Spent(log.read_text(), child.returncode, use.ru_utime + use.ru_stime, use.ru_maxrss * 1024)


def printed_by_tfprof() -> str:
    """Return the products of the lecture's P1B3 in tfprof's format."""
    rows = fomkit.model("p1b3-lecture").ops.query("kind == 'gemm'")
    lines = ["node name | requested bytes | total execution time | op occurrence (run|defined)"]
    lines.append(
        f"MatMul    121.67MB (100.00%, 33.02%),    115.52ms (100.00%, 40.21%),   {rows['count'].sum():g}|15"
    )
    runs: Counter[tuple[str, str]] = Counter()  # tfprof sums over equal operands, whatever their role
    for _, row in rows.iterrows():
        m, n, k = (100 if row[name] == "batch" else int(float(row[name])) for name in "mnk")
        operands = (f"{k}x{m}" if row["trans_a"] else f"{m}x{k}"), (f"{n}x{k}" if row["trans_b"] else f"{k}x{n}")
        runs[operands] += int(row["count"])
    for (left, right), count in runs.items():
        lines.append(f"input_type: 0:{left},\t1:{right},\t(run*{count}|defined*1)\texec_time: 100us")
    return "\n".join(lines) + "\n"


def write_files(folder: Path, twin: Twin) -> None:
    """Write the model's files and programs."""
    names = {"batch": twin.batch, "sample": twin.sample, "dtype": "long" if twin.words else "float32"}
    files = {
        "model_torch.py": TORCH_MODEL.format(body=twin.in_torch, **names),
        "model_keras.py": KERAS_MODEL.format(body=twin.in_keras, **names),
        "train_torch.py": TORCH_PROGRAM, "train_keras.py": KERAS_PROGRAM, "export.py": EXPORTED,
        "record_torch.py": TIMED + RECORDED_TORCH, "record_keras.py": TIMED + RECORDED_KERAS,
        "printed.txt": printed_by_tfprof(),
    }  # fmt: skip
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")


def flop_of(path: Path) -> float:
    """Return the work of the forward and backward pass [flop]."""
    profile = fomkit.model(str(path))
    rows = add_costs(resize_ops(profile.ops, profile.sizes, profile.name))
    work = work_per_pass(rows[rows["kind"].isin(["gemm", "conv", "rnn", "attention"])])
    return sum(flop for name, flop in work.items() if name != "update")


def coverage_of(output: str) -> str:
    """Return the share of ops that are priced or have no work, from the command's output."""
    ops = re.search(r"([\d,]+) ops in the step: .* ([\d,]+) unsupported", output)
    if ops:
        every, missing = (int(one.replace(",", "")) for one in ops.groups())
        return f"{1 - missing / every:.1%}"
    missing = len(re.findall(r"unsupported: ", output))
    return f"{missing} unsupported" if missing else "partial" if "partial:" in output else "100 %"


def measure(model: str, batch: int, name: str, folder: Path) -> dict[str, str | float]:
    """Import a model by a frontend, and return its row of the table."""
    frontend, overhead, found = FRONTENDS[name], "", {"model": model, "frontend": name}
    if frontend.before:
        made = run([sys.executable, frontend.before], folder, frontend.backend)
        if made.code:
            return {**found, "coverage": f"not recorded: {made.output.strip()[-100:]}"}
        parsed = re.search(r"overhead (\S+)", made.output)
        overhead = f"{float(parsed[1]):+.0%}" if parsed else ""
    xplane = next(map(str, folder.rglob("*.xplane.pb")), "")
    command = frontend.command.format(batch=batch, xplane=xplane).split()
    spent = run([*COMMAND, *command, "-o", "out.yaml", "--force"], folder, frontend.backend)
    if spent.code:
        return {**found, "coverage": f"not read: {spent.output.strip()[-160:]}"}
    figures = {"processor [s]": f"{spent.processor_s:.1f}", "memory [MB]": f"{spent.memory_byte / 1e6:,.0f}"}
    return {**found, "flop": flop_of(folder / "out.yaml"), "coverage": coverage_of(spent.output),
            "recording": overhead, **figures}  # fmt: skip


def table(rows: list[dict[str, str | float]]) -> str:
    """Return the rows as text, with each frontend's work relative to that of the model's first frontend."""
    found = pd.DataFrame(rows)
    first = found.groupby("model")["flop"].transform("first")
    shown = (found["flop"] / first).map(lambda ratio: "" if pd.isna(ratio) else f"{ratio:.4g}")
    found.insert(2, "flop ratio", shown)
    found["flop"] = found["flop"].map(lambda flop: "" if pd.isna(flop) else f"{flop:.6g}")
    return found.fillna("").to_string(index=False)


def main() -> None:
    """Print the table."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--model", choices=MODELS, action="append")
    arguments.add_argument("--frontend", default="", help="frontends whose name has this")
    arguments.add_argument("--public", action="store_true", help="ResNet-50 and GPT-2 too, from their model.py")
    parsed = arguments.parse_args()
    rows, start = [], time.perf_counter()
    for model in parsed.model or MODELS:
        with TemporaryDirectory() as name:
            folder, twin = Path(name), MODELS[model]
            write_files(folder, twin)
            for frontend in FRONTENDS:
                is_wanted = parsed.frontend in frontend or frontend == next(iter(FRONTENDS))
                if is_wanted and (frontend != "text of tfprof" or model == "mlp"):
                    rows.append(measure(model, twin.batch, frontend, folder))
                    print(rows[-1], file=sys.stderr, flush=True)
    for model in ("resnet50", "gpt2") if parsed.public else ():
        with TemporaryDirectory() as name:
            (Path(name) / "model_torch.py").write_bytes((SOURCES / f"{model}.py").read_bytes())
            rows.append(measure(model, 0, next(iter(FRONTENDS)), Path(name)))
    print(table(rows))
    print(
        f"in {time.perf_counter() - start:.0f} s; flop of products, convolutions, recurrent layers and attention"
    )


if __name__ == "__main__":
    main()

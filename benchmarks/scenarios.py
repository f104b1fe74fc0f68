"""Measure scenarios per second of processor time on one core, relative to a peer or a bound in the same run.

``python benchmarks/scenarios.py [--model vgg16] [--target v100] [--scenarios 12000] [--no-fit]`` prints one table:
fits, a warm estimate, and, for each of `AIMS` or the requested model, whole-model scenarios with every shape
changing (batch, peak, bandwidth and launch cost vary) and with shapes reused (all but the batch). One thread. The
peers are a loop of `estimate` over changed machines, and numpy's exponential of as many numbers as the Gaussian
processes compute: 90 for each op and scenario.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import pandas as pd

import fomkit
from fomkit.core.machine import Machine
from fomkit.core.model import ModelProfile
from fomkit.plan.estimate import estimate
from fomkit.plan.options import Options, change_machine
from fomkit.profiles.evidence import fit

AIMS = {"vgg16": (15_000, 60_000), "resnet50": (10_000, 10_000), "gpt2": (3_000, 10_000), "lstm": (3_000, 10_000)}
"""Models and their targets [scenarios/s]: with every shape changing, and with shapes reused. No LSTM ships, so one
is made here (`lstm`), because layers of another kind must not be much slower."""

TIMED_ROWS = 90
"""Number of rows in a typical family of DeepBench."""

FIT_OF_MANY = """
import numpy as np, pandas as pd, resource, time
from fomkit.ops.pricing import add_costs
from fomkit.prediction.calibration import fit_timings
random = np.random.default_rng(0)
m, n, k = 2.0 ** random.integers(4, 13, (3, 36_000)) + random.integers(0, 16, (3, 36_000))
time_s = (5e-6 + 2 * m * n * k / 1e13) * np.exp(0.2 * random.standard_normal(36_000))
timings = add_costs(pd.DataFrame({"kind": "gemm", "dtype": "fp32", "engine": "vector", "time_s": time_s,
                                  "b": 1.0, "m": m, "n": n, "k": k}))
start = time.process_time()
fit_timings(timings)
print(time.process_time() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def processor_s(call: Callable[[], object], repeats: int = 1) -> float:
    """Return the least processor time of some calls [s]."""
    spent = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        spent.append(time.process_time() - start)
    return min(spent)


def row(what: str, figure: str, aim: str, reached: bool, peer: str) -> dict[str, str]:
    return {"what": what, "figure": figure, "aim": aim, "reached": "yes" if reached else "NO", "peer": peer}


def lstm() -> ModelProfile:
    """Make an LSTM: two layers of 1,024 cells over 128 steps, a head of 1,000 classes, and their update."""
    shared = {"dtype": "fp32", "engine": "vector", "count": 1.0, "module": "", "code_line": ""}
    layer = {"kind": "rnn", "cell": "lstm", "batch": "batch", "steps": 128.0, "input_size": 1024.0,
             "hidden_size": 1024.0, "layers": 2.0, "directions": 1.0}  # fmt: skip
    head = {"kind": "gemm", "op": "mm", "b": 1.0}
    loss = {"kind": "softmax", "op": "log_softmax", "numel": "1000*batch", "row": 1000.0}
    rows = [
        {**layer, "op": "lstm", "pass_name": "forward"},
        {**layer, "op": "lstm_backward", "pass_name": "backward"},
        {**head, "pass_name": "forward", "m": "batch", "n": 1000.0, "k": 1024.0, "trans_a": 0.0, "trans_b": 1.0},
        {**head, "pass_name": "backward_input", "m": "batch", "n": 1024.0, "k": 1000.0, "trans_a": 0.0,
         "trans_b": 0.0},
        {**head, "pass_name": "backward_weight", "m": 1000.0, "n": 1024.0, "k": "batch", "trans_a": 1.0,
         "trans_b": 0.0},
        {**loss, "pass_name": "forward", "read_byte": "4000*batch", "write_byte": "4000*batch"},
        {**loss, "pass_name": "backward", "read_byte": "8000*batch", "write_byte": "4000*batch"},
        {"kind": "optimizer", "op": "adam", "pass_name": "update", "rule": "adam", "impl": "foreach",
         "numel": 17_818_600.0, "tensors": 10.0},
    ]  # fmt: skip
    vgg = fomkit.model("vgg16")
    ops = pd.DataFrame([{**shared, **row} for row in rows])
    ops = ops.reindex(columns=[name for name in vgg.ops.columns if name in ops] +
                      [name for name in ops if name not in vgg.ops])  # fmt: skip
    return replace(vgg, name="lstm", title="an LSTM", ops=ops, parts=vgg.parts.iloc[:0], order=None, layers=None,
                   sizes={"batch": 16}, parameters_total=17_818_600, parameters_trainable=17_818_600)  # fmt: skip


def fits() -> list[dict[str, str]]:
    spent = processor_s(lambda: fit(fomkit.machine("v100")))
    command = [sys.executable, "-c", FIT_OF_MANY]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    many_s, held = float(output[0]), float(output[1])
    return [
        row("fit of v100, 1,182 timings", f"{spent:.1f} s", "5 s", spent <= 5, ""),
        row("fit of 36,000 products", f"{many_s:.1f} s", "60 s", many_s <= 60, ""),
        row("its memory, Python and all", f"{held / 1e6:.0f} MB", "1,000 MB", held <= 1e9, ""),
    ]


def warm(model: ModelProfile, machine: Machine) -> dict[str, str]:
    batches = iter(range(3, 1000))
    estimate(model, machine, Options(batch=2))
    spent = processor_s(lambda: estimate(model, machine, Options(batch=next(batches))), 15)
    copy = processor_s(model.ops.copy, 15)
    peer = f"copying its op table {copy * 1e3:.2f} ms: {spent / copy:.0f}×"
    return row(f"warm estimate, {len(model.ops)} ops", f"{spent * 1e3:.1f} ms", "3 ms", spent <= 3e-3, peer)


def variants(machine: Machine, count: int) -> pd.DataFrame:
    """Draw batches, peaks, bandwidths and launch costs; every batch is different."""
    random, device = np.random.default_rng(0), machine.device
    peak = device.peaks[0]
    facts = {f"flop_per_s/{peak.dtype}/{peak.engine}": peak.rate, "byte_per_s": device.byte_per_s,
             "launch_s": device.launch_s}  # fmt: skip
    varied = {name: fact.value * random.uniform(0.5, 2, count) for name, fact in facts.items() if fact is not None}
    return pd.DataFrame({"batch": np.arange(1.0, count + 1), **varied})


def rates(model: ModelProfile, machine: Machine, count: int) -> list[dict[str, str]]:
    table = variants(machine, count)
    fomkit.scenarios(model, machine, table[:2])
    names = [name for name in table.columns if name != "batch"]

    def loop() -> None:
        for line in table[:10].to_dict("records"):
            changed = change_machine(machine, {name: line[name] for name in names})
            estimate(model, changed, Options(batch=int(line["batch"])))

    one_s = processor_s(loop) / 10
    cells = np.random.default_rng(0).normal(size=(len(model.ops), TIMED_ROWS))
    bound_s = processor_s(lambda: np.exp(cells), 50)
    found = []
    aims = AIMS.get(model.name, (3_000, 10_000))
    pairs = zip(("every shape changing", "shapes reused"), (list(table), names), aims, strict=True)
    for what, columns, aim in pairs:
        spent = processor_s(lambda columns=columns: fomkit.scenarios(model, machine, table[columns])) / count
        peer = f"loop of estimate: {one_s / spent:.0f}× as fast; exp alone: {spent / bound_s:.1f}× its time"
        found.append(row(f"{model.name}, {what}", f"{1 / spent:,.0f} /s", f"{aim:,} /s", 1 / spent >= aim, peer))
    return found


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--model", default="", help="all of AIMS unless told")
    arguments.add_argument("--target", default="v100")
    arguments.add_argument("--scenarios", type=int, default=12_000)
    arguments.add_argument("--no-fit", action="store_true")
    chosen = arguments.parse_args()
    machine, rows = fomkit.machine(chosen.target), [] if chosen.no_fit else fits()
    for name in [chosen.model] if chosen.model else AIMS:
        model = lstm() if name == "lstm" else fomkit.model(name)
        rows += [warm(model, machine), *rates(model, machine, chosen.scenarios)]
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(pd.DataFrame(rows).to_string(index=False, justify="left"))
    print(f"on {machine.name}, {chosen.scenarios:,} scenarios, {held / 1e6:.0f} MB")


if __name__ == "__main__":
    main()

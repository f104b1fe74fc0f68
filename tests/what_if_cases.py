"""Machines and models with round figures, whose results can be computed by hand."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from fomkit.core.machine import Device, Fact, Machine, Peak
from fomkit.core.model import Data, ModelProfile, Run
from fomkit.ops.tables import column_names, empty_table

THIN = {"op": "mm", "kind": "gemm", "b": 1.0, "m": 1000.0, "n": 1000.0, "k": 1.0, "trans_a": 0.0, "trans_b": 0.0}
"""A product of a column and a row: 2 flop per element of 4 byte, bound by memory on every machine here."""
WIDE = {**THIN, "m": 4096.0, "n": 4096.0, "k": 4096.0}
"""A product that uses each byte a thousand times, bound by compute."""


def relu(numel: float, count: float = 1.0) -> dict[str, object]:
    """Return an op that reads and writes each element once."""
    return {"op": "relu", "kind": "pointwise", "inputs": 1.0, "numel": numel, "read_byte": 4 * numel,
            "write_byte": 4 * numel, "count": count}  # fmt: skip


def fact(value: float, low: float | None = None, high: float | None = None) -> Fact:
    return Fact(value, low or value, high or value, "published", "a made-up datasheet")


def made_machine(
    launch: Fact | None = None, peak: float = 10e12, byte_per_s: float = 1e12, **more: object
) -> Machine:
    """Make a machine of 10 TFLOP/s and 1 TB/s without timings; by default its launch cost is unknown."""
    device = Device((Peak("fp32", "vector", fact(peak)),), fact(16e9), fact(byte_per_s), launch)
    made = Machine("made", "a made-up machine", "lab", device, pd.DataFrame(columns=column_names("TIMINGS")))
    return replace(made, **more)  # type: ignore[arg-type]


def made_model(*ops: dict[str, object], **more: object) -> ModelProfile:
    """Make a model of these ops: 10 samples a step, 10,000 samples an epoch, 10 epochs a run, no validation."""
    shared = {"dtype": "fp32", "engine": "vector", "pass_name": "forward", "count": 1.0, "module": "net.0"}
    table = pd.DataFrame([{**shared, **one} for one in ops])
    columns = [name for name in column_names("OPS") if name in table]
    model = ModelProfile(
        "net", "a made-up network", table[columns], empty_table("OPS"), {"batch": 10}, {},
        data=Data(10_000, 0), run=Run(10),
    )  # fmt: skip
    return replace(model, **more)  # type: ignore[arg-type]

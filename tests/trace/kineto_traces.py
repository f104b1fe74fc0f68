"""Synthetic traces in the format of PyTorch's profiler, made by hand: no GPU was at hand to record one.

Categories, names of arguments and their spelling are those that libkineto writes for CUDA and ROCm.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

HALF, FLOAT = "c10::Half", "float"


def packed(shape: Sequence[int]) -> list[int]:
    steps, step = [], 1
    for size in reversed(shape):
        steps.append(step)
        step *= size
    return steps[::-1]


class Recording:
    """Writes events with a simulated clock [µs]; kernels run after their launch, in sequence."""

    def __init__(self, runtime: str = "cudaLaunchKernel", category: str = "cuda_runtime") -> None:
        self.events: list[dict[str, Any]] = []
        self.clock, self.device_clock = 1_000_000.0, 1_000_000.0
        self.runtime, self.category = runtime, category
        self.correlation, self.external, self.sequence = 0, 0, 0
        self.thread = 100

    @contextmanager
    def range(self, name: str, category: str = "cpu_op", **args: Any) -> Iterator[dict[str, Any]]:
        self.external += 1
        start = self.clock
        event = {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": self.thread, "ts": start}
        event["args"] = {"External id": self.external, **args}
        self.events.append(event)
        self.clock += 1
        yield event
        self.clock += 1
        event["dur"] = self.clock - start
        self.clock += 1

    def op(
        self,
        name: str,
        tensors: Sequence[Sequence[int]] = (),
        kernels: Sequence[tuple[str, float]] = (),
        *,
        dtype: str = FLOAT,
        values: Sequence[str] = (),
        strides: Sequence[Sequence[int]] | None = None,
        **args: Any,
    ) -> None:
        """Call an op that takes tensors, then plain values."""
        dims = [list(shape) for shape in tensors] + [[] for _ in values]
        shapes = {
            "Input Dims": dims,
            "Input Strides": [list(one) for one in strides or map(packed, tensors)] + [[] for _ in values],
            "Input type": [dtype] * len(tensors) + ["ScalarList" if "[" in one else "Scalar" for one in values],
            "Concrete Inputs": [""] * len(tensors) + list(values),
        }
        with self.range(name, **shapes, **args):
            for kernel, time in kernels:
                self.launch(kernel, time)

    def launch(self, kernel: str, time: float, category: str = "kernel", **args: Any) -> None:
        self.correlation += 1
        ids = {"correlation": self.correlation}
        host = {"ph": "X", "cat": self.category, "name": self.runtime, "pid": 1, "tid": self.thread}
        self.events.append({**host, "ts": self.clock, "dur": 1.0, "args": ids})
        self.device_clock = max(self.device_clock, self.clock) + 1
        device = {"ph": "X", "cat": category, "name": kernel, "pid": 0, "tid": 7, "ts": self.device_clock}
        occupancy = {"est. achieved occupancy %": 50, "grid": [8, 1, 1]} if category == "kernel" else {}
        self.events.append({**device, "dur": time, "args": {**ids, "device": 0, "stream": 7, **occupancy, **args}})
        self.device_clock += time
        self.clock += 2

    @contextmanager
    def step(self, number: int) -> Iterator[None]:
        with self.range(f"ProfilerStep#{number}", "user_annotation"):
            yield

    def backward(self, node: str, sequence: int) -> Any:
        name = f"autograd::engine::evaluate_function: {node}"
        return self.range(name, **{"Sequence number": sequence, "Fwd thread id": 1})

    def document(self, **head: Any) -> dict[str, Any]:
        device = {"id": 0, "name": "Synthetic GPU", "totalGlobalMem": 85_000_000_000, "numSms": 132}
        return {"schemaVersion": 1, "deviceProperties": [device], "record_shapes": 1, **head,
                "traceEvents": self.events}  # fmt: skip

    def text(self, **head: Any) -> str:
        return json.dumps(self.document(**head))


def linear_step(recording: Recording, number: int, *, products: str = "sgemm_128x64_tn") -> None:
    """Write a training step of a linear layer, 8 samples, 16 to 4 features, a copy in and an all-reduce."""
    with recording.step(number):
        with recording.range("aten::to"):
            copied = ("Memcpy HtoD (Pageable -> Device)", 5.0)
            with recording.range("aten::_local_scalar_dense"):
                recording.launch(*copied, category="gpu_memcpy", bytes=512)
        forward = {"Sequence number": 10 * number, "Fwd thread id": 0}
        with recording.range("aten::linear", **forward):
            recording.op("aten::addmm", [(4,), (8, 16), (16, 4)], [(products, 20.0), ("splitKreduce", 2.0)],
                         values=("1", "1"), strides=[(1,), (16, 1), (1, 16)], **forward)  # fmt: skip
        with recording.backward("AddmmBackward0", 10 * number):
            recording.op("aten::mm", [(4, 8), (8, 16)], [(products, 30.0)], strides=[(1, 4), (16, 1)])
        with recording.range("record_param_comms", **{
            "Collective name": "allreduce", "In msg nelems": 68, "Out msg nelems": 68, "Group size": 16,
            "dtype": "Float",
        }):  # fmt: skip
            recording.launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 40.0)
        with recording.range("Optimizer.step#SGD.step", "user_annotation"):
            recording.op("aten::add_", [(4, 16), (4, 16)], [("vectorized_elementwise_kernel", 3.0)],
                         values=("-0.1",))  # fmt: skip
            recording.op("aten::add_", [(4,), (4,)], [("vectorized_elementwise_kernel", 1.0)], values=("-0.1",))

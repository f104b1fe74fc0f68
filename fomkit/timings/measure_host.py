"""What the framework itself takes for each op of a training step, besides the op: autograd, modules, views."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from statistics import median

from fomkit.timings.measure_makers import make_case
from fomkit.timings.measure_times import Effort, time_run
from fomkit.timings.measure_watch import Watch

LAYERS, WIDTH, ROUNDS = 40, 8, 30
_SHAPE = {"b": "1", "m": str(WIDTH), "n": str(WIDTH), "k": str(WIDTH)}
_NUMEL = {"numel": str(WIDTH * WIDTH), "write_byte": str(4 * WIDTH * WIDTH)}
CHAIN: Sequence[Mapping[str, str]] = (
    {"kind": "gemm", **_SHAPE, "trans_a": "0", "trans_b": "1"},
    {"kind": "pointwise", "op": "aten::tanh", **_NUMEL, "read_byte": str(4 * WIDTH * WIDTH)},
    *(
        {"kind": "pointwise", "op": f"aten::{name}", **_NUMEL, "read_byte": str(8 * WIDTH * WIDTH), "inputs": "2"}
        for name in ("mul", "add", "mul", "mul", "add", "add")
    ),
    {"kind": "pointwise", "op": "aten::tanh_backward", **_NUMEL, "read_byte": str(8 * WIDTH * WIDTH)},
    {"kind": "gemm", **_SHAPE, "trans_a": "0", "trans_b": "0"},
    {"kind": "gemm", **_SHAPE, "trans_a": "1", "trans_b": "0"},
    {"kind": "reduction", "op": "aten::sum", "pass_name": "backward", **_NUMEL, "row": str(WIDTH)},
)
"""The ops that one layer of the chain runs: dense, tanh, product and sum, and their gradients."""


def _chain_s(device: str) -> float:
    """Time a training step of many tiny layers, without an update, by layer [s]."""
    import torch

    layers = [torch.nn.Linear(WIDTH, WIDTH, device=device) for _ in range(LAYERS)]
    data = torch.randn(WIDTH, WIDTH, device=device)

    def step() -> None:
        values = data
        for layer in layers:
            values = torch.tanh(layer(values)) * values + values
        values.sum().backward()  # type: ignore[no-untyped-call]

    # What the host does in the meantime is asked for, so on a GPU it is the host's clock that tells it.
    one_thread = device == "cpu" and torch.get_num_threads() == 1
    clock = time.process_time if one_thread else time.perf_counter
    times = []
    for _ in range(ROUNDS):
        if device == "cuda":
            torch.cuda.synchronize()
        begun = clock()
        step()
        times.append((clock() - begun) / LAYERS)
        for layer in layers:
            layer.zero_grad(set_to_none=True)
    return median(times)


def host_cost(device: str, watch: Watch) -> dict[str, float]:
    """Measure what the framework takes for one op of a step.

    Returns
    -------
    dict
        ``op_s``, the time [s] of one op in a chain of tiny ones, and ``host_s``, what of it is not the op itself;
        on a GPU all of it is the host's, which works beside the device.
    """
    op_s = _chain_s(device) / len(CHAIN)
    if device == "cuda":
        return {"op_s": op_s, "host_s": op_s}
    effort, alone_s = Effort(most=20), 0.0
    for cells in CHAIN:
        case = make_case({"dtype": "fp32", "engine": "vector", "pass_name": "forward", **cells}, device)
        alone_s += median(time_run(case.run, watch, effort).warm)
    return {"op_s": op_s, "host_s": max(op_s - alone_s / len(CHAIN), 0.0)}

"""The timing process: it answers the requests of `fomkit.bench.session`, one line each; the loop is in `times`.

It is a separate process because an op may end the process, and because threads and memory are set before PyTorch
is loaded. It also measures the framework's cost per op, fresh memory pages, and transfers to the device.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import median
from typing import Any, TextIO

from fomkit.harness.torch.cases import CannotTimeError, Watch, make_watch, processor_clock, torch
from fomkit.harness.torch.times import Effort, checked_case, describe, make_case, time_case, time_run

LAYERS, WIDTH, ROUNDS = 40, 8, 30
_SHAPE = {"b": "1", "m": str(WIDTH), "n": str(WIDTH), "k": str(WIDTH)}
_BYTE = 4 * WIDTH * WIDTH
_NUMEL = {"numel": str(WIDTH * WIDTH), "write_byte": str(_BYTE), "read_byte": str(2 * _BYTE)}
CHAIN: Sequence[Mapping[str, str]] = (
    {"kind": "gemm", **_SHAPE, "trans_a": "0", "trans_b": "1"},
    {"kind": "pointwise", "op": "aten::tanh", **_NUMEL, "read_byte": str(_BYTE)},
    *(
        {"kind": "pointwise", "op": f"aten::{name}", **_NUMEL, "inputs": "2"}
        for name in ("mul", "add", "mul", "mul", "add", "add")
    ),
    {"kind": "pointwise", "op": "aten::tanh_backward", **_NUMEL},
    {"kind": "gemm", **_SHAPE, "trans_a": "0", "trans_b": "0"},
    {"kind": "gemm", **_SHAPE, "trans_a": "1", "trans_b": "0"},
    {"kind": "reduction", "op": "aten::sum", "pass_name": "backward", **_NUMEL, "row": str(WIDTH)},
)
"""The ops of one layer of the chain: dense, tanh, product and sum, and their gradients."""


def _chain_s(device: str) -> float:
    """Return the time per layer [s] of a training step of many tiny layers, without an update."""
    layers = [torch.nn.Linear(WIDTH, WIDTH, device=device) for _ in range(LAYERS)]
    data = torch.randn(WIDTH, WIDTH, device=device)

    def step() -> None:
        values = data
        for layer in layers:
            values = torch.tanh(layer(values)) * values + values
        values.sum().backward()

    # The host's work is to be measured, so on a GPU the host's clock times it.
    clock = processor_clock(torch.get_num_threads()) if device == "cpu" else time.perf_counter
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
    """Measure the framework's time for one op of a step.

    Returns ``op_s``, the time [s] of one op in a chain of tiny ops, and ``host_s``, the part of it that is not the
    op itself; on a GPU all of it is the host's time, which overlaps with the device's.
    """
    op_s = _chain_s(device) / len(CHAIN)
    if device == "cuda":
        return {"op_s": op_s, "host_s": op_s}
    effort, alone_s = Effort(most=20), 0.0
    for cells in CHAIN:
        case = make_case({"dtype": "fp32", "engine": "vector", "pass_name": "forward", **cells}, device)
        alone_s += median(time_run(case.run, watch, effort).warm)
    return {"op_s": op_s, "host_s": max(op_s - alone_s / len(CHAIN), 0.0)}


POWERS = range(20, 27)
"""Sizes tried, as exponents of two; glibc returns blocks above 2^25 bytes, its largest limit, at once."""
PRIMED_BYTE = 31 * 2**20
"""Size of a block freed first, because glibc raises its limit by freed sizes and earlier ops would decide it."""
FRESH_SHARE = 0.7
"""Share of the largest tensors' cost per byte above which tensors of a size always have fresh pages."""
REPEATS = 9
HOST_BYTE = 2**27


def _median_of_runs(watch: Watch, run: Callable[[], Any]) -> float:
    watch.measure(run, 1)
    return median(watch.measure(run, 1) for _ in range(REPEATS))


def fresh_pages(watch: Watch, limits: range = POWERS) -> dict[str, float]:
    """Measure the cost of a new tensor's fresh pages, in addition to writing it.

    Returns ``above_byte``, the size from which each new tensor has fresh pages (a power of two), and
    ``s_per_byte``, their cost per byte [s]; an empty dict if new tensors cost no more.
    """
    torch.empty(PRIMED_BYTE // 4)
    found = []
    for power in limits:
        numel = 2**power // 4 + 4096
        same_s = _median_of_runs(watch, partial(torch.zeros(numel).fill_, 1.0))
        fresh_s = _median_of_runs(watch, partial(torch.full, (numel,), 1.0))
        found.append((2.0**power, (fresh_s - same_s) / (4 * numel), fresh_s > 2 * same_s))
    largest = found[-1]
    if not largest[2]:
        return {}
    # The sizes from the largest down to where new tensors stop being expensive; smaller ones may be so by chance.
    dear = [rate > FRESH_SHARE * largest[1] for _, rate, _ in found]
    first = next(place for place in range(len(found)) if all(dear[place:]))
    return {"above_byte": found[first][0], "s_per_byte": median(rate for _, rate, _ in found[first:])}


def to_device(watch: Watch, torch: Any) -> dict[str, float]:
    """Measure the rate from host memory to the device, for pinned and pageable memory [byte/s]."""
    numel = HOST_BYTE // 4
    there = torch.empty(numel, device="cuda")
    found = {}
    for name in ("pinned", "pageable"):
        here = torch.empty(numel, pin_memory=name == "pinned")
        found[name] = HOST_BYTE / _median_of_runs(watch, partial(there.copy_, here, non_blocking=True))
    return found


Answer = dict[str, Any]
"""A child's answer: the requested values by name, or ``reason``, why there are none."""
LONG_S = 5e-3
"""Time [s] of an op above which a cold program does not matter: reading the program takes 0.1 ms."""


def first_line(problem: BaseException) -> str:
    """Return the first line of an error, its message; the rest is the place in the framework."""
    return (str(problem).strip().splitlines() or [type(problem).__name__])[0][:200]


def introduce(device: str) -> Answer:
    """Return facts on the software and, on a GPU, on the device."""
    facts: Answer = {
        "library_version": str(torch.version.__version__), "python": platform.python_version(),
        "about": describe(device), "threads": int(torch.get_num_threads()), "cuda": str(torch.version.cuda or ""),
    }  # fmt: skip
    if device == "cuda":
        one = torch.cuda.get_device_properties(0)
        facts |= {"device_name": str(one.name), "memory_byte": float(one.total_memory)}
        facts["cache_byte"] = float(getattr(one, "L2_cache_size", 0))
        facts["capability"] = [int(one.major), int(one.minor)]
    return facts


def time_op(request: Mapping[str, Any], device: str, watch: Watch) -> Answer:
    """Time one op; if that fails, return the reason."""
    try:
        case, error = checked_case(request["cells"], device)
        other = make_case(request["cells"], device) if watch.measure(case.run, 1) < LONG_S else None
        effort = Effort(**request["effort"])
        times = time_case(case, watch, effort, other=other, cold=bool(request["cold"]), both=True)
    except CannotTimeError as reason:
        return {"reason": str(reason)}
    except (RuntimeError, MemoryError, torch.cuda.OutOfMemoryError) as problem:
        return {"reason": first_line(problem)}
    finally:
        if device == "cuda":
            torch.cuda.empty_cache()
    return {"warm": times.warm, "cold": times.cold, "error": error, "empty_s": watch.empty_s}


def serve(lines: TextIO, answers: TextIO, handle: Callable[[Mapping[str, Any]], Answer]) -> None:
    """Answer each request line by a line, with this process's time so far, until there are no more."""
    for line in lines:
        answer = handle(json.loads(line))
        answers.write(json.dumps({**answer, "spent_s": time.process_time()}) + "\n")
        answers.flush()


def talk(handle: Callable[[Mapping[str, Any]], Answer]) -> None:
    """Answer on standard output, and redirect what libraries print there to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    serve(sys.stdin, answers, handle)


def main() -> None:
    """Answer requests to time PyTorch's ops."""
    state: dict[str, Any] = {}

    def handle(request: Mapping[str, Any]) -> Answer:
        if "threads" in request:
            if request["device"] == "cuda" and not torch.cuda.is_available():
                return {
                    "reason": "PyTorch finds no CUDA device. Install a build for CUDA and check the driver with "
                    "nvidia-smi, or measure the CPU with --device cpu."
                }
            state["device"] = request["device"]
            torch.set_num_threads(request["threads"])
            state["watch"] = make_watch(request["device"], request["cache_byte"])
            return introduce(request["device"])
        if request.get("ask") == "allocator":
            return dict(fresh_pages(state["watch"])) if state["device"] == "cpu" else {}
        if request.get("ask") == "from_host":
            return dict(to_device(state["watch"], torch)) if state["device"] == "cuda" else {}
        if "cells" not in request:
            return dict(host_cost(state["device"], state["watch"]))
        return time_op(request, state["device"], state["watch"])

    talk(handle)

"""The child that times: it answers `fomkit.bench.session` line by line, op after op; the loop is in `times`.

It runs apart, because an op may end the process, and because threads and memory are set before PyTorch is loaded.
What the framework takes for an op besides it, and memory besides its traffic, are measured here too.
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

from fomkit.harness.torch.cases import CannotTimeError, Watch, make_watch, torch
from fomkit.harness.torch.makers import make_case
from fomkit.harness.torch.times import Effort, checked_case, describe, time_case, time_run

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
"""The ops that one layer of the chain runs: dense, tanh, product and sum, and their gradients."""


def _chain_s(device: str) -> float:
    """Time a training step of many tiny layers, without an update, by layer [s]."""
    layers = [torch.nn.Linear(WIDTH, WIDTH, device=device) for _ in range(LAYERS)]
    data = torch.randn(WIDTH, WIDTH, device=device)

    def step() -> None:
        values = data
        for layer in layers:
            values = torch.tanh(layer(values)) * values + values
        values.sum().backward()

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

    Gives a dict: ``op_s``, the time [s] of one op in a chain of tiny ones, and ``host_s``, what of it is not the
    op itself; on a GPU all of it is the host's, which works beside the device.
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
"""Sizes as powers of two; glibc gives back what is above 2^25 bytes at once, at most."""
PRIMED_BYTE = 31 * 2**20
"""Freed once before: glibc raises its limits by what it sees freed, so that what ran before would decide."""
FRESH_SHARE = 0.7
"""Share of the largest tensors' cost a byte from which tensors of a size count as fresh each time."""
REPEATS = 9
HOST_BYTE = 2**27


def _over(watch: Watch, run: Callable[[], Any]) -> float:
    watch.measure(run, 1)
    return median(watch.measure(run, 1) for _ in range(REPEATS))


def fresh_pages(watch: Watch, limits: range = POWERS) -> dict[str, float]:
    """Measure what a tensor of fresh pages costs besides being written.

    Gives a dict: ``above_byte``, the size from which each new tensor has fresh pages (a power of two), and
    ``s_per_byte``, what a byte of them takes; empty where tensors cost no more when they are new.
    """
    torch.empty(PRIMED_BYTE // 4)
    found = []
    for power in limits:
        numel = 2**power // 4 + 4096
        same_s = _over(watch, partial(torch.zeros(numel).fill_, 1.0))
        fresh_s = _over(watch, partial(torch.full, (numel,), 1.0))
        found.append((2.0**power, (fresh_s - same_s) / (4 * numel), fresh_s > 2 * same_s))
    largest = found[-1]
    if not largest[2]:
        return {}
    # From the largest size downwards, as long as new tensors are dear: smaller ones may be so by chance.
    dear = [rate > FRESH_SHARE * largest[1] for _, rate, _ in found]
    first = next(place for place in range(len(found)) if all(dear[place:]))
    return {"above_byte": found[first][0], "s_per_byte": median(rate for _, rate, _ in found[first:])}


def to_device(watch: Watch, torch: Any) -> dict[str, float]:
    """Measure the way from the host's memory to the device, pinned and pageable [byte/s]."""
    numel = HOST_BYTE // 4
    there = torch.empty(numel, device="cuda")
    found = {}
    for name in ("pinned", "pageable"):
        here = torch.empty(numel, pin_memory=name == "pinned")
        found[name] = HOST_BYTE / _over(watch, partial(there.copy_, here, non_blocking=True))
    return found


Answer = dict[str, Any]
"""What a child answers: what was asked for by name, or ``reason``, why there is none."""
LONG_S = 5e-3
"""Time [s] of an op from which it does not matter that its program is cold too: reading that takes 0.1 ms."""


def first_line(problem: BaseException) -> str:
    """Give the first line of what went wrong, which says it all; the rest is where in the framework."""
    return (str(problem).strip().splitlines() or [type(problem).__name__])[0][:200]


def introduce(device: str) -> Answer:
    """Tell the software and, on a GPU, the device that runs it."""
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
    """Time one op; what cannot be timed comes back with its reason."""
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
    """Answer each line that is asked by a line, with the time of this process so far, until there are no more."""
    for line in lines:
        answer = handle(json.loads(line))
        answers.write(json.dumps({**answer, "spent_s": time.process_time()}) + "\n")
        answers.flush()


def talk(handle: Callable[[Mapping[str, Any]], Answer]) -> None:
    """Answer on what was standard output; what libraries print goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    serve(sys.stdin, answers, handle)


def main() -> None:
    """Answer what is asked of PyTorch's ops."""
    state: dict[str, Any] = {}

    def handle(request: Mapping[str, Any]) -> Answer:
        if "threads" in request:
            if request["device"] == "cuda" and not torch.cuda.is_available():
                return {"reason": "says that PyTorch finds no CUDA device"}
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

"""The process that times: it makes, checks and times one op after the other, as it is asked line by line.

It runs apart, because an op may end the process, and because threads and memory are set before PyTorch is loaded.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, TextIO

from fomkit.timings.measure_cases import CannotTimeError
from fomkit.timings.measure_host import host_cost
from fomkit.timings.measure_makers import make_case
from fomkit.timings.measure_memory import fresh_pages, to_device
from fomkit.timings.measure_times import Effort, checked_case, describe, time_case
from fomkit.timings.measure_watch import Watch, make_watch

Answer = dict[str, Any]
LONG_S = 5e-3
"""Time [s] of an op from which it does not matter that its program is cold too: reading that takes 0.1 ms."""


def introduce(device: str) -> Answer:
    """Tell the software and, on a GPU, the device that runs it."""
    import torch

    facts: Answer = {
        "library_version": str(torch.__version__),
        "python": platform.python_version(),
        "threads": int(torch.get_num_threads()),
        "about": describe(device),
        "cuda": str(torch.version.cuda or ""),
    }
    if device == "cuda":
        one = torch.cuda.get_device_properties(0)
        facts |= {
            "device_name": str(one.name),
            "memory_byte": float(one.total_memory),
            "cache_byte": float(getattr(one, "L2_cache_size", 0)),
            "capability": [int(one.major), int(one.minor)],
        }
    return facts


def time_op(request: Mapping[str, Any], device: str, watch: Watch) -> Answer:
    """Time one op; what cannot be timed comes back with its reason."""
    import torch

    try:
        case, error = checked_case(request["cells"], device)
        other = make_case(request["cells"], device) if watch.measure(case.run, 1) < LONG_S else None
        effort = Effort(**request["effort"])
        times = time_case(case, watch, effort, other=other, cold=bool(request["cold"]), both=True)
    except CannotTimeError as reason:
        return {"reason": str(reason)}
    except (RuntimeError, MemoryError, torch.cuda.OutOfMemoryError) as problem:
        # The first line says it all; the rest is where in PyTorch.
        return {"reason": (str(problem).strip().splitlines() or [type(problem).__name__])[0][:200]}
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


def main() -> None:
    """Answer on what was standard output; what libraries print goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    import torch

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

    serve(sys.stdin, answers, handle)

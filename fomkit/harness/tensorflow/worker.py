"""The process that times with TensorFlow: it makes, checks and times one op after the other, as it is asked."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from fomkit.harness.tensorflow.makers import checked_case, make_case
from fomkit.harness.tensorflow.traffic import GraphCase, compiled, graph_watch, made, time_graph
from fomkit.harness.torch.cases import CannotTimeError, Watch
from fomkit.harness.torch.times import Effort
from fomkit.harness.torch.worker import LONG_S, Answer, first_line, talk

LAYERS, WIDTH, ROUNDS, OPS = 40, 8, 30, 4
"""Layers of the chain of tiny ops, their width, how often it is timed, and the ops of a layer."""


def introduce(threads: int) -> Answer:
    """Tell the software, with TensorFlow told its threads before it makes any."""
    import tensorflow as tf

    tf.config.set_visible_devices([], "GPU")
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    # What looks alike in a graph would else run once, and what depends on constants never.
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    cpuinfo = Path("/proc/cpuinfo")
    text = cpuinfo.read_text(encoding="utf-8", errors="replace") if cpuinfo.is_file() else ""
    told = re.search(r"^(?:model name|Hardware)\s*:\s*(.+)$", text, re.MULTILINE)
    name = told[1].strip() if told else platform.machine()
    set_threads, python = tf.config.threading.get_intra_op_parallelism_threads(), platform.python_version()
    about = f"{name}; {threads} threads; Python {python}; ops of compiled graphs"
    facts = {"library_version": str(tf.__version__), "python": python, "threads": int(set_threads)}
    return {**facts, "about": about, "cuda": ""}


def host_cost(watch: Watch) -> Answer:
    """Measure what a graph takes for one op of a chain of tiny ones.

    Nothing of it is besides an op's timing: there, too, one op follows the other in a graph.
    """
    import tensorflow as tf

    tiny = {"dtype": "fp32"}
    weight = made((WIDTH, WIDTH), tiny)

    def chain(values: Any) -> Any:
        for _ in range(LAYERS):
            values = tf.tanh(values @ weight) * values + values
        return values

    whole = GraphCase(chain, (made((WIDTH, WIDTH), tiny),), lambda _result: 0.0)
    runs = [compiled(whole, copies) for copies in (0, 1)]
    for run in runs:
        watch.measure(run, 2)
    call_s, chain_s = (median(watch.measure(run, 1) for _ in range(ROUNDS)) for run in runs)
    if not chain_s > call_s:
        raise CannotTimeError("a chain of tiny ops cannot be told from the call of a function")
    return {"op_s": (chain_s - call_s) / (LAYERS * OPS), "host_s": 0.0}


def time_op(request: Mapping[str, Any], watch: Watch) -> Answer:
    """Time one op, or the host's cost of one; what cannot be timed comes back with its reason."""
    import tensorflow as tf

    try:
        if "cells" not in request:
            return host_cost(watch)
        case, error = checked_case(request["cells"])
        other = make_case(request["cells"]) if watch.measure(compiled(case, 1), 1) < LONG_S else None
        effort, cold = Effort(**request["effort"]), bool(request["cold"])
        times = time_graph(case, watch, effort, other=other, cold=cold)
    except CannotTimeError as reason:
        return {"reason": str(reason)}
    except (tf.errors.OpError, MemoryError, TypeError, ValueError) as problem:
        return {"reason": first_line(problem)}
    return {"warm": times.warm, "cold": times.cold, "error": error, "empty_s": watch.empty_s}


def main() -> None:
    """Answer what is asked of TensorFlow's ops."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    state: dict[str, Any] = {}

    def handle(request: Mapping[str, Any]) -> Answer:
        if "threads" in request:
            facts = introduce(request["threads"])
            state["watch"] = graph_watch(request["threads"], request["cache_byte"])
            return facts
        # Fresh pages and the way to a device are not measured with TensorFlow.
        return {} if "ask" in request else time_op(request, state["watch"])

    talk(handle)

"""One rank of a measurement between processes: it joins the others, and times what all of them are asked.

A repeat's time is that of the slowest rank. How often an exchange is repeated must be agreed: after each repeat
the ranks share their times, so that all see the same figures and come to the same end.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from math import ceil
from pathlib import Path
from typing import Any

from fomkit.harness.torch.cases import CannotTimeError, by_clock, by_events, summarise
from fomkit.harness.torch.exchanges import Exchange, Team, make_exchange
from fomkit.harness.torch.times import Effort
from fomkit.harness.torch.worker import Answer, first_line, talk

SAMPLE_S = 1e-3
"""Shortest time [s] of one repeat: the ranks do not begin at the same moment."""
MOST_RUNS = 1_000
_LOOPBACK = Path("/sys/class/net/lo")


def missing_backend(backend: str) -> str:
    """Say why a backend of ``torch.distributed`` cannot be used here; "" where it can."""
    from torch import cuda, distributed

    if not distributed.is_available():
        return "this PyTorch was built without torch.distributed"
    known = {
        "gloo": distributed.is_gloo_available, "nccl": distributed.is_nccl_available,
        "mpi": distributed.is_mpi_available, "ucc": distributed.is_ucc_available,
    }  # fmt: skip
    if backend not in known:
        return f"no backend is called {backend}; there are {', '.join(known)}"
    if not known[backend]():
        return f"this PyTorch was built without {backend}"
    return "no CUDA device is visible" if backend == "nccl" and not cuda.is_available() else ""


class Rank:
    """A process among others that exchange messages.

    `setup`: ``backend``, ``rank``, ``ranks``, ``local_rank``, ``meeting`` (where they meet) and ``limit_s``, after
      which an exchange that does not end counts as failed.
    """

    def __init__(self, setup: Mapping[str, Any]) -> None:
        self.backend, self.rank, self.ranks = setup["backend"], int(setup["rank"]), int(setup["ranks"])
        self._setup, self._control = setup, None
        self.device = f"cuda:{setup['local_rank']}" if self.backend == "nccl" else "cpu"

    def join(self) -> Answer:
        """Meet the other ranks and tell what all of them are: hosts, device, version; or ``missing`` why not."""
        if reason := missing_backend(self.backend):
            return {"missing": reason}
        import torch
        from torch import distributed

        if self.device != "cpu":
            # A launcher may show each rank one device only, which then has the number 0.
            self.device = f"cuda:{int(self._setup['local_rank']) % torch.cuda.device_count()}"
            torch.cuda.set_device(self.device)
        distributed.init_process_group(
            self.backend, init_method=self._setup["meeting"], rank=self.rank, world_size=self.ranks,
            timeout=timedelta(seconds=float(self._setup["limit_s"])),
        )  # fmt: skip
        self._control = distributed.new_group(backend="gloo") if self.backend != "gloo" else None
        names: list[Any] = [None] * self.ranks
        distributed.all_gather_object(names, (socket.gethostname(), *self._device_names()), group=self._control)
        marks = [(host, mark) for host, _, mark in names if mark]
        if len(set(marks)) < len(marks):
            why = "two ranks share one GPU, which NCCL does not do; it needs as many as there are ranks"
            return {"missing": why}
        hosts, devices = [host for host, *_ in names], [device for _, device, _ in names]
        return {"hosts": hosts, "devices": devices, "library_version": str(torch.__version__)}

    def _device_names(self) -> tuple[str, str]:
        """Name the GPU, and give what tells it from others of its host; "" and "" on a CPU, which ranks share."""
        from torch import cuda

        if self.device == "cpu":
            return "", ""
        mark = getattr(cuda.get_device_properties(self.device), "uuid", self.device)
        return str(cuda.get_device_name(self.device)), str(mark)

    def leave(self) -> None:
        """Part from the others."""
        from torch import distributed

        if distributed.is_available() and distributed.is_initialized():
            distributed.destroy_process_group()

    def _slowest(self, values: list[float]) -> list[float]:
        """Give the largest of each value over the ranks; they wait for each other here."""
        import torch
        from torch import distributed

        shared = torch.tensor(values, dtype=torch.float64)
        distributed.all_reduce(shared, distributed.ReduceOp.MAX, group=self._control)
        return [float(one) for one in shared]

    def _stopwatch(self) -> Callable[[Callable[[], Any], int], float]:
        import torch

        return by_clock(time.perf_counter) if self.device == "cpu" else by_events(torch.cuda)

    def time_exchange(self, request: Mapping[str, Any]) -> Answer:
        """Have all ranks run an exchange; ``times`` [s] of one message or collective, or ``reason`` why none.

        A rank that cannot hold its buffers tells the others before anything is sent. ``broken`` says that the
        ranks have lost each other, so that nothing more can be timed with them.
        """
        team = Team(self.rank, self.ranks, int(request.get("peer", 1)), self.device)
        exchange, reason = None, ""
        try:
            exchange = make_exchange(request, team)
        except (CannotTimeError, RuntimeError, MemoryError) as problem:
            reason = first_line(problem)
        try:
            if self._slowest([0.0 if exchange else 1.0])[0]:
                return {"reason": reason or "another rank could not hold its buffers"}
            return self._timed(exchange, Effort(**request["effort"])) if exchange else {"reason": reason}
        except (RuntimeError, OSError, EOFError) as problem:
            return {"reason": first_line(problem), "broken": True}

    def _timed(self, exchange: Exchange, effort: Effort) -> Answer:
        exchange.run()
        if self._slowest([float(not exchange.check())])[0]:
            return {"reason": "its result is wrong, so its time says nothing"}
        measure, begun = self._stopwatch(), time.perf_counter()
        first = self._slowest([measure(exchange.run, 1)])[0]
        runs = min(MOST_RUNS, max(1, ceil(SAMPLE_S / max(first, 1e-9))))
        times: list[float] = []
        while len(times) < effort.most:
            took, spent = self._slowest([measure(exchange.run, runs), time.perf_counter() - begun])
            times.append(took / runs / exchange.times)
            known = len(times) >= effort.least
            if known and (spent > effort.limit_s or summarise(times).width <= effort.target):
                break
        return {"times": times, "runs": runs}


def main() -> None:
    """Answer what is asked of this rank."""
    if _LOOPBACK.exists():
        # These ranks share a machine, whose own name may lead nowhere.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    state: dict[str, Rank] = {}

    def handle(request: Mapping[str, Any]) -> Answer:
        if "backend" in request:
            import torch

            torch.set_num_threads(int(request["threads"]))
            state["rank"] = Rank(request)
            try:
                return state["rank"].join()
            except (RuntimeError, ValueError, OSError) as problem:
                return {"missing": first_line(problem)}
        return state["rank"].time_exchange(request)

    talk(handle)

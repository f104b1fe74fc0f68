"""One rank of a measurement between processes, and the exchanges that it times with the other ranks.

Exchanges are collectives, messages from rank to rank, and a parameter server. Each is made on every rank, its
result checked once against the expected numbers, and then repeated. A repeat's time is that of the slowest rank.
All ranks must stop at the same repeat: after each one they share their times, so that all decide on equal figures.

Payloads are several buffers of very different sizes at once, as training frameworks send them, by the schemes
of TF-gRPC-Bench (Biswas, Lu, Panda, "Designing a Micro-Benchmark Suite to Evaluate gRPC for TensorFlow: Early
Experiences", BPOE 2018, arXiv:1804.01138), after the sizes of tensors that TensorFlow sends: *uniform* has small,
medium and large buffers in turn, *random* draws each size, *skew* has mostly large buffers. The sizes and shares
below are fomkit's choice; every row of timings names them.
"""

from __future__ import annotations

import os
import pickle
import random
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

from fomkit.harness.torch.cases import CannotTimeError, Later, by_clock, by_events, summarise, torch
from fomkit.harness.torch.times import Effort
from fomkit.harness.torch.worker import Answer, first_line, talk

distributed: Any = Later("torch.distributed")
SEND, STREAM, SERVER = "send_recv", "send_stream", "parameter_server"
FITTED = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
"""Collectives that a machine's fit distinguishes (`fomkit.prediction.families`)."""
DISPATCHED: Mapping[str, str] = {
    "broadcast": "c10d::broadcast_", "reduce": "c10d::reduce_", "gather": "c10d::gather_",
    "scatter": "c10d::scatter_", "barrier": "c10d::barrier", SEND: "c10d::send",
}  # fmt: skip
"""Names of the other exchanges in PyTorch's dispatcher."""


def op_of(collective: str) -> str:
    """Return the op to which a timing of a collective is restricted; "" if a fit uses the timing for any op.

    Without the name, a broadcast would be mistaken for an all-reduce of the same size and ranks.

    >>> op_of("all_reduce"), op_of("broadcast"), op_of("send_stream")
    ('', 'c10d::broadcast_', 'send_stream')
    """
    return "" if collective in FITTED else DISPATCHED.get(collective, collective)


SIZES_BYTE: Mapping[str, int] = {"small": 12, "medium": 10_000, "large": 1_000_000}
"""Bytes of a buffer: a scalar or two, a bias, a layer's weights; multiples of a float."""
BUFFERS = 10
"""Number of buffers in one payload."""
SKEW: Mapping[str, int] = {"large": 6, "medium": 3, "small": 1}
"""Number of buffers of each size in a payload of the scheme *skew*: 60, 30 and 10 %."""
SCHEMES = ("uniform", "random", "skew")
FORMS = ("plain", "pickled")
"""Buffers are sent one by one, or serialised into one string of bytes that the receiver deserialises."""


def buffer_sizes(scheme: str) -> list[int]:
    """Return the sizes of a payload's buffers [byte], the same on all ranks; ``scheme``: one of `SCHEMES`.

    >>> sum(buffer_sizes("uniform")), sum(buffer_sizes("skew"))
    (3030048, 6030012)
    """
    names = list(SIZES_BYTE)
    if scheme == "uniform":
        chosen = [names[place % len(names)] for place in range(BUFFERS)]
    elif scheme == "random":
        draw = random.Random(0)  # noqa: S311 - a size, no secret
        chosen = [draw.choice(names) for _ in range(BUFFERS)]
    elif scheme == "skew":
        chosen = [name for name, count in SKEW.items() for _ in range(count)]
    else:
        raise ValueError(f"{scheme!r} is not a scheme of payloads; there are {', '.join(SCHEMES)}")
    return [SIZES_BYTE[name] for name in chosen]


def pack(buffers: Sequence[bytes]) -> bytes:
    """Serialise a payload's buffers into one string of bytes."""
    return pickle.dumps(list(buffers), protocol=pickle.HIGHEST_PROTOCOL)


def unpack(packed: bytes) -> list[bytes]:
    """Deserialise buffers; only for data that this program packed, because unpickling can run code."""
    found: list[bytes] = pickle.loads(packed)  # noqa: S301 - from a rank of this very measurement
    return found


WINDOW = 16
"""Number of messages in flight at once in a stream."""
FLOAT_BYTE = 4


class Exchange(NamedTuple):
    """The part of one rank in an exchange; by default it does nothing.

    `run`: runs the exchange once; every rank calls it equally often.
    `check`: returns whether the result of a run is right.
    `times`: number of timed messages in one run: 2 for forth and back, `WINDOW` for a stream.
    """

    run: Callable[[], None] = lambda: None
    check: Callable[[], bool] = lambda: True
    times: int = 1


class Team(NamedTuple):
    """A rank's view of all ranks; ``peer`` is the rank that rank 0 exchanges messages with."""

    rank: int
    ranks: int
    peer: int
    device: str


def _there_and_back(team: Team, send: Callable[[int], Any], take: Callable[[int], Any]) -> Callable[[], None]:
    """Make a run in which rank 0 sends to the peer and then receives its answer."""
    other, turns = (team.peer, (send, take)) if team.rank == 0 else (0, (take, send))

    def run() -> None:
        for turn in turns:
            turn(other)

    return run


def _floats(byte: float, team: Team, value: float) -> Any:
    return torch.full((max(1, int(byte) // FLOAT_BYTE),), value, device=team.device)


def _is(tensor: Any, value: float) -> Callable[[], bool]:
    return lambda: bool((tensor == value).all())


def _distributed(*names: str) -> Callable[..., Any]:
    """Return the first of these functions that this PyTorch has; new versions rename them and warn of the old."""
    found: Callable[..., Any] = next(getattr(distributed, name) for name in names if hasattr(distributed, name))
    return found


def _all_reduce(byte: float, team: Team) -> Exchange:
    reduce = _distributed("all_reduce")
    data, result = _floats(byte, team, float(team.rank)), _floats(byte, team, 1.0)
    total = team.ranks * (team.ranks - 1) / 2

    def check() -> bool:
        result.copy_(data)
        reduce(result)
        right = bool((result == total).all())
        result.zero_()  # repeated sums of other values than 0 would overflow
        return right

    return Exchange(partial(reduce, result), check)


def _all_gather(byte: float, team: Team) -> Exchange:
    part = _floats(byte / team.ranks, team, float(team.rank))
    whole = _floats(part.numel() * FLOAT_BYTE * team.ranks, team, -1.0)
    expected = sum(range(team.ranks)) * part.numel()
    gather = _distributed("all_gather_single", "all_gather_into_tensor")
    return Exchange(partial(gather, whole, part), lambda: bool(whole.double().sum() == expected))


def _reduce_scatter(byte: float, team: Team) -> Exchange:
    part = _floats(byte / team.ranks, team, 0.0)
    whole = _floats(part.numel() * FLOAT_BYTE * team.ranks, team, float(team.rank))
    scatter = _distributed("reduce_scatter_single", "reduce_scatter_tensor")
    return Exchange(partial(scatter, part, whole), _is(part, float(sum(range(team.ranks)))))


def _broadcast(byte: float, team: Team) -> Exchange:
    data = _floats(byte, team, 7.0 if team.rank == 0 else 0.0)
    return Exchange(partial(_distributed("broadcast"), data, 0), _is(data, 7.0))


def _wait(works: Sequence[Any]) -> None:
    for one in works:
        one.wait()


def _send(byte: float, team: Team) -> Exchange:
    """Send a message to the peer and receive one of the same size from it."""
    if team.rank not in (0, team.peer):
        return Exchange(times=2)
    mine, theirs = _floats(byte, team, float(team.rank)), _floats(byte, team, -1.0)
    run = _there_and_back(team, partial(_distributed("send"), mine), partial(_distributed("recv"), theirs))
    return Exchange(run, _is(theirs, float(team.peer - team.rank)), 2)


def _stream(byte: float, team: Team) -> Exchange:
    """Send several messages at once to the peer, which then confirms that it received them."""
    if team.rank not in (0, team.peer):
        return Exchange(times=WINDOW)
    sent = _floats(byte, team, 3.0)
    # One buffer per message, so that no message waits for another's memory.
    places = [_floats(byte, team, 0.0) for _ in range(WINDOW if team.rank else 0)]
    word = _floats(FLOAT_BYTE, team, 1.0)
    send, take, begin_send, begin_take = map(_distributed, ("send", "recv", "isend", "irecv"))

    def run() -> None:
        if team.rank == 0:
            _wait([begin_send(sent, team.peer) for _ in range(WINDOW)])
            take(word, team.peer)
        else:
            _wait([begin_take(place, 0) for place in places])
            send(word, 0)

    return Exchange(run, lambda: all(_is(place, 3.0)() for place in places), WINDOW)


class _Payload:
    """A payload's buffers on one rank, sent and received one by one, or as one string of bytes."""

    def __init__(self, sizes: list[int], team: Team, *, pickled: bool) -> None:
        self._team, self._pickled = team, pickled
        self.mine = [_floats(size, team, 5.0) for size in sizes]
        self.theirs = [_floats(size, team, 0.0) for size in sizes]
        length = len(self._packed()) if pickled else 0
        self._taken = torch.zeros(length, dtype=torch.uint8, device=team.device)

    def _packed(self) -> bytes:
        return pack([one.cpu().numpy().tobytes() for one in self.mine])

    def _pieces(self) -> list[Any]:
        if not self._pickled:
            return self.mine
        # A copy, because the tensor must be writable.
        return [torch.frombuffer(bytearray(self._packed()), dtype=torch.uint8).to(self._team.device)]

    def send(self, rank: int) -> None:
        _wait([_distributed("isend")(piece, rank) for piece in self._pieces()])

    def take(self, rank: int) -> None:
        places = [self._taken] if self._pickled else self.theirs
        _wait([_distributed("irecv")(place, rank) for place in places])
        if self._pickled:
            found = unpack(self._taken.cpu().numpy().tobytes())
            self.theirs = [torch.frombuffer(bytearray(one), dtype=torch.float32) for one in found]

    def right(self) -> bool:
        return all(_is(their, 5.0)() for their in self.theirs)


def _server(sizes: list[int], team: Team, *, pickled: bool) -> Exchange:
    """Make a parameter server: rank 0 receives gradients from every other rank and returns parameters to each."""
    others = range(1, team.ranks)
    payloads = [_Payload(sizes, team, pickled=pickled) for _ in (others if team.rank == 0 else [0])]

    def run() -> None:
        if team.rank:
            payloads[0].send(0)
            payloads[0].take(0)
            return
        for rank, payload in zip(others, payloads, strict=True):
            payload.take(rank)
        for rank, payload in zip(others, payloads, strict=True):
            payload.send(rank)

    return Exchange(run, lambda: all(payload.right() for payload in payloads))


MAKERS: Mapping[str, Callable[[float, Team], Exchange]] = {
    SEND: _send, STREAM: _stream, "all_reduce": _all_reduce, "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter, "broadcast": _broadcast,
}  # fmt: skip
"""Exchanges of one buffer, by name. Bytes are counted as in nccl-tests: for a gather, the whole of its result."""


def make_exchange(request: Mapping[str, Any], team: Team) -> Exchange:
    """Make this rank's part in an exchange of one buffer, or of a payload by its scheme and form."""
    collective, scheme, pickled = request["collective"], request.get("scheme"), request.get("form") == "pickled"
    if not scheme and collective not in MAKERS:
        raise CannotTimeError(f"no exchange is called {collective}")
    if not scheme:
        return MAKERS[collective](float(request["message_byte"]), team)
    if collective == SERVER:
        return _server(buffer_sizes(scheme), team, pickled=pickled)
    if collective != SEND:
        raise CannotTimeError(f"no payloads are sent by {collective}")
    if team.rank not in (0, team.peer):
        return Exchange(times=2)
    payload = _Payload(buffer_sizes(scheme), team, pickled=pickled)
    return Exchange(_there_and_back(team, payload.send, payload.take), payload.right, 2)


SAMPLE_S = 1e-3
"""Shortest time [s] of one repeat, because the ranks do not begin at the same moment."""
MOST_RUNS = 1_000


def missing_backend(backend: str) -> str:
    """Return why a backend of ``torch.distributed`` cannot be used here; "" if it can."""
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
    return "no CUDA device is visible" if backend == "nccl" and not torch.cuda.is_available() else ""


class Rank:
    """The current process as a rank that exchanges messages with others.

    `setup`: ``backend``, ``rank``, ``ranks``, ``local_rank``, ``meeting`` (the address where the ranks meet) and
      ``limit_s``, the time [s] after which an exchange that does not end counts as failed.
    """

    def __init__(self, setup: Mapping[str, Any]) -> None:
        self.backend, self.rank, self.ranks = setup["backend"], int(setup["rank"]), int(setup["ranks"])
        self._setup, self._control = setup, None
        self.device = f"cuda:{setup['local_rank']}" if self.backend == "nccl" else "cpu"

    def join(self) -> Answer:
        """Meet the other ranks; return all hosts, all devices and the version, or ``missing``, why not."""
        if reason := missing_backend(self.backend):
            return {"missing": reason}
        if self.device != "cpu":
            # A launcher may make only one device visible to each rank, which then has the number 0.
            self.device = f"cuda:{int(self._setup['local_rank']) % torch.cuda.device_count()}"
            torch.cuda.set_device(self.device)
        distributed.init_process_group(
            self.backend, init_method=self._setup["meeting"], rank=self.rank, world_size=self.ranks,
            timeout=timedelta(seconds=float(self._setup["limit_s"])),
        )  # fmt: skip
        self._control = distributed.new_group(backend="gloo") if self.backend != "gloo" else None
        names: list[Any] = [None] * self.ranks
        own = (socket.gethostname(), "", "")  # a CPU has no name and mark here, because ranks share it
        if self.device != "cpu":
            mark = getattr(torch.cuda.get_device_properties(self.device), "uuid", self.device)
            own = (own[0], str(torch.cuda.get_device_name(self.device)), str(mark))
        distributed.all_gather_object(names, own, group=self._control)
        marks = [(host, mark) for host, _, mark in names if mark]
        if len(set(marks)) < len(marks):
            return {
                "missing": "two ranks share one GPU, which NCCL does not do; it needs as many as there are ranks"
            }
        hosts, devices = [host for host, *_ in names], [device for _, device, _ in names]
        return {"hosts": hosts, "devices": devices, "library_version": str(torch.version.__version__)}

    def leave(self) -> None:
        """Leave the group of ranks."""
        if distributed.is_available() and distributed.is_initialized():
            distributed.destroy_process_group()

    def _slowest(self, values: list[float]) -> list[float]:
        """Return the maximum of each value over the ranks, which wait for each other here."""
        shared = torch.tensor(values, dtype=torch.float64)
        distributed.all_reduce(shared, distributed.ReduceOp.MAX, group=self._control)
        return [float(one) for one in shared]

    def time_exchange(self, request: Mapping[str, Any]) -> Answer:
        """Run an exchange with all ranks; return ``times`` [s] of one message or collective, or ``reason``.

        A rank that cannot allocate its buffers informs the others before anything is sent. ``broken`` means that
        the ranks have lost their connection, so that nothing more can be timed with them.
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
            return {"reason": "its result is wrong, so its time is not kept"}
        measure = by_clock(time.perf_counter) if self.device == "cpu" else by_events(torch.cuda)
        begun = time.perf_counter()
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
    """Answer the requests to this rank."""
    if Path("/sys/class/net/lo").exists():
        # These ranks share a machine whose host name may not resolve.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    state: dict[str, Rank] = {}

    def handle(request: Mapping[str, Any]) -> Answer:
        if "backend" in request:
            torch.set_num_threads(int(request["threads"]))
            state["rank"] = Rank(request)
            try:
                return state["rank"].join()
            except (RuntimeError, ValueError, OSError) as problem:
                return {"missing": first_line(problem)}
        return state["rank"].time_exchange(request)

    talk(handle)

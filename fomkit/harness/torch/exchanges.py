"""Exchanges between ranks as PyTorch runs them: collectives, messages from rank to rank, a parameter server.

Each is made on every rank, its result checked once against what the numbers sent add up to, and then run again and
again. Payloads are several buffers of very unlike sizes at once, as training frameworks send them, by the schemes
of TF-gRPC-Bench (Biswas, Lu, Panda, "Designing a Micro-Benchmark Suite to Evaluate gRPC for TensorFlow: Early
Experiences", BPOE 2018, arXiv:1804.01138), after the sizes of tensors that TensorFlow sends: *uniform* takes
small, medium and large buffers in turn, *random* draws each, *skew* is mostly large ones. The sizes and shares
below are the ones chosen here; every row of timings names them.
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from fomkit.harness.collectives import SEND, SERVER, STREAM
from fomkit.harness.torch.cases import CannotTimeError

SIZES_BYTE: Mapping[str, int] = {"small": 12, "medium": 10_000, "large": 1_000_000}
"""Bytes of a buffer: a scalar or two, a bias, a layer's weights; multiples of a float."""
BUFFERS = 10
"""Buffers in one payload."""
SKEW: Mapping[str, int] = {"large": 6, "medium": 3, "small": 1}
"""Buffers of each size in a payload of the scheme *skew*: 60, 30 and 10 %."""
SCHEMES = ("uniform", "random", "skew")
FORMS = ("plain", "pickled")
"""Buffers sent one by one as they are; or made into one string of bytes first, and into buffers again after."""


def buffer_sizes(scheme: str, seed: int = 0) -> list[int]:
    """Give the sizes of a payload's buffers [byte].

    `scheme`: one of `SCHEMES`; `seed`: of the scheme *random*: the same for all ranks, which must agree.

    >>> sum(buffer_sizes("uniform")), sum(buffer_sizes("skew"))
    (3030048, 6030012)
    """
    names = list(SIZES_BYTE)
    if scheme == "uniform":
        chosen = [names[place % len(names)] for place in range(BUFFERS)]
    elif scheme == "random":
        draw = random.Random(seed)  # noqa: S311 - a size, no secret
        chosen = [draw.choice(names) for _ in range(BUFFERS)]
    elif scheme == "skew":
        chosen = [name for name, count in SKEW.items() for _ in range(count)]
    else:
        raise ValueError(f"{scheme!r} is no scheme of payloads; there are {', '.join(SCHEMES)}")
    return [SIZES_BYTE[name] for name in chosen]


def pack(buffers: Sequence[bytes]) -> bytes:
    """Make one string of bytes of a payload's buffers."""
    return pickle.dumps(list(buffers), protocol=pickle.HIGHEST_PROTOCOL)


def unpack(packed: bytes) -> list[bytes]:
    """Make the buffers again; only of what this program packed, since unpickling can run code."""
    found: list[bytes] = pickle.loads(packed)  # noqa: S301 - from a rank of this very measurement
    return found


WINDOW = 16
"""Messages that are on their way at once in a stream."""
FLOAT_BYTE = 4


class Exchange(NamedTuple):
    """What one rank does in an exchange.

    `run`: one run; every rank calls it as often as the others.
    `check`: tells whether the result of a run is right.
    `times`: how many of what is timed one run holds: 2 for there and back, `WINDOW` for a stream.
    """

    run: Callable[[], None]
    check: Callable[[], bool]
    times: int = 1


class Team(NamedTuple):
    """The ranks as one of them sees them; ``peer`` is whom rank 0 exchanges messages with."""

    rank: int
    ranks: int
    peer: int
    device: str


def _bystander(times: int) -> Exchange:
    """Give the part of a rank that sends nothing and takes nothing."""
    return Exchange(lambda: None, lambda: True, times)


def _there_and_back(team: Team, send: Callable[[int], Any], take: Callable[[int], Any]) -> Callable[[], None]:
    """Make a run in which rank 0 sends to the peer and then takes what comes back."""
    other, turns = (team.peer, (send, take)) if team.rank == 0 else (0, (take, send))

    def run() -> None:
        for turn in turns:
            turn(other)

    return run


def _floats(byte: float, team: Team, value: float) -> Any:
    import torch

    return torch.full((max(1, int(byte) // FLOAT_BYTE),), value, device=team.device)


def _is(tensor: Any, value: float) -> Callable[[], bool]:
    return lambda: bool((tensor == value).all())


def _distributed(*names: str) -> Callable[..., Any]:
    """Give the first of these functions that this PyTorch has: it renames them, and warns of the older name."""
    from torch import distributed

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
        result.zero_()  # sums of what is not 0 would overflow
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
    """Send a message to the peer and have it come back."""
    if team.rank not in (0, team.peer):
        return _bystander(2)
    mine, theirs = _floats(byte, team, float(team.rank)), _floats(byte, team, -1.0)
    run = _there_and_back(team, partial(_distributed("send"), mine), partial(_distributed("recv"), theirs))
    return Exchange(run, _is(theirs, float(team.peer - team.rank)), 2)


def _stream(byte: float, team: Team) -> Exchange:
    """Send messages to the peer, several at once, which then says that it has them."""
    if team.rank not in (0, team.peer):
        return _bystander(WINDOW)
    sent = _floats(byte, team, 3.0)
    # Each has a place of its own: no message may wait for another's memory.
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

    return Exchange(run, lambda: all(bool((place == 3.0).all()) for place in places), WINDOW)


class _Payload:
    """A payload's buffers on one rank, sent and taken one by one, or as one string of bytes."""

    def __init__(self, sizes: list[int], team: Team, *, pickled: bool) -> None:
        import torch

        self._team, self._pickled = team, pickled
        self.mine = [_floats(size, team, 5.0) for size in sizes]
        self.theirs = [_floats(size, team, 0.0) for size in sizes]
        length = len(self._packed()) if pickled else 0
        self._taken = torch.zeros(length, dtype=torch.uint8, device=team.device)

    def _packed(self) -> bytes:
        return pack([one.cpu().numpy().tobytes() for one in self.mine])

    def _pieces(self) -> list[Any]:
        import torch

        if not self._pickled:
            return self.mine
        # A copy, since the tensor must be one that may be written to.
        return [torch.frombuffer(bytearray(self._packed()), dtype=torch.uint8).to(self._team.device)]

    def send(self, rank: int) -> None:
        _wait([_distributed("isend")(piece, rank) for piece in self._pieces()])

    def take(self, rank: int) -> None:
        import torch

        places = [self._taken] if self._pickled else self.theirs
        _wait([_distributed("irecv")(place, rank) for place in places])
        if self._pickled:
            found = unpack(self._taken.cpu().numpy().tobytes())
            self.theirs = [torch.frombuffer(bytearray(one), dtype=torch.float32) for one in found]

    def right(self) -> bool:
        return all(bool((their == 5.0).all()) for their in self.theirs)


def _payload_exchange(request: Mapping[str, Any], team: Team) -> Exchange:
    sizes = buffer_sizes(request["scheme"])
    collective, pickled = request["collective"], request["form"] == "pickled"
    if collective == SERVER:
        return _server(sizes, team, pickled=pickled)
    if collective != SEND:
        raise CannotTimeError(f"no payloads are sent by {collective}")
    if team.rank not in (0, team.peer):
        return _bystander(2)
    payload = _Payload(sizes, team, pickled=pickled)
    return Exchange(_there_and_back(team, payload.send, payload.take), payload.right, 2)


def _server(sizes: list[int], team: Team, *, pickled: bool) -> Exchange:
    """Have rank 0 take gradients from every other rank, a payload each, and send each parameters back."""
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
"""Exchanges of one buffer, by name. Their bytes are nccl-tests': the whole of what a gather ends with."""


def make_exchange(request: Mapping[str, Any], team: Team) -> Exchange:
    """Make what this rank does in an exchange of one buffer, or of a payload by its scheme and form."""
    if request.get("scheme"):
        return _payload_exchange(request, team)
    if request["collective"] not in MAKERS:
        raise CannotTimeError(f"no exchange is called {request['collective']}")
    return MAKERS[request["collective"]](float(request["message_byte"]), team)

"""Payloads of messages as training frameworks send them: several buffers of very unlike sizes at once.

The three schemes are those of TF-gRPC-Bench (Biswas, Lu, Panda, "Designing a Micro-Benchmark Suite to Evaluate
gRPC for TensorFlow: Early Experiences", BPOE 2018, arXiv:1804.01138), after the sizes of tensors that TensorFlow
sends: *uniform* takes small, medium and large buffers in turn, *random* draws each, *skew* is mostly large ones.
The sizes and shares below are the ones chosen here; every row of timings names them.
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Mapping, Sequence

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

    Parameters
    ----------
    scheme : str
        One of `SCHEMES`.
    seed : int
        Of the scheme *random*: the same for all ranks, which must agree.

    Raises
    ------
    ValueError
        When there is no such scheme.

    Examples
    --------
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

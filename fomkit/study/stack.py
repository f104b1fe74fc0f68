"""Layers of a software stack that are paid once a job (scheduler, job layer, start-up), and what length pays off.

Lu et al., "DLoBD: A comprehensive study of deep learning over big data stacks", IEEE TMSCS 4(4), 2018.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fomkit.errors import FomkitError
from fomkit.parallel.amortise import amortised_share, times_for_share
from fomkit.quantities import parse_quantity

LONGER = (1, 10, 100)
SMALL_SHARE = 0.01


def parse_once(texts: Sequence[str]) -> dict[str, float]:
    """Read one-off layers such as ``scheduler=15.5 %``: shares of the time of a job as it is.

    Raises
    ------
    FomkitError
        When one has no name or no share, or together they leave no time.

    Examples
    --------
    >>> parse_once(["scheduler=15.5 %"])
    {'scheduler': 0.155}
    """
    found: dict[str, float] = {}
    for text in texts:
        where = f"--once {text!r}"
        name, equals, share = (part.strip() for part in text.partition("="))
        if not name or not equals or name in found:
            raise FomkitError(where, "is no new name with a share. Write, for example, --once 'scheduler=15.5 %'.")
        found[name] = parse_quantity(share, "share", where, name)
        if found[name] < 0:
            raise FomkitError(where, "is below 0. Give a share of the job's time.")
    if sum(found.values()) >= 1:
        raise FomkitError("--once", f"adds up to {sum(found.values()):.0%} of the job. Leave time for its work.")
    return found


def stack_content(layers: dict[str, float]) -> dict[str, Any] | None:
    """Give what the layers take of longer jobs, and how many times as long makes them 1 %; None without layers."""
    if not layers:
        return None
    shares = list(layers.values())
    return {
        "layers": [{"name": name, "once_share": share} for name, share in layers.items()],
        "longer": [{"times": times, "once_share": amortised_share(shares, times)} for times in LONGER],
        "times_for_one_percent": times_for_share(shares, SMALL_SHARE),
    }

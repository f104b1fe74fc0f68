"""What is paid once a job: times (compile, autotune, staging) or shares of a job as it is (layers of a stack).

Shares: Lu et al., "DLoBD: A comprehensive study of deep learning over big data stacks", IEEE TMSCS 4(4), 2018.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from fomkit.errors import FomkitError
from fomkit.hardware import Fact, Machine, Overhead
from fomkit.parallel.amortise import SMALL_SHARE, amortised_share, times_for_share
from fomkit.quantities import UNITS, parse_quantity

LONGER = (1, 10, 100)
STATED = "stated by the user"


@dataclass(frozen=True)
class Once:
    """One thing that is paid once a job: its time [s], or its share of the time of a job as it is."""

    name: str
    time_s: float | None = None
    share: float | None = None


def _read(name: str, amount: str, where: str) -> Once:
    unit = amount.lstrip("0123456789.eE+- ")
    if not unit:
        raise FomkitError(
            where, f"{amount!r} has no unit. Write a time, such as {name}=40s, or a share, such as {name}=15.5%."
        )
    if unit in UNITS["share"]:
        return Once(name, share=parse_quantity(amount, "share", where, name))
    return Once(name, time_s=parse_quantity(amount, "time_s", where, name))


def parse_once(texts: Sequence[str]) -> tuple[Once, ...]:
    """Read what is paid once a job, such as ``scheduler=15.5 %`` or ``compile=40 s``.

    Raises
    ------
    FomkitError
        When one has no name, or neither share nor time, or the shares together leave no time.

    Examples
    --------
    >>> parse_once(["scheduler=15.5 %", "compile=40 s"])
    (Once(name='scheduler', time_s=None, share=0.155), Once(name='compile', time_s=40.0, share=None))
    """
    found: dict[str, Once] = {}
    for text in texts:
        where = f"--once {text!r}"
        name, equals, amount = (part.strip() for part in text.partition("="))
        if not name or not equals or name in found:
            raise FomkitError(
                where,
                "is no new name with a share or a time. Write, for example, --once 'scheduler=15.5 %' or "
                "--once 'compile=40 s'.",
            )
        found[name] = _read(name, amount, where)
    shares = sum(shares_of(tuple(found.values())).values())
    if shares >= 1:
        raise FomkitError(
            "--once",
            f"adds up to {shares:.0%} of the job. Leave time for its work; a time has a unit, such as 40 s.",
        )
    return tuple(found.values())


def shares_of(paid: Sequence[Once]) -> dict[str, float]:
    """Give those that are shares of a job as it is, by name."""
    return {one.name: one.share for one in paid if one.share is not None}


def times_of(paid: Sequence[Once]) -> tuple[Once, ...]:
    """Give those that are times."""
    return tuple(one for one in paid if one.time_s is not None)


def with_once(machine: Machine, paid: Sequence[Once], job_over_epochs: float = 1.0) -> Machine:
    """Give the machine with what is paid once as overheads of a run; a share of a job becomes one of its epochs.

    Parameters
    ----------
    machine : Machine
    paid : sequence of Once
    job_over_epochs : float
        Time of a job without these shares over that of its epochs alone: above 1 where times are paid once too.

    Raises
    ------
    FomkitError
        When the machine's profile states an overhead of that name already.

    Examples
    --------
    >>> from fomkit.hardware import Device
    >>> import pandas as pd
    >>> machine = Machine("mine", "", "published", Device(), pd.DataFrame())
    >>> with_once(machine, parse_once(["scheduler=20 %"])).overheads[0].share.value
    0.25
    """
    known = {one.name for one in machine.overheads if one.per == "run"}
    rest = 1 - sum(shares_of(paid).values())
    added = []
    for one in paid:
        if one.name in known:
            raise FomkitError(
                f"--once {one.name}", f"is stated by {machine.name} already. Leave it out, or give another name."
            )
        time, share = (
            None if value is None else Fact(value, value, value, "assumed", STATED)
            for value in (one.time_s, None if one.share is None else one.share / rest * job_over_epochs)
        )
        added.append(Overhead(one.name, "run", time, share))
    return replace(machine, overheads=(*machine.overheads, *added))


def stack_content(paid: Sequence[Once]) -> dict[str, Any] | None:
    """Give what layers take of longer jobs, how many times as long makes them 1 %, and times; None without any."""
    if not paid:
        return None
    by_name = shares_of(paid)
    shares = list(by_name.values())
    return {
        "layers": [{"name": name, "once_share": share} for name, share in by_name.items()],
        "longer": [{"times": times, "once_share": amortised_share(shares, times)} for times in LONGER if shares],
        "times_for_one_percent": times_for_share(shares, SMALL_SHARE) if shares else None,
        "in_each_run": [{"name": one.name, "once_s": one.time_s} for one in times_of(paid)],
    }

"""How long a training must be for what is paid once to be 1 % of it: in runs like this one, epochs, steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fomkit.hardware import Overhead
from fomkit.parallel.amortise import SMALL_SHARE, times_for_share, work_for_share
from fomkit.rollup.overheads import overhead_span
from fomkit.spans import Span, add_common, add_known, divide_independent
from fomkit.study.content import span_content
from fomkit.study.estimate import Estimate
from fomkit.study.stack import Once, shares_of


class Lengths(NamedTuple):
    """Work beside which something is 1 %: in runs as long as this one, in epochs, in steps; None where unknown."""

    times: Span | None = None
    epochs: Span | None = None
    steps: Span | None = None


@dataclass(frozen=True)
class OneOff:
    """One thing that is paid once a run.

    Attributes
    ----------
    time_s : Span
    share : float or None
        Of the run as it is; None where nobody says what a run is.
    lengths : Lengths
        None each where it grows with the run, so that none helps, or that of a run or an epoch is unknown.
    grows : bool
        True for a machine's overhead that is a share of the run's epochs.
    """

    name: str
    time_s: Span
    source: str
    share: float | None
    lengths: Lengths
    grows: bool = False


def _beside(time_s: Span, work_s: Span | None) -> Span | None:
    if work_s is None or not work_s.value:
        return None
    if not time_s.low:  # what may take nothing needs no length; its upper end still does
        most = work_for_share(time_s).high / work_s.low
        return Span(work_for_share(time_s).value / work_s.value, 0.0, most, time_s.level)
    return divide_independent(work_for_share(time_s), work_s)


def _of_time(one: Estimate, stated: Overhead, work_s: Span | None) -> OneOff:
    """Take one that is stated as a time, whose error knows nothing of that of the work."""
    time_s = overhead_span(stated, one.step)
    run_s = one.run_time.run_s
    return OneOff(
        stated.name,
        time_s,
        stated.time_s.source if stated.time_s else "",
        time_s.value / run_s.value if run_s else None,
        Lengths(*(_beside(time_s, length) for length in (work_s, one.run_time.epoch_s, one.step))),
    )


def _of_share(one: Estimate, stated: Overhead, work_s: Span, fixed: bool) -> OneOff:
    """Take one that is a share: of a job as it is, which fixes it, or of the run's epochs, with which it grows."""
    time_s, run_s, fact = overhead_span(stated, work_s), one.run_time.run_s, stated.share
    of_run = time_s.value / run_s.value if run_s else None
    source, share = (fact.source, fact.value) if fact else ("", 0.0)
    if not fixed:
        return OneOff(stated.name, time_s, source, of_run, Lengths(), grows=True)
    times = times_for_share([share / (1 + share)], SMALL_SHARE)
    epochs = times * float(one.model.run.epochs or 0)
    steps = epochs * float(one.run_time.steps_per_epoch or 0)
    lengths = Lengths(*(Span.exact(each, time_s.level) for each in (times, epochs, steps)))
    return OneOff(stated.name, time_s, source, of_run, lengths)


def one_offs(one: Estimate, paid: Sequence[Once]) -> tuple[OneOff, ...]:
    """Give each overhead of a run with the length that makes it 1 %.

    Parameters
    ----------
    one : Estimate
        On a machine with all overheads (`fomkit.study.stack.with_once`).
    paid : sequence of Once
        Those of them that the user stated.

    Notes
    -----
    A share is left out where nobody says what a run is: it is a share of nothing known.
    """
    epoch_s, epochs = one.run_time.epoch_s, one.model.run.epochs
    work_s = epoch_s.scaled(epochs) if epoch_s is not None and epochs is not None else None
    fixed, found = shares_of(paid), []
    for stated in one.machine.overheads:
        if stated.per != "run":
            continue
        if stated.time_s is not None:
            found.append(_of_time(one, stated, work_s))
        elif work_s is not None:
            found.append(_of_share(one, stated, work_s, stated.name in fixed))
    return tuple(found)


def _row(one: OneOff) -> dict[str, Any]:
    return {
        "once_s": span_content(one.time_s),
        "once_share": one.share,
        "times_for_one_percent": span_content(one.lengths.times),
        "epochs_for_one_percent": span_content(one.lengths.epochs),
        "steps_for_one_percent": span_content(one.lengths.steps),
    }


def one_off_content(found: Sequence[OneOff]) -> dict[str, Any]:
    """Put what is paid once in the form of the block ``once``: each beside the work alone, and all together.

    Lengths add up: beside twice the work two equal terms are together what one is beside it.
    """
    fixed = [one for one in found if not one.grows]
    together = None
    if len(fixed) > 1:
        shares = [one.share for one in fixed if one.share is not None]
        together = _row(
            OneOff(
                "together",
                add_common([one.time_s for one in fixed]),
                "",
                sum(shares) if len(shares) == len(fixed) else None,
                Lengths(*(add_known(each) for each in zip(*(one.lengths for one in fixed), strict=True))),
            )
        )
    return {
        "terms": [{"name": one.name, **_row(one), "grows": one.grows, "source": one.source} for one in found],
        "together": together,
    }

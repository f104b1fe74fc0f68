"""One-off costs of a job, as times or shares, the length of training that makes them 1 %, and inference estimates.

Shares: Lu et al., "DLoBD: A comprehensive study of deep learning over big data stacks", IEEE TMSCS 4(4), 2018.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypedDict

from fomkit.core.errors import FomkitError
from fomkit.core.interval import Span, add_common, add_known, divide
from fomkit.core.machine import Fact, Machine, Overhead
from fomkit.core.model import Data
from fomkit.core.units import UNITS, parse_quantity
from fomkit.plan.content import Ends, as_content
from fomkit.plan.coverage import coverage, shares_with_wait
from fomkit.plan.estimate import Detail, Estimate
from fomkit.plan.memory_of import UNKNOWN_FIT
from fomkit.plan.options import overhead_span
from fomkit.plan.run import eager_step, rate_per_day, roll_up_run
from fomkit.plan.step import INPUT, roll_up_step, step_rows

LONGER = (1, 10, 100)
STATED = "stated by the user"
SMALL_SHARE = 0.01
"""Share of a job below which a one-off cost hardly counts."""


def amortised_share(shares: Sequence[float], times_longer: float) -> float:
    """Return the one-off shares of a job's time once the job's own work is `times_longer` times as long.

    >>> round(amortised_share([0.155, 0.181], 10), 3)
    0.048
    """
    once = sum(shares)
    return once / (once + (1 - once) * times_longer)


def times_for_share(shares: Sequence[float], share: float) -> float:
    """Return how many times as long the work must be for one-off overheads to be a given share.

    >>> round(times_for_share([0.155, 0.181], 0.048165), 2)
    10.0
    """
    once = sum(shares)
    return once * (1 - share) / (share * (1 - once))


def work_for_share(once_s: Span) -> Span:
    """Return the time of work [s] for which a one-off time is `SMALL_SHARE` of the job.

    >>> round(work_for_share(Span.exact(40.0)).value, 9)
    3960.0
    """
    return once_s.scaled((1 - SMALL_SHARE) / SMALL_SHARE)


@dataclass(frozen=True)
class Once:
    """A one-off cost of a job: its time [s], or its share of the time of the original job."""

    name: str
    time_s: float | None = None
    share: float | None = None


def parse_once(texts: Sequence[str]) -> tuple[Once, ...]:
    """Parse one-off costs of a job, such as ``scheduler=15.5 %`` or ``compile=40 s``.

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
                "is not a new name with a share or a time. Write, for example, --once 'scheduler=15.5 %' or "
                "--once 'compile=40 s'.",
            )
        unit = amount.lstrip("0123456789.eE+- ")
        if not unit:
            do = f"Write a time, such as {name}=40s, or a share, such as {name}=15.5%."
            raise FomkitError(where, f"{amount!r} has no unit. {do}")
        if unit in UNITS["share"]:
            found[name] = Once(name, share=parse_quantity(amount, "share", where, name))
        else:
            found[name] = Once(name, time_s=parse_quantity(amount, "time_s", where, name))
    shares = sum(shares_of(tuple(found.values())).values())
    if shares >= 1:
        raise FomkitError(
            "--once",
            f"adds up to {shares:.0%} of the job. Leave time for its work; a time has a unit, such as 40 s.",
        )
    return tuple(found.values())


def shares_of(paid: Sequence[Once]) -> dict[str, float]:
    """Return the costs that are shares of the original job, by name."""
    return {one.name: one.share for one in paid if one.share is not None}


def times_of(paid: Sequence[Once]) -> tuple[Once, ...]:
    """Return the costs that are times."""
    return tuple(one for one in paid if one.time_s is not None)


def with_once(machine: Machine, paid: Sequence[Once], job_over_epochs: float = 1.0) -> Machine:
    """Return the machine with one-off costs as overheads of a run; shares of a job become shares of its epochs.

    `job_over_epochs`: time of a job without these shares over that of its epochs alone: over 1 with one-off times.

    >>> from fomkit.core.machine import Device
    >>> import pandas as pd
    >>> machine = Machine("mine", "", "published", Device(), pd.DataFrame())
    >>> with_once(machine, parse_once(["scheduler=20 %"])).overheads[0].share.value
    0.25
    """
    known = {overhead.name for overhead in machine.overheads if overhead.per == "run"}
    rest = 1 - sum(shares_of(paid).values())
    added = []
    for one in paid:
        if one.name in known:
            raise FomkitError(
                f"--once {one.name}", f"is stated by {machine.name} already. Leave it out, or give another name."
            )
        time, share = (
            None if value is None else Fact.exact(value, "assumed", STATED)
            for value in (one.time_s, None if one.share is None else one.share / rest * job_over_epochs)
        )
        added.append(Overhead(one.name, "run", time, share))
    return replace(machine, overheads=(*machine.overheads, *added))


Layer = TypedDict("Layer", {"name": str, "once_share": float})
Longer = TypedDict("Longer", {"times": int, "once_share": float})
InEach = TypedDict("InEach", {"name": str, "once_s": float | None})
Stack = TypedDict("Stack", {"layers": list[Layer], "longer": list[Longer], "times_for_one_percent": float | None,
                            "in_each_run": list[InEach]})  # fmt: skip


def stack_content(paid: Sequence[Once]) -> Stack | None:
    """Return the shares in longer jobs, the length that makes them 1 %, and one-off times; None without costs."""
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


class Lengths(NamedTuple):
    """Work for which a cost is 1 %: in runs as long as the given one, in epochs, in steps; None where unknown."""

    times: Span | None = None
    epochs: Span | None = None
    steps: Span | None = None


@dataclass(frozen=True)
class OneOff:
    """A one-off cost of a run, with the length that makes it 1 %.

    `share`: of the given run; None where the profile defines no run.
    `lengths`: each None where the cost grows with the run, so that no length helps, or where the length of a run
    or an epoch is unknown.
    `grows`: true for a machine's overhead that is a share of the run's epochs.
    """

    name: str
    time_s: Span
    source: str
    share: float | None
    lengths: Lengths
    grows: bool = False


def _length_for(time_s: Span, work_s: Span | None) -> Span | None:
    if work_s is None or not work_s.value:
        return None
    if not time_s.low:  # a cost that may be 0 needs no length; its upper bound still does
        most = work_for_share(time_s).high / work_s.low
        return Span(work_for_share(time_s).value / work_s.value, 0.0, most, time_s.level)
    return divide(work_for_share(time_s), work_s)


def _of_time(estimate: Estimate, stated: Overhead, work_s: Span | None) -> OneOff:
    """Make the cost of an overhead that is stated as a time; its error is independent of that of the work."""
    time_s = overhead_span(stated, estimate.step)
    run_s = estimate.run_time.run_s
    lengths = (_length_for(time_s, length) for length in (work_s, estimate.run_time.epoch_s, estimate.step))
    source, share = stated.time_s.source if stated.time_s else "", time_s.value / run_s.value if run_s else None
    return OneOff(stated.name, time_s, source, share, Lengths(*lengths))


def _of_share(estimate: Estimate, stated: Overhead, work_s: Span, fixed: bool) -> OneOff:
    """Make the cost of an overhead that is a share: of the given job (fixed), or of the run's epochs (grows)."""
    time_s, run_s, fact = overhead_span(stated, work_s), estimate.run_time.run_s, stated.share
    of_run = time_s.value / run_s.value if run_s else None
    source, share = (fact.source, fact.value) if fact else ("", 0.0)
    if not fixed:
        return OneOff(stated.name, time_s, source, of_run, Lengths(), grows=True)
    times = times_for_share([share / (1 + share)], SMALL_SHARE)
    epochs = times * float(estimate.model.run.epochs or 0)
    steps = epochs * float(estimate.run_time.steps_per_epoch or 0)
    lengths = Lengths(*(Span.exact(each, time_s.level) for each in (times, epochs, steps)))
    return OneOff(stated.name, time_s, source, of_run, lengths)


def one_offs(estimate: Estimate, paid: Sequence[Once]) -> tuple[OneOff, ...]:
    """Return each overhead of a run with the length that makes it 1 %; shares only where a run is defined."""
    epoch_s, epochs = estimate.run_time.epoch_s, estimate.model.run.epochs
    work_s = epoch_s.scaled(epochs) if epoch_s is not None and epochs is not None else None
    fixed, found = shares_of(paid), []
    for stated in estimate.machine.overheads:
        if stated.per != "run":
            continue
        if stated.time_s is not None:
            found.append(_of_time(estimate, stated, work_s))
        elif work_s is not None:
            found.append(_of_share(estimate, stated, work_s, stated.name in fixed))
    return tuple(found)


Paid = TypedDict("Paid", {
    "once_s": Ends, "once_share": float | None, "times_for_one_percent": Ends | None,
    "epochs_for_one_percent": Ends | None, "steps_for_one_percent": Ends | None,
})  # fmt: skip
Term = TypedDict("Term", {
    "name": str, "once_s": Ends, "once_share": float | None, "times_for_one_percent": Ends | None,
    "epochs_for_one_percent": Ends | None, "steps_for_one_percent": Ends | None, "grows": bool, "source": str,
})  # fmt: skip
PaidOnce = TypedDict("PaidOnce", {"terms": list[Term], "together": Paid | None})


def _row(off: OneOff) -> Paid:
    lengths = {f"{what}_for_one_percent": length for what, length in off.lengths._asdict().items()}
    return as_content(Paid, lengths, once_s=off.time_s, once_share=off.share)


def one_off_content(found: Sequence[OneOff]) -> PaidOnce:
    """Return the block ``once`` of one-off costs: each beside the work alone, and all together.

    Lengths add up: with twice the work, two equal costs are together the same share as one cost is with the work.
    """
    fixed = [one for one in found if not one.grows]
    together = None
    if len(fixed) > 1:
        shares = [one.share for one in fixed if one.share is not None]
        share = sum(shares) if len(shares) == len(fixed) else None
        lengths = Lengths(*(add_known(each) for each in zip(*(one.lengths for one in fixed), strict=True)))
        together = _row(OneOff("together", add_common([one.time_s for one in fixed]), "", share, lengths))
    return {"terms": [as_content(Term, _row(one), one) for one in found], "together": together}


FORWARD = "forward"
OF_TRAINING = "the forward pass of a training step: it includes dropout and batch statistics"


def inference_of(estimate: Estimate, samples: int | None = None) -> Estimate:
    """Reduce an estimate, of training or inference, to its forward pass; without ``samples`` it has no run."""
    ops = estimate.ops[estimate.ops["pass_name"].isin([FORWARD])]
    if not len(ops):
        raise FomkitError(estimate.model.name, "has no forward pass, so its inference is unknown.")
    # Overheads of an epoch (a checkpoint) and the input pipeline of a training batch are no part of inference.
    training = [(INPUT, "step"), *((each.name, "epoch") for each in estimate.machine.overheads)]
    other_overheads = tuple(each for each in estimate.machine.overheads if (each.name, each.per) not in training)
    machine = replace(estimate.machine, overheads=other_overheads)
    model = replace(estimate.model, data=Data(samples, 0, "keep"), run=replace(estimate.model.run, epochs=1))
    work = f"inference of {model.name}, {estimate.sizes}"
    rows = step_rows(ops, estimate.model)
    alone = roll_up_step(rows, machine, estimate.step.level, work=work)
    step = eager_step(alone, rows.started, estimate.model, machine)
    run = roll_up_run(model, machine, step, estimate.sizes.get("batch"), "keep")
    covered = shares_with_wait(coverage(ops), step.device_s.value, step.late_s, machine)
    trained = estimate.model.traced_with.get("mode") != "infer"
    deviations = (*estimate.model.caveats, *((OF_TRAINING,) if trained else ()))
    return replace(
        estimate,
        model=model,
        machine=machine,
        step_time=step,
        run_time=run,
        unit_per_day=rate_per_day(model, machine, run, estimate.scope, estimate.runs_at_once),
        detail=Detail(estimate.fitted, lambda: ops, lambda: covered, lambda: UNKNOWN_FIT, lambda: deviations),
    )

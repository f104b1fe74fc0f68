"""What a training and its inference cost: time paid once, money, carbon, and all of it to a target accuracy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fomkit.errors import FomkitError
from fomkit.fom.money import money_of_run
from fomkit.hardware import Machine, Price
from fomkit.rollup.to_target import time_to_target
from fomkit.shown import Shown
from fomkit.spans import Span
from fomkit.study.estimate import Estimate, estimate
from fomkit.study.footprint import Grid, check_grid
from fomkit.study.inference import FORWARD, inference_of
from fomkit.study.one_off import OneOff, one_offs
from fomkit.study.options import Options, choose_scope
from fomkit.study.stack import Once, shares_of, times_of, with_once
from fomkit.workload import EpochsToTarget, ModelProfile


@dataclass(frozen=True)
class Declared:
    """What a user declares besides model, machine and options.

    Attributes
    ----------
    price : Price or None
        None takes the machine's own, where its profile states one.
    once : sequence of Once
        What is paid once a run, besides the machine's own overheads.
    grid : Grid
    epochs : EpochsToTarget or None
        How many epochs a target needs, by batch.
    infer_batch : int or None
        Samples of one inference; None takes the training's.
    claimed : mapping
        Speed-ups over the baseline that others claim, by what gives them.
    """

    price: Price | None = None
    once: Sequence[Once] = ()
    grid: Grid = field(default_factory=Grid)
    epochs: EpochsToTarget | None = None
    infer_batch: int | None = None
    claimed: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class ToTarget:
    """A training until a target is reached: its epochs, its time [s] with what is paid once, its money."""

    curve: EpochsToTarget
    epochs: Span
    time_s: Span
    money: Span | None


@dataclass(frozen=True)
class Cost(Shown):
    """What one model costs on one machine.

    Attributes
    ----------
    estimate : Estimate
        On the machine with what is paid once.
    inference : Estimate or None
        Its forward pass; None where it has none.
    price : Price or None
    run_money, inference_money : Span or None
        Of one run, and of one batch of inference, in the price's currency.
    """

    estimate: Estimate
    inference: Estimate | None
    baseline: Estimate | None
    declared: Declared
    price: Price | None
    once: tuple[OneOff, ...]
    run_money: Span | None
    inference_money: Span | None
    to_target: ToTarget | None

    @property
    def content(self) -> dict[str, Any]:
        """``fomkit/cost/1``."""
        return self._view.content(self)

    def summary(self) -> str:
        """Write it as the text that the command line prints."""
        return self._view.text(self)


def _to_target(one: Estimate, declared: Declared, price: Price | None) -> ToTarget | None:
    if declared.epochs is None:
        return None
    batch, epoch_s = one.sizes.get("batch"), one.run_time.epoch_s
    if batch is None or epoch_s is None:
        raise FomkitError(
            one.model.name,
            "does not say its batch or the samples of an epoch, so epochs have no time. State both.",
        )
    epochs, time_s = time_to_target(declared.epochs, batch, epoch_s, one.machine)
    return ToTarget(declared.epochs, epochs, time_s, _money(one, price, time_s))


def _money(one: Estimate, price: Price | None, time_s: Span | None) -> Span | None:
    if price is None or time_s is None or not time_s.value:
        return None
    return money_of_run(price, one.machine, one.scope, one.runs_at_once, time_s)


def _inference(one: Estimate, options: Options, batch: int | None) -> Estimate | None:
    """Estimate inference at its own batch, where the step has a forward pass."""
    if batch is None and not one.ops["pass_name"].isin([FORWARD]).any():
        return None  # where a batch is asked for, the reason is told below
    if batch in (None, one.sizes.get("batch")):
        return inference_of(one)
    sizes = {name: size for name, size in options.sizes.items() if name != "batch"}
    return inference_of(estimate(one.model, one.machine, replace(options, batch=batch, sizes=sizes)))


def _with_paid_once(model: ModelProfile, machine: Machine, options: Options, paid: Sequence[Once]) -> Estimate:
    """Estimate with times that are paid once, then with shares of the job that this makes."""
    one = estimate(model, with_once(machine, times_of(paid)), options)
    if not one.step.value:
        raise FomkitError(f"{model.name} on {machine.name}", "nothing of its step has a time, so it has no cost.")
    shares, run_s, epoch_s = shares_of(paid), one.run_time.run_s, one.run_time.epoch_s
    if not shares:
        return one
    if run_s is None or epoch_s is None or model.run.epochs is None:
        raise FomkitError(
            f"--once {next(iter(shares))}",
            f"is a share of a job, and {model.name} does not say what a run is. Give a time, such as '40 s'.",
        )
    job_over_epochs = run_s.value / (epoch_s.value * model.run.epochs)
    return estimate(model, with_once(machine, paid, job_over_epochs), options)


def cost(
    model: ModelProfile,
    machine: Machine,
    options: Options,
    declared: Declared,
    baseline: Machine | None = None,
) -> Cost:
    """Work out what a model costs on a machine.

    Raises
    ------
    FomkitError
        As `fomkit.study.estimate` does, and when something declared cannot be used: a curve that does not cover
        the batch, a factor of carbon without a grid, claims without a baseline.
    """
    check_grid(declared.grid)
    if declared.claimed and baseline is None:
        raise FomkitError(
            "--claimed", "is a product of speed-ups, shown only beside the modelled one. Add --baseline MACHINE."
        )
    if baseline is not None and baseline.name == machine.name:
        raise FomkitError(
            machine.name, "is the baseline and the target. Its ratio to itself is 1; name another one."
        )
    options = replace(options, scope=choose_scope([machine, *([baseline] if baseline else [])], options.scope))
    one = _with_paid_once(model, machine, options, declared.once)
    infer, price = _inference(one, options, declared.infer_batch), declared.price or machine.price
    return Cost(
        estimate=one,
        inference=infer,
        baseline=estimate(model, baseline, options) if baseline else None,
        declared=declared,
        price=price,
        once=one_offs(one, declared.once),
        run_money=_money(one, price, one.run_time.run_s),
        inference_money=_money(infer, price, infer.step) if infer else None,
        to_target=_to_target(one, declared, price),
    )

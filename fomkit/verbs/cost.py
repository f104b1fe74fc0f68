"""The cost of a training and its inference: one-off times, money, carbon, up to a target (``fomkit/cost/1``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NotRequired, TypedDict

from fomkit import __version__
from fomkit.core.errors import FomkitError, Shown
from fomkit.core.interval import Span
from fomkit.core.machine import Machine, Price
from fomkit.core.model import EpochsToTarget, ModelProfile
from fomkit.core.units import agree, count_text
from fomkit.merit import one_off_costs
from fomkit.merit.campaign import combine, money_of_run, paid_units
from fomkit.merit.footprint import Carbon, Grid, carbon_content, check_grid
from fomkit.merit.one_off_costs import OneOff
from fomkit.plan.content import (
    Condition,
    Ends,
    OfJob,
    Priced,
    as_content,
    conditions_content,
    estimate_content,
    price_content,
)  # fmt: skip
from fomkit.plan.energy import energy_of_estimate
from fomkit.plan.estimate import Estimate, estimate
from fomkit.plan.options import Options
from fomkit.plan.run import time_to_target
from fomkit.profiles.campaigns import load_epochs
from fomkit.profiles.declared import parse_claims, parse_grid, parse_price
from fomkit.verbs.compare import AS_PROFILED, Placement


@dataclass(frozen=True)
class Declared:
    """What a user states besides model, machine and options.

    `price`: None for the price in the machine's profile, if there is one.
    `once`: costs paid once a run, besides the machine's own overheads.
    `infer_batch`: samples of one inference; None for the batch of the training.
    `claimed`: speed-ups over the baseline that others claim, by the name of their cause.
    """

    price: Price | None = None
    once: Sequence[one_off_costs.Once] = ()
    grid: Grid = field(default_factory=Grid)
    epochs: EpochsToTarget | None = None
    infer_batch: int | None = None
    claimed: Mapping[str, float] = field(default_factory=dict)


def read_declared(
    price: str | None, once: Sequence[str] | Mapping[str, str], to_accuracy: str | Path | None,
    infer_batch: int | None, grid: tuple[str | None, str | None, str | None], claimed: Sequence[str],
) -> Declared:  # fmt: skip
    """Parse the stated price, one-off costs, target, energy (carbon, factor to the wall, PUE) and claims."""
    paid = [f"{name}={amount}" for name, amount in once.items()] if isinstance(once, Mapping) else list(once)
    return Declared(
        parse_price(price) if price is not None else None, one_off_costs.parse_once(paid), parse_grid(*grid),
        load_epochs(Path(to_accuracy)) if to_accuracy is not None else None, infer_batch, parse_claims(claimed),
    )  # fmt: skip


@dataclass(frozen=True)
class ToTarget:
    """A training until it reaches a target: epochs, time [s] including one-off times, and money."""

    curve: EpochsToTarget
    epochs: Span
    time_s: Span
    money: Span | None


@dataclass(frozen=True, repr=False)
class Cost(Shown):
    """The cost of one model on one machine.

    `estimate`: the training, including one-off times.
    `inference`: the forward pass; None where there is none.
    `run_money`, `inference_money`: for one run, and for one batch of inference, in the price's currency.
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
    def content(self) -> CostContent:
        """``fomkit/cost/1``."""
        energy, carbon = _energy_and_carbon(self)
        return as_content(
            CostContent, estimate_content(self.estimate), schema=SCHEMA, fomkit=__version__,
            interval=self.estimate.step.level, once=one_off_costs.one_off_content(self.once),
            money=_money_content(self), inference=_inference_content(self), energy_j=energy, carbon=carbon,
            to_target=_to_target_content(self), speedup=_speedup(self),
        )  # fmt: skip


def _cost_to_target(estimated: Estimate, declared: Declared, price: Price | None) -> ToTarget | None:
    if declared.epochs is None:
        return None
    batch, epoch_s = estimated.sizes.get("batch"), estimated.run_time.epoch_s
    if batch is None or epoch_s is None:
        what = "does not state its batch or the samples of an epoch, so epochs have no time. State both."
        raise FomkitError(estimated.model.name, what)
    epochs, time_s = time_to_target(declared.epochs, batch, epoch_s, estimated.machine)
    return ToTarget(declared.epochs, epochs, time_s, _money(estimated, price, time_s))


def _money(estimated: Estimate, price: Price | None, time_s: Span | None) -> Span | None:
    if price is None or time_s is None or not time_s.value:
        return None
    return money_of_run(price, estimated.machine, estimated.scope, estimated.runs_at_once, time_s)


def _inference_estimate(estimated: Estimate, options: Options, batch: int | None) -> Estimate | None:
    """Estimate inference at its own batch, where the step has a forward pass.

    On several devices a step without gradients is its own inference; that of a training is unknown.
    """
    if estimated.job is not None:
        if batch is not None:
            raise FomkitError("infer_batch", "is for inference, which is priced on one device. Leave `nodes` out.")
        return estimated if estimated.model.traced_with.get("mode") == "infer" else None
    if batch is None and not estimated.ops["pass_name"].isin([one_off_costs.FORWARD]).any():
        return None  # where a batch is requested, the code below raises the reason
    if batch in (None, estimated.sizes.get("batch")):
        return one_off_costs.inference_of(estimated)
    sizes = {name: size for name, size in options.sizes.items() if name != "batch"}
    return one_off_costs.inference_of(
        estimate(estimated.model, estimated.machine, replace(options, batch=batch, sizes=sizes))
    )


def _estimate_with_once(
    model: ModelProfile,
    machine: Machine,
    options: Options,
    paid: Sequence[one_off_costs.Once],
    placement: Placement,
) -> Estimate:
    """Estimate with the one-off times first, then again with the shares, which depend on the job's time."""
    one = placement.estimate(model, one_off_costs.with_once(machine, one_off_costs.times_of(paid)), options)
    if not one.step.value:
        raise FomkitError(f"{model.name} on {machine.name}", "nothing of its step has a time, so it has no cost.")
    shares, run_s, epoch_s = one_off_costs.shares_of(paid), one.run_time.run_s, one.run_time.epoch_s
    if not shares:
        return one
    if run_s is None or epoch_s is None or model.run.epochs is None:
        what = f"is a share of a job, and {model.name} does not define a run. Give a time, such as '40 s'."
        raise FomkitError(f"--once {next(iter(shares))}", what)
    job_over_epochs = run_s.value / (epoch_s.value * model.run.epochs)
    return placement.estimate(model, one_off_costs.with_once(machine, paid, job_over_epochs), options)


def check_costed(machine: Machine, declared: Declared, baseline: Machine | None) -> None:
    """Raise where what is stated cannot be used together, which is known without the model."""
    check_grid(declared.grid)
    if declared.claimed and baseline is None:
        raise FomkitError(
            "claimed", "is a product of speed-ups, shown only beside the modelled one. Add `baseline`."
        )
    if baseline is not None and baseline.name == machine.name:
        raise FomkitError(
            machine.name, "is the baseline and the target. Its ratio to itself is 1; name another machine."
        )


def cost(
    model: ModelProfile, machine: Machine, options: Options, declared: Declared, baseline: Machine | None = None,
    placement: Placement = AS_PROFILED,
) -> Cost:  # fmt: skip
    """Compute the cost of a model on a machine; ``placement``: how each run is placed on devices.

    Raises FomkitError as `fomkit.plan.estimate` does, and when a stated value cannot be used: a curve that does
    not cover the batch, a carbon factor without a grid, claims without a baseline.
    """
    check_costed(machine, declared, baseline)
    machines = [placement.on(one) for one in (machine, *([baseline] if baseline else []))]
    options = replace(options, scope=placement.scope([model], machines, options.scope))
    one = _estimate_with_once(model, machines[0], options, declared.once, placement)
    infer, price = _inference_estimate(one, options, declared.infer_batch), declared.price or machine.price
    return Cost(
        estimate=one,
        inference=infer,
        baseline=placement.estimate(model, machines[1], options) if baseline else None,
        declared=declared,
        price=price,
        once=one_off_costs.one_offs(one, declared.once),
        run_money=_money(one, price, one.run_time.run_s),
        inference_money=_money(infer, price, infer.step) if infer else None,
        to_target=_cost_to_target(one, declared, price),
    )


SCHEMA = "fomkit/cost/1"
MILLION = 1e6
NAIVE = "product of claims, as if the gains were independent; not an estimate"
Paying = TypedDict("Paying", {"price": Priced, "currency": str, "paid_units": float, "run": Ends | None,
                              "unit": Ends | None, "notes": list[str]})  # fmt: skip
Inferring = TypedDict("Inferring", {
    "batch": int | None, "latency_s": Ends, "sample_per_s": Ends | None, "money_per_million": Ends | None,
    "bound": str, "excludes": list[str], "deviations": list[str], "conditions": dict[str, Condition],
})  # fmt: skip
Spending = TypedDict("Spending", {
    "run": Ends | None, "unit": Ends | None, "scope": str | None, "basis": str | None, "run_at_most": float | None,
    "limit_w": float | None, "missing": list[str], "notes": list[str],
})  # fmt: skip
Reaching = TypedDict("Reaching", {
    "metric": str, "target": float, "covers": list[int], "source": str, "epochs": Ends, "to_target_s": Ends,
    "money": Ends | None, "notes": list[str],
})  # fmt: skip
Speedup = TypedDict("Speedup", {"baseline": str, "of": str, "modelled": Ends,
                                "excludes_alone": dict[str, list[str]], "claimed": dict[str, float],
                                "naive_product": float | None, "naive": str})  # fmt: skip
CostContent = TypedDict("CostContent", {
    "schema": str, "fomkit": str, "interval": float, "model": str, "target": str, "batch": int | None,
    "sizes": dict[str, int], "precision": str, "scope": str, "runs_at_once": int, "unit": str, "step_s": Ends,
    "epoch_s": Ends | None, "run_s": Ends | None, "unit_per_day": Ends | None, "coverage": dict[str, float],
    "fits": bool | None, "excludes": list[str], "deviations": list[str], "conditions": dict[str, Condition],
    "job": NotRequired[OfJob | None], "once": one_off_costs.PaidOnce, "money": Paying | None,
    "inference": Inferring | None, "energy_j": Spending | None, "carbon": Carbon | None,
    "to_target": Reaching | None, "speedup": Speedup | None,
})  # fmt: skip


def _scaled(span: Span | None, factor: float) -> Span | None:
    return None if span is None else span.scaled(factor)


def _money_content(one: Cost) -> Paying | None:
    if one.price is None:
        return None
    machine, scope = one.estimate.machine, one.estimate.scope
    idle = (machine.node_devices or 1) - 1
    alone = one.price.per == "node" and scope == "device"
    are = agree(idle, "is idle; --scope node uses it/are idle; --scope node uses them")
    whole = f"the price is for whole nodes: {count_text(idle, 'device')} of a node {are}"
    notes = [whole] if alone and idle > 0 else []
    if alone and machine.node_devices is None:
        notes.append(f"the price is for whole nodes; {machine.name} does not state the devices of a node")
    if one.price.per_s.low == one.price.per_s.high:
        notes.append("the price has no spread: the interval is that of the time")
    return as_content(
        Paying, one.price, price=price_content(one.price), paid_units=paid_units(one.price, machine, scope),
        run=one.run_money, unit=_scaled(one.run_money, one.estimate.model.unit.runs), notes=notes,
    )  # fmt: skip


def _inference_content(one: Cost) -> Inferring | None:
    infer = one.inference
    if infer is None:
        return None
    batch, latency_s = infer.sizes.get("batch"), infer.step
    known = batch is not None and latency_s.value > 0
    return as_content(
        Inferring, infer, batch=batch, latency_s=latency_s, bound=infer.step_time.bound,
        sample_per_s=latency_s.per(float(batch or 0) * infer.runs_at_once) if known else None,
        money_per_million=_scaled(one.inference_money, MILLION / float(batch or 1)) if known else None,
        conditions=conditions_content(infer),
    )  # fmt: skip


def _energy_and_carbon(one: Cost) -> tuple[Spending | None, Carbon | None]:
    machine, found = one.estimate.machine, energy_of_estimate(one.estimate)
    spent = {name: getattr(found, name) if found else None for name in ("run", "unit")}
    energies = {name: each.energy_j if each else None for name, each in spent.items()}
    scope = found.method.scope if found and found.method else None
    missing = found.missing if found else (f"{machine.name} states no energy figures (docs/energy.md)",)
    if found and found.method and found.run is None:
        missing = (*missing, f"{one.estimate.model.name} does not define a run")
    most_run_j = found.most_run_j if found else None
    level = one.estimate.step.level
    carbon = carbon_content(energies, scope, missing, one.declared.grid, most_run_j, level)
    if found is None:
        return None, carbon
    basis = found.method.basis if found.method else None
    given = {"scope": scope, "basis": basis, "missing": missing, "run_at_most": most_run_j}
    return as_content(Spending, energies, found, **given), carbon


def _to_target_content(one: Cost) -> Reaching | None:
    found = one.to_target
    if found is None:
        return None
    curve = found.curve
    exact = all(span.low == span.high for span in curve.epochs.values())
    between = one.estimate.sizes.get("batch") not in curve.epochs
    notes = ["the curve has no spread: the interval is that of the time"] if exact else []
    if between:
        notes.append("the batch is between two batches of the curve: epochs are interpolated in logarithms")
    return as_content(Reaching, found, curve, to_target_s=found.time_s, notes=notes)


def _speedup(one: Cost) -> Speedup | None:
    if one.baseline is None:
        return None
    ratio = estimate_content(one.estimate, one.baseline)["ratio"]
    modelled = Span(ratio["value"], ratio["low"], ratio["high"], one.estimate.step.level)
    combined = combine(one.declared.claimed, modelled)
    naive = combined.naive if combined.claimed else None
    return as_content(Speedup, ratio, combined, naive_product=naive, naive=NAIVE)


def figures_of(content: CostContent) -> list[Mapping[str, object]]:
    """Return the figures of a cost as rows of name, unit, value and bounds; unknown figures have no row."""
    money, infer, carbon, target = content["money"], content["inference"], content["carbon"], content["to_target"]
    currency = money["currency"] if money else ""
    rows: list[tuple[str, str, Ends | None]] = [
        *((f"once {term['name']}", "s", term["once_s"]) for term in content["once"]["terms"]),
        *((f"epochs until {term['name']} is 1 %", "epochs", term["epochs_for_one_percent"])
          for term in content["once"]["terms"]),
        ("step", "s", content["step_s"]),
        ("epoch", "s", content["epoch_s"]),
        ("run", "s", content["run_s"]),
    ]  # fmt: skip
    if money:
        rows += [("run", currency, money["run"]), (content["unit"], currency, money["unit"])]
    if infer:
        rows += [("inference latency", "s", infer["latency_s"]), ("inference rate", "1/s", infer["sample_per_s"]),
                 ("a million samples of inference", currency, infer["money_per_million"])]  # fmt: skip
    if content["energy_j"]:
        rows.append((f"energy of a run, scope {content['energy_j']['scope']}", "J", content["energy_j"]["run"]))
    if carbon:
        rows.append(("carbon of a run", "kg", carbon["kg"]["run"]))
    if target:
        rows += [("epochs to the target", "epochs", target["epochs"]),
                 ("to the target", "s", target["to_target_s"]),
                 ("to the target", currency, target["money"])]  # fmt: skip
    return [
        {"model": content["model"], "target": content["target"], "figure": what, "unit": unit, **span}
        for what, unit, span in rows
        if span is not None
    ]

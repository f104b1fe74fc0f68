"""Cost as plain content (``fomkit/cost/1``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fomkit import __version__
from fomkit.fom.money import paid_units
from fomkit.fom.speedups import combine
from fomkit.spans import Span
from fomkit.study.content import curve_content, estimate_content, price_content, span_content
from fomkit.study.cost import Cost
from fomkit.study.energy_of import energy_of_estimate
from fomkit.study.footprint import carbon_content
from fomkit.study.one_off import one_off_content

SCHEMA = "fomkit/cost/1"
MILLION = 1e6
NAIVE = "product of claims as if none took from what another gains; no estimate"
KEPT = (
    "model", "target", "batch", "sizes", "precision", "scope", "runs_at_once", "unit", "step_s", "epoch_s",
    "run_s", "unit_per_day", "coverage", "fits", "excludes", "deviations",
)  # fmt: skip
"""Parts of an estimate's content that a cost rests on."""


def _scaled(span: Span | None, factor: float) -> dict[str, float] | None:
    return None if span is None else span_content(span.scaled(factor))


def _money(one: Cost) -> dict[str, Any] | None:
    if one.price is None:
        return None
    machine, scope = one.estimate.machine, one.estimate.scope
    idle = (machine.node_devices or 1) - 1
    alone = one.price.per == "node" and scope == "device"
    notes = (
        [f"a node is paid whole: {idle} of its devices run nothing; --scope node fills it"]
        if alone and idle > 0
        else []
    )
    if alone and machine.node_devices is None:
        notes.append(f"a node is paid whole; {machine.name} does not say how many devices it has")
    if one.price.per_s.low == one.price.per_s.high:
        notes.append("the price states no spread: the interval is that of the time")
    return {
        "price": price_content(one.price),
        "currency": one.price.currency,
        "paid_units": paid_units(one.price, machine, scope),
        "run": span_content(one.run_money),
        "unit": _scaled(one.run_money, one.estimate.model.unit.runs),
        "notes": notes,
    }


def _inference(one: Cost) -> dict[str, Any] | None:
    infer = one.inference
    if infer is None:
        return None
    batch, latency_s = infer.sizes.get("batch"), infer.step
    known = batch is not None and latency_s.value > 0
    return {
        "batch": batch,
        "latency_s": span_content(latency_s),
        "sample_per_s": span_content(latency_s.per(float(batch or 0) * infer.runs_at_once)) if known else None,
        "money_per_million": _scaled(one.inference_money, MILLION / float(batch or 1)) if known else None,
        "bound": infer.step_time.bound,
        "excludes": list(infer.excludes),
        "deviations": list(infer.deviations),
    }


def _energy_and_carbon(one: Cost) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    machine, found = one.estimate.machine, energy_of_estimate(one.estimate)
    spent = {name: getattr(found, name) if found else None for name in ("run", "unit")}
    energies = {name: each.energy_j if each else None for name, each in spent.items()}
    scope = found.method.scope if found and found.method else None
    missing = found.missing if found else (f"{machine.name} states nothing of energy (docs/energy.md)",)
    if found and found.method and found.run is None:
        missing = (*missing, f"{one.estimate.model.name} does not say what a run is")
    carbon = carbon_content(energies, scope, missing, one.declared.grid)
    if found is None:
        return None, carbon
    return {
        **{name: span_content(energy) for name, energy in energies.items()},
        "scope": scope,
        "basis": found.method.basis if found.method else None,
        "missing": list(missing),
        "notes": list(found.notes),
    }, carbon


def _to_target(one: Cost) -> dict[str, Any] | None:
    found = one.to_target
    if found is None:
        return None
    curve = found.curve
    exact = all(span.low == span.high for span in curve.epochs.values())
    between = one.estimate.sizes.get("batch") not in curve.epochs
    notes = ["the curve states no spread: the interval is that of the time"] if exact else []
    if between:
        notes.append("the batch lies between two of the curve: epochs by a straight line of their logarithms")
    return {
        **curve_content(curve),
        "epochs": span_content(found.epochs),
        "to_target_s": span_content(found.time_s),
        "money": span_content(found.money),
        "notes": notes,
    }


def _speedup(one: Cost) -> dict[str, Any] | None:
    if one.baseline is None:
        return None
    ratio = estimate_content(one.estimate, one.baseline)["ratio"]
    modelled = Span(ratio["value"], ratio["low"], ratio["high"], one.estimate.step.level)
    combined = combine(one.declared.claimed, modelled)
    return {
        "baseline": ratio["baseline"],
        "of": ratio["of"],
        "modelled": span_content(combined.modelled),
        "claimed": dict(combined.claimed),
        "naive_product": combined.naive if combined.claimed else None,
        "naive": NAIVE,
    }


def cost_content(one: Cost) -> dict[str, Any]:
    """Put a cost in the form of ``fomkit/cost/1``."""
    content = estimate_content(one.estimate)
    energy, carbon = _energy_and_carbon(one)
    return {
        "schema": SCHEMA,
        "fomkit": __version__,
        "interval": one.estimate.step.level,
        **{name: content[name] for name in KEPT},
        "once": one_off_content(one.once),
        "money": _money(one),
        "inference": _inference(one),
        "energy_j": energy,
        "carbon": carbon,
        "to_target": _to_target(one),
        "speedup": _speedup(one),
    }


def figures_of(content: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Give the figures of a cost as rows: what it is, its unit, value and ends; what is unknown has no row."""
    money, infer, carbon, target = (content[name] for name in ("money", "inference", "carbon", "to_target"))
    currency = money["currency"] if money else ""
    rows: list[tuple[str, str, dict[str, float] | None]] = [
        *((f"once {one['name']}", "s", one["once_s"]) for one in content["once"]["terms"]),
        *((f"epochs until {one['name']} is 1 %", "epochs", one["epochs_for_one_percent"])
          for one in content["once"]["terms"]),
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

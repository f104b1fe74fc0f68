"""A study as plain content (``fomkit/estimate/1``, ``fomkit/fom/1``): what JSON, terminal and page all show."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from typing import TYPE_CHECKING, Any

from fomkit import __version__
from fomkit.fom import FigureOfMerit
from fomkit.hardware import Fact, Machine, Price
from fomkit.quantities import UNITS
from fomkit.spans import Span, divide_independent
from fomkit.study.energy_of import energy_content
from fomkit.study.explained import Explained, little_explained

if TYPE_CHECKING:
    from fomkit.study.compare import Comparison
    from fomkit.study.estimate import Estimate
    from fomkit.workload import EpochsToTarget

BASES_BY_TRUST = ("measured", "published", "simulated", "modelled", "committed", "estimated", "assumed")
INTERVAL_MEANING = (
    "repeats on the stated machine with the stated software; not other software, batch, precision or problem, "
    "nor excluded terms"
)


def span_content(span: Span | None) -> dict[str, float] | None:
    """Put a span in the form of the JSON output; None where it is unknown."""
    return None if span is None else {"value": span.value, "low": span.low, "high": span.high}


def fact_content(fact: Fact | None, scale: float = 1.0) -> dict[str, Any] | None:
    """Put a fact in the form of the JSON output, ``scale`` times its SI value; None where it is unknown."""
    if fact is None:
        return None
    ends = {name: getattr(fact, name) * scale for name in ("value", "low", "high")}
    return {**ends, "basis": fact.basis, "source": fact.source}


def price_content(price: Price | None) -> dict[str, Any] | None:
    """Put a price in the form of the JSON output, by the hour; None where there is none."""
    fact = fact_content(price.per_s if price else None, UNITS["time_s"]["h"])
    if price is None or fact is None:
        return None
    return {**fact, "currency": price.currency, "per": price.per, "date": price.date}


def curve_content(curve: EpochsToTarget) -> dict[str, Any]:
    """Put what a curve of epochs says of itself in the form of the JSON output."""
    batches = list(curve.epochs)
    return {"metric": curve.metric, "target": curve.target, "covers": [batches[0], batches[-1]],
            "source": curve.source}  # fmt: skip


def evidence_of(machine: Machine) -> str:
    """Say in two words what the machine is known by."""
    if len(machine.timings):
        return "timing table" if machine.device.peaks else "timing table only"
    return "datasheet only"


def _terms(one: Estimate) -> dict[str, Any]:
    step, run = one.step_time, one.run_time
    return {
        "passes_s": {name: span_content(span) for name, span in step.passes.items()},
        "device_s": span_content(step.device_s),
        "host_launch_s": span_content(step.host_launch_s),
        "input_s": span_content(step.input_s),
        "steps_per_epoch": run.steps_per_epoch,
        "partial_step": run.partial_step,
        "validation_s": span_content(run.validation_s),
        "start_up_s": span_content(run.startup_s),
    }


def estimate_content(one: Estimate, reference: Estimate | None = None) -> dict[str, Any]:
    """Put one estimate in the form of an entry of ``models``, with its ratio to a reference where there is one."""
    content: dict[str, Any] = {
        "model": one.model.name,
        "target": one.machine.name,
        "evidence": evidence_of(one.machine),
        "party": one.machine.party,
        **({"device_of": one.machine.device_of} if one.machine.device_of else {}),
        "batch": one.sizes.get("batch"),
        "sizes": dict(one.sizes),
        "precision": one.precision,
        "precision_means": one.formats.said,
        "scope": one.scope,
        "runs_at_once": one.runs_at_once,
        "unit": one.model.unit.name,
        "step_s": span_content(one.step),
        "epoch_s": span_content(one.run_time.epoch_s),
        "run_s": span_content(one.run_time.run_s),
        "unit_per_day": span_content(one.unit_per_day),
        "energy_j": energy_content(one),
        "terms": _terms(one),
        "coverage": dict(one.coverage),
        "bound": one.step_time.bound,
        "fits": one.fit.fits,
        "excludes": list(one.excludes),
        "deviations": list(one.deviations),
    }
    if reference is not None:
        ours, theirs = one.unit_per_day, reference.unit_per_day
        step = divide_independent(reference.step, one.step)
        ratio = divide_independent(ours, theirs) if ours is not None and theirs is not None else step
        content["ratio"] = {
            "baseline": reference.machine.name,
            "of": "steps per second" if ours is None else "units per day",
            **(span_content(ratio) or {}),
        }
    return content


def merit_content(
    merit: FigureOfMerit,
    worst_basis: str,
    excludes: Sequence[str] = (),
    unfit: Sequence[str] = (),
    explained: Sequence[Explained] = (),
) -> dict[str, Any]:
    """Put a figure of merit in the form of the ``fom`` block.

    Parameters
    ----------
    merit : FigureOfMerit
    worst_basis : str
    excludes : sequence of str
        What its rates leave out because nobody stated it.
    unfit : sequence of str
        Its work that no device holds, each with why.
    explained : sequence of Explained
        Of its lines that somebody measured a run of, how much of it the device's work explains.
    """
    held = [one for one in explained if one.line in merit.ratios]
    return {
        **(span_content(merit.value) or {}),
        "mean": merit.mean,
        "scope": merit.target.scope,
        "baseline": merit.baseline.machine,
        "target": merit.target.machine,
        "weights": dict(merit.weights),
        "worst_basis": worst_basis,
        "excludes": list(excludes),
        "does_not_fit": list(unfit),
        "little_explained": [one.line for one in little_explained(held, merit.ratios)],
        "explained_shares": {one.line: one.share for one in held},
        "measured_runs": {one.line: one.said for one in held},
        "other_means": dict(merit.other_means),
        "ratios": {line: span_content(ratio) for line, ratio in merit.ratios.items()},
        "rates": dict(merit.mean_rates),
        "unit_per_day": {
            "baseline": {line: span_content(rate) for line, rate in merit.baseline.unit_per_day.items()},
            "target": {line: span_content(rate) for line, rate in merit.target.unit_per_day.items()},
        },
        "value_with_rates_cut_to_whole_units": None if isnan(merit.with_whole_rates) else merit.with_whole_rates,
    }


def worst_basis(estimates: Sequence[Estimate]) -> str:
    """Name the weakest basis of some estimates: measured only where every op is a measured one."""
    return "measured" if all(one.coverage["measured"] > 1 - 1e-12 for one in estimates) else "modelled"


def estimates_content(result: Comparison, measured: dict[str, Any] | None = None) -> dict[str, Any]:
    """Put a study in the form of ``fomkit/estimate/1``; ``measured`` is its block of measurements, if any."""
    estimates, baseline = result.estimates, result.baseline
    references = {one.model.name: one for one in baseline}
    worst = worst_basis([*estimates, *baseline])
    blocks = [merit_content(merit, worst, *result.caveats(merit.target.machine)) for merit in result.merits]
    return {
        "schema": "fomkit/estimate/1",
        "fomkit": __version__,
        "interval": estimates[0].step.level,
        "interval_covers": INTERVAL_MEANING,
        "scope": estimates[0].scope,
        "models": [
            *(estimate_content(one) for one in baseline),
            *(estimate_content(one, references.get(one.model.name)) for one in estimates),
        ],
        "not_estimated": [str(error) for error in result.failures],
        "fom": blocks[0] if len(blocks) == 1 else None,
        **({"foms": blocks} if len(blocks) > 1 else {}),
        **({"from_measurements": measured} if measured is not None else {}),
    }

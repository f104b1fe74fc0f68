"""Several models on a target and a baseline: ratios, and one figure of merit over all of them, step by step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isclose, isnan, nan
from typing import TYPE_CHECKING, Any

from fomkit import __version__
from fomkit.core.errors import FomkitError, ManyFomkitError, Shown
from fomkit.core.interval import Span
from fomkit.core.machine import Machine
from fomkit.core.model import PARTIAL, ModelProfile
from fomkit.core.units import format_number, format_quantity
from fomkit.merit.fom import FigureOfMerit, Rates, figure_of_merit
from fomkit.output.terminal import format_interval
from fomkit.plan.content import INTERVAL_MEANING, estimate_content, span_content
from fomkit.plan.estimate import Estimate, check_one_device
from fomkit.plan.options import Options
from fomkit.plan.run import no_run
from fomkit.verbs.answer import ALONE, Spread

if TYPE_CHECKING:
    from fomkit.core.measurement import Measurement
    from fomkit.merit.measured_steps import Explained, MeasuredRuns


@dataclass(frozen=True)
class Comparison(Shown):
    """Estimates of the same models on the targets and on a baseline.

    `estimates`: target by target, model by model.
    `baseline`: the same models on the baseline; empty without one.
    `merits`: one for each target; empty without a baseline or without runs.
    `failures`: why some models have no estimate; empty unless failures were to be skipped.
    `explained`: by target with a figure of merit: of models that somebody measured a run of, how much of it the
      device explains.
    `rows`, `from_measurements`: measurements of the baseline, where some were given, and the block of
      ``fomkit/estimate/1`` that tells the study from them.
    """

    estimates: tuple[Estimate, ...]
    baseline: tuple[Estimate, ...]
    merits: tuple[FigureOfMerit, ...]
    failures: tuple[FomkitError, ...] = ()
    explained: Mapping[str, tuple[Explained, ...]] = field(default_factory=dict)
    rows: tuple[Measurement, ...] = ()
    from_measurements: Mapping[str, Any] | None = None

    @property
    def unfit(self) -> tuple[str, ...]:
        """The work that no device holds, each with its machine and why."""
        return unfit_of((*self.baseline, *self.estimates))

    def caveats(self, target: str) -> tuple[tuple[str, ...], tuple[str, ...], tuple[Explained, ...]]:
        """Give what a target's figure of merit leaves out, what no device holds, and what measured runs say."""
        under = (*self.baseline, *(estimated for estimated in self.estimates if estimated.machine.name == target))
        excludes = tuple(sorted({term for one in under for term in one.excludes}))
        return excludes, unfit_of(under), self.explained.get(target, ())

    @property
    def little_explained(self) -> tuple[str, ...]:
        """The models under a figure of merit whose measured runs the device explains less than half."""
        from fomkit.merit.measured_steps import little_explained

        found = (
            little_explained(self.explained.get(merit.target.machine, ()), merit.ratios) for merit in self.merits
        )
        return tuple(dict.fromkeys(one.line for each in found for one in each))

    def content(self) -> dict[str, Any]:
        """Give everything as plain content (``fomkit/estimate/1``)."""
        return self._view.content(self)

    def summary(self, *, explain: bool = False) -> str:
        """Write it as the text that the command line prints; `explain`: with the twelve steps of each estimate."""
        return self._view.text(self, explain=explain)

    def _repr_html_(self) -> str:
        return self._view.html(self)


def unfit_of(estimates: Sequence[Estimate]) -> tuple[str, ...]:
    """Name the estimates whose step no device holds, each with why."""
    return tuple(
        f"{estimated.model.name} on {estimated.machine.name} {estimated.fit.message}"
        for estimated in estimates
        if estimated.fit.message
    )


def rates(estimates: Sequence[Estimate]) -> Rates:
    """Collect the units per day of several models on one machine.

    Raises FomkitError when a model does not say what a run is.
    """
    units: dict[str, Span] = {}
    for estimated in estimates:
        if estimated.unit_per_day is None:
            raise FomkitError(
                estimated.model.name, "has no units per day; its profile lacks train_samples or epochs."
            )
        units[estimated.model.name] = estimated.unit_per_day
    return Rates(estimates[0].machine.name, estimates[0].scope, units)


def _estimates(
    models: Sequence[ModelProfile],
    machines: Sequence[Machine],
    options: Options,
    skip_failures: bool,
    after_each: Callable[[], None],
    spread: Spread,
) -> tuple[list[list[Estimate]], list[FomkitError]]:
    """Estimate model by model; one that fails on any machine is left out on all, so that ratios stay fair."""
    by_machine: list[list[Estimate]] = [[] for _ in machines]
    failures: list[FomkitError] = []
    for model in models:
        try:
            row = []
            for machine in machines:
                row.append(spread.estimate(model, machine, options))
                after_each()
        except FomkitError as error:
            if not skip_failures:
                raise
            failures.append(error)
            continue
        for estimates, one in zip(by_machine, row, strict=True):
            estimates.append(one)
    return by_machine, failures


def _check_distinct(models: Sequence[ModelProfile], targets: Sequence[Machine], baseline: Machine | None) -> None:
    for what, names in (
        ("model", [model.name for model in models]),
        ("machine", [target.name for target in targets]),
    ):
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise FomkitError(twice[0], f"stands twice among the {what}s. Name each once.")
    if baseline is not None and baseline.name in [target.name for target in targets]:
        raise FomkitError(
            baseline.name, "is the baseline and a target. Its ratio to itself is 1; name another one."
        )


def compare(
    models: Sequence[ModelProfile],
    targets: Sequence[Machine],
    baseline: Machine | None,
    options: Options,
    *,
    skip_failures: bool = False,
    after_each: Callable[[], None] = lambda: None,
    measured: MeasuredRuns | None = None,
    spread: Spread = ALONE,
) -> Comparison:
    """Estimate every model on every machine at one scope, and compare where there is a baseline.

    `skip_failures`: leave a model that cannot be estimated out and keep its reason, instead of raising;
    `after_each`: called after each estimate, so that somebody can watch; `measured`: runs that were measured, if
    any, to hold what is under a figure of merit against; `spread`: how each run is spread over devices. Raises
    FomkitError as `estimate` does, when the machines share no scope, and when no model can be estimated.
    """
    _check_distinct(models, targets, baseline)
    machines = [spread.on(machine) for machine in (*targets, *([baseline] if baseline else []))]
    options = replace(options, scope=spread.scope(models, machines, options.scope))
    by_machine, failures = _estimates(models, machines, options, skip_failures, after_each, spread)
    if not by_machine[0]:
        raise ManyFomkitError(failures or [FomkitError("estimate", "no model profile was found. Name one.")])
    on_target = by_machine[: len(targets)]
    on_baseline = by_machine[-1] if baseline else []
    whole = all(one.unit_per_day is not None for one in on_baseline)
    merits = (
        [figure_of_merit(rates(on_baseline), rates(one)) for one in on_target] if on_baseline and whole else []
    )
    explained: dict[str, tuple[Explained, ...]] = {}
    if merits:
        from fomkit.merit.measured_steps import NOTHING_MEASURED, explained_models

        explained = {
            merit.target.machine: explained_models([*on_baseline, *one], options, measured or NOTHING_MEASURED)
            for merit, one in zip(merits, on_target, strict=True)
        }
    return Comparison(
        tuple(estimated for estimates in on_target for estimated in estimates),
        tuple(on_baseline),
        tuple(merits),
        tuple(failures),
        explained,
    )


def estimates_content(result: Comparison) -> dict[str, Any]:
    """Put a study in the form of ``fomkit/estimate/1``."""
    estimates, baseline = result.estimates, result.baseline
    references = {one.model.name: one for one in baseline}
    blocks = list[dict[str, Any]]()
    if result.merits:
        from fomkit.merit.content import merit_content, worst_basis

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
            *(estimate_content(estimate, references.get(estimate.model.name)) for estimate in estimates),
        ],
        "not_estimated": [str(error) for error in result.failures],
        "fom": blocks[0] if len(blocks) == 1 else None,
        **({"foms": blocks} if len(blocks) > 1 else {}),
        **({} if result.from_measurements is None else {"from_measurements": result.from_measurements}),
    }


Term = tuple[str, float, str]
"""A term of an equation: its sign, "" of the first, its number, a whole one as it stands, and its unit."""
DOMINANT_SHARE = 0.95
NAMED_OPS = 6
RULES: Mapping[str, str] = {
    "extrapolated": "larger or smaller than what was timed",
    "transferred": "by timings of a similar op",
    "roofline": "by rates, and what such ops usually reach of them",
    "alpha_beta": "by the link's start and rate",
    "assumed": "as somebody assumes",
}
"""How ops are priced that no timing covers, by their time source."""
RECORDED: Mapping[str, str] = {
    "step_s": "s a step", "epoch_s": "s an epoch", "run_s": "s a run", "latency_s": "s a forward pass",
    "sample_per_s": "samples a second",
}  # fmt: skip


def equation(terms: Sequence[Term], result: float, unit: str, digits: int = 6, factor: float = 1.0) -> str:
    """Write an equation, its numbers with so many digits that a pocket calculator gives the result that is shown.

    `terms`: taken from left to right; `result`: what fomkit found, in ``unit``; `digits`: of the result; `factor`:
    between the terms' units and that of the result.

    >>> equation([("", 287.2917, "ms"), ("×", 8001, "steps")], 2298.6208917, "s", factor=1e-3)
    '287.2917 ms × 8001 steps = 2298.62 s'
    """
    shown, told = list[str](), format_number(result, digits)
    for more in range(digits + 1, 17):
        shown = [format_number(one, len(str(one)) if isinstance(one, int) else more) for _, one, _ in terms]
        total = 0.0
        for (sign, _, _), text in zip(terms, shown, strict=True):
            one = float(text.replace(",", ""))
            total = total * one if sign == "×" else total / one if sign == "÷" else total + one
        if format_number(total * factor, digits) == told:
            break
    words = (" ".join(filter(None, (sign, text, of))) for (sign, _, of), text in zip(terms, shown, strict=True))
    return f"{' '.join(words)} = {told}{'' if unit == '%' else ' '}{unit}"


def _recorded_time(one: Estimate, rows: Sequence[Measurement]) -> str:
    """Say what somebody measured of this model on this machine, and how much of it the device explains."""
    from fomkit.merit.measured_steps import explained_share, mismatch, quantity_of  # who explains waits for them

    own, told = (one.model.name, one.machine.name), []
    known = [row for row in rows if (row.model, row.machine) == own and row.quantity in RECORDED]
    of_device = replace(one, scope="device")
    for row in (row for row in known if not mismatch(row, of_device)):
        share = explained_share(row.quantity, quantity_of(one, row.quantity), row.value)
        explained = "" if share is None else f", of which the device explains {share:.1%}"
        told.append(f"{row.value:g} {RECORDED[row.quantity]} ({row.date or 'no date'}){explained}")
    other = f" at this batch, precision and scope, {len(known)} at others" if known else ""
    return "; ".join(dict.fromkeys(told)) or f"none recorded{other}"


def _op_cells(one: Estimate) -> list[str]:
    """Tell the profile, its dominant ops, its products, and which of the time rests on timings and on rules."""
    from fomkit.ops.groups import fewest, shape_label
    from fomkit.ops.kinds import PRODUCT_KINDS
    from fomkit.plan.coverage import UNPRICED

    named, count = one.ops["op"].astype("str").str.rpartition("::")[2], one.ops["count"]
    spent = one.ops["time_s"] * count * 1e3
    of_op = {str(name): float(ms) for name, ms in spent.groupby(named).sum().items()}
    top = fewest(of_op, DOMINANT_SHARE)
    shown, others = top.groups[:NAMED_OPS], top.groups[NAMED_OPS:]
    terms = [("+" if place else "", of_op[name], name) for place, name in enumerate(shown)]
    terms += [("+", sum(of_op[name] for name in others), f"of {len(others)} more")] if others else []
    reached, whole = sum(term[1] for term in terms), float(spent.sum())
    share = equation([("", reached, "ms"), ("÷", whole, "ms")], 100 * reached / whole, "%", 4, 100)
    products = one.ops[one.ops["kind"].isin(PRODUCT_KINDS) & spent.notna()]
    flop, ms = float((products["flop"] * products["count"]).sum()) / 1e9, float(spent[products.index].sum())
    longest = products.loc[spent[products.index].sort_values(ascending=False).index[:3]].to_dict("records")
    sizes = ", ".join(shape_label({str(name): cell for name, cell in row.items()}) for row in longest)
    rate = equation([("", flop, "GFLOP"), ("÷", ms, "ms")], flop / ms, "TFLOP/s", 4) if ms else ""
    by_source = {name: float(time) for name, time in spent.groupby(one.ops["time_source"]).sum().items() if name}
    parts = {name: f"{format_number(time)} ms {name} ({time / whole:.1%})" for name, time in by_source.items()}
    lacking = ", ".join(dict.fromkeys(named[spent.isna()]))
    beyond = [f"{parts[name]}: {how}" for name, how in RULES.items() if name in parts]
    beyond += [f"no time for {one.coverage[UNPRICED]:.1%} of the executions: {lacking}"] if lacking else []
    return [
        f"{count.sum():,.0f} op executions in {len(one.ops):,} rows",
        f"{equation(terms, reached, 'ms', 5)}; {share}",
        f"{len(products)} rows, {rate}; longest: {sizes}" if ms else "none",
        ", ".join(parts[name] for name in parts if name not in RULES) or "nothing",
        "; ".join(beyond) or "nothing",
    ]


def _roll_up_cells(one: Estimate) -> list[str]:
    """Tell how ops add up to a pass, an epoch and a run, and how many of these a day has."""
    step, run, model, rate = one.step_time, one.run_time, one.model, one.unit_per_day
    wall, device = one.step.value * 1e3, step.device_s.value * 1e3
    passes: list[Term] = [
        ("+" if at else "", ms.value * 1e3, name) for at, (name, ms) in enumerate(step.passes.items())
    ]
    added = equation(passes, device, "ms", 7)
    if not isclose(device, wall, rel_tol=1e-9):
        beside = {"host": step.host_launch_s, "input": step.input_s, "other overheads": step.extra_s}
        known = ", ".join(f"{name} {span.value * 1e3:.4g} ms" for name, span in beside.items() if span is not None)
        added += f" of the device; {known}: the longest and the overheads take {format_number(wall, 7)} ms"
    cells = [f"{added} ({format_interval(span_content(one.step), 'time_s')}), bound by {step.bound}"]
    lacking = f"unknown: {no_run(model) or 'nothing has a time'}"
    if run.training_s is None or run.epoch_s is None:
        return [*cells, *[lacking] * 4]
    training, epoch, samples = run.training_s.value, run.epoch_s.value, model.data.train_samples or 0
    steps: Term = ("×", int(run.steps_per_epoch or 0), "steps")
    told = equation([("", wall, "ms"), steps], training, "s", factor=1e-3)
    besides = (("validation", run.validation_s), ("overheads", run.epoch_extra_s))
    others: list[Term] = [("+", span.value, f"s {name}") for name, span in besides if span and span.value]
    told += f"; {equation([('', training, 's'), *others], epoch, 's')}" if others else ""
    rest = samples % (one.sizes.get("batch") or 1)
    left = f", {rest} left {'for one more' if run.partial_step else 'over'}" if rest else ""
    cells.append(f"{told} ({samples:,} samples ÷ {one.sizes.get('batch'):,}{left})")
    if run.run_s is None or rate is None:
        return [*cells, *[lacking] * 3]
    start: list[Term] = [("+", run.startup_s.value, "s start-up")] if run.startup_s else []
    terms: list[Term] = [("", epoch, "s"), ("×", int(model.run.epochs or 0), "epochs"), *start]
    run_s, up = run.run_s.value, one.machine.up_share(one.scope)
    hours, unit = run_s / 3600, model.unit
    a_day: list[Term] = [("", 24 / hours, ""), ("×", one.runs_at_once, f"at once on a {one.scope}")]
    a_day += [("×", up, "of the time up")] if up != 1 else []
    a_day += [("÷", unit.runs, f"runs a {unit.name}")] if unit.runs != 1 else []
    missing = f", at best: without {', '.join(one.excludes)}" if one.excludes else ""
    units = equation(a_day, rate.value, f"{unit.name}s per day")
    return [
        *cells,
        f"{equation(terms, run_s, 's')}; {equation([('', run_s, 's'), ('÷', 3600, '')], hours, 'h', 5)}",
        equation([("", 24, "h"), ("÷", hours, "h")], 24 / hours, "runs a day"),
        f"{units} ({format_interval(span_content(rate), None)}){missing}",
    ]


def _ratio_cell(one: Estimate, baseline: Estimate, ratio: Mapping[str, Any], merit: FigureOfMerit | None) -> str:
    """Tell how many times faster the target is, which side leaves out more, and the figure of merit over all."""
    ours, theirs = one.unit_per_day, baseline.unit_per_day
    terms: list[Term] = [("", baseline.step.value * 1e3, "ms a step"), ("÷", one.step.value * 1e3, "ms a step")]
    if ours is not None and theirs is not None:
        terms = [("", ours.value, ""), ("÷", theirs.value, "")]
    partial = {"work that is not in the profile" for note in one.model.notes if note.startswith(PARTIAL)}
    more, less = ({*at.excludes} | (partial if at.basis == "modelled" else set()) for at in (one, baseline))
    sides = ((one.machine.name, more - less), (baseline.machine.name, less - more))
    alone = [f"{name} alone leaves out {', '.join(sorted(left))}" for name, left in sides if left]
    bound = ("at most " if more - less else "at least ") if len(alone) == 1 else ""
    told = f"{bound}{equation(terms, ratio['value'], 'times', 4)} ({format_interval(ratio, None)})"
    many = f" over {len(merit.ratios)} models" if merit is not None and len(merit.ratios) > 1 else ""
    fom = [] if merit is None else [f"FOM{many}: {format_number(merit.value.value)}, {merit.mean}"]
    return "; ".join([told, *alone, *fom])


def method_steps(
    one: Estimate, baseline: Estimate | None, ratio: Mapping[str, Any] | None, merit: FigureOfMerit | None,
    rows: Sequence[Measurement],
) -> list[tuple[str, ...]]:  # fmt: skip
    """Tell an estimate as the lecture's twelve steps, with their arithmetic, the baseline's beside the target's.

    The method is that of Foster & Stevens, Learning Systems 2018, lecture 10. `ratio`: to the baseline, of the
    block of ``models``; `merit`: over all models of the study; `rows`: what was measured of models. Gives a list:
    of each step its title, the cell of the baseline where there is one, and that of the target. Raises FomkitError
    for a run on several devices.
    """
    sides = [one] if baseline is None else [baseline, one]
    check_one_device(sides, "the lecture's method")
    model, of = one.model, ", ".join(one.model.traced_with.values()) or "unknown framework"
    parameters = "unknown" if model.parameters_total is None else f"{model.parameters_total:,}"
    traced = (one.ops["traced_time_s"] * one.ops["count"]).sum(skipna=False) if "traced_time_s" in one.ops else nan
    recorded = "" if isnan(traced) else f"; in the profile, {format_quantity(traced, 'time_s')} a pass"
    titles = [
        f"recorded training time{recorded}", f"profile: {parameters} parameters; {of}",
        f"dominant ops, {DOMINANT_SHARE:.0%} of the step", "products and their sizes", "mapped onto timings",
        "beyond the timings", "one pass", "epoch: pass × steps", "run: epoch × epochs", "24 h ÷ run",
        "× runs at once", "÷ baseline",
    ]  # fmt: skip
    cells = [[_recorded_time(side, rows), *_op_cells(side), *_roll_up_cells(side)] for side in sides]
    last = "needs --baseline" if baseline is None else _ratio_cell(one, baseline, ratio or {}, merit)
    columns = [*([[*cells[0], "the baseline"]] if baseline is not None else []), [*cells[-1], last]]
    return list(zip(titles, *columns, strict=True))

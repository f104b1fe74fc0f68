"""A study as aligned text, from the same content that ``--json`` prints; energy and figures of merit as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from fomkit.core.interval import alone_text
from fomkit.core.units import KWH_J, exact_quantity, format_number, format_quantity
from fomkit.merit.fom import OF_RATES
from fomkit.output.screen import PLAIN, Entry, Page, Screen
from fomkit.profiles.metrics import title_of, upper_bounds

if TYPE_CHECKING:
    from fomkit.merit.measured_steps import Merit
    from fomkit.plan.content import Ends, EnergyUsed, Estimated, Range, Stated
    from fomkit.verbs.compare import Study
    from fomkit.verbs.machine_view import EnergyStated


def _joule(value: float) -> str:
    """Write an energy; from 0.1 kWh on in kWh too, which is what is paid."""
    text = format_quantity(value, "energy_j", 3)
    return f"{text} ({format_number(value / KWH_J, 3)} kWh)" if value >= KWH_J / 10 else text


def format_energy(span: Ends) -> str:
    """Write an energy with the ends of its interval.

    >>> format_energy({"value": 12.0, "low": 9.5, "high": 15.0})
    '12.0 J (9.50 J … 15.0 J)'
    """
    if span["low"] == span["high"]:
        return f"{_joule(span['value'])} (no spread stated)"
    low, high = (format_quantity(span[end], "energy_j", 3) for end in ("low", "high"))
    return f"{_joule(span['value'])} ({low} … {high})"


def _limit(energy: EnergyUsed) -> str:
    if energy["step_at_most"] is None:
        return ""
    most = format_quantity(energy["step_at_most"], "energy_j", 3)
    return f"; at most {most} per step, from the chip's limit of {energy['limit_w']:g} W, which is no average"


def _process(energy: EnergyStated | EnergyUsed) -> str:
    """Name the process node that figures in joules are of."""
    return f", {exact_quantity(energy['process_m'], 'length_m')} process" if energy["process_m"] else ""


def energy_facts(energy: EnergyStated | None) -> Iterator[tuple[str, Stated, str]]:
    """Give each figure that a machine states of energy: name with scope or process node, fact and dimension."""
    if energy is None:
        return
    scope = energy["scope"]
    node = _process(energy)
    if energy["idle_w"]:
        yield f"idle power, {scope}", energy["idle_w"], "power_w"
    for one in energy["per_flop"]:
        name = f"flop {one['dtype']} {one['engine'] or 'on any engine'}{node}"
        yield name, one["joule_per_flop"], "joule_per_flop"
    if energy["joule_per_byte"]:
        yield f"byte of memory{node}", energy["joule_per_byte"], "joule_per_byte"
    for mean in energy["average"]:
        batch = f", batch {mean['batch']}" if mean["batch"] else ""
        precision = f", {mean['precision']}" if mean["precision"] else ""
        yield f"mean power, {mean['workload']}{batch}{precision}, {mean['scope']}", mean["power_w"], "power_w"
    if energy["limit_w"]:
        yield "limit of a chip's power, no average", energy["limit_w"], "power_w"


def format_terms(one: Estimated) -> str:
    """Write the terms of a step's energy, a line each, with their shares and where they come from; "" of none."""
    energy = one["energy_j"]
    if energy is None:
        return ""
    step = energy["step"]
    if step is None:
        return f"{energy_line(one, energy)}\n"
    devices = f", {energy['devices']} devices" if energy["devices"] > 1 else ""
    lines = [f"energy of a step{devices}, by {str(energy['method']).replace('_', ' ')} ({energy['from']}):"]
    lines += [
        f"  {name}: {format_energy(term)}, {term['value'] / step['value']:.1%}"
        for name, term in energy["terms_step"].items()
    ]
    if _limit(energy):
        lines.append(f"  {_limit(energy).removeprefix('; ')}")
    return "\n".join([*lines, f"  {energy_line(one, energy)}", ""])


def energy_lines(models: Sequence[Estimated]) -> list[str]:
    """Write a line for each model with energy, and one for all that miss the same on a machine."""
    missing: dict[tuple[str, ...], list[tuple[Estimated, EnergyUsed]]] = {}
    lines = []
    for model in models:
        energy = model["energy_j"]
        if energy is not None and energy["step"] is None:
            missing.setdefault((model["target"], *energy["missing"]), []).append((model, energy))
        elif energy is not None:
            lines.append(energy_line(model, energy))
    for (target, *reasons), similar in missing.items():
        if len(similar) == 1:
            lines.append(energy_line(*similar[0]))
            continue
        limit_w = similar[0][1]["limit_w"]
        limit = f"; the chip's limit is {limit_w:g} W, which is no average" if limit_w else ""
        lines.append(f"energy: {len(similar)} models on {target}: missing, {'; '.join(reasons)}{limit}")
    return lines


def energy_line(one: Estimated, energy: EnergyUsed) -> str:
    """Write what the step, run and unit of an entry of ``models`` take on a machine, or why nobody knows."""
    head, run, unit = f"energy: {one['model']} on {one['target']}: ", energy["run"], energy["unit"]
    if energy["step"] is None:
        return f"{head}missing, {'; '.join(energy['missing'])}{_limit(energy)}"
    parts = [f"{format_energy(energy['step'])} per step"]
    if run is not None:
        parts.append(f"{_joule(run['value'])} per run")
        if unit is not None and unit != run:
            parts.append(f"{_joule(unit['value'])} per {one['unit']}")
    idle = f", {energy['idle_share']:.0%} of it idle power" if energy["idle_share"] is not None else ""
    notes = "".join(f"; {note}" for note in energy["notes"])
    return f"{head}{', '.join(parts)}; {energy['basis']}, scope {energy['scope']}{_process(energy)}{idle}{notes}"


HEAVY = 0.8
_BATCH, _STEP, _RUN, _RATE, _RATIO, _COVERAGE = map(
    title_of, ("batch", "step_s", "run_s", "unit_per_day", "ratio", "coverage")
)
NO_SPREAD = "no spread stated"
NARROW = "under 1 % wide"
UNFIT = "†"
"""Beside a rate of a step that no device holds."""


def mark_of(one: Entry) -> str:
    """Give the mark of an entry whose step the device's memory does not hold; "" of others."""
    return f" {UNFIT}" if one["fits"] is False else ""


def seconds(value: float, digits: int = 4) -> str:
    """Write a time."""
    return format_quantity(value, "time_s", digits)


def format_plain(value: float, dimension: str | None, digits: int = 4) -> str:
    """Write a value in a unit or as a plain number."""
    return format_number(value, digits) if dimension is None else format_quantity(value, dimension, digits)


def interval_words(level: float, span: Range | None, dimension: str | None) -> str:
    """Write the level of an interval and its ends, as a sentence does; where there are none, only that."""
    ends = format_interval(span, dimension)
    return ends if ends == NO_SPREAD else f"{level:.0%} interval {ends}"


def format_interval(span: Range | None, dimension: str | None) -> str:
    """Write the ends of a span, in a unit or as plain numbers."""
    if span is None:
        return ""
    if span["low"] == span["high"]:
        return NO_SPREAD
    low, high = (format_plain(span[end], dimension, 3) for end in ("low", "high"))
    if low == high:
        return NARROW
    if dimension is None:
        return f"{low} … {high}"
    # "122 … 165 ms" says the unit once where both ends have the same.
    same = low.rpartition(" ")[2] == high.rpartition(" ")[2]
    return f"{low.rpartition(' ')[0] if same else low} … {high}"


def _value_text(span: Ends | None, dimension: str | None) -> str:
    return "unknown" if span is None else format_plain(span["value"], dimension)


def format_coverage(shares: Mapping[str, float]) -> str:
    """Write shares of predicted time by source, the largest first, leaving out empty ones.

    Work without a time has no share of the time, so it is said apart, as a share of the op executions.
    """
    unpriced = shares.get("unpriced", 0.0)
    timed = {name: share / (1 - unpriced) for name, share in shares.items() if name != "unpriced" and share > 0}
    present = sorted(((share, name) for name, share in timed.items()), reverse=True)
    parts = [f"{name} {share:.0%}" if share >= 0.01 else f"{name} <1%" for share, name in present]
    return ", ".join([*parts, *([f"without a time {unpriced:.0%} of the op executions"] if unpriced else [])])


def _first_line(models: Sequence[Estimated]) -> str:
    """Say of each machine what its times rest on, by the mean over its models."""
    parts, kinds = [], set()
    for name in dict.fromkeys(model["target"] for model in models):
        own = [model for model in models if model["target"] == name]
        shares = {
            source: sum(model["coverage"][source] for model in own) / len(own) for source in own[0]["coverage"]
        }
        evidence = max(model["evidence"] for model in own)  # a timing table, where any rests on one
        parts.append(f"{name} ({evidence}): {format_coverage(shares)}")
        kinds.add(evidence == "datasheet only")
    mixed = "one side rests on a timing table, the other on a datasheet; " if len(kinds) > 1 else ""
    return f"{mixed}coverage, share of predicted time: {' | '.join(parts)}"


def _estimate_cells(one: Estimated) -> dict[str, str]:
    """Write one estimate as cells by column."""
    ratio = one.get("ratio")
    return {
        "model": one["model"],
        "machine": one["target"],
        _BATCH: str(one["batch"] or "unknown"),
        "precision": one["precision"],
        _STEP: _value_text(one["step_s"], "time_s"),
        f"{_STEP} interval": format_interval(one["step_s"], "time_s"),
        _RUN: _value_text(one["run_s"], "time_s"),
        _RATE: _value_text(one["unit_per_day"], None) + mark_of(one),
        f"{_RATE} interval": format_interval(one["unit_per_day"], None),
        _RATIO: f"{format_number(ratio['value'], 3)} ({format_interval(ratio, None)})" if ratio else "",
        "bound": one["bound"],
        _COVERAGE: format_coverage(one["coverage"]),
    }


NUMBER_COLUMNS = (_BATCH, _STEP, _RUN, _RATE)
FIRST_OUT = (_COVERAGE, "bound", "precision", _BATCH, "interval", _RUN, "interval")
"""Columns that a narrow terminal loses first, the step's interval before that of the rate. A ratio stays."""


def _add_table(page: Page, models: Sequence[Estimated]) -> None:
    order = list(dict.fromkeys(model["model"] for model in models))
    rows = [_estimate_cells(model) for model in sorted(models, key=lambda entry: order.index(entry["model"]))]
    names = [name for name in rows[0] if name != _RATIO or any(row[_RATIO] for row in rows)]
    headers = [
        (name.removeprefix(f"{_STEP} ").removeprefix(f"{_RATE} "), "right" if name in NUMBER_COLUMNS else "")
        for name in names
    ]
    page.rows(headers, ([row[name] for name in names] for row in rows), first_out=FIRST_OUT)


def run_notes(explained: Mapping[str, float], what: str) -> list[str]:
    """Name work whose measured runs are mostly something else than the device's, with its share of each."""
    if not explained:
        return []
    listed = ", ".join(f"{name} {share:.1%}" for name, share in explained.items())
    message = f"the device explains less than half of a measured run: {listed}; {what} of the device's work alone"
    return [f"{message} (--json has the runs)"]


def merit_caveats(merit: Merit) -> list[str]:
    """Say what measured runs say of a figure of merit, what its rates leave out, and what no device holds."""
    little = {name: merit["explained_shares"][name] for name in merit["little_explained"]}
    lines = run_notes(little, "the value is")
    if merit["excludes"]:
        lines.append(upper_bounds(merit["excludes"]))
    if alone := alone_text(merit["excludes_alone"]):
        lines.append(alone)
    return [*lines, *(f"{UNFIT} {message}" for message in merit["does_not_fit"])]


def merit_interval(merit: Merit) -> str:
    """Write the interval of a figure of merit; "" where given times carry no spread."""
    low, high = merit["low"], merit["high"]
    return "" if low is None or high is None else format_interval({"low": low, "high": high}, None)


def _mean_rates(merit: Merit, units: Sequence[str], digits: int) -> str:
    """Write the harmonic mean rates of both machines, or why there are none: lines count in several units."""
    rates = ", ".join(
        f"{merit[side]} {format_number(merit['rates'][side], digits)}" for side in ("baseline", "target")
    )
    if not units:
        return f"{'harmonic mean rates' if len(merit['weights']) > 1 else 'rates'}: {rates}"
    listed = f"units differ from line to line ({', '.join(units)})"
    if merit["mean"] in OF_RATES:
        return f"{listed}: one of each counts alike in this mean of rates; a mean of ratios needs no common unit"
    return (
        f"{listed}, so no mean of rates is shown; the value is a mean of each line's ratio to {merit['baseline']}"
    )


def format_merit(merit: Merit, units: Sequence[str] = ()) -> list[str]:
    """Write a figure of merit: the value, its means, weights and both machines' rates.

    `units`: those that its lines count in, where there are several.
    """
    exact = merit["low"] is None
    digits = 8 if exact else 4
    spread = merit_interval(merit) or "no interval: given times carry no spread"
    others = {name: value for name, value in merit["other_means"].items() if not (units and name in OF_RATES)}
    other = ", ".join(f"{name} {format_number(value, digits)}" for name, value in others.items())
    weights = ", ".join(f"{line} {share:.1%}" for line, share in merit["weights"].items())
    message = f"{format_number(merit['value'], digits)} ({spread}){f' {UNFIT}' if merit['does_not_fit'] else ''}"
    alone = len(merit["weights"]) == 1
    mean = f"{merit['mean']}, as every other mean of one line" if alone else merit["mean"]
    lines = [
        f"FOM {merit['target']} over {merit['baseline']} = {message}",
        f"  mean: {mean}; scope: {merit['scope']}; worst basis: {merit['worst_basis']}",
        f"  {_mean_rates(merit, units, digits + 2)}",
        *([] if alone else [f"  implied weights: {weights}", f"  other means of the ratios: {other}"]),
    ]
    lines += [
        f"  note: {line} alone carries {share:.0%} of the weight; the value says little of the others"
        for line, share in merit["weights"].items()
        if share > HEAVY and len(merit["weights"]) > 1
    ]
    # Where a machine does less than one unit a day, whole units leave nothing to divide by.
    if exact and merit["value_with_rates_cut_to_whole_units"] is not None:
        cut = format_number(merit["value_with_rates_cut_to_whole_units"], digits)
        lines.append(f"  with every rate cut to whole units first: {cut}")
    return lines


def show_merit(page: Page, merit: Merit, units: Sequence[str] = ()) -> None:
    """Write a figure of merit with what it is not to be read without; `units`: those that its lines count in."""
    first, *others = format_merit(merit, units if len(units) > 1 else ())
    page.line(first, "bold")
    page.lines((f"  {message}" for message in merit_caveats(merit)), "yellow")
    page.lines(others)


def _precision_lines(models: Sequence[Estimated]) -> list[str]:
    """Say what each precision in the table means and on which machines, once for all models that share it.

    Models are named where those of one machine differ in it, or in what it means.
    """
    machines: dict[str, dict[str, dict[str, list[str]]]] = {}
    for one in models:
        named = machines.setdefault(one["precision_means"], {}).setdefault(one["precision"], {})
        named.setdefault(one["target"], []).append(one["model"])
    distinct = {(one["target"], one["precision"], one["precision_means"]) for one in models}
    differ = {target for target, *_ in distinct if sum(one == target for one, *_ in distinct) > 1}
    all_machines = {one["target"] for one in models}
    lines = []
    for means, names in machines.items():
        said = []
        for name, targets in names.items():
            where = "" if targets.keys() == all_machines else f" on {', '.join(targets)}"
            own = ", ".join(dict.fromkeys(model for named in targets.values() for model in named))
            said.append(f"{name}{where} ({own})" if targets.keys() & differ else f"{name}{where}")
        lines.append(f"precision {', '.join(said)}: {means}")
    return lines


def _size_lines(models: Sequence[Estimated]) -> list[str]:
    """Give the sizes beside the batch, such as the tokens of a sequence, once for all models that share them."""
    named: dict[str, dict[str, None]] = {}
    for one in models:
        text = ", ".join(f"{name} {size:,}" for name, size in one["sizes"].items() if name != "batch")
        named.setdefault(text, {})[one["model"]] = None
    of = {text: f" ({', '.join(names)})" if len(named) > 1 else "" for text, names in named.items() if text}
    return [f"sizes: {text}{names}" for text, names in of.items()]


LONG_WAIT = 0.2
"""Share of a step that stages wait for each other, from which on smaller microbatches are worth a line."""


def job_lines(one: Entry) -> list[str]:
    """Say of a run on several devices which they are, and how much of its step waits; nothing of one device."""
    job = one.get("job")
    if job is None:
        return []
    nodes = f" ({job['nodes']:,} node{'s' if job['nodes'] > 1 else ''})" if job["nodes"] else ""
    exposed, busy, bubble, step = (job[name]["value"] for name in ("exposed_s", "busy_s", "bubble_s", "step_s"))
    samples, advice = job["batch"] // job["replicas"], ""
    if bubble / step > LONG_WAIT and samples > job["microbatches"]:
        advice = f"; microbatch=1 in the layout makes {samples:,} microbatches, between which stages wait less"
    return [
        f"{one['model']} on {one['target']}: {job['devices']:,} devices{nodes}, {job['layout']}; "
        f"replicas: {job['replicas']:,}, microbatches of each: {job['microbatches']:,}",
        f"  {exposed / step:.1%} of a step is communication that nothing hides ({seconds(exposed)} of the "
        f"{seconds(busy)} that links are busy), {bubble / step:.1%} a wait for other stages{advice}",
    ]


_PERIODS = (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0), ("s", 1.0), ("ms", 1e-3), ("µs", 1e-6))
FEW = 4
"""Estimates that a headline each is written of; more are read in the table."""


def _period(span: Ends) -> tuple[str, str]:
    """Write a time as people plan by it, and the ends of its interval in the same unit."""
    name, period = next((one for one in _PERIODS if span["value"] >= one[1]), _PERIODS[-1])
    value, low, high = (format_number(span[end] / period, 3) for end in ("value", "low", "high"))
    ends = NO_SPREAD if span["low"] == span["high"] else NARROW if low == high else f"{low} … {high}"
    return f"{value} {name}", f" ({ends})"


def _headline(one: Estimated) -> str:
    """Write what people plan by: how long a run takes, how many a day, and how much faster that is."""
    rate, best = one["unit_per_day"], ", ".join(one["excludes"])
    value, ends = _period(one["run_s"] if rate is not None and one["run_s"] is not None else one["step_s"])
    if rate is None:
        told = f"{value} a step{ends}{mark_of(one)}"
    else:
        told = f"{value} a run{ends}, {format_number(rate['value'], 3)} {one['unit']}s a day{mark_of(one)}"
    tokens = one.get("token_per_s")
    told += (
        f", {format_number(tokens['value'], 3)} tokens/s a device ({format_interval(tokens, None)})"
        if tokens
        else ""
    )
    told += f", at best: without {best}" if best else ""
    told += "" if rate is not None else "; what a run is its profile does not say: add --samples, --epochs or both"
    ratio = one.get("ratio")
    times = f"{format_number(ratio['value'], 3)} ({format_interval(ratio, None)})" if ratio else ""
    alone = alone_text(ratio["excludes_alone"]) if ratio else ""
    faster = f"; {times} times {ratio['baseline']}{f', but {alone}' if alone else ''}" if ratio else ""
    place = "" if one["scope"] == "device" else f", one {one['scope']}"
    return f"{one['model']} on {one['target']}{place}: {told}{faster}"


def _headlines(content: Study) -> list[str]:
    """Write the answers that the table below holds, and an empty line; nothing where they are many."""
    over = {model["ratio"]["baseline"] for model in content["models"] if model.get("ratio")}
    asked = [model for model in content["models"] if model["target"] not in over]
    return [*map(_headline, asked), ""] if len(asked) <= FEW else []


def format_estimates(content: Study, screen: Screen = PLAIN) -> str:
    """Write a study: the answers, then as an aligned table, coverage first, with what it leaves out said below."""
    page, models = Page(screen), content["models"]
    page.lines(_headlines(content), "bold")
    page.line(_first_line(models))
    _add_table(page, models)
    page.lines(_size_lines(models))
    page.lines(_precision_lines(models))
    page.lines(line for model in models for line in job_lines(model))
    without = dict.fromkeys(one["model"] for one in models if one["run_s"] is None)
    if without and len(models) > FEW:
        page.line(f"{', '.join(without)}: what a run is the profile does not say: add --samples, --epochs or both")
    excluded = sorted({term for model in models for term in model["excludes"]})
    page.line(f"scope: one {content['scope']}; {upper_bounds(excluded) or 'nothing excluded'}")
    page.line(f"intervals: {content['interval']:.0%}, of {content['interval_covers']}")
    page.lines(energy_lines(models))
    for model in models:
        for message in model["deviations"]:
            mark = UNFIT if model["fits"] is False and message.startswith("does not fit") else "note:"
            page.line(f"{mark} {model['model']} on {model['target']}: {message}", "yellow")
    page.lines((f"not estimated: {reason}" for reason in content["not_estimated"]), "yellow")
    for block in content.get("foms") or ([content["fom"]] if content["fom"] else []):
        show_merit(page, block, list(dict.fromkeys(model["unit"] for model in models)))
    return page.text()

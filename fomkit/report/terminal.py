"""Aligned text for a terminal, from the same content that ``--json`` prints."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fomkit.quantities import format_number, format_quantity

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

WIDTH = 240
MAX_COLUMN = 70
HEAVY = 0.8
NO_SPREAD = "no spread stated"
NARROW = "under 1 % wide"


def _console(stream: io.StringIO) -> Console:
    from rich.console import Console

    return Console(file=stream, width=WIDTH, color_system=None, highlight=False, markup=False, emoji=False)


def _table(headers: Sequence[tuple[str, str]]) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for header, justify in headers:
        table.add_column(header, justify="right" if justify == "right" else "left", max_width=MAX_COLUMN)
    return table


def format_interval(span: Mapping[str, float] | None, dimension: str | None) -> str:
    """Write the ends of a span, in a unit or as plain numbers."""
    if span is None:
        return ""
    if span["low"] == span["high"]:
        return NO_SPREAD
    ends = (span["low"], span["high"])
    low, high = (
        format_number(end, 3) if dimension is None else format_quantity(end, dimension, 3) for end in ends
    )
    if low == high:
        return NARROW
    if dimension is None:
        return f"{low} … {high}"
    # "122 … 165 ms" says the unit once where both ends have the same.
    same = low.rpartition(" ")[2] == high.rpartition(" ")[2]
    return f"{low.rpartition(' ')[0] if same else low} … {high}"


def _value(span: Mapping[str, float] | None, dimension: str | None) -> str:
    if span is None:
        return "unknown"
    return format_number(span["value"]) if dimension is None else format_quantity(span["value"], dimension)


def format_coverage(shares: Mapping[str, float]) -> str:
    """Write shares of predicted time by source, the largest first, leaving out empty ones."""
    present = sorted(((share, name) for name, share in shares.items() if share > 0), reverse=True)
    return ", ".join(f"{name} {share:.0%}" if share >= 0.01 else f"{name} <1%" for share, name in present)


def _mean_coverage(models: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    names = models[0]["coverage"]
    return {name: sum(one["coverage"][name] for one in models) / len(models) for name in names}


def _first_lines(content: Mapping[str, Any]) -> list[str]:
    machines: dict[str, list[Mapping[str, Any]]] = {}
    for one in content["models"]:
        machines.setdefault(one["target"], []).append(one)
    parts = [
        f"{name} ({models[0]['evidence']}): {format_coverage(_mean_coverage(models))}"
        for name, models in machines.items()
    ]
    lines = [f"coverage, share of predicted time: {' | '.join(parts)}"]
    kinds = {models[0]["evidence"] == "datasheet only" for models in machines.values()}
    if len(kinds) > 1:
        lines[0] = f"one side rests on a timing table, the other on a datasheet; {lines[0]}"
    return lines


def _model_row(one: Mapping[str, Any], with_ratio: bool) -> list[str]:
    ratio = one.get("ratio")
    return [
        one["model"],
        one["target"],
        str(one["batch"] or "unknown"),
        one["precision"],
        _value(one["step_s"], "time_s"),
        format_interval(one["step_s"], "time_s"),
        _value(one["run_s"], "time_s"),
        _value(one["unit_per_day"], None),
        format_interval(one["unit_per_day"], None),
        *(
            [f"{format_number(ratio['value'], 3)} ({format_interval(ratio, None)})" if ratio else ""]
            if with_ratio
            else []
        ),
        one["bound"],
        format_coverage(one["coverage"]),
    ]


def format_merit(merit: Mapping[str, Any]) -> list[str]:
    """Write a figure of merit: the value, its four means, weights and both machines' rates."""
    exact = merit["low"] is None
    digits = 8 if exact else 4
    spread = "no interval: given times carry no spread" if exact else format_interval(merit, None)
    other = ", ".join(f"{name} {format_number(value, digits)}" for name, value in merit["other_means"].items())
    weights = ", ".join(f"{line} {share:.1%}" for line, share in merit["weights"].items())
    rates = ", ".join(
        f"{merit[side]} {format_number(merit['rates'][side], digits + 2)}" for side in merit["rates"]
    )
    lines = [
        f"FOM {merit['target']} over {merit['baseline']} = {format_number(merit['value'], digits)} ({spread})",
        f"  mean: {merit['mean']}; scope: {merit['scope']}; worst basis: {merit['worst_basis']}",
        f"  harmonic mean rates per day: {rates}",
        f"  implied weights: {weights}",
        f"  other means of the ratios: {other}",
    ]
    lines += [
        f"  note: {line} alone carries {share:.0%} of the weight; the value says little of the others"
        for line, share in merit["weights"].items()
        if share > HEAVY and len(merit["weights"]) > 1
    ]
    if exact:
        cut = format_number(merit["value_with_rates_cut_to_whole_units"], digits)
        lines.append(f"  with every rate cut to whole units first, as the lecture rounds: {cut}")
    return lines


def _precision_lines(models: Sequence[Mapping[str, Any]]) -> list[str]:
    """Say what each precision in the table means and on which machines, once for all models that share it."""
    machines: dict[tuple[str, str], dict[str, None]] = {}
    for one in models:
        machines.setdefault((one["precision"], one["precision_means"]), {})[one["target"]] = None
    all_machines = {one["target"] for one in models}
    lines = []
    for (name, means), targets in machines.items():
        where = "" if targets.keys() == all_machines else f" on {', '.join(targets)}"
        lines.append(f"precision {name}{where}: {means}")
    return lines


def format_estimates(content: Mapping[str, Any]) -> str:
    """Write a study as an aligned table, coverage first, with what it leaves out said below."""
    stream = io.StringIO()
    console = _console(stream)
    with_ratio = any("ratio" in one for one in content["models"])
    headers = [
        ("model", ""), ("machine", ""), ("batch", "right"), ("precision", ""), ("step", "right"), ("interval", ""),
        ("run", "right"), ("units/day", "right"), ("interval", ""), *([("ratio", "")] if with_ratio else []),
        ("bound", ""), ("coverage", ""),
    ]  # fmt: skip
    table = _table(headers)
    order = list(dict.fromkeys(one["model"] for one in content["models"]))
    for one in sorted(content["models"], key=lambda entry: order.index(entry["model"])):
        table.add_row(*_model_row(one, with_ratio))
    for line in _first_lines(content):
        console.print(line, soft_wrap=True)
    console.print(table)
    excluded = sorted({term for one in content["models"] for term in one["excludes"]})
    notes = [
        f"{one['model']} on {one['target']}: {said}" for one in content["models"] for said in one["deviations"]
    ]
    bound = f"units/day are upper bounds, nobody stated: {', '.join(excluded)}" if excluded else "nothing excluded"
    for line in _precision_lines(content["models"]):
        console.print(line, soft_wrap=True)
    console.print(f"scope: one {content['scope']}; {bound}", soft_wrap=True)
    console.print(f"intervals: {content['interval']:.0%}, of {content['interval_covers']}", soft_wrap=True)
    for note in notes:
        console.print(f"note: {note}", soft_wrap=True)
    for reason in content["not_estimated"]:
        console.print(f"not estimated: {reason}", soft_wrap=True)
    blocks = content.get("foms") or ([content["fom"]] if content["fom"] else [])
    for block in blocks:
        for line in format_merit(block):
            console.print(line, soft_wrap=True)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def format_suite(content: Mapping[str, Any]) -> str:
    """Write a suite's figure of merit, its lines and its notes."""
    stream = io.StringIO()
    console = _console(stream)
    fom = content["fom"]
    old, new = fom["baseline"], fom["target"]
    table = _table(
        [("line", ""), ("class", ""), ("basis", ""), ("party", ""), ("from", ""),
         (f"{old} units/day", "right"), (f"{new} units/day", "right"), ("ratio", "right"), ("weight", "right")]
    )  # fmt: skip
    for line in content["lines"]:
        rates = [f"{line['unit_per_day'][machine]:,.8g}" for machine in (old, new)]
        what = [line["name"], line["class"], line["basis"], line["party"], line["source"]]
        table.add_row(*what, *rates, format_number(line["ratio"], 7), f"{line['weight']:.1%}")
    given = sum(line["source"] == "given" for line in content["lines"])
    console.print(f"coverage: {given} of {len(content['lines'])} lines given, the others estimated from profiles")
    for text in format_merit(fom):
        console.print(text, soft_wrap=True)
    if content["threshold"] is not None:
        verdict = "reached" if content["reaches_threshold"] else "not reached"
        console.print(f"  threshold {format_number(content['threshold'])}: {verdict}", soft_wrap=True)
    console.print(table)
    for note in content["notes"]:
        console.print(f"note: {note}", soft_wrap=True)
    return "\n".join(text.rstrip() for text in stream.getvalue().splitlines()) + "\n"


def format_explanation(title: str, steps: Sequence[tuple[str, str, str]]) -> str:
    """Write numbered steps as an aligned table: what is done, its number, where it comes from."""
    stream = io.StringIO()
    console = _console(stream)
    table = _table([("", "right"), ("step", ""), ("number", ""), ("from", "")])
    for number, (what, value, detail) in enumerate(steps, start=1):
        table.add_row(str(number), what, value, detail)
    console.print(title)
    console.print(table)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"

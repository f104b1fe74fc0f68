"""Energy as text: always with its scope and basis, and where it rests on figures in joules, the process node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fomkit.quantities import KWH_J, exact_quantity, format_number, format_quantity

_SCOPES = {"chip": "scope chip", "node": "scope node", "wall": "scope wall"}


def _joule(value: float) -> str:
    """Write an energy; from 0.1 kWh on in kWh too, which is what is paid."""
    text = format_quantity(value, "energy_j", 3)
    return f"{text} ({format_number(value / KWH_J, 3)} kWh)" if value >= KWH_J / 10 else text


def format_energy(span: Mapping[str, float]) -> str:
    """Write an energy with the ends of its interval.

    Examples
    --------
    >>> format_energy({"value": 12.0, "low": 9.5, "high": 15.0})
    '12.0 J (9.50 J … 15.0 J)'
    """
    if span["low"] == span["high"]:
        return f"{_joule(span['value'])} (no spread stated)"
    low, high = (format_quantity(span[end], "energy_j", 3) for end in ("low", "high"))
    return f"{_joule(span['value'])} ({low} … {high})"


def _limit(energy: Mapping[str, Any]) -> str:
    if energy["step_at_most"] is None:
        return ""
    most = format_quantity(energy["step_at_most"], "energy_j", 3)
    return f"; at most {most} per step, from the chip's limit of {energy['limit_w']:g} W, which is no average"


def energy_facts(energy: Mapping[str, Any] | None) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    """Give each figure that a machine states of energy: name with scope or process node, fact and dimension."""
    if energy is None:
        return
    scope = energy["scope"]
    node = "" if energy["process_m"] is None else f", {exact_quantity(energy['process_m'], 'length_m')} process"
    if energy["idle_w"]:
        yield f"idle power, {scope}", energy["idle_w"], "power_w"
    for one in energy["per_flop"]:
        yield (
            f"flop {one['dtype']} {one['engine'] or 'on any engine'}{node}",
            one["joule_per_flop"],
            "joule_per_flop",
        )
    if energy["joule_per_byte"]:
        yield f"byte of memory{node}", energy["joule_per_byte"], "joule_per_byte"
    for one in energy["average"]:
        batch = f", batch {one['batch']}" if one["batch"] else ""
        precision = f", {one['precision']}" if one["precision"] else ""
        yield f"mean power, {one['workload']}{batch}{precision}, {one['scope']}", one["power_w"], "power_w"
    if energy["limit_w"]:
        yield "limit of a chip's power, no average", energy["limit_w"], "power_w"


def format_terms(one: Mapping[str, Any]) -> str:
    """Write the terms of a step's energy, a line each, with their shares and where the figures come from.

    Parameters
    ----------
    one : mapping
        An entry of ``models`` with a block ``energy_j``.
    """
    energy = one["energy_j"]
    if energy["step"] is None:
        return f"{energy_line(one)}\n"
    devices = f", {energy['devices']} devices" if energy["devices"] > 1 else ""
    lines = [f"energy of a step{devices}, by {energy['method'].replace('_', ' ')} ({energy['from']}):"]
    lines += [
        f"  {name}: {format_energy(term)}, {term['value'] / energy['step']['value']:.1%}"
        for name, term in energy["terms_step"].items()
    ]
    if _limit(energy):
        lines.append(f"  {_limit(energy).removeprefix('; ')}")
    return "\n".join([*lines, f"  {energy_line(one)}", ""])


def energy_lines(models: Sequence[Mapping[str, Any]]) -> list[str]:
    """Write a line for each model with energy, and one for all that miss the same on a machine."""
    missing: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for one in models:
        energy = one["energy_j"]
        if energy is not None and energy["step"] is None:
            missing.setdefault((one["target"], *energy["missing"]), []).append(one)
    lines = [energy_line(one) for one in models if one["energy_j"] is not None and one["energy_j"]["step"]]
    for (target, *reasons), alike in missing.items():
        if len(alike) == 1:
            lines.append(energy_line(alike[0]))
            continue
        limit_w = alike[0]["energy_j"]["limit_w"]
        limit = f"; the chip's limit is {limit_w:g} W, which is no average" if limit_w else ""
        lines.append(f"energy: {len(alike)} models on {target}: missing, {'; '.join(reasons)}{limit}")
    return lines


def energy_line(one: Mapping[str, Any]) -> str:
    """Write what one model's step, run and unit take on a machine, or why nobody knows.

    Parameters
    ----------
    one : mapping
        An entry of ``models`` with a block ``energy_j``.
    """
    energy, head = one["energy_j"], f"energy: {one['model']} on {one['target']}: "
    if energy["step"] is None:
        return f"{head}missing, {'; '.join(energy['missing'])}{_limit(energy)}"
    said = [f"{format_energy(energy['step'])} per step"]
    if energy["run"] is not None:
        said.append(f"{_joule(energy['run']['value'])} per run")
        if energy["unit"] != energy["run"]:
            said.append(f"{_joule(energy['unit']['value'])} per {one['unit']}")
    node = f", {exact_quantity(energy['process_m'], 'length_m')} process" if energy["process_m"] else ""
    idle = f", {energy['idle_share']:.0%} of it idle power" if energy["idle_share"] is not None else ""
    notes = "".join(f"; {note}" for note in energy["notes"])
    return f"{head}{', '.join(said)}; {energy['basis']}, {_SCOPES[energy['scope']]}{node}{idle}{notes}"

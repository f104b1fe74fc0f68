"""A wall meter's log as a measurement: the energy between two moments."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fomkit.energy import Integral, Sample, integrate
from fomkit.errors import FomkitError
from fomkit.measurements.imported import rows_as_table
from fomkit.measurements.meter import read_meter, recognise_meter
from fomkit.quantities import exact_quantity, format_quantity

if TYPE_CHECKING:
    import pandas as pd

TITLE = "log of a wall meter (.csv: time, power_w)"
__all__ = ["TITLE", "MeterImport", "import_meter", "recognise_meter"]


@dataclass(frozen=True)
class MeterImport:
    """A MEASUREMENTS table of one row, ``energy_j``, and what there is to say of it."""

    table: pd.DataFrame
    said: tuple[str, ...]


def _said(found: Integral, first_s: float, workload: str, path: Path) -> tuple[str, ...]:
    power = found.power_w
    gaps = [
        f"no reading for {gap.length_s:.4g} s, {gap.moment_s - first_s:.6g} s after the start: "
        "power is taken to lie between the least and the largest reading there"
        for gap in found.gaps
    ]
    ends = ", ".join(f"{name}: {exact_quantity(value, 'power_w')}" for name, value in
                     (("power", power.value), ("low", power.low), ("high", power.high)))  # fmt: skip
    shape = f"{{workload: {workload}, scope: wall, {ends}, source: '{path.name}'}}"
    return (
        f"{format_quantity(found.energy_j.value, 'energy_j')} in {format_quantity(found.wall_s, 'time_s')}, "
        f"mean power {format_quantity(power.value, 'power_w')}, a reading every "
        f"{format_quantity(found.period_s, 'time_s', 3)}; the meter's own error is not in the interval",
        *gaps,
        f"for the machine's file, under energy.average: {shape}",
    )


def import_meter(
    path: Path, *, model: str | None, machine: str | None, start: str | None = None, end: str | None = None
) -> MeterImport:
    """Integrate a wall meter's log between two moments.

    Parameters
    ----------
    path : Path
    model, machine : str
        What ran, and where: a meter does not know it.
    start, end : str, optional
        Moments in the form of the log's; default: its first and its last.

    Raises
    ------
    FomkitError
        With the line of a mistake in the log, or when nobody says what ran, or the moments lie outside it.
    """
    if not model or not machine:
        raise FomkitError(str(path), "does not say what ran where. Add --model and --machine.")
    log = read_meter(path)
    first_s = log.moment(start, "--start") if start else log.moments_s[0]
    last_s = log.moment(end, "--end") if end else log.moments_s[-1]
    samples = [Sample(*each) for each in zip(log.moments_s, log.powers_w, strict=True)]
    try:
        found = integrate(samples, first_s, last_s)
    except FomkitError as error:
        raise FomkitError(str(path), f"{error.where}: {error.what}") from error
    energy = found.energy_j
    row = {
        "model": model, "machine": machine, "quantity": "energy_j", "value": energy.value,
        "low": energy.low or None, "high": energy.high if energy.low else None,
        "scope": "wall", "basis": "measured", "source": f"wall meter, {path.name}",
        "note": f"{found.wall_s:.6g} s, {len(found.gaps)} gaps",
    }  # fmt: skip
    if not energy.value > 0:
        raise FomkitError(str(path), "reads no power in this time. Check what the meter was plugged into.")
    return MeterImport(rows_as_table([row], str(path)), _said(found, first_s, model, path))

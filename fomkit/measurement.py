"""The measurement noun: what somebody timed of a whole model on a machine, and under which conditions."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Measurement:
    """One row of a table of measurements.

    Attributes
    ----------
    where : str
        File and line, for messages.
    quantity : str
        step_s, epoch_s, run_s or latency_s [s], or sample_per_s [1/s].
    value, low, high : float
        In the unit of ``quantity``; the ends are those of the 80 % interval of repeats and equal ``value`` where
        nobody stated a spread.
    spread_stated : bool
    repeats, batch, devices : int or None
        None is unknown.
    precision, scope, basis, party, framework, framework_version, date, source, note : str
        "" is unknown.
    holds : str
        Work in the figure besides the model's ops, in words; "" where nobody says of any.
    record : str
        Fields of the record it was imported from that have no place here, as JSON; "" where there are none.
    """

    where: str
    model: str
    machine: str
    quantity: str
    value: float
    low: float
    high: float
    spread_stated: bool
    basis: str
    repeats: int | None = None
    batch: int | None = None
    precision: str = ""
    devices: int | None = None
    scope: str = ""
    party: str = ""
    framework: str = ""
    framework_version: str = ""
    date: str = ""
    source: str = ""
    note: str = ""
    holds: str = ""
    record: str = ""

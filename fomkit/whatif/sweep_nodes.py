"""Points that differ in nodes or links, one after the other: each is a step of `fomkit.study.scaling`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pandas as pd

from fomkit.errors import FomkitError
from fomkit.hardware import Link, Machine
from fomkit.parallel import Layout, Network, ParallelStep
from fomkit.study.changes import change_machine
from fomkit.study.options import Options
from fomkit.study.scaling import Stepper, stepper_of, with_links
from fomkit.study.system_rate import Service, system_content
from fomkit.whatif.sweep_parameters import LINK_ALPHA, LINK_RATE, NODES, OF_LAYOUT
from fomkit.workload import ModelProfile

if TYPE_CHECKING:
    from collections.abc import Hashable

MOST_WITH_NODES = 20_000
"""Points of a sweep over nodes: about ten a second (benchmarks/sweeps.py), so half an hour."""
_NOT_SAID = math.nan, math.nan, math.nan


def linked(machine: Machine, channel: str, alpha_s: float | None, byte_per_s: float | None) -> Machine:
    """Give a machine whose link between nodes has another start-up time [s] or rate of a device [byte/s].

    Raises
    ------
    FomkitError
        When one of the two is known from nowhere.
    """
    if alpha_s is None and byte_per_s is None:
        return machine
    stated = next((link for link in machine.links if (link.tier, link.channel) == ("system", channel)), None)
    if stated is None and (alpha_s is None or byte_per_s is None):
        lacking = LINK_ALPHA if alpha_s is None else LINK_RATE
        raise FomkitError(
            machine.name,
            f"states no link of tier 'system', so both its figures are needed. Add --vary {lacking}=…",
        )
    link = stated or Link("system", 0.0, 1.0, "each", "", channel)
    changed: dict[str, Any] = {"source": "given by the user", "basis": "assumed"}
    changed |= {} if alpha_s is None else {"alpha_s": alpha_s, "alpha_range_s": None}
    changed |= {} if byte_per_s is None else {"byte_per_s": byte_per_s, "range_byte_per_s": None}
    return with_links(machine, [replace(link, **changed)])


def check_nodes(names: tuple[str, ...], machine: Machine, points: int) -> bool:
    """Tell whether points go through scaling, and raise where they cannot.

    Raises
    ------
    FomkitError
        When a link is varied and no nodes are, the machine has no nodes, or there are too many points.
    """
    if not any(name in OF_LAYOUT for name in names):
        return False
    if NODES not in names:
        raise FomkitError(
            "sweep", "varies a link between nodes, but says of no nodes. Add, say, --vary nodes=1,8,64."
        )
    if points > MOST_WITH_NODES:
        raise FomkitError(
            "sweep",
            f"asks for {points:,} points with nodes, which are worked out one after the other, about ten a "
            f"second; {MOST_WITH_NODES:,} is the most. Take fewer steps, or sample: --way sobol --points 4096.",
        )
    _ = Network(machine).node_devices  # raises where nobody says
    return True


@dataclass(frozen=True)
class OnNodes:
    """A model that is spread over the devices of nodes, a batch for each copy of it."""

    model: ModelProfile
    machine: Machine
    layout: Layout
    options: Options

    def _stepper(self, sizes: Mapping[str, int], machine_values: Mapping[str, float],
                 link: tuple[float | None, float | None]) -> tuple[Stepper, Machine, int]:  # fmt: skip
        machine = change_machine(self.machine, machine_values) if machine_values else self.machine
        machine = linked(machine, self.layout.channel, *link)
        options = replace(self.options, sizes={**self.options.sizes, **sizes})
        batch = options.wanted_sizes.get("batch") or self.model.batch
        if batch is None:
            raise FomkitError(self.model.name, "does not say its batch. Give --batch, or vary it.")
        # The options of a step have no batch: each asks with its own.
        rest = {name: value for name, value in options.sizes.items() if name != "batch"}
        return (
            stepper_of(self.model, machine, self.layout, replace(options, batch=None, sizes=rest)),
            machine,
            batch,
        )

    def _point(self, stepper: Stepper, machine: Machine, batch: int, nodes: int) -> dict[str, object]:
        devices = nodes * Network(machine).node_devices
        step = stepper.at(devices, batch * self.layout.replicas(devices))
        system = system_content(self.model, machine, step, nodes, Service())
        peak_byte = math.nan if step.memory_byte is None else step.memory_byte
        jobs = system["runs_at_once"] if system else 1
        excludes = (*step.excludes, *(system["excludes"] if system else ()))
        return {**_spans(step, system), "excludes": excludes, "peak_byte": peak_byte, "devices": devices,
                "jobs": jobs, "basis": "modelled"}  # fmt: skip

    def estimate(self, table: pd.DataFrame) -> pd.DataFrame:
        """Estimate the points of a table; its results, peak_byte [byte], devices of a job, and jobs at once."""
        sizes = [name for name in table.columns if name == "batch" or name in self.model.sizes]
        facts = [name for name in table.columns if name not in (*sizes, *OF_LAYOUT)]
        steppers: dict[Hashable, tuple[Stepper, Machine, int]] = {}
        found = []
        for row in table.to_dict("records"):
            key = tuple(value for name, value in row.items() if name != NODES)
            if key not in steppers:
                steppers[key] = self._stepper(
                    {name: int(row[name]) for name in sizes},
                    {name: row[name] for name in facts},
                    (row.get(LINK_ALPHA), row.get(LINK_RATE)),
                )
            found.append(self._point(*steppers[key], nodes=int(row[NODES])))
        return pd.DataFrame(found, index=table.index)


def _spans(step: ParallelStep, system: Mapping[str, Any] | None) -> dict[str, object]:
    per_day = system["unit_per_day"] if system else None
    ends = {
        "step_s": (step.wall_s.value, step.wall_s.low, step.wall_s.high),
        "sample_per_s": (step.sample_per_s.value, step.sample_per_s.low, step.sample_per_s.high),
        "unit_per_day": _NOT_SAID if per_day is None else (per_day["value"], per_day["low"], per_day["high"]),
    }
    return {
        f"{name}{end}": value
        for name, values in ends.items()
        for end, value in zip(("", "_low", "_high"), values, strict=True)
    }

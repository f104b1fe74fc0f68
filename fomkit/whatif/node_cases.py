"""A training spread over nodes, asked at other values of its parameters; and the choice of what is asked of."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, cached_property

from fomkit.core.errors import FomkitError
from fomkit.core.interval import Span, add_independent
from fomkit.core.job import Layout
from fomkit.core.machine import Machine
from fomkit.core.model import ModelProfile
from fomkit.core.suite import Suite
from fomkit.merit.measured_steps import NOTHING_MEASURED, MeasuredRuns
from fomkit.merit.rated_lines import Load
from fomkit.parallel.layout import check_layout
from fomkit.parallel.step import ParallelStep
from fomkit.plan.content import Condition
from fomkit.plan.estimate import estimate
from fomkit.plan.job import NodesJob, SystemRun
from fomkit.plan.options import Options, change_machine, choose_sizes
from fomkit.plan.replica_step import on_one_device
from fomkit.plan.scaling import step_fit
from fomkit.prediction.exchange import Network
from fomkit.profiles.evidence import verdict_on
from fomkit.whatif import parameters as varied
from fomkit.whatif.cases import Figures, OneModel, OnMachine, Point, Subject, Title
from fomkit.whatif.measurements import OUT, ToMeasure, measure_command, measurement, ranked
from fomkit.whatif.suite_cases import OfSuite


@dataclass(frozen=True)
class OnNodes(OnMachine):
    """A job of so many nodes; the batch of the options is that of one replica."""

    model: ModelProfile
    machine: Machine
    options: Options
    layout: Layout
    nodes: int
    tries = 48  # each value is a step of its own

    @property
    def title(self) -> Title:
        """Name model, target, nodes and layout, and what nobody stated."""
        return {"model": self.model.name, "target": self.machine.name, "unit": self.model.unit.name,
                "sizes": choose_sizes(self.model, self.options.wanted_sizes), "nodes": self.nodes,
                "layout": vars(self.layout), "excludes": self._excludes,
                "does_not_fit": self.unfit({}), "notes": list(verdict_on(self._fitted)),
                "conditions": self._conditions}  # fmt: skip

    @cached_property
    def _excludes(self) -> list[str]:
        _, step, run = self._step({})
        return sorted({*step.excludes, *(() if run is None else run.time.excludes)})

    @cached_property
    def _conditions(self) -> dict[str, Condition]:
        return self._step({})[0].conditions(self.nodes)

    @cached_property
    def _peaks(self) -> frozenset[str] | None:
        """The peaks in use; None is all, of a transformer by its sizes, whose ops differ from device to device."""
        if self.model.transformer is not None:
            return None
        return varied.peaks_in_use([estimate(on_one_device(self.model), self._fitted, self.options)])

    def parameters(self) -> tuple[varied.Parameter, ...]:
        """List rates, costs, overheads and links of the machine, nodes, sizes and run of the model."""
        devices = Network(self.machine, self.layout.channel).node_devices
        replicas = self.layout.replicas(self.nodes * devices)
        of_a_copy = math.lcm(self.layout.fewest_devices, devices) // devices
        return (
            *varied.device_parameters(self.machine, self._peaks),
            *varied.link_parameters(self.machine, self.layout.channel),
            varied.whole("nodes", self.nodes, "machine", of_a_copy),
            *varied.model_parameters(self.model, self.options, replicas),
        )

    def not_varied(self) -> list[tuple[str, str]]:
        """Name rates that nobody stated and sizes that are fixed."""
        return [*varied.unstated(self.machine, self._peaks or frozenset()), *varied.fixed_sizes(self.model)]

    def _step(self, point: Point) -> tuple[NodesJob, ParallelStep, SystemRun | None]:
        """Give the job, its step and its run at one point."""
        ours = {parameter.name for parameter in self.parameters() if parameter.of == "machine"} - {"nodes"}
        of_machine = {name: value for name, value in point.items() if name in ours}
        others = {name: value for name, value in point.items() if name not in {*ours, "nodes"}}
        machine = change_machine(self._fitted, of_machine, self.layout.channel)
        model, options = varied.changed_model(self.model, self.options, others)
        job = NodesJob(model, machine, self.layout, options)
        return job, *job.at(round(point.get("nodes", self.nodes)))

    def again(self, point: Point) -> Figures:
        """Give the figures of a step of all nodes at a point.

        Raises FomkitError when there is none.
        """
        job, step, run = self._step(point)
        found = {"sample_per_s": step.sample_per_s, "step_s": step.wall_s}
        samples = job.model.data.train_samples
        if run is None and samples is not None and job.model.run.epochs is not None:
            raise FomkitError(
                "batch", f"a step of {step.samples:,} is more than the {samples:,} samples of an epoch."
            )
        rate = None if run is None else run.unit_per_day
        return found if rate is None else {"unit_per_day": rate, **found}

    def binding(self, point: Point) -> str:
        """Say which part of the step is the longest."""
        return self._step(point)[1].longest

    def unfit(self, point: Point) -> str:
        """Say that a device's memory does not hold its part of the step."""
        job, step, _ = self._step(point)
        return step_fit(job.machine, step).message

    def measurements(self) -> ToMeasure:
        """Rank a step on one device and the collectives by how much narrower the step's interval would be."""
        step = self._step({})[1]
        if self.model.transformer is not None:
            return {"measurements": [], "measurements_say": "not worked out for a transformer by its sizes"}
        compute, exposed = step.compute_s, step.exposed_s
        of_device = measure_command(self.model, self.machine, self.options)
        parts = (
            ("a step on one device", [Span.exact(compute.value, self.level), exposed], of_device),
            ("the collectives between the devices", [compute, Span.exact(exposed.value, self.level)],
             f"fomkit measure --network {OUT}"),
        )  # fmt: skip
        return ranked(
            measurement("part of the step", what, step.wall_s, add_independent(terms), command)
            for what, terms, command in parts
        )


def subject_of_model(
    model: ModelProfile, target: Machine, options: Options, nodes: int | None = None, layout: Layout | None = None
) -> Subject:
    """Choose a model on the scope of the options, or its training spread over nodes.

    Raises FomkitError when nodes are no number, a layout has no nodes, or both nodes and a scope are given.
    """
    if nodes is None:
        if layout is not None:
            raise FomkitError("layout", "says how a training is spread over nodes. Add --nodes.")
        return OneModel(model, target, options)
    given: object = nodes  # a notebook may give anything
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise FomkitError("nodes", f"{nodes!r} is no number of nodes. Give a whole number, 1 or more.")
    if options.scope is not None:
        raise FomkitError("scope", "and nodes say two things. Nodes are those of one job; leave the scope out.")
    return OnNodes(model, target, options, check_layout(layout or Layout()), nodes)


def subject_of_suite(
    suite: Suite,
    baseline: Machine,
    target: Machine,
    options: Options,
    load: Load,
    measured: MeasuredRuns = NOTHING_MEASURED,
) -> Subject:
    """Choose a suite, whose lines fix batch, sizes, precision and scope; ``measured`` runs are held against them.

    Raises FomkitError when the options would change what the lines fix.
    """
    if options.wanted_sizes or options.precision is not None or options.scope is not None:
        raise FomkitError(suite.name, "fixes batch, sizes, precision and scope by its lines. Leave them out.")
    return OfSuite(suite, baseline, target, options, cache(load), measured)

"""Subjects of several parts: a suite (`OfSuite`) and a training over nodes (`OnNodes`); how they are made."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property

from fomkit.core.errors import FomkitError
from fomkit.core.interval import Span, add_independent
from fomkit.core.job import Conditions, Layout, Suite, SuiteLine
from fomkit.core.machine import Machine
from fomkit.core.measurement import verdict_on
from fomkit.core.model import ModelProfile
from fomkit.merit.measured_steps import NOTHING_MEASURED, MeasuredRuns
from fomkit.merit.rated_lines import LineRating, Load, RatedLine, fixed_conditions
from fomkit.merit.suites import SuiteResult, merit_of, run_suite
from fomkit.parallel.step import ParallelStep, check_layout
from fomkit.plan.content import conditions_content
from fomkit.plan.estimate import estimate
from fomkit.plan.job import NodesJob, SystemRun
from fomkit.plan.memory_of import fit_in
from fomkit.plan.options import LINKS, REPLICA_BATCH, Options, change_machine, check_nodes, choose_sizes, with_host
from fomkit.plan.replica_step import on_one_device
from fomkit.plan.scaling import share_of_batch
from fomkit.prediction.exchange import Network
from fomkit.whatif import parameters as varied
from fomkit.whatif.cases import Figures, OneModel, Outcome, Point, Subject, Title
from fomkit.whatif.parameters import OUT, ToMeasure, measure_command, measurement, rank_measurements

_OF_MODEL = {"samples": "train_samples"}
"""Conditions of a line that have another name among a model's parameters."""
Key = tuple[tuple[tuple[str, float], ...], tuple[tuple[str, float], ...]]
GAINS = ("utilisation_gain", "precision_gain")
"""Factors that are stated with a given time."""
RATED = ("batch", "epochs", "samples")
"""Conditions of a line that are numbers."""


def _key(of_machine: Point, own: Point) -> Key:
    return tuple(sorted(of_machine.items())), tuple(sorted(own.items()))


def _channel(line: SuiteLine) -> str:
    """Return the transport of the links that a job of a line uses."""
    return "" if line.job is None else line.job.layout.channel


@dataclass(frozen=True)
class OfSuite(Subject):
    """A suite on a target and a baseline. Given times change with gains, and their rates with nodes too."""

    suite: Suite
    baseline: Machine
    machine: Machine
    options: Options
    load: Load
    measured: MeasuredRuns = NOTHING_MEASURED
    _rated: dict[tuple[str, Key], RatedLine] = field(default_factory=dict)
    tries = 48  # each value rates the suite again

    @property
    def title(self) -> Title:
        """Suite, machines and scope, the lines whose rates do not change, and the terms that are not stated."""
        fixed_lines = [one.line.name for one in self.result.target if one.kind != "estimated"]
        behind = {one.line.name: one.estimate for one in self.result.target}
        return {"suite": self.suite.name, "target": self.machine.name, "baseline": self.baseline.name,
                "scope": self.suite.scope, "lines_that_stay": fixed_lines,
                "excludes": list(self.result.excludes), "excludes_alone": self.result.alone,
                "little_explained": [one.line for one in self.result.little_explained],
                "does_not_fit": "; ".join(self.result.unfit),
                "notes": list(dict.fromkeys(
                    text for estimate in self.result.estimates for text in verdict_on(estimate.machine)
                )),
                "line_conditions": {
                    name: conditions_content(one) for name, one in behind.items() if one is not None
                }}  # fmt: skip

    @cached_property
    def result(self) -> SuiteResult:
        """The suite at the current values."""
        result = run_suite(
            self.suite, self.baseline, self._fitted, self.options, self.load, measured=self.measured
        )
        if result.merit is None:
            lacking = ", ".join(result.incomplete) or "every line"
            raise FomkitError(
                self.suite.name, f"has no figure of merit on {self.machine.name}: {lacking} has no time there."
            )
        return result

    @property
    def _is_estimated(self) -> bool:
        return any(one.kind == "estimated" for one in self.result.target)

    def _line_parameters(self, line: RatedLine) -> Iterator[varied.Parameter]:
        if line.kind == "given":
            given = line.line.given[self.machine.name]
            for name in GAINS:
                gain = getattr(given, name)
                ends = (gain, gain, 0, given.basis, given.source)
                yield varied.Parameter(f"{line.line.name}.{name}", "factor", gain, "line", *ends)
        if line.kind != "estimated" or line.line.model is None:
            return
        model = line.alone.model if line.alone is not None else self.load(line.line.model)
        fixed = fixed_conditions(line.line.conditions, model)
        for name, value in fixed.stated().items():
            if isinstance(value, int) and (name in RATED or value != 0):
                grain = fixed.batch if name == "samples" and fixed.batch is not None else 1
                yield varied.whole(f"{line.line.name}.{name}", value, grain=grain)

    @cached_property
    def _peaks(self) -> frozenset[str] | None:
        """The peaks in use; None is all: the ops of a job differ from device to device."""
        if any(one.job is not None for one in self.result.target):
            return None
        return varied.peaks_in_use(one.alone for one in self.result.target if one.alone is not None)

    def not_varied(self) -> list[tuple[str, str]]:
        """Return the rates that are not stated."""
        return list(varied.unstated(self.machine, self._peaks or frozenset())) if self._is_estimated else []

    def parameters(self) -> tuple[varied.Parameter, ...]:
        """Return rates, costs, overheads of the target, conditions of estimated lines, and gains of given ones."""
        target = self.result.target
        channels = dict.fromkeys(_channel(one.line) for one in target if one.job is not None)
        links = {
            one.name: one
            for channel in reversed(channels)
            for one in varied.link_parameters(self.machine, channel)
        }
        return (
            *(varied.device_parameters(self.machine, self._peaks) if self._is_estimated else ()),
            *links.values(),
            *varied.scope_parameters(self.machine, self.suite.scope),
            *(parameter for one in target for parameter in self._line_parameters(one)),
        )

    def _rate(self, line: SuiteLine, of_machine: Point, own: Point) -> RatedLine:
        """Rate a line, once for equal machines and conditions."""
        key = line.name, _key(of_machine, own)
        if key not in self._rated:
            machine = self._changed(of_machine, line)
            given = line.given.get(machine.name)
            if given is not None:
                utilisation, precision = (own.get(name, getattr(given, name)) for name in GAINS)
                given = replace(given, utilisation_gain=utilisation, precision_gain=precision)
                line, own = replace(line, given={**line.given, machine.name: given}), {}
            proposed = dict[str, Conditions]()
            if own:
                numbers = {name: round(value) for name, value in own.items()}
                batch, epochs, samples = (numbers.pop(name, None) for name in RATED)
                proposed[line.name] = Conditions(batch, epochs=epochs, samples=samples, sizes=numbers)
            rating = LineRating(self.suite, machine, self.options, self.load, proposed)
            self._rated[key] = rating.rate(line)
        return self._rated[key]

    def _split(self, point: Point) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
        """Split a point into parameters of the machine, and of each line by its conditions."""
        of_machine: dict[str, float] = {}
        of_line: dict[str, dict[str, float]] = {line.name: {} for line in self.suite.lines}
        for name, value in point.items():
            line, dot, condition = name.rpartition(".")
            if dot and line in of_line:
                of_line[line][condition] = value
            else:
                of_machine[name] = value
        return of_machine, of_line

    def _changed(self, of_machine: Point, line: SuiteLine) -> Machine:
        """Return the target at other values, of links only those that the job of a line uses."""
        own = {parameter.name for parameter in varied.link_parameters(self.machine, _channel(line))}
        values = {name: value for name, value in of_machine.items() if name not in LINKS or name in own}
        return change_machine(self._fitted, values, _channel(line))

    def result_at(self, point: Point) -> SuiteResult:
        """Rate the suite at one point."""
        if not point:
            return self.result
        of_machine, of_line = self._split(point)
        target = tuple(self._rate(line, of_machine, of_line[line.name]) for line in self.suite.lines)
        for new, now in zip(target, self.result.target, strict=True):
            if new.unit_per_day is None and now.unit_per_day is not None:
                raise FomkitError(new.line.name, new.missing)
        changed = replace(self.result, target=target)
        return replace(changed, merit=merit_of(changed))

    @cached_property
    def _line_subjects(self) -> dict[str, OneModel]:
        """Each estimated line of the target as a model: its utilisations are computed once for all machines."""
        found = {}
        for one in self.result.target:
            if one.alone is not None:
                options = replace(self.options, sizes=one.alone.sizes, scope=self.suite.scope,
                                  precision=one.line.conditions.precision)  # fmt: skip
                found[one.line.name] = OneModel(one.alone.model, self._fitted, options)
        return found

    def _rates_alone(self, name: str, asked: Sequence[Point]) -> list[Span | FomkitError]:
        """Return a line's rate at each point of its model, all evaluated together."""
        alone, line = self._line_subjects[name], next(line for line in self.suite.lines if line.name == name)
        # A run on one device does not depend on links.
        found = alone.at([
            {_OF_MODEL.get(one, one): value for one, value in point.items() if one not in LINKS} for point in asked
        ])  # fmt: skip
        units = alone.model.unit.runs / line.runs
        return [
            FomkitError(name, str(one)) if isinstance(one, FomkitError) else one["unit_per_day"].scaled(units)
            for one in found
        ]

    def _rates_one_by_one(self, line: SuiteLine, asked: Sequence[tuple[Point, Point]]) -> list[Span | FomkitError]:
        """Return a line's rate at each point (machine, conditions), if it is given or uses several devices."""
        found: list[Span | FomkitError] = []
        for of_machine, own in asked:
            try:
                rated = self._rate(line, of_machine, own)
            except FomkitError as error:
                found.append(error)
                continue
            found.append(rated.unit_per_day or FomkitError(line.name, rated.missing))
        return found

    def at(self, points: Sequence[Point]) -> list[Outcome]:
        """Return the figures at each point; the numbers equal those of `figures_at`."""
        split, rates = [self._split(point) for point in points], dict[str, dict[Key, Span | FomkitError]]()
        for one in self.result.target:
            name = one.line.name
            if one.kind not in ("estimated", "given"):
                continue
            asked = {_key(of_machine, of_line[name]): (of_machine, of_line[name]) for of_machine, of_line in split}
            asked.pop(_key({}, {}), None)
            found = (
                self._rates_alone(name, [{**of_machine, **own} for of_machine, own in asked.values()])
                if name in self._line_subjects
                else self._rates_one_by_one(one.line, list(asked.values()))
            )
            rates[name] = dict(zip(asked, found, strict=True))
        return [
            self._with_rates({name: known.get(_key(of_machine, of_line[name])) for name, known in rates.items()})
            for of_machine, of_line in split
        ]

    def _with_rates(self, changed: Mapping[str, Span | FomkitError | None]) -> Outcome:
        """Return the figure of merit with other rates of some lines; None is the current rate."""
        target = []
        for one in self.result.target:
            rate = changed.get(one.line.name)
            if isinstance(rate, FomkitError):
                return rate
            target.append(one if rate is None else replace(one, unit_per_day=rate))
        merit = merit_of(replace(self.result, target=tuple(target)))
        return {} if merit is None else {"fom": merit.value}

    def figures_at(self, point: Point) -> Figures:
        """Return the figure of merit at a point."""
        merit = self.result_at(point).merit
        return {} if merit is None else {"fom": merit.value}

    def binding(self, point: Point) -> str:
        """Return what the steps of the lines wait for, lines with the largest weight first."""
        result = self.result_at(point)
        weights = result.merit.weights if result.merit is not None else {}
        lines = sorted(result.target, key=lambda one: -weights.get(one.line.name, 0.0))
        bounds = [behind.step_time.bound for one in lines if (behind := one.estimate) is not None]
        return ", ".join(dict.fromkeys(filter(None, bounds)))

    def unfit(self, point: Point) -> str:
        """Return a message on the lines whose step a device's memory does not hold."""
        rated = self.result_at(point).target
        messages = {one.line.name: one.unfit for one in rated}
        return "; ".join(f"{name} {text}" for name, text in messages.items() if text)

    def measurements(self) -> ToMeasure:
        """Rank the lines by how much the figure's interval would shrink if one rate were known exactly."""
        merit, found = self.result.merit, []
        if merit is None:
            return {}
        sides = (self.result.baseline, self.result.target)
        for side, machine in enumerate(self.result.machines):
            for place, one in enumerate(sides[side]):
                rate = one.unit_per_day
                if rate is None or rate.low == rate.high:
                    continue
                known = replace(one, unit_per_day=Span.exact(rate.value, rate.level))
                rated = (*sides[side][:place], known, *sides[side][place + 1 :])
                baseline, target = (sides[0], rated) if side else (rated, sides[1])
                again = merit_of(replace(self.result, baseline=baseline, target=target))
                if again is not None:
                    what, command, behind = f"{one.line.name} on {machine.name}", "", one.alone
                    if behind is not None:
                        options = replace(self.options, sizes=behind.sizes, batch=None)
                        command = measure_command(behind.model, behind.machine, options)
                    found.append(measurement("line", what, merit.value, again.value, command, of="fom"))
        return rank_measurements(found)


@dataclass(frozen=True)
class OnNodes(Subject):
    """A job on ``nodes`` nodes; the batch of the options is that of one replica, which is kept on other nodes.

    A whole batch would divide into the replicas of few other numbers of nodes.
    """

    model: ModelProfile
    machine: Machine
    options: Options
    layout: Layout
    nodes: int
    tries = 48  # each value is a step of its own

    @cached_property
    def title(self) -> Title:
        """Model, target, nodes and layout, and the terms that are not stated."""
        job, step, run = self._step({})
        excludes = dict.fromkeys((*step.excludes, *(() if run is None else run.time.excludes)))
        slow = Network(self.machine, self.layout.channel).slow_note(step.devices)
        return {"model": self.model.name, "target": self.machine.name, "unit": self.model.unit.name,
                "sizes": choose_sizes(self.model, self.options.wanted_sizes), "precision": step.precision,
                "nodes": self.nodes, "samples_per_step": step.samples,
                "layout": vars(self.layout), "excludes": list(excludes),
                "does_not_fit": fit_in(job.machine, step.memory_byte).message,
                "notes": [*verdict_on(self._fitted), *[slow] * bool(slow)],
                "conditions": job.conditions(self.nodes)}  # fmt: skip

    @cached_property
    def _peaks(self) -> frozenset[str] | None:
        """The peaks in use; None is all: the ops of a transformer by its sizes differ from device to device."""
        if self.model.trains_by_sizes:
            return None
        return varied.peaks_in_use([estimate(on_one_device(self.model), self._fitted, self.options)])

    def parameters(self) -> tuple[varied.Parameter, ...]:
        """Return rates, costs, overheads and links of the machine, nodes, sizes and run of the model."""
        devices = Network(self.machine, self.layout.channel).node_devices
        replicas = self.layout.replicas(self.nodes * devices)
        of_a_copy = math.lcm(self.layout.fewest_devices, devices) // devices
        return (
            *varied.device_parameters(with_host(self.machine, self.model), self._peaks),
            *varied.link_parameters(self.machine, self.layout.channel),
            varied.whole("nodes", self.nodes, "machine", of_a_copy),
            *(replace(one, name=REPLICA_BATCH) if one.name == "batch" else one
              for one in varied.model_parameters(self.model, self.options, replicas)),
        )  # fmt: skip

    def not_varied(self) -> list[tuple[str, str]]:
        """Return rates that are not stated and sizes that are fixed."""
        return [*varied.unstated(self.machine, self._peaks or frozenset()), *varied.fixed_sizes(self.model)]

    def _step(self, point: Point) -> tuple[NodesJob, ParallelStep, SystemRun | None]:
        """Return the job, its step and its run at one point."""
        ours = {parameter.name for parameter in self.parameters() if parameter.of == "machine"} - {"nodes"}
        of_machine = {name: value for name, value in point.items() if name in ours}
        others = {name: value for name, value in point.items() if name not in {*ours, "nodes", REPLICA_BATCH}}
        machine = change_machine(self._fitted, of_machine, self.layout.channel)
        model, options = varied.changed_model(self.model, self.options, others)
        sizes = dict(options.sizes)
        batch = round(point.get(REPLICA_BATCH, sizes.pop("batch", 0))) or None
        job = NodesJob(model, machine, self.layout, replace(options, sizes=sizes), batch)
        return job, *job.at(round(point.get("nodes", self.nodes)))

    def figures_at(self, point: Point) -> Figures:
        """Return the figures of a step of all nodes at a point."""
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
        """Return the longest part of the step."""
        return self._step(point)[1].longest

    def unfit(self, point: Point) -> str:
        """Return a message if a device's memory does not hold its part of the step."""
        job, step, _ = self._step(point)
        return fit_in(job.machine, step.memory_byte).message

    def measurements(self) -> ToMeasure:
        """Rank a step on one device and the collectives by how much the step's interval would shrink."""
        step = self._step({})[1]
        if self.model.trains_by_sizes:
            return {"measurements": [], "measurements_say": "not computed for a transformer given by its sizes"}
        compute, exposed = step.compute_s, step.exposed_s
        of_device = measure_command(self.model, self.machine, self.options)
        parts = (
            ("a step on one device", [Span.exact(compute.value, self.level), exposed], of_device),
            ("the collectives between the devices", [compute, Span.exact(exposed.value, self.level)],
             f"fomkit measure --network {OUT}"),
        )  # fmt: skip
        return rank_measurements(
            measurement("part of the step", what, step.wall_s, add_independent(terms), command)
            for what, terms, command in parts
        )


AnySubject = OneModel | OnNodes | OfSuite


def subject_of_model(
    model: ModelProfile, target: Machine, options: Options, nodes: int | None, layout: Layout,
    replica_batch: int | None = None,
) -> AnySubject:  # fmt: skip
    """Make the subject of a model on the scope of the options, or of its training spread over nodes.

    `options`: their batch is that of a whole step; `replica_batch`: that of one replica instead.
    """
    if nodes is None:
        return OneModel(model, target, options)
    check_nodes(nodes)
    if options.scope is not None:
        raise FomkitError("scope", "and nodes contradict each other. Nodes are of one job; leave the scope out.")
    sizes = dict(options.wanted_sizes)
    whole = sizes.pop("batch", model.batch)
    if replica_batch is None and whole is not None:
        devices = nodes * Network(target, check_layout(layout).channel).node_devices
        replica_batch = share_of_batch(whole, layout.replicas(devices))
    options = replace(options, batch=replica_batch, sizes=sizes)
    return OnNodes(model, target, options, check_layout(layout), nodes)


def subject_of_suite(
    suite: Suite, baseline: Machine, target: Machine, options: Options, load: Load, measured: MeasuredRuns
) -> AnySubject:
    """Make the subject of a suite, which fixes batch, sizes, precision and scope; ``measured`` checks lines."""
    if options.wanted_sizes or options.precision is not None or options.scope is not None:
        raise FomkitError(suite.name, "fixes batch, sizes, precision and scope by its lines. Leave them out.")
    return OfSuite(suite, baseline, target, options, cache(load), measured)

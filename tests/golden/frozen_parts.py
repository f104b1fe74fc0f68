"""Frozen results of code that no verb on shipped machines executes.

Inputs that do not ship are made here: energies, links of every sort, wrong timings, new pages, readings of power.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pandas as pd
from golden.frozen_ops import ops
from golden.frozen_refusals import refusals

import fomkit
from fomkit.core.errors import FomkitError
from fomkit.core.interval import Span
from fomkit.core.machine import TIMED_OPS, AveragePower, Energy, Fact, FlopEnergy, Link, Machine, Overhead
from fomkit.core.model import EpochsToTarget
from fomkit.merit.fom import MEANS, PROPOSAL, Rates, figure_of_merit, verdict
from fomkit.merit.footprint import Sample, counted, integrate
from fomkit.ops.conv_methods import method_costs
from fomkit.ops.families.costs import VARIANTS
from fomkit.ops.precision import FORMATS, choose_formats, name_precision, narrows, restate_ops, stored_byte
from fomkit.ops.pricing import add_costs, work_out
from fomkit.ops.resize import resize_ops
from fomkit.plan.content import energy_content, span_content
from fomkit.plan.energy import Workload, add_energy, choose_method, figures_for, price_work
from fomkit.plan.job import daly_s, useful_share
from fomkit.plan.memory import largest_that_fits
from fomkit.plan.memory_of import batch_that_fits, fit_of
from fomkit.plan.op_tables import timeline_content
from fomkit.plan.options import Options
from fomkit.plan.run import epochs_at, runs_at_once, time_to_target
from fomkit.prediction.calibration import fit_form, fit_timings
from fomkit.prediction.exchange import Network
from fomkit.prediction.links import Group
from fomkit.prediction.tiles import chip_of, tiled
from fomkit.profiles.evidence import fit, without_implausible
from fomkit.profiles.plausibility import check_facts, check_timings

Answers = Iterator[tuple[str, object]]
"""Results, each with a description of its input."""


def lines(table: pd.DataFrame) -> dict[str, str]:
    """Return the lines of a table by index."""
    head, *texts = table.to_csv(float_format="%.10g", index=False).splitlines()
    return {"": head, **dict(zip(map(str, table.index), texts, strict=True))}


def fact(value: float, spread: float = 0.2, basis: str = "published") -> Fact:
    """Make a fact with the same relative spread to each side."""
    return Fact(value, value * (1 - spread), value * (1 + spread), basis, "made up")  # type: ignore[arg-type]


def refused(ask: Callable[[], object]) -> object:
    """Return the result of a call, or the message of its error."""
    try:
        return ask()
    except FomkitError as error:
        return str(error)


def methods() -> Mapping[str, str]:
    """Yield the costs of convolutions by each method, and one of them written out."""
    table = ops()[0].query("kind == 'conv' and dtype == 'fp32'")
    found = method_costs(table).query("absent == ''")
    return lines(found.drop(columns="absent").iloc[::3])


def formats() -> Answers:
    """Yield two models converted to every number format."""
    machine = fomkit.machine("b300-sxm")
    for name, precision in product(("gpt2", "llama3-8b-decode"), FORMATS):
        model = fomkit.model(name)
        table = resize_ops(model.ops, model.sizes, name)

        def restated(precision: str = precision, table: pd.DataFrame = table) -> object:
            chosen = choose_formats(precision, "torch", machine, table)
            found = add_costs(restate_ops(table, chosen))
            sums = found.assign(all_flop=found["flop"] * found["count"], all_byte=found["byte"] * found["count"])
            amounts = sums.groupby(["dtype", "engine"])[["count", "all_flop", "all_byte"]].sum()
            return [name_precision(chosen, found), narrows(table, chosen), stored_byte(table, chosen),
                    {" ".join(map(str, key)): row.tolist() for key, row in amounts.iterrows()}]  # fmt: skip

        yield f"{name} {precision}", refused(restated)


def updates() -> Answers:
    """Yield the costs of every optimizer's update."""
    table = ops()[0].query("kind == 'optimizer'").iloc[[0] * len(VARIANTS)]
    rules, impls = zip(*VARIANTS, strict=True)
    costed = add_costs(table.reset_index(drop=True).assign(rule=rules, impl=impls, numel=1e6 + 1, tensors=50.0))
    for variant, costs in zip(VARIANTS, costed[["flop", "byte", "launches"]].to_numpy().tolist(), strict=True):
        yield " ".join(variant), costs


def worked() -> object:
    """Yield the costs of ops written out as formulas."""
    rows = ops()[0].iloc[::23].to_dict("records")
    return [{name: f"{one.formula} = {one.numbers}" for name, one in work_out(row).items()} for row in rows]


def energies() -> Answers:
    """Yield the energy of a step by each method, and messages of missing data."""
    of_flop = FlopEnergy("fp32", "vector", fact(2e-11)), FlopEnergy("fp16", "matrix", fact(5e-12))
    idle, byte = fact(60.0), fact(3e-11)
    powers = (
        AveragePower("p1b3", fact(200.0, 0.1, "measured"), "chip", 100),
        AveragePower(TIMED_OPS, fact(180.0), "node", devices=4),
    )
    whole = Energy("chip", 1, 1e-8, idle, of_flop, byte, (), fact(300.0, 0.0))
    known = {
        "work": whole, "work of a node": replace(whole, scope="node", devices=8, limit_w=fact(20.0)),
        "power": replace(whole, average=powers), "power of ops": Energy("node", 4, None, idle, average=powers[1:]),
        "no idle": replace(whole, idle_w=None), "no byte": replace(whole, byte_j=None), "none": Energy("wall"),
        "exact": replace(whole, per_flop=(FlopEnergy("fp32", "", fact(2e-11, 0.0)),), byte_j=fact(3e-11, 0.0)),
    }  # fmt: skip
    for name, energy in known.items():
        one = fomkit.estimate("p1b3", replace(fomkit.machine("v100"), energy=energy))
        yield name, energy_content(one)
        figures, said = figures_for(one.ops, energy)
        yield f"{name}, figures", [said, [fact.value for fact in figures.values()]]
    waits = (Overhead("wait", "step", fact(1e-3), None), Overhead("load", "epoch", None, fact(0.1)))
    slow = replace(
        fomkit.machine("v100"), energy=known["power of ops"], overheads=waits, system_nodes=2, availability=0.9
    )
    yield "waits", energy_content(fomkit.estimate("p1b3", slow, last_batch="keep"))
    one = fomkit.estimate("p1b3", "v100")
    figures, _ = figures_for(one.ops, whole)
    method, _ = choose_method(whole, Workload("p1b3", 100, "fp32"), price_work(one.ops, whole, figures, 0.8), 0.8)
    assert method is not None
    yield "ops", lines(add_energy(one.ops, whole, method, figures)[["work_j", "energy_j"]])


def exchanges() -> Answers:
    """Yield the times of collectives by each algorithm, over groups and links of every sort."""
    node = Link("node", 2e-6, 1e11, "each", "made", alpha_range_s=(1e-6, 5e-6), range_byte_per_s=(5e10, 1.2e11))
    far = Link("system", 5e-6, 2.5e10, "both", "made", joins=64)
    packed = replace(far, channel="grpc", serialise_byte_per_s=1e10, alpha_s=0.0)
    short = replace(node, most_byte=1e5, alpha_s=1e-6), replace(node, least_byte=1e5)
    plain = replace(fomkit.machine("v100"), links=(node, far), node_devices=8)
    sorted_by_size = replace(plain, links=(*short, far))
    table = replace(fomkit.machine("h100-sxm"), links=(*fomkit.machine("h100-sxm").links, far), node_devices=8)
    grpc = replace(plain, links=(replace(node, channel="grpc"), packed))
    networks = {
        "plain": (plain, ""),
        "by size": (sorted_by_size, ""),
        "table": (table, ""),
        "grpc": (grpc, "grpc"),
    }
    for name, of in networks.items():
        network = Network(*of)
        for asked in product(_COLLECTIVES, _ALGORITHMS, (Group(8, 1), Group(4, 6), Group(1, 16)), (3e4, 2e8)):
            if (told := _exchanged(network, *asked)) is not None:
                yield " ".join(map(str, (name, *asked))), told
        yield f"{name} sent", [network.send(1e6, tier).value for tier in ("node", "system")]
        groups = (2, 1), (12, 1), (16, 4), (3, 16)
        yield f"{name} groups", [list(network.group(*one)) for one in groups]
        yield f"{name} joined", [refused(partial(network.check_joined, devices)) for devices in (1, 64, 65)]


_COLLECTIVES = ("all_reduce", "all_gather", "all_to_all", "broadcast")
_ALGORITHMS = ("auto", "ring", "tree", "hierarchical", "parameter_server")


def _exchanged(network: Network, collective: str, algorithm: str, group: Group, byte: float) -> str | None:
    """Return the time of one collective; None if it has none, and for some short messages."""
    found = refused(partial(network.exchange, collective, byte, group, algorithm, 3))
    if isinstance(found, str) or (byte < 1e5 and algorithm not in ("auto", "ring")):
        return None
    return " ".join([*(f"{end:.10g}" for end in found.time.ends), found.source, found.way])


def fits() -> Answers:
    """Yield fits of small tables: alone, together with others' tables, and in the form of tiles."""
    v100, pi, p4 = (fomkit.machine(name) for name in ("v100", "raspberry-pi-3", "p4"))
    products = add_costs(v100.timings[(v100.timings["kind"] == "gemm") & (v100.timings["dtype"] == "fp32")])
    found = {
        "lecture": fit_timings(add_costs(fomkit.machine("x86-lecture").timings)),
        "v100": fit_timings(products.iloc[::8]),
    }
    few = v100.timings[(v100.timings["kind"] == "conv") & (v100.timings["pass_name"] == "forward")].iloc[::15]
    found |= {
        "beside others": fit(replace(without_implausible(pi))),
        "few": fit(replace(v100, timings=few, name="few")),
        "streams": fit_timings(add_costs(p4.timings[p4.timings["kind"] == "pointwise"].iloc[::9])),
    }
    each = ("residual", "left_out_log_error", "left_out_error", "rows_sha256", "elsewhere", "row_noise", "spread")
    for name, fitted in found.items():
        yield (
            name,
            {family: {key: one for key, one in fit.items() if key not in each} for family, fit in fitted.items()},
        )
    chip = chip_of(fomkit.machine("l4").device, 15.7e12, 9e11)
    assert chip is not None
    yield "form", list(fit_form(tiled(products, chip), chip, products["time_s"].to_numpy(float)))


def _doubted(machine: Machine, changed: Callable[[pd.DataFrame], pd.DataFrame], kind: str) -> object:
    """Return the messages for a table of wrong timings."""
    table = add_costs(changed(machine.timings.reset_index(drop=True)))
    found = refused(lambda: check_timings(table, machine, kind))
    return found if isinstance(found, str) else [list(found.impossible.values()), list(found.suspicions)]


def plausible() -> Answers:
    """Yield the messages for wrong timings and wrong facts compared with each other."""
    known = without_implausible(fomkit.machine("knl-7250"))
    known = replace(known, timings=known.timings.iloc[::2])

    def times(factor: float, every: int = 1) -> Callable[[pd.DataFrame], pd.DataFrame]:
        return lambda table: table.assign(
            time_s=table["time_s"] * np.where(np.arange(len(table)) % every, 1.0, factor)
        )

    def few(table: pd.DataFrame) -> pd.DataFrame:
        rows = table[table["kind"] == "collective"].head(7), table[table["kind"] == "gemm"].iloc[:4]
        return pd.concat(
            [rows[0].assign(time_s=rows[0]["time_s"] * 3e3), rows[1].assign(time_s=rows[1]["time_s"] * 200)]
        )

    def harness(table: pd.DataFrame) -> pd.DataFrame:
        return table.assign(harness_s=table["time_s"] * (np.arange(len(table)) % 50 == 7))

    changes = {"as it is": times(1.0), "long": times(1e3), "short": times(1e-3), "some short": times(1e-3, 97),
               "some long": times(2e3, 90), "a fifth": times(0.3, 5), "a half": times(400.0, 2),
               "fast": times(0.3),               "few": few,               "harness": harness}  # fmt: skip
    for name, change in changes.items():
        yield name, _doubted(known, change, "cpu")
    device = known.device
    rate = device.peaks[0]
    low = replace(device, peaks=(replace(rate, rate=fact(rate.rate.value / 1e3)), *device.peaks[1:]))
    for name, other in {"peak": low, "bandwidth": replace(device, byte_per_s=fact(4e8))}.items():
        yield f"{name}, timings", _doubted(replace(known, device=other), times(1.0), "cpu")
        yield f"{name}, facts", refused(partial(check_facts, other, "a slip"))
    yield "no facts", _doubted(replace(known, device=replace(device, peaks=(), byte_per_s=None)), times(1e4), "")
    yield "small", check_facts(replace(device, launch_s=fact(1e-9), capacity_byte=fact(1e3)), "a slip")


def means() -> Answers:
    """Yield every mean of the rates of three lines, with intervals, weights and a verdict."""
    old = Rates(
        "old", "node", {"a": Span(2.0, 1.0, 3.0), "b": Span(50.0, 40.0, 70.0, shared=0.5), "c": Span.exact(0.7)}
    )
    new = Rates("new", "node", {"a": Span(9.0, 8.0, 11.0, shared=1.0), "b": Span(60.0, 20.0, 90.0, shared=0.3),
                                "c": Span(1.4, 1.0, 2.0)})  # fmt: skip
    for mean in MEANS:
        for weights in (None, {"a": 1.0, "b": 3.0, "c": 0.5}):
            found = figure_of_merit(old, new, mean, weights)
            ends = {name: span_content(one) for name, one in {"value": found.value, **found.others}.items()}
            yield f"{mean} {weights}", [ends, found.weights, found.mean_rates, found.with_whole_rates]
    other = replace(new, unit_per_day={"a": Span.exact(3.0)})
    yield "lines", refused(partial(figure_of_merit, old, other))
    yield "scopes", refused(partial(figure_of_merit, old, replace(new, scope="device")))
    yield "verdicts", [verdict(chance, PROPOSAL) for chance in (0.0, 0.1, 0.1001, 0.8999, 0.9, 1.0)]


def readings() -> Answers:
    """Yield integrals of readings of power, and differences of a counter that wraps."""
    samples = [Sample(at, watt) for at, watt in ((0.0, 10.0), (1.0, 20.0), (2.0, 25.0), (9.0, 5.0), (10.0, 8.0))]
    for start, end, error in ((None, None, 0.0), (0.5, 9.5, 2.0), (1.0, 2.0, 0.5), (2.0, 9.0, 100.0)):
        found = integrate(samples, start, end, error)
        yield (
            f"{start} to {end}",
            [found.energy_j.ends, found.power_w.ends, found.wall_s, found.period_s, str(found.gaps)],
        )
    for cut in ((5.0, 5.0), (-1.0, 3.0), (3.0, 11.0), (6.0, 5.0)):
        yield f"cut {cut}", refused(partial(integrate, samples, *cut))
    yield "one", refused(partial(integrate, samples[:1]))
    yield "unsorted", refused(partial(integrate, [samples[1], samples[1]]))
    yield "negative", refused(partial(integrate, [samples[0], Sample(1.0, -1.0)]))
    looks = (
        (10.0, 25.0, 1e-2),
        (90.0, 5.0, 1e-2),
        (5.0, 5.0, 0.05),
        (0.0, 100.0, 0.1),
        (0.0, 101.0, 0.0),
        (-1.0, 1.0, 0.0),
    )
    for before, after, wall in looks:
        yield f"counter {before} {after} {wall}", refused(partial(counted, before, after, 100.0, wall))


def runs() -> Answers:
    """Yield epochs to a target, intervals between checkpoints, and useful shares of time."""
    curve = EpochsToTarget(
        {64: Span(10.0, 9.0, 12.0), 256: Span(40.0, 30.0, 45.0), 300: Span.exact(50.0)}, "accuracy", 0.9, "made"
    )
    for batch in (64, 100, 256, 299, 300, 301, 63):
        yield str(batch), refused(lambda: epochs_at(curve, batch, 0.9).ends)  # noqa: B023
    model, machine = fomkit.model("p1b3"), fomkit.machine("summit")
    for devices in (1, 2, 8):
        many = replace(model, run=replace(model.run, devices_per_run=devices))
        yield f"at once of {devices}", refused(partial(runs_at_once, many, machine, "node"))
    for room in (0, 1, 2, 63, 64, 65, 1000):
        yield f"largest in {room}", largest_that_fits(lambda batch: batch <= room, 64)  # noqa: B023
    yield "time", [one.ends for one in time_to_target(curve, 128, Span(60.0, 50.0, 70.0), machine)]
    yield (
        "useful",
        [[daly_s(60.0, mtbf), useful_share(60.0, 30.0, mtbf, 900.0)] for mtbf in (30.0, 31.0, 1e4, 1e6)],
    )


def pages() -> Answers:
    """Yield steps on a processor with a stated cost of new pages, in memories that are too small."""
    epyc = fomkit.machine("epyc-9755")
    fresh = replace(epyc.device, fresh_byte_per_s=fact(4e9), fresh_above_byte=2**20)
    for name, batch in (("p1b3", 100), ("alexnet", 4)):
        one = fomkit.estimate(name, replace(epyc, device=fresh), batch=batch)
        yield name, [one.step.ends, one.deviations, [[span.value for span in one.step_time.passes.values()]]]
        model = one.model
        for room in (1e6, 1.5e9, 6e9):
            small = replace(epyc, device=replace(fresh, capacity_byte=fact(room, 0.0)))
            for precision in ("bf16",):
                chosen = choose_formats(precision, "torch", epyc)
                asked = model, small, {**model.sizes, "batch": 512}, chosen
                yield f"{name} in {room:g} {precision}", [str(fit_of(*asked)), batch_that_fits(*asked)]
    moved = timeline_content(fomkit.model("p1b3"), fomkit.machine("v100"), Options())
    yield "timeline", {str(place): str(event) for place, event in enumerate(moved["traceEvents"][:24:3])}


PARTS: Mapping[str, Callable[[], object]] = {
    "worked": worked,
    "methods": methods,
    **{
        of.__name__: lambda of=of: dict(of())
        for of in (formats, updates, energies, exchanges, fits, plausible, means, readings, runs, pages, refusals)
    },
}
"""The functions by name."""

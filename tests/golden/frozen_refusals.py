"""Frozen error messages: guards tested on both sides of their bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
from golden.frozen_ops import ops

import fomkit
from fomkit.core.errors import FomkitError
from fomkit.core.interval import Span
from fomkit.core.job import Layout
from fomkit.core.machine import Link, Machine
from fomkit.core.model import ModelProfile
from fomkit.merit.calibrated import rest_of, target_step
from fomkit.ops.check import check_table, fill_defaults
from fomkit.ops.groups import fewest
from fomkit.ops.precision import Formats, name_precision
from fomkit.ops.resize import evaluate, evaluate_many, names_in, resize_ops
from fomkit.ops.tables import HUGE, TINY
from fomkit.plan.content import span_content
from fomkit.plan.coverage import check_bounded, check_covered, check_work
from fomkit.plan.job import Service, parse_service, run_on_nodes
from fomkit.plan.options import Options, check_options, choose_scope, choose_sizes
from fomkit.plan.run import roll_up_run, stated_run, steps_per_epoch
from fomkit.plan.scaling import ScalingSpec, least_rate, scale, smallest_layout, stepper_of
from fomkit.prediction.cascade import time_ratio
from fomkit.prediction.estimators import weighted_median
from fomkit.prediction.links import bus_factor, ingress_byte
from fomkit.prediction.rates import starts_within
from fomkit.prediction.tiles import mix, thinness
from fomkit.prediction.transfer import widen
from fomkit.prediction.typical import spread_at

Asked = tuple[str, Callable[[], object]]


def _tables() -> Iterator[Asked]:
    """Yield tables of ops with one wrong cell of each sort."""
    table = ops()[0].reset_index(drop=True).iloc[:100:9]
    cells: Mapping[str, tuple[object, ...]] = {
        "m": (0.0, 1.0, 1.5, HUGE, 2 * HUGE, np.inf, np.nan), "count": (0.0, TINY, TINY / 2),
        "dtype": ("fp33", ""), "engine": ("", "matrix", "tensor"), "kind": ("gem", ""),
        "layout": ("column_major", "nchw", "x"),
        "trans_a": (0.0, 1.0, 2.0, 0.5), "weight_share": (TINY, 0.0, 1.0, 1.1), "b": (-1.0,),
    }  # fmt: skip
    for name, values in cells.items():
        for value in values:
            wrong = table.copy()
            wrong.iloc[1, wrong.columns.get_loc(name)] = value
            yield f"{name} is {value}", partial(check_table, wrong, "OPS", "ops.csv")
    for name in ("m", "kind", "op"):
        yield f"no {name}", partial(check_table, table.drop(columns=name), "OPS", "ops.csv")
    yield "a stranger", partial(check_table, table.assign(colour="red"), "OPS", "ops.csv")
    yield "lines", partial(check_table, table.assign(m=0.0).rename_axis("line"), "OPS", "ops.csv")
    kinds = {"kind": ["gemm", "conv", "attention"], "dtype": ["fp16", "fp32", "bf16"], "op": ["mm", None, ""]}
    bare = pd.DataFrame({**kinds, "heads": [None, None, 8.0], "m": [3.0, None, None]})
    yield "filled", lambda: [fill_defaults(bare)[1], fill_defaults(bare)[0].to_csv(index=False)]
    yield "no dtype", partial(fill_defaults, bare.drop(columns="dtype"))


def _expressions() -> Iterator[Asked]:
    sizes = {"batch": 5, "none": 0}
    for text in ("2*(batch + 3)//4", "batch//none", "batch // 2 - 3", "08", "-batch", "batch/2", "batch+*2",
                 "seq", "x" * 201,                 "1" * 200, "batch - 6", "(batch", "3 batch"):  # fmt: skip
        yield f"evaluate {text[:20]}", partial(evaluate, text, sizes, "here")
        yield f"names in {text[:20]}", lambda text=text: sorted(names_in(text))
    many = {"batch": np.array([1.0, 5.0, 2e15])}
    for text in ("batch", "batch - 1", "batch - 2", "7"):
        yield f"many of {text}", lambda text=text: evaluate_many(text, many, "here").tolist()
    for cell in ("batch - 5", "batch - 6", "batch * 1000000000000000", "99999999999999999999"):
        table = pd.DataFrame({"m": ["3", cell]}, dtype=object)
        yield f"resize {cell}", lambda table=table: resize_ops(table, {"batch": 5}, "model")["m"].tolist()
    for share in (0.0, 0.5, 0.9, 1.0, 1.1):
        yield f"fewest {share}", partial(fewest, {"a": 2.0, "b": 5.0, "c": 1.0, "d": np.nan}, share)
    yield "fewest of nothing", partial(fewest, {"a": 0.0}, 0.5)


def _covered() -> Iterator[Asked]:
    timed = pd.DataFrame({"op": ["a", "b", "c"], "kind": ["gemm", "conv", "gemm"], "count": [2.0, 3.0, 5.0],
                          "time_s": [0.05, 0.3, 0.0]})  # fmt: skip
    yield "covered", partial(check_covered, timed, (), "x")
    yield "unsupported", partial(check_covered, timed, ("fft", "sort"), "x")
    yield "not covered", partial(check_covered, timed.assign(time_s=[1.0, np.nan, np.nan], dtype="fp32"), (), "x")
    for spent in (0.04736842105263, 0.0474, 0.5):
        yield f"bounded {spent}", partial(check_bounded, timed.assign(time_s=[spent / 2, 0.3, 0.02]), ("a",), "x")
    for counts in ([0.0, 0.0, 0.0], [0.0, 1.0, 0.0], ["batch", 0, 0]):
        yield f"work {counts}", partial(check_work, timed.assign(count=counts), "x")
    yield "no work", partial(check_work, timed.iloc[:0], "x")


def _options(model: ModelProfile, machine: Machine) -> Iterator[Asked]:
    wrong: tuple[dict[str, object], ...] = (
        {"batch": 0}, {"batch": 1}, {"batch": True}, {"batch": 2.0}, {"batch": np.int64(3)}, {"sizes": 3},
        {"interval": 0}, {"interval": 1}, {"interval": 0.5}, {"interval": True}, {"scope": "rack"},
        {"sizes": {"seq": -1}},
    )  # fmt: skip
    for one in wrong:
        yield " ".join(f"{name}={value}" for name, value in one.items()), partial(check_options, **one)
    for sizes in ({"batch": 7}, {"seq": 3}, {"batch": 100}):
        yield f"sizes {sizes}", partial(choose_sizes, model, sizes)
    yield "twice", lambda: Options(batch=3, sizes={"batch": 4}).wanted_sizes
    node = replace(machine, node_devices=8, system_nodes=4)
    for scope, devices in ((None, 1), (None, 8), (None, 9), (None, 99), ("system", 1)):
        yield (
            f"scope {scope} {devices}",
            partial(choose_scope, [node, replace(node, system_nodes=None)], scope, devices),
        )
        yield f"wide scope {scope} {devices}", partial(choose_scope, [node], scope, devices)
    for epochs, samples, unit in (
        (None, None, ""),
        (20, None, ""),
        (3, 5, " "),
        (3, 5, "net"),
        (None, 800121, "x\n"),
    ):
        yield f"run {epochs} {samples} {unit!r}", lambda of=(epochs, samples, unit): stated_run(model, *of).run
    bare = replace(model, data=replace(model.data, train_samples=None), run=replace(model.run, epochs=None))
    yield (
        "run of nothing said",
        lambda: [(one := stated_run(bare, 3, 5, "")).run, one.data.train_samples, one.notes[-1:]],
    )
    for samples, batch, last in (
        (10, 5, "keep"),
        (11, 5, "keep"),
        (11, 5, "drop"),
        (4, 5, "drop"),
        (4, 5, "keep"),
    ):
        yield f"steps {samples} {batch} {last}", partial(steps_per_epoch, samples, batch, last)
        data = replace(model.data, train_samples=samples, validation_samples=samples)
        step = fomkit.estimate(model, machine).step_time
        yield (
            f"run of {samples} {batch} {last}",
            partial(_run, replace(model, data=data), machine, step, batch, last),
        )
    one = fomkit.estimate(model, machine)
    for service in (Service(), Service(0), Service(3), Service(checkpoint_s=60.0), Service(device_mtbf_s=1e6),
                    Service(2, 60.0, 10.0, 1e6), Service(2, 60.0, 10.0, 1e6, 900.0), Service(2, 60.0, 10.0, 0.0),
                    Service(interval_s=3.0), Service(restart_s=1.0), Service(99, 1.0, 0.0, 1.0)):  # fmt: skip
        yield (
            f"service {list(vars(service).values())}",
            lambda service=service: run_on_nodes(model, node, one.run_time, 2, service).content,
        )
    yield "slots", partial(parse_service, True)
    yield "no unit", partial(parse_service, 1, checkpoint="60")


def _run(*of: object) -> object:
    run = roll_up_run(*of)  # type: ignore[arg-type]
    return [run.steps_per_epoch, run.partial_step, run.run_s and run.run_s.ends, run.excludes]


def _step(model: ModelProfile, layout: Layout, machine: Machine) -> object:
    step = stepper_of(model, machine, layout, Options(precision="bf16")).at(16, 32)
    times = {name: span_content(one) for name, one in vars(step).items() if isinstance(one, Span)}
    return {**times, "sent": step.sent_byte, "memory": step.memory_byte, "microbatches": step.microbatches}


def _layouts(machine: Machine) -> Iterator[Asked]:
    gpt = fomkit.model("gpt-22b")
    for batch, room in ((8, 1.7e10), (64, 4e10), (64, 1e9)):
        small = replace(
            machine, device=replace(machine.device, capacity_byte=fomkit.machine("titan").device.capacity_byte)
        )
        one = small if room == 1e9 else machine
        yield (
            f"smallest {batch} {room:g}",
            partial(smallest_layout, gpt, one, Options(batch=batch, precision="bf16")),
        )
    mixtral, far = fomkit.model("mixtral-8x7b"), Link("system", 5e-6, 2.5e10, "each", "made")
    network = replace(machine, node_devices=4, links=(*machine.links, far))
    splits = ((gpt, Layout(tensor=2)), (gpt, Layout(tensor=2, sequence=True, pipeline=2)),
              (gpt, Layout(zero=2, tensor=8)), (mixtral, Layout(expert=4, zero=1, clip=True)))  # fmt: skip
    for model, layout in splits:
        words = f"step of {model.name} {layout.tensor} {layout.pipeline} {layout.expert} {layout.zero}"
        yield words, lambda of=(model, layout): _step(*of, network)
    for nodes in ((), (0,), (True,), (1,), (1, 3)):
        spec = ScalingSpec(nodes, Layout(pipeline=2, tensor=2), options=Options(batch=4, precision="bf16"))
        yield f"nodes {nodes}", lambda spec=spec: len(scale(gpt, network, spec).curves)
    for layout in (
        Layout(sync_norm=True),
        Layout(expert=2),
        Layout(tensor=3),
        Layout(attention_peak_fraction=0.5),
    ):
        spec = ScalingSpec((1,), layout, options=Options(batch=4, precision="bf16"))
        yield f"layout {vars(layout)}"[:60], lambda spec=spec: len(scale(gpt, network, spec).curves)
    for precision in ("fp32", "tf32", "fp8"):
        spec = ScalingSpec((1,), options=Options(batch=4, precision=precision))  # type: ignore[arg-type]
        yield f"in {precision}", lambda spec=spec: len(scale(gpt, network, spec).curves)
    for room in (0.0, 1e-9, 1e-3, 0.3, 1e12):
        yield f"rate in {room}", partial(least_rate, lambda rate: 1e-9 + 1e8 / rate, room)
    yield "rate in steps", partial(least_rate, lambda rate: float(np.ceil(1e8 / rate * 50) / 50), 0.3)


def _edges() -> Iterator[Asked]:
    """Yield results of plain functions of arrays, on both sides of their bounds."""
    time = np.array([0.5, 1.0, 3.0, 9.9, 10.0, 15.0, 80.0])
    for starts in (0.0, 1.0, 10.0):
        yield f"starts within {starts}", lambda of=starts: starts_within(time, np.full(7, of)).tolist()
    floors = np.array([2.0, np.nan, 0.1, 4.0, 4.0, 4.0, 80.0])
    yield "factor", lambda: time_ratio(time, np.full(7, 2.0), floors, floors[::-1], 0.3).tolist()
    both = np.log(np.array([[1.0, 5.0], [0.5, 4.0], [2.0, 9.0]]))
    yield "mix", lambda: mix(both, both[:, ::-1], np.array([0.2, 1.0]), 0.9).tolist()
    yield "widen", lambda: widen(np.exp(both), 1.5, np.array([1.0, 3.0])).tolist()
    yield "spread", lambda: spread_at(np.array([-3.0, -0.1, 0.0, 0.4])).tolist()
    surfaces, weight = np.array([[1.0, 2.0], [4.0, 2.0], [3.0, 9.0]]), np.array([0.2, 0.5, 0.3])
    yield "middle", lambda: weighted_median(surfaces, weight).tolist()
    yield "middle of one", lambda: weighted_median(surfaces[:1], np.ones(1)).tolist()
    thin = pd.DataFrame({"m": [1.0, 2.0, 7.0, 8.0, 9.0], "n": [64.0, 1.0, 64.0, 64.0, 64.0]})
    yield "thinness", lambda: thinness(thin).tolist()
    measured, device, target = Span(3.0, 2.5, 3.5), Span(1.0, 0.5, 2.0), Span(0.2, 0.1, 0.3)
    for one in (measured, Span(1.1, 1.0, 1.2), Span(0.9, 0.8, 1.0)):
        yield f"rest of {one.value}", lambda of=one: rest_of(of, device).ends
        yield f"target by {one.value}", lambda of=one: target_step(target, device, of, rest_of(of, device)).ends
    step = pd.DataFrame({"kind": ["pointwise", "norm", "copy"], "dtype": ["bf16", "fp32", "fp32"], "count": 1.0,
                         "flop": [9.0, 1.0, 0.05]})  # fmt: skip
    for kinds in (["pointwise", "norm", "copy"], ["gemm", "gemm", "gemm"], ["gemm", "norm", "gemm"]):
        yield f"precision of {kinds}", partial(name_precision, Formats(""), step.assign(kind=kinds))
    yield "precision of nothing", partial(name_precision, Formats(""), step.assign(flop=0.0))
    for batch in (1e14, 1e15):
        points = {"batch": [64.0, batch]}
        yield f"batch {batch:g}", lambda of=points: fomkit.scenarios("p1b3", "v100", of)["why"].tolist()
    for ranks in (2, 3, 8):
        yield (
            f"bus {ranks}",
            lambda of=ranks: [bus_factor(name, of) for name in ("all_reduce", "all_gather", "broadcast")],
        )  # type: ignore[arg-type]
    yield "server", lambda: [ingress_byte(1e6, *of) for of in ((1, 1), (4, 1), (4, 4), (4, 9))]


def refusals() -> Iterator[tuple[str, object]]:
    """Yield the results, or error messages, of calls at a bound or beyond."""
    model, machine = fomkit.model("p1b3"), fomkit.machine("h100-sxm")
    for asked in (_tables(), _expressions(), _covered(), _options(model, machine), _layouts(machine), _edges()):
        for words, ask in asked:
            try:
                found = ask()
            except FomkitError as error:
                found = str(error)
            except Exception as error:  # an error other than FomkitError is stored, too
                found = repr(error)
            yield words, found if isinstance(found, int | float | str | list | tuple | dict) else str(found)

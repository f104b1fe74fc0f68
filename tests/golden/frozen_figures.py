"""Questions about plans and figures of merit whose answers are frozen (`frozen.py`); each returns plain content.

Models are small and machines are shared, so that all questions take seconds.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from golden.frozen_parts import PARTS, fact, lines

import fomkit
from fomkit.core.machine import Machine, Overhead
from fomkit.plan.evidence import op_frame, ops_to_time, roof_frame
from fomkit.plan.op_tables import composition_table, memory_table, pareto_table
from fomkit.verbs.views import answer_of

INPUTS = Path(__file__).resolve().parent / "inputs"
BETWEEN, INSIDE = "system,5us,25GB/s,each", "node,3us,250GB/s,each"
MONEY = {"price": "3.06 USD/h per device, 2018-04-01", "carbon": "0.38 kg/kWh, grid of 2018"}


def _asked(verb: str, *of: object, **how: object) -> Mapping[str, object]:
    return answer_of(getattr(fomkit, verb)(*of, **how)).content


_estimated = partial(_asked, "estimate_all")
_shown = partial(_asked, "show")


def _told(model: str, machine: str, baseline: str) -> dict[str, str]:
    """Return an estimate as the steps of the lecture."""
    told = answer_of(fomkit.estimate_all([model], [machine], baseline)).summary(explain=True)
    return {str(place): line for place, line in enumerate(told.splitlines())}


def _tables(model: str, machine: str) -> dict[str, object]:
    """Return the tables from which figures are drawn."""
    one = fomkit.estimate(model, machine)
    frame = op_frame(one)
    drawn = {"ops": frame.describe(), "roofs": roof_frame(one, frame), "pareto": pareto_table(frame, 4),
             "composition": composition_table(one), "memory": memory_table(one).describe()}  # fmt: skip
    return {**{name: lines(table) for name, table in drawn.items()}, "to time": ops_to_time(one, 3)}


SUITE = """
schema: fomkit/suite/1
name: two
title: Two models, of which runs were measured
version: 1
baseline: p100
scope: device
mean: geometric
threshold: 1.5
lines:
  - {name: P1B3, model: p1b3, unit: trained model, batch: 100, precision: fp32, epochs: 20, samples: 800121,
     required: true, basis: modelled, party: lab}
  - {name: TC1, model: tc1, unit: trained model, batch: 20, precision: fp32, epochs: 400, samples: 4320,
     required: false, weight: 2, basis: modelled, party: lab}
"""


def _two() -> object:
    """Rate a suite with its measurements, and with a proposal."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "two.suite.yaml"
        path.write_text(SUITE, encoding="utf-8")
        proposed = _asked("fom", path, "v100", proposals=["P1B3.batch=200"], allow_excluded=True)
        measured = _asked("fom", path, "v100", measurements="candle-lecture")
        return {"measured": measured, "proposed": {key: one for key, one in proposed.items() if key != "lines"}}


def _waiting(**more: object) -> Machine:
    """Return a machine whose host needs time for each op, and that has overheads."""
    waits = (Overhead("wait", "step", fact(1e-4), None), Overhead("load", "epoch", None, fact(0.1)))
    return replace(fomkit.machine("v100"), host_op_s=fact(1e-5), overheads=waits, system_nodes=2, **more)


def _scenarios(model: str, machine: str | Machine, points: Mapping[str, list[float]]) -> dict[str, str]:
    found = fomkit.scenarios(model, machine, points, interval=0.9)
    return lines(found)


_RATES = {"batch": [1, 64, 300, 64], "byte_per_s": [4e11, 9e11, 2e12, 9e11], "launch_s": [5e-6, 1e-6, 2e-5, 5e-6],
          "flop_per_s/fp32/vector": [15.7e12, 1e13, 4e13, 15.7e12]}  # fmt: skip
_HOST = {**_RATES, "overhead/step/wait": [1e-3, 0.0, 0.01, 0.1]}
_RUNS = {
    "epochs": [1, 20, 30],
    "train_samples": [8e5, 8e5, 99],
    "availability": [1.0, 0.5, 0.9],
    "batch": [50, 100, 100],
}
QUESTIONS: Mapping[str, Callable[[], object]] = {
    "estimate p1b3": partial(_estimated, ["p1b3"], ["v100"], "p100", measurements="candle-lecture"),
    "estimate alexnet": partial(_estimated, ["alexnet"], ["m40"], scope="node", interval=0.95),
    "estimate gpt2 bf16": partial(_estimated, ["gpt2"], ["h100-sxm"], precision="bf16", batch=8),
    "estimate gpt2 fp8": partial(_estimated, ["gpt2"], ["l4"], precision="fp8", sizes={"seq": 512}),
    "estimate p1b3 on a processor": partial(_estimated, ["p1b3"], ["epyc-9755"], last_batch="keep"),
    "twelve steps": partial(_told, "p1b3-lecture", "v100", "p100"),
    "twelve steps of alexnet": lambda: dict(list(_told("alexnet", "v100", "m40").items())[:6]),
    "explain": partial(_asked, "explain", "alexnet", "v100", top=1),
    "explain p1b3": partial(_asked, "explain", "p1b3", "v100", top=1),
    "figures": partial(_tables, "alexnet", "v100"),
    "memory": partial(_asked, "memory", "alexnet", "v100", batch=2000),
    "fom lecture": partial(_asked, "fom", "lecture", baseline="a"),
    "fom kpp": partial(_asked, "fom", "kpp"),
    "fom of two": _two,
    "campaign": partial(_asked, "campaign", "candle-example", ["titan", "a"], **MONEY),
    "cost": partial(_asked, "cost", "alexnet", "v100", once=["compile=40 s"], infer_batch=1,
                    pue="1.4, its operator 2024", **MONEY),
    "cost to accuracy": partial(_asked, "cost", "alexnet", "v100", batch=256,
                                to_accuracy=INPUTS / "epochs.csv",
                                once=["scheduler=15.5 %", "compile=9 s"]),
    "scenarios of rates": partial(_scenarios, "p1b3", "v100", _RATES),
    "scenarios of runs": partial(_scenarios, "p1b3", "v100", _RUNS),
    "scenarios of a host": lambda: _scenarios("p1b3", _waiting(), _HOST),
    "estimate of a host": lambda: _estimated(["p1b3"], [_waiting(availability=0.9)], "titan"),
    "scaling p1b3": partial(_asked, "scaling", "p1b3", "v100", nodes="1,4", links=[BETWEEN, INSIDE],
                            node_devices=8),
    "scaling p1b3-lecture": partial(_asked, "scaling", "p1b3-lecture", "v100", nodes="1,2", mode="weak",
                                    links=[BETWEEN, INSIDE], node_devices=2),
    "scaling resnet50": partial(_asked, "scaling", "resnet50", "v100", nodes="1", mode="weak", node_devices=2,
                                links=[BETWEEN, INSIDE], layout=["sync_norm", "algorithm=ring"]),
    "scaling alexnet": partial(_asked, "scaling", "alexnet", "p100", nodes="1,2", mode="weak",
                               links=[BETWEEN, INSIDE],
                               node_devices=4, layout=["zero=1", "clip"], checkpoint="60 s", restart="60 s",
                               device_mtbf="50000 h", slots=2),
    "job alexnet": partial(_estimated, ["alexnet"], ["p100"], nodes=2, batch=512, links=[BETWEEN, INSIDE],
                           node_devices=4, layout=["algorithm=parameter_server", "servers=2", "microbatch=32",
                                                   "optimizer=server"]),
    "job gpt-22b": partial(_estimated, ["gpt-22b"], ["h100-sxm"], nodes=2, batch=32, links=[BETWEEN],
                           layout=["tensor=4", "pipeline=2", "sequence", "recompute=selective", "interleave=2",
                                   "microbatch=2"]),
    "job gpt-22b zero": partial(_estimated, ["gpt-22b"], ["h100-sxm"], nodes=2, batch=64, links=[BETWEEN],
                                precision="fp8", layout=["zero=3", "tensor=2", "microbatch=2", "recompute=full"]),
    "job mixtral": partial(_estimated, ["mixtral-8x7b"], ["h100-sxm"], nodes=2, batch=64, links=[BETWEEN],
                           layout=["expert=8", "tensor=1", "zero=2", "microbatch=1", "clip",
                                   "algorithm=hierarchical"]),
    "solve": partial(_asked, "solve", "p1b3", "v100", step="1.5ms", change=["byte_per_s", "launch_s"]),
    "sweep of sizes": partial(_asked, "sweep", "alexnet", "v100", ["batch=16,32", "byte_per_s=0.5 TB/s,1 TB/s"]),
    "sweep of nodes": partial(_asked, "sweep", "p1b3", "v100", ["nodes=1,2", "link_byte_per_s=5 GB/s,25 GB/s"],
                              links=[BETWEEN, INSIDE], node_devices=8),
    "kinds": partial(_shown, "alexnet", machine="v100", by="kind"),
    "shapes": partial(_shown, "alexnet", by="shape", top="50%", measure="flop"),
    "modules": partial(_shown, "gpt2", by="module", depth=2, measure="flop"),
    "code": partial(_shown, "p1b3", by="code", top="90%", measure="byte"),
    "formula": partial(_shown, "p1b3", formula=True),
    "layers": partial(_shown, "googlenet"),
    **PARTS,
}  # fmt: skip
"""The questions by name."""

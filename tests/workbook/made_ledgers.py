"""Sheet models with every kind of input, small enough for a spreadsheet program to compute in seconds."""

from __future__ import annotations

import math

from fomkit.core.interval import Span
from fomkit.core.machine import Device, Fact, Machine, Overhead, Peak
from fomkit.core.model import Data, Run, Unit
from fomkit.ops.kinds import KINDS
from fomkit.ops.tables import empty_table
from fomkit.workbook.records import Case, Given, JobTerms, OpLine, SheetModel, WorkloadFacts


def fact(value: float, low: float | None = None, high: float | None = None, source: str = "made up") -> Fact:
    return Fact(value, value if low is None else low, value if high is None else high, "published", source)


def machine(name: str, speed: float = 1.0, launch: Fact | None = None, chip: str = "") -> Machine:
    """Make a machine; boards of a chip have exact overheads, since what errs there is no error of the chip."""
    checkpoint = fact(3.0) if chip else fact(3.0, 2.0, 5.0)
    return Machine(
        name,
        f"{name} of {name} works",
        "published",
        Device(
            peaks=(Peak("fp32", "vector", fact(1e13 * speed)), Peak("fp16", "matrix", fact(9e13 * speed))),
            capacity_byte=fact(16e9),
            byte_per_s=fact(8e11 * speed, 7e11 * speed, 9e11 * speed),
            launch_s=launch,
            architecture=chip,
        ),
        empty_table("TIMINGS"),
        node_devices=4,
        system_nodes=100,
        availability=0.95,
        overheads=(
            Overhead("input", "step", fact(2e-4, 1e-4, 4e-4), None),
            Overhead("logging", "step", None, fact(0.02)),
            Overhead("checkpoint", "epoch", checkpoint, None),
            Overhead("start-up", "run", None, fact(0.001)),
        ),
    )


def op(kind: str, **changes: object) -> OpLine:
    base: dict[str, object] = {
        "op": f"aten::{kind}", "kind": kind, "sizes": f"{kind} 8×8", "dtype": "fp32", "engine": "vector",
        "pass_name": "forward", "count": 3.0, "launches": 1.0, "flop": 2e9, "byte": 4e6, "time_source": "roofline",
        "bound": "compute", "evidence": "made up", "utilisation": 0.5, "low": 0.8, "high": 1.5,
        "dimensions": (("m", 8.0), ("n", 8.0)),
    }  # fmt: skip
    return OpLine(**{**base, **changes})  # type: ignore[arg-type]


SIZES = {"batch": 8.0, "in_channels": 4.0, "out_channels": 6.0, "height": 9.0, "width": 9.0}
CONV = tuple((name, SIZES.get(name, 0.0 if name.startswith("pad") else 1.0)) for name in KINDS["conv"].dimensions)


def ops(speed: float) -> tuple[OpLine, ...]:
    return (
        op("gemm", count=10.0),
        op("gemm", pass_name="backward_weight", time_source="interpolated", low=0.9, high=1.2, starts=0.0),
        op("conv", dtype="fp16", engine="matrix", pass_name="backward_input", flop=3e10, dimensions=CONV),
        op("pointwise", flop=math.nan, bound="memory", starts=1.0, count=40.0, dimensions=(("numel", 1e6),)),
        op("norm", flop=math.nan, time_source="measured", utilisation=None, time_s=2.5e-5 / speed, low=0.95),
        op("optimizer", pass_name="update", byte=9e8, utilisation=0.7, starts=4.0, launches=4.0),
        op(
            "embedding",
            utilisation=None,
            time_source="",
            bound="",
            launches=math.nan,
            flop=math.nan,
            byte=math.nan,
        ),
    )


def workload(name: str, **changes: object) -> WorkloadFacts:
    base: dict[str, object] = {
        "name": name, "title": "a network", "batch": 32, "data": Data(100_010, 5_000, "keep"),
        "run": Run(30), "unit": Unit("trained model", 2.0),
    }  # fmt: skip
    return WorkloadFacts(**{**base, **changes})  # type: ignore[arg-type]


LAUNCH = fact(5e-6, 3e-6, 1e-5)


def sheet_model(
    scope: str = "system", mean: str = "ratio_of_harmonic_means", chip: str = "", level: float = 0.8
) -> SheetModel:
    """Make a sheet model of two estimated workloads and a given one, two targets and a baseline.

    `chip`: of the first target and the baseline; `level`: of the intervals.
    """
    machines = (
        machine("acme-1", 2.0, LAUNCH, chip),
        machine("rival-9", 3.0),
        machine("oldlab-3", 1.0, LAUNCH, chip),
    )
    hours = {"acme-1": 4.0, "rival-9": 3.0, "oldlab-3": 60.0}
    given = {
        name: Given(Span(hour * 3600, hour * 3000, hour * 4000, level), "estimated", "lab")
        for name, hour in hours.items()
    }
    speeds = {"acme-1": 2.0, "rival-9": 3.0, "oldlab-3": 1.0}
    jobs = {
        name: JobTerms(3.0 / speed, 0.4, 0.2 / speed, 0.0, 20.0, 7.0, 0.85, 1.3, 8, 50, "modelled", "lab", "large")
        for name, speed in speeds.items()
    }
    return SheetModel(
        title="made for a test",
        scope=scope,  # type: ignore[arg-type]
        level=level,
        machines=machines,
        workloads=(
            workload("net-a"),
            workload("TC1", data=Data(4_000, None, "drop"), batch=20, run=Run(400)),
            WorkloadFacts("GPT", unit=Unit("trained model", 1.5), jobs=jobs, basis="modelled", party="lab"),
            WorkloadFacts("chem", given=given, weight=2.0, basis="estimated", party="lab"),
        ),
        cases=tuple(
            Case(name, one.name, ops(speeds[one.name]), "fp32: as traced", ("validation",))
            for name in ("net-a", "TC1")
            for one in machines
        ),
        targets=("acme-1", "rival-9"),
        baseline="oldlab-3",
        threshold=11.0,
        mean=mean,
        worst_basis="estimated",
        uses={"library": (0.9, 1.2), "row": (0.8, 1.3), "element": (0.95, 1.1)},
        widened=("acme-1", "oldlab-3"),
        rounds=(("acme-1", "round 1: nothing"),),
    )

"""The table of metrics: it has exactly the figures that commands print."""

from __future__ import annotations

import ast
import json
import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

import pytest
from json_figures import sorted_out, wrong_by_schema
from short_suite import short_suite
from typer.testing import CliRunner

from docs.generate import find_metric
from fomkit.cli.main import VERBS, app
from fomkit.merit.fom import MEAN
from fomkit.ops.tables import COSTS, TIMES
from fomkit.profiles.metrics import DEEP500, METRICS, Better, Level, Mean, title_of
from fomkit.workbook.layout import OPS

SUITE = """schema: fomkit/suite/1
name: s
version: 1
baseline: p100
scope: device
mean: ratio_of_harmonic_means
threshold: 1.2
lines:
  - {name: TWO, basis: modelled, party: lab, model: p1b3, batch: 100, epochs: 20}
  - {name: GIVEN, basis: committed, party: vendor, batch: 20, given: {v100: 5 h, p100: 9 h}}
"""
MEASURED = """model,machine,quantity,value,low,high,repeats,batch,precision,devices,scope,basis
tc1,p100,step_s,0.05,0.049,0.052,20,20,fp32,1,device,measured
p1b3,p100,step_s,0.05,0.049,0.052,20,100,fp32,1,device,measured
p1b3,p100,step_s,0.05,0.049,0.052,20,100,fp16,1,device,measured
p1b3,m40,step_s,0.05,0.049,0.052,20,100,fp32,1,device,measured
p1b3,v100,step_s,0.0018,0.0017,0.002,20,100,fp32,1,device,measured
GIVEN,v100,run_s,18000,17900,18100,10,20,fp32,1,device,measured
"""
MACHINE = """schema: fomkit/machine/1
name: mine
title: A machine with overheads
party: published
device:
  peak: [{dtype: fp32, engine: vector, rate: 10 TFLOP/s, source: example}]
  memory: {bandwidth: 500 GB/s, capacity: 16 GiB, source: example}
  launch: {per_op: 5 us, low: 3 us, high: 10 us, basis: assumed}
overheads:
  - {name: start-up, per: run, time: 30 s, source: example}
  - {name: input, per: step, time: 2 ms, source: example}
energy:
  scope: chip
  process: 12 nm
  idle: {power: 40 W, source: example}
  per_flop: [{dtype: fp32, energy: 6 pJ/flop, source: example}]
  per_byte: {energy: 40 pJ/B, source: example}
  average: [{workload: resnet50, batch: 32, power: 245 W, source: example}]
  limit: {power: 300 W, source: example}
price: {rate: 4 USD/h, low: 3 USD/h, high: 5 USD/h, per: device, date: 2018-04-01, source: example}
host: {per_op: 15 us}
software: PyTorch 2.1
"""
EPOCHS = """batch,epochs,low,high,metric,target,source
100,20,18,23,loss,0.1,made up
3200,60,50,80,loss,0.1,made up
"""
CAMPAIGN = """schema: fomkit/campaign/1
name: c
phases:
  - {name: search, model: candle/p1b3, runs: 1000, basis: assumed, source: made up}
  - {name: unsure, model: candle/p1b3, mode: infer, samples: 1000, runs: 10, basis: assumed, source: made up}
"""
TIMED = """schema: fomkit/model/1
name: timed
sizes: {batch: 4}
ops: timed.ops.csv
measured:
  clock: process
  device: cpu
  processor: a test's
  threads: 1
  warm_up: 3
  step: {repeats: 6, process: {median: 2 ms, p25: 1 ms, p75: 3 ms, low: 1 ms, high: 3 ms, p10: 1 ms, p90: 3 ms}}
  ops:
    profiler: a test's
    step: {repeats: 6, process: {median: 3 ms, p25: 2 ms, p75: 4 ms}}
    joined: 1 ms
    unjoined: [{op: aten::t, count: 2, time: 4 us, why: no work}]
  load: {start: 0.5, end: 0.6}
  energy: {step: 2 J, low: 1 J, high: 3 J, scope: chip, source: a test's}
"""
TIMED_OPS = """op,kind,dtype,engine,pass_name,count,b,m,n,k,traced_time_s
mm,gemm,fp32,vector,forward,1,1,batch,4,4,0.001
"""
PRINTED = (
    "estimate p1b3 --target mine.yaml --baseline p100",
    "estimate tc1 p1b3 --target v100 --target m40 --baseline p100 --from m.csv",
    "estimate gpt2 --target v100",
    "estimate llama3-8b-decode --target h100-sxm",
    "estimate p1b3 --target h200-sxm --baseline h100-sxm",
    "fom lecture",
    "fom short.suite.yaml --target v100 --from candle-lecture",
    "fom s.suite.yaml --target v100 --allow-excluded",
    "fom short.suite.yaml --target p100-pcie-16gb --allow-excluded",
    *(f"show alexnet --by {by} --target v100" for by in ("kind", "module", "pass")),
    "show resnet50",
    "show gpt2 --formula",
    "show alexnet --convolutions --target v100 --workspace 256MiB",
    "show v100",
    "show l4",
    "show summit",
    "show mine.yaml",
    "show timed.yaml --by op --target v100",
    "memory alexnet --target v100",
    "advise alexnet --target v100 --all",
    "explain p1b3 --target v100",
    "scaling p1b3 --target v100 --nodes 1,2 --node-devices 8 --link node,5us,25GB/s,each "
    "--link system,5us,12.5GB/s,each,,2GB/s --checkpoint 60s --device-mtbf 50000h "
    "--once scheduler=15.5% --once compile=40s --to-accuracy epochs.csv",
    "cost candle/p1b3 --target mine.yaml --baseline p100 --once compile=40s --once scheduler=15.5% "
    "--claimed fast=2 --carbon 0.4kg/kWh,me --to-wall 1.6,me --pue 1.2,me --to-accuracy epochs.csv",
    "cost gpt2 --target mine.yaml",
    "campaign c.campaign.yaml --target mine.yaml --scope device --carbon 0.4kg/kWh,me --to-wall 1.6,me "
    "--pue 1.2,me",
    "sweep p1b3 --target v100 --vary launch_s=1us,2us",
    "sweep p1b3 --target v100 --vary batch=50,100 --vary launch_s=1us..9us --vary price_per_h=2USD/h "
    "--vary power_w=300W --way sobol --points 4",
    "sensitivity p1b3 --target v100",
    "sensitivity --suite s.suite.yaml --target v100",
    "sensitivity p1b3 --target a100-sxm --nodes 2 --batch 1600 --link system,5us,12.5GB/s,each",
    "solve p1b3 --target v100 --units-per-day 400 --probability 0.9",
    "solve p1b3 --target v100 --step 1ms --frontier byte_per_s,flop_per_s",
    "compare --calibrate-on tc1 --host-from p100",
    "compare tc1 p1b3 --grid --target v100",
    "accept s.suite.yaml --committed v100 --measured m.csv",
    "review changed.xlsx --issued sent.xlsx",
)
Printed = Mapping[str, tuple[set[str], set[str]]]
"""By command: names of the metrics that it gave, and figures that are none."""


def changed_workbook(folder: Path) -> None:
    """Write a workbook with a threshold, and one with a changed bandwidth and many changed utilisations."""
    import openpyxl

    done = CliRunner().invoke(
        app, ["fom", "s.suite.yaml", "--target", "v100", "--allow-excluded", "-o", "sent.xlsx"]
    )
    assert done.exit_code == 0, done.output
    book = openpyxl.load_workbook(folder / "sent.xlsx")
    row = next(
        row
        for row in book["Machines"].iter_rows()
        if [cell.value for cell in row[:2]] == ["v100", "memory bandwidth"]
    )
    row[4].value *= 1.1
    for cell in book["Ops"][OPS.letter("utilisation")][4:20]:
        cell.value = cell.value * 1.1 if isinstance(cell.value, float) else cell.value
    book.save(folder / "changed.xlsx")


@pytest.fixture(scope="module")
def printed(tmp_path_factory) -> Printed:
    folder = tmp_path_factory.mktemp("metrics")
    files = {"s.suite.yaml": SUITE, "mine.yaml": MACHINE, "m.csv": MEASURED, "epochs.csv": EPOCHS}
    files["c.campaign.yaml"] = CAMPAIGN
    for name, text in (files | {"timed.yaml": TIMED, "timed.ops.csv": TIMED_OPS}).items():
        (folder / name).write_text(text, encoding="utf-8")
    short_suite(folder)
    found: dict[str, tuple[set[str], set[str]]] = defaultdict(lambda: (set(), set()))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        changed_workbook(folder)
        for line in PRINTED:
            words = line.split()
            done = CliRunner().invoke(app, [*words, "--json"])
            assert done.stdout.startswith("{"), (line, done.output)
            content = json.loads(done.stdout)
            assert not wrong_by_schema(content), line
            for all_of, some in zip(found[words[0]], sorted_out(content, words[0]), strict=True):
                all_of |= some
    return found


def test_every_figure_of_the_json_is_a_metric(printed) -> None:
    unknown = sorted(figure for _, others in printed.values() for figure in others)
    assert not unknown, "add to fomkit/profiles/metrics.csv, or its command to 'by':\n" + "\n".join(unknown)


def test_every_metric_is_printed_by_every_command_that_it_names(printed) -> None:
    elsewhere = {"predict", "import", "validate", "measure"}
    """Their figures are columns of tables, as below; test_validate.py has validate's, measure/ has measure's."""
    missing = [
        f"{one.name} by {verb}"
        for one in METRICS
        for verb in one.by.split()
        if verb not in elsewhere and one.name not in printed[verb][0]
    ]
    assert not missing, "\n".join(missing)


def test_figures_of_tables_are_metrics_in_the_units_of_the_schema() -> None:
    for column in (*COSTS, *TIMES):
        if column.dtype == "number":
            metric = find_metric([column.name], "predict")
            assert metric is not None, column.name
            assert metric.unit == (column.unit or "count"), column.name


@pytest.mark.parametrize("metric", METRICS, ids=lambda one: one.name)
def test_the_mean_follows_from_the_unit(metric) -> None:
    allowed = {
        **dict.fromkeys(
            ("s", "day", "byte", "flop", "count", "share", "J", "W", "m", "J/flop", "J/byte", "currency", "kg"),
            "arithmetic",
        ),
        **dict.fromkeys(("1/s", "1/day", "flop/s", "byte/s", "flop/byte"), "harmonic"),
        "ratio": "geometric",
        "mixed": "none",
        "currency/h": "none",
        "kg/kWh": "none",
    }
    assert metric.mean in (allowed[metric.unit], "none")
    assert metric.better != "lower" or metric.mean != "harmonic"
    assert metric.level in get_args(Level)
    assert metric.better in get_args(Better)
    assert metric.mean in get_args(Mean)
    assert metric.doc
    assert metric.title


def test_names_are_one_each_and_commands_exist() -> None:
    verbs = set(VERBS)
    assert len({one.name for one in METRICS}) == len(METRICS)
    assert {verb for one in METRICS for verb in one.by.split()} <= verbs


def test_the_mean_of_a_figure_of_merit_is_that_of_its_rates() -> None:
    (rate,) = (one for one in METRICS if one.name == "unit_per_day")
    assert rate.mean in MEAN


def test_each_column_of_deep500_is_given_or_has_a_reason() -> None:
    names = {one.name for one in METRICS}
    for one in DEEP500:
        assert bool(one.ours) != bool(one.absent), one.column
        assert {*one.ours} <= names


def test_the_page_is_the_table(root) -> None:
    done = CliRunner().invoke(app, ["show", "--metrics", "--json"])
    content = json.loads(done.stdout)
    assert [one["name"] for one in content["metrics"]] == [one.name for one in METRICS]
    from docs.generate import metrics_page

    page = (root / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert page == metrics_page(), "run 'python docs/generate.py metrics > docs/metrics.md'"


def test_a_title_is_written_once(root) -> None:
    """Right-aligned headers are figures, whose titles come from the table."""
    paths = sorted((root / "fomkit" / "output").rglob("*.py"))
    assert paths
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Tuple) and len(node.elts) == 2:
                first, second = (one.value if isinstance(one, ast.Constant) else None for one in node.elts)
                assert second != "right" or first in (None, "", "#", "source"), (
                    f"{path.name}:{node.lineno}: {first}"
                )


def test_headers_have_titles_of_metrics() -> None:
    done = CliRunner().invoke(app, ["estimate", "p1b3", "--target", "v100", "--baseline", "p100"])
    header = next(line for line in done.stdout.splitlines() if line.startswith("model"))
    words = re.split(r"\s{2,}", header)
    titles = [
        title_of(name) for name in ("batch", "step_s", "interval", "run_s", "unit_per_day", "ratio", "coverage")
    ]
    assert [word for word in words if word in titles] == [
        "batch", "step", "interval", "run", "units/day", "interval", "ratio", "coverage"
    ]  # fmt: skip

"""Measure points of a sweep per second of processor time on one core, and the memory of a million points.

``python benchmarks/sweeps.py [--model vgg16] [--target v100] [--points N] [--million]`` prints a table. With every
shape changing, each point has its own batch; with shapes reused, all points share eight batches. Nodes go through
scaling, one point at a time; points that differ in links and nodes share the device's step. ``--million`` sweeps
10^6 points with shapes reused into CSV and Parquet, each in a separate process, and prints their peak memory and
that of 20,000 points.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time

os.environ["OMP_NUM_THREADS"] = "1"

import pandas as pd

import fomkit
from fomkit.core.machine import Link, Machine
from fomkit.plan.scaling import with_user_links
from fomkit.whatif.sweep import Sweep, make_sweep

LINK = "5 GB/s..50 GB/s"
INTO_A_FILE = """
import os, resource, sys, time
os.environ["OMP_NUM_THREADS"] = "1"
from pathlib import Path
import fomkit
from fomkit.files.write import whole_file
from fomkit.output.files import write_blocks
from fomkit.whatif.sweep import make_sweep
from fomkit.whatif.sweep_result import Tally
model, target, points, path = sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4])
vary = {"batch": [8, 16, 32, 64], "byte_per_s": "0.5 TB/s..4 TB/s", "launch_s": "1 us..20 us",
        "price_per_h": "1 USD/h..3 USD/h"}
sweep = make_sweep(fomkit.model(model), fomkit.machine(target), vary, way="sobol", points=points)
start, tally = time.process_time(), Tally(sweep)
def added():
    for block in sweep.blocks():
        tally.add(block)
        yield block
with whole_file(path) as stream:
    write_blocks(added(), stream, path.suffix)
held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(time.process_time() - start, held, tally.seen, len(tally.front), path.stat().st_size)
"""


def rate(sweep: Sweep) -> float:
    """Return points per second of processor time, without the work that all points share."""
    sweep.stretch(0, 1)
    start = time.process_time()
    for _ in sweep.blocks():
        pass
    return sweep.plan.points / (time.process_time() - start)


def of_facts(machine: Machine) -> dict[str, str]:
    peak = machine.device.peaks[0]
    return {
        "byte_per_s": "0.5 TB/s..4 TB/s",
        "launch_s": "1 us..20 us",
        f"flop_per_s/{peak.dtype}/{peak.engine}": "5 TFLOP/s..50 TFLOP/s",
    }


def rates(name: str, target: str, points: int) -> list[dict[str, str]]:
    model, machine = fomkit.model(name), fomkit.machine(target)
    links = [Link("node", 5e-6, 25e9, "each", "assumed"), Link("system", 5e-6, 12.5e9, "each", "assumed")]
    wired = with_user_links(machine, links, 8)
    facts = of_facts(machine)
    # A scrambled Sobol sequence of n points draws each of n whole numbers exactly once.
    sweeps = [
        ("every shape changing", "15,000 /s", machine, {"batch": f"1..{points}", **facts}, points),
        ("shapes reused", "60,000 /s", machine, {"batch": [1, 2, 4, 8, 16, 32, 64, 128], **facts}, points),
        (
            "nodes and links",
            "1,000 /s",
            wired,
            {"batch": [16, 32], "nodes": [1, 2, 4, 8], "link_byte_per_s": LINK},
            512,
        ),
        ("nodes and the device", "1,000 /s", wired, {"nodes": [1, 2, 4, 8], "byte_per_s": "0.5 TB/s..2 TB/s"}, 64),
    ]
    found = []
    for what, aim, on, vary, count in sweeps:
        sweep = make_sweep(model, on, vary, way="sobol", points=count)
        found.append({"what": what, "points": f"{count:,}", "rate": f"{rate(sweep):,.0f} /s", "aim": aim})
    return found


def millions(name: str, target: str) -> list[dict[str, str]]:
    """Sweep into files, in separate processes; the target for a million points into Parquet is 20 s and 300 MB."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for ending in ("csv", "parquet"):
            for points in (20_000, 1_000_000):
                command = [
                    sys.executable,
                    "-c",
                    INTO_A_FILE,
                    name,
                    target,
                    str(points),
                    f"{folder}/points.{ending}",
                ]
                output = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
                spent, held, seen, front, size = map(float, output)
                found.append({"into": ending, "points": f"{seen:,.0f}", "rate": f"{seen / spent:,.0f} /s",
                              "peak of memory": f"{held / 1e6:.0f} MB", "file": f"{size / 1e6:.0f} MB",
                              "front": f"{front:.0f}"})  # fmt: skip
    return found


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--model", default="vgg16")
    arguments.add_argument("--target", default="v100")
    arguments.add_argument("--points", type=int, default=32_768)
    arguments.add_argument("--million", action="store_true")
    chosen = arguments.parse_args()
    print(f"{chosen.model} on {chosen.target}")
    print(pd.DataFrame(rates(chosen.model, chosen.target, chosen.points)).to_string(index=False))
    if chosen.million:
        print(pd.DataFrame(millions(chosen.model, chosen.target)).to_string(index=False))


if __name__ == "__main__":
    main()

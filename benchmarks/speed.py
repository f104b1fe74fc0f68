"""Measure fomkit's speed relative to a peer or a bound, all in one run.

``python benchmarks/speed.py [--repeats 7] [--no-trace]`` prints one table. Whole processes are compared by the
processor time of themselves and their children, alternating with their peer, so that other load on the machine
affects both; the ratio is the median over the pairs, with its range. Tracing needs torch.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "model_profiles" / "src"
CACHE = Path(tempfile.gettempdir()) / f"fomkit-speed-{os.getpid()}"
LIBRARIES = "import pandas, yaml, typer, rich, pydantic"
ITS_IMPORTS = """
import fomkit.cli.main, fomkit.cli.estimate, fomkit.profiles.models, fomkit.verbs.compare, rich.console, rich.table
"""
LIBRARIES_USED = f"""{LIBRARIES}
from rich.console import Console; from rich.table import Table
class Record(pydantic.BaseModel): name: str; value: float
app = typer.Typer()
@app.command()
def command(option: int = 1):
    Record(name="a", value=1.0); pandas.DataFrame({{"a": [1.0]}}); yaml.safe_load("a: 1")
    table = Table("a"); table.add_row("b"); Console().print(table)
app([])
"""


def processor_s(command: Sequence[str], folder: Path = ROOT, *, anew: bool = False) -> float:
    """Return the processor time of a command and its children [s]; ``anew``: with an empty cache."""
    if anew:
        shutil.rmtree(CACHE, ignore_errors=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "FOMKIT_CACHE": str(CACHE)}
    # A user's modules are compiled once, when fomkit is installed or first run.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def fomkit(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "fomkit", *arguments]


def compare(
    ours: Sequence[str], peer: Sequence[str], repeats: int, *, anew: bool = False
) -> tuple[float, float, list[float]]:
    """Return the median times of both commands [s] and the ratio of each pair; a first pair warms the caches."""
    pairs = [(processor_s(ours, anew=anew), processor_s(peer)) for _ in range(repeats + 1)][1:]
    left, right = (statistics.median(times) for times in zip(*pairs, strict=True))
    return left, right, [one / other for one, other in pairs]


def row(what: str, peer: str, times: tuple[float, float, list[float]], bound: float | None) -> dict[str, str]:
    ours, theirs, ratios = times
    ratio = statistics.median(ratios)
    within = "" if bound is None else ("yes" if ratio <= bound else "NO")
    return {
        "what": what,
        "time": f"{ours:.2f} s",
        "against": f"{peer} ({theirs:.2f} s)",
        "ratio": f"{ratio:.2f} ({min(ratios):.2f} … {max(ratios):.2f})",
        "bound": "" if bound is None else f"{bound:g}",
        "within": within,
    }


def cold_starts(repeats: int) -> list[dict[str, str]]:
    estimate = fomkit("estimate", "resnet50", "--target", "v100")
    everything = fomkit("estimate", "--target", "machine_profiles/v100.yaml")
    typer, libraries, used = python("import typer"), python(LIBRARIES), python(LIBRARIES_USED)
    imports = "importing pandas, yaml, typer, rich, pydantic"
    return [
        row("fomkit --help", "importing typer", compare(fomkit("--help"), typer, repeats), 2.0),
        row("import fomkit", "importing nothing", compare(python("import fomkit"), python(""), repeats), 2.0),
        row("fomkit estimate resnet50 -t v100", imports, compare(estimate, libraries, repeats), 1.3),
        row("  the same", "importing them and using each once", compare(estimate, used, repeats), None),
        row("  its imports alone", imports, compare(python(ITS_IMPORTS), libraries, repeats), None),
        row("  with an empty cache", imports, compare(estimate, libraries, repeats, anew=True), 1.6),
        row("fomkit estimate -t v100, all models", imports, compare(everything, libraries, repeats), None),
    ]


def gpt2_xl(folder: Path) -> Path:
    """Write GPT-2's file with the sizes of GPT-2 XL: 48 layers, 1600 wide, 25 heads, 1.56 billion parameters."""
    text = (SOURCES / "gpt2.py").read_text(encoding="utf-8")
    small, large = "LAYERS, WIDTH, HEADS, POSITIONS, VOCABULARY = 12, 768, 12,", "= 48, 1600, 25,"
    if text.count(small) != 1:
        raise SystemExit(f"{SOURCES / 'gpt2.py'}: the line of its sizes has changed; mend benchmarks/speed.py")
    path = folder / "gpt2_xl.py"
    path.write_text(text.replace(small, small.replace("= 12, 768, 12,", large)), encoding="utf-8")
    return path


def peak_byte(command: Sequence[str]) -> float:
    """Return the largest resident memory of any one of a command's processes [byte]."""
    code = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, capture_output=True); "
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)"
    )
    run = subprocess.run([*python(code), *command], cwd=ROOT, check=True, capture_output=True, text=True)
    return float(run.stdout)


def tracing(repeats: int) -> list[dict[str, str]]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        torch_s = [processor_s(python("import torch")) for _ in range(repeats + 1)][1:]
        found = []
        for source, bound_of in ((SOURCES / "resnet50.py", "import torch + 3 s"), (gpt2_xl(folder), "10 s")):
            command = fomkit("profile", str(source), "-o", str(folder / f"{source.stem}.yaml"), "--force")
            ours = [processor_s(command) for _ in range(min(repeats, 3))]
            bounds = [statistics.median(torch_s) + 3 if "torch" in bound_of else 10.0]
            times = (statistics.median(ours), bounds[0], [one / bounds[0] for one in ours])
            found.append(row(f"fomkit profile {source.stem}", bound_of, times, 1.0))
        held = peak_byte(command)
    found.append(
        {"what": "its resident memory", "time": f"{held / 1e9:.2f} GB", "against": "2 GB",
         "ratio": f"{held / 2e9:.2f}", "bound": "1", "within": "yes" if held < 2e9 else "NO"}
    )  # fmt: skip
    return found


def seconds(call: Callable[[], object]) -> float:
    """Return the least processor time of three calls [s]."""
    times = []
    for _ in range(3):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return min(times)


def scaling() -> list[dict[str, str]]:
    """Measure how the cost of an estimate grows with the number of ops, and of distinct ops."""
    from fomkit.ops.pricing import add_costs
    from fomkit.prediction.cascade import add_times
    from fomkit.profiles.evidence import with_fits
    from fomkit.profiles.machines import load_machine

    machine = with_fits(load_machine("v100"))
    shared = {
        "op": "mm",
        "kind": "gemm",
        "dtype": "fp32",
        "engine": "vector",
        "pass_name": "forward",
        "count": 1.0,
    }

    def table(ops: int, distinct: int) -> pd.DataFrame:
        sizes = np.arange(ops) % distinct
        return pd.DataFrame({**shared, "b": 1.0, "m": 64.0 + sizes, "n": 1024.0, "k": 1024.0})

    def cost(ops: int, distinct: int) -> float:
        rows = table(ops, distinct)
        return seconds(lambda: add_times(add_costs(rows), machine))

    base = cost(100, 100)
    found = []
    for ops, distinct in ((1000, 100), (10_000, 100), (1000, 1000), (5000, 5000)):
        spent = cost(ops, distinct)
        what = f"costs and times of {ops:,} ops, {distinct:,} distinct"
        times = (spent, base, [spent / base])
        found.append(row(what, "100 ops, 100 distinct", times, None))
    return found


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--repeats", type=int, default=7)
    arguments.add_argument("--no-trace", action="store_true", help="leave out what needs torch")
    chosen = arguments.parse_args()
    rows = [*cold_starts(chosen.repeats), *([] if chosen.no_trace else tracing(chosen.repeats)), *scaling()]
    print(pd.DataFrame(rows).to_string(index=False, justify="left"))
    shutil.rmtree(CACHE, ignore_errors=True)


if __name__ == "__main__":
    main()

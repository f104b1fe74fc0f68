"""Times the ops of a table with PyTorch and writes the same table: the second half of a pack's script."""

from __future__ import annotations

import argparse
import csv
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from fomkit.timings.measure_cases import TOLERANCES, CannotTimeError, Cells, make_case

LEAST_REPEATS, MOST_REPEATS = 10, 100
LEAST_S = 0.3
"""Time [s] that the repeats of one op take together, unless they are many."""
SAMPLE_S = 2e-4
"""Shortest time [s] of one repeat; shorter ops run several times in it."""
HARNESS = "fomkit pack"
NEEDED = ("kind", "dtype", "engine", "time_s", "note")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _device_name(device: str) -> str:
    import torch

    if device == "cuda":
        return str(torch.cuda.get_device_name())
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _clocks(device: str) -> str:
    if device != "cuda":
        return "clock not read"
    query = [
        "nvidia-smi",
        "--query-gpu=clocks.sm,clocks.max.sm,clocks.mem,driver_version",
        "--format=csv,noheader",
    ]
    try:
        done = subprocess.run(  # noqa: S603 - the arguments are ours
            query, capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return "clock not read"
    return f"clocks now, at most, of memory, driver: {done.stdout.splitlines()[0].strip()}"


def describe(device: str) -> str:
    """Name the device, its clocks and the software, for the note of every row."""
    import torch

    threads = "" if device == "cuda" else f"; {torch.get_num_threads()} threads"
    software = f"CUDA {torch.version.cuda}; Python {platform.python_version()}"
    return f"{_device_name(device)}{threads}; {_clocks(device)}; {software}"


def _stopwatch(device: str) -> Callable[[Callable[[], Any], int], float]:
    """Give what times some runs of a function [s]: events on a GPU, the process's own time on one CPU thread."""
    import torch

    if device == "cuda":

        def by_events(run: Callable[[], Any], times: int) -> float:
            events: list[Any] = [torch.cuda.Event(enable_timing=True) for _ in range(2)]  # type: ignore[no-untyped-call]
            start, end = events
            start.record()
            for _ in range(times):
                run()
            end.record()
            end.synchronize()
            return float(start.elapsed_time(end)) / 1e3

        return by_events
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter

    def by_clock(run: Callable[[], Any], times: int) -> float:
        start = clock()
        for _ in range(times):
            run()
        return clock() - start

    return by_clock


def time_run(run: Callable[[], Any], device: str) -> list[float]:
    """Time an op again and again, after it has run often enough to be warm.

    Returns
    -------
    list of float
        Time of one execution [s], repeat by repeat.
    """
    watch = _stopwatch(device)
    watch(run, 3)
    once = max(watch(run, 3) / 3, 1e-9)
    times = max(1, round(SAMPLE_S / once))
    repeats = min(MOST_REPEATS, max(LEAST_REPEATS, round(LEAST_S / (once * times))))
    return [watch(run, times) / times for _ in range(repeats)]


def _timed(cells: Cells, device: str, about: str) -> dict[str, str]:
    """Give a row with its time, after the result was held against double precision."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = cells["dtype"] == "tf32"
    torch.manual_seed(0)
    case = make_case(cells, device)
    error = case.check(case.run())
    if not error <= TOLERANCES.get(cells["dtype"], 0.0):
        raise CannotTimeError(f"its result is wrong by {error:.1e} of the largest value")
    times = time_run(case.run, device)
    first, _, third = quantiles(times, n=4)
    return {
        **cells,
        "time_s": f"{median(times):.9g}",
        "p25_s": f"{first:.9g}",
        "p75_s": f"{third:.9g}",
        "repeats": str(len(times)),
        "harness": HARNESS,
        "library": "torch",
        "library_version": str(torch.__version__),
        "note": f"{about}; warm; checked to {error:.1e}",
    }


def _all_timed(rows: list[dict[str, str]], device: str, about: str) -> Iterator[dict[str, str]]:
    import torch

    for number, cells in enumerate(rows, start=1):
        what = f"{number} of {len(rows)} {cells['kind']} {cells['dtype']} {cells['pass_name']}".rstrip()
        try:
            done = _timed(cells, device, about)
        except CannotTimeError as reason:
            _say(f"{what}: not timed, {reason}")
        except (RuntimeError, torch.cuda.OutOfMemoryError) as error:
            _say(f"{what}: not timed, {str(error).splitlines()[0]}")
        else:
            _say(f"{what}: {float(done['time_s']) * 1e3:.4g} ms")
            yield done


def read_cases(path: Path) -> tuple[list[dict[str, str]], list[str]]:
    """Read the table of ops: its rows and its columns.

    Raises
    ------
    OSError, ValueError
        When the file cannot be read, or is no such table.
    """
    with path.open(encoding="utf-8", newline="") as stream:
        reader = csv.DictReader(stream)
        columns = list(reader.fieldnames or [])
        missing = [name for name in NEEDED if name not in columns]
        if missing:
            raise ValueError(f"has no column {', '.join(missing)}. Take cases.csv as it was sent.")
        rows = [{name: cells.get(name) or "" for name in columns} for cells in reader]
    if not rows:
        raise ValueError("has no rows. Take cases.csv as it was sent.")
    return rows, columns


def main(arguments: list[str] | None = None) -> int:
    """Time the rows of a table and write those that could be timed; 1 where some could not, 2 without a table."""
    import torch

    parser = argparse.ArgumentParser(description="Times the ops of a table with PyTorch and checks their results.")
    parser.add_argument("cases", type=Path, help="table of ops, for example cases.csv")
    parser.add_argument("-o", "--output", type=Path, default=Path("timed.csv"), help="table to write")
    parser.add_argument(
        "--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu"
    )
    parser.add_argument("--threads", type=int, default=1, help="threads on a CPU")
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(chosen.threads)
    try:
        rows, columns = read_cases(chosen.cases)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"{chosen.cases}: {error}\n")
        return 2
    about = describe(chosen.device)
    _say(about)
    done = list(_all_timed(rows, chosen.device, about))
    temporary = chosen.output.with_name(f".{chosen.output.name}.part")
    with temporary.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(done)
    os.replace(temporary, chosen.output)
    _say(f"{len(done)} of {len(rows)} ops timed, in {chosen.output}")
    return 0 if len(done) == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())

"""Make the op of any kind as a case, and repeat it, warm or cold, until its median is known.

A case is made by the maker of its kind; optimizer updates are made here. This is the main of a vendor's pack.
"""

from __future__ import annotations

import argparse
import csv
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from fomkit.harness.torch.cases import (
    TOLERANCES,
    CannotTimeError,
    Case,
    Cells,
    Watch,
    error_of,
    item_byte,
    make_watch,
    size_of,
    summarise,
    torch,
    torch_dtype,
)
from fomkit.harness.torch.products import (
    attention,
    check_attention,
    check_convolution,
    check_product,
    check_sparse_product,
    convolution,
    product,
    recurrent,
    sparse_product,
)
from fomkit.harness.torch.traffic import NAMED, check_elementwise, elementwise, short_name
from fomkit.harness.torch.windows import OVER, check_rows, over_rows

RULES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "sgd": ("SGD", {}),
    "momentum": ("SGD", {"momentum": 0.9}),
    "nesterov": ("SGD", {"momentum": 0.9, "nesterov": True}),
    "adam": ("Adam", {}),
    "adam_amsgrad": ("Adam", {"amsgrad": True}),
    "adamw": ("AdamW", {}),
    "adamw_amsgrad": ("AdamW", {"amsgrad": True}),
    "adamax": ("Adamax", {}),
    "nadam": ("NAdam", {}),
    "radam": ("RAdam", {}),
    "rmsprop": ("RMSprop", {}),
    "rmsprop_momentum": ("RMSprop", {"momentum": 0.9}),
    "adagrad": ("Adagrad", {}),
    "adadelta": ("Adadelta", {}),
}
"""Class of ``torch.optim`` and its options, by rule."""


def check_update(cells: Cells) -> None:
    """Raise `CannotTimeError` if the rule of an update is not in `RULES`."""
    if cells["rule"] not in RULES:
        raise CannotTimeError(f"the rule {cells['rule']} is not timed here")


def _lengths(cells: Cells) -> list[int]:
    """Return the elements of each tensor: as stated, else of equal length.

    A tensor above the allocator's limit gets fresh pages for each of its temporaries, so the time depends on the
    division into tensors.
    """
    if cells.get("lengths"):
        return [int(part) for part in cells["lengths"].split()]
    tensors = max(1, round(float(cells["tensors"])))
    return [-(-size_of(cells, "numel") // tensors)] * tensors


def _optimizer(cells: Cells, lengths: Sequence[int], device: str) -> Callable[[Any], tuple[Any, list[Any]]]:
    name, options = RULES[cells["rule"]]
    how = {"foreach": cells["impl"] == "foreach"}
    if cells["impl"] == "fused":
        how["fused"] = True

    def optimizer(dtype: Any) -> tuple[Any, list[Any]]:
        generator = torch.Generator(device).manual_seed(1)
        parameters = []
        for length in lengths:
            drawn = torch.randn((2, length), device=device, dtype=torch_dtype(cells), generator=generator)
            values = drawn.to(dtype)
            parameters.append(values[0].clone().requires_grad_(True))
            parameters[-1].grad = values[1].clone()
        return getattr(torch.optim, name)(parameters, lr=0.1, **how, **options), parameters

    return optimizer


def update(cells: Cells, device: str) -> Case:
    """Make an optimizer's update; the check recomputes the longest tensor alone, from the same start."""
    lengths = _lengths(cells)
    longest = lengths.index(max(lengths))
    optimizer, parameters = _optimizer(cells, lengths, device)(torch_dtype(cells))
    before, gradient = (value.detach().clone() for value in (parameters[longest], parameters[longest].grad))

    def run() -> Any:
        optimizer.step()
        return parameters[longest].detach()

    def check(result: Any) -> float:
        exact, truth = _optimizer({**cells, "impl": "per_tensor"}, [1], device)(torch.float64)
        del truth
        alone = before.double().requires_grad_(True)
        alone.grad = gradient.double()
        exact.param_groups[0]["params"] = [alone]
        exact.step()
        # Compare the changes, not the parameters: a change is small relative to its parameter.
        changed = alone.detach() - before.double()
        return error_of(result.double() - before.double(), changed)

    return Case(run, check)


MAKERS: Mapping[str, Callable[[Cells, str], Case]] = {
    "gemm": product,
    "sparse_gemm": sparse_product,
    "conv": convolution,
    "rnn": recurrent,
    "attention": attention,
    "pointwise": elementwise,
    "copy": elementwise,
    "softmax": over_rows,
    "norm": over_rows,
    "reduction": over_rows,
    "pool": over_rows,
    "embedding": over_rows,
    "optimizer": update,
}
CHECKS: Mapping[str, Callable[[Cells], None]] = {
    "gemm": check_product,
    "sparse_gemm": check_sparse_product,
    "conv": check_convolution,
    "attention": check_attention,
    **dict.fromkeys(("pointwise", "copy"), check_elementwise),
    **dict.fromkeys(("softmax", "norm", "reduction", "pool", "embedding"), check_rows),
    "optimizer": check_update,
}
"""Functions, by kind, that raise `CannotTimeError` for a row that the maker cannot make; other kinds have none."""


def knows_op(cells: Cells) -> bool:
    """Return whether the op that a row names is made here, so that the timing may have that name."""
    name = short_name(cells)
    return name in (OVER if MAKERS.get(cells["kind"]) is over_rows else NAMED)


def check_case(cells: Cells) -> None:
    """Check, without PyTorch, that the op of a row can be made here; raise CannotTimeError if not."""
    if cells["kind"] not in MAKERS:
        raise CannotTimeError(f"the kind {cells['kind']} is not timed here")
    try:
        item_byte(cells)
        if cells["kind"] in CHECKS:
            CHECKS[cells["kind"]](cells)
    except (KeyError, ValueError) as error:
        raise CannotTimeError(f"a size is missing or no number ({error})") from error


def make_case(cells: Cells, device: str) -> Case:
    """Make the op of a row of timings, whose cells are text; raise CannotTimeError if it cannot be made here."""
    check_case(cells)
    try:
        return MAKERS[cells["kind"]](cells, device)
    except (KeyError, ValueError) as error:
        raise CannotTimeError(f"a size is missing or no number ({error})") from error


LEAST_REPEATS, MOST_REPEATS = 6, 100
"""Least and largest number of repeats; six are the fewest that have an interval of their median."""
SAMPLE_S = 2e-4
"""Shortest time [s] of one repeat; shorter ops run several times in a repeat."""
HARNESS = "fomkit pack"
NEEDED = ("kind", "dtype", "engine", "time_s", "note")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _device_name(device: str) -> str:
    if device == "cuda":
        return str(torch.cuda.get_device_name())
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _clocks() -> str:
    query = [
        "nvidia-smi",
        "--query-gpu=clocks.sm,clocks.max.sm,clocks.mem,driver_version",
        "--format=csv,noheader",
    ]
    try:
        done = subprocess.run(  # noqa: S603 - the arguments are ours
            query, capture_output=True, encoding="utf-8", timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return "clock not read"
    return f"clocks now, at most, of memory, driver: {done.stdout.splitlines()[0].strip()}"


def describe(device: str) -> str:
    """Describe the device, its clocks and the software, for the note of every row."""
    threads = f"{(count := torch.get_num_threads())} thread{'s' * (count != 1)}"
    facts = f"{_clocks()}; CUDA {torch.version.cuda}" if device == "cuda" else threads
    return f"{_device_name(device)}; {facts}; Python {platform.python_version()}"


class Effort(NamedTuple):
    """The effort to spend on an op.

    `target`: half the interval of the median, relative to the median, at which repeats stop.
    `limit_s`: time [s] by the watch's clock after which no repeat begins, once there are `least` of them.
    """

    target: float = 0.01
    least: int = LEAST_REPEATS
    most: int = MOST_REPEATS
    limit_s: float = 1.0


class Times(NamedTuple):
    """Repeats [s] of one execution, with warm and with cold caches; empty if not requested."""

    warm: list[float]
    cold: list[float]


def repeat(once: Callable[[], float], effort: Effort, clock: Callable[[], float]) -> list[float]:
    """Repeat until the median is known well enough, or the effort is spent by the clock."""
    times: list[float] = []
    begun = clock()
    while len(times) < effort.most:
        if len(times) >= effort.least and (
            clock() - begun > effort.limit_s or summarise(times).width <= effort.target
        ):
            break
        times.append(once())
    return times


def time_run(
    run: Callable[[], Any],
    watch: Watch,
    effort: Effort,
    *,
    other: Callable[[], Any] | None = None,
    cold: bool = False,
    both: bool = False,
) -> Times:
    """Time repeats of an op after warm-up runs.

    `run`: runs the op once; `other`: runs the same op on other operands before each cold repeat, so that operands
    are cold and the program is not; `cold`: spend the effort on repeats with cold operands instead of warm ones;
    `both`: also time a few repeats of the other state.
    """
    watch.measure(run, 2)
    once_s = max(watch.measure(run, 1) - watch.empty_s, 1e-9)
    times = max(1, round(SAMPLE_S / once_s))

    def warm_once() -> float:
        return max((watch.measure(run, times) - watch.empty_s) / times, 1e-12)

    def cold_once() -> float:
        watch.flush()
        if other is not None:
            other()
        return max(watch.measure(run, 1) - watch.empty_s, 1e-12)

    few = effort._replace(most=effort.least, limit_s=effort.limit_s / 4)
    return Times(
        repeat(warm_once, few if cold else effort, watch.clock) if both or not cold else [],
        repeat(cold_once, effort if cold else few, watch.clock) if both or cold else [],
    )


def time_case(
    case: Case, watch: Watch, effort: Effort, *, other: Case | None = None, cold: bool = False, both: bool = False
) -> Times:
    """Time a case as `time_run` does, less what it does besides the op; raise CannotTimeError if that is noise."""

    def timed(run: Callable[[], Any], beside: Callable[[], Any] | None) -> Times:
        return time_run(run, watch, effort, other=beside, cold=cold, both=both)

    times = timed(case.run, other.run if other else None)
    if case.besides is None:
        return Times(*([case.share * one for one in all_of] for all_of in times))
    off = timed(case.besides, other.besides if other else None)
    left = Times(*([one - median(less) for one in all_of] for all_of, less in zip(times, off, strict=True)))
    if any(min(one) < 0.02 * median(all_of) for one, all_of in zip(left, times, strict=True) if one):
        raise CannotTimeError("its own time is too short to be measured")
    return left


def checked_case(cells: Cells, device: str) -> tuple[Case, float]:
    """Make the op of a row, run it once, and return the case with the error of its result.

    Raises CannotTimeError when it cannot be made, or its result differs from double precision by more than the
    format's tolerance: the time of a wrong kernel is worthless.
    """
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = cells["dtype"] == "tf32"
    torch.manual_seed(0)
    case = make_case(cells, device)
    error = case.check(case.run())
    if not error <= TOLERANCES.get(cells["dtype"], 0.0):
        raise CannotTimeError(f"its result is wrong by {error:.1e} of the largest value")
    return case, error


def _timed(cells: Cells, watch: Watch, device: str, about: str) -> dict[str, str]:
    """Return a row with its time, after its result was compared with double precision."""
    case, error = checked_case(cells, device)
    found = summarise(time_case(case, watch, Effort()).warm)
    return {
        **cells,
        "time_s": f"{found.median_s:.9g}",
        "p25_s": f"{found.p25_s:.9g}",
        "p75_s": f"{found.p75_s:.9g}",
        "repeats": str(found.repeats),
        "harness": HARNESS,
        "library": "torch",
        "library_version": str(torch.version.__version__),
        "note": f"{about}; warm; checked to {error:.1e}",
    }


def _all_timed(rows: list[dict[str, str]], device: str, about: str) -> Iterator[dict[str, str]]:
    watch = make_watch(device)
    for number, cells in enumerate(rows, start=1):
        what = f"{number} of {len(rows)} {cells['kind']} {cells['dtype']} {cells['pass_name']}".rstrip()
        try:
            done = _timed(cells, watch, device, about)
        except CannotTimeError as reason:
            _say(f"{what}: not timed, {reason}")
        except (RuntimeError, torch.cuda.OutOfMemoryError) as error:
            _say(f"{what}: not timed, {str(error).splitlines()[0]}")
        else:
            _say(f"{what}: {float(done['time_s']) * 1e3:.4g} ms")
            yield done


def read_cases(path: Path) -> tuple[list[dict[str, str]], list[str]]:
    """Read the table of ops: its rows and columns; raise OSError or ValueError if it is no such table."""
    with path.open(encoding="utf-8", newline="") as stream:
        reader = csv.DictReader(stream)
        columns = list(reader.fieldnames or [])
        missing = [name for name in NEEDED if name not in columns]
        if missing:
            raise ValueError(f"has no column {', '.join(missing)}. Use cases.csv as it was sent.")
        rows = [{name: cells.get(name) or "" for name in columns} for cells in reader]
    if not rows:
        raise ValueError("has no rows. Use cases.csv as it was sent.")
    return rows, columns


def main(arguments: list[str] | None = None) -> int:
    """Time the rows of a table and write those with a time; return 1 if some have none, 2 without a table."""
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

"""The rate of an input pipeline, read in a process of its own, as the overhead ``input`` of a profile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fomkit.bench.record import begun_machine, read_facts, read_moment, write_machine
from fomkit.core.errors import FomkitError
from fomkit.core.interval import DEFAULT_LEVEL, Span, at_level
from fomkit.core.machine import Fact, Machine, Overhead
from fomkit.files.child_process import Program, run_child, take_request
from fomkit.frontends.model_file import explain_exception, run_file
from fomkit.harness.torch.cases import MEDIAN_LEVEL, CannotTimeError, Summary, summarise
from fomkit.harness.torch.loader import blocks_of, loader_of, read_loader
from fomkit.plan.step import INPUT

LIMITS_S: Mapping[str, float] = {"quick": 20.0, "default": 60.0, "full": 300.0}
"""Time [s] that batches are read for, by plan."""
TARGET = 0.02
START_S = 120.0
"""Time [s] that the file may take before its first batch."""
INPUT_FILE = Program(
    "fomkit.bench.input_rate",
    slow="Its first batch comes too late, or one batch takes minutes; give it less to do before.",
    large="Give it smaller batches or fewer workers.",
    gone="Take that out of the file.",
    environment={"TF_CPP_MIN_LOG_LEVEL": "3"},
)


@dataclass(frozen=True)
class InputSpec:
    """What the user asked: the file, the profile, and for a dataset workers and batch."""

    file: Path
    output: Path
    plan: str = "default"
    workers: int | None = None
    batch: int | None = None
    add: bool = False
    name: str = ""


@dataclass(frozen=True)
class InputMeasured:
    """The rate of an input pipeline.

    `what`: what was read, in words.
    `batch`: samples of a batch, the mean over blocks.
    `times`: times [s] of a batch, one for each block.
    `starts_s`: time [s] to the first batch, of each epoch; the first one is the cold start.
    """

    what: str
    batch: float
    times: tuple[float, ...]
    starts_s: tuple[float, ...]
    machine: Machine
    files: tuple[Path, ...] = ()

    @property
    def per_batch(self) -> Summary:
        """What the blocks tell together."""
        return summarise(self.times)

    @property
    def fact(self) -> Fact:
        """Time [s] of one batch with the 80 % interval of its median; the range of fewer than 6 counts as 95 %."""
        found = self.per_batch
        low, high = found.low_s, found.high_s
        ends = (min(self.times) if low is None else low, max(self.times) if high is None else high)
        time = at_level(Span(found.median_s, *ends, MEDIAN_LEVEL), DEFAULT_LEVEL)
        middle, low, high = (float(f"{one:.4g}") for one in (time.value, time.low, time.high))
        return Fact(middle, low, high, "measured", f"measured here: {self.what}")

    def lines(self) -> list[str]:
        """Write what was found."""
        fact, batch = self.fact, self.batch
        start, *again = self.starts_s
        messages = [
            f"{batch / fact.value:,.4g} samples/s ({batch / fact.high:,.4g} to {batch / fact.low:,.4g}), "
            f"{fact.value * 1e3:.4g} ms a batch of {batch:.4g}: {self.what}",
            f"cold start, to the first batch: {start:.3g} s, not in the rate",
        ]
        if again:
            messages.append(
                f"start of {len(again)} later epochs: {sorted(again)[len(again) // 2]:.3g} s in the middle"
            )
        if self.per_batch.low_s is None:
            messages.append(f"{self.per_batch.repeats} repeats only: the interval is their range")
        return messages


def _read(spec: InputSpec) -> dict[str, Any]:
    limit_s, memory = LIMITS_S[spec.plan], read_facts().memory_byte
    request = {
        "path": str(spec.file.resolve()), "where": str(spec.file), "workers": spec.workers,
        "batch": spec.batch, "limit_s": limit_s, "target": TARGET,
    }  # fmt: skip
    result = run_child(request, str(spec.file), limit_s + START_S, memory or float("inf"), INPUT_FILE)
    if "error" in result:
        raise FomkitError(*result["error"])
    return result


def measure_input(spec: InputSpec) -> InputMeasured:
    """Read a file's input pipeline and write its time per batch as the overhead ``input`` of each step.

    Raises FomkitError when the file is not there, fails, or gives too few batches.
    """
    if not spec.file.is_file():
        raise FomkitError(str(spec.file), "is not a file. Give a Python file with a 'loader'.")
    facts = read_facts()
    machine = begun_machine(spec.output, spec.name, facts.model or "measured input", add=spec.add)
    before, result = read_moment().load, _read(spec)
    batch = sum(result["samples"]) / len(result["samples"])
    workers = f", {result['workers']} workers" if result["workers"] else ""
    what = f"{spec.file.name}, {result['what']}{workers}, batch {batch:.4g}, {result['batches']:,} batches read"
    found = InputMeasured(what, batch, tuple(result["times"]), tuple(result["starts_s"]), machine)
    others = [overhead for overhead in machine.overheads if (overhead.name, overhead.per) != (INPUT, "step")]
    notes = [f"input pipeline: {line}" for line in found.lines()]
    if before is not None:
        notes.append(f"input pipeline: load before it was read {before:.2f} (/proc/loadavg)")
    kept = tuple(note for note in machine.notes if not note.startswith("input pipeline: "))
    machine = replace(machine, overheads=(*others, Overhead(INPUT, "step", found.fact, None)), notes=kept)
    return replace(found, machine=machine, files=tuple(write_machine(machine, spec.output, notes)))


ENOUGH_BLOCKS = 30
"""Repeats whose interval of the median is trusted to end a measurement early."""


def rate_of(path: Path, request: dict[str, Any]) -> dict[str, Any]:
    """Read a file's input pipeline: times [s] and samples of a batch by block, and of each epoch's first batch."""
    loader = loader_of(run_file(path), request["workers"], request["batch"])

    def enough(blocks: list[tuple[float, float]]) -> bool:
        times = [time_s for time_s, _ in blocks]
        return len(times) >= ENOUGH_BLOCKS and summarise(times).width <= request["target"]

    epochs = read_loader(loader, request["limit_s"], enough)
    blocks = blocks_of(epochs, loader.ahead, loader.workers)
    if len(blocks) < 2:
        count = sum(len(epoch.arrived_s) for epoch in epochs)
        raise CannotTimeError(f"gave {count} batches, too few to tell a rate. Give it more data, or try --full")
    return {
        "what": loader.what,
        "workers": loader.workers,
        "times": [time_s for time_s, _ in blocks],
        "samples": [samples for _, samples in blocks],
        "batches": sum(len(epoch.arrived_s) for epoch in epochs),
        "starts_s": [epoch.arrived_s[0] - epoch.begun_s for epoch in epochs if epoch.arrived_s],
    }


def main() -> None:
    """Answer one request."""
    request, answer = take_request()
    path = Path(request["path"])
    try:
        result = rate_of(path, request)
    except CannotTimeError as reason:
        result = {"error": [request["where"], f"{reason}."]}
    except BaseException as error:  # the file may raise anything, SystemExit too; the parent tells it
        explained = explain_exception(error, request["where"], path)
        result = {"error": [explained.where, explained.what]}
    answer.leave(result)

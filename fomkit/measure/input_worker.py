"""The process that runs a user's file and reads its input pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fomkit.timings.measure_cases import CannotTimeError
from fomkit.timings.measure_loader import blocks_of, loader_of, read_loader
from fomkit.timings.measure_statistics import summarise
from fomkit.trace.child_answer import take_request
from fomkit.trace.model_file import explain_exception, run_file

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
        count = sum(len(one.arrived_s) for one in epochs)
        raise CannotTimeError(f"gave {count} batches, too few to tell a rate. Give it more data, or try --full")
    return {
        "what": loader.what,
        "workers": loader.workers,
        "times": [time_s for time_s, _ in blocks],
        "samples": [samples for _, samples in blocks],
        "batches": sum(len(one.arrived_s) for one in epochs),
        "starts_s": [one.arrived_s[0] - one.begun_s for one in epochs if one.arrived_s],
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
        told = explain_exception(error, request["where"], path)
        result = {"error": [told.where, told.what]}
    answer.leave(result)

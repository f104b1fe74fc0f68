"""Keep a journal of a measurement, one line per answer, so that it can be resumed; make timing rows and a verdict.

`Journal` records answers, `timings_table` makes rows of TIMINGS from them, `Verdict` tells if they are sufficient.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict

import numpy as np
import pandas as pd

from fomkit.bench.libraries import Cells, Wanted, as_table, key_of
from fomkit.core.errors import FomkitError
from fomkit.files.csv import open_file
from fomkit.files.write import write_whole
from fomkit.harness.torch.cases import Summary, processor_clock, summarise
from fomkit.harness.torch.worker import Answer
from fomkit.ops.pricing import add_costs
from fomkit.ops.tables import column_names, empty_table
from fomkit.plan.content import as_content
from fomkit.plan.coverage import MEASURED
from fomkit.prediction.cascade import add_times
from fomkit.prediction.rates import fresh_seconds

if TYPE_CHECKING:
    from fomkit.core.machine import Device, Machine
    from fomkit.plan.estimate import Estimate

SCHEMA = "fomkit/measuring/1"


def journal_path(output: Path) -> Path:
    """Return the path of the journal of an unfinished profile."""
    return output.with_name(f"{output.stem}.measuring.jsonl")


class Journal:
    """Ops with their answers: times, or the reason why there are none.

    `about`: conditions that make timings comparable: device, threads, library. Only a run with the same resumes.
    """

    def __init__(self, path: Path, about: Mapping[str, Any]) -> None:
        self.path, self.about = path, dict(about)
        self.answers: dict[tuple[str, ...], tuple[Cells, Answer]] = {}
        self.marks: list[dict[str, Any]] = []

    def begin(self) -> None:
        """Write a new file."""
        write_whole(self.path, json.dumps({"schema": SCHEMA, "about": self.about}) + "\n")

    def resume(self) -> None:
        """Read the answers of an earlier run; a last line that was cut off is dropped."""
        where = str(self.path)
        try:
            with open_file(self.path) as stream:
                first, *lines = stream.read().decode("utf-8").splitlines()
            header = json.loads(first)
        except OSError as error:
            raise FomkitError(where, "is not there, so nothing can be resumed. Leave --resume out.") from error
        except (ValueError, RecursionError) as error:
            raise FomkitError(where, "is not a measurement's record. Delete it and leave --resume out.") from error
        if not isinstance(header, dict) or header.get("schema") != SCHEMA:
            raise FomkitError(where, f"does not state schema {SCHEMA}. Delete it and leave --resume out.")
        before = header.get("about")
        if before != self.about:
            raise FomkitError(
                where, f"was measured on {_about_text(before)}, and this is {_about_text(self.about)}. Measure "
                       "again, without --resume.",
            )  # fmt: skip
        for number, line in enumerate(lines, 2):
            try:
                entry = json.loads(line)
            except (ValueError, RecursionError):
                break
            entry = entry if isinstance(entry, dict) else {}
            answered = all(isinstance(entry.get(one), dict) for one in ("cells", "answer"))
            if not answered and not isinstance(entry.get("mark"), str):
                raise FomkitError(f"{where}:{number}", "is not an op with a result. Delete the line or the file.")
            self._take(entry)
        self.begin()
        for entry in (*self.marks, *({"cells": cells, "answer": one} for cells, one in self.answers.values())):
            self._write(entry)

    def _take(self, entry: dict[str, Any]) -> None:
        if "mark" in entry:
            self.marks.append(entry)
        else:
            self.answers[key_of(entry["cells"])] = (entry["cells"], entry["answer"])

    def _write(self, entry: Mapping[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(entry) + "\n")

    def keep(self, cells: Cells, answer: Answer) -> None:
        """Record the answer of an op."""
        self._add({"cells": dict(cells), "answer": dict(answer)})

    def mark(self, name: str, **values: object) -> None:
        """Record other values under a name."""
        self._add({"mark": name, **values})

    def say(self, *lines: str) -> None:
        """Add lines to the profile's notes, each only once, also in a resumed run."""
        for line in filter(None, lines):
            if line not in [one["said"] for one in self.marked("said")]:
                self.mark("said", said=line)

    def _add(self, entry: dict[str, Any]) -> None:
        self._take(entry)
        self._write(entry)

    def marked(self, name: str) -> list[dict[str, Any]]:
        """Return the values recorded under a name, in order."""
        return [mark for mark in self.marks if mark["mark"] == name]

    def last(self, name: str) -> dict[str, Any] | None:
        """Return the last values recorded under a name; None without any."""
        return next(reversed(self.marked(name)), None)

    def close(self) -> None:
        """Delete the file, after its profile is written."""
        self.path.unlink(missing_ok=True)


def _about_text(about: object) -> str:
    return ", ".join(str(value) for value in about.values()) if isinstance(about, dict) else "something else"


NOISY = 0.1
"""Half the interval of a median, relative to the median, above which a timing counts as noisy."""
_NUMBERS = frozenset(column_names("TIMINGS", "number"))


def in_step(answer: Mapping[str, Any]) -> list[float]:
    """Return the repeats [s] that represent the op in a step: with warm or cold operands, by its ``state``."""
    return list(answer[answer["state"]])


def spread_notes(found: Summary) -> Iterator[str]:
    """Yield notes of the interval of a timing's median, and of its outliers."""
    if found.low_s is not None and found.high_s is not None:
        yield f"median within [{found.low_s:.4g}, {found.high_s:.4g}] s at 95 %"
    if found.outliers:
        yield f"{found.outliers} of {found.repeats} outliers kept, longest {found.longest_s:.4g} s"


def _timing_note(answer: Mapping[str, Any], found: Summary, host_s: float) -> str:
    state = answer["state"]
    other = {"warm": "cold", "cold": "warm"}[state]
    parts = [f"operands {state}; {other} {summarise(answer[other]).median_s:.4g} s"]
    if host_s:
        parts.append(f"{host_s:.3g} s of the framework added")
    return "; ".join((*parts, *spread_notes(found), f"checked to {answer['error']:.1e}"))


def row_of_times(cells: Cells, found: Summary, host_s: float = 0.0) -> dict[str, object]:
    """Make the columns of a row of timings that hold the op and its times."""
    return {
        **{name: float(text) if name in _NUMBERS else text for name, text in cells.items() if name != "lengths"},
        "time_s": found.median_s + host_s,
        "p25_s": found.p25_s + host_s,
        "p75_s": found.p75_s + host_s,
        "repeats": float(found.repeats),
        "harness": MEASURED,
    }


def in_order(timings: pd.DataFrame) -> pd.DataFrame:
    """Return timings with their columns in the order of TIMINGS; missing texts become empty."""
    names = [name for name in column_names("TIMINGS") if name in timings.columns]
    texts = {name: timings[name].fillna("") for name in names if name not in _NUMBERS}
    return timings.assign(**texts)[names]


def timings_table(
    answers: Iterable[tuple[Cells, Mapping[str, Any]]], library: Mapping[str, str], host_s: float = 0.0
) -> pd.DataFrame:
    """Make the table of timings of all answers that have times.

    ``host_s`` is the framework's time per op of a step if the host is the device, so that both cannot overlap. It
    is added to the times of all ops but updates, which contain it already.
    """
    rows = []
    for cells, answer in answers:
        if "reason" not in answer:
            found, added_s = summarise(in_step(answer)), 0.0 if cells["kind"] == "optimizer" else host_s
            row = row_of_times(cells, found, added_s)
            rows.append({**row, **library, "note": _timing_note(answer, found, added_s)})
    return in_order(pd.DataFrame(rows)) if rows else empty_table("TIMINGS")


LEAST_OP_SHARE = 0.2
"""Least share of a timing that remains after its fresh pages are subtracted."""


def without_fresh(timings: pd.DataFrame, device: Device) -> pd.DataFrame:
    """Set ``harness_s`` to the time of fresh pages in each timing; predictions add that time where it applies."""
    fresh_s = fresh_seconds(timings, device)
    if not fresh_s.any():
        return timings
    return timings.assign(harness_s=np.minimum(fresh_s, (1 - LEAST_OP_SHARE) * timings["p25_s"]))


def noise_of(timings: Iterable[Sequence[float]]) -> tuple[int, int, float]:
    """Return the number of timings, the number of noisy ones, and the median relative half-width."""
    widths = [summarise(repeats).width for repeats in timings]
    median = float(np.median(widths)) if widths else float("nan")
    return len(widths), sum(width > NOISY for width in widths), median


ENOUGH = 0.8
"""Share of a model's predicted step time from which a measurement for the model is sufficient."""
ENOUGH_OF_DESIGN = 0.2
"""Share of a plan's ops from which a measurement without models is sufficient. A plan has more ops than its budget
has time for, in an order drawn over all kinds, so a fifth covers every kind. `--for` judges by a model's step."""
WALL_FACTOR = 4.0
"""Largest wall time of a measurement as a multiple of its budget; beyond it other work has most of the machine."""
DESIGN = "ops of the plan"
"""Key of the share if no model was requested."""
SOURCES = ("measured", "interpolated")
Ended = Literal["done", "budget", "wall", "interrupted"]
_WHY: Mapping[str, str] = {
    "done": "every op was tried",
    "budget": "the budget was spent",
    "wall": f"the wall time reached {WALL_FACTOR:g} times the budget, so other processes used most of the machine",
    "interrupted": "it was interrupted",
}


class Clocks(NamedTuple):
    """The clocks of a measurement.

    `own`: the clock that times the ops and counts the budget [s]; `wall`: the wall clock [s].
    `name`: name of the former.
    """

    own: Callable[[], float]
    wall: Callable[[], float]
    name: str


def clocks_of(device: str, threads: int, spent_s: Callable[[], float]) -> Clocks:
    """Choose the clocks: that of the ops on a CPU (`processor_clock`), else wall time.

    `spent_s`: time [s] of the timing process; the time of this thread, which predicts meanwhile, is added.
    """
    if device == "cpu" and processor_clock(threads) is time.process_time:
        return Clocks(lambda: time.thread_time() + spent_s(), time.monotonic, "process time")
    return Clocks(time.monotonic, time.monotonic, "wall time")


@dataclass(frozen=True)
class Verdict:
    """How far a measurement got.

    `shares`: by model, the share of its predicted step time that is measured or interpolated; without a model, the
      share of the plan's ops, under `DESIGN`.
    `wanted`, `timed`: number of requested ops, and of those with a time.
    `own_s`, `wall_s`: time used [s] by the clock of the budget and by the wall; `budget_s`: the budget [s].
    `resume`: the command that resumes the measurement; "" if every op was tried.
    """

    shares: Mapping[str, float]
    wanted: int
    timed: int
    own_s: float
    wall_s: float
    budget_s: float
    clock: str
    ended: Ended
    resume: str = ""

    @property
    def sufficient(self) -> bool:
        """Whether every share is enough (`enough_of`) and the run did not end by the wall time."""
        reached = all(share >= enough_of(whose) for whose, share in self.shares.items())
        return self.ended != "wall" and bool(self.shares) and reached

    def lines(self) -> list[str]:
        """Return the verdict as sentences."""
        spent = (
            f"{self.own_s:.0f} s of {self.clock} (budget {self.budget_s:.0f} s), {self.wall_s:.0f} s of wall time"
        )
        found = [f"{self.timed} of {self.wanted} ops timed in {spent}; it ended because {_WHY[self.ended]}"]
        for whose, share in self.shares.items():
            of = DESIGN if whose == DESIGN else f"the predicted step time of {whose}"
            found.append(f"measured or interpolated: {share:.1%} of {of}")
        verdict = "sufficient" if self.sufficient else "not sufficient"
        within = ", within that wall time" if self.ended == "wall" else ""
        enough = min(map(enough_of, self.shares), default=ENOUGH)
        advice = "; --for MODEL judges by a model's step time" if DESIGN in self.shares else ""
        found.append(f"{verdict}: {enough:.0%} of each is sufficient{within}{advice}")
        return found

    def content(self) -> VerdictContent:
        """Return the verdict as plain values."""
        return as_content(
            VerdictContent, self,
            shares=[{"of": whose, "timed_share": share} for whose, share in self.shares.items()],
            enough_share=min(map(enough_of, self.shares), default=ENOUGH), wanted_ops=self.wanted,
            timed_ops=self.timed, measuring_s=self.own_s, measuring_wall_s=self.wall_s,
        )  # fmt: skip


TimedShare = TypedDict("TimedShare", {"of": str, "timed_share": float})
VerdictContent = TypedDict("VerdictContent", {
    "sufficient": bool, "shares": list[TimedShare], "enough_share": float, "wanted_ops": int, "timed_ops": int,
    "clock": str, "measuring_s": float, "measuring_wall_s": float, "budget_s": float, "ended": str,
    "resume": str | None,
})  # fmt: skip


class MeasuredContent(VerdictContent):
    """The verdict on a measurement, with the machine, the written files and the notes."""

    schema: str
    machine: str
    files: list[str]
    notes: list[str]


def enough_of(whose: str) -> float:
    """Return the sufficient share of a model's step, or of a plan's ops (`DESIGN`)."""
    return ENOUGH_OF_DESIGN if whose == DESIGN else ENOUGH


def design_share(ops: Sequence[Wanted], machine: Machine) -> float:
    """Return the share of a design's ops that are measured or interpolated on a machine."""
    if not ops:
        return 0.0
    timed = add_times(add_costs(as_table([one.cells for one in ops])), machine)
    return float(timed["time_source"].isin(SOURCES).mean())


def model_shares(
    names: Sequence[str], machine: Machine, project: Callable[[str, Machine], Estimate]
) -> dict[str, float]:
    """Return the share of each model's predicted step time, of ops with a time, that is measured or interpolated.

    A model that cannot be estimated on the machine has a share of 0.
    """
    found = {}
    for name in names:
        try:
            ops = project(name, machine).ops
        except FomkitError:
            found[name] = 0.0
            continue
        seconds = ops["time_s"] * ops["count"]
        known, total = (float(some.sum()) for some in (seconds[ops["time_source"].isin(SOURCES)], seconds))
        found[name] = known / total if total > 0 else 0.0
    return found

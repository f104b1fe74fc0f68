"""Whole training steps of image networks, on a board known by its facts alone, beside published measurements.

The ops are those of our own sources of the same networks (``benchmarks/vision_steps.py``), under autocast as the
steps were measured. They are priced as any table of ops and added up as any step; nothing is fitted to a step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from fomkit.core.interval import DEFAULT_LEVEL, Span
from fomkit.ops.tables import column_names
from fomkit.plan.op_tables import predict_ops
from fomkit.plan.step import roll_up_step
from fomkit.profiles.evidence import with_fits
from fomkit.profiles.locate import shipped_folder
from fomkit.profiles.machines import load_machine
from fomkit.readers.tables.foreign import read_columns
from fomkit.validation.graphs import without_timings
from fomkit.validation.scores import Score, cases_of_spans, score

if TYPE_CHECKING:
    import pandas as pd

NAME = "vision steps by facts"
LATER, EARLIER = "networks that chose no rule", "networks seen when rules were chosen"
NOTE = (
    f"{NAME}: networks of our own sources with as many parameters as the measured ones, at their batch and size "
    "of image; no step is fitted, and networks by which no rule was chosen are scored apart."
)
FEWEST = 4
"""Networks of a family, and steps of which one part takes most, from which they have a line of their own."""
SHARE = 0.5
"""Share of a step's predicted time from which it counts as one part's."""


class Step(NamedTuple):
    """A measured step [s], what was predicted, and the share of each part in the prediction."""

    model: str
    family: str
    seen: bool
    measured_s: float
    predicted: Span
    shares: Mapping[str, float]

    @property
    def part(self) -> str:
        """The part that takes most of the step; "" where none takes `SHARE`."""
        most = max(self.shares, key=lambda name: self.shares[name])
        return f"mostly {most}" if self.shares[most] >= SHARE else "no part above half"


def parts_of(ops: pd.DataFrame) -> pd.Series[str]:
    """Name the part of a step that each op belongs to."""
    names = {"gemm": "products", "norm": "norms", "conv": "convolutions"}
    return ops["kind"].map(names).fillna("traffic").mask(ops["groups"] > 1, "grouped convolutions")


def _read_ops() -> pd.DataFrame:
    numbers, texts = ({*column_names("OPS", kind)} for kind in ("number", "text"))
    path = shipped_folder("validation") / "vision" / "ops.csv.gz"
    return read_columns(path, {"model", *texts}, numbers, optional=numbers | texts).reset_index(drop=True)


def predicted_steps(level: float = DEFAULT_LEVEL) -> Iterator[tuple[str, Step]]:
    """Predict every step, machine by machine; give the machine with it."""
    steps = read_columns(shipped_folder("validation") / "vision" / "steps.csv",
                         ("model", "family", "machine"), ("seen", "step_s"))  # fmt: skip
    ops = _read_ops()
    for machine, rows in steps.groupby("machine", sort=False):
        known = with_fits(without_timings(load_machine(str(machine))))
        own = ops[ops["model"].isin(rows["model"])]
        timed = predict_ops(own.drop(columns="model"), known, interval=level).ops
        of_model = dict(iter(timed.groupby(own["model"], sort=False)))
        for row in rows.to_dict("records"):
            its = of_model[row["model"]]
            spent = (its["time_s"] * its["count"]).groupby(parts_of(its)).sum()
            span = roll_up_step(its, known, level).wall_s
            shares = {str(name): float(share) for name, share in (spent / spent.sum()).items()}
            yield str(machine), Step(row["model"], row["family"], row["seen"] > 0, row["step_s"], span, shares)


def _lines(steps: list[Step]) -> Iterator[tuple[str, list[Step]]]:
    yield "all", steps
    yield LATER, [one for one in steps if not one.seen]
    yield EARLIER, [one for one in steps if one.seen]
    for attribute in ("part", "family"):
        for name in sorted({getattr(one, attribute) for one in steps}):
            some = [one for one in steps if getattr(one, attribute) == name]
            if len(some) >= FEWEST:
                yield name, some


def vision_scores(level: float = DEFAULT_LEVEL) -> list[Score]:
    """Score the steps: all, those of networks that no rule was chosen by, by their largest part, and by family."""
    machines: dict[str, list[Step]] = {}
    for machine, step in predicted_steps(level):
        machines.setdefault(machine, []).append(step)
    return [
        score(cases_of_spans([one.measured_s for one in some], [one.predicted for one in some]), NAME, "model",
              machine, what, interval=level)
        for machine, steps in machines.items() for what, some in _lines(steps) if some
    ]  # fmt: skip

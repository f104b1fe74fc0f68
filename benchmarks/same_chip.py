"""Estimate which errors two boards have in common: `fomkit.core.interval.SAME_CHIP` (docs/adr/0075).

``python benchmarks/same_chip.py`` predicts each timed op of every shipped board, once from the facts of its chip
alone and once from its own table without the op's shape group. It prints the correlation of the standardised
errors of the same op on two boards, by what the boards have in common (chip, generation, vendor), and by chip how
many ratios of sums of twelve ops are in their 80 % interval with several correlations. It takes a minute.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np
import pandas as pd

from fomkit.core.interval import half_width
from fomkit.ops.tables import DIMENSIONS
from fomkit.plan.step import common_of
from fomkit.profiles.locate import shipped_folder
from fomkit.profiles.machines import load_machine
from fomkit.validation import deepbench_folds, deepbench_scores
from fomkit.validation.scores import Cases

deepbench_scores.MAX_ROWS = 500
LEVELS, FEWEST, OPS, DRAWS = ("none", "vendor", "generation", "chip"), 15, 12, 100
SIZES = ["cell", *(column.name for column in DIMENSIONS)]


def errors(rows: pd.DataFrame, cases: Cases, what: str, machine: str, chip: str, source: str) -> pd.DataFrame:
    """Return ln(predicted / measured) of ops and its standard deviation by the interval."""
    op = rows[[name for name in SIZES if name in rows.columns]].fillna(-1).astype(str).agg(" ".join, axis=1)
    sd = np.log(cases.high / cases.low) / 2 / half_width(0.8)
    return pd.DataFrame({"op": op.to_numpy(), "error": cases.log_error, "sd": sd}).assign(
        what=what, machine=machine, chip=chip, source=source
    )


def every_error() -> Iterator[pd.DataFrame]:
    for path in sorted(shipped_folder("machine_profiles").glob("*.yaml")):
        board = load_machine(path)
        if board.device.architecture and not board.device_of:
            for sheet, what, rows in deepbench_scores._machine_parts(board):
                cases, _ = deepbench_scores._held_out_cases(rows, board, 0.8)
                what = f"{what} {sheet.removeprefix(board.name)}"
                yield errors(rows, cases, what, board.name, board.device.architecture, "roofline")
    sheets = deepbench_folds.read_sheets(shipped_folder("validation") / "deepbench" / "sheets.csv")
    for sheet in sheets:
        board = load_machine(sheet.machine)
        for part in deepbench_folds.parts(sheet, board):
            cases = deepbench_folds.cross_validate(part.rows, part.kind, part.fold, board)
            what = f"{part.what} {sheet.dtype}/{sheet.engine}"
            yield errors(part.rows, cases, what, board.name, board.device.architecture, "interpolated")


def pairs(table: pd.DataFrame) -> Iterator[tuple[dict[str, str], pd.DataFrame]]:
    """Yield the ops that two boards timed: what they are, and error and deviation of both."""
    for (source, what), group in table.groupby(["source", "what"]):
        boards = {str(name): rows.groupby("op")[["error", "sd"]].mean() for name, rows in group.groupby("machine")}
        chips = dict(zip(group["machine"], group["chip"], strict=True))
        for one, other in combinations(boards, 2):
            both = boards[one].add_suffix("_1").join(boards[other].add_suffix("_2"), how="inner")
            alike = [a == b for a, b in zip(chips[one].split(), chips[other].split(), strict=False)]
            common = LEVELS[int(np.cumprod(alike).sum())]
            if len(both) >= FEWEST:
                yield {"source": source, "what": what, "common": common, "chip": chips[one]}, both


def sums(both: pd.DataFrame, share: float) -> np.ndarray:
    """Return the error of a ratio of sums of twelve ops, and both standard deviations (3, draws)."""
    drawn = (both.sample(OPS, random_state=seed).to_numpy().T for seed in range(DRAWS))
    own = lambda sd: np.hypot(share**0.5 * sd.mean(), (1 - share) ** 0.5 * np.sqrt((sd**2).sum()) / OPS)  # noqa: E731
    return np.array([[(one - other).mean(), own(a), own(b)] for one, a, other, b in drawn]).T


def main() -> None:
    found, hits = [], []
    for about, both in pairs(pd.concat(every_error())):
        first, second = (both[f"error_{side}"] / both[f"sd_{side}"] for side in "12")
        found.append({**about, "r": (first * second).mean() / np.sqrt((first**2).mean() * (second**2).mean())})
        if about["common"] == "chip":
            error, one, other = sums(both, common_of(about["what"].split()[0], about["source"]))
            for linked in (0.0, 0.7, 0.8, 0.85, 0.9):
                width = half_width(0.8) * np.sqrt(one**2 + other**2 - 2 * linked * one * other)
                hits.append({**about, "correlation": linked, "inside": (np.abs(error) <= width).mean()})
    table = pd.DataFrame(found)
    print(table.groupby(["source", "common"])["r"].agg(["mean", "size"]).round(2), end="\n\n")
    print(
        table[table["common"] == "chip"].groupby(["source", "chip"])["r"].agg(["mean", "size"]).round(2),
        end="\n\n",
    )
    inside = pd.DataFrame(hits).groupby(["source", "chip", "correlation"])["inside"].mean()
    print((100 * inside).round().unstack("correlation"))


if __name__ == "__main__":
    main()

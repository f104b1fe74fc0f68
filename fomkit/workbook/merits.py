"""The means of `fomkit.merit.fom` as formulas of columns of rates and weights.

The figure of merit of each target, with all means beside it, as formulas of the ratios.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import harmonic_mean

from fomkit.core.interval import Span, probability_above
from fomkit.merit.fom import MISSED, PROPOSAL, REACHED, FigureOfMerit, verdict
from fomkit.workbook.cells import Formula, Page, Value
from fomkit.workbook.input_sheets import AssumptionCells
from fomkit.workbook.layout import AS_ISSUED, CHANGED, MERITS, Placed
from fomkit.workbook.records import SheetModel, Values

MEANS = ("ratio_of_harmonic_means", "weighted_harmonic", "harmonic", "geometric", "arithmetic")


def mean_formula(name: str, new: str, old: str, weight: str) -> str:
    """Write a mean of how many times faster one machine is.

    `name`: one of `MEANS`; `new`, `old`, `weight`: blocks of cells: rates of the target and of the baseline,
    weights of the lines.

    Examples
    --------
    >>> mean_formula("harmonic", "B1:B3", "A1:A3", "C1:C3")
    '(ROWS(B1:B3)/SUMPRODUCT(A1:A3/B1:B3))'
    """
    return {
        "ratio_of_harmonic_means": f"(SUMPRODUCT(1/{old})/SUMPRODUCT(1/{new}))",
        "weighted_harmonic": f"(SUMPRODUCT({weight}/{old})/SUMPRODUCT({weight}/{new}))",
        "harmonic": f"(ROWS({new})/SUMPRODUCT({old}/{new}))",
        "geometric": f"EXP(SUMPRODUCT({weight}*LN({new}/{old}))/SUM({weight}))",
        "arithmetic": f"(SUMPRODUCT({new}/{old})/ROWS({new}))",
    }[name]


def share_formula(name: str, old: str, weight: str, old_cell: str, weight_cell: str) -> str:
    """Write the share that one line has in a mean."""
    equal = f"1/ROWS({old})"
    return {
        "ratio_of_harmonic_means": f"(1/{old_cell})/SUMPRODUCT(1/{old})",
        "weighted_harmonic": f"({weight_cell}/{old_cell})/SUMPRODUCT({weight}/{old})",
        "harmonic": equal,
        "geometric": f"{weight_cell}/SUM({weight})",
        "arithmetic": equal,
    }[name]


def interval_formulas(name: str, new: list[str], old: list[str], weight: str, value: str) -> tuple[str, str]:
    """Write the ends of a mean: errors go together on a machine and know nothing of each other across the two.

    `new`, `old`: blocks of values, low ends and high ends; `value`: the cell of the mean itself.
    """

    def apart(new_block: str, old_block: str) -> str:
        return f"LN({mean_formula(name, new_block, old_block, weight)}/{value})^2"

    below = f"{apart(new[1], old[0])}+{apart(new[0], old[2])}"
    above = f"{apart(new[2], old[0])}+{apart(new[0], old[1])}"
    return f"{value}*EXP(-SQRT({below}))", f"{value}*EXP(SQRT({above}))"


FOM, CHANCE, VERDICT = "figure of merit", "chance of reaching the threshold", "verdict on the threshold"
RATES = ("target's harmonic mean rate", "baseline's harmonic mean rate")


@dataclass(frozen=True)
class MeritCells:
    """Where the table of merits starts; each target has the same `rows`."""

    start: int
    sheet_model: SheetModel
    targets: tuple[str, ...]

    @property
    def rows(self) -> tuple[str, ...]:
        """The rows of one target."""
        return (FOM, *RATES, *(mean for mean in MEANS if mean != self.sheet_model.mean), CHANCE, VERDICT)

    @property
    def height(self) -> int:
        """Rows that the table takes, title and headers among them."""
        return len(self.targets) * len(self.rows) + 3 if self.targets else 0

    def at(self, target: str, what: str, key: str = "value") -> str:
        """Name a cell of a target's merit."""
        row = self.start + 2 + self.targets.index(target) * len(self.rows) + self.rows.index(what)
        return f"{MERITS.sheet}!${MERITS.letter(key)}${row}"


def _columns(target: str, ratios: Placed, keys: tuple[tuple[str, str], ...]) -> dict[str, str]:
    own = [index for index, key in enumerate(keys) if key[1] == target]
    first, last = ratios.first + own[0], ratios.first + own[-1]
    letters = {column.key: ratios.table.letter(column.key) for column in ratios.table.columns}
    return {key: f"${letter}${first}:${letter}${last}" for key, letter in letters.items()}


def _harmonic(spans: list[Span]) -> list[float]:
    return [harmonic_mean([getattr(span, end) for span in spans]) for end in ("value", "low", "high")]


def _figures(
    cells: MeritCells, merit: FigureOfMerit, block: dict[str, str]
) -> Iterator[tuple[str, list[str], list[float]]]:
    """Give each row's name, its formulas for value, low and high, and their values."""
    new, old = ([block[f"{key}{end}"] for end in ("", "_low", "_high")] for key in ("new", "old"))
    weight, fom = block["line_weight"], cells.at(merit.target.machine, FOM)
    ends = interval_formulas(merit.mean, new, old, weight, fom)
    value = merit.value
    yield FOM, [mean_formula(merit.mean, new[0], old[0], weight), *ends], [value.value, value.low, value.high]
    for row, blocks, rates in zip(RATES, (new, old), (merit.target, merit.baseline), strict=True):
        yield row, [f"HARMEAN({block})" for block in blocks], _harmonic(list(rates.unit_per_day.values()))
    for name, span in merit.others.items():
        ends = interval_formulas(name, new, old, weight, cells.at(merit.target.machine, name))
        yield name, [mean_formula(name, new[0], old[0], weight), *ends], [span.value, span.low, span.high]


def _chance_formula(cells: MeritCells, target: str, assumptions: AssumptionCells) -> str:
    value, low, high = (cells.at(target, FOM, end) for end in ("value", "low", "high"))
    bar, level = assumptions.at("threshold"), assumptions.at("interval level")
    distance = f"LN({bar}/{value})"
    spread = f"(IF({bar}>{value},LN({high}/{value}),LN({value}/{low}))/NORMSINV(0.5+{level}/2))"
    return f"IF({spread}=0,IF({bar}<={value},1,0),ROUND(1-NORMSDIST({distance}/{spread}),6))"


def _verdict_rows(cells: MeritCells, merit: FigureOfMerit, assumptions: AssumptionCells) -> Iterator[list[Value]]:
    target, limit = merit.target.machine, cells.sheet_model.threshold
    chance = None if limit is None else round(probability_above(merit.value, limit), 6)
    label, blank = "no threshold" if chance is None else verdict(chance, PROPOSAL), [None] * 2
    if limit is None or chance is None:
        yield [CHANCE, target, "", label, *blank, label, *blank, None]
        yield [VERDICT, target, "", label, *blank, label, *blank, None]
        return
    cell, bar = cells.at(target, CHANCE), Formula(assumptions.at("threshold"), limit)
    yield [
        CHANCE,
        target,
        bar,
        Formula(_chance_formula(cells, target, assumptions), chance),
        *blank,
        chance,
        *blank,
        None,
    ]
    reached, missed, neither = PROPOSAL
    word = f'IF({cell}>={REACHED},"{reached}",IF({cell}<={MISSED},"{missed}","{neither}"))'
    yield [VERDICT, target, bar, Formula(word, label), *blank, label, *blank, None]


def write_merits(
    page: Page,
    cells: MeritCells,
    values: Values,
    assumptions: AssumptionCells,
    ratios: Placed,
    keys: tuple[tuple[str, str], ...],
) -> None:
    """Write the figures of all targets."""
    rows = list[list[Value]]()
    for target, merit in values.merits.items():
        block = _columns(target, ratios, keys)
        changed = f'COUNTIF({block["state"]},"{CHANGED}")'
        for name, formulas, ends in _figures(cells, merit, block):
            now, was = cells.at(target, name), cells.at(target, name, "was")
            unchanged_state = f'IF(ABS({now}-{was})<=0.000000001*ABS({was}),"{AS_ISSUED}","error")'
            label = f"{name} ({merit.mean})" if name == FOM else f"by the mean {name}" if name in MEANS else name
            shown = [Formula(formula, end) for formula, end in zip(formulas, ends, strict=True)]
            state = Formula(f'IF({changed}>0,"{CHANGED}",{unchanged_state})', AS_ISSUED)
            unit = "units/day" if name in RATES else "times the baseline"
            rows.append([label, target, unit, *shown, *ends, state])
        rows += _verdict_rows(cells, merit, assumptions)
    page.table(MERITS, rows)

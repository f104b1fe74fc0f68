"""The sheet Assumptions: the choices behind every number, some of them values that formulas use."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fomkit.ledger import Ledger
from fomkit.rollup.use import GROUPS
from fomkit.workbook.cells import Value, known
from fomkit.workbook.layout import ASSUMPTIONS, Placed
from fomkit.workbook.page import Page

SCHEMA = "fomkit/workbook/1"
NONE = "none"
USE, WIDENED = "use in a step, ", "widened for use in a step"
CAVEAT = "caveat"
ENDS = ("low", "high")


def kinds_of(group: str) -> list[str]:
    """List the kinds of op of a group."""
    return [kind for kind, name in GROUPS.items() if name == group]


_TEXTS = (
    ("time of a predicted op", "max(flop / peak, byte / bandwidth) / utilisation, and starts · launch cost where "
     "the op's row has starts. The utilisation is an input; its source stands beside it."),
    ("time of a measured op", "an input. It does not move with peak or bandwidth, and its row says so."),
    ("step", "the longest of device, host launch and input pipeline, plus the overheads of a step"),
    ("intervals of ops", "errors of ops of one kind and time source are common, so their ends add; errors of "
     "different kinds and sources are independent, so half-widths add in quadrature, each side on its own"),
    ("intervals of ratios", "errors of the two machines are independent, as log-normals"),
    ("units a day", "86,400 s · runs at once / (run · runs per unit)"),
    ("unknown", "unknown work is the word unknown and left out of sums: times are lower bounds then"),
)  # fmt: skip


@dataclass(frozen=True)
class AssumptionCells:
    """Where the choices stand."""

    placed: Placed
    names: tuple[str, ...]

    def at(self, name: str) -> str:
        """Name the cell of a choice."""
        return self.placed.at("value", self.names.index(name))


def choices(ledger: Ledger) -> Iterator[tuple[str, Value, str]]:
    """Walk over the choices that a reader needs to compute the same: name, value, meaning."""
    yield "schema", SCHEMA, "the layout of this workbook; fomkit review reads it"
    yield "title", ledger.title, "what was asked"
    yield "interval level", ledger.level, "share of intervals that should contain the truth"
    yield "scope", ledger.scope, "what the rates count: one device, one node or the whole system"
    yield "mean", ledger.mean, "how the figure of merit is made of the lines"
    yield "baseline", ledger.baseline or NONE, "the machine to compare with"
    for target in ledger.targets:
        yield "target", target, "a machine to rate"
    yield "threshold", NONE if ledger.threshold is None else ledger.threshold, "the figure of merit to reach"
    for name, ends in ledger.uses.items() if ledger.widened else ():
        for end, ratio in zip(ENDS, ends, strict=True):
            what = "ends of the interval over the sum, from what kernels of a table do in a step"
            yield f"{USE}{name}, {end}", ratio, f"{what}; kinds: {', '.join(kinds_of(name))}"
    for machine in ledger.widened:
        yield (
            WIDENED,
            machine,
            "its times rest on a table of single kernels, so sums are widened for use in a step",
        )
    yield "worst basis", ledger.worst_basis or known(None), "the weakest ground that the figure of merit rests on"


def write_assumptions(page: Page, ledger: Ledger) -> AssumptionCells:
    """Write the choices, then the rules and what each estimate leaves out."""
    page.line("What all numbers rest on. A change of a grey cell is a deviation.")
    page.gap()
    rows: list[list[Value]] = [list(row) for row in choices(ledger)]
    names = tuple(str(row[0]) for row in rows)
    rows += [[name, "rule", text] for name, text in _TEXTS]
    rows += [[CAVEAT, text, "what the rates are not to be read without"] for _, text in ledger.caveats]
    for case in ledger.cases:
        of = f"{case.workload} on {case.machine}"
        rows.append([of, "number formats", case.precision])
        rows += [[of, "left out", term] for term in case.excludes]
    return AssumptionCells(page.table(ASSUMPTIONS, rows), names)

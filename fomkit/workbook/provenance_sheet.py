"""The sheets Provenance, History and Read me: where figures come from, what changed, how to use the workbook."""

from __future__ import annotations

from collections.abc import Iterator

from fomkit.ledger import Ledger
from fomkit.workbook.layout import HISTORY, PROVENANCE
from fomkit.workbook.page import Page
from fomkit.workbook.styles import LEGEND

_PURPOSE = (
    "This workbook says how many units of work a day the machines named in Summary do, and how sure that is. It "
    "computes by itself: change a yellow cell and everything behind it follows.",
    "Please put what you know into the yellow cells of Machines, Workloads and Ops, state the basis (measured, "
    "simulated, modelled, estimated, committed), put 'vendor' as the party and say the source. Send the file back "
    "as .xlsx; it is compared with the one that was sent, cell by cell, and each change is shown with its effect.",
    "Figures stand in the unit beside them, with a decimal point or comma as your program shows it. What is not "
    "known is the word unknown, never 0 and never an empty cell.",
    "What moves nothing here is not yellow; a note in the cell says why. A change there is shown, with no effect.",
    "Conditions (cells on grey: batch, samples, epochs, work of an op, the machine to compare with) are the same "
    "for everybody. Another batch or "
    "precision needs a new workbook, because the sizes of all ops follow from them.",
    "The columns 'as issued' hold Python's values. A row says 'as issued' while nothing behind it was changed, "
    "then 'changed'. 'error' in Checks means that the workbook itself was damaged.",
)
_COVERS = (
    "An interval of {level:.0%} should hold the truth in {level:.0%} of cases: of repeats on the stated machine "
    "with the stated software. It does not cover other software, another batch, precision or problem, nor terms "
    "that Assumptions lists as left out; where such terms are left out, units/day are upper bounds."
)


def _provenance(ledger: Ledger, version: str) -> Iterator[tuple[str, str, str]]:
    yield "made by", "fomkit", version
    for machine in ledger.machines:
        yield "machine", machine.name, f"{machine.title} (party: {machine.party})"
        for note in machine.notes:
            yield "note on the machine", machine.name, note
    for one in ledger.workloads:
        made_with = ", ".join(f"{key} {said}" for key, said in one.made_with)
        yield "workload", one.name, "; ".join(part for part in (one.title, made_with) if part) or "given times"


def write_provenance(page: Page, ledger: Ledger, version: str) -> None:
    """Write where machines and workloads come from; each figure's own source stands beside it."""
    page.line("Each fact and each op has its own source in Machines and Ops; this is what they have in common.")
    page.gap()
    page.table(PROVENANCE, [list(row) for row in _provenance(ledger, version)])


def write_history(page: Page, ledger: Ledger) -> None:
    """Write what was changed in earlier rounds, and this issue last."""
    page.line("What happened to the figures, oldest first.")
    page.gap()
    rounds = [[str(number), f"{name}: {said}"] for number, (name, said) in enumerate(ledger.rounds, start=1)]
    page.table(HISTORY, [*rounds, ["this issue", "written by fomkit; changes in it are found by 'fomkit review'"]])


def write_read_me(page: Page, ledger: Ledger, only: str | None) -> None:
    """Write how to use the workbook and what its intervals cover."""
    page.sheet.column_dimensions["A"].width = 110
    page.line("Read me", "headline")
    page.gap()
    for text in (*_PURPOSE, _COVERS.format(level=ledger.level)):
        page.line(text, "prose")
        page.gap()
    if only is not None:
        page.line(f"This copy is for {only}: it holds no other target.", "prose")
        page.gap()
    page.line("Colours", "title")
    for role, meaning in LEGEND.items():
        page.line(f"{role}: {meaning}", role)

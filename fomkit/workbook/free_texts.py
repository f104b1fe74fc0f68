"""Texts of a ledger that people wrote: they go into its workbook as they are, whatever they say."""

from __future__ import annotations

from collections.abc import Iterator

from fomkit.ledger import Ledger
from fomkit.workbook.machine_facts import fact_rows


def _texts(ledger: Ledger) -> Iterator[tuple[str, str]]:
    yield "title of the study", ledger.title
    for one in ledger.workloads:
        yield "line names", one.name
        yield "what lines are", one.title
        yield "what lines are", ", ".join(f"{key} {said}" for key, said in one.made_with)
        yield "units of work", one.unit.name
        yield "classes of lines", one.category
        for time in one.given.values():
            yield "sources of given times", time.source
    for machine in ledger.machines:
        yield "titles of machines", machine.title
        for note in machine.notes:
            yield "notes on machines", note
        for row in fact_rows(machine):
            yield "names of overheads", row.what if row.name.startswith("overhead") else ""
            yield "sources of facts", row.fact.source if row.fact is not None else ""
    for sort, told in (("deviations", ledger.deviations), ("caveats", ledger.caveats)):
        for _, said in told:
            yield sort, said
    for said in (*ledger.notes, *(note for case in ledger.cases for note in case.deviations)):
        yield "notes", said
    for _, said in ledger.rounds:
        yield "history", said
    for case in ledger.cases:
        yield "number formats", case.precision
        for line in case.ops:
            yield "sources of ops (sheet Ops)", line.evidence


def free_texts(ledger: Ledger) -> dict[str, tuple[str, ...]]:
    """Give the texts that go into a workbook of a ledger, by what they are about, each once.

    Examples
    --------
    >>> free_texts(Ledger("spring offer", "device", (), (), (), ()))
    {'title of the study': ('spring offer',)}
    """
    found: dict[str, dict[str, None]] = {}
    for sort, text in _texts(ledger):
        if text:
            found.setdefault(sort, {})[text] = None
    return {sort: tuple(texts) for sort, texts in found.items()}

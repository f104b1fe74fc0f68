"""Defined names, so that a person or a program finds the headlines without knowing the sheets."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fomkit.ledger import Ledger
from fomkit.workbook.machines_sheet import MachineCells
from fomkit.workbook.merits import FOM
from fomkit.workbook.summary_sheet import SummaryCells


def name_of(*words: str) -> str:
    """Make a defined name of words: other characters become ``_``.

    A word alone may look like the address of a cell, as TC1 or V100 do; callers put another word before it.

    Examples
    --------
    >>> name_of("unit_per_day", "gpt-2 small")
    'unit_per_day_gpt_2_small'
    """
    return "_".join(re.sub(r"[^A-Za-z0-9_]", "_", word) for word in words)[:250]


def defined_names(ledger: Ledger, machines: MachineCells, summary: SummaryCells) -> Iterator[tuple[str, str]]:
    """Give name and cell of each headline; those of the first target go by the short name."""
    for place, target in enumerate(ledger.targets):
        end = () if place == 0 else (target,)
        if target in summary.merits.targets:
            yield name_of("fom", *end), summary.merits.at(target, FOM)
        for word, fact in (("target_nodes", "nodes"), ("target_bandwidth", "memory bandwidth")):
            index = machines.find(target, fact)
            if index is not None:
                yield name_of(word, *end), machines.placed.at("value", index)
        for index, (workload, machine) in enumerate(summary.answer_keys):
            if machine == target:
                yield name_of("unit_per_day", workload, *end), summary.answers.at("rate", index)


def unique_names(pairs: Iterator[tuple[str, str]]) -> dict[str, str]:
    """Give equal names numbers; spreadsheet programs ignore the case of letters."""
    names: dict[str, str] = {}
    for name, cell in pairs:
        taken = {known.lower() for known in names}
        chosen, number = name, 2
        while chosen.lower() in taken:
            chosen, number = f"{name}_{number}", number + 1
        names[chosen] = cell
    return names

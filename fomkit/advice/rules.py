"""The rules of the advisor, all of them, in the order in which they are asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from fomkit.advice.alignment import misaligned
from fomkit.advice.batch import larger_batch
from fomkit.advice.case import Case
from fomkit.advice.finding import Finding
from fomkit.advice.floors import expensive_ops, low_use
from fomkit.advice.input_pipeline import input_bound
from fomkit.advice.launches import launch_bound
from fomkit.advice.memory_room import memory_full
from fomkit.advice.precision import faster_engine
from fomkit.advice.unknown_work import unpriced_ops
from fomkit.advice.update import unfused_update


class Rule(NamedTuple):
    """A question that is asked of every study, and the function that answers it."""

    name: str
    question: str
    find: Callable[[Case], list[Finding]]


RULES = (
    Rule("faster engine", "Has the machine a faster engine for another number format?", faster_engine),
    Rule("misaligned", "Can the matrix engine load the rows of the products whole?", misaligned),
    Rule("launch bound", "Does the step wait for the host to start kernels?", launch_bound),
    Rule("input bound", "Does the step wait for its data?", input_bound),
    Rule("larger batch", "Would a larger batch that fits take less time a sample?", larger_batch),
    Rule("update", "Would a fused update save time?", unfused_update),
    Rule("expensive ops", "Does one op take much of the step?", expensive_ops),
    Rule("low use", "Which ops stay far above the least time?", low_use),
    Rule("memory full", "Does the step leave room in the device's memory?", memory_full),
    Rule("unknown work", "Is there work that no figure counts?", unpriced_ops),
)

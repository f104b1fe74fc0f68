"""A hash of what a line of a suite runs, so that a frozen version is not changed by its model profile."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict

from fomkit.suite import Conditions
from fomkit.tables import format_table
from fomkit.workload import ModelProfile


def work_hash(model: ModelProfile, conditions: Conditions) -> str:
    """Hash a model's ops with the conditions, data and unit that a line runs them under.

    Titles, notes and the layers do not count.
    """
    facts = {
        "conditions": conditions.stated(),
        "data": asdict(model.data),
        "run": asdict(model.run),
        "unit": asdict(model.unit),
    }
    tables = [
        format_table(model.ops, "OPS"),
        format_table(model.parts, "OPS", ("of",)) if len(model.parts) else "",
    ]
    text = "\x1e".join([json.dumps(facts, sort_keys=True), *tables])
    return hashlib.sha256(text.encode()).hexdigest()

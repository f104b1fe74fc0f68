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

    Titles, notes, the layers and the lines of code do not count.
    """
    facts = {
        "conditions": conditions.stated(),
        "data": asdict(model.data),
        "run": asdict(model.run),
        "unit": asdict(model.unit),
    }
    ops, parts = (table.drop(columns="code_line", errors="ignore") for table in (model.ops, model.parts))
    tables = [format_table(ops, "OPS"), format_table(parts, "OPS", ("of",)) if len(parts) else ""]
    text = "\x1e".join([json.dumps(facts, sort_keys=True), *tables])
    return hashlib.sha256(text.encode()).hexdigest()

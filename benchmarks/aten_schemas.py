"""Write `aten_schemas.csv`: facts on PyTorch's ops that a trace does not contain.

Run ``python benchmarks/aten_schemas.py`` after the table of rules changed; a test compares the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from fomkit.frontends.torch.calls import facts_of

TABLE = Path(__file__).parents[1] / "fomkit" / "frontends" / "lowering" / "aten_schemas.csv"


def _argument(entry: Any) -> str:
    kind = str(entry.type)
    if "Tensor" not in kind:
        return str(entry.name)
    return f"{entry.name}:{'list' if 'List' in kind else 'tensor'}"


def _is_out(op: Any) -> bool:
    return any(entry.is_out for entry in op._schema.arguments)


def _overloads() -> Iterator[tuple[str, Any]]:
    for full in sorted(torch._C._dispatch_get_all_op_names()):
        library, _, rest = full.partition("::")
        name, _, overload = rest.partition(".")
        if library != "aten":
            continue
        op = getattr(getattr(torch.ops.aten, name, None), overload or "default", None)
        if op is not None and not _is_out(op):
            yield name, op


def schema_rows() -> list[str]:
    """Return the lines of the table: priced overloads with their arguments, and the states of other names."""
    rows: dict[str, None] = {}
    for name, op in _overloads():
        facts = facts_of(op)
        if facts.state == "priced":
            arguments = " ".join(_argument(entry) for entry in op._schema.arguments)
            rows[f"{name},priced,{arguments},{' '.join(facts.written)}"] = None
        elif facts.state != "framework":
            rows[f"{name},{facts.state},,"] = None
    return ["op,state,arguments,written", *rows]


if __name__ == "__main__":
    TABLE.write_text("\n".join(schema_rows()) + "\n", encoding="utf-8")

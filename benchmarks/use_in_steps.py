"""Print the error that use in a step adds to single kernels, in the form of ``fomkit/plan/coverage.py``.

``python benchmarks/use_in_steps.py`` compares the calls inside the models of ``validation/neusight`` with the
predictions of their kernels from each machine's own table, for all counted machines together. `fomkit validate`
fits the same for each machine from the others only, so that no machine's intervals depend on its own labels.

``python benchmarks/use_in_steps.py OLD NEW`` compares two tables of aiconfigurator of one board, made by two
versions of a library: it prints ln of the ratio of sums over the long kernels that both have, by kind and number
format. Of several kernels for one op it uses the fastest.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd

from fomkit.ops.kinds import KINDS
from fomkit.plan.coverage import SAME_SOFTWARE
from fomkit.readers.tables.aiconfigurator import read_aiconfigurator
from fomkit.validation.graphs import LabelFolder, shipped_labels
from fomkit.validation.neusight import fit_uses, known_calls, known_wholes

LONG_S = 3e-4


def print_versions(old: Path, new: Path) -> None:
    before, after = (read_aiconfigurator(path).timings for path in (old, new))
    for (kind, dtype), rows in before.groupby(["kind", "dtype"]):
        other = after[(after["kind"] == kind) & (after["dtype"] == dtype)]
        columns = ["op", "impl", *KINDS[str(kind)].columns]
        one, two = (table.groupby(columns, dropna=False)["time_s"].min() for table in (rows, other))
        both = pd.DataFrame({"old": one, "new": two}).dropna()
        both = both[both["old"] >= LONG_S]
        if len(both):
            print(f"{kind} {dtype}: {len(both)} kernels, {np.log(both['new'].sum() / both['old'].sum()):+.3f}")


def main() -> None:
    if len(sys.argv) > 1:
        print_versions(*map(Path, sys.argv[1:]))
        return
    folder = LabelFolder(shipped_labels())
    machines = {device: folder.own_machine(device) for device in folder.devices}
    calls, wholes = known_calls(folder, machines), known_wholes(folder, machines)
    print(*(f"{device}: {len(rows)} calls" for device, rows in calls.items()), sep="; ")
    print(*(f"{device}: {len(own)} whole passes" for device, own in wholes.items()), sep="; ")
    for group, use in fit_uses(calls, wholes).items():
        now, stated = (
            ", ".join(f"Spread({one.faster:.3f}, {one.slower:.3f})" for one in found)
            for found in (use, SAME_SOFTWARE[group])
        )
        print(f'    "{group}": Use({now}),  # stated: {stated}')


if __name__ == "__main__":
    main()

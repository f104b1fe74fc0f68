"""Print the error that use in a step adds to single kernels, in the form of ``fomkit/plan/coverage.py``.

``python benchmarks/use_in_steps.py`` compares the calls inside the models of ``validation/neusight`` with the
predictions of their kernels from each machine's own table, for all counted machines together. `fomkit validate`
fits the same for each machine from the others only, so that no machine's intervals depend on its own labels.
"""

from __future__ import annotations

from fomkit.plan.coverage import USES
from fomkit.validation.graphs import LabelFolder, shipped_labels
from fomkit.validation.neusight import fit_uses, known_calls, known_wholes


def main() -> None:
    folder = LabelFolder(shipped_labels())
    machines = {device: folder.own_machine(device) for device in folder.devices}
    calls, wholes = known_calls(folder, machines), known_wholes(folder, machines)
    print(*(f"{device}: {len(rows)} calls" for device, rows in calls.items()), sep="; ")
    print(*(f"{device}: {len(own)} whole passes" for device, own in wholes.items()), sep="; ")
    for group, use in fit_uses(calls, wholes).items():
        now, stated = (
            ", ".join(f"Spread({one.faster:.3f}, {one.slower:.3f})" for one in found)
            for found in (use, USES[group])
        )
        print(f'    "{group}": Use({now}),  # stated: {stated}')


if __name__ == "__main__":
    main()

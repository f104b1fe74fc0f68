"""What a user may choose for a study, checked against the model and the machines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from fomkit.dtypes import Precision
from fomkit.errors import FomkitError, nearest_names
from fomkit.hardware import Machine, Scope
from fomkit.predict.kept import kept
from fomkit.resize import sizes_used
from fomkit.spans import DEFAULT_LEVEL
from fomkit.workload import LastBatch, ModelProfile


@dataclass(frozen=True)
class Options:
    """What the user chose for a study, besides the model and the machine.

    Attributes
    ----------
    batch : int or None
        Samples in one step; None keeps the profile's.
    interval : float
        Level of all intervals.
    sizes : mapping
        Other named sizes of the profile, for example ``{"seq": 512}``.
    precision : str or None
        fp32, tf32, mixed, bf16 or fp8; None is what the framework would do on the machine.
    scope : str or None
        device, node or system; None takes the narrowest that all machines state.
    last_batch : str or None
        drop or keep the partial last batch; None keeps the profile's choice.
    allow_uncovered : bool
        Leave work without a time out instead of refusing; times are then lower bounds.
    """

    batch: int | None = None
    interval: float = DEFAULT_LEVEL
    scope: Scope | None = None
    last_batch: LastBatch | None = None
    allow_uncovered: bool = False
    sizes: Mapping[str, int] = field(default_factory=dict)
    precision: Precision | None = None

    @property
    def wanted_sizes(self) -> dict[str, int]:
        """All named sizes that were chosen, the batch among them.

        Raises
        ------
        FomkitError
            When the batch is given twice and differs.
        """
        sizes = dict(self.sizes)
        if self.batch is not None and sizes.setdefault("batch", self.batch) != self.batch:
            raise FomkitError("batch", f"is given as {self.batch} and as {sizes['batch']}. Give it once.")
        return sizes


def choose_sizes(model: ModelProfile, wanted: Mapping[str, int]) -> dict[str, int]:
    """Give the named sizes of a study, refusing those that the profile cannot be resized to.

    Raises
    ------
    FomkitError
        When a size is unknown, or the op table was traced at a fixed one other than that asked for.
    """
    sizes = dict(model.sizes)
    for name, value in wanted.items():
        if value == sizes.get(name):
            continue
        asked = f"--batch {value}" if name == "batch" else f"--set {name}={value}"
        if value < 1:
            raise FomkitError(model.name, f"{asked} makes no step. Give 1 or more.")
        if name != "batch" and name not in sizes:
            raise FomkitError(model.name, f"{asked}: {name!r} is not a size of it. {nearest_names(name, sizes)}")
        if name not in kept(model.ops, None, "sizes", partial(sizes_used, model.ops)):
            known = f"{name} {sizes.get(name, 'unknown')}"
            raise FomkitError(
                model.name,
                f"its op table is fixed at {known}, so {value} needs a new trace. "
                f"Run 'fomkit profile' on its file with {asked}.",
            )
        sizes[name] = value
    return sizes


def choose_scope(machines: list[Machine], wanted: Scope | None) -> Scope:
    """Take the narrowest scope that all machines state, or check the one wanted.

    Raises
    ------
    FomkitError
        When a machine does not state the scope.
    """
    for machine in machines:
        if wanted is not None and wanted not in machine.scopes:
            needed = "node.devices" if machine.node_devices is None else "system.nodes"
            raise FomkitError(
                machine.name,
                f"its profile does not state the scope {wanted!r}. Add {needed}, or choose another scope.",
            )
    return wanted or machines[0].scopes[0]

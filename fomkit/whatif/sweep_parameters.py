"""What a sweep may vary: sizes of the model, facts of the machine, nodes and links, price and power."""

from __future__ import annotations

from collections.abc import Iterable

from fomkit.errors import FomkitError, nearest_names
from fomkit.hardware import Machine
from fomkit.study.changes import PEAK, parameters
from fomkit.whatif.sweep_axes import Kind
from fomkit.workload import ModelProfile

NODES, LINK_RATE, LINK_ALPHA = "nodes", "link_byte_per_s", "link_alpha_s"
OF_LAYOUT = (NODES, LINK_RATE, LINK_ALPHA)
"""What leads through `fomkit.study.scaling`: nodes of a job, rate and start-up time of the link between them."""
PRICE, POWER = "price_per_h", "power_w"
OF_DEVICE = (PRICE, POWER)
"""What changes no time: a device's price for an hour, in any currency, and the power it takes on average [W]."""

_DIMENSIONS = {
    "byte_per_s": "byte_per_s", "launch_s": "time_s", LINK_RATE: "byte_per_s", LINK_ALPHA: "time_s",
    POWER: "power_w",
}  # fmt: skip


def kinds_of(model: ModelProfile, machine: Machine) -> dict[str, Kind]:
    """Give every parameter of a model on a machine with what its values are.

    Examples
    --------
    >>> from fomkit.profiles import load_machine, load_model
    >>> list(kinds_of(load_model("vgg16"), load_machine("titan")))[:3]
    ['batch', 'byte_per_s', 'launch_s']
    """
    kinds = {name: Kind(whole=True) for name in sorted({*model.sizes, "batch"})}
    for name in parameters(machine):
        kinds.setdefault(name, Kind(PEAK if name.startswith(PEAK) else _DIMENSIONS[name]))
    for name in (*OF_LAYOUT, *OF_DEVICE):
        kinds.setdefault(name, Kind(_DIMENSIONS.get(name, ""), whole=name == NODES))
    return kinds


def check_names(names: Iterable[str], kinds: Iterable[str], where: str) -> None:
    """Raise for a name that is no parameter.

    Raises
    ------
    FomkitError
        With the names near to it.
    """
    known = list(kinds)
    for name in names:
        if name not in known:
            raise FomkitError(where, f"{name!r} is no parameter of it. {nearest_names(name, known)}")

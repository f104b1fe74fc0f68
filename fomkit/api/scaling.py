"""Scaling as a person gets it in a notebook: a table of its points, and the text that the command prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fomkit.dtypes import Precision
from fomkit.errors import FomkitError
from fomkit.hardware import Link, Machine
from fomkit.profiles import load_machine, load_model
from fomkit.report.scaling import format_scaling
from fomkit.spans import DEFAULT_LEVEL
from fomkit.study.asked import as_name, check_options
from fomkit.study.layout_file import spread_of
from fomkit.study.options import Options
from fomkit.study.scaling import MODES, Asked, Mode, scale, with_links
from fomkit.study.scaling_view import scaling_content
from fomkit.study.stack import parse_once, times_of, with_once
from fomkit.study.system_rate import parse_service
from fomkit.workload import ModelProfile

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class ScalingResult:
    """The curves of one model on one machine.

    Attributes
    ----------
    model, target : str
    content : mapping
        Everything, in the form of ``fomkit/scaling/1``.
    """

    model: str
    target: str
    content: Mapping[str, Any] = field(repr=False)

    def table(self) -> pd.DataFrame:
        """Give one row for each number of nodes and mode.

        Times [s], bytes and shares as the command's JSON has them; of a figure with an interval three columns,
        such as ``step_s_value``, ``step_s_low`` and ``step_s_high``.
        """
        import pandas as pd

        return pd.json_normalize(list(self.content["points"]), sep="_")

    def bandwidth(self) -> pd.DataFrame:
        """Give the bandwidth that a gain needs [byte/s] by number of replicas, with its ends.

        Empty where it is not given: without a weak curve, with one replica, with shared experts. An end that is
        missing says that no rate is enough there.
        """
        import pandas as pd

        found = self.content["least_bandwidth"]
        return pd.json_normalize(found["whole"] if found else [], sep="_")

    def summary(self) -> str:
        """Write it as the text that the command line prints."""
        return format_scaling(self.content)


def _whole(numbers: Sequence[int]) -> list[int]:
    """Take numpy's whole numbers too; what is none stays, to be refused."""
    return [one.__index__() if hasattr(one, "__index__") and not isinstance(one, bool) else one for one in numbers]


def _modes(mode: str) -> list[Mode]:
    modes = [one for one in MODES if mode in (one, "both")]
    if not modes:
        raise FomkitError("mode", f"is {mode!r}. Give strong, weak or both.")
    return modes


def scaling(
    model: str | Path | ModelProfile, target: str | Path | Machine, *, nodes: Sequence[int] = (1, 2, 4, 8),
    layout: str | Path = "", links: Sequence[str | Link] = (), node_devices: int | None = None,
    mode: Literal["strong", "weak", "both"] = "both", batch: int | None = None, whole_batch: int | None = None,
    sizes: Mapping[str, int] | None = None, precision: Precision | None = None, interval: float = DEFAULT_LEVEL,
    once: Sequence[str] = (), slots: int | None = None, checkpoint: str | None = None, restart: str | None = None,
    device_mtbf: str | None = None, checkpoint_every: str | None = None,
) -> ScalingResult:  # fmt: skip
    """Scale a training over nodes: steps, efficiency, what limits it, and the bandwidth that a gain needs.

    Parameters
    ----------
    model, target : name, path or profile
    nodes : sequence of int
    layout : str or path
        Words such as ``"tensor=8,sequence"``, or a layout's file (docs/parallel.md); default: copies of the model.
    links : sequence of str or Link
        Such as ``"system, 5 us, 25 GB/s, each"``; they stand before the profile's.
    node_devices, slots : int, optional
        Devices in a node (default: the profile's); jobs that the queue lets run side by side.
    mode : str
        strong: one batch shared out; weak: one for each replica; both.
    batch, whole_batch : int, optional
        Samples of a replica, and of a strong step (default: a batch for each replica of the fewest nodes).
    sizes, precision, interval
        As of `fomkit.estimate`.
    once : sequence of str
        What is paid once a job: ``"scheduler=15.5 %"`` of it as it is, or ``"compile=40 s"``.
    checkpoint, restart, device_mtbf, checkpoint_every : str, optional
        Times such as ``"60 s"``: to write a checkpoint, to start again, between failures of one device, and
        between checkpoints (default: Daly's best).

    Returns
    -------
    ScalingResult
        ``table()`` has a row for each number of nodes, ``bandwidth()`` what a gain needs, ``summary()`` the text.

    Raises
    ------
    FomkitError
        When a profile is unknown, a layout does not divide, or a link that is needed is not stated.

    Examples
    --------
    >>> scaling("p1b3", "v100", nodes=[1], node_devices=1).table()["speedup_value"].tolist()
    [1.0, 1.0]
    """
    stated = {"node_devices": node_devices, "whole_batch": whole_batch}
    check_options(sizes={name: size for name, size in stated.items() if size is not None})
    check_options(batch=batch, sizes=sizes, interval=interval)
    profile = model if isinstance(model, ModelProfile) else load_model(as_name(model, "model"))
    machine = target if isinstance(target, Machine) else load_machine(as_name(target, "target"))
    spread, given = spread_of([str(layout)], links)
    options = Options(batch=batch, interval=interval, sizes=sizes or {}, precision=precision)
    service = parse_service(slots, checkpoint=checkpoint, restart=restart, device_mtbf=device_mtbf,
                            checkpoint_every=checkpoint_every)  # fmt: skip
    asked = Asked(_whole(nodes), spread, _modes(mode), whole_batch, options)
    paid = parse_once(once)
    found = scale(profile, with_once(with_links(machine, given, node_devices), times_of(paid)), asked)
    return ScalingResult(profile.name, machine.name, scaling_content(found, service, paid))

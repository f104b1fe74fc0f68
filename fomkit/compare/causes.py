"""What a measured time waited for, by the profile's own bounds and by how it changes from machine to machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from fomkit.compare.cells import Cell, ratio_to
from fomkit.study import Estimate
from fomkit.study.explained import COMPARABLE, ENOUGH

Claim = Literal["absolute", "ratio", "start-up bound", "host bound", "unexplained"]
"""What a device model may claim of a cell: its time, only its ratio to another machine, or neither and why."""

STEP_HOST_S = 10e-3
"""Most that a framework's training loop takes for one step besides its kernels [s]."""
FEW_STEPS, START_UP_S = 100, 60.0
"""Up to so many steps an epoch does not tell its fixed cost, of up to so long [s], from its steps."""
SLOWER = 0.95
"""A machine is measured slower than another below this ratio; closer ones are taken for equal."""


def slower_where_faster(cells: Sequence[Cell]) -> tuple[str, str] | None:
    """Name a machine that is measured slower than another though its device is surely faster, and the other."""
    for cell in cells:
        for other in cells:
            measured, projected = ratio_to(cell, other)
            if projected is not None and projected.low > 1 and measured < SLOWER:
                return cell.machine, other.machine
    return None


def _rest_s(cell: Cell) -> float | None:
    """Give the measured epoch [s] less the projected one."""
    if cell.projected is None or cell.quantity != "epoch_s":
        return None
    return cell.measured.value - cell.projected.value


def _cost_of_steps(cell: Cell, one: Estimate) -> str:
    """Tell the time beside the device's as a fixed cost of each step; "" where it is too long for one."""
    steps, rest = one.run_time.steps_per_epoch, _rest_s(cell)
    if rest is None or not steps or rest / steps > STEP_HOST_S:
        return ""
    return f"{rest / steps * 1e3:.2g} ms a step are not the device's"


def _cost_of_epoch(cell: Cell, one: Estimate) -> str:
    """Tell it as a fixed cost of each epoch; "" where the epoch has many steps or the rest is too long."""
    steps, rest = one.run_time.steps_per_epoch, _rest_s(cell)
    if rest is None or not steps or steps > FEW_STEPS or rest > START_UP_S:
        return ""
    return f"{rest:.2g} s an epoch of {steps} steps are not the device's"


def _little_explained(cell: Cell, one: Estimate, against: tuple[str, str] | None) -> tuple[Claim, str]:
    device = f"the device explains {cell.explained:.1%}"
    if fixed := _cost_of_steps(cell, one) or _cost_of_epoch(cell, one):
        return "start-up bound", f"{device}; {fixed}"
    if against is not None:
        return "host bound", f"{device}; {against[0]} is slower than {against[1]}, though its device is faster"
    return "unexplained", f"{device}, and nothing here says what the rest is"


def cause_of(cell: Cell, one: Estimate, same_model: Sequence[Cell]) -> tuple[Claim, str]:
    """Say what a measured time waited for, and so what may be claimed of it.

    Parameters
    ----------
    cell : Cell
    one : Estimate
        The cell's.
    same_model : sequence of Cell
        All measured cells of its model under the same conditions.

    Returns
    -------
    claim, cause : str
    """
    bound, share = one.step_time.bound, cell.explained
    if bound in ("launch", "input"):
        return "host bound", f"the step waits for the host ({bound}), not for the device"
    against = slower_where_faster(same_model)
    if share is not None and share < COMPARABLE:
        return _little_explained(cell, one, against)
    if share is None and against is not None:
        return "host bound", f"{against[0]} is slower than {against[1]}, though its device is faster"
    if share is None:
        return "ratio", f"the samples of an epoch are unknown; bound by {bound}"
    if share < ENOUGH and not cell.holds and (fixed := _cost_of_steps(cell, one)):
        return "start-up bound", f"the device explains {share:.1%}; {fixed}"
    if cell.holds:
        return "ratio", f"the figure holds {cell.holds}; the device explains {share:.0%}, bound by {bound}"
    short = "" if share >= ENOUGH else f"; a verdict of fom needs {ENOUGH:.0%}"
    return "absolute", f"the device explains {share:.0%}, bound by {bound}{short}"

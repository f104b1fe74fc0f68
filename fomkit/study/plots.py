"""``estimate.plot``: the figures of the report, one at a time, for notebooks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from fomkit.errors import FomkitError

if TYPE_CHECKING:
    import altair as alt

    from fomkit.study.estimate import Estimate

Part = Literal["kind", "time_source", "bound"]
PARTS: dict[str, str] = {"kind": "kind of op", "time_source": "time is", "bound": "bound by"}


@dataclass(frozen=True)
class Plots:
    """Figures of one estimate, as Altair charts; the extra ``report`` brings Altair.

    Examples
    --------
    >>> import fomkit
    >>> chart = fomkit.estimate("alexnet", "v100").plot.roofline()
    >>> chart.to_dict()["width"]
    640
    """

    estimate: Estimate

    def roofline(self) -> alt.LayerChart:
        """Draw the rate of every op over its arithmetic intensity, under the machine's rates.

        Raises
        ------
        FomkitError
            When no op with arithmetic has a time, or the machine's rates are unknown.
        """
        from fomkit.report import plots
        from fomkit.study.op_frame import op_frame, roof_frame

        ops = op_frame(self.estimate)
        shown, roofs = ops[(ops["intensity"] > 0) & (ops["flop_per_s"] > 0)], roof_frame(self.estimate, ops)
        if shown.empty or roofs.empty:
            raise FomkitError(
                f"{self.estimate.model.name} on {self.estimate.machine.name}",
                "no op has arithmetic, traffic and a time under known rates, so there is no roofline to draw.",
            )
        return plots.roofline(shown, roofs)

    def pareto(self, top: int = 15) -> alt.LayerChart:
        """Draw the ``top`` longest ops, with the share of the step that they reach together."""
        from fomkit.report import plots
        from fomkit.study.figure_tables import pareto_table
        from fomkit.study.op_frame import op_frame

        return plots.pareto(pareto_table(op_frame(self.estimate), top))

    def composition(self, by: Part = "kind") -> alt.Chart:
        """Draw each pass in parts: by kind of op, by source of the time, or by what bounds the op.

        Raises
        ------
        FomkitError
            When ``by`` is none of these.
        """
        from fomkit.report import plots
        from fomkit.study.figure_tables import composition_table

        if by not in PARTS:
            raise FomkitError("composition", f"by is {by!r}. Give one of: {', '.join(PARTS)}.")
        return plots.composition(composition_table(self.estimate, by), PARTS[by])

    def memory(self) -> alt.LayerChart:
        """Draw the memory of each role while the step runs, beside what the device holds.

        Raises
        ------
        FomkitError
            When nobody recorded the order of the ops.
        """
        from fomkit.report import plots
        from fomkit.study.figure_tables import memory_table

        capacity = self.estimate.machine.device.capacity_byte
        return plots.memory(memory_table(self.estimate), None if capacity is None else capacity.value)

"""What a step keeps in memory, and when."""

from __future__ import annotations

from fomkit.dossier.drawing import figure, frame_table
from fomkit.errors import FomkitError
from fomkit.quantities import format_quantity
from fomkit.report.book import Listing, Section
from fomkit.study.estimate import Estimate
from fomkit.study.figure_tables import memory_table
from fomkit.study.memory_view import ASSUMED, EXCLUDED
from fomkit.study.plots import Plots

TITLE = "Memory over the step"


def _verdict(one: Estimate, peak_byte: float) -> str:
    holds = one.machine.device.capacity_byte
    peak = format_quantity(peak_byte, "byte", 3)
    has = "" if holds is None else format_quantity(holds.value, "byte", 3)
    if holds is None:
        return f"At most {peak} at once. How much the device of {one.machine.name} holds nobody stated."
    said = "fits into" if peak_byte <= holds.value else "does not fit into"
    return (
        f"At most {peak} at once, which {said} the {has} of {one.machine.name} "
        f"({peak_byte / holds.value:.0%}), before what is excluded below."
    )


def memory(one: Estimate, key: str) -> Section:
    """Tell what stands in memory from op to op, and whether the device holds it."""
    try:
        live = memory_table(one)
        chart = Plots(one).memory()
    except FomkitError as error:
        return Section(f"{key}-memory", TITLE, absent=f"Unknown: {error.what}")
    said = _verdict(one, float(live["all_byte"].max()))
    peak = live[live["all_byte"] == live["all_byte"].max()]
    at_peak = peak.drop_duplicates("role")[["role", "byte"]]
    shown = figure(
        f"{key}-live", "Memory by what it is for, op by op", chart, said,
        (f"{said} It is fullest at {peak['op'].iloc[0] or 'an op without a row'} ({peak['pass_name'].iloc[0]}).",),
        frame_table("Memory at the peak", at_peak, {"role": "", "byte": "byte"}),
    )  # fmt: skip
    lists = (Listing("Assumed", ASSUMED), Listing("Not counted", EXCLUDED))
    return Section(f"{key}-memory", TITLE, figures=(shown,), lists=lists)

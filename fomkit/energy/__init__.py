"""What ops, steps and runs take in energy, by measured power or by modelled work, with scope, basis and interval.

`methods` chooses what a machine's figures allow, `work` prices flop and bytes, `spent` adds up over a time;
`samples` and `counters` make energy of what instruments read.
"""

from fomkit.energy.carbon import carbon_kg, energy_at_wall
from fomkit.energy.counters import counted
from fomkit.energy.methods import Method, Workload, choose_method
from fomkit.energy.ops import add_energy
from fomkit.energy.samples import Gap, Integral, Sample, integrate
from fomkit.energy.spent import Spent, at_most, spend
from fomkit.energy.work import Figures, Work, add_work, figures_for, price_work

__all__ = [
    "Figures",
    "Gap",
    "Integral",
    "Method",
    "Sample",
    "Spent",
    "Work",
    "Workload",
    "add_energy",
    "add_work",
    "at_most",
    "carbon_kg",
    "choose_method",
    "counted",
    "energy_at_wall",
    "figures_for",
    "integrate",
    "price_work",
    "spend",
]

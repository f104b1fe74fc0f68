"""Energy at the wall and the carbon dioxide of making it: narrower energy is taken for neither."""

from __future__ import annotations

from fomkit.hardware import EnergyScope, Fact
from fomkit.spans import Span, multiply_independent


def energy_at_wall(energy_j: Span, scope: EnergyScope, to_wall: Fact | None) -> Span | None:
    """Give energy [J] as a wall meter would count it.

    Parameters
    ----------
    energy_j : Span
    scope : str
        What it counts: chip, node or wall.
    to_wall : Fact or None
        Energy at the wall over that of a narrower scope, as somebody states it.

    Returns
    -------
    Span or None
        None where the scope is narrower and nobody states a factor.

    Examples
    --------
    >>> energy_at_wall(Span.exact(10.0), "chip", None) is None
    True
    """
    if scope == "wall":
        return energy_j
    return None if to_wall is None else multiply_independent(to_wall.span(energy_j.level), energy_j)


def carbon_kg(wall_j: Span, kg_per_j: Fact, pue: Fact | None) -> Span:
    """Give the carbon dioxide equivalent [kg] of energy at the wall.

    Parameters
    ----------
    wall_j : Span
        Energy at the wall of the machine [J].
    kg_per_j : Fact
        Of the grid [kg/J].
    pue : Fact or None
        Energy of the whole building over that of its machines; None counts the machine alone.

    Examples
    --------
    10 kWh at 0.4 kg/kWh in a building of PUE 1.5:

    >>> grid, pue = (Fact(one, one, one, "published", "example") for one in (0.4 / 3.6e6, 1.5))
    >>> round(carbon_kg(Span.exact(3.6e7), grid, pue).value, 9)
    6.0
    """
    kg = multiply_independent(kg_per_j.span(wall_j.level), wall_j)
    return kg if pue is None else multiply_independent(pue.span(wall_j.level), kg)

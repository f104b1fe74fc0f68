"""Energy at the wall and carbon of an estimate, with what is declared of them, or what is missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fomkit.energy import carbon_kg, energy_at_wall
from fomkit.errors import FomkitError
from fomkit.hardware import EnergyScope, Fact
from fomkit.quantities import KWH_J
from fomkit.spans import Span
from fomkit.study.content import fact_content, span_content

WITHOUT_PUE = "without what the building adds (cooling, supply): no --pue is declared"


@dataclass(frozen=True)
class Grid:
    """What a user declares for carbon; None where nobody does.

    Attributes
    ----------
    kg_per_j : Fact or None
        Carbon dioxide equivalent of the grid's energy [kg/J].
    to_wall : Fact or None
        Energy at the wall over that of the narrower scope that the machine's figures have.
    pue : Fact or None
        Energy of the building over that of its machines.
    """

    kg_per_j: Fact | None = None
    to_wall: Fact | None = None
    pue: Fact | None = None


def check_grid(grid: Grid) -> None:
    """Raise when a factor is declared that nothing is made of.

    Raises
    ------
    FomkitError
        Naming what it needs.
    """
    for name, fact in (("--pue", grid.pue), ("--to-wall", grid.to_wall)):
        if fact is not None and grid.kg_per_j is None:
            raise FomkitError(
                name, "is for carbon. Add --carbon, for example --carbon '0.38 kg/kWh, grid operator 2024'."
            )


def footprint(energy_j: Span | None, scope: EnergyScope | None, grid: Grid) -> tuple[Span | None, Span | None]:
    """Give the energy at the wall [J] and its carbon [kg CO2e]; None where one of them is not known.

    Raises
    ------
    FomkitError
        When a factor to the wall is declared for energy that is measured there.
    """
    if scope == "wall" and grid.to_wall is not None:
        raise FomkitError("--to-wall", "is declared, and the machine's energy is that at the wall. Leave it out.")
    wall = None if energy_j is None or scope is None else energy_at_wall(energy_j, scope, grid.to_wall)
    return wall, None if wall is None or grid.kg_per_j is None else carbon_kg(wall, grid.kg_per_j, grid.pue)


def lacks(scope: EnergyScope | None, missing: Iterable[str], grid: Grid) -> list[str]:
    """Say what keeps energy from being that at the wall."""
    lacking = list(missing)
    if scope not in (None, "wall") and grid.to_wall is None:
        lacking.append(
            f"the energy is of scope {scope}, less than the wall gives. Declare --to-wall FACTOR, SOURCE"
        )
    return lacking


def grid_content(grid: Grid) -> dict[str, Any]:
    """Put what is declared for carbon in the form of the JSON output."""
    return {
        "kg_per_kwh": fact_content(grid.kg_per_j, KWH_J),
        "to_wall": fact_content(grid.to_wall),
        "pue": fact_content(grid.pue),
        "notes": [] if grid.pue is not None else [WITHOUT_PUE],
    }


def carbon_content(
    energies: Mapping[str, Span | None], scope: EnergyScope | None, missing: Iterable[str], grid: Grid
) -> dict[str, Any] | None:
    """Put carbon in the form of the block ``carbon``; None where nobody asks for it.

    Parameters
    ----------
    energies : mapping
        Energy [J], by what takes it: run, unit.
    scope : str or None
        What the energies count; None where there is none.
    missing : iterable of str
        Why there is none.
    grid : Grid
    """
    if grid.kg_per_j is None:
        return None
    both = {name: footprint(energy, scope, grid) for name, energy in energies.items()}
    return {
        "wall_j": {name: span_content(wall) for name, (wall, _) in both.items()},
        "kg": {name: span_content(kg) for name, (_, kg) in both.items()},
        "from_scope": scope,
        "missing": lacks(scope, missing, grid),
        **grid_content(grid),
    }

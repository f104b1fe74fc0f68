"""The means of `fomkit.fom.means` as formulas of columns of rates and weights."""

from __future__ import annotations

MEANS = ("ratio_of_harmonic_means", "weighted_harmonic", "harmonic", "geometric", "arithmetic")


def mean_formula(name: str, new: str, old: str, weight: str) -> str:
    """Write a mean of how many times faster one machine is.

    Parameters
    ----------
    name : str
        One of `MEANS`.
    new, old, weight : str
        Blocks of cells: rates of the target and of the baseline, weights of the lines.

    Examples
    --------
    >>> mean_formula("harmonic", "B1:B3", "A1:A3", "C1:C3")
    '(ROWS(B1:B3)/SUMPRODUCT(A1:A3/B1:B3))'
    """
    return {
        "ratio_of_harmonic_means": f"(SUMPRODUCT(1/{old})/SUMPRODUCT(1/{new}))",
        "weighted_harmonic": f"(SUMPRODUCT({weight}/{old})/SUMPRODUCT({weight}/{new}))",
        "harmonic": f"(ROWS({new})/SUMPRODUCT({old}/{new}))",
        "geometric": f"EXP(SUMPRODUCT({weight}*LN({new}/{old}))/SUM({weight}))",
        "arithmetic": f"(SUMPRODUCT({new}/{old})/ROWS({new}))",
    }[name]


def share_formula(name: str, old: str, weight: str, old_cell: str, weight_cell: str) -> str:
    """Write the share that one line has in a mean."""
    equal = f"1/ROWS({old})"
    return {
        "ratio_of_harmonic_means": f"(1/{old_cell})/SUMPRODUCT(1/{old})",
        "weighted_harmonic": f"({weight_cell}/{old_cell})/SUMPRODUCT({weight}/{old})",
        "harmonic": equal,
        "geometric": f"{weight_cell}/SUM({weight})",
        "arithmetic": equal,
    }[name]


def interval_formulas(name: str, new: list[str], old: list[str], weight: str, value: str) -> tuple[str, str]:
    """Write the ends of a mean: errors go together on a machine and know nothing of each other across the two.

    Parameters
    ----------
    new, old : list of str
        Blocks of values, low ends and high ends.
    value : str
        The cell of the mean itself.
    """

    def apart(new_block: str, old_block: str) -> str:
        return f"LN({mean_formula(name, new_block, old_block, weight)}/{value})^2"

    below = f"{apart(new[1], old[0])}+{apart(new[0], old[2])}"
    above = f"{apart(new[2], old[0])}+{apart(new[0], old[1])}"
    return f"{value}*EXP(-SQRT({below}))", f"{value}*EXP(SQRT({above}))"

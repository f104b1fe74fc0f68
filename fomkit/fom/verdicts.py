"""What is said of a chance to reach a bar: the same two limits wherever a proposal or a delivery is judged."""

from __future__ import annotations

from typing import TypeVar

Word = TypeVar("Word", bound=str)

REACHED, MISSED = 0.9, 0.1
"""Chances of reaching a bar from which on it counts as reached, and up to which it counts as missed."""
PROPOSAL = ("meets", "does not meet", "ambiguous")
"""Words for a proposal held against a threshold."""


def verdict(chance: float, words: tuple[Word, Word, Word]) -> Word:
    """Choose the word for a chance of reaching a bar.

    Parameters
    ----------
    chance : float
        Between 0 and 1.
    words : tuple of str
        For a bar that is reached, missed, and neither.

    Examples
    --------
    >>> verdict(0.9, PROPOSAL), verdict(0.5, PROPOSAL), verdict(0.1, PROPOSAL)
    ('meets', 'ambiguous', 'does not meet')
    """
    reached, missed, neither = words
    return reached if chance >= REACHED else missed if chance <= MISSED else neither

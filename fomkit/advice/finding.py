"""What a rule answers: a finding with the time at stake, or why it does not apply."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from fomkit.advice.saving import Saving

State = Literal["advice", "rejected", "not_applicable"]

WORTH = 0.01
"""Share of a step below which a saving is no advice: repeats of one step differ by about as much."""


@dataclass(frozen=True)
class Finding:
    """One answer of a rule.

    Attributes
    ----------
    says : str
        What was found, or why the rule does not apply, as a sentence.
    do : str
        What to change.
    sure : str
        What the time at stake rests on, beside its interval.
    saving : Saving or None
        The time at stake; None where nobody knows or none is.
    at_most : bool
        The time at stake is a bound, not the estimate of a changed step.
    column : str
        Column of the table of ops that tells, or the fact of the machine.
    rows : tuple of mapping
        The ops concerned, the longest first, with what their times rest on.
    rejected : str
        Why it is no advice although something was tried; "" where it is.
    urgent : bool
        True where it comes before any saving: the step may not run, or all times are too small.
    applies : bool
        False where the rule has nothing to look at.
    """

    says: str
    do: str = ""
    sure: str = ""
    saving: Saving | None = None
    at_most: bool = False
    column: str = ""
    rows: tuple[dict[str, Any], ...] = ()
    rejected: str = ""
    urgent: bool = False
    applies: bool = True

    @property
    def state(self) -> State:
        """Tell advice from what was tried in vain and from what does not apply."""
        if not self.applies:
            return "not_applicable"
        return "rejected" if self.why_rejected else "advice"

    @property
    def why_rejected(self) -> str:
        """Say why it is no advice; "" where it is."""
        if self.rejected or self.saving is None:
            return self.rejected
        share = self.saving.share.value
        if share < -WORTH:
            return "the step would take longer"
        return "" if share >= WORTH else f"less than {WORTH:.0%} of the step is at stake"


def does_not_apply(why: str) -> Finding:
    """Say that a rule has nothing to look at."""
    return Finding(f"Does not apply because {why}.", applies=False)

"""One traced step, as every tracer gives it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from fomkit.trace.calls import TracedOp


@dataclass(frozen=True)
class Step:
    """What one step was made of.

    Attributes
    ----------
    ops : list of TracedOp
        The ops, and after them the layers of the forward pass, whose kind is ``layer``.
    states, unsupported : Counter
        The framework's ops by priced, zero_work and unsupported, and the last ones by name.
    order : list of TracedOp
        The lines of the order, whose kind is ``order``; their ``row`` is a position in ``ops``. Empty where
        nobody watched what is made and freed.
    """

    ops: list[TracedOp]
    states: Counter[str]
    unsupported: Counter[str]
    optimizer: dict[str, str]
    notes: list[str]
    order: list[TracedOp] = field(default_factory=list)

    @property
    def shares(self) -> str:
        """How many of the framework's ops have a price."""
        states = self.states
        return (
            f"{sum(states.values()):,} ops in the step: {states['priced']:,} priced, "
            f"{states['zero_work']:,} without work, {states['unsupported']:,} unsupported"
        )

    @property
    def listed_unsupported(self) -> list[str]:
        """The ops without a rule, with their counts."""
        return [f"{name} ×{count}" if count > 1 else name for name, count in sorted(self.unsupported.items())]

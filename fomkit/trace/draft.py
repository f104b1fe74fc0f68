"""The draft of a profile: plain values that can pass from the child process, and the profile made of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from fomkit.trace.op_table import Row, make_table
from fomkit.workload import Data, LastBatch, ModelProfile, Run


@dataclass(frozen=True)
class Draft:
    """All that a trace found, as numbers, text, lists and dicts only."""

    name: str
    title: str
    rows: list[Row]
    parts: list[Row]
    layers: list[Row]
    sizes: dict[str, int]
    traced_with: dict[str, str]
    parameters_total: int
    parameters_trainable: int
    train_samples: int | None
    validation_samples: int | None
    last_batch: LastBatch
    epochs: int | None
    optimizer: dict[str, str]
    unsupported: list[str]
    notes: list[str]
    order: list[Row] | None = None
    missing: list[str] = field(default_factory=list)
    derived: list[str] = field(default_factory=list)

    def profile(self, *notes: str) -> ModelProfile:
        """Make the profile, with further notes."""
        return ModelProfile(
            name=self.name,
            title=self.title,
            ops=make_table(self.rows),
            parts=make_table(self.parts, {"of": True}),
            layers=make_table(self.layers, table="LAYERS") if self.layers else None,
            order=None if self.order is None else make_table(self.order, table="ORDER"),
            sizes=self.sizes,
            traced_with=self.traced_with,
            parameters_total=self.parameters_total,
            parameters_trainable=self.parameters_trainable,
            data=Data(self.train_samples, self.validation_samples, self.last_batch),
            run=Run(epochs=self.epochs),
            optimizer=self.optimizer,
            unsupported=tuple(self.unsupported),
            missing=tuple(self.missing),
            derived=tuple(self.derived),
            notes=(*self.notes, *notes),
        )

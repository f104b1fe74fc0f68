"""What all rules look at: a model on a machine, its estimate, and the same once more with something changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd

from fomkit.dtypes import MATRIX_KINDS
from fomkit.hardware import Machine
from fomkit.memory import Use
from fomkit.predict.engines import settle_engines
from fomkit.predict.rates import bounds
from fomkit.predict.rows import as_rows
from fomkit.resize import resize_ops, sizes_used
from fomkit.study.estimate import Estimate, estimate
from fomkit.study.fits import with_fits
from fomkit.study.memory_of import step_memory
from fomkit.study.options import Options
from fomkit.workload import ModelProfile

ROUNDING = 1e-6
"""Part of a floor by which a time may be below it without beating it."""


def beats_its_floor(ops: pd.DataFrame) -> pd.Series[bool]:
    """Tell which ops of a case take less than flop / peak or byte / bandwidth, the longer of the two."""
    return ops["time_s"] < ops["floor_s"] * (1 - ROUNDING)


@dataclass(frozen=True)
class Case:
    """A study to advise on.

    Attributes
    ----------
    options : Options
        As the user chose them; work without a time is always left out and told of.
    before : Estimate
    """

    model: ModelProfile
    machine: Machine
    options: Options
    before: Estimate

    @property
    def device_s(self) -> float:
        """What the device works in a step [s]."""
        return self.before.step_time.device_s.value

    @cached_property
    def fitted(self) -> Machine:
        """The machine with the fits of its tables."""
        return with_fits(self.machine)

    @cached_property
    def ops(self) -> pd.DataFrame:
        """The TIMED table with the engines that rows really run on, ``floor_s`` and ``seconds`` of a step [s]."""
        ops = settle_engines(self.before.ops.reset_index(drop=True), self.fitted)[0]
        floor_s = bounds(as_rows(ops), self.fitted).floor_s
        return ops.assign(floor_s=floor_s, seconds=ops["time_s"] * ops["count"])

    @cached_property
    def memory(self) -> Use | None:
        """The memory of the step in the formats of the trace; None where its order is unknown or fixed."""
        sizes = self.before.sizes
        if self.model.order is None:
            return None
        moved = {name for name, value in sizes.items() if value != self.model.sizes.get(name)}
        return step_memory(self.model, sizes) if moved <= sizes_used(self.model.order) else None

    @property
    def fixed(self) -> ModelProfile:
        """The model with the sizes of this study written into its ops as numbers."""
        ops = resize_ops(self.model.ops, self.before.sizes, self.model.name)
        return replace(self.model, ops=ops, sizes=dict(self.before.sizes))

    def again(
        self, model: ModelProfile | None = None, machine: Machine | None = None, **changed: object
    ) -> Estimate:
        """Estimate once more with another model, machine or options.

        Raises
        ------
        FomkitError
            When the change cannot be estimated.
        """
        options = replace(self.options, **changed)  # type: ignore[arg-type]
        return estimate(model or self.model, machine or self.machine, options)

    def lacks_times(self, after: Estimate) -> bool:
        """Tell whether a changed step has work without a time that the step did not have: no saving, a gap."""
        return bool(after.ops["time_s"].isna().sum() > self.before.ops["time_s"].isna().sum())

    def with_times(self, rows: pd.Series[bool], time_s: pd.Series[float]) -> pd.DataFrame:
        """Give the table with some rows at other times [s], known without error."""
        times = self.ops["time_s"].mask(rows, time_s)
        ends: Mapping[str, pd.Series[float]] = {
            name: self.ops[name].mask(rows, times) for name in ("low_s", "high_s")
        }
        # An exact time rests on no table, so use in a step adds no error to it.
        source = self.ops["time_source"].astype("object").mask(rows, "assumed")
        return self.ops.assign(time_s=times, **ends, time_source=source)

    def share_of_products(self, rows: pd.Series[bool]) -> float:
        """Give the share of the flop of all products of the step that some rows do."""
        products = self.ops["kind"].isin(MATRIX_KINDS)
        flop = (self.ops["flop"] * self.ops["count"]).where(products).to_numpy(np.float64)
        return float(np.nansum(flop[rows.to_numpy(bool)]) / max(np.nansum(flop), 1.0))

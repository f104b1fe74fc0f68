"""A program's step at other batches: what its loader gives is cut or repeated, and the program's own code runs.

So the sizes of the step get a name, and an estimate may ask for another batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import torch

from fomkit.frontends.lowering.calls import TracedOp
from fomkit.frontends.script.torch_recorder import Fetched, Recording, loader_facts, shapes_in
from fomkit.frontends.sizes import NoExpression, name_sizes

_TRIES = 5
"""Steps that are waited for one at another batch: trainers fetch batches ahead, and epochs end."""


def other_batches(batch: int) -> tuple[int, ...]:
    """Give the batches to train at besides the program's own: smaller ones, that take less, where it has many.

    A batch of 1 is often a case of its own, so it is named from three others.

    >>> other_batches(32), other_batches(4), other_batches(1)
    ((17, 12), (8, 12), (2, 3, 5))
    """
    if batch == 1:
        return 2, 3, 5
    return (batch // 2 + 1, batch // 3 + 2) if batch >= 8 else (2 * batch, 3 * batch)


def with_samples(values: Any, before: int, now: int) -> Any:
    """Give a batch with another number of samples: what begins with ``before`` of them is cut, or repeated.

    Lists of texts or numbers count as much as tensors; what is none of these stays as it is.
    """
    if isinstance(values, torch.Tensor):
        is_batched = values.dim() and values.shape[0] == before
        return values[torch.arange(now, device=values.device) % before] if is_batched else values
    if isinstance(values, Mapping):
        changed: Any = copy(values)
        for name, value in values.items():
            changed[name] = with_samples(value, before, now)
        return changed
    if not isinstance(values, list | tuple):
        return values
    if len(values) == before and all(isinstance(value, str | bytes | int | float) for value in values):
        parts = [values[place % before] for place in range(now)]
    else:
        parts = [with_samples(value, before, now) for value in values]
    return type(values)(*parts) if hasattr(values, "_fields") else type(values)(parts)


@dataclass
class OtherBatches:
    """Has a program train at other batches, and keeps the ops of its steps there.

    `given`: the batch of the recorded step, whose samples are used again.
    `samples`: in it; of a step of several batches, in each.
    `lengths`: first axes of what models were called with, call by call.
    `found`: the ops at each other batch, so far.
    """

    given: Fetched
    samples: int
    lengths: list[int]
    found: dict[int, list[TracedOp]] = field(default_factory=dict)
    _tries: int = 0
    _last: list[int] = field(default_factory=list)

    @property
    def _wanted(self) -> int | None:
        return next((one for one in other_batches(self.samples) if one not in self.found), None)

    def instead_of(self, batch: Fetched) -> Any:
        """Give what the program gets in place of a batch; other loaders' stay as they are."""
        if batch.loader is not self.given.loader or self._wanted is None:
            return batch.values
        return with_samples(self.given.values, self.samples, self._wanted)

    def ends(self, seen: Recording, ops: list[TracedOp]) -> bool:
        """Take note of a step; tell whether no further one is wanted.

        It begins where the step before it was updated, with what is left to do for that: both have the batch.
        """
        wanted, before = self._wanted, self._last
        self._last = seen.called_lengths
        if wanted is not None and seen.is_clean and before == self._last == self._scaled(wanted):
            self.found[wanted], self._tries = ops, 0
        else:
            self._tries += 1
        return self._wanted is None or self._tries >= _TRIES

    def _scaled(self, wanted: int) -> list[int]:
        return [one if one % self.samples else one // self.samples * wanted for one in self.lengths]


def at_other_batches(seen: Recording, recent: Sequence[Fetched]) -> OtherBatches | str:
    """Prepare to train at other batches than that of a recorded step, or say why that cannot be.

    `recent`: what the program took from its loaders last; trainers take batches ahead of the step that uses them.
    """
    if len({id(batch.loader) for batch in seen.batches}) != 1:
        return "the batch comes from several DataLoaders" if seen.batches else ""
    loader = seen.batches[0].loader
    own = [batch for batch in reversed(recent) if batch.loader is loader and batch.is_full]
    used = [batch for batch in own if {*seen.called_with} <= {*shapes_in(batch.values)}]
    shapes = shapes_in(own[0].values) if own else []
    if not shapes or not seen.called_lengths:
        return "no tensor of the batch was seen to go into a model"
    samples = shapes[0][0]
    if samples != (loader_facts(loader).batch or samples) or seen.called_lengths[0] % samples:
        return "its first axis is not that of the samples"
    return OtherBatches((used or own)[0], samples, seen.called_lengths)


def named_by_batch(ops: list[TracedOp], others: OtherBatches, batch: int) -> list[TracedOp]:
    """Write the sizes of a step as expressions in the batch.

    `ops`: those of the recorded step; `batch`: samples of the whole step, a multiple of those of each batch.
    Raises NoExpression when the step is another one at other batches, or nobody saw it there.
    """
    if len(others.found) < len(other_batches(others.samples)):
        raise NoExpression("the program took no step of its own at another batch")
    times = batch // others.samples
    name = "batch" if times == 1 else f"((batch + {times - 1})//{times})"  # never 0
    steps = {others.samples: ops, **others.found}
    if others.samples == 1:
        try:
            return _named(steps, name)
        except NoExpression:  # a batch of 1 is left out: its ops are often others
            del steps[1]
    return _named(steps, name)


def _named(steps: Mapping[int, list[TracedOp]], name: str) -> list[TracedOp]:
    return name_sizes(list(steps.values()), [{name: size} for size in steps], [name])

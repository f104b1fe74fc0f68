"""Run the recorded step of a program at other batches, so that its sizes can be expressed by the batch.

The loader's batch is cut or repeated, and the program's own code runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import torch

from fomkit.frontends.lowering.calls import TracedOp
from fomkit.frontends.script.torch_recorder import Recording, shapes_in
from fomkit.frontends.script.trainers import Fetched, loader_facts
from fomkit.frontends.sizes import NoExpression, name_sizes

_TRIES = 5
"""Most steps to wait for a usable one at another batch: trainers prefetch batches, and epochs end."""


def other_batches(batch: int) -> tuple[int, ...]:
    """Return the batches to train at besides the program's own; for large batches, far smaller and cheaper ones.

    A batch of 1 is often a special case, so it is expressed from three others. To an even batch the others are
    even too, since some programs take samples in pairs.

    >>> other_batches(32), other_batches(9), other_batches(4), other_batches(1), other_batches(1024)
    ((18, 12), (6, 5), (8, 12), (2, 3, 5), (130, 86))
    """
    if batch == 1:
        return 2, 3, 5
    if batch < 8:
        return 2 * batch, 3 * batch
    part = batch // 4 if batch >= 128 else batch
    return (part // 2 + 2, part // 3 + 2) if batch % 2 else (part // 4 * 2 + 2, part // 6 * 2 + 2)


def with_samples(values: Any, before: int, now: int) -> Any:
    """Return a batch with another number of samples: values of length ``before`` are cut or repeated.

    Lists of texts or numbers are changed like tensors; other values stay as they are.
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
    """Makes a program train at other batches, and keeps the ops of its steps there.

    `given`: a batch of each loader of the recorded step, whose samples are used again.
    `samples`: in the first of them, which may be one of several of the step.
    `lengths`: first axes of the arguments of models, call by call.
    `found`: the ops at each other batch, so far.
    """

    given: list[Fetched]
    samples: int
    lengths: list[int]
    found: dict[int, list[TracedOp]] = field(default_factory=dict)
    _tries: int = 0
    _last: list[int] = field(default_factory=list)

    @property
    def _wanted(self) -> int | None:
        return next((one for one in other_batches(self.samples) if one not in self.found), None)

    def instead_of(self, batch: Fetched) -> Any:
        """Return the values that the program gets for a batch; batches of other loaders stay as they are."""
        same = [one for one in self.given if one.loader is batch.loader]
        # A program may make its loader anew for each epoch.
        alike = [one for one in self.given if _kind_of(one) == _kind_of(batch)]
        if self._wanted is None or not (same or alike):
            return batch.values
        one = (same or alike)[0]
        before = _first_axis(one)
        return with_samples(one.values, before, before // self.samples * self._wanted)

    def ends(self, seen: Recording, ops: list[TracedOp]) -> bool:
        """Record a step; return whether no further step is wanted.

        A recording begins with the rest of the step before, so both steps must have the wanted batch.
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


def _kind_of(batch: Fetched) -> tuple[object, ...]:
    return type(batch.loader.dataset), *shapes_in(batch.values)


def _first_axis(batch: Fetched) -> int:
    """Return the first axis of a batch's first tensor; 0 without a tensor."""
    return next((shape[0] for shape in shapes_in(batch.values)), 0)


def at_other_batches(seen: Recording, recent: Sequence[Fetched]) -> OtherBatches | str:
    """Prepare to train at other batches than that of a recorded step, or return why this is impossible.

    `recent`: the batches fetched last; trainers fetch batches ahead of the step that uses them.
    """
    loaders = list({id(batch.loader): batch.loader for batch in seen.batches}.values())
    given = []
    for loader in loaders:
        own = [batch for batch in reversed(recent) if batch.loader is loader and batch.is_full]
        used = [batch for batch in own if {*seen.called_with} <= {*shapes_in(batch.values)}]
        given += (used or own)[:1]
    if not loaders:
        return ""
    samples = _first_axis(given[0]) if given else 0
    if not samples or len(given) < len(loaders) or not seen.called_lengths:
        return "no tensor of the batch was passed to a model"
    if samples != (loader_facts(loaders[0]).batch or samples) or seen.called_lengths[0] % samples:
        return "its first axis is not that of the samples"
    if not all(axis and axis % samples == 0 for axis in map(_first_axis, given)):
        return "the batch comes from several DataLoaders, of different batches"
    return OtherBatches(given, samples, seen.called_lengths)


def named_by_batch(ops: list[TracedOp], others: OtherBatches, batch: int) -> list[TracedOp]:
    """Write the sizes of a step as expressions in the batch.

    `ops`: those of the recorded step; `batch`: samples of the whole step, a multiple of those of each batch.
    Raises NoExpression when the step differs at other batches, or was not seen there.
    """
    if len(others.found) < len(other_batches(others.samples)):
        raise NoExpression("the program took no step of its own at another batch")
    times = batch // others.samples
    name = "batch" if times == 1 else f"((batch + {times - 1})//{times})"  # never 0
    steps = {others.samples: ops, **others.found}

    def named() -> list[TracedOp]:
        return name_sizes(list(steps.values()), [{name: size} for size in steps], [name])

    if others.samples == 1:
        with suppress(NoExpression):
            return named()
        del steps[1]  # a batch of 1 is left out: its ops often differ
    return named()

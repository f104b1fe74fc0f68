"""Storages: what tensors and their views share in memory, numbered once for good and watched until it is freed."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import Any

import torch

_NUMBERS = count()
_NUMBER = "_fomkit_number"


def held_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """Give what a tensor holds in memory: of a sparse gradient its values, the rows looked up."""
    return tensor if tensor.layout is torch.strided else tensor._values()


def storage_of(tensor: torch.Tensor) -> Any:
    """Give the memory that a tensor lies in; views share it."""
    return held_tensor(tensor).untyped_storage()


def storage_id(tensor: torch.Tensor) -> int:
    """Give the number of the memory that a tensor lies in; views share it, and no number comes back."""
    storage = storage_of(tensor)
    number = getattr(storage, _NUMBER, None)
    if number is None:
        number = next(_NUMBERS)
        setattr(storage, _NUMBER, number)
    return int(number)


class FreedWatch:
    """Tells when storages are freed.

    Parameters
    ----------
    on_freed : function of a number
        Called with the number of each watched storage that is gone.
    """

    def __init__(self, on_freed: Callable[[int], None]) -> None:
        self._on_freed = on_freed
        self._watched: dict[int, weakref.ref[Any]] = {}

    def new_ones(self, tensors: Iterator[torch.Tensor]) -> Iterator[tuple[int, int]]:
        """Watch those storages of some tensors that are not watched yet; give number and size [byte] of each."""
        for tensor in tensors:
            number = storage_id(tensor)
            if number not in self._watched:
                storage = storage_of(tensor)
                self._watched[number] = weakref.ref(storage, partial(self._gone, number))
                yield number, int(storage.nbytes())

    def _gone(self, number: int, _: object) -> None:
        self._on_freed(number)

    def stop(self) -> None:
        """Watch no longer."""
        self._watched.clear()

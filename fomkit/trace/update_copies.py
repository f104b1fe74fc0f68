"""What an unfused update makes for a moment, by the rule of the optimizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Copies(NamedTuple):
    """Tensors of a parameter's size that stand at once while an unfused update runs.

    Attributes
    ----------
    listed, listed_decayed : int
        Of all parameters, in an update by lists, without and with weight decay that is added to gradients.
    single, held : int
        Of one parameter, in an update tensor by tensor, and of the one before, which its variables still hold.
    """

    listed: int
    listed_decayed: int
    single: int
    held: int


_ADAM = Copies(1, 1, 2, 1)
_RMSPROP = Copies(1, 2, 1, 1)
COPIES: Mapping[str, Copies] = {
    "sgd": Copies(0, 1, 0, 0), "momentum": Copies(0, 1, 0, 0), "nesterov": Copies(0, 1, 1, 0),
    **dict.fromkeys(("adam", "adam_amsgrad", "adamw", "adamw_amsgrad"), _ADAM),
    **dict.fromkeys(("rmsprop", "rmsprop_momentum", "rmsprop_centered", "rmsprop_centered_momentum"), _RMSPROP),
    "adamax": Copies(1, 1, 1, 0), "nadam": Copies(1, 2, 2, 1), "radam": Copies(1, 1, 2, 0),
    "adagrad": Copies(2, 2, 1, 1), "adadelta": Copies(2, 3, 2, 1),
}  # fmt: skip
"""As torch 2.13 makes them; a test runs every rule and compares."""


def byte_in_turn(copies: Copies, sizes: Sequence[float], more: int = 0) -> float:
    """Give the most memory [byte] that an update makes for itself at once, tensor by tensor.

    Parameters
    ----------
    copies : Copies
    sizes : sequence of float
        Bytes of each parameter in order.
    more : int
        Copies of the parameter at hand besides, of its gradient with weight decay added for one.

    Examples
    --------
    >>> byte_in_turn(COPIES["adam"], [400.0, 100.0])
    800.0
    """
    before = [0, *sizes]
    return max((copies.single + more) * own + copies.held * last for own, last in zip(sizes, before, strict=False))

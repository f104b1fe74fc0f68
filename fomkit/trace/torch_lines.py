"""The line of the user's code behind each op; in the backward pass that of the op whose gradient is computed."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import torch

from fomkit.trace.torch_scopes import Node
from fomkit.trace.user_code import CodeLines


class LineLog:
    """Remembers the lines that made autograd nodes.

    Parameters
    ----------
    code : CodeLines
    made : mapping
        The line that made each module by its path: a Sequential calls its modules without a line of the user's.

    A node is made just before its op is dispatched, and nodes are numbered in the order they are made: so the last
    number given belongs to the op that is now dispatched, unless it was given before the op before.
    """

    def __init__(self, code: CodeLines, made: Mapping[str, str]) -> None:
        self._code, self._made = code, made
        self._of_nodes: dict[int, str] = {}
        self._numbered = self._next_number()
        self._last = ""

    @staticmethod
    def _next_number() -> int:
        number: Any = torch._C._autograd._get_sequence_nr()
        return int(number)

    def find(self, node: Node, path: str, *, in_call: bool) -> str:
        """Give the line of the op that is now dispatched.

        Parameters
        ----------
        node : autograd node or None
            The one that now runs.
        path : str
            Of the module whose call runs.
        in_call : bool
            Whether a call runs too, which inside the backward pass is the forward pass again (checkpointing).
        """
        if node is None or in_call:
            line = self._code.of(sys._getframe(1)) or self._made.get(path, "")
        else:
            # What gathers a parameter's gradients has no number; it runs right after the op that made one.
            line = self._of_nodes.get(node._sequence_nr(), self._last)
        number = self._next_number()
        for made in range(self._numbered, number):
            # An op that writes into a view numbers one more node when it is over.
            self._of_nodes[made] = line if made == number - 1 else self._last
        self._numbered = number
        self._last = line
        return line

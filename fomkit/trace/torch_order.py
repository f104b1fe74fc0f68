"""The order of a step: every executed op, the memory that it makes, and the op after which that is free again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_leaves

from fomkit.trace.calls import FORWARD, Dimensions, TracedOp
from fomkit.trace.order_table import ORDER_LINE
from fomkit.trace.torch_storages import FreedWatch, storage_id, storage_of


@dataclass(eq=False, slots=True)
class Line:
    """One executed op, or one more storage that it makes; ``id`` 0 is what stands in memory before the step."""

    id: int
    row: TracedOp | None
    module: str
    pass_name: str
    storage: int | None = None
    byte: int = 0
    role: str = ""
    freed_by: int | None = None

    def traced(self, places: Mapping[int, int]) -> TracedOp:
        """Give the line as a row that is named like an op; ``places`` are positions of rows by their ``id()``."""
        where: Dimensions = {} if self.row is None else {"row": places[id(self.row)]}
        end: Dimensions = {} if self.freed_by is None else {"freed_by": self.freed_by}
        sizes: Dimensions = {"id": self.id, **where, "role": self.role, "output_byte": self.byte, **end}
        place = (self.pass_name, self.module) if self.row is None else ("", "")
        return TracedOp("", ORDER_LINE, sizes, "", *place)


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    return (leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor))


class OrderLog:
    """Collects the lines of one step; the recorder tells it each op.

    Attributes
    ----------
    executed : int
        Ops executed so far.
    """

    def __init__(self) -> None:
        self.executed = 0
        self._resident: list[Line] = []
        self._lines: list[Line] = []
        self._made: dict[int, Line] = {}
        self._watch = FreedWatch(self._freed)
        self._attended: set[int] = set()
        self._forward_end: int | None = None

    def _freed(self, number: int) -> None:
        if number in self._made:  # a tensor without elements takes no memory
            self._made[number].freed_by = self.executed

    def hold(self, values: Any, role: str, module: str = "") -> None:
        """Note what stands in memory already, once each."""
        for number, byte in self._watch.new_ones(_tensors(values)):
            line = Line(0, None, module, "", number, byte, role)
            self._made[number] = line
            self._resident.append(line)

    def hold_model(self, model: torch.nn.Module) -> None:
        """Note a model's parameters and buffers, each at its first module; what has no shape yet waits.

        Called again after the step, it finds what the step gave a shape.
        """
        for role, named in (("parameter", model.named_parameters()), ("buffer", model.named_buffers())):
            for name, tensor in named:
                if is_lazy(tensor):
                    continue
                self.hold([tensor], role, name.rpartition(".")[0])
                line = self._made.get(storage_id(tensor))
                if line is not None and line.role == "input":
                    line.role, line.module = role, name.rpartition(".")[0]

    def note(self, rows: Sequence[TracedOp], results: Any, module: str, pass_name: str) -> None:
        """Note one executed op with the rows that it belongs to and what it gave back."""
        made = [(number, byte) for number, byte in self._watch.new_ones(_tensors(results)) if byte]
        inside = bool(rows and rows[0].parts and self._lines and self._lines[-1].row is rows[0])
        if not made and (inside or not rows):
            return
        lines = [Line(self.executed + 1 + place, row, "", "") for place, row in enumerate(rows)]
        lines = lines or [Line(self.executed + 1, None, module, pass_name)]
        self.executed += len(lines)
        first = lines[0]
        lines[1:1] = [Line(first.id, first.row, first.module, first.pass_name) for _ in made[1:]]
        for line, (number, byte) in zip(lines, made, strict=False):
            line.storage, line.byte = number, byte
            self._made[number] = line
        self._lines += lines

    def note_attention(self, factors: Iterable[torch.Tensor], result: torch.Tensor) -> None:
        """Let an attention keep for its backward pass what one fused kernel keeps: its factors and its result."""
        self._attended.add(storage_id(result))
        factors = list(factors)
        nodes = [factor.grad_fn for factor in factors if factor.requires_grad and factor.grad_fn is not None]
        hooks: Any = torch._C._autograd._top_saved_tensors_default_hooks
        if not nodes or hooks(True) is not None:  # checkpointed: nothing is kept
            return
        kept = [storage_of(tensor) for tensor in (*factors, result)]
        nodes[0].register_prehook(lambda _: kept.clear())

    def end_forward(self) -> None:
        """Note that the backward pass begins; what is kept now is kept for it."""
        self._forward_end = self.executed

    def finish(self, gradients: Iterable[torch.Tensor]) -> list[Line]:
        """Give the lines, each with the role of its storage; those of ``gradients`` stay until the step's end."""
        self._watch.stop()
        made = {storage_id(gradient) for gradient in gradients}
        for line in self._lines:
            line.role = "gradient" if line.storage in made else "activation" if self._kept(line) else "temporary"
            if line.storage is None:
                line.role = ""
        return [*self._resident, *self._fused()]

    def _kept(self, line: Line) -> bool:
        end = self._forward_end
        return end is not None and line.id <= end and (line.freed_by is None or line.freed_by > end)

    def _fused(self) -> Iterator[Line]:
        """Leave out what an attention taken apart makes for itself: a fused kernel keeps it on the chip."""
        for _, run in groupby(self._lines, key=lambda line: id(line.row)):
            lines = list(run)
            row, last = lines[0].row, lines[-1].id
            if row is None or row.kind != "attention":
                yield from lines
                continue
            seen = {number for line in lines if (number := line.storage) is not None and self._leaves(line, last)}
            for place, line in enumerate(lines):
                if line.storage in seen:
                    yield line
                elif place == 0:
                    yield Line(line.id, row, "", "")

    def _leaves(self, line: Line, last: int) -> bool:
        if line.row is not None and line.row.pass_name == FORWARD:
            return line.storage in self._attended
        return line.freed_by is None or line.freed_by > last

"""Add the casts of PyTorch's autocast to a step: rows that its fp32 trace lacks, as expressions of its sizes.

Autocast (torch.amp, "Autocast Op Reference", CUDA): products read the narrow format, layer norms and losses fp32.
A trained weight is cast once in a region, however often it is read; any other tensor is cast by each op that reads
it; and the gradient of a cast is the cast back. A table of ops does not contain which op reads which tensor; this
is inferred from sizes and the order of rows (docs/adr/0069).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fomkit.core.units import ITEM_BYTE
from fomkit.ops.conv_methods import BACK_INPUT, BACK_WEIGHT, FORWARD, PASSES
from fomkit.ops.families.costs import GATES, MATRICES
from fomkit.ops.kinds import PRODUCT_KINDS, of_role

Row = Mapping[str, Any]
"""A row of an OPS table, whose cells are numbers or expressions of named sizes."""

_NORMS = ("aten::native_layer_norm", "aten::native_group_norm", "aten::_fused_rms_norm")
_LOSSES = ("aten::nll_loss_backward", "aten::nll_loss2d_backward", "aten::mse_loss_backward")
WIDE = (*_NORMS, *(f"{norm}_backward" for norm in _NORMS), *_LOSSES)
"""Ops that autocast runs in fp32, of kinds whose other ops use the format of the activations."""
CROSS_ENTROPY = ("aten::_log_softmax", "aten::_log_softmax_backward_data")
"""Softmax ops in the format of the activations: cross_entropy calls log_softmax in that of its input (ATen,
LossNLL.cpp), and the loss after it reads fp32."""
_POWERS = ("pow", "exp", "expm1", "log", "log1p", "log2", "rsqrt", "reciprocal", "softplus", "cumsum", "prod")
"""Element-wise ops that autocast runs in fp32, too; their times are not restated so."""
_COMPARED = (CROSS_ENTROPY[0], "aten::mse_loss")
"""Tensors that a loss in fp32 compares with the target: the result of the first op, the input of the second."""

SOFTMAX = ("aten::_softmax", "aten::_softmax_backward_data")
BY_SOFTMAX = "fp16"
"""The format that a GPU's softmax in fp32 reads by itself, and its gradient writes (ATen's ``half_to_float``,
docs/adr/0081); tensors in bf16 are cast. Other frameworks' are not known."""

WEIGHT, GRADIENT, ACTIVATION = "weight cast", "gradient cast", "activation cast"
"""Names of the added rows."""

_SUM, _LOOKUPS, _SOFT, _ELEMENTS, _UPDATES = (
    ("reduction", "backward"), ("embedding",), ("softmax",), of_role("elements"), of_role("update"),
)  # fmt: skip


class _Cast(NamedTuple):
    """A tensor that is cast, and whose gradient is cast back.

    `op`, `row`, `count`: name of the added row, the op that reads the tensor, number of casts in a step.
    `factors`, `divisor`: cells whose product, over the divisor, is the number of elements.
    `narrows`: whether the forward pass makes it narrower; `has_gradient`: whether there is a cast back.
    """

    op: str
    row: Row
    count: Any
    factors: Sequence[Any]
    divisor: Any = 1
    narrows: bool = True
    has_gradient: bool = True


def _known_number(cell: Any) -> float | None:
    """Return a cell's number; None for an expression of named sizes."""
    if isinstance(cell, str):
        return float(cell) if cell.strip().isdigit() else None
    return float(cell)


def _cells_product(factors: Sequence[Any], divisor: Any = 1) -> Any:
    """Multiply cells: a number, or an expression if one of them is.

    >>> _cells_product([2.0, "3"]), _cells_product([2.0, "batch + 1", 3.0], 6.0)
    (6.0, '(6*(batch + 1))//(6)')
    """
    numbers = [_known_number(cell) for cell in factors]
    known = prod(number for number in numbers if number is not None)
    sized = [str(cell) for cell, number in zip(factors, numbers, strict=True) if number is None]
    below = _known_number(divisor)
    if not sized and below is not None:
        return known / below
    text = "*".join([f"{known:.0f}", *(f"({one})" for one in sized)])
    return text if below == 1 else f"({text})//({divisor if below is None else int(below)})"


class _Weights(NamedTuple):
    """The weights that a kind of product reads: cells of their size, their number, and the size of their bias."""

    factors: Sequence[str]
    copies: int = 1
    divisor: str = ""
    bias: str = ""


_WEIGHTS: Mapping[str, _Weights] = {
    "gemm": _Weights(("n", "k"), bias="n"),
    "conv": _Weights(
        ("out_channels", "in_channels", "kernel_d", "kernel_h", "kernel_w"), 1, "groups", "out_channels"
    ),
    "experts": _Weights(("b", "n", "k"), MATRICES),
}
_INPUTS: Mapping[str, Sequence[str]] = {
    "gemm": ("b", "m", "k"), "conv": ("batch", "in_channels", "depth", "height", "width"),
    "rnn": ("batch", "steps", "input_size"),
}  # fmt: skip
"""Sizes of the input that a product reads besides its weights."""


def _weights_read(numbers: Row) -> _Weights | None:
    """Return the weights of a product; None for a product of activations, identified by more than one matrix."""
    return None if numbers.get("b", 1) > 1 and not numbers.get("experts", 0) > 0 else _WEIGHTS.get(numbers["kind"])


def _recurrent_casts(row: Row, *, has_gradient: bool) -> Iterator[_Cast]:
    """Yield the casts of a recurrent layer: two matrices and two biases per layer and direction (cuDNN's)."""
    gates, hidden, layers = GATES[row["cell"]], row["hidden_size"], row["layers"]
    ways, shared = row["directions"], partial(_Cast, WEIGHT, row, has_gradient=has_gradient)
    each, count = _cells_product((row["count"], layers, ways)), _cells_product((row["count"], ways))
    deep = _known_number(layers)
    upper = f"({layers}) - 1" if deep is None else deep - 1
    yield shared(count, (gates, hidden, row["input_size"]))
    if upper:
        yield shared(_cells_product((row["count"], upper, ways)), (gates, hidden, hidden, ways))
    yield shared(each, (gates, hidden, hidden))
    yield shared(_cells_product((2, each)), (gates, hidden))


class _Step:
    """The rows of a step in their order, from which its casts are inferred.

    `rows`: as in the profile; `numbers`: the same at some sizes.
    """

    def __init__(self, ops: pd.DataFrame, numbers: pd.DataFrame) -> None:
        modules = ops["module"].fillna("") if "module" in ops.columns else ""
        self.rows: list[dict[Any, Any]] = ops.assign(module=modules).to_dict("records")
        self.numbers: list[dict[Any, Any]] = numbers.assign(module=modules).to_dict("records")
        for row in (*self.rows, *self.numbers):
            if row.get("layout") == "column_major":  # so that its weights are n × k, as in frameworks
                row["m"], row["n"] = row["n"], row["m"]
        self.places = {(row["module"], row["kind"], row["pass_name"]) for row in self.numbers}
        self.told = {kind for _, kind, pass_name in self.places if pass_name in PASSES[1:]}
        """Kinds whose gradients are separate rows in the profile."""
        sums = [row for row in self.numbers if (row["kind"], row["pass_name"]) == _SUM]
        self.sums = {(row["module"], row["write_byte"]) for row in sums}
        self.updated = sum(row["numel"] * row["count"] for row in self.numbers if row["kind"] in _UPDATES)

    def forward(self) -> Iterator[tuple[int, Row, Row]]:
        for at, (row, numbers) in enumerate(zip(self.rows, self.numbers, strict=True)):
            if row["pass_name"] == FORWARD:
                yield at, row, numbers

    def has(self, row: Row, pass_name: str) -> bool:
        """Return whether a product has such a gradient; true if gradients of its kind are not separate rows."""
        return row["kind"] not in self.told or (row["module"], row["kind"], pass_name) in self.places

    def weights(self) -> Iterator[_Cast]:
        """Yield the tensors stored in fp32 that products read, each once."""
        found, copies = dict[tuple[Any, ...], _Cast](), dict[tuple[Any, ...], int]()
        trained, times = dict[object, float](), dict[object, float]()
        for _, row, numbers in self.forward():
            weights = _weights_read(numbers)
            if weights is None:
                continue
            groups = row[weights.divisor] if weights.divisor else 1
            shape = tuple(numbers[name] for name in weights.factors)
            key, count = (row["module"], row["op"], shape), _cells_product((row["count"], weights.copies))
            if key in found:  # a number, or an expression if one of both counts is
                before, more = _known_number(found[key].count), _known_number(count)
                count = f"({found[key].count}) + ({count})" if before is None or more is None else before + more
            found[key] = _Cast(
                WEIGHT, row, count, [row[name] for name in weights.factors], groups,
                has_gradient=self.has(row, BACK_WEIGHT),
            )  # fmt: skip
            copies[key], times[key] = weights.copies, times.get(key, 0.0) + numbers["count"]
            if found[key].has_gradient:
                trained[key] = weights.copies * prod(shape) / (numbers[weights.divisor] if groups != 1 else 1)
            bias = ITEM_BYTE["fp32"] * numbers[weights.bias] if weights.bias else 0.0
            if (row["module"], bias) in self.sums:
                found[(key, "bias")] = found[key]._replace(factors=[row[weights.bias]], divisor=1)
                copies[(key, "bias")] = 1
        again = self.read_again(trained, times)
        for key, one in found.items():
            yield one._replace(count=copies[key]) if key in again or key[0] in again else one
        for _, row, _ in self.forward():
            if row.get("cell") in GATES:
                yield from _recurrent_casts(row, has_gradient=self.has(row, BACK_WEIGHT))

    def read_again(self, trained: Mapping[object, float], times: Mapping[object, float]) -> set[object]:
        """Return weights read several times in a step: with a weight per reading there are more than are updated.

        `trained`: numbers of a weight; `times`: how often it is read. A row may also represent equal blocks, with
        a weight each. So the weights read most often are selected first, until the excess is explained.
        """
        left = {key: size * (times[key] - 1) for key, size in trained.items() if times[key] > 1}
        found, excess = set[object](), sum(size * times[key] for key, size in trained.items()) - self.updated
        while excess > 0 and left:
            key = max(left, key=lambda one: times[one])
            found.add(key)
            excess -= left.pop(key)
        return found

    def data(self) -> Iterator[_Cast]:
        """Yield the step's input, in fp32: products that read it have a gradient of weights, but none of it."""
        for _, row, numbers in self.forward():
            known = row["kind"] in self.told and (_weights_read(numbers) is not None or row.get("cell") in GATES)
            if known and self.has(row, BACK_WEIGHT) and not self.has(row, BACK_INPUT):
                cells = [row[name] for name in _INPUTS[row["kind"]]]
                yield _Cast(ACTIVATION, row, row["count"], cells, has_gradient=False)

    def readers(self, at: int) -> Iterator[Row]:
        """Yield the products that read a row's result: following rows whose input has as many elements.

        Element-wise ops may be in between; several products in sequence may read the same result.
        """
        numel, begun = self.numbers[at]["numel"], False
        for row, numbers in zip(self.rows[at + 1 :], self.numbers[at + 1 :], strict=True):
            inputs, of_weights = _INPUTS.get(row["kind"], ()), _weights_read(numbers) is not None
            if inputs and prod(numbers[name] for name in inputs) == numel and (of_weights or not begun):
                begun = True
                yield row
                if not of_weights:
                    return
            elif begun or row["kind"] not in _ELEMENTS:
                return

    def activations(self, narrow: str) -> Iterator[_Cast]:
        """Yield tensors in the format `narrow` that fp32 ops read, and fp32 results that products read."""
        looked_up = set[float]()
        for at, row, numbers in self.forward():
            op, is_softmax, is_lookup = row["op"], row["kind"] in _SOFT, row["kind"] in _LOOKUPS
            reads_wide = op in _NORMS or (op == SOFTMAX[0] and narrow != BY_SOFTMAX)
            if op in _COMPARED or (reads_wide and numbers["numel"] not in looked_up):
                yield _Cast(ACTIVATION, row, row["count"], [row["numel"]], narrows=False)
            if op in _NORMS or is_lookup or (is_softmax and op not in CROSS_ENTROPY):
                yield from (_Cast(ACTIVATION, one, one["count"], [row["numel"]]) for one in self.readers(at))
            looked_up = looked_up | {numbers["numel"]} if is_lookup else looked_up
            looked_up = set() if row["kind"] in _INPUTS else looked_up


def softmax_factors(ops: pd.DataFrame) -> NDArray[np.float64]:
    """Return the factors (2, n) of the bytes read and written where a softmax reads `BY_SOFTMAX` without a cast.

    >>> softmax_factors(pd.DataFrame({"op": SOFTMAX, "dtype": "fp32"})).tolist()
    [[0.5, 1.0], [1.0, 0.5]]
    """
    half = ITEM_BYTE[BY_SOFTMAX] / ITEM_BYTE["fp32"]
    return np.where([ops["dtype"].eq("fp32") & ops["op"].eq(name) for name in SOFTMAX], half, 1.0)


def with_casts(
    ops: pd.DataFrame, numbers: pd.DataFrame, narrow: str, *, of_activations: bool, scales_loss: bool
) -> pd.DataFrame:
    """Append the casts of a training step that stores fp32 weights and computes in a narrow format.

    `ops`: an OPS table in fp32, whose cells may be expressions; `numbers`: the same at some sizes; `narrow`: the
    number format; `of_activations`: whether more than weights is cast; `scales_loss`: whether gradients are
    divided by the scale of the loss before the update.
    """
    step, low, high, made = _Step(ops, numbers), ITEM_BYTE[narrow], ITEM_BYTE["fp32"], list[dict[str, Any]]()
    for one in (*step.weights(), *((*step.data(), *step.activations(narrow)) if of_activations else ())):
        shared = {"kind": "copy", "dtype": narrow, "engine": "vector", "module": one.row["module"],
                  "count": one.count, "numel": _cells_product(one.factors, one.divisor)}  # fmt: skip
        back = GRADIENT if one.op == WEIGHT else ACTIVATION
        passes = ((one.op, "forward", one.narrows), (back, "backward", not one.narrows))
        for op, pass_name, narrows in passes[: 1 + one.has_gradient]:
            widths = {"read_byte": high if narrows else low, "write_byte": low if narrows else high}
            moved = {name: _cells_product((width, shared["numel"])) for name, width in widths.items()}
            made.append({**shared, **moved, "op": op, "pass_name": pass_name})
    for row in (row for row in step.rows if scales_loss and row["kind"] in _UPDATES):
        moved = dict.fromkeys(("read_byte", "write_byte"), _cells_product((high, row["numel"])))
        same = {name: row[name] for name in ("module", "count", "numel")}
        made.append({"op": "gradient unscale", "kind": "pointwise", "dtype": "fp32", "engine": "vector",
                     "pass_name": "update", **moved, **same})  # fmt: skip
    without = [] if "module" in ops.columns else ["module"]
    return pd.concat([ops, pd.DataFrame(made).drop(columns=without)], ignore_index=True) if made else ops


class _Formats:
    """The formats of a step's results, followed in the order of its ops: products narrow, few others widen.

    An element-wise op keeps the format of what it reads; a sum of two tensors of which one is wide is wide, as in
    a stream that begins with a look-up. Which tensor an op reads is inferred from bytes.
    """

    def __init__(self, ops: pd.DataFrame) -> None:
        names, kinds = ops["op"].astype("str"), ops["kind"]
        self.narrows = (kinds.isin(PRODUCT_KINDS) | names.isin(CROSS_ENTROPY)).to_numpy()
        wide = names.isin((*WIDE, *(f"aten::{power}" for power in _POWERS)))
        self.widens = (wide | kinds.isin((*_SOFT, *_LOOKUPS, _SUM[0]))).to_numpy() & ~self.narrows
        self.adds = ops["inputs"].to_numpy(np.float64) > 1 if "inputs" in ops.columns else self.widens & False
        self.of_bytes, self.wide, self.last = dict[float, bool](), set[float](), True

    def is_wide(self, row: int, byte: float) -> bool:
        """Return whether the next op's result, of `byte` in fp32, is wide."""
        if self.narrows[row] or self.widens[row]:
            found = bool(self.widens[row])
        else:
            found = (self.adds[row] and byte in self.wide) or self.of_bytes.get(byte, self.last)
        self.of_bytes[byte] = self.last = found
        self.wide |= {byte} if found else set()
        return found


def _results(sized: pd.DataFrame, numbers: pd.DataFrame) -> NDArray[np.bool_]:
    """Return which lines of an order are what an op in fp32 computes, not its mask, indices or statistics.

    Of an op without a row nothing is known but the bytes.
    """
    rows, byte = sized["row"].to_numpy(np.float64), sized["output_byte"]
    known = ~np.isnan(rows) & sized["role"].isin(_KEPT).to_numpy()
    at, ids = rows[known].astype(int), sized["id"][known]
    narrows = (numbers["dtype"].eq("fp32") & numbers["pass_name"].ne("update")).to_numpy()[at]
    numel = numbers["numel"].to_numpy(np.float64)[at] if "numel" in numbers.columns else np.nan
    of_op = byte[known].groupby(ids)
    most, least = of_op.transform("max"), of_op.transform("min")
    told = byte[known].eq(ITEM_BYTE["fp32"] * numel)
    # Where no line has the bytes of the op's elements: an index has twice the bytes of its number.
    result = byte[known].eq(least.where(most.eq(2 * least), most))
    found: NDArray[np.bool_] = np.isnan(rows) & (sized["role"].isin(_KEPT) & sized["id"].gt(0)).to_numpy()
    found[known] = narrows & told.where(told.groupby(ids).transform("any"), result).to_numpy()
    return found


_KEPT = ("activation", "temporary")


class _Order:
    """The memory of a step as traced, from which that in a narrow format is derived; see `narrow_order`."""

    def __init__(self, numbers: pd.DataFrame, sized: pd.DataFrame) -> None:
        names = ("op", "kind", "pass_name")
        self.names, self.kinds, self.passes = (numbers[name].astype("str").to_numpy(object) for name in names)
        rows, self.ids = (sized[name].to_numpy(np.float64) for name in ("row", "id"))
        self.freed, self.roles = sized["freed_by"].to_numpy(np.float64), sized["role"].to_numpy(object)
        self.rows = {
            one: int(row) for one, row in zip(self.ids.tolist(), rows.tolist(), strict=True) if row == row
        }
        self.losses = [at for at, row in self.rows.items() if self.names[row] in _LOSSES]

    def reader(self, place: int) -> int | None:
        """Return the row of the op in backward that a line is kept for; None if it is not."""
        freed = float(self.freed[place])
        # What a product reads is free once its bias has its gradient, too.
        while (row := self.rows.get(freed)) is not None and (self.kinds[row], self.passes[row]) == _SUM:
            freed -= 1
        return row if self.roles[place] == "activation" else None

    def lines(self, place: int, cell: Any, low: float, *, wide: bool) -> tuple[Any, list[dict[str, Any]]]:
        """Return the bytes of a result in the narrow format, and the lines of its casts."""
        at, reader, high = float(self.ids[place]), self.reader(place), ITEM_BYTE["fp32"]
        narrow = _cells_product((cell,), high // low)
        if reader is not None and self.names[reader] in WIDE:
            return cell, []
        if wide and reader is not None and self.kinds[reader] in _INPUTS:
            return narrow, [{"role": "temporary", "id": at, "freed_by": at + 1, "output_byte": cell}]
        if not wide and self.losses and self.names[self.rows.get(at, 0)] == CROSS_ENTROPY[0]:
            return narrow, [{"role": "activation", "id": at, "freed_by": min(self.losses), "output_byte": cell}]
        return (cell if wide else narrow), []


def narrow_order(
    ops: pd.DataFrame, numbers: pd.DataFrame, order: pd.DataFrame, sized: pd.DataFrame, narrow: str,
    *, trains: bool,
) -> pd.DataFrame:  # fmt: skip
    """Return the memory of a step in fp32 as that of a step in a narrow format of two bytes.

    `trains`: fp32 weights by autocast: what a product makes, and what it keeps, is narrow; a norm in fp32 keeps a
    wide copy of what it reads; weights have a narrow copy from their first product to their last. Else weights,
    their gradients and all results are narrow. `ops`, `order`: as traced, whose cells may be expressions;
    `numbers`, `sized`: the same at some sizes.
    """
    if not trains:
        words = numbers["kind"].isin(_LOOKUPS).any()  # data are whole numbers then
        roles = ("parameter", "gradient", "buffer", *(() if words else ("input",)))
        stored = _results(sized, numbers) | sized["role"].isin(roles).to_numpy()
        factor = ITEM_BYTE["fp32"] // ITEM_BYTE[narrow]
        halved = [_cells_product((cell,), factor if one else 1)
                  for cell, one in zip(order["output_byte"], stored, strict=True)]  # fmt: skip
        return order.assign(output_byte=pd.Series(halved, order.index, dtype=object))
    formats, traced, low = _Formats(numbers), _Order(numbers, sized), ITEM_BYTE[narrow]
    cells, byte, made = order["output_byte"].tolist(), sized["output_byte"].tolist(), list[dict[str, Any]]()
    for place in np.flatnonzero(_results(sized, numbers)).tolist():
        row = traced.rows.get(float(traced.ids[place]))
        wide = (
            formats.of_bytes.get(byte[place], formats.last) if row is None else formats.is_wide(row, byte[place])
        )
        cells[place], more = traced.lines(place, cells[place], low, wide=wide)
        made += more
    modules = numbers["module"].fillna("").tolist() if "module" in numbers.columns else [""] * len(numbers)
    step = _Step(ops, numbers)
    for one in (*step.weights(), *step.data()):
        own = (one.row["kind"], one.row["module"])
        used = [at for at, row in traced.rows.items() if (traced.kinds[row], modules[row]) == own]
        copy = _cells_product((low, one.count, *one.factors), one.divisor)
        if len(one.factors) > 1:  # a bias is not kept
            made.append({"role": "activation", "id": min(used), "freed_by": max(used), "output_byte": copy})
    changed = order.assign(output_byte=pd.Series(cells, order.index, dtype=object))
    return pd.concat([changed, pd.DataFrame(made).assign(module="", pass_name="", row=np.nan)], ignore_index=True)
